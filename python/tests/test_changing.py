#!/usr/bin/env python3
"""Local updates in a group whose members come and go, without torch: threads are members, and what they do is known to the
last digit. theta is where the rounds' means have taken it, whoever gave to them, and the same on all."""

import contextlib
import ctypes
import random
import signal
import struct
import threading
import time
import unittest
import warnings
from fractions import Fraction
from unittest import mock

import ranks  # finds the others
import parts
import thinwire
from thinwire import changing, table
from thinwire._library import OuterCounts
from thinwire.changing import EXCHANGE, NUMBERS, ChangingLoop
from thinwire.members import Due, Members, Place, Wish
from thinwire.table import Entry

WEIGHTS, SECONDS = 64, 120
PASS = 0.005  # of a member, whose steps would else be nothing but rounds: there are two cores
SPARSE = ",density=0.1,min_dims=1,min_elements=1"
KEY = b"what all members know, 32 letters"


def held_back(loop):
    """The sum of what its exchange has, as it is. Alone, randomk has nothing to hold back."""
    entry = loop.state().get("exchange0/residual/w", Entry("float32", (0,), b""))
    return sum(map(Fraction, struct.unpack(f"<{len(entry.data) // 4}f", entry.data)))


def theta_of(state):
    return state["theta/w"].data


class Member(threading.Thread):
    """Adds its number to each weight in each step, and notes what it gave to which round."""

    def __init__(self, at, spec, number, tcp, saved=None):
        super().__init__(daemon=True)
        self.saved = saved
        self.members = Members(at, f"the spec {spec}", tcp, grace=20.0, patience=60.0)
        self.address, self.spec, self.number = self.members.address, spec, number
        self.weights = (ctypes.c_float * WEIGHTS)(*range(WEIGHTS))
        self.order, self.told = "", threading.Condition()
        self.size, self.round, self.gave, self.error = 0, 0, {}, None
        self.start()

    def run(self):
        try:
            with_it = [ctypes.addressof(self.weights)]
            self.loop = ChangingLoop(self.members, self.spec, [("w", (WEIGHTS,))])
            if self.saved:
                self.loop.load_state(self.saved)
            self.loop.begin(with_it)
            while self.saved and self.loop.size < 3:  # rounds to which nobody gives anything
                self.loop._meet(with_it, Wish.STAY)
            self.began, self.given = self.loop.state(), 0
            self.began_with = bytes(self.weights)
            while not self.order:
                self.step(with_it)
            if isinstance(self.order, int):
                while self.loop.stats()["rounds"] < self.order:
                    self.step(with_it)
                self.saved = self.loop.state()
            if self.order == "leave":
                self.leave(with_it)
            elif self.order == "finish":
                while self.given:
                    self.step(with_it)
                self.loop.finish(with_it)
            self.theta = bytes(self.weights)
            self.rounds = self.loop.stats()["rounds"]
        except BaseException as error:
            self.error = error
        self.loop.close()
        with self.told:
            self.told.notify_all()

    def step(self, with_it):
        time.sleep(PASS)
        for i in range(WEIGHTS):
            self.weights[i] += self.number
        self.given += self.number
        if self.loop.step(with_it):
            self.gave[self.loop.stats()["rounds"]] = self.given
            self.given = 0
            with self.told:
                self.size, self.round = self.loop.size, self.loop.stats()["rounds"]
                self.told.notify_all()

    def leave(self, with_it):
        """In the middle of a round."""
        while not self.given:
            self.step(with_it)
        self.loop.leave(with_it)
        self.gave[self.loop.stats()["rounds"]] = self.given

    def wait(self, size, round_=0):
        with self.told:
            if not self.told.wait_for(lambda: self.size == size and self.round >= round_ or self.error, SECONDS) or self.error:
                raise AssertionError(f"{self.number}: no generation of {size}, but of {self.size}") from self.error


class Written:
    """A group whose generations are written down: of each its places, by member, and after how many rounds it is lost. NEVER: as
    soon as those that are behind have been given everything."""

    quorum, address = 0, ""

    def __init__(self, member, generations):
        self.member, self.generations, self.opened = member, iter(enumerate(generations, 1)), member == 0

    def next(self, rounds, leaves=False):
        number, (comms, places, self.left) = next(one for one in self.generations if self.member in one[1][1])
        self.rounds_told = rounds
        return Place(comms[list(places).index(self.member)], number, 0, **places[self.member])

    def sealed(self, comm):
        return comm

    def due(self, comm, wish, heard=None):
        self.left -= 1
        if self.left < 0:
            raise thinwire.PeerError("somebody is lost")
        return Due.SAME

    def close(self):
        pass


class Slow(Written):
    """A group of one, whose generations are waited for, each for so many seconds of its own clock, and whose rounds are, for
    `busy` of them."""

    def __init__(self, seconds, generations, busy=0.0):
        super().__init__(0, written(*generations * [({0: KEPT}, WEIGHTS)]))
        self.seconds, self.busy, self.now = seconds, busy, 0.0

    def next(self, rounds, leaves=False):
        self.now += self.seconds
        return None if leaves else super().next(rounds)

    def due(self, comm, wish, heard=None):
        self.now += self.busy
        return Due.FINISHED if wish is Wish.FINISH else super().due(comm, wish)


NEVER = -1
KEPT, NEW = dict(behind=False, kept=True), dict(behind=True, kept=False)


def written(*generations):
    return [(thinwire.Comm.threads(len(places)), places, rounds) for places, rounds in generations]


class Late(threading.Thread):
    """A member of such a group, which takes two steps of its number for each of so many rounds."""

    def __init__(self, member, spec, generations, rounds, number):
        super().__init__(daemon=True)
        self.loop, self.rounds, self.number = ChangingLoop(Written(member, generations), spec, [("w", (WEIGHTS,))]), rounds, number
        self.weights, self.held, self.error = (ctypes.c_float * WEIGHTS)(*range(WEIGHTS)), [], None
        take_place, own_beside, members = self.loop._take_place, self.loop._own_beside, self.loop._members

        def beside(*what):
            if members.left == NEVER:
                raise thinwire.PeerError("somebody is lost")
            return own_beside(*what)

        def noted(*place):
            before = self.held_back(self.loop._kept or self.loop._late)
            take_place(*place)
            self.held.append((before, self.held_back(self.loop._kept)))

        self.loop._take_place, self.loop._own_beside = noted, beside
        self.start()

    def held_back(self, state):
        return {name: one for name, one in (state or {}).items() if name.startswith(EXCHANGE) and "/residual/" in name}

    def run(self):
        try:
            with_it = [ctypes.addressof(self.weights)]
            self.loop.begin(with_it)
            for _ in range(2 * self.rounds):
                for i in range(WEIGHTS):
                    self.weights[i] += self.number * (1 + i % 4)
                self.loop.step(with_it)
        except BaseException as error:
            self.error = error
        self.theta = list(self.weights)
        self.loop.close()


class CloseTest(unittest.TestCase):
    def loop_of_one(self, at):
        """Its members and comm with it."""
        comm, members = thinwire.Comm.threads(1)[0], mock.Mock(Written(0, []), opened=True, quorum=0)
        self.addCleanup(comm.close)
        members.next.return_value, members.sealed.side_effect = Place(comm, 1, 0, **KEPT), lambda comm: comm
        members.due.return_value = Due.SAME
        loop = ChangingLoop(members, "local:every=1", [("w", (WEIGHTS,))])
        self.addCleanup(loop.close)
        loop.begin(at)
        return loop, members, comm

    def test_who_is_interrupted_in_a_round_that_the_others_have_does_not_lack_it(self):
        weights, make = (ctypes.c_float * WEIGHTS)(), changing.outer.OuterLoop.step
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        loop, *_ = self.loop_of_one([ctypes.addressof(weights)])
        before = changing.rounds_of(loop._kept)

        def interrupted(*what):
            signal.raise_signal(signal.SIGINT)
            return make(*what)

        for step in (interrupted, make):
            with mock.patch.object(changing.outer.OuterLoop, "step", step), contextlib.suppress(KeyboardInterrupt):
                loop.step([ctypes.addressof(weights)])
        self.assertEqual(changing.rounds_of(loop._kept), before + 2)

    def test_who_is_interrupted_behind_what_all_agreed_on_does_it_and_asks_for_nothing_else(self):
        """The others are in that round, and would wait for this one, which waits for them."""
        for act in "step", "leave", "finish":
            weights = (ctypes.c_float * WEIGHTS)()
            at = [ctypes.addressof(weights)]
            loop, members, _ = self.loop_of_one(at)
            before = changing.rounds_of(loop._kept)

            def interrupted(comm, wish, heard):
                heard(Due.SAME)
                raise KeyboardInterrupt

            members.due.side_effect = interrupted
            with self.assertRaises(KeyboardInterrupt):
                loop.step(at)
            asked = []

            def ask(comm, wish, heard=None):
                asked.append((wish, changing.rounds_of(loop._kept) - before))
                return Due.FINISHED if wish is Wish.FINISH else Due.CHANGE

            members.due.side_effect = ask
            getattr(loop, act)(at)
            self.assertEqual(asked, {"step": [], "leave": [(Wish.LEAVE, 1)], "finish": [(Wish.FINISH, 1)]}[act])
            self.assertGreater(changing.rounds_of(loop._kept), before)

    def test_what_all_agreed_on_is_heard_though_ctrl_c_comes_just_behind(self):
        heard, waited = [], thinwire.Comm.waited

        def interrupted(comm, call, grace=0.0):
            waited(comm, call, grace)
            raise KeyboardInterrupt

        with Members(f"127.0.0.1:{ranks.free_port()}", "", thinwire.Tcp(bind="127.0.0.1")) as members, members.next(0).comm as comm:
            with mock.patch.object(thinwire.Comm, "waited", interrupted), self.assertRaises(KeyboardInterrupt):
                members.due(comm, Wish.STAY, heard.append)
        self.assertEqual(heard, [Due.SAME])

    def test_who_is_interrupted_as_it_leaves_waits_for_no_round(self):
        weights, waited, graces = (ctypes.c_float * WEIGHTS)(), thinwire.Comm.waited, []
        at = [ctypes.addressof(weights)]

        def noted(comm, call, grace=0.0):
            graces[-1].add(grace)
            return waited(comm, call, grace)

        loop, *_ = self.loop_of_one(at)
        for act in (loop.step, loop.leave):
            graces.append(set())
            with mock.patch.object(thinwire.Comm, "waited", noted):
                act(at)
        self.assertEqual(graces, [{0, changing.GRACE}, {0}])

    def test_two_threads_close_at_once(self):
        """The one that finds the generation closed under its hands ends the membership even so: the others would wait for it."""
        weights = (ctypes.c_float * WEIGHTS)()
        loop, members, comm = self.loop_of_one([ctypes.addressof(weights)])
        counts = loop._counts

        def closed_meanwhile(generation):
            comm.close()
            return counts(generation)

        with mock.patch.object(loop, "_counts", closed_meanwhile):
            loop.close()
        members.close.assert_called_once()


class LateTest(unittest.TestCase):
    """Three, of whom two go on without the third, which comes again with the steps that it has taken meanwhile."""

    def play(self, spec, late, more=()):
        places = {0: KEPT, 1: KEPT, 2: dict(NEW, late=late)}
        generations = written(({0: KEPT, 1: NEW, 2: NEW}, 2), ({0: KEPT, 1: KEPT}, 2), *more, (places, 1))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            members = [Late(member, spec, generations, 4 - (member == 2) * 2, 6 * 2 ** member) for member in range(3)]
            for member in members:
                member.join(SECONDS)
                if member.error:
                    raise member.error
        self.assertEqual(len({tuple(member.theta) for member in members}), 1)
        return members, [str(one.message) for one in told]

    def moved(self, members):
        """By how much theta has gone for each unit of a step."""
        by, = {(there - i) / (1 + i % 4) for i, there in enumerate(members[0].theta)}
        return by / 2

    def test_its_steps_are_in_its_next_round_once(self):
        all_, two, alone = (6 + 12 + 24) / 3, (6 + 12) / 2, 0
        for spec in ("local:every=2", "diloco:every=2,outer_momentum=0,outer_lr=1", "streaming:every=2,fragments=1,delay=0,outer_momentum=0,"
                     "outer_lr=1,mixing=0"):
            with self.subTest(spec):
                members, told = self.play(spec, late=True)
                self.assertEqual(self.moved(members), all_ + 2 * two + all_ + alone)
                self.assertEqual(told, ["this machine was stopped or cut off, and the others went on without it behind its round 2: it "
                                        "is in the group again, one of 3, with round 4, and what its steps since then came to is part "
                                        "of its next round"])
                self.assertEqual([member.loop.told for member in members], [0, 0, 3])

    def test_what_the_others_have_is_not_given_again(self):
        members, told = self.play("local:every=2", late=False)
        self.assertEqual(self.moved(members), (6 + 12 + 24) / 3 + 3 * (6 + 12) / 2)
        self.assertEqual([line.partition(" came to ")[2] for line in told], ["is in the group's weights, or given up"])

    def test_nor_where_it_is_lost_again_before_it_has_theta(self):
        """It is let in by a generation that comes to nothing once it has what the donor gave."""
        broken = ({0: KEPT, 1: KEPT, 2: dict(NEW, late=True)}, NEVER)
        members, told = self.play("local:every=2", late=True, more=[broken])
        self.assertEqual(len(told), 1)  # once it is in
        self.assertEqual(self.moved(members), 2 * (6 + 12 + 24) / 3 + 2 * (6 + 12) / 2)

    def test_what_its_exchange_holds_back_comes_with_it(self):
        for late in (True, False):
            members, _ = self.play("local:every=2,exchange=topk" + SPARSE, late)
            before, after = members[2].held[-1]
            if late:
                self.assertEqual(before, after)
            self.assertEqual(any(any(one.data) for one in after.values()), late)


class ChangingTest(unittest.TestCase):
    def begin(self, spec, count, tcp=thinwire.Tcp(bind="127.0.0.1", key=KEY), unit=1):
        members = [Member(f"127.0.0.1:{ranks.free_port()}", spec, unit, tcp)]
        members[0].wait(1)
        for number in range(1, count):
            members.append(Member(members[-1].address, spec, unit * 2 ** number, tcp))
            for member in members:
                member.wait(len(members))
        return members

    def end(self, members, order="finish"):
        """A number: they stop after this round, and keep their state."""
        for member in members:
            member.order = order
        for member in members:
            member.join(SECONDS)
            if member.error:
                raise member.error
            self.assertFalse(member.is_alive())

    def go_and_come(self, spec, tcp):
        """Three, of whom one crashes and one leaves; the last one takes another in, who finishes first."""
        members = self.begin(spec, 3, tcp)
        self.end(members[:1], "crash")
        for member in members[1:]:
            member.wait(2)
        self.end(members[1:2], "leave")
        members[2].wait(1)
        members.append(Member(members[2].address, spec, 8, tcp))
        for member in members[2:]:
            member.wait(2)
        members[3].order = "finish"
        members[2].wait(2, members[2].round + 10)  # to which the other gives nothing
        self.end(members[2:])
        self.assertEqual(len({member.theta for member in members[2:]}), 1)
        self.assertEqual(len({member.rounds for member in members[2:]}), 1)
        return members

    def test_theta_is_where_the_means_have_taken_it(self):
        members = self.go_and_come("local:every=2", thinwire.Tcp(bind="127.0.0.1", key=KEY, seal=True))
        moved = 0.0
        for round_ in range(members[2].rounds + 1):
            given = [member.gave[round_] for member in members if round_ in member.gave]
            moved += sum(given) / len(given) if given else 0
        theta = ctypes.cast(members[2].weights, ctypes.POINTER(ctypes.c_float))
        for i in range(WEIGHTS):
            self.assertAlmostEqual(theta[i], i + moved, delta=1e-5 * (1 + moved))

    def test_a_method_and_what_may_carry_it(self):
        self.check_methods("sparseloco:every=2", "diloco:every=2,exchange=topk" + SPARSE)

    @parts.extra
    def test_every_other_method_and_what_may_carry_it(self):
        self.check_methods("diloco:every=4", "pulseloco:every=2", "streaming:every=6,delay=0", "local:every=2,merge=rda",
                           "diloco:every=2,exchange=qsgd", "local:every=2,exchange=randomk")

    def check_methods(self, *specs):
        for spec in specs:
            with self.subTest(spec):
                self.go_and_come(spec, thinwire.Tcp(bind="127.0.0.1"))

    def test_who_is_asked_while_another_thread_closes_it_answers(self):
        class Comm:
            rank, size, closed = 1, 3, False

            def __bool__(self):  # between a look and the next one
                loop._comm = loop._loop = None
                return True

            def stats(self):
                return table.fields_of(OuterCounts())

        loop = changing.ChangingLoop(None, "local:every=2", [("w", (4,))])
        for ask, wanted in ((lambda: loop.rank, 1), (lambda: loop.size, 3), (lambda: loop.stats()["rounds"], 0)):
            loop._comm = loop._loop = Comm()
            self.assertEqual(ask(), wanted)

    def test_what_is_waited_at_the_end_is_counted(self):
        """By one that leaves, and by one that finishes and loses another meanwhile."""
        weights = (ctypes.c_float * WEIGHTS)()
        at = [ctypes.addressof(weights)]
        lost = [thinwire.PeerError("somebody is lost"), True]
        for end in ("leave", "finish"):
            members = Slow(30, 2)
            with mock.patch.object(changing.time, "monotonic", lambda: members.now), \
                    mock.patch.object(changing.outer.OuterLoop, "finish", side_effect=lost):
                loop = ChangingLoop(members, "local:every=4", [("w", (WEIGHTS,))])
                loop.begin(at)
                before = loop.stats()["seconds_wait"]
                getattr(loop, end)(at)
                self.assertEqual(loop.broke, "somebody is lost" if end == "finish" else "")
                self.assertAlmostEqual(loop.stats()["seconds_wait"] - before, 30, delta=20)
                loop.close()

    def test_what_is_waited_for_one_that_is_busy_is_counted(self):
        weights = (ctypes.c_float * WEIGHTS)()
        at, members = [ctypes.addressof(weights)], Slow(0, 1, 30)
        with mock.patch.object(changing.time, "monotonic", lambda: members.now):
            loop = ChangingLoop(members, "local:every=2", [("w", (WEIGHTS,))])
            loop.begin(at)
            before = loop.stats()["seconds_wait"]
            for _ in range(6):
                loop.step(at)
            self.assertAlmostEqual(loop.stats()["seconds_wait"] - before, 90, delta=20)
            loop.close()

    def test_what_gradients_would_have_sent_is_that_of_the_steps_taken(self):
        """Of two, each half of the weights there and back. The one that opened the group began alone, with no one to send to."""
        members = self.begin("local:every=4", 2)
        self.end(members)
        first, other = (member.loop.stats() for member in members)
        self.assertEqual(other["bytes_dense"], 4 * WEIGHTS * other["steps"])
        self.assertLess(first["bytes_dense"], 4 * WEIGHTS * first["steps"])
        self.assertEqual(members[0].loop.fetched, (0, 0))
        self.assertGreater(min(members[1].loop.fetched), 0)
        self.assertLess(members[1].loop.fetched[0], 12 * WEIGHTS)

    def test_all_count_the_rounds_of_the_group_alike(self):
        """Those before one came as well, of which the first, in which a group is opened, is empty."""
        members = self.begin("local:every=4", 3)
        self.end(members)
        counted = {(one["rounds"], one["rounds_empty"]) for one in (member.loop.stats() for member in members)}
        self.assertEqual(len(counted), 1, counted)
        self.assertGreater(counted.pop()[1], 0)

    def test_no_more_rounds_were_empty_than_were_made(self):
        """What the donor tells."""
        members = self.begin("local:every=4", 1)
        members[0].loop._past["rounds_empty"] = 1 << 63
        members.append(Member(members[0].address, "local:every=4", 2, thinwire.Tcp(bind="127.0.0.1", key=KEY)))
        members[1].wait(2)
        self.end(members)
        counts = members[1].loop.stats()
        self.assertLessEqual(counts["rounds_empty"], counts["rounds"])

    def test_nothing_is_shared_and_counted_before_it_has_begun(self):
        members = Members(f"127.0.0.1:{ranks.free_port()}", "", thinwire.Tcp(bind="127.0.0.1"))
        loop, weights = ChangingLoop(members, "local", [("w", (WEIGHTS,))]), (ctypes.c_float * WEIGHTS)()
        with self.assertRaisesRegex(thinwire.Error, "the loop has not begun"):
            loop.read([ctypes.addressof(weights)])
        self.assertEqual(loop.stats(), dict.fromkeys(loop.stats(), 0))
        self.assertIn("bytes_sent", loop.stats())
        loop.close()

    def test_who_leaves_hands_over_what_its_exchange_holds_back(self):
        """To the last digit: three is a whole number of thirds and of quarters."""
        self.check_handing_over("topk")

    @parts.extra
    def test_who_leaves_hands_over_what_another_exchange_holds_back(self):
        self.check_handing_over("randomk")

    def check_handing_over(self, scheme):
        spec = f"local:every=2,exchange={scheme}" + SPARSE
        before, after = {}, {}
        hand_over, take_place = ChangingLoop._hand_over, ChangingLoop._take_place

        def noted(loop, leaves):
            before.setdefault(loop.generation, []).append((leaves, held_back(loop)))
            hand_over(loop, leaves)

        def taken(loop, *more):
            take_place(loop, *more)
            after.setdefault(loop.generation, []).append(held_back(loop))

        with mock.patch.multiple(ChangingLoop, _hand_over=noted, _take_place=taken):
            members = self.begin(spec, 4, unit=3)
            self.end(members[1:2], "leave")
            self.assertEqual(held_back(members[1].loop), 0)
            for member in members[:1] + members[2:]:
                member.wait(3)
            self.end(members[:1] + members[2:])
            ended = next(number for number, all_ in before.items() if any(leaves for leaves, _ in all_))
            leavers = [held for leaves, held in before[ended] if leaves]
            self.assertEqual((len(leavers), len(before[ended]), len(after[ended + 1])), (1, 4, 3))
            self.assertNotEqual(sum(leavers), 0)
            self.assertEqual(sum(held for _, held in before[ended]), sum(after[ended + 1]))

    def test_what_a_crash_takes_with_it_is_told(self):
        members = self.begin("local:every=2,exchange=topk" + SPARSE, 3)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.end(members[:1], "crash")
            for member in members[1:]:
                member.wait(2)
            self.end(members[1:])
        lines = [str(one.message) for one in told]
        self.assertEqual(lines, ["what the exchange of 1 of the 3 members before held back is given up, unless they come back: they are lost, or lack a round"])

    def test_all_stop_and_begin_again_from_their_states(self):
        self.check_beginning_again("diloco:every=2,exchange=topk" + SPARSE)

    @parts.extra
    def test_all_stop_and_begin_again_by_other_methods(self):
        self.check_beginning_again("local:every=2", "streaming:every=6,delay=0")

    def check_beginning_again(self, *specs):
        for spec in specs:
            with self.subTest(spec):
                members = self.begin(spec, 3)
                self.end(members, max(member.loop.stats()["rounds"] for member in members) + 10)
                saved = [member.saved for member in members]
                self.assertEqual(len({theta_of(state) for state in saved}), 1)
                at = f"127.0.0.1:{ranks.free_port()}"
                again = [Member(at, spec, 1, thinwire.Tcp(bind="127.0.0.1"), saved[1])]
                again += [Member(again[0].address, spec, 2, thinwire.Tcp(bind="127.0.0.1"), saved[k]) for k in (0, 2)]
                for member in again:
                    member.wait(3)
                self.end(again)
                for member, state in zip(again, (saved[1], saved[0], saved[2])):
                    self.assertEqual(theta_of(member.began), theta_of(state))
                    self.assertEqual(member.began_with, theta_of(state))
                    self.assertEqual(member.began.get("exchange0/residual/w"), state.get("exchange0/residual/w"))
                self.assertEqual(len({member.theta for member in again}), 1)

    def test_a_state_of_later_than_the_group(self):
        members = self.begin("local:every=2", 1)
        self.end(members, 50)
        late = members[0].saved
        members = self.begin("local:every=2", 1, unit=3)  # as with the same steps it would be where that state is, at one round
        newer = Member(members[0].address, "local:every=2", 2, thinwire.Tcp(bind="127.0.0.1", key=KEY),
                       {**late, NUMBERS: Entry("uint64", (5,), struct.pack("<5Q", 1 << 40, 1, 0, 0, 0))})
        newer.join(SECONDS)
        with self.assertRaisesRegex(thinwire.Error, "is of 1099511627776 rounds, and the group has made .* the latest state opens"):
            raise newer.error or AssertionError("it has come in")
        self.end(members)
        with self.assertRaisesRegex(thinwire.Error, "what is loaded is a state without theta/w"):
            members[0].loop.load_state({NUMBERS: late[NUMBERS]})

    def test_bytes_that_a_newcomer_is_given(self):
        """The weights in whole, half of the momentum, and nothing of what the donor's exchange holds back."""
        entry = Entry("float32", (3,), struct.pack("<3f", 1.5, -2.0, 1 + 2 ** -20))
        self.assertEqual(struct.unpack("<3f", changing.cut(entry, 2).data), (1.5, -2.0, 1.0))
        self.assertEqual(changing.cut(entry, 4), entry)
        self.assertEqual(changing.cut(entry, 0).data, bytes(12))
        for spec, expected in (("local:every=2", 4), ("diloco:every=2", 6), ("diloco:every=2,exchange=topk" + SPARSE, 6)):
            given, spread = [], changing.spread

            def counted(comm, donor, state, extra, most, planes):
                if comm.rank == donor:
                    given.append(sum(planes(name, one) for name, one in state.items() if one.dtype == "float32"))
                return spread(comm, donor, state, extra, most, planes)

            with self.subTest(spec), mock.patch.object(changing, "spread", counted):
                members = self.begin(spec, 1)
                members.append(Member(members[0].address, spec, 2, thinwire.Tcp(bind="127.0.0.1", key=KEY)))
                for member in members:
                    member.wait(2)
                self.end(members)
                self.assertEqual(len({member.theta for member in members}), 1)
                self.assertEqual(given, [expected])

    def test_what_a_newcomer_is_given_travels_packed(self):
        """Exponents are much alike: of 32 bits some 27 travel, and of 16 some 11. Every bit arrives."""
        chance = random.Random(5)
        theta = struct.pack("<20000f", *[chance.gauss(0, 0.02) for _ in range(20000)])
        given = {"theta/w": Entry("float32", (20000,), theta), "outer_momentum/w": Entry("float32", (20000,), theta[4:] + theta[:4])}
        for planes, most in ((changing.whole, 0.85 * 160000), (lambda name, _: 2 if name != "theta/w" else 4, 0.85 * 80000 + 0.7 * 40000)):
            comms, found = thinwire.Comm.threads(2), {}

            def take(rank, planes=planes, comms=comms, found=found):
                found[rank] = changing.spread(comms[rank], 1, given if rank else {}, {}, 1 << 20, planes)[0]

            threads = [threading.Thread(target=take, args=(rank,)) for rank in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SECONDS)
            self.assertEqual(found[0], {name: changing.cut(one, planes(name, one)) for name, one in given.items()})
            self.assertEqual(found[0]["theta/w"].data, theta)
            self.assertLess(comms[1].traffic()["bytes_sent"], most)

    def test_two_of_which_the_first_is_lost(self):
        """The second stops with a sentence."""
        members = self.begin("local:every=2", 2)
        self.end(members[:1], "crash")
        members[1].join(SECONDS)
        with self.assertRaisesRegex(thinwire.PeerError, r"too few of the 2 members of generation ([2-9]|\d\d+) answer.*; with quorum=1 on both, one "):
            raise members[1].error

    def test_a_newcomer_is_told_lies(self):
        """It says whose they are, and the group goes on without it."""
        nan = struct.pack(f"<{WEIGHTS}f", *[float("nan")] * WEIGHTS)
        lies = {"without outer/numbers": {NUMBERS: None}, r"outer/numbers of \(5,\)": {NUMBERS: Entry("uint64", (1,), bytes(8))},
                "numbers of .* in uint64": {NUMBERS: Entry("uint8", (5,), bytes(5))},
                "since a round began": {NUMBERS: Entry("uint64", (5,), b"\xff" * 40)},
                "without theta/w": {"theta/w": None}, r"theta/w of \(64,\)": {"theta/w": Entry("float32", (65,), bytes(260))},
                "NaN": {"theta/w": Entry("float32", (WEIGHTS,), nan)}, "want at most": {"more": Entry("uint8", (1 << 25,), bytes(1 << 25))}}
        honest, lie = changing.spread, {}

        def spread(comm, donor, state, extra, most, planes):
            if comm.rank != donor:
                return honest(comm, donor, state, extra, most, planes)
            told = {name: one for name, one in {**state, **lie}.items() if one is not None}
            honest(comm, donor, told, extra, 1 << 40, planes)
            return state, extra

        with mock.patch.object(changing, "spread", spread):
            members = self.begin("local:every=2", 1)
            for words, lie in lies.items():
                newcomer = Member(members[0].address, "local:every=2", 2, thinwire.Tcp(bind="127.0.0.1", key=KEY))
                newcomer.order = "crash"  # once it has come in
                newcomer.join(SECONDS)
                with self.subTest(words), self.assertRaisesRegex(thinwire.Error, f"rank 0 gives .*{words}"):
                    raise newcomer.error or AssertionError("it has come in")
            self.end(members)

    def test_a_table_that_cannot_be(self):
        for row in (b'["a","float32",[NaN],4]', b'["a","float32",[Infinity],4]', b'["a","float32",[-1],4]', b'["a","float99",[1],4]',
                    b'["a",[],[1],4]', b'["a","float32",[1],5]', b'["a","float32",[1],-1]', b'["a","float32",[1],"x"]', b'["a","float32",[1]]',
                    b'["a","uint8",[1,1,1,1,1,1,1,1,1],1]', b'["\\ud800","uint8",[1],1]', b'["a","uint8",3,1]', b'"abcd"', b"1", b"\xff",
                    b"[" * 100000):
            with self.subTest(row[:40]), self.assertRaisesRegex(thinwire.Error, "rank 1 gives what is no table"):
                changing.read_header(1, b"[[" + row + b"],[]]", 1 << 20)
        for shape in (b"1099511627775", b",".join([b"1099511627775"] * 8), b"1048577"):
            with self.subTest(shape), self.assertRaisesRegex(thinwire.Error, r"rank 1 gives \d+ bytes; want at most 1048576"):
                changing.read_header(1, b'[[["a","uint8",[' + shape + b"],1]],[]]", 1 << 20)
        self.assertEqual(changing.read_header(1, b'[[["a","uint8",[1048576],1]],[]]', 1 << 20), [[("a", "uint8", (1 << 20,), 1 << 20, 1)], []])


if __name__ == "__main__":
    unittest.main(testLoader=parts.Loader())
