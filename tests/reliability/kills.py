"""Seeded trials of whole runs that are killed, stopped, continued and interrupted, over threads, MPI and sockets.

    kills.py PATH/thinwire [--seed S] [--trials N] [--first K] [--transport threads|mpi|tcp]

Each trial trains a tiny network with a scheme of the list, deals one to three blows at moments drawn from the seed, and
takes the run up again with --resume after each. What has to hold:
- every process ends, and with a code that its blow explains; over sockets each one that fails names a rank;
- what a blow leaves behind can be taken up again;
- a synchronous run ends with the weights of the run that nobody disturbed, bit for bit;
- an asynchronous one ends after all its steps, with a finite loss.
When a blow falls depends on the machine, so a trial that fails may pass when it is run again: its folder is kept."""
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from support import MPI_ENVIRONMENT, PROGRAM, free_place, kill_sessions, write_data  # noqa: E402
from trials import Fault, make_shared, options_parser, run_trials  # noqa: E402

STEPS = 30
LIMIT = 120  # seconds that any process may take
DEADLINE = 2  # seconds, the --timeout of ranks that get a blow of which they hear by nothing else:
UNNOTICED = {"threads": (), "mpi": ("kill", "long stop", "interrupt", "terminate"), "tcp": ("long stop",)}
JOIN_SECONDS = 20  # how long processes of sockets wait for each other
SYNCHRONOUS = ("allreduce", "dgc:density=0.02", "sdagc:density=0.02", "scalecom", "topk:density=0.05", "qsgd",
               "powersgd", "sign", "fp16")
MEETING = ("dpsgd", "adpsgd-d1")  # a checkpoint is a meeting, which changes the course
ASYNCHRONOUS = ("adpsgd-random", "adpsgd-fixed", "prague")


class Job:
    """One start of the program, alone or under mpirun, in a process group of its own."""

    def __init__(self, trial, words):
        self.trial = trial
        self.pids = pathlib.Path(tempfile.mkdtemp(dir=trial.folder))
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if trial.transport == "mpi":
            # Each rank leaves its process id.
            script = f'echo $$ >{self.pids}/$OMPI_COMM_WORLD_RANK; exec "$0" "$@"'
            words = ["mpirun", "--oversubscribe", "--enable-recovery", "-n", str(trial.workers), "sh", "-c", script, *words]
            environment |= MPI_ENVIRONMENT
        self.process = subprocess.Popen(list(map(str, words)), env=environment, text=True, start_new_session=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def deal(self, blow):
        """Deals one blow; returns the exit codes that it explains."""
        is_mpi = self.trial.transport == "mpi"
        targets = [int(path.read_text() or 0) for path in sorted(self.pids.iterdir())] if is_mpi else []
        victim = self.trial.draw.choice(targets) if targets else 0
        strike(self.trial, victim or self.process.pid, blow, other=self.process.pid)
        return {"stop": (0,), "long stop": (0, 3) if is_mpi else (0,), "kill": (0, 3, -9, 137)}.get(
            blow, (0, 130, 3, 1, 143, -2, -15) if is_mpi else (0, 130, -2, -15))

    def end(self, blow, codes):
        """Whether somebody was lost to it; what its blow does not explain is a fault."""
        code, stderr = finish_process(self.process)
        if blow in ("kill", "long stop") and code and "MPI_Init" in stderr:
            return True  # a blow on a rank that was still beginning is MPI's own to tell
        if code not in codes:
            raise Fault(f"{blow}: exit code {code}, where {codes} are right: {stderr}")
        if code == 3:
            check_words(blow, stderr)
        return code == 3


class JoinedJob:
    """One start of the program for each rank: processes that meet at a port of the loopback."""

    def __init__(self, trial, words):
        self.trial = trial
        self.victim = None
        words = [*words, "--workers", trial.workers, "--join", free_place()]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "THINWIRE_JOIN_SECONDS": str(JOIN_SECONDS)}
        self.processes = [subprocess.Popen([*map(str, words), "--rank", str(rank)], env=environment, text=True,
                                           start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                          for rank in range(trial.workers)]

    def deal(self, blow):
        """Deals one blow to one of them; returns the exit codes that it explains in the others."""
        self.victim = self.trial.draw.randrange(self.trial.workers)
        pid = self.processes[self.victim].pid
        strike(self.trial, pid, blow, other=pid)
        return {"stop": (0,), "long stop": (0, 3), "kill": (0, 3)}.get(blow, (0, 130, 3))

    def end(self, blow, codes):
        """As that of Job; all end before one is judged."""
        try:
            done = [finish_process(process) for process in self.processes]
        finally:
            for process in self.processes:
                kill_sessions(process.pid)
                process.communicate()
        for rank, (code, stderr) in enumerate(done):
            if code not in codes and not (rank == self.victim and code in (-9, -2, -15)):
                raise Fault(f"{blow} of rank {self.victim}: rank {rank} ended with {code}, where {codes} are right: {stderr}")
        told = [stderr for code, stderr in done if code == 3]
        for stderr in told:
            check_words(blow, stderr)
        self.check_names(blow, told)
        return bool(told)

    def check_names(self, blow, told):
        """Who is left of a group names a rank, and one at least the rank that was killed. Who still waited for the group
        can only say that it did not come together, and who is left of a gossip counts the lost."""
        counts = r"\d of \d ranks came|nobody brought the group together|has lost \d of \d ranks"
        if any(not re.search(rf"rank \d|{counts}", text) for text in told):
            raise Fault(f"{blow} of rank {self.victim}: one names no rank: {told}")
        if blow == "kill" and told and not any(re.search(rf"rank {self.victim}\b|{counts}", text) for text in told):
            raise Fault(f"{blow} of rank {self.victim}, whom nobody names: {told}")


def finish_process(process):
    """Its exit code and what it said; one that does not end is a fault, and is killed."""
    try:
        _, stderr = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Fault(f"did not end within {LIMIT} seconds") from None
    finally:
        kill_sessions(process.pid)
    return process.returncode, stderr


def check_words(blow, stderr):
    if not any(line.startswith("thinwire: ") for line in stderr.splitlines()):
        raise Fault(f"{blow}: code 3 without a word: {stderr}")


def strike(trial, victim, blow, other):
    """Does it to the victim; what asks a run to end goes to the other, which may be its launcher."""
    try:
        if blow in ("stop", "long stop"):
            os.kill(victim, signal.SIGSTOP)
            time.sleep(trial.draw.uniform(0, 0.3) if blow == "stop" else DEADLINE * 2)
            os.kill(victim, signal.SIGCONT)
        elif blow == "kill":
            os.kill(victim, signal.SIGKILL)
        else:
            os.kill(other, signal.SIGINT if blow == "interrupt" else signal.SIGTERM)
    except ProcessLookupError:
        pass


class Trial:
    def __init__(self, seed, number, shared, folder, transport):
        self.draw = random.Random(f"{seed}/{number}")
        self.transport = transport or self.draw.choice(("threads", "threads", "mpi", "tcp"))
        self.sync = self.draw.choice(SYNCHRONOUS + MEETING + ASYNCHRONOUS)
        self.workers = self.draw.choice((2, 3, 4))
        self.every = self.draw.choice((1, 2, 5))
        self.folder = folder
        self.out = self.folder / "run"
        self.words = ["train", "image", "--data", shared / "data", "--batch", 8, "--steps", STEPS, "--sync", self.sync,
                      "--checkpoint-every", self.every, "--schedule", "constant", "--quiet", "--out", self.out]
        if self.transport == "threads":
            self.words += ["--workers", self.workers]

    def __str__(self):
        return f"{self.transport}, {self.workers} workers, {self.sync}, a checkpoint every {self.every}"

    def summary(self):
        return json.loads((self.out / "summary.json").read_text())

    def start(self, *options):
        """The next start: from the newest checkpoint, or, where the run died before it had one, afresh."""
        words = [PROGRAM, *self.words, *options]
        if list(self.out.glob("checkpoints/step-????????")):
            words.append("--resume")
        else:
            shutil.rmtree(self.out, ignore_errors=True)
        return (JoinedJob if self.transport == "tcp" else Job)(self, words)


def disturb(trial, seconds):
    """One start with one blow, which is returned, and whether somebody was lost to it."""
    blow = trial.draw.choice(("kill", "kill", "kill", "stop", "interrupt", "terminate", "long stop"))
    job = trial.start(*(("--timeout", DEADLINE) if blow in UNNOTICED[trial.transport] else ()))
    time.sleep(trial.draw.uniform(0, seconds))
    return blow, job.end(blow, job.deal(blow))


def finish(trial):
    """Takes the run up until it is done."""
    trial.start().end("the last start", (0,))
    for line in (trial.out / "metrics.jsonl").read_text().splitlines():
        json.loads(line)
    return trial.summary()


class Reference:
    """The undisturbed runs, one for each kind; what they take is how long a blow may wait."""

    def __init__(self):
        self.known = {}

    def of(self, trial):
        meets = trial.every if trial.sync in MEETING else 0
        key = trial.transport, trial.sync, trial.workers, meets
        if key not in self.known:
            began = time.monotonic()
            summary = finish(trial)
            self.known[key] = summary, time.monotonic() - began
            shutil.rmtree(trial.out)
        return self.known[key]


def try_once(trial, references):
    whole, seconds = references.of(trial)
    dealt = [disturb(trial, seconds) for _ in range(trial.draw.randrange(1, 4))]
    blows = [blow for blow, _ in dealt]
    resumed = finish(trial)
    if resumed["steps"] != whole["steps"] or not math.isfinite(resumed["loss"]):
        raise Fault(f"after {blows}: {resumed['steps']} steps, loss {resumed['loss']}")
    is_exact = trial.sync in SYNCHRONOUS or (trial.sync in MEETING and not {"interrupt", "terminate"} & set(blows))
    if is_exact and resumed["weights_crc32c"] != whole["weights_crc32c"]:
        raise Fault(f"after {blows}: weights {resumed['weights_crc32c']}, undisturbed {whole['weights_crc32c']}")
    return [f"{trial.transport}: {blow}{', code 3' if is_lost else ''}" for blow, is_lost in dealt]


def main():
    parser = options_parser()
    parser.add_argument("--transport", choices=("threads", "mpi", "tcp"))
    options = parser.parse_args()
    shared, references = make_shared("kills"), Reference()
    write_data(shared / "data")

    def begin(number, folder):
        trial = Trial(options.seed, number, shared, folder, options.transport)
        return trial, lambda: try_once(trial, references)

    return run_trials(options, shared, begin)


if __name__ == "__main__":
    sys.exit(main())
