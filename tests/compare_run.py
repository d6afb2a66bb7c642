#!/usr/bin/env python3
"""bench/compare.py with the program itself, for a few steps: what it writes is enough to make its runs again. `compare_run.py
THINWIRE`"""
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = sys.argv.pop()
STEPS, WORKERS = 20, 2
TEXT = "".join(f"{i} times {i + 1} is {i * (i + 1)}.\n" for i in range(400))


class CompareRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        cls.text = cls.work / "text"
        cls.text.write_text(TEXT)
        subprocess.run([sys.executable, "-B", ROOT / "bench" / "compare.py", "--quick", "--only", "--also", ":bf16", "--text", cls.text,
                        "--steps", str(STEPS), "--seeds", "1", "--workers", str(WORKERS), "--program", PROGRAM, "--out", cls.work / "out"],
                       check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        cls.found = json.loads((cls.work / "out" / "compare.json").read_text())
        cls.arms = {arm["name"]: arm for arm in cls.found["tasks"]["transformer"]["arms"]}

    def test_what_each_arm_reached(self):
        """Dense sends each worker's parameters once in a step of two, and bf16 half of that."""
        self.assertEqual(list(self.arms), ["one worker", "dense", "bf16"])
        for (name, arm), share in zip(self.arms.items(), (0, 1, 0.5)):
            with self.subTest(name):
                run, = arm["runs"]
                self.assertEqual((run["seed"], run["loss"]), (1, arm["loss"]))
                self.assertAlmostEqual(run["sent"] / (4 * arm["parameters"] * STEPS), share, delta=1e-3)
                self.assertEqual(run["curve"]["steps"], [1, 10, STEPS])
                self.assertEqual(run["curve"]["losses"], sorted(run["curve"]["losses"], reverse=True))
                self.assertLess(run["loss"], run["curve"]["losses"][0])
                self.assertGreater(self.found["wall_seconds"], run["seconds"]["wall"])
                self.assertGreater(run["seconds"]["wall"], 0)

    def test_what_it_learned(self):
        self.assertEqual(self.found["tasks"]["transformer"]["data"],
                         {"path": str(self.text), "sha256": hashlib.sha256(TEXT.encode()).hexdigest()})

    def test_its_command_makes_the_run_again(self):
        """With the same bits, and the same curve to the digits that are written."""
        for name, arm in self.arms.items():
            with self.subTest(name):
                run, out = arm["runs"][0], self.work / name
                subprocess.run([PROGRAM, *shlex.split(arm["command"])[1:], "--out", out, "--quiet"], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
                summary = json.loads((out / "summary.json").read_text())
                self.assertEqual((summary["weights_crc32c"], summary["bytes"]["sent"]), (run["weights"], run["sent"]))
                told = [row for row in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if row["kind"] == "step"]
                self.assertEqual([row["step"] for row in told], run["curve"]["steps"])
                for row, loss in zip(told, run["curve"]["losses"]):
                    self.assertAlmostEqual(row["loss"] / loss, 1, places=6)


if __name__ == "__main__":
    unittest.main()
