"""The protocol of the processes, C++ programs included, that bench.py and gpu.py measure, except for the time to the first step. A process
prints a line "ready" with a JSON object of its settings, then answers each line "go N" on stdin with a JSON object that contains the
seconds of N steps: {"seconds": s}. It exits at the end of the input."""

import json
import sys
import time


def serve(settings, run):
    """`run(n)` runs n steps and returns when all results are computed; if it returns a dictionary, it is added to the answer."""
    run(1)  # warm-up of every kernel
    print("ready", json.dumps(settings), flush=True)
    for line in sys.stdin:
        command, count = line.split()
        if command != "go":
            raise SystemExit(f"unknown command {line!r}")
        start = time.perf_counter()
        more = run(int(count)) or {}
        print(json.dumps({**more, "seconds": time.perf_counter() - start}), flush=True)
