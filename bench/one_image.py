#!/usr/bin/env python3
"""Times the prediction of one image of 224 x 224 pixels in memory by libtrainer_predict, from its bytes on, and by ONNX Runtime, from a
tensor on, in turns, each in a process of its own with two threads. Prints milliseconds and their ratio. Needs the packages of exported.py."""

import argparse
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "2"
import numpy  # noqa: E402: it must find the number of threads

NETWORKS = ["resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0"]
SECONDS = 1.2


class Image(ctypes.Structure):
    _fields_ = [("pixels", ctypes.c_char_p), ("height", ctypes.c_int32), ("width", ctypes.c_int32), ("stride", ctypes.c_int64), ("order", ctypes.c_int32)]


def milliseconds(predict):
    for _ in range(10):
        predict()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        predict()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def with_onnxruntime(file):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(file, options)
    tensor = numpy.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(numpy.float32)
    return lambda: session.run(None, {"images": tensor})


def with_library(path, checkpoint):
    library = ctypes.CDLL(path)
    library.trainer_predict_open.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(library.trainer_predict_open(checkpoint.encode(), b"cpu", 0, None, ctypes.c_size_t(0)))
    pixels = numpy.random.default_rng(1).integers(0, 256, (224, 224, 3), dtype=numpy.uint8).tobytes()
    images, probabilities = (Image * 1)(Image(pixels, 224, 224, 0, 0)), (ctypes.c_double * 1000)()

    def predict():
        if library.trainer_predict_images(handle, images, ctypes.c_size_t(1), probabilities, None, None, ctypes.c_size_t(0)) != 0:
            sys.exit("trainer_predict_images() failed")

    return predict


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--one":
        print(milliseconds(with_library(*sys.argv[2:]) if len(sys.argv) > 3 else with_onnxruntime(sys.argv[2])))
        return
    from exported import make_checkpoint, make_images
    from harness import ROOT
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, nargs="+", default=[ROOT / "build" / "release" / "bin"], help="folders of our programs")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="one-image-") as name:
        folder = pathlib.Path(name)
        files = make_images(folder)
        for network in options.networks:
            checkpoint, exported = make_checkpoint(network, folder, files, resizes=False), folder / f"{network}.onnx"
            subprocess.run([options.bin[0] / "trainer", "export", "--checkpoint", checkpoint, "--output", exported, "--input", "tensor"], check=True, capture_output=True)
            contenders = {"ONNX Runtime": [exported]} | {str(programs): [programs / "libtrainer_predict.so", checkpoint] for programs in options.bin}
            times = {contender: [] for contender in contenders}
            for _ in range(options.rounds):
                for contender, args in contenders.items():
                    run = subprocess.run([sys.executable, __file__, "--one", *map(str, args)], check=True, capture_output=True, text=True)
                    times[contender].append(float(run.stdout))
            medians = {contender: statistics.median(values) for contender, values in times.items()}
            for contender, median in medians.items():
                print(f"{network}, {contender}: {median:.2f} ms, {median / medians['ONNX Runtime']:.2f} of ONNX Runtime's", flush=True)


if __name__ == "__main__":
    main()
