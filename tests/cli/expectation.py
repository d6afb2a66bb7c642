"""--expect-ratio: a run that did not compress as it was told to fails, and keeps what it made."""
import json
import unittest

from support import CommandLineTest

TOPK = ("--sync", "topk:density=0.01", "--steps", 3)


class ExpectationTest(CommandLineTest):
    def test_what_is_reached_passes_and_a_little_more_does_not(self):
        for workers in (1, 2):
            ratio = self.train("--workers", workers, *TOPK)["ratio"]["message"]
            self.train("--workers", workers, *TOPK, "--expect-ratio", 0.999 * ratio)
            self.refuse_training(2, ["--expect-ratio", f"{ratio:.4g}", "thinwire schemes topk"], "--workers", workers,
                                 *TOPK, "--expect-ratio", 1.001 * ratio)

    def test_nothing_is_lost(self):
        out = self.folder / "run"
        self.refuse_training(2, ["--expect-ratio"], *TOPK, "--out", out, "--expect-ratio", 1e6)
        self.assertEqual(json.loads((out / "summary.json").read_text())["steps"], 3)
        self.assertEqual([path.name for path in out.glob("checkpoints/*")], ["step-00000003"])

    def test_a_run_that_never_left_its_warm_up_fails(self):
        dgc = ("--sync", "dgc-bold:warmup_steps=8", "--expect-ratio", 5, "--workers", 2)
        self.refuse_training(2, ["--expect-ratio", "warm-up"], *dgc, "--steps", 8)
        self.train(*dgc, "--steps", 9)

    def test_a_dense_run_has_ratio_one(self):
        self.train("--steps", 2, "--expect-ratio", 1)
        self.refuse_training(2, ["ratio of 1 ", "100 %"], "--steps", 2, "--expect-ratio", 1.01)


if __name__ == "__main__":
    unittest.main()
