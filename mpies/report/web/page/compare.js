// Several runs overlaid: a chart for each task, and a table of groups, whose runs differ in their seed alone.
"use strict";

const DRAWN = { eval_mean: ["Evaluation", "return, held out"], return_mean: ["Return of members", "return"],
  length_mean: ["Episode length of members", "steps"], eval_length: ["Episode length in evaluations", "steps"],
  sigma: ["Sigma", "std of a parameter"], update_ratio: ["Update ratio", "step / parameters"],
  steps_per_second: ["Speed", "steps per second"] };
const PALETTE = 8; // colours that readers tell apart; with more groups, hues are spread evenly

let compared = null; // the newest answer, with the request that it answers
let panels = []; // the chart of each task
let groupOrder = { by: "evaluation", down: true };
let marked = null; // number of the group that stands out

// The runs that are compared: those in the address, or the best of the sweep in it.
function comparedRuns() {
  const { kind, names } = address();
  if (kind === "sweep") return swept?.name === names[0] ? swept.best : [];
  return kind === "compare" ? names : [];
}

async function refreshCompared() {
  const asked = address(), names = comparedRuns(), form = document.forms.comparison;
  const query = new URLSearchParams({ axis: form.across.value, drawn: form.drawn.value });
  if ($("seeds").checked) query.append("seeds", "1");
  for (const name of names) query.append("run", name);
  const what = query.toString(), isOther = compared?.what !== what;
  query.append("version", isOther ? "" : compared.version);
  const news = await ask(`/api/compare?${query}`);
  if (!isStillAsked(asked)) return;
  const isBack = $("compared").hidden;
  showOnly("compared", ...(asked.kind === "sweep" ? ["swept"] : []));
  if (news.groups) compared = { ...news, what: what.replace(/drawn=\w*/, `drawn=${news.drawn}`) }; // as the list will say
  else if (!isBack) return; // nothing is new
  if (isOther) marked = null;
  if (asked.kind === "compare") nameCompared(names.length);
  const options = () => compared.available.map((name) => make("option", { value: name }, DRAWN[name][0]));
  if (showOnce(form.drawn, compared.available.join(), options)) form.drawn.value = compared.drawn;
  showCompared();
}

// asked: the number of runs that were asked for.
function nameCompared(asked) {
  const shown = plural(compared.runs - compared.repeated, "run");
  const why = { "without a generation": asked - compared.runs, "with the config and seed of another one": compared.repeated };
  const lost = Object.entries(why).map(([words, count]) => (count ? ` ${plural(count, "run")} ${words} left out.` : ""));
  announce(`${shown} in ${plural(compared.groups.length, "group")}`, `A group's runs differ in their seed alone.${lost.join("")}`);
}

function showCompared() {
  panels = showCharts($("panels"), panels, compared.tasks.map(layOutTask));
  showTable($("groups"), groupColumns(), compared.groups, groupOrder, (place) => (place === marked ? "marked" : ""));
  say($("hidden-keys"), compared.hidden_keys ? `${compared.hidden_keys} more settings differ.` : "");
}

function groupColour(number, alpha = 1) {
  const count = compared.groups.length;
  const solid = count <= PALETTE ? colour(`c${number}`) : `hsl(${Math.round((360 * number) / count)} 65% ${colour("lightness")})`;
  return alpha === 1 ? solid : `color-mix(in srgb, ${solid} ${100 * alpha}%, transparent)`;
}

function layOutTask({ task, targets, x, curves }) {
  const form = document.forms.comparison, isWide = compared.tasks.length === 1;
  if (!x.length) return { title: task, isWide, data: null, style: "empty" };
  const [what, unit] = DRAWN[compared.drawn], isReturn = ["eval_mean", "return_mean"].includes(compared.drawn);
  const mayLog = isReturn || ["sigma", "update_ratio"].includes(compared.drawn), aims = isReturn ? targets : [];
  const shown = curves.flatMap((curve) => [curve.mid, curve.low, curve.high, ...(curve.runs || [])]);
  const scale = chooseScale([...shown, aims], form.vertical.value, mayLog ? curves.map((curve) => curve.mid) : []);
  const [across, label] = horizontal(x, form.across.value);
  const data = [across], series = [], bands = [];
  const add = (values, options) => {
    data.push(values.map(scale.apply));
    series.push({ points: { show: hasFewValues }, spanGaps: true, ...options });
  };
  for (const { group, mid, low, high, runs: each = [] } of curves) {
    const [solid, faint, fill] = marked === null || marked === group ? [1, 0.45, 0.16] : [0.15, 0.08, 0.03];
    for (const values of each) add(values, { stroke: groupColour(group, faint), width: 0.75 });
    for (const end of [high, low]) add(end, { stroke: "transparent", points: { show: false } });
    bands.push({ series: [data.length - 2, data.length - 1], fill: groupColour(group, fill) });
    add(mid, { stroke: groupColour(group, solid), width: marked === group ? 3 : 1.75 });
  }
  return {
    title: task, unit, label, scale, isWide, data, series, bands, targets: aims, areWhole: form.across.value !== "seconds",
    curves, description: `${task}: ${what} of ${plural(curves.length, "group")} against ${label}`,
    onCursor: (index) => showCursor(curves, index),
    style: [compared.drawn, series.map(({ stroke, width }) => `${stroke} ${width}`), scale.kind, label, colour("ink")].join(),
  };
}

// The medians at the cursor, in the table.
function showCursor(curves, index) {
  for (const { group, mid } of curves) {
    const cell = document.querySelector(`#groups tr[data-group="${group}"] .cursor`);
    if (cell) say(cell, index === null || mid[index] === null ? "" : number(mid[index]));
  }
}

function groupColumns() {
  const { tasks, keys } = compared;
  const quartiles = (group) => (group.median === null || group.runs < 2 ? "–" : `${number(group.quartile_1)} to ${number(group.quartile_3)}`);
  return [
    { title: "group", isHead: true, value: (group) => group.config, show: groupButton },
    ...(tasks.length > 1 ? [{ title: "task", value: (group) => group.task }] : []),
    { title: "at cursor", class: "cursor", show: () => "" },
    { title: "runs", isDown: true, value: (group) => group.runs, show: (group) => make("span", {}, `${group.runs}: `,
      seedLinks(group.names.map((name, place) => ({ name, seed: group.seeds[place] })))) },
    { title: "solved", isDown: true, value: (group) => group.solved, show: (group) => (group.solved === null ? "–" : `${group.solved} of ${group.runs}`) },
    { title: "evaluation", isDown: true, hint: "median of the newest evaluations", value: (group) => group.median, show: (group) => number(group.median) },
    { title: "quartiles", isDown: true, value: (group) => group.quartile_1, show: quartiles },
    { title: "steps to target", isDown: true, value: (group) => group.steps, show: (group) => number(group.steps) },
    { title: "generations", isDown: true, value: (group) => group.generations, show: (group) => number(group.generations) },
    ...(keys.length === 1 && tasks.length === 1 ? [] : keys).map(({ key, short }) => (
      { key, title: short, hint: key, value: (group) => group.settings[key], show: (group) => group.settings[key] ?? "" })),
  ];
}

function groupButton(group, place) {
  const swatch = make("span", { class: "swatch" });
  swatch.style.background = groupColour(place);
  const button = make("button", { type: "button", "aria-pressed": marked === place, title: "Make this group stand out" }, swatch, group.config);
  button.addEventListener("click", () => {
    marked = marked === place ? null : place;
    showCompared();
  });
  return button;
}

$("comparison").addEventListener("change", (event) => {
  if (event.target.name !== "vertical") tick();
  else if (compared) showCompared();
});
$("comparison").addEventListener("submit", (event) => event.preventDefault());
new ResizeObserver(() => fitToWindow(panels)).observe($("panels"));
