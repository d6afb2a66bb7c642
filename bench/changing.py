#!/usr/bin/env python3
"""Fine-tuning with LoRA in a group whose members come and go, over slow lines: what happens to it when they do.

    sudo bench/changing.py --base-text shakespeare.txt --text letters.txt > changing.json

The workers are those of bench/apart.py, each a program in a network namespace of its own (bench/link.sh), and meet at six
addresses, of which each listens at its own. Four begin. One is killed, then the one that opened the group; two come; one
is stopped for a minute and goes on; a line is cut until the others have gone on, and mended; an address is changed; and
the one that opened the group begins again. Then as many rounds are made by four to whom nothing happens. Prints one JSON
object: of each event the seconds until all that are left train together, and the longest step of one that is not concerned,
which is what it waited; at the end the hash of what each has, and the loss on text that nobody trained on, in nats a byte;
and the loss that the members trained with, round by round and ten in a row, which --picture draws. Needs torch, transformers
and peft, and what bench/link.sh needs.

    sudo bench/changing.py --strangers 10000 --base-text shakespeare.txt --text letters.txt > strangers.json

Four to whom nothing happens train, and beside every other part of their rounds strangers come to them from a machine of
their own, sixty-four at a time: with words that are none, with another key's proof, with an earlier one, with nothing to
say, and with the group's key and another model. Prints of both how long a round took and how long its exchange."""

import argparse
import hashlib
import json
import os
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import apart
import chart
import link
import programs
from made import as_json, made

HOSTS, PORT, SPEC, STOPPED = 6, 7000, "local:every=16", 60.0
MEETING = ",".join(f"10.77.0.{host + 1}:{PORT}" for host in range(HOSTS))
SECONDS = 600  # that one event may take
PARTS, LEAST_ROUNDS, AT_A_TIME = 4, 5, 64  # of rounds beside strangers; rounds of a part; strangers


def say(**what):
    print(json.dumps(what), flush=True)


# ---- a worker -------------------------------------------------------------------------------------------------------------


def work(o, number, base, rounds):
    """Until it is told to finish, or there are so many rounds."""
    import thinwire.torch
    model, optimizer, part, unseen, generator = apart.problem(o, base, 1, number, HOSTS)
    loop = thinwire.torch.OuterLoop(model, optimizer, SPEC, join=MEETING, timeout=o.timeout, patience=SECONDS, banner=False)
    loop.begin()
    generation, waited, before, losses, made_rounds, latest = 0, 0.0, apart.sent(), [], 0, time.monotonic()
    while not (rounds and made_rounds >= rounds) and not select.select([sys.stdin], [], [], 0)[0]:
        optimizer.zero_grad()
        loss = model(**apart.batch(part, generator, o)).loss
        loss.backward()
        losses.append(float(loss))
        begin = time.monotonic()
        optimizer.step()
        waited = max(waited, time.monotonic() - begin)
        if loop.stats()["rounds"] != made_rounds:
            made_rounds = loop.stats()["rounds"]
            now = time.monotonic()
            say(member=number, round=made_rounds, loss=statistics.fmean(losses), seconds=now - latest, exchange=now - begin)
            losses, latest = [], now
        if loop.generation != generation:
            generation = loop.generation
            say(member=number, size=loop.size, generation=generation, rounds=made_rounds, waited=waited)
            waited = 0.0
    loop.finish()
    theta = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in loop.trained().values())).hexdigest()
    say(member=number, theta=theta, loss=apart.loss_of(model, unseen, o), rounds=loop.stats()["rounds"],
        bytes_sent=apart.sent() - before)


# ---- strangers ------------------------------------------------------------------------------------------------------------


def text(one):
    return struct.pack("<Q", len(one)) + one


def keyed(key, *parts):
    return hashlib.blake2b(b"".join(parts), key=key, digest_size=32).digest()


def secret_of(key):
    return hashlib.blake2b(text(b"members of a group") + text(key), digest_size=32).digest()


def hear(line, size):
    heard = b""
    while len(heard) < size and (more := line.recv(size - len(heard))):
        heard += more
    return heard


def join_of_another():
    """A word as src/comm/tcp/members_message.c writes it: a newcomer's, whose model is another."""
    name = b"127.0.0.1:1#00112233445566778899aabbccddeeff/1"
    seat = 2 * (struct.pack("<H", len(name)) + name)
    return bytes([1, 1, 0, 0]) + bytes(37 * 8) + os.urandom(32) + bytes(2) + seat + bytes(8)


def knock(kind, number):
    """Comes to a member, with words as in src/comm/tcp/hello.h; whether that one treated it as what it is."""
    with socket.create_connection((f"10.77.0.{number % 4 + 1}", PORT), timeout=60) as line:
        challenge = hear(line, 40)
        hello = challenge[:8] + bytes(12) + os.urandom(32)
        secret = secret_of(b"another key" if kind == "another key" else b"")
        seen = os.urandom(40) if kind == "an earlier proof" else challenge
        if kind == "says nothing":
            return len(challenge) == 40
        line.sendall(os.urandom(84) if kind == "garbage" else hello + keyed(secret, text(b"connecter"), seen, hello))
        if kind != "another model":
            return hear(line, 32) == b""
        if hear(line, 32) != keyed(secret, text(b"accepter"), challenge, hello):
            return False
        word = join_of_another()
        session = keyed(secret, text(b"from connecter"), challenge, hello)
        line.sendall(struct.pack("<I", len(word)) + word + keyed(session, bytes(8), text(word)))
        return hear(line, 5)[4:] == b"\2"


def come(count):
    kinds, told = ["garbage", "another key", "an earlier proof", "says nothing", "another model"], []

    def some(first):
        for number in range(first, count, AT_A_TIME):
            told.append((kinds[number % len(kinds)], knock(kinds[number % len(kinds)], number)))

    threads = [threading.Thread(target=some, args=(first,)) for first in range(AT_A_TIME)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({kind: [one for other, one in told if other == kind].count(True) for kind in kinds}))


# ---- what happens to them -------------------------------------------------------------------------------------------------


class Story(programs.Programs):
    def __init__(self, base):
        super().__init__(SECONDS)
        self.base, self.name, self.rows, self.losses = base, os.environ["LINK"], [], {}
        self.part, self.times = None, {}

    def begin(self, number, rounds=0):
        self.start(number, ["ip", "netns", "exec", f"{self.name}-{number}", sys.executable, __file__, *sys.argv[1:], "--worker", number,
                            self.base, rounds])

    def hear(self, number, one):
        if "round" in one:
            self.times.setdefault(self.part, []).append((one["round"], one["seconds"], one["exchange"]))
            self.losses.setdefault(one["round"], []).append(one["loss"])
            return
        print(one, file=sys.stderr, flush=True)
        if "theta" not in one:
            one["longest"] = max(one["waited"], self.latest.get(number, {}).get("longest", 0.0))
        super().hear(number, one)

    def happens(self, what, act, left):
        """Until `left`, and nobody else, are in one generation, and a later one than before."""
        def are_there():
            there = [self.latest.get(number, {}) for number in left]
            later = {one.get("generation", 0) for one in there}
            return all(one.get("size") == len(left) for one in there) and len(later) == 1 and min(later) > before

        before = max((one["generation"] for one in self.latest.values()), default=0)
        others = [number for number in left if number in self.latest]
        for one in self.latest.values():
            one["longest"] = 0.0
        begin = time.monotonic()
        act()
        self.wait(are_there, what)
        waited = {number: round(self.latest[number]["longest"], 2) for number in others}
        self.rows.append({"event": what, "members": sorted(left), "seconds": round(time.monotonic() - begin, 2), "waited": waited,
                          "rounds": self.latest[left[0]]["rounds"], "longest": max(waited.values(), default=None)})

    def signal(self, number, what):
        for pid in subprocess.run(["ip", "netns", "pids", f"{self.name}-{number}"], stdout=subprocess.PIPE, text=True,
                                  check=True).stdout.split():
            os.kill(int(pid), what)

    def kill(self, number):
        self.may_end.add(self.programs[number])
        self.signal(number, signal.SIGKILL)
        self.programs[number].wait()
        del self.latest[number]

    def network(self, place, *words):
        subprocess.run(["ip", "-n", f"{self.name}-{place}", *words], check=True)

    def move(self, number):
        self.network(number, "addr", "del", f"10.77.0.{number + 1}/24", "dev", "eth0")
        self.network(number, "addr", "add", f"10.77.0.{number + 101}/24", "dev", "eth0")

    def finish(self, members):
        self.tell_to_end(members, "finish")
        self.may_end.update(self.programs.values())
        ends, self.latest, self.ends = [self.ends[number] for number in members], {}, {}
        losses, self.losses = [round(statistics.fmean(one), 4) for _, one in sorted(self.losses.items())], {}
        return {"losses": [losses[first:first + 10] for first in range(0, len(losses), 10)], "members": list(members), "rounds": ends[0]["rounds"], "thetas": sorted({one["theta"] for one in ends}),
                "loss": ends[0]["loss"], "bytes_sent": {one["member"]: one["bytes_sent"] for one in ends}}


def disturbed(story):
    """Each event only when the one before is over."""
    story.happens("four begin", lambda: [story.begin(number) for number in range(4)], [0, 1, 2, 3])
    story.happens("one is killed", lambda: story.kill(3), [0, 1, 2])
    story.happens("the one that opened the group is killed", lambda: story.kill(0), [1, 2])
    story.happens("two come", lambda: [story.begin(number) for number in (4, 5)], [1, 2, 4, 5])
    begin = time.monotonic()
    story.happens("one is stopped", lambda: story.signal(2, signal.SIGSTOP), [1, 4, 5])
    time.sleep(max(0.0, begin + STOPPED - time.monotonic()))
    story.happens("it goes on after a minute", lambda: story.signal(2, signal.SIGCONT), [1, 2, 4, 5])
    story.happens("a line is cut", lambda: story.network("hub", "link", "set", "port4", "down"), [1, 2, 5])
    story.happens("it is mended", lambda: story.network("hub", "link", "set", "port4", "up"), [1, 2, 4, 5])
    story.happens("an address is changed", lambda: story.move(5), [1, 2, 4, 5])
    story.happens("the one that opened the group begins again", lambda: story.begin(0), [0, 1, 2, 4, 5])
    return story.finish([0, 1, 2, 4, 5])


def undisturbed(story, rounds):
    for number in range(4):
        story.begin(number, rounds)
    story.wait(lambda: len(story.ends) == 4, "the end of the undisturbed")
    return story.finish(range(4))


def rounds_of(times):
    """Each has taken as long as for the member that was longest at it; the first of a part belongs to two."""
    first, rounds = min((one[0] for one in times or []), default=0), {}
    for number, seconds, exchange in times or []:
        if number > first:
            rounds[number] = tuple(map(max, rounds.get(number, (0, 0)), (seconds, exchange)))
    return rounds.values()


def summed_up(name, rounds, strangers, seconds):
    middle = {what: round(statistics.median(values), 3) for what, values in zip(("seconds", "exchange"), zip(*rounds))}
    return {"rounds": name, "count": len(rounds), **middle, "longest": round(max(one for one, _ in rounds), 3),
            "strangers": strangers, "a_second": round(strangers / seconds) if strangers else None}


def beside_strangers(story, count):
    """A part of the rounds without strangers, one for as long as so many come, and again."""
    found, came, seconds = {False: [], True: []}, {}, 0.0
    for number in range(4):
        story.begin(number)
    story.wait(lambda: sum(one["size"] == 4 for one in story.latest.values()) == 4, "the beginning")
    for story.part in range(2 * PARTS):
        beset, begin = None, time.monotonic()
        if story.part % 2:
            beset = subprocess.Popen(["ip", "netns", "exec", f"{story.name}-{HOSTS - 1}", sys.executable, __file__, *sys.argv[1:], "--come",
                                      str(count // PARTS)], stdout=subprocess.PIPE, text=True)
        story.wait(lambda: len(rounds_of(story.times.get(story.part))) >= (1 if beset else LEAST_ROUNDS)
                   and (not beset or beset.poll() is not None), "the end of a part")
        found[beset is not None] += rounds_of(story.times[story.part])
        if beset:
            seconds += time.monotonic() - begin
            for kind, good in json.loads(beset.communicate()[0]).items():
                came[kind] = came.get(kind, 0) + good
    end = story.finish(range(4))
    return {"rows": [summed_up("alone", found[False], 0, 0), summed_up("beside strangers", found[True], count, seconds)],
            "seen_through": came, "thetas": end["thetas"]}


def draw(path, disturbed, undisturbed):
    page = chart.Page()
    named = [(name, list(enumerate(sum(end["losses"], []), 1))) for name, end in (
        ("members come and go", disturbed), ("four, undisturbed", undisturbed))]
    chart.curves(page, "What happens to a group", named, "rounds", "training loss of a round, nats a byte",
                 y_least=min(loss for _, line in named for _, loss in line))
    page.write(path)


def main():
    parser = apart.parser_of(__doc__)
    parser.add_argument("--timeout", type=float, default=20, help="the longest grace, in seconds")
    parser.add_argument("--strangers", type=int, help="that come to four to whom nothing else happens")
    parser.add_argument("--come", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--picture", type=Path, help="the loss by rounds, as SVG")
    o = parser.parse_args()
    if o.worker:
        return work(o, int(o.worker[0]), o.worker[1], int(o.worker[2]))
    if o.come:
        return come(o.come)
    if "LINK" in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            apart.train_base(o, folder)
            story, lines = Story(folder), {"made": made(), "gbit": o.rate, "ms": o.delay, "spec": SPEC, "grace": o.timeout}
            if o.strangers:
                print(as_json({**lines, **beside_strangers(story, o.strangers)}))
                return None
            end = disturbed(story)
            calm = undisturbed(story, end["rounds"])
            print(as_json({**lines, "events": story.rows, "disturbed": end, "undisturbed": calm}))
            if o.picture:
                draw(o.picture, end, calm)
        return None
    os.environ["MPI"] = "no"
    print(link.run(str(HOSTS), o.rate, [sys.executable, __file__, *sys.argv[1:]], o.seconds, o.delay, o.relay), end="")
    return None


if __name__ == "__main__":
    main()
