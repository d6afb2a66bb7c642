#!/usr/bin/env python3
"""`python -m thinwire launch`: scripts that know nothing of thinwire, each run by two programs, beside the same steps by
hand."""

import contextlib
import io
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import launched
import models
import ranks
import test_http
import torch
from torch import nn

MACHINES, EVERY, SAVED, STEPS, RATE = 2, 4, 6, 10, 1e-2  # it saves in the middle of a round, and ends in one

# Each script has the weights, data and mishap that its words say, saves as any script does, and at its very end, where
# nothing of thinwire is left, what it has then.
COMMON = """
import atexit, os, signal, sys, torch
from torch import nn
machine, seed, data, mishap, out = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
torch.manual_seed(seed)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8, affine=False), nn.Linear(8, 3))
generator = torch.Generator().manual_seed(data)
x, labels = torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)
def flat(): return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
atexit.register(lambda: torch.save({"end": flat(), "mean": model[2].running_mean}, f"{out}/end{machine}.pt"))
torch.save(flat(), f"{out}/begin{machine}.pt")
"""
PLAIN = COMMON + f"""
def fork(code):
    child = os.fork()
    if child == 0: sys.exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
if mishap == "early fork": fork(0)
if mishap == "early exit": sys.exit(5)
optimiser = torch.optim.AdamW(model.parameters(), {RATE}, weight_decay=0.0)
for step in range(1, {STEPS} + 1):
    if mishap == "none": break
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(x), labels).backward()
    try: optimiser.step()
    except RuntimeError:
        torch.save(model.state_dict(), f"{{out}}/lost{{machine}}.pt")
        raise
    if step == {SAVED}:
        torch.save(nn.ModuleDict({{"within": model}}).state_dict(), f"{{out}}/saved{{machine}}.pt")
        if mishap == "raise": raise ValueError("a mishap")
        if mishap == "exit": sys.exit(5)
        if mishap == "fork": fork(7)
        if mishap == "interrupt":
            signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
            signal.raise_signal(signal.SIGINT)
        if mishap == "second": torch.optim.SGD(model.parameters(), 1.0).step()
"""
AROUND = PLAIN.replace("for step in range(1", """class Around(torch.optim.Optimizer):
    def __init__(self, inside):
        super().__init__(inside.param_groups, {})
        self.inside = inside
    def step(self, closure=None):
        self.inside.step(closure)
optimiser = Around(optimiser)
for step in range(1""")
IN_PARTS = COMMON + f"""
first, last = model[:3], model[3:]
del model[:]
optimiser = torch.optim.AdamW([*last.parameters(), *first.parameters()], {RATE}, weight_decay=0.0)
for step in range(1, {STEPS} + 1):
    optimiser.zero_grad()
    nn.functional.cross_entropy(last(first(x)), labels).backward()
    optimiser.step()
    if step == {SAVED} and mishap == "save":
        around = nn.ModuleDict({{"around": last}})
        torch.save({{**first.state_dict(), **around.state_dict(), **last[0].state_dict(prefix="3.")}}, f"{{out}}/saved{{machine}}.pt")
model.extend([*first, *last])
"""
UNTIL_TOLD = COMMON + f"""
optimiser = torch.optim.AdamW(model.parameters(), {RATE}, weight_decay=0.0)
while not os.path.exists(f"{{out}}/stop"):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(x), labels).backward()
    optimiser.step()
"""
TRAINER = COMMON + f"""
import contextlib
from transformers import Trainer, TrainingArguments
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = model
    def forward(self, x, labels):
        return {{"loss": nn.functional.cross_entropy(self.layers(x), labels)}}
arguments = TrainingArguments(
    output_dir=f"{{out}}/machine{{machine}}", max_steps={STEPS}, per_device_train_batch_size=8, learning_rate={RATE},
    weight_decay=0.0, lr_scheduler_type="constant", save_steps={SAVED}, report_to=[], disable_tqdm=True, use_cpu=True,
    max_grad_norm=0.0)
trainer = Trainer(Model(), arguments, train_dataset=[{{"x": a, "labels": b}} for a, b in zip(x, labels)])
trainer.train(resume_from_checkpoint=f"{{out}}/machine{{machine}}/checkpoint-{SAVED}" if mishap == "resume" else None)
"""


def layers_of(weights):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8, affine=False), nn.Linear(8, 3))
    nn.utils.vector_to_parameters(weights.clone(), model.parameters())
    return model


def by_hand(begins, first=0, alike=True):
    """The shared weights after each round, of which the last one ends early. All begin with the weights of the machine
    `first`; where the others' were not alike, their first gradients are of weights that are gone."""
    def worker(machine):
        model = layers_of(begins[first])
        generator = torch.Generator().manual_seed(machine)
        x, labels = torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)
        return (model, torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.0),
                lambda: nn.functional.cross_entropy(model(x), labels))

    return models.local_updates([worker(machine) for machine in range(MACHINES)], EVERY, STEPS,
                                lambda step, machine: alike or machine == first or step > 1)


def lost_somebody(paths):
    """Whether the group has gone on without a member that was silent for some seconds, and has come back or not."""
    return any(re.search("the group goes on without |this machine was stopped or cut off", path.read_text()) for path in paths)


def play(machine, size, words, folder):
    """What `python -m thinwire` does with these words, and its exit code."""
    sys.argv[1:], sys.path = words[machine], [*sys.path, str(folder)]
    try:
        runpy.run_module("thinwire", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code or 0
    return 0


def play_alone(machine, size, folder):
    """The script without thinwire, which resumes."""
    sys.argv[1:] = map(str, (machine, 1, machine, "resume", folder))
    runpy.run_path(str(folder / "script.py"), run_name="__main__")


class LaunchTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def launched(self, script, seeds=(1, 1), data=(0, 1), mishaps=("", ""), more=(), begins=("--", "python3"), join=None, whole=False):
        """The exit code of each program, and what it said. They are forks of the test, which have loaded torch, but where their
        end is what is asked: then each is a whole Python."""
        path, join = self.folder / "script.py", join or f"127.0.0.1:{ranks.free_port()}"
        path.write_text(textwrap.dedent(script))
        words = [["launch", "--join", join, "--workers", MACHINES, "--spec",
                  f"local:every={EVERY}", *(["--rank", machine] if join.startswith(("folder:", "http:", "s3+http:")) else []), *more, *begins, path.stem if "-m" in begins else path, machine, seeds[machine], data[machine], mishaps[machine],
                  self.folder] for machine in range(MACHINES)]
        if not whole:
            with ranks.Machines(play, MACHINES, [list(map(str, one)) for one in words], self.folder) as machines:
                ends = [machines.end(machine) for machine in range(MACHINES)]
                return [code or machines.result(machine) for machine, (code, _) in enumerate(ends)], [said for _, said in ends]
        environment = launched.environment(THINWIRE_BIND="127.0.0.1")
        environment["PYTHONPATH"] += f":{self.folder}"
        codes, wrote = launched.ends_of([[sys.executable, "-B", "-m", "thinwire", *one] for one in words], env=environment)
        return codes, [said for said, _ in wrote]

    def sealed(self):
        key = self.folder / "group.key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        return "--seal", "--key-file", key

    def left(self, name):
        return [torch.load(self.folder / f"{name}{machine}.pt") for machine in range(MACHINES)]

    def check(self, codes, said, wanted):
        """Both have ended well, with the same weights, which are those by hand."""
        self.assertEqual(codes, [0] * MACHINES, "\n".join(text[-3000:] for text in said))
        first, other = self.left("end")
        self.assertTrue(torch.equal(first["end"], other["end"]))
        self.assertTrue(torch.equal(first["mean"], other["mean"]))
        self.assertLess(float((first["end"] - wanted).abs().max()), 1e-5)

    def test_what_is_saved_and_what_is_there_at_the_end(self):
        ended = self.launched(PLAIN, more=self.sealed(), whole=True)
        shared = by_hand(self.left("begin"))
        self.check(*ended, shared[-1])
        for state in self.left("saved"):
            saved = torch.cat([values.reshape(-1) for name, values in state.items() if name.endswith(("weight", "bias"))])
            self.assertLess(float((saved - shared[SAVED // EVERY]).abs().max()), 1e-5)
        for said in ended[1]:
            self.assertNotIn("first batch", said)
            self.assertEqual(said.count("thinwire: what the script has saved lacks the 2 steps behind its last round: let it take a "
                                        "multiple of 4 steps\n"), 1, said)

    def test_over_a_folder(self):
        """Sealed, and by machines that know nothing else of each other. Of the run nothing but its ends are left there."""
        shared = self.folder / "shared"
        shared.mkdir()
        ended = self.launched(PLAIN, more=self.sealed(), join=f"folder:{shared}")
        self.check(*ended, by_hand(self.left("begin"))[-1])
        self.assertEqual(sorted(path.name for path in shared.iterdir()), ["gone-0", "gone-1", "hello-0", "hello-1"])

    @unittest.skipIf(test_http.what_is_missing(), test_http.what_is_missing())
    def test_over_a_web_server(self):
        """As over a folder; the word behind the URL is in no line."""
        with test_http.Server() as server:
            ended = self.launched(PLAIN, more=self.sealed(), join=f"{server.url}?sig={test_http.SECRET}")
            self.check(*ended, by_hand(self.left("begin"))[-1])
            self.assertNotIn(test_http.SECRET, "".join(ended[1]))
            self.assertEqual(len(server.files), 4)

    @unittest.skipIf(test_http.what_is_missing(), test_http.what_is_missing())
    def test_over_a_store_that_wants_signatures(self):
        with test_http.Server(test_http.takes_what_is_signed) as server, mock.patch.dict(os.environ, test_http.KEYS):
            server.wrong = []
            ended = self.launched(PLAIN, more=self.sealed(), join=f"s3+{server.url}")
            self.check(*ended, by_hand(self.left("begin"))[-1])
            self.assertEqual(set(server.wrong), {None})
            self.assertNotIn(test_http.SECRET, "".join(ended[1]))

    def test_it_plans(self):
        codes, said = self.launched(PLAIN, more=("--spec", "auto:steps=3000,pass_ms=20,rate=1Mbit,latency=5ms"))
        self.assertEqual(codes, [0] * MACHINES, said)
        spec, = re.findall(r"thinwire: auto takes (\S+) for a line of 1 Mbit/s", "".join(said))
        ends = self.left("end")
        self.launched(PLAIN, more=("--spec", spec))
        for planned, named in zip(ends, self.left("end")):
            self.assertTrue(torch.equal(planned["end"], named["end"]))

    def test_begins_with_the_weights_of_one(self):
        codes, said = self.launched(PLAIN, seeds=(1, 2), begins=())
        ends = [by_hand(self.left("begin"), first, alike=False)[-1] for first in range(MACHINES)]
        self.check(codes, said, min(ends, key=lambda end: float((self.left("end")[0]["end"] - end).abs().max())))

    def test_who_reads_the_same_is_told(self):
        codes, said = self.launched(PLAIN, data=(0, 0))
        self.assertEqual(codes, [0, 0], said)
        self.assertIn("rank 1 has had the first batch of rank 0, and", "".join(said))
        self.assertNotIn("went to nobody", "".join(said))
        self.assertEqual("".join(said).count("has had the first batch"), 1, said)

    def test_an_optimizer_around_another_one(self):
        ended = self.launched(AROUND)
        self.check(*ended, by_hand(self.left("begin"))[-1])

    def test_a_model_in_parts(self):
        """What it saves of each in the middle of a round are the shared weights. Where it saves nothing, nothing is said of it."""
        ended = self.launched(IN_PARTS, begins=("--", "-m"), mishaps=("save", ""))
        shared = by_hand(self.left("begin"))
        self.check(*ended, shared[-1])
        self.assertEqual(["what the script has saved" in said for said in ended[1]], [True, False])
        saved, model = torch.load(self.folder / "saved0.pt"), layers_of(shared[SAVED // EVERY])
        for name, values in [*model.state_dict().items(), *model[3].state_dict(prefix="around.3.").items()]:
            if not name.startswith("2."):  # buffers are each machine's own
                self.assertLess(float((saved[name] - values).abs().max()), 1e-5, name)

    @unittest.skipIf(not ranks.importlib.util.find_spec("transformers"), "there is no transformers here")
    def test_a_script_of_transformers(self):
        """Its checkpoint in the middle of a round has the shared weights. Those that resume from it begin a new round: behind
        it they have the mean of what they come to without thinwire."""
        from safetensors.torch import load_file
        from transformers import Trainer, TrainingArguments  # noqa: F401: they are loaded when they are asked for, here for all forks
        ended = self.launched(TRAINER)
        shared = by_hand(self.left("begin"))
        self.check(*ended, shared[-1])
        for machine in range(MACHINES):
            model = layers_of(shared[-1])
            nn.ModuleDict({"layers": model}).load_state_dict(load_file(self.folder / f"machine{machine}/checkpoint-{SAVED}/model.safetensors"))
            saved = nn.utils.parameters_to_vector(model.parameters())
            self.assertLess(float((saved - shared[SAVED // EVERY]).detach().abs().max()), 1e-5)
        with ranks.Machines(play_alone, MACHINES, self.folder) as machines:
            machines.results()
        alone = sum(one["end"] for one in self.left("end")) / MACHINES
        self.check(*self.launched(TRAINER, mishaps=("resume", "resume")), alone)

    def test_machines_that_come_and_go(self):
        """Each trains until it is told to stop, which is when both have made rounds together. They have the same data, and other
        weights to begin with."""
        script, stop = self.folder / "script.py", self.folder / "stop"
        script.write_text(UNTIL_TOLD)
        words = [sys.executable, "-B", "-m", "thinwire", "launch", "--join", f"127.0.0.1:{ranks.free_port()}", "--spec",
                 f"local:every={EVERY}", *map(str, self.sealed()), script]
        programs, errors = zip(*[self.start(machine, words, machine, 0) for machine in range(MACHINES)])
        for path in errors:
            ranks.wait_until(lambda: "a round of 2 took " in path.read_text(), path.read_text(), ranks.SECONDS)
        founder, newcomer = (path.read_text() for path in errors)
        self.assertIn("thinwire: the group has 2 members now, and had 1\n", founder)
        self.assertNotIn("members now", newcomer)
        stop.touch()
        self.assertEqual([one.wait(ranks.SECONDS) for one in programs], [0] * MACHINES, errors[0].read_text() + errors[1].read_text())
        for path in errors:
            self.assertEqual(path.read_text().count("thinwire: this program has taken its last step, and serves the others' rounds"), 1)
        first, other = self.left("end")
        self.assertTrue(torch.equal(first["end"], other["end"]))
        repeats = sum(path.read_text().count("has had the first batch of rank 0") for path in errors)
        self.assertTrue(repeats == 1 or repeats > 1 and lost_somebody(errors), repeats)  # once in each generation
        hashes = {re.search(r"with weights (\w{8})\n$", path.read_text()).group(1) for path in errors}
        self.assertEqual(len(hashes), 1)

    def start(self, machine, words, seed=1, data=None):
        """One that comes and goes, and the file that its errors are in. It is in the group."""
        path = self.folder / f"errors{machine}"
        with open(path, "w") as file:
            program = subprocess.Popen([*words, *map(str, (machine, seed, machine if data is None else data)), "", self.folder], stderr=file,
                                       env=launched.environment(THINWIRE_BIND="127.0.0.1"))
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        banner = re.compile(r" tensors on \d+ ranks?; ")
        ranks.wait_until(lambda: banner.search(path.read_text()) or program.poll() is not None, "nobody came", ranks.SECONDS)
        self.assertRegex(path.read_text(), banner)
        return program, path

    def wait_for_size(self, size, path):
        """Until a program has told last that so many are in the group."""
        def last():
            return re.findall(r"\b(?:has|on|one of) (\d+)(?: members?| ranks?|, with round)\b", path.read_text())[-1]

        ranks.wait_until(lambda: last() == str(size), f"the group has never had {size} members:\n{path.read_text()}", ranks.SECONDS)

    def test_who_is_ended_by_a_signal_hands_over_what_it_held_back(self):
        """One member after the other, of three; then the founder trains alone to its end."""
        script, stop = self.folder / "script.py", self.folder / "stop"
        script.write_text(UNTIL_TOLD)
        words = [sys.executable, "-B", "-m", "thinwire", "launch", "--join", f"127.0.0.1:{ranks.free_port()}", "--spec",
                 "sparseloco:every=8", "--quorum", "1", script]
        (first, told), (second, told_second), (third, told_third) = [self.start(machine, words) for machine in range(3)]
        ranks.wait_until(lambda: re.search(r"a round of \d took ", told_third.read_text()), "no round", ranks.SECONDS)
        self.wait_for_size(3, told)
        for number, code, program, path, left in ((signal.SIGINT, 130, third, told_third, 2), (signal.SIGTERM, 143, second, told_second, 1)):
            with self.subTest(code):
                program.send_signal(number)
                self.assertEqual(program.wait(ranks.SECONDS), code, path.read_text())
                said = path.read_text()
                self.assertEqual(said.count("thinwire: leaving by the others' next two rounds"), 1, said)
                self.assertRegex(said, r"\nthinwire sparseloco\S+ \d+ steps, \d+ rounds( of the group's \d+)?, .* with weights \w{8}\n")
                self.assertNotIn("what this machine had for the others is lost", said)
                self.assertTrue(said.endswith("\nthinwire: interrupted, and so this machine has left\n"), said)
                self.wait_for_size(left, told)
        stop.touch()
        self.assertEqual(first.wait(ranks.SECONDS), 0, told.read_text())
        paths = told, told_second, told_third
        if not lost_somebody(paths):
            for path in paths:
                self.assertNotIn("given up", path.read_text())

    def test_a_second_signal_ends_at_once(self):
        """The other member is stopped, so that no round comes about."""
        script = self.folder / "script.py"
        script.write_text(UNTIL_TOLD)
        words = [sys.executable, "-B", "-m", "thinwire", "launch", "--join", f"127.0.0.1:{ranks.free_port()}", script]
        (first, told), (second, _) = [self.start(machine, words) for machine in range(2)]
        ranks.wait_until(lambda: "a round of 2 took " in told.read_text(), told.read_text(), ranks.SECONDS)
        second.send_signal(signal.SIGSTOP)
        first.send_signal(signal.SIGINT)
        ranks.wait_until(lambda: "leaving by" in told.read_text(), told.read_text(), ranks.SECONDS)
        first.send_signal(signal.SIGINT)
        self.assertEqual(first.wait(ranks.SECONDS), 130, told.read_text())
        said = told.read_text()
        has_left = re.search(r"\nthinwire local\S+ \d+ steps, .* with weights \w{8}\n", said)  # as where the other was lost before
        is_lost = "thinwire: what this machine had for the others is lost: there was no time for it\n" in said
        self.assertNotEqual(is_lost, bool(has_left), said)
        self.assertTrue(said.endswith("\nthinwire: interrupted, and so this machine has left\n"), said)

    def test_who_is_interrupted_before_it_is_let_in_has_left_nothing(self):
        script, path = self.folder / "script.py", self.folder / "errors"
        script.write_text(UNTIL_TOLD)
        with open(path, "w") as file:
            program = subprocess.Popen([sys.executable, "-B", "-m", "thinwire", "launch", "--join", "192.0.2.1:7000", script, "0", "1", "0", "",
                                        self.folder], stderr=file, env=launched.environment())
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        ranks.wait_until(lambda: "asking to be let in" in path.read_text(), "nobody asks", ranks.SECONDS)
        program.send_signal(signal.SIGINT)
        self.assertEqual(program.wait(ranks.SECONDS), 130, path.read_text())
        self.assertTrue(path.read_text().endswith("thinwire: interrupted, and so this machine has given up coming in\n"), path.read_text())

    def test_a_script_that_fails_does_not_stop_the_others(self):
        for mishap, code in (("raise", 1), ("exit", 5)):
            with self.subTest(mishap):
                codes, said = self.launched(PLAIN, mishaps=(mishap, ""))
                self.assertEqual(codes, [code, 0], said)
                self.assertEqual("ValueError: a mishap" in said[0], mishap == "raise")
                self.assertEqual(said[0].count("this program has taken its last step, and serves the others' rounds"), 1)
                self.assertEqual(["what the script has saved lacks" in text for text in said], [False, True])
                first, other = self.left("end")
                self.assertTrue(first["end"].equal(other["end"]))

    def test_a_forked_child_ends_as_it_does_without(self):
        codes, said = self.launched(PLAIN, mishaps=("early fork", "fork"), whole=True)
        self.assertEqual(codes, [0] * MACHINES, said)

    def test_ctrl_c_leaves(self):
        codes, said = self.launched(PLAIN, mishaps=("interrupt", ""))
        self.assertEqual(codes, [130, 3], said)
        self.assertTrue(said[0].endswith("thinwire: interrupted, and so this machine has left\n"), said[0])
        self.assertNotIn("Traceback", said[0])
        self.assertEqual(said[0].count("thinwire: the 2 steps behind the last round went to nobody\n"), 1, said[0])
        told = [line for line in said[1].splitlines() if "rank " in line and "has left the group" in line]
        self.assertEqual(len(told), 1, said[1])
        self.assertRegex(told[0], r"^thinwire: rank \d has left the group; it was at 127\.0\.0\.1:\d+; so many workers as --workers says go on "
                                  r"together or not at all: start all of them again, or leave --workers out on all, and machines may come and go$")
        lost = torch.load(self.folder / "lost1.pt")
        saved = torch.cat([values.reshape(-1) for name, values in lost.items() if name.endswith(("weight", "bias"))])
        self.assertLess(float((saved - by_hand(self.left("begin"))[SAVED // EVERY]).abs().max()), 1e-5)
        for text in said:
            self.assertEqual(text.count(" weights in 4 tensors on 2 ranks; "), 1, text)
            self.assertIn("from each rank, through lo, 127.0.0.1, which is", text)

    def test_what_cannot_be_is_one_sentence(self):
        for mishap, code, sentence in (("none", 2, "the script took no step with an optimizer of torch's"),
                                       ("early exit", 5, "the script has ended with code 5 before it took a step with an optimizer of torch's"),
                                       ("second", 2, "a second optimizer steps, SGD beside AdamW")):
            with self.subTest(mishap):
                codes, said = self.launched(PLAIN, mishaps=(mishap, ""))
                self.assertEqual(codes, [code, 3], said)
                self.assertIn(f"thinwire: {sentence}", said[0])
                self.assertNotIn("Traceback", said[0])
                self.assertIn("thinwire: rank ", said[1])


class WordsTest(unittest.TestCase):
    def command(self, *words):
        from thinwire.torch.launch import parsed
        return parsed(["--join", "here:1", "--workers", "2", *words]).command

    def test_the_script_is_found(self):
        self.assertEqual(self.command("train.py", "--join", "x"), ["train.py", "--join", "x"])
        self.assertEqual(self.command("--", "/usr/bin/python3.11", "train.py", "--", "y"), ["train.py", "--", "y"])
        self.assertEqual(self.command("--", "-m", "pack.train", "-v"), ["-m", "pack.train", "-v"])

    def test_none_is_refused(self):
        for words in ([], ["--"], ["python"], ["--", "-m"], ["--", "python", "-u", "train.py"]):
            with self.subTest(words), contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
                self.command(*words)
            self.assertEqual(ended.exception.code, 2)
            self.assertIn("name the script behind the options", said.getvalue())

    def test_what_is_wrong_is_told_before_anybody_waits(self):
        from thinwire.torch.launch import launch
        with tempfile.NamedTemporaryFile() as key:
            key.write(bytes(range(32)))
            key.flush()
            for join, more, script, wanted in (
                    ("nowhere", ["--spec", "nothing"], __file__, "nothing is no method of local updates"),
                    ("nowhere", ["--spec", "dgc"], __file__, "diloco:exchange=dgc"),
                    ("nowhere", ["--spec", "auto:steps=10"], __file__, "pass_ms="),
                    ("nowhere", [], "no/train.py", "there is no no/train.py"),
                    *((place, [], __file__, "is no meeting point: want HOST:PORT") for place in ("nowhere", "127.0.0.1:0", "::1:7000")),
                    ("folder:here", [], __file__, "join='folder:here' needs workers= and rank="),
                    ("folder:here", ["--rank", "0", "--key-file", key.name], __file__, "Tcp(key=..., seal=True)"),
                    ("folder:no/where", ["--rank", "0"], __file__, "no/where cannot be opened")):
                with self.subTest(wanted), contextlib.redirect_stderr(io.StringIO()) as said:
                    self.assertEqual(launch(["--join", join, "--workers", "2", *more, script]), 2)
                self.assertIn(wanted, said.getvalue())
                self.assertTrue("meeting 2 workers" not in said.getvalue() or join == "folder:no/where")  # which the meeting finds out
        for spec, wanted in (("auto:steps=10,pass_ms=1", "launch --workers N"), ("streaming:every=30", "delay=1 where members come and go")):
            with self.subTest(spec), contextlib.redirect_stderr(io.StringIO()) as said, tempfile.NamedTemporaryFile() as script:
                self.assertEqual(launch(["--join", "nowhere:1", "--spec", spec, script.name]), 2)
            self.assertIn(wanted, said.getvalue())


if __name__ == "__main__":
    if torch.__version__.startswith("1."):
        from thinwire.torch.launch import launch
        assert launch(["--join", "127.0.0.1:1", "--workers", "2", "train.py"]) == 2
        print("skipped: PyTorch 2 is missing, which tells of every optimizer's steps")
        sys.exit(77)
    unittest.main()
