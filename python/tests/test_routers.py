#!/usr/bin/env python3
"""Machines behind routers, each in a network namespace of its own: two have no way to each other and say that they are at
the same private address, which only they themselves know; the others reach them by nothing but the connections that they
begin. Once more with routers that translate addresses, where there is nft. And a machine whose address changes while it
trains, or whose line is cut for a while. Needs root, and is skipped without it. No torch is needed."""

import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import queue
import select
import shutil
import subprocess
import sys
import threading
import time
import unittest

import ranks  # finds the others
import parts
import thinwire
from thinwire.changing import ChangingLoop
from thinwire.members import Due, Members, Wish

LARGE, PORT, PRIVATE, GATEWAY = 4 << 20, 29444, "192.168.7.2", "192.168.7.1"
OPEN, BEHIND, MOVED = ("10.78.0.1", "10.78.0.2"), ("10.78.1.2", "10.78.2.2"), "10.78.0.3"
KEY, EVERY = b"known to all of the machines here", 2
TRANSLATE = "table ip n { chain c { type nat hook postrouting priority 100; oifname street masquerade; }; }"


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
                time.sleep(0.005)  # there are two cores
        place.comm.close()


def train(address):
    """All that a step does is to add 1."""
    weights, generation = (ctypes.c_float * 8)(), 0
    at = [ctypes.addressof(weights)]
    members = Members(f"{OPEN[0]}:{PORT}", "the same", thinwire.Tcp(key=KEY), grace=15.0, patience=ranks.SECONDS)
    loop = ChangingLoop(members, f"local:every={EVERY}", [("w", (8,))])
    loop.begin(at)
    while not select.select([sys.stdin], [], [], 0.005)[0]:  # there are two cores
        for i in range(8):
            weights[i] += 1
        loop.step(at)
        if loop.generation != generation:
            generation = loop.generation
            tell(number=generation, size=loop.size, rounds=loop.stats()["rounds"])
    loop.finish(at)
    tell(theta=list(weights), rounds=loop.stats()["rounds"], waited=loop.stats()["seconds_wait"], size=0)


# ---- the machines ----


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def put_behind(router, home):
    """A machine that has an address of its home alone. What it sends has the router's on the street, which is there."""
    inside = ["ip", "netns", "exec", router]
    ip("-n", home, "link", "add", "street", "up", "type", "veth", "peer", "name", "home", "netns", router)
    ip("-n", home, "address", "add", f"{PRIVATE}/24", "dev", "street")
    ip("-n", home, "link", "set", "lo", "up")
    ip("-n", router, "address", "add", f"{GATEWAY}/24", "dev", "home")
    ip("-n", router, "link", "set", "home", "up")
    ip("-n", home, "route", "add", "default", "via", GATEWAY)
    subprocess.run([*inside, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)
    done = subprocess.run([*inside, "nft", TRANSLATE], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise unittest.SkipTest(f"this system translates no addresses: {done.stderr.strip()}")


class Street:
    """A bridge. Who is behind a router has no way to the other, and a private network of its own; with `translates` it has
    nothing else, and the router is a namespace between."""

    def __init__(self, translates=False):
        self.prefix = f"tw-routers-{os.getpid()}-"
        self.street = f"{self.prefix}street"
        self.names = {address: f"{self.prefix}{number}" for number, address in enumerate((*OPEN, *BEHIND))}
        self.routers = {address: f"{self.names[address]}-router" for address in BEHIND if translates}
        self.environments = {}  # of machines that are told where to listen

    def build(self):
        ip("netns", "add", self.street)
        ip("-n", self.street, "link", "add", "bridge", "up", "type", "bridge")
        for number, address in enumerate(self.names):
            ip("netns", "add", self.names[address])
            self.add(number, address)

    def add(self, number, address):
        name = self.routers.get(address, self.names[address])
        if name in self.routers.values():
            ip("netns", "add", name)
        ip("-n", name, "link", "add", "street", "type", "veth", "peer", "name", f"house{number}", "netns", self.street)
        ip("-n", self.street, "link", "set", f"house{number}", "master", "bridge", "up")
        ip("-n", name, "link", "set", "street", "up")
        ip("-n", name, "link", "set", "lo", "up")
        self.settle(name, address, OPEN if address in BEHIND else self.names)
        if address in self.routers:
            put_behind(name, self.names[address])
        elif address in BEHIND:
            ip("-n", name, "address", "add", f"{PRIVATE}/24", "dev", "lo")

    def settle(self, name, address, others):
        ip("-n", name, "address", "add", f"{address}/32", "dev", "street")
        for other in others:
            if other != address:
                ip("-n", name, "route", "add", other, "dev", "street", "src", address)

    def move(self, old, new):
        """A machine has another address, to which the others have a way, and none of its own any more."""
        name, others = self.names[old], [address for address in self.names if address != old]
        ip("-n", name, "address", "del", f"{old}/32", "dev", "street")
        self.settle(name, new, others)
        for other in others:
            ip("-n", self.names[other], "route", "add", new, "dev", "street", "src", other)

    def turn(self, address, to):
        """The line of a machine: "down" or "up"."""
        ip("-n", self.street, "link", "set", f"house{list(self.names).index(address)}", to)

    def start(self, address, *words):
        command = ["ip", "netns", "exec", self.names[address], sys.executable, "-B", __file__, *words, address]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "THINWIRE_BIND": "", **self.environments.get(address, {})})
        lines = queue.Queue()

        def hear():
            for line in process.stdout:
                lines.put(json.loads(line))
            lines.put({"size": 0})  # it has ended

        def hear_errors():
            for line in process.stderr:
                print(address, line, end="", file=sys.stderr)
                lines.put({"size": -1, "error": line})

        threading.Thread(target=hear, daemon=True).start()
        threading.Thread(target=hear_errors, daemon=True).start()
        return process, lines

    def close(self):
        for name in (*self.names.values(), *self.routers.values(), self.street):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


class StreetTest(unittest.TestCase):
    translates = False

    def setUp(self):
        if os.getuid() or not shutil.which("ip"):
            self.skipTest("network namespaces need root, and ip")
        if self.translates and not shutil.which("nft"):
            self.skipTest("a router that translates addresses needs nft, of the package nftables")
        self.street = Street(self.translates)
        self.addCleanup(self.street.close)
        self.street.build()
        self.processes = []

    def start(self, *words):
        process, lines = self.street.start(*words)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.processes.append(process)
        return lines

    def await_size(self, lines, size=None):
        """All of these are in a generation of as many. What each said of it."""
        return [self.await_word(one, lambda said: said["size"] == (size or len(lines))) for one in lines]

    def await_word(self, line, is_it):
        while True:
            said = line.get(timeout=ranks.SECONDS)
            if is_it(said):
                return said
            self.assertTrue(said["size"], "it has ended")


class RoutersTest(StreetTest):
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


@parts.extra
class TranslatingTest(RoutersTest):
    translates = True


class ReturningTest(StreetTest):
    """The programs notice nothing. All have one theta, in which each round is once, and what was done before one came back."""

    def begin(self, machines):
        lines = [self.start(address, "train") for address in machines]
        return lines, self.await_size(lines)

    def begin_and_cut_off(self, machine):
        """The others go on without it. It waits, and says so."""
        machines = [OPEN[0], OPEN[1], BEHIND[0]]
        lines, _ = self.begin(machines)
        alone = lines[machines.index(machine)]
        self.street.turn(machine, "down")
        before = self.await_size([line for line in lines if line is not alone], 2)
        self.await_word(alone, lambda said: "hears too few of the 3 members" in said.get("error", ""))
        return lines, before

    def expect_all_there(self, lines, before):
        after = self.await_size(lines)
        self.assertGreater(after[0]["number"], before[0]["number"])
        generations = after[0]["number"] - before[0]["number"]
        self.assertEqual([one["rounds"] for one in after], [after[0]["rounds"]] * 3)
        for process in self.processes:
            process.stdin.write("end\n")
            process.stdin.flush()
        ends = [self.await_word(one, lambda said: "theta" in said) for one in lines]
        self.assertEqual([one["rounds"] for one in ends], [ends[0]["rounds"]] * 3)
        self.assertEqual([one["theta"] for one in ends], [ends[0]["theta"]] * 3)
        self.assertLessEqual(ends[0]["theta"][0], EVERY * (ends[0]["rounds"] + 1))
        self.assertGreater(min(one["waited"] for one in ends), 5)  # half of the least grace, in which a round came to nothing
        return generations

    def test_a_machine_that_has_another_address_while_it_trains(self):
        lines, before = self.begin([OPEN[0], OPEN[1], BEHIND[0]])
        self.street.move(OPEN[1], MOVED)
        self.expect_all_there(lines, before)

    def move_while_it_waits(self, environment):
        """How many generations there were until all were in one."""
        self.street.environments[OPEN[1]] = environment
        lines, before = self.begin_and_cut_off(OPEN[1])
        self.street.move(OPEN[1], MOVED)
        self.street.turn(OPEN[1], "up")
        return self.expect_all_there(lines, before)

    def expect_one_generation(self, environment):
        """A crowded machine may be too slow for the first one, but hardly twice."""
        if self.move_while_it_waits(environment) == 1:
            return
        self.doCleanups()
        self.setUp()
        self.assertEqual(self.move_while_it_waits(environment), 1)

    def test_a_machine_that_has_another_address_when_its_line_is_mended(self):
        """It waits at a door where nobody finds it any more, and opens another, so that nobody looks for it in vain."""
        self.expect_one_generation({})

    @parts.extra
    def test_a_machine_of_two_ports_that_moves_while_it_waits(self):
        """One is for words. Behind the other its old door goes before there is a new one."""
        self.expect_one_generation({"THINWIRE_PORT": "29600", "THINWIRE_LAST_PORT": "29601"})

    @parts.extra
    def test_a_machine_that_listens_at_one_interface_and_moves(self):
        """There its old port is nowhere, and so it calls the others."""
        self.street.environments[OPEN[1]] = {"THINWIRE_BIND": "street"}
        self.test_a_machine_that_has_another_address_while_it_trains()

    @parts.extra
    def test_the_machine_at_whose_address_they_met_has_another(self):
        """There nobody can call it, since it listens at the old one alone; so it calls the others."""
        lines, before = self.begin([OPEN[0], OPEN[1], BEHIND[0]])
        self.street.move(OPEN[0], MOVED)
        self.expect_all_there(lines, before)

    def test_a_machine_whose_line_is_cut_for_a_while(self):
        """The one that opened the group."""
        lines, before = self.begin_and_cut_off(OPEN[0])
        self.street.turn(OPEN[0], "up")
        self.expect_all_there(lines, before)


if __name__ == "__main__":
    if sys.argv[1:2] == ["exchange"]:
        exchange(sys.argv[3], sys.argv[2])
    elif sys.argv[1:2] == ["take_part"]:
        take_part(sys.argv[2])
    elif sys.argv[1:2] == ["train"]:
        train(sys.argv[2])
    else:
        unittest.main(testLoader=parts.Loader())
