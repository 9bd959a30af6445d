// The page asks the server for the list of runs and for the new generations of the selected run, and draws them.
"use strict";

const EVERY = 2000; // ms between two requests
const MOST = 1200; // points of a curve; a curve that grows longer is requested again, with fewer points
const AXES = { generation: "generation", seconds: "training time", steps: "environment steps" };
// The columns of each chart, with the unit of its vertical axis.
const CHARTS = [
  { title: "Return", unit: "return of an episode", wide: true, mayLog: ["return_mean", "eval_mean"],
    columns: { return_max: "max", return_min: "min", return_mean: "mean of members", eval_mean: "evaluation, 95 %" } },
  { title: "Episode length", unit: "steps", columns: { length_mean: "training", eval_length: "evaluation" } },
  { title: "Sigma", unit: "deviation of a parameter", mayLog: ["sigma"], columns: { sigma: "sigma" } },
  { title: "Parameter norm", unit: "Euclidean length", columns: { parameter_norm: "norm" } },
  { title: "Update ratio", unit: "step / parameters", mayLog: ["update_ratio"], columns: { update_ratio: "ratio" } },
  { title: "Gradient norm", unit: "Euclidean length", mayLog: ["gradient_norm"], columns: { gradient_norm: "norm" } },
  { title: "Speed", unit: "steps per second", columns: { steps_per_second: "steps/s" } },
  { title: "Idle share", unit: "% of a generation", scale: 100,
    columns: { idle_mean: "mean of ranks", idle_max: "idlest rank" } },
  { title: "Failures", unit: "members of a generation", zero: true, columns: { failures: "failed" } },
  { title: "Ranks alive", unit: "ranks", zero: true, columns: { ranks: "ranks", nodes: "nodes" } },
];
const WHOLE = Array.from({ length: 39 }, (_, place) => [1, 2, 5][place % 3] * 10 ** Math.floor(place / 3));
const WIDE_SPAN = 200; // ratio of the largest to the smallest value from which an axis is logarithmic by itself
const KNOWN = new Set(["generation", "seconds", "episodes", "steps", "return_std", "eval_std", "eval_episodes",
  "eval_interval", "eval_rank", "observations", "starts", "paused", ...CHARTS.flatMap((chart) => Object.keys(chart.columns))]);
const MARKS = { running: "▶", finished: "✓", stopped: "■", stale: "⚠" };

const $ = (id) => document.getElementById(id);
const rows = new Map(); // from a run's name to its line in the list
let runs = [];
let visible = []; // names of the runs that the filters let through
let run = null; // the data of the selected run
let charts = [];
let timer = 0;
let memberPlot = null;

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

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1e4 ? 12 : digits, maximumFractionDigits: 0,
    roundingPriority: size >= 1e4 ? "lessPrecision" : "morePrecision" });
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${Math.floor(seconds % 60)} s`;
}

// The labels of an axis, all with the same unit: 0, 0.5 M, 1 M.
function ticks(values) {
  const largest = Math.max(...values.map(Math.abs));
  const [unit, sign] = largest >= 1e9 ? [1e9, " G"] : largest >= 1e6 ? [1e6, " M"] : largest >= 1e4 ? [1e3, " k"] : [1, ""];
  return values.map((value) => {
    const scaled = value / unit;
    return scaled === 0 ? "0" : Math.abs(scaled) < 1e-3 ? (+scaled.toPrecision(6)).toExponential() : `${+scaled.toPrecision(6)}${sign}`;
  });
}

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

function chosen() {
  return comparing() || sweeping() ? "" : decodeURIComponent(location.hash.replace(/^#(run$)?/, "")).replace(/^=/, "");
}

// ---------------------------------------------------------------- the list

function showRuns() {
  const words = $("filter").value.toLowerCase(), state = $("state").value;
  const least = $("least").value === "" ? -Infinity : +$("least").value;
  const checked = new Set(picked());
  visible = [];
  for (const one of runs) {
    let row = rows.get(one.name);
    if (!row) {
      const link = make("a", { href: `#=${encodeURIComponent(one.name)}` });
      for (const part of ["name", "state", "more"]) link.append(make("span", { class: part }));
      const box = make("input", { type: "checkbox", tabindex: "-1", "aria-label": `Compare ${one.name}` });
      box.addEventListener("change", () => toggle(one.name));
      row = make("li", {}, box, link);
      rows.set(one.name, row);
    }
    const [box, link] = row.children, [name, badge, more] = link.children;
    const status = ["solved", "dropped", "waiting"].includes(one.reason) ? one.reason : one.state;
    box.checked = checked.has(one.name);
    say(name, one.short || (one.name === "." ? "this run" : one.name));
    link.title = one.name;
    say(badge, `${MARKS[one.state]} ${status}`);
    badge.className = `state ${status}`;
    const evaluated = one.eval_mean === undefined ? "" : `, evaluation ${number(one.eval_mean)}`;
    say(more, `${one.environment} · ${one.generation === undefined ? "no generation yet"
      : `generation ${number(one.generation)}, return ${number(one.return_mean)}${evaluated}`}`);
    if (run && run.name === one.name && !comparing()) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    const fits = (!state || one.state === state || status === state)
      && (least === -Infinity || (one.eval_mean ?? -Infinity) >= least)
      && `${one.name} ${one.short || ""} ${one.environment}`.toLowerCase().includes(words);
    row.hidden = !fits;
    if (fits) visible.push(one.name);
  }
  const names = new Set(runs.map((one) => one.name));
  for (const [name, row] of rows) if (!names.has(name)) { row.remove(); rows.delete(name); }
  sorted(runs).forEach((one, place) => {
    const row = rows.get(one.name);
    if ($("runs").children[place] !== row) $("runs").insertBefore(row, $("runs").children[place] || null);
  });
  say($("count"), runs.length ? `${visible.length} of ${runs.length} runs` : "No runs here yet");
  say($("all"), `Compare ${visible.length === runs.length ? "all" : "these"} ${visible.length}`);
  $("none").hidden = !checked.size;
}

// Runs without the value that decides come last.
function sorted(list) {
  const by = $("sort").value;
  return by === "name" ? list : [...list].sort((one, two) => (two[by] ?? -Infinity) - (one[by] ?? -Infinity) || 0);
}

function toggle(name) {
  const names = picked();
  pick(names.includes(name) ? names.filter((other) => other !== name) : [...names, name]);
}

async function refreshRuns() {
  runs = await ask("/api/runs");
  showRuns();
}

// ---------------------------------------------------------------- one run

async function refreshRun() {
  const isThere = (name) => runs.some((one) => one.name === name);
  if (chosen() && !isThere(chosen())) throw new Error(`${chosen()} is not there; it may have been removed. Choose another run.`);
  const shown = run && isThere(run.name) ? run : runs.find((one) => one.state === "running") || runs[0];
  const name = chosen() || shown?.name;
  if (!name) return;
  const same = run && run.name === name && (run.columns.generation || []).length < MOST;
  const since = same ? `&version=${run.version}&after=${run.rows}&log=${run.logged}` : "";
  const news = await ask(`/api/run?name=${encodeURIComponent(name)}${since}`);
  if (comparing() || sweeping() || (chosen() && chosen() !== name)) return; // another run was selected meanwhile
  take(news, same);
}

function take(news, same) {
  const before = same ? run : null;
  const log = before && news.log.start === before.logged ? before.log + news.log.text : news.log.text;
  const grown = news.again || !before || Object.values(news.columns).some((column) => column.length);
  run = { ...before, ...news, logged: news.log.end, log: log.slice(-60000) };
  if (!news.again && before) {
    run.per_point = before.per_point;
    run.columns = { ...before.columns };
    for (const [key, column] of Object.entries(news.columns)) run.columns[key] = before.columns[key].concat(column);
  }
  showOnly("shown");
  document.title = `${title()} – mpies`;
  showNumbers();
  if (!before || columnsOf(before) !== columnsOf(run)) buildCharts();
  else if (grown) drawCharts();
  showRanks();
  if (!before || news.members) showMembers();
  showPictures();
  showDownloads();
  showLog();
  say($("config"), run.config);
  if (!before) showRuns();
}

function showOnly(...ids) {
  for (const one of ["shown", "compared", "swept"]) $(one).hidden = !ids.includes(one);
}

const columnsOf = (known) => Object.keys(known.columns).filter((key) => known.columns[key].some((v) => v !== null)).join();
const title = () => (run.name === "." ? "this run" : run.name);
const newest = (column) => run.newest[column];

function showNumbers() {
  say($("name"), title());
  const one = runs.find((other) => other.name === run.name) || {};
  const reason = run.finished.reason ? ` (${run.finished.reason})` : "";
  const sign = run.silence === null ? "" : `, last sign of life ${duration(run.silence)} ago`;
  say($("about"), `${one.environment || ""} · ${one.solver || ""} · ${MARKS[run.state]} ${run.state}${reason}${sign}`);
  const interval = newest("eval_interval");
  const evaluation = newest("eval_mean");
  const entries = {
    generation: number(newest("generation")), "training time": duration(newest("seconds")),
    steps: number(newest("steps")), "mean return": number(newest("return_mean")),
    evaluation: evaluation === undefined ? "–" : number(evaluation) + (interval ? ` ± ${number(interval, 3)}` : ""),
    target: number(run.target), "steps/s": number(newest("steps_per_second")), "ranks alive": number(newest("ranks")),
  };
  const list = $("numbers");
  for (const [place, [name, value]] of Object.entries(entries).entries()) {
    if (!list.children[place]) list.append(make("div", {}, make("dt"), make("dd")));
    say(list.children[place].firstChild, name);
    say(list.children[place].lastChild, value);
  }
  const notes = run.per_point > 1 ? [`each point stands for ${run.per_point} generations`] : [];
  if (changes().length) notes.push("▼ fewer ranks, ▲ more ranks, ◆ started again");
  say($("thinned"), notes.join("; "));
}

function showRanks() {
  const idle = run.ranks.idle || [];
  $("ranks").hidden = !idle.length;
  if (!idle.length) return;
  const [, text, bars] = $("ranks").children;
  say(text, `share of the time without an episode under way, generations ${run.ranks.first} to ${run.ranks.last}`);
  while (bars.children.length > idle.length) bars.lastChild.remove();
  idle.forEach((share, rank) => {
    if (!bars.children[rank])
      bars.append(make("div", {}, make("span", {}, `rank ${rank}`), make("meter", { "aria-label": `rank ${rank}` }), make("b")));
    const [, meter, value] = bars.children[rank].children;
    meter.value = share;
    say(value, `${(100 * share).toFixed(0)} %`);
  });
}

// The members of the newest generation: return against episode length.
function showMembers() {
  const box = $("members"), found = run.members;
  box.hidden = !found || !found.lengths.some((length) => length !== found.lengths[0]);
  memberPlot?.destroy();
  memberPlot = null;
  if (box.hidden) return;
  const some = found.lengths.length < found.members ? `, ${found.lengths.length} of ${found.members}` : "";
  say(box.firstChild, `Members of generation ${number(found.generation)}${some}`);
  const linear = chooseScale([], "linear", []);
  memberPlot = new uPlot({
    ...size({ box }), series: [{}, { paths: () => null, points: { show: true, size: 5, stroke: colour("blue"), fill: colour("band") } }],
    scales: { x: { time: false, range: (_, from, to) => pad(linear, from, to) }, y: { range: (_, from, to) => pad(linear, from, to) } },
    axes: axesOf(colour("ink"), colour("line"), "episode length, steps", "return", linear, false),
    legend: { show: false }, cursor: { show: false },
  }, [found.lengths, found.returns], box);
  memberPlot.root.setAttribute("role", "img");
  memberPlot.root.setAttribute("aria-label", `return against episode length of ${found.members} members`);
}

function showPictures() {
  const [summary, list] = $("pictures").firstChild.children;
  $("pictures").hidden = !run.pictures.length;
  say(summary, `Pictures and videos (${run.pictures.length})`);
  while (list.children.length > run.pictures.length) list.lastChild.remove();
  run.pictures.forEach(([file, changed], place) => {
    const source = `/picture?run=${encodeURIComponent(run.name)}&file=${encodeURIComponent(file)}&changed=${changed}`;
    const old = list.children[place];
    if (old?.firstChild.getAttribute("src") === source) return; // a video goes on playing
    const shown = /\.(mp4|webm)$/.test(file) ? make("video", { src: source, controls: "", preload: "metadata", loop: "" })
      : make("img", { src: source, alt: file, loading: "lazy" });
    const figure = make("figure", {}, shown, make("figcaption", {}, file));
    if (old) old.replaceWith(figure);
    else list.append(figure);
  });
}

function showDownloads() {
  const list = $("downloads");
  const names = { "best.h5": "best policy", "policy.h5": "newest policy", "metrics.csv": "metrics",
    "evaluations.csv": "episodes of evaluations", "log.txt": "log",
    "config.yaml": "config", "report.html": "report" };
  const wanted = `${run.name} ${run.files}`;
  if (list.dataset.shown === wanted) return;
  list.dataset.shown = wanted;
  list.replaceChildren(...run.files.map((file) => make("a", { download: "",
    href: `/download?run=${encodeURIComponent(run.name)}&file=${encodeURIComponent(file)}` }, `${names[file]} (${file})`)));
}

function showLog() {
  const log = $("log");
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 5;
  say(log, run.log || "This run keeps no log.");
  if (atEnd) log.scrollTop = log.scrollHeight;
}

// ---------------------------------------------------------------- curves

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const axis = () => document.forms.view.axis.value;

const horizontal = () => scaled(run.columns[axis()] || [], axis());

// The values of a horizontal axis, times in a unit that fits, and its label.
function scaled(values, name) {
  if (name !== "seconds") return [values, AXES[name]];
  const end = values.at(-1) || 0;
  const [unit, sign] = end > 10800 ? [3600, "hours"] : end > 300 ? [60, "minutes"] : [1, "seconds"];
  return [values.map((value) => value / unit), `${AXES.seconds}, ${sign}`];
}

// The scale of a vertical axis.  apply: from a value to what is drawn; null for what has no place.  invert: back.
// Logarithms of values of one sign; of negative ones, the distance to 0 is drawn, with 0 far up.  Values of both signs
// get an axis that is linear near 0.  deciding: columns that must span much for an automatic axis to be logarithmic.
function chooseScale(columns, wanted, deciding) {
  const sizesOf = (some) => some.flat().filter((value) => value).map(Math.abs).sort((a, b) => a - b);
  const sizes = sizesOf(columns), means = sizesOf(deciding);
  const positive = columns.flat().every((value) => value >= 0), negative = columns.flat().every((value) => value <= 0);
  const spans = means.at(-1) / means[0] > WIDE_SPAN && (positive || negative);
  const label = (unit) => `${unit}, log`;
  if (!sizes.length || wanted === "linear" || (wanted === "auto" && !spans))
    return { kind: "linear", apply: (value) => value, invert: (value) => value, label: (unit) => unit, options: {} };
  if (positive)
    return { kind: "log", apply: (v) => (v > 0 ? v : null), invert: (v) => v, label, options: { distr: 3 } };
  if (negative)
    return { kind: "negative", apply: (v) => (v !== null && v < 0 ? -v : null), invert: (v) => (v === null ? null : -v),
      label: (unit) => `−(${unit}), log`, options: { distr: 3, dir: -1 } };
  const linear = 10 ** Math.floor(Math.log10(sizes[Math.floor(0.1 * sizes.length)]));
  return { kind: "both", apply: (v) => v, invert: (v) => v, label, options: { distr: 4, asinh: linear } };
}

// Room around the values of a vertical axis.
function pad(scale, from, to) {
  if (scale.options.distr === 3) return [from / 1.2, to * 1.2];
  const room = (to - from || Math.abs(to) || 1) * 0.06;
  return [from >= 0 && from < room ? 0 : from - room, to + room];
}

function axesOf(ink, line, label, unit, scale, areWhole, areCounts = false) {
  const font = "12px system-ui, sans-serif";
  const look = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font, labelFont: font, labelSize: 20 };
  const one = (value) => (value === null || value === undefined ? "" : ticks([value])[0]);
  const isPower = (value) => value === 0 || Math.abs(Math.log10(Math.abs(value)) % 1) < 1e-9;
  const filter = (_, values) => values.map((value) => (scale.kind === "linear" || isPower(value) ? value : null));
  return [{ ...look, label, size: 34, values: (_, values) => ticks(values), ...(areWhole && { incrs: WHOLE }) },
    { ...look, grid: { ...look.grid, filter }, ticks: { ...look.ticks, filter }, label: unit, size: 62, values: (_, values) => (scale.kind === "linear" ? ticks(values) : values.map(one)),
      ...(areCounts && { incrs: WHOLE }) }];
}

// A factor in percent would be applied to all values of a chart.
const valuesOf = (chart, name) => run.columns[name].map((v) => (v === null ? null : v * (chart.scale || 1)));
const scaleOf = (chart) => chooseScale([...chart.shown.map((name) => valuesOf(chart, name)), targetsOf(chart)],
  chart.zero ? "linear" : document.forms.view.vertical.value, (chart.mayLog || []).filter(known).map((name) => run.columns[name]));
const targetsOf = (chart) => (chart.title !== "Return" || run.target === null || run.target === undefined ? [] : [run.target]);
const known = (name) => run.columns[name] && run.columns[name].some((value) => value !== null);

function dataOf(chart) {
  return [horizontal()[0], ...chart.shown.map((name) => valuesOf(chart, name).map(chart.vertical.apply))];
}

const buildCharts = () => refill($("charts"), plotCharts);

function plotCharts() {
  for (const chart of charts) chart.plot.destroy();
  const others = Object.keys(run.columns).filter((name) => !KNOWN.has(name) && known(name));
  const wanted = [...CHARTS, ...others.map((name) => ({
    title: name.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase()), unit: "as the solver reports it",
    columns: { [name]: name.replaceAll("_", " ") } }))];
  charts = wanted.map((chart) => ({ ...chart, shown: Object.keys(chart.columns).filter(known) }))
    .filter((chart) => chart.shown.length);
  $("charts").replaceChildren(...charts.map((chart) => {
    chart.box = make("div", { class: chart.wide ? "chart wide" : "chart" }, make("h3", {}, chart.title));
    return chart.box;
  }));
  for (const chart of charts) plot(chart);
}

const isCrowded = () => (run.columns.eval_mean || []).filter((value) => value !== null).length > 60;

// What of a chart new values may change that only building it again changes: scale, unit of time, size of points.
const styleOf = (chart) => [scaleOf(chart).kind, horizontal()[1], isCrowded()].join();

function plot(chart) {
  const ink = colour("ink"), line = colour("line");
  const band = $("band").checked;
  const colours = { eval_mean: colour("orange"), eval_length: colour("orange"), idle_max: colour("orange"),
    nodes: colour("orange") };
  const series = chart.shown.map((name) => {
    const stroke = colours[name] || colour("blue");
    const common = { label: chart.columns[name], stroke, value: cell(chart), spanGaps: true };
    if (name === "return_min" || name === "return_max")
      return { ...common, stroke: colour("band"), width: 0.5, show: band, points: { show: false } };
    if (name.startsWith("eval_"))
      return { ...common, paths: () => null, points: { show: true, size: isCrowded() ? 3 : 6, fill: stroke } };
    return { ...common, width: 1.75, points: { show: hasFewValues } };
  });
  const [low, high] = [chart.shown.indexOf("return_min") + 1, chart.shown.indexOf("return_max") + 1];
  const label = horizontal()[1];
  chart.vertical = scaleOf(chart);
  chart.style = styleOf(chart);
  chart.plot = new uPlot({
    ...size(chart),
    series: [{ label, value: cell(chart) }, ...series],
    bands: low && high ? [{ series: [high, low], fill: colour("band") }] : [],
    scales: { x: { time: false }, y: { ...chart.vertical.options, range: (_, from, to) => range(chart, from, to) } },
    axes: axesOf(ink, line, label, chart.vertical.label(chart.unit), chart.vertical, axis() !== "seconds", chart.zero),
    cursor: { drag: { x: true, y: false } },
    legend: { live: true },
    hooks: { draw: [(u) => drawTargetAndIntervals(u, chart)] },
  }, dataOf(chart), chart.box);
  const canvas = chart.plot.root;
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.addEventListener("keydown", (event) => moveCursor(event, chart));
  name(chart);
}

// The legend shows the value at the cursor, or the newest value without a cursor.
function cell(chart) {
  return (u, value, place, index) => {
    if (index !== null) return number(place ? chart.vertical.invert(value) : value);
    return number(place ? newest(chart.shown[place - 1]) * (chart.scale || 1) : u.data[0].at(-1));
  };
}

function name(chart) {
  const values = chart.shown.map((column) => `${chart.columns[column]} ${number(newest(column))}`);
  chart.plot.root.setAttribute("aria-label", `${chart.title} against ${horizontal()[1]}; newest: ${values.join(", ")}`);
}

function range(chart, from, to) {
  if (from === null || from === undefined) return [0, 1];
  if (chart.title === "Return") {
    if (chart.vertical.kind === "linear") [from, to] = tame(from, to);
    const fit = (value) => {
      const drawn = chart.vertical.apply(value);
      if (drawn !== null && drawn !== undefined) [from, to] = [Math.min(from, drawn), Math.max(to, drawn)];
    };
    targetsOf(chart).forEach(fit);
    (run.columns.eval_interval || []).forEach((half, place) => {
      const mean = run.columns.eval_mean[place];
      if (half !== null && mean !== null) [mean - half, mean + half].forEach(fit);
    });
  }
  return chart.zero ? [0, Math.max(to, 1) * 1.06] : pad(chart.vertical, from, to);
}

// The range of the vertical axis: it shows all means and evaluations, but cuts off the outermost 5 % of the extremes.
function tame(from, to) {
  const sorted = (name) => (run.columns[name] || []).filter((value) => value !== null).sort((a, b) => a - b);
  const low = sorted("return_min"), high = sorted("return_max"), means = [...sorted("return_mean"), ...sorted("eval_mean")];
  if (!low.length || !means.length) return [from, to];
  return [Math.max(from, Math.min(low[Math.floor(0.05 * low.length)], ...means)),
    Math.min(to, Math.max(high[Math.ceil(0.95 * high.length) - 1], ...means))];
}

function drawTargetAndIntervals(u, chart) {
  if (chart.title !== "Return") return;
  drawTargets(u, targetsOf(chart), chart.vertical);
  const { left, top, width, height } = u.bbox, ratio = devicePixelRatio, brush = u.ctx;
  brush.save();
  brush.beginPath();
  brush.rect(left, top, width, height);
  brush.clip();
  const halves = run.columns.eval_interval, means = run.columns.eval_mean;
  if (halves && means) {
    brush.setLineDash([]);
    brush.strokeStyle = colour("orange");
    brush.lineWidth = ratio;
    halves.forEach((half, place) => {
      if (half === null || means[place] === null) return;
      const x = u.valToPos(u.data[0][place], "x", true);
      const ends = [means[place] + half, means[place] - half].map(chart.vertical.apply);
      if (ends.includes(null)) return;
      const [upper, lower] = ends.map((value) => u.valToPos(value, "y", true));
      brush.beginPath();
      brush.moveTo(x, upper);
      brush.lineTo(x, lower);
      for (const y of [upper, lower]) { brush.moveTo(x - 3 * ratio, y); brush.lineTo(x + 3 * ratio, y); }
      brush.stroke();
    });
  }
  drawChanges(u);
  brush.restore();
}

function drawTargets(u, targets, scale) {
  const { left, top, width, height } = u.bbox, ratio = devicePixelRatio, brush = u.ctx;
  brush.save();
  brush.beginPath();
  brush.rect(left, top, width, height);
  brush.clip();
  brush.strokeStyle = brush.fillStyle = colour("green");
  brush.setLineDash([6 * ratio, 4 * ratio]);
  brush.lineWidth = 1.5 * ratio;
  brush.font = `${12 * ratio}px system-ui, sans-serif`;
  brush.textAlign = "left";
  for (const target of targets) {
    const drawn = scale.apply(target);
    if (drawn === null) continue;
    const y = u.valToPos(drawn, "y", true);
    brush.beginPath();
    brush.moveTo(left, y);
    brush.lineTo(left + width, y);
    brush.stroke();
    brush.fillText(`target ${number(target)}`, left + 6 * ratio, y > top + 20 * ratio ? y - 5 * ratio : y + 14 * ratio);
  }
  brush.restore();
}

// The points before which ranks were lost, ranks came, or the run was started again on as many: [point, sign, colour].
function changes() {
  const { ranks = [], starts = [] } = run.columns;
  return ranks.flatMap((count, place) => {
    if (count < ranks[place - 1]) return [[place, "▼", "orange"]];
    if (count > ranks[place - 1]) return [[place, "▲", "green"]];
    return starts[place] > starts[place - 1] ? [[place, "◆", "ink"]] : [];
  });
}

function drawChanges(u) {
  const { top, height } = u.bbox, ratio = devicePixelRatio, brush = u.ctx;
  brush.font = `${11 * ratio}px system-ui, sans-serif`;
  brush.textAlign = "center";
  for (const [place, sign, hue] of changes()) {
    brush.fillStyle = colour(hue);
    brush.fillText(sign, u.valToPos(u.data[0][place], "x", true), top + height - 3 * ratio);
  }
}

function size(chart) {
  return { width: Math.max(240, chart.box.clientWidth - 14), height: chart.wide ? 330 : 220 };
}

function drawCharts() {
  if (charts.some((chart) => styleOf(chart) !== chart.style)) return buildCharts();
  for (const chart of charts) { renew(chart.plot, dataOf(chart)); name(chart); }
}

// Gives a curve new values.  A part of it that the reader has zoomed in on stays.
function renew(plot, data) {
  const { min, max } = plot.scales.x, isZoomed = min > plot.data[0][0] || max < plot.data[0].at(-1);
  plot.setData(data);
  if (isZoomed) plot.setScale("x", { min, max });
}

// Whether a curve is so short that its points are shown.
const hasFewValues = (u, series) => u.data[series].filter((value) => value !== null && value !== undefined).length < 3;

// Arrow keys move the cursor by one value, Home and End to the ends of the curve.
function moveCursor(event, chart) {
  const u = chart.plot, last = u.data[0].length - 1, here = u.cursor.idx ?? last;
  const places = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last };
  if (!(event.key in places) || last < 0) return;
  event.preventDefault();
  const place = Math.min(last, Math.max(0, places[event.key]));
  u.setCursor({ left: u.valToPos(u.data[0][place], "x"), top: u.over.clientHeight / 2 });
}

// ---------------------------------------------------------------- updates

async function tick() {
  clearTimeout(timer);
  try {
    await refreshSweeps();
    if (sweeping()) await refreshSweep(); // first, as it is there before many runs have been read
    await refreshRuns();
    if (comparing()) await refreshCompared();
    else if (!sweeping()) await refreshRun();
    $("trouble").hidden = true;
  } catch (error) {
    say($("trouble"), error instanceof TypeError ? "No answer from the server; trying again." : error.message);
    $("trouble").hidden = false;
  }
  clearTimeout(timer);
  timer = setTimeout(tick, document.hidden ? 5 * EVERY : EVERY);
}

$("filter").addEventListener("input", showRuns);
$("state").addEventListener("input", showRuns);
$("sort").addEventListener("input", showRuns);
$("least").addEventListener("input", showRuns);
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
$("view").addEventListener("change", () => run && buildCharts());
// The hash holds the selection, so the link must not change it.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("run").focus(); });
addEventListener("hashchange", tick);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (run) { buildCharts(); showMembers(); } if (compared) buildPanels(); });
new ResizeObserver(() => {
  charts.forEach((chart) => chart.plot.setSize(size(chart)));
  memberPlot?.setSize(size({ box: $("members") }));
}).observe($("charts"));
addEventListener("DOMContentLoaded", tick); // when compare.js is there, too
