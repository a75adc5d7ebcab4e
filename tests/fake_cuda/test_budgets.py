"""What one training step requires of the GPU and of the host after the first steps, as recorded in budgets.json. Such numbers must not
change unintentionally; `TRAINER_BINARY=... python3 test_budgets.py --write`, with the environment of the test, records them again."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from fake_gpu_case import SMALL, FakeGpuCase

TABLE = pathlib.Path(__file__).with_name("budgets.json")
# The measured steps. In the first ten steps, c10d's reducer measures the duration of its parts.
FIRST, LAST = 12, 16
RUN = [*SMALL, "dataset.num_train=800", "training={epochs: null}", "validation.every_epochs=null", "logging.every_steps=1000"]
FLOAT32, FLOAT16 = "amp.enabled=false", "amp={enabled: true, dtype: float16, init_scale: 1024.0}"
GRAPH, FUSED = "runtime.cuda_graph=on", "runtime.fuse=on"
RESNET18 = "model={name: resnet18, stem: cifar}"
# By name: the number of ranks and the overrides. The default is ResNet-20 with SGD under bfloat16 autocast.
ROWS = {
    "resnet20 sgd bfloat16": (1, []),
    "resnet20 sgd float32": (1, [FLOAT32]),
    "resnet20 sgd float16": (1, [FLOAT16]),
    "resnet20 sgd bfloat16, deterministic": (1, ["runtime.deterministic=true"]),
    "resnet20 sgd bfloat16, averages": (1, ["training.ema={decay: 0.9}"]),
    "resnet20 sgd bfloat16, a checkpoint a step": (1, ["checkpoint.every_steps=1"]),
    "resnet18 sgd bfloat16": (1, [RESNET18]),
    **{f"resnet18 {name} bfloat16": (1, [RESNET18, f"optimizer={{name: {name}}}"]) for name in ("adamw", "rmsprop", "muon", "sam")},
    "resnet18 sgd bfloat16, a graph": (1, [RESNET18, GRAPH]),
    "resnet18 sgd bfloat16, fused normalisation": (1, [RESNET18, FUSED]),
    "efficientnet_b0 sgd bfloat16, fused normalisation": (1, ["model={name: efficientnet_b0}", FUSED]),
    "vit_b_16 adamw bfloat16": (1, ["model={name: vit_b_16, image_size: 32}", "optimizer={name: adamw}"]),
    "resnet18 adamw float16, a graph": (1, [RESNET18, GRAPH, "optimizer={name: adamw}", FLOAT16]),
    "resnet20 sgd bfloat16, 2 ranks": (2, []),
    "resnet20 sgd bfloat16, 2 ranks, statistics of each rank": (2, ["distributed.sync_batch_norm=false"]),
    "resnet20 sgd bfloat16, 2 ranks, fused normalisation": (2, [FUSED]),
    "resnet20 sgd float16, 2 ranks": (2, [FLOAT16]),
}


def libtorch():
    """Its minor version."""
    version = subprocess.run([os.environ["TRAINER_BINARY"], "--version"], check=True, capture_output=True, text=True).stdout
    return re.search(r"^LibTorch (\d+\.\d+)", version, re.MULTILINE)[1]


# With several ranks, these counts depend on when NCCL's thread checks its events.
DEPENDS_ON_THREADS = ("host waits", "events created")


def summary(counts):
    """The counts that have budgets."""
    def total(*prefixes):
        return sum(count for name, count in counts.items() if name.startswith(prefixes))

    return {"kernels": total("kernel"), "copies": total("copies"), "host waits": total("host waits"),
            "collectives": total("ncclAllReduce", "ncclAllGather", "ncclBroadcast", "ncclBcast"), "events recorded": total("cudaEventRecord"),
            "events created": total("cudaEventCreate"), "waits of streams": total("cudaStreamWaitEvent"), "graphs": total("cudaGraphLaunch"), "fills": total("cudaMemset"),
            "allocations": total("cudaMalloc")}


class BudgetsTest(FakeGpuCase):
    def measure(self, num_ranks, overrides):
        """The counts of the last rank per step."""
        first, last = (summary(self.count(*RUN, *overrides, f"training.steps={steps}", num_ranks=num_ranks)[-1]["counts"])
                       for steps in (FIRST, LAST))
        left_out = DEPENDS_ON_THREADS if num_ranks > 1 else ()
        return {name: (count - first[name]) / (LAST - FIRST) for name, count in last.items() if count != first[name] and name not in left_out}

    def test_budgets(self):
        table = json.loads(TABLE.read_text())
        if table.pop("libtorch") != libtorch():
            self.skipTest("another LibTorch launches other kernels than the one of budgets.json")
        self.assertEqual(list(table), list(ROWS))
        for name, row in ROWS.items():
            with self.subTest(name):
                self.assertEqual(self.measure(*row), table[name])


def write():
    case = BudgetsTest()
    case.setUp()
    rows = {"libtorch": libtorch()} | {name: case.measure(*row) for name, row in ROWS.items()}
    case.doCleanups()
    TABLE.write_text("{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        unittest.main(verbosity=2)
