"""Writes class_metrics.json: metrics of random outputs of networks by torchmetrics, which the program has to reproduce.

The outputs of a case are randn(samples, classes) * scale in float64, from a CPU generator with the case's seed; then the same generator
gives the labels, randint(0, labels, (samples,)); `boost` is added to the output of each sample's label, and the outputs are rounded to
`dtype`. With a large scale many probabilities are exactly 1. tests/unit/task/class_metrics_test.cpp makes the same outputs. Run from the
repository root:
    .deps/venv/bin/python tests/golden/make_class_metrics.py
"""

import json
import pathlib

import torch
import torchmetrics
from torchmetrics.functional import classification

CASES = [
    {"seed": 1, "samples": 1000, "classes": 10, "labels": 10, "scale": 1.5, "boost": 2.0, "dtype": "float64"},
    {"seed": 2, "samples": 1000, "classes": 10, "labels": 10, "scale": 1.5, "boost": 2.0, "dtype": "float32"},
    {"seed": 3, "samples": 600, "classes": 5, "labels": 5, "scale": 40.0, "boost": 60.0, "dtype": "float64"},
    {"seed": 4, "samples": 600, "classes": 5, "labels": 5, "scale": 40.0, "boost": 60.0, "dtype": "float32"},
    # Most classes neither occur in the labels nor are predicted.
    {"seed": 5, "samples": 9, "classes": 30, "labels": 4, "scale": 1.0, "boost": 1.0, "dtype": "float32"},
]


def measure(case):
    generator = torch.Generator().manual_seed(case["seed"])
    outputs = torch.randn(case["samples"], case["classes"], generator=generator, dtype=torch.float64) * case["scale"]
    labels = torch.randint(0, case["labels"], (case["samples"],), generator=generator)
    outputs[torch.arange(case["samples"]), labels] += case["boost"]
    outputs = outputs.to(getattr(torch, case["dtype"]))
    count = case["classes"]
    return {
        "top1": classification.multiclass_accuracy(outputs, labels, count, average="micro").item(),
        "top5": classification.multiclass_accuracy(outputs, labels, count, average="micro", top_k=5).item(),
        "macro_f1": classification.multiclass_f1_score(outputs, labels, count, average="macro").item(),
        # Over the classes that occur in the labels.
        "balanced_accuracy": classification.multiclass_recall(outputs, labels, count, average=None)[labels.unique()].double().mean().item(),
        "mcc": classification.multiclass_matthews_corrcoef(outputs, labels, count).item(),
        "calibration_error": classification.multiclass_calibration_error(outputs, labels, count, n_bins=15, norm="l1").item(),
        "confusion": classification.multiclass_confusion_matrix(outputs, labels, count).flatten().tolist(),
    }


def main():
    cases = ",\n  ".join(json.dumps({**case, "expected": measure(case)}) for case in CASES)
    versions = {"torch": torch.__version__.split("+")[0], "torchmetrics": torchmetrics.__version__, "made_by": "make_class_metrics.py"}
    text = f'{{"versions": {json.dumps(versions)},\n "cases": [\n  {cases}]}}\n'
    pathlib.Path(__file__).with_name("class_metrics.json").write_text(text)


if __name__ == "__main__":
    main()
