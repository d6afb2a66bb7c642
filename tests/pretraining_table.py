#!/usr/bin/env python3
"""bench/pretraining.py with a program that trains nothing: which runs it makes, from what, and what it makes of them."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "bench" / "pretraining.py"
PROGRAM = f"#!{sys.executable} -SE\n" + """import json, os, pathlib, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    print(*words, file=calls)
resumed = words[1] == "--resume"
folder = pathlib.Path(words[2] if resumed else words[words.index("--out") + 1])
(folder / "checkpoints/step-1").mkdir(parents=True, exist_ok=True)
ends = json.loads(os.environ["ENDS"]).get(folder.name)
if ends and not resumed:
    sys.exit(ends)
seed = int(words[words.index("--seed") + 1]) if "--seed" in words else 1
metrics = {"cer": 0.3 + 0.1 * seed, "wer": 0.9} if "min-" in folder.name else {
    "contrastive_loss": 2.0, "contrastive_chance": 3.5, "accuracy": 0.4, "masked_gain": 0.25, "hard_perplexity": 30.0,
    "information": 1.25}
(folder / "summary.json").write_text(json.dumps({"metrics": metrics, "seconds": {"training": 90},
                                                 "ratio": {"message": None, "traffic": 1.0}}))
"""


class PretrainingTable(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.work)
        self.speech, self.calls = self.work / "speech", self.work / "calls"
        self.speech.mkdir()
        (self.speech / "unlabelled.json").write_text("")
        self.program = self.work / "thinwire"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def table(self, *words, ends=None, code=0):
        done = subprocess.run([sys.executable, "-B", SCRIPT, self.speech, "--program", self.program, "--out",
                               self.work / "runs", *words], capture_output=True, text=True, check=False,
                              env={**os.environ, "CALLS": str(self.calls), "ENDS": json.dumps(ends or {})})
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def made(self):
        """The runs that were made since the last look, and their words."""
        text = self.calls.read_text() if self.calls.exists() else ""
        self.calls.write_text("")
        return [line.split() for line in text.splitlines()]

    def names(self):
        return [pathlib.PurePath(words[-1] if "--out" not in words else words[words.index("--out") + 1]).name
                for words in self.made()]

    def test_what_decides_comes_first_and_begins_with_what_it_needs(self):
        self.table("--only", "5min", "--json", self.work / "table.json")
        made = self.made()
        self.assertEqual(len(made), 6 + 3 * 9 + 18)  # encoders; scratch, plain, longer, w2v1, five others; probes of all
        self.assertEqual([words[1] for words in made[:3]], ["w2v-bert", "asr", "asr"])
        begun = set()
        for words in made:
            folder = words[words.index("--out") + 1]
            if "--init-from" in words:
                self.assertIn(words[words.index("--init-from") + 1], begun)
            begun.add(folder)
            data = words[words.index("--data") + 1]
            self.assertTrue(data.endswith(("unlabelled.json", "unlabelled-no-czech.json"))
                            or data.endswith(f"train-5min-{words[words.index('--seed') + 1]}.json"), data)
        tables = json.loads((self.work / "table.json").read_text())
        scratch = next(row for row in tables["tuned"] if row["row"] == "scratch-5min")
        self.assertEqual([round(one) for one in scratch["cer"]], [40, 50, 60])
        self.assertEqual(len(tables["pretrained"]), 6)

    def test_plain_runs_differ_from_scratch_in_what_varies_and_in_steps(self):
        for only in ("scratch-5min-2", "plain-5min-2"):
            self.table("--only", only, "--tuning-steps", "300")
        made = {pathlib.PurePath(words[words.index("--out") + 1]).name: words for words in self.made()}
        scratch, plain = made["scratch-5min-2"], made["plain-5min-2"]
        self.assertEqual([word for word in scratch if word not in plain],
                         ["300", "--dropout", "0.1", "--tempo", "0.1", "--time-masks", "--time-mask", "10",
                          "--frequency-masks", "--frequency-mask", "8", str(self.work / "runs/scratch-5min-2")])
        self.assertEqual([word for word in plain if word not in scratch], ["150", str(self.work / "runs/plain-5min-2")])

    def test_the_tables(self):
        text = self.table("--only", "scratch-5min").stdout
        self.assertIn("| scratch-5min | 3 | 50.0 (40.0 to 60.0) | 90.0 (90.0 to 90.0) | 1.5 |", text)
        text = self.table("--only", "sync-dense").stdout
        self.assertIn("| sync-dense | 1.50 | 0.40 | 0.25 | 30.0 | 1.25 | - | 1.0 | 2 |", text)

    def test_no_run_is_made_twice_and_one_that_broke_off_is_resumed(self):
        done = self.table("--only", "scratch-5min", ends={"scratch-5min-2": 2}, code=1)
        self.assertIn("scratch-5min-2 ended with 2; run this again to go on with it", done.stderr)
        self.assertEqual(self.names(), ["scratch-5min-1", "scratch-5min-2"])
        self.table("--only", "scratch-5min")
        made = self.made()
        self.assertEqual(made[0], ["train", "--resume", str(self.work / "runs/scratch-5min-2")])
        self.assertEqual(len(made), 2)
        self.table("--only", "scratch-5min")
        self.assertEqual(self.names(), [])

    def test_a_collapse_is_a_result_and_nothing_begins_with_it(self):
        done = self.table("--only", "masked-5min", ends={"masked": 4})
        self.assertEqual(self.names(), ["masked"])
        self.assertIn("| masked | collapsed |", done.stdout)

    def test_it_lists_and_shows_without_a_run(self):
        lines = self.table("--list", "--only", "scratch-5min").stdout.splitlines()
        self.assertEqual([line.split()[:2] for line in lines], [["to", "do"]] * 3)
        self.table("--table")
        self.assertEqual(self.names(), [])

    def test_refusals(self):
        self.assertIn("no run's name holds 7min", self.table("--only", "7min", code=1).stderr)
        (self.speech / "unlabelled.json").unlink()
        self.assertIn("tools/debian-speech", self.table(code=2).stderr)


if __name__ == "__main__":
    unittest.main()
