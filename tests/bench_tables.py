#!/usr/bin/env python3
"""What benchmarks make of their runs for tools/figures, with runs that train nothing: bench/planned.py and bench/accuracy.py; and
their text."""
import contextlib
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
sys.dont_write_bytecode = True
import accuracy  # noqa: E402
import made  # noqa: E402
import planned  # noqa: E402

PASS = 0.01
PREDICTED = {"allreduce": (0.2, 0), "bf16": (0.1, 0.1), "diloco:every=50": (0.02, None), "dgc": (0.01, 0)}  # seconds, and steps more
MEASURED = {"allreduce": 0.2, "bf16": 0.25, "diloco:every=50": 0.025}
PASSES = dict.fromkeys(MEASURED, PASS)  # measured


def run(arguments, rate, folder, command, *words):
    """In place of the program over a shaped link."""
    if command == "plan":
        rows = [{"sync": spec, "step_seconds": seconds, "end_seconds": 0, "extra_steps": more} for spec, (seconds, more) in PREDICTED.items()]
        rows[2]["end_seconds"], rows[2]["step_seconds"] = 0.5, PREDICTED["diloco:every=50"][0] - 0.5 / 300 + 0.5 / 5000
        return {"pass_seconds": PASS, "link": f"a line of {rate}", "choice": "bf16", "candidates": [*rows, {"sync": "sign", "left_out": "why"}]}
    said = dict(zip(words, words[1:]))
    steps = int(said["--steps"])
    return {"seconds": {"training": MEASURED[said["--sync"]] * steps}, "steps": steps, "pass": {"seconds": PASSES[said["--sync"]]}}


class TablesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "planned.json"

    def main(self, module, *words):
        """What a bench writes."""
        with mock.patch.object(sys, "argv", [module.__file__, *map(str, words)]), contextlib.redirect_stdout(io.StringIO()):
            module.main()
        return json.loads(self.path.read_text())

    def plan(self, *words):
        with mock.patch.object(planned, "run", run):
            return self.main(planned, sys.executable, "--json", self.path, *words)["rows"]

    def test_a_plan_beside_what_was_measured(self):
        """bf16 takes 0.25 s and a tenth more steps, where dense takes 0.2 s: 37.5 % more. Of the predictions one is right, one is a
        fifth too short and one 60 %. The run's end counts for more in the 300 steps that are measured than in those of the plan."""
        row, = self.plan("--rates", "10mbit", "--name", "`cnn`, SGD", "image", "--batch", "64")
        self.assertEqual({key: row[key] for key in ("task", "ranks", "rate", "link", "chosen", "best")},
                         {"task": "`cnn`, SGD", "ranks": 2, "rate": "10 Mbit/s", "link": "a line of 10mbit", "chosen": "bf16", "best": "allreduce"})
        for key, wanted in (("behind", 37.5), ("behind_with_passes_alike", 37.5), ("median", 20), ("largest", 60), ("pass_seconds", PASS)):
            self.assertAlmostEqual(row[key], wanted, msg=key)
        self.assertEqual(list(row["steps"]), list(MEASURED))
        self.assertEqual(row["extra_steps"], {spec: PREDICTED[spec][1] for spec in MEASURED})
        for spec, seconds in MEASURED.items():
            for found, wanted in zip(row["steps"][spec], (PREDICTED[spec][0], seconds, PASS)):
                self.assertAlmostEqual(found, wanted, msg=spec)
        self.assertIn("bench/planned.py", row["made"]["command"])
        self.assertEqual(sorted(row["made"]), ["command", "commit", "date", "machine", "program"])

    def test_several_runs_fill_one_table(self):
        self.plan("--rates", "10mbit,1gbit", "image")
        self.plan("--rates", "10mbit", "--ranks", "4", "image")
        with mock.patch.dict(MEASURED, {"bf16": 0.1}):
            rows = self.plan("--rates", "1gbit", "image")
        self.assertEqual([(row["task"], row["ranks"], row["rate"], row["best"]) for row in rows],
                         [("image", 2, "10 Mbit/s", "allreduce"), ("image", 2, "1 Gbit/s", "bf16"), ("image", 4, "10 Mbit/s", "allreduce")])
        page = self.path.with_name("page.md")
        page.write_text(f"<!-- figures {self.path} rows | {{ranks}} | {{behind:.1f}} | -->\n| ranks | behind |\n|---|---|\n")
        subprocess.run([sys.executable, "-B", ROOT / "tools" / "figures", page], check=True)
        self.assertEqual(page.read_text().splitlines()[3:], ["| 2 | 37.5 |", "| 2 | 0.0 |", "| 4 | 37.5 |"])

    def test_a_quick_candidate_is_measured_thrice_in_turn_with_the_others(self):
        """A slow one once. The median of three is not the mean of them, nor the first or the last."""
        quick, asked = iter((0.9, 0.03, 0.01)), []

        def runs(arguments, rate, folder, command, *words):
            if command == "train":
                asked.append(words[words.index("--sync") + 1])
                if asked[-1] == "diloco:every=50":
                    MEASURED["diloco:every=50"] = next(quick)
            return run(arguments, rate, folder, command, *words)

        with mock.patch.dict(MEASURED), mock.patch.object(planned, "run", runs):
            row, = self.main(planned, sys.executable, "--json", self.path, "--rates", "1gbit", "image")["rows"]
        self.assertEqual(asked, ["allreduce", "bf16"] + 3 * ["diloco:every=50"])
        self.assertAlmostEqual(row["steps"]["diloco:every=50"][1], 0.03)

    def test_a_choice_of_unknown_cost_is_behind_nothing(self):
        with mock.patch.dict(PREDICTED, {"bf16": (0.1, None)}):
            row = self.plan("image")[0]
        self.assertEqual((row["behind"], row["behind_with_passes_alike"]), (None, None))

    def test_who_is_the_best_is_told_by_time_and_steps(self):
        """A quick one that takes half as many steps more is before a slow one; whose steps are unknown is no judge of others."""
        rows = [{"sync": "slow", "extra_steps": 0, "took": 10}, {"sync": "quick", "extra_steps": 0.5, "took": 6},
                {"sync": "unknown", "extra_steps": None, "took": 1}]
        for chosen, behind in (("slow", 10 / 9 - 1), ("quick", 0), ("unknown", math.nan)):
            best, found = planned.judge(rows, chosen, lambda row: row["took"])
            self.assertEqual(best, "quick")
            self.assertEqual(f"{found:.9f}", f"{behind:.9f}", chosen)

    def test_a_run_whose_pass_took_longer_is_not_judged_by_it(self):
        """The passes were 0.05, 0.12 and 0.01 s. With the middle one bf16 takes 0.18 s, a tenth more often, and dense 0.2 s."""
        with mock.patch.dict(PASSES, {"allreduce": 0.05, "bf16": 0.12}):
            row, = self.plan("--rates", "10mbit", "image")
        self.assertEqual(row["best"], "allreduce")
        self.assertAlmostEqual(row["behind"], 37.5)
        self.assertAlmostEqual(row["behind_with_passes_alike"], 0)

    def test_a_file_of_another_form_is_told_before_anything_is_measured(self):
        for text in ("", "[]", '{"rows": 1}', '{"rows": [{}]}'):
            self.path.write_text(text)
            told = io.StringIO()
            with contextlib.redirect_stderr(told), self.assertRaises(SystemExit) as ended, mock.patch.object(planned, "at_rate"):
                self.main(planned, sys.executable, "--json", self.path, "image")
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(f"--json {self.path}: ", told.getvalue())
            self.assertEqual(self.path.read_text(), text)

    def test_accuracies(self):
        """Of losses 2 and 4, and of others a tenth and a fifth above them: 15 % above on the mean."""
        losses = {("allreduce", 1): 2.0, ("allreduce", 2): 4.0, ("qsgd --lr 0.1", 1): 2.2, ("qsgd --lr 0.1", 2): 4.8}

        def train(options, spec, seed):
            return {"metric": {"name": "accuracy", "value": 0.5 + 0.1 * seed}, "loss": losses[spec, seed], "seconds": {"wall": 1},
                    "ratio": {"compressed": None, "message": 8, "traffic": 4}}

        with mock.patch.object(accuracy, "train", train):
            found = self.main(accuracy, "--thinwire", sys.executable, "--results", self.path.parent, "--seeds", "1,2", "--json", self.path,
                              "qsgd --lr 0.1")
        dense, row = found["rows"]
        self.assertEqual((dense["losses"], dense["loss"], dense["loss_difference"]), ([2.0, 4.0], 3.0, 0))
        self.assertEqual((row["sync"], row["losses"], row["ratio"]["message"]), ("qsgd --lr 0.1", [2.2, 4.8], 8))
        self.assertAlmostEqual(row["loss"], 3.5)
        self.assertAlmostEqual(row["loss_difference"], 15)
        self.assertAlmostEqual(row["metric"], 65)
        self.assertIn("bench/accuracy.py", found["made"]["command"])

    def test_a_row_of_figures_is_a_line(self):
        """What is too long for one is not, however deep it lies, unless it is numbers alone. Of a number seven digits are written."""
        self.assertEqual(made.as_json([{"loss": 1 / 3, "bytes": 123456789, "losses": (2e9 / 3, 2.5, True)}]),
                         '[{"loss": 0.3333333, "bytes": 123456789, "losses": [666666700.0, 2.5, true]}]')
        rows = [{"name": f'"{i}"', "loss": i / 4, "gap": None, "losses": []} for i in range(20)]
        value = {"made": {"command": "x" * 400}, "at": {"1 Gbit/s": rows}, "steps": 3}
        text = made.as_json(value)
        self.assertEqual(json.loads(text), value)
        self.assertEqual([json.loads(line.rstrip(",")) for line in text.splitlines() if "loss" in line], rows)
        self.assertEqual(len(text.splitlines()), 20 + len("{") + len(["made {", "command", "}"]) + len(["at {", "[", "]", "}"]) + len(["steps", "}"]))
        self.assertEqual([len(made.as_json(one).splitlines()) for one in (list(range(500)), 99 * ["text"])], [1, 101])


if __name__ == "__main__":
    unittest.main()
