"""`cmake --install` gives a tree that runs, from another folder. TRAINER_BUILD_DIR names the build."""

import os
import pathlib
import subprocess
import tempfile
import unittest


class InstallTest(unittest.TestCase):
    def test_the_installed_program_trains(self):
        with tempfile.TemporaryDirectory(prefix="trainer-install-") as folder:
            prefix = pathlib.Path(folder) / "prefix"
            subprocess.run(["cmake", "--install", os.environ["TRAINER_BUILD_DIR"], "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
            run = subprocess.run(
                [prefix / "bin" / "trainer", "--config", "configs/quickstart.yaml", "training.epochs=1", "dataloader.global_batch_size=500"],
                cwd=prefix / "share" / "trainer",
                capture_output=True,
                text=True,
            )
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue((prefix / "share/trainer/runs/quickstart/summary.json").exists())
            self.assertTrue((prefix / "share/doc/trainer/LICENSE").exists())


if __name__ == "__main__":
    unittest.main()
