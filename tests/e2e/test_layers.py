"""Networks that an experiment file lists layer by layer (docs/networks.md). TRAINER_BINARY is the program."""

import concurrent.futures
import pathlib
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "testing"))
import equal_runs  # noqa: E402
from program import ROOT, FolderCase, trainer  # noqa: E402

# Small images in float32 on one thread, so that equal networks give equal bits.
RUN = ["dataset={name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 96, num_validation: 16}", "dataset.train_transforms=[]",
       "dataset.validation_transforms=[]", "dataloader={batch_size: null, global_batch_size: 16}", "training={epochs: 2, steps: null}", "logging.every_steps=1",
       "runtime={device: cpu, threads: 1}", "amp.enabled=false", "validation.every_epochs=1", "lr_scheduler={name: constant}"]

# The layers of a network for images of 3 x 32 x 32 in 10 classes, and the error message about them with its place in the file (…: any
# text).
HEAD = "global_avg_pool, linear"
WRONG = [
    ("layers: []", "4:11: model.layers: is empty; list some layers"),
    ("layers: conv", "4:11: model.layers: expected a list of components such as [conv], got conv"),
    (f"layers: [convolution: {{channels: 4}}, {HEAD}]", '4:12: model.layers[0]: "convolution" is not one of conv'),
    (f"layers: [conv_nrm: {{channels: 4}}, {HEAD}]", '4:12: model.layers[0]: "conv_nrm" is not one of …; did you mean "conv_norm"?'),
    (f"layers: [conv, {HEAD}]", "4:12: model.layers[0].conv.channels: missing, and has no default; expected integer"),
    (f"layers: [conv: {{channels: 0}}, {HEAD}]", "4:29: model.layers[0].conv.channels: expected an integer from 1 to 1048576, got 0"),
    (f"layers: [conv: {{channels: 4, kernel: 3}}, {HEAD}]", "4:32: model.layers[0].conv.kernel: unknown key"),
    (f"layers: [conv: {{channels: 4, stride: two}}, {HEAD}]", "4:40: model.layers[0].conv.stride: expected an integer from 1 to 1024, got two"),
    (f"layers: [conv: 4, {HEAD}]", "4:18: model.layers[0].conv: expected a section of keys and values, got 4"),
    (f"layers: [{{relu: {{}}, gelu: {{}}}}, {HEAD}]", "4:12: model.layers[0]: expected one component, as `name` or `name: {key: value}`, got {relu: {}, gelu: {}}"),
    (f"layers: [conv: {{channels: 4, groups: 2}}, {HEAD}]",
     "4:40: model.layers[0].conv.groups: 3 channels cannot be divided into 2 groups; choose a divisor"),
    (f"layers: [conv: {{channels: 4, kernel_size: 40, padding: 0}}, {HEAD}]",
     "4:18: model.layers[0].conv: its window of 40x40 pixels is larger than its input of 32x32 with padding 0; remove a layer that makes the image smaller, or choose a smaller window"),
    (f"layers: [repeat: {{times: 6, layers: [max_pool]}}, {HEAD}]",
     "4:40: model.layers[0].repeat.layers[0].max_pool: its window of 2x2 pixels is larger than its input of 1x1 with padding 0; remove a layer"),
    (f"layers: [max_pool: {{padding: 2}}, {HEAD}]", "4:32: model.layers[0].max_pool.padding: is more than half of kernel_size; choose a smaller value"),
    ("layers: [conv: {channels: 4}, linear]",
     "4:33: model.layers[1].linear: needs features, but its input is an image of 4x32x32; put flatten or global_avg_pool before it"),
    (f"layers: [{HEAD}, conv: {{channels: 4}}]",
     "4:43: model.layers[2].conv: needs an image, but its input has 10 features; put this layer before flatten and global_avg_pool"),
    ("layers: [conv: {channels: 4}]",
     "4:12: model.layers[0]: the last layer has the output 4x32x32, but the network needs 10 outputs; end the list with global_avg_pool and `linear` without `features`"),
    ("layers: [global_avg_pool, linear: {features: 7}]",
     "4:29: model.layers[1]: the last layer has the output 7 features, but the network needs 10 outputs; end the list with `linear` without `features`"),
    (f"layers: [relu: {{name: a.b}}, {HEAD}]", '4:25: model.layers[0].relu.name: "a.b" is not a valid layer name; use letters, digits and _'),
    (f"layers: [relu: {{name: a}}, gelu: {{name: a}}, {HEAD}]", "4:42: model.layers[1].gelu.name: an earlier layer has the name a too; choose another name"),
    (f"layers: [relu: {{name: 1}}, gelu, {HEAD}]", "4:29: model.layers[1].gelu: an earlier layer has the name 1 too; choose another name"),
    (f"layers: [repeat: {{times: 2, layers: [relu: {{name: a}}]}}, {HEAD}]",
     "4:53: model.layers[0].repeat.layers[0].relu.name: all repetitions of the layer would have this name; move the name to `repeat`, or remove it"),
    (f"layers: [repeat: {{layers: [relu]}}, {HEAD}]", "4:20: model.layers[0].repeat.times: missing, and has no default; expected integer"),
    (f"layers: [repeat: [relu], {HEAD}]", "4:12: model.layers[0].repeat.times: missing, and has no default; expected integer"),
    (f"layers: [residual: {{body: [conv: {{channels: 8}}], shortcut: []}}, {HEAD}]",
     "4:22: model.layers[0].residual: the outputs of its body (8x32x32) and its shortcut (3x32x32) have different shapes; change one of them, or remove the key shortcut"),
    (f"layers: [residual: [conv: {{channels: 8, padding: 0}}], {HEAD}]",
     "4:22: model.layers[0].residual: its body has the output 8x30x30 for the input 3x32x32, which an automatic shortcut cannot produce with any stride; set the `shortcut` layers"),
    (f"layers: [residual: [flatten, linear: {{features: 4}}], linear]",
     "4:22: model.layers[0].residual: its body has the output 4 features for the input 3x32x32, for which there is no automatic shortcut; set the `shortcut` layers"),
    (f"layers: [residual: {{body: [relu], shortcut: yes}}, {HEAD}]",
     "4:47: model.layers[0].residual.shortcut: expected a list of components such as [conv], got yes"),
    (f"layers: [concat: [identity, max_pool], {HEAD}]",
     "4:20: model.layers[0].concat.branches[1]: has the output 3x16x16, but the branches before it have 3x32x32; only the number of channels may differ"),
    (f"layers: [concat: [], {HEAD}]", "4:20: model.layers[0].concat.branches: is empty; list at least one branch"),
    (f"layers: [concat: [sequence: [conv: {{channels: 4, groups: 3}}]], {HEAD}]",
     "4:20: model.layers[0].concat.branches[0].sequence.layers[0].conv.groups: 4 channels cannot be divided into 3 groups; choose a divisor"),
    (f"layers: [sequence: [], {HEAD}]", "4:22: model.layers[0].sequence.layers: is empty; list some layers"),
    (f"layers: [residual: [], {HEAD}]", "4:22: model.layers[0].residual.body: is empty; list some layers"),
    (f"layers: [repeat: {{times: 2, layers: []}}, {HEAD}]", "4:39: model.layers[0].repeat.layers: is empty; list some layers"),
    ("layers: [global_avg_pool, linear, linear]",
     "4:11: model.layers: more than one `linear` has no `features`; set `features` in all of them except the output layer"),
    (f"layers: [conv: {{channels: 1}}, transition, {HEAD}]", "4:33: model.layers[1].transition: halves the channels, but its input has only one; give the layer before it more channels"),
    (f"layers: [repeat: {{times: 63, layers: [concat: [identity, identity]]}}, {HEAD}]", "model.layers[0].repeat.layers[0].concat: has an output of …, which is too large; choose smaller sizes"),
    (f"layers: [repeat: {{times: 1000, layers: [repeat: {{times: 1000, layers: [relu]}}]}}, {HEAD}]",
     "model.layers[0].repeat.layers[0].repeat.layers[0].relu: the list has more than 2000 layers; use fewer repetitions"),
    (f"layers: [mb_conv: {{channels: 3, kernel_size: 4}}, {HEAD}]", "4:48: model.layers[0].mb_conv.kernel_size: 4 is even; choose an odd number"),
    (f"layers: [bottleneck: {{channels: 6}}, {HEAD}]", "4:35: model.layers[0].bottleneck.channels: 6 is not a multiple of 4; choose a multiple"),
    (f"layers: [cifar_block: {{channels: 2}}, {HEAD}]",
     "4:36: model.layers[0].cifar_block.channels: 2 are fewer than the 3 channels of the input; choose at least 3"),
    (f"image_size: [32, 32, 3]\n  layers: [{HEAD}]", "4:15: model.image_size: must be one number or two, [height, width]"),
]


class WrongFilesTest(FolderCase):
    def validate(self, index):
        file = self.folder / f"{index}.yaml"
        file.write_text(f"experiment: x\nmodel:\n  name: layers\n  {WRONG[index][0]}\n")
        return trainer("validate", "--config", file, *RUN)

    def test_each_message(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(self.validate, range(len(WRONG))))
        for index, (run, (text, message)) in enumerate(zip(runs, WRONG)):
            with self.subTest(text):
                self.assertEqual(run.returncode, 2, run.out)
                self.assertIn(f"{self.folder}/{index}.yaml:", run.err)
                for part in message.split("…"):
                    self.assertIn(part, run.err)


class LayersTest(FolderCase):
    def train(self, name, *args, config=ROOT / "configs" / "layers_mixture.yaml", ranks=1):
        run_dir = self.folder / name
        launch = ["launch", "--nproc-per-node", ranks] if ranks > 1 else []
        run = trainer(*launch, "--config", config, *RUN, "--run-dir", run_dir, *args)
        self.assertEqual(run.returncode, 0, run.err)
        return run_dir

    def test_a_network_of_the_program_layer_by_layer(self):
        listed = self.train("listed", config=ROOT / "configs" / "layers_resnet20.yaml")
        named = self.train("named", config=ROOT / "configs" / "cifar10_resnet20.yaml")
        self.assertEqual(equal_runs.results_of(listed)[0], equal_runs.results_of(named)[0])
        # The network of the experiment file has the same parameter names as the built-in one.
        resumed = trainer("eval", "--config", listed / "config.yaml", "--checkpoint", named / "checkpoints" / "last.pt")
        self.assertEqual(resumed.returncode, 0, resumed.err)

    def test_resumed_is_as_straight_through(self):
        straight = self.train("straight")
        self.train("resumed", "training.epochs=1")
        resumed = self.train("resumed", "--resume", "auto")
        self.assertEqual(equal_runs.tensors(straight), equal_runs.tensors(resumed))

    def test_two_ranks_are_as_one(self):
        # Dropout is off, because each rank draws its own random numbers.
        exact = ["runtime.dtype=float64", "distributed.sync_batch_norm=true", "model.layers[6].inverted_residual.drop_path=0", "model.layers[8].dropout.p=0"]
        one, two = ([event["loss"] for event in equal_runs.results_of(self.train(str(ranks), *exact, ranks=ranks))[0]] for ranks in (1, 2))
        self.assertEqual(len(one), 14)
        for a, b in zip(one, two, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-12 * a)


if __name__ == "__main__":
    unittest.main()
