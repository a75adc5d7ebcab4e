"""The decisions of scripts/gpu_kit/run.py."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts" / "gpu_kit"), str(ROOT / "tests" / "testing")]
import run  # noqa: E402


def figures(**rates):
    """`rates`: the images per second of ResNet-18 and ResNet-50 by contender."""
    titles = (run.Decisions.SMALL, run.Decisions.LARGE)
    return {"results": {title: {"contenders": [{"name": name.replace("_", ", "), "median": pair[i]} for name, pair in rates.items()]}
                        for i, title in enumerate(titles)}}


def decisions(steps, measured):
    return [row["decision"] for row in run.Decisions(steps, measured).all()]


class DecisionsTest(unittest.TestCase):
    PASSED = {"gpu_test": True, "bits of a graph": True}

    def test_nothing_measured(self):
        self.assertEqual(decisions({}, {}), ["open"] * 4)

    def test_fused_kernels(self):
        for fused, passed, expected in (((102, 102), True, "yes"), ((150, 101), True, "no"), ((150, 150), False, "no"), ((150, 150), None, "open")):
            with self.subTest(fused=fused, passed=passed):
                steps = {} if passed is None else {"gpu_test": passed}
                self.assertEqual(decisions(steps, figures(ours=(100, 100), ours_fused=fused))[0], expected)

    def test_a_failed_test_needs_no_figures(self):
        self.assertEqual(decisions({"gpu_test": False, "bits of a graph": False}, {})[:2], ["no", "no"])

    def test_graphs_and_python(self):
        rates = figures(ours=(100, 100), **{"ours_CUDA graph": (200, 99), "Python_eager": (150, 120)})
        self.assertEqual(decisions(self.PASSED, rates), ["open", "yes", "yes", "no"])
        self.assertEqual(decisions({"compute-sanitizer": False}, rates)[4], "no")

    def test_the_last_case_was_not_measured(self):
        rates = figures(ours=(100, 100), ours_fused=(110, 110))
        del rates["results"][run.Decisions.LARGE]
        self.assertEqual(decisions(self.PASSED, rates), ["open"] * 4)


class KillTest(unittest.TestCase):
    def test_process_groups_of_their_own(self):
        with subprocess.Popen(["sh", "-c", "timeout 60 sh -c 'echo started; sleep 60'"], stdout=subprocess.PIPE, text=True,
                              start_new_session=True) as process:
            self.assertEqual(process.stdout.readline(), "started\n")
            run.kill_session(process.pid)
            # The pipe ends when no process holds it any longer.
            self.assertEqual(process.stdout.read(), "")


if __name__ == "__main__":
    unittest.main()
