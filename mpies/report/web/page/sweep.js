// A sweep: its settings in a table, along parallel coordinates, and how much each of them matters.
"use strict";

const SHADES = 16; // colours from the worst to the best evaluation

let swept = null; // the newest answer
let settingsOrder = { by: "rank", down: false };
let brushes = {}; // from the number of an axis to the part of it, 0 to 1, in which groups are kept
let drag = null; // the axis and the place at which the mouse button went down

async function refreshSweeps() {
  const sweeps = await ask("/api/sweeps");
  $("sweeps").hidden = !sweeps.length;
  showOnce($("sweeps"), sweeps.join("\n"), () => sweeps.map((name) => make("li", {},
    make("a", { href: `#~${encodeURIComponent(name)}` }, name === "." ? "this sweep" : `sweep ${name}`))));
  if (!location.hash && sweeps.includes(".")) location.replace("#~.");
}

async function refreshSweep() {
  const asked = address(), [name] = asked.names, isSame = swept?.name === name;
  const news = await ask(`/api/sweep?name=${encodeURIComponent(name)}&version=${isSame ? swept.version : ""}`);
  if (!isStillAsked(asked) || (!news.groups && !$("swept").hidden)) return; // or nothing is new
  if (news.groups) swept = news;
  showOnly("swept", ...(isSame && swept.best.length && !$("compared").hidden ? ["compared"] : [])); // not curves of other runs
  if (!isSame) brushes = {};
  const states = Object.entries(swept.states).map(([state, count]) => `${count} ${state}`), { groups, keys } = swept;
  const trials = groups.reduce((total, group) => total + group.seeds, 0);
  announce(name === "." ? "This sweep" : name, `${plural(trials, "trial")} of ${plural(groups.length, "setting")} · ${states.join(", ")}`);
  const best = groups.find((group) => group.rank);
  showPairs($("progress"), {
    "best evaluation": spread(best?.mean, best?.interval), "core hours": number(swept.core_seconds / 3600),
    steps: number(swept.steps), ...Object.fromEntries(keys.map(({ key, short }) => [`best ${short}`, best?.settings[key] ?? "–"])),
  });
  const shares = keys.filter(({ importance }) => importance !== null).sort((one, two) => two.importance - one.importance);
  $("importance").hidden = !shares.length;
  showBars($("importance").lastElementChild, shares.map(({ short, importance }) => ({ title: short, share: importance })));
  showSettings();
}

function showSettings() {
  const axes = sweepAxes();
  drawParallel();
  showTable($("settings"), [
    { title: "rank", value: (group) => group.rank },
    ...swept.keys.map(({ key, short }) => ({ key, title: short, hint: key, value: (group) => group.settings[key] })),
    { title: "evaluation", isDown: true, hint: "mean over the seeds, and its 95 % interval", value: (group) => group.mean, show: (group) => spread(group.mean, group.interval) },
    { title: "ended", value: (group) => group.ended, show: (group) => `${group.ended} of ${group.seeds}` },
    { title: "solved", value: (group) => group.solved },
    { title: "steps", value: (group) => group.steps, show: (group) => number(group.steps) },
    { title: "core seconds", value: (group) => group.core_seconds, show: (group) => number(group.core_seconds) },
    { title: "trials", show: (group) => seedLinks(group.trials) },
  ], swept.groups, settingsOrder, (place) => (isKept(axes, place) ? "" : null));
}

// ---------------------------------------------------------------- parallel coordinates

// An axis for each setting and one for the evaluation: a title, where each group is from 0 to 1, and labels.
function sweepAxes() {
  const settings = swept.keys.map(({ key, short }) => scaleAxis(short, swept.groups.map((group) => group.settings[key])));
  return [...settings, scaleAxis("evaluation", swept.groups.map((group) => group.mean))];
}

const plainNumber = (text) => (text === "" || text === null || !isFinite(text) ? null : +text);

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
  brush.lineWidth = 1.5;
  const line = (group) => {
    brush.globalAlpha = isKept(axes, group) ? alpha : 0.03;
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
  for (let group = swept.groups.length - 1; group >= 0; group--) line(group); // the best on top
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
  showSettings();
});

new ResizeObserver(() => swept && !$("swept").hidden && drawParallel()).observe($("lines"));
