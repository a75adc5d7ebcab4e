"""Runs under real MPI launchers, with the command lines of scripts/mpi/README.md. Takes half a minute."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import ENVIRONMENT, ROOT, SHORT_RUN, EqualRunsCase, needs, with_fault  # noqa: E402
from ports import free_port  # noqa: E402

# If both are installed, Debian's plain names mpirun and mpiexec belong to one of them, so these names are used.
PROGRAMS = {"mpirun": "mpirun.openmpi", "mpiexec.hydra": "mpiexec.hydra"}
# Open MPI refuses root, the user in a container, without these variables.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def command_lines():
    return [shlex.split(line) for line in re.findall(r"^mpi.*$", (ROOT / "scripts" / "mpi" / "README.md").read_text(), re.MULTILINE)]


class MpiTest(EqualRunsCase):
    @classmethod
    def setUpClass(cls):
        needs([program for program in PROGRAMS.values() if shutil.which(program) is None])
        folder = tempfile.TemporaryDirectory(prefix="trainer-mpi-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "hostfile").write_text((ROOT / "scripts" / "mpi" / "hostfile").read_text().replace("node1", "localhost").replace("node2\n", ""))

    def run_line(self, words, run_dir, *settings, fault=""):
        """Runs the documented command line, changed to two ranks on this host."""
        here = {"scripts/mpi/hostfile": str(self.folder / "hostfile"), "16": "2", "8": "2", "ppr:8:node": "ppr:2:node"}
        port = str(free_port())
        words = [here.get(word, word).replace("node1", "localhost").replace("29500", port) for word in words]
        trainer = words.index("trainer")
        self.assertEqual(words[trainer:], ["trainer", "--config", "FILE"])
        command = [PROGRAMS[words[0]], *words[1:trainer], *with_fault(fault), *SHORT_RUN, "--run-dir", str(run_dir), *settings]
        return subprocess.run(command, cwd=ROOT, env={**ENVIRONMENT, **OPEN_MPI}, capture_output=True, text=True, timeout=120)

    def test_documented_command_lines(self):
        lines = command_lines()
        self.assertEqual([words[0] for words in lines], list(PROGRAMS))
        for words in lines:
            with self.subTest(words[0]):
                run_dir = self.folder / words[0]
                run = self.run_line(words, run_dir)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn("rank 0 of 2 (local rank 0 of 2), from ", (run_dir / "train.log").read_text())
                self.assert_equal_runs(run_dir, self.launch_straight(self.folder, 2))

    def test_stopped_ranks_wait_for_the_last_checkpoint(self):
        """The launcher kills all other ranks when one exits with a code other than 0."""
        for words in command_lines():
            with self.subTest(words[0]):
                run_dir = self.folder / f"stopped_{words[0]}"
                endless = ["training.epochs=100000", "checkpoint={every_steps: null, every_epochs: null}", "validation.every_epochs=100000"]
                run = self.run_line(words, run_dir, *endless, "training.max_minutes=0.1", fault="0 save_half_written 0 wait")
                output = run.stdout + run.stderr
                self.assertEqual(run.returncode, 75, output)
                steps = int(re.search(r"(?m)^stopped +(\d+) steps", output)[1])
                self.assertEqual(sorted(file.name for file in (run_dir / "checkpoints").iterdir()), ["last.pt", f"step_{steps:08}.pt"], output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
