"""Runs a program over links of a given rate (bench/link.sh) from Python, for no longer than it may take.

Whatever ends the wait, the ranks and their network are gone when run() returns; where this process is killed, link.sh
is told by the kernel, and takes them away itself."""
import ctypes
import os
import pathlib
import signal
import subprocess

SCRIPT = pathlib.Path(__file__).resolve().parent / "link.sh"
SECONDS_TO_END = 30  # for mpirun and its ranks, which link.sh kills after ten
PR_SET_PDEATHSIG = 1


class Missing(Exception):
    """What the links need is not to be had: root, namespaces, or a tool."""


class Failed(Exception):
    """The program failed, or took too long; the text holds what it wrote."""


def _end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def bytes_of_device():
    """Sent and received by the card of this namespace so far, headers and all."""
    for line in pathlib.Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "eth0":
            return int(counts.split()[8]), int(counts.split()[0])
    return 0, 0


def run(hosts, gbit, words, seconds, delay=0, relay=None):
    """What the program `words` printed, run as ranks on `hosts`, "4" or "2x4", as link.sh takes them."""
    command = [SCRIPT, hosts, f"{round(gbit * 1e6)}kbit", *words]
    job = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent, start_new_session=True,
                           env={**os.environ, "DELAY": f"{delay:g}", "RELAY": str(relay)})
    try:
        output, errors = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"not done after {seconds:.0f} s, and ended: {_end(job).strip()[-2000:]}") from late
    except BaseException:
        _end(job)
        raise
    if job.returncode == 77:
        raise Missing(errors.strip())
    if job.returncode:
        raise Failed(errors.strip()[-4000:] or f"ended with {job.returncode}, and said nothing")
    return output


def _end(job):
    """Has link.sh take its network away, and gives what was written on stderr."""
    job.terminate()
    try:
        return job.communicate(timeout=SECONDS_TO_END)[1]
    except subprocess.TimeoutExpired:
        job.kill()
        return job.communicate()[1]
