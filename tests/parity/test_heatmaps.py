"""Heat maps equal Grad-CAM of the Python networks with the same weights, and those of pytorch-grad-cam 1.5.7 where it is installed.
TRAINER_BINARY is the program, with libtrainer_predict in its folder; TRAINER_OPENCV is 0 if it was built without OpenCV."""

import ctypes
import importlib.util
import io
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import timm
import torch
import torchvision
from PIL import Image
from torchvision.transforms import Compose, Normalize, ToTensor

BINARY = os.environ["TRAINER_BINARY"]
LIBRARY = pathlib.Path(BINARY).with_name("libtrainer_predict.so")
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NUM_CLASSES = 10


def side_by_side(tokens):
    """Patches of a square image as maps; without the token of the class."""
    side = round((tokens.shape[1] - 1) ** 0.5)
    return tokens[:, 1:].transpose(1, 2).unflatten(2, (side, side))


# Network of the program; its Python network; the module whose outputs are the maps; height and width of the images.
CASES = {
    "resnet18": (torchvision.models.resnet18, lambda network: network.layer4, (96, 130)),
    "mobilenet_v3_large": (torchvision.models.mobilenet_v3_large, lambda network: network.features, (224, 192)),
    "efficientnet_b0": (torchvision.models.efficientnet_b0, lambda network: network.features, (160, 160)),
    "convnext_tiny": (torchvision.models.convnext_tiny, lambda network: network.features, (128, 128)),
    "regnet_y_400mf": (torchvision.models.regnet_y_400mf, lambda network: network.trunk_output, (96, 96)),
    "squeezenet1_1": (torchvision.models.squeezenet1_1, lambda network: network.features, (127, 127)),
    "vgg11_bn": (torchvision.models.vgg11_bn, lambda network: network.features, (64, 96)),
    "vit_s_16": (lambda num_classes: timm.create_model("vit_small_patch16_224", num_classes=num_classes), lambda network: network.blocks[-2], (224, 224)),
}


def grad_cam(network, module, images, label):
    """Grad-CAM with the scaling of pytorch-grad-cam (BaseCAM.compute_cam_per_layer() and scale_cam_image()), but with LibTorch's resizing."""
    maps = []
    hook = module.register_forward_hook(lambda _module, _inputs, output: maps.append(output))
    score = network(images)[0, label]
    hook.remove()
    gradients, = torch.autograd.grad(score, maps[0])
    values = maps[0].detach()
    if values.dim() == 3:
        values, gradients = side_by_side(values), side_by_side(gradients)
    heat = (gradients.mean((2, 3), keepdim=True) * values).sum(1, keepdim=True).relu()
    for size in (None, images.shape[2:]):
        if size is not None:
            heat = torch.nn.functional.interpolate(heat, size, mode="bilinear", align_corners=False)
        heat = heat - heat.min()
        heat = heat / (1e-7 + heat.max())
    return heat[0, 0].numpy()


class TrainerImage(ctypes.Structure):
    _fields_ = [("pixels", ctypes.c_char_p), ("height", ctypes.c_int32), ("width", ctypes.c_int32), ("stride", ctypes.c_int64), ("order", ctypes.c_int32)]


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class HeatmapsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-heatmaps-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        torch.manual_seed(1)

    def save(self, name, network, shape):
        transforms = f"[resize: {{size: {list(shape)}}}, normalize: {{mean: {MEAN}, std: {STD}}}]"
        config = (f"experiment: heatmaps\nmodel: {{name: {name}, num_classes: {NUM_CLASSES}}}\ndataset: {{name: image_folder, root: nowhere, "
                  f"train_transforms: {transforms}, validation_transforms: {transforms}}}\ntraining: {{epochs: 1}}\nruntime: {{device: cpu, dtype: float64}}\n"
                  "amp: {enabled: false}\n")
        path = self.folder / f"{name}.pt"
        torch.save({"format_version": 1, "config": config, "model": network.state_dict(), "ema": None, "sample_shape": [3, -1, -1],
                    "image_files": {"mode": "rgb", "is_turned_upright": False, "channels": 0, "maximum": 0.0},
                    "class_names": [f"kind {i}" for i in range(NUM_CLASSES)]}, path)
        return path

    def heatmap(self, checkpoint, pixels, label):
        """The heat map of libtrainer_predict, or the text of its error."""
        library = ctypes.CDLL(str(LIBRARY))
        library.trainer_predict_open.restype = ctypes.c_void_p
        error = ctypes.create_string_buffer(1000)
        predictor = ctypes.c_void_p(library.trainer_predict_open(str(checkpoint).encode(), None, 0, error, ctypes.c_size_t(1000)))
        self.assertTrue(predictor, error.value)
        height, width = ctypes.c_int32(), ctypes.c_int32()
        library.trainer_predict_input_size(predictor, ctypes.byref(height), ctypes.byref(width))
        heat = numpy.full((height.value, width.value), -1, numpy.float32)
        image = TrainerImage(pixels.tobytes(), *pixels.shape[:2], 0, 0)
        failed = library.trainer_predict_heatmap(predictor, ctypes.byref(image), ctypes.c_int64(label), heat.ctypes.data_as(ctypes.c_void_p), error,
                                                 ctypes.c_size_t(1000))
        found = error.value.decode() if failed else heat.copy()
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        failed = library.trainer_predict_heatmap_encoded(predictor, file.getvalue(), ctypes.c_size_t(len(file.getvalue())), ctypes.c_int64(label),
                                                         heat.ctypes.data_as(ctypes.c_void_p), error, ctypes.c_size_t(1000))
        library.trainer_predict_close(predictor)
        numpy.testing.assert_equal(error.value.decode() if failed else heat, found)
        return found

    def test_they_equal_those_of_python(self):
        for name, (make, module_of, shape) in CASES.items():
            with self.subTest(network=name):
                network = make(num_classes=NUM_CLASSES).eval()
                # With the tiny initial values of some networks, the map of a class would be within the rounding of 1e-7, the divisor's epsilon.
                for module in network.modules():
                    if isinstance(module, torch.nn.Linear):
                        torch.nn.init.kaiming_normal_(module.weight)
                for buffer_name, buffer in network.named_buffers():
                    if "running_mean" in buffer_name:
                        buffer.uniform_(-0.1, 0.1)
                    if "running_var" in buffer_name:
                        buffer.uniform_(0.5, 1.5)
                # A bright disc on noise, so that the maps differ from place to place.
                rows, columns = numpy.ogrid[:shape[0], :shape[1]]
                disc = (rows - 0.3 * shape[0]) ** 2 + (columns - 0.6 * shape[1]) ** 2 < (0.2 * shape[0]) ** 2
                pixels = numpy.where(disc[..., None], 230, numpy.random.default_rng(1).integers(0, 120, (*shape, 3))).astype(numpy.uint8)
                network.double()
                images = Compose([ToTensor(), lambda image: image.double(), Normalize(MEAN, STD)])(Image.fromarray(pixels))[None]
                # Some classes have no pixel that raises their score.
                found = ((label, grad_cam(network, module_of(network), images, label)) for label in range(NUM_CLASSES))
                label, expected = next((label, heat) for label, heat in found if heat.std() > 0.05)
                heat = self.heatmap(self.save(name, network, shape), pixels, label)
                self.assertEqual(heat.shape, tuple(shape))
                # The maps are written as float32; pixels are converted with other roundings.
                numpy.testing.assert_allclose(heat, expected, atol=1e-6)
                if importlib.util.find_spec("pytorch_grad_cam"):
                    import pytorch_grad_cam
                    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
                    transform = side_by_side if name.startswith("vit") else None
                    with pytorch_grad_cam.GradCAM(network, [module_of(network)], reshape_transform=transform) as cam:
                        theirs = cam(images, [ClassifierOutputTarget(label)])[0]
                    numpy.testing.assert_allclose(heat, theirs, atol=1e-4)

    def test_a_network_without_maps_and_wrong_labels(self):
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, NUM_CLASSES))
        path = self.save("layers, image_size: 8, layers: [flatten, linear]", network, (8, 8))
        pixels = numpy.zeros((8, 8, 3), numpy.uint8)
        self.assertIn("this network has no maps of the image before its last layers", self.heatmap(path, pixels, 0))
        for label in (-1, NUM_CLASSES):
            self.assertEqual(self.heatmap(path, pixels, label), f"the label {label} is not that of a class; labels are from 0 to 9")


if __name__ == "__main__":
    unittest.main()
