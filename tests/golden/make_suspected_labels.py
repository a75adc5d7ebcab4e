#!/usr/bin/env python3
"""Writes suspected_labels.json: probabilities and labels, and which of the labels cleanlab takes for wrong. Needs numpy and cleanlab
(`pip install cleanlab==2.9.0`)."""
import json
import pathlib

import numpy as np
from cleanlab.filter import find_label_issues

NUM_SAMPLES, NUM_CLASSES, MISSING_CLASS = 200, 5, 3

random = np.random.default_rng(1)
truth = random.integers(0, NUM_CLASSES - 1, NUM_SAMPLES)
truth[truth == MISSING_CLASS] = NUM_CLASSES - 1
labels = np.where(random.random(NUM_SAMPLES) < 0.1, random.permutation(truth), truth)
logits = random.normal(size=(NUM_SAMPLES, NUM_CLASSES)) + 1.5 * np.eye(NUM_CLASSES)[truth]
logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
probabilities = np.round(np.exp(logits), 5)
suspected = find_label_issues(labels, probabilities, filter_by="confident_learning", return_indices_ranked_by="self_confidence")

path = pathlib.Path(__file__).with_name("suspected_labels.json")
path.write_text(json.dumps({"probabilities": probabilities.tolist(), "labels": labels.tolist(), "suspected": suspected.tolist()}) + "\n")
