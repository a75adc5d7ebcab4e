"""The .tar.gz of the build TRAINER_BUILD_DIR runs from any folder, with the LibTorch that it includes."""

import os
import pathlib
import subprocess
import tempfile
import unittest


class InstallTest(unittest.TestCase):
    def test_the_archive_is_relocatable(self):
        with tempfile.TemporaryDirectory(prefix="trainer-install-") as folder:
            folder = pathlib.Path(folder)
            subprocess.run(["cpack", "--config", f"{os.environ['TRAINER_BUILD_DIR']}/CPackConfig.cmake", "-G", "TGZ", "-B", folder / "packages",
                            "-D", "CPACK_COMPONENTS_ALL=trainer"], check=True, stdout=subprocess.DEVNULL)
            archive, = (folder / "packages").glob("trainer-*.tar.gz")
            prefix = folder / "a new place"
            prefix.mkdir()
            subprocess.run(["tar", "-xzf", archive, "-C", prefix, "--strip-components=1"], check=True)
            program = prefix / "bin" / "trainer"
            brought = {file.name for file in (prefix / "lib").rglob("*.so*")}
            self.assertIn("libtorch_cpu.so", brought)
            found = subprocess.run(["ldd", program, prefix / "lib/trainer/libtrainer_training.so", prefix / "lib/trainer/torch/lib/libtorch_cpu.so"], capture_output=True, text=True).stdout
            for line in found.splitlines():
                name, _, path = line.strip().partition(" => ")
                if name in brought:
                    self.assertTrue(path.startswith(str(prefix)), line)
            self.assertNotIn("not found", found)
            run = subprocess.run(
                [program, "launch", "--nproc-per-node", "2", "--config", "configs/quickstart.yaml", "training.epochs=1", "dataloader.global_batch_size=500"],
                cwd=prefix / "share" / "trainer",
                capture_output=True,
                text=True,
            )
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue((prefix / "share/trainer/runs/quickstart/summary.json").exists())
            self.assertTrue((prefix / "share/doc/trainer/LICENSE").exists())
            for file in ("trainer/slurm/train.sbatch", "trainer/kubernetes/job.yaml", "doc/trainer/docs/running.md", "bash-completion/completions/trainer", "zsh/vendor-completions/_trainer", "fish/vendor_completions.d/trainer.fish",
                         "man/man1/trainer.1", "man/man1/trainer-launch.1"):
                self.assertTrue((prefix / "share" / file).exists(), file)


if __name__ == "__main__":
    unittest.main()
