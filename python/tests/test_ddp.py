#!/usr/bin/env python3
"""attach() in the corners of DistributedDataParallel."""

import contextlib
import copy
import gc
import importlib.util
import io
import unittest
import warnings
from inspect import signature
from unittest import mock

import models
import ranks
import thinwire.torch
import torch
import torch.distributed as dist
from thinwire.torch import _bucket, _optimiser, _transport
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

TOPK = "topk:density=0.05,leftovers=fp32"
EVERYTHING = "topk:density=0.05,min_dims=0,min_elements=1"


def attached(model, spec=TOPK, attach=None, **more):
    return models.attached(model, spec, more, **(attach or {}))


def mass(compressor, name):
    """What this rank holds back of a tensor."""
    return compressor.state_dict()[f"residual/{name}"].double()


def over_ranks(tensor):
    total = tensor.clone().double()
    dist.all_reduce(total)
    return total


class TwoParts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x, with_b):
        return self.b(self.a(x)).square().mean() if with_b else self.a(x).square().mean()


def inputs(rank, step):
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(10 * step + rank))


def unused(rank, size, uses, more):
    """uses[step] is who uses b. After each step: the mean of b.weight (0 where there is none), and what ranks hold back."""
    ddp, compressor = attached(TwoParts(), TOPK, **{"find_unused_parameters": True, **more})
    results = []
    for step, users in enumerate(uses):
        ddp.zero_grad()
        before = mass(compressor, "b.weight")
        ddp(inputs(rank, step), rank in users).backward()
        grad = ddp.module.b.weight.grad
        results.append((None if grad is None else float(grad.abs().sum()), float(before.abs().sum()),
                        bool((mass(compressor, "b.weight") == before).all())))
    return results


def accumulated(rank, size):
    """Four micro-steps, of which the last sends, give the mean of their sum."""
    model = models.small().eval()
    ddp, compressor = attached(copy.deepcopy(model), "topk:density=1,leftovers=fp32,values=fp32")
    alone = copy.deepcopy(model)
    for step in range(4):
        with ddp.no_sync() if step < 3 else contextlib.nullcontext():
            models.backward(ddp, rank, step)
        models.backward(alone, rank, step)
    worst = max(float((over_ranks(g) / size - models.gradients(ddp.module)[n]).abs().max())
                for n, g in models.gradients(alone).items())
    return worst, compressor.stats()["steps"]


def second_pass(rank, size, spec, make, falls_back, ddp_more):
    """What is said of a second pass that sends, by what is done between the two."""
    texts = {}
    for way in ("nothing", "a pass that adds", "clipped", "stepped", "zeros", "none", "local", "skipped"):
        model = models.small()
        optimiser = make(model.parameters())
        ddp, compressor = attached(model, spec, {"optimizer": optimiser}, find_unused_parameters=True, **ddp_more)
        if falls_back:
            compressor._fall_back()

        def local_pass():
            with ddp.no_sync():
                models.backward(ddp, rank, 3)

        local_pass()
        models.backward(ddp, rank, 0, float("nan") if way == "skipped" else 1.0)
        if way in ("clipped", "stepped"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        if way == "stepped":
            optimiser.step()
        if way in ("zeros", "none", "local"):
            optimiser.zero_grad(set_to_none=way != "zeros")
        if way in ("a pass that adds", "local"):
            local_pass(), local_pass()
        texts[way] = ranks.refused(lambda: models.backward(ddp, rank, 1))
        compressor.close()
    return texts


def odd_parameters(rank, size):
    """Scalars, empty, sparse, frozen, tied, half and double parameters side by side."""
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.scalar, self.empty = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.zeros(0))
            self.table = nn.Embedding(50, 8, sparse=True)
            self.first = nn.Linear(8, 8, bias=False)
            self.again = self.first
            self.frozen = nn.Linear(8, 8)
            self.frozen.requires_grad_(False)
            self.doubled = nn.Linear(8, 24).double()
            self.halved = nn.Parameter(torch.ones(40, 8, dtype=torch.float16))

        def forward(self, at):
            x = self.again(self.first(self.table(at))) * self.scalar + self.empty.sum()
            x = self.frozen(x) + (self.halved.float() * x.sum()).sum()
            return self.doubled(x.double()).square().mean()

    torch.manual_seed(0)
    model = Odd()
    ddp, compressor = attached(copy.deepcopy(model), "topk:density=1,min_dims=0,min_elements=1,values=fp32",
                               gradient_as_bucket_view=False)
    at = torch.tensor([rank, rank + 1, 7])
    ddp(at).backward()
    model(at).backward()
    worst = 0.0
    for (name, p), q in zip(ddp.module.named_parameters(), model.parameters()):
        if q.grad is None or q.numel() == 0:
            continue
        expected = over_ranks(q.grad.to_dense() if q.grad.is_sparse else q.grad) / size
        got = p.grad.to_dense() if p.grad.is_sparse else p.grad
        precision = 1e-2 if p.dtype is torch.float16 else 1e-6
        worst = max(worst, float((got - expected).abs().max() / expected.abs().max().clamp(min=1e-3)) / precision)
        assert got.dtype is p.dtype
    plan = compressor.plan()
    return worst, {name: plan.get(name) for name in ("empty", "table.weight", "frozen.weight", "again.weight")}


def complex_parameters(rank, size, fallback):
    """What becomes of a complex parameter, and how far its gradients are from plain DDP's, of which thinwire's sends all."""
    model = nn.Linear(8, 8)
    model.turn = nn.Parameter(torch.ones(8, dtype=torch.complex64))
    plain = models.wrapped(copy.deepcopy(model))
    ddp, compressor = attached(copy.deepcopy(model), "topk:dense=*,leftovers=fp32")
    if fallback:
        compressor._fall_back()
    for one in (plain, ddp):
        one.module.forward = lambda x, one=one.module: (nn.functional.linear(x, one.weight, one.bias) * one.turn).abs().square().mean()
    worst = 0.0
    for step in range(3):
        for one in (plain, ddp):
            one.zero_grad()
            one(inputs(rank, step)[:, :8]).backward()
        ours, theirs = models.gradients(ddp.module), models.gradients(plain.module)
        worst = max(worst, *(float((ours[name] - theirs[name]).abs().max()) for name in theirs))
    return worst, compressor.plan()["turn"]


def wrong_number(rank, size):
    try:
        attached(models.small(), "dgc-adam:beta2=high")
    except thinwire.torch.Error as error:
        return f"{type(error).__name__} {error}"


def uneven(rank, size):
    """Rank 0 has fewer batches; join() has it take part all the same."""
    ddp, compressor = attached(models.small().eval(), EVERYTHING)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.01)
    with ddp.join():
        for step in range(2 + 2 * rank):
            optimiser.zero_grad()
            models.backward(ddp, rank, step)
            optimiser.step()
    return models.same_everywhere(ddp.module), compressor.stats()["steps"]


def another_scheme(rank, size):
    """A second attach takes the place of the first; set_scheme keeps what is held back."""
    ddp, first = attached(models.small(), EVERYTHING)
    models.backward(ddp, rank, 0)
    second = thinwire.torch.attach(ddp, TOPK, banner=False)
    ddp.zero_grad()
    models.backward(ddp, rank, 1)
    held = mass(second, "4.weight")
    second.set_scheme("topk:density=0.5,leftovers=fp32")
    kept = bool((mass(second, "4.weight") == held).all())
    models.backward(ddp, rank, 2)
    dense = thinwire.torch.attach(ddp, "allreduce", banner=False)
    models.backward(ddp, rank, 3)
    return first._reducer.closed, kept, second.spec, dense.dense, models.same_everywhere(ddp.module)


def another_scheme_that_does_not_fit(rank, size):
    """What held back for all tensors has no place where some are left out: what is said, and the momentum that is applied then."""
    model = models.small()
    optimiser = thinwire.torch.SGD(model.parameters(), 0.05, momentum=0.9)
    ddp, compressor = attached(model, "dgc:density=0.05", {"optimizer": optimiser})
    models.train(ddp, optimiser, rank, range(1))
    text = ranks.refused(lambda: compressor.set_scheme("dgc:dense=*,momentum=0"))
    models.train(ddp, optimiser, rank, range(1, 2))
    return text, round(compressor.momentum[0], 6), optimiser.takes_directions


def refusals(rank, size):
    texts = []

    def refused(*arguments, **more):
        try:
            thinwire.torch.attach(*arguments, banner=False, **more)
            texts.append("")
        except thinwire.Error as error:
            texts.append(f"{type(error).__name__}: {error}")

    ddp = models.wrapped(models.small())
    refused(models.small(), "dgc")
    refused(ddp, "dgc:dens=0.1")
    refused(ddp, "topk" if rank else "topk:density=2")
    refused(ddp, "topk" if rank else "allreduce")
    refused(ddp, "topk" if rank else "allreduce:message_kb=4")
    refused(ddp, "dgc", optimizer=torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9))
    refused(ddp, "dgc", optimizer=torch.optim.Adam(ddp.parameters()))
    refused(ddp, "sdagc", optimizer=torch.optim.SGD(list(ddp.parameters())[1:], lr=0.1))
    refused(ddp, "allreduce", expect_ratio=50)
    refused(ddp, "topk", expect_ratio=float("nan"))
    refused(ddp, "topk", expect_ratio="50")
    refused(ddp, "dgc", transport="pigeons")
    refused(ddp, "dgc", nonfinite="never")
    refused(ddp, None)
    refused(ddp, "dgc", timeout="soon")
    refused(ddp, "dgc", patience=0)
    refused(ddp, "dgc", optimizer=3)
    refused(ddp, "dgc", scaler=5)
    refused(ddp, "dgc:momentum=0", optimizer=torch.optim.Adam(ddp.parameters()))
    return texts


def one_rank_refused(rank, size):
    """What is wrong on rank 1 alone ends attach() on all, long before its timeout, and the group goes on."""
    ddp = models.wrapped(models.small())
    heavy = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    one, = thinwire.Comm.threads(1)
    texts = []
    for odd in ({"transport": "pigeons"}, {"transport": "mpi"}, {"transport": one}, {"transport": thinwire.torch.Tcp(bind="nowhere")},
                {"timeout": 0}, {"optimizer": heavy}, {"nonfinite": "never"}, {"spec": "dgc:momentum=0"}, {"spec": "no"}):
        options = {"spec": "dgc", "timeout": 1e6, "banner": False, **(odd if rank else {})}
        texts.append(ranks.refused(lambda: thinwire.torch.attach(ddp, options.pop("spec"), **options)))
        dist.barrier()
    for odd in (lambda is_odd: setattr(ddp, "_use_python_reducer", is_odd), lambda is_odd: ddp.module.requires_grad_(not is_odd)):
        odd(rank == 1)
        texts.append(ranks.refused(lambda: thinwire.torch.attach(ddp, "allreduce", timeout=1e6, banner=False)))
        odd(False)
        dist.barrier()
    own = _transport.with_comm("tcp", None, _transport.Limits(1e6), lambda comm: comm)
    for more in ({"nonfinite": "never"} if rank else {}, {}):
        try:
            texts.append(str(thinwire.torch.attach(ddp, "dgc", transport=own, banner=False, **more).dense))
        except thinwire.Error as error:
            texts.append(str(error))
    return texts


def momentum_noticed(rank, size):
    """From torch 2.0 on an optimiser that nobody told of is looked at when it steps."""
    ddp, compressor = attached(models.small(), "dgc")
    models.backward(ddp, rank, 0)
    optimiser, texts = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(2):
        texts.append(ranks.refused(optimiser.step))
    torch.optim.SGD(ddp.parameters(), lr=0.1).step()
    return texts


def two_on_one_comm(rank, size):
    """Two modules share connections; each exchanges as if it were alone."""
    comm = _transport.with_comm("tcp", None, _transport.Limits(ranks.SECONDS), lambda comm: comm)
    shared = [attached(models.small(seed), EVERYTHING, {"transport": comm})[0] for seed in (1, 2)]
    alone = [attached(models.small(seed), EVERYTHING)[0] for seed in (1, 2)]
    same = []
    for step in range(3):
        for ddp in shared + alone:
            ddp.zero_grad()
            models.backward(ddp, rank, step)
        same += [torch.equal(a, b) for one, other in zip(shared, alone)
                 for a, b in zip(models.gradients(one).values(), models.gradients(other).values())]
    return all(same)


def skips_unused(rank, size):
    """DDP may leave out the buckets that nobody used, where all ranks use the same."""
    return unused(rank, size, [{0, 1}, set(), set(), {0, 1}], {"skip_all_reduce_unused_params": True, "bucket_cap_mb": 0.001})


def delayed(rank, size):
    """DDP exchanges the parameters it was told to delay by itself; the others are thinwire's. It begins that all-reduce in
    backward and waits for it nowhere. Gloo's barrier waits for whatever was begun before."""
    model, results = models.small(), []
    for ours in (False, True):
        copied = copy.deepcopy(model)
        last = dict(copied.named_parameters())["6.weight"]
        more = {"delay_all_reduce_named_params": [("6.weight", last)], "param_to_hook_all_reduce": copied[0].weight}
        if ours:
            ddp, compressor = attached(copied, "topk:density=1,min_dims=0,min_elements=1,values=fp32", **more)
        else:
            ddp = models.wrapped(copied, **more)
        models.backward(ddp, rank, 0)
        dist.barrier()
        results.append(models.gradients(ddp.module))
    worst = max(float((results[0][n] - results[1][n]).abs().max()) for n in results[0])
    return worst, "6.weight" in compressor.plan(), set(results[1]) == set(dict(model.named_parameters()))


def alone(rank, size):
    """What needs no other rank: the room for gradients that no hook was called for, under another default type; a step
    that is broken off in the middle; DDP's Python reducer."""
    ddp, compressor = attached(models.small(), EVERYTHING)
    made, empty = [], torch.empty
    torch.set_default_dtype(torch.float16)
    try:
        with mock.patch.object(torch, "empty", lambda *a, **b: made.append(empty(*a, **b)) or made[-1]):
            compressor.finish()
    finally:
        torch.set_default_dtype(torch.float32)
    room = [(t.dtype is torch.float32, t.numel()) for t in made]
    fits = room == [(True, p.numel()) for p in ddp.parameters()]
    submit, calls = thinwire.reducer.library.tw_reducer_submit, []

    def breaks(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        submit(*arguments)

    try:
        with mock.patch.object(thinwire.reducer.library, "tw_reducer_submit", breaks):
            models.backward(ddp, rank, 0)
        broken = ""
    except (KeyboardInterrupt, RuntimeError) as error:
        broken = repr(error)
    other = models.wrapped(models.small())
    other._use_python_reducer = True
    texts = []
    for spec in ("topk", "allreduce:message_kb=4096", "allreduce,message_kb=4096"):
        texts.append(ranks.refused(lambda: thinwire.torch.attach(other, spec, banner=False)))
        other._use_python_reducer = False
    return fits, broken, compressor._reducer.closed, texts, given_up(rank, size), own_limits()


def own_limits():
    """How long the connections that attach() opens are told to wait, where nobody says it."""
    with mock.patch.object(thinwire.Comm, "set_timeout") as timeout, mock.patch.object(thinwire.Comm, "set_patience") as patience:
        thinwire.torch.attach(models.wrapped(models.small()), TOPK, banner=False)
    return {call.args for call in timeout.mock_calls}, {call.args for call in patience.mock_calls}


def given_up(rank, size):
    """The library's threads have the buckets of a pass that was broken off for no longer than somebody has the module."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1 << 15))  # of more than DDP's first bucket
    ddp, compressor = attached(model, bucket_cap_mb=1)
    ddp(torch.ones(1, 16)).sum().backward()  # DDP makes its buckets anew in the next one
    model[0].register_forward_hook(lambda module, given, values: models.Broken.apply(values))
    models.broken_off(ddp(torch.ones(1, 16)).sum())
    del model, ddp
    gc.collect()
    return ranks.refused(compressor.stats)


def odd_modules(rank, size):
    """One that has a hook already; one that is compiled; a copy; a Ctrl-C between the library's calls."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    taken, made = models.wrapped(models.small()), []
    taken.register_comm_hook(None, default_hooks.allreduce_hook)
    opened = thinwire.torch.ddp.Compressor
    with mock.patch.object(thinwire.torch.ddp, "Compressor", lambda *a, **b: made.append(a[3]) or opened(*a, **b)):
        text = ranks.refused(lambda: thinwire.torch.attach(taken, TOPK, banner=False))
    ddp = models.wrapped(models.small())
    compiled = torch.compile(ddp, backend="aot_eager") if hasattr(torch, "compile") else ddp
    compressor = thinwire.torch.attach(compiled, TOPK, banner=False)
    models.backward(ddp, rank, 0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        copied = copy.deepcopy(ddp)
    models.backward(copied, rank, 0)
    steps, broken = compressor.stats()["steps"], ""
    with mock.patch.object(_bucket.Bucket, "addresses", mock.Mock(side_effect=KeyboardInterrupt)):
        try:
            models.backward(ddp, rank, 1)
        except (KeyboardInterrupt, RuntimeError) as error:
            broken = repr(error)
    return text, made[0].closed, steps, [str(one.message) for one in warned], broken, compressor._reducer.closed


def ratio(rank, size):
    ddp, compressor = attached(models.small(), "topk:density=0.1", {"expect_ratio": 1000})
    try:
        for step in range(20):
            models.backward(ddp, rank, step)
    except RuntimeError as error:
        return step, str(error)


def adapters(rank, size):
    """Frozen layers with low-rank adapters, made by hand and by peft: what is exchanged, and how wrong its mean is."""
    everything, made = "topk:density=1,values=fp32,leftovers=fp32,min_elements=1,min_dims=1", []

    class LowRank(torch.nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.up = torch.nn.Parameter(torch.ones(weight.shape[0], 2))
            self.down = torch.nn.Parameter(torch.ones(2, weight.shape[1]))

        def forward(self, weight):
            return weight + self.up @ self.down

    by_hand = models.small().requires_grad_(False)
    for layer in (by_hand[4], by_hand[6]):
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight))
    made.append(by_hand)
    if importlib.util.find_spec("peft") and not torch.__version__.startswith("1."):
        from peft import LoraConfig, get_peft_model
        made.append(get_peft_model(models.small(), LoraConfig(r=2, target_modules=["4", "6"], init_lora_weights=False)))
    found = []
    for model in made:
        trained = [p for p in model.parameters() if p.requires_grad]
        for parameter in trained:
            dist.broadcast(parameter.data, 0)
        alone = copy.deepcopy(model)
        ddp, compressor = attached(model, everything)
        models.backward(ddp, rank, 0), models.backward(alone, rank, 0)
        apart = 0.0
        for parameter, own in zip(trained, (p for p in alone.parameters() if p.requires_grad)):
            mean = over_ranks(own.grad) / size
            apart = max(apart, float((parameter.grad.double() - mean).abs().max() / mean.abs().max()))
        counts = compressor.stats()
        found.append((list(compressor.plan()), counts["message_fp32"], 4 * sum(p.numel() for p in trained), apart,
                      all(p.grad is None for p in model.parameters() if not p.requires_grad)))
    return found


def ratios(rank, size):
    """In a warm-up whose packets carry a quarter of the elements, and after it; and what was sent in all."""
    ddp, compressor = attached(models.small(), "dgc:density=0.01,warmup_steps=2,warmup_density=0.25,values=fp32")
    found = []
    for step in range(4):
        ddp.zero_grad()
        models.backward(ddp, rank, step)
        counts = compressor.stats()
        found.append((counts["ratio"], counts["ratio_traffic"], counts["bytes_dense"] / counts["bytes_sent"]))
    return found, counts["message_fp32"] / counts["message_packet"]


def told(rank, size):
    ddp, text = models.wrapped(models.small()), io.StringIO()
    with contextlib.redirect_stderr(text):
        compressor = thinwire.torch.attach(ddp, "dgc:density=0.02")
    models.backward(ddp, rank, 0)
    scalars = {}

    class Writer:
        def add_scalar(self, name, value, step):
            scalars[name] = value, step

    compressor.write_scalars(Writer(), 7)
    return text.getvalue(), compressor.summary(), scalars


class Gone(io.StringIO):
    """A pipe whose other end nobody has any more."""

    def write(self, text):
        raise BrokenPipeError


def unread(rank, size):
    """What is trained where nobody reads what is told, by a scheme and by local updates."""
    ddp, model = models.wrapped(models.small()), models.small()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with contextlib.redirect_stderr(Gone()):
        compressor = thinwire.torch.attach(ddp, "dgc:density=0.02")
        models.backward(ddp, rank, 0)
        with thinwire.torch.OuterLoop(model, optimiser, "local:every=1", hook=False) as loop:
            models.backward(model, rank, 0)
            optimiser.step()
            loop.step()
            loop.finish()
    return compressor.stats()["steps"], loop.stats()["rounds"] > 0


def compiled(rank, size):
    """torch.compile leaves the hook, and the bits, as they are."""
    model = models.small()
    plain, other = (attached(copy.deepcopy(model))[0] for _ in range(2))
    faster, same = torch.compile(other, backend="aot_eager"), []
    for step in range(3):
        plain.zero_grad(), other.zero_grad()
        models.backward(plain, rank, step), models.backward(faster, rank, step)
        one, two = models.gradients(plain.module), models.gradients(other.module)
        same += [torch.equal(one[name], two[name]) for name in one]
    return all(same)


def autocast(rank, size):
    """bf16 in the forward pass leaves gradients fp32, and their mean is right: how far off, and what type they have."""
    model = models.small().eval()
    ddp, compressor = attached(copy.deepcopy(model), "topk:density=1,leftovers=fp32,values=fp32")
    alone = copy.deepcopy(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ddp(models.batch(rank, 0)[0]).dtype == torch.bfloat16
        models.backward(ddp, rank, 0), models.backward(alone, rank, 0)
    got = models.gradients(ddp.module)
    worst = max(float((over_ranks(g) / size - got[n]).abs().max()) for n, g in models.gradients(alone).items())
    return worst, {str(g.dtype) for g in got.values()}


class BucketTest(unittest.TestCase):
    def test_other_devices_are_refused(self):
        from thinwire.torch import _parameters, ddp
        rows, _ = _parameters.table_of(torch.nn.Linear(2, 2, device="meta"))
        with self.assertRaisesRegex(thinwire.torch.Error, "weight is on meta; thinwire takes parameters in the host"):
            ddp._refuse_devices(rows)


class DdpTest(unittest.TestCase):
    def test_an_unused_parameter_keeps_what_it_holds_back(self):
        everybody, nobody, first = {0, 1}, set(), {0}
        results = ranks.on_ranks(2, unused, [everybody, everybody, nobody, nobody, first, everybody], {})
        for rank, steps in enumerate(results):
            for mean, held, unchanged in steps[2:4]:
                self.assertIn(mean, (None, 0.0))
                self.assertGreater(held, 0)
                self.assertTrue(unchanged)
            self.assertGreater(steps[4][0], 0)
            self.assertEqual(steps[4][2], rank != 0)
        self.assertEqual(*[[mean for mean, _, _ in steps] for steps in results])

    def test_no_sync_sends_the_sum(self):
        for worst, steps in ranks.on_ranks(2, accumulated):
            self.assertLess(worst, 1e-6)
            self.assertEqual(steps, 1)

    @unittest.skipUnless(hasattr(torch.optim.Optimizer, "register_step_pre_hook"), "torch tells of no step before 2.0")
    def test_a_pass_that_adds_to_a_direction_is_refused(self):
        adam, sgd = thinwire.torch.AdamW, lambda parameters: torch.optim.SGD(parameters, 0.01)
        for spec, make, falls_back in (("dgc-adam", adam, False), ("onebit-adam", adam, False), ("dgc", sgd, False), ("sdagc", sgd, False),
                                       ("demo", sgd, False), ("dgc", sgd, True), ("topk", sgd, False), ("dgc:momentum=0", sgd, False)):
            right = spec in ("topk", "dgc:momentum=0")
            for texts in ranks.on_ranks(2, second_pass, spec, make, falls_back, {"gradient_as_bucket_view": falls_back}):
                for way, text in texts.items():
                    with self.subTest(spec=spec, way=way):
                        refused = not right and way in ("nothing", "a pass that adds", "clipped")
                        self.assertEqual("into no_sync()" in text, refused, text)
                        self.assertEqual(bool(text), refused, text)

    def test_parameters_of_all_kinds(self):
        for worst, plan in ranks.on_ranks(2, odd_parameters):
            self.assertLess(worst, 1)
            self.assertEqual(plan["empty"], "empty")
            self.assertIn("sparse", plan["table.weight"])
            self.assertIsNone(plan["frozen.weight"])
            self.assertIsNone(plan["again.weight"])

    def test_join_with_uneven_inputs(self):
        self.assertEqual(ranks.on_ranks(2, uneven), [(True, 4), (True, 4)])

    @unittest.skipIf(torch.__version__.startswith("1."), "DDP of torch 1 broadcasts no complex parameters over Gloo")
    def test_complex_parameters_are_left_to_torch(self):
        for fallback in (False, True):
            for worst, plan in ranks.on_ranks(2, complex_parameters, fallback):
                self.assertLess(worst, 1e-6)
                self.assertEqual(plan, "complex64: torch's own all-reduce")

    def test_a_number_that_is_none_is_the_librarys_to_refuse(self):
        for text in ranks.on_ranks(2, wrong_number):
            self.assertIn("SpecError dgc-adam: beta2=high: beta2 must be a number from", text)

    def test_a_scheme_that_does_not_fit_changes_nothing(self):
        for text, momentum, takes_directions in ranks.on_ranks(2, another_scheme_that_does_not_fit):
            self.assertIn("the saved state has no tensor", text)
            self.assertEqual((momentum, takes_directions), (0.9, True))

    def test_the_scheme_can_be_changed(self):
        self.assertEqual(ranks.on_ranks(2, another_scheme), [(True, True, "topk:density=0.5,leftovers=fp32", True, True)] * 2)

    def test_what_cannot_be_is_refused_in_a_sentence(self):
        parts = ["wrap the module", 'SpecError: dgc: no option "dens"', "rank 0", "rank 0 has the spec", "message_kb",
                 "thinwire.torch.SGD in place of SGD", "with Adam take powersgd:rank=16, qsgd or fp8", "does not have 0.weight",
                 "sends everything", "above 0", "'50'",
                 "pigeons", "nonfinite", "SpecError: the spec is None", "timeout='soon'", "patience=0", "optimizer=3", "scaler=5", ""]
        first, second = ranks.on_ranks(2, refusals)
        self.assertIn("density=2", first[2])
        self.assertNotIn("dgc:momentum=0", "".join(first))
        first[2] = second[2]
        for texts in (first, second):
            self.assertEqual(len(texts), len(parts))
            for text, part in zip(texts, parts):
                self.assertIn(part, text)
            self.assertEqual(texts[-1], "")

    def test_what_is_refused_on_one_rank_ends_the_others_too(self):
        first, second = ranks.on_ranks(2, one_rank_refused)
        parts = ["no transport 'pigeons'", "transport mpi", "transport a thinwire.Comm", "nowhere", "timeout=0", "applied twice",
                 "nonfinite='never'", "", "", "Python reducer", "no parameter to compress", "nonfinite='never'", "False"]
        for told, own, part in zip(first, second, parts, strict=True):
            self.assertIn(part, own)
            self.assertIn(part, told)
            self.assertTrue(own and told)

    def test_training_goes_on_where_nobody_reads_what_is_told(self):
        self.assertEqual(ranks.on_ranks(2, unread), 2 * [(1, True)])

    def test_a_scheme_that_has_to_know_the_rate_says_where_nobody_tells(self):
        for registers, spec, optimiser, warned in ((None, "sdagc", None, 1), (print, "sdagc", None, 0), (None, "topk", None, 0),
                                                   (None, "sdagc:revision=off", None, 0), (None, "sdagc", object(), 0)):
            with mock.patch.object(_optimiser, "registers_steps", lambda: registers), warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                _optimiser.warn_of_unknown_rates(optimiser, spec)
                self.assertEqual(len(told), warned, (spec, registers))

    def test_adam_is_warned_of_gradients_that_come_late(self):
        parameters = [torch.nn.Parameter(torch.zeros(3))]
        adam, sgd, own = torch.optim.AdamW(parameters), torch.optim.SGD(parameters, lr=0.1), thinwire.torch.AdamW(parameters)
        for spec, optimiser, warned in (("topk:density=0.01", adam, 1), ("scalecom", adam, 1), ("adacomp", own, 1), ("topk", sgd, 0),
                                        ("topk", None, 0), ("topk:density=1", adam, 0), ("powersgd", adam, 0), ("qsgd", adam, 0),
                                        ("dgc-adam", own, 0)):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                _optimiser.settle(optimiser, spec, 0.9 * (spec == "dgc-adam"), False, object(), [])
                self.assertEqual(len(told), warned, spec)

    def test_an_optimiser_with_momentum_is_noticed(self):
        if not hasattr(torch.optim.Optimizer, "register_step_pre_hook"):
            self.skipTest("this torch does not say when an optimiser steps; attach() takes optimizer=")
        for texts in ranks.on_ranks(2, momentum_noticed):
            self.assertEqual([("applied twice" in text) for text in texts], [True, True])

    def test_two_modules_on_one_comm(self):
        self.assertEqual(ranks.on_ranks(2, two_on_one_comm), [True, True])

    def test_a_compiled_module(self):
        if not hasattr(torch, "compile"):
            self.skipTest("this torch has no torch.compile")
        self.assertEqual(ranks.on_ranks(2, compiled), [True, True])

    def test_autocast_to_bf16(self):
        for worst, types in ranks.on_ranks(2, autocast):
            self.assertLess(worst, 1e-6)
            self.assertEqual(types, {"torch.float32"})

    def test_buckets_that_are_left_out(self):
        if "skip_all_reduce_unused_params" not in signature(DistributedDataParallel.__init__).parameters:
            self.skipTest("this torch leaves none out")
        for steps in ranks.on_ranks(2, skips_unused):
            self.assertIn(steps[1][0], (None, 0.0))
            self.assertGreater(steps[1][1], 0)
            self.assertEqual([unchanged for _, _, unchanged in steps], [False, True, True, False])
            self.assertGreater(steps[3][0], 0)

    def test_parameters_that_ddp_delays(self):
        if "delay_all_reduce_named_params" not in signature(DistributedDataParallel.__init__).parameters:
            self.skipTest("this torch delays none")
        for worst, in_plan, all_there in ranks.on_ranks(2, delayed):
            self.assertLess(worst, 1e-6)
            self.assertEqual((in_plan, all_there), (False, True))

    def test_what_a_rank_alone_can_meet(self):
        fits, broken, closed, texts, told, limits = ranks.on_ranks(1, alone)[0]
        self.assertTrue(fits)
        self.assertIn("KeyboardInterrupt", broken)
        self.assertTrue(closed)
        for text, part in zip(texts, ["Python reducer", 'no option "message_kb"', 'no scheme "allreduce,message_kb=4096"']):
            self.assertIn(part, text)
        self.assertIn("given up in the midst of a backward pass", told)
        self.assertEqual(limits, ({(60.0,)}, {(1800.0,)}))

    def test_modules_that_are_taken_compiled_or_copied(self):
        text, closed, steps, warned, broken, broken_off = ranks.on_ranks(1, odd_modules)[0]
        self.assertIn("has a communication hook already", text)
        self.assertEqual((closed, steps, broken_off), (True, 1, True))
        self.assertIn("KeyboardInterrupt", broken)
        if not torch.__version__.startswith("1."):  # which leaves the hook out of a copy
            self.assertIn("exchanges by torch itself until attach()", "".join(warned))

    def test_a_ratio_that_is_not_reached_is_told(self):
        for step, text in ranks.on_ranks(2, ratio):
            self.assertEqual(step, 9)
            self.assertIn("expect_ratio=1000", text)

    def test_of_adapters_what_is_trained_is_sent_and_nothing_else(self):
        for found in ranks.on_ranks(2, adapters):
            for names, sent, trained, apart, frozen in found:
                self.assertEqual(len(names), 4)
                self.assertTrue(all("parametrizations" in name or "lora_" in name for name in names), names)
                self.assertEqual(sent, trained)
                self.assertLess(apart, 1e-6)
                self.assertTrue(frozen)

    def test_the_ratio_in_a_warm_up_is_that_of_what_was_sent(self):
        for found, of_messages in ranks.on_ranks(2, ratios):
            for ratio, traffic, sent in found:
                self.assertEqual(traffic, sent)
            self.assertEqual(found[0][0], found[0][2])
            self.assertGreater(found[0][0], 2)
            self.assertLess(found[0][0], 4)
            self.assertEqual(found[-1][0], of_messages)
            self.assertGreater(of_messages, 20)

    def test_banner_summary_and_scalars(self):
        first, second = ranks.on_ranks(2, told)
        self.assertIn("applies momentum=0.9", first[0])
        self.assertEqual(second[0], "")
        self.assertIn(": 1 step, ", first[1])
        self.assertEqual(first[2]["thinwire/steps"], (1, 7))
        alone, = ranks.on_ranks(1, told)
        self.assertIn("this is the only process, and so nothing is exchanged", alone[0])


if __name__ == "__main__":
    unittest.main()
