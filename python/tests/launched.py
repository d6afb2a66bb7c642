"""Starts a script on several ranks, as torchrun does or by torchrun itself.

(That of PyTorch 1.13 does not run under Python 3.11: then its part is done here.)"""

import contextlib
import importlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import ranks


def environment(**more):
    kept = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "THINWIRE_FALLBACK": "off"}  # whether torch's own exchange is faster on this machine is chance
    return {**kept, **more}


def meeting_point(size):
    """The store that ranks meet at is the launcher's, and listens before they begin. (A port that is only chosen before may
    be somebody else's by the time that the first rank listens, and then the others wait for half an hour.)"""
    from torch.distributed import TCPStore
    return TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)


def wait(processes, seconds):
    """Until all have ended, one has failed, or time is over; then none is left."""
    deadline = time.monotonic() + seconds
    while any(p.poll() is None for p in processes) and not any(p.poll() for p in processes) and time.monotonic() < deadline:
        time.sleep(0.01)
    codes = [process.poll() for process in processes]
    for process in processes:
        process.kill()
        process.wait()
    return codes


def ends_of(commands, **more):
    """The exit code of each program, and what it wrote. They run side by side."""
    processes = [subprocess.Popen(list(map(str, words)), text=True, stdout=subprocess.PIPE, start_new_session=True,
                                  **{"stderr": subprocess.STDOUT, **more}) for words in commands]
    try:
        wrote = [process.communicate(timeout=ranks.SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [process.returncode for process in processes], wrote


def told_by_torchrun(port, size, rank):
    return {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            "THINWIRE_BIND": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}


def forks_as_torchrun_has_them(size, function, *arguments):
    """The function on several ranks, which are forks of the test: what it has loaded by now they need not load."""
    store = meeting_point(size)
    crew = ranks.Machines(_as_rank, size, store.port, function, arguments)
    crew.store = store  # for as long as they may ask it
    return crew


def forked_as_torchrun_does(size, function, *arguments):
    with forks_as_torchrun_has_them(size, function, *arguments) as crew:
        return crew.results()


def _as_rank(rank, size, port, function, arguments):
    os.environ.update(told_by_torchrun(port, size, rank))
    return function(*arguments)


def started_as_torchrun_does(words, size):
    """What each rank wrote: its ends, its output and its errors."""
    store = meeting_point(size)
    with contextlib.ExitStack() as stack:
        files = [[stack.enter_context(tempfile.TemporaryFile("w+")) for _ in "oe"] for _ in range(size)]
        processes = [subprocess.Popen([sys.executable, *map(str, words)], start_new_session=True, stdout=out, stderr=err,
                                      env=environment(**told_by_torchrun(store.port, size, rank)))
                     for rank, (out, err) in enumerate(files)]
        codes = wait(processes, 2 * ranks.SECONDS)
        for file in (file for pair in files for file in pair):
            file.seek(0)
        return [(code, out.read(), err.read()) for code, (out, err) in zip(codes, files)]


def folder_with_torchrun(folder):
    """A folder in which `torchrun` is this Python's, or None where this torch has none that runs."""
    import torch
    if torch.__version__.startswith("1.") and sys.version_info >= (3, 11):
        return None
    beside = pathlib.Path(sys.executable).with_name("torchrun")
    program = folder / "torchrun"
    if beside.exists():
        shutil.copy(beside, program)
    else:
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torch.distributed.run "$@"\n')
    program.chmod(0o755)
    return folder


def load(framework):
    """All of it that takes long."""
    name = {"trainer": "transformers"}.get(framework, framework)
    skip_without(name)
    importlib.import_module(f"thinwire.torch.{name}")
    if name == "transformers":
        from transformers import Trainer, TrainingArguments  # noqa: F401: they are loaded when they are asked for
    else:
        importlib.import_module({"lightning": "lightning.pytorch"}.get(name, name))


def skip_without(framework):
    if importlib.util.find_spec(framework) is None:
        print(f"skipped: {framework} is not installed (pip install {framework})")
        sys.exit(77)


def forget_group():
    """After a run, so that another one may have a group in this process."""
    import torch.distributed as dist
    if dist.is_initialized():
        dist.destroy_process_group()
    if "accelerate" in sys.modules:  # it remembers the group
        sys.modules["accelerate.state"].AcceleratorState._reset_state(True)


def meet_anew(folder, name, rank, size, prepare=lambda: None):
    """In a rank that began as torchrun has it, which makes one group after another: all ranks come here, rank 0 does what
    has to be done before, and the next group meets at a place of its own, for a store serves one group."""
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    _meet(folder, name, rank, size)
    if rank == 0:
        (folder / f"{name}-port").write_text(str(ranks.free_port()))
        prepare()
    _meet(folder, f"{name}-begin", rank, size)
    os.environ["MASTER_PORT"] = (folder / f"{name}-port").read_text()


def _meet(folder, place, rank, size):
    (folder / f"{place}-{rank}").touch()
    for other in range(size):
        ranks.wait_for(folder / f"{place}-{other}")
