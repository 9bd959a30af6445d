// The list of runs, what the address of the page asks for, and the updates.  The server computes; the page only draws.
"use strict";

const EVERY = 2000; // ms between two requests
const MARKS = { running: "▶", finished: "✓", stopped: "■", stale: "⚠", damaged: "✗" };
const KINDS = { "=": "run", "+": "compare", "~": "sweep" }; // the first letter of the address after #

const $ = (id) => document.getElementById(id);
const rows = new Map(); // from a run's name to its line in the list
let runs = [];
let visible = []; // names of the runs that the filters let through
let timer = 0;
const unfolded = new Set(); // sweeps whose trials are in the list

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

// Fills a part of the page with what `list` makes, unless it shows the same already.  Returns whether it did.
function showOnce(box, what, list) {
  if (box.dataset.shown === what) return false;
  box.dataset.shown = what;
  box.replaceChildren(...list());
  return true;
}

function showOnly(...ids) {
  for (const one of ["shown", "compared", "swept"]) $(one).hidden = !ids.includes(one);
  $("drawn").hidden = $("compared").hidden;
  $("view").hidden = $("shown").hidden && $("compared").hidden;
}

function announce(name, about) {
  say($("name"), name);
  say($("about"), about);
  document.title = `${name} – mpies`;
}

function showPairs(list, pairs) {
  showOnce(list, JSON.stringify(pairs), () => Object.entries(pairs).map(([name, value]) => (
    make("div", {}, make("dt", {}, name), make("dd", {}, value)))));
}

// The parts of a name, which may break behind its separators, and not within a word.
const breakable = (name) => name.split(/(?<=[/_=,-])/).flatMap((part) => [part, make("wbr")]);

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

// ---------------------------------------------------------------- the list of runs

function showRuns() {
  const words = $("filter").value.toLowerCase();
  const checked = new Set(comparedRuns()), isOneRun = ["run", ""].includes(address().kind);
  visible = [];
  for (const one of runs) {
    if (!rows.has(one.name)) rows.set(one.name, makeRow(one.name));
    const row = rows.get(one.name), [box, link] = row.children, [name, badge, more] = link.children;
    const status = ["solved", "dropped", "waiting"].includes(one.reason) ? one.reason : one.state;
    box.checked = checked.has(one.name);
    showOnce(name, one.name, () => (one.name === "." ? ["this run"] : breakable(one.name)));
    say(badge, `${MARKS[one.state]} ${status}`);
    badge.className = `state ${status}`;
    const evaluated = one.eval_mean === undefined ? "" : `, evaluation ${number(one.eval_mean)}`;
    say(more, one.state === "damaged" ? one.reason : `${one.environment} · ${one.generation === undefined ? "no generation yet"
      : `generation ${number(one.generation)}, return ${number(one.return_mean)}${evaluated}`}`);
    if (run?.name === one.name && isOneRun) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    row.hidden = (!words && isFolded(one.name)) || !`${one.name} ${one.environment} ${one.state} ${status}`.toLowerCase().includes(words);
    if (!row.hidden) visible.push(one.name);
  }
  const names = new Set(runs.map((one) => one.name)), by = $("sort").value;
  for (const [name, row] of rows) if (!names.has(name)) { row.remove(); rows.delete(name); }
  const isFirst = (one) => by === "changed" && one.state === "running";
  const sorted = by === "name" ? runs : [...runs].sort((one, two) => (
    isFirst(two) - isFirst(one) || (two[by] ?? -Infinity) - (one[by] ?? -Infinity)));
  sorted.forEach((one, place) => {
    const row = rows.get(one.name), there = $("runs").children[place];
    if (there !== row) $("runs").insertBefore(row, there || null);
  });
  say($("count"), runs.length ? `${visible.length} of ${runs.length} runs` : "No runs here yet");
  say($("all"), `Compare ${visible.length === runs.length ? "all" : "these"} ${visible.length}`);
  $("none").hidden = !checked.size;
}

// Whether a run is a trial of a sweep that the reader has not unfolded; a sweep that is the whole folder is not folded.
function isFolded(name) {
  return sweeps.some((sweep) => sweep !== "." && name.startsWith(`${sweep}/`) && !unfolded.has(sweep));
}

function makeRow(name) {
  const parts = ["name", "state", "more"].map((part) => make("span", { class: part }));
  const box = make("input", { type: "checkbox", "aria-label": `Compare ${name}` });
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

function redraw() {
  if (run) drawRun();
  if (compared) showCompared();
}

for (const id of ["filter", "sort"]) $(id).addEventListener("input", showRuns);
$("all").addEventListener("click", () => pick(visible));
$("none").addEventListener("click", () => pick([]));
// The hash holds the selection, so the link must not change it.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("run").focus(); });
addEventListener("hashchange", tick);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
$("view").addEventListener("change", () => { redraw(); tick(); });
addEventListener("DOMContentLoaded", tick); // when the other scripts are there, too
