// Charts of curves by uPlot, the same for one run and for groups of runs.
"use strict";

const AXES = { generation: "generation", seconds: "training time", steps: "environment steps" };
const WHOLE = Array.from({ length: 39 }, (_, place) => [1, 2, 5][place % 3] * 10 ** Math.floor(place / 3));
const WIDE_SPAN = 200; // ratio of the largest to the smallest value from which an axis is logarithmic by itself

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Shows charts in a box.  Where they are there already, in the same style, they only get new values, so that what the
// reader has zoomed in on, and reads at the cursor, stays.  Returns the charts that are shown.
//   title, description; data: columns, the horizontal one first, or null where there is none; series, bands: uPlot's
//   label, unit: of the axes; scale: of `chooseScale`; areWhole, areCounts: whether the axes count
//   fit: widens the vertical range; draw: what is drawn over the curves
//   style: all that only building the charts again changes
function showCharts(box, shown, wanted) {
  const styles = (charts) => charts.map(({ title, style }) => `${title} ${style}`).join("\n");
  if (styles(shown) === styles(wanted)) {
    shown.forEach((chart, place) => Object.assign(chart, wanted[place]));
    shown.filter((chart) => chart.plot).forEach(renew);
    return shown;
  }
  const place = shown.findIndex((chart) => chart.plot?.root === document.activeElement); // keeps the focus
  for (const chart of shown) chart.plot?.destroy();
  for (const chart of wanted)
    chart.box = make("div", { class: chart.isWide ? "chart wide" : "chart" }, make("h3", {}, chart.title));
  box.replaceChildren(...wanted.map((chart) => chart.box));
  for (const chart of wanted) {
    if (chart.data) build(chart);
    else chart.box.append(make("p", { class: "note" }, "no values yet"));
  }
  wanted[place]?.plot?.root.focus({ preventScroll: true });
  return wanted;
}

function build(chart) {
  chart.plot = new uPlot({
    ...sizeOf(chart),
    series: [{ label: chart.label, value: (u, value, _, index) => number(index === null ? u.data[0].at(-1) : value) }, ...chart.series],
    bands: chart.bands,
    scales: {
      x: { time: false },
      y: { ...chart.scale, range: (_, from, to) => rangeOf(chart, from, to) },
    },
    axes: axesOf(chart),
    cursor: { drag: { x: true, y: false } },
    hooks: { draw: [(u) => drawOver(u, chart)] },
  }, chart.data, chart.box);
  const root = chart.plot.root;
  root.tabIndex = 0;
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", chart.description);
  root.addEventListener("keydown", (event) => moveCursor(event, chart.plot));
}

// Gives a chart its new values.  A part of it that the reader has zoomed in on stays.
function renew({ plot, data, description }) {
  const { min, max } = plot.scales.x, isZoomed = min > plot.data[0][0] || max < plot.data[0].at(-1);
  plot.setData(data);
  if (isZoomed) plot.setScale("x", { min, max });
  plot.root.setAttribute("aria-label", description);
}

function sizeOf(chart) {
  return { width: Math.max(240, chart.box.clientWidth - 14), height: chart.isWide ? 330 : 220 };
}

// The mean of the known values around each known one, as many as the reader has chosen.
function smooth(values) {
  const half = document.forms.view.smooth.value >> 1, isKnown = (value) => (value ?? null) !== null;
  if (!half) return values;
  return values.map((value, place) => {
    const near = values.slice(Math.max(0, place - half), place + half + 1).filter(isKnown);
    return isKnown(value) ? near.reduce((sum, other) => sum + other, 0) / near.length : value;
  });
}

function fitToWindow(charts) {
  for (const chart of charts) chart.plot?.setSize(sizeOf(chart));
}

// Whether a curve is so short that its points are shown.
const hasFewValues = (u, series) => u.data[series].filter((value) => value !== null && value !== undefined).length < 3;

// Arrow keys move the cursor by one value, Home and End to the ends of the curve.
function moveCursor(event, u) {
  const last = u.data[0].length - 1, here = u.cursor.idx ?? last;
  const places = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last };
  if (!(event.key in places) || last < 0) return;
  event.preventDefault();
  const place = Math.min(last, Math.max(0, places[event.key]));
  u.setCursor({ left: u.valToPos(u.data[0][place], "x"), top: u.over.clientHeight / 2 });
}

// ---------------------------------------------------------------- axes

// The values of a horizontal axis, times in a unit that fits, and its label.
function horizontal(values, name) {
  if (name !== "seconds") return [values, AXES[name]];
  const end = values.at(-1) || 0;
  const [unit, sign] = end > 10800 ? [3600, "hours"] : end > 300 ? [60, "minutes"] : [1, "seconds"];
  return [values.map((value) => value / unit), `${AXES.seconds}, ${sign}`];
}

// The scale of a vertical axis, as uPlot has it: linear, or logarithmic but for a linear part near 0, so that it has a
// place for every value.  deciding: columns that must span much for an automatic axis to be logarithmic.
function chooseScale(columns, wanted, deciding = []) {
  const sizesOf = (some) => some.flat().filter((value) => value).map(Math.abs).sort((a, b) => a - b);
  const sizes = sizesOf(columns), means = sizesOf(deciding);
  const hasOneSign = [1, -1].some((sign) => columns.flat().every((value) => sign * value >= 0));
  const spans = hasOneSign && means.at(-1) / means[0] > WIDE_SPAN;
  if (!sizes.length || wanted === "linear" || (wanted === "auto" && !spans)) return {};
  const smallest = spans ? means[0] : sizes[Math.floor(0.1 * sizes.length)];
  return { distr: 4, asinh: 10 ** Math.floor(Math.log10(smallest)) };
}

function rangeOf(chart, from, to) {
  if (from === null || from === undefined) return [0, 1];
  if (chart.areCounts) return [0, Math.max(to, 1) * 1.06];
  [from, to] = chart.fit?.(from, to) ?? [from, to];
  const targets = chart.targets || [];
  return pad(Math.min(from, ...targets), Math.max(to, ...targets));
}

// Room around the values of an axis.
function pad(from, to) {
  const room = (to - from || Math.abs(to) || 1) * 0.06;
  return [from >= 0 && from < room ? 0 : from - room, to <= 0 && to > -room ? 0 : to + room];
}

// The label of a value on an axis: 0, 500K, 1M; nothing for one that is not to be labelled.
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 6 });
const labelOf = (value) => ((value ?? null) === null ? ""
  : value && Math.abs(value) < 1e-3 ? (+value.toPrecision(6)).toExponential() : compact.format(value));

function axesOf({ label, unit, scale, areWhole, areCounts }) {
  const font = "12px system-ui, sans-serif", line = { stroke: colour("line"), width: 1 };
  const look = { stroke: colour("ink"), grid: line, ticks: line, font, labelFont: font, labelSize: 20,
    values: (_, values) => values.map(labelOf) };
  const isLinear = !scale.distr;
  const isPower = (value) => value === 0 || Math.abs(Math.log10(Math.abs(value)) % 1) < 1e-9;
  const powers = { ...line, filter: (_, values) => values.map((value) => (isPower(value) ? value : null)) };
  return [
    { ...look, label, size: 34, ...(areWhole && { incrs: WHOLE }) },
    { ...look, label: isLinear ? unit : `${unit}, log`, size: 62,
      ...(!isLinear && { grid: powers, ticks: powers }), ...(areCounts && { incrs: WHOLE }) },
  ];
}

// ---------------------------------------------------------------- what is drawn over curves

function drawOver(u, chart) {
  const { left, top, width, height } = u.bbox, brush = u.ctx;
  brush.save();
  brush.beginPath();
  brush.rect(left, top, width, height);
  brush.clip();
  chart.draw?.(u, brush);
  drawTargets(u, brush, chart);
  brush.restore();
}

function drawTargets(u, brush, { targets = [] }) {
  const { left, top, width } = u.bbox, ratio = devicePixelRatio;
  brush.strokeStyle = brush.fillStyle = colour("green");
  brush.setLineDash([6 * ratio, 4 * ratio]);
  brush.lineWidth = 1.5 * ratio;
  brush.font = `${12 * ratio}px system-ui, sans-serif`;
  brush.textAlign = "left";
  for (const target of targets) {
    const y = u.valToPos(target, "y", true);
    brush.beginPath();
    brush.moveTo(left, y);
    brush.lineTo(left + width, y);
    brush.stroke();
    brush.fillText(`target ${number(target)}`, left + 6 * ratio, y > top + 20 * ratio ? y - 5 * ratio : y + 14 * ratio);
  }
}
