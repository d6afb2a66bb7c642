"""What the tests of the command line share: a tiny data set, a run of the program, and what a refusal must look like.

Each file is a program: `training.py PATH/thinwire`. Those that end with run_tests() may be run in two parts: with --mpi
what starts mpirun, with --no-mpi the rest. Nothing here waits without end: what the tests start gets as long as the file
has left (TEST_SECONDS in all), and is killed with its children when its test is over."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import parts  # noqa: E402
from ports import free_port  # noqa: E402

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
SIDE, TRAIN, TEST = 12, 192, 50

# Ranks of one machine need no TCP, whose lack of a usable network Open MPI 5 reports on stderr; nor libfabric, which Open
# MPI 4 takes a second to begin and another to end once TCP is left out.
# Without /sys, as in a root that a person changed to, hwloc complains on stderr unless its errors are hidden.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "^tcp,ofi",
                   "HWLOC_HIDE_ERRORS": "2"}
HAS_MPI = shutil.which("mpirun") and (PROGRAM.parent / "libthinwire_mpi.so").exists()

DEADLINE = time.monotonic() + 0.9 * float(os.environ.get("TEST_SECONDS", 300))  # before ctest kills us, who clean up


def free_place():
    """An address of this machine to meet at."""
    return f"127.0.0.1:{free_port()}"


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def seconds_left():
    return max(1, DEADLINE - time.monotonic())


class Ended(AssertionError):
    """The program ended before what should have come."""
    def __init__(self, code, what):
        super().__init__(f"the program ended with {code} before: {what}")
        self.code = code


def wait_until(condition, what, job=None):
    """Returns when the condition holds; fails when the time is over, or when the job that should bring it about ended."""
    while not condition():
        if time.monotonic() > DEADLINE:
            raise AssertionError(f"no time is left, and still not: {what}")
        if job and job.poll() is not None and not condition():
            raise Ended(job.returncode, what)
        time.sleep(0.005)


def saved_steps(out):
    """The steps of the run's whole checkpoints. A newer one may take an older one's place at any time."""
    return sorted(int(path.name[5:]) for path in out.glob("checkpoints/step-????????"))


def has_saved(out, step):
    """Whether there is a checkpoint of that step or of a later one."""
    return any(saved >= step for saved in saved_steps(out))


def take_library(name):
    """A library to preload, of the words behind the program; None in a build that has it not."""
    found = [word for word in sys.argv[1:] if word.endswith(f"{name}.so")]
    sys.argv[1:] = [word for word in sys.argv[1:] if word not in found]
    return found[0] if found else None


def killing(killer, *kill):
    """The environment of a program that kill_in_file kills: in which call, after which file is there, which file it leaves
    then, and with which signal."""
    return {"LD_PRELOAD": killer, **dict(zip(("KILL_AT", "KILL_AFTER", "KILL_MARK", "KILL_WITH"), map(str, kill)))}


def await_stop(job):
    """Returns once a signal has stopped it."""
    wait_until(lambda: os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), "it stands still", job)


def without_notes(stderr):
    """Its lines but for those of the library that say why a process still waits, and by which ways the group talks, which
    a slow machine may bring about."""
    return [line for line in stderr.splitlines() if not re.search(r"this process waits: |rank \d+ (cannot be called|carries what)", line)]


ANSWER = "the run stops after this step, or round of local updates; a second Ctrl-C, two seconds from now or later, ends it at once"


def kill_sessions(*sessions):
    """Kills every process of these sessions. (A process group is not enough: mpirun gives each rank one of its own.)"""
    # Not by glob: that asks of each whether it is there, and fails where a process ends at that moment.
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if int(pathlib.Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[3]) in sessions:
                os.kill(int(process), signal.SIGKILL)
        except OSError:
            pass  # it has ended meanwhile


def has_stepped(out):
    """Whether the run in that folder has written the metrics of a step."""
    metrics = out / "metrics.jsonl"
    return metrics.exists() and '"step"' in metrics.read_text().partition("\n")[2]


def listening_threads(process):
    """Which threads of a process a signal that asks it to stop may reach, and how many it has."""
    asking = sum(1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    threads = sorted(int(task) for task in os.listdir(f"/proc/{process}/task"))
    def blocked(thread):
        with open(f"/proc/{process}/task/{thread}/status") as status:
            return int(next(line for line in status if line.startswith("SigBlk")).split()[1], 16)
    return [thread for thread in threads if blocked(thread) & asking != asking], len(threads)


def under_mpi(ranks):
    return {"launcher": ("mpirun", "--oversubscribe", "-n", str(ranks)), "env": MPI_ENVIRONMENT}


def needs_mpi(case):
    """Marks a class or a test that starts mpirun."""
    case.starts_mpirun = True
    return unittest.skipUnless(HAS_MPI, "needs mpirun and libthinwire_mpi")(case)


class MpiLoader(parts.Loader):
    """Loads what starts mpirun, or what does not."""
    def __init__(self, mpi):
        super().__init__()
        self.mpi = mpi

    def getTestCaseNames(self, case):
        return [name for name in super().getTestCaseNames(case) if self.mpi == (
            getattr(case, "starts_mpirun", False) or getattr(getattr(case, name), "starts_mpirun", False))]


def run_tests():
    words = [word for word in sys.argv[1:] if word in ("--mpi", "--no-mpi")]
    sys.argv = [word for word in sys.argv if word not in words]
    unittest.main(testLoader=MpiLoader(words[0] == "--mpi") if words else parts.Loader())


def unless_kept(options):
    """What keeps nothing of a run, where its options do not say what to keep."""
    return () if {"--out", "--resume"} & set(map(str, options)) else ("--out", "none")


def find_torch():
    """A Python that has PyTorch; None where there is none. Debian's is for Debian's Python."""
    looks = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in (sys.executable, "/usr/bin/python3"):
        if pathlib.Path(python).exists() and subprocess.run([python, "-c", looks]).returncode == 0:
            return python
    return None


def write_letters(path, count):
    """A text of so many letters, spaces and ends of lines, the same each time."""
    generator = random.Random(3)
    path.write_text("".join(generator.choice("abcdefg \n") for _ in range(count)))


def write_texts(folder, **counts):
    """A folder for --data, with so many letters for each part."""
    folder.mkdir()
    for part, count in counts.items():
        write_letters(folder / f"text.{part}.txt", count)


def write_idx(path, dimensions, values):
    path.write_bytes(struct.pack(f">I{len(dimensions)}I", 0x800 + len(dimensions), *dimensions) + bytes(values))


def write_split(folder, split, count, generator):
    """Noise with a bright row that tells the class, so that a few steps learn something."""
    labels = [generator.randrange(10) for _ in range(count)]
    pixels = bytearray(generator.randrange(60) for _ in range(count * SIDE * SIDE))
    for image, label in enumerate(labels):
        at = (image * SIDE + 1 + label) * SIDE
        pixels[at:at + SIDE] = bytes([255] * SIDE)
    write_idx(folder / f"{split}-images-idx3-ubyte", (count, SIDE, SIDE), pixels)
    write_idx(folder / f"{split}-labels-idx1-ubyte", (count,), labels)


def write_data(folder):
    folder.mkdir(parents=True)
    generator = random.Random(1)
    write_split(folder, "train", TRAIN, generator)
    write_split(folder, "t10k", TEST, generator)
    return folder


def write_cifar(folder):
    """CIFAR-10's files with 32 images each: noise with a bright row that tells the class."""
    folder.mkdir(parents=True)
    generator, dim = random.Random(2), bytes(byte * 60 // 256 for byte in range(256))
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        records = bytearray()
        for _ in range(32):
            label = generator.randrange(10)
            pixels = bytearray(generator.randbytes(3 * 32 * 32).translate(dim))
            pixels[3 * 32 * label:3 * 32 * (label + 1)] = bytes([255] * 3 * 32)
            records += bytes([label]) + pixels
        (folder / name).write_bytes(records)
    return folder


class Talker:
    """One process of a test, and what it has said so far."""
    def __init__(self, test, number, words, **keywords):
        self.test, self.path = test, test.folder / f"said-{number}"
        with open(self.path, "w") as said:
            self.job = test.start_program(*words, stdout=said, stderr=said, **keywords)

    def said(self, pattern):
        """What is found of it, each time that it is said."""
        return re.findall(pattern, self.path.read_text())

    def await_word(self, pattern):
        wait_until(lambda: self.said(pattern), pattern, self.job)
        return self.said(pattern)[-1]


class CommandLineTest(unittest.TestCase):
    """A folder to write in, a data set in it, and short ways to run the program."""

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="thinwire-cli-"))
        cls.data = write_data(cls.shared / "data")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.shared))

    def train_words(self, *options):
        return ["train", "image", "--data", self.data, "--batch", "8", *options, *unless_kept(options)]

    jobs = ()

    def start(self, *command, env=(), **keywords):
        """Starts a command in a session of its own, which does not outlive the test; its output is kept in pipes. What
        it keeps in folders of its own choice is gone with the test."""
        job = subprocess.Popen([*map(str, command)], start_new_session=True, text=True, env={**os.environ, **dict(env)},
                               **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": self.shared, **keywords})
        if not self.jobs:
            self.addCleanup(lambda: self.end(*self.jobs))  # all at once: to look for a session is to look at each process there is
        self.jobs += (job,)
        return job

    @staticmethod
    def end(*jobs):
        kill_sessions(*(job.pid for job in jobs))
        for job in jobs:
            job.communicate()

    def start_program(self, *words, launcher=(), **keywords):
        return self.start(*launcher, PROGRAM, *words, **keywords)

    def finish(self, job):
        """Waits for the job's end; returns what subprocess.run does."""
        try:
            stdout, stderr = job.communicate(timeout=seconds_left())
        except subprocess.TimeoutExpired:
            self.fail(f"no time is left, and this has not ended: {' '.join(job.args)}")
        return subprocess.CompletedProcess(job.args, job.returncode, stdout, stderr)

    def run_program(self, *words, **keywords):
        return self.finish(self.start_program(*words, **keywords))

    def complete(self, *words, **keywords):
        """Runs the program, which must succeed."""
        done = self.run_program(*words, **keywords)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def complete_all(self, jobs):
        """Waits for the end of several, which must succeed."""
        done = [self.finish(job) for job in jobs]
        self.assertEqual([one.returncode for one in done], [0] * len(done), [one.stderr for one in done])
        return done

    def succeed(self, *words, **keywords):
        """Without a word on stderr; its output."""
        done = self.complete(*words, **keywords)
        self.assertEqual(done.stderr, "", words)
        return done.stdout

    def assert_one_listens(self, process, least):
        """Of at least so many threads of a run, the one that handles signals is neither the first nor one of its."""
        wait_until(lambda: listening_threads(process)[0], "somebody listens to signals")
        listening, count = listening_threads(process)
        self.assertGreaterEqual(count, least)
        self.assertEqual(len(listening), 1, f"of {count} threads")
        self.assertNotIn(process, listening)  # the first thread, which computes where a rank is a process

    def train(self, *options, **keywords):
        """Trains, and returns the summary; fails the test unless the program succeeds without a word on stderr."""
        done = self.run_program(*self.train_words("--quiet", "--json", "-", *options), **keywords)
        # What clang's leak checker says of MPI's own libraries, which it cannot read, is no fault of ours.
        told = [line for line in done.stderr.splitlines() if not line.startswith("LLVMSymbolizer:")]
        self.assertEqual((done.returncode, told), (0, []), done.stdout)
        return json.loads(done.stdout)

    def assert_interrupted(self, done):
        """It was asked to stop, said so in one line, and stopped."""
        self.assertEqual((done.returncode, done.stderr), (130, f"thinwire: {ANSWER}\n"))

    def refuse(self, code, culprits, *words, **keywords):
        """Runs the program; it must end with `code` and one line on stderr that names every culprit."""
        done = self.run_program(*words, **keywords)
        self.assertEqual(done.returncode, code, done.stderr)
        lines = without_notes(done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        for culprit in culprits:
            self.assertIn(str(culprit), lines[0])
        return done

    def refuse_training(self, code, culprits, *options, **keywords):
        return self.refuse(code, culprits, *self.train_words("--quiet", *options), **keywords)
