#!/usr/bin/env python3
"""The C library's objects from Python, over ranks that are threads; no torch is needed."""

import _thread
import array
import atexit
import concurrent.futures
import contextlib
import copy
import ctypes
import functools
import gc
import io
import logging
import math
import os
import pathlib
import pickle
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import ranks
import thinwire
from thinwire import _owned, _told
from thinwire._library import library, tell
from thinwire._owned import Owned
from thinwire._told import News
from thinwire.comm import on_thread
from thinwire.members import Members
from thinwire.tcp import Interrupt, options_of

TENSORS = [("first.weight", (8, 32)), ("first.bias", (32,))]


def values(count, value):
    return array.array("f", [value] * count)


def step(reducer, numbers):
    buffers = [values(n, numbers) for n in (256, 32)]
    for i, buffer in enumerate(buffers):
        reducer.submit(i, buffer.buffer_info()[0])
    return reducer.wait(), buffers


def until(test, there):
    end = time.monotonic() + ranks.SECONDS
    while not there():
        if time.monotonic() > end:
            test.fail("it did not come")
        time.sleep(0.005)


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


class LibraryTest(unittest.TestCase):
    def test_ctrl_c_ends_the_wait_for_others_that_never_come(self):
        """At a meeting point of one's own, at one where nobody is, and where a group would let a newcomer in. It is a
        KeyboardInterrupt, and nothing is told as an error that nobody can catch."""
        nobody = socket.socket()  # takes no connection, and the port is nobody else's
        nobody.bind(("127.0.0.1", 0))
        self.addCleanup(nobody.close)
        away, tcp, unraisable = f"127.0.0.1:{nobody.getsockname()[1]}", thinwire.Tcp(), []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = unraisable.append
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        for wait in (lambda: tcp.join(f"127.0.0.1:{ranks.free_port()}", 2, seconds=ranks.SECONDS),
                     lambda: tcp.join(away, 2, rank=1, seconds=ranks.SECONDS),
                     lambda: Members("192.0.2.1:7000", "", tcp, patience=ranks.SECONDS).next(-1)):
            interrupter = threading.Thread(target=self.interrupt_a_wait)
            interrupter.start()
            with self.assertRaises(KeyboardInterrupt):
                wait()
            interrupter.join()
        self.assertEqual(unraisable, [])

    def test_the_environment_says_what_a_tcp_does_not(self):
        first, last, other = (ranks.free_port() for _ in range(3))
        there = {"THINWIRE_BIND": "127.0.0.1", "THINWIRE_ADVERTISE": "here", "THINWIRE_PORT": str(first), "THINWIRE_LAST_PORT": str(last),
                 "THINWIRE_STREAMS": "3", "THINWIRE_REACHABLE": "no"}

        def said(**more):
            options = options_of(thinwire.Tcp(**more), Interrupt())
            return (options.bind, options.advertise, options.first_port, options.last_port, options.streams, options.behind)

        with mock.patch.dict(os.environ, there):
            self.assertEqual(said(), (b"127.0.0.1", b"here", first, last, 3, 1))
            self.assertEqual(said(bind="::1", advertise="there", ports=(other, other), streams=2), (b"::1", b"there", other, other, 2, 1))
            os.environ.update(THINWIRE_LAST_PORT=str(first), THINWIRE_ADVERTISE="", THINWIRE_REACHABLE="yes")
            with thinwire.Tcp().listen() as listener:
                self.assertIn(f":{first}", listener.address)
            os.environ["THINWIRE_PORT"] = "many"
            with self.assertRaisesRegex(thinwire.Error, 'THINWIRE_PORT is "many" in the environment: want a number'):
                thinwire.Tcp().listen()

    def test_ctrl_c_ends_the_wait_of_any_collective(self):
        """For a rank that never comes."""
        weights = [array.array("f", bytes(4 * math.prod(shape))) for _, shape in TENSORS]
        pointers = [one.buffer_info()[0] for one in weights]
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

        def gossip(comm):
            return thinwire.Gossip(comm, "dpsgd", TENSORS, pointers)

        for call in (lambda comm, _: thinwire.Reducer(comm, "topk", TENSORS), lambda comm, _: thinwire.OuterLoop(comm, "local", TENSORS),
                     lambda comm, _: gossip(comm), lambda comm, _: comm.barrier(), lambda _, one: one.finish(pointers)):
            comms = thinwire.Comm.threads(2)
            comms[0].set_timeout(20), comms[0].set_patience(20)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                made = list(pool.map(gossip, comms))
            interrupter = threading.Thread(target=self.interrupt_a_wait)
            interrupter.start()
            with self.assertRaises(KeyboardInterrupt):
                call(comms[0], made[0])
            interrupter.join()
            for comm in comms:
                comm.close()

    @staticmethod
    def interrupt_a_wait():
        """Once a thread is in a call of the library."""
        end = time.monotonic() + ranks.SECONDS
        while not ranks.in_a_call() and time.monotonic() < end:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    def test_a_call_that_is_over_is_no_call(self):
        """Though its thread has not ended: who waits for a call would else take the one before for it."""
        news, says, ends = News(), threading.Event(), threading.Event()
        self.addCleanup(ends.set)

        def say(line):
            says.set()
            ends.wait(ranks.SECONDS)

        news.put, inside = say, []
        thread = threading.Thread(target=news.act, args=(lambda: inside.append(ranks.in_a_call()),))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(ends.set)
        self.assertTrue(says.wait(ranks.SECONDS))
        self.assertEqual((inside, ranks.in_a_call()), ([True], False))

    def test_ctrl_c_that_wakes_nobody_is_heeded(self):
        """A signal that comes just before a wait begins does not end it, nor does one that another thread gets."""
        ended, heard, main = threading.Event(), [], threading.get_ident()

        def call():
            looks = 0
            while looks < 20:  # between which the other thread goes on, until it is in the wait
                time.sleep(0.001)
                looks = looks + 1 if sys._current_frames()[main].f_code is News.tell_until_over.__code__ else 0
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            os.kill(os.getpid(), signal.SIGINT)
            heard.append(ended.wait(20))

        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        self.addCleanup(signal.pthread_sigmask, signal.SIG_SETMASK, signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}))
        with self.assertRaises(KeyboardInterrupt):
            on_thread(call, ended.set)
        self.assertEqual(heard, [True])

    def test_ctrl_c_before_a_call_has_begun_leaves_it_unmade(self):
        """Nobody waits for its thread, which then does nothing."""
        call, begin, end = mock.Mock(), [], mock.Mock()

        def interrupted(act, arguments):
            begin.append(lambda: act(*arguments))
            raise KeyboardInterrupt

        for ending in (end, None):
            with mock.patch.object(_thread, "start_new_thread", interrupted), self.assertRaises(KeyboardInterrupt):
                on_thread(call, ending)
            begin.pop()()
        call.assert_not_called()
        end.assert_called_once()

    def interrupted(self, times, grace, ends):
        """What was done with a call that Ctrl-C meets so many times: it ends by itself, or when it is ended."""
        done, over, tell = [], threading.Event(), News.tell_until_over
        left = [KeyboardInterrupt] * times

        def told(news, *more):
            until(self, lambda: "begun" in done)
            if left:
                raise left.pop()
            if ends == "itself":
                over.set()
            return tell(news, *more)

        def call():
            done.append("begun")
            over.wait(ranks.SECONDS)
            done.append("over")

        def end():
            done.append("ended")
            over.set()

        with mock.patch.object(News, "tell_until_over", told), self.assertRaises(KeyboardInterrupt):
            on_thread(call, end, grace)
        return done

    def test_a_call_has_its_grace_behind_the_first_ctrl_c(self):
        self.assertEqual(self.interrupted(1, ranks.SECONDS, "itself"), ["begun", "over"])
        self.assertEqual(self.interrupted(1, 0.0, "ended"), ["begun", "ended", "over"])
        self.assertEqual(self.interrupted(1, 0.01, "ended"), ["begun", "ended", "over"])
        self.assertEqual(self.interrupted(2, ranks.SECONDS, "ended"), ["begun", "ended", "over"])
        claim, main = News.claim, threading.get_ident()

        def interrupted(news):
            if threading.get_ident() == main:
                raise KeyboardInterrupt
            return claim(news)

        with mock.patch.object(News, "claim", interrupted):
            self.assertEqual(self.interrupted(1, ranks.SECONDS, "ended"), ["begun", "ended", "over"])

    def test_a_call_is_made_once_where_a_handler_raises_what_no_thread_does(self):
        begin, calls = _thread.start_new_thread, []

        def raises(act, arguments):
            begin(act, arguments)
            until(self, lambda: calls)
            raise RuntimeError("a handler of SIGTERM")

        for begins, made in ((raises, ["made"]), (mock.Mock(side_effect=RuntimeError("a handler of SIGTERM")), [])):
            calls.clear()
            with mock.patch.object(_thread, "start_new_thread", begins), self.assertRaisesRegex(RuntimeError, "a handler of SIGTERM"):
                on_thread(lambda: calls.append("made"), lambda: None)
            self.assertEqual(calls, made)

    def test_the_package_by_itself_says_what_is_installed_and_what_it_does_not_do(self):
        def said(*words):
            done = subprocess.run([sys.executable, "-m", "thinwire", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=ranks.SECONDS)
            return done.returncode, done.stdout, done.stderr

        code, out, err = said()
        self.assertEqual((code, err), (0, ""))
        self.assertIn(f"thinwire: {thinwire.__version__}\n", out)
        code, out, err = said("doctor", "10.0.0.5:7000")
        self.assertEqual((code, out, err.count("\n")), (2, "", 1))
        self.assertIn("there is no doctor here", err)
        code, out, err = said("--help")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("python -m thinwire launch", out)

    def test_the_mean_comes_back(self):
        def play(rank, comm):
            with thinwire.Reducer(comm, "allreduce", TENSORS) as reducer:
                good, buffers = step(reducer, rank + 1.0)
                return good, set(buffers[0]) | set(buffers[1]), reducer.stats()["steps"]
        self.assertEqual(ranks.on_threads(3, play), [(True, {2.0}, 1)] * 3)

    def test_a_step_that_is_not_finite_is_skipped_and_no_error(self):
        def play(rank, comm):
            with thinwire.Reducer(comm, "topk:density=0.1", TENSORS) as reducer:
                outcomes = [step(reducer, float("nan") if rank and skip else 1.0)[0] for skip in (True, False)]
                return outcomes, reducer.stats()["steps_skipped"]
        self.assertEqual(ranks.on_threads(2, play), [([False, True], 1)] * 2)

    def test_state_goes_round(self):
        def play(rank, comm):
            spec = "dgc:density=0.1,warmup_steps=0"
            first, second = (thinwire.Reducer(comm, spec, TENSORS) for _ in range(2))
            for number in range(3):
                step(first, rank + number + 1.0)
            second.load_state(first.state())
            return [list(buffer) for buffer in step(first, 3.0)[1]] == [list(buffer) for buffer in step(second, 3.0)[1]]
        self.assertEqual(ranks.on_threads(2, play), [True, True])

    def test_state_that_does_not_fit_is_named(self):
        def play(rank, comm):
            reducer = thinwire.Reducer(comm, "topk:density=0.1", TENSORS)
            state = reducer.state()
            del state["residual/first.weight"]
            with self.assertRaisesRegex(thinwire.Error, "residual/first.weight"):
                reducer.load_state(state)
            return True
        self.assertEqual(ranks.on_threads(2, play), [True, True])

    def test_ctrl_c_while_states_are_regrouped_comes_out(self):
        from thinwire import gossip, reducer

        def interrupted(rank):
            raise KeyboardInterrupt

        for regrouped, spec in ((reducer.regrouped, "topk"), (gossip.regrouped, "dpsgd")):
            with self.assertRaises(KeyboardInterrupt):
                regrouped(spec, TENSORS, interrupted, 4, 0, 2)

    def test_whose_states_are_asked_for_does_not_depend_on_the_scheme(self):
        """So the library can be asked before anybody has read a state: here, and for states that hold something back."""
        from thinwire import reducer
        comm, = thinwire.Comm.threads(1)
        with comm, thinwire.Reducer(comm, "topk:density=0.1", TENSORS) as one:
            state = one.state()

        def asked(spec, lost, *sizes):
            ranks = set()
            reducer.regrouped(spec, TENSORS, lambda rank: ranks.add(rank) or (None if rank in lost else state), *sizes)
            return ranks

        for per_host in (1, 2):
            spec, counts = f"topk:density=0.1,per_host={per_host}", range(per_host, 9, per_host)
            for sizes in [(old, rank, size) for old in counts for size in counts for rank in range(size)]:
                for lost in ((), (0,), (3, 4)) if sizes[0] > 5 else ((),):
                    self.assertEqual(reducer.asked_for(spec, *sizes, lost), asked(spec, lost, *sizes), (spec, sizes, lost))
        self.assertEqual(reducer.asked_for("topk", 4, 1, 2), {0, 2, 3})
        self.assertEqual(reducer.asked_for("topk:per_host=2", 8, 2, 4), {0, 4, 6})

    def test_a_wrong_spec_names_the_option(self):
        outcomes = ranks.on_threads(2, lambda rank, comm: thinwire.Reducer(comm, "dgc:dens=1", TENSORS))
        for error in outcomes:
            self.assertIsInstance(error, thinwire.SpecError)
            self.assertIn("dens", str(error))

    def test_a_peer_that_left_is_named(self):
        left = threading.Event()

        def play(rank, comm):
            reducer = thinwire.Reducer(comm, "topk:density=0.1", TENSORS)
            if rank == 1:
                comm.close()
                return left.set()
            left.wait()
            return step(reducer, 1.0)
        error = ranks.on_threads(2, play)[0]
        self.assertIsInstance(error, thinwire.PeerError)
        self.assertEqual(error.rank, 1)

    def test_who_has_lost_too_many_is_not_named_as_lost(self):
        def play(rank, comm):
            pointers = [values(256, 1.0), values(32, 1.0)]
            gossip = thinwire.Gossip(comm, "adpsgd-random", TENSORS, [one.buffer_info()[0] for one in pointers])
            if rank == 2:  # the others leave at once
                gossip.finish([one.buffer_info()[0] for one in pointers])
        error = ranks.on_threads(3, play)[2]
        self.assertIsInstance(error, thinwire.PeerError)
        self.assertIn("too many to go on without them", str(error))
        self.assertIsNone(error.rank)

    def test_a_gossip_ends_with_the_mean(self):
        def play(rank, comm):
            weights = [values(256, 1.0), values(32, 1.0)]
            pointers = [w.buffer_info()[0] for w in weights]
            gossip = thinwire.Gossip(comm, "dpsgd", TENSORS, pointers)
            gossip.read(pointers)
            for w in weights:
                for i in range(len(w)):
                    w[i] += rank
            good = gossip.step(pointers)
            gossip.finish(pointers)
            return good, set(weights[0]) | set(weights[1]), gossip.stats()["steps"]
        self.assertEqual(ranks.on_threads(2, play), [(True, {1.5}, 1)] * 2)

    def test_a_closed_object_says_so(self):
        comm, = thinwire.Comm.threads(1)
        reducer = thinwire.Reducer(comm, "topk", TENSORS)
        comm.close()
        self.assertTrue(reducer.closed)
        with self.assertRaisesRegex(thinwire.Error, "this Reducer was closed"):
            reducer.wait()

    def test_what_nobody_has_goes_in_the_right_order(self):
        before = set(os.listdir("/proc/self/task"))  # the threads
        comm, = thinwire.Comm.threads(1)
        reducer = thinwire.Reducer(comm, "topk", TENSORS)
        cycle = [comm, reducer]
        cycle.append(cycle)
        del comm, reducer, cycle
        gc.collect()
        until(self, lambda: set(os.listdir("/proc/self/task")) <= before)  # the kernel takes a moment to list no more

    def test_nothing_is_destroyed_under_a_call(self):
        """Nor what the object of the call was made from; the last one out destroys both, in the right order."""
        destroyed, seen, inside, over = [], [], threading.Event(), threading.Event()

        class Thing(Owned):
            def __init__(self, address, *of):
                self._own(ctypes.c_void_p(address), destroyed.append, *of)

        def wait(address):
            inside.set()
            over.wait(ranks.SECONDS)
            seen.append((address, list(destroyed)))

        owner = Thing(1)
        made = Thing(2, owner)
        call = threading.Thread(target=made._call, args=(wait,))
        call.start()
        inside.wait(ranks.SECONDS)
        owner.close()
        for one in (owner, made):
            self.assertTrue(one.closed)
            with self.assertRaisesRegex(thinwire.Error, "this Thing was closed"):
                one._call(destroyed.append)
        self.assertEqual(destroyed, [])
        over.set()
        call.join()
        self.assertEqual((seen, destroyed), ([(2, [])], [2, 1]))
        made.close(), owner.close()
        self.assertEqual(destroyed, [2, 1])

    def test_what_is_made_from_what_was_closed_meanwhile_is_closed(self):
        destroyed = []

        class Thing(Owned):
            def __init__(self, address, *of):
                self._own(ctypes.c_void_p(address), destroyed.append, *of)

        owner = Thing(1)
        with owner._used():  # as a collective that makes something
            owner.close()
            made = Thing(2, owner)
            self.assertEqual((made.closed, destroyed), (True, [2]))
        self.assertEqual(destroyed, [2, 1])

    def test_a_close_ends_what_waits_on_another_thread(self):
        weights = values(4, 1.0)
        at, table = [weights.buffer_info()[0]], [("w", (4,))]

        def loop(comm):
            one = thinwire.OuterLoop(comm, "local:every=1", table)
            one.begin(at)
            return one

        def wait_for_a_step(reducer):
            reducer.submit(0, *at)
            reducer.wait()

        def reducer(comm):
            return thinwire.Reducer(comm, "allreduce", table)

        for make, wait in ((lambda comm: comm, lambda comm: comm.barrier()), (loop, lambda one: one.step(at)),
                           (loop, lambda one: one.state_apart()), (loop, lambda one: one.finish(at)), (reducer, wait_for_a_step),
                           (lambda comm: comm, loop), (lambda comm: comm, reducer)):
            comms = thinwire.Comm.threads(2)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                made = list(pool.map(make, comms))
                waits = pool.submit(ranks.refused, lambda: wait(made[0]))
                until(self, lambda: waits.done() or ranks.in_a_call() or made[0]._users)
                comms[0].close()
                waits.result(ranks.SECONDS)
            self.assertFalse(comms[0]._end.alive)
            comms[1].close()

    def test_a_group_that_is_waited_for_is_left_by_close(self):
        """Where nobody lets this process in, and where its own door waits for others."""
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            members = Members(f"127.0.0.1:{nobody.getsockname()[1]}", "a subject", thinwire.Tcp())
            listener = thinwire.Tcp(bind="127.0.0.1").listen()
            for one, wait in ((members, lambda: members.next(-1)), (listener, lambda: listener.connect(0, [listener.address] * 2, 300))):
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    waits = pool.submit(ranks.refused, wait)
                    until(self, lambda: one._users)
                    one.close()
                    self.assertRegex(waits.result(ranks.SECONDS), "was stopped by|was given up, by its own program|was closed")
                self.assertFalse(one._end.alive)

    def told_to(self, handle):
        """The log's lines go to that, all of them."""
        handler = logging.Handler()
        handler.emit = handle
        log = logging.getLogger("thinwire")
        log.addHandler(handler)
        self.addCleanup(log.removeHandler, handler)
        self.addCleanup(log.setLevel, log.level)
        log.setLevel(logging.INFO)

    def test_a_log_handler_has_what_its_caller_holds(self):
        """What comes up in a call that another thread makes is told by the one that waits for it."""
        held, told = threading.RLock(), []
        self.told_to(lambda line: told.append((threading.get_ident(), held.acquire(timeout=5))))
        comm, = thinwire.Comm.threads(1)
        with held:
            thinwire.Reducer(comm, "dgc", TENSORS)
        comm.close()
        self.assertEqual(set(told), {(threading.get_ident(), True)})

    def test_no_thread_of_the_librarys_waits_for_a_log_handler(self):
        """That a group broke is told while the program waits for the thread that has noticed it."""
        held, told = threading.Lock(), queue.SimpleQueue()
        comms = thinwire.Comm.threads(2)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            reducers = list(pool.map(lambda comm: thinwire.Reducer(comm, "allreduce", TENSORS), comms))

        def handle(line):
            there = held.acquire(timeout=5)
            told.put((line.getMessage(), there))
            if there:
                held.release()

        self.told_to(handle)
        with held:
            comms[1].leave()
            with self.assertRaises(thinwire.Error):
                step(reducers[0], 1.0)
        text, there = told.get(timeout=ranks.SECONDS)
        self.assertIn("broke", text)
        self.assertTrue(there)
        for comm in comms:
            comm.close()

    def test_a_log_handler_may_close_what_it_is_told_of(self):
        comm, = thinwire.Comm.threads(1)
        self.told_to(lambda line: comm.close())
        with self.assertRaises(thinwire.Error):
            thinwire.Reducer(comm, "dgc", TENSORS).stats()
        self.assertFalse(comm._end.alive)

    def test_what_a_log_handler_raises_ends_no_call(self):
        def handle(line):
            raise ValueError(f"no place for {line.getMessage()}")

        self.told_to(handle)
        comm, = thinwire.Comm.threads(1)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            comm.waited(lambda: tell(None, 2, b"a line"))
            comm.barrier()
        self.assertIn("no place for a line", said.getvalue())
        comm.close()

    def test_what_comes_up_behind_a_second_ctrl_c_is_told(self):
        over, told = threading.Event(), queue.SimpleQueue()

        def handle(line):
            told.put(line.getMessage())
            if line.getMessage() == "first":
                raise KeyboardInterrupt

        def call():
            _told.say(logging.WARNING, "first")
            over.wait(ranks.SECONDS)
            _told.say(logging.WARNING, "last")

        def end():
            raise KeyboardInterrupt

        self.told_to(handle)
        with self.assertRaises(KeyboardInterrupt):
            on_thread(call, end)
        over.set()
        self.assertEqual([told.get(timeout=ranks.SECONDS) for _ in range(2)], ["first", "last"])

    def begun(self):
        """A handler of the log that has begun with a line, what lets it go on, and what it has told."""
        begins, goes_on, told, process = threading.Event(), threading.Event(), [], os.getpid()

        def handle(line):
            if os.getpid() == process:  # a forked child may find the lock of an Event held
                begins.set()
                goes_on.wait(ranks.SECONDS)
            told.append(line.getMessage())

        self.told_to(handle)
        self.addCleanup(goes_on.set)
        _told.say_apart(logging.WARNING, "a line")
        self.assertTrue(begins.wait(ranks.SECONDS))
        return goes_on, told

    def end_of(self, child):
        """What a forked child ends with."""
        self.addCleanup(kill, child)
        ended = []
        until(self, lambda: ended.append(os.waitpid(child, os.WNOHANG)) or ended[-1][0] == child)
        return ended[-1][1]

    def test_the_end_of_python_waits_for_the_line_that_is_told(self):
        goes_on, told = self.begun()
        over = threading.Event()

        def let_go_on():
            until(self, lambda: over.is_set() or not _told.lines._jobs.empty())
            goes_on.set()

        other = threading.Thread(target=let_go_on)
        other.start()
        _told.lines._end()
        there = list(told)
        over.set()
        other.join()
        self.assertEqual(there, ["a line"])

    def test_a_forked_child_tells_no_line_of_its_parents(self):
        goes_on, told = self.begun()
        _told.say_apart(logging.WARNING, "another")
        child = os.fork()
        if child == 0:
            _told.lines._end()
            os._exit(len(told))
        self.assertEqual(self.end_of(child), 0)
        goes_on.set()
        until(self, lambda: told == ["a line", "another"])

    def test_a_forked_child_ends_no_wait_of_its_parents(self):
        comm, = thinwire.Comm.threads(1)
        with comm.waits():  # as another thread does
            child = os.fork()
            if child == 0:
                with mock.patch.object(library, "tw_comm_leave") as left:
                    comm.close()
                os._exit(left.called)
            self.assertEqual(self.end_of(child), 0)
        comm.close()

    def test_no_thread_of_the_librarys_destroys_what_is_garbage(self):
        """Python collects that on any thread, and a thread of the library cannot wait for its own end."""
        destroyed, collected, printable = queue.SimpleQueue(), [], thinwire.errors.printable

        class Thing(Owned):
            def __init__(self):
                self.own = self
                self._own(ctypes.c_void_p(1), lambda handle: destroyed.put(threading.current_thread()))

        def collect(text):
            threading.current_thread()  # after which Python has a name for the thread, as after a log record
            collected.append(gc.collect())
            return printable(text)

        comms = thinwire.Comm.threads(2)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            reducers = list(pool.map(lambda comm: thinwire.Reducer(comm, "allreduce", TENSORS), comms))
        gc.disable()
        self.addCleanup(gc.enable)
        Thing()
        self.told_to(lambda line: None)
        with mock.patch.object(thinwire.errors, "printable", collect):
            comms[1].leave()
            with self.assertRaises(thinwire.PeerError):
                step(reducers[0], 1.0)
            thread = destroyed.get(timeout=ranks.SECONDS)
        self.assertGreater(collected[0], 0)
        self.assertEqual(thread.name, "thinwire end")
        for comm in comms:
            comm.close()

    def test_python_ends_though_a_daemon_waits_for_others(self):
        words = ("import ranks, thinwire, threading\n"
                 "waits, other = thinwire.Comm.threads(2)\n"
                 "threading.Thread(target=waits.barrier, daemon=True).start()\n"
                 "while not ranks.in_a_call(): pass\n")
        ended = subprocess.run([sys.executable, "-c", words], timeout=ranks.SECONDS, stderr=subprocess.DEVNULL,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(ended.returncode, 0)

    def test_a_call_that_two_interrupts_leave_behind_keeps_its_comm(self):
        inside, over = threading.Event(), threading.Event()

        def wait():
            inside.set()
            over.wait(ranks.SECONDS)

        def interrupted(*what):
            inside.wait(ranks.SECONDS)
            raise KeyboardInterrupt

        comm, = thinwire.Comm.threads(1)
        with mock.patch.object(News, "tell_until_over", interrupted), self.assertRaises(KeyboardInterrupt):
            comm.waited(wait)
        comm.close()
        self.assertTrue(comm._end.alive)
        over.set()
        until(self, lambda: not comm._end.alive)

    def test_a_collective_needs_no_thread_where_there_is_none(self):
        """As at the end of Python 3.12, where an atexit handler may call finish()."""
        with thinwire.Comm.threads(1)[0] as comm, mock.patch.object(
                _thread, "start_new_thread", side_effect=RuntimeError("can't start new thread")):
            self.assertEqual(comm.allgather(b"all"), [b"all"])
            end = mock.Mock()
            with self.assertRaises(ZeroDivisionError):
                on_thread(lambda: 1 / 0, end)
            end.assert_not_called()

    def test_no_thread_of_the_librarys_does_what_is_apart_where_there_is_no_other(self):
        """It comes with what follows, or at the end of Python."""
        did = []
        apart = _told.Apart("nobody")
        self.addCleanup(atexit.unregister, apart._end)
        with mock.patch.object(_told._thread, "start_new_thread", side_effect=RuntimeError):
            apart.do(lambda: did.append("a job"))
        self.assertEqual(did, [])
        apart._end()
        self.assertEqual(did, ["a job"])

    def test_no_thread_of_the_librarys_waits_for_a_lock_of_pythons_threads(self):
        """A finaliser may run where its thread has that one, and wait for the thread of the library that tells a line."""
        told, apart = threading.Event(), _told.Apart("somebody")
        self.addCleanup(atexit.unregister, apart._end)
        with threading._active_limbo_lock, concurrent.futures.ThreadPoolExecutor(1) as pool:
            _thread.start_new_thread(lambda: (apart.do(lambda: None), told.set()), ())
            self.assertTrue(told.wait(ranks.SECONDS))

    def test_what_fails_apart_ends_nothing_that_comes_behind_it(self):
        did, apart = queue.SimpleQueue(), _told.Apart("somebody")
        self.addCleanup(atexit.unregister, apart._end)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            apart.do(lambda: 1 / 0)
            apart.do(sys.exit)
            apart.do(lambda: did.put(threading.current_thread().name))
            self.assertEqual(did.get(timeout=ranks.SECONDS), "somebody")
        self.assertIn("ZeroDivisionError", said.getvalue())

    def test_a_line_waits_for_nothing_that_is_destroyed(self):
        over = threading.Event()
        self.addCleanup(over.set)
        _owned.ends.do(lambda: over.wait(ranks.SECONDS))
        told = queue.SimpleQueue()
        self.told_to(lambda line: told.put(line.getMessage()))
        _told.say_apart(logging.WARNING, "a line")
        self.assertEqual(told.get(timeout=ranks.SECONDS), "a line")
        self.assertFalse(over.is_set())

    def test_ctrl_c_behind_the_last_line_of_a_call_is_heeded(self):
        class Interrupted(_told.News):
            def __init__(self):
                super().__init__()
                queue, self._queue = self._queue, self
                self._get, self.empty, self.came = queue.get, queue.empty, 0

            def get(self, timeout):
                """What comes is taken, and then it is as if a signal had come before it was looked at."""
                line = self._get(timeout=timeout)
                self.came += 1
                if self.came == 1:
                    raise KeyboardInterrupt
                return line

        news = Interrupted()
        acts = threading.Thread(target=news.act, args=(lambda: None,))
        acts.start()
        acts.join()
        with self.assertRaises(KeyboardInterrupt):
            news.tell_until_over(0.01)
        news.tell_until_over(0.01)

    def test_ctrl_c_while_something_is_destroyed_leaves_nothing_in_use(self):
        """Neither where it is closed itself nor where what it was made from is, nor where the end of a wait is interrupted."""
        def interrupted(*what):
            raise KeyboardInterrupt

        class Thing(Owned):
            def __init__(self, *made_from, by):
                self._own(ctypes.c_void_p(1), by, *made_from)

        for how in ("itself", "its owner", "a wait"):
            gone = []
            owner = Thing(by=gone.append)
            made = Thing(owner, by=gone.append if how == "a wait" else interrupted)
            with self.assertRaises(KeyboardInterrupt):
                if how == "a wait":
                    with owner._used(interrupted):
                        owner.close()
                else:
                    (made if how == "itself" else owner).close()
            owner.close()
            self.assertEqual(len(gone), 1 + (how == "a wait"), how)

    def test_who_closes_a_comm_waits_for_no_round_and_no_step_under_way(self):
        """Rank 1 is there, and comes to nothing: its patience is half an hour."""
        for make in (lambda comm: thinwire.OuterLoop(comm, "diloco:every=2,eager=on", TENSORS),
                     lambda comm: thinwire.OuterLoop(comm, "streaming:every=4,fragments=2,delay=1", TENSORS),
                     lambda comm: thinwire.Gossip(comm, "adpsgd-fixed", TENSORS, places),
                     lambda comm: thinwire.Reducer(comm, "allreduce", TENSORS)):
            ends = [thinwire.Tcp(bind="127.0.0.1").listen() for _ in range(2)]
            addresses = [end.address for end in ends]
            buffers = [values(n, 0.0) for n in (256, 32)]
            places = [buffer.buffer_info()[0] for buffer in buffers]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                comms = list(pool.map(lambda rank: ends[rank].connect(rank, addresses, ranks.SECONDS), range(2)))
                made = list(pool.map(make, comms))
                if isinstance(made[0], thinwire.Reducer):
                    made[0].submit_all(range(len(TENSORS)), places)
                elif isinstance(made[0], thinwire.Gossip):
                    made[0].read(places)
                    made[0].step(places)
                else:
                    list(pool.map(lambda loop: loop.begin(places), made))
                    for _ in range(2):
                        made[0].step(places)
            comms[0].close()
            self.assertFalse(comms[0]._end.alive)
            comms[1].close()

    def test_a_forked_child_leaves_the_parents_objects_alone(self):
        comm, = thinwire.Comm.threads(1)
        reducer = thinwire.Reducer(comm, "topk", TENSORS)
        child = os.fork()
        if child == 0:
            reducer.close()
            comm.close()
            os._exit(0)
        self.assertEqual(self.end_of(child), 0)
        self.assertTrue(step(reducer, 1.0)[0])

    def test_errors_cross_processes(self):
        error = pickle.loads(pickle.dumps(thinwire.PeerError("rank 0: rank 3 is gone", 7, "TW_ERROR_PEER", 3)))
        self.assertEqual((str(error), error.rank, error.status, error.name), ("rank 0: rank 3 is gone", 3, 7, "TW_ERROR_PEER"))
        error = pickle.loads(pickle.dumps(thinwire.SpecError("no such spec", 2, "TW_ERROR_SPEC")))
        self.assertEqual((type(error), str(error), error.status, error.name), (thinwire.SpecError, "no such spec", 2, "TW_ERROR_SPEC"))

    def test_sealed_messages_give_the_same_and_the_comm_underneath_is_gone(self):
        def play(rank, comm):
            with thinwire.sealed(comm, b"k" * 32) as upon, thinwire.Reducer(upon, "allreduce", TENSORS) as reducer:
                good, buffers = step(reducer, rank + 1.0)
                return good, set(buffers[0]), comm.closed, upon.rank
        self.assertEqual(ranks.on_threads(2, play), [(True, {1.5}, True, 0), (True, {1.5}, True, 1)])

    def test_a_rank_with_another_key_is_named(self):
        for error in ranks.on_threads(2, lambda rank, comm: thinwire.sealed(comm, bytes([rank]) * 32)):
            self.assertIsInstance(error, thinwire.Error)
            self.assertEqual(error.name, "TW_ERROR_PACKET")

    def test_a_comm_that_is_in_use_is_not_sealed(self):
        comm, = thinwire.Comm.threads(1)
        reducer = thinwire.Reducer(comm, "topk", TENSORS)
        with self.assertRaisesRegex(thinwire.Error, "in use"):
            thinwire.sealed(comm, b"k" * 32)
        self.assertTrue(step(reducer, 1.0)[0])

    def test_a_key_of_another_type_is_refused_and_the_comm_lives(self):
        comm, = thinwire.Comm.threads(1)
        for key, kind in (("a text", "str"), (None, "NoneType"), (7, "int")):
            with self.assertRaisesRegex(thinwire.Error, f"a key is bytes.*and this is a {kind}"):
                thinwire.sealed(comm, key)
        comm.barrier()
        comm.close()

    def test_arguments_that_c_would_read_too_much_of_are_refused(self):
        comm, = thinwire.Comm.threads(1)
        with thinwire.Reducer(comm, "topk", TENSORS) as reducer:
            state = reducer.state()
            name = "residual/first.weight"
            for entry, part in ((state[name]._replace(data=b"1234"), "has 4 bytes, and its shape .256,. of float32 has 1024"),
                                (state[name]._replace(shape=(257,)), "has 1024 bytes"),
                                (state[name]._replace(dtype="complex64"), "of the type complex64"),
                                (state[name]._replace(dtype=["float32"]), "of the type \\['float32'\\]")):
                with self.assertRaisesRegex(thinwire.Error, f"{name} .*{part}"):
                    reducer.load_state({**state, name: entry})
            with self.assertRaisesRegex(thinwire.Error, "1 rates were given, and there are 2 tensors"):
                reducer.set_rates([0.1])
        buffers = [values(n, 1.0) for n in (256, 32)]
        there = [buffer.buffer_info()[0] for buffer in buffers]
        with self.assertRaisesRegex(thinwire.Error, "1 addresses were given, and there are 2 tensors"):
            thinwire.Gossip(comm, "dpsgd", TENSORS, there[:1])
        with thinwire.Gossip(comm, "dpsgd", TENSORS, there) as gossip:
            for call in (gossip.read, gossip.step, gossip.finish):
                with self.assertRaisesRegex(thinwire.Error, "3 addresses were given, and there are 2 tensors"):
                    call(there + there[:1])
            gossip.finish(there)

    def test_what_lives_in_one_process_is_not_copied(self):
        comm, = thinwire.Comm.threads(1)
        with thinwire.Reducer(comm, "topk", TENSORS) as reducer:
            for act in (copy.deepcopy, copy.copy, pickle.dumps):
                with self.assertRaisesRegex(thinwire.Error, "a Reducer lives in this process"):
                    act(reducer)

    def test_keys_are_read_and_exposed_ones_told(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(range(128, 160)))
            file.flush()
            self.assertEqual(thinwire.read_key(file.name), bytes(range(128, 160)))
            os.chmod(file.name, 0o644)
            with self.assertWarnsRegex(UserWarning, "chmod 600"):
                thinwire.read_key(pathlib.Path(file.name))
        with self.assertRaisesRegex(thinwire.Error, "nowhere"):
            thinwire.read_key("/nowhere")

    def test_options_are_listed_with_their_defaults(self):
        self.assertEqual(thinwire.options("dgc")["density"], "0.04")
        self.assertEqual(thinwire.options("pigeons"), {})

    def test_a_spec_follows_the_length_of_the_run(self):
        """The rule is tests/compress/test_for_run.c's."""
        self.assertEqual(thinwire.for_run("dgc", 20000), "dgc:density=0.01,warmup_steps=400")
        self.assertEqual(thinwire.for_run("sdagc:density=0.5", 640), "sdagc:density=0.5,warmup_steps=32")
        self.assertEqual(thinwire.for_run("powersgd:rank=4", 640), "powersgd:rank=4,warmup_steps=5")
        self.assertEqual(thinwire.for_run("qsgd", 640), "qsgd")
        for steps in (0, -1, 1.5, True, "9", 1 << 64):
            with self.subTest(steps=steps), self.assertRaisesRegex(thinwire.Error, "steps=.*a whole number above 0"):
                thinwire.for_run("dgc", steps)
        with self.assertRaisesRegex(thinwire.SpecError, "the spec is None"):
            thinwire.for_run(None, 9)

    def test_a_spec_is_whole_or_refused(self):
        """C ends a text at a zero byte."""
        comm, = thinwire.Comm.threads(1)
        table = [("weight", (4, 4))]
        for spec in ("diloco:every=4\0,exchange=topk", "dgc\0", "topk:density=0.5\n", "\udc80"):
            for act in (lambda: thinwire.Reducer(comm, spec, table), lambda: thinwire.OuterLoop(comm, spec, table),
                        lambda: thinwire.Gossip(comm, spec, table, [0]), lambda: thinwire.for_run(spec, 100)):
                with self.subTest(spec), self.assertRaisesRegex(thinwire.SpecError, "^the spec '.*' has a character in it"):
                    act()
        comm.close()

    def test_a_weight_is_a_number(self):
        comm, = thinwire.Comm.threads(1)
        with thinwire.OuterLoop(comm, "local:every=2", [("weight", (2,))]) as loop:
            for weight in ("x", None, -1, float("nan")):
                with self.subTest(weight), self.assertRaisesRegex(thinwire.Error, "a weight of .* must be 0, or a number from"):
                    loop.set_weight(weight)
            loop.set_weight(0.5)
        comm.close()

    def test_schemes_are_listed(self):
        self.assertIn("dgc", dict(thinwire.schemes()))
        self.assertIn("adpsgd-random", dict(thinwire.gossip_schemes()))

    def refusal(self, library):
        """What `import thinwire` says with that library."""
        environment = {**os.environ, "THINWIRE_LIBRARY": library, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", "import thinwire"], env=environment, text=True, stderr=subprocess.PIPE)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.splitlines()[-1]

    def test_a_library_of_another_version_is_refused(self):
        class Next:
            _name = "libthinwire.so.1"

            @staticmethod
            def tw_version():
                return b"1.0.0"
        with self.assertRaisesRegex(ImportError, r"package for thinwire 0\.1, and libthinwire\.so\.1 is 1\.0\.0"):
            thinwire._library.checked(Next)
        self.assertTrue(thinwire.__version__.startswith(thinwire._library.INTERFACE + "."))

    def test_what_is_no_library_of_thinwire_is_refused(self):
        self.assertIn("libm.so.6 has no tw_version: it is no library of thinwire 0.1", self.refusal("libm.so.6"))
        self.assertIn("the C library of thinwire cannot be loaded: /nowhere.so", self.refusal("/nowhere.so"))

    def test_without_a_part_the_rest_works(self):
        words = "import thinwire; print(len(thinwire.schemes())); thinwire.read_key('a file')"
        with tempfile.TemporaryDirectory() as folder:
            alone = os.path.join(folder, "libthinwire.so.0")
            os.symlink(os.path.realpath(thinwire._library.path_of_library()), alone)
            ended = subprocess.run([sys.executable, "-c", words], text=True, capture_output=True,
                                   env={**os.environ, "THINWIRE_LIBRARY": alone, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(ended.stdout, f"{len(thinwire.schemes())}\n")
        self.assertIn("thinwire.errors.Error: messages cannot be sealed: ", ended.stderr)
        self.assertIn("libthinwire_sealed is in the wheel (pip install ./python), and make builds it in a clone", ended.stderr)

    def test_processes_meet_in_a_folder(self):
        words = ("import os, sys, thinwire\n"
                 "before = dict(os.environ)\n"
                 "with thinwire.Comm.folder(sys.argv[1], 2, int(sys.argv[2]), 60.0) as comm:\n"
                 "    print(comm.transport, comm.rank, comm.allgather(bytes([65 + comm.rank])))\n"
                 "assert dict(os.environ) == before")
        with tempfile.TemporaryDirectory() as folder:
            processes = [subprocess.Popen([sys.executable, "-c", words, folder, str(rank)], stdout=subprocess.PIPE, text=True,
                                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) for rank in range(2)]
            said = [process.communicate(timeout=ranks.SECONDS)[0] for process in processes]
        self.assertEqual(said, [f"folder {rank} [b'A', b'B']\n" for rank in range(2)])
        with self.assertRaisesRegex(thinwire.Error, "nowhere cannot be opened: .*; want a folder that all machines share"):
            thinwire.Comm.folder("nowhere", 2, 0)

    def test_ctrl_c_while_others_are_waited_for_in_a_folder_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(KeyboardInterrupt):
            thinwire.Comm.folder(folder, 2, 0, 120, functools.partial(os.kill, os.getpid(), signal.SIGINT))
        ranks.wait_until(lambda: not ranks.in_a_call(), "the call goes on", 60)

    def test_two_groups_in_folders_form_at_once(self):
        """Threads of one process, each a rank of one of two groups, that all join at the same time."""
        def met(folder, rank):
            with thinwire.Comm.folder(folder, 2, rank, ranks.SECONDS) as comm:
                return comm.allgather(folder.encode())
        before = dict(os.environ)
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            with concurrent.futures.ThreadPoolExecutor(4) as threads:
                members = [(folder, threads.submit(met, folder, rank)) for folder in (one, other) for rank in range(2)]
                for folder, member in members:
                    self.assertEqual(member.result(), [folder.encode()] * 2)
        self.assertEqual(dict(os.environ), before)

    def test_what_is_wrong_with_a_folder_is_told(self):
        for arguments, words in ((("here", 2.0, 0), "workers=2.0: want a whole number"),
                                 (("here", 2, "0"), "rank='0': want a whole number"), ((None, 2, 0), "None is no path"),
                                 (("a\0b", 2, 0), "'a.x00b' is no path"), (("a\ud800", 2, 0), "'a.ud800' is no path"), (("here", 2, 5, 1.0), "rank 5 of 2 in a folder"),
                                 (("here", 2, 0, "x"), "seconds='x': want a number"),
                                 (("here", 2, 0, float("nan")), "seconds=nan: want a number")):
            with self.subTest(arguments), self.assertRaisesRegex(thinwire.Error, words):
                thinwire.Comm.folder(*arguments)

    def test_a_meeting_that_has_no_bytes_is_told(self):
        for meeting in ("host\ud800:7000", "host:7000\0", None):
            for join in (lambda: thinwire.Tcp().join(meeting, 2), lambda: Members(meeting, "", thinwire.Tcp())):
                with self.assertRaisesRegex(thinwire.Error, "is no place to meet"):
                    join()

    def test_a_key_is_not_shown(self):
        self.assertNotIn("known to all ranks", repr(thinwire.Tcp(key=b"known to all ranks")))

    def test_what_is_installed_is_told(self):
        told = subprocess.run([sys.executable, "-m", "thinwire"], text=True, stdout=subprocess.PIPE, check=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}).stdout
        lines = dict(line.split(":", 1) for line in told.splitlines())
        self.assertEqual(lines["thinwire"].strip(), thinwire.__version__)
        self.assertEqual(lines["library"].strip(), thinwire._library.path_of_library())
        self.assertEqual(lines["schemes"].split(), [name for name, _ in thinwire.schemes()])


if __name__ == "__main__":
    unittest.main()
