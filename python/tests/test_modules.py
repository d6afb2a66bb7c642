#!/usr/bin/env python3
"""Exchange and GossipDataParallel, which do without DDP, and thinwire.torch.SGD."""

import contextlib
import copy
import gc
import unittest
import warnings
import weakref
from unittest import mock

import models
import ranks
import thinwire.torch
import torch
from thinwire.torch import _buffers, _transport
from torch.nn.parallel import DistributedDataParallel

SPEC = "dgc:density=0.05,warmup_steps=2"


def has_hooks():
    return hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


def beside_ddp(rank, size):
    """The same gradients through DDP's buckets and through an Exchange; every other pass accumulates first."""
    model = models.small()
    ddp, alone = models.wrapped(copy.deepcopy(model)), copy.deepcopy(model)
    first = thinwire.torch.attach(ddp, SPEC, banner=False, timeout=ranks.SECONDS)
    second = thinwire.torch.Exchange(alone, SPEC, banner=False, timeout=ranks.SECONDS)
    same = []
    for step in range(6):
        ddp.zero_grad(), alone.zero_grad()
        for module, sync in ((ddp, ddp.no_sync), (alone, second.no_sync)):
            if step % 2:
                with sync():
                    models.backward(module, rank, step + 100)
            models.backward(module, rank, step)
        got, expected = models.gradients(alone), models.gradients(ddp.module)
        same.append(all(torch.equal(got[name], expected[name]) for name in expected))
    first.close(), second.close()
    models.backward(alone, rank, 0)
    return same


def with_ddp(rank, size):
    """An Exchange of a model that a DDP has as well, of one that a DDP has had, and of what a DDP leaves alone."""
    texts, spec = {}, "topk:density=1,values=fp32,leftovers=fp32"
    failed = DistributedDataParallel.__new__(DistributedDataParallel)  # as one whose constructor has failed
    torch.nn.Module.__init__(failed)
    for name in ("around it", "inside it", "before it", "gone", "left alone"):
        model = models.small()
        if name == "left alone":
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [key for key, _ in model.named_parameters() if not key.startswith("0.")])
        net = model if name == "before it" else models.wrapped(model)
        of = net if name == "around it" else torch.nn.ModuleList(list(model.children())[1:]) if name == "left alone" else model
        if name == "gone":
            net.__dict__["itself"] = net  # which only the collector finds
            net = model
        with thinwire.torch.Exchange(of, spec, banner=False, timeout=ranks.SECONDS):
            net = models.wrapped(model) if name == "before it" else net
            texts[name] = ranks.refused(lambda: models.backward(net, rank, 0))
    del failed
    return texts


def partly_used(rank, size):
    """b is used by rank 0 alone, then by nobody: what all get."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(8, 8), "b": torch.nn.Linear(8, 8)})
    with thinwire.torch.Exchange(model, "topk:density=1,values=fp32,leftovers=fp32", banner=False, timeout=ranks.SECONDS):
        results = []
        for users in ({0}, set()):
            model.zero_grad(set_to_none=True)
            x = torch.full((2, 8), rank + 1.0)
            y = model["a"](x)
            (model["b"](y) if rank in users else y).square().mean().backward()
            grad = model["b"].weight.grad
            results.append(None if grad is None else grad.clone())
    return results


def alike_where_partly_used(rank, size, make, spec):
    """Whether the ranks have the same weights after each step: b is used by both, then by rank 0 with a gradient of zeros, by
    nobody, by rank 0 in a step that is skipped, and by rank 1 alone."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(8, 8), "b": torch.nn.Linear(8, 8)})
    optimiser, alike, gradients = make(model.parameters()), [], []
    with thinwire.torch.Exchange(model, spec, optimizer=optimiser, banner=False, timeout=ranks.SECONDS):
        for users, factor in (({0, 1}, 1.0), ({0}, 0.0), (set(), 1.0), ({0}, float("nan")), ({1}, 1.0)):
            optimiser.zero_grad(set_to_none=True)
            y = model["a"](torch.full((2, 8), rank + 1.0))
            ((model["b"](y) * factor).square().mean() + y.square().mean() if rank in users else y.square().mean()).backward()
            gradient = model["b"].weight.grad
            gradients.append(None if gradient is None else bool(gradient.any()))
            before = model["b"].weight.detach().clone()
            optimiser.step()
            alike.append((models.same_everywhere(model), not torch.equal(before, model["b"].weight)))
    return alike, gradients


def used_without_effect(rank, size):
    """b is used by rank 0 alone, with a gradient of zeros, in the first step and in one that is skipped, before any other is taken;
    then it is frozen. Whether the ranks have the same weights after each step, and whether b has moved."""
    alike = []
    for factor in (0.0, float("nan")):
        torch.manual_seed(0)
        model = torch.nn.ModuleDict({"a": torch.nn.Linear(8, 8), "b": torch.nn.Linear(8, 8)})
        optimiser = torch.optim.AdamW(model.parameters(), 0.01, weight_decay=0.1)
        with thinwire.torch.Exchange(model, "topk:density=1,values=fp32,leftovers=fp32", banner=False, timeout=ranks.SECONDS):
            for step in range(3):
                if step == 2:
                    model["b"].requires_grad_(False)
                before = model["b"].weight.detach().clone()
                optimiser.zero_grad(set_to_none=True)
                y = model["a"](torch.full((2, 8), rank + 1.0))
                used = (model["b"](y) * factor).sum() if rank == 0 and step == 0 else 0
                (y.square().mean() + used).backward()
                optimiser.step()
                alike.append((models.same_everywhere(model), not torch.equal(before, model["b"].weight)))
    return alike


def used_before(rank, size):
    """b is used before a run goes on, and then by nobody: whether it has a gradient then, as it would have had in one run."""
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(8, 8), "b": torch.nn.Linear(8, 8)})
    state = {}
    for users in ({0}, set()):
        optimiser = torch.optim.AdamW(model.parameters(), 0.01)
        optimiser.load_state_dict(state or optimiser.state_dict())
        with thinwire.torch.Exchange(model, "topk", optimizer=optimiser, banner=False, timeout=ranks.SECONDS):
            optimiser.zero_grad(set_to_none=True)
            y = model["a"](torch.ones(1, 8))
            (model["b"](y) if rank in users else y).sum().backward()
            optimiser.step()
        state = optimiser.state_dict()
    return model["b"].weight.grad is not None


def scaled_from_the_first(rank, size):
    """Whether a GradScaler lowers its scale where the very first pass of an Exchange overflows."""
    model = layers()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16) if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler") else None
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    if scaler is None:
        return True
    with thinwire.torch.Exchange(model, "topk", scaler=scaler, banner=False, timeout=ranks.SECONDS):
        scaler.scale(model(torch.ones(1, 8)).sum() * float("inf")).backward()
        scaler.step(optimiser)
        scaler.update()
    return scaler.get_scale() == 2.0**15


def used_by_nobody(rank, size):
    """Whether in a step, in one that is skipped and in another step a parameter has no gradient; and has one of zeros where it is
    used, but does not matter, as the first factor of an adapter in the first step."""
    model, without = torch.nn.ModuleDict({name: torch.nn.Linear(8, 8) for name in "abc"}), []
    torch.nn.init.zeros_(model["c"].weight), torch.nn.init.zeros_(model["c"].bias)
    with thinwire.torch.Exchange(model, "topk:density=1,values=fp32,leftovers=fp32", banner=False, timeout=ranks.SECONDS):
        for factor in (1.0, float("nan"), 1.0):
            model.zero_grad(set_to_none=True)
            (model["c"](model["a"](torch.ones(1, 8))) * factor).sum().backward()
            without.append(model["b"].weight.grad is None)
            if len(without) == 1:
                matters_not = not model["a"].weight.grad.any()
    return without + [matters_not]


def accumulated(rank, size):
    """What an Exchange says of a second pass that sends before a step, and of one behind no_sync()."""
    model = models.small()
    texts = []
    for first in (contextlib.nullcontext, None):
        optimiser = thinwire.torch.AdamW(model.parameters(), 0.01)
        with thinwire.torch.Exchange(model, "dgc-adam", optimizer=optimiser, banner=False, timeout=ranks.SECONDS) as exchange:
            for _ in range(2):
                optimiser.zero_grad()
                with (first or exchange.no_sync)():
                    models.backward(model, rank, 0)
                texts.append(ranks.refused(lambda: models.backward(model, rank, 1)))
                if texts[-1]:
                    break
                optimiser.step()
    return texts


def left_along(rank, size):
    """What is said of a pass that adds to directions of the one of two optimisers that has not stepped; and of one that does not use a
    layer, whose directions nobody has stepped along."""
    texts = []
    for skips in (False, True):
        model = layers()
        first, second = (torch.optim.SGD(part.parameters(), lr=0.1) for part in model)
        with thinwire.torch.Exchange(model, "dgc", banner=False, timeout=ranks.SECONDS):
            for stepping in (first, second), (second,) if skips else (first,):
                model(torch.ones(1, 8)).sum().backward()
                for optimiser in stepping:
                    optimiser.step()
                    optimiser.zero_grad()
            texts.append(ranks.refused(lambda: (model[1] if skips else model)(torch.ones(1, 8)).sum().backward()))
    return texts


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))


def exchange_of(module, **more):
    return thinwire.torch.Exchange(module, "topk", banner=False, timeout=ranks.SECONDS, **more)


def nobody_has_it(rank, size):
    """The Exchange goes on while the module is there, and goes with it."""
    module = layers()
    exchange = exchange_of(module)
    compressor, seen = exchange.compressor, weakref.ref(exchange)
    second = ranks.refused(lambda: exchange_of(module))
    del exchange
    gc.collect()
    module(torch.ones(1, 8)).sum().backward()
    steps, parameter = compressor.stats()["steps"], module[0].weight
    del module
    gc.collect()
    gone = ranks.refused(lambda: (parameter * 2).sum().backward())
    return second, steps, seen() is None, gone


def closed_and_made_again(rank, size):
    """After close() a backward pass is the module's own, and the module is free for another."""
    module = layers()
    with exchange_of(module) as first:
        pass
    module(torch.ones(1, 8)).sum().backward()
    with exchange_of(module) as second:
        module(torch.ones(1, 8)).sum().backward()
        return second.compressor.stats()["steps"], first.compressor._reducer.closed


def broken_and_gone_on(rank, size):
    """A pass of other parameters does not go on with one that was broken off."""
    module = layers()
    with exchange_of(module):
        models.broken_off(module[0](models.Broken.apply(torch.ones(1, 8, requires_grad=True))).sum())
        return ranks.refused(lambda: module[1](torch.ones(1, 8)).sum().backward())


def broken_and_given_up(rank, size):
    """The library's threads have the gradients of a pass that was broken off for no longer than somebody has the module."""
    module = layers()
    compressor = exchange_of(module).compressor
    models.broken_off(module[1](models.Broken.apply(module[0](torch.ones(1, 8)))).sum())
    del module
    gc.collect()
    return ranks.refused(compressor.stats)


def in_a_checkpoint(rank, size):
    """The first gradients come from inside a pass of its own, whose end is not that of the whole."""
    from torch.utils.checkpoint import checkpoint
    texts = []
    for reentrant in (True, False):
        module = layers()
        with exchange_of(module) as exchange:
            x = torch.ones(1, 8, requires_grad=True)
            y = checkpoint(module[1], module[0](x), use_reentrant=reentrant)
            texts.append(ranks.refused(lambda: y.sum().backward()) or exchange.compressor.stats()["steps"])
    return texts


def trained_later(rank, size):
    """What is said of parameters that are trained since an Exchange or a gossip was made, by its step and its end: of a layer that
    is unfrozen, and of one that is replaced while all else is frozen. What was frozen and stays so is in nobody's way."""
    texts = {}

    def unfreeze(module, optimiser):
        module[0].requires_grad_(True)

    def replace(module, optimiser):
        module[1] = torch.nn.Linear(8, 8)
        optimiser.add_param_group({"params": list(module[1].parameters())})

    for change in (unfreeze, replace):
        for kind in ("exchange", "gossip", "attach"):
            module = layers()
            module[0].requires_grad_(False)
            optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
            if kind != "gossip" and not has_hooks():
                continue
            if kind == "attach":
                ddp, one = models.attached(module, "topk", {"find_unused_parameters": True})
                assert ddp.module is module
            else:
                one = exchange_of(module) if kind == "exchange" else thinwire.torch.GossipDataParallel(module, "dpsgd", optimizer=optimiser)
            step = one.step if kind == "gossip" else optimiser.step
            module(torch.ones(1, 8)).sum().backward()
            step()
            change(module, optimiser)
            before = models.weights(module)
            module(torch.ones(1, 8)).sum().backward()
            texts[kind, change.__name__] = [ranks.refused(act) for act in ((step, one.finish) if kind == "gossip" else (step,))]
            assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
            one.close()
            if kind == "exchange":
                with exchange_of(module):
                    module(torch.ones(1, 8)).sum().backward()
                    optimiser.step()
    return texts


def trained_rightly(rank, size):
    """What looks like a parameter that is trained later, or steps in the pass, and is none that attach() takes."""
    def train(net, optimiser):
        for _ in range(2):
            optimiser.zero_grad()
            net(torch.ones(1, 8)).sum().backward()
            optimiser.step()

    def of(module):
        return torch.optim.SGD(module.parameters(), lr=0.1)

    for closes in (False, True):
        module = layers()
        module[0].requires_grad_(False)
        first, held = models.attached(module, "topk")
        train(first, of(module))
        if closes:
            held.close()
        module[0].requires_grad_(True)
        if closes:
            train(module, of(module))
        train(models.attached(module, "topk")[0], of(module))
        del first
    for specs in (("allreduce",), ("topk", "allreduce")):
        module = layers()
        ddp, _ = models.attached(module, specs[0])
        for spec in specs[1:]:
            thinwire.torch.attach(ddp, spec, banner=False)
        module.add_module("later", torch.nn.Linear(8, 8))
        train(module, of(module))
    module = layers()
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["0.weight", "0.bias"])
    for parameter in module[0].parameters():
        parameter.register_post_accumulate_grad_hook(lambda one: torch.optim.SGD([one], lr=0.1).step())
    before = models.weights(module)
    ddp, _ = models.attached(module, "topk")
    train(ddp, of(module[1]))
    return [bool((p != before[name]).any()) for name, p in module.named_parameters()]


def stepped_in_the_pass(rank, size):
    """What is said where an optimizer steps as soon as its parameter has a gradient, and whether it has stepped."""
    texts = []
    for kind in ("exchange", "attach"):
        module = layers()
        before = models.weights(module)
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(lambda one: torch.optim.SGD([one], lr=0.1).step())
        net, held = (module, exchange_of(module)) if kind == "exchange" else models.attached(module, "topk")
        texts.append(ranks.refused(lambda net=net: net(torch.ones(1, 8)).sum().backward()))
        assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
        held.close()
    return texts


def compiled_gossip(rank, size):
    """The same weights as without torch.compile, which takes forward() with all that it calls: and behind the first pass, which reads
    what all begin with, in one graph."""
    ends = []
    for compiles in ({}, {0: {}}, {1: {"fullgraph": True}}):
        torch._dynamo.reset()
        module = layers()
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        net = gossip = thinwire.torch.GossipDataParallel(module, "dpsgd", optimizer=optimiser, timeout=ranks.SECONDS)
        for step in range(3):
            net = torch.compile(gossip, backend="eager", **compiles[step]) if step in compiles else net
            optimiser.zero_grad()
            net(torch.full((1, 8), step + rank + 1.0)).sum().backward()
            gossip.step()
        gossip.finish()
        ends.append(models.weights(module))
    return [bool(torch.equal(one, other[name])) for other in ends[1:] for name, one in ends[0].items()]


def without_values(rank, size):
    """Parameters of the meta device, and gradients that are no numbers."""
    from thinwire.torch import fsdp
    meta = torch.nn.Linear(2, 2, device="meta")
    compressor = fsdp.ShardCompressor({}, "topk", thinwire.Comm.threads(1)[0], True, None, None)
    return [ranks.refused(lambda: exchange_of(meta)),
            ranks.refused(lambda: thinwire.torch.GossipDataParallel(meta, "dpsgd", optimizer=None)),
            ranks.refused(lambda: compressor._refuse("model", torch.empty(3, dtype=torch.int32)))]


def alone(rank, size):
    """What needs no other rank, in one process."""
    return (nobody_has_it(rank, size), closed_and_made_again(rank, size), in_a_checkpoint(rank, size), without_values(rank, size),
            broken_and_gone_on(rank, size), broken_and_given_up(rank, size))


def gossiped(rank, size, spec, steps):
    """Each rank takes steps of its own length, and finish() gives the mean."""
    model = models.small(seed=rank)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with contextlib.closing(thinwire.torch.GossipDataParallel(model, spec, optimizer=optimiser)) as gossip:
        for step in range(steps):
            optimiser.zero_grad()
            models.backward(gossip, rank, step)
            assert gossip.step()
        taken = gossip.stats()["steps"]
        gossip.finish()
        models.backward(gossip, rank, steps)
    return taken, models.same_everywhere(model), [bool(torch.isfinite(p).all()) for p in model.parameters()]


def averaged(rank, size):
    """One step of dpsgd by hand: the mean of what the ranks stepped to. Rank r moves every weight by r + 1."""
    model = models.small(seed=rank)

    class Moves(torch.optim.Optimizer):
        def step(self):
            for p in model.parameters():
                p.data.add_(rank + 1.0)

    gossip = thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=Moves(model.parameters(), {}))
    start = models.weights(models.small(seed=0))
    gossip.step()
    gossip.finish()
    return max(float((p - start[n] - 1.5).abs().max()) for n, p in models.weights(model).items())


def averaged_in_bf16(rank, size, steps):
    """From 256 on, where bf16 has even numbers alone, rank 0 adds 2 in each step and rank 1 nothing: the mean grows by
    1. The elements lie apart, and what lies between them is nobody's."""
    whole = torch.full((4, 6), 256.0, dtype=torch.bfloat16)
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(whole[:, ::3])

    class Adds(torch.optim.Optimizer):
        def step(self):
            model.weight.data.add_(2.0 - 2 * rank)

    gossip = thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=Adds(model.parameters(), {}))
    for _ in range(steps):
        gossip.step()
    gossip.finish()
    return whole.tolist()


def resumed(rank, size):
    """dpsgd of six steps, and of three and three."""
    def run(steps, state=None):
        model = models.small().eval()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        gossip = thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=optimiser)
        if state:
            gossip.load_gossip_state_dict(state)
        for step in steps:
            optimiser.zero_grad()
            models.backward(gossip, rank, step)
            gossip.step()
        kept = gossip.gossip_state_dict()
        gossip.finish()
        return kept, models.weights(model)

    _, whole = run(range(6))
    state, _ = run(range(3))
    _, again = run(range(3, 6), state)
    return all(torch.equal(whole[name], again[name]) for name in whole)


def ends_without_buffers(rank, size):
    """A rank is lost where all know the mean of the weights, and torch cannot average the buffers."""
    model = models.small()
    gossip = thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with mock.patch.object(_buffers, "average", side_effect=RuntimeError("connection closed by peer")):
        try:
            gossip.finish()
        except RuntimeError as error:
            return str(error), gossip._comm.closed


def lost_steps(rank, size):
    """What a gossip says at its end of steps that another one than it has taken, and whether it leaves them where they are; the
    steps before a counted one are not lost."""
    texts = {}
    for name in ("all", "by hand", "the last", "saved", "of two optimisers", "closed"):
        model = layers()
        first, last, both = (torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[1], model))
        gossip = thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=last if name == "of two optimisers" else both)
        gossip(torch.ones(1, 8)).sum().backward()
        if name == "by hand":
            model[1].weight.data.add_(1)
        elif name == "of two optimisers":
            first.step()
        elif name in ("the last", "closed"):
            gossip.step()
        if name in ("all", "saved", "the last"):
            both.step()
        trained = models.weights(model)
        if name == "of two optimisers":
            gossip.step()
        if name == "closed":
            gossip.close()
            both.step()
        else:
            texts[name] = ranks.refused(gossip.gossip_state_dict if name == "saved" else gossip.finish)
            kept = torch.allclose(trained["0.weight"], model[0].weight, atol=1e-6, rtol=0)
            assert kept or not hasattr(torch.optim.Optimizer, "register_step_pre_hook"), name
        gossip.close()
    return texts


def loaded_too_late(rank, size):
    """What is said of weights that are loaded after a gossip was made, at the first pass and at the first step, and whether they
    are left where they are. Those of a state that is loaded as well are no others."""
    texts, good = [], layers().state_dict()
    for begin in (lambda gossip: gossip(torch.ones(1, 8)), lambda gossip: gossip.step()):
        model = layers()
        with contextlib.closing(thinwire.torch.GossipDataParallel(
                model, "dpsgd", optimizer=torch.optim.SGD(model.parameters(), lr=0.1))) as gossip:
            model.load_state_dict({name: 2 * one for name, one in good.items()})
            texts.append(ranks.refused(lambda: begin(gossip)))
            assert torch.equal(model[0].weight, 2 * good["0.weight"])
            model.load_state_dict(good)
            state = gossip.gossip_state_dict()
            model.load_state_dict({name: 2 * one for name, one in good.items()})
            gossip.load_gossip_state_dict(state)
            begin(gossip)
            assert torch.equal(model[0].weight, good["0.weight"])
            gossip.finish()
    return texts


def refused_beside_a_load(rank, size):
    """What is said of weights that have changed, where a load was refused meanwhile: before the first pass, and at the end."""
    texts, states = [], []
    for begins in (False, True):
        model = layers()
        with contextlib.closing(thinwire.torch.GossipDataParallel(
                model, "dpsgd", optimizer=torch.optim.SGD(model.parameters(), lr=0.1))) as gossip:
            states.append({name: one for name, one in gossip.gossip_state_dict().items() if name != "weights/0.weight"})
            if begins:
                gossip(torch.ones(1, 8))
            loads = (lambda: gossip.load_gossip_state_dict(states[0]), lambda: gossip.load_gossip_state_dicts([states[0]]))
            assert all(ranks.refused(load) for load in loads)
            model.load_state_dict({name: 2 * one for name, one in model.state_dict().items()})
            texts.append(ranks.refused(gossip.finish if begins else lambda: gossip(torch.ones(1, 8))))
    return texts


DOORS = {"gossip": lambda model: thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=torch.optim.SGD(model.parameters(), lr=0.1)),
         **({"exchange": lambda model: thinwire.torch.Exchange(model, "topk", banner=False)} if has_hooks() else {})}


def of_other_models(rank, size):
    """What is said where one rank has a larger model, and where one has nothing that is trained, or a layer without a shape."""
    return {(door, case): ranks.refused(lambda: make(model))
            for door, make in DOORS.items()
            for case, model in (("larger", torch.nn.Linear(8 - rank, 4)), ("frozen", torch.nn.Linear(8, 4).requires_grad_(not rank)),
                                ("lazy", torch.nn.LazyLinear(4) if rank else torch.nn.Linear(8, 4)))}


def told_of_lost_steps(rank, size):
    model = layers()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    gossip = thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=optimiser)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(20):
            gossip(torch.ones(1, 8)).sum().backward()
            optimiser.step()
    gossip.close()
    return [str(one.message) for one in told]


def two_at_once(rank, size):
    """What is refused beside what, on one model or a part of it; and that what was closed is in nobody's way."""
    loop = lambda module, **more: thinwire.torch.OuterLoop(module, torch.optim.SGD(module.parameters(), lr=0.1), "local:every=2",
                                                           banner=False, timeout=ranks.SECONDS, **more)
    gossip = lambda module, of=None: thinwire.torch.GossipDataParallel(
        module, "dpsgd", optimizer=torch.optim.SGD((of or module).parameters(), lr=0.1), timeout=ranks.SECONDS)
    attached = lambda module: models.attached(module, "topk")[1]
    whole, part = (lambda module: module), (lambda module: module[1])
    doors = {"gossip": gossip, "loop": loop, "exchange": exchange_of, "attach": attached}
    doors = {name: door for name, door in doors.items() if name != "exchange" or has_hooks()}
    texts = {}
    for number, (first, second, of_first, of_second) in enumerate((
            ("gossip", "gossip", whole, whole), ("gossip", "gossip", part, whole), ("gossip", "loop", whole, whole),
            ("loop", "gossip", whole, whole), ("loop", "loop", whole, whole), ("loop", "loop", part, whole),
            ("gossip", "exchange", whole, part), ("exchange", "gossip", whole, whole), ("attach", "gossip", whole, whole),
            ("exchange", "exchange", whole, part), ("exchange", "exchange", part, whole), ("attach", "exchange", whole, part),
            ("exchange", "attach", part, whole))):
        if not {first, second} <= set(doors):
            continue
        module = layers()
        one = doors[first](of_first(module))
        texts[f"{first}, {second}, {number}"] = ranks.refused(lambda: doors[second](of_second(module)))
        one.close()
        doors[second](of_second(module)).close()
    module = layers()
    for one in [exchange_of(layer) for layer in module] if has_hooks() else []:
        one.close()
    texts["around a ddp"] = ranks.refused(lambda: gossip(models.wrapped(module)))
    texts["others"] = ranks.refused(lambda: gossip(module, of=layers()))
    texts["none"] = ranks.refused(lambda: thinwire.torch.GossipDataParallel(module, "dpsgd", optimizer=None))
    texts["no optimiser"] = ranks.refused(lambda: thinwire.torch.GossipDataParallel(module, "dpsgd", optimizer=7))
    return texts


ALL_OF_DGC = "dgc-bold:density=1,masking=off,warmup_steps=0,values=fp32"
MADE = [("after", 0.9, ",momentum=0.9"), ("before", 0.9, ""), ("before", 0.5, ""), ("nesterov", 0.9, ""), ("found", 0.9, "")]


def in_the_place_of_torchs(rank, size):
    finds = hasattr(torch.optim.Optimizer, "register_step_pre_hook")
    return [two_optimisers(rank, size, *made) for made in MADE if finds or made[0] != "found"]


def two_optimisers(rank, size, when, momentum, option):
    """SGD with momentum and weight decay over a dense exchange, and thinwire's over a dgc that sends everything: the
    same course but for rounding, as the momentum of a mean is the mean of momenta. Thinwire's is made as torch's is,
    before the module is wrapped and attached to; or after, and told of the compressor; or found when it steps."""
    model, ends = models.small().eval(), []
    more = {"lr": 0.05, "momentum": momentum, "weight_decay": 0.01, "nesterov": when == "nesterov"}
    for spec in ("allreduce", ALL_OF_DGC + option):
        copied = copy.deepcopy(model)
        kind = torch.optim.SGD if spec == "allreduce" else thinwire.torch.SGD
        optimiser = kind(copied.parameters(), **more)
        ddp = models.wrapped(copied)
        compressor = thinwire.torch.attach(ddp, spec, banner=False, timeout=ranks.SECONDS,
                                           optimizer=optimiser if when in ("before", "nesterov") else None)
        if when == "after" and spec != "allreduce":
            optimiser = kind(ddp.parameters(), 0.05, weight_decay=0.01, compressor=compressor)
        models.train(ddp, optimiser, rank, range(5))
        ends.append(torch.cat([p.detach().reshape(-1) for p in ddp.parameters()]))
        applied = compressor.momentum
        compressor.close()
    start = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return float((ends[0] - ends[1]).abs().max()), float((ends[0] - start).abs().max()), applied


def adam_in_the_place_of_torchs(rank, size):
    """AdamW over a dense exchange, and thinwire's over a scheme that has its moments and compresses nothing, which is told
    of it or finds it; and thinwire's own steps."""
    model, ends = models.small().eval(), []
    more = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    for kind, spec, told in ((torch.optim.AdamW, "allreduce", True), (thinwire.torch.AdamW, "allreduce", True),
                             (thinwire.torch.AdamW, "dgc-adam:dense=*,leftovers=fp32,nesterov=off", True),
                             (thinwire.torch.AdamW, "dgc-adam:dense=*,leftovers=fp32,nesterov=off,momentum=0.8,beta2=0.95,epsilon=1e-6", False)):
        if not told and not hasattr(torch.optim.Optimizer, "register_step_pre_hook"):
            continue
        copied = copy.deepcopy(model)
        optimiser = kind(copied.parameters(), **more)
        ddp, compressor = models.attached(copied, spec, optimizer=optimiser if told else None)
        models.train(ddp, optimiser, rank, range(5))
        ends.append(torch.cat([p.detach().reshape(-1) for p in ddp.parameters()]))
        compressor.close()
    return [float((ends[0] - end).abs().max()) for end in ends[1:]]


def gossips_after_nan(rank, size):
    """Which of four steps were taken, where rank 0's second gradient is NaN, with an optimiser that has moments."""
    model = models.small()
    optimiser = torch.optim.AdamW(model.parameters(), 0.01)
    gossip = thinwire.torch.GossipDataParallel(model, "dpsgd", optimizer=optimiser, timeout=ranks.SECONDS)
    taken = []
    for step in range(4):
        optimiser.zero_grad()
        models.backward(gossip, rank, step, float("nan") if (rank, step) == (0, 1) else 1.0)
        taken.append(gossip.step())
    gossip.finish()
    return taken, all(bool(torch.isfinite(p).all()) for p in model.parameters())


class BesideAScheme(torch.nn.Module):
    """A table with sparse gradients, which DDP exchanges by itself, and something of the scheme's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer = torch.nn.Embedding(20, 40, sparse=True), torch.nn.Linear(40, 40)

    def forward(self, at):
        return self.layer(self.table(at)).square().mean()


def beside_a_scheme(rank, size):
    """Parameters that the scheme does not have keep their momentum, and one outside of DDP its moments, as with torch's own: how
    far the two are apart, and how far they went."""
    found = []
    for kinds, more, spec, sparse in (((torch.optim.SGD, thinwire.torch.SGD), {"lr": 0.5, "momentum": 0.9}, ALL_OF_DGC, True),
                                      ((torch.optim.SGD, thinwire.torch.SGD), {"lr": 0.5, "momentum": 0.9, "weight_decay": 0.01}, ALL_OF_DGC, False),
                                      ((torch.optim.AdamW, thinwire.torch.AdamW), {"lr": 0.01, "eps": 1e-4, "weight_decay": 0.1},
                                       "dgc-adam:dense=*,leftovers=fp32,nesterov=off", False)):
        ends = []
        for kind, spec_ in zip(kinds, ("allreduce", spec)):
            model, outside = BesideAScheme(), torch.nn.Parameter(torch.linspace(1, 2, 5))
            if not sparse:
                model.table.weight.requires_grad_(False)
            start = [p.detach().clone() for p in (*model.parameters(), outside)]
            optimiser = kind([p for p in (*model.parameters(), outside) if p.requires_grad], **more)
            ddp, compressor = models.attached(model, spec_, optimizer=optimiser, fallback=False)
            for step in range(6):
                optimiser.zero_grad()
                (ddp(torch.tensor([rank, 5, step])) + (outside ** 3).sum()).backward()
                optimiser.step()
            ends.append([p.detach().clone() for p in (*model.parameters(), outside)])
            compressor.close()
        apart = [float((a - b).abs().max()) for a, b in zip(*ends)]
        found.append((max(apart), min(float((a - b).abs().max()) for a, b in zip(ends[0], start) if sparse or len(a) != 20)))
    return found


def adam_goes_on(rank, size):
    """How far from torch's AdamW of ten steps one is that is left after four to a scheme which sends all, and taken back after
    seven: by loading its state before the scheme is there, after it is, or by another scheme for the same model."""
    more = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    spec = "dgc-adam:dense=*,leftovers=fp32,nesterov=off"
    start = models.small().eval().to(memory_format=torch.channels_last)
    whole, half = copy.deepcopy(start), copy.deepcopy(start)
    models.train(models.wrapped(whole), torch.optim.AdamW(whole.parameters(), **more), rank, range(10))
    first = torch.optim.AdamW(half.parameters(), **more)
    models.train(models.wrapped(half), first, rank, range(4))
    differences = []
    for way in ("before", "after", "scheme", "asked"):
        model = copy.deepcopy(half)
        optimiser, ddp = thinwire.torch.AdamW(model.parameters(), **more), models.wrapped(model)
        if way != "after":
            optimiser.load_state_dict(copy.deepcopy(first.state_dict()))
        begin = "dgc-adam:dense=*" if way == "scheme" else spec
        compressor = thinwire.torch.attach(ddp, begin, optimizer=optimiser, banner=False, timeout=ranks.SECONDS)
        if way == "after":
            optimiser.load_state_dict(copy.deepcopy(first.state_dict()))
        if way == "scheme":
            compressor.set_scheme("onebit-adam:leftovers=fp32,warmup_steps=99")
        models.train(ddp, optimiser, rank, range(4, 7))
        assert not optimiser.state
        if way == "scheme":
            compressor.set_scheme("topk:dense=*,leftovers=fp32")
        moved = compressor.optimizer_state_dict()
        assert bool(optimiser.state) == (way == "scheme")
        if way in ("scheme", "asked"):
            models.train(ddp, optimiser, rank, range(7, 10))
        compressor.close()
        if way not in ("scheme", "asked"):
            optimiser = torch.optim.AdamW(model.parameters(), **more)
            optimiser.load_state_dict(moved)
            models.train(models.wrapped(model), optimiser, rank, range(7, 10))
        differences.append(max(float((a - b).detach().abs().max()) for a, b in zip(model.parameters(), whole.parameters())))
    return differences


def adam_is_agreed_on(rank, size):
    """What is said where moments are loaded by one rank alone, by all in the midst of a run, and where the optimiser has some of
    the parameters; and of how many steps they are at the end, where all ranks ask for the same scheme after they have loaded."""
    texts, spec, whole = [], "dgc-adam:dense=*", models.small()
    first = torch.optim.AdamW(whole.parameters(), 0.01)
    models.train(models.wrapped(whole), first, rank, range(4))

    def run(loads, part=None, again=False):
        model = models.small()
        optimiser, ddp = thinwire.torch.AdamW(list(model.parameters())[:part], 0.01), models.wrapped(model)
        with contextlib.ExitStack() as ended:
            try:
                compressor = ended.enter_context(thinwire.torch.attach(ddp, spec, optimizer=optimiser, banner=False, timeout=ranks.SECONDS))
                for step in range(2):
                    if step in loads:
                        optimiser.load_state_dict(copy.deepcopy(first.state_dict()))
                    if step in loads and again:
                        compressor.set_scheme(compressor.spec)
                    models.train(ddp, optimiser, rank, (step,))
                texts.append(str(float(compressor.optimizer_state_dict()["state"][0]["step"])))
            except (thinwire.torch.Error, RuntimeError) as error:  # torch 1.13 makes the latter of what a backward pass raises
                texts.append(str(error))

    run((0,) if rank == 1 else ())
    run((1,))
    run((), part=3)
    run((1,), again=True)
    return texts


def adam_is_paid_out(rank, size):
    """What a scheme held back is in the moments that it gives back, the same on all ranks; what is not AdamW's is refused,
    and moments that come too late."""
    texts, model = [], models.small()
    optimiser, ddp = thinwire.torch.AdamW(model.parameters(), 0.01), models.wrapped(model)
    compressor = thinwire.torch.attach(ddp, "dgc-adam:density=0.05,warmup_steps=0", optimizer=optimiser, banner=False,
                                       timeout=ranks.SECONDS)
    models.train(ddp, optimiser, rank, range(5))
    both = compressor.state_dict(), compressor.optimizer_state_dict()
    for name, value in both[0].items():
        assert not isinstance(value, torch.Tensor) or torch.equal(value, compressor.state_dict()[name])
    index = [name for name, _ in model.named_parameters()].index("4.weight")
    sums = {kind: both[0][f"{kind}/4.weight"].clone() for kind in ("momentum", "second_moment", "residual")}
    for one in sums.values():
        torch.distributed.all_reduce(one)
    there = both[1]["state"][index]
    v = sums["second_moment"].reshape(32, 576)
    owed = sums["residual"].reshape(32, 576) * ((v / (1 - 0.999 ** 6)).sqrt() + 1e-8) * (1 - 0.9 ** 6) * (0.1 / 0.9)  # as the next step corrects
    worst = float((there["exp_avg"] - sums["momentum"].reshape(32, 576) - owed).abs().max() / owed.abs().max())
    steps, v_is_there = float(there["step"]), bool(torch.allclose(there["exp_avg_sq"], v, rtol=1e-6))
    compressor.close()
    late = [None] if hasattr(torch.optim.Optimizer, "register_step_pre_hook") else []  # where an optimiser is found as it steps
    for state in ({"step": torch.tensor(3.0), "exp_avg": torch.zeros(32, 576)}, *late):
        model = models.small()
        other, ddp = thinwire.torch.AdamW(model.parameters(), 0.01), models.wrapped(model)
        told = {"optimizer": other} if state else {}
        compressor = thinwire.torch.attach(ddp, "dgc-adam:dense=*,momentum=0.9,beta2=0.999", banner=False, timeout=ranks.SECONDS,
                                           **told)
        other.state[model[4].weight] = state or {"step": torch.tensor(3.0)}
        try:
            models.train(ddp, other, rank, range(1))
        except (thinwire.torch.Error, RuntimeError) as error:  # torch 1.13 makes the latter of what a backward pass raises
            texts.append(str(error))
        compressor.close()
    plain = torch.optim.SGD(model.parameters(), 0.01)
    compressor = thinwire.torch.attach(models.wrapped(model), "dgc-adam:dense=*", banner=False, timeout=ranks.SECONDS, optimizer=plain)
    texts.append(ranks.refused(compressor.optimizer_state_dict))
    compressor.close()
    return worst, steps, v_is_there, float(owed.abs().max()), texts


def after_a_scheme(rank, size):
    """When a scheme that had the momentum or the moments is over, the optimiser has its own again, from zero: alone, after
    another scheme took its place, and under "allreduce"."""
    differences = []
    for ours, theirs, spec in ((lambda p: thinwire.torch.AdamW(p, 0.01, eps=1e-4),
                                lambda p: torch.optim.AdamW(p, 0.01, eps=1e-4), "dgc-adam:dense=*"),
                               (lambda p: thinwire.torch.SGD(p, 0.05, 0.9), lambda p: torch.optim.SGD(p, 0.05, 0.9), "dgc:dense=*")):
        for next_spec in (None, "topk:dense=*,leftovers=fp32", "allreduce"):
            model = models.small().eval()
            optimiser, ddp = ours(model.parameters()), models.wrapped(model)
            compressor = thinwire.torch.attach(ddp, spec, optimizer=optimiser, banner=False, timeout=ranks.SECONDS)
            models.train(ddp, optimiser, rank, range(3))
            plain = models.wrapped(copy.deepcopy(model)) if next_spec else copy.deepcopy(model)
            if next_spec:
                thinwire.torch.attach(ddp, next_spec, optimizer=optimiser, banner=False, timeout=ranks.SECONDS)
            else:
                compressor.close()
            assert not optimiser.takes_directions
            models.train(ddp if next_spec else model, optimiser, rank, range(3, 6))
            models.train(plain, theirs(plain.parameters()), rank, range(3, 6))
            differences.append(max(float((a - b).detach().abs().max()) for a, b in zip(model.parameters(), plain.parameters())))
    return differences


def in_the_middle(rank, size):
    """A scheme keeps an optimiser's moments while the one before it is closed; and what a schedule changes is noticed."""
    model = models.small()
    optimiser, texts = thinwire.torch.AdamW(model.parameters(), 0.01), []
    both = [thinwire.torch.attach(models.wrapped(model), "dgc-adam", optimizer=optimiser, banner=False, timeout=ranks.SECONDS)
            for _ in range(2)]
    both[0].close()
    texts.append(str(optimiser.takes_directions))
    for change in ({"betas": (0.85, 0.999)}, {"betas": (0.9, 0.99)}, {"eps": 1e-6}, {"amsgrad": True}):
        was = {name: optimiser.param_groups[0][name] for name in change}
        optimiser.param_groups[0].update(change)
        texts.append(ranks.refused(optimiser.step))
        optimiser.param_groups[0].update(was)
    optimiser.step()
    both[1].close()
    return texts


def shortened(rank, size):
    """What an optimiser says of a direction that was scaled, as clip_grad_norm_ does, and of one that was not or otherwise."""
    def scale(model, by):
        for parameter in model.parameters():
            parameter.grad.mul_(by)

    texts = []
    for spec, make in (("dgc-adam", thinwire.torch.AdamW), ("onebit-adam", thinwire.torch.AdamW), ("demo", torch.optim.SGD),
                       ("powersgd:rank=2", torch.optim.AdamW)):
        model = models.small()
        optimiser, ddp = make(model.parameters(), 0.01), models.wrapped(model)
        compressor = thinwire.torch.attach(ddp, spec, optimizer=optimiser, banner=False, fallback=False, timeout=ranks.SECONDS)
        for step, change in enumerate((lambda: None, lambda: scale(model, 0.01), lambda: scale(model, 2.0),
                                       lambda: [p.grad.clamp_(-1e-3, 1) for p in model.parameters()],
                                       lambda: scale(model, 0), lambda: scale(model, 0.997))):
            models.backward(ddp, rank, step)
            change()
            texts.append(ranks.refused(optimiser.step))
            optimiser.zero_grad()

        def as_lightning_does():
            models.backward(ddp, rank, 0)
            scale(model, 0.5)

        texts.append(ranks.refused(lambda: optimiser.step(as_lightning_does)))
        compressor.close()
    return texts


def adams_refused(rank, size):
    model, texts = models.small(), []
    ddp, parameters = models.wrapped(model), list(model.parameters())

    def attached(optimiser, spec="dgc-adam"):
        texts.append(ranks.refused(lambda: thinwire.torch.attach(ddp, spec, optimizer=optimiser, banner=False,
                                                                 timeout=ranks.SECONDS).close()))

    attached(torch.optim.AdamW(parameters))
    attached(thinwire.torch.SGD(parameters, 0.1, momentum=0.9))
    attached(thinwire.torch.AdamW(parameters, amsgrad=True))
    attached(thinwire.torch.AdamW(parameters, betas=(0.9, 0.99)), "dgc-adam:beta2=0.999")
    attached(thinwire.torch.AdamW([{"params": parameters[:1]}, {"params": parameters[1:], "eps": 1e-4}]))
    attached(thinwire.torch.AdamW(parameters), "dgc")
    attached(torch.optim.SGD(parameters, 0.1))
    attached(torch.optim.AdamW(parameters), "demo")
    attached(thinwire.torch.SGD(parameters, 0.1, momentum=0.9), "demo")
    attached(torch.optim.SGD(parameters, 0.1, weight_decay=0.1), "demo")
    return texts


def fused_and_scaled(rank, size, spec):
    """How far a fused AdamW is from one that is not behind a GradScaler, which skips one of four steps; how far it went; and
    the scales. One parameter is not the scheme's."""
    ends, scales = [], []
    for fused in (False, True):
        model, outside = models.small().eval(), torch.nn.Parameter(torch.linspace(1, 2, 5))
        optimiser = thinwire.torch.AdamW([*model.parameters(), outside], 0.01, eps=1e-4, weight_decay=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        ddp, compressor = models.attached(model, spec, optimizer=optimiser, scaler=scaler)
        begin = torch.nn.utils.parameters_to_vector([*model.parameters(), outside]).detach()
        for step in range(4):
            optimiser.zero_grad()
            scale = float(scaler.scale(torch.ones(())))
            models.backward(ddp, rank, step, scale * (float("inf") if step == 2 and rank == 1 else 1))
            (outside ** 3 * scale).sum().backward()
            scaler.step(optimiser)
            scaler.update()
            scales.append(scaler.get_scale())
        ends.append(torch.nn.utils.parameters_to_vector([*model.parameters(), outside]).detach())
        compressor.close()
    return float((ends[0] - ends[1]).abs().max()), float((ends[1] - begin).abs().max()), scales


def beside_each_other(rank, size):
    """How far two of thinwire's SGD, each of a part of a model, are from one of all, of which the scheme was told of the first one
    alone: behind a scheme with momentum, behind another one without, and when it is over."""
    ends = []
    for parts in (1, 2):
        model = models.small().eval()
        parameters = list(model.parameters())
        cuts = ([parameters], [parameters[:-2], parameters[-2:]])[parts - 1]
        optimisers = [thinwire.torch.SGD(some, 0.05, momentum=0.9, weight_decay=0.01) for some in cuts]
        ddp, compressor = models.attached(model, ALL_OF_DGC, optimizer=optimisers[0])
        went = []
        for change in (lambda: None, lambda: compressor.set_scheme("topk:dense=*,leftovers=fp32"),
                       lambda: compressor.set_scheme("dgc:dense=*,leftovers=fp32"), compressor.close):
            change()
            for step in range(3):
                for one in optimisers:
                    one.zero_grad()
                models.backward(model if change == compressor.close else ddp, rank, step)
                for one in optimisers:
                    one.step()
            went.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
        ends.append(went)
    return [float((a - b).abs().max()) for a, b in zip(*ends)]


def second_refused(rank, size):
    """What is said of a second optimizer as it steps, twice: of the head beside the one that was given, and of other weights."""
    texts = []
    for spec, make, second in (("dgc", thinwire.torch.SGD, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
                               ("dgc-adam", thinwire.torch.AdamW, lambda p: torch.optim.AdamW(p)),
                               ("dgc-adam", thinwire.torch.AdamW, lambda p: thinwire.torch.AdamW(p)),
                               ("demo", lambda p: torch.optim.SGD(p, 0.1), lambda p: torch.optim.Adam(p)),
                               ("topk", lambda p: torch.optim.SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))):
        model = models.small()
        first = make(model.parameters())
        ddp, compressor = models.attached(model, spec, optimizer=first)
        models.backward(ddp, rank, 0)
        others = [second(model[6].parameters()), second([torch.nn.Parameter(torch.ones(3))])]
        texts.append([ranks.refused(one.step) for one in (others[0], first, *others)])
        compressor.close()
    return texts


def as_torchs(rank, size):
    """thinwire's SGD beside a scheme without momentum, or alone, is torch's, Nesterov's form included."""
    differences = []
    for nesterov in (False, True):
        model, ends = models.small().eval(), []
        nothing = type("Nothing", (), {"momentum": (0.0, False)})()
        for make in (torch.optim.SGD, thinwire.torch.SGD, lambda *a, **b: thinwire.torch.SGD(*a, **b, compressor=nothing)):
            copied = copy.deepcopy(model)
            optimiser = make(copied.parameters(), 0.05, 0.9, 0, 0.01, nesterov)
            models.train(copied, optimiser, rank, range(4))
            ends.append(torch.cat([p.detach().reshape(-1) for p in copied.parameters()]))
        differences += [float((ends[0] - end).abs().max()) for end in ends[1:]]
    return differences


def optimisers_refused(rank, size):
    """What thinwire's SGD says of words it does not know, and of a momentum that is not the scheme's."""
    model = models.small()
    ddp, texts = models.wrapped(model), []
    parameters = list(model.parameters())

    def refused(call):
        texts.append(ranks.refused(call))

    for more in ({"dampening": 0.5}, {"foreach": True}, {"momentum": -1}, {"lr": "fast"}, {"nesterov": True}, {"compressor": 3}):
        refused(lambda: thinwire.torch.SGD(parameters, **more))
    heavy = thinwire.torch.SGD(parameters, 0.1, momentum=0.5)
    mixed = thinwire.torch.SGD([{"params": parameters[:1]}, {"params": parameters[1:], "momentum": 0.9}], 0.1)
    for optimiser in (heavy, mixed):
        refused(lambda: thinwire.torch.attach(ddp, "dgc:momentum=0.9", optimizer=optimiser, banner=False))
    thinwire.torch.attach(ddp, "dgc", banner=False)  # without being told of any optimiser
    models.backward(ddp, rank, 0)
    refused(heavy.step)
    light = thinwire.torch.SGD(parameters, 0.1, momentum=0.9)
    thinwire.torch.attach(ddp, "dgc", optimizer=light, banner=False)
    light.param_groups[0]["momentum"] = 0.8  # as a scheduler might
    refused(light.step)
    thinwire.torch.attach(ddp, "qsgd", optimizer=light, banner=False)
    refused(light.step)
    return texts


class ModulesTest(unittest.TestCase):
    def test_an_exchange_has_the_bits_of_ddp(self):
        if not has_hooks():
            self.skipTest("this torch has no hooks after accumulation")
        self.assertEqual(ranks.on_ranks(2, beside_ddp), [[True] * 6] * 2)

    def test_an_exchange_gives_the_mean_also_to_who_did_not_use_it(self):
        if not has_hooks():
            self.skipTest("this torch has no hooks after accumulation")
        (first, nothing), (second, nothing_either) = ranks.on_ranks(2, partly_used)
        self.assertTrue(torch.equal(first, second))
        self.assertGreater(float(first.abs().max()), 0)
        self.assertFalse(nothing.any() or nothing_either.any())

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_what_no_rank_uses_has_no_gradient(self):
        self.assertEqual(ranks.on_ranks(2, used_by_nobody), [[True, True, True, True]] * 2)

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_what_some_rank_used_is_known_to_all(self):
        moved, frozen = (True, True), (True, False)
        for alike in ranks.on_ranks(2, used_without_effect):
            self.assertEqual(alike, [moved, moved, frozen] * 2)
        self.assertEqual(ranks.on_ranks(2, used_before), [True, True])
        self.assertEqual(ranks.on_ranks(2, scaled_from_the_first), [True, True])

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_what_some_rank_did_not_use_is_stepped_alike(self):
        kinds = (lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1), lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=0.1))
        for make in kinds:
            for alike, gradients in ranks.on_ranks(2, alike_where_partly_used, make, "topk:density=1,values=fp32,leftovers=fp32"):
                self.assertEqual(alike, [(True, True)] * 5)  # its momentum and decay move it in each step
                self.assertEqual(gradients, [True, False, False, False, True])

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_an_exchange_refuses_a_pass_that_adds_to_a_direction(self):
        for refused, *texts in ranks.on_ranks(2, accumulated):
            self.assertIn("another backward pass before optimizer.step() or zero_grad() adds a gradient to it", refused)
            self.assertEqual(texts, ["", ""])
        for texts in ranks.on_ranks(2, left_along):
            for text in texts:
                self.assertIn("another backward pass before optimizer.step() or zero_grad() adds a gradient to it", text)

    def test_an_exchange_lives_with_its_module(self):
        if not has_hooks():
            self.skipTest("this torch has no hooks after accumulation")
        dropped, again, (reentrant, other), texts, gone_on, given_up = ranks.on_ranks(1, alone)[0]
        self.assertIn("0.weight is in an Exchange already", dropped[0])
        self.assertEqual(dropped[1:3], (1, True))
        self.assertIn("nobody has the module any more", dropped[3])
        self.assertEqual(again, (1, True))
        self.assertIn("use_reentrant=False", reentrant)
        self.assertEqual(other, 1)
        self.assertIn("a backward pass before this one was broken off", gone_on)
        self.assertIn("given up in the midst of a backward pass", given_up)
        for text, part in zip(texts, ["weight is on the meta device"] * 2 + ["gradients are torch.int32"], strict=True):
            self.assertIn(part, text)

    def test_what_is_trained_later_is_not_left_out_in_silence(self):
        names = {"unfreeze": "0.weight", "replace": "1.weight"}
        whose = {"exchange": "Exchange", "gossip": "GossipDataParallel", "attach": "DistributedDataParallel"}
        for texts in ranks.on_ranks(1, trained_later):
            self.assertEqual(len(texts), 6 if has_hooks() else 2)
            for (kind, change), said in texts.items():
                for text in said:
                    self.assertIn(f"{names[change]} is trained now and was not when the {whose[kind]} was made", text)

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_who_closes_attaches_anew_or_leaves_it_to_torch_may_train_what_he_likes(self):
        self.assertEqual(ranks.on_ranks(1, trained_rightly), [[True] * 4])

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_a_step_inside_of_the_backward_pass_is_refused(self):
        for text in ranks.on_ranks(1, stepped_in_the_pass)[0]:
            self.assertIn("SGD steps inside of the backward pass, where gradients are a rank's own and not yet the mean", text)

    @unittest.skipUnless(hasattr(torch, "_disable_dynamo"), "torch.compile of this torch is no such")
    def test_a_gossip_may_be_compiled(self):
        for same in ranks.on_ranks(2, compiled_gossip):
            self.assertEqual(same, [True] * 8)

    def test_the_mean_of_buffers_that_are_on_several_devices(self):
        """Of which some have no fp64: they meet where the group is."""
        module, there = torch.nn.Module(), torch.device("meta")
        module.register_buffer("here", torch.ones(3))
        module.register_buffer("there", torch.ones(2, device=there))
        with mock.patch.object(_buffers, "device_of", lambda group: there), \
                mock.patch.object(_transport, "rows_of_all", lambda flat, group: [flat, flat]):
            self.assertEqual([(mean.device, mean.shape) for mean in _buffers.means(module, None)], [(there, (3,)), (there, (2,))])

    def test_gossip_ends_with_the_same_weights_everywhere(self):
        for spec in ("dpsgd", "adpsgd-random"):
            for taken, same, finite in ranks.on_ranks(2, gossiped, spec, 5):
                self.assertEqual(taken, 5)
                self.assertTrue(same)
                self.assertTrue(all(finite))

    def test_a_step_of_gossip_is_the_mean_of_steps(self):
        for worst in ranks.on_ranks(2, averaged):
            self.assertLess(worst, 1e-6)

    def test_a_gossip_is_closed_where_buffers_cannot_be_averaged(self):
        self.assertEqual(ranks.on_ranks(1, ends_without_buffers), [("connection closed by peer", True)])

    def test_a_gossip_of_bf16_keeps_the_digits_that_it_lacks(self):
        for whole in ranks.on_ranks(2, averaged_in_bf16, 8):
            self.assertEqual(whole, [[264.0, 256.0, 256.0] * 2] * 4)

    def test_gossip_resumes(self):
        self.assertEqual(ranks.on_ranks(2, resumed), [True, True])

    def test_a_gossip_does_not_undo_steps_in_silence(self):
        hears = hasattr(torch.optim.Optimizer, "register_step_pre_hook")
        uncounted, right = "SGD has taken steps that were not counted, and the GossipDataParallel would undo them", ": call model.step()"
        changed = " has changed and no step was counted, so that the GossipDataParallel would undo it"
        wanted = {"all": "0.weight" + changed, "by hand": "1.weight" + changed, "saved": "0.weight" + changed, "of two optimisers": "",
                  **({"the last": uncounted} if hears else {})}
        for texts in ranks.on_ranks(1, lost_steps):
            for name, text in wanted.items():
                self.assertEqual(texts[name].split(right)[0], text, name)
                self.assertEqual(right in texts[name], bool(text))
        (told,), = ranks.on_ranks(1, told_of_lost_steps) if hears else [["SGD has taken 8 steps"]]
        self.assertIn("SGD has taken 8 steps", told)

    def test_weights_loaded_too_late_for_a_gossip_are_refused(self):
        for texts in ranks.on_ranks(1, loaded_too_late):
            self.assertEqual(texts, ["0.weight has changed since the GossipDataParallel was made, which would undo it: load weights "
                                     "before you make it"] * 2)

    def test_a_load_that_is_refused_lets_nothing_be_undone(self):
        for texts in ranks.on_ranks(1, refused_beside_a_load):
            self.assertRegex(texts[0], "^0.weight has changed since the GossipDataParallel was made")
            self.assertRegex(texts[1], "^0.weight has changed and no step was counted")

    def test_ranks_with_other_models_are_told_so(self):
        """Before any of them is sent what it has no room for."""
        larger = "rank 1 has the tensor weight of (4, 7) in torch.float32 where rank 0 has the tensor weight of (4, 8) in torch.float32: "
        frozen, lazy = "the module has no parameter to compress", "weight has no shape before the first forward pass"
        for texts, whose in zip(ranks.on_ranks(2, of_other_models), ("rank 1: ", ""), strict=True):
            for (door, case), text in texts.items():
                said = {"larger": larger, "frozen": whose + frozen, "lazy": whose + lazy}[case]
                self.assertEqual(text[:len(said)], said, door)

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_what_a_ddp_averages_is_refused(self):
        """It would undo what an Exchange does, or send all of the gradient beside it."""
        for texts in ranks.on_ranks(2, with_ddp):
            for name, text in texts.items():
                with self.subTest(name):
                    self.assertEqual("is in a DistributedDataParallel as well, which averages" in text, not name in ("gone", "left alone"), text)

    def test_two_do_not_agree_on_one_parameter(self):
        names = {"gossip": "a GossipDataParallel", "loop": "an OuterLoop", "exchange": "an Exchange",
                 "attach": "an attached DistributedDataParallel"}
        others = {"around a ddp": "give GossipDataParallel the module inside", "none": "GossipDataParallel needs the optimizer",
                  "others": "the optimizer does not have 0.weight, nor any other", "no optimiser": "optimizer=7: want an optimiser"}
        for texts in ranks.on_ranks(2, two_at_once):
            for pair, text in texts.items():
                with self.subTest(pair):
                    self.assertIn(others.get(pair) or f" is in {names[pair.split(',')[0]]} already, ", text)

    def test_momentum_in_the_scheme_is_momentum_in_the_optimiser(self):
        for of_rank in ranks.on_ranks(2, in_the_place_of_torchs):
            for made, (difference, moved, applied) in zip(MADE, of_rank):
                with self.subTest(made=made):
                    self.assertLess(difference, 1e-5)
                    self.assertGreater(moved, 1e-2)
                    self.assertAlmostEqual(applied[0], made[1], places=6)

    def test_moments_in_the_scheme_are_moments_in_the_optimiser(self):
        for differences in ranks.on_ranks(2, adam_in_the_place_of_torchs):
            self.assertLess(max(differences), 1e-5, differences)

    def test_torchs_adamw_is_left_to_a_scheme_and_taken_back(self):
        for differences in ranks.on_ranks(2, adam_goes_on):
            self.assertLess(max(differences), 2e-6, differences)

    def test_all_ranks_load_the_same_moments_or_none(self):
        for one, late, part, again in ranks.on_ranks(2, adam_is_agreed_on):
            self.assertIn("rank 1 has some of 4 steps of AdamW's moments, and that of rank 0 none", one)
            self.assertIn("in the midst of a run", late)
            self.assertIn("does not have 1.bias", part)
            self.assertEqual(again, "5.0")

    def test_what_a_scheme_held_back_is_in_the_moments_that_it_gives(self):
        for worst, steps, v_is_there, most, texts in ranks.on_ranks(2, adam_is_paid_out):
            self.assertLess(worst, 1e-5)
            self.assertEqual((steps, v_is_there), (5, True))
            self.assertGreater(most, 0)
            self.assertIn("no exp_avg_sq of 4.weight", texts[0])
            self.assertIn("SGD has no place for them: write thinwire.torch.AdamW", texts[-1])
            if hasattr(torch.optim.Optimizer, "register_step_pre_hook"):
                self.assertIn("dgc-adam has begun without them: give attach() optimizer=", texts[1])

    def test_an_optimiser_has_its_momentum_again_when_a_scheme_is_over(self):
        for differences in ranks.on_ranks(2, after_a_scheme):
            self.assertLess(max(differences), 1e-5, differences)

    def test_a_gossip_goes_on_after_a_step_that_was_not_finite(self):
        self.assertEqual(ranks.on_ranks(2, gossips_after_nan), [([True, False, True, True], True), ([True] * 4, True)])

    def test_what_a_scheme_does_not_have_keeps_its_momentum(self):
        for of_rank in ranks.on_ranks(2, beside_a_scheme):
            for apart, went in of_rank:
                self.assertLess(apart, 1e-5, of_rank)
                self.assertGreater(went, 1e-3)

    def test_moments_that_a_schedule_changes_are_told(self):
        parts = ["True", "momentum=0.85, and dgc-adam momentum=0.9", "beta2=0.99, and dgc-adam beta2=0.999",
                 "epsilon=1e-06, and dgc-adam epsilon=1e-08", "amsgrad=True"]
        for texts in ranks.on_ranks(2, in_the_middle):
            for text, part in zip(texts, parts, strict=True):
                self.assertIn(part, text)

    @unittest.skipUnless(hasattr(torch.optim.Optimizer, "register_step_pre_hook"), "torch tells of no step before 2.0")
    def test_a_direction_that_is_clipped_to_the_norm_of_a_gradient_is_told(self):
        for texts in ranks.on_ranks(2, shortened):
            adam, bits, signs, momentum = (texts[at:at + 7] for at in range(0, 28, 7))
            self.assertIn("dgc-adam gives a direction to step in, which is as long as the network is large, and it is 0.01 of", adam[1])
            self.assertIn("it is 0.5 of that length where the optimizer has it", adam[6])
            self.assertIn('"dgc-adam:clip=1"', adam[6])
            self.assertIn("onebit-adam gives a direction to step in", bits[1])
            self.assertNotIn("clip=1", bits[1])  # it has no such option
            self.assertIn("demo gives a direction to step in", signs[1])
            self.assertNotIn("clip=1", signs[1])
            self.assertEqual([adam[0], *adam[2:6], bits[0], *bits[2:6], signs[0], *signs[2:6], *momentum], [""] * 22)

    @unittest.skipUnless(hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"), "this torch has no GradScaler for the processor")
    def test_a_scaler_leaves_a_fused_adamw_to_unscale_and_skip(self):
        for spec in ("dgc-adam:dense=*,leftovers=fp32", "onebit-adam:warmup_steps=2"):
            for apart, went, scales in ranks.on_ranks(2, fused_and_scaled, spec):
                self.assertLess(apart, 1e-6)
                self.assertTrue(1e-3 < went < 1, went)
                self.assertEqual(scales, [1024.0, 1024.0, 512.0, 512.0] * 2)

    @unittest.skipUnless(hasattr(torch.optim.Optimizer, "register_step_pre_hook"), "torch tells of no step before 2.0")
    def test_optimisers_beside_each_other_are_as_one(self):
        for apart in ranks.on_ranks(2, beside_each_other):
            self.assertEqual(apart, [0.0] * 4)

    @unittest.skipUnless(hasattr(torch.optim.Optimizer, "register_step_pre_hook"), "torch tells of no step before 2.0")
    def test_a_second_optimiser_is_looked_at_as_the_first_is(self):
        parts = ["it would be applied twice", "thinwire.torch.AdamW in place of AdamW", "this AdamW does not have 0.weight",
                 "demo gives the signs of a momentum of its own, and Adam has", ""]
        for texts in ranks.on_ranks(2, second_refused):
            for (of_head, of_first, again, of_others), part in zip(texts, parts, strict=True):
                self.assertIn(part, of_head)
                self.assertEqual((again, bool(of_head), of_first, of_others), (of_head, bool(part), "", ""))

    def test_without_an_exchange_an_optimiser_has_its_moments(self):
        """As in a framework on one process, which tells of no optimizer."""
        for spec, ours, theirs in (("dgc-adam", thinwire.torch.AdamW, torch.optim.AdamW), ("demo", torch.optim.AdamW, torch.optim.AdamW),
                                   ("dgc", lambda p, lr: thinwire.torch.SGD(p, lr, 0.9), lambda p, lr: torch.optim.SGD(p, lr, 0.9))):
            ends = []
            for make in (ours, theirs):
                model = models.small()
                optimiser = make(model.parameters(), 0.01)
                with thinwire.torch.ddp.attach_alone(model, spec, banner=False) if make is ours else contextlib.nullcontext():
                    models.train(model, optimiser, 0, range(3))
                ends.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
            self.assertLess(float((ends[0] - ends[1]).abs().max()), 1e-6, spec)

    def test_moments_are_not_taken_twice(self):
        parts = ["thinwire.torch.AdamW in place of AdamW", "thinwire.torch.AdamW in place of SGD", "amsgrad=True",
                 "beta2=0.99, and dgc-adam beta2=0.999", "give all groups the same", "take dgc-adam, powersgd:rank=16", "",
                 "demo gives the signs of a momentum of its own, and AdamW has betas=(0.9, 0.999)", "SGD has momentum=0.9", ""]
        for texts in ranks.on_ranks(2, adams_refused):
            for text, part in zip(texts, parts, strict=True):
                self.assertIn(part, text)
            self.assertEqual(texts[-1], "")

    def test_what_sgd_does_not_take_is_refused_in_a_sentence(self):
        parts = ["no dampening", "no foreach", "momentum=-1", "lr='fast'", "nesterov=True", "compressor=3",
                 "SGD has momentum=0.5, and dgc applies momentum=0.9", "the momenta [0.0, 0.9]",
                 "SGD has momentum=0.5, and dgc applies momentum=0.9", "SGD has momentum=0.8, and dgc applies momentum=0.9", ""]
        finds = hasattr(torch.optim.Optimizer, "register_step_pre_hook")
        for texts in ranks.on_ranks(1, optimisers_refused):
            for number, (text, part) in enumerate(zip(texts, parts, strict=True)):
                if number != 8 or finds:
                    self.assertIn(part, text)
            self.assertEqual(texts[-1], "")

    def test_sgd_beside_a_scheme_without_momentum_is_torchs(self):
        for differences in ranks.on_ranks(1, as_torchs):
            self.assertLess(max(differences), 1e-6)


if __name__ == "__main__":
    unittest.main()
