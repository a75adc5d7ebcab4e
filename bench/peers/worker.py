"""What a process does that bench.py measures, in Python as in bench_step and bench_input: print one line "ready" with a JSON object of its
settings, then answer each line "go N" on stdin with the JSON object {"seconds": s}, the time that N steps took. End at end of input."""

import json
import sys
import time


def serve(settings, run):
    """`run(n)` does n steps and returns when all their results are there; a dictionary that it returns goes into the answer."""
    run(1)  # first use of every kernel
    print("ready", json.dumps(settings), flush=True)
    for line in sys.stdin:
        command, count = line.split()
        if command != "go":
            raise SystemExit(f"unknown command {line!r}")
        start = time.perf_counter()
        more = run(int(count)) or {}
        print(json.dumps({**more, "seconds": time.perf_counter() - start}), flush=True)
