"""Every row of docs/troubleshooting.md is tested by injecting its fault, and every fault that a test injects has a row."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import test_checkpoints  # noqa: E402
import test_container  # noqa: E402
import test_cuda_module  # noqa: E402
import test_datasets  # noqa: E402
import test_distribution  # noqa: E402
import test_eval  # noqa: E402
import test_event_command  # noqa: E402
import test_failures  # noqa: E402
import test_hosts  # noqa: E402
import test_image_folder  # noqa: E402
import test_lmdb  # noqa: E402
import test_ranks  # noqa: E402
import test_refused_starts  # noqa: E402
import test_report  # noqa: E402
import test_slurm  # noqa: E402
import test_stopping  # noqa: E402
import test_trainer  # noqa: E402
from troubleshooting import PAGE, PLACEHOLDERS, read_rows  # noqa: E402

CASES = (test_checkpoints.CheckpointsTest, test_container.ContainerTest, test_cuda_module.CudaModuleTest, test_datasets.DatasetsTest, test_distribution.DistributionTest,
         test_eval.EvalTest, test_eval.PredictTest, test_event_command.EventCommandTest, test_failures.FailuresTest, test_hosts.HostsTest, test_image_folder.ImageFolderTest, test_lmdb.LmdbTest,
         test_ranks.RanksTest, test_refused_starts.RefusedStartsTest, test_report.ReportTest, test_slurm.SlurmTest, test_stopping.StoppingTest, test_trainer.TrainerTest)


class TroubleshootingTest(unittest.TestCase):
    def test_every_row_is_planted(self):
        planted = {name for case in CASES for test in vars(case).values() for name in getattr(test, "rows", ())}
        written = [row.name for row in read_rows()]
        self.assertEqual(sorted(planted), sorted(written))

    def test_every_row_has_a_remedy(self):
        for row in read_rows():
            self.assertTrue(row.remedy, row.name)

    def test_every_placeholder_is_explained(self):
        text = PAGE.read_text()
        opening = text[:text.index("\n|")]
        for word in PLACEHOLDERS:
            self.assertIn(f"`{word}`", opening)


if __name__ == "__main__":
    unittest.main()
