#!/usr/bin/env python3
"""Machines behind routers, each in a network namespace of its own: two have no way to each other and say that they are at
the same private address, which only they themselves know; the others reach them by nothing but the connections that they
begin. Needs root, and is skipped without it. No torch is needed."""

import contextlib
import hashlib
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import threading
import unittest

import ranks
import thinwire
from thinwire.members import Due, Members, Wish

LARGE, PORT, PRIVATE = 4 << 20, 29444, "192.168.7.2"
OPEN, BEHIND = ("10.78.0.1", "10.78.0.2"), ("10.78.1.2", "10.78.2.2")
KEY = b"known to all of the machines here"


# ---- what runs on a machine ----


def tcp(address, seal=False):
    return thinwire.Tcp(advertise=address if address in OPEN else PRIVATE, key=KEY, seal=seal)


def tell(**what):
    print(json.dumps(what), flush=True)


def sent():
    return int(pathlib.Path("/sys/class/net/street/statistics/tx_bytes").read_text())


def exchange(address, rank):
    with tcp(address, seal=True).join(f"{OPEN[0]}:{PORT}", 3, int(rank), ranks.SECONDS) as comm:
        comm.barrier()
        before = sent()
        said = comm.allgather(bytes([65 + comm.rank]) * LARGE)
        comm.barrier()
        tell(digest=hashlib.sha256(b"".join(said)).hexdigest(), sent=sent() - before)


def take_part(address):
    """In rounds of nothing, until it is killed."""
    members = Members(f"{OPEN[0]}:{PORT}", "the same", tcp(address), grace=5.0, patience=ranks.SECONDS)
    rounds = 0 if members.opened else -1
    while True:
        place = members.next(rounds)
        rounds = 5
        tell(number=place.number, size=place.comm.size)
        with contextlib.suppress(thinwire.PeerError):
            while members.due(place.comm, Wish.STAY) == Due.SAME:
                pass
        place.comm.close()


# ---- the machines ----


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Street:
    """A bridge. Who is behind a router has no way to the other, and a private network of its own."""

    def __init__(self):
        self.prefix = f"tw-routers-{os.getpid()}-"
        self.names = {address: f"{self.prefix}{number}" for number, address in enumerate((*OPEN, *BEHIND))}
        ip("netns", "add", f"{self.prefix}street")
        ip("-n", f"{self.prefix}street", "link", "add", "bridge", "up", "type", "bridge")
        for number, address in enumerate(self.names):
            self.add(number, address)

    def add(self, number, address):
        name, street = self.names[address], f"{self.prefix}street"
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "street", "type", "veth", "peer", "name", f"house{number}", "netns", street)
        ip("-n", street, "link", "set", f"house{number}", "master", "bridge", "up")
        ip("-n", name, "address", "add", f"{address}/32", "dev", "street")
        ip("-n", name, "link", "set", "street", "up")
        ip("-n", name, "link", "set", "lo", "up")
        for other in OPEN if address in BEHIND else (*OPEN, *BEHIND):
            if other != address:
                ip("-n", name, "route", "add", other, "dev", "street", "src", address)
        if address in BEHIND:
            ip("-n", name, "address", "add", f"{PRIVATE}/24", "dev", "lo")

    def start(self, address, *words):
        command = ["ip", "netns", "exec", self.names[address], sys.executable, "-B", __file__, *words, address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "THINWIRE_BIND": ""})
        lines = queue.Queue()

        def hear():
            for line in process.stdout:
                lines.put(json.loads(line))
            lines.put({"size": 0})  # it has ended

        threading.Thread(target=hear, daemon=True).start()
        return process, lines

    def close(self):
        for name in (*self.names.values(), f"{self.prefix}street"):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


class RoutersTest(unittest.TestCase):
    def setUp(self):
        if os.getuid() or not shutil.which("ip"):
            self.skipTest("network namespaces need root, and ip")
        self.street = Street()
        self.addCleanup(self.street.close)
        self.processes = []

    def start(self, *words):
        process, lines = self.street.start(*words)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.processes.append(process)
        return lines

    def test_what_the_two_say_goes_over_a_third_ones_line(self):
        """Sealed. Each has 8 MiB to send, and the line of the third carries as much for the two besides its own."""
        machines = [OPEN[0], *BEHIND]
        lines = [self.start(address, "exchange", str(rank)) for rank, address in enumerate(machines)]
        told = [one.get(timeout=ranks.SECONDS) for one in lines]
        self.assertEqual([process.wait() for process in self.processes], [0] * 3)
        whole = hashlib.sha256(b"".join(bytes([65 + rank]) * LARGE for rank in range(3))).hexdigest()
        self.assertEqual([one["digest"] for one in told], [whole] * 3)
        shares = [one["sent"] / LARGE for one in told]
        print(f"sent, in messages of {LARGE} bytes:", [round(share, 3) for share in shares])
        for share, messages in zip(shares, (4, 2, 2)):
            self.assertGreater(share, messages)
            self.assertLess(share, messages * 1.1)

    def test_they_outlive_the_one_that_carried_for_them(self):
        lines = []
        for address in (OPEN[0], BEHIND[0], OPEN[1], BEHIND[1]):  # the sum of the two's ranks is even: the first carries
            lines.append(self.start(address, "take_part"))
            self.await_size(lines)
        self.processes[0].kill()
        self.await_size(lines[1:])

    def await_size(self, lines):
        """All of these are in a generation of as many."""
        for one in lines:
            size = None
            while size != len(lines):
                size = one.get(timeout=ranks.SECONDS)["size"]
                self.assertTrue(size, "it has ended")


if __name__ == "__main__":
    if sys.argv[1:2] == ["exchange"]:
        exchange(sys.argv[3], sys.argv[2])
    elif sys.argv[1:2] == ["take_part"]:
        take_part(sys.argv[2])
    else:
        unittest.main()
