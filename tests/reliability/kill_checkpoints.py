#!/usr/bin/env python3
"""kill_checkpoints.py PROGRAM KILL_AT [--only SITUATION] [--runs N --seed S]: kills a run at a system call, resumes it, and compares bits.

A situation is a run folder and a command that saves checkpoints into it. The command is killed in front of its n-th
call that changes files (kill_at.c); then the run is resumed and must end with the weights of a run that nobody killed.
Where the command goes back to an older checkpoint there are two such runs: of the course it left, as long as that one
stands, and from then on of its own. Without --runs: every call of every situation, with one worker. With it: N calls
drawn at random, with one to three workers and several schemes."""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from support import PROGRAM, write_data  # noqa: E402

CANNOT_TRACE = 77
SCHEMES = ("allreduce", "dgc:density=0.02,momentum=0.9", "scalecom", "powersgd", "dpsgd")


class Runner:
    """Runs the program on a tiny data set."""

    def __init__(self, folder, kill_at, workers, sync):
        self.folder, self.kill_at = folder, kill_at
        self.words = ["train", "image", "--data", str(folder / "data"), "--batch", "8", "--schedule", "constant",
                      "--quiet", "--workers", str(workers), "--sync", sync]

    def command(self, out, options):
        return [str(PROGRAM), *self.words, "--out", str(out), *map(str, options)]

    def train(self, out, *options):
        """The checksum of the weights at the end; there must be no word on standard error."""
        done = subprocess.run(self.command(out, ["--json", "-", *options]), capture_output=True, text=True, timeout=240)
        if done.returncode != 0 or done.stderr:
            raise AssertionError(f"code {done.returncode}: {done.stderr} after {sorted(names(out))}")
        return json.loads(done.stdout)["weights_crc32c"]

    def kill(self, out, call, options):
        """Kills the run in front of a call, 0: of none. Returns how many calls there were, and the exit code."""
        count = self.folder / "count"
        done = subprocess.run([self.kill_at, str(call), str(count), *self.command(out, options)], timeout=240,
                              capture_output=True, text=True)
        if done.returncode == CANNOT_TRACE:
            print("this system does not let one process trace another")
            sys.exit(CANNOT_TRACE)
        return int(count.read_text()), done.returncode


def checkpoints(out):
    return out / "checkpoints"


def names(out):
    return {path.name for path in checkpoints(out).iterdir()} if checkpoints(out).exists() else set()


class Situation:
    """`prepare` fills a folder; `options` are the run's that will be killed; `steps`, where its resumption ends."""
    options, steps = (), 4

    def prepare(self, runner, out):
        pass

    def resume(self, out):
        return ["--resume", "--lr", 0.001, "--steps", self.steps]


class Fresh(Situation):
    """A run from its first step on, with more checkpoints than are kept."""
    options, steps = ("--lr", 0.001, "--steps", 3, "--checkpoint-every", 1), 3

    def resume(self, out):
        """Before the first checkpoint the run begins anew."""
        options = super().resume(out)
        whole = [name for name in names(out) if name[5:].isdigit() or name.endswith(".replaced")]
        return options if whole else options[1:]


class Back(Situation):
    """From the older checkpoint of two, to one between them."""
    options = ("--lr", 0.001, "--steps", 3, "--checkpoint-every", 1, "--resume")
    origin = "step-00000002"

    def prepare(self, runner, out):
        runner.train(out, "--steps", 4, "--checkpoint-every", 2)


class BackOverSeveral(Back):
    """The same over two later ones."""
    steps = 6

    def prepare(self, runner, out):
        runner.train(out, "--steps", 2)
        shutil.copytree(checkpoints(out) / "step-00000002", out / "kept")
        runner.train(out, "--steps", 6, "--checkpoint-every", 2, "--resume")
        (out / "kept").rename(checkpoints(out) / "step-00000002")


class SameStep(Back):
    """To a checkpoint of the same step as the later one."""
    options = ("--lr", 0.001, "--steps", 4, "--checkpoint-every", 2, "--resume")


class Leftovers(SameStep):
    """The same, where killed runs have left something of every kind."""

    def prepare(self, runner, out):
        super().prepare(runner, out)
        root = checkpoints(out)
        for name in ("step-00000004.replaced", "step-00000003.partial", "step-00000004.partial",
                     "step-00000004.removed"):
            shutil.copytree(root / "step-00000002", root / name)
        for name in ("step-00000003.partial", "step-00000004.removed"):
            (root / name / "model.safetensors").unlink()


SITUATIONS = (Fresh, Back, BackOverSeveral, SameStep, Leftovers)


def check_whole(out, workers):
    """A name without a suffix says that nothing is missing; and only what a killed run may leave has one."""
    wanted = {"model.safetensors", *(f"worker-{rank}.safetensors" for rank in range(workers))}
    for name in sorted(names(out)):
        if not name[5:].isdigit():
            assert name[13:].startswith((".replaced", ".partial", ".removed")), name
            continue
        files = {path.name for path in (checkpoints(out) / name).iterdir()}
        assert files == wanted, f"{name} holds {sorted(files)}"


class Trial:
    """A situation, and what the runs in it end with when nobody kills them."""

    def __init__(self, situation, folder, kill_at, workers=1, sync="allreduce"):
        self.situation, self.workers, self.sync = situation(), workers, sync
        self.runner = Runner(folder, kill_at, workers, sync)
        self.start, self.out = folder / "start", folder / "out"
        shutil.rmtree(self.start, ignore_errors=True)
        self.start.mkdir()
        self.situation.prepare(self.runner, self.start)
        self.begin()
        self.old = self.resume() if names(self.out) else None
        self.begin()
        self.calls, code = self.runner.kill(self.out, 0, self.options())
        assert code == 0, code
        self.new = self.resume()
        assert self.new != self.old

    def options(self):
        origin = getattr(self.situation, "origin", None)
        return [*self.situation.options, *([checkpoints(self.out) / origin] if origin else [])]

    def begin(self):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.start, self.out)

    def resume(self):
        return self.runner.train(self.out, *self.situation.resume(self.out))

    def kill(self, call):
        """Whether the killed run's own course is gone on with."""
        self.begin()
        _, code = self.runner.kill(self.out, call, self.options())
        assert code in (0, 137), code
        left = sorted(names(self.out))
        checksum = self.resume()
        assert checksum in (self.old, self.new), f"{checksum} is neither {self.old} nor {self.new}; after {left}"
        check_whole(self.out, self.workers)
        return checksum == self.new

    def name(self):
        return f"{type(self.situation).__name__}, {self.workers} workers, {self.sync}"


def try_every_call(folder, kill_at, situations):
    for situation in situations:
        trial = Trial(situation, folder, kill_at)
        own = []
        for call in range(1, trial.calls + 1):
            try:
                own.append(trial.kill(call))
            except AssertionError as failure:
                raise SystemExit(f"{trial.name()}, call {call} of {trial.calls}: {failure}")
        if own != sorted(own) or not own[-1]:
            raise SystemExit(f"{trial.name()}: the old course came back: {own}")
        print(f"{trial.name()}: {trial.calls} calls, all well; its own course from call {own.index(True) + 1} on")


def try_at_random(folder, kill_at, situations, runs, seed):
    generator, trial = random.Random(seed), None
    for run in range(runs):
        if run % 20 == 0:
            trial = Trial(generator.choice(situations), folder, kill_at, generator.randint(1, 3),
                          generator.choice(SCHEMES))
        call = generator.randint(1, trial.calls)
        try:
            trial.kill(call)
        except AssertionError as failure:
            raise SystemExit(f"seed {seed}, run {run}: {trial.name()}, call {call} of {trial.calls}: {failure}")
    print(f"{runs} kills, all well")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("kill_at")
    parser.add_argument("--only", choices=[situation.__name__ for situation in SITUATIONS])
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    situations = [situation for situation in SITUATIONS if given.only in (None, situation.__name__)]
    with tempfile.TemporaryDirectory(prefix="thinwire-kills-") as folder:
        folder = pathlib.Path(folder)
        write_data(folder / "data")
        if given.runs:
            try_at_random(folder, given.kill_at, situations, given.runs, given.seed)
        else:
            try_every_call(folder, given.kill_at, situations)


main()
