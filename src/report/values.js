// Shared by the other scripts of the report: its data, elements, numbers and tables. Text of runs is only written to text nodes and
// attributes, never as markup.
"use strict";

const LABELS = {
  loss: "Loss", top1: "Top-1 accuracy", top5: "Top-5 accuracy", macro_f1: "Macro F1", balanced_accuracy: "Balanced accuracy", mcc: "Matthews correlation", calibration_error: "Calibration error",
  lr: "Learning rate", images_per_second: "Images per second", data_wait: "Time spent waiting for data", queue_depth: "Batches ready",
  memory_bytes: "Memory", grad_scale: "Gradient scale", skipped_steps: "Skipped steps", grad_norm: "Gradient norm",
};
// Values shown as percentages, in addition to the metrics that the runs declare as such.
const FRACTIONS = new Set(["macro_f1", "data_wait", "calibration_error", "recall", "precision", "f1", "confidence", "accuracy"]);
const NUM_COLOURS = 8;

let data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// element("p", {class: "muted"}, "text", child, ...)
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return String(Number(value.toPrecision(4)));
}
const formatPercent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(2)}%`);
function formatBytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; ++unit) value /= 1024;
  return `${value.toFixed(unit === 0 ? 0 : 1)} ${units[unit]}`;
}
const bareName = (name) => name.replace(/^ema_/, "");
const isFraction = (name) => FRACTIONS.has(bareName(name)) || data.percentages.includes(bareName(name));
function formatterOf(name) {
  const bare = bareName(name);
  if (isFraction(name)) return formatPercent;
  return bare.endsWith("_bytes") ? (value) => (value === null || value === undefined ? "–" : formatBytes(value)) : formatNumber;
}
function formatDuration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, "0")}s`;
  return `${Math.floor(whole / 3600)}h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
}
// "2026-11-24 17:28", in the reader's time zone.
const formatTime = (unixSeconds) => (unixSeconds ? new Date(1000 * unixSeconds).toLocaleString("sv", { dateStyle: "short", timeStyle: "short" }) : "–");
const labelOf = (name) => LABELS[name] ?? name.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase());
const colourOf = (index) => getComputedStyle(document.documentElement).getPropertyValue(`--run-${index % NUM_COLOURS}`).trim();
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Columns from `numbersFrom` on are numbers. The first column is the header of its row.
function dataTable(caption, titles, rows, { numbersFrom = titles.length, tableClass = "", rowClass = () => null } = {}) {
  const isNumber = (column) => (column >= numbersFrom ? "number" : null);
  const head = element("tr", {}, ...titles.map((title, column) => element("th", { scope: "col", class: isNumber(column) }, title)));
  const body = rows.map((cells, row) => element("tr", { class: rowClass(row) }, ...cells.map((cell, column) => element(
    column === 0 ? "th" : "td", { scope: column === 0 ? "row" : null, class: isNumber(column) }, cell))));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, element(
    "table", { class: `data ${tableClass}` }, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body)));
}

// A table that can be sorted by clicking on its titles. Columns: {title, key: row -> number or text, cell: row -> node or text, isNumber}.
// The state has `sorted`: {column, direction}, or null for the original order, and `limit`: how many rows are shown. `draw` draws the table
// again and returns its box.
function sortableTable(caption, columns, rows, state, draw) {
  const shown = [...rows];
  if (state.sorted) {
    const { column, direction } = state.sorted;
    const keyOf = columns[column].key;
    shown.sort((one, other) => {
      const keys = [keyOf(one) ?? null, keyOf(other) ?? null];
      if (keys.includes(null)) return (keys[0] === null) - (keys[1] === null);
      return direction * (keys.every((key) => typeof key === "number") ? keys[0] - keys[1] : String(keys[0]).localeCompare(String(keys[1]), "en", { numeric: true }));
    });
  }
  const heads = columns.map(({ title }, column) => {
    const mark = state.sorted?.column === column ? (state.sorted.direction > 0 ? " ↑" : " ↓") : "";
    const button = element("button", { type: "button" }, title + mark);
    button.addEventListener("click", () => {
      state.sorted = { column, direction: state.sorted?.column === column ? -state.sorted.direction : 1 };
      draw().querySelectorAll("thead button")[column].focus();
    });
    return button;
  });
  return dataTable(caption, heads, shown.slice(0, state.limit).map((row) => columns.map((column) => column.cell(row))),
                   { numbersFrom: columns.findIndex((column) => column.isNumber) });
}
