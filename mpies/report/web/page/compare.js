// Several runs overlaid in groups, whose runs differ in their seed alone: a chart for each task.
"use strict";

const DRAWN = { eval_mean: ["Evaluation", "return, held out"], return_mean: ["Return of members", "return"],
  length_mean: ["Episode length of members", "steps"], eval_length: ["Episode length in evaluations", "steps"],
  sigma: ["Sigma", "std of a parameter"], update_ratio: ["Update ratio", "step / parameters"],
  steps_per_second: ["Speed", "steps per second"] };
const PALETTE = 8; // colours that readers tell apart; with more groups, hues are spread evenly

let compared = null; // the newest answer
let panels = []; // the chart of each task

// The runs that are compared: those in the address, or the best of the sweep in it.
function comparedRuns() {
  const { kind, names } = address();
  if (kind === "sweep") return swept?.name === names[0] ? swept.best : [];
  return kind === "compare" ? names : [];
}

async function refreshCompared() {
  const asked = address(), names = comparedRuns(), form = document.forms.view, axis = form.axis.value;
  const query = new URLSearchParams({ axis, drawn: form.drawn.value });
  for (const name of names) query.append("run", name);
  const news = await ask(`/api/compare?${query}`);
  if (!isStillAsked(asked)) return;
  compared = { ...news, axis };
  showOnly("compared", ...(asked.kind === "sweep" ? ["swept"] : []));
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
  announce(`${shown} in ${plural(compared.groups, "group")}`, `A group's runs differ in their seed alone.${lost.join("")}`);
}

function showCompared() {
  panels = showCharts($("panels"), panels, compared.tasks.map(layOutTask));
}

function groupColour(number) {
  return compared.groups <= PALETTE ? colour(`c${number}`) : `hsl(${Math.round((360 * number) / compared.groups)} 65% ${colour("lightness")})`;
}

function layOutTask({ task, targets, x, curves }) {
  const isWide = compared.tasks.length === 1;
  if (!x.length) return { title: task, isWide, data: null, style: "empty" };
  const [what, unit] = DRAWN[compared.drawn], isReturn = ["eval_mean", "return_mean"].includes(compared.drawn);
  const mayLog = isReturn || ["sigma", "update_ratio"].includes(compared.drawn), aims = isReturn ? targets : [];
  const shown = curves.flatMap(({ low, mid, high }) => [low, mid, high].map(smooth));
  const scale = chooseScale([...shown, aims], document.forms.view.vertical.value, mayLog ? curves.map((curve) => curve.mid) : []);
  const [across, label] = horizontal(x, compared.axis);
  const series = [], bands = [];
  for (const { group, label, seeds, mid } of curves) {
    const stroke = groupColour(group), end = () => ({ class: "end", stroke: "transparent", points: { show: false }, spanGaps: true });
    series.push(end(), { label: `${label}, seed ${seeds.join(", ")}`, stroke, width: 1.75, points: { show: hasFewValues }, spanGaps: true,
      value: (_, value, __, index) => number(index === null ? mid.findLast((known) => known !== null) : value) }, end());
    bands.push({ series: [series.length, series.length - 2], fill: `color-mix(in srgb, ${stroke} 16%, transparent)` });
  }
  return {
    title: task, unit, label, scale, isWide, series, bands, targets: aims, areWhole: compared.axis !== "seconds",
    description: `${task}: ${what} of ${plural(curves.length, "group")} against ${label}`,
    data: [across, ...shown],
    style: [compared.drawn, series.map(({ label, stroke }) => `${label} ${stroke}`), scale.asinh, label, colour("ink")].join(),
  };
}

new ResizeObserver(() => fitToWindow(panels)).observe($("panels"));
