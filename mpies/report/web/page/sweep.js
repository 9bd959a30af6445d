// A sweep: its settings in a table, along parallel coordinates, and how much each of them matters.
"use strict";

const BEST = 8; // settings whose curves are drawn
const LISTED = 100; // rows of the table, until all are wanted
const SHADES = 16; // colours from the worst to the best evaluation

let sweeps = []; // names
let swept = null; // the newest answer
let best = []; // names of the runs whose curves are drawn
let settingsOrder = { by: "rank", down: false };
let isLong = false; // whether the table has all rows
let hovered = null; // number of the group that stands out
let brushes = {}; // from the number of an axis to the part of it, 0 to 1, in which groups are kept
let drag = null; // the axis and the place at which the mouse button went down

const sweeping = () => location.hash.startsWith("#~");
const sweepName = () => decodeURIComponent(location.hash.slice(2));
const plainNumber = (text) => (text === "" || text === null || !isFinite(text) ? null : +text);

async function refreshSweeps() {
  sweeps = await ask("/api/sweeps");
  $("sweeps").hidden = !sweeps.length;
  if ($("sweeps").dataset.shown !== sweeps.join("\n")) {
    $("sweeps").dataset.shown = sweeps.join("\n");
    $("sweeps").replaceChildren(...sweeps.map((name) => make("li", {},
      make("a", { href: `#~${encodeURIComponent(name)}` }, name === "." ? "this sweep" : `sweep ${name}`))));
  }
  if (!location.hash && sweeps.includes(".")) location.replace("#~.");
}

async function refreshSweep() {
  const name = sweepName(), isSame = swept && swept.name === name;
  const news = await ask(`/api/sweep?name=${encodeURIComponent(name)}&version=${isSame ? swept.version : ""}`);
  if (!sweeping() || sweepName() !== name) return; // something else was selected meanwhile
  const isBack = $("swept").hidden;
  if (!news.groups && !isBack) return; // nothing is new
  if (news.groups) swept = news;
  best = findBest();
  showOnly("swept", ...(isSame && best.length && !$("compared").hidden ? ["compared"] : [])); // not curves of other runs
  if (!isSame) [brushes, hovered, isLong] = [{}, null, false];
  say($("name"), name === "." ? "This sweep" : name);
  document.title = `${name === "." ? "sweep" : name} – mpies`;
  showProgress();
  showImportance();
  drawParallel();
  showSettings();
}

// The runs of the best settings, or of the first that have begun.
function findBest() {
  const begun = (group) => group.trials.some((place) => swept.trials[place].state !== "new");
  return swept.groups.filter(begun).slice(0, BEST).flatMap((group) => group.trials.map((place) => swept.trials[place]))
    .filter((trial) => trial.state !== "new").map(runOf);
}

const runOf = (trial) => (swept.name === "." ? trial.name : `${swept.name}/${trial.name}`);
const sweptRuns = () => (swept && swept.name === sweepName() ? best : []);

function showProgress() {
  const counts = {};
  for (const trial of swept.trials) counts[trial.state] = (counts[trial.state] || 0) + 1;
  say($("about"), `${plural(swept.trials.length, "trial")} of ${plural(swept.groups.length, "setting")} · `
    + Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", "));
  const first = swept.groups.find((group) => group.rank);
  const sum = (key) => swept.trials.reduce((total, trial) => total + (trial[key] || 0), 0);
  const told = { "best evaluation": first ? spread(first) : "–", "core hours": number(sum("core_seconds") / 3600),
    steps: number(sum("steps")) };
  swept.keys.forEach((key, place) => { told[`best ${key.short}`] = first ? first.settings[place] : "–"; });
  $("progress").replaceChildren(...Object.entries(told).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

const spread = (group) => (group.mean === null ? "–" : number(group.mean) + (group.interval === null ? "" : ` ± ${number(group.interval)}`));

function showImportance() {
  const known = swept.importance.map((share, place) => ({ share, ...swept.keys[place] })).filter((one) => one.share !== null)
    .sort((one, two) => two.share - one.share);
  $("importance").hidden = !known.length;
  $("importance").lastElementChild.replaceChildren(...known.map(({ key, short, share }) => {
    const meter = make("meter", { min: 0, max: 1, value: share, "aria-label": `${key} explains ${Math.round(100 * share)} %` });
    return make("div", { title: key }, make("span", {}, short), meter, make("b", {}, `${Math.round(100 * share)} %`));
  }));
}

// ---------------------------------------------------------------- parallel coordinates

// An axis for each setting and one for the evaluation: a title, where each group is from 0 to 1, and labels.
function sweepAxes() {
  const settings = swept.keys.map(({ short }, place) => scaleAxis(short, swept.groups.map((group) => group.settings[place])));
  return [...settings, scaleAxis("evaluation", swept.groups.map((group) => group.mean))];
}

function scaleAxis(title, values) {
  const numbers = values.map(plainNumber), known = numbers.filter((value) => value !== null);
  const isNumeric = known.length && values.every((value, place) => value === null || numbers[place] !== null);
  const different = [...new Set(isNumeric ? known : values.filter((value) => value !== null))];
  if (!isNumeric) {
    const at = (value) => (different.length < 2 ? 0.5 : different.indexOf(value) / (different.length - 1));
    return { title, places: values.map((value) => (value === null ? null : at(value))), labels: different.map((value) => [at(value), value || '""']) };
  }
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const bend = low > 0 && high / low >= 20 ? Math.log : (value) => value;
  const at = (value) => (high > low ? (bend(value) - bend(low)) / (bend(high) - bend(low)) : 0.5);
  const shown = different.length <= 8 ? different : [low, high];
  return { title, places: numbers.map((value) => (value === null ? null : at(value))), labels: shown.map((value) => [at(value), number(value)]) };
}

const isKept = (axes, group) => Object.entries(brushes).every(([place, [low, high]]) => {
  const at = axes[place]?.places[group];
  return at === undefined || (at !== null && at >= low && at <= high);
});

function layoutOf(canvas, axes) {
  const width = Math.max(260, canvas.parentElement.clientWidth - 2), height = 280, top = 34, bottom = height - 14, side = 70;
  const x = (place) => (axes.length < 2 ? width / 2 : side + (place * (width - 2 * side)) / (axes.length - 1));
  return { width, height, x, y: (at) => bottom - at * (bottom - top), at: (y) => (bottom - y) / (bottom - top) };
}

function drawParallel() {
  const canvas = $("parallel"), axes = sweepAxes(), shape = layoutOf(canvas, axes), ratio = devicePixelRatio;
  $("lines").hidden = axes.length < 2 || !swept.groups.length;
  if ($("lines").hidden) return;
  canvas.width = shape.width * ratio;
  canvas.height = shape.height * ratio;
  canvas.style.height = `${shape.height}px`;
  canvas.setAttribute("aria-label", `parallel coordinates of ${plural(swept.groups.length, "setting")}: ${axes.map((axis) => axis.title).join(", ")}; the table below has the values`);
  const brush = canvas.getContext("2d"), results = axes.at(-1).places;
  brush.scale(ratio, ratio);
  const [low, high] = [colour("blue"), colour("orange")];
  const shades = Array.from({ length: SHADES }, (_, place) => `color-mix(in srgb, ${high} ${Math.round((100 * place) / (SHADES - 1))}%, ${low})`);
  const alpha = Math.min(0.9, Math.max(0.12, 25 / swept.groups.length));
  const line = (group, strength, width) => {
    brush.globalAlpha = strength;
    brush.lineWidth = width;
    brush.strokeStyle = results[group] === null ? colour("quiet") : shades[Math.round(results[group] * (SHADES - 1))];
    brush.beginPath();
    let isDown = false;
    axes.forEach((axis, place) => {
      const at = axis.places[group];
      if (at === null) isDown = false;
      else if (isDown) brush.lineTo(shape.x(place), shape.y(at));
      else { brush.moveTo(shape.x(place), shape.y(at)); isDown = true; }
    });
    brush.stroke();
  };
  for (let group = swept.groups.length - 1; group >= 0; group--) line(group, isKept(axes, group) ? alpha : 0.03, 1.5); // the best on top
  if (hovered !== null) line(hovered, 1, 4);
  brush.globalAlpha = 1;
  drawAxes(brush, axes, shape);
}

function drawAxes(brush, axes, shape) {
  brush.font = "12px system-ui, sans-serif";
  brush.lineWidth = 1;
  axes.forEach((axis, place) => {
    const x = shape.x(place);
    brush.strokeStyle = colour("quiet");
    brush.beginPath();
    brush.moveTo(x, shape.y(0));
    brush.lineTo(x, shape.y(1));
    brush.stroke();
    if (brushes[place]) {
      brush.fillStyle = colour("band");
      const [low, high] = brushes[place];
      brush.fillRect(x - 8, shape.y(high), 16, shape.y(low) - shape.y(high));
    }
    brush.fillStyle = colour("ink");
    brush.textAlign = "center";
    brush.fillText(axis.title, x, 14);
    brush.textAlign = "left";
    for (const [at, label] of withRoom(axis.labels, 14 / (shape.y(0) - shape.y(1)))) {
      const words = [String(label).slice(0, 14), x + 6, shape.y(at) + 4];
      brush.lineWidth = 4;
      brush.strokeStyle = colour("paper"); // a rim, so that lines do not strike the label out
      brush.strokeText(...words);
      brush.fillStyle = colour("quiet");
      brush.fillText(...words);
    }
    brush.lineWidth = 1;
  });
}

// The labels that are at least `room` from each other, the lowest and the highest first.
function withRoom(labels, room) {
  const kept = [];
  const sorted = [...labels].sort(([one], [other]) => one - other);
  for (const label of [...sorted.slice(-1), ...sorted.slice(0, -1)]) {
    if (kept.every(([at]) => Math.abs(at - label[0]) >= room)) kept.push(label);
  }
  return kept;
}

function axisAt(event) {
  const axes = sweepAxes(), shape = layoutOf($("parallel"), axes);
  const places = axes.map((_, place) => Math.abs(shape.x(place) - event.offsetX));
  const nearest = places.indexOf(Math.min(...places));
  return places[nearest] < 30 ? { place: nearest, at: Math.min(1, Math.max(0, shape.at(event.offsetY))) } : null;
}

$("parallel").addEventListener("pointerdown", (event) => {
  drag = axisAt(event);
  if (drag) $("parallel").setPointerCapture(event.pointerId);
});
$("parallel").addEventListener("pointermove", (event) => {
  const here = drag && axisAt(event);
  if (!here || here.place !== drag.place) return;
  brushes[drag.place] = [Math.min(drag.at, here.at), Math.max(drag.at, here.at)];
  drawParallel();
});
$("parallel").addEventListener("pointerup", (event) => {
  const here = axisAt(event);
  if (drag && here && Math.abs(here.at - drag.at) < 0.02) delete brushes[drag.place]; // a click
  drag = null;
  drawParallel();
  showSettings();
});

// ---------------------------------------------------------------- the table

function settingColumns() {
  return [
    { by: "rank", title: "rank", value: (group) => group.rank || null },
    ...swept.keys.map(({ key, short }, place) => ({ by: key, title: short, hint: key, value: (group) => group.settings[place] })),
    { by: "mean", title: "evaluation", hint: "mean over the seeds, and its 95 % interval", value: (group) => group.mean, text: spread, down: true },
    { by: "ended", title: "ended", value: (group) => group.ended, text: (group) => `${group.ended} of ${group.trials.length}` },
    { by: "solved", title: "solved", value: (group) => group.solved },
    { by: "steps", title: "steps", value: (group) => group.steps, text: (group) => number(group.steps) },
    { by: "core_seconds", title: "core seconds", value: (group) => group.core_seconds, text: (group) => number(group.core_seconds) },
  ];
}

const showSettings = () => refill($("settings"), fillSettings);

function fillSettings() {
  const columns = settingColumns(), axes = sweepAxes();
  const by = columns.find((column) => column.by === settingsOrder.by) || columns[0];
  const kept = swept.groups.map((group, place) => ({ group, place })).filter(({ place }) => isKept(axes, place))
    .sort((one, two) => compareValues(by.value(one.group), by.value(two.group), settingsOrder.down));
  const head = columns.map((column) => {
    const sorted = column.by === by.by ? (settingsOrder.down ? "descending" : "ascending") : "none";
    const button = make("button", { type: "button", title: column.hint || column.title }, column.title + { descending: " ▾", ascending: " ▴", none: "" }[sorted]);
    button.addEventListener("click", () => {
      settingsOrder = { by: column.by, down: settingsOrder.by === column.by ? !settingsOrder.down : Boolean(column.down) };
      showSettings();
    });
    return make("th", { scope: "col", "aria-sort": sorted }, button);
  });
  const lines = kept.slice(0, isLong ? kept.length : LISTED).map(({ group, place }) => {
    const cells = columns.map((column) => make("td", {}, column.text ? column.text(group) : String(column.value(group) ?? "–")));
    const line = make("tr", { "data-group": place }, ...cells, make("td", {}, trialLinks(group)));
    line.addEventListener("pointerenter", () => { hovered = place; drawParallel(); });
    line.addEventListener("pointerleave", () => { hovered = null; drawParallel(); });
    return line;
  });
  $("settings").replaceChildren(make("thead", {}, make("tr", {}, ...head, make("th", { scope: "col" }, "trials"))), make("tbody", {}, ...lines));
  $("more").hidden = kept.length <= lines.length;
  say($("more"), `Show all ${kept.length}`);
}

// The seeds of a setting, each a link to its run, with the state of those that are not finished.
function trialLinks(group) {
  const list = make("span", {}, "seed ");
  group.trials.map((place) => swept.trials[place]).forEach((trial, place) => {
    const state = ["finished", "solved"].includes(trial.state) ? "" : ` (${trial.state})`;
    const label = trial.state === "new" ? trial.seed : make("a", { href: `#=${encodeURIComponent(runOf(trial))}`, title: trial.reason || trial.name }, trial.seed);
    list.append(place ? ", " : "", label, state);
  });
  return list;
}

$("more").addEventListener("click", () => { isLong = true; showSettings(); });
new ResizeObserver(() => sweeping() && swept && !$("swept").hidden && drawParallel()).observe($("lines"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => sweeping() && swept && drawParallel());
