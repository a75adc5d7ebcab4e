"""`trainer doctor` on this machine, with the two processes that it starts. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BINARY = os.environ["TRAINER_BINARY"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", **{name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}}


def doctor(*args, **environment):
    return subprocess.run([BINARY, "doctor", *args], env={**ENVIRONMENT, **environment}, capture_output=True, text=True, timeout=300)


class DoctorTest(unittest.TestCase):
    def test_a_host_that_can_train(self):
        with tempfile.TemporaryDirectory(prefix="trainer-doctor-") as folder:
            run = doctor("--json", "--output-dir", folder)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])
        self.assertEqual(run.stderr, "")
        report = json.loads(run.stdout)
        checks = [check for check in report["checks"] if check["name"] in ("LibTorch", "processor", "memory", "output_dir", "all_reduce")]
        for check in checks:
            # The speed of this machine may cause warnings, which do not matter here.
            self.assertIn(check["status"], ("ok", "warning"), check)
        self.assertEqual(len(checks), 5)
        self.assertRegex(checks[-1]["text"], r"^gloo: 16\.0 MiB in .* GB/s\), latency ")
        failed = [check for check in report["checks"] if check["status"] == "failed"]
        self.assertEqual(run.returncode, 1 if failed else 0)
        self.assertEqual(report["status"] == "failed", bool(failed))
        for check in report["checks"]:
            self.assertEqual("cure" in check, check["status"] != "ok", check)

    def test_an_interface_that_does_not_exist(self):
        run = doctor("--output-dir", "/proc", GLOO_SOCKET_IFNAME="nowhere0")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stdout, r"\nfailed  all_reduce +two processes cannot train together: GLOO_SOCKET_IFNAME=nowhere0: ")
        self.assertRegex(run.stdout, r"\nfailed  output_dir +/proc: no file can be written: .*\n +fix +set output_dir ")
        self.assertRegex(run.stdout, r"\n\n\d+ ok, \d+ warnings?, 2 failed\n$")


if __name__ == "__main__":
    unittest.main()
