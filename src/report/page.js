// Draws the report from the data. A page of `trainer report --live` is drawn again whenever there is newer data.
"use strict";

const POLL_MILLISECONDS = 2000;
// With more runs, the page shows the table of runs, but no card for each run.
const MOST_CARDS = 4;
// Keys that only name a run; differences in them are not shown in the table of runs.
const NAMES_OF_RUNS = new Set(["experiment", "output_dir"]);
const MOST_KEYS = 8;

function swatch(index) {
  const node = element("span", { class: "swatch", "aria-hidden": "true" });
  node.style.background = `var(--run-${index % NUM_COLOURS})`;
  return node;
}

const placeOfBest = (run) => (run.steps_per_epoch > 0 ? `epoch ${run.best.epoch + 1}` : `step ${run.best.step}`);
const metricWords = (name) => (LABELS[name] ?? name).toLowerCase();
const isBetter = (one, other) => (one.best.higher_is_better ? one.best.value > other.best.value : one.best.value < other.best.value);

// The best result of all runs, if they use the same metric.
function headline() {
  const measured = data.runs.filter((run) => run.best);
  const [first] = measured;
  if (!first || measured.some((run) => run.best.metric !== first.best.metric)) return null;
  const best = measured.reduce((one, other) => (isBetter(other, one) ? other : one));
  const place = [data.runs.length > 1 ? best.name : null, placeOfBest(best), best.steps_per_epoch > 0 ? `step ${best.best.step.toLocaleString("en")}` : null];
  return [`Best ${metricWords(first.best.metric)}: `, element("strong", {}, formatterOf(first.best.metric)(best.best.value)),
          ` (${place.filter(Boolean).join(", ")})`];
}

// Groups of runs whose configurations differ only in the seed and the run's name: {indices, mean, deviation}.
function repetitions() {
  const seeds = data.config.find((row) => row.name === "seed")?.values ?? [];
  const keys = data.config.filter((row) => row.differs && row.name !== "seed" && !NAMES_OF_RUNS.has(row.name));
  const groups = new Map();
  data.runs.forEach((run, index) => {
    if (!run.best) return;
    const key = JSON.stringify([run.best.metric, ...keys.map((row) => row.values[index])]);
    groups.set(key, [...(groups.get(key) ?? []), index]);
  });
  return [...groups.values()].filter((indices) => new Set(indices.map((index) => seeds[index])).size > 1).map((indices) => {
    const values = indices.map((index) => data.runs[index].best.value);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
    return { indices, keys, mean, deviation };
  });
}

const runTableState = { sorted: null };
function showRunTable() {
  const box = byId("run-table");
  if (data.runs.length < 2) return box.replaceChildren();
  const rows = data.runs.map((run, index) => ({ run, index }));
  const keys = data.config.filter((row) => row.differs && !NAMES_OF_RUNS.has(row.name)).slice(0, MOST_KEYS);
  const keyColumn = (row) => ({
    title: row.name, cell: ({ index }) => row.values[index] ?? "–",
    key: ({ index }) => (row.values[index] === null || row.values[index].trim() === "" || Number.isNaN(Number(row.values[index])) ? row.values[index] : Number(row.values[index])),
  });
  const columns = [
    { title: "Run", key: ({ run }) => run.name, cell: ({ run, index }) => element("span", {}, swatch(index), run.name) },
    { title: "State", key: ({ run }) => run.state, cell: ({ run }) => element("span", { class: `state state-${run.state}` }, run.state) },
    ...keys.map(keyColumn),
    { title: "Best", key: ({ run }) => run.best?.value, isNumber: true,
      cell: ({ run }) => (run.best ? `${run.best.metric} ${formatterOf(run.best.metric)(run.best.value)}` : "–") },
    { title: "At", key: ({ run }) => run.best?.step, cell: ({ run }) => (run.best ? placeOfBest(run) : "–"), isNumber: true },
    { title: "Time", key: ({ run }) => run.seconds, cell: ({ run }) => formatDuration(run.seconds), isNumber: true },
  ];
  const show = () => {
    box.replaceChildren(sortableTable("Click a column title to sort by it", columns, rows, runTableState, show));
    const groups = repetitions();
    if (groups.length > 0) {
      box.append(dataTable("Runs that differ only in the seed: mean ± standard deviation of their best values", [groups[0].keys.map((row) => row.name).join(", ") || "Runs", "Number", "Best"], groups.map(({ indices, keys, mean, deviation }) => {
        const format = formatterOf(data.runs[indices[0]].best.metric);
        const label = keys.map((row) => row.values[indices[0]] ?? "–").join(", ") || indices.map((index) => data.runs[index].name).join(", ");
        return [label, String(indices.length), `${format(mean)} ± ${format(deviation)}`];
      }), { numbersFrom: 1 }));
    }
    return box;
  };
  show();
}

function runCard(run, index) {
  const facts = [];
  if (run.best) {
    facts.push([`Best ${metricWords(run.best.metric)}`, `${formatterOf(run.best.metric)(run.best.value)}, ${placeOfBest(run)}`]);
  }
  if (run.validation.loss) facts.push(["Validation loss", formatterOf("loss")(run.validation.loss.values.at(-1))]);
  if ("loss" in run.epoch_means) facts.push(["Training loss, mean of the epoch", formatterOf("loss")(run.epoch_means.loss)]);
  facts.push([run.progress.startsWith("step") ? "Progress" : "Epoch", run.progress], ["Steps", run.step.toLocaleString("en")]);
  if (run.images_per_second > 0) facts.push(["Images per second", formatNumber(run.images_per_second)]);
  facts.push(["Time", formatDuration(run.seconds)], ["Started", formatTime(run.started)]);
  if (run.where) facts.push(["Where", run.where]);
  if (run.num_parameters > 0) facts.push(["Parameters", run.num_parameters.toLocaleString("en")]);
  const list = element("dl");
  for (const [term, value] of facts) list.append(element("dt", {}, term), element("dd", {}, value));
  const title = element("h3", {}, data.runs.length > 1 ? swatch(index) : null, run.name);
  return element("article", { class: "panel" },
                 element("header", {}, title, element("span", { class: `state state-${run.state}` }, run.state)), list,
                 run.message ? element("p", { class: run.state === "failed" ? "error" : "muted small" }, run.message) : null);
}

// `trouble`: the reason why the page receives no newer data.
function showSubtitle(trouble = null) {
  const time = formatTime(data.generated);
  const state = data.live ? `Live; last update ${time}` : `Report of ${time}`;
  byId("subtitle").textContent = trouble === null ? state : `Not connected: ${trouble}. Last update ${time}.`;
}

function showRuns() {
  byId("runs").replaceChildren(...(data.runs.length <= MOST_CARDS ? data.runs.map(runCard) : []));
  const words = headline();
  byId("headline").hidden = words === null;
  byId("headline").replaceChildren(...(words ?? []));
  const names = data.runs.map((run) => run.name);
  byId("title").textContent = names.length === 1 ? names[0] : `${names.length} runs`;
  showSubtitle();
  const items = data.runs.flatMap((run) => run.warnings.map((warning) => element(
    "li", {}, `${data.runs.length > 1 ? `${run.name}, ` : ""}step ${warning.step}: ${warning.message}`)));
  if (data.note) items.unshift(element("li", {}, data.note));
  byId("warnings-section").hidden = items.length === 0;
  byId("warnings").replaceChildren(element("ul", {}, ...items));
}

function valueTable(box, rows, what) {
  const names = data.runs.map((run) => run.name);
  const table = (caption, shown, marks) => dataTable(
    caption, ["Name", ...names], shown.map((row) => [row.name, ...row.values.map((value) => value ?? "–")]),
    { tableClass: "values", rowClass: (at) => (marks && shown[at].differs ? "differs" : null) });
  const all = element("details", { open: false }, element("summary", {}, `All values of the ${what}`), table(`The ${what}`, rows, names.length > 1));
  if (names.length === 1) return box.replaceChildren(all);
  const different = rows.filter((row) => row.differs);
  box.replaceChildren(different.length > 0 ? table("Differences", different, false) : element("p", {}, `All runs have the same ${what}.`), all);
}

// Parts that have not changed are kept, with everything that the user has opened and chosen in them.
const shown = {};
function showIfChanged(name, value, show) {
  const text = JSON.stringify(value);
  if (shown[name] === text) return;
  shown[name] = text;
  show();
}

function show() {
  showRuns();
  showIfChanged("run-table", [data.runs.map((run) => [run.name, run.state, run.best, run.seconds]), data.config], showRunTable);
  showIfChanged("crossvals", data.crossvals, showCrossvals);
  showIfChanged("curves", data.runs.map((run) => [run.name, run.train, run.validation, run.steps_per_epoch]), showCurves);
  showIfChanged("evaluation", data.runs.map((run) => [run.name, run.evaluation, run.best_evaluation, run.calibration]), showEvaluation);
  showIfChanged("config", data.config, () => valueTable(byId("config"), data.config, "configuration"));
  showIfChanged("environment", data.environment, () => valueTable(byId("environment"), data.environment, "environment"));
}

function showCrossvals() {
  byId("crossval-section").hidden = data.crossvals.length === 0;
  byId("crossvals").replaceChildren(...data.crossvals.flatMap(crossvalPanels));
}

function redrawCharts() {
  byId("smoothing-value").textContent = Number(byId("smoothing").value).toFixed(2);
  for (const chart of charts) chart.draw();
}

const numPoints = Math.max(0, ...data.runs.map((run) => run.train.loss?.values.length ?? 0));
byId("smoothing").value = numPoints > 60 ? 0.6 : 0;
byId("smoothing").addEventListener("input", redrawCharts);
byId("axis").addEventListener("change", redrawCharts);
byId("epochs").addEventListener("toggle", () => byId("epochs").open && showEpochs());
byId("evaluation-run").addEventListener("change", showEvaluation);
byId("evaluation-which").addEventListener("change", showEvaluation);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
show();
byId("smoothing-value").textContent = Number(byId("smoothing").value).toFixed(2);

async function poll(tag) {
  try {
    const answer = await fetch("data", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      data = await answer.json();
      tag = answer.headers.get("ETag");
      show();
    } else if (answer.status === 304) {
      showSubtitle();
    } else {
      showSubtitle(`the server answered with status ${answer.status}; if trainer report was started again, open the address that it printed`);
    }
  } catch {
    showSubtitle("trainer report has ended, or cannot be reached");
  }
  setTimeout(poll, POLL_MILLISECONDS, tag);
}
if (data.live) poll(null);
