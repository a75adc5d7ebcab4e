#!/usr/bin/env python3
"""Prints the speeds in reports of bench.py as tables for docs/results.md."""

import argparse
import json
import re

HEADER = ["images/s", "type", "`runtime.convolution`", "ours", "MB", "best Python", "MB", "ratio", "plain Python", "ratio"]
BATCHES_HEADER = ["network", "batch size", "ours", "best Python", "ratio"]


def ratio(contender):
    return "{median:.2f} ({min:.2f}–{max:.2f})".format(**contender["ratio"])


def speed(contender):
    return f"{contender['median']:,.{0 if contender['median'] >= 30 else 1}f}"


def cells(title, dtype, contenders):
    what, _, rest = title.partition(": ")
    case, _, convolution = rest.partition(", convolution ")
    ours, best, plain = (contenders.get(name) for name in ("ours", "best Python", "plain Python"))
    row = [f"{what}, {case.replace(' x ', ' × ')}", dtype, f"`{convolution or 'auto'}`"]
    for contender in (ours, best):
        row += [speed(contender), f"{contender['memory_mb']:,.0f}"]
    return [*row, ratio(best), *([speed(plain), ratio(plain)] if plain else ["", ""])]


def batch_cells(title, contenders):
    size, network = re.fullmatch(r"training step, batch size (\d+): (\w+)", title).groups()
    return [network, size, speed(contenders["ours"]), speed(contenders["best Python"]), ratio(contenders["best Python"])]


def print_table(header, rows):
    for row in [header, ["---"] * len(header), *rows] if rows else []:
        print(f"| {' | '.join(row)} |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", help="build/bench/*.json")
    rows, batches = [], []
    for path in parser.parse_args().reports:
        report = json.load(open(path))
        for title, result in report["results"].items():
            contenders = {contender["name"]: contender for contender in result["contenders"]}
            if not {"ours", "best Python"} <= contenders.keys() or result["unit"] != "images/s":
                continue
            if "batch size" in title:
                batches.append(batch_cells(title, contenders))
            else:
                rows.append(cells(title, report["dtype"], contenders))
    print_table(HEADER, rows)
    print_table(BATCHES_HEADER, batches)


if __name__ == "__main__":
    main()
