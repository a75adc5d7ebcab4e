#!/usr/bin/env python3
"""Classifies image files with a network of `trainer export --output network.onnx`, as `trainer predict` does:

    pip install onnxruntime pillow
    predict_onnx.py network.onnx photo.jpg ...
"""

import json
import sys

import numpy
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
channels = session.get_inputs()[0].shape[3]
metadata = session.get_modelmeta().custom_metadata_map
names = json.loads(metadata.get("class_names", "[]"))
is_turned_upright = json.loads(metadata["trainer"])["image_files"]["is_turned_upright"]
for path in sys.argv[2:]:
    image = Image.open(path)
    if image.mode[0] in "IF":
        sys.exit(f"{path}: it has more than 8 bits per channel; convert it as the images of the training were")
    if is_turned_upright:
        image = ImageOps.exif_transpose(image)
    pixels = numpy.asarray(image.convert("L" if channels == 1 else "RGB"))
    image = pixels.reshape(1, *pixels.shape[:2], channels)
    probabilities, = session.run(["probabilities"], {"image": image})
    for label in probabilities[0].argsort()[::-1][:5]:
        print(f"{path}  {names[label] if names else label}  {100 * probabilities[0][label]:.2f}%")
