#!/usr/bin/env python3
"""Classifies image files with nothing but Python's standard library: predict.py LIBRARY CHECKPOINT IMAGE..., where LIBRARY is libtrainer_predict.so."""

import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
library.trainer_predict_open.restype = ctypes.c_void_p
library.trainer_predict_num_classes.restype = ctypes.c_int64
library.trainer_predict_class_name.restype = ctypes.c_char_p
error = ctypes.create_string_buffer(1000)

opened = library.trainer_predict_open(sys.argv[2].encode(), None, 0, error, ctypes.c_size_t(len(error)))
if not opened:
    sys.exit(error.value.decode())
predictor = ctypes.c_void_p(opened)
num_classes = library.trainer_predict_num_classes(predictor)
probabilities = (ctypes.c_double * num_classes)()
for path in sys.argv[3:]:
    if library.trainer_predict_file(predictor, path.encode(), probabilities, None, error, ctypes.c_size_t(len(error))) != 0:
        sys.exit(error.value.decode())
    best = max(range(num_classes), key=probabilities.__getitem__)
    name = library.trainer_predict_class_name(predictor, ctypes.c_int64(best)).decode()
    print(f"{path}  {name}  {probabilities[best]!r}")
library.trainer_predict_close(predictor)
