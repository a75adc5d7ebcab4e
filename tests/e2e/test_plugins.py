"""Custom components: the plug-ins and the program of examples/, which e2e.install has built against the installed trainer, are trained,
resumed, evaluated and exported like the program's own components; plug-ins that cannot be loaded are refused. docs/extending.md shows their
code."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import ROOT, FolderCase  # noqa: E402

INSTALLED = pathlib.Path(os.environ["TRAINER_BUILD_DIR"]) / "installed"
PREFIX, BUILD = INSTALLED / "a new place", INSTALLED / "build"
TRAINER = PREFIX / "bin" / "trainer"
NETWORK = BUILD / "libmobilenet_v2.so"
COMPONENTS = BUILD / "libcomponents.so"
# Few images of CIFAR-10's sample, and results that do not depend on the number of processes.
MOBILENET = ["--config", ROOT / "examples/own_network/mobilenet_v2.yaml", "model.width=0.25", "model.dropout=0", "training.overfit_batches=2",
             "training.epochs=2", "dataset.train_transforms=[normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}]", "dataloader.global_batch_size=16",
             "validation.batch_size=250", "runtime={dtype: float64, threads: 1, device: cpu}"]
STRIPES = """experiment: stripes
plugins: [{plugin}]
model: {{name: resnet20}}
dataset:
  name: stripes
  num_train: 64
  num_validation: 31
  train_transforms: [random_shift: {{pixels: 2}}, normalize: {{mean: [0.5], std: [0.5]}}]
  validation_transforms: [normalize: {{mean: [0.5], std: [0.5]}}]
loss: {{name: poly, epsilon: 1}}
optimizer: {{name: lion, lr: 0.001, weight_decay: 0.1}}
dataloader: {{global_batch_size: 16}}
training: {{epochs: 4}}
checkpoint: {{monitor: validation/worst_recall}}
runtime: {{device: cpu, threads: 1}}
logging: {{sinks: [best_file: {{file: notes/best.txt}}]}}
"""


def run(program, *args, folder=ROOT):
    return subprocess.run([program, *map(str, args)], cwd=folder, capture_output=True, text=True)


class PluginsTest(FolderCase):
    def done(self, program, *args, **options):
        result = run(program, *args, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, message, *args, code=2):
        result = run(TRAINER, *args)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(message, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def validation_losses(self, folder):
        events = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return [event["loss"] for event in events if event["event"] == "validation"]

    def test_a_network_trains_alike_on_any_number_of_processes_and_resumes_exactly(self):
        plugin = f"plugins=[{NETWORK}]"
        for ranks in (1, 2):
            self.done(TRAINER, "launch", "--nproc-per-node", ranks, *MOBILENET, plugin, "--run-dir", self.folder / str(ranks))
        one, two = (self.validation_losses(self.folder / str(ranks)) for ranks in (1, 2))
        self.assertEqual(len(one), 2)
        for here, there in zip(one, two, strict=True):
            self.assertAlmostEqual(here, there, delta=1e-9)
        # The network's dropout is LibTorch's own, which also draws the same numbers in a resumed run.
        self.done(TRAINER, "verify-resume", *MOBILENET, plugin, "model.dropout=0.2")

        best = self.folder / "1/checkpoints/best.pt"
        self.refused(f"; the plug-ins listed in the experiment are loaded only if they are also given on the command line: add --plugin {NETWORK}", "eval", "--checkpoint", best)
        self.assertIn("mobilenet_v2_small", self.done(TRAINER, "eval", "--checkpoint", best, "--plugin", NETWORK))
        for file in ("net.onnx", "net.safetensors"):
            self.done(TRAINER, "export", "--checkpoint", best, "--plugin", NETWORK, "--output", self.folder / file)

    def test_keys_and_reference(self):
        plugin = f"plugins=[{NETWORK}]"
        self.assertIn("no problem found", self.done(TRAINER, "validate", *MOBILENET, plugin))
        self.refused('command line: model.widht: unknown key; did you mean "width"?', "validate", *MOBILENET, plugin, "model.widht=1")
        self.refused("command line: model.width: expected a number from 0.1 to 4, got 9", "validate", *MOBILENET, plugin, "model.width=9")
        self.refused('model.name: "mobilenet_v2_small" is not one of demo_linear', "validate", *MOBILENET)
        reference = self.done(TRAINER, "config", "reference", "model.mobilenet_v2_small", "--plugin", NETWORK)
        self.assertIn("Factor for the number of channels of each layer.", reference)
        for family, name in (("datasets", "stripes"), ("transforms", "random_shift"), ("losses", "poly"), ("sinks", "best_file"), ("layers", "blur_pool")):
            self.assertIn(name, self.done(TRAINER, "list", family, "--plugin", COMPONENTS))
        self.assertIn("lion", self.done(BUILD / "lion", "list", "optimizers"))

    def test_a_program_of_ones_own_with_components_of_all_kinds(self):
        (self.folder / "stripes.yaml").write_text(STRIPES.format(plugin=COMPONENTS))
        (self.folder / "run/notes").mkdir(parents=True)
        lion = BUILD / "lion"
        self.done(lion, "launch", "--nproc-per-node", "2", "--config", "stripes.yaml", "--run-dir", "run", folder=self.folder)
        best = (self.folder / "run/notes/best.txt").read_text()
        self.assertRegex(best, r"epoch \d\nloss \S+\ntop1 \S+\n")
        self.done(lion, "verify-resume", "--config", "stripes.yaml", folder=self.folder)
        losses = self.validation_losses(self.folder / "run")
        self.assertLess(losses[-1], 0.5 * losses[0])
        summary = json.loads((self.folder / "run/summary.json").read_text())
        evaluation = json.loads((self.folder / "run/evaluation.json").read_text())
        self.assertEqual(summary["monitor"], "validation/worst_recall")
        self.assertAlmostEqual(summary["final"]["worst_recall"], min(entry["recall"] for entry in evaluation["classes"]), delta=1e-12)
        # With epsilon 0, the loss of the plug-in equals the cross entropy; the built-in focal loss with gamma 0 is measured as a
        # comparison.
        for name, option in (("poly", ", epsilon: 0"), ("focal", ", gamma: 0"), ("cross_entropy", "")):
            self.done(lion, "--config", "stripes.yaml", "--run-dir", name, "logging.sinks=[]", f"loss={{name: {name}{option}}}", "training.epochs=1",
                      "runtime.dtype=float64", folder=self.folder)
        poly, focal, cross_entropy = (self.validation_losses(self.folder / name)[0] for name in ("poly", "focal", "cross_entropy"))
        self.assertAlmostEqual(poly, cross_entropy, delta=1e-12)
        self.assertAlmostEqual(focal, cross_entropy, delta=1e-12)
        layers = "model={name: layers, layers: [conv_norm: {channels: 8}, blur_pool: {name: half}, conv_norm: {channels: 8}, global_avg_pool, linear]}"
        self.done(lion, "--config", "stripes.yaml", "--run-dir", "layers", "logging.sinks=[]", layers, "training.epochs=1", folder=self.folder)
        shown = self.done(lion, "validate", "-v", "--config", "stripes.yaml", layers, folder=self.folder)
        self.assertRegex(shown, r"\n  2\.0 +Conv2d +8x16x16 ")
        # The program trainer has no optimizer lion.
        refused = run(TRAINER, "validate", "--config", self.folder / "stripes.yaml")
        self.assertIn('optimizer.name: "lion" is not one of sgd', refused.stderr)

    def test_what_cannot_be_loaded_is_refused(self):
        version = re.search(r"trainer (\S+)", run(TRAINER, "--version").stdout)[1]
        libtorch = re.search(r"LibTorch (\S+)", run(TRAINER, "--version").stdout)[1]
        this = f"{version} with LibTorch {libtorch}"

        def refuse(plugin, message):
            self.refused("command line: plugins: " + message, "validate", *MOBILENET, f"plugins=[{plugin}]")

        refuse("none/libnone.so", 'there is no plug-in "none/libnone.so"; build it, or correct the path')
        refuse("libnone.so", 'there is no plug-in "libnone.so" in this folder or in the library path (LD_LIBRARY_PATH); build it, or correct the path')
        (self.folder / "text.so").write_text("no library")
        refuse(self.folder / "text.so", f'the plug-in "{self.folder}/text.so" cannot be loaded: {self.folder}/text.so: file too short; build it again with the library')
        refuse(PREFIX / "lib/trainer/libtrainer_images.so", f'"{PREFIX}/lib/trainer/libtrainer_images.so" is not a plug-in for trainer, because it has no TRAINER_PLUGIN(); correct the path, or add this macro')
        # The network of a plug-in that was not loaded is not reported as unknown.
        self.refused("error: command line: plugins: expected a list, each item a path, got 5; write it as [5]\n", "validate", *MOBILENET, "plugins=5")
        # Two plug-ins with the same components.
        shutil.copy(NETWORK, self.folder / "libcopy.so")
        refuse(f"{NETWORK},{self.folder}/libcopy.so",
               f'the plug-in "{self.folder}/libcopy.so" cannot register its components: two components of the model registry are named '
               '"mobilenet_v2_small"; correct the plug-in and build it again')

        # A plug-in that was built with the headers of another version.
        headers = self.folder / "include"
        shutil.copytree(PREFIX / "include/trainer", headers / "trainer")
        text = (headers / "trainer/version.h").read_text()
        (headers / "trainer/version.h").write_text(text.replace(version, "0.99.0"))
        commands = (BUILD / "CMakeFiles/mobilenet_v2.dir/flags.make").read_text()
        includes = re.search(r"^CXX_INCLUDES = (.*)$", commands, re.MULTILINE)[1].split(" -")
        others = ["-" + part.strip() if not part.startswith("-") else part.strip() for part in includes if "a\\ new\\ place" not in part and "a new place" not in part]
        (self.folder / "old.cpp").write_text("#include <trainer/registry.h>\nTRAINER_PLUGIN() {}\n")
        subprocess.run(f"c++ -std=c++20 -O0 -fPIC -shared -I{headers} {' '.join(others)} old.cpp -o libold.so", cwd=self.folder, shell=True, check=True)
        refuse(self.folder / "libold.so",
               f'the plug-in "{self.folder}/libold.so" was built for trainer 0.99.0 with LibTorch {libtorch}, and this is trainer {this}; build it '
               "again with this version")
        # Patch releases of LibTorch have the same interface, others do not.
        for file, torch in (("patch.so", re.sub(r"\.\d+$", ".99", libtorch)), ("libtorch1.so", "1.0.0")):
            (self.folder / "torch.cpp").write_text(f"""extern "C" const char* trainer_plugin_version() {{ return "{version} with LibTorch {torch}"; }}
extern "C" void trainer_plugin_register() {{}}\n""")
            subprocess.run(["c++", "-fPIC", "-shared", "torch.cpp", "-o", file], cwd=self.folder, check=True)
        self.done(TRAINER, "list", "models", "--plugin", self.folder / "patch.so")
        refuse(self.folder / "libtorch1.so", f'the plug-in "{self.folder}/libtorch1.so" was built for trainer {version} with LibTorch 1.0.0, and this is')

    def test_the_docs_show_the_code(self):
        shown = (ROOT / "docs/extending.md").read_text()
        for file in ("own_network/mobilenet_v2.cpp", "own_optimizer/lion.cpp", "components/stripes.cpp", "components/random_shift.cpp",
                     "components/poly_loss.cpp", "components/best_file.cpp", "components/worst_recall.cpp", "components/blur_pool.cpp"):
            self.assertTrue(f"```cpp\n{(ROOT / 'examples' / file).read_text()}```\n" in shown, file)
        code = (ROOT / "examples/segmentation/segmentation.cpp").read_text()
        task = shown[shown.index("class PixelMeter"):]
        self.assertIn(task[:task.index("```")], code)


if __name__ == "__main__":
    unittest.main()
