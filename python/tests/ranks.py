"""Runs a function on several ranks, each a process of its own with a Gloo group, and brings back what they returned.

The ranks are forks of the test, which has loaded torch: a process that loads it anew takes seconds. Nothing waits without
a deadline, and nothing outlives the test."""

import atexit
import ctypes
import functools
import gc
import importlib.util
import multiprocessing
import os
import pathlib
import pickle
import socket
import sys
import tempfile
import threading
import time
import traceback
import weakref

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src"
sys.path.insert(1, str(SOURCES.parents[1] / "tests" / "support"))
if "THINWIRE_LIBRARY" in os.environ:  # the library of a build folder, and so the sources beside it
    sys.path.insert(0, str(SOURCES))
from ports import free_port  # noqa: E402, F401: for the tests, too

SECONDS = float(os.environ.get("THINWIRE_TEST_SECONDS", 280))  # a crowded machine takes ten times as long


def torch_is_missing():
    return importlib.util.find_spec("torch") is None


def skip_without_torch():
    """ctest counts a test that ends with 77 as skipped."""
    if torch_is_missing():
        print("skipped: there is no torch here; Debian's is called python3-torch")
        sys.exit(77)


@functools.cache
def load_for_all():
    """PyTorch 2 loads its compiler with the first optimiser or DDP, which takes seconds: once, not in each rank. And what is
    there by now no rank's collector looks at, which would copy all of its pages."""
    import torch
    torch.optim.SGD([torch.zeros(1)], lr=1)
    gc.collect()
    gc.freeze()


class Crew:
    """The processes of one test."""
    grouped = True

    def __init__(self, function, size, *arguments):
        load_for_all()
        self.folder = tempfile.TemporaryDirectory()
        self.size = size
        path = pathlib.Path(self.folder.name)
        start = multiprocessing.get_context("fork").Process
        self.processes = [start(target=play, args=(rank, size, path, function, arguments, self.grouped)) for rank in range(size)]
        sys.stdout.flush(), sys.stderr.flush()
        for process in self.processes:
            process.start()

    def __enter__(self):
        return self

    def __exit__(self, *what):
        for process in self.processes:
            process.kill()
            process.join()
        self.folder.cleanup()

    def end(self, rank):
        """The exit code of a rank, and all that it wrote."""
        self.processes[rank].join(SECONDS)
        code, said = self.processes[rank].exitcode, pathlib.Path(self.folder.name, f"said{rank}").read_text()
        if code is None:
            raise AssertionError(f"rank {rank} of {self.size} has not ended within {SECONDS} seconds:\n{said[-4000:]}")
        return code, said

    def result(self, rank):
        path = pathlib.Path(self.folder.name, f"result{rank}")
        return pickle.loads(path.read_bytes()) if path.exists() else None

    def results(self):
        """What each rank returned. One that failed fails the test, with what it wrote."""
        ends = [self.end(rank) for rank in range(self.size)]
        for rank, (code, text) in enumerate(ends):
            if code:
                raise AssertionError(f"rank {rank} of {self.size} ended with {code}:\n{text[-4000:]}")
        return [self.result(rank) for rank in range(self.size)]


class Machines(Crew):
    """Without a group of torch's: whoever wants one makes it."""
    grouped = False


def in_a_call():
    """Whether a thread of this process is in a call that may wait for others. One whose call is over may still be about to end."""
    from thinwire._told import News
    for frame in sys._current_frames().values():
        while frame:
            if frame.f_code is News.act.__code__ and not frame.f_locals["self"]._over:
                return True
            frame = frame.f_back
    return False


def on_ranks(size, function, *arguments):
    with Crew(function, size, *arguments) as crew:
        return crew.results()


def on_threads(size, play):
    """What play(rank, comm) gives on each rank of a group inside this process, or the error that it ends with."""
    import thinwire
    outcomes = [None] * size

    def run(rank, comm):
        try:
            outcomes[rank] = play(rank, comm)
        except Exception as error:
            outcomes[rank] = error
        finally:
            comm.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(thinwire.Comm.threads(size))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return outcomes


def refused(act):
    """What thinwire says of it; nothing, where it is done."""
    import thinwire
    try:
        act()
    except thinwire.Error as error:
        return str(error)
    return ""


def wait_for_listener(port, seconds=SECONDS):
    """Whoever comes first to a meeting point decides what the group is."""
    def listens():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, f"nobody listens at port {port}", seconds)


def reached(name):
    """Says that this rank came to `name`."""
    (pathlib.Path(FOLDER) / f"{name}{RANK}").touch()


def meet(name, rank, seconds=SECONDS):
    """Waits until `rank` has come to `name`."""
    wait_for(pathlib.Path(FOLDER) / f"{name}{rank}", seconds)


def wait_for(path, seconds=SECONDS):
    wait_until(path.exists, f"{path.name} did not come", seconds)


def wait_until(is_so, otherwise, seconds):
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(otherwise)
        time.sleep(0.005)


FOLDER, RANK = "", 0
WHOLE_END = False  # whether this rank ends as Python does, with all that is left in it


def play(rank, size, folder, function, arguments, grouped):
    """A rank's whole life."""
    global FOLDER, RANK
    FOLDER, RANK = folder, rank
    begin_process(folder / f"said{rank}")
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    try:
        if grouped:
            dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
        result = function(rank, size, *arguments)
        (folder / f"writing{rank}").write_bytes(pickle.dumps(result))
        (folder / f"writing{rank}").rename(folder / f"result{rank}")
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(1)  # and so the others meet a rank that is gone, whatever they wait for
    gc.collect()  # a group that a cycle holds has threads of Gloo's, which must not meet the end of Python
    if dist.is_initialized():
        dist.destroy_process_group()
    if WHOLE_END:
        ctypes.pythonapi.Py_Exit(0)
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(0)  # taking Python down takes four times as long as all of this


def begin_process(said):
    """Of a fork: a session of its own, a file for what it writes, and what a new process would find in its environment."""
    os.setsid()
    weakref.finalize._registry.clear()  # the test's folders are not this process's to remove
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1), os.dup2(file, 2)
    os.environ.update({"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo",
                       "THINWIRE_BIND": "127.0.0.1"})
