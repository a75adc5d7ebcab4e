#!/usr/bin/env python3
"""Draws the plots of docs/performance.md from the tables of docs/results.md, so that both show the same figures.
Needs matplotlib: .deps/venv/bin/python -m pip install matplotlib"""

import pathlib
import re

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results.md"
IMAGES = ROOT / "docs" / "images"
COLOURS = {"winograd2": "#4c78a8", "winograd4": "#f58518", "ours": "#4c78a8", "best Python": "#9a9a9a"}


def table(header):
    """The rows of the first table whose header begins with these columns."""
    lines = iter(RESULTS.read_text().splitlines())
    start = "| " + " | ".join(header) + " |"
    if not any(line.startswith(start) for line in lines):
        raise SystemExit(f"{RESULTS} has no table that begins with {start}")
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def number(cell):
    return float(re.match(r"[\d.,]+", cell)[0].replace(",", ""))


def save(figure, name):
    figure.tight_layout()
    # No date and no random names, so that equal figures give equal files.
    figure.savefig(IMAGES / name, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    print(IMAGES / name)


def draw_layers():
    """Forward and both gradients together, for each layer relative to the direct algorithm."""
    rows = table(["network", "images × channels × size", "AVX2: winograd2"])
    figure, all_axes = plt.subplots(2, 1, figsize=(8, 6), sharex=True, sharey=True)
    for axes, title, first in zip(all_axes, ("AVX2", "AVX-512"), (2, 4)):
        for i, name in enumerate(("winograd2", "winograd4")):
            axes.bar([x + (i - 0.5) * 0.4 for x in range(len(rows))], [number(row[first + i]) for row in rows], 0.38, label=name, color=COLOURS[name])
        axes.axhline(1, color="#333333", linewidth=0.8)
        axes.set_ylabel(f"{title}: speed relative to direct")
    all_axes[1].set_xticks(range(len(rows)), [f"{row[0]}\n{row[1]}" for row in rows], rotation=60, ha="right", fontsize=7)
    all_axes[0].legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    save(figure, "convolution_layers.svg")


def draw_batches():
    rows = table(["network", "batch size", "ours", "best Python"])
    networks = list(dict.fromkeys(row[0] for row in rows))
    figure, all_axes = plt.subplots(1, len(networks), figsize=(8, 3.2), squeeze=False)
    for network, axes in zip(networks, all_axes[0]):
        mine = [row for row in rows if row[0] == network]
        for column, name in ((2, "ours"), (3, "best Python")):
            axes.plot([number(row[1]) for row in mine], [number(row[column]) for row in mine], "o-", label=name, color=COLOURS[name])
        axes.set_xscale("log", base=2)
        axes.set_xticks([number(row[1]) for row in mine], [row[1] for row in mine])
        axes.set_ylim(bottom=0)
        axes.set_title(network, fontsize=9)
        axes.set_xlabel("batch size")
    all_axes[0][0].set_ylabel("images/s")
    all_axes[0][0].legend()
    save(figure, "batch_sizes.svg")


def draw_peers():
    rows = [(f"{row[0]}, float32", row[5]) for row in table(["images/s", "ours"])]
    rows += [(f"{row[0]}, bfloat16, {row[1]}", row[6]) for row in table(["images/s", "processor", "ours"])]
    figure, axes = plt.subplots(figsize=(8, 0.4 + 0.3 * len(rows)))
    ratios = [re.match(r"([\d.]+) \(([\d.]+)–([\d.]+)\)", ratio) for _, ratio in rows]
    values = [float(ratio[1]) for ratio in ratios]
    spread = [[value - float(ratio[2]) for value, ratio in zip(values, ratios)], [float(ratio[3]) - value for value, ratio in zip(values, ratios)]]
    axes.barh(range(len(rows)), values, xerr=spread, color=COLOURS["ours"], ecolor="#333333", height=0.6)
    axes.axvline(1, color="#333333", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("our speed relative to the best Python (median, extremes)")
    save(figure, "peers.svg")


def main():
    plt.rcParams.update({"svg.hashsalt": "trainer", "svg.fonttype": "none", "font.size": 9})
    IMAGES.mkdir(exist_ok=True)
    draw_layers()
    draw_batches()
    draw_peers()


if __name__ == "__main__":
    main()
