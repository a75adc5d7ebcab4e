"""`trainer validate`, without data and without a run directory."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import terminal  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["TRAINER_BINARY"]
DDP = ROOT / "configs" / "cifar10_ddp.yaml"
MEASURING = "measuring the memory and the time of a few training steps\n"
LINEAR = ROOT / "configs" / "demo_linear.yaml"


def validate(*args, **variables):
    command = [BINARY, "validate", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)


class ValidateTest(unittest.TestCase):
    def test_json_of_a_shipped_config(self):
        run = validate("--config", DDP, "dataset.root=nowhere", "--world-size", 3, "--json")
        self.assertEqual((run.returncode, run.stderr), (0, MEASURING))
        found = json.loads(run.stdout)
        self.assertEqual((found["problems"], found["warnings"], found["notes"]), ([], [], []))
        self.assertEqual(found["model"]["parameters"], 11173962)
        self.assertEqual(found["model"]["flops"], 1110845440)
        self.assertEqual(found["model"]["layers"][0]["output_shape"], [64, 32, 32])
        batches = found["batches"]
        self.assertEqual((batches["global_batch_size"], batches["batch_size"], batches["micro_steps"]), (256, 86, 1))
        self.assertEqual((batches["samples_per_epoch"], batches["steps_per_epoch"], batches["total_steps"]), (50000, 195, 39000))
        self.assertEqual((batches["skipped_samples"], batches["repeated_samples"]), (80, 0))
        self.assertAlmostEqual(max(point["lr"] for point in found["lr"]), 0.2, places=2)
        self.assertEqual(found["memory"]["total_bytes"], sum(found["memory"]["bytes"].values()))
        self.assertGreater(found["time"]["step_seconds"], 0)
        self.assertAlmostEqual(found["time"]["training_seconds"], 39000 * found["time"]["step_seconds"])
        self.assertAlmostEqual(found["time"]["epoch_seconds"], 195 * found["time"]["step_seconds"])

    def test_json_is_valid_whatever_a_name_holds(self):
        for name, shown in ((b"caf\xe9.yaml", "caf\ufffd.yaml"), ("a\x1b\x7f\u0085.yaml".encode(), "a\x1b\x7f\u0085.yaml")):
            run = validate("--config", os.fsdecode(name), "--json")
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertNotRegex(run.stdout, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
            self.assertIn(shown, json.loads(run.stdout)["problems"][0])

    def test_frozen_layers(self):
        frozen = ["dataset.root=nowhere", "model.freeze=[conv1, bn1, layer1, layer2, layer3, layer4.0, layer4.1.conv1]"]
        run = validate("--config", DDP, *frozen, "--json")
        warning = "the frozen layers keep their random initial values; set model.weights or model.init_from, or remove this key"
        self.assertEqual((run.returncode, run.stderr), (0, MEASURING + f"warning: command line: model.freeze: {warning}\n"))
        found = json.loads(run.stdout)
        trained = 512 + 512 + 512 * 512 * 9 + 512 + 512 + 512 * 10 + 10
        self.assertEqual((found["model"]["parameters"], found["model"]["trained_parameters"]), (11173962, trained))
        self.assertEqual([layer["name"] for layer in found["model"]["layers"] if not layer["frozen"]],
                         ["layer4.1.bn1", "layer4.1.conv2", "layer4.1.bn2", "fc"])
        # Frozen parameters have neither gradients nor momentum.
        self.assertEqual((found["memory"]["bytes"]["gradients"], found["memory"]["bytes"]["optimizer_state"]), (4 * trained, 4 * trained))
        text = validate("--config", DDP, *frozen, "-v").stdout
        self.assertRegex(text, r"(?m)^  conv1 .* frozen$")
        self.assertRegex(text, rf"(?m)^  trained +{trained}$")
        self.assertNotIn("frozen", validate("--config", DDP, "dataset.root=nowhere", "-v").stdout)

    def test_the_summary_comes_first_and_layers_only_with_v(self):
        short = validate("--config", LINEAR).stdout
        parts = ["no problem found", "demo_linear, for a sample of shape 10 (-v lists the layers)", "batches, on 1 rank",
                 "time on the CPU of this host", "learning rate", "memory of rank 0", "To train: "]
        self.assertEqual(sorted(parts, key=short.index), parts)
        self.assertRegex(short, r"(?m)^  speed +\d\S* samples/s$")
        self.assertRegex(short, r"(?m)^  training +\S+s$")
        self.assertNotIn("layers of demo_linear", short)
        self.assertIn("layers of demo_linear, for a sample of shape 10\n", validate("--config", LINEAR, "-v").stdout)

    def test_names_that_the_network_does_not_have(self):
        run = validate("--config", DDP, "dataset.root=nowhere", "model.freeze=[layr1]", "optimizer.groups=[{parameters: [fd.bias]}]")
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn('command line: model.freeze[0]: the network resnet18 has neither a layer nor a parameter "layr1"; did you mean "layer1"?',
                      run.stderr)
        self.assertIn('command line: optimizer.groups[0].parameters[0]: the network resnet18 has neither a layer nor a parameter "fd.bias"; '
                      'did you mean "fc.bias"?', run.stderr)

    def test_text_fits_a_terminal(self):
        for columns in (80, 50):
            code, text = terminal.run([BINARY, "validate", "--config", LINEAR, "--world-size", "2"], columns=columns, cwd=ROOT)
            self.assertEqual(code, 0, text)
            screen = terminal.show(text, columns)
            plot = [line for line in screen.lines() if "|" in line]
            self.assertGreaterEqual(len(plot), 10)
            self.assertLessEqual(max(map(len, plot)), columns)
            self.assertIn("trainer launch --nproc-per-node 2 --config", text)

    def test_a_training_on_gpus_is_checked_without_any(self):
        needs_gpus = ["runtime.cuda_graph=on", "distributed.backend=nccl"]
        self.assertEqual(validate("--config", LINEAR, *needs_gpus).returncode, 0)
        run = validate("--config", LINEAR, *needs_gpus, "runtime.device=cpu")
        self.assertEqual(run.returncode, 2)
        self.assertIn("runtime.cuda_graph: on needs a GPU, but this process uses the CPU; set auto or off", run.stderr)

    def test_problems_are_reported_together(self):
        args = ["--config", LINEAR, "optimizer.lrr=1", "dataloader.batch_size=2000", "loss={name: mse, reduction: 3}"]
        run = validate(*args)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        for text in ("optimizer.lrr: unknown key", "loss.reduction: unknown key", "1024 training samples are fewer than one batch of 2000"):
            self.assertIn(text, run.stderr)
        run = validate(*args, "--json")
        self.assertEqual(run.returncode, 2)
        self.assertIn("optimizer.lrr", json.loads(run.stdout)["problems"][0])


if __name__ == "__main__":
    unittest.main()
