"""`trainer checkpoint bill-of-materials`: the file fits the schema of CycloneDX, and says what the run was made of. TRAINER_BINARY is the
program."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "testing"))
from check_cyclonedx import check  # noqa: E402


def trainer(*arguments):
    return subprocess.run([os.environ["TRAINER_BINARY"], *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)


class BillOfMaterialsTest(unittest.TestCase):
    def test_of_a_run_and_of_a_copied_checkpoint(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-bill-")
        self.addCleanup(folder.cleanup)
        run = pathlib.Path(folder.name, "run")
        config = ("--config", "configs/digits.yaml", "training.epochs=1", "runtime.device=cpu")
        first = trainer(*config, "--run-dir", run)
        self.assertEqual(first.returncode, 0, first.stderr)
        best = run / "checkpoints" / "best.pt"
        written = trainer("checkpoint", "bill-of-materials", run)
        self.assertEqual((written.returncode, written.stdout), (0, f"wrote {run}/checkpoints/best.cdx.json\n"), written.stderr)
        bill = check(best.with_suffix(".cdx.json"))
        model, parts = bill["metadata"]["component"], {part["bom-ref"]: part for part in bill["components"]}
        self.assertEqual(model["hashes"][0]["content"], hashlib.sha256(best.read_bytes()).hexdigest())
        environment, evaluation = (json.loads((run / name).read_text()) for name in ("environment.json", "evaluation.json"))
        measured = {metric["type"]: metric["value"] for metric in model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]}
        self.assertEqual(float(measured["top1"]), evaluation["metrics"]["top1"])
        self.assertEqual(parts["libtorch"]["version"], environment["libtorch_version"])
        self.assertEqual(parts["configuration"]["data"][0]["contents"]["attachment"]["content"], (run / "config.yaml").read_text())
        data = {entry["name"]: entry["value"] for entry in parts["data"]["properties"]}
        for part in ("training", "validation"):
            self.assertRegex(data[f"trainer:{part}_samples"], r"^\d+ samples, digest [0-9a-f]{16}$")
        self.assertEqual(data["trainer:training_samples"].split()[0], data["trainer:num_train"])

        # Without the files of its run; the next run starts from its weights.
        copy = pathlib.Path(folder.name, "copy.pt")
        copy.write_bytes(best.read_bytes())
        second = trainer(*config, "--run-dir", run.with_name("second"), f"model.init_from={copy}")
        self.assertEqual(second.returncode, 0, second.stderr)
        output, other = (pathlib.Path(folder.name, f"{name}.json") for name in ("bill", "other"))
        self.assertEqual(trainer("checkpoint", "bill-of-materials", copy, "--output", output).returncode, 0)
        self.assertEqual([part["bom-ref"] for part in check(output)["components"]], ["data", "configuration", "trainer"])
        second = trainer("checkpoint", "bill-of-materials", run.with_name("second"), "--output", other)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn(("init_from", str(copy)), [(part["bom-ref"], part["name"]) for part in check(other)["components"]])


if __name__ == "__main__":
    unittest.main()
