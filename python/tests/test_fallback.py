#!/usr/bin/env python3
"""attach() measures what an exchange costs, and leaves it to torch where a scheme would be slower. What the scheme does
besides sending goes on: its momentum, and no step that is not finite."""

import contextlib
import copy
import io
import unittest
from unittest import mock

import models
import ranks
import thinwire.torch
import torch
import torch.distributed as dist
from test_ddp import TwoParts, inputs
from test_faults import Scaler
from thinwire.reducer import Reducer
from thinwire.torch import _costs, _parameters, _transport

SLOW, FAST = (2.0, 1.0), (1.0, 2.0)  # seconds by the scheme and by torch
DGC = "dgc:density=0.05,warmup_steps=0"


def attached(model, spec, seconds=SLOW, ddp_more=None, **more):
    """As if the exchange had taken so long. None: as it is."""
    known = mock.patch.object(_costs, "measured", lambda *_: _costs.Costs(*seconds))
    with known if seconds else contextlib.nullcontext():
        return models.attached(model, spec, ddp_more, **{"fallback": True, **more})


# What is measured

class Clock:
    """Passes as the exchange is used: by `scheme` seconds a step of a reducer, by `dense` an element of an all-reduce."""

    def __init__(self, scheme, dense):
        self.now, self.scheme, self.dense, self.elements = 0.0, scheme, dense, []

    def perf_counter(self):
        return self.now

    @contextlib.contextmanager
    def runs(self):
        wait, all_reduce = _costs.Reducer.wait, dist.all_reduce

        def waits(reducer):
            self.now += self.scheme
            return wait(reducer)

        def reduces(values, **more):
            self.now += self.dense * values.numel()
            self.elements.append(values.numel())
            return all_reduce(values, **more)

        with mock.patch.object(_costs, "time", self), mock.patch.object(_costs.Reducer, "wait", waits), \
                mock.patch.object(dist, "all_reduce", reduces):
            yield


def decided(rank, size, scheme, dense):
    """Each rank is slower than the one before; what all of them are told, and take."""
    clock = Clock(scheme * (1 + rank), dense * (1 + rank))
    with clock.runs():
        ddp, compressor = attached(models.small(), DGC, None)
    return compressor.costs, compressor.dense, sum(p.numel() for p in ddp.parameters())


def really_measured(rank, size):
    ddp, compressor = attached(models.small(), DGC, None)
    return compressor.costs, compressor.dense


def cut(rank, size):
    """A table of more than the sample, and a slow line: what is exchanged to know."""
    module = torch.nn.ModuleList([torch.nn.Linear(64, 100), torch.nn.Linear(1024, 512, bias=False), torch.nn.Linear(9, 9)])
    rows, _ = _parameters.table_of(module)
    comm = _transport.with_comm("tcp", None, _transport.Limits(ranks.SECONDS), lambda comm: comm)
    with mock.patch.object(_costs, "SAMPLE", 6500 + 10 * 1024 + 5):
        sample = _costs.sample_of(rows)
        clock = Clock(1.0, 1e-3)  # both are long
        with clock.runs():
            costs = _costs.measured(rows, "topk", comm, None)
    return sample, costs, clock.elements, sum(row.parameter.numel() for row in rows)


def names_what_is_not_measured(rank, size):
    """A spec that names a tensor behind the sample, whose end a scalar follows."""
    scale = torch.nn.Module()
    scale.by = torch.nn.Parameter(torch.ones(()))
    model = torch.nn.ModuleDict({"first": torch.nn.Linear(40, 100, bias=False), "scale": scale, "tail": torch.nn.Linear(100, 9)})
    with mock.patch.object(_costs, "SAMPLE", 4000):
        return [attached(copy.deepcopy(model), spec, None)[1].costs is not None
                for spec in ("topk", "topk:dense=tail.*|first.weight", "scalecom:rates=tail.weigh?@2")]


def leaves_no_trace(rank, size):
    """A run whose exchange was measured and kept, and one that was not measured: the same bits."""
    model, ends = models.small(), []
    for more in ({"seconds": None}, {"fallback": False}):
        with mock.patch.object(_costs.Costs, "scheme_pays", True):
            ddp, compressor = attached(copy.deepcopy(model), "dgc:density=0.02,warmup_steps=2", **more)
        optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
        models.train(ddp, optimiser, rank, range(4))
        ends.append((models.weights(ddp.module), compressor.dense, compressor.costs is None))
        compressor.close()
    same = all(torch.equal(ends[0][0][name], ends[1][0][name]) for name in ends[0][0])
    return same, [end[1:] for end in ends]


def not_alike(rank, size):
    """One rank alone wants no fallback: nobody measures, and nobody waits for a measurement."""
    ddp, compressor = attached(models.small(), DGC, fallback=rank == 0)
    models.backward(ddp, rank, 0)
    with mock.patch.dict("os.environ", THINWIRE_FALLBACK="on"):
        unless_told = attached(models.small(), DGC, fallback=None)[1].dense
        ratio = attached(models.small(), DGC, fallback=None, expect_ratio=2)[1].dense
    return compressor.dense, compressor.costs, unless_told, ratio


# What then happens

def with_momentum(rank, size, nesterov):
    """Beside plain DDP with the momentum in the optimiser, what differs at the end, and how far it went."""
    model = models.small().eval()
    plain = models.wrapped(copy.deepcopy(model))
    ddp, compressor = attached(copy.deepcopy(model), f"{DGC},nesterov={'on' if nesterov else 'off'}")
    more = {"lr": 0.05, "weight_decay": 0.01}
    models.train(plain, torch.optim.SGD(plain.parameters(), momentum=0.9, nesterov=nesterov, **more), rank, range(5))
    models.train(ddp, thinwire.torch.SGD(ddp.parameters(), compressor=compressor, **more), rank, range(5))
    ends = [torch.cat([p.detach().reshape(-1) for p in module.parameters()]) for module in (plain, ddp, model)]
    return float((ends[0] - ends[1]).abs().max()), float((ends[0] - ends[2]).abs().max()), models.same_everywhere(ddp)


def without_momentum(rank, size):
    """Every gradient is plain DDP's, bit for bit."""
    model = models.small()
    plain, same = models.wrapped(copy.deepcopy(model), bucket_cap_mb=0.01), []
    ddp, compressor = attached(copy.deepcopy(model), "topk", ddp_more={"bucket_cap_mb": 0.01})
    for step in range(3):
        plain.zero_grad(), ddp.zero_grad()
        models.backward(plain, rank, step), models.backward(ddp, rank, step)
        ours, theirs = models.gradients(ddp.module), models.gradients(plain.module)
        same += [torch.equal(ours[name], theirs[name]) for name in theirs]
    return all(same), compressor.stats()["steps"]


def not_finite(rank, size, nonfinite):
    """Rank 0 has an infinite gradient in step 1: what the gradients are then, and the velocity before and after."""
    ddp, compressor = attached(models.small(), DGC, nonfinite=nonfinite)
    kinds, raised, velocities = [], [], []
    for step in range(3):
        ddp.zero_grad()
        try:
            models.backward(ddp, rank, step, float("inf") if rank == 0 and step == 1 else 1.0)
        except RuntimeError as error:
            raised.append((step, str(error)))
        kinds.append(models.kind_of_gradients(ddp.module))
        velocities.append(compressor.state_dict()["velocity/4.weight"])
    return kinds, raised, compressor.stats()["steps_skipped"], torch.equal(velocities[0], velocities[1])


def scaled(rank, size):
    """Steps whose loss has a scale that changes give what steps without one give."""
    lasts = []
    for changing in (False, True):
        scaler = Scaler()
        ddp, compressor = attached(models.small(), f"{DGC},nesterov=on", scaler=scaler)
        for step in range(4):
            scaler.scale = 2.0 ** (3 * step) if changing else 1.0
            ddp.zero_grad()
            models.backward(ddp, rank, step, scaler.scale)
        lasts.append(torch.cat([g.reshape(-1) / scaler.scale for g in models.gradients(ddp.module).values()]))
    return torch.equal(*lasts)


def unused(rank, size):
    """b is used, then by nobody, then again: its velocity waits."""
    ddp, compressor = attached(TwoParts(), DGC, ddp_more={"find_unused_parameters": True})
    velocities = []
    for step, used in enumerate((True, False, True)):
        ddp.zero_grad()
        ddp(inputs(rank, step), used).backward()
        velocities.append(compressor.state_dict()["velocity/b.weight"])
    return torch.equal(velocities[0], velocities[1]), torch.equal(velocities[1], velocities[2])


def resumed(rank, size, seconds_then):
    """Four steps, and two, a checkpoint and two more where the scheme would be chosen: the same bits."""
    model = models.small()

    def run(start, steps, seconds, checkpoint=None):
        ddp, compressor = attached(copy.deepcopy(start), DGC, seconds)
        if checkpoint:
            compressor.load_state_dict(checkpoint)
        models.train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), rank, steps)
        state = compressor.state_dict()
        dense = compressor.dense
        compressor.close()
        return ddp.module, state, dense

    file = io.BytesIO()
    whole, _, dense = run(model, range(4), seconds_then[0])
    half, state, _ = run(model, range(2), seconds_then[0])
    torch.save(state, file)
    file.seek(0)
    again, _, dense_again = run(half, range(2, 4), seconds_then[1], torch.load(file, weights_only=True))
    same = all(torch.equal(a, b) for a, b in zip(models.weights(whole).values(), models.weights(again).values()))
    return same, dense, dense_again


def mixed(rank, size):
    """A run that compresses and one that does not, each given what does not go on all ranks: what both are told, whether
    they have what they had, and that they go on. The first states are of two runs, of the second rank 1's lacks a tensor."""
    runs = [attached(models.small(), DGC, seconds) for seconds in (FAST, SLOW)]
    for ddp, _ in runs:
        models.backward(ddp, rank, 0)
    states = [compressor.state_dict() for _, compressor in runs]
    short = [{name: value for name, value in state.items() if rank == 0 or name != f"{begin}/4.weight"}
             for state, begin in zip(states, ("residual", "velocity"))]
    short[1] = short[1] if rank == 0 else {**short[1], "velocity/4.weight": torch.zeros(7)}
    texts, kept = [], []
    for ddp, compressor in runs:
        ddp.zero_grad()
        models.backward(ddp, rank, 1)
        before = compressor.state_dict()
        for wrong in (states[rank], states[1 - rank], *short):
            try:
                compressor.load_state_dict(wrong)
            except thinwire.Error as error:
                texts.append(f"{error.name}: {error}")
            kept.append(same_entries(compressor.state_dict(), before))
        ddp.zero_grad()
        models.backward(ddp, rank, 2)
        kept.append(models.same_everywhere(ddp.module))
        for right in states:
            compressor.load_state_dict(right)
            kept.append(same_entries(compressor.state_dict(), right))
    return texts, kept


def rates_after_a_fallback(rank, size):
    """How often the learning rates are told to a scheme that goes on from a state, after one of the fallback came in between."""
    _, other = attached(models.small(), "sdagc:density=0.05")
    ddp, compressor = attached(models.small(), "sdagc:density=0.05", FAST)
    compressor._optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
    told = []
    with mock.patch.object(Reducer, "set_rates", lambda reducer, rates: told.append(rates)):
        models.backward(ddp, rank, 0)
        state = compressor.state_dict()
        for loaded in (other.state_dict(), state):
            compressor.load_state_dict(loaded)
            ddp.zero_grad()
            models.backward(ddp, rank, 1)
    return len(told)


def same_entries(one, other):
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) if torch.is_tensor(value) else value == other[name] for name, value in one.items())


def saved_by(rank, size):
    ddp, compressor = attached(models.small(), DGC)
    models.backward(ddp, rank, 0)
    return compressor.state_dict()


def taken_over(rank, size, states):
    """By another number of ranks, and by an Exchange, which cannot."""
    ddp, compressor = attached(models.small(), DGC, FAST)
    compressor.load_state_dicts(states)
    same = all(torch.equal(compressor.state_dict()[name], value) for name, value in states[0].items() if "velocity" in name)
    text = ""
    if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        with thinwire.torch.Exchange(models.small(), DGC, banner=False, timeout=ranks.SECONDS) as exchange:
            text = ranks.refused(lambda: exchange.compressor.load_state_dicts(states))
    return same, compressor.dense, text or "an Exchange does not"


def told(rank, size):
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        ddp, compressor = attached(models.small(), "dgc:density=0.02", banner=True)
    models.backward(ddp, rank, 0)
    plan = compressor.plan()
    with mock.patch("socket.gethostname", lambda: f"machine{rank}"):
        apart = attached(models.small(), "dgc:density=0.02")[1].banner()
    return text.getvalue(), compressor.summary(), compressor.stats(), set(plan.values()), compressor.momentum, apart


def changes(rank, size):
    """set_scheme leaves the fallback; a scheme after "allreduce"; one that clips stays; one that is closed says so."""
    ddp, compressor = attached(models.small(), "topk")
    models.backward(ddp, rank, 0)
    was_dense = compressor.dense
    compressor.set_scheme("topk:density=0.1")
    models.backward(ddp, rank, 1)
    other, dense = attached(models.small(), "allreduce")
    models.backward(other, rank, 0)
    again, clips = None, attached(models.small(), f"{DGC},clip=1")[1]
    with mock.patch.object(type(compressor), "weigh", lambda self: self._fall_back()):
        again = thinwire.torch.attach(other, "topk", fallback=True, banner=False, timeout=ranks.SECONDS)
    models.backward(other, rank, 1)
    again.close()
    try:
        models.backward(other, rank, 2)
        text = ""
    except RuntimeError as error:
        text = str(error)
    return was_dense, compressor.dense, compressor.stats()["steps"], clips.dense, again.spec, text


CASES = [(decided, 0.25, 1e-6), (decided, 1e-6, 1e-6), (really_measured,), (cut,), (names_what_is_not_measured,), (leaves_no_trace,), (not_alike,),
         (with_momentum, False), (with_momentum, True), (without_momentum,), (not_finite, "skip"), (not_finite, "raise"),
         (not_finite, "nan"), (scaled,), (unused,), (resumed, (SLOW, FAST)), (resumed, (FAST, SLOW)), (mixed,), (told,), (changes,),
         (rates_after_a_fallback,)]


def one_after_the_other(rank, size):
    """In the same processes, of which the start is what takes long."""
    return [function(rank, size, *arguments) for function, *arguments in CASES]


class FallbackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.outcomes = list(zip(*ranks.on_ranks(2, one_after_the_other)))

    def of(self, *case):
        """What both ranks found."""
        return list(self.outcomes[CASES.index(case)])

    def test_the_slowest_rank_decides_for_all(self):
        for scheme, dense in ((0.25, 1e-6), (1e-6, 1e-6)):
            for costs, is_dense, count in self.of(decided, scheme, dense):
                self.assertAlmostEqual(costs.scheme, 2 * scheme)
                self.assertAlmostEqual(costs.dense, 2 * dense * count)
                self.assertEqual(is_dense, scheme == 0.25)

    def test_all_ranks_are_told_the_same_times(self):
        first, second = self.of(really_measured)
        self.assertEqual(first, second)
        self.assertGreater(min(first[0]), 0)
        self.assertEqual(first[1], first[0][1] <= first[0][0])

    def test_of_a_large_model_and_on_a_slow_line_a_part_is_measured(self):
        for sample, costs, elements, count in self.of(cut):
            self.assertEqual(sample, [("0.weight", (100, 64)), ("0.bias", (100,)), ("1.weight", (10, 1024))])
            part = 6500 + 10 * 1024
            self.assertEqual(elements, [part // 8])
            self.assertAlmostEqual(costs.scheme, count / part)
            self.assertAlmostEqual(costs.dense, 1e-3 * (part // 8) * 8 * count / part)

    def test_a_spec_may_name_what_is_not_measured(self):
        for measured in self.of(names_what_is_not_measured):
            self.assertEqual(measured, [True] * 3)

    def test_measuring_leaves_no_trace(self):
        self.assertEqual(self.of(leaves_no_trace), [(True, [(False, False), (False, True)])] * 2)

    def test_one_rank_that_wants_none_has_its_way(self):
        self.assertEqual(self.of(not_alike), [(False, None, True, False)] * 2)

    def test_the_momentum_of_the_scheme_goes_on(self):
        for nesterov in (False, True):
            for difference, moved, same in self.of(with_momentum, nesterov):
                self.assertLess(difference, 1e-6)
                self.assertGreater(moved, 1e-2)
                self.assertTrue(same)

    def test_without_momentum_it_is_plain_ddp(self):
        self.assertEqual(self.of(without_momentum), [(True, 3)] * 2)

    def test_a_step_that_is_not_finite_is_skipped(self):
        for nonfinite, kind in (("skip", "zero"), ("raise", "zero"), ("nan", "nan")):
            for kinds, raised, skipped, kept in self.of(not_finite, nonfinite):
                self.assertEqual(kinds, ["numbers", kind, "numbers"])
                self.assertEqual([step for step, _ in raised], [1] if nonfinite == "raise" else [])
                self.assertEqual((skipped, kept), (1, True))

    def test_velocity_has_no_scale(self):
        self.assertEqual(self.of(scaled), [True, True])

    def test_what_nobody_uses_keeps_its_velocity(self):
        self.assertEqual(self.of(unused), [(True, False)] * 2)

    def test_a_resumed_run_exchanges_as_it_did(self):
        self.assertEqual(self.of(resumed, (SLOW, FAST)), [(True, True, True)] * 2)
        self.assertEqual(self.of(resumed, (FAST, SLOW)), [(True, False, False)] * 2)

    def test_a_state_is_loaded_by_all_ranks_or_by_none(self):
        (first, kept), (second, kept_too) = self.of(mixed)
        self.assertTrue(all(kept + kept_too), (kept, kept_too))
        parts = ["rank 1 has the state of a run whose exchange torch did itself, and rank 0 that of one that compressed",
                 "rank 0 has the state of a run whose exchange torch did itself, and rank 1 that of one that compressed",
                 "residual/4.weight", "velocity/4.weight"] * 2
        self.assertEqual([len(first), len(second)], [len(parts)] * 2)
        for one, other, part in zip(first, second, parts):
            self.assertIn("TW_ERROR_STATE", one)
            self.assertIn(part, one)
            self.assertEqual(one.replace("rank 1: ", ""), other)

    def test_another_number_of_ranks_goes_on(self):
        states = ranks.on_ranks(4, saved_by)
        for same, dense, text in ranks.on_ranks(2, taken_over, states):
            self.assertTrue(same and dense)
            self.assertIn("an Exchange does not", text)

    def test_it_is_told(self):
        first, second = self.of(told)
        for part in ("NOTHING IS COMPRESSED", "all workers are on one machine", "fallback=False or set THINWIRE_FALLBACK=off"):
            self.assertIn(part, first[0])
        self.assertNotIn("one machine", first[5])
        self.assertIn("trainable parameters takes 2,000 ms a step with dgc here, and 1,000 ms with torch's", first[0])
        self.assertEqual(second[0], "")
        self.assertIn("1 step by torch's own", first[1])
        self.assertEqual(first[2], {"fallback": 1, "measured_scheme": 2.0, "measured_dense": 1.0, "steps": 1,
                                    "steps_skipped": 0})
        self.assertEqual(first[3], {"dense: torch's own all-reduce"})
        self.assertAlmostEqual(first[4][0], 0.9, places=6)

    def test_learning_rates_are_told_again(self):
        self.assertEqual(self.of(rates_after_a_fallback), [2] * 2)

    def test_schemes_can_be_changed(self):
        for was, now, steps, clips, spec, text in self.of(changes):
            self.assertEqual((was, now, steps, clips, spec), (True, False, 1, False, "topk"))
            self.assertIn("the compressor was closed", text)


if __name__ == "__main__":
    unittest.main()
