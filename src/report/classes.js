// The results of each class.
"use strict";

const MANY_CLASSES = 50;
const FEW_PAIRS = 10;
const EVALUATION_WORDS = { calibration_error: "calibration error", macro_f1: "macro F1", top1: "top-1", top5: "top-5" };

const className = (evaluation, index) => evaluation.classes[index]?.name ?? String(index);
const panel = (title, ...children) => element("article", { class: "panel" }, element("header", {}, element("h3", {}, title)), ...children);

function matrixPanel(evaluation) {
  const matrix = evaluation.confusion;
  const isDense = matrix.length > 15;
  const table = element("table", { class: `matrix ${isDense ? "dense" : ""}` },
                        element("caption", { class: "hidden-text" }, "Confusion matrix: a row for each actual class, a column for each predicted class"),
                        element("colgroup", {}, element("col", { class: "names" })));
  if (!isDense) {
    table.append(element("thead", {}, element("tr", {}, element("td"), ...matrix.map((row, column) => element(
      "th", { scope: "col", title: className(evaluation, column) }, String(column), element("span", { class: "hidden-text" }, ` ${className(evaluation, column)}`))))));
  }
  const body = element("tbody");
  matrix.forEach((row, actual) => {
    const sum = row.reduce((total, count) => total + count, 0);
    const cells = row.map((count, predicted) => {
      const share = sum > 0 ? count / sum : 0;
      const cell = element("td", {
        class: actual === predicted ? "right" : null,
        title: `${className(evaluation, actual)}, predicted as ${className(evaluation, predicted)}: ${count} of ${sum} (${formatPercent(share)})`,
      }, String(count));
      cell.style.background = `color-mix(in srgb, var(--accent) ${Math.round(100 * share)}%, var(--grid))`;
      if (share > 0.55) cell.style.color = "var(--on-accent)";
      return cell;
    });
    body.append(element("tr", {}, element("th", { scope: "row" }, `${actual} ${className(evaluation, actual)}`), ...cells));
  });
  table.append(body);
  return panel("Confusion matrix", element("p", { class: "muted small" }, "Rows: actual class. Columns: predicted class. Colour: share of the row."), table);
}

function pairsPanel(evaluation) {
  const rows = evaluation.pairs.slice(0, evaluation.confusion ? FEW_PAIRS : undefined).map((pair) => [
    className(evaluation, pair.actual), className(evaluation, pair.predicted), pair.count.toLocaleString("en"), formatPercent(pair.share)]);
  return panel("Most confused", dataTable("Pairs of classes, the most frequent first", ["Actual", "Predicted", "Images", "Of the class"], rows, { numbersFrom: 2 }));
}

// A table that the titles sort.
function classPanel(evaluation) {
  const columns = ["name", "num_samples", "recall", "precision", "f1"];
  const titles = { name: "Class", num_samples: "Images", recall: "Recall", precision: "Precision", f1: "F1" };
  let sortBy = evaluation.classes.length > MANY_CLASSES ? "f1" : null;
  let direction = 1;
  let showsAll = evaluation.classes.length <= MANY_CLASSES;
  const box = element("div");
  const show = () => {
    const classes = [...evaluation.classes];
    if (sortBy) {
      const key = (one) => one[sortBy] ?? -1;
      classes.sort((one, other) => direction * (sortBy === "name" ? one.name.localeCompare(other.name) : key(one) - key(other)));
    }
    const shown = showsAll ? classes : classes.slice(0, MANY_CLASSES);
    const rows = shown.map((one) => [one.name, one.num_samples.toLocaleString("en"), formatPercent(one.recall), formatPercent(one.precision), withBar(one.f1)]);
    const heads = columns.map((column) => {
      const button = element("button", { type: "button" }, titles[column] + (sortBy === column ? (direction > 0 ? " ↑" : " ↓") : ""));
      button.addEventListener("click", () => {
        direction = sortBy === column ? -direction : 1;
        sortBy = column;
        show();
        box.querySelectorAll("thead button")[columns.indexOf(column)].focus();
      });
      return button;
    });
    const table = dataTable("A click on a title sorts", heads, rows, { numbersFrom: 1 });
    box.replaceChildren(table);
    if (!showsAll) {
      const more = element("button", { type: "button" }, `Show all ${classes.length} classes`);
      more.addEventListener("click", () => { showsAll = true; show(); });
      box.append(more);
    }
  };
  show();
  return panel("Classes", box);
}

function withBar(value) {
  const bar = element("span", { class: "bar" });
  bar.style.width = `${100 * (value ?? 0)}%`;
  return element("span", {}, formatPercent(value), element("span", { class: "bar-box", "aria-hidden": "true" }, bar));
}

function calibrationPanel(evaluation) {
  const rows = evaluation.calibration.filter((bin) => bin.count > 0).map((bin) => [
    formatPercent(bin.confidence), withBar(bin.accuracy), bin.count.toLocaleString("en")]);
  return panel("Calibration", dataTable("How often predictions of a confidence are right", ["Confidence", "Accuracy", "Images"], rows, { numbersFrom: 0 }));
}

function mistakesPanel(evaluation) {
  const items = evaluation.mistakes.map((mistake) => {
    const label = className(evaluation, mistake.label), predicted = className(evaluation, mistake.predicted);
    const picture = mistake.image
      ? element("img", { src: mistake.image, alt: `Image ${mistake.index}`, width: 96, height: 96, loading: "lazy" })
      : null;
    return element("li", {}, element("figure", {}, picture, element(
      "figcaption", {}, element("strong", {}, predicted), ` ${formatPercent(mistake.confidence)}`, element("br"), `is ${label}`, element("br"),
      element("span", { class: "muted" }, `sample ${mistake.index}`))));
  });
  const note = evaluation.images_note ? element("p", { class: "muted small" }, evaluation.images_note) : null;
  const node = panel("Wrongly classified, with the greatest confidence", note, element("ul", { class: "mistakes" }, ...items));
  node.classList.add("wide");
  return node;
}

function showEvaluation() {
  const evaluated = data.runs.filter((run) => run.evaluation);
  byId("evaluation-section").hidden = evaluated.length === 0;
  if (evaluated.length === 0) return;
  const choice = byId("evaluation-run");
  const chosen = choice.value;
  choice.replaceChildren(...data.runs.map((run, index) => (run.evaluation ? element("option", { value: index }, run.name) : null)).filter(Boolean));
  if ([...choice.options].some((option) => option.value === chosen)) choice.value = chosen;
  byId("evaluation-choice").hidden = evaluated.length < 2;
  const { evaluation } = data.runs[Number(choice.value)];
  const metrics = Object.entries(evaluation.metrics).map(([name, value]) => `${EVALUATION_WORDS[name] ?? name} ${formatterOf(name)(value)}`);
  const place = `${evaluation.num_samples.toLocaleString("en")} images of the ${evaluation.split} split after step ${evaluation.step.toLocaleString("en")}`;
  const panels = element("div", { class: "evaluation" });
  if (evaluation.confusion) panels.append(matrixPanel(evaluation));
  if (evaluation.classes.length > 0) panels.append(classPanel(evaluation));
  if (evaluation.pairs.length > 0) panels.append(pairsPanel(evaluation));
  if (evaluation.calibration.length > 0) panels.append(calibrationPanel(evaluation));
  if (evaluation.mistakes.length > 0) panels.append(mistakesPanel(evaluation));
  byId("evaluation").replaceChildren(element("p", { class: "muted" }, [place, ...metrics].join(" · ")), panels);
}
