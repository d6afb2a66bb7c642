"""Runs a function on several ranks, each a process of its own with a Gloo group, and brings back what they returned.

A test file is started once more for each rank, as `FILE --rank R SIZE FOLDER FUNCTION`. Nothing waits without a
deadline, and nothing outlives the test."""

import gc
import importlib.util
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src"
if "THINWIRE_LIBRARY" in os.environ:  # the library of a build folder, and so the sources beside it
    sys.path.insert(0, str(SOURCES))
SECONDS = float(os.environ.get("THINWIRE_TEST_SECONDS", 280))  # a crowded machine takes ten times as long


def torch_is_missing():
    return importlib.util.find_spec("torch") is None


def skip_without_torch():
    """ctest counts a test that ends with 77 as skipped."""
    if torch_is_missing():
        print("skipped: there is no torch here; Debian's is called python3-torch")
        sys.exit(77)


class Crew:
    """The processes of one test."""

    def __init__(self, function, size, *arguments):
        self.folder = tempfile.TemporaryDirectory()
        self.size = size
        path = pathlib.Path(self.folder.name)
        (path / "arguments").write_bytes(pickle.dumps(arguments))
        file = sys.modules[function.__module__].__file__
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path),
                       "GLOO_SOCKET_IFNAME": "lo", "THINWIRE_BIND": "127.0.0.1"}
        self.processes = [subprocess.Popen([sys.executable, file, "--rank", str(rank), str(size), self.folder.name,
                                            function.__name__], env=environment, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True, start_new_session=True)
                          for rank in range(size)]

    def __enter__(self):
        return self

    def __exit__(self, *what):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()
        self.folder.cleanup()

    def end(self, rank):
        """The exit code of a rank, and all that it wrote."""
        out, err = self.processes[rank].communicate(timeout=SECONDS)
        return self.processes[rank].returncode, out + err

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


def on_ranks(size, function, *arguments):
    with Crew(function, size, *arguments) as crew:
        return crew.results()


def reached(name):
    """Says that this rank came to `name`."""
    (pathlib.Path(FOLDER) / f"{name}{RANK}").touch()


def meet(name, rank, seconds=SECONDS):
    """Waits until `rank` has come to `name`."""
    wait_for(pathlib.Path(FOLDER) / f"{name}{rank}", seconds)


def wait_for(path, seconds=SECONDS):
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise AssertionError(f"{path.name} did not come")
        time.sleep(0.005)


FOLDER, RANK = "", 0


def main():
    """At the end of each test file: this process is the test, or one of its ranks."""
    skip_without_torch()
    if "--rank" not in sys.argv:
        unittest.main()
    rank, size, folder, function = sys.argv[2:]
    sys.modules["ranks"].FOLDER, sys.modules["ranks"].RANK = folder, int(rank)
    play(int(rank), int(size), pathlib.Path(folder), getattr(sys.modules["__main__"], function))


def play(rank, size, folder, function):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    arguments = pickle.loads((folder / "arguments").read_bytes())
    try:
        result = function(rank, size, *arguments)
        (folder / f"writing{rank}").write_bytes(pickle.dumps(result))
        (folder / f"writing{rank}").rename(folder / f"result{rank}")
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # and so the others meet a rank that is gone, whatever they wait for
    gc.collect()  # a group that a cycle holds has threads of Gloo's, which must not meet the end of Python
    dist.destroy_process_group()
    sys.exit(0)
