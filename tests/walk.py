#!/usr/bin/env python3
"""Follows docs/getting-started.md: runs every command as it is printed there, in a folder of its own.

usage: walk.py THINWIRE [page.md]

Two machines are two network namespaces with the page's addresses, which take root and ip(8). mpirun logs in to the
second one with ssh, where an sshd of the walk's own listens. Without what this takes, those commands are left out, and
the last line says so. Of make, whose work is done already, the targets must exist."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import logins

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
PAGE = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/getting-started.md"
BLOCK = re.compile(r"^```sh(?: (both|mpi))?\n(.*?)^```", re.M | re.S)
HOSTS = ("10.0.0.5", "10.0.0.6")
PREFIX = f"walk{os.getpid()}"
SECONDS = 240  # for one command
JOBS = []  # what was started, each the leader of a group

def fail(text):
    sys.exit(f"walk.py: {text}")


class Machines:
    """Two namespaces that are joined by a cable."""
    names = [f"{PREFIX}-{host}" for host in HOSTS]

    @staticmethod
    def ip(*words, check=True):
        return subprocess.run(["ip", *words], check=check, capture_output=True).returncode == 0

    @staticmethod
    def possible():
        probe = f"{PREFIX}-probe"
        done = os.geteuid() == 0 and shutil.which("ip") and Machines.ip("netns", "add", probe, check=False)
        if done:
            Machines.ip("netns", "del", probe)
        return bool(done)

    @staticmethod
    def of_the_dead():
        """Names that a walk left behind which was killed."""
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        found = re.findall(r"^(walk(\d+)-\S+)", listed, re.M)
        return [name for name, owner in found if not pathlib.Path("/proc", owner).exists()]

    def remove(self, name):
        """With every process in it, such as what mpirun has started through sshd."""
        inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
        for pid in inside.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self.ip("netns", "del", name, check=False)

    def __enter__(self):
        for name in self.of_the_dead():
            self.remove(name)
        try:
            self.join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def join(self):
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("-n", self.names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
        for name, host in zip(self.names, HOSTS):
            self.ip("-n", name, "addr", "add", f"{host}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
            self.ip("-n", name, "link", "set", "lo", "up")

    def __exit__(self, *what):
        for name in self.names:
            self.remove(name)


def environment(folder):
    """Only where the keys for logging in are kept is not what the page's reader has."""
    ssh = logins.command(folder.parent / "logins")
    more = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_plm_rsh_agent": ssh, "PRTE_MCA_plm_ssh_agent": ssh, "OMPI_MCA_orte_tmpdir_base": str(folder)}
    return {**os.environ, **more}


def start(command, folder, machine=None):
    words = ["bash", "-euc", command]
    if machine:
        words = ["ip", "netns", "exec", machine, *words]
    job = subprocess.Popen(words, cwd=folder, env=environment(folder), text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, start_new_session=True)
    JOBS.append(job)
    return job


def kill_jobs():
    for job in JOBS:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


def finish(job, command):
    """What it printed. Every command has to succeed."""
    try:
        said, _ = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        fail(f"no end after {SECONDS} seconds: {command}\n{job.communicate()[0]}")
    if job.returncode != 0:
        fail(f"ended with {job.returncode}: {command}\n{said}")
    return said


def check_make(lines):
    """make has been said already, where this test runs; and one line is for the shell that reads on."""
    kept = []
    for line in lines:
        if line.startswith("make "):
            subprocess.run(["make", "-n", *line.split()[1:]], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        else:
            kept.append(line)
    return kept


def run_block(kind, text, folder, machines, said):
    path = 'export PATH="$PWD/build:$PATH"\n'
    command = path + "\n".join(check_make(text.splitlines()))
    if kind == "both":
        jobs = [start(command, folder if name == machines.names[0] else folder.parent / "second", name)
                for name in machines.names]
        said += [finish(job, text) for job in jobs]
    else:
        said.append(finish(start(command, folder, machines.names[0] if kind else None), text))


def expect(text, pattern):
    if not re.search(pattern, text):
        fail(f"what the commands printed lacks {pattern}:\n{text}")


def walk(folder, machines):
    """Runs the page; returns how many blocks were run, and which were left out."""
    said, left_out = [], []
    for kind, text in BLOCK.findall(PAGE.read_text()):
        usable = not kind or (machines and (kind == "both" or why_no_mpi() is None))
        needs_two = "runs/two" in text and not machines
        if usable and not needs_two:
            run_block(kind, text, folder, machines, said)
        else:
            left_out.append(f"{text[:60]}... ({why_no_mpi() if machines else 'no root or no ip'})".replace("\n", " "))
    text = "\n".join(said)
    expect(text, r"photos/circles/0.png\tcircles")
    accuracy = [float(value) for value in re.findall(r"validation accuracy ([\d.]+) %", text)]
    if not accuracy or min(accuracy) < 60:  # a third is chance
        fail(f"accuracies {accuracy}, of three classes:\n{text}")
    return len(said), left_out


def why_no_mpi():
    if not shutil.which("mpirun") or not (PROGRAM.parent / "libthinwire_mpi.so").exists():
        return "no MPI"
    return logins.missing()


def prepare(folder):
    """A checkout as the page has it: the program in build, the examples; and a second machine's."""
    for place in (folder, folder.parent / "second"):
        place.mkdir()
        (place / "build").symlink_to(PROGRAM.parent)
        (place / "examples").symlink_to(ROOT / "examples")
    for name in ("photos", "group.key"):  # what the page has copied
        (folder.parent / "second" / name).symlink_to(folder / name)


def walk_machines(folder):
    """Over two machines where there can be two."""
    if not Machines.possible():
        return walk(folder, None)
    with Machines() as machines:
        if logins.missing():
            return walk(folder, machines)
        with logins.Logins(folder.parent / "logins", dict(zip(HOSTS, machines.names))) as hosts:
            done = walk(folder, machines)
            if why_no_mpi() is None and hosts.let_in(HOSTS[1]) != 1:
                fail(f"mpirun has not logged in to {HOSTS[1]}")
            return done


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("walk.py: ended by a signal"))  # and clear up
    with tempfile.TemporaryDirectory(prefix="thinwire-walk-") as temporary:
        folder = pathlib.Path(temporary) / "first"
        prepare(folder)
        try:
            count, left_out = walk_machines(folder)
        finally:
            kill_jobs()
    print(f"{PAGE.name}: {count} commands and groups of commands were run"
          + "".join(f"; left out: {text}" for text in left_out))


if __name__ == "__main__":
    main()
