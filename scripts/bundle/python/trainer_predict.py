"""Predictions with networks trained by trainer: the functions of libtrainer_predict (include/trainer/predict.h), called by ctypes.

    with trainer_predict.Predictor("runs/my_run") as predictor:
        probabilities = predictor.predict("image.jpg")
        print(predictor.classes[predictor.decide(probabilities)])
"""

import ctypes
import os

import trainer

ONE_CLASS, ANY_CLASSES, NUMBERS = range(3)
_library = None


class PredictError(RuntimeError):
    pass


def library(gpu=True):
    """libtrainer_predict.so as a ctypes.CDLL, loaded with the LibTorch of the package torch, which is not imported. `gpu` matters only in
    the first call: whether LibTorch's CUDA libraries are loaded too, if this machine has NVIDIA's driver."""
    global _library
    if _library is None:
        names = ["libc10.so", "libtorch_cpu.so"]
        if gpu:
            try:
                ctypes.CDLL("libcuda.so.1")
                names += ["libc10_cuda.so", "libtorch_cuda.so"]
            except OSError:
                pass
        # The next library finds these by their names.
        for name in names:
            path = os.path.join(trainer.torch_folder(), "lib", name)
            if os.path.exists(path):
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        loaded = ctypes.CDLL(str(next((trainer.PROGRAM / "lib").glob("libtrainer_predict.so.*"))))
        loaded.trainer_predict_open.restype = ctypes.c_void_p
        for name in ("num_classes", "num_features", "decide"):
            getattr(loaded, "trainer_predict_" + name).restype = ctypes.c_int64
        loaded.trainer_predict_threshold.restype = ctypes.c_double
        loaded.trainer_predict_class_name.restype = ctypes.c_char_p
        _library = loaded
    return _library


class Predictor:
    """The network of a checkpoint, or of the best one of a run directory. `device`: "cpu", "cuda", or None for that of the experiment.
    `averaged`: the averaged parameters of a run with training.ema. Raises PredictError."""

    def __init__(self, checkpoint, device=None, averaged=False):
        self._library = library(gpu=device != "cpu")
        self._error = ctypes.create_string_buffer(4000)
        self._opened = None
        opened = self._library.trainer_predict_open(os.fsencode(checkpoint), device.encode() if device else None, int(averaged), self._error,
                                                    ctypes.c_size_t(len(self._error)))
        if not opened:
            raise PredictError(self._error.value.decode())
        self._opened = ctypes.c_void_p(opened)
        labels = range(self._library.trainer_predict_num_classes(self._opened))
        self.kind = self._library.trainer_predict_kind(self._opened)
        self.classes = [self._library.trainer_predict_class_name(self._opened, ctypes.c_int64(label)).decode() for label in labels]
        self.thresholds = [self._library.trainer_predict_threshold(self._opened, ctypes.c_int64(label)) for label in labels]
        self.num_features = self._library.trainer_predict_num_features(self._opened)
        height, width = ctypes.c_int32(), ctypes.c_int32()
        self._library.trainer_predict_input_size(self._opened, ctypes.byref(height), ctypes.byref(width))
        self.input_size = height.value, width.value

    def predict(self, image, features=False):
        """The probabilities of all classes for an image file, given by its path or, as bytes, by its content; with `features` a pair of the
        probabilities and the inputs of the network's last layer. For a regression the numbers instead of probabilities."""
        probabilities = (ctypes.c_double * len(self.classes))()
        inputs = (ctypes.c_float * self.num_features)() if features else None
        results = (probabilities, inputs, self._error, ctypes.c_size_t(len(self._error)))
        if isinstance(image, bytes):
            failed = self._library.trainer_predict_encoded(self._opened, image, ctypes.c_size_t(len(image)), *results)
        else:
            failed = self._library.trainer_predict_file(self._opened, os.fsencode(image), *results)
        if failed:
            raise PredictError(self._error.value.decode())
        return (list(probabilities), list(inputs)) if features else list(probabilities)

    def heatmap(self, image, label):
        """How much each pixel of the network's input raises the score of a class, from 0 to 1: rows as in `input_size`. `image` as in
        predict()."""
        if not isinstance(image, bytes):
            with open(image, "rb") as file:
                image = file.read()
        height, width = self.input_size
        values = (ctypes.c_float * (height * width))()
        if self._library.trainer_predict_heatmap_encoded(self._opened, image, ctypes.c_size_t(len(image)), ctypes.c_int64(label), values, self._error,
                                                         ctypes.c_size_t(len(self._error))):
            raise PredictError(self._error.value.decode())
        return [values[row * width:(row + 1) * width] for row in range(height)]

    def decide(self, probabilities):
        """The label chosen by the checkpoint's operating point, or -1 if the image is rejected; only for exclusive classes."""
        return self._library.trainer_predict_decide(self._opened, (ctypes.c_double * len(self.classes))(*probabilities))

    def close(self):
        self._library.trainer_predict_close(self._opened)
        self._opened = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
