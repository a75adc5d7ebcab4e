// The charts, drawn with uPlot.
"use strict";

// The order of the charts; all others follow by name.
const CHART_ORDER = ["loss", "top1", "top5", "macro_f1", "balanced_accuracy", "mcc", "lr", "images_per_second", "data_wait", "memory_bytes"];
// Measurements of the training process, whose charts are in the section "Diagnostics", which is closed at first.
const DIAGNOSTICS = new Set(["lr", "images_per_second", "data_wait", "queue_depth", "memory_bytes", "grad_scale", "skipped_steps", "grad_norm"]);
// If the largest value is more than this many times the median, the axis is logarithmic by default, because a linear one would flatten the
// rest.
const SPIKE = 20;
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, exponent) => 2 ** exponent);

// Like TensorBoard's smoothing: an exponential moving average with bias correction.
function smoothed(values, weight) {
  let average = 0, num = 0;
  return values.map((value) => {
    if (value === null) return null;
    average = average * weight + (1 - weight) * value;
    ++num;
    return average / (1 - weight ** num);
  });
}

// The curves of a chart: {run, index, label, kind, steps, values}.
function curvesOf(metric) {
  const curves = [];
  data.runs.forEach((run, index) => {
    const add = (series, kind, words) => {
      if (!series) return;
      const label = [data.runs.length > 1 ? run.name : "", words].filter(Boolean).join(", ");
      curves.push({ run, index, label, kind, ...series });
    };
    add(run.train[metric], "train", run.validation[metric] || data.runs.length === 1 ? "training" : "");
    add(run.validation[metric], "validation", "validation");
    add(run.validation[`ema_${metric}`], "ema", "validation, averaged");
  });
  return curves;
}

function metricNames() {
  const names = new Set(data.runs.flatMap((run) => [
    ...Object.keys(run.train), ...Object.keys(run.validation).map(bareName).filter((name) => name !== "seconds")]));
  const rank = (name) => (CHART_ORDER.includes(name) ? CHART_ORDER.indexOf(name) : CHART_ORDER.length);
  return [...names].sort((one, other) => rank(one) - rank(other) || one.localeCompare(other));
}

// Ticks of a logarithmic axis: powers of ten or, over at most three decades, up to five rounded numbers at about equal distances.
function logSplits(plot, axis, min, max) {
  const decades = Math.log10(max / min);
  if (decades > 3) {
    const every = Math.ceil(decades / 6);
    const splits = [];
    for (let exponent = Math.ceil(Math.log10(min)); 10 ** exponent <= max; exponent += every) splits.push(10 ** exponent);
    return splits;
  }
  const num = 5;
  const even = Array.from({ length: num }, (_, at) => Number((min * (max / min) ** ((at + 0.5) / num)).toPrecision(decades < 0.2 ? 3 : 2)));
  return [...new Set(even)];
}

class Chart {
  constructor(metric) {
    this.metric = metric;
    this.isLog = false;
    this.isChosen = false;  // by the user
    this.format = formatterOf(metric);
    this.plotBox = element("div", { class: "plot", tabindex: "0", role: "group" });
    this.logButton = element("button", { type: "button", "aria-pressed": "false" }, "log axis");
    this.logButton.addEventListener("click", () => {
      this.isLog = !this.isLog;
      this.isChosen = true;
      this.logButton.setAttribute("aria-pressed", String(this.isLog));
      this.draw();
    });
    this.node = element("article", { class: "panel" }, element("header", {}, element("h3", {}, labelOf(metric)), this.logButton), this.plotBox);
    this.plotBox.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => {
      const width = this.plotBox.clientWidth;
      if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.plot.height });
    }).observe(this.plotBox);
  }

  // Shows the current data. The visible range is kept if the chart still has the same curves.
  update() {
    const curves = curvesOf(this.metric);
    const isSame = () => this.plot && this.isLog === wasLog && JSON.stringify(curves.map((curve) => curve.label)) === JSON.stringify(labels);
    const labels = this.curves?.map((curve) => curve.label);
    this.curves = curves;
    const values = curves.flatMap((curve) => curve.values.filter((value) => value !== null));
    this.logButton.hidden = isFraction(this.metric) || !values.some((value) => value > 0);
    const wasLog = this.isLog;
    if (!this.isChosen && !this.logButton.hidden && !DIAGNOSTICS.has(this.metric)) {
      const ordered = values.toSorted((one, other) => one - other);
      this.isLog = ordered[0] > 0 && ordered.at(-1) > SPIKE * ordered[Math.floor(ordered.length / 2)];
      this.logButton.setAttribute("aria-pressed", String(this.isLog));
    }
    const last = curves.map((curve) => `${curve.label || labelOf(this.metric)} ${this.format(curve.values.at(-1))}`).join("; ");
    this.plotBox.setAttribute("aria-label", `Chart of ${labelOf(this.metric)}. Latest values: ${last}. The arrow keys move along it.`);
    if (isSame()) {
      const { min, max } = this.plot.scales.x;
      const [xs] = this.plot.data;
      const isZoomed = xs.length > 0 && (min > xs[0] || max < xs.at(-1));
      this.plot.batch(() => {
        this.plot.setData(this.table(), !isZoomed);
        if (isZoomed) this.plot.setScale("x", { min, max });
      });
    } else {
      this.draw();
    }
  }

  xsOf(curve) {
    return byId("axis").value === "epoch" && curve.run.steps_per_epoch > 0 ? curve.steps.map((step) => step / curve.run.steps_per_epoch) : curve.steps;
  }

  // uPlot's columns: all x, then for each curve the measured and the smoothed values.
  table() {
    const weight = Number(byId("smoothing").value);
    const positive = (value) => (this.isLog && value !== null && value <= 0 ? null : value);
    const tables = this.curves.map((curve) => {
      const values = curve.values.map(positive);
      const isSmooth = curve.kind === "train" && weight > 0;
      return [this.xsOf(curve), isSmooth ? values : values.map(() => null), isSmooth ? smoothed(values, weight) : values];
    });
    const joined = uPlot.join(tables);
    this.latest = joined.map((column) => column.findLast((value) => value !== null && value !== undefined));
    return joined;
  }

  // The value at this position, or the latest one before it, because validations have fewer points than training.
  valueAt(plot, column, index) {
    if (index === null || index === undefined) return this.latest[column];
    for (let i = index; i >= 0; --i) {
      const value = plot.data[column][i];
      if (value !== null && value !== undefined) return value;
    }
    return null;
  }

  series() {
    const list = [{
      label: byId("axis").value,
      value: (plot, value, column, index) => {
        const x = index === null || index === undefined ? this.latest[0] : value;
        return byId("axis").value === "epoch" ? (x ?? 0).toFixed(2) : formatNumber(x);
      },
    }];
    const isOne = data.runs.length === 1;
    for (const curve of this.curves) {
      const colour = () => colourOf(isOne ? ["train", "validation", "ema"].indexOf(curve.kind) : curve.index);
      const isTrain = curve.kind === "train";
      const dash = { train: undefined, validation: [7, 4], ema: [2, 3] }[curve.kind];
      const common = { spanGaps: true, stroke: colour, value: (plot, value, column, index) => this.format(this.valueAt(plot, column, index)) };
      list.push({ ...common, label: "measured", width: 1, alpha: 0.28, points: { show: false } });
      list.push({
        ...common, dash, label: curve.label || labelOf(this.metric), width: isTrain ? 1.6 : 2,
        points: { show: !isTrain && curve.values.length <= 40, size: 6, fill: colour },
      });
    }
    return list;
  }

  draw() {
    this.plot?.destroy();
    const axis = () => ({ stroke: () => variable("--muted"), grid: { stroke: () => variable("--grid"), width: 1 },
                          ticks: { stroke: () => variable("--line"), width: 1, size: 4 }, font: "12px system-ui, sans-serif" });
    const isBytes = this.metric.endsWith("_bytes");
    const axisValue = isFraction(this.metric) ? (value) => `${Number((100 * value).toPrecision(4))}%` : this.format;
    // Without this function, uPlot would extend a logarithmic axis to whole decades.
    const logRange = (plot, min, max) => (min > 0 && max > 0 ? [min * 0.9, max * 1.1] : [0.1, 1]);
    this.plot = new uPlot({
      width: this.plotBox.clientWidth || 300, height: 200,
      cursor: { sync: { key: "curves", setSeries: false }, drag: { x: true, y: false }, points: { size: 7 } },
      scales: { x: { time: false }, y: this.isLog ? { distr: 3, range: logRange } : {} },
      axes: [{ ...axis(), size: 28, values: (plot, values) => values.map((value) => (value === null ? "" : formatNumber(value))) },
             { ...axis(), size: isBytes ? 78 : 62, incrs: isBytes ? POWERS_OF_TWO : undefined, ...(this.isLog ? { splits: logSplits, filter: (plot, splits) => splits } : {}),
               values: (plot, values) => values.map((value) => (value === null ? "" : axisValue(value))) }],
      legend: { markers: { width: 0 } },
      series: this.series(),
      hooks: { init: [(plot) => this.arrangeLegend(plot)], setSeries: [(plot, column, options) => this.hideBoth(plot, column, options)] },
    }, this.table(), this.plotBox);
  }

  // Hides the legend's rows of the measured values; the remaining row of each curve hides and shows both its columns, also by keyboard.
  arrangeLegend(plot) {
    plot.root.querySelectorAll(".u-series").forEach((row, column) => {
      if (column === 0) return;
      if (column % 2 === 1) {
        row.style.display = "none";
        return;
      }
      const curve = this.curves[column / 2 - 1];
      const name = row.querySelector("th");
      const marker = row.querySelector(".u-marker");
      marker.style.borderTop = `3px ${{ train: "solid", validation: "dashed", ema: "dotted" }[curve.kind]} ${plot.series[column].stroke(plot, column)}`;
      name.setAttribute("tabindex", "0");
      name.setAttribute("title", curve.label);
      name.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        plot.setSeries(column, { show: !plot.series[column].show });
      });
    });
  }

  hideBoth(plot, column, options) {
    if (column === null || column === 0 || column % 2 === 1 || options.show === undefined || options.show === null) return;
    if (plot.series[column - 1].show !== options.show) plot.setSeries(column - 1, { show: options.show });
  }

  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const xs = this.plot.data[0];
    if (!step || event.target !== this.plotBox || xs.length === 0) return;
    event.preventDefault();
    const now = this.plot.cursor.idx ?? (step > 0 ? -1 : xs.length);
    const index = Math.min(xs.length - 1, Math.max(0, now + step));
    this.plot.setCursor({ left: this.plot.valToPos(xs[index], "x"), top: this.plot.over.clientHeight / 2 });
  }
}

let charts = [];
function showCurves() {
  const names = metricNames();
  if (JSON.stringify(names) !== JSON.stringify(charts.map((chart) => chart.metric))) {
    charts = names.map((name) => new Chart(name));
    const [diagnostics, results] = [true, false].map((is) => charts.filter((chart) => DIAGNOSTICS.has(chart.metric) === is));
    byId("charts").replaceChildren(...results.map((chart) => chart.node));
    byId("diagnostics").hidden = diagnostics.length === 0;
    byId("diagnostics").querySelector("div").replaceChildren(...diagnostics.map((chart) => chart.node));
  }
  for (const chart of charts) chart.update();
  if (names.length === 0) byId("charts").replaceChildren(element("p", { class: "muted" }, "No measurements yet."));
  if (byId("epochs").open) showEpochs();
}

function showEpochs() {
  const tables = data.runs.map((run) => {
    const names = Object.keys(run.validation).filter((name) => name !== "seconds");
    const steps = names.length > 0 ? run.validation[names[0]].steps : [];
    const rows = steps.map((step, at) => [
      run.steps_per_epoch > 0 ? formatNumber(step / run.steps_per_epoch) : "–", step.toLocaleString("en"),
      ...names.map((name) => formatterOf(name)(run.validation[name].values[run.validation[name].steps.indexOf(step)])),
    ]);
    return dataTable(run.name, ["Epochs", "Steps", ...names.map(labelOf)], rows, { numbersFrom: 0 });
  });
  byId("epochs").querySelector("div").replaceChildren(...tables);
}
