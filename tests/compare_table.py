#!/usr/bin/env python3
"""bench/compare.py with a program that trains nothing, whose losses follow from rate and seed: which runs it makes, what it takes
of them, and what it makes of that."""
import argparse
import contextlib
import hashlib
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "bench" / "compare.py"
sys.path.insert(0, str(SCRIPT.parent))
sys.dont_write_bytecode = True
import adapters  # noqa: E402
import compare  # noqa: E402
import shards  # noqa: E402

START = subprocess.run
PROGRAM = f"#!{sys.executable} -SE\n" + """import os, sys  # some hundred of it start, and what json alone would load takes half of their time
def as_json(one):
    return repr(one).replace("'", '"')  # of texts and numbers
def write(path, content, mode="w"):
    with open(path, mode) as file:
        file.write(content)
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    print(*words, file=calls)
said = dict(zip(words, words[1:]))
if words[0] == "report":
    os.stat(os.path.dirname(said["--out"]) + "/compare.json")  # which is there, whatever becomes of the page
    write(said["--out"], "a page")
    sys.exit()
if words[0] == "simulate":
    slow = 2 if "--slow" in words else 1
    print(as_json({"runs": [{"step_seconds": slow * {"1Gbit,0.1ms": 1, "100Mbit,1ms": 2, "10Mbit,5ms": 3}[said["--link"]]}]}))
    sys.exit()
rate, seed, sync = float(said["--lr"]), int(said["--seed"]), said["--sync"]
if sync == "qsgd" and rate > 0.08:
    sys.exit(4)
loss = (rate - 0.1) ** 2 + seed + {"bf16": 0.25 * seed}.get(sync, 0)
if "text-unlike-" in said.get("--data", ""):
    loss += 1.5 if sync.startswith("diloco") else 1
folder = said["--out"]
model = folder + "/checkpoints/step-1"
os.makedirs(model)
header = as_json({"__metadata__": {}, "fc.weight": {"dtype": "F32", "shape": [3, 2]}, "step": {"dtype": "U64", "shape": []},
                     "optimiser.momentum.fc.weight": {"dtype": "F32", "shape": [3, 2]}}).encode()
write(model + "/model.safetensors", len(header).to_bytes(8, "little") + header, "wb")
write(folder + "/metrics.jsonl", as_json({"kind": "start", "data": said.get("--data", os.environ["PICTURES"])}) + "\\n" + "".join(
    as_json({"kind": "step", "step": i, "loss": loss / i}) + "\\n" for i in (1, 2)))
write(folder + "/summary.json", as_json({
    "sync": sync, "loss": loss, "validation": {"loss": loss}, "metric": {"name": "accuracy", "value": 0.5}, "parameters": 6,
    "bytes": {"sent": 4e6}, "weights_crc32c": "0", "ratio": {"message": 8, "traffic": 4}, "seconds": {}, "pass": {"seconds": 0.5}}))
"""


class CompareTable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.program, self.calls = self.work / "thinwire", self.work / "calls"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)
        self.pictures = self.work / "pictures"
        self.pictures.mkdir()
        for name in ("train-images", "test-images"):
            (self.pictures / name).write_text(name)

    def command(self, *words):
        return [str(SCRIPT), "--program", str(self.program), "--out", str(self.work / "out"), "--steps", "60", *words]

    def environment(self):
        return {"CALLS": str(self.calls), "PICTURES": str(self.pictures)}

    def compare(self, *words, code=0, task="cnn"):
        """In this process, runs of the program included: some hundreds of starts would take longer than all else."""
        said, ended = io.StringIO(), 0
        compare.bytes_in.cache_clear()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), mock.patch.dict(os.environ, self.environment()), \
                mock.patch.multiple(sys, argv=self.command(*words), path=list(sys.path)), mock.patch.object(subprocess, "run", self.run_here):
            try:
                compare.main()
            except SystemExit as exit_:
                ended = exit_.code
        self.assertEqual(ended, code, said.getvalue())
        return said.getvalue() if code else self.found(task)

    def found(self, task):
        found = json.loads((self.work / "out" / "compare.json").read_text())
        self.assertGreater(found["wall_seconds"], 0)
        self.assertEqual(sorted(found["made"]), ["command", "commit", "date", "machine", "program"])
        return found["tasks"][task]

    def run_here(self, command, **how):
        """As subprocess.run, which other programs are started by."""
        if command[0] != str(self.program):
            return START(command, **how)
        said, code = io.StringIO(), 0
        with contextlib.redirect_stdout(said), mock.patch.object(sys, "argv", list(map(str, command))):
            try:
                exec(compile(PROGRAM, command[0], "exec"), {})
            except SystemExit as ended:
                code = ended.code or 0
        return subprocess.CompletedProcess(command, code, said.getvalue(), "")

    def trained(self):
        """Of each arm the runs that were made since the last look: (steps, seed, rate). One worker takes as many steps as the
        others, or four times as many."""
        runs = {}
        for line in self.calls.read_text().splitlines():
            said = dict(zip(line.split(), line.split()[1:]))
            if line.startswith("train"):
                steps = int(said["--steps"])
                runs.setdefault((said["--workers"], said["--sync"], 4 if steps in (80, 240) else 1), []).append(
                    (steps, said["--seed"], float(said["--lr"])))
        self.calls.write_text("")
        return runs

    def test_all_arms_have_as_many_runs_and_the_same_seeds(self):
        """And what is made of them."""
        self.check_what_is_made(self.compare("--seeds", "2", "--grid", "0.5,1,2"))
        trained = self.trained()
        for arm, runs in trained.items():
            tuning, rest, times = runs[:3], runs[3:], arm[2]
            self.assertEqual([(steps, seed) for steps, seed, _ in tuning], [(20 * times, "1000")] * 3, arm)
            self.assertEqual([rate for *_, rate in tuning], [0.025, 0.05, 0.1])
            self.assertEqual([(steps, seed) for steps, seed, _ in rest], [(60 * times, "1"), (60 * times, "2")], arm)
            self.assertEqual({rate for *_, rate in rest}, {0.05 if arm[1] == "qsgd" else 0.1}, arm)  # beyond that qsgd diverges
        self.assertEqual({arm for arm in trained if arm[0] == "1"}, {("1", "allreduce", 1), ("1", "allreduce", 4), ("1", "diloco:every=20", 4)})
        momenta = [arm[1] for arm in trained if "momentum" in arm[1]]
        self.assertEqual(momenta, ["diloco:every=20,outer_momentum=0", "diloco:every=20,outer_momentum=0.9"])
        self.compare("--seeds", "2", "--grid", "0.5,1,2")
        self.assertEqual(self.trained(), {})
        self.compare("--seeds", "2", "--grid", "0.5,1,2", "--long")
        self.assertEqual(set(self.trained()), {("1", "diloco:every=50", 4), *(("4", f"diloco:every=50,outer_momentum={m}", 1) for m in ("0", "0.9"))})

    def test_what_each_reaches_in_one_time(self):
        """The fastest arm that is no control takes 10 s; one of half the pace has half of its steps then, and one that is as slow as
        can be not even a first figure."""
        curves = {name: [[(10 * i, float(seed * 100 - i)) for i in range(1, 11)] for seed in (1, 2)] for name in ("fast", "half", "slow", "end")}
        arms = [{"name": name, "control": name == "end", "steps": 100, "seconds": {line: seconds for line in compare.LINES}}
                for name, seconds in (("fast", 10), ("half", 20), ("slow", 101), ("end", 5))]
        self.assertEqual(compare.add_in_time(arms, curves), {line: {"name": "fast", "seconds": 10} for line in compare.LINES})
        for arm, steps, loss in zip(arms, (100, 50, 9, 100), (142, 147, None, 142)):
            self.assertEqual((arm["steps_in_time"]["slow"], arm["in_time"]["slow"]), (steps, loss), arm["name"])

    def test_parts_of_a_text(self):
        """Unlike ones hold other speakers; what is trained on is the same otherwise, and what is tested on wholly. With them dense
        loses 1, and diloco a half more, which is what it then is behind."""
        text = self.work / "play"
        blocks = [f"{speaker}:\nSpeech {i}." for i in range(300) for speaker in ("Romeo", "Juliet")]
        text.write_text("\n\n".join(blocks) + "\n")
        like, unlike = (shards.arrange(text, self.work, how) for how in shards.WAYS)
        trained = [sorted(shards.blocks_of((one / "train.txt").read_text())) for one in (like, unlike)]
        self.assertEqual(*trained)
        said = [block.partition(":")[0] for block in shards.blocks_of((unlike / "train.txt").read_text())]
        self.assertEqual(said, sorted(said))
        self.assertNotEqual((like / "train.txt").read_text(), (unlike / "train.txt").read_text())
        for name in ("valid.txt", "test.txt"):
            self.assertEqual((like / name).read_bytes(), (unlike / name).read_bytes())
        self.assertTrue(text.read_text().endswith((like / "valid.txt").read_text() + (like / "test.txt").read_text()))
        rows = self.compare("--seeds", "2", "--grid", "1", "--text", str(text), task="transformer")["shards"]
        self.assertEqual([row["name"] for row in rows], ["dense", "dgc-adam", "diloco:every=20", "sparseloco:every=20,k=256,agg=senders"])
        self.assertIn("text-unlike-", rows[0]["runs"][1]["commands"]["unlike"])
        there = text.read_bytes()
        text.write_bytes(there.replace(b"\n", b"\r\n"))  # as another system has it
        self.assertTrue(shards.has_blocks(text))
        self.assertEqual([shards.arrange(text, self.work, how) for how in shards.WAYS], [like, unlike])
        self.assertFalse(shards.has_blocks(self.work))
        text.write_bytes(b"Romeo: Speech.\n" * 99 + b"\n\nJuliet.\n")
        self.assertFalse(shards.has_blocks(text))  # what is trained on is one block
        text.write_text("Romeo: Speech.\nJuliet: Speech.\n")
        self.assertFalse(shards.has_blocks(text))
        for row, behind in zip(rows, (0, 0, 0.5, 0)):
            self.assertAlmostEqual(row["unlike"] - row["like"], 1 + behind)
            for how, wanted in (("like", 0), ("unlike", behind)):
                self.assertAlmostEqual(row[f"behind_{how}"], wanted)
                self.assertAlmostEqual(row[f"behind_{how}_half"], 0)

    def test_a_run_is_made_again_where_a_file_has_changed(self):
        """Each has its old name, and some their old size."""
        files = {name: self.work / name for name in ("text", "libmine.so", "libthinwire.so")}
        options = argparse.Namespace(program=str(self.program), out=self.work)
        words = ["--lr", "1", "--seed", "1", "--sync", "mine", "--data", str(files["text"]), "--plugin", str(files["libmine.so"])]

        def runs():
            compare.bytes_in.cache_clear()
            with mock.patch.dict(os.environ, self.environment()):
                compare.run(options, words)
                compare.run(options, words)
            return len(self.calls.read_text().splitlines())

        self.assertEqual((runs(), runs()), (1, 1))
        for count, file in enumerate(files.values(), 2):
            file.write_text("one")
            self.assertEqual(runs(), 2 * count - 2)
            file.write_text("two")
            self.assertEqual(runs(), 2 * count - 1)
        self.program.write_text(PROGRAM + "#")
        self.assertEqual(runs(), 8)
        (self.work / compare.name_of(options, words) / "summary.json").unlink()  # as of a run that was stopped
        self.assertEqual(runs(), 9)

    def check_what_is_made(self, found):
        """bf16 loses a quarter of its seed: .25 and .5, whose mean is .375, and 12.706 / sqrt 2 times their deviation the interval."""
        arms = {arm["name"]: arm for arm in found["arms"]}
        self.assertAlmostEqual(arms["bf16"]["loss"], 1.875)
        self.assertAlmostEqual(arms["bf16"]["behind"], 0.375)
        self.assertAlmostEqual(arms["bf16"]["behind_half"], 12.706 * 0.125, places=6)
        self.assertEqual((arms["dense"]["behind"], arms["dense"]["behind_half"]), (0, 0))
        self.assertIsNone(arms["qsgd"]["tuning"][2]["loss"])
        self.assertEqual((arms["dense"]["ratio_message"], arms["dense"]["ratio_traffic"]), (8, 4))
        self.assertIn("--lr 0.1 --seed 1 --sync allreduce", arms["dense"]["command"])
        self.assertEqual(found["step_seconds"], 0.5)
        self.assertEqual([one["curve"]["steps"] for one in arms["bf16"]["runs"]], [[1, 2]] * 2)
        self.assertEqual([one["curve"]["losses"] for one in arms["bf16"]["runs"]], [[one["loss"], one["loss"] / 2] for one in arms["bf16"]["runs"]])
        summed = START(["sha256sum", "test-images", "train-images"], cwd=self.pictures, capture_output=True, check=True).stdout
        self.assertEqual(found["data"], {"path": str(self.pictures), "sha256": hashlib.sha256(summed).hexdigest()})
        self.assertEqual(arms["one worker"]["seconds"], {"gigabit": 30, "fast": 30, "slow": 30, "slow_worker": 30})
        self.assertEqual(arms["one worker, 4 times the steps"]["seconds"]["slow"], 120)
        self.assertEqual(arms["dense"]["seconds"], {"gigabit": 60, "fast": 120, "slow": 180, "slow_worker": 240})
        for name in ("report.html", "curves.svg"):
            self.assertTrue((self.work / "out" / name).exists(), name)

    def test_a_scheme_of_ones_own(self):
        """By the command itself, which starts the program for each run."""
        command = self.command("--quick", "--seeds", "1", "--also", "./libmine.so:mine:k=3", "--also", ":topk:density=0.5")
        done = subprocess.run([sys.executable, "-B", *command], capture_output=True, text=True, check=False, env={**os.environ, **self.environment()})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        found = self.found("cnn")
        self.assertEqual([(arm["name"], arm["plugin"]) for arm in found["arms"][-2:]], [("mine:k=3", "./libmine.so"), ("topk:density=0.5", None)])
        self.assertIn("--plugin ./libmine.so", self.calls.read_text())

    def test_only_what_is_named_is_compared(self):
        found = self.compare("--only", "--also", ":topk:density=0.5", "--seeds", "2", "--grid", "1")
        self.assertEqual([arm["name"] for arm in found["arms"]], ["one worker", "dense", "topk:density=0.5"])
        self.assertEqual(len(self.trained()), 3)

    def test_all_transformers_read_the_text(self):
        for task, unit in (("transformer", "char"), ("pieces", "piece"), ("gpt", "char")):
            words = compare.words_of(argparse.Namespace(text="plays.txt"), task, compare.Arm("dense", "allreduce", 4), 0.1, 1, 60)
            self.assertEqual([words[words.index(flag) + 1] for flag in ("--unit", "--data")], [unit, "plays.txt"])

    def test_refusals(self):
        for words, said in ((("--tasks", "none"), "cnn, transformer, pieces"), (("--tasks", "transformer"), "--text"),
                            (("--tasks", "cnn,pieces"), "pieces needs"), (("--failures",), "--failures needs"), (("--also", "topk"), "PLUGIN:SPEC"),
                            (("--grid", "1,x"), "numbers"), (("--seeds", "-1"), "--seeds -1: want 1"), (("--seeds", "0"), "want 1"),
                            (("--workers", "1"), "--workers 1: want 2"), (("--steps", "-3"), "want 1")):
            self.assertIn(said, self.compare(*words, code=2))

    def test_failures_come_with_each_seed(self):
        """Of runs whose losses follow from their seeds: one that is disturbed loses 1, and a tenth of its seed; with one seed less
        the mean has no interval."""
        def run(fails):
            def made(options, folder, *of):
                folder.mkdir(parents=True)
                seed = of[-1]
                return {"loss": seed + fails * (1 + seed / 10), "sent": 2e6, **({"redone": seed, "lost_dying": 1, "lost_coming": 2} if fails else {})}
            return made

        def members(options, folder, fails, seed):
            return run(fails)(options, folder, seed)

        told, options = [], argparse.Namespace(out=self.work, seeds=3)
        with mock.patch.multiple(compare.failures, disturbed=run(True), undisturbed=run(False), members=members):
            rows = compare.add_failures(compare.failures.measure(options, told.append))
            one, *_ = compare.add_failures(compare.failures.measure(argparse.Namespace(out=self.work, seeds=1), told.append))
        self.assertEqual(len(rows), 4)
        for row in rows:
            self.assertEqual([pair["seed"] for pair in row["runs"]], [1, 2, 3])
            self.assertEqual((row["loss_calm"], row["redone"], row["megabytes"], row["lost_coming"]), (2, 2, 2, 2))
            self.assertAlmostEqual(row["more"], 1.2)
            self.assertAlmostEqual(row["more_half"], 4.303 * 0.1 / 3 ** 0.5)
        self.assertEqual(len(told), 4 * 3 + 4)
        self.assertAlmostEqual(one["more"], 1.1)
        self.assertIsNone(one["more_half"])
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            compare.show({"tasks": {}, "failures": [rows[0], one]})
        self.assertIn("dense: loss +1.2000 +- 0.248, by seed 1: +1.1000, 2: +1.2000, 3: +1.3000", text.getvalue())
        self.assertIn("dense: loss +1.1000, by seed 1: +1.1000", text.getvalue())

    def test_a_member_that_comes_too_late_is_told(self):
        """It opens a group of its own, and sends nothing. What a member that was killed has left need not be whole."""
        group = compare.failures.Members(argparse.Namespace(steps=300), self.work / "group", 1)
        group.processes = 3 * [mock.Mock(returncode=0, **{"communicate.return_value": ("", "")})]
        for number, text in enumerate(('{"step": 1}\n{"loss": 1.5, "sent": 7}\n', '{"st', '{"loss": 2.5, "sent": 3}\n')):
            (group.folder / f"{number}.jsonl").write_text(text)
        self.assertEqual(group.result(), {"loss": 1.5, "sent": 7})
        (group.folder / "2.jsonl").write_text('{"loss": 2.5, "sent": 0}\n')
        with self.assertRaises(SystemExit) as refused:
            group.result()
        self.assertIn("had ended; give --steps more than 300", str(refused.exception))

    def test_one_pair_has_no_interval(self):
        self.assertEqual(compare.paired([3.0], [1.0]), (2.0, None))
        difference, half = compare.paired([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
        self.assertAlmostEqual(difference, 2)
        self.assertAlmostEqual(half, 4.303 / 3 ** 0.5)

    def test_after_how_many_steps_dense_had_a_loss(self):
        dense = {300: 2.0, 100: 4.0, 200: 3.0}
        for loss, steps in ((4.0, 100), (3.75, 125), (3.0, 200), (2.25, 275), (2.0, 300), (1.5, 300)):
            self.assertEqual(adapters.dense_steps(loss, dense), steps)
        with self.assertRaises(SystemExit) as refused:
            adapters.dense_steps(4.5, dense)
        self.assertIn("give --lengths a shorter one", str(refused.exception))

    def test_95_of_100_intervals_hold_what_is_true(self):
        """Student's density, summed up; as wide as that with up to 31 seeds, and a little wider with more."""
        for count in (2, 3, 10, 11, 12, 21, 31, 32, 61):
            free, differences = count - 1, [float(i % 2) for i in range(count)]
            _, half = compare.paired(differences, [0.0] * count)
            mean = sum(differences) / count
            most = half / (sum((one - mean) ** 2 for one in differences) / free / count) ** 0.5
            scale = math.exp(math.lgamma((free + 1) / 2) - math.lgamma(free / 2)) / math.sqrt(free * math.pi)
            parts = 20000
            middles = ((i + 0.5) * most / parts for i in range(parts))
            inside = 2 * most / parts * sum(scale * (1 + t * t / free) ** (-(free + 1) / 2) for t in middles)
            self.assertAlmostEqual(inside, 0.95, delta=5e-5 if count <= 31 else 0.005, msg=count)
            self.assertGreater(inside, 0.95 - 5e-5, count)


if __name__ == "__main__":
    unittest.main()
