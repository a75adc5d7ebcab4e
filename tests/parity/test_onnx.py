"""Networks that are exported as ONNX give the same results in ONNX Runtime as the exported TorchScript, which `parity.export` compares with
torchvision. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import sys
import unittest

import numpy
import onnx
import onnxruntime
import torch
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import ROOT, FolderCase  # noqa: E402

# At least one small network of each family, because the operators do not depend on the size of a network.
NETWORKS = {
    "demo_linear": ("{name: demo_linear}", "[10]"),
    "demo_conv": ("{name: demo_conv, num_classes: 10}", "[3, 32, 32]"),
    "resnet20": ("{name: resnet20, num_classes: 10}", "[3, 32, 32]"),
    "resnet18": ("{name: resnet18, num_classes: 10}", "[3, 32, 32]"),
    "resnet50": ("{name: resnet50, num_classes: 10}", "[3, 64, 64]"),
    "wide_resnet": ("{name: wide_resnet, depth: 10, width: 1, num_classes: 10}", "[3, 32, 32]"),
    "vgg11_bn": ("{name: vgg11_bn, num_classes: 10, head: cifar}", "[3, 32, 32]"),
    **{name: (f"{{name: {name}, num_classes: 10}}", "[3, 64, 64]")
       for name in ("mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "efficientnet_v2_s", "efficientnet_lite0", "convnext_tiny", "densenet121",
                    "regnet_y_400mf", "shufflenet_v2_x1_0", "squeezenet1_1", "resnext50_32x4d")},
    "vit_b_16": ("{name: vit_b_16, num_classes: 10, image_size: 64}", "[3, 64, 64]"),
    "vit_s_16": ("{name: vit_s_16, num_classes: 10, image_size: 64}", "[3, 64, 64]"),
    "layers": (json.dumps(yaml.safe_load((ROOT / "configs" / "layers_mixture.yaml").read_text())["model"]), "[3, 32, 32]"),
    "airbench": ("{name: airbench, num_classes: 10}", "[3, 32, 32]"),
    "mobilenet_v2_small": ("{name: mobilenet_v2_small, width: 0.25, num_classes: 10}", "[3, 32, 32]"),
}
# A plug-in with LibTorch's own layers; e2e.install builds it.
PLUGIN = pathlib.Path(os.environ["TRAINER_BUILD_DIR"]) / "installed" / "build" / "libmobilenet_v2.so"


class OnnxTest(FolderCase):
    def ran(self, *args):
        return super().ran(*args, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def export(self, name):
        """Returns the network after one step of training, as ONNX and as TorchScript."""
        model, shape = NETWORKS[name]
        targets = "num_classes: 0, num_targets: 10" if name == "demo_linear" else "num_classes: 10"
        loss = "mse" if name == "demo_linear" else "cross_entropy"
        config = self.folder / f"{name}.yaml"
        config.write_text(f"experiment: {name}\nplugins: [{PLUGIN}]\nmodel: {model}\nloss: {{name: {loss}}}\n"
                          f"dataset: {{name: synthetic, shape: {shape}, {targets}, num_train: 2, num_validation: 1}}\n"
                          "optimizer: {name: sgd, lr: 1.0e-4}\ndataloader: {batch_size: 2}\ntraining: {epochs: 1}\nruntime: {device: cpu}\n")
        self.ran("--config", config, "--run-dir", self.folder / name)
        for form in ("onnx", "torchscript"):
            self.ran("export", "--checkpoint", self.folder / name / "checkpoints" / "last.pt", "--format", form, "--output", self.folder / form,
                     "--plugin", PLUGIN)
        onnx.checker.check_model(str(self.folder / "onnx"), full_check=True)
        return onnx.load(self.folder / "onnx"), torch.jit.load(self.folder / "torchscript").eval()

    def test_names_of_classes(self):
        root = pathlib.Path(__file__).resolve().parents[2] / "datasets" / "cifar10_sample"
        config = self.folder / "names.yaml"
        config.write_text(f"experiment: names\nmodel: {{name: demo_conv}}\ndataset: {{name: cifar10, root: {root}}}\n"
                          "training: {steps: 1}\nruntime: {device: cpu}\n")
        self.ran("--config", config, "--run-dir", self.folder / "names")
        self.ran("export", "--checkpoint", self.folder / "names" / "checkpoints" / "last.pt", "--format", "onnx", "--output", self.folder / "onnx")
        metadata = {entry.key: entry.value for entry in onnx.load(self.folder / "onnx").metadata_props}
        names = json.loads(metadata["class_names"])
        self.assertEqual((len(names), names[0], names[9]), (10, "airplane", "truck"))

    @torch.no_grad()
    def test_all_networks(self):
        torch.set_num_threads(1)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        for name, (_, shape) in NETWORKS.items():
            with self.subTest(name):
                exported, script = self.export(name)
                (values,), (logits,) = exported.graph.input, exported.graph.output
                self.assertEqual((values.name, logits.name), ("images", "values" if name == "demo_linear" else "logits"))
                for value in (values, logits):
                    self.assertEqual(value.type.tensor_type.shape.dim[0].dim_param, "batch")
                state = script.state_dict()
                for constant in exported.graph.initializer:
                    if constant.name in state:
                        numpy.testing.assert_array_equal(onnx.numpy_helper.to_array(constant), state[constant.name].numpy())
                session = onnxruntime.InferenceSession(exported.SerializeToString(), options)
                largest = 0.0
                for batch_size in (1, 3):
                    torch.manual_seed(batch_size)
                    images = torch.randn(batch_size, *map(int, shape.strip("[]").split(",")))
                    output, = session.run([logits.name], {"images": images.numpy()})
                    expected = script(images)
                    self.assertEqual(output.shape, tuple(expected.shape))
                    self.assertTrue(expected.isfinite().all())
                    difference = (torch.from_numpy(output) - expected).abs().max() / expected.abs().max()
                    largest = max(largest, difference.item())
                print(f"{name}: outputs {largest:.1e}", flush=True)
                self.assertLess(largest, 1e-5)


if __name__ == "__main__":
    unittest.main()
