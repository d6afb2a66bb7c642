#!/usr/bin/env python3
"""Four programs that train together over TCP while one is killed, the one that opened the group is killed, two come, one is
stopped for longer than its grace and goes on, and one leaves. Each step of the story is told by the programs themselves."""

import contextlib
import ctypes
import hashlib
import io
import json
import logging
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from unittest import mock

import launched
import models
import parts
import ranks
import test_changing
import thinwire.torch
import torch
from thinwire import changing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import programs  # noqa: E402

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch" / "joined.py"
SPEC, EVERY, BATCH, RATE, SECONDS, EXAMPLES = "local:every=4", 4, 32, 1e-2, 400, 23
SERVES = "thinwire: this program has taken its last step, and serves the others' rounds until they have taken theirs"
LEAST_GRACE = 10.0  # of a member whose rounds take less, as thinwire_members.h says


def problem(seed):
    """A network, its optimiser and batches of a worker's own."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    generator = torch.Generator().manual_seed(seed)

    def batch():
        x = torch.randn(BATCH, 8, generator=generator)
        return x, x.sin().sum(1, keepdim=True)

    return model, torch.optim.AdamW(model.parameters(), RATE), batch


def loss_of(model, batch):
    x, y = batch()
    return ((model(x) - y) ** 2).mean()


def loss_at_last(model):
    return loss_of(model, problem(0)[2]).item()


def undisturbed(workers, rounds):
    """The loss of so many that nothing happens to, by hand."""
    def worker(seed):
        model, optimiser, batch = problem(seed)
        return model, optimiser, lambda: loss_of(model, batch)

    all_ = [worker(seed) for seed in range(1, workers + 1)]
    models.local_updates(all_, EVERY, rounds * EVERY)
    return loss_at_last(all_[0][0])


# ---- a program: tells each generation that it is in, trains until it is told what to do, and tells what it has ------------


def work(seed, meeting):
    model, optimiser, batch = problem(seed)
    logged = logging.StreamHandler(io.StringIO())
    logging.getLogger("thinwire").addHandler(logged)
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stderr(io.StringIO()) as said:
        warnings.simplefilter("always")
        loop = thinwire.torch.OuterLoop(model, optimiser, SPEC, join=meeting, timeout=10.0, patience=120.0)
        generation, order, part = 0, "", loop.shard(range(EXAMPLES))
        while not order:
            optimiser.zero_grad()
            loss_of(model, batch).backward()
            optimiser.step()
            if not hasattr(optimiser, "register_step_post_hook"):  # torch 1.13
                loop.step()
            if loop.generation != generation:
                generation = loop.generation
                say(member=seed, size=loop.size, rank=loop.rank, generation=generation, address=loop.address, part=list(part))
            time.sleep(0.04)  # there are two cores
            if select.select([sys.stdin], [], [], 0)[0]:
                order = sys.stdin.readline().strip()
            if order == "busy":  # in C, with Python's lock held, until there is a letter more
                say(member=seed, busy=True)
                ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
                order = ""
        loop.leave() if order == "leave" else loop.finish()
    theta = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    say(member=seed, order=order, theta=hashlib.sha256(theta).hexdigest(), loss=loss_at_last(model), rounds=loop.stats()["rounds"],
        rank=loop.rank, size=loop.size, warnings=[str(one.message) for one in told], logged=logged.stream.getvalue().splitlines(),
        said=said.getvalue().splitlines(), part=list(loop.shard(range(EXAMPLES))), summary=loop.summary(), given=loop.stats()["rounds_given"])


def say(**what):
    print(json.dumps(what), flush=True)


# ---- the story ------------------------------------------------------------------------------------------------------------


class Story(programs.Programs):
    def __init__(self):
        super().__init__(SECONDS)
        self.meeting, self.busy, self.sizes = f"127.0.0.1:{ranks.free_port()}", {}, {}

    def begin(self, seed, meeting=None):
        self.start(seed, [sys.executable, "-B", __file__, seed, meeting or self.meeting])

    def hear(self, seed, one):
        self.sizes.setdefault(seed, []).append(one.get("size"))
        self.busy.update({seed: one}) if "busy" in one else super().hear(seed, one)

    def was_disturbed(self):
        """Whether the second has seen others lost than the story loses, as where one was silent for some seconds. Of a generation that
        has the size of the one before it says so, unless one was lost and another came."""
        seen = self.sizes[2][self.sizes[2].index(4):-1]
        changes = [size for size, before in zip(seen, [0, *seen]) if size != before]
        again = sum(" members again" in line for line in self.ends[2]["said"])
        return changes != 4 * [4, 3] or len(seen) - len(changes) > again

    def wait_for_all(self, seeds):
        """All of them are in one generation, of nobody else."""
        def are_there():
            there = [self.latest.get(seed, {}) for seed in seeds]
            return all(one.get("size") == len(seeds) for one in there) and len({one["generation"] for one in there}) == 1
        self.wait(are_there, f"a generation of {seeds}")
        parts = [self.latest[seed]["part"] for seed in seeds]
        if sorted(sum(parts, [])) != list(range(EXAMPLES)):
            raise AssertionError(f"{seeds} do not read each example once: {parts}")

    def kill(self, seed):
        self.may_end.add(self.programs[seed])
        self.programs[seed].kill()
        self.programs[seed].wait()


class Members(unittest.TestCase):
    def setUp(self):
        self.story = Story()
        self.addCleanup(self.story.close)

    def test_members_come_and_go(self):
        story = self.story
        story.begin(1)
        story.wait_for_all([1])
        for seed in (2, 3, 4):
            story.begin(seed)
        story.wait_for_all([1, 2, 3, 4])
        story.kill(3)
        story.wait_for_all([1, 2, 4])
        story.begin(5, story.latest[2]["address"])
        story.wait_for_all([1, 2, 4, 5])
        story.kill(1)  # who opened the group
        story.wait_for_all([2, 4, 5])
        story.begin(6, story.latest[4]["address"])
        story.wait_for_all([2, 4, 5, 6])
        story.programs[5].send_signal(signal.SIGSTOP)
        story.wait_for_all([2, 4, 6])
        story.programs[5].send_signal(signal.SIGCONT)
        story.wait_for_all([2, 4, 5, 6])
        story.tell_to_end([4], "leave")
        story.wait_for_all([2, 5, 6])
        story.tell_to_end([2, 5, 6], "finish")
        ends = [story.ends[seed] for seed in (2, 5, 6)]
        self.assertEqual(len({one["theta"] for one in ends}), 1)
        self.assertEqual(len({one["rounds"] for one in ends}), 1)
        self.assertEqual(sorted((one["rank"], one["size"]) for one in ends), [(0, 3), (1, 3), (2, 3)])
        self.assertLess(story.ends[4]["rounds"], ends[0]["rounds"])
        self.assertEqual(sorted(sum((one["part"] for one in ends), [])), list(range(EXAMPLES)))  # behind the end, too
        self.assertEqual(story.ends[4]["part"], story.latest[4]["part"])
        late = [line for line in story.ends[5]["warnings"] if "this machine was stopped" in line]
        count, size = (r"\d+", r"\d") if story.was_disturbed() else ("1", "4")
        self.assertRegex(str(len(late)), f"^{count}$")
        self.assertRegex("\n".join(late), r"(?m)^this machine was stopped or cut off, and the others went on without it behind its round \d+: it "
                                          rf"is in the group again, one of {size}, with round \d+, and what its steps since then came to is "
                                          r"(part of its next round|in the group's weights, or given up)$")
        self.check_one_line_for_each_event()
        beside = undisturbed(4, ends[0]["rounds"])
        print(f"{ends[0]['rounds']} rounds; loss {ends[0]['loss']:.4g}, undisturbed {beside:.4g}")
        self.assertLess(ends[0]["loss"], 1.5 * beside + 0.02)

    def check_one_line_for_each_event(self):
        """The second has seen all of them from its beginning: three are lost, and one leaves. The fifth was one of the lost, and was
        not told that a group broke. Where the machine is slow, others were lost for a while."""
        ends, disturbed = self.story.ends, self.story.was_disturbed()
        lost = [re.sub(r"rank \d", "rank", line) for line in ends[2]["logged"] if line.startswith("the group goes on without ")]
        names = [f"rank at {self.story.latest[seed]['address']}" for seed in (3, 1, 5)]
        later = iter(lost)
        self.assertTrue(all(any(name in line for line in later) for name in names), (names, ends[2]["logged"]))
        changes = [tuple(map(int, one)) for one in re.findall(r"the group has (\d+) members? now, and had (\d+)", "\n".join(ends[2]["said"]))]
        if not disturbed:
            self.assertEqual(lost, [f"the group goes on without {name} and has 3 members now" for name in names])
            self.assertEqual(len(lost), len(ends[2]["logged"]), ends[2]["logged"])
            self.assertEqual([one for one in changes if one[0] < one[1]], [(3, 4)])
        self.assertEqual(len({re.search(r" rounds of the group's (\d+), ", ends[seed]["summary"]).group(1) for seed in (2, 5, 6)}), 1)
        for seed in (2, 5, 6):
            self.assertFalse(any("broke" in line for line in ends[seed]["logged"]), ends[seed]["logged"])
            self.assertEqual(sum(SERVES in line for line in ends[seed]["said"]), 1)
            given, of_all = map(int, re.search(r" (\d+) rounds of the group's (\d+), ", ends[seed]["summary"]).groups())
            self.assertEqual(given, ends[seed]["given"])
            self.assertTrue(given < of_all <= ends[seed]["rounds"])
        self.assertFalse(any(SERVES in line for line in ends[4]["said"]))

    @parts.extra
    def test_a_member_that_is_busy_for_longer_than_its_grace(self):
        """The others wait, one that is killed meanwhile is lost, and one that comes meanwhile is let in."""
        story = self.story
        for seed in (1, 2, 3):
            story.begin(seed)
        story.wait_for_all([1, 2, 3])
        generation = story.latest[2]["generation"]
        story.say(2, "busy\n")
        story.wait(lambda: 2 in story.busy, "a busy member")
        time.sleep(1.3 * LEAST_GRACE)
        del story.busy[2]
        story.say(2, ".busy\n")
        story.wait(lambda: 2 in story.busy, "a busy member")
        self.assertEqual({seed: one["generation"] for seed, one in story.latest.items()}, dict.fromkeys((1, 2, 3), generation))
        story.kill(1)
        story.begin(4, story.latest[3]["address"])
        time.sleep(1.3 * LEAST_GRACE)
        story.say(2, ".")
        story.wait_for_all([2, 3, 4])
        story.tell_to_end([2, 3, 4], "finish")
        ends = [story.ends[seed] for seed in (2, 3, 4)]
        self.assertEqual(len({one["theta"] for one in ends}), 1)
        self.assertEqual([one["warnings"] for one in ends], [[], [], []])

    def test_a_member_is_saved_and_begun_again(self):
        """In bf16, too, where the shared weights are more than the model's."""
        for dtype in (torch.float32, torch.bfloat16):
            states = []
            for _ in range(2):
                model, optimiser, batch = problem(1 + len(states))
                model.to(dtype)
                with thinwire.torch.OuterLoop(model, optimiser, "diloco:every=4", join=self.story.meeting, hook=False, banner=False) as loop:
                    if states:
                        loop.load_state_dict(states[0])
                        self.assertEqual(loop.shard(range(10)).indices, range(10))  # which begins
                        with loop.averaged() as shared:
                            for parameter in shared.parameters():
                                self.assertTrue(torch.equal(parameter, expected.pop(0)))
                        with self.assertRaisesRegex(thinwire.Error, "the OuterLoop has begun"):
                            loop.load_state_dict(states[0])
                    for _ in range(10):
                        x, y = (one.to(dtype) for one in batch())
                        optimiser.zero_grad()
                        ((model(x) - y) ** 2).mean().backward()
                        optimiser.step()
                        loop.step()
                    states.append(loop.state_dict())
                    with loop.averaged() as shared:
                        expected = [parameter.detach().clone() for parameter in shared.parameters()]
                    if len(states) == 1:
                        with self.assertRaisesRegex(thinwire.Error, "load_state_dicts is for workers=N|has begun"):
                            loop.load_state_dicts(states)
            numbers = [state["outer/numbers"][0].item() for state in states]
            self.assertGreater(numbers[1], numbers[0])

    @parts.extra
    def test_the_story_ends_with_a_program_that_fails(self):
        self.story.begin(1, "nowhere")
        with self.assertRaisesRegex(AssertionError, "(?s)program 1 has ended, and .*nowhere.* is no meeting point"):
            self.story.wait_for_all([1])

    def test_who_waits_to_be_let_in_says_so_first(self):
        model, optimiser, _ = problem(1)
        told = "thinwire: asking to be let in at 192.0.2.1:7000, for up to 0.5 seconds\n"
        for banner in (True, False):
            loop = thinwire.torch.OuterLoop(model, optimiser, SPEC, join="192.0.2.1:7000", patience=0.5, banner=banner)
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaisesRegex(thinwire.PeerError, "no member"):
                loop.begin()
            own = [line for line in said.getvalue().splitlines(True) if line.startswith("thinwire: ")]  # others are a log's
            self.assertEqual(own, [told] * banner)

    def test_who_is_turned_away_is_told_of_once(self):
        with thinwire.members.Members(self.story.meeting, "the spec a", thinwire.Tcp()) as founder:
            founder.next(0).comm.close()
            with thinwire.members.Members(self.story.meeting, "the spec b", thinwire.Tcp()) as other, \
                    self.assertLogs("thinwire", "WARNING") as told, \
                    self.assertRaisesRegex(thinwire.Error, "has the spec b where"):
                try:
                    other.next(-1)
                finally:
                    self.assertEqual(told.output, [])  # not by the group's own thread
                    founder.next(0).comm.close()
        self.assertRegex("\n".join(told.output), r"\AWARNING:thinwire:a connection from 127\.0\.0\.1 was refused: "
                                                 r"it trains something else than this group\Z")

    def test_why_a_group_broke_in_which_nobody_is_lost_is_told(self):
        for broke, size, line in (("rank 1 did not answer", 3, "the group has 3 members again: rank 1 did not answer"),
                                  ("rank 1 did not answer", 2, "the group has 2 members now, and had 3"),
                                  ("", 3, "the group has 3 members again")):
            loop = mock.Mock(spec=changing.ChangingLoop, told=1, broke=broke)
            outer = mock.Mock(_tells=True, _loop=loop, generation=2, _comm=mock.Mock(size=size), _members=lambda size=size: (2, size))
            with contextlib.redirect_stderr(io.StringIO()) as said:
                thinwire.torch.OuterLoop._tell_members(outer, (1, 3))
            self.assertEqual(said.getvalue(), f"thinwire: {line}\n")

    def test_a_meeting_to_be_let_in_is_no_round(self):
        model, optimiser, batch = problem(1)
        with thinwire.torch.OuterLoop(model, optimiser, "local:every=2", join=self.story.meeting, quorum=1, hook=False,
                                      banner=False) as loop:
            for _ in range(6):
                loss_of(model, batch).backward()
                optimiser.step()
                loop.step()
            with self.assertWarnsRegex(UserWarning, "has trained alone"):
                loop.finish()
            self.assertIn(": 6 steps, 3 rounds, ", loop.summary())

    def test_a_framework_logs_the_rounds_of_the_summary(self):
        from thinwire.torch._local import Local
        model, optimiser, batch = problem(1)
        local = Local(model, optimiser, "local:every=2", None, 6, join=self.story.meeting, quorum=1, hook=False, banner=False)
        self.addCleanup(local.close)
        local.loop.begin()
        for step in range(4):
            scalars = local.scalars()
            self.assertEqual((scalars["thinwire/rounds_given"], scalars["thinwire/rounds"]), (step // 2, local.loop.stats()["rounds"]))
            self.assertIn(f" {step // 2} round", local.loop.summary())
            loss_of(model, batch).backward()
            optimiser.step()
            local.loop.step()

    def test_the_first_line_says_which_way_and_what_a_round_takes_with_another(self):
        model, optimiser, batch = problem(1)
        with contextlib.redirect_stderr(io.StringIO()) as said, thinwire.OuterLoop(model, optimiser, "sparseloco:every=1",
                                                                                  join=self.story.meeting, hook=False) as loop:
            self.assertIsInstance(loop, thinwire.torch.OuterLoop)
            self.assertIn(": 0 steps, 0 rounds, 0 B sent instead of 0 B, waited 0 ms a round", loop.summary())
            loop.begin()
            loop._loop.seconds_exchanged = 0.0
            loss_of(model, batch).backward()
            optimiser.step()
            loop.step()
            self.assertGreater(loop._loop.seconds_exchanged, 0.0)
            loop._loop.fetched = 5e5, 0.5
            self.assertRegex(loop.banner(), r"; it opened a group that others may join at \S+:\d+, and was given 500 kB, at 8 Mbit/s$")
        self.assertNotIn("was given", said.getvalue())
        dense = 4 * sum(p.numel() for p in model.parameters())
        self.assertRegex(said.getvalue(), r"of nothing while it is alone, and with a second one of about \d+ B from each rank, "
                         rf"through lo, 127\.0\.0\.1, to which \w+ compresses the {dense} B that the gradients of one step would take")

    def test_an_interface_that_is_not_known_is_not_told(self):
        from thinwire.torch._interface import interface_of, reached_by
        self.assertEqual([reached_by(join) for join in ("127.0.0.1:1,nowhere:1", "nowhere", "[::1]:1")], ["lo, 127.0.0.1", "", "::1"])
        self.assertEqual(interface_of("192.0.2.77"), "")

    def test_what_does_not_go_with_it(self):
        model, optimiser, _ = problem(1)
        for spec, more, words in ((SPEC, {"rank": 0}, "rank= is a number among workers=N"),
                                  (SPEC, {"workers": 2, "quorum": 1}, "quorum= is for a group whose members come and go"),
                                  (SPEC, {"join": "folder:here"}, "join='folder:here' needs workers= and rank="),
                                  (SPEC, {"join": "folder:here", "rank": 0}, "join='folder:here' needs workers= and rank="),
                                  (SPEC, {"join": "http://user:pa/ss@host/x?sig"}, "join='http://host/x' needs workers= and rank="),
                                  (SPEC, {"quorum": 1.5}, "quorum=1.5: want a whole number"),
                                  ("streaming:every=9", {}, "delay=1 where members come and go"),
                                  ("local:eager=on", {}, "eager=on where members come and go")):
            with self.subTest(spec=spec, **more), self.assertRaisesRegex(thinwire.Error, words):
                thinwire.torch.OuterLoop(model, optimiser, spec, **{"join": self.story.meeting, "patience": 1, **more})
        with mock.patch.dict(os.environ, THINWIRE_REACHABLE="maybe"), self.assertRaisesRegex(thinwire.Error, "want yes or no"):
            thinwire.members.Members(self.story.meeting, "", thinwire.Tcp())
        with self.assertRaisesRegex(thinwire.Error, "quorum=1.5: want a whole number"):
            thinwire.members.Members(self.story.meeting, "", thinwire.Tcp(), quorum=1.5)


class NewcomersTest(unittest.TestCase):
    """They come to one program, which goes on, and at last ends as it is told to."""

    @classmethod
    def setUpClass(cls):
        cls.story = Story()
        cls.addClassCleanup(cls.story.close)
        cls.story.begin(1)
        cls.story.wait_for_all([1])

    @classmethod
    def tearDownClass(cls):
        cls.story.tell_to_end([1], "finish")

    def test_another_model_is_refused_by_the_first_line_that_differs(self):
        other = torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
        with self.assertRaisesRegex(thinwire.Error, r"this process has the parameter 0.bias of \(20,\) in float32 where the "
                                    r"group at .* has the parameter 0.bias of \(16,\) in float32") as refused:
            thinwire.torch.OuterLoop(other, torch.optim.AdamW(other.parameters()), SPEC, join=self.story.meeting, patience=60).begin()
        self.assertEqual(refused.exception.name, "TW_ERROR_ARGUMENT")

    def test_parameters_are_matched_by_name_in_whatever_order_they_are_made(self):
        other = torch.nn.Module()
        for name, sizes in (("2", (16, 1)), ("0", (8, 16))):
            other.add_module(name, torch.nn.Linear(*sizes))
        own = {name: p.detach().clone() for name, p in other.named_parameters()}
        with thinwire.torch.OuterLoop(other, torch.optim.AdamW(other.parameters()), SPEC, join=self.story.meeting, patience=60, banner=False) as loop:
            loop.begin()
        self.assertFalse(any(p.equal(own[name]) for name, p in other.named_parameters()))


class PartTest(unittest.TestCase):
    def test_the_processes_of_a_loader_see_who_comes_and_goes(self):
        from thinwire.torch._members import Part, Place
        place = Place()
        part = Part(list(range(10)), place)
        self.assertEqual(list(part), list(range(10)))
        place.set(1, 4)
        for workers in (0, 1):
            loader = torch.utils.data.DataLoader(part, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
            for rank, size, wanted in ((1, 4, [1, 5, 9]), (2, 3, [2, 5, 8]), (0, 3, [0, 3, 6, 9])):
                place.set(rank, size)
                self.assertEqual([int(one) for one in loader], wanted)

    def test_who_has_fewer_examples_than_before_begins_again(self):
        from thinwire.torch._members import Part, Place
        place = Place()
        part = Part("abcdefgh", place)
        place.set(1, 2)
        self.assertEqual("".join(part[i] for i in range(len(part))), "bdfh")
        place.set(2, 3)
        self.assertEqual("".join(part[i] for i in range(4)), "cfcf")
        place.set(8, 9)
        with self.assertRaisesRegex(thinwire.Error, "8 examples are too few for as many members as there are"):
            part[0]


@parts.extra
class ExampleTest(unittest.TestCase):
    """examples/pytorch/joined.py, whose machines come and go: each tells the shared weights after each round."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.words = [sys.executable, "-B", EXAMPLE, "--join", f"127.0.0.1:{ranks.free_port()}", "--quorum", "1",
                      *"--steps 1000000 --spec local:every=5 --width 16 --layers 1 --heads 1 --length 16 --batch 2".split()]

    def start(self, name):
        with open(self.folder / name, "w") as file:
            program = subprocess.Popen(self.words, stdout=file, stderr=subprocess.STDOUT, env=launched.environment())
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        return program

    def rounds(self, name, size):
        """The weights by steps, of rounds of so many."""
        return dict(re.findall(rf"^step (\d+) of {size}: .* with weights (\w{{8}})$", (self.folder / name).read_text(), re.M))

    def await_rounds(self, size, *names):
        """What each of them told of the rounds of so many that all have told of, of one at least."""
        end = time.monotonic() + SECONDS
        while True:
            told = [self.rounds(name, size) for name in names]
            steps = set.intersection(*map(set, told))
            if steps:
                return [{step: one[step] for step in steps} for one in told]
            self.assertLess(time.monotonic(), end, [(self.folder / name).read_text() for name in names])
            time.sleep(0.05)

    def test_one_comes_and_one_is_lost_and_the_last_leaves(self):
        first = self.start("first")
        self.await_rounds(1, "first")
        other = self.start("other")
        self.assertEqual(*self.await_rounds(2, "first", "other"))
        first.kill()
        self.await_rounds(1, "other")
        other.send_signal(signal.SIGINT)
        self.assertEqual(other.wait(SECONDS), 0, (self.folder / "other").read_text())
        self.assertIn("\nend: ", (self.folder / "other").read_text())


class Adapted(threading.Thread):
    """A member of a group that is written down, with adapters to a base that is its own. A step adds its number to them."""

    def __init__(self, member, generations, rounds, number):
        super().__init__(daemon=True)
        self.members, self.rounds, self.number, self.error = test_changing.Written(member, generations), rounds, number, None
        self.model = torch.nn.Module()
        for name, begins_at, learns in (("a", 3.0, True), ("base", float(member), False), ("b", 5.0, True)):
            self.model.register_parameter(name, torch.nn.Parameter(torch.full((16,), begins_at), requires_grad=learns))
        self.start()

    def run(self):
        try:
            optimizer = torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad], 1.0)
            outer = thinwire.torch.OuterLoop(self.model, optimizer, "local:every=2", join="127.0.0.1:7000", hook=False, banner=False)
            outer.begin()
            for _ in range(2 * self.rounds):
                for one in (self.model.a, self.model.b):
                    one.grad = torch.full((16,), -float(self.number))
                optimizer.step()
                outer.step()
            outer.close()
        except BaseException as error:
            self.error = error


class AdaptersTest(unittest.TestCase):
    def test_one_that_comes_back_late_brings_what_its_adapters_have_learnt(self):
        """See LateTest of test_changing.py. Of the base nothing goes anywhere."""
        kept, new = test_changing.KEPT, test_changing.NEW
        generations = test_changing.written(({0: kept, 1: new, 2: new}, 2), ({0: kept, 1: kept}, 2),
                                            ({0: kept, 1: kept, 2: dict(new, late=True)}, 1))
        with mock.patch("thinwire.torch.outer.joined_members", lambda *what: threading.current_thread().members), \
                warnings.catch_warnings():
            warnings.simplefilter("ignore")
            members = [Adapted(member, generations, 4 - (member == 2) * 2, 6 * 2 ** member) for member in range(3)]
            for member in members:
                member.join(SECONDS)
                if member.error:
                    raise member.error
        moved = 2 * (2 * (6 + 12 + 24) / 3 + 2 * (6 + 12) / 2)
        for number, member in enumerate(members):
            for one, begun_at in ((member.model.a, 3.0), (member.model.b, 5.0), (member.model.base, number - moved)):
                self.assertEqual(one.tolist(), [begun_at + moved] * 16)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1].isdigit():
        work(int(sys.argv[1]), sys.argv[2])
    else:
        unittest.main(testLoader=parts.Loader())
