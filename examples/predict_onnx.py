#!/usr/bin/env python3
"""Classifies image files with a network of `trainer export --output network.onnx`, as `trainer predict` does:

    pip install onnxruntime pillow
    predict_onnx.py network.onnx photo.jpg ...
"""

import json
import sys

import numpy
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1])
channels = session.get_inputs()[0].shape[3]
names = json.loads(session.get_modelmeta().custom_metadata_map.get("class_names", "[]"))
for path in sys.argv[2:]:
    pixels = numpy.asarray(Image.open(path).convert("L" if channels == 1 else "RGB"))
    image = pixels.reshape(1, *pixels.shape[:2], channels)
    probabilities, = session.run(["probabilities"], {"image": image})
    for label in probabilities[0].argsort()[::-1][:5]:
        print(f"{path}  {names[label] if names else label}  {100 * probabilities[0][label]:.2f}%")
