"""Machines that one can log in to: an sshd of its own in each of some network namespaces, with keys of its own.

Nothing of the machine's own ssh is read or changed. A namespace has a port 22 of its own, so that commands need not
name another one."""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess

SSHD = "/usr/sbin/sshd"  # it insists on being called by its whole path
ROOMS = pathlib.Path("/run/sshd")  # where it locks its unprivileged half in: a service makes it, which does not run here
PR_SET_PDEATHSIG = 1

SERVER = """HostKey {folder}/host_key
AuthorizedKeysFile {folder}/login_key.pub
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
"""
CLIENT = """Host *
    IdentityFile {folder}/login_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking yes
    BatchMode yes
    LogLevel ERROR
"""


def missing():
    """What logins lack here, or None."""
    if os.geteuid() != 0:
        return "root"
    absent = [tool for tool in ("ssh", "ssh-keygen", SSHD) if not shutil.which(tool)]
    return absent[0] if absent else None


def command(folder):
    """The ssh that is let in by the Logins of this folder."""
    return f"ssh -F {folder / 'client'}"


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Logins:
    """`with Logins(folder, {address: namespace})`: command(folder) is let in at the addresses. The folder is made.

    Whoever is still logged in at the end is the caller's to end."""

    def __init__(self, folder, machines):
        self.folder, self.machines, self.servers = folder, machines, {}

    def key(self, name):
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        return path.with_suffix(".pub").read_text()

    def write(self):
        self.folder.mkdir(mode=0o700)
        host = self.key("host_key")
        self.key("login_key")
        (self.folder / "known_hosts").write_text("".join(f"{address} {host}" for address in self.machines))
        (self.folder / "server").write_text(SERVER.format(folder=self.folder))
        (self.folder / "client").write_text(CLIENT.format(folder=self.folder))

    def serve(self, namespace):
        """Ends when sshd listens, which it says on standard error."""
        command = ["ip", "netns", "exec", namespace, SSHD, "-D", "-e", "-f", self.folder / "server"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0, preexec_fn=die_with_parent)
        self.servers[namespace] = server
        said = b""
        for line in server.stderr:
            if line.startswith(b"Server listening"):
                return
            said += line
        raise RuntimeError(f"sshd does not listen: {said.decode()}")

    def __enter__(self):
        ROOMS.mkdir(mode=0o755, exist_ok=True)  # and stays, because another test's sshd may be using it
        self.write()
        try:
            for namespace in self.machines.values():
                self.serve(namespace)
        except BaseException:
            self.__exit__()
            raise
        return self

    def let_in(self, address):
        """How many logins its sshd has told of since the last call. Who is logged in holds the pipe open, too."""
        log = self.servers[self.machines[address]].stderr.fileno()
        os.set_blocking(log, False)
        try:
            return os.read(log, 1 << 16).count(b"Accepted publickey")
        except BlockingIOError:
            return 0

    def __exit__(self, *what):
        for server in self.servers.values():
            server.terminate()
            server.wait()
            server.stderr.close()
