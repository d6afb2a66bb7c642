"""Seeded trials of whole runs that are killed, stopped, continued and interrupted, over threads and over MPI.

    kills.py PATH/thinwire [--seed S] [--trials N] [--first K] [--transport threads|mpi]

Each trial trains a tiny network with a scheme of the list, deals one to three blows at moments drawn from the seed, and
takes the run up again with --resume after each. What has to hold:
- every process ends, and with a code that its blow explains;
- what a blow leaves behind can be taken up again;
- a synchronous run ends with the weights of the run that nobody disturbed, bit for bit;
- an asynchronous one ends after all its steps, with a finite loss.
When a blow falls depends on the machine, so a trial that fails may pass when it is run again: its folder is kept."""
import json
import math
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from support import MPI_ENVIRONMENT, PROGRAM, kill_session, write_data  # noqa: E402
from trials import Fault, make_shared, options_parser, run_trials  # noqa: E402

STEPS = 30
LIMIT = 120  # seconds that any process may take
DEADLINE = 2  # --timeout of ranks, seconds
SYNCHRONOUS = ("allreduce", "dgc:density=0.02", "sdagc:density=0.02", "scalecom", "topk:density=0.05", "qsgd",
               "powersgd", "sign", "fp16")
MEETING = ("dpsgd", "adpsgd-d1")  # a checkpoint is a meeting, which changes the course
ASYNCHRONOUS = ("adpsgd-random", "adpsgd-fixed", "prague")


class Job:
    """One start of the program, alone or under mpirun, in a process group of its own."""

    def __init__(self, trial, resume):
        words = [PROGRAM, *map(str, trial.words), *(["--resume"] if resume else [])]
        self.pids = pathlib.Path(tempfile.mkdtemp(dir=trial.folder))
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if trial.transport == "mpi":
            # Each rank leaves its process id.
            script = f'echo $$ >{self.pids}/$OMPI_COMM_WORLD_RANK; exec "$0" "$@"'
            words = ["mpirun", "--oversubscribe", "--enable-recovery", "-n", str(trial.workers), "sh", "-c", script, *words]
            environment |= MPI_ENVIRONMENT
        self.process = subprocess.Popen(list(map(str, words)), env=environment, text=True, start_new_session=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ranks(self):
        return [int(path.read_text() or 0) for path in sorted(self.pids.iterdir())]

    def end(self):
        """Its exit code and what it wrote; a job that does not end is a fault, and is killed."""
        try:
            stdout, stderr = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise Fault(f"did not end within {LIMIT} seconds") from None
        finally:
            kill_session(self.process.pid)
        return self.process.returncode, stdout, stderr


class Trial:
    def __init__(self, seed, number, shared, folder, transport):
        self.draw = random.Random(f"{seed}/{number}")
        self.transport = transport or self.draw.choice(("threads", "threads", "mpi"))
        self.sync = self.draw.choice(SYNCHRONOUS + MEETING + ASYNCHRONOUS)
        self.workers = self.draw.choice((2, 3, 4))
        self.every = self.draw.choice((1, 2, 5))
        self.folder = folder
        self.out = self.folder / "run"
        self.words = ["train", "image", "--data", shared / "data", "--batch", 8, "--steps", STEPS, "--sync", self.sync,
                      "--checkpoint-every", self.every, "--schedule", "constant", "--timeout", DEADLINE, "--quiet",
                      "--out", self.out]
        if self.transport == "threads":
            self.words += ["--workers", self.workers]

    def __str__(self):
        return f"{self.transport}, {self.workers} workers, {self.sync}, a checkpoint every {self.every}"

    def summary(self):
        return json.loads((self.out / "summary.json").read_text())

    def may_resume(self):
        return bool(list(self.out.glob("checkpoints/step-????????")))

    def start(self):
        """The next start: from the newest checkpoint, or, where the run died before it had one, afresh."""
        if self.may_resume():
            return Job(self, resume=True)
        shutil.rmtree(self.out, ignore_errors=True)
        return Job(self, resume=False)


def deal(trial, job, blow):
    """Deals one blow; returns the exit codes that it explains."""
    targets = job.ranks() if trial.transport == "mpi" else [job.process.pid]
    victim = trial.draw.choice(targets) if targets else job.process.pid
    if victim == 0:
        victim = job.process.pid
    try:
        if blow == "stop":
            os.kill(victim, signal.SIGSTOP)
            time.sleep(trial.draw.uniform(0, 0.3))
            os.kill(victim, signal.SIGCONT)
            return (0,)
        if blow == "long stop":
            os.kill(victim, signal.SIGSTOP)
            time.sleep(DEADLINE * 2)
            os.kill(victim, signal.SIGCONT)
            return (0, 3) if trial.transport == "mpi" else (0,)
        if blow == "kill":
            os.kill(victim, signal.SIGKILL)
            return (0, 3, -9, 137)
        os.kill(job.process.pid, signal.SIGINT if blow == "interrupt" else signal.SIGTERM)
        return (0, 130, 3, 1, 143, -2, -15) if trial.transport == "mpi" else (0, 130, -2, -15)
    except ProcessLookupError:
        return (0,)


def disturb(trial, seconds):
    """One start with one blow; 1 when the run was over before or in spite of it."""
    blow = trial.draw.choice(("kill", "kill", "kill", "stop", "interrupt", "terminate", "long stop"))
    job = trial.start()
    time.sleep(trial.draw.uniform(0, seconds))
    codes = deal(trial, job, blow)
    code, _, stderr = job.end()
    if code not in codes:
        raise Fault(f"{blow}: exit code {code}, where {codes} are right: {stderr}")
    if code == 3:
        told = [line for line in stderr.splitlines() if line.startswith("thinwire: ")]
        if not told:
            raise Fault(f"{blow}: code 3 without a word: {stderr}")
    return blow


def finish(trial):
    """Takes the run up until it is done."""
    code, _, stderr = trial.start().end()
    if code != 0:
        raise Fault(f"could not be finished: exit code {code}: {stderr}")
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
    blows = [disturb(trial, seconds) for _ in range(trial.draw.randrange(1, 4))]
    resumed = finish(trial)
    if resumed["steps"] != whole["steps"] or not math.isfinite(resumed["loss"]):
        raise Fault(f"after {blows}: {resumed['steps']} steps, loss {resumed['loss']}")
    is_exact = trial.sync in SYNCHRONOUS or (trial.sync in MEETING and not {"interrupt", "terminate"} & set(blows))
    if is_exact and resumed["weights_crc32c"] != whole["weights_crc32c"]:
        raise Fault(f"after {blows}: weights {resumed['weights_crc32c']}, undisturbed {whole['weights_crc32c']}")
    return blows


def main():
    parser = options_parser()
    parser.add_argument("--transport", choices=("threads", "mpi"))
    options = parser.parse_args()
    shared, references = make_shared("kills"), Reference()
    write_data(shared / "data")

    def begin(number, folder):
        trial = Trial(options.seed, number, shared, folder, options.transport)
        return trial, lambda: [f"{trial.transport}: {blow}" for blow in try_once(trial, references)]

    return run_trials(options, shared, begin)


if __name__ == "__main__":
    sys.exit(main())
