"""Ranks with a GPU each, over NCCL: their losses, and which rank is named when one fails. Most of it needs two GPUs."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from gpu_case import EXACT, RESNET, TWO_RANKS, GpuCase, Run, first_gpus, need_gpus, num_gpus, synthetic
from launches import BINARY, LaunchCase
from ports import free_port

# The limit must be longer than the first steps on a GPU, in which CUDA's libraries are loaded and the GPUs are connected.
HANG_SECONDS = int(os.environ.get("TRAINER_TEST_HANG_SECONDS", 20))


class TwoGpusTest(GpuCase):
    NUM_GPUS = 2

    def assert_as_one_process(self, *overrides):
        two, one = self.train(*overrides, launcher=TWO_RANKS, visible=2, devices=["cuda:0", "cuda:1"]), self.train(*overrides)
        self.assert_near(two.losses(), one.losses())
        self.assert_near(*([event["loss"] for event in run.events("validation")] for run in (two, one)))

    def test_nccl_against_one_process(self):
        self.assert_as_one_process(*EXACT)

    def test_synchronised_statistics_of_uneven_parts(self):
        # The last batch has three images or one, so a rank gets one image or none.
        for num_train in (19, 17):
            with self.subTest(num_train=num_train):
                self.assert_as_one_process(*RESNET, *synthetic(num_train), "runtime.dtype=float64",
                                           "dataloader={global_batch_size: 4, shards: exact, drop_last: false}")


class LaunchedGpusTest(GpuCase):
    def test_the_launcher_starts_a_process_for_each_gpu(self):
        self.train(*RESNET, *synthetic(640), "dataloader={batch_size: 8}", launcher=["launch"], visible=num_gpus(),
                   devices=[f"cuda:{number}" for number in range(num_gpus())])


class LibraryTest(unittest.TestCase):
    """An application that uses the process groups without the program."""

    @classmethod
    def setUpClass(cls):
        need_gpus(2)

    def test_a_lost_rank_ends_the_collectives_of_the_others(self):
        with tempfile.TemporaryDirectory(prefix="trainer-gpu-") as folder:
            common = {**os.environ, **first_gpus(2), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                      "FAKE_CUDA_FOLDER": folder}
            program = pathlib.Path(BINARY).parent / "lost_rank"
            ranks = [subprocess.Popen([program], env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True) for rank in range(2)]
            (out, err), _ = [rank.communicate(timeout=120) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 9], err)
        self.assertRegex(out, r"^rank 0: all_reduce among ranks 0, 1 failed: .*(timed out|connection was lost).*; check whether another rank "
                              r"exited or hangs\nthe groups are closed\n$")


class FailuresTest(LaunchCase):
    @classmethod
    def setUpClass(cls):
        need_gpus(2)

    def fail_rank(self, action):
        """Lets rank 1 of two fail in step 3; returns the launcher's exit code and stderr."""
        process = self.start(f"1 training 3 {action}", num_ranks=2, variables=first_gpus(2),
                             settings=["runtime.device=cuda", f"distributed.hang_seconds={HANG_SECONDS}"])
        err = self.end(process, seconds=180)
        self.assertEqual(Run(self.run_dir, process).devices(), ["cuda:0", "cuda:1"])
        return process.returncode, err

    def test_a_killed_rank_is_named(self):
        status, err = self.fail_rank("kill")
        self.assertEqual((status, self.exit_codes()[0]), (137, 4), err)
        self.assert_named(err, 1, r"^rank 1 \(process \d+ on .*\) was killed by signal 9 \(Killed\) in step 3; this rank exits$")

    def test_a_stopped_rank_is_named(self):
        status, err = self.fail_rank("stop")
        self.assertEqual((status, self.exit_codes()[0]), (4, 4), err)
        self.assert_named(err, 1, r"^rank 1 \(process \d+ on .*\) has not answered for more than .*, last seen in step 3; ")

    def test_a_hanging_rank_is_named(self):
        status, err = self.fail_rank("hang")
        self.assertEqual((status, self.exit_codes()), (4, [4, 4]), err)
        self.assert_named(err, 2, r"^rank 1 \(process \d+ on .*\) is stuck: no progress for .* in step 3; ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
