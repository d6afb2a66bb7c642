#!/usr/bin/env python3
"""Runs the Slurm examples of docs/several-machines.md under a Slurm of its own, of one node.

usage: slurm.py THINWIRE

It needs root and Debian's slurm-wlm, munge and openmpi-bin. Without one of them it says so and ends with 77. The page's
scripts run as they are printed, on four tasks of the one node instead of four nodes, and over few steps. Nothing of the
machine's own Slurm is read or changed: configuration, key, ports and states are the test's own."""
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/several-machines.md"
SCRIPT = re.compile(r"^```sh\n(#!/bin/bash\n#SBATCH.*?)^```", re.M | re.S)
HERE = ("--nodes=1", "--ntasks-per-node=4", "--cpus-per-task=1")  # outranks what a script says
SKIPPED = 77
SECONDS = 240  # for one job
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

# A few steps of small pictures. The page's command stays as it is.
SHORTER = '#!/bin/sh\nexec {program} "$@" --steps 6 --image-size 32 --quiet\n'

CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MailProg=/bin/true
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def fail(text):
    sys.exit(f"slurm.py: {text}")


def missing():
    if os.geteuid() != 0:
        return "root"
    tools = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "mpirun")
    absent = [tool for tool in tools if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin")]
    return absent[0] if absent else None


def free_ports(count):
    with contextlib.ExitStack() as kept:
        ports = []
        for _ in range(count):
            taken = kept.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))
            ports.append(taken.getsockname()[1])
        return ports


def wait_until(ready, what):
    end = time.monotonic() + 60
    while not ready():
        if time.monotonic() > end:
            fail(f"after a minute there is not yet {what}")
        time.sleep(0.1)


def prctl(option, value):
    ctypes.CDLL(None).prctl(option, value)


class Slurm:
    """munged, slurmctld and slurmd, which end with this process, whatever happens to it."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "OMP_NUM_THREADS": "1",
                            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}:/usr/sbin"}

    def start(self, *words):
        log = open(self.folder / f"{words[0]}.log", "w")
        subprocess.Popen(words, env=self.environment, stdout=log, stderr=log, cwd=self.folder,
                         preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL))

    def ask(self, *words, **more):
        return subprocess.run(words, env=self.environment, cwd=self.folder, capture_output=True, text=True,
                              timeout=SECONDS, **more)

    def authenticate(self):
        self.folder.chmod(0o711)  # munged wants everybody to reach its socket
        place = self.folder / "munge"
        place.mkdir(mode=0o711)
        files = [f"--{name}={place / name}" for name in ("key-file", "socket", "pid-file", "log-file", "seed-file")]
        (place / "key-file").touch(mode=0o600)
        (place / "key-file").write_bytes(os.urandom(128))
        self.start("munged", "--foreground", *files)
        wait_until((place / "socket").exists, "a socket of munged")

    def __enter__(self):
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # what daemons leave behind becomes this process's, which ends it
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(folder=self.folder, host=socket.gethostname(), ports=free_ports(2)))
        (self.folder / "cgroup.conf").touch()
        self.authenticate()
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", "localhost")
        wait_until(lambda: self.ask("sinfo", "-h", "-o", "%t").stdout.strip() == "idle", "an idle node")
        return self

    def __exit__(self, *what):
        if what[0]:
            for log in self.folder.glob("*.log"):
                print(f"{log.name} ends with:\n" + log.read_text()[-1000:], file=sys.stderr)
        end_children()


def end_children():
    own = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := own.read_text().split():
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)


def run_script(slurm, number, text):
    """The folder of the run."""
    script = slurm.folder / f"script-{number}"
    script.write_text(text)
    done = slurm.ask("sbatch", "--wait", "--parsable", *HERE, f"--output={script}.out", str(script))
    if done.returncode != 0:
        said = pathlib.Path(f"{script}.out")
        fail(f"sbatch ended with {done.returncode}:\n{text}\n{done.stderr}{said.read_text() if said.exists() else ''}")
    return slurm.folder / "runs" / done.stdout.strip()


def network(run):
    """The newest checkpoint's numbers, which four workers have made together, without the header, which names the run."""
    files = sorted(run.glob("checkpoints/step-*/model.safetensors"))
    if not files or len(list(files[-1].parent.glob("worker-*"))) != 4:
        fail(f"{run} holds no network of four workers, but {sorted(str(path.relative_to(run)) for path in run.rglob('*'))}")
    content = files[-1].read_bytes()
    return content[8 + int.from_bytes(content[:8], "little"):]


def check_plain(slurm):
    """Tasks that do not know each other are told so once."""
    done = slurm.ask("srun", "-n", "4", "thinwire", "train", "image", "--data", "photos")
    if done.returncode != 2 or done.stderr.count("srun started 4 tasks that do not know each other") != 1:
        fail(f"a plain srun ended with {done.returncode}:\n{done.stderr}")


def main():
    lacking = missing()
    if lacking:
        print(f"skipped: {lacking} is missing")
        sys.exit(SKIPPED)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("slurm.py: ended by a signal"))  # and clear up
    with tempfile.TemporaryDirectory(prefix="thinwire-slurm-") as temporary, Slurm(pathlib.Path(temporary)) as slurm:
        (slurm.folder / "bin").mkdir()
        program = slurm.folder / "bin/thinwire"
        program.write_text(SHORTER.format(program=pathlib.Path(sys.argv[1]).resolve()))
        program.chmod(0o755)
        subprocess.run([sys.executable, ROOT / "examples/make_pictures.py", slurm.folder / "photos"], check=True,
                       stdout=subprocess.DEVNULL)
        check_plain(slurm)
        networks = [network(run_script(slurm, *script)) for script in enumerate(SCRIPT.findall(PAGE.read_text()))]
        if len(networks) != 2 or networks[0] != networks[1]:
            fail(f"{len(networks)} scripts, and the two must make the same network, to the bit")
    print("a plain srun was refused; both scripts trained the same network")


if __name__ == "__main__":
    main()
