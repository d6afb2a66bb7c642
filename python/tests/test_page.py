#!/usr/bin/env python3
"""The program of docs/pytorch.md runs as it is printed there, by the commands that are printed there."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import launched
import page
import ranks


class Machines:
    """Two network namespaces with a cable between them, which stand for the two machines."""

    def __init__(self, first_address):
        network = first_address.rsplit(".", 1)
        self.addresses = [first_address, f"{network[0]}.{int(network[1]) + 1}"]
        self.names = [f"tw-page-{os.getpid()}-{i}" for i in range(2)]

    @staticmethod
    def why_not():
        if os.geteuid() != 0:
            return "only root may make network namespaces"
        if shutil.which("ip") is None:
            return "there is no ip here; Debian's package is called iproute2"
        probe = f"tw-page-{os.getpid()}-probe"
        if subprocess.run(["ip", "netns", "add", probe], stderr=subprocess.DEVNULL).returncode:
            return "this machine lets nobody make a network namespace (ip netns add)"
        subprocess.run(["ip", "netns", "del", probe], check=True)
        return None

    def __enter__(self):
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
            for name, address in zip(self.names, self.addresses):
                self.ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
                self.name_it(name, address)
                for link in ("lo", "eth0"):
                    self.ip("-n", name, "link", "set", link, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def name_it(self, name, address):
        """A machine's name leads to its address, which is where Gloo listens. `ip netns exec` finds the file there."""
        folder = pathlib.Path("/etc/netns", name)
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n")

    def __exit__(self, *what):
        for name in self.names:
            left = subprocess.run(["ip", "netns", "pids", name], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for process in map(int, left.stdout.split()):  # torchrun's workers are in sessions of their own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
            shutil.rmtree(pathlib.Path("/etc/netns", name), ignore_errors=True)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    def on(self, machine, command):
        """The words that run a line of shell there."""
        name = self.names[machine]
        return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f"hostname {name}; exec {command}"]


class PageTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "train.py").write_text(page.program())
        (self.path / "numpy.py").write_text("raise ModuleNotFoundError('torch does not bring numpy along')")

    def assert_learnt(self, out, err):
        loss = page.loss_of(out)
        self.assertIsNotNone(loss, out + err)
        self.assertLess(loss, 2.0)  # ln 10 = 2.3 is where it begins
        self.assertIn("it applies momentum=0.9 itself", err)

    def test_the_program_runs_as_printed(self):
        ends = launched.started_as_torchrun_does([self.path / "train.py"], 2)
        self.assertEqual([code for code, _, _ in ends], [0, 0], "\n".join(out + err for _, out, err in ends))
        (_, out, err), (_, nothing, _) = ends
        self.assert_learnt(out, err)
        self.assertEqual(nothing, "")

    def torchrun(self):
        (self.path / "bin").mkdir()
        folder = launched.folder_with_torchrun(self.path / "bin")
        if folder is None:
            self.skipTest("torchrun of this PyTorch does not run under this Python")
        return launched.environment(PATH=os.pathsep.join([str(folder), os.environ["PATH"]]))

    def run_all(self, commands, env):
        """Their ends. They run side by side, in the folder of train.py."""
        codes, wrote = launched.ends_of(commands, cwd=self.path, env=env, stderr=subprocess.PIPE)
        self.assertEqual(codes, [0] * len(commands), "\n".join(out + err for out, err in wrote))
        return wrote

    def test_the_command_for_one_machine(self):
        (out, err), = self.run_all([["sh", "-c", f"exec {page.on_one_machine()}"]], self.torchrun())
        self.assert_learnt(out, err)

    def test_the_commands_for_two_machines(self):
        """At the very address that is printed."""
        reason = Machines.why_not()
        if reason:
            self.skipTest(reason)
        env = self.torchrun()
        first, second, address = page.on_two_machines()
        with Machines(address) as machines:
            (out, err), (nothing, _) = self.run_all([machines.on(0, first), machines.on(1, second)], env)
        self.assert_learnt(out, err)
        self.assertEqual(nothing, "")


if __name__ == "__main__":
    ranks.skip_without_torch()
    unittest.main()
