"""The completions, used as the shells use them, and the manual pages that the build TRAINER_BUILD_DIR has written."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PAGES = pathlib.Path(os.environ["TRAINER_BUILD_DIR"]) / "man1"
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "completions"
# The scripts run the program under the name on the line.
ENVIRONMENT = {**os.environ, "PATH": f"{pathlib.Path(os.environ['TRAINER_BINARY']).parent}:{os.environ['PATH']}"}
COMMANDS = subprocess.run([os.environ["TRAINER_BINARY"], "--help"], capture_output=True, text=True, check=True).stdout
COMMANDS = [line.split()[0] for line in COMMANDS.split("commands:\n")[1].split("\n\n")[0].splitlines() if line[2] != " "]


def in_bash(line, folder="/"):
    script = 'source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _trainer_complete; printf "%s\\n" "${COMPREPLY[@]}"'
    run = subprocess.run(["bash", "-c", script, "bash", SCRIPTS / "trainer", line], capture_output=True, text=True, cwd=folder, env=ENVIRONMENT)
    assert run.stderr == "", run.stderr
    return run.stdout.split()


class CompletionTest(unittest.TestCase):
    def test_bash(self):
        self.assertEqual(in_bash("trainer "), ["help", *COMMANDS])
        self.assertEqual(in_bash("trainer hel"), ["help"])
        self.assertEqual(in_bash("trainer help lau"), ["launch"])
        self.assertEqual(in_bash("trainer checkpoint "), ["info", "verify", "diff", "average", "bill-of-materials"])
        self.assertEqual(in_bash("trainer --prog"), ["--progress"])
        self.assertEqual(in_bash("trainer --progress "), ["bar", "plain", "none"])
        self.assertEqual(in_bash("trainer train --config a.yaml --progress=p"), ["plain"])
        self.assertIn("onnx", in_bash("trainer export --format "))
        self.assertIn("optimizers", in_bash("trainer list "))
        self.assertNotIn("--measure", in_bash("trainer doctor --"))
        self.assertEqual(in_bash("trainer list opt"), ["optimizers"])

    def test_keys_in_bash(self):
        self.assertEqual(in_bash("trainer --config a.yaml training.epo"), ["training.epochs="])
        self.assertEqual(in_bash("trainer --config a.yaml runtime.device="), ["auto", "cpu", "cuda"])
        self.assertEqual(in_bash("trainer --config a.yaml runtime.device=cu"), ["cuda"])
        self.assertIn("sgd", in_bash("trainer verify-resume --config a.yaml optimizer.name="))
        self.assertEqual(in_bash("trainer launch --nproc-per-node 2 --config a.yaml training.epo"), ["training.epochs="])
        self.assertIn("--resume", in_bash("trainer launch --nproc-per-node 2 --"))

    def test_files_in_bash(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "my experiment.yaml").touch()
            pathlib.Path(folder, "other.yaml").touch()
            self.assertEqual(in_bash("trainer --config oth", folder), ["other.yaml"])
            self.assertEqual(in_bash("trainer --config a.yaml output_dir=oth", folder), ["other.yaml"])
            self.assertEqual(in_bash("trainer list oth", folder), [])

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        subprocess.run(["zsh", "-n", SCRIPTS / "_trainer"], check=True)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        script = 'source $argv[1]; complete -C "trainer checkpoint "; complete -C "trainer --config a.yaml runtime.device=cu"'
        run = subprocess.run(["fish", "-c", script, SCRIPTS / "trainer.fish"], capture_output=True, text=True, check=True, env=ENVIRONMENT)
        self.assertEqual(run.stderr, "")
        self.assertEqual([line.split("\t")[0] for line in run.stdout.splitlines()], ["average", "bill-of-materials", "diff", "info", "verify", "runtime.device=cuda"])

    def test_each_command_has_a_page(self):
        pages = sorted(file.name for file in PAGES.iterdir())
        self.assertEqual(pages, sorted(["trainer.1", *(f"trainer-{command}.1" for command in COMMANDS)]))

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_pages_are_well_formed(self):
        run = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *sorted(PAGES.iterdir())], capture_output=True, text=True)
        # The pages have no date, because it would change with each build.
        problems = [line for line in run.stdout.splitlines() if "missing date" not in line]
        self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main()
