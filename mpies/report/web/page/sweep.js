// A sweep: its settings in a table, the best first.
"use strict";

let swept = null; // the newest answer
let sweeps = []; // names

async function refreshSweeps() {
  sweeps = await ask("/api/sweeps");
  $("sweeps").hidden = !sweeps.length;
  showOnce($("sweeps"), sweeps.join("\n"), () => sweeps.map((name) => make("li", {},
    make("a", { href: `#~${encodeURIComponent(name)}` }, ...(name === "." ? ["this sweep"] : ["sweep ", ...breakable(name)])),
    ...(name === "." ? [] : [makeFold(name)]))));
  if (!location.hash && sweeps.includes(".")) location.replace("#~.");
}

// A button that shows the trials of a sweep in the list of runs, and hides them again.
function makeFold(name) {
  const button = make("button", { type: "button", "aria-expanded": unfolded.has(name) }, "trials");
  button.addEventListener("click", () => {
    if (!unfolded.delete(name)) unfolded.add(name);
    button.setAttribute("aria-expanded", unfolded.has(name));
    showRuns();
  });
  return button;
}

async function refreshSweep() {
  const asked = address(), [name] = asked.names;
  const news = await ask(`/api/sweep?name=${encodeURIComponent(name)}`);
  if (!isStillAsked(asked)) return;
  const isSame = swept?.name === name;
  swept = news;
  showOnly("swept", ...(isSame && swept.best.length && !$("compared").hidden ? ["compared"] : [])); // not curves of other runs
  const states = Object.entries(swept.states).map(([state, count]) => `${count} ${state}`), { groups, keys } = swept;
  const trials = groups.reduce((total, group) => total + group.seeds, 0);
  announce(name === "." ? "This sweep" : name, `${plural(trials, "trial")} of ${plural(groups.length, "setting")} · ${states.join(", ")}`);
  const best = groups.find((group) => group.rank);
  showPairs($("progress"), {
    "best evaluation": spread(best?.mean, best?.interval), "core hours": number(swept.core_seconds / 3600),
    steps: number(swept.steps), ...Object.fromEntries(keys.map(({ key, short }) => [`best ${short}`, best?.settings[key] ?? "–"])),
  });
  showOnce($("settings"), JSON.stringify(groups), settingsTable);
}

function settingsTable() {
  const heads = ["rank", ...swept.keys.map(({ short }) => short), "evaluation", "ended", "solved", "steps", "core seconds", "trials"];
  const lines = swept.groups.map((group) => make("tr", {}, ...[
    group.rank ?? "–", ...swept.keys.map(({ key }) => group.settings[key]), spread(group.mean, group.interval),
    `${group.ended} of ${group.seeds}`, group.solved, number(group.steps), number(group.core_seconds), seedLinks(group.trials),
  ].map((cell) => make("td", {}, cell))));
  return [make("thead", {}, make("tr", {}, ...heads.map((title) => make("th", { scope: "col" }, title)))), make("tbody", {}, ...lines)];
}

// The seeds of a setting, each a link to its run where it has begun, and the state of those that have not finished.
function seedLinks(trials) {
  const list = make("span", {}, "seed ");
  trials.forEach(({ name, seed, state, reason }, place) => {
    const link = state === "new" ? seed : make("a", { href: linkTo(name), title: reason || name }, seed);
    list.append(place ? ", " : "", link, ["finished", "solved"].includes(state) ? "" : ` (${state})`);
  });
  return list;
}
