// One run: its numbers and curves, which new generations lengthen, its ranks, pictures, downloads and log.
"use strict";

// The columns of each chart, with the unit of its vertical axis.
const CHARTS = [
  { title: "Return", unit: "return of an episode", isReturn: true, mayLog: ["return_mean", "eval_mean"],
    columns: { return_max: "max", return_min: "min", return_mean: "mean of members", eval_mean: "evaluation, 95 %" } },
  { title: "Episode length", unit: "steps", columns: { length_mean: "training", eval_length: "evaluation" } },
  { title: "Sigma", unit: "std of a parameter", mayLog: ["sigma"], columns: { sigma: "sigma" } },
  { title: "Parameter norm", unit: "Euclidean length", columns: { parameter_norm: "norm" } },
  { title: "Update ratio", unit: "step / parameters", mayLog: ["update_ratio"], columns: { update_ratio: "ratio" } },
  { title: "Gradient norm", unit: "Euclidean length", mayLog: ["gradient_norm"], columns: { gradient_norm: "norm" } },
  { title: "Speed", unit: "steps per second", columns: { steps_per_second: "steps/s" } },
  { title: "Idle share", unit: "% of a generation", factor: 100,
    columns: { idle_mean: "mean of ranks", idle_max: "idlest rank" } },
  { title: "Failures", unit: "members of a generation", areCounts: true, columns: { failures: "failed" } },
  { title: "Ranks alive", unit: "ranks", areCounts: true, columns: { ranks: "ranks", nodes: "nodes" } },
];
const KNOWN = new Set(["generation", "seconds", "episodes", "steps", "return_std", "eval_std", "eval_episodes",
  "eval_interval", "eval_rank", "observations", "starts", "paused", ...CHARTS.flatMap((chart) => Object.keys(chart.columns))]);
const SECOND = ["eval_mean", "eval_length", "idle_max", "nodes"]; // columns in the second colour
const FILES = { "best.h5": "best policy", "policy.h5": "newest policy", "metrics.csv": "metrics",
  "evaluations.csv": "episodes of evaluations", "log.txt": "log", "config.yaml": "config", "report.html": "report" };

let run = null; // the data of the run that was shown last
let charts = [];

async function refreshRun() {
  const asked = address(), chosen = asked.kind === "run" ? asked.names[0] : "";
  const isThere = (name) => runs.some((one) => one.name === name);
  if (chosen && !isThere(chosen)) throw new Error(`${chosen} is not there; it may have been removed. Choose another run.`);
  const shown = run && isThere(run.name) ? run : runs.find((one) => one.state === "running") || runs.find((one) => one.state !== "damaged");
  const name = chosen || shown?.name;
  if (!name) return;
  const news = await ask(`/api/run?name=${encodeURIComponent(name)}`);
  if (isStillAsked(asked)) take(news);
}

function take(news) {
  const isOther = run?.name !== news.name;
  run = news;
  showOnly("shown");
  showNumbers();
  drawRun();
  showRanks();
  showPictures();
  showDownloads();
  showLog();
  say($("config"), run.config);
  if (isOther) showRuns();
}

const newest = (column) => run.newest[column];
const known = (name) => run.columns[name]?.some((value) => value !== null);

function showNumbers() {
  const title = run.name === "." ? "this run" : run.name;
  const one = runs.find((other) => other.name === run.name) || {};
  const reason = run.reason ? ` (${run.reason})` : "";
  const sign = run.silence === null ? "" : `, last sign of life ${duration(run.silence)} ago`;
  announce(title, `${one.environment || ""} · ${one.solver || ""} · ${MARKS[run.state]} ${run.state}${reason}${sign}`);
  showPairs($("numbers"), {
    generation: number(newest("generation")), "training time": duration(newest("seconds")),
    steps: number(newest("steps")), "mean return": number(newest("return_mean")),
    evaluation: spread(newest("eval_mean"), newest("eval_interval")), target: number(run.target),
    "steps/s": number(newest("steps_per_second")), "ranks alive": number(newest("ranks")),
  });
  say($("thinned"), run.per_point > 1 ? `each point stands for ${run.per_point} generations` : "");
}

function showRanks() {
  const idle = run.ranks.idle || [];
  $("ranks").hidden = !idle.length;
  say($("ranks").children[1], `share of the time without an episode under way, generations ${run.ranks.first} to ${run.ranks.last}`);
  $("ranks").lastElementChild.replaceChildren(...idle.map((share, rank) => make("div", {}, make("span", {}, `rank ${rank}`),
    make("meter", { value: share, "aria-label": `rank ${rank}` }), make("b", {}, `${Math.round(100 * share)} %`))));
}

function showPictures() {
  const [summary, list] = $("pictures").firstChild.children;
  $("pictures").hidden = !run.pictures.length;
  say(summary, `Pictures and videos (${run.pictures.length})`);
  showOnce(list, `${run.name} ${run.pictures}`, () => run.pictures.map(([file, changed]) => {
    const source = `/file?run=${encodeURIComponent(run.name)}&file=${encodeURIComponent(file)}&changed=${changed}`;
    const shown = /\.(mp4|webm)$/.test(file) ? make("video", { src: source, controls: "", preload: "metadata", loop: "" })
      : make("img", { src: source, alt: file, loading: "lazy" });
    return make("figure", {}, shown, make("figcaption", {}, file));
  }));
}

function showDownloads() {
  showOnce($("downloads"), `${run.name} ${run.files}`, () => run.files.map((file) => make("a", { download: "",
    href: `/file?run=${encodeURIComponent(run.name)}&file=${encodeURIComponent(file)}` }, `${FILES[file]} (${file})`)));
}

function showLog() {
  const log = $("log");
  const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 5;
  say(log, run.log || "This run keeps no log.");
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

// ---------------------------------------------------------------- curves

function drawRun() {
  const others = Object.keys(run.columns).filter((column) => !KNOWN.has(column)).map((column) => {
    const words = column.replaceAll("_", " ");
    return { title: words[0].toUpperCase() + words.slice(1), unit: "as the solver reports it", columns: { [column]: words } };
  });
  const wanted = [...CHARTS, ...others].map(layOut).filter((chart) => chart.shown.length);
  charts = showCharts($("charts"), charts, wanted);
}

function layOut({ title, unit, columns, isReturn, areCounts, mayLog = [], factor = 1 }) {
  const form = document.forms.view, axis = form.axis.value, shown = Object.keys(columns).filter(known);
  // A factor in percent is applied to all values of a chart.
  const scaled = (column) => run.columns[column].map((value) => (value === null ? null : value * factor));
  const values = shown.map((column) => (column.startsWith("eval_") ? scaled(column) : smooth(scaled(column))));
  const targets = isReturn && (run.target ?? null) !== null ? [run.target] : [];
  const deciding = mayLog.filter(known).map((column) => run.columns[column]);
  const scale = chooseScale([...values, targets], areCounts ? "linear" : form.vertical.value, deciding);
  const [x, label] = horizontal(run.columns[axis] || [], axis);
  const series = shown.map((column) => seriesOf(column, columns[column],
    (_, value, __, index) => number(index === null ? newest(column) * factor : value)));
  const [low, high] = [shown.indexOf("return_min") + 1, shown.indexOf("return_max") + 1];
  const told = shown.map((column) => `${columns[column]} ${number(newest(column))}`);
  return {
    title, unit, label, scale, shown, series, targets, areCounts, isWide: isReturn,
    areWhole: axis !== "seconds", description: `${title} against ${label}; newest: ${told.join(", ")}`,
    data: [x, ...values],
    bands: low && high ? [{ series: [high, low], fill: colour("band") }] : [],
    ...(isReturn && { fit: (from, to) => fitReturns(scale, from, to), draw: drawIntervals }),
    style: [shown, scale.asinh, label, colour("ink")].join(),
  };
}

function seriesOf(column, label, value) {
  const stroke = colour(SECOND.includes(column) ? "orange" : "blue"), common = { label, stroke, value, spanGaps: true };
  if (column === "return_min" || column === "return_max")
    return { ...common, stroke: colour("band"), width: 0.5, points: { show: false } };
  if (column.startsWith("eval_")) return { ...common, paths: () => null, points: { show: true, size: 4, fill: stroke } };
  return { ...common, width: 1.75, points: { show: hasFewValues } };
}

// The vertical range of the returns: it shows all means, evaluations and, where it is linear, their intervals, but cuts
// off the outermost 5 % of the extremes.
function fitReturns(scale, from, to) {
  const { return_min = [], return_max = [], return_mean = [], eval_mean = [] } = run.columns;
  const isKnown = (value) => value !== null;
  const low = return_min.filter(isKnown).sort((a, b) => a - b), high = return_max.filter(isKnown).sort((a, b) => a - b);
  const means = [...return_mean, ...eval_mean].filter(isKnown);
  if (scale.distr) return [from, to];
  if (low.length && means.length) {
    from = Math.max(from, Math.min(low[Math.floor(0.05 * low.length)], ...means));
    to = Math.min(to, Math.max(high[Math.ceil(0.95 * high.length) - 1], ...means));
  }
  const drawn = intervals().flatMap(([, ...ends]) => ends);
  return [Math.min(from, ...drawn), Math.max(to, ...drawn)];
}

// The 95 % intervals of the evaluations: [point, lower end, upper end].
function intervals() {
  const { eval_mean: means = [], eval_interval: halves = [] } = run.columns;
  return halves.flatMap((half, place) => (half === null || means[place] === null ? [] : [[place, means[place] - half, means[place] + half]]));
}

function drawIntervals(u, brush) {
  const ratio = devicePixelRatio;
  brush.strokeStyle = colour("orange");
  brush.lineWidth = ratio;
  for (const [place, ...ends] of intervals()) {
    const x = u.valToPos(u.data[0][place], "x", true), [lower, upper] = ends.map((value) => u.valToPos(value, "y", true));
    brush.beginPath();
    brush.moveTo(x, upper);
    brush.lineTo(x, lower);
    for (const y of [upper, lower]) { brush.moveTo(x - 3 * ratio, y); brush.lineTo(x + 3 * ratio, y); }
    brush.stroke();
  }
}

new ResizeObserver(() => fitToWindow(charts)).observe($("charts"));
