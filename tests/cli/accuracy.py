"""bench/accuracy.py: its figures are those of the runs, and no run is made twice."""
import json
import pathlib
import shlex
import statistics
import sys
import unittest

from asr import write_words
from support import PROGRAM, CommandLineTest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/accuracy.py"


class AccuracyTest(CommandLineTest):
    def make_table(self, *words):
        return self.finish(self.start(sys.executable, "-B", SCRIPT, "--thinwire", PROGRAM, "--results",
                                      self.folder / "runs", "--data", self.data, "--workers", "2", "--epochs", "1",
                                      "--train", "--batch 8", "--json", self.folder / "table.json", *words))

    def test_the_table(self):
        done = self.make_table("--seeds", "1,2", "topk:density=0.01")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 4)
        dense, topk = json.loads((self.folder / "table.json").read_text())["rows"]
        runs = {sync: [self.train("--workers", 2, "--epochs", 1, "--seed", seed, "--sync", sync) for seed in (1, 2)]
                for sync in ("allreduce", "topk:density=0.01")}
        for row in (dense, topk):
            points = [100 * run["metric"]["value"] for run in runs[row["sync"]]]
            self.assertAlmostEqual(row["metric"], statistics.mean(points), places=4)  # of seven digits
            self.assertAlmostEqual(row["spread"], statistics.stdev(points), places=4)
            for name, ratio in row["ratio"].items():
                ratios = [run["ratio"][name] for run in runs[row["sync"]]]
                self.assertEqual(ratio, None if None in ratios else float(f"{statistics.fmean(ratios):.7g}"), name)
            self.assertIn(f"| `{row['sync']}` | {row['metric']:.2f} ± {row['spread']:.2f} |", done.stdout)
        self.assertEqual(dense["difference"], 0)
        self.assertAlmostEqual(topk["difference"], topk["metric"] - dense["metric"], places=4)

    def test_a_run_that_is_there_is_not_made_again(self):
        first = self.make_table("--seeds", "1", "topk")
        again = self.make_table("--seeds", "1", "topk")
        self.assertEqual((again.returncode, again.stderr, again.stdout), (0, "", first.stdout))
        more = self.make_table("--seeds", "1,2", "topk")
        self.assertEqual(len(more.stderr.splitlines()), 2)

    def test_other_tasks_have_their_own_metric(self):
        words = write_words(self.folder / "words")
        recipe = ("--hidden", "8", "--features", "rate=8000,bins=20")
        done = self.make_table("--task", "asr", "--data", words, "--train", shlex.join(("--batch", "2", *recipe)),
                               "--seeds", "1", "topk")
        self.assertEqual(done.returncode, 0, done.stderr)
        run = self.run_program("train", "asr", "--data", words, "--batch", 2, *recipe, "--workers", 2, "--epochs", 1,
                               "--sync", "topk", "--quiet", "--json", "-")
        rate = 100 * json.loads(run.stdout)["metrics"]["wer"]
        self.assertIn("| sync | wer % |", done.stdout)
        self.assertIn(f"| `topk` | {rate:.2f} ± - |", done.stdout)
        self.assertEqual(self.make_table("--task", "asr", "--cifar", words).returncode, 2)

    def test_a_program_that_is_not_there_is_named(self):
        done = self.make_table("--thinwire", "/nonexistent/thinwire")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--thinwire /nonexistent/thinwire", done.stderr.splitlines()[-1])

    def test_a_run_that_fails_is_told_and_missing(self):
        done = self.make_table("--seeds", "1", "topk:densty=1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("densty", done.stderr)
        self.assertIn("(0 of 1)", done.stdout)


if __name__ == "__main__":
    unittest.main()
