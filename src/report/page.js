// Draws the report from the data, and in a page that is served again when there is newer data.
"use strict";

const POLL_MILLISECONDS = 2000;

function swatch(index) {
  const node = element("span", { class: "swatch", "aria-hidden": "true" });
  node.style.background = `var(--run-${index % NUM_COLOURS})`;
  return node;
}

function runCard(run, index) {
  const facts = [];
  if (run.best) {
    const place = run.steps_per_epoch > 0 ? `epoch ${run.best.epoch + 1}` : `step ${run.best.step}`;
    facts.push([`Best ${(LABELS[run.best.metric] ?? run.best.metric).toLowerCase()}`,
                `${formatterOf(run.best.metric)(run.best.value)}, ${place}`]);
  }
  const latest = (split, name, label) => {
    const series = run[split][name];
    if (series) facts.push([label, formatterOf(name)(series.values.at(-1))]);
  };
  latest("validation", "loss", "Validation loss");
  latest("train", "loss", "Training loss");
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

function showRuns() {
  byId("runs").replaceChildren(...data.runs.map(runCard));
  const names = data.runs.map((run) => run.name);
  byId("title").textContent = names.length === 1 ? names[0] : `${names.length} runs`;
  byId("subtitle").textContent = (data.live ? "Followed live; read " : "Report of ") + formatTime(data.generated);
  const items = data.runs.flatMap((run) => run.warnings.map((warning) => element(
    "li", {}, `${data.runs.length > 1 ? `${run.name}, ` : ""}step ${warning.step}: ${warning.message}`)));
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
  box.replaceChildren(different.length > 0 ? table("What differs", different, false) : element("p", {}, `The ${what} does not differ.`), all);
}

// Parts that have not changed keep what a reader has opened and chosen.
const shown = {};
function showIfChanged(name, value, show) {
  const text = JSON.stringify(value);
  if (shown[name] === text) return;
  shown[name] = text;
  show();
}

function show() {
  showRuns();
  showIfChanged("curves", data.runs.map((run) => [run.name, run.train, run.validation, run.steps_per_epoch]), showCurves);
  showIfChanged("evaluation", data.runs.map((run) => [run.name, run.evaluation]), showEvaluation);
  showIfChanged("config", data.config, () => valueTable(byId("config"), data.config, "configuration"));
  showIfChanged("environment", data.environment, () => valueTable(byId("environment"), data.environment, "environment"));
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
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
show();
byId("smoothing-value").textContent = Number(byId("smoothing").value).toFixed(2);

async function poll(tag) {
  try {
    const answer = await fetch("data", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      tag = answer.headers.get("ETag");
      data = await answer.json();
      show();
    }
  } catch {
    byId("subtitle").textContent = `Not connected: trainer report has ended, or cannot be reached. Read ${formatTime(data.generated)}.`;
  }
  setTimeout(poll, POLL_MILLISECONDS, tag);
}
if (data.live) poll(null);
