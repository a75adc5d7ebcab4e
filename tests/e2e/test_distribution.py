"""Runs in which one rank reads the data for others (dataset.distribution), and ranks whose data differ. TRAINER_BINARY is the program;
TRAINER_OPENCV is 0 if it was built without OpenCV."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import ENVIRONMENT, results_of, tensors  # noqa: E402
from launches import BINARY, LaunchCase  # noqa: E402
from troubleshooting import plants  # noqa: E402

SCHEMES = ("scatter", "broadcast")
# The classes, the transforms and the validation images are derived from the folder of images.
CONFIG = """\
experiment: distribution
model: {name: demo_conv}
dataset: {name: image_folder, root: images, on_error: fail}
dataloader: {global_batch_size: 6}
optimizer: {name: sgd, lr: 0.001}
training: {epochs: 2}
logging: {every_steps: 1}
runtime: {device: cpu, threads: 1}
"""
CROPS = ["dataset.train_transforms=[random_resized_crop: {size: 32}]", "dataset.validation_transforms=[resize: {size: [32, 32]}]"]


def write_images(folder):
    """Twelve small images in each of two classes."""
    for number in range(24):
        path = folder / ("cat", "dog")[number % 2] / f"{number:02}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = 40 + number, 50 - number
        path.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + bytes(7 * number * i % 251 for i in range(3 * height * width)))


class DistributionTest(LaunchCase):
    def setUp(self):
        super().setUp()
        if os.environ.get("TRAINER_OPENCV") == "0":
            self.skipTest("this build reads no image files")
        self.config = self.folder / "images.yaml"
        self.config.write_text(CONFIG)
        # The path of the images is relative, so only a rank that is started in this folder finds them.
        self.with_images, self.without_images = self.folder / "with", self.folder / "without"
        self.without_images.mkdir()
        write_images(self.with_images / "images")

    def start_rank(self, rank, folder, *settings, world_size=2, prefix=(), command=None):
        variables = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port,
                     "GLOO_SOCKET_IFNAME": "lo"}
        command = command or ["--config", self.config, "--run-dir", self.run_dir, *CROPS, *settings]
        process = subprocess.Popen([*prefix, BINARY, *command], cwd=folder,
                                   env={**ENVIRONMENT, **{name: str(value) for name, value in variables.items()}},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_ranks(self, name, folders, *settings, codes=None, prefixes=None):
        """Runs a rank in each of the folders; returns the stderr of all."""
        self.run_dir = self.folder / name
        processes = [self.start_rank(rank, folder, *settings, world_size=len(folders), prefix=prefixes[rank] if prefixes else ())
                     for rank, folder in enumerate(folders)]
        outputs = [process.communicate(timeout=120)[1] for process in processes]
        self.assertEqual([process.returncode for process in processes], codes or [0] * len(folders), outputs)
        return outputs

    def assert_equal_runs(self, name, other):
        ours, theirs = self.folder / name, self.folder / other
        self.assertEqual(results_of(ours), results_of(theirs))
        self.assertEqual(tensors(ours), tensors(theirs))

    def test_only_readers_need_the_images(self):
        self.run_ranks("local", [self.with_images] * 2)
        other = self.folder / "other"
        (other / "images" / "owl").mkdir(parents=True)
        for scheme, folder in (("scatter", self.without_images), ("broadcast", other)):
            with self.subTest(scheme):
                self.run_ranks(scheme, [self.with_images, folder], f"dataset.distribution={scheme}")
                self.assert_equal_runs(scheme, "local")
                resolved, local = ((self.folder / name / "config.yaml").read_text() for name in (scheme, "local"))
                self.assertEqual(resolved.replace(f"distribution: {scheme}", "distribution: local"), local)
                self.assertIn("num_classes: 2", resolved)
                self.assertEqual((self.folder / scheme / "classes.txt").read_text(), "cat\ndog\n")
        self.run_ranks("refused", [self.with_images, self.without_images], codes=[2, 2])

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_each_host_has_a_reader(self):
        self.run_ranks("local", [self.with_images] * 4)
        hosts = [["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host] for host in ("node-a", "node-a", "node-b", "node-b")]
        folders = [self.with_images, self.without_images] * 2
        self.run_ranks("hosts", folders, "dataset.distribution=scatter", prefixes=hosts)
        self.assert_equal_runs("hosts", "local")
        # If all ranks are in one group, the second host needs no images.
        one_reader = [self.with_images] + 3 * [self.without_images]
        errors = self.run_ranks("missing", one_reader, "dataset.distribution=scatter", prefixes=hosts, codes=[3] * 4)
        self.assertIn("\nerror: rank 2: dataset.root: there is no folder images; ", errors[0])
        self.run_ranks("one", one_reader, "dataset.distribution=scatter", "dataset.distribution_group_size=4", prefixes=hosts)
        self.assert_equal_runs("one", "local")

    def make_other(self, change):
        """Makes another folder in which a rank can be started, and changes its images with `change`."""
        other = self.folder / "other"
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(self.with_images, other)
        change(other)
        return other

    @plants("One rank has other data")
    def test_ranks_with_other_data_are_refused(self, row):
        cat = "images/cat/10.ppm"
        for name, change, text in (
                ("renamed", lambda other: (other / "images/dog").rename(other / "images/ape"),
                 "other training images than rank 0: class 0 is ape, not cat"),
                ("missing", lambda other: (other / cat).unlink(),
                 "23 training images, but rank 0 has 24; the first difference: image 5 is cat/12.ppm of class 0 with 5941 bytes, not "
                 "cat/10.ppm of class 0 with 6013 bytes"),
                ("shortened", lambda other: os.truncate(other / cat, 100),
                 "other training images than rank 0: image 5 is cat/10.ppm of class 0 with 100 bytes, not cat/10.ppm of class 0 with 6013 bytes")):
            with self.subTest(name):
                zero, one = self.run_ranks(name, [self.with_images, self.make_other(change)], codes=[3, 3])
                row.check(self, zero, 3, [3], RANK=1, TEXT=text)
                self.assertEqual(one, "")

    @plants("One rank has other classes")
    def test_ranks_with_other_classes_are_refused(self, row):
        def add_a_class(other):
            (other / "images/owl").mkdir()
            shutil.copy(other / "images/cat/10.ppm", other / "images/owl")

        zero, _ = self.run_ranks("classes", [self.with_images, self.make_other(add_a_class)], codes=[3, 3])
        row.check(self, zero, 3, [3], RANK=1, TEXT="model.num_classes: 3, not 2")

    def test_ranks_with_other_files_of_data_are_refused(self):
        def pack(folder):
            shutil.rmtree(folder / "packed", ignore_errors=True)
            subprocess.run([BINARY, "data", "pack", "--config", self.config, "--output", "packed", *CROPS], cwd=folder, check=True, capture_output=True)

        def pack_fewer(folder):
            (folder / "images/dog/11.ppm").unlink()
            pack(folder)

        rows = [f"images/{('cat', 'dog')[i % 2]}/{i:02}.ppm,{('cat', 'dog')[i % 2]}\n" for i in range(24)]
        (self.with_images / "train.csv").write_text("".join(rows))
        (self.with_images / "validation.csv").write_text(f"{rows[0]}images/dog/07.ppm,dog\n")
        pack(self.with_images)
        for dataset, change, text in (
                ("{name: csv, train: train.csv, validation: validation.csv}",
                 lambda other: (other / "validation.csv").write_text(f"{rows[0]}images/dog/07.ppm,cat\n"),
                 "other validation images than rank 0: image 1 is images/dog/07.ppm of class 0 with 6076 bytes, not images/dog/07.ppm of class 1 "),
                ("{name: lmdb, root: packed}", pack_fewer, "23 training images, but rank 0 has 24; the first difference: image 17 is dog/13.ppm of class 1 ")):
            with self.subTest(dataset):
                folders = [self.with_images, self.make_other(change)]
                zero, _ = self.run_ranks("refused", folders, f"dataset={dataset}", *CROPS, codes=[3, 3])
                self.assertRegex(zero, f"error: rank 1 on .* has {text}")

    def test_an_evaluation_of_other_data_is_refused(self):
        self.run_ranks("trained", [self.with_images] * 2)
        # In a folder with only the class dog, dog has label 0, but the network knows it as label 1.
        shutil.copytree(self.with_images / "images/dog", self.with_images / "dogs/dog")
        for data, change, text in (
                ([], lambda other: os.truncate(other / "images/dog/11.ppm", 100),
                 "other images than rank 0: image 17 is dog/11.ppm of class 1 with 100 bytes, not "),
                (["--data", "dogs"], lambda other: (other / "dogs/dog/23.ppm").unlink(),
                 r"11 images, but rank 0 has 12; the first difference: only rank 0 has image 11, dog/23\.ppm of class 1 with \d+ bytes; ")):
            with self.subTest(data):
                evaluation = ["eval", "--checkpoint", self.run_dir / "checkpoints" / "last.pt", *data]
                folders = (self.with_images, self.make_other(change))
                ranks = [self.start_rank(rank, folder, command=evaluation) for rank, folder in enumerate(folders)]
                zero, one = (rank.communicate(timeout=60)[1] for rank in ranks)
                self.assertEqual([rank.returncode for rank in ranks], [3, 3], zero + one)
                self.assertRegex(zero, f"error: rank 1 on .* has {text}")

    def test_an_image_that_cannot_be_read(self):
        (self.with_images / "images" / "dog" / "11.ppm").write_bytes(b"P6\n")
        folders = [self.with_images, self.without_images]
        for scheme in SCHEMES:
            with self.subTest(scheme):
                zero, one = self.run_ranks(f"failed_{scheme}", folders, f"dataset.distribution={scheme}", codes=[3, 4])
                self.assertRegex(zero, r"error: sample 16, images/dog/11.ppm: ")
                self.assertRegex(one, r"error: rank 0 \(process \d+ on .*\) failed in loading of step \d+; see its own message for the reason")
        self.run_ranks("skip_local", [self.with_images] * 2, "dataset.on_error=skip")
        for scheme in SCHEMES:
            with self.subTest(scheme):
                zero, _ = self.run_ranks(f"skip_{scheme}", folders, "dataset.on_error=skip", f"dataset.distribution={scheme}")
                self.assertEqual(zero.count("skipped (dataset.on_error: skip): sample 16, images/dog/11.ppm"), 1, zero)
                self.assert_equal_runs(f"skip_{scheme}", "skip_local")

    def test_groups_that_do_not_divide_the_ranks(self):
        zero, *others = self.run_ranks("refused", [self.with_images] + 2 * [self.without_images], "dataset.distribution=scatter",
                                       "dataset.distribution_group_size=2", codes=[2, 2, 2])
        self.assertRegex(zero, "dataset.distribution_group_size: 3 processes cannot be divided into groups of 2; choose a divisor")
        self.assertEqual("".join(others), "")

    def test_other_configurations_are_refused_with_the_difference(self):
        for name, own, difference in (("lr", ["dataset.distribution=scatter", "optimizer.lr=0.5"], r"optimizer\.lr: 0\.5, not 0\.001;"),
                                      ("scheme", [], r"dataset\.distribution: local, not scatter[,;]")):
            with self.subTest(name):
                self.run_dir = self.folder / name
                zero = self.start_rank(0, self.with_images, "dataset.distribution=scatter")
                one = self.start_rank(1, self.with_images, *own)
                outputs = [process.communicate(timeout=60)[1] for process in (zero, one)]
                self.assertEqual([zero.returncode, one.returncode], [2, 2], outputs)
                self.assertRegex(outputs[0], r"error: rank 1 on .* has a different configuration from rank 0: .*" + difference)

    def test_a_copy_on_a_local_disk(self):
        self.run_ranks("in_place", [self.with_images] * 2)
        local = self.folder / "local"
        own = local / f"trainer-{os.geteuid()}"
        staged = [f"dataset.stage_to={local}"]
        # A run that fails does not remove its copy; the next run uses the copy and then removes it.
        zero, _ = self.run_ranks("staged", [self.with_images] * 2, *staged, "dataset.validation_split=0.001", codes=[2, 2])
        self.assertIn(f"copying 136.3 KiB of 24 files from {self.with_images}/images to {own}\n", zero)
        self.assertRegex(zero, rf"copied and verified: {own}/images-[0-9a-f]{{8}}/files\n")
        copies = [path.name for path in own.iterdir()]
        zero, _ = self.run_ranks("staged", [self.with_images] * 2, *staged)
        self.assertNotIn("copying", zero)
        self.assert_equal_runs("staged", "in_place")
        self.assertEqual((len(copies), list(own.iterdir())), (1, []))

    def test_a_step_that_is_not_finite(self):
        """The step is repeated from the same samples, and training continues after it."""
        for scheme in ("local", "scatter"):
            self.run_dir = self.folder / scheme
            process = self.start("1 training 3 nan", settings=["training={epochs: 2, on_non_finite: skip}", "validation.every_epochs=2",
                                                               "distributed.hang_seconds=60", f"dataset.distribution={scheme}"])
            err = self.end(process)
            self.assertEqual(process.returncode, 0, err)
            self.assertIn("warning: step 3 is not finite", err)
        self.assert_equal_runs("scatter", "local")

    def test_a_stopped_run_resumes(self):
        straight = ["training.epochs=30", "validation.every_epochs=10"]
        self.run_ranks("straight", [self.with_images] * 2, *straight)
        shared = [*straight, "dataset.distribution=scatter"]
        self.run_dir = self.folder / "stopped"
        processes = [self.start_rank(rank, folder, *shared) for rank, folder in enumerate((self.with_images, self.without_images))]
        self.wait_for(lambda: self.steps_done() > 4)
        processes[1].send_signal(signal.SIGTERM)
        outputs = [process.communicate(timeout=60)[1] for process in processes]
        self.assertEqual([process.returncode for process in processes], [75, 75], outputs)
        self.run_ranks("stopped", [self.with_images, self.without_images], *shared)
        self.assertEqual(tensors(self.folder / "stopped"), tensors(self.folder / "straight"))

    def test_a_killed_rank(self):
        for killed in (0, 1):
            with self.subTest(killed):
                self.run_dir = self.folder / f"killed_{killed}"
                processes = [self.start_rank(rank, folder, "training.epochs=100000", "dataset.distribution=scatter", world_size=3)
                             for rank, folder in enumerate((self.with_images, self.without_images, self.without_images))]
                self.wait_for(lambda: self.steps_done() > 4)
                processes[killed].kill()
                for rank, process in enumerate(processes):
                    err = process.communicate(timeout=60)[1]
                    if rank == killed:
                        continue
                    self.assertEqual(process.returncode, 4, err)
                    self.assertRegex(err, re.compile(rf"error: rank {killed} \(process \d+ on .*\) .*; this rank exits$", re.MULTILINE))


if __name__ == "__main__":
    unittest.main()
