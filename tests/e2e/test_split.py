"""Division into training, validation and test by the hash of names and groups, and cross-validation. TRAINER_BINARY is the program."""

import collections
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "testing"))
from browser import BROWSER, Browser  # noqa: E402
from program import BINARY, FolderCase, trainer  # noqa: E402
from test_image_folder import png  # noqa: E402

EXPERIMENT = """experiment: parts
model: {name: resnet20}
dataset: {name: image_folder, root: data, train_transforms: [], validation_transforms: [], split: {test: 0.1, group: "(p[0-9]+)_"}}
dataloader: {batch_size: 16}
optimizer: {name: sgd, lr: 0.05}
training: {epochs: 1}
logging: {tensorboard: false}
runtime: {device: cpu, threads: 1}
amp: {enabled: false}
"""
TRANSFORMS = "train_transforms: [resize: {size: [8, 8]}], validation_transforms: [resize: {size: [8, 8]}]"


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class SplitTest(FolderCase):
    def setUp(self):
        super().setUp()
        for patient in range(40):
            self.add_patient(patient)
        (self.folder / "x.yaml").write_text(EXPERIMENT.replace("train_transforms: [], validation_transforms: []", TRANSFORMS))

    def add_patient(self, number):
        kind = "bad" if number % 3 == 0 else "good"
        (self.folder / "data" / kind).mkdir(parents=True, exist_ok=True)
        for view in range(4):
            (self.folder / "data" / kind / f"p{number}_{view}.png").write_bytes(png(8, 8, bytes([(number * 6 + view + (100 if kind == "bad" else 0)) % 256]) * 192))

    def run_ok(self, *arguments):
        run = trainer(*arguments, cwd=self.folder)
        self.assertEqual(run.returncode, 0, run.out + run.err)
        return run.out

    def parts(self, run):
        with open(self.folder / run / "split.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return {row["sample"]: (row["group"], row["part"]) for row in rows}

    def test_parts_are_the_same_for_all_kinds_of_data_and_stay_when_files_are_added(self):
        self.run_ok("--config", "x.yaml", "--run-dir", "a")
        parts = self.parts("a")
        self.assertEqual(len(parts), 160)
        of_groups = collections.defaultdict(set)
        for group, part in parts.values():
            of_groups[group].add(part)
        self.assertEqual(len(of_groups), 40)
        self.assertTrue(all(len(found) == 1 for found in of_groups.values()))
        counts = collections.Counter(part for _, part in parts.values())
        self.assertEqual(set(counts), {"train", "validation", "test"})
        self.assertIn(f"{counts['train']} are for training, {counts['validation']} for validation and {counts['test']} for a test", (self.folder / "a/train.log").read_text())
        for split, count in (("test", counts["test"]), ("validation", counts["validation"]), ("train", counts["train"])):
            evaluated = json.loads(self.run_ok("eval", "--checkpoint", "a", "--split", split, "--json"))
            self.assertEqual((evaluated["split"], evaluated["num_samples"]), (split, count))
        # The division is the same for a packed data set, and for a CSV file with a column of groups.
        self.run_ok("data", "pack", "--config", "x.yaml", "--output", "packed")
        self.run_ok("--config", "x.yaml", "--run-dir", "b", "dataset.name=lmdb", "dataset.root=packed")
        self.assertEqual(self.parts("b"), parts)
        with open(self.folder / "list.csv", "w", newline="") as file:
            csv.writer(file).writerows([("path", "kind", "patient")] + [(sample, sample.split("/")[0], group) for sample, (group, _) in parts.items()])
        data = "dataset={name: csv, train: list.csv, root: data, columns: [kind], group_column: patient, split: {test: 0.1}, " + TRANSFORMS + "}"
        self.run_ok("--config", "x.yaml", "--run-dir", "c", data)
        self.assertEqual(self.parts("c"), parts)
        for number in range(40, 60):
            self.add_patient(number)
        self.run_ok("--config", "x.yaml", "--run-dir", "d")
        self.assertEqual({sample: found for sample, found in self.parts("d").items() if sample in parts}, parts)
        # The run was trained on other images.
        run = trainer("--config", "x.yaml", "--run-dir", "a2", "--resume", "a/checkpoints/last.pt", "training.epochs=2", cwd=self.folder)
        self.assertEqual(run.returncode, 2, run.err)
        self.assertIn("since this checkpoint, the training files or their division by dataset.split have changed", run.err)

    def test_what_was_trained_on_is_not_evaluated_in_silence(self):
        self.run_ok("--config", "x.yaml", "--run-dir", "a")
        warning = "dataset.split divides these images differently than in training"
        for arguments, is_warned in (([], False), (["dataset.split.seed=3"], True), (["--split", "test", "dataset.split.test=0.3"], True)):
            run = trainer("eval", "--checkpoint", "a", *arguments, cwd=self.folder)
            self.assertEqual((run.returncode, warning in run.err), (0, is_warned), run.err)
        self.add_patient(50)
        self.assertNotIn(warning, trainer("eval", "--checkpoint", "a", "--split", "test", cwd=self.folder).err)
        shutil.copytree(self.folder / "data", self.folder / "moved")
        run = trainer("eval", "--checkpoint", "a", "dataset.root=moved", cwd=self.folder)
        self.assertIn("to evaluate only the part that training on it would hold out, set dataset.split on the command line to the value of the training run", run.err)
        run = trainer("eval", "--checkpoint", "a", "--split", "test", "dataset.root=moved", cwd=self.folder)
        self.assertIn("--split test: this is not the data set of the training run, so it has no test part", run.err)
        split = 'dataset.split={test: 0.1, group: "(p[0-9]+)_"}'
        self.assertEqual(trainer("eval", "--checkpoint", "a", "--split", "test", "dataset.root=moved", split, cwd=self.folder).returncode, 0)
        self.assertEqual(trainer("eval", "--checkpoint", "a", "--data", "moved", split, cwd=self.folder).returncode, 2)

    def test_groups_of_a_column(self):
        rows = [(f"{kind}/p{number}_{view}.png", f"patient {number}", kind) for number in range(40) for kind in ["bad" if number % 3 == 0 else "good"] for view in range(4)]
        with open(self.folder / "list.csv", "w", newline="") as file:
            csv.writer(file).writerows([("path", "patient", "kind")] + rows)
        data = "dataset={name: csv, train: list.csv, root: data, group_column: patient, split: {test: 0.1}, " + TRANSFORMS + "}"
        self.run_ok("--config", "x.yaml", "--run-dir", "a", data)
        (self.folder / "other.csv").write_text("path,kind\ngood/p1_0.png,good\n")
        for file in ("list.csv", "other.csv"):
            self.run_ok("eval", "--checkpoint", "a", "--data", file)
        run = trainer("data", "pack", "--config", "x.yaml", data, "--output", "packed", cwd=self.folder)
        self.assertEqual(run.returncode, 2)
        self.assertIn("dataset.group_column: a packed data set does not keep the groups of a CSV file", run.err)

    def test_what_does_not_fit_is_refused(self):
        for override, text in (
            ("dataset.split={validation: 0}", "dataset.split.validation: must be greater than 0; to use the data set's own validation images, remove dataset.split"),
            ("dataset.split={validation: 0.6, test: 0.4}", "dataset.split.validation: the sum of validation and test must be less than 1; lower one of them"),
            ("dataset.split={fold: 1}", "dataset.split.fold: has no effect without folds; set folds, or remove it"),
            ("dataset.split={folds: 3, fold: 3}", "dataset.split.fold: must be less than folds, because folds are counted from 0"),
            ("dataset.split={folds: 1}", "dataset.split.folds: expected an integer from 2 to 1000 or null, got 1"),
            ('dataset.split={group: "("}', 'dataset.split.group: "(" is not a regular expression'),
            ('dataset.split={group: "zz"}', 'dataset.split.group: "zz" does not match "bad/p0_0.png"; change it so that each image has a group'),
            ('dataset.split={group: "p"}', "of 160 images, 0 are for validation and 160 for training"),
            ("dataset.validation_split=0.1", "dataset.split: given together with dataset.validation_split; keep one of them"),
        ):
            run = trainer("--config", "x.yaml", "--run-dir", "no", override, cwd=self.folder)
            self.assertEqual(run.returncode, 2, run.err)
            self.assertIn(text, run.err)
        self.run_ok("--config", "x.yaml", "--run-dir", "a", "dataset.split.test=0")
        run = trainer("eval", "--checkpoint", "a", "--split", "test", cwd=self.folder)
        self.assertEqual(run.returncode, 2)
        self.assertIn("--split test: the training run held out no test images; set dataset.split.test before training", run.err)

    def test_a_cross_validation_continues_after_a_kill(self):
        command = ["crossval", "--config", "x.yaml", "--folds", "3", "--run-dir", "cv", "training.epochs=3", "dataset.split.test=0"]
        process = subprocess.Popen([BINARY, *command], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while not list(self.folder.glob("cv/fold_1/checkpoints/step_*.pt")):
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        first = (self.folder / "cv/fold_0/summary.json").read_bytes()
        # The process of the fold, which was killed too, may still hold its lock.
        while (run := trainer(*command, cwd=self.folder)).returncode != 0 and "is in use" in run.err:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.assertEqual(run.returncode, 0, run.out + run.err)
        self.assertEqual((self.folder / "cv/fold_0/summary.json").read_bytes(), first)
        joined = json.loads((self.folder / "cv/crossval.json").read_text())
        top1 = [fold["metrics"]["top1"] for fold in joined["folds"]]
        mean = sum(top1) / 3
        self.assertAlmostEqual(joined["mean"]["top1"], mean, delta=1e-12)
        self.assertAlmostEqual(joined["deviation"]["top1"], (sum((value - mean) ** 2 for value in top1) / 2) ** 0.5, delta=1e-12)
        # Each image was a validation image once.
        self.assertEqual(sum(fold["num_samples"] for fold in joined["folds"]), 160)
        self.assertEqual([sum(row) for row in joined["confusion"]], [56, 104])
        self.assertRegex(run.out, r"\nmean +\d\.\d{4}")
        report = trainer("report", "cv", "--output", "report.html", cwd=self.folder)
        self.assertEqual(report.out, "report.html: 3 runs; open it in a browser\n", report.err)
        page = (self.folder / "report.html").read_text()
        shown = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL).group(1))
        self.assertEqual([run["name"] for run in shown["runs"]], ["fold_0", "fold_1", "fold_2"])
        self.assertEqual(shown["crossvals"], [joined | {"name": "cv"}])
        if BROWSER:
            view = Browser(self.folder / "browser")
            self.addCleanup(view.close)
            view.open(f"file://{self.folder}/report.html")
            view.wait_for("!document.getElementById('crossval-section').hidden")
            text = view.evaluate("document.getElementById('crossvals').textContent")
            self.assertIn(f"{100 * mean:.2f}% ± {100 * joined['deviation']['top1']:.2f}%", text)
            self.assertEqual(view.messages, [])
        (self.folder / "cv/crossval.json").write_text("{")
        report = trainer("report", "cv", cwd=self.folder)
        self.assertEqual((report.returncode, report.err), (3, "error: cv/crossval.json: the file is damaged; start the same `trainer crossval` command again to write it\n"))
        # The result is the same as without an interruption.
        shutil.rmtree(self.folder / "cv")
        self.run_ok(*command)
        self.assertEqual(json.loads((self.folder / "cv/crossval.json").read_text()), joined)

    def test_a_cross_validation_reports_what_went_wrong(self):
        run = trainer("crossval", "--config", "x.yaml", "--run-dir", "cv", "optimizer.lr=fast", cwd=self.folder)
        self.assertEqual(run.returncode, 2, run.err)
        self.assertIn("optimizer.lr: expected a number", run.err)
        for override, text in (
            ("validation.every_epochs=null", "but this command compares validations; set one of them"),
            ('dataset.split.group="(bad|good)"', "would have no images for validation; choose fewer folds, smaller groups, another dataset.split.seed"),
        ):
            run = trainer("crossval", "--config", "x.yaml", "--run-dir", "cv", override, cwd=self.folder)
            self.assertEqual(run.returncode, 2, run.err)
            self.assertIn(text, run.err)
        self.assertFalse((self.folder / "cv").exists())
        # The experiment divides the data in another way, which every fold replaces.
        self.run_ok("crossval", "--config", "x.yaml", "--folds", "2", "--run-dir", "cv", "dataset.validation_split=0.2", "dataset.split=null")
        shutil.rmtree(self.folder / "cv" / "fold_1")
        self.add_patient(70)
        run = trainer("crossval", "--config", "x.yaml", "--folds", "2", "--run-dir", "cv", "dataset.validation_split=0.2", "dataset.split=null", cwd=self.folder)
        self.assertEqual(run.returncode, 3, run.err)
        self.assertIn("cv/fold_0: the fold was trained on other images, or on another division of them, as its split.csv shows; remove this folder", run.err)
        self.assertFalse((self.folder / "cv/fold_1").exists())
        run = trainer("crossval", "--config", "x.yaml", "--folds", "1", cwd=self.folder)
        self.assertEqual(run.returncode, 2)
        self.assertIn("--folds", run.err)

    def test_a_class_with_one_image_stays_in_training_and_is_named_before_it(self):
        (self.folder / "data/rare").mkdir()
        (self.folder / "data/rare/p99_0.png").write_bytes(png(8, 8, bytes([7]) * 192))
        command = ["crossval", "--config", "x.yaml", "--folds", "2", "--run-dir", "cv", "dataset.split={stratify: true}"]
        for _ in range(2):
            run = trainer(*command, cwd=self.folder)
            self.assertEqual(run.returncode, 0, run.err)
            warning = "in all folds, there are no images for validation of 1 of 3 classes, which no result measures: rare"
            self.assertIn(warning, run.err)
            self.assertLess(run.err.index(warning), run.err.index("run 1 of 2"))
        joined = json.loads((self.folder / "cv/crossval.json").read_text())
        self.assertEqual(sum(fold["num_samples"] for fold in joined["folds"]), 160)
        run = trainer("--config", "x.yaml", "--run-dir", "a", "dataset.split=null", "dataset.validation_split=0.2", cwd=self.folder)
        self.assertIn("there are no images for validation of 1 of 3 classes, which no result measures: rare", run.err)

    def test_a_cross_validation_finds_wrong_labels(self):
        for kind, first in {"dark": 10, "light": 140}.items():
            (self.folder / "tones" / kind).mkdir(parents=True)
            for i in range(40):
                (self.folder / "tones" / kind / f"{i}.png").write_bytes(png(8, 8, bytes([first + 2 * i]) * 192))
        wrong = {f"light/wrong_{tone}.png": tone for tone in (13, 21, 29)}
        for name, tone in wrong.items():
            (self.folder / "tones" / name).write_bytes(png(8, 8, bytes([tone]) * 192))
        command = ["crossval", "--config", "x.yaml", "--folds", "3", "--run-dir", "cv", "--check-labels", "dataset.root=tones", "dataset.split={}",
                   "training.epochs=8", "optimizer.lr=0.1"]
        out = self.run_ok(*command)
        self.assertIn("\nlabels that are probably wrong: 3 of 83 images, in cv/suspected_labels.csv; with the images: cv/suspected_labels.html\n", out)
        with open(self.folder / "cv/suspected_labels.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["path"] for row in rows}, set(wrong))
        for row in rows:
            self.assertEqual((row["label"], row["suggested"]), ("light", "dark"))
            self.assertLess(float(row["probability_of_label"]), float(row["probability_of_suggested"]))
        self.assertEqual(rows, sorted(rows, key=lambda row: float(row["probability_of_label"])))
        self.assertEqual(json.loads((self.folder / "cv/crossval.json").read_text())["suspected_labels"],
                         {"num_suspected": 3, "num_samples": 83, "file": "cv/suspected_labels.csv"})
        page = (self.folder / "cv/suspected_labels.html").read_text()
        self.assertIn("3 of 83 images have labels that are probably wrong", page)
        self.assertIn('<tr><td>light → dark</td><td class="number">3</td>', page)
        self.assertEqual(page.count('<img alt="" src="data:image/jpeg;base64,'), 3)
        (self.folder / "weights.csv").write_text("path,weight\n" + "".join(f"tones/dark/{i}.png,{i}\n" for i in range(40)))
        run = trainer("crossval", "--config", "x.yaml", "--run-dir", "other", "--check-labels", "loss={name: mse}",
                      f"dataset={{name: csv, train: weights.csv, targets: numbers, {TRANSFORMS}}}", cwd=self.folder)
        self.assertEqual((run.returncode, run.err), (2, "error: --check-labels needs one class for each image, but the task is regression; leave it out\n"))
        run = trainer("crossval", "--config", "x.yaml", "--run-dir", "other", "--check-labels", "dataset.on_error=skip", cwd=self.folder)
        self.assertEqual((run.returncode, run.err),
                         (2, "error: --check-labels needs every image of a fold, but dataset.on_error is skip; set it to fail\n"))
        self.assertFalse((self.folder / "other").exists())

    def test_a_sweep_continues_after_a_stop(self):
        command = ["sweep", "--config", "x.yaml", "--run-dir", "sw", "optimizer.lr=0.05,0.01", "seed=1,2", "training.epochs=2"]
        process = subprocess.Popen([BINARY, *command], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while not list(self.folder.glob("sw/lr=0.05,seed=2/checkpoints/step_*.pt")):
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        self.assertIn("stopped on request before all runs were trained; the same command continues", process.communicate()[0].decode())
        self.assertEqual(process.returncode, 75)
        first = (self.folder / "sw/lr=0.05,seed=1/summary.json").read_bytes()
        out = self.run_ok(*command)
        self.assertEqual((self.folder / "sw/lr=0.05,seed=1/summary.json").read_bytes(), first)
        sweep = json.loads((self.folder / "sw/sweep.json").read_text())
        self.assertEqual([pathlib.Path(run["run"]).name for run in sweep["runs"]], ["lr=0.05,seed=1", "lr=0.05,seed=2", "lr=0.01,seed=1", "lr=0.01,seed=2"])
        top1 = [run["metrics"]["top1"] for run in sweep["runs"]]
        for group, lr, values in zip(sweep["groups"], ("0.05", "0.01"), (top1[:2], top1[2:])):
            self.assertEqual((group["values"], group["num_runs"]), ({"optimizer.lr": lr}, 2))
            self.assertAlmostEqual(group["mean"]["top1"], sum(values) / 2, delta=1e-12)
            self.assertAlmostEqual(group["deviation"]["top1"], abs(values[0] - values[1]) / 2 ** 0.5, delta=1e-12)
            self.assertIn(f"optimizer.lr={lr}", out)
        self.assertIn(f"{sum(top1[:2]) / 2:.4f} ± ", out)
        report = trainer("report", "sw", "--output", "report.html", cwd=self.folder)
        self.assertEqual(report.out, "report.html: 4 runs; open it in a browser\n", report.err)

    def test_a_sweep_refuses_all_that_is_wrong_before_the_first_run(self):
        for arguments, texts in (
            (["optimizer.lr=fast,0.1", "seed=1,-1"], ["optimizer.lr: expected a number", "seed: "]),
            (["optimiser.lr=0.1,0.2"], ["optimiser"]),
            (["optimizer.lr=0.1"], ["no key has several values; give some, such as optimizer.lr=0.1,0.01 or seed=1,2,3"]),
            (["validation.every_epochs=null", "seed=1,2"], ["but this command compares validations; set one of them"]),
        ):
            run = trainer("sweep", "--config", "x.yaml", "--run-dir", "sw", *arguments, cwd=self.folder)
            self.assertEqual(run.returncode, 2, run.err)
            for text in texts:
                self.assertIn(text, run.err)
        self.assertFalse((self.folder / "sw").exists())


if __name__ == "__main__":
    unittest.main()
