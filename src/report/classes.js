// The results of evaluations, cross-validations and `trainer calibrate`.
"use strict";

const MANY_CLASSES = 50;
const FEW_PAIRS = 10;
const EVALUATION_WORDS = {
  balanced_accuracy: "balanced accuracy", calibration_error: "calibration error", exact_match: "exact match", macro_f1: "macro F1",
  mae: "mean absolute error", map: "mean average precision", mcc: "Matthews correlation", r2: "R²", rmse: "RMSE", top1: "top-1", top5: "top-5",
};

const className = (evaluation, index) => evaluation.classes[index]?.name ?? String(index);
const panel = (title, ...children) => element("article", { class: "panel" }, element("header", {}, element("h3", {}, title)), ...children);

// A table of a square matrix of counts. `wholeOf` returns the total by which a row is divided, `words` the tooltip of a cell.
function matrixTable(evaluation, matrix, caption, wholeOf, words) {
  const isDense = matrix.length > 15;
  const table = element("table", { class: `matrix ${isDense ? "dense" : ""}` }, element("caption", { class: "hidden-text" }, caption),
                        element("colgroup", {}, element("col", { class: "names" })));
  if (!isDense) {
    table.append(element("thead", {}, element("tr", {}, element("td"), ...matrix.map((row, column) => element(
      "th", { scope: "col", title: className(evaluation, column) }, element("span", {}, className(evaluation, column)))))));
  }
  const body = element("tbody");
  matrix.forEach((row, index) => {
    const whole = wholeOf(row, index);
    const cells = row.map((count, column) => {
      const share = whole > 0 ? count / whole : 0;
      const cell = element("td", { class: index === column ? "right" : null, title: words(className(evaluation, index), className(evaluation, column), count, whole, share) },
                           String(count));
      cell.style.background = `color-mix(in srgb, var(--accent) ${Math.round(100 * share)}%, var(--grid))`;
      if (share > 0.55) cell.style.color = "var(--on-accent)";
      return cell;
    });
    body.append(element("tr", {}, element("th", { scope: "row", title: className(evaluation, index) }, className(evaluation, index)), ...cells));
  });
  table.append(body);
  return table;
}

function matrixPanel(evaluation) {
  const table = matrixTable(evaluation, evaluation.confusion, "Confusion matrix: a row for each actual class, a column for each predicted class",
                            (row) => row.reduce((total, count) => total + count, 0),
                            (actual, predicted, count, sum, share) => `${actual}, predicted as ${predicted}: ${count} of ${sum} (${formatPercent(share)})`);
  return panel("Confusion matrix", element("p", { class: "muted small" }, "Rows: actual class. Columns: predicted class. Colour: share of the row."), table);
}

// The results of all folds of a cross-validation.
function crossvalPanels(crossval) {
  const names = Object.keys(crossval.mean);
  const rows = names.map((name) => {
    const format = formatterOf(name);
    return [EVALUATION_WORDS[name] ?? name, `${format(crossval.mean[name])} ± ${format(crossval.deviation[name])}`,
            ...crossval.folds.map((fold) => (typeof fold.metrics[name] === "number" ? format(fold.metrics[name]) : "–"))];
  });
  const numImages = crossval.folds.reduce((sum, fold) => sum + fold.num_samples, 0);
  const panels = [panel(data.crossvals.length > 1 ? crossval.name : "All folds",
                        element("p", { class: "muted small" }, `The best validation of each of ${crossval.num_folds} folds, ${numImages.toLocaleString("en")} images in all: mean ± standard deviation.`),
                        dataTable("Results of the folds", ["Metric", "All folds", ...crossval.folds.map((fold, index) => `Fold ${index}`)], rows, { numbersFrom: 1 }))];
  if (crossval.confusion && crossval.classes.length <= MANY_CLASSES) {
    panels.push(matrixPanel({ classes: crossval.classes.map((name) => ({ name })), confusion: crossval.confusion }));
  }
  return panels;
}

function coOccurrencePanel(evaluation) {
  const table = matrixTable(evaluation, evaluation.co_occurrence, "Images that belong to two classes: a row and a column for each class",
                            (row, index) => row[index],
                            (one, other, count, whole, share) => `${count} of ${whole} images of ${one} (${formatPercent(share)}) are also of ${other}`);
  return panel("Classes that occur together", element("p", { class: "muted small" }, "Number of images that belong to both classes. Colour: share of the images of the row's class."), table);
}

function pairsPanel(evaluation) {
  const rows = evaluation.pairs.slice(0, evaluation.confusion ? FEW_PAIRS : undefined).map((pair) => [
    className(evaluation, pair.actual), className(evaluation, pair.predicted), pair.count.toLocaleString("en"), formatPercent(pair.share)]);
  return panel("Most confused", dataTable("Pairs of classes, the most frequent first", ["Actual", "Predicted", "Images", "Share of the class"], rows, { numbersFrom: 2 }));
}

function classPanel(evaluation) {
  const percent = (name) => (one) => formatPercent(one[name]);
  const columns = [
    { title: "Class", key: (one) => one.name, cell: (one) => one.name },
    { title: "Images", key: (one) => one.num_samples, cell: (one) => one.num_samples.toLocaleString("en"), isNumber: true },
    { title: "Recall", key: (one) => one.recall, cell: percent("recall"), isNumber: true },
    { title: "Precision", key: (one) => one.precision, cell: percent("precision"), isNumber: true },
    { title: "F1", key: (one) => one.f1, cell: (one) => withBar(one.f1), isNumber: true },
  ];
  const areIndependent = evaluation.classes.some((one) => one.threshold !== undefined);
  if (areIndependent) {
    columns.splice(2, 0, { title: "Average precision", key: (one) => one.average_precision, cell: (one) => one.average_precision.toFixed(4), isNumber: true },
                   { title: "Threshold", key: (one) => one.threshold, cell: percent("threshold"), isNumber: true });
  }
  const isLong = evaluation.classes.length > MANY_CLASSES;
  const state = isLong ? { sorted: { column: columns.length - 1, direction: 1 }, limit: MANY_CLASSES } : { sorted: null };
  const box = element("div");
  const show = () => {
    box.replaceChildren(sortableTable("Click a column title to sort by it", columns, evaluation.classes, state, show));
    if (state.limit) {
      const more = element("button", { type: "button" }, `Show all ${evaluation.classes.length} classes`);
      more.addEventListener("click", () => {
        state.limit = undefined;
        show();
      });
      box.append(more);
    }
    return box;
  };
  show();
  const note = areIndependent ? element("p", { class: "muted small" }, "Recall, precision and F1 of each class at the probability threshold with its best F1 on these images, which is too favourable; trainer eval with other images measures the stored thresholds.") : null;
  return panel("Classes", note, box);
}

function withBar(value) {
  const bar = element("span", { class: "bar" });
  bar.style.width = `${100 * (value ?? 0)}%`;
  return element("span", {}, formatPercent(value), element("span", { class: "bar-box", "aria-hidden": "true" }, bar));
}

const SIZE = 240, MARGIN = 34;

function drawn(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const across = (share) => MARGIN + share * SIZE;
const up = (share) => MARGIN / 2 + (1 - share) * SIZE;

// A square diagram with both axes from 0 to 1; `wordsOf` labels a position on both.
function squareDiagram(label, wordsOf = (share) => `${100 * share}%`) {
  const picture = drawn("svg", { class: "reliability", viewBox: `0 0 ${SIZE + 1.5 * MARGIN} ${SIZE + 1.5 * MARGIN}`, role: "img", "aria-label": label });
  for (const share of [0, 0.5, 1]) {
    picture.append(drawn("line", { x1: across(0), x2: across(1), y1: up(share), y2: up(share), class: "grid" }),
                   drawn("text", { x: across(0) - 6, y: up(share) + 4, "text-anchor": "end" }, wordsOf(share)),
                   drawn("text", { x: across(share), y: up(0) + 15, "text-anchor": "middle" }, wordsOf(share)));
  }
  return picture;
}

// A short number for an axis.
const axisNumber = (value) => String(Number(value.toPrecision(3)));

// A scatter plot of predictions (vertical) against targets (horizontal), on the same scale; correct ones are on the diagonal.
function scatterDiagram(number) {
  const values = number.pairs.flat();
  const least = Math.min(...values), greatest = Math.max(...values);
  const share = (value) => (greatest > least ? (value - least) / (greatest - least) : 0.5);
  const picture = squareDiagram(`Predicted over actual ${number.name}`, (part) => axisNumber(least + part * (greatest - least)));
  picture.append(drawn("line", { x1: across(0), y1: up(0), x2: across(1), y2: up(1), class: "ideal" }));
  for (const [target, prediction] of number.pairs) {
    picture.append(drawn("circle", { cx: across(share(target)), cy: up(share(prediction)), r: 2, "fill-opacity": 0.5 },
                         drawn("title", {}, `${formatNumber(target)}, predicted ${formatNumber(prediction)}`)));
  }
  return picture;
}

function numbersPanel(evaluation) {
  const numbers = evaluation.numbers;
  const rows = numbers.map((one) => [one.name, formatNumber(one.mae), formatNumber(one.rmse), formatNumber(one.r2)]);
  const choice = element("select", {}, ...numbers.map((one, index) => element("option", { value: index }, one.name)));
  const box = element("div");
  const show = () => box.replaceChildren(scatterDiagram(numbers[Number(choice.value)]));
  choice.addEventListener("change", show);
  show();
  return panel("Predicted and actual numbers", element("p", { class: "muted small" }, `Vertical: predicted; horizontal: actual; for ${numbers[0].pairs.length.toLocaleString("en")} images. Correct predictions lie on the dashed line.`),
               numbers.length > 1 ? element("label", { class: "controls" }, "Number ", choice) : null, box,
               dataTable("Errors of each number", ["Number", "Mean absolute error", "RMSE", "R²"], rows, { numbersFrom: 1 }));
}

// The accuracy of the predictions in each range of confidence, as a bar; perfectly calibrated bars end on the diagonal.
function reliabilityDiagram(bins) {
  const picture = squareDiagram("Reliability diagram: accuracy over confidence; the table has the values");
  bins.forEach((bin, index) => {
    if (bin.count === 0) return;
    const words = `Confidence ${formatPercent(bin.confidence)}: ${formatPercent(bin.accuracy)} of ${bin.count.toLocaleString("en")} are correct`;
    picture.append(drawn("rect", { x: across(index / bins.length) + 1, y: up(bin.accuracy), width: SIZE / bins.length - 2, height: SIZE * bin.accuracy },
                         drawn("title", {}, words)),
                   drawn("circle", { cx: across(bin.confidence), cy: up(bin.accuracy), r: 3 }));
  });
  picture.append(drawn("line", { x1: across(0), y1: up(0), x2: across(1), y2: up(1), class: "ideal" }));
  return picture;
}

function reliabilityTable(bins) {
  const rows = bins.filter((bin) => bin.count > 0).map((bin) => [formatPercent(bin.confidence), withBar(bin.accuracy), bin.count.toLocaleString("en")]);
  return dataTable("How often predictions of each confidence are correct", ["Confidence", "Accuracy", "Images"], rows, { numbersFrom: 0 });
}

function calibrationPanel(evaluation) {
  return panel("Calibration", element("p", { class: "muted small" }, "Vertical: accuracy; horizontal: confidence of the predictions. Where a bar ends below the dashed line, the predictions are too confident."),
               reliabilityDiagram(evaluation.calibration),
               element("details", {}, element("summary", {}, "As a table"), reliabilityTable(evaluation.calibration)));
}

const withInterval = (measured) =>
  measured ? `${formatPercent(measured.value)} (${formatPercent(measured.low)} to ${formatPercent(measured.high)})` : "unknown";

// The results of `trainer calibrate`: calibration before and after the temperature, and the decisions by the thresholds.
function operatingPointPanel(calibration) {
  const rows = [["Temperature", calibration.temperature.toFixed(4)]];
  const threshold = calibration.threshold;
  if (threshold) {
    rows.push([`Class ${threshold.class}`, `assigned if its probability is at least ${Number((100 * threshold.probability).toPrecision(4))}%`],
              ["Images of this class that are missed", withInterval(threshold.misses)], ["Other images that are assigned to it", withInterval(threshold.false_alarms)]);
  }
  if (calibration.reject_below > 0) rows.push([`Rejected (probability below ${formatPercent(calibration.reject_below)})`, withInterval(calibration.rejected)]);
  rows.push([calibration.reject_below > 0 ? "Accuracy of the others" : "Accuracy", withInterval(calibration.accuracy)]);
  const figures = [["before", "Before"], ["after", "With the temperature"]].map(([when, words]) => element("figure", {}, reliabilityDiagram(calibration[when].calibration), element(
    "figcaption", { class: "small" }, words, element("br"), `calibration error ${withInterval(calibration[when].error)}`)));
  return panel("Operating point",
                     element("p", { class: "muted small" }, `Measured by trainer calibrate${calibration.averaged ? " --ema, with the averaged parameters," : ""} on ${calibration.num_samples.toLocaleString("en")} images of ${calibration.images}, after step ` +
                                                            `${calibration.step.toLocaleString("en")}. In brackets: 95% intervals.`),
                     element("div", { class: "pair" }, ...figures), dataTable("Decisions", ["For these images", "Value"], rows, { numbersFrom: 1 }));
}

// The curve of one class, which the user chooses from a list.
function precisionRecallPanel(calibration) {
  const choice = element("select", {}, ...calibration.classes.map((one, index) => element("option", { value: index }, one.name)));
  const box = element("div");
  const show = () => {
    const one = calibration.classes[Number(choice.value)];
    const picture = squareDiagram(`Precision over recall of ${one.name}; the table has the values`);
    picture.append(drawn("polyline", { class: "curve", points: one.points.map((point) => `${across(point.recall)},${up(point.precision)}`).join(" ") }));
    for (const point of one.points) {
      const words = `Threshold ${formatPercent(point.threshold)}: recall ${formatPercent(point.recall)}, precision ${formatPercent(point.precision)}`;
      picture.append(drawn("circle", { cx: across(point.recall), cy: up(point.precision), r: 2.5 }, drawn("title", {}, words)));
    }
    const rows = one.points.map((point) => [formatPercent(point.threshold), formatPercent(point.recall), formatPercent(point.precision)]);
    box.replaceChildren(picture, element("p", { class: "small" }, `${one.num_samples.toLocaleString("en")} images; average precision ${formatPercent(one.average_precision)}`),
                        element("details", {}, element("summary", {}, "As a table"),
                                dataTable("Recall and precision at each threshold", ["Threshold", "Recall", "Precision"], rows, { numbersFrom: 0 })));
  };
  choice.addEventListener("change", show);
  show();
  return panel("Precision and recall", element("p", { class: "muted small" }, "Each point is a threshold. Vertical: precision, the share of the images assigned to the class that belong to it; horizontal: recall, the share of the images of the class that are assigned to it."),
               element("label", { class: "controls" }, "Class ", choice), box);
}

function mistakesPanel(evaluation) {
  const items = evaluation.mistakes.map((mistake) => {
    const label = className(evaluation, mistake.label), predicted = className(evaluation, mistake.predicted);
    const picture = (source, words) => (source ? element("img", { src: source, alt: `${words} ${mistake.index}`, width: 96, height: 96, loading: "lazy" }) : null);
    return element("li", {}, element("figure", {}, picture(mistake.image, "Image"), picture(mistake.heatmap, "Heat map of image"), element(
      "figcaption", {}, element("strong", {}, predicted), ` ${formatPercent(mistake.confidence)}`, element("br"), `actual: ${label}`, element("br"),
      element("span", { class: "muted", title: mistake.name }, mistake.name ?? `sample ${mistake.index}`))));
  });
  const note = evaluation.images_note ? element("p", { class: "muted small" }, evaluation.images_note) : null;
  const node = panel("Wrongly classified with the highest confidence", note, element("ul", { class: "mistakes" }, ...items));
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
  const run = data.runs[Number(choice.value)];
  byId("evaluation-which").hidden = !run.best_evaluation;
  const evaluation = run[byId("evaluation-which").querySelector("select").value] ?? run.evaluation;
  const metrics = Object.entries(evaluation.metrics).map(([name, value]) => `${EVALUATION_WORDS[name] ?? name} ${formatterOf(name)(value)}`);
  const place = `${evaluation.num_samples.toLocaleString("en")} images of the ${evaluation.split} split after step ${evaluation.step.toLocaleString("en")}`;
  const panels = element("div", { class: "evaluation" });
  if (evaluation.confusion) panels.append(matrixPanel(evaluation));
  if (evaluation.numbers) panels.append(numbersPanel(evaluation));
  if (evaluation.classes.length > 0) panels.append(classPanel(evaluation));
  if (evaluation.co_occurrence) panels.append(coOccurrencePanel(evaluation));
  if (evaluation.pairs.length > 0) panels.append(pairsPanel(evaluation));
  if (evaluation.calibration.length > 0) panels.append(calibrationPanel(evaluation));
  if (run.calibration) {
    panels.append(operatingPointPanel(run.calibration));
    if (run.calibration.classes.length > 0) panels.append(precisionRecallPanel(run.calibration));
  }
  if (evaluation.mistakes.length > 0) panels.append(mistakesPanel(evaluation));
  byId("evaluation").replaceChildren(element("p", { class: "muted" }, [place, ...metrics].join(" · ")), panels);
}
