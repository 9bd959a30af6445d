// Several runs overlaid: a chart for each task, and a table of groups, whose runs differ in their seed alone.
"use strict";

const DRAWN = { eval_mean: ["Evaluation", "return, held out"], return_mean: ["Return of members", "return"],
  length_mean: ["Episode length of members", "steps"], eval_length: ["Episode length in evaluations", "steps"],
  sigma: ["Sigma", "deviation of a parameter"], update_ratio: ["Update ratio", "step / parameters"],
  steps_per_second: ["Speed", "steps per second"] };
const PALETTE = 8; // colours that readers tell apart; with more groups, hues are spread evenly

let compared = null; // the newest answer, with the request that it answers
let panels = []; // the chart of each task
let sorting = { by: "median", down: true };
let marked = null; // number of the group that stands out

const comparing = () => location.hash.startsWith("#+") || (sweeping() && sweptRuns().length > 0);
const picked = () => (sweeping() ? sweptRuns() : comparing() ? location.hash.slice(2).split("+").filter(Boolean).map(decodeURIComponent) : []);

function pick(names) {
  if (names.length) location.hash = `+${names.map(encodeURIComponent).join("+")}`;
  else location.hash = run ? `=${encodeURIComponent(run.name)}` : "";
}

async function refreshCompared() {
  const names = picked(), form = document.forms.comparison;
  const query = new URLSearchParams({ axis: form.across.value, drawn: form.drawn.value, band: form.spread.value });
  if ($("seeds").checked) query.append("seeds", "1");
  for (const name of names) query.append("run", name);
  const asked = query.toString();
  query.append("version", compared && compared.asked === asked ? compared.version : "");
  const news = await ask(`/api/compare?${query}`);
  if (!comparing() || picked().join() !== names.join()) return; // others were selected meanwhile
  const isBack = $("compared").hidden, isOther = !compared || compared.asked !== asked;
  showOnly("compared", ...(sweeping() ? ["swept"] : []));
  if (news.groups) compared = { ...news, asked: asked.replace(/drawn=\w*/, `drawn=${news.drawn}`) }; // as the list will say
  else if (!isBack) return; // nothing is new
  if (isOther) marked = null;
  if (!sweeping()) nameCompared(names.length);
  listDrawn();
  if (isOther || isBack) buildPanels();
  else drawPanels();
  showTable();
}

// asked: the number of runs that were asked for.
function nameCompared(asked) {
  const shown = compared.runs - compared.repeated;
  const why = { "without a generation": asked - compared.runs, "with the config and seed of another one": compared.repeated };
  const lost = Object.entries(why).map(([words, count]) => (count ? ` ${plural(count, "run")} ${words} left out.` : ""));
  say($("name"), `${plural(shown, "run")} in ${plural(compared.groups.length, "group")}`);
  say($("about"), `A group's runs differ in their seed alone.${lost.join("")}`);
  document.title = `${plural(shown, "run")} – mpies`;
}

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function listDrawn() {
  const list = document.forms.comparison.drawn;
  if (list.dataset.shown === compared.available.join()) return;
  list.dataset.shown = compared.available.join();
  list.replaceChildren(...compared.available.map((name) => make("option", { value: name }, DRAWN[name][0])));
  list.value = compared.drawn;
}

function groupColour(number, alpha = 1) {
  const count = compared.groups.length;
  const solid = count <= PALETTE ? colour(`c${number}`) : `hsl(${Math.round((360 * number) / count)} 65% ${colour("lightness")})`;
  return alpha === 1 ? solid : `color-mix(in srgb, ${solid} ${100 * alpha}%, transparent)`;
}

// ---------------------------------------------------------------- curves

const drawnTasks = () => compared.tasks.filter((task) => task.x.length);
const buildPanels = () => refill($("panels"), plotPanels);

function plotPanels() {
  for (const panel of panels) panel.plot.destroy();
  // A task without values gets a box that says so.
  panels = drawnTasks().map((task) => ({ ...task,
    box: make("div", { class: compared.tasks.length > 1 ? "chart" : "chart wide" }, make("h3", {}, task.task)) }));
  const empty = compared.tasks.filter((task) => !task.x.length).map((task) => make("div", { class: "chart" },
    make("h3", {}, task.task), make("p", { class: "note" }, `${DRAWN[compared.drawn][0]}: no values yet`)));
  $("panels").replaceChildren(...panels.map((panel) => panel.box), ...empty);
  for (const panel of panels) plotPanel(panel);
}

// New values of the same groups: what the reader has zoomed in on, and reads at the cursor, stays.
function drawPanels() {
  const tasks = drawnTasks(), layouts = tasks.map(layOut), styles = (some) => some.map(({ style }) => style).join("\n");
  const boxes = $("panels").children.length; // also of tasks without values
  if (boxes !== compared.tasks.length || styles(layouts) !== styles(panels)) return buildPanels();
  panels.forEach((panel, place) => renew(Object.assign(panel, tasks[place]).plot, layouts[place].data));
}

// The values, lines and scale of a panel.  style: all of it that only building the panel again changes.
function layOut(panel) {
  const form = document.forms.comparison;
  const isReturn = ["eval_mean", "return_mean"].includes(compared.drawn);
  const shown = panel.curves.flatMap((curve) => [curve.mid, curve.low, curve.high, ...(curve.runs || [])]);
  const mayLog = isReturn || ["sigma", "update_ratio"].includes(compared.drawn);
  const scale = chooseScale(isReturn ? [...shown, panel.targets] : shown, form.vertical.value, mayLog ? panel.curves.map((curve) => curve.mid) : []);
  const [x, label] = scaled(panel.x, form.across.value);
  const data = [x], series = [{}], bands = [];
  const add = (values, options) => data.push(values.map(scale.apply)) && series.push({ points: { show: hasFewValues }, spanGaps: true, ...options });
  for (const curve of panel.curves) {
    const faint = marked !== null && marked !== curve.group;
    const hue = groupColour(curve.group, faint ? 0.15 : 1);
    for (const values of curve.runs || []) add(values, { stroke: groupColour(curve.group, faint ? 0.08 : 0.45), width: 0.75 });
    if (form.spread.value !== "none") {
      add(curve.high, { stroke: "transparent", points: { show: false } });
      add(curve.low, { stroke: "transparent", points: { show: false } });
      bands.push({ series: [data.length - 2, data.length - 1], fill: groupColour(curve.group, faint ? 0.03 : 0.16) });
    }
    add(curve.mid, { stroke: hue, width: marked === curve.group ? 3 : 1.75 });
  }
  const style = [panel.task, compared.drawn, series.map(({ stroke }) => stroke), bands.length, scale.kind, label].join();
  return { data, series, bands, scale, label, isReturn, style };
}

function plotPanel(panel) {
  const form = document.forms.comparison, ink = colour("ink"), line = colour("line");
  const { data, series, bands, scale, label, isReturn, style } = layOut(panel);
  panel.scale = scale;
  panel.style = style;
  panel.plot = new uPlot({
    ...size({ box: panel.box, wide: panels.length === 1 }),
    series, bands,
    scales: { x: { time: false }, y: { ...scale.options, range: (_, from, to) => panelRange(panel, scale, isReturn, from, to) } },
    axes: axesOf(ink, line, label, scale.label(DRAWN[compared.drawn][1]), scale, form.across.value !== "seconds"),
    cursor: { drag: { x: true, y: false } },
    legend: { show: false },
    hooks: { draw: [(u) => isReturn && drawTargets(u, panel.targets, scale)], setCursor: [(u) => showCursor(panel, u.cursor.idx)] },
  }, data, panel.box);
  const root = panel.plot.root;
  root.tabIndex = 0;
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", `${panel.task}: ${DRAWN[compared.drawn][0]} of ${plural(panel.curves.length, "group")} against ${label}`);
  root.addEventListener("keydown", (event) => moveCursor(event, panel));
}

function panelRange(panel, scale, isReturn, from, to) {
  if (from === null || from === undefined) return [0, 1];
  const targets = isReturn ? panel.targets.map(scale.apply).filter((value) => value !== null) : [];
  return pad(scale, Math.min(from, ...targets), Math.max(to, ...targets));
}

// The medians at the cursor, in the table.
function showCursor(panel, index) {
  for (const curve of panel.curves) {
    const cell = document.querySelector(`#groups tr[data-group="${curve.group}"] .cursor`);
    const value = index === null || index === undefined ? null : curve.mid[index];
    if (cell) say(cell, value === null ? "" : number(value));
  }
}

function mark(group) {
  if (marked === group) return;
  marked = group;
  for (const row of document.querySelectorAll("#groups tbody tr")) row.classList.toggle("marked", +row.dataset.group === group && group !== null);
  buildPanels();
}

// ---------------------------------------------------------------- the table

function tableColumns() {
  const tasks = new Set(compared.groups.map((group) => group.task));
  const evaluated = (group) => (group.median === null ? "–" : number(group.median));
  return [
    { by: "label", title: "group", value: (group) => group.label },
    ...(tasks.size > 1 ? [{ by: "task", title: "task", value: (group) => group.task }] : []),
    { title: "at cursor", text: () => "", className: "cursor" },
    { by: "runs", title: "runs", value: (group) => group.runs.length },
    { by: "solved", title: "solved", value: (group) => group.solved, text: (group) => (group.solved === null ? "–" : `${group.solved} of ${group.runs.length}`) },
    { by: "median", title: "evaluation", hint: "median of the newest evaluations", value: (group) => group.median, text: evaluated },
    { by: "quartiles", title: "quartiles", value: (group) => group.quartiles[0],
      text: (group) => (group.median === null || group.runs.length < 2 ? "–" : group.quartiles.map((value) => number(value)).join(" to ")) },
    { by: "steps_to_target", title: "steps to target", value: (group) => group.steps_to_target, text: (group) => number(group.steps_to_target) },
    { by: "generations", title: "generations", value: (group) => group.generations[0], text: (group) => number(group.generations[0]) },
    ...(compared.keys.length === 1 && tasks.size === 1 ? [] : compared.keys).map(({ key, short }, place) => ({ by: key, title: short, hint: key, value: (group) => group.settings[place] })),
  ];
}

// Numbers are compared as numbers, also in texts; what is missing comes last.
function compareValues(one, two, isDown = sorting.down) {
  const missing = (value) => value === null || value === undefined || value === "";
  if (missing(one) || missing(two)) return missing(one) - missing(two);
  const order = isFinite(one) && isFinite(two) ? one - two : String(one).localeCompare(String(two), "en", { numeric: true });
  return isDown ? -order : order;
}

const showTable = () => refill($("groups"), fillTable);

function fillTable() {
  const columns = tableColumns();
  const by = columns.find((column) => column.by === sorting.by) || columns[0];
  const order = compared.groups.map((group, place) => ({ group, place }))
    .sort((one, two) => compareValues(by.value(one.group), by.value(two.group)));
  const head = make("tr", {}, ...columns.map((column) => {
    if (!column.by) return make("th", { scope: "col" }, column.title);
    const sorted = column.by === by.by ? (sorting.down ? "descending" : "ascending") : "none";
    const button = make("button", { type: "button", title: column.hint || column.title },
      column.title + { descending: " ▾", ascending: " ▴", none: "" }[sorted]);
    button.addEventListener("click", () => {
      sorting = { by: column.by, down: sorting.by === column.by ? !sorting.down : !["label", "task"].includes(column.by) };
      showTable();
    });
    return make("th", { scope: "col", "aria-sort": sorted }, button);
  }));
  const lines = order.map(({ group, place }) => {
    const cells = columns.map((column) => {
      const text = column.text ? column.text(group) : String(column.value(group) ?? "");
      if (column.by === "label") return labelCell(group, place);
      return make("td", column.className ? { class: column.className } : {}, column.by === "runs" ? links(group) : text);
    });
    const line = make("tr", { "data-group": place }, ...cells);
    line.classList.toggle("marked", marked === place);
    return line;
  });
  $("groups").replaceChildren(make("thead", {}, head), make("tbody", {}, ...lines));
  say($("hidden-keys"), compared.hidden_keys ? `${compared.hidden_keys} more settings differ.` : "");
}

function labelCell(group, place) {
  const swatch = make("span", { class: "swatch" });
  swatch.style.background = groupColour(place);
  const button = make("button", { type: "button", "aria-pressed": marked === place, title: "Make this group stand out" }, swatch, group.label);
  button.addEventListener("click", () => { mark(marked === place ? null : place); showTable(); });
  return make("th", { scope: "row" }, button);
}

// The seeds of a group, each a link to its run.
function links(group) {
  const shown = group.runs.slice(0, 10);
  const list = make("span", {}, `${group.runs.length}: seed `);
  shown.forEach((one, place) => list.append(place ? ", " : "", make("a", { href: `#=${encodeURIComponent(one.name)}`, title: one.name }, String(one.seed))));
  if (group.runs.length > shown.length) list.append(", …");
  return list;
}

$("comparison").addEventListener("change", (event) => {
  if (event.target.name !== "vertical") tick();
  else if (compared) buildPanels();
});
$("comparison").addEventListener("submit", (event) => event.preventDefault());
new ResizeObserver(() => panels.forEach((panel) => panel.plot.setSize(size({ box: panel.box, wide: panels.length === 1 })))).observe($("panels"));
