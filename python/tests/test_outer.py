#!/usr/bin/env python3
"""The outer loop: thinwire.OuterLoop beside a twin in numpy, and thinwire.torch.OuterLoop beside one in plain torch."""

import contextlib
import copy
import gc
import io
import itertools
import linecache
import logging
import math
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time
import types
import unittest
import warnings
from unittest import mock

import launched
import models
import numpy
import parts
import ranks
import thinwire.torch
import torch
import torch.distributed as dist
from thinwire.members import Due, Members
from thinwire.torch import _counts, _interrupted, _local, _strays, _transport, _working
from thinwire.torch import outer as outer_module
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch" / "outer_loop.py"
JOINED = EXAMPLE.parent / "joined.py"
SHAPES = [("first", (40,)), ("second", (7, 9)), ("third", (1000,)), ("fourth", (33, 3))]
RANKS = 3


# ---- the twin in numpy --------------------------------------------------------------------------------------------


def cut(sizes, fragments):
    """Which tensors each fragment has: as near to equal parts of the elements as whole tensors allow."""
    begins, total, parts, at = [sum(sizes[:i]) for i in range(len(sizes))], sum(sizes), [], 0
    for part in range(fragments):
        end, one = total * (part + 1) / fragments, [at]
        at += 1
        while at < len(sizes) - (fragments - part - 1) and (part + 1 == fragments or begins[at] + sizes[at] / 2 <= end):
            one.append(at)
            at += 1
        parts.append(one)
    return parts


def chunks_of(shape, chunk):
    """The places of each chunk's elements: runs of a tensor of one dimension, squares of the matrix of any other."""
    places = numpy.arange(numpy.prod(shape)).reshape(shape[0] if len(shape) > 1 else 1, -1)
    height, width = (math.isqrt(chunk), math.isqrt(chunk)) if len(shape) > 1 else (1, chunk)
    return [places[row:row + height, column:column + width].ravel()
            for row in range(0, places.shape[0], height) for column in range(0, places.shape[1], width)]


class Kept:
    """What an exchange keeps of each rank's and tensor's share of the mean: v = decay v + delta / N. What is sent of it
    leaves it, and D is the sum of that."""

    def __init__(self, decay):
        self.decay, self.kept = numpy.float32(decay), {}

    def mean(self, i, theta, deltas):
        total = numpy.zeros_like(theta)
        for rank, delta in enumerate(deltas):
            v = self.kept.setdefault((rank, i), numpy.zeros_like(theta))
            v[...] = self.decay * v + numpy.float32(1 / len(deltas)) * delta
            chosen, sent = self.choose(v, theta, len(deltas)), numpy.zeros_like(v)
            sent[chosen] = v[chosen]
            v -= sent
            total += sent
        return total


class Chunks(Kept):
    """sparseloco: the k largest of each chunk."""

    def __init__(self, chunk, k, decay):
        super().__init__(decay)
        self.chunk, self.k = chunk, k

    def choose(self, v, theta, size):
        chosen = numpy.zeros(v.size, bool)
        for places in chunks_of(v.shape, self.chunk):
            k = max(1, int(len(places) * self.k / self.chunk + 0.5))
            chosen[places[numpy.argsort(-abs(v.ravel()[places]), kind="stable")[:k]]] = True
        return chosen.reshape(v.shape)


def as_bf16(values):
    """To the nearest, ties to even, in fp32."""
    bits = values.view(numpy.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)


class Pulse(Kept):
    """pulseloco: what would change theta in bf16."""

    def __init__(self):
        super().__init__(1)

    def choose(self, v, theta, size):
        return as_bf16(theta) != as_bf16(theta - numpy.float32(size) * v)


class Twin:
    """All ranks at once, in fp64. In a round of a fragment D = mean of theta - x, v = m v + D, theta -= r (D + m v).
    Where an exchange chooses what is sent it is all in fp32, as the choice hangs on the last bit."""

    def __init__(self, start, every, rate, momentum, nesterov=True, fragments=1, delay=0, mixing=0.0, size=RANKS,
                 exchange=None):
        self.theta = [values.astype(numpy.float32 if exchange else numpy.float64) for values in start]
        self.exchange = exchange and exchange()
        self.own = [[values.copy() for values in self.theta] for _ in range(size)]
        self.v = [numpy.zeros_like(values) for values in self.theta]
        self.parts = cut([values.size for values in start], fragments)
        self.every, self.rate, self.momentum, self.nesterov = every, rate, momentum, nesterov
        self.between, self.delay, self.mixing = every // fragments, delay, mixing
        self.steps = self.sent = 0
        self.arriving = None

    def step(self):
        self.steps += 1
        if self.arriving and self.steps == self.arriving[0] + self.delay:
            self.take()
        if self.steps % self.between == 0:
            part = self.parts[self.sent % len(self.parts)]
            self.sent += 1
            mean = [self.mean(i, [self.theta[i] - own[i] for own in self.own]) for i in part]
            self.arriving = self.steps, part, mean
            if self.delay == 0:
                self.take()

    def mean(self, i, deltas):
        return self.exchange.mean(i, self.theta[i], deltas) if self.exchange else sum(deltas) / len(deltas)

    def take(self):
        _, part, mean = self.arriving
        self.arriving = None
        for i, d in zip(part, mean):
            self.v[i] = self.momentum * self.v[i] + d
            self.theta[i] = self.theta[i] - self.rate * (d + self.momentum * self.v[i] if self.nesterov else self.v[i])
            for own in self.own:
                own[i] = self.mixing * own[i] + (1 - self.mixing) * self.theta[i]


TWINS = {
    "local:every=3": dict(every=3, rate=1.0, momentum=0.0),
    "diloco:every=3": dict(every=3, rate=0.7, momentum=0.5),
    "diloco:every=2,outer_lr=0.3,outer_momentum=0.8,nesterov=off":
        dict(every=2, rate=0.3, momentum=0.8, nesterov=False),
    "streaming:every=3": dict(every=3, rate=0.7, momentum=0.5, fragments=3, delay=0, mixing=0.5),
    "streaming:every=4,fragments=2,delay=1": dict(every=4, rate=0.7, momentum=0.5, fragments=2, delay=1, mixing=0.5),
    "streaming:every=9,outer_lr=0.4,outer_momentum=0.9,delay=2,mixing=0": dict(every=9, rate=0.4, momentum=0.9, fragments=3,
                                                                               delay=2),
    "sparseloco:every=3,chunk=64,k=4,values=fp32,min_elements=1":
        dict(every=3, rate=1.0, momentum=0.0, exchange=lambda: Chunks(64, 4, 0.95)),
    "diloco:every=2,exchange=chunktopk,chunk=100,k=7,decay=0.5,values=fp32,min_elements=1":
        dict(every=2, rate=0.7, momentum=0.5, exchange=lambda: Chunks(100, 7, 0.5)),
    "pulseloco:every=3,min_elements=1": dict(every=3, rate=0.7, momentum=0.5, exchange=lambda: Pulse()),
}
TWIN_SPEC = {"streaming:every=3": "streaming:every=3,delay=0"}  # a fragment in each step has no time to travel


def moves(rank, step):
    """A step of a rank's own: towards its own centre, with noise."""
    noise = numpy.random.default_rng([rank, step])
    return lambda own: [(0.1 * (rank - 0.5 - x) + 0.01 * noise.standard_normal(x.shape)).astype(x.dtype) for x in own]


def addresses(arrays):
    return [one.ctypes.data for one in arrays]


def start_of():
    noise = numpy.random.default_rng(7)
    return [noise.standard_normal(shape).astype(numpy.float32) for _, shape in SHAPES]


def in_threads(act):
    outcomes = ranks.on_threads(RANKS, act)
    for one in outcomes:
        if isinstance(one, Exception):
            raise one
    return outcomes


class LibraryTest(unittest.TestCase):
    def test_rounds_are_those_of_the_twin(self):
        self.check_twins(12)

    @parts.extra
    def test_fifty_rounds_are_those_of_the_twin(self):
        self.check_twins(50)

    def check_twins(self, count):
        for spec, settings in TWINS.items():
            steps = count * settings["every"] // settings.get("fragments", 1) + settings.get("delay", 0)
            with self.subTest(spec):
                twin = Twin(start_of(), **settings)
                for step in range(steps):
                    twin.own = [[x + m for x, m in zip(own, moves(r, step)(own))] for r, own in enumerate(twin.own)]
                    twin.step()

                def act(rank, comm):
                    own, shared = start_of(), start_of()
                    if rank:
                        own = [x + 1 for x in own]  # begin gives all rank 0's
                    with thinwire.OuterLoop(comm, TWIN_SPEC.get(spec, spec), SHAPES) as loop:
                        loop.begin(addresses(own))
                        for step in range(steps):
                            for x, m in zip(own, moves(rank, step)(own)):
                                x += m
                            loop.step(addresses(own))
                        loop.read(addresses(shared))
                        ended, rounds = [x.copy() for x in own], loop.stats()["rounds"]
                        loop.finish(addresses(own))  # nobody leaves while a round is under way
                        return shared, ended, rounds

                for rank, (shared, own, rounds) in enumerate(in_threads(act)):
                    self.assertEqual(rounds, count)
                    for mine, theta, x, expected in zip(shared, twin.theta, own, twin.own[rank]):
                        self.assertLess(abs(mine - theta).max(), 1e-6 * abs(theta).max())
                        self.assertLess(abs(x - expected).max(), 1e-6 * abs(expected).max())

    def test_fifty_rounds_of_gasloc_are_those_of_a_twin(self):
        """Two of three workers meet in each round: which two is found out, and each pair has its turn."""
        rate, momentum, mixing, every = 0.7, 0.5, 0.75, 3

        def act(rank, comm):
            own, seen = start_of(), []
            with thinwire.Gossip(comm, f"gasloc:every={every},mixing={mixing}", SHAPES, addresses(own)) as gossip:
                gossip.read(addresses(own))
                for step in range(50 * every):
                    for x, m in zip(own, moves(rank, step)(own)):
                        x += m
                    gossip.step(addresses(own))
                    if (step + 1) % every == 0:
                        seen.append(numpy.concatenate([x.ravel() for x in own]))
                gossip.finish(addresses(own))
            return seen

        def flat(arrays):
            return numpy.concatenate([x.ravel() for x in arrays])

        def parted(values):
            return [one.reshape(shape) for one, (_, shape) in
                    zip(numpy.split(values, numpy.cumsum([math.prod(shape) for _, shape in SHAPES])[:-1]), SHAPES)]

        there, met = in_threads(act), set()
        start = [flat(start_of()).astype(float) for _ in range(RANKS)]
        last = list(start)
        for number in range(50):
            moved = []
            for rank, x in enumerate(start):
                for step in range(number * every, (number + 1) * every):
                    x = x + flat(moves(rank, step)(parted(x)))
                moved.append(x)
            y = [begun + rate * (x - begun) for begun, x in zip(start, moved)]

            def after(pair):
                partner = {pair[0]: pair[1], pair[1]: pair[0]}
                return [mine + mixing * (y[partner.get(rank, rank)] - mine) / 2 + momentum * (mine - last[rank])
                        for rank, mine in enumerate(y)]

            fits = [pair for pair in ((0, 1), (0, 2), (1, 2))
                    if max(abs(one[number] - other).max() for one, other in zip(there, after(pair))) < 1e-5]
            self.assertEqual(len(fits), 1, number)
            met.update(fits)
            start, last = after(fits[0]), y
        self.assertEqual(len(met), 3)

    def test_the_cosine_of_a_large_model_is_that_of_a_sample(self):
        """Columns differ in length, and a sample that left some out would be far off."""
        noise = numpy.random.default_rng(5)
        columns = numpy.exp2(-numpy.arange(512) / 64) * (1 + (numpy.arange(512) % 2) * 7)
        first, fresh = (noise.standard_normal((600, 512)) * columns for _ in range(2))
        second = numpy.where(numpy.arange(512) % 2, 0.6 * first + 0.8 * fresh, -first)
        exact = (first * second).sum() / math.sqrt((first ** 2).sum() * (second ** 2).sum())
        comm, = thinwire.Comm.threads(1)
        own = numpy.zeros((600, 512), numpy.float32)
        with thinwire.OuterLoop(comm, "local:every=1", [("w", own.shape)]) as loop:
            loop.begin([own.ctypes.data])
            cosines = []
            for move in (first, second):
                own += move
                loop.step([own.ctypes.data])
                cosines.append(loop.stats()["cosine"])
            loop.finish([own.ctypes.data])
        self.assertEqual(cosines[0], 0)
        self.assertAlmostEqual(cosines[1], exact, delta=0.02)

    def test_steps_that_are_not_due_look_at_nothing(self):
        def act(rank, comm):
            own, due = start_of(), []
            with thinwire.OuterLoop(comm, "diloco:every=3", SHAPES) as loop:
                self.assertFalse(loop.is_due)
                loop.begin(addresses(own))
                for _ in range(6):
                    due.append(loop.is_due)
                    loop.step(addresses(own) if loop.is_due else [8] * len(own))
                return due

        self.assertEqual(in_threads(act), [[False, False, True] * 2] * RANKS)

    def test_a_number_of_addresses_is_checked(self):
        comm, = thinwire.Comm.threads(1)
        own = start_of()
        with thinwire.OuterLoop(comm, "local", SHAPES) as loop:
            for call in (loop.begin, loop.step, loop.read, loop.finish):
                with self.assertRaisesRegex(thinwire.Error, "3 addresses were given, and there are 4 tensors"):
                    call(addresses(own)[:3])

    def test_last_steps_that_were_too_large_are_told(self):
        """The weights are the shared ones all the same."""
        def act(rank, comm):
            own = start_of()
            with thinwire.OuterLoop(comm, "local:every=4,exchange=fp16", SHAPES) as loop:
                loop.begin(addresses(own))
                own[0] += numpy.float32(1e9) * rank
                loop.step(addresses(own))
                return loop.finish(addresses(own)), all(map(numpy.array_equal, own, start_of()))

        self.assertEqual(in_threads(act), [(False, True)] * RANKS)

    def test_methods_are_listed(self):
        self.assertEqual([name for name, _ in thinwire.outers()], ["local", "diloco", "streaming", "sparseloco", "pulseloco"])
        self.assertEqual(thinwire.spec.settings_of("streaming:every=8,density=1")["delay"], "1")
        self.assertEqual(thinwire.spec.settings_of("streaming:every=8,density=1")["every"], "8")

    def test_ctrl_c_ends_the_wait_for_a_round_and_the_others_hear_of_it(self):
        comms, told, end = thinwire.Comm.threads(2), [], time.monotonic() + ranks.SECONDS
        begun, out = threading.Barrier(2), threading.Event()
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

        def other():
            own = start_of()
            loop = thinwire.OuterLoop(comms[1], "local:every=1", SHAPES)
            loop.begin(addresses(own))
            begun.wait(ranks.SECONDS)
            while not ranks.in_a_call() and time.monotonic() < end:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            out.wait(ranks.SECONDS)
            try:
                loop.step(addresses(own))
            except thinwire.PeerError as error:
                told.append(error.rank)

        thread = threading.Thread(target=other)
        thread.start()
        own = start_of()
        loop = thinwire.OuterLoop(comms[0], "local:every=1", SHAPES)
        loop.begin(addresses(own))
        begun.wait(ranks.SECONDS)
        with self.assertRaises(KeyboardInterrupt):
            loop.step(addresses(own))
        out.set()
        thread.join(ranks.SECONDS)
        self.assertEqual(told, [0])


# ---- models and what trains them ----------------------------------------------------------------------------------


def text_model(tied=False):
    """A small transformer; with `tied`, what it reads symbols by is what it writes them by."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.symbols = nn.Embedding(11, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.out = nn.Linear(16, 11)
            if tied:
                self.out.weight = self.symbols.weight

        def forward(self, x):
            return self.out(self.layer(self.symbols(x)))

    torch.manual_seed(3)
    return Model()


def text_batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    rows = torch.randint(0, 11, (4, 9), generator=generator)
    return rows[:, :-1], rows[:, 1:]


def backward(model, rank, step):
    x, y = text_batch(rank, step)
    loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    return float(loss.detach())


def adamw(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


def has_hooks():
    return hasattr(torch.optim.Optimizer, "register_step_post_hook")


def looped(model, optimiser, spec, **more):
    return thinwire.torch.OuterLoop(model, optimiser, spec, **{"timeout": ranks.SECONDS, "banner": False, **more})


def left_alone(rank, size):
    """What a rank can save that has lost the other one behind a round, and what it was told."""
    model = text_model()
    optimiser = adamw(model)
    outer, text, shared = looped(model, optimiser, "local:every=2", hook=False), "", []
    outer.begin()
    for step in range(4):
        if (rank, step) == (1, 2):
            outer.close()
            return None
        backward(model, rank, step)
        optimiser.step()
        text = text or ranks.refused(outer.step)
        shared = shared or ([p.detach().clone() for p in model.parameters()] if step == 1 else [])
    own = [p.detach().clone() for p in model.parameters()]
    with outer.averaged(buffers=False):
        saved = [p.detach().clone() for p in model.parameters()]
    return text, [all(map(torch.equal, one, other)) for one, other in ((saved, shared), (own, shared), (own, model.parameters()))]


class Interrupting:
    """A KeyboardInterrupt, or another exception, before the line of this number of those that make a round and move weights for it,
    or of `methods`."""

    def __init__(self, line, *methods, by=KeyboardInterrupt):
        self.lines, self.where, self.by = line, "", by
        self.codes = [method.__code__ for method in methods or (thinwire.torch.OuterLoop._count,)]
        self.files = [] if methods else [_working.__file__]

    def __enter__(self):
        sys.settrace(self.trace)

    def __exit__(self, *what):
        sys.settrace(None)

    def trace(self, frame, event, argument):
        code = frame.f_code
        if code.co_filename not in self.files and code not in self.codes:
            return None
        self.lines -= event == "line"
        if self.lines == 0:
            self.where = f"{code.co_name}:{frame.f_lineno}"
            raise self.by
        return self.trace


def alone(model, optimiser, spec="local:every=4", **more):
    comm, = thinwire.Comm.threads(1)
    return looped(model, optimiser, spec, group=comm, transport=comm, **more)


@contextlib.contextmanager
def warned():
    """What is said, and the line of this file that it shows."""
    said = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
    said += [(str(one.message), line_of(one)) for one in caught if one.category is UserWarning]


def count(outer):
    """Where torch has no hook, a step is told of."""
    return None if has_hooks() else outer.step()


def go_on(model, optimiser, outer, rank, steps):
    for step in steps:
        optimiser.zero_grad()
        backward(model, rank, step)
        optimiser.step()
        count(outer)


def bits(module):
    return [p.detach().clone() for p in module.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Mover(torch.optim.Optimizer):
    """Adds a number to each parameter, in its own type."""

    def __init__(self, parameters, by):
        super().__init__(parameters, {})
        self.by = by

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(self.by)


def line_of(warning):
    """That it shows, where it is one of this file."""
    return warning.filename == __file__ and linecache.getline(warning.filename, warning.lineno).strip()


# ---- what ranks do ------------------------------------------------------------------------------------------------


def both_trained(rank, size, spec, steps):
    return [trained(spec, steps, tied, rank) for tied in (False, True)]


def trained(spec, steps, tied, rank):
    model = text_model(tied)
    optimiser = adamw(model)
    outer = looped(model, optimiser, spec)
    go_on(model, optimiser, outer, rank, range(steps))
    with outer.averaged():
        shared = bits(model)
    stats = outer.stats()
    outer.finish()
    return shared, bits(model), stats


@torch.no_grad()
def outer_step(shared, momenta, models):
    """DiLoCo's, in plain torch: one operation after the other, so that each is rounded as the library's is."""
    for theta, v, *own in zip(shared, momenta, *(model.parameters() for model in models)):
        share, mean = torch.tensor(1 / len(own)), torch.zeros_like(theta)
        for p in own:
            mean = mean + (theta - p) * share
        v.copy_(0.5 * v + mean)
        theta.copy_(theta - 0.7 * (mean + 0.5 * v))
        for p in own:
            p.copy_(theta)


def by_torch(steps, tied, size, moments={}):
    """The same in one process and without thinwire: a model and an optimiser a rank. moments[name]: in how many rounds
    the optimisers' become their mean."""
    models = [text_model(tied) for _ in range(size)]
    optimisers = [adamw(model) for model in models]
    shared = bits(models[0])
    momenta = [torch.zeros_like(theta) for theta in shared]
    for step in range(steps):
        for rank, (model, optimiser) in enumerate(zip(models, optimisers)):
            optimiser.zero_grad()
            backward(model, rank, step)
            optimiser.step()
        if (step + 1) % 4 == 0:
            outer_step(shared, momenta, models)
        for name, rounds in moments.items():
            if (step + 1) % (4 * rounds) == 0:
                for of_ranks in zip(*(optimiser.state.values() for optimiser in optimisers)):
                    mean = sum(state[name] for state in of_ranks) / size
                    for state in of_ranks:
                        state[name].copy_(mean)
    return shared


def with_moments(rank, size):
    return trained("diloco:every=4,first_moment=2,second_moment=3", 32, False, rank)[0]


def with_moments_of_sgd(rank, size):
    model = text_model()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    outer = looped(model, optimiser, "local:every=2,second_moment=1")
    try:
        go_on(model, optimiser, outer, rank, range(2))
    except thinwire.Error as error:
        return str(error)
    finally:
        outer.close()


AFTER_A_NAN = [("AdamW", "diloco:every=4"), ("Adagrad", "local:every=4"), ("AdamW", "diloco:every=4,eager=on"),
               ("AdamW", "streaming:every=4,fragments=1,delay=1")]


def after_a_nan(rank, size):
    return [with_a_nan(rank, spec, kind) for kind, spec in AFTER_A_NAN]


def with_a_nan(rank, spec, kind):
    """One gradient of rank 1 is NaN, in the second round. What rank 1 gave nothing to, and whether it learns afterwards."""
    lines = []
    logging.getLogger("thinwire").addHandler(type("Kept", (logging.Handler,), {"emit": lambda self, one: lines.append(one)})())
    model = text_model()
    optimiser = getattr(torch.optim, kind)(model.parameters(), lr=0.01)
    outer = looped(model, optimiser, spec)
    for step in range(20):
        optimiser.zero_grad()
        backward(model, rank, step)
        if rank == 1 and step == 5:
            model.out.weight.grad[0, 0] = float("nan")
        optimiser.step()
        count(outer)
    own, dropped = bits(model), outer.stats()["offers_dropped"]
    outer.finish()
    told = [line.levelname for line in lines if "gives nothing to round" in line.getMessage()]
    return dropped, told, all(torch.isfinite(one).all() for one in own)


CUTS = [(spec, dtype, first)
        for spec in ("local:every=4", "diloco:every=4", "streaming:every=8,fragments=2,delay=3",
                     "diloco:every=4,exchange=topk,density=0.1", "diloco:every=4,eager=on")
        for dtype, first in (("float32", True), ("float32", False), ("bfloat16", False))]


def all_resumed(rank, size, cuts):
    return [resumed(rank, size, spec, getattr(torch, dtype), first) for spec, dtype, first in cuts]


def resumed_after_a_skip(rank, size):
    """Rank 1 has skipped a step, as a GradScaler does."""
    specs = ("diloco:every=4", "streaming:every=8,fragments=2,delay=3", "diloco:every=4,eager=on")
    return [resumed(rank, size, spec, torch.float32, False, skipped=[2] * rank) for spec in specs]


def saved_apart(rank, size):
    """Rank 1 has skipped its first step, as a GradScaler does, and all save after the same pass. What is told of that in the next round."""
    lines = []
    logging.getLogger("thinwire").addHandler(type("Kept", (logging.Handler,), {"emit": lambda self, one: lines.append(one)})())
    model = text_model()
    optimiser = adamw(model)
    outer = looped(model, optimiser, "diloco:every=3")
    go_on(model, optimiser, outer, rank, [0, 1, 2][rank:])
    state, told_before = outer.state_dict(), len(lines)
    go_on(model, optimiser, outer, rank, range(3, 6))
    outer.finish()
    return state, told_before, [line.getMessage() for line in lines if "cannot be loaded together" in line.getMessage()]


def of_one_moment_or_not(rank, size, old):
    model = text_model()
    outer = looped(model, adamw(model), "diloco:every=3")
    outer.load_state_dict(old[rank])
    try:
        return ranks.refused(outer.begin)
    finally:
        outer.close()


def resumed(rank, size, spec, dtype, load_model_first, skipped=()):
    """A run of 11 steps, and one that is cut after 6 and goes on in new objects: shared weights, own weights."""
    def steps(begin, end):
        return [step for step in range(begin, end) if step not in skipped]

    def made():
        model = text_model().to(dtype)
        return model, adamw(model)

    def ended(model, optimiser, outer, steps):
        go_on(model, optimiser, outer, rank, steps)
        with outer.averaged():
            shared = bits(model)
        own = bits(model)
        outer.finish()  # a rank that is late has its last round with the others
        return shared + own

    model, optimiser = made()
    whole = ended(model, optimiser, looped(model, optimiser, spec), steps(0, 11))
    model, optimiser = made()
    outer = looped(model, optimiser, spec)
    go_on(model, optimiser, outer, rank, steps(0, 6))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimiser.state_dict(), "outer": outer.state_dict()}, file)
    outer.close()
    file.seek(0)
    saved = torch.load(file)
    model, optimiser = made()
    if load_model_first:
        model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimizer"])
    outer = looped(model, optimiser, spec)
    outer.load_state_dict(saved["outer"])
    model.load_state_dict(saved["model"])
    return same(whole, ended(model, optimiser, outer, steps(6, 11)))


def of_others(rank, size, old):
    """Goes on with the states of another number of ranks: all begin with their shared weights."""
    model = text_model()
    optimiser = adamw(model)
    outer = looped(model, optimiser, "diloco:every=3")
    outer.load_state_dicts(old)
    outer.begin()
    begins = bits(model)
    go_on(model, optimiser, outer, rank, range(3))
    outer.finish()
    return begins, bits(model), outer.stats()["rounds"], outer.summary()


def states(rank, size):
    model = text_model()
    optimiser = adamw(model)
    outer = looped(model, optimiser, "diloco:every=3")
    go_on(model, optimiser, outer, rank, range(4))
    state = outer.state_dict()
    outer.finish()
    return state


def summed_up(rank, size, *ends):
    """After so many steps each."""
    summaries = []
    for steps in ends:
        model = text_model()
        optimiser = adamw(model)
        outer = looped(model, optimiser, "diloco:every=3")
        go_on(model, optimiser, outer, rank, range(steps))
        outer.finish()
        summaries.append(outer.summary())
    return summaries


def shown(rank, size):
    """What averaged() shows and gives back, with the statistics of a batch norm; then one rank does it alone."""
    model = models.small(seed=rank)
    model[1].running_mean.fill_(rank)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    outer = looped(model, optimiser, "diloco:every=4")
    outer.begin()
    begun = model[1].running_mean.clone()
    for step in range(6):
        optimiser.zero_grad()
        models.backward(model, rank, step)
        optimiser.step()
        count(outer)
    own = {name: value.clone() for name, value in model.state_dict().items()}
    texts = []
    with outer.averaged() as inside:
        shared = {name: value.clone() for name, value in inside.state_dict().items()}
        step = optimiser.step if has_hooks() else outer.step
        for act in (step, outer.finish, outer.state_dict, outer.averaged().__enter__):
            texts.append(ranks.refused(act))
    back = all(torch.equal(value, own[name]) for name, value in model.state_dict().items()
               if not has_hooks() or "weight" not in name and "bias" not in name)
    alone = None
    if rank == 0:
        with outer.averaged(buffers=False):
            alone = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        with outer.averaged():
            raise KeyError
    except KeyError:
        pass
    after = {name: value.clone() for name, value in model.state_dict().items()}
    outer.finish()
    with outer.averaged():
        ended = {name: value.clone() for name, value in model.state_dict().items()}
    return own, shared, back, alone, after, ended, texts, begun


class Averaging(torch.optim.Optimizer):
    """SGD on z, as schedulefree's optimizers: the model has y, between z and the mean x of all z, and with eval() it has x."""
    BETA = 0.75

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "train_mode": True, "k": 1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            assert group["train_mode"]
            group["k"] += 1
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                x = p.lerp(z, 1 - 1 / self.BETA)
                z.sub_(p.grad, alpha=group["lr"])
                p.copy_(x.lerp_(z, 1 / group["k"]).lerp_(z, 1 - self.BETA))

    def eval(self):
        self._swap(False, 1 - 1 / self.BETA)

    def train(self):
        self._swap(True, 1 - self.BETA)

    @torch.no_grad()
    def _swap(self, trains, weight):
        for group in self.param_groups:
            for p in group["params"] if group["train_mode"] != trains else ():
                p.lerp_(self.state[p].get("z", p), weight)
            group["train_mode"] = trains


def flat(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def broken_off(optimiser):
    """Ctrl-C while train() swaps weights, when it is called for the first time."""
    del optimiser.train
    with torch.no_grad():
        next(iter(optimiser.state)).fill_(7)
    raise KeyboardInterrupt


def averaging(rank, size, spec):
    """What averaged() shows of an optimizer that swaps weights, and how far off the weights and the mode are behind it; and
    how far those at the end are from the mean of what all evaluate with. A warning that was given."""
    model = text_model()
    optimiser = Averaging(model.parameters(), 0.05)
    with warned() as said:
        outer = looped(model, optimiser, spec)
    go_on(model, optimiser, outer, rank, range(6))
    y, off = flat(model), []
    with outer.averaged():
        shared = flat(model)
        optimiser.eval()  # as a framework does that evaluates, which calls train() with the next step
    off.append(float((flat(model) - y).abs().max()))
    optimiser.train()
    off.append(float((flat(model) - y).abs().max()))
    optimiser.eval()
    x = flat(model)
    with outer.averaged():
        z = torch.cat([optimiser.state[p]["z"].reshape(-1) for p in model.parameters()])
        off.append(float((flat(model) - shared.lerp(z, 1 - 1 / optimiser.BETA)).abs().max()))
    off.append(float((flat(model) - x).abs().max()))
    optimiser.train = lambda: broken_off(optimiser)
    with contextlib.suppress(KeyboardInterrupt), outer.averaged():
        raise AssertionError("it was not broken off")
    off.append(float((flat(model) - x).abs().max()) + float(optimiser.param_groups[0]["train_mode"]))
    optimiser.train()
    go_on(model, optimiser, outer, rank, range(6, 10))
    optimiser.eval()
    x = [torch.zeros_like(x) for _ in range(size)]
    dist.all_gather(x, flat(model))
    optimiser.train()
    outer.finish()
    off.append(float((flat(model) - sum(x) / size).abs().max()))
    ended = flat(model)
    optimiser.eval()
    assert torch.equal(flat(model), ended)
    with warned() as beside:
        thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=optimiser, timeout=ranks.SECONDS).close()
    return off, ended, [text for text, _ in said], [text for text, _ in beside]


def averaging_from_nan(rank, size):
    """Whether what is evaluated with behind a round that undid NaN of rank 1 is what the round gave."""
    model = text_model()
    optimiser = Averaging(model.parameters(), 0.05)
    outer = looped(model, optimiser, "local:every=4")
    go_on(model, optimiser, outer, rank, range(3))
    optimiser.zero_grad()
    backward(model, rank, 3)
    for p in model.parameters() if rank else ():
        p.grad.fill_(math.nan)
    optimiser.step()
    count(outer)
    given = flat(model)
    optimiser.eval()
    kept = torch.equal(flat(model), given)
    optimiser.train()
    outer.finish()
    return kept


class Master(torch.optim.Optimizer):
    """SGD on fp32 copies of the parameters, which it rounds into these."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p]
                if not kept:
                    kept.update(moment=torch.zeros(p.shape), master=p.detach().float().clone())
                kept["moment"].mul_(0.5).add_(p.grad)
                p.copy_(kept["master"].sub_(kept["moment"], alpha=group["lr"]))

    def masters(self):
        return [self.state[p]["master"] for group in self.param_groups for p in group["params"]]


def bf16_masters(rank, size, rate, hurt):
    """Between rounds the optimizer's copies are the mean of all workers' copies: how far those of an OuterLoop, and of a
    gossip of two, are off from those of plain torch. With `hurt` a gradient of rank 1 is NaN: what they are then."""
    ends = {}
    for way in ("torch", "outer", "gossip"):
        model = text_model().to(torch.bfloat16)
        optimiser = Master(model.parameters(), rate)
        outer = looped(model, optimiser, "local:every=1") if way == "outer" else None
        net = thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=optimiser, timeout=ranks.SECONDS) if way == "gossip" else model
        for step in range(8):
            optimiser.zero_grad()
            backward(net, rank, step)
            if hurt and rank == 1 and step == 3 and way != "torch":
                model.out.bias.grad.fill_(math.nan)
            net.step() if way == "gossip" else optimiser.step()
            if way == "outer":
                count(outer)
            for p, master in zip(model.parameters(), optimiser.masters() if way == "torch" else ()):
                dist.all_reduce(master)
                p.data.copy_(master.div_(size))
        net.finish() if way == "gossip" else outer and outer.finish()
        ends[way] = torch.cat([one.reshape(-1) for one in optimiser.masters()])
        assert torch.equal(ends[way].to(torch.bfloat16), flat(model)) or way == "gossip"
    return ends


class Averaged(torch.optim.Optimizer):
    """SGD with an average of the weights in its state, which begins as a copy, and the same once more where nobody looks."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.0})
        self.beside = {}

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=self.param_groups[0]["lr"])
            for kept in (self.state[p], self.beside.setdefault(p, {})):
                kept.setdefault("average", p.float().clone()).lerp_(p.float(), 0.25)


class Gained(nn.Linear):
    """It is multiplied by a number that is trained, too."""

    def __init__(self, gain):
        super().__init__(4, 4)
        self.gain = nn.Parameter(torch.tensor(gain))

    def forward(self, x):
        return super().forward(x) * self.gain


def no_masters(rank, size):
    """What an optimizer keeps of parameters in bf16 is at times what these are: its count of steps beside a number, here 257 beside
    256, and an average as long as a rank's rate is 0. Whether the counts and the averages are as if nobody else were there."""
    stay = []
    for door in ("outer", "gossip"):
        for kind in (torch.optim.AdamW, Averaged):
            torch.manual_seed(5)
            model = Gained(256.0).to(torch.bfloat16)
            optimiser = kind(model.parameters())
            loop = looped(model, optimiser, "local:every=3") if door == "outer" else thinwire.torch.GossipDataParallel(
                model, "dpsgd", optimizer=optimiser, timeout=ranks.SECONDS)
            for step in range(8):
                optimiser.param_groups[0]["lr"] = 0.0 if rank and step < 4 or kind is torch.optim.AdamW else 0.1
                optimiser.zero_grad()
                (loop if door == "gossip" else model)(torch.full((1, 4), rank + 1.0, dtype=torch.bfloat16)).sum().backward()
                loop.step() if door == "gossip" else optimiser.step()
                if door == "outer":
                    count(loop)
                for one in optimiser.state.values() if step == 0 and kind is torch.optim.AdamW else ():
                    one["step"].fill_(255.0 * rank)
            kept = [(optimiser.state[p], optimiser.beside[p]["average"] if kind is Averaged else 0) for p in model.parameters()]
            loop.finish()
            stay += [bool(torch.equal(one["average"], beside)) if kind is Averaged else float(one["step"]) == 255 * rank + 7
                     for one, beside in kept]
    return stay


def in_the_pass(rank, size):
    """Optimizers of a parameter each, which step inside of the backward pass, beside one that steps behind it: whether all
    weights have the same bits in each step."""
    runs = []
    for inside in (False, True):
        model, seen = text_model(), []
        own = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in model.parameters()}  # the last layer's, which step first, are the last
        optimiser = list(own.values()) if inside else torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        outer = looped(model, optimiser, "local:every=3")
        for parameter in model.parameters() if inside else ():
            parameter.register_post_accumulate_grad_hook(lambda one: own[one].step() or own[one].zero_grad())
        for step in range(7):
            backward(model, rank, step)
            if not inside:
                optimiser.step()
                optimiser.zero_grad()
            seen.append(flat(model))
        outer.finish()
        runs.append([*seen, flat(model)])
    return [bool(torch.equal(one, other)) for one, other in zip(*runs, strict=True)]


def in_a_checkpoint(rank, size):
    """What is said where the last optimizer steps in a pass inside of the pass."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    own = {p: torch.optim.SGD([p], lr=0.1) for p in [*model[0].parameters(), *model[1].parameters()]}
    with contextlib.closing(looped(model, list(own.values()), "local:every=3")) as outer:
        outer.begin()
        for parameter in own:
            parameter.register_post_accumulate_grad_hook(lambda one: own[one].step())
        inside = torch.utils.checkpoint.checkpoint(model[1], model[0](torch.ones(1, 4)), use_reentrant=True)
        return ranks.refused(lambda: inside.sum().backward())


def adapters(rank, size):
    """Only an adapter is trained; the rest is another one's on each rank, and stays."""
    model = text_model()
    for p in model.parameters():
        p.requires_grad_(False)
    with torch.no_grad():
        model.layer.linear1.weight.fill_(rank)
    model.out.weight.requires_grad_(True)
    outer = looped(model, adamw(model), "local:every=2")
    optimiser = outer._optimisers[0]
    go_on(model, optimiser, outer, rank, range(4))
    stats, plan = outer.stats(), list(outer.plan())
    outer.finish()
    return plan, stats["bytes_sent"], model.out.weight.detach().clone(), float(model.layer.linear1.weight.mean())


def half_steps(rank, size):
    """Weights of 1 in bf16, of which rank 0 adds one unit in the last place in each round, and rank 1 nothing."""
    model = nn.Linear(4, 4, bias=False).to(torch.bfloat16)
    with torch.no_grad():
        model.weight.fill_(1.0)
    unit = 2.0 ** -7
    optimiser = Mover(model.parameters(), unit if rank == 0 else 0.0)
    outer = looped(model, optimiser, "local:every=1", hook=False)
    outer.begin()
    seen = []
    for _ in range(5):
        optimiser.step()
        outer.step()
        seen.append((float(model.weight[0, 0]), float(outer._shared()[0][0, 0])))
    outer.finish()
    return seen, str(model.weight.dtype)


def rounding(rank, size):
    """Shared weights that bf16 does not have, and steps that change nothing: nothing changes."""
    model = nn.Linear(32, 32).to(torch.bfloat16)
    optimiser = Mover(model.parameters(), 2.0 ** -6 if rank else 0.0)
    outer = looped(model, optimiser, "diloco:every=1,outer_lr=0.3,outer_momentum=0", hook=False)
    outer.begin()
    optimiser.step()
    outer.step()
    before = outer._shared()
    optimiser.by = 0.0
    for _ in range(4):
        optimiser.step()
        outer.step()
    return same(before, outer._shared()), same(before, [p.detach().float() for p in model.parameters()])


# Rounds of quadratics of which each rank has its own centre: the golden values that test_outer.c has of the library.
GOLDEN = {"diloco:every=10,outer_lr=0.7,outer_momentum=0.9": (
              (1, -1), (0.133742325, -0.351412315, -0.428759043, -0.271151209, -0.070351148, 0.060048953)),
          "diloco:every=4,outer_lr=0.4,outer_momentum=0.9": ((2, -1), (0.869318000, 0.717079770, 0.569051572))}


def quadratics(rank, size, spec):
    centres, golden = GOLDEN[spec]
    model = nn.Linear(1, 1, bias=False)
    model.weight = nn.Parameter(torch.ones(1, 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    outer, thetas = looped(model, optimiser, spec, hook=False), []
    outer.begin()
    while len(thetas) < len(golden):
        optimiser.zero_grad()
        (model.weight - centres[rank]).square().sum().div(2).backward()
        optimiser.step()
        if outer.step():
            thetas.append(model.weight.item())
    outer.finish()
    return thetas


def laid_otherwise(rank, size):
    """Parameters that are no plain arrays of fp32: channels_last, fp64, and a view with gaps."""
    model = nn.Module()
    model.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    model.wide = nn.Parameter(torch.ones(5, dtype=torch.float64))
    model.gaps = nn.Parameter(torch.zeros(6, 4)[:, ::2])
    optimiser = Mover(model.parameters(), float(rank))
    outer = looped(model, optimiser, "local:every=1", hook=False)
    outer.begin()
    start = bits(model)
    optimiser.step()
    outer.step()
    moved = [float((p - s).detach().abs().sub(0.5).abs().max()) for p, s in zip(model.parameters(), start)]
    hashes = [outer.hash]
    outer.finish()
    return moved, [str(p.dtype) for p in model.parameters()], [*hashes, outer.hash]


def ends_unfinished(rank, size):
    """After a round and as many steps as there are ranks before this one."""
    model = text_model()
    optimiser = adamw(model)
    kept.append(looped(model, optimiser, "local:every=4"))
    go_on(model, optimiser, kept[0], rank, range(4 + rank))


kept = []


def stepped_on(rank, size):
    """What is said of steps behind the end: twice, then where another loop is made, and where the loop is closed."""
    model = text_model()
    optimiser, told = adamw(model), []
    for last in (lambda outer: None, lambda outer: looped(model, optimiser, "local:every=2"), thinwire.torch.OuterLoop.close):
        outer = looped(model, optimiser, "local:every=2")
        go_on(model, optimiser, outer, rank, range(2))
        outer.finish()
        adamw(text_model()).step()  # of another model
        made = last(outer)
        with warned() as said:
            for _ in range(2):
                backward(model, rank, 0)
                optimiser.step()
        told.append(said)
        if made:
            made.close()
    return told


STOPS = [10, 10, 4]


def shorter(rank, size):
    """Each rank moves by its own number in each step, and the last one has fewer steps."""
    model = nn.Linear(3, 2)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    optimiser = Mover(model.parameters(), rank + 1.0)
    outer = looped(model, optimiser, "local:every=3", hook=False)
    outer.begin()
    for _ in range(STOPS[rank]):
        optimiser.step()
        outer.step()
    outer.finish()
    return bits(model), outer.stats(), outer.summary()


def inside_machines(rank, size):
    """Two machines of two ranks: DDP averages gradients inside, and OuterLoop weights between them."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = text_model()
    ddp = DistributedDataParallel(model, process_group=groups[rank // 2])
    optimiser = adamw(model)
    outer = looped(ddp, optimiser, "diloco:every=4,per_host=2")
    go_on(ddp, optimiser, outer, rank, range(6))
    own = bits(model)
    stats = outer.stats()
    outer.finish()
    return own, bits(model), stats


def scheduled(rank, size):
    """A schedule of the learning rate, several optimisers, and a step that is skipped on one rank."""
    model = text_model()
    first, rest = list(model.parameters())[:1], list(model.parameters())[1:]
    optimisers = [torch.optim.SGD(first, lr=0.1), torch.optim.AdamW(rest, lr=0.01)]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimisers[1], lambda step: 1 / (1 + step))
    outer = looped(model, optimisers, "local:every=2")
    for step in range(6 + rank):
        for one in optimisers:
            one.zero_grad()
        backward(model, rank, step)
        if rank == 1 and step == 2:
            continue  # as a GradScaler skips
        for one in optimisers:
            one.step()
        count(outer)
        schedule.step()
    rounds, rate = outer.stats()["rounds"], schedule.get_last_lr()[0]
    outer.finish()
    return rounds, rate, bits(model)


def steps_another(model, rank, given):
    """An optimizer of a second part of the training, of which the loop was not told."""
    backward(model, rank, 1)
    adamw(model).step()


def steps_first_alone(model, rank, given):
    for _ in range(2):
        backward(model, rank, 1)
        given[0].step()


STRAYS = {"another": steps_another, "first alone": steps_first_alone}


def refused(rank, size):
    texts = {}

    def note(name, act):
        texts[name] = ranks.refused(act)

    def made(model, optimiser, spec="diloco", **more):
        looped(model, optimiser, spec, **more).close()

    model = text_model()
    good = adamw(model)
    note("world", lambda: made(models.wrapped(text_model()), good))
    at = f"127.0.0.1:{_transport.gathered(None, ranks.free_port())[0]}"
    note("world, joined", lambda: made(models.wrapped(text_model()), good, join=at, workers=size))
    ddp = models.wrapped(text_model())
    note("members of one model", lambda: made(ddp, adamw(ddp), join=f"127.0.0.1:{ranks.free_port()}"))
    note("foreign", lambda: made(model, adamw(text_model())))
    note("part", lambda: made(model, torch.optim.SGD(list(model.parameters())[1:], lr=0.1)))
    note("none", lambda: made(model, None))
    note("no optimiser", lambda: made(model, 7))
    note("scheme", lambda: made(model, good, "powersgd:rank=4"))
    note("unknown", lambda: made(model, good, "dilco"))
    note("no spec", lambda: made(model, good, None))
    note("option", lambda: made(model, good, "diloco:evry=3"))
    note("no module", lambda: made(good, good))
    other = nn.Linear(3, 2 + rank)
    note("models", lambda: made(other, adamw(other)))
    typed, lazy = nn.Linear(3, 2).to(torch.bfloat16 if rank else torch.float32), nn.LazyLinear(2)
    note("types", lambda: made(typed, adamw(typed)))
    note("lazy", lambda: made(lazy, adamw(lazy)))
    norm = nn.BatchNorm1d(3 + rank, affine=False)
    both = nn.Sequential(nn.Linear(2, 2), norm)
    note("buffers", lambda: made(both, adamw(both)))
    other = text_model()
    gossip = thinwire.torch.GossipDataParallel(other, "dpsgd", optimizer=adamw(other))
    note("gossip", lambda: made(gossip, good))
    frozen = nn.Linear(2, 2).requires_grad_(False)
    note("frozen", lambda: made(frozen, good))
    note("only one", lambda: made(model, good if rank == 0 else None))
    note("timeout", lambda: made(model, good, timeout=-1))
    joins = {"join=7": 7, "workers='2'": "2", "workers=True": True, "workers=1099511627776": 2 ** 40, "workers=0": 0, "workers=-1": -1,
             "workers=16385": 16385, "rank='0'": "0", "rank=0.5": 0.5}
    for name, value in joins.items():
        word = name.split("=")[0]
        note(name, lambda: made(model, good, **{"join": "127.0.0.1:1", "workers": 2, word: value}))
    expanded = nn.Module()
    expanded.wide = nn.Parameter(torch.ones(1).expand(5))
    note("expanded", lambda: made(expanded, torch.optim.SGD(expanded.parameters(), lr=0.1)))
    turned = looped(model, good, "local:every=1", hook=False)
    turned.begin()
    model.out.weight.data = model.out.weight.data.t().contiguous().t()
    note("turned", turned.step)
    turned.close()
    model.out.weight.data = model.out.weight.data.contiguous()
    if not has_hooks():
        note("hook", lambda: made(model, good, hook=True))
    outer = looped(model, good, "local:every=1", hook=False)
    note("first", outer.step)
    outer.begin()
    optimiser_steps = Mover(model.parameters(), 1.0)
    optimiser_steps.step()
    note("uncounted", outer.finish)
    note("late", lambda: outer.load_state_dict({}))
    extra = nn.Parameter(torch.zeros(2))
    model.extra = extra
    note("newly", outer.step)
    outer.close()
    del model.extra
    if has_hooks():
        outer = looped(model, good, "local")
        note("twice", outer.step)
        outer.close()
    if has_hooks():
        for name, act in STRAYS.items():
            model = text_model()
            one, rest = list(model.parameters())[:1], list(model.parameters())[1:]
            given = [torch.optim.SGD(rest, lr=0.1), torch.optim.SGD(one, lr=0.1)]
            outer = looped(model, given, "local:every=2")
            outer.begin()
            for _ in range(4):
                for optimiser in given:
                    backward(model, rank, 0)
                    optimiser.step()
            act(model, rank, given)
            before = bits(model)
            for end in (outer.finish, outer.state_dict, lambda: outer.averaged().__enter__()):
                note(name, end)
                assert texts[name] and same(before, bits(model))
            given[0].step()
            given[1].step()  # what is counted has them all
            outer.finish()
            outer.close()
        outer = looped(model, adamw(model), "local")
        outer.begin()
        with torch.no_grad():
            model.out.bias.add_(1)
        note("by hand", outer.finish)
        outer.close()
    model = text_model()
    outer = looped(model, adamw(model), "local")
    note("no state", lambda: outer.load_state_dict({"a": 1}))
    outer.close()
    return texts


def too_far(rank, size):
    """What finish() says of steps that no fp16 can carry; whether the model has the shared weights then, and what a second says."""
    model = text_model()
    begun = bits(model)
    outer = looped(model, Mover(model.parameters(), 1e9), "local:every=4,exchange=fp16", hook=False)
    outer.begin()
    outer._optimisers[0].step()
    outer.step()
    return ranks.refused(outer.finish), same(bits(model), begun), ranks.refused(outer.finish)


def frozen_in_the_middle(rank, size):
    """In a framework a parameter is frozen in a round: what is saved then resumes, and what is damaged changes nothing."""
    model = text_model()
    optimiser = adamw(model)

    def local(saved):
        return _local.Local(model, optimiser, "local:every=4", saved, 0, timeout=ranks.SECONDS, banner=False)

    first = local(None)
    go_on(model, optimiser, first.loop, rank, range(2))
    model.out.bias.requires_grad_(False)
    go_on(model, optimiser, first.loop, rank, range(2, 3))
    saved, own = first.state(), bits(model)
    first.close()
    model.out.bias.requires_grad_(True)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    texts, other = [], bits(model)
    for name in ("symbols.weight", "out.bias"):
        for bad in (5, torch.zeros(1), saved[_local.OWN][name].double()):
            texts.append(ranks.refused(lambda: local({**saved, _local.OWN: {**saved[_local.OWN], name: bad}})))
    unchanged = same(other, bits(model))
    texts.append(ranks.refused(lambda: local({**saved, "thinwire/size": 3})))
    again = local(saved)
    resumed = same(own, bits(model))
    again.finish()
    return texts, unchanged, resumed


def local_sgd_that_fails(rank, size):
    """Whether DDP exchanges gradients after Accelerate's LocalSGD could not begin."""
    from thinwire.torch.accelerate import LocalSGD
    ddp = models.wrapped(text_model())
    accelerator = types.SimpleNamespace(num_processes=size, _optimizers=[adamw(ddp)], unwrap_model=lambda model: model.module)
    try:
        with LocalSGD(accelerator, ddp, 4, spec="nonsense"):
            return None
    except thinwire.Error:
        return ddp.require_backward_grad_sync


def damaged_states(rank, size):
    """What is refused of states that are none, and that a good one is taken all the same after that."""
    model = text_model().bfloat16()
    outer = looped(model, adamw(model), "local:every=4")
    outer.begin()
    good = outer.state_dict()
    outer.close()
    about, theta, name = "thinwire/", "theta/symbols.weight", "symbols.weight"
    outer, texts = looped(model, adamw(model), "local:every=4"), []
    for bad in (None, [1], {}, {**good, 3: torch.ones(1)}, {**good, about + "rank": str(rank)}, {**good, about + "order": [1]},
                {**good, about + "tensors": 4}, {**good, about + "tensors": [[1]]}, {**good, about + "spec": None},
                {**good, about + "unsigned": 3}, {**good, theta: good[theta].to("meta")}, {**good, theta: good[theta].to_sparse()},
                {**good, about + "weights": [1]}, {**good, about + "seen": None}, {**good, about + "working": {}},
                {**good, about + "seen": {**good[about + "seen"], name: torch.zeros(2)}}, {**good, theta: 7}):
        texts.append(ranks.refused(lambda: outer.load_state_dict(bad)))
    outer.load_state_dict(good)
    outer.begin()
    outer.close()
    return texts


def repeats(rank, size, data, kind):
    """What is said of the first batches, which are those of data[rank], and of which line; of a DDP of two ranks; or where one
    has no step."""
    model = text_model()
    if kind == "machine":
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        model = DistributedDataParallel(model, process_group=groups[rank // 2])
    optimiser = adamw(model)
    with warnings.catch_warnings(record=True) as caught, looped(model, optimiser, "local:every=2") as outer:
        warnings.simplefilter("always")
        go_on(model, optimiser, outer, data[rank], range(0 if kind == "empty" and rank else 3))
        outer.finish()
    return [(str(one.message), line_of(one)) for one in caught if "first batch" in str(one.message)]


def told(rank, size):
    """The banner, and a warning when the weights are not those that were saved."""
    out = io.StringIO()
    model = text_model()
    with contextlib.redirect_stderr(out):
        outer = looped(model, adamw(model), "streaming:every=9,exchange=bf16", banner=True)
    outer.begin()
    state = outer.state_dict()
    outer.close()
    other = text_model()
    with torch.no_grad():
        other.out.bias.add_(1)
    outer = looped(other, adamw(other), "streaming:every=9,exchange=bf16")
    outer.load_state_dict(state)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outer.begin()
    outer.close()
    return out.getvalue(), [str(one.message) for one in caught if "saved" in str(one.message)]


# ---- tests --------------------------------------------------------------------------------------------------------


def apart(rank, size, port):
    """The same run over a process group, and then over a meeting point, where the process group is gone."""
    ended = []
    for joined in (False, True):
        model = text_model()
        model.register_buffer("seen", torch.tensor([float(rank + 1)]))
        optimiser = adamw(model)
        more = {"join": f"127.0.0.1:{port}", "workers": size} if joined else {}
        if joined:
            dist.destroy_process_group()
        with looped(model, optimiser, "diloco:every=4", **more) as outer:
            number, part = outer.rank, list(outer.shard(range(7)))
            go_on(model, optimiser, outer, number, range(6))  # ranks are given by who comes first
            seen = [float(model.seen)]
            model.seen.fill_(number)
            with outer.averaged() as there:
                seen.append(float(there.seen))
            go_on(model, optimiser, outer, number, range(6, 9))
            outer.finish()
        assert (outer.rank, outer.size) == (number, size)  # after the end, too: one of them saves
        ended.append((number, part, seen, bits(model)))
    refused = {}
    for name, words in {"half": {"workers": 2}, "both": {"join": "127.0.0.1:1", "workers": 2, "transport": "mpi"},
                        "no group": {}, "no key": {"join": "127.0.0.1:1", "workers": 2, "transport": thinwire.Tcp(seal=True)}}.items():
        refused[name] = ranks.refused(lambda: looped(model, optimiser, "local:every=2", **words))
    try:  # one alone has another model
        other = nn.Linear(3, 2 + rank)
        looped(other, adamw(other), "local:every=2", join=f"127.0.0.1:{port}", workers=size)
    except thinwire.Error as error:
        refused["unlike"] = str(error)
    try:  # one alone has another spec; and where they meet is told
        with contextlib.redirect_stderr(io.StringIO()) as said:
            looped(model, optimiser, f"local:every={2 + rank}", join=f"127.0.0.1:{port}", workers=size, banner=True)
    except thinwire.Error as error:
        refused["specs"], refused["told"] = str(error), said.getvalue()
    dist.init_process_group("gloo", init_method=f"file://{ranks.FOLDER}/again", rank=rank, world_size=size)
    return ended, refused


def serving(rank, size, port):
    """What finish() says, in a group of torch's, and of programs with a terminal each; and without a banner."""
    said = []
    for more in ({}, {"join": f"127.0.0.1:{port}", "workers": size}, {"join": f"127.0.0.1:{port}", "workers": size, "banner": False}):
        model = nn.Linear(3, 2)
        with looped(model, adamw(model), "local:every=2", **{"banner": True, **more}) as outer:
            number = outer.rank
            outer.begin()
            with contextlib.redirect_stderr(io.StringIO()) as told:
                outer.finish()
        said.append((number, told.getvalue()))
    return said


class OuterTest(unittest.TestCase):
    def test_who_serves_the_others_says_so(self):
        line = "thinwire: this program has taken its last step, and serves the others' rounds until they have taken theirs\n"
        for (number, of_torch), (_, joined), (_, quiet) in ranks.on_ranks(2, serving, ranks.free_port()):
            self.assertEqual((of_torch, joined, quiet), ("" if number else line, line, ""))

    def test_who_reads_what_another_does_is_told_once(self):
        for data, wanted in (((0, 1, 2), [0, 0, 0]), ((5, 1, 5), [0, 0, 1])):
            told = ranks.on_ranks(3, repeats, data, "")
            self.assertEqual(list(map(len, told)), wanted)
        (text, line), = told[2]
        self.assertIn("rank 2 has had the first batch of rank 0, and", text)
        self.assertEqual(line, "optimiser.step()" if has_hooks() else "return None if has_hooks() else outer.step()")

    def test_gradients_that_have_to_be_alike_or_are_not_there_are_no_news(self):
        self.assertEqual(ranks.on_ranks(4, repeats, (0, 0, 1, 1), "machine"), [[]] * 4)
        self.assertEqual(ranks.on_ranks(2, repeats, (0, 0), "empty"), [[]] * 2)

    def test_programs_that_know_nothing_of_each_other_meet_and_have_the_same_bits(self):
        results = ranks.on_ranks(2, apart, ranks.free_port())
        parts = []
        first = [joined[0] for (_, joined), _ in results].index(0)  # whom the others have their buffers from
        for (grouped, joined), refused in results:
            self.assertTrue(same(grouped[3], joined[3]))
            self.assertTrue(same(joined[3], results[0][0][1][3]))
            self.assertEqual((grouped[2], joined[2]), ([1.0, 0.5], [first + 1.0, 0.5]))
            parts += joined[1]
            for name, text in {"half": 'give join="HOST:PORT" with it', "both": "nor another transport=", "no key": "wants key=",
                               "no group": "there is no process group", "unlike": "rank 1 has the parameter bias of (",
                               "specs": "rank 1 has the spec local:every=", "told": "thinwire: meeting 2 workers at 127.0.0.1:"}.items():
                self.assertIn(text, refused[name])
        self.assertEqual(sorted(parts), list(range(7)))

    def test_moments_become_the_mean_in_rounds_of_their_own(self):
        expected, apart = by_torch(32, False, 2, {"exp_avg": 2, "exp_avg_sq": 3}), by_torch(32, False, 2)
        for shared in ranks.on_ranks(2, with_moments):
            for ours, theirs in zip(shared, expected, strict=True):
                self.assertLess((ours - theirs).abs().max(), 1e-5)
        self.assertGreater(max((a - b).abs().max() for a, b in zip(apart, expected)), 1e-3)

    def test_a_worker_that_was_nan_learns_on_and_a_warning_says_so(self):
        whole, hurt = ranks.on_ranks(2, after_a_nan)
        self.assertEqual(whole, [(0, [], True)] * len(AFTER_A_NAN))
        self.assertEqual(hurt, [(1, ["WARNING"], True)] * len(AFTER_A_NAN))

    def test_moments_that_an_optimizer_lacks_are_told(self):
        for told in ranks.on_ranks(2, with_moments_of_sgd):
            self.assertRegex(told, "second_moment: SGD keeps none of")

    def test_diloco_with_adamw_is_that_of_plain_torch(self):
        results = ranks.on_ranks(RANKS, both_trained, "diloco:every=4", 16)
        for tied in (False, True):
            first, ended_first, _ = results[0][tied]
            for shared, ended, stats in (of_rank[tied] for of_rank in results):
                self.assertTrue(same(shared, first))
                self.assertTrue(same(ended, ended_first))
                self.assertEqual((stats["steps"], stats["rounds"]), (16, 4))
                self.assertGreater(stats["ratio_traffic"], 2.5)
            self.assertTrue(same(first, by_torch(16, tied, RANKS)))

    def test_resumed_in_the_middle_of_a_round_has_the_same_bits(self):
        """By each method, of which some are in bf16."""
        self.check_resuming(CUTS[::4] + CUTS[10:11])

    @parts.extra
    def test_resumed_in_other_ways_has_the_same_bits(self):
        self.check_resuming(CUTS)

    def test_resumed_after_a_step_that_one_rank_skipped_has_the_same_bits(self):
        self.assertEqual(ranks.on_ranks(2, resumed_after_a_skip), [[True] * 3] * 2)

    def check_resuming(self, cuts):
        for of_rank in ranks.on_ranks(2, all_resumed, cuts):
            for cut, good in zip(cuts, of_rank, strict=True):
                self.assertTrue(good, cut)

    def test_another_number_of_ranks_goes_on_from_the_shared_weights(self):
        old = ranks.on_ranks(3, states)
        theta = [old[0][f"theta/{name}"] for name, _ in text_model().named_parameters()]
        results = ranks.on_ranks(2, of_others, old)
        for begins, ended, rounds, summary in results:
            self.assertTrue(same(begins, theta))
            self.assertTrue(same(ended, results[0][1]))
            self.assertFalse(same(ended, theta))
            self.assertEqual(rounds, 3)
            self.assertIn(": 3 steps, 2 rounds of the group's 3, ", summary)  # of the three, one was made before the state was saved

    def test_states_with_a_round_in_between_are_told_of_and_one_of_them_is_enough(self):
        (first, *told), (second, *other) = ranks.on_ranks(2, saved_apart)
        self.assertEqual((told[0], len(told[1]), other), (0, 1, [0, []]))
        self.assertIn("save when the count of rounds has changed", told[1][0])
        for text in ranks.on_ranks(2, of_one_moment_or_not, [first, second]):
            self.assertIn("of another run or moment than rank 0's: 0 rounds have ended there, and 1 here", text)
        theta = [first[f"theta/{name}"] for name, _ in text_model().named_parameters()]
        for begins, ended, *_ in ranks.on_ranks(2, of_others, [first, None]):
            self.assertTrue(same(begins, theta))
            self.assertFalse(same(ended, theta))

    def test_what_was_loaded_last_is_what_a_run_goes_on_with(self):
        """With load_state_dict() from a rank's own weights, and with load_state_dicts() from the shared ones."""
        comm, = thinwire.Comm.threads(1)
        shared, own = text_model(), text_model()
        own.load_state_dict({name: 2 * one for name, one in own.state_dict().items()})
        with looped(shared, adamw(shared), "diloco:every=3", group=comm, transport=comm) as outer:
            outer.begin()
            state = outer.state_dict()
        for last, begins in (("load_state_dict", own), ("load_state_dicts", shared)):
            model = copy.deepcopy(own)
            with looped(model, adamw(model), "diloco:every=3", group=comm, transport=comm) as outer, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the model is not the one that was saved
                for load, what in sorted({"load_state_dict": state, "load_state_dicts": [state]}.items(), key=lambda one: one[0] == last):
                    getattr(outer, load)(what)
                outer.begin()
                self.assertTrue(same(bits(model), bits(begins)), last)

    def test_a_meeting_to_end_is_no_round(self):
        """Where all have given their last steps before. Else these are one."""
        ends = {3: "1 round", 6: "2 rounds", 7: "3 rounds"}
        for summaries in ranks.on_ranks(2, summed_up, *ends):
            for (steps, rounds), summary in zip(ends.items(), summaries, strict=True):
                self.assertIn(f": {steps} steps, {rounds}, ", summary)

    def test_last_steps_that_were_too_large_for_the_exchange_are_an_error(self):
        for text, ended, again in ranks.on_ranks(2, too_far):
            self.assertIn("the last steps are lost: some rank's part, or the sum, was too large for the exchange", text)
            self.assertEqual((ended, again), (True, ""))

    def test_averaged_shows_the_shared_weights_and_gives_back_each_ranks_own(self):
        results = ranks.on_ranks(2, shown)
        mean = {name: sum(own[name].double() for own, *_ in results) / 2 for name in results[0][0]}
        for own, shared, back, alone, after, ended, texts, begun in results:
            self.assertEqual(float(begun.abs().max()), 0)  # rank 0's
            for name, value in shared.items():
                if "num_batches" in name:
                    continue
                self.assertTrue(torch.equal(value, results[0][1][name]), name)
                if name != "0.bias":  # which the norm after it takes away again
                    self.assertFalse(torch.equal(value, own[name]), name)
                if "running" in name:
                    self.assertLess(float((value - mean[name]).abs().max()), 1e-6)
                self.assertTrue(torch.equal(ended[name], results[0][5][name]), name)
            self.assertTrue(back)
            self.assertEqual([text.split(" inside averaged()")[0] for text in texts],
                             ["the optimizer has stepped", "finish()", "state_dict()", "averaged()"])
            if alone:
                self.assertTrue(torch.equal(alone["0.weight"], shared["0.weight"]))
                self.assertTrue(torch.equal(alone["1.running_mean"], own["1.running_mean"]))
            self.assertTrue(torch.equal(after["1.running_mean"], own["1.running_mean"]))

    def test_an_optimizer_that_swaps_weights_has_its_own_back_behind_averaged(self):
        for spec in ("local:every=4", "local:every=4,first_moment=1"):
            results = ranks.on_ranks(2, averaging, spec)
            for off, ended, said, beside in results:
                self.assertEqual([*off[:2], *off[3:5]], [0] * 4)
                self.assertIn("Averaging evaluates with an average that each rank takes for itself, also behind finish()", beside[0])
                self.assertLess(max(off), 1e-6)
                self.assertTrue(torch.equal(ended, results[0][1]))
                self.assertEqual(["Averaging evaluates with an average that each worker takes" in text for text in said],
                                 [True] * ("first_moment" not in spec))

    def test_fp32_copies_of_the_weights_in_the_optimizer_follow_a_round(self):
        exact = {0.1: {"outer": 1e-7}, 1e-6: {"outer": 3e-8, "gossip": 3e-8}}  # with the second no weight in bf16 notices a step, and
        for rate, most in exact.items():  # gradients are the same before a gossip's mean and behind it
            for ends in ranks.on_ranks(2, bf16_masters, rate, False):
                for way, off in most.items():
                    self.assertLess((ends[way] - ends["torch"]).abs().max(), off)
        for ends in ranks.on_ranks(2, bf16_masters, 0.1, True):
            for way in ("outer", "gossip"):
                self.assertTrue(torch.isfinite(ends[way]).all())
                self.assertLess((ends[way] - ends["torch"]).abs().max(), 0.2)

    def test_an_optimizer_that_swaps_weights_begins_anew_where_it_keeps_nan(self):
        self.assertEqual(ranks.on_ranks(2, averaging_from_nan), [False, True])  # rank 0 has an average of its own

    def test_what_is_no_fp32_copy_of_the_weights_is_left_alone(self):
        for stay in ranks.on_ranks(2, no_masters):
            self.assertEqual(stay, [True] * 12)

    @unittest.skipUnless(hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), "this torch has no hooks after accumulation")
    def test_optimizers_that_step_inside_of_the_pass_do_what_one_behind_it_does(self):
        for same in ranks.on_ranks(2, in_the_pass):
            self.assertEqual(same, [True] * 8)
        self.assertRegex(ranks.on_ranks(1, in_a_checkpoint)[0],
                         r"the optimizer steps in a checkpoint with use_reentrant=True.*, or step behind backward\(\)")

    def test_only_what_is_trained_travels(self):
        results = ranks.on_ranks(2, adapters)
        for rank, (plan, sent, weight, frozen) in enumerate(results):
            self.assertEqual(plan, ["out.weight"])
            self.assertTrue(torch.equal(weight, results[0][2]))
            self.assertEqual(frozen, rank)
            self.assertLess(sent, 3 * 4 * 11 * 16 + 1000)  # two rounds of these, and what ranks tell each other

    def test_shared_weights_are_fp32_where_parameters_are_bf16(self):
        half = 2.0 ** -8
        for seen, dtype in ranks.on_ranks(2, half_steps):
            self.assertEqual([theta for _, theta in seen], [1 + half * k for k in range(1, 6)])
            rounded = [float(torch.tensor(1 + half * k).bfloat16()) for k in range(1, 6)]
            self.assertEqual([weight for weight, _ in seen], rounded)
            self.assertEqual(dtype, "torch.bfloat16")

    def test_rounding_to_bf16_is_no_step(self):
        self.assertEqual(ranks.on_ranks(2, rounding), [(True, False)] * 2)

    def test_golden_values_of_the_equations(self):
        for spec, (_, golden) in GOLDEN.items():
            for thetas in ranks.on_ranks(2, quadratics, spec):
                for theta, wanted in zip(thetas, golden, strict=True):
                    self.assertAlmostEqual(theta, wanted, delta=2e-6)

    def test_parameters_lie_in_any_way(self):
        for moved, dtypes, hashes in ranks.on_ranks(2, laid_otherwise):
            self.assertLess(max(moved), 1e-6)
            self.assertEqual(dtypes, ["torch.float64", "torch.float32", "torch.float32", "torch.float32"])
            self.assertEqual(*hashes)

    def test_a_rank_with_fewer_batches_does_not_hang_the_others(self):
        expected = 3 * (1 + 2 + 3) / 3 + (3 * 1 + 3 * 2 + 1 * 3) / 3 + 3 * (1 + 2) / 2 + (1 + 2) / 2
        for values, stats, summary in ranks.on_ranks(3, shorter):
            for one in values:
                self.assertLess(float((one - expected).abs().max()), 1e-5)
            self.assertIn("10 steps" if stats["steps"] == 10 else "4 steps", summary)

    def test_ddp_inside_machines_and_the_outer_loop_between_them(self):
        results = ranks.on_ranks(4, inside_machines)
        for rank, (own, ended, stats) in enumerate(results):
            self.assertTrue(same(own, results[rank // 2 * 2][0]))
            self.assertTrue(same(ended, results[0][1]))
        self.assertFalse(same(results[0][0], results[2][0]))
        between = [stats["bytes_between"] for _, _, stats in results]
        self.assertGreater(between[0], 10 * between[1])  # the first rank of a machine talks to the other machine

    def test_a_program_that_catches_ctrl_c_in_a_round_goes_on_from_it(self):
        """With weights that the library works on a copy of."""
        make, model = thinwire.OuterLoop.step, nn.Linear(8, 8, bias=False)
        model.weight = nn.Parameter(torch.zeros(8, 16)[:, ::2])
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

        def interrupted(loop, *what):
            if loop.is_due:
                signal.raise_signal(signal.SIGINT)
            return make(loop, *what)

        def take_step():
            model.weight.grad = -torch.ones(8, 8)
            optimiser.step()
            outer.step()

        with looped(model, optimiser, "diloco:every=2,outer_lr=0.5,outer_momentum=0", join=f"127.0.0.1:{ranks.free_port()}",
                    hook=False) as outer:
            outer.begin()
            for step in (make, interrupted, make):
                take_step()
                with mock.patch.object(thinwire.OuterLoop, "step", step), contextlib.suppress(KeyboardInterrupt):
                    take_step()
            self.assertTrue(torch.equal(model.weight, torch.full((8, 8), 3.0)), model.weight)
            take_step()
            with mock.patch.object(thinwire.OuterLoop, "step", interrupted), mock.patch.object(Members, "due", return_value=Due.SAME), \
                    self.assertRaises(KeyboardInterrupt):
                outer.finish()
            self.assertTrue(torch.equal(model.weight, torch.full((8, 8), 3.5)), model.weight)

    def left(self, weights, at, stop, catches, make, **group):
        """The weights of a machine when it has left, whose step of this number is interrupted by `stop`; how many it took, and what it
        said."""
        model, taken = nn.Linear(8, 8, bias=False), 0
        model.weight = nn.Parameter(weights)
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        with contextlib.suppress(KeyboardInterrupt), contextlib.redirect_stderr(io.StringIO()) as said, \
                make(model, optimiser, "diloco:every=2,outer_lr=0.5,outer_momentum=0", hook=False, **group) as outer:
            outer.begin()
            while taken < 6:
                model.weight.grad = -torch.ones_like(model.weight)
                optimiser.step()
                taken += 1
                try:
                    with stop if taken == at else contextlib.nullcontext():
                        outer.step()
                except stop.by:
                    if not catches:
                        raise
            outer.leave() if group else outer.finish()
        return model.weight, taken, said.getvalue()

    def test_ctrl_c_anywhere_in_a_round_leaves_with_each_step_once(self):
        """Half of each step is in the shared weights: of weights that the library has another type of, a copy of, or themselves."""
        come_and_go = {"join": f"127.0.0.1:{ranks.free_port()}"}
        for make in (lambda: torch.zeros(8, 8, dtype=torch.bfloat16), lambda: torch.zeros(8, 16)[:, ::2], lambda: torch.zeros(8, 8)):
            for at, first, catches, group, by in (
                    (4, 1, True, {}, KeyboardInterrupt), (4, 1, True, {}, RuntimeError), (4, 1, True, come_and_go, KeyboardInterrupt),
                    (4, 1, False, come_and_go, KeyboardInterrupt),
                    (3, 3, False, come_and_go, KeyboardInterrupt)):  # its first two lines say that there was a step
                for line in itertools.count(first):
                    stop = Interrupting(line, by=by)
                    weights, taken, said = self.left(make(), at, stop, catches, looped if group else alone, **group)
                    with self.subTest(dtype=weights.dtype, strides=weights.stride(), group=group, at=at, by=by, catches=catches,
                                      line=stop.where):
                        self.assertTrue(weights.eq(taken / 2).all(), weights)
                        self.assertEqual("leaving by" in said, bool(stop.where) and not catches)
                        self.assertNotIn("what this machine had", said)
                    if not stop.where:
                        break
                self.assertGreater(line, 20 if at == 4 else 5)

    def test_ctrl_c_behind_the_last_round_loses_nothing(self):
        for end in "leave", "finish":
            model = nn.Linear(8, 8, bias=False)
            model.weight = nn.Parameter(torch.zeros(8, 8, dtype=torch.bfloat16))
            optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
            with contextlib.suppress(KeyboardInterrupt), contextlib.redirect_stderr(io.StringIO()) as said, \
                    looped(model, optimiser, "diloco:every=2,outer_lr=0.5,outer_momentum=0", join=f"127.0.0.1:{ranks.free_port()}",
                           hook=False) as outer:
                outer.begin()
                model.weight.grad = -torch.ones_like(model.weight)
                optimiser.step()
                outer.step()
                with mock.patch.object(outer._working, "give", side_effect=KeyboardInterrupt):
                    getattr(outer, end)()
            self.assertTrue(model.weight.eq(0.5).all(), model.weight)
            self.assertTrue(outer._finished)
            self.assertNotIn("leaving by", said.getvalue())

    def test_a_second_signal_while_it_is_told_that_a_machine_leaves(self):
        numbers, leave = (signal.SIGINT, signal.SIGTERM), mock.Mock()
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        before = [signal.getsignal(one) for one in numbers]
        for number in numbers:
            told = []

            def tell(line):
                told.append(line)
                if len(told) == 1:
                    signal.raise_signal(number)

            with mock.patch.object(_interrupted, "tell", tell):
                _interrupted.hand_over(leave)
            self.assertEqual(told[1:], ["what this machine had for the others is lost: there was no time for it"])
            self.assertEqual([signal.getsignal(one) for one in numbers], before)
        leave.assert_not_called()

    def test_a_handler_that_is_not_pythons_lets_a_machine_leave(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        leave = mock.Mock()
        with mock.patch.object(signal, "getsignal", return_value=None), contextlib.redirect_stderr(io.StringIO()):
            _interrupted.hand_over(leave)
        leave.assert_called_once_with()

    def test_a_step_behind_close_is_told_so_also_before_the_loop_has_begun(self):
        for begins in (True, False):
            model = nn.Linear(2, 2)
            with alone(model, adamw(model), hook=False) as outer:
                if begins:
                    outer.begin()
                    outer.step()
                    self.assertIn(": 1 step, ", outer.summary())
            self.assertIn("was closed", ranks.refused(outer.step))

    def test_averaged_takes_one_copy_of_the_weights_and_gives_them_back_after_a_ctrl_c(self):
        def copies():
            return sum(issubclass(type(one), torch.Tensor) and one.shape == (67, 61) for one in gc.get_objects())

        model = nn.Sequential(nn.Linear(61, 67), nn.Linear(67, 61), nn.Linear(61, 67))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        with looped(model, optimiser, "local:every=4", join=f"127.0.0.1:{ranks.free_port()}", hook=False) as outer:
            self.assertEqual(len(outer.hash), 8)  # for which it begins
            model(torch.ones(1, 61)).sum().backward()
            optimiser.step()
            outer.step()
            optimiser.zero_grad(set_to_none=True)
            own, before = bits(model), copies()
            with outer.averaged():
                self.assertFalse(same(bits(model), own))
                gc.collect()
                self.assertEqual(copies() - before, 2)  # the two of this shape have a copy each
            self.assertTrue(same(bits(model), own))
            for line in itertools.count(1):
                stop = Interrupting(line, thinwire.torch.OuterLoop.averaged.__wrapped__, thinwire.torch.OuterLoop._put_own)
                with contextlib.suppress(KeyboardInterrupt), stop, outer.averaged():
                    pass
                self.assertTrue(same(bits(model), own), stop.where)
                if not stop.where:
                    break
            self.assertGreater(line, 30)

    def test_schedules_several_optimisers_and_skipped_steps(self):
        results = ranks.on_ranks(2, scheduled)
        for rounds, rate, weights in results:
            self.assertEqual(rounds, 3)
            self.assertAlmostEqual(rate, 0.01 / 7)
            self.assertTrue(same(weights, results[0][2]))

    def test_what_cannot_be_is_refused_in_a_sentence(self):
        parts = {
            "world": "averages the gradients of all ranks in every step",
            "world, joined": "with per_host=N in the spec, or start each program with join= by itself, without torchrun",
            "members of one model": "give workers=N, how many processes there are on all machines",
            "foreign": "the optimizer does not have layer.linear1.bias",
            "part": "the optimizer does not have symbols.weight",
            "none": "OuterLoop needs the optimizer",
            "no optimiser": "optimizer=7",
            "scheme": "powersgd is no method of local updates; there are local, diloco, streaming, sparseloco, pulseloco, and powersgd may carry",
            "unknown": "dilco is no method of local updates; there are local, diloco, streaming, sparseloco, pulseloco",
            "no spec": "the spec is None",
            "option": "no option \"evry\"",
            "no module": "the module that is trained, and AdamW is none",
            "models": "rank 1 has the parameter bias of (3,) in float32 where rank 0 has the parameter bias of (2,) in float32",
            "types": "rank 1 has the parameter bias of (2,) in bfloat16 where rank 0 has the parameter bias of (2,) in float32",
            "lazy": "weight has no shape before the first forward pass, as in lazy modules: let a batch through the model first",
            "buffers": "rank 1 has the buffer 1.running_mean of (4,)",
            "gossip": "GossipDataParallel averages weights itself",
            "frozen": "no parameter",
            "only one": "OuterLoop needs the optimizer",
            "timeout": "timeout=-1",
            "join=7": 'join=7: want a text, "HOST:PORT"',
            **{name: name + ": want a whole number" for name in ("workers='2'", "workers=True", "workers=1099511627776", "rank='0'",
                                                               "rank=0.5")},
            **{name: name + ": want how many processes meet, 1 to 16384" for name in ("workers=0", "workers=-1", "workers=16385")},
            "expanded": "wide is expanded",
            "turned": "out.weight is torch.float32 on cpu with the strides (1, 11), and when it was first seen it was float32",
            "hook": "give hook=False, and call step()",
            "first": "before the first forward pass",
            "uncounted": "layer.linear1.bias has changed and no step was counted",
            "another": "AdamW has taken steps that were not counted",
            "first alone": "SGD has taken steps that were not counted",
            "by hand": "out.bias has changed and no step was counted, so that the OuterLoop would undo it: give the OuterLoop the optimizer",
            "late": "load its state before the first forward pass",
            "newly": "extra is trained now and was not",
            "twice": "make the OuterLoop with hook=False to call step()",
            "no state": "this is no state",
        }
        outer_module.refuse_half_joined(None, "127.0.0.1:1", 16384, None, 0, "tcp")
        for texts in ranks.on_ranks(2, refused):
            for name, text in texts.items():
                with self.subTest(name):
                    self.assertIn(parts[name], text)
                    self.assertNotIn("\n", text)

    def test_who_ends_without_finish_is_told_how_many_steps_nobody_has(self):
        with ranks.Crew(ends_unfinished, 3) as crew:
            ends = [crew.end(rank) for rank in range(3)]
        for rank, (code, said) in enumerate(ends):
            told = re.findall(r"/test_outer.py:\d+: UserWarning: the (\d) steps? behind the last round went to nobody, .*\n(.*)", said)
            self.assertEqual((code, [steps for steps, _ in told]), (0, [str(rank)] * (rank > 0)), said)
            self.assertTrue(all("return thinwire.torch.OuterLoop(model" in line for _, line in told), said)

    def test_who_ends_otherwise_is_told_nothing(self):
        def dropped(end, steps=3, made=alone, **more):
            model = nn.Linear(2, 2)
            optimiser = Mover(model.parameters(), 1.0)
            outer = made(model, optimiser, "local:every=4", hook=False, **more)
            outer.begin()
            for _ in range(steps):
                optimiser.step()
                outer.step()
            with warned() as said:
                with contextlib.suppress(thinwire.Error):
                    end(outer)
                del model, optimiser, outer
                gc.collect()
            return [text for text, _ in said if "went to nobody" in text]

        def fails(outer):
            with mock.patch.object(outer, "_give_last", side_effect=thinwire.PeerError("lost")):
                outer.finish()

        def fails_to_leave(outer):
            with mock.patch.object(outer._loop, "leave", side_effect=thinwire.PeerError("lost")):
                outer.leave()

        opens = {"made": looped, "join": f"127.0.0.1:{ranks.free_port()}"}
        self.assertEqual(len(dropped(lambda outer: None, **opens)), 1)
        self.assertEqual(dropped(fails_to_leave, **opens), [])
        self.assertEqual(len(dropped(lambda outer: None)), 1)
        self.assertEqual(dropped(lambda outer: None, steps=4), [])
        for end in (thinwire.torch.OuterLoop.close, thinwire.torch.OuterLoop.finish, fails):
            self.assertEqual(dropped(end), [])
        left = outer_module.Unshared()
        left.steps = 1
        with warned() as said, mock.patch.object(sys, "last_type", KeyboardInterrupt, create=True):
            left.tell()
        with warned() as said_in_child, mock.patch.object(os, "getpid", lambda: 0):
            left.tell()
        with warned() as said_while_failing:
            try:
                raise KeyError
            except KeyError:
                left.tell()
        self.assertEqual((said, said_in_child, said_while_failing), ([], [], []))
        with warned() as said:
            left.tell()
        self.assertEqual(len(said), 1)

    def test_who_has_lost_the_others_can_save_what_was_shared(self):
        text, same = ranks.on_ranks(2, left_alone)[0]
        self.assertRegex(text, "rank 1 .*; averaged.buffers=False. still has the shared weights of the last round, to save them$")
        self.assertEqual(same, [True, False, True])

    @unittest.skipUnless(has_hooks(), "this torch does not tell of an optimizer's steps")
    def test_steps_behind_the_end_are_told_of_once(self):
        for told in ranks.on_ranks(2, stepped_on):
            ((text, line),), *others = told
            self.assertIn("AdamW steps behind the end of the OuterLoop", text)
            self.assertEqual((line, others), ("optimiser.step()", [[], []]))
        model = nn.Linear(2, 2)
        optimiser = adamw(model)
        outer = alone(model, optimiser)
        outer.finish()
        with warned() as said:
            optimiser.step()
        self.assertEqual(said, [])

    @unittest.skipUnless(has_hooks(), "this torch does not tell of an optimizer's steps")
    def test_an_optimizer_that_the_loop_was_not_given_is_told_of_once(self):
        model = text_model()
        given, other = adamw(model), adamw(model)
        with alone(model, given) as outer:
            with warned() as said:
                for _ in range(20):  # as where gradients are accumulated
                    backward(model, 0, 0)
                given.step()
                for _ in range(2):
                    for _ in range(_strays.UNCOUNTED - 1):
                        other.step()
                    given.step()
            self.assertEqual(said, [])
            with warned() as said:
                for _ in range(2):
                    for _ in range(2 * _strays.UNCOUNTED):
                        other.step()
                    given.step()
            (text, line), = said
            self.assertRegex(text, "^AdamW has taken 8 steps in a row that were not counted, .*: give the OuterLoop the optimizer that trains")
            self.assertEqual(line, "other.step()")
        with alone(model, given, hook=False) as outer, warned() as said:
            outer.begin()
            for _ in range(8):
                given.step()
        (text, _), = said
        self.assertIn(": call step() of the OuterLoop after each optimizer.step()", text)

    def test_a_parameter_that_was_frozen_in_the_middle_is_in_a_frameworks_state(self):
        for texts, unchanged, resumed in ranks.on_ranks(2, frozen_in_the_middle):
            self.assertRegex(texts.pop(), "this checkpoint is of worker . of 3, and this is worker . of 2: ")
            self.assertEqual(len(texts), 6)
            for text in texts:
                self.assertRegex(text, r"^(symbols.weight of \(11, 16\)|out.bias of \(11,\)) in torch.float32 is not in the saved state")
            self.assertEqual((unchanged, resumed), (True, True))

    def test_a_local_sgd_that_cannot_begin_leaves_ddp_as_it_was(self):
        self.assertEqual(ranks.on_ranks(2, local_sgd_that_fails), [True, True])

    def test_a_local_sgd_that_cannot_end_leaves_the_others(self):
        from thinwire.torch.accelerate import LocalSGD
        model = nn.Linear(2, 2)
        accelerator = types.SimpleNamespace(num_processes=1, _optimizers=[adamw(model)], gradient_accumulation_steps=1)
        for ends, fails in ((thinwire.PeerError("lost"), True), (KeyboardInterrupt(), True), (None, False)):
            with contextlib.redirect_stderr(io.StringIO()), self.subTest(ends), \
                    self.assertRaises(type(ends)) if fails else contextlib.nullcontext():
                with LocalSGD(accelerator, model, 4, join=f"127.0.0.1:{ranks.free_port()}", workers=1, banner=False) as local:
                    if fails:
                        local.loop.finish = mock.Mock(side_effect=ends)
            self.assertTrue(local.loop._comm.closed)

    def test_a_local_sgd_says_what_its_steps_are(self):
        from thinwire.torch.accelerate import LocalSGD
        model = nn.Linear(2, 2)
        for passes in (1, 2):
            accelerator = types.SimpleNamespace(num_processes=1, _optimizers=[adamw(model)], gradient_accumulation_steps=passes)
            with contextlib.redirect_stderr(io.StringIO()) as said, LocalSGD(accelerator, model, 4, join=f"127.0.0.1:{ranks.free_port()}",
                                                                             workers=1):
                pass
            self.assertEqual(said.getvalue().count("gradient_accumulation_steps=2 of them are one step of the optimizer\n"), passes - 1)

    def test_a_long_wait_is_told_in_digits(self):
        for seconds, text in ((0, "0 ms"), (0.00123456, "1.23 ms"), (0.9994, "999 ms"), (0.9996, "1,000 ms"), (1.88, "1,880 ms")):
            self.assertEqual(_counts.milliseconds(seconds), text)

    def test_bytes_are_told_in_the_unit_that_suits_them(self):
        for count, text in ((0, "0 B"), (999.4, "999 B"), (999.6, "1 kB"), (14336 * 4, "57.3 kB"), (1.5e9, "1.5 GB"), (12e15, "1.2e+04 TB")):
            self.assertEqual(_counts.amount(count), text)

    def test_what_a_round_takes_is_told_of_the_second_one_among_the_same(self):
        for beside, what, exchanged, rate in ((False, "took", 0.5, ", at 16 Mbit/s"), (False, "took", 0.0, ""), (True, "held the steps up for", 0.0, "")):
            pace = _counts.Pace(beside)
            rounds = [(1.0, 2.0, 1e6, (1, 2)), (3.0, 4.0, 2e6, (2, 3)), (5.0, 6.0, 3e6, (3, 1)), (7.0, 8.0, 4e6, (3, 1)), (9.0, 10.0, 5e6, (4, 2))]
            self.assertEqual([pace.heard(*one) for one in rounds], [""] * 5)
            self.assertEqual(pace.heard(13.0, 14.0, 6e6, (4, 2), exchanged), f"thinwire: a round of 2 {what} 1,000 ms of 4,000 ms, 25 % of the time; "
                             f"1 MB were sent for it{rate}")
        pace = _counts.Pace()
        self.assertEqual([pace.heard(time, time + 1.0, 9e4 * time, (1, 2), 0.5)[-23:] for time in (1.0, 2.0)], ["", " 90 kB were sent for it"])

    def test_a_round_that_travels_beside_the_steps_has_no_rate(self):
        for spec, beside in (("diloco:every=2", False), ("streaming:every=2,fragments=1", True), ("diloco:every=2,eager=on", True)):
            comm, = thinwire.Comm.threads(1)
            model = nn.Linear(2, 2)
            with contextlib.redirect_stderr(io.StringIO()), looped(model, adamw(model), spec, group=comm, transport=comm, hook=False,
                                                                   banner=True) as outer:
                self.assertEqual(outer._pace._beside, beside, spec)

    def test_a_wrong_spec_is_told_before_anybody_waits(self):
        model = torch.nn.Linear(4, 3)
        for spec, text in (("dilco:every=16", "dilco is no method of local updates"), ("diloco:evry=16", 'no option "evry"'),
                           ("diloco:exchange=topc", 'no scheme "topc"'), ("diloco:exchange=dgc", "has a momentum of its own"),
                           ("dgc", r'"diloco:exchange=dgc,momentum=0"$'), ("dgc-adam", "pulseloco$")):
            for workers in (None, 2):
                with self.subTest(spec, workers=workers), self.assertRaisesRegex(thinwire.Error, text):
                    thinwire.torch.OuterLoop(model, torch.optim.SGD(model.parameters(), lr=0.1), spec, join="nowhere",
                                             workers=workers, banner=False)

    def test_what_a_call_says_is_looked_at_before_a_meeting_is_told_of(self):
        model, told = torch.nn.Linear(4, 3), io.StringIO()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for given, spec, join, text in (((model, None), "local:every=2", "127.0.0.1:1", "optimizer=None"),
                                        ((model, []), "local:every=2", "127.0.0.1:1", "optimizer=None"),
                                        ((model, [optimiser, None]), "local:every=2", "127.0.0.1:1", "optimizer=None"),
                                        ((optimiser, model), "local:every=2", "127.0.0.1:1", "SGD is none"),
                                        *(((model, optimiser), "local:every=2", join, "is no meeting point: want HOST:PORT")
                                          for join in ("nowhere", "127.0.0.1:0", "127.0.0.1:65536", "::1:7000", "tcp://127.0.0.1:7000")),
                                        ((model, optimiser), "local:every=2", "folder:/", "needs workers= and rank="),
                                        ((model, optimiser), "local:every=2", "folder:/no such folder", "want a folder"),
                                        ((model, optimiser), "local:every=2", "https://no such host/", "(?i)url|libcurl"),
                                        ((model, optimiser), "local:every=2", "no-such-host.invalid:7000", "cannot be resolved"),
                                        ((model, optimiser), "gasloc:every=2", "127.0.0.1:1", "GossipDataParallel.*gasloc:every=2")):
            with self.subTest(text), contextlib.redirect_stderr(told), self.assertRaisesRegex(thinwire.Error, text):
                thinwire.torch.OuterLoop(*given, spec, join=join, workers=2, patience=1,
                                         rank=0 if "no such" in join else None)
        self.assertEqual(told.getvalue(), "")
        with tempfile.TemporaryDirectory() as folder:
            for join in (f"127.0.0.1:{ranks.free_port()}", f"folder:{folder}"):
                with contextlib.redirect_stderr(told), self.assertRaises(thinwire.PeerError):
                    thinwire.torch.OuterLoop(model, optimiser, "local:every=2", join=join, workers=2, rank=0, patience=0.1)
                self.assertEqual(told.getvalue().count(f"meeting 2 workers at {join}"), 1)

    def test_a_banner_names_a_warm_up_that_the_length_of_a_run_would_change(self):
        for spec, said in (("onebit-adam", "its first 2,000 steps are a warm-up, which thinwire.for_run(spec, steps=N) fits"),
                           ("dgc-adam:density=0.04", "its first 6,666 steps"), ("dgc", "its first 400 steps"),
                           ("dgc:warmup_steps=400", ""), ("qsgd", ""), ("allreduce", "")):
            banner = _counts.what_happens(spec, {"weight": spec.split(":")[0] + ": what it does"}, 12, 0.0)
            self.assertIn(said, banner)
            self.assertEqual("warm-up" in banner, said != "")
        self.assertNotIn("warm-up", _counts.what_happens("onebit-adam", {"bias": "allreduce"}, 12, 0.0))

    def test_a_number_may_be_written_as_the_library_reads_it(self):
        for text, wanted in (("1e1", 10.0), ("0x10", 16.0), ("4.0", 4.0), ("four", math.nan), ("0xg", math.nan)):
            self.assertEqual(str(thinwire.spec.number(text)), str(wanted))
        comm, = thinwire.Comm.threads(1)
        with looped(model := text_model(), adamw(model), "streaming:every=1e1,fragments=0x2,delay=0,first_moment=0.0", join=None,
                    group=comm, transport=comm) as outer:
            self.assertIn("every 10 steps of the optimizer, in 2 parts", outer.banner())
            self.assertEqual(thinwire.outer.period_of(outer._loop.spec), 5)

    def test_a_spec_may_name_the_models_tensors(self):
        model, (comm,) = torch.nn.Sequential(torch.nn.Linear(4, 3)), thinwire.Comm.threads(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for exchange, fits in (("topk,dense=0.weight", True), ("scalecom,rates=0.weight@2", True), ("topk,dense=head", False)):
            with self.subTest(exchange):
                text = ranks.refused(lambda: thinwire.torch.OuterLoop(model, optimizer, f"diloco:every=4,exchange={exchange}", group=comm,
                                                                      transport=comm, banner=False).close())
                self.assertEqual(text, "" if fits else "dense=head: no tensor has such a name; the first is called 0.bias")

    def test_states_that_are_none_are_refused_in_a_sentence(self):
        for texts in ranks.on_ranks(2, damaged_states):
            for number, text in enumerate(texts):
                self.assertRegex(text, "state", number)
                self.assertNotIn("compressor", text)

    def test_a_file_that_is_damaged_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "thinwire.pt")
            self.assertIsNone(_local.read(path))
            torch.save({"thinwire/rank": 0, "thinwire/own": {}}, path)
            good = path.read_bytes()
            self.assertEqual(_local.read(path), {"thinwire/rank": 0, "thinwire/own": {}})
            for bad in (b"", good[:len(good) // 2], bytes(range(256)) * 4, b"hello"):
                path.write_bytes(bad)
                with self.assertRaisesRegex(thinwire.Error, f"^{path} cannot be read as a state of a run.*take the checkpoint"):
                    _local.read(path)
            path.unlink()
            path.mkdir()
            with self.assertRaisesRegex(thinwire.Error, f"^{path} is no file"):
                _local.read(path)

    @parts.extra
    def test_the_example_learns_and_a_resumed_run_is_the_whole_one(self):
        small = "--steps 45 --every 15 --width 32 --layers 1 --heads 2 --length 32 --batch 4 --spec diloco:every=10"
        place = f"127.0.0.1:{ranks.free_port()}"
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            words = [EXAMPLE, *small.split(), "--out", folder]
            first = self.lines_of(words)
            for path in folder.glob("step-45/*"):  # it goes on from step 30
                path.unlink()
            again = self.lines_of(words)
        self.assertIn("a round every 10 steps of the optimizer", first[1])
        before, after = (float(re.search(rf"{when}: ([\d.]+) bits", first[0]).group(1)) for when in ("start", "end"))
        self.assertLess(after, before - 1)
        self.assertEqual(*(re.search(r"end: .* with weights \S+", lines[0]).group() for lines in (first, again)))
        self.assertIn("45 steps", first[0])
        without_a_launcher = [sys.executable, "-B", JOINED, *small.replace("--every 15", "").split(), "--join", place, "--workers", 2]
        codes, wrote = launched.ends_of([without_a_launcher] * 2, env=launched.environment())
        self.assertEqual(codes, [0, 0], wrote)
        for out, _ in wrote:
            self.assertIn(re.search(r"end: .* with weights \S+", first[0]).group(), out)

    @parts.extra
    def test_the_example_without_a_launcher_takes_no_option_that_it_has_no_use_for(self):
        for word in ("--scheme", "--every", "--out"):
            code, (out, _) = (one[0] for one in launched.ends_of([[sys.executable, "-B", JOINED, "--join", "127.0.0.1:1", f"{word}=7"]],
                                                                 env=launched.environment()))
            self.assertEqual(code, 2)
            self.assertIn(f"error: {word} is of no use here", out)

    def lines_of(self, words):
        """What rank 0 wrote: its output, and its errors."""
        ends = launched.started_as_torchrun_does(words, 2)
        self.assertEqual([code for code, _, _ in ends], [0, 0], "\n".join(out + err[-4000:] for _, out, err in ends))
        self.assertEqual(ends[1][1], "")
        return ends[0][1:]

    def test_a_line_says_what_a_round_sends(self):
        (banner, warned), (nothing, warned_too) = ranks.on_ranks(2, told)
        elements = sum(p.numel() for p in text_model().parameters())
        self.assertEqual(nothing, "")
        self.assertEqual(banner.count("\n"), 1)
        self.assertIn(f"thinwire streaming:every=9,exchange=bf16: {elements:,} weights in", banner)
        begin, dense = "a round every 9 steps of the optimizer, in 3 parts one after the other, of about ", 4 * elements / 1e3
        foretold, = re.findall(rf"{begin}([\d.]+) kB from each rank, to which bf16 compresses the {dense:.3g} kB that the gradients", banner)
        self.assertAlmostEqual(float(foretold), dense / 2, delta=0.1 * dense)
        self.assertEqual(["call step()" in banner], [not has_hooks()])
        for rank, texts in enumerate((warned, warned_too)):
            self.assertEqual(len(texts), 1, texts)
            self.assertIn(f"rank {rank}: out.bias is not what it was when this state was saved", texts[0])


if __name__ == "__main__":
    unittest.main(testLoader=parts.Loader())
