// The list of runs, what the address of the page asks for, and the updates.  The server computes; the page only draws.
"use strict";

const EVERY = 2000; // ms between two requests
const MARKS = { running: "▶", finished: "✓", stopped: "■", stale: "⚠" };
const KINDS = { "=": "run", "+": "compare", "~": "sweep" }; // the first letter of the address after #

const $ = (id) => document.getElementById(id);
const rows = new Map(); // from a run's name to its line in the list
let runs = [];
let visible = []; // names of the runs that the filters let through
let timer = 0;

// What the address asks for: its kind, "" where nothing was chosen, and names of runs or of a sweep.
function address() {
  const hash = location.hash.slice(1), kind = KINDS[hash[0]] || "", rest = hash.slice(1);
  const names = !kind ? [] : kind === "compare" ? rest.split("+").filter(Boolean) : [rest];
  return { hash, kind, names: names.map(decodeURIComponent) };
}

const isStillAsked = (asked) => asked.hash === location.hash.slice(1); // else something was chosen meanwhile
const linkTo = (name) => `#=${encodeURIComponent(name)}`;

function pick(names) {
  if (names.length) location.hash = `+${names.map(encodeURIComponent).join("+")}`;
  else location.hash = run ? linkTo(run.name) : "";
}

// ---------------------------------------------------------------- parts of the page

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Sets an element's text only if it differs, so that a selection or the focus in it stays.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Fills a part of the page anew.  The focus stays at the link, button or curve of the same number.
function refill(box, fill) {
  const all = () => [...box.querySelectorAll("a, button, [tabindex]")];
  const place = all().indexOf(document.activeElement);
  fill();
  if (place >= 0) all()[place]?.focus({ preventScroll: true });
}

// Fills a part of the page with what `list` makes, unless it shows the same already.  Returns whether it did.
function showOnce(box, what, list) {
  if (box.dataset.shown === what) return false;
  box.dataset.shown = what;
  box.replaceChildren(...list());
  return true;
}

function showOnly(...ids) {
  for (const one of ["shown", "compared", "swept"]) $(one).hidden = !ids.includes(one);
}

function announce(name, about) {
  say($("name"), name);
  say($("about"), about);
  document.title = `${name} – mpies`;
}

function showPairs(list, pairs) {
  const entries = Object.entries(pairs);
  while (list.children.length > entries.length) list.lastChild.remove();
  entries.forEach(([name, value], place) => {
    if (!list.children[place]) list.append(make("div", {}, make("dt"), make("dd")));
    say(list.children[place].firstChild, name);
    say(list.children[place].lastChild, value);
  });
}

function showBars(box, shares) {
  box.replaceChildren(...shares.map(({ title, share }) => make("div", { title }, make("span", {}, title),
    make("meter", { value: share, "aria-label": title }), make("b", {}, `${Math.round(100 * share)} %`))));
}

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1e4 ? 12 : digits, maximumFractionDigits: 0,
    roundingPriority: size >= 1e4 ? "lessPrecision" : "morePrecision" });
}

const spread = (mean, interval) => number(mean) + (mean !== undefined && (interval ?? null) !== null ? ` ± ${number(interval, 3)}` : "");

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${Math.floor(seconds % 60)} s`;
}

// ---------------------------------------------------------------- tables of groups

// Shows a table with a line for each group.  columns: their title, the value of a group, by which a click on the heading
// sorts, and, where it differs, what is shown of it; key: where titles may be the same; isDown: the highest comes first.
// order: {by, down}, which clicks change.  classOf: of the line of a group's number.
function showTable(table, columns, groups, order, classOf = () => "") {
  const keyOf = (column) => column.key || column.title;
  const by = columns.find((column) => keyOf(column) === order.by) || columns[0];
  const heads = columns.map((column) => {
    if (!column.value) return make("th", { scope: "col" }, column.title);
    const sorted = column !== by ? "none" : order.down ? "descending" : "ascending";
    const button = make("button", { type: "button", title: column.hint || column.title }, column.title + { descending: " ▾", ascending: " ▴", none: "" }[sorted]);
    button.addEventListener("click", () => {
      Object.assign(order, { by: keyOf(column), down: column === by ? !order.down : Boolean(column.isDown) });
      showTable(table, columns, groups, order, classOf);
    });
    return make("th", { scope: "col", "aria-sort": sorted }, button);
  });
  const places = [...groups.keys()].sort((one, two) => compareValues(by.value(groups[one]), by.value(groups[two]), order.down));
  const lines = places.map((place) => make("tr", { "data-group": place, class: classOf(place) }, ...columns.map((column) => {
    const shown = (column.show || ((group) => String(column.value(group) ?? "–")))(groups[place], place);
    return column.isHead ? make("th", { scope: "row" }, shown) : make("td", { class: column.class || "" }, shown);
  })));
  refill(table, () => table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines)));
}

// Numbers are compared as numbers, also in texts; what is missing comes last.
function compareValues(one, two, isDown) {
  const missing = (value) => value === null || value === undefined || value === "";
  if (missing(one) || missing(two)) return missing(one) - missing(two);
  const order = isFinite(one) && isFinite(two) ? one - two : String(one).localeCompare(String(two), "en", { numeric: true });
  return isDown ? -order : order;
}

// The seeds of a group, each a link to its run where it has begun, and the state of those that have not finished.
function seedLinks(trials) {
  const list = make("span", {}, "seed ");
  trials.forEach(({ name, seed, state = "finished", reason }, place) => {
    const link = state === "new" ? seed : make("a", { href: linkTo(name), title: reason || name }, seed);
    list.append(place ? ", " : "", link, ["finished", "solved"].includes(state) ? "" : ` (${state})`);
  });
  return list;
}

// ---------------------------------------------------------------- the list of runs

function showRuns() {
  const words = $("filter").value.toLowerCase(), state = $("state").value;
  const checked = new Set(comparedRuns()), isOneRun = ["run", ""].includes(address().kind);
  visible = [];
  for (const one of runs) {
    if (!rows.has(one.name)) rows.set(one.name, makeRow(one.name));
    const row = rows.get(one.name), [box, link] = row.children, [name, badge, more] = link.children;
    const status = ["solved", "dropped", "waiting"].includes(one.reason) ? one.reason : one.state;
    box.checked = checked.has(one.name);
    say(name, one.name === "." ? "this run" : one.name);
    say(badge, `${MARKS[one.state]} ${status}`);
    badge.className = `state ${status}`;
    const evaluated = one.eval_mean === undefined ? "" : `, evaluation ${number(one.eval_mean)}`;
    say(more, `${one.environment} · ${one.generation === undefined ? "no generation yet"
      : `generation ${number(one.generation)}, return ${number(one.return_mean)}${evaluated}`}`);
    if (run?.name === one.name && isOneRun) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    row.hidden = (state && one.state !== state && status !== state)
      || !`${one.name} ${one.environment}`.toLowerCase().includes(words);
    if (!row.hidden) visible.push(one.name);
  }
  const names = new Set(runs.map((one) => one.name)), by = $("sort").value;
  for (const [name, row] of rows) if (!names.has(name)) { row.remove(); rows.delete(name); }
  const sorted = by === "name" ? runs : [...runs].sort((one, two) => compareValues(one[by], two[by], true));
  sorted.forEach((one, place) => {
    const row = rows.get(one.name), there = $("runs").children[place];
    if (there !== row) $("runs").insertBefore(row, there || null);
  });
  say($("count"), runs.length ? `${visible.length} of ${runs.length} runs` : "No runs here yet");
  say($("all"), `Compare ${visible.length === runs.length ? "all" : "these"} ${visible.length}`);
  $("none").hidden = !checked.size;
}

function makeRow(name) {
  const parts = ["name", "state", "more"].map((part) => make("span", { class: part }));
  const box = make("input", { type: "checkbox", tabindex: "-1", "aria-label": `Compare ${name}` });
  box.addEventListener("change", () => {
    const names = comparedRuns();
    pick(names.includes(name) ? names.filter((other) => other !== name) : [...names, name]);
  });
  return make("li", {}, box, make("a", { href: linkTo(name), title: name }, ...parts));
}

// ---------------------------------------------------------------- updates

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function tick() {
  clearTimeout(timer);
  try {
    await refreshSweeps();
    if (address().kind === "sweep") await refreshSweep(); // first, as it is there before many runs have been read
    runs = await ask("/api/runs");
    showRuns();
    if (comparedRuns().length) await refreshCompared();
    else if (address().kind !== "sweep") await refreshRun();
    $("trouble").hidden = true;
  } catch (error) {
    say($("trouble"), error instanceof TypeError ? "No answer from the server; trying again." : error.message);
    $("trouble").hidden = false;
  }
  clearTimeout(timer);
  timer = setTimeout(tick, document.hidden ? 5 * EVERY : EVERY);
}

for (const id of ["filter", "state", "sort"]) $(id).addEventListener("input", showRuns);
$("all").addEventListener("click", () => pick(visible));
$("none").addEventListener("click", () => pick([]));
// The up and down keys go to the run above or below; the space bar selects a run to compare.
$("runs").addEventListener("keydown", (event) => {
  if (event.key === " " && event.target.matches("a")) {
    event.preventDefault();
    event.target.previousSibling.click();
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const links = [...$("runs").querySelectorAll("li:not([hidden]) a")];
  const next = step && links[links.indexOf(document.activeElement) + step];
  if (next) { event.preventDefault(); next.focus(); }
});
// The hash holds the selection, so the link must not change it.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("run").focus(); });
addEventListener("hashchange", tick);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (run) drawRun();
  if (compared) showCompared();
});
addEventListener("DOMContentLoaded", tick); // when the other scripts are there, too
