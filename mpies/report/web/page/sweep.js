// A sweep: its settings in a table, and how much each of them matters.
"use strict";

let swept = null; // the newest answer
let settingsOrder = { by: "rank", down: false };

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
  showTable($("settings"), [
    { title: "rank", value: (group) => group.rank },
    ...swept.keys.map(({ key, short }) => ({ key, title: short, hint: key, value: (group) => group.settings[key] })),
    { title: "evaluation", isDown: true, hint: "mean over the seeds, and its 95 % interval", value: (group) => group.mean, show: (group) => spread(group.mean, group.interval) },
    { title: "ended", value: (group) => group.ended, show: (group) => `${group.ended} of ${group.seeds}` },
    { title: "solved", value: (group) => group.solved },
    { title: "steps", value: (group) => group.steps, show: (group) => number(group.steps) },
    { title: "core seconds", value: (group) => group.core_seconds, show: (group) => number(group.core_seconds) },
    { title: "trials", show: (group) => seedLinks(group.trials) },
  ], swept.groups, settingsOrder);
}
