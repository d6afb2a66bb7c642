#!/usr/bin/env python3
"""attach_fsdp2: sites of one rank each, or of two, that agree through thinwire."""

import contextlib
import functools
import io
import sys
import unittest
from unittest import mock

import models
import ranks
import thinwire.torch
import torch
import torch.distributed as dist
from thinwire import planning
from thinwire.torch import _auto, _transport


POWERSGD = "powersgd:rank=2,warmup_steps=0,min_elements=1,leftovers=fp32"
BY_HAND = ("qsgd:min_elements=1,leftovers=fp32", "topk:density=0.05", "dgc:density=0.1,warmup_steps=0,masking=off",
           "dgc-adam:density=0.1,warmup_steps=0", "onebit-adam:warmup_steps=1,min_elements=1",
           "powersgd:rank=2,warmup_steps=1,min_elements=1,leftovers=fp32")
WITH_MOMENTS = "diloco:every=3,first_moment=1,second_moment=2"
EXACT = "topk:dense=*,leftovers=fp32"
EVERYTHING = "topk:density=1,values=fp32,min_elements=1,min_dims=1"


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))


def uneven():
    """Two ranks have three rows and two of the first layer; the second rank has nothing of the last one."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))


def rooted():
    """The last layer is the root's own, which FSDP leaves whole after a forward pass."""
    return torch.nn.Sequential(*layers(), torch.nn.ReLU(), torch.nn.Linear(8, 4))


def inputs(rank, step):
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(10 * step + rank))


def evaluated(model):
    """FSDP leaves the root's own parameters whole, under their names."""
    with torch.no_grad():
        model(inputs(0, 0))


def full(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def mean_inside(gradient, mesh):
    """The sum of two ranks is the same in any order, and a half of it exact."""
    mean = gradient.clone()
    dist.all_reduce(mean, group=mesh["rank"].get_group())
    return mean / mesh["rank"].size()


def piece_of(values, mesh):
    """What FSDP gives this rank of a parameter."""
    chunks = torch.chunk(values, mesh["rank"].size())
    mine = mesh["rank"].get_local_rank()
    return chunks[mine].contiguous() if mine < len(chunks) else values[:0]


def mesh_of(sites, per_site):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", (sites, per_site), mesh_dim_names=("site", "rank"))


def sharded(sites, per_site, two_dimensions=False, make=layers, prepare=None):
    from torch.distributed.fsdp import fully_shard
    mesh = mesh_of(sites, per_site)
    model = make()
    if prepare:
        prepare(model)
    inside = mesh if two_dimensions else mesh["rank"]
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=inside)
    fully_shard(model, mesh=inside)
    return model, mesh["site"].get_group()


def compare(rank, size, per_site, spec, make="layers"):
    """The largest relative difference to the mean of all ranks' gradients; the share of elements that are not 0."""
    make = globals()[make]
    model, group = sharded(size // per_site, per_site, make=make)
    evaluated(model)
    compressor = thinwire.torch.attach_fsdp2(model, spec, group, timeout=ranks.SECONDS)
    alone = make()
    worst, there = 0.0, 0.0
    for step in range(3):
        model.zero_grad(), alone.zero_grad()
        model.set_requires_gradient_sync(False)
        model(inputs(rank, step + 50)).square().mean().backward()
        model.set_requires_gradient_sync(True)
        model(inputs(rank, step)).square().mean().backward()
        for number in (step + 50, step):
            alone(inputs(rank, number)).square().mean().backward()
        got, expected = [], []
        for p, q in zip(model.parameters(), alone.parameters()):
            mean = q.grad.clone()
            dist.all_reduce(mean)
            expected.append(mean.reshape(-1) / size)
            got.append(full(p.grad).reshape(-1))
        got, expected = torch.cat(got), torch.cat(expected)
        worst = max(worst, float((got - expected).abs().max() / expected.abs().max()))
        there = float((got != 0).float().mean())
    return worst, there, compressor.stats()["steps"]


def by_hand(rank, size, per_site, spec, make="layers"):
    """Whether the gradients of three steps have the bits that the scheme gives for the same pieces without FSDP."""
    make = globals()[make]
    model, group = sharded(size // per_site, per_site, make=make)
    compressor = thinwire.torch.attach_fsdp2(model, spec, group, timeout=ranks.SECONDS)
    mesh, alone, equal = mesh_of(size // per_site, per_site), make(), True
    named = [(name, piece_of(p.detach(), mesh)) for name, p in alone.named_parameters()]
    table = [(name, tuple(piece.shape)) for name, piece in named if piece.numel()]
    with _transport.with_comm("tcp", group, _transport.Limits(ranks.SECONDS), lambda comm: thinwire.Reducer(comm, spec, table)) as reducer:
        for step in range(3):
            model.zero_grad(), alone.zero_grad()
            model(inputs(rank, step)).square().mean().backward()
            alone(inputs(rank, step)).square().mean().backward()
            pieces = [piece_of(mean_inside(p.grad, mesh), mesh) for p in alone.parameters()]
            for index, piece in enumerate(one for one in pieces if one.numel()):
                reducer.submit(index, piece.data_ptr())
            reducer.wait()
            for parameter, piece in zip(model.parameters(), pieces):
                equal = equal and torch.equal(parameter.grad.to_local(), piece)
    return equal, compressor.plan(), compressor.stats()["ratio"], compressor.stats()["steps"]


def beside_ddp(rank, size):
    """The plan of a site of one rank, and that of a DistributedDataParallel with the same model."""
    model, group = sharded(size, 1)
    plan = thinwire.torch.attach_fsdp2(model, POWERSGD, group, timeout=ranks.SECONDS).plan()
    return plan, thinwire.torch.attach(models.wrapped(layers()), POWERSGD, timeout=ranks.SECONDS).plan()


def adamw(rank, size):
    """How far nine steps of torch's AdamW are from those of which a scheme takes three in the middle, with shards of both
    moments; and whether all ranks took as many."""
    ends, more = [], {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    for spec in (EXACT, "dgc-adam:dense=*,leftovers=fp32,nesterov=off",
                 "onebit-adam:leftovers=fp32,warmup_steps=99"):
        model, group = sharded(size // 2, 2, make=uneven)
        state = None
        for part, of_part in enumerate((EXACT, spec, EXACT)):
            kind = thinwire.torch.AdamW if part == 1 else torch.optim.AdamW
            optimiser = kind(model.parameters(), **more)
            if state:
                optimiser.load_state_dict(state)
            with thinwire.torch.attach_fsdp2(model, of_part, group, optimizer=optimiser, banner=False, timeout=ranks.SECONDS) as one:
                for step in range(3 * part, 3 * part + 3):
                    optimiser.zero_grad()
                    model(inputs(rank, step)).square().mean().backward()
                    optimiser.step()
                state = one.optimizer_state_dict()
        ends.append(torch.cat([full(p.detach()).reshape(-1) for p in model.parameters()]))
        steps = {float(one["step"]) for one in state["state"].values() if one["exp_avg"].to_local().numel()}
    return [float((end - ends[0]).abs().max()) for end in ends[1:]], steps


def names_tensors(rank, size):
    """What becomes of each tensor's shard where the spec names some of them, and what is said of a name that none has."""
    plans = []
    for spec in ("topk:min_elements=1,dense=2.*", "topk:min_elements=1,dense=0.weight|2.weight", "scalecom:rates=0.weight@1",
                 "topk:dense=2.weight|head"):
        model, group = sharded(size, 1)
        try:
            with thinwire.torch.attach_fsdp2(model, spec, group, timeout=ranks.SECONDS, banner=False) as compressor:
                plans.append({name: what for name, what in compressor.plan().items() if name.endswith("weight")})
        except thinwire.torch.Error as error:
            plans.append(str(error))
    return plans


def skipped(rank, size, nonfinite):
    """Rank 0's gradient of the first layer has NaN in its first row, which is of its own shard alone, in the second of
    three passes. Of each pass: whether it was skipped, or what backward raised, and the sum of each gradient here."""
    model, group = sharded(size // 2, 2)
    more = {"scaler": torch.amp.GradScaler("cpu", init_scale=1.0)} if nonfinite == "scaler" else {"nonfinite": nonfinite}
    compressor = thinwire.torch.attach_fsdp2(model, "qsgd", group, timeout=ranks.SECONDS, **more)
    told, spoil = [], torch.zeros(4, 32)
    model[1].register_forward_hook(lambda module, given, out: out.register_hook(lambda gradient: gradient + spoil) and None)
    for step in range(3):
        model.zero_grad()
        spoil[0, 0] = float("nan") if step == 1 and rank == 0 else 0
        loss = (model(inputs(rank, step)) + 1).square().mean()
        try:
            loss.backward()
            found = compressor.skipped
        except thinwire.torch.NonFinite as error:
            found = str(error)
        told.append((found, [float(p.grad.to_local().abs().sum()) for p in model.parameters()]))
    return told, compressor.stats()["steps_skipped"], compressor.summary()


def skipped_for_good(rank, size):
    """What backward raises when no pass is finite, in each of eleven passes; "" for nothing."""
    model, group = sharded(size // 2, 2)
    thinwire.torch.attach_fsdp2(model, "qsgd", group, timeout=ranks.SECONDS)
    texts = []
    for step in range(11):
        try:
            (model(inputs(rank, step)) * float("nan" if rank == 0 else 1)).square().mean().backward()
            texts.append("")
        except thinwire.torch.NonFinite as error:
            texts.append(str(error))
    return texts


def partly_trained(rank, size):
    """A frozen layer has no gradient to exchange; one that is frozen later, or not used, is told."""
    model, group = sharded(size, 1, prepare=lambda model: model[0].weight.requires_grad_(False))
    compressor = thinwire.torch.attach_fsdp2(model, EVERYTHING, group, timeout=ranks.SECONDS)
    model(inputs(rank, 0)).square().mean().backward()
    plan, there = compressor.plan(), [p.grad is not None for p in model.parameters()]
    model[2].bias.requires_grad_(False)
    try:
        model(inputs(rank, 0)).square().mean().backward()
    except thinwire.torch.Error as error:
        return list(plan), there, str(error)


def told(rank, size):
    """What rank 0 says, and what comes of a ratio that is not reached."""
    said = io.StringIO()
    model, group = sharded(size // 2, 2)
    with contextlib.redirect_stderr(said):
        compressor = thinwire.torch.attach_fsdp2(model, POWERSGD, group, timeout=ranks.SECONDS, expect_ratio=1000)
    text = ""
    for step in range(12):
        try:
            model(inputs(rank, step)).square().mean().backward()
        except thinwire.torch.Error as error:
            text = f"step {step}: {error}"
            break
    return said.getvalue(), text, compressor.stats()["steps"]


def resumed(rank, size):
    def run(steps, state=None):
        model, group = sharded(size, 1)
        compressor = thinwire.torch.attach_fsdp2(model, "topk:density=0.05", group, timeout=ranks.SECONDS)
        if state:
            compressor.load_state_dict(state)
        for step in steps:
            model.zero_grad()
            model(inputs(rank, step)).square().mean().backward()
        return [full(p.grad).clone() for p in model.parameters()], compressor.state_dict()

    whole, _ = run(range(4))
    _, state = run(range(2))
    again, _ = run(range(2, 4), state)
    torn = {key: value for key, value in state.items() if rank or not key.endswith("2.weight")}
    text = ranks.refused(lambda: run(range(0), torn))
    return all(torch.equal(a, b) for a, b in zip(whole, again)), text


def rates(rank, size):
    """What a module's scheme is told of the optimiser, before and after a schedule; and what is refused."""
    model, group = sharded(size, 1)
    told, texts = [], []
    compressor = thinwire.torch.attach_fsdp2(model, "sdagc", group, timeout=ranks.SECONDS)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)

    def step(refused=RuntimeError):
        try:
            model.zero_grad()
            model(inputs(rank, 0)).square().mean().backward()
            optimiser.step()
        except refused as error:
            texts.append(str(error))

    with mock.patch.object(thinwire.Reducer, "set_rates", lambda reducer, rates: told.append(rates)):
        step()
        step()
        optimiser.param_groups[0]["lr"] = 0.25
        step()
        compressor.close()
        compressor = thinwire.torch.attach_fsdp2(model, "sdagc", group, timeout=ranks.SECONDS)
        optimiser.param_groups[0]["momentum"] = 0.9
        step()
        optimiser = torch.optim.SGD([{"params": [p], "lr": 0.5 ** i} for i, p in enumerate(model.parameters())])
        compressor = thinwire.torch.attach_fsdp2(model, "sdagc", group, timeout=ranks.SECONDS, optimizer=optimiser)
        step()
    for spec, more in (("topk:dens=1", {}), ("dgc", {"optimizer": torch.optim.Adam(model.parameters())})):
        texts.append(ranks.refused(lambda: thinwire.torch.attach_fsdp2(sharded(size, 1)[0], spec, group, **more)))
    return told, texts


def rates_behind_a_load(rank, size):
    """How often the rates of two modules are told in two steps, between which a state is loaded."""
    model, group = sharded(size, 1)
    optimiser, told = torch.optim.SGD(model.parameters(), lr=0.5), []
    compressor = thinwire.torch.attach_fsdp2(model, "sdagc", group, timeout=ranks.SECONDS, optimizer=optimiser)
    with mock.patch.object(thinwire.Reducer, "set_rates", lambda reducer, rates: told.append(rates)):
        for step in range(2):
            optimiser.zero_grad()
            model(inputs(rank, step)).square().mean().backward()
            compressor.load_state_dict(compressor.state_dict())
    return len(told)


def accumulated(rank, size):
    """What is said of a second pass that sends before a step, and where the first one sends nothing."""
    texts = []
    for sends in (False, True):
        model, group = sharded(size // 2, 2)
        optimiser = thinwire.torch.AdamW(model.parameters(), 0.01)
        thinwire.torch.attach_fsdp2(model, "dgc-adam", group, timeout=ranks.SECONDS, optimizer=optimiser)
        for step in range(2):
            optimiser.zero_grad()
            model.set_requires_gradient_sync(sends)
            model(inputs(rank, 0)).square().mean().backward()
            model.set_requires_gradient_sync(True)
            texts.append(ranks.refused(lambda: model(inputs(rank, 1)).square().mean().backward()))
            if texts[-1]:
                break
            optimiser.step()
    return texts


def failing_alone(rank, size):
    """One rank's exchange fails in the first module of a pass, and nobody ends before all have heard of it: of that pass and of
    the next one, what backward() raises here."""
    model, group = sharded(size // 2, 2)
    compressor = thinwire.torch.attach_fsdp2(model, EXACT, group, timeout=ranks.SECONDS)
    failures = [KeyboardInterrupt()] if rank == 1 else []
    exchanged, ends = compressor._exchanged, []

    def fail_once(*what):
        if failures:
            raise failures.pop()
        return exchanged(*what)

    compressor._exchanged = fail_once
    for _ in range(2):
        try:
            model(inputs(rank, 0)).square().mean().backward()
        except (thinwire.torch.Error, KeyboardInterrupt) as error:
            ends.append((type(error).__name__, str(error)))
    dist.barrier()
    return ends


def refusals(rank, size):
    texts = []
    for model, group in (sharded(size, 1, two_dimensions=True), (layers(), None)):
        texts.append(ranks.refused(lambda: thinwire.torch.attach_fsdp2(model, "topk", group)))
    return texts


CALLS = {  # what each number of ranks does, in one start of theirs
    1: (("rates",),),
    2: (("compare", 1, "allreduce", "rooted"), ("compare", 1, "topk:density=0.05"), ("resumed",), ("beside_ddp",), ("partly_trained",),
        ("refusals",), ("outer_loops", 1), ("outer_refusals",), ("rates_behind_a_load",)),
    4: (("compare", 2, "allreduce"), ("compare", 2, "allreduce", "uneven"), ("compare", 2, EVERYTHING, "uneven"),
        ("by_hand", 2, POWERSGD), ("by_hand", 2, POWERSGD, "uneven"), *((("by_hand", 2, spec)) for spec in BY_HAND),
        *(("skipped", nonfinite) for nonfinite in ("skip", "scaler", "raise")), ("skipped_for_good",), ("told",), ("adamw",),
        ("accumulated",), ("failing_alone",),
        ("outer_loops", 2, "rooted", WITH_MOMENTS), ("outer_loops", 2, "uneven"), ("choices", 2), ("lost_lines", 2))}


def outer_loops(rank, size, per_site, make="layers", spec="diloco:every=3"):
    """The largest difference between shards of a site and whole models that take the site's mean gradients, in both an
    OuterLoop: of what they give with the shared weights in the middle of a round, and of the weights at the end."""
    make, site = globals()[make], rank // per_site
    model, group = sharded(size // per_site, per_site, make=make)
    alone = make()
    with torch.no_grad():
        for parameter in (*model.parameters(), *alone.parameters()):
            parameter.mul_(1 + site)  # all begin as the first site does
    optimisers = [torch.optim.AdamW(one.parameters(), lr=0.01) for one in (model, alone)]
    loops = [thinwire.torch.OuterLoop(one, optimiser, spec, group=group, banner=False, timeout=ranks.SECONDS)
             for one, optimiser in zip((model, alone), optimisers)]
    for step in range(7):
        model.zero_grad(), alone.zero_grad()
        model(inputs(rank, step)).square().mean().backward()
        for member in range(site * per_site, (site + 1) * per_site):
            (alone(inputs(member, step)).square().mean() / per_site).backward()
        if step == 2:  # the next round is at hand
            evaluated(model)
        for optimiser in optimisers:
            optimiser.step()
        if step == 4:
            evaluated(model)
            with torch.no_grad(), loops[0].averaged(), loops[1].averaged():
                worst = [float((model(inputs(0, step)) - alone(inputs(0, step))).abs().max())]
    evaluated(model)
    for loop in loops:
        loop.finish()
    worst += [float((full(p) - q).abs().max()) for p, q in zip(model.parameters(), alone.parameters())]
    return max(worst), loops[0].stats()["rounds"], loops[0].trained().keys() <= dict(model.named_parameters()).keys()


def outer_refusals(rank, size):
    model, group = sharded(1, size)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    texts = [ranks.refused(lambda: thinwire.torch.OuterLoop(model, optimiser, "diloco:every=3", banner=False, **more))
             for more in ({}, {"join": f"127.0.0.1:{ranks.free_port()}"})]
    whole = sharded(size, 1, two_dimensions=True)[0]
    optimiser = torch.optim.SGD(whole.parameters(), lr=0.1)
    return texts + [ranks.refused(lambda: thinwire.torch.OuterLoop(whole, optimiser, "diloco:every=3", group=group, banner=False))]


def choices(rank, size, per_site):
    """What auto comes to at the doors for shards."""
    model, group = sharded(size // per_site, per_site)
    optimizer, text = torch.optim.AdamW(model.parameters()), io.StringIO()
    auto = "auto:steps=3000,pass_ms=20,rate=1Mbit,latency=5ms"

    def chosen(options, rows, optimizer, kind, *more):
        spec = f"topk:density=0.{5 + rank}" if kind == planning.GRADIENTS else f"local:every={8 + rank}"
        return spec, f"as rank {rank} has it"

    with mock.patch.object(_auto, "chosen", chosen), contextlib.redirect_stderr(text):
        compressor = thinwire.torch.attach_fsdp2(model, auto, group, optimizer=optimizer, timeout=ranks.SECONDS)
        model(inputs(rank, 0)).square().mean().backward()
        evaluated(model)
        model.zero_grad()
        loop = thinwire.torch.OuterLoop(model, optimizer, auto, group=group, timeout=ranks.SECONDS)
    return compressor.spec, loop._loop.spec, loop._replanner is not None, text.getvalue()


def lost_lines(rank, size, per_site):
    """What the ranks of all shards are told where those of one shard have lost the line between them."""
    model, group = sharded(size // per_site, per_site)
    optimizer = torch.optim.AdamW(model.parameters())

    def measured(*of):
        if rank % per_site:
            raise thinwire.PeerError("the line is cut")
        return 1e6, 1e6, 1e-3

    with mock.patch.object(_auto, "line_between", measured):
        return ranks.refused(lambda: thinwire.torch.attach_fsdp2(model, "auto:steps=3000,pass_ms=20", group, optimizer=optimizer))


def in_turn(rank, size):
    return {call: globals()[call[0]](rank, size, *call[1:]) for call in CALLS[size]}


@functools.lru_cache(maxsize=None)
def results(size):
    return ranks.on_ranks(size, in_turn)


def on_ranks(size, *call):
    return [of_rank[call] for of_rank in results(size)]


def has_its_hook():
    try:
        from torch.distributed.fsdp import FSDPModule
    except (ImportError, ValueError):  # the latter is 1.13's, under Python 3.11
        return False
    return hasattr(FSDPModule, "set_all_reduce_hook")


class FsdpTest(unittest.TestCase):
    def test_sites_of_one_rank_agree_on_the_mean(self):
        for worst, _, steps in on_ranks(2, "compare", 1, "allreduce", "rooted"):
            self.assertLess(worst, 1e-6)
            self.assertEqual(steps, 3)

    def test_sites_of_two_ranks_agree_on_the_mean(self):
        for case in (("allreduce",), ("allreduce", "uneven"), (EVERYTHING, "uneven")):
            with self.subTest(case=case):
                for worst, _, steps in on_ranks(4, "compare", 2, *case):
                    self.assertLess(worst, 1e-6)
                    self.assertEqual(steps, 3)

    def test_an_outer_loop_of_shards_is_one_of_whole_models(self):
        for size, case in ((2, (1,)), (4, (2, "rooted", WITH_MOMENTS)), (4, (2, "uneven"))):
            for worst, rounds, named in on_ranks(size, "outer_loops", *case):
                self.assertLess(worst, 1e-6, case)
                self.assertEqual((rounds, named), (3, True))
        for of_several, of_members, of_two_dimensions in on_ranks(2, "outer_refusals"):
            self.assertIn("give OuterLoop the group of those that have the same shard", of_several)
            self.assertIn("who comes and goes is a program of one process", of_members)
            self.assertIn("over a mesh of one dimension", of_two_dimensions)

    def test_auto_is_one_choice_for_all_shards(self):
        """Where each rank would choose something else. It is told once, and nothing is watched."""
        for rank, (gradients, updates, are_watched, text) in enumerate(on_ranks(4, "choices", 2)):
            self.assertEqual((gradients, updates, are_watched), ("topk:density=0.5", "local:every=8", False))
            self.assertEqual(text.count("as rank 0 has it"), 2 * (rank == 0), text)

    def test_a_line_that_is_lost_is_told_to_all_shards(self):
        for text in on_ranks(4, "lost_lines", 2):
            self.assertIn("the line is cut", text)

    def test_what_goes_between_sites_is_compressed(self):
        biases = 40 / 808  # which are not
        for _, there, _ in on_ranks(2, "compare", 1, "topk:density=0.05"):
            self.assertGreater(there, biases + 0.02)
            self.assertLess(there, biases + 0.11)

    def test_powersgd_compresses_the_matrices_of_a_shard(self):
        """At rank 2 a matrix of 16 rows and 16 columns has 256 elements, and its factors 64."""
        for equal, plan, ratio, steps in on_ranks(4, "by_hand", 2, POWERSGD):
            self.assertTrue(equal)
            self.assertGreater(ratio, 2)
            self.assertEqual(steps, 3)
            for name, what in plan.items():
                self.assertEqual(what.startswith("powersgd:"), name.endswith("weight"), plan)

    def test_pieces_have_the_bits_of_the_scheme_by_hand(self):
        for spec in BY_HAND:
            with self.subTest(spec=spec):
                for equal, *_ in on_ranks(4, "by_hand", 2, spec):
                    self.assertTrue(equal)

    def test_adamws_shards_are_left_to_a_scheme_and_taken_back(self):
        for differences, steps in on_ranks(4, "adamw"):
            self.assertLess(max(differences), 2e-6, differences)
            self.assertEqual(steps, {9.0})

    def test_uneven_and_empty_pieces_have_the_bits_of_the_scheme_by_hand(self):
        found = on_ranks(4, "by_hand", 2, POWERSGD, "uneven")
        self.assertEqual([equal for equal, *_ in found], [True] * 4)
        for rank in (1, 3):
            self.assertEqual(found[rank][1]["2.weight"], "empty on this rank")
            self.assertEqual(found[rank][1]["2.bias"], "empty on this rank")

    def test_the_plan_is_that_of_ddp(self):
        for plan, of_ddp in on_ranks(2, "beside_ddp"):
            self.assertEqual(plan, of_ddp)

    def test_a_spec_may_name_tensors_of_any_module(self):
        for second, both, rates, misspelt in ranks.on_ranks(2, names_tensors):
            self.assertEqual(["dense=" in second[name] for name in ("0.weight", "2.weight")], [False, True], second)
            self.assertEqual(["dense=" in both[name] for name in ("0.weight", "2.weight")], [True, True], both)
            self.assertEqual(set(rates), {"0.weight", "2.weight"})
            self.assertIn("dense=head: no tensor has such a name", misspelt)

    def test_a_pass_that_is_not_finite_is_skipped_by_all(self):
        for nonfinite in ("skip", "scaler", "raise"):
            with self.subTest(nonfinite=nonfinite):
                for (before, there, after), count, summary in on_ranks(4, "skipped", nonfinite):
                    self.assertFalse(before[0] or after[0])
                    self.assertTrue(all(value > 0 for value in before[1] + after[1]))
                    self.assertIn("NaN", there[0]) if nonfinite == "raise" else self.assertIs(there[0], True)
                    for value in there[1]:
                        self.assertTrue(value != value if nonfinite == "scaler" else value == 0, there)
                    self.assertEqual(count, 1)
                    self.assertIn("3 steps (1 skipped)", summary)

    def test_ten_passes_skipped_in_a_row_are_an_error(self):
        for texts in on_ranks(4, "skipped_for_good"):
            self.assertEqual(texts[:9], [""] * 9)
            self.assertIn("the gradients of 10 steps in a row held NaN", texts[9])
            self.assertIn("the gradients of 11 steps", texts[10])

    def test_parameters_that_are_not_trained_have_no_part(self):
        for plan, there, text in on_ranks(2, "partly_trained"):
            self.assertEqual(plan, ["0.bias", "2.weight", "2.bias"])
            self.assertEqual(there, [False, True, True, True])
            self.assertIn("2: FSDP reduced 256 elements", text)

    def test_rank_0_says_what_happens_and_a_ratio_can_be_asked_for(self):
        (said, text, steps), *others = on_ranks(4, "told")
        self.assertIn("thinwire powersgd:", said)
        self.assertIn("404 gradients in 4 tensors, of which 2 are compressed", said)
        for quiet, same, count in others:
            self.assertEqual((quiet, same, count), ("", text, steps))
        self.assertIn("step 9: powersgd:", text)
        self.assertIn("expect_ratio=1000", text)

    def test_a_resumed_run_is_the_uninterrupted_one(self):
        for same, text in on_ranks(2, "resumed"):
            self.assertTrue(same)
            self.assertIn("residual/2.weight", text)

    def test_learning_rates_are_told_and_what_cannot_be_is_refused(self):
        for told, texts in on_ranks(1, "rates"):
            self.assertEqual(told, [[0.5] * 2] * 2 + [[0.25] * 2] * 2 + [[0.25, 0.125], [1, 0.5]])
            self.assertEqual(len(texts), 3)
            for text, part in zip(texts, ["applied twice", 'no option "dens"', "applied twice"]):
                self.assertIn(part, text)

    def test_rates_are_told_anew_behind_a_load(self):
        for told in on_ranks(2, "rates_behind_a_load"):
            self.assertEqual(told, 4)

    def test_a_pass_that_adds_to_a_direction_is_refused(self):
        for *texts, refused in on_ranks(4, "accumulated"):
            self.assertEqual(texts, ["", ""])
            self.assertIn("set_requires_gradient_sync(False)", refused)

    def test_a_rank_that_fails_alone_leaves_nobody_waiting(self):
        (beside, own, *others) = on_ranks(4, "failing_alone")
        self.assertEqual([kind for kind, _ in own], ["KeyboardInterrupt", "Error"])
        self.assertIn("an earlier step was broken off", own[1][1])
        self.assertEqual(beside, [("Error", "rank 1: a step was broken off: KeyboardInterrupt()")] * 2)
        for ends in others:
            self.assertEqual([kind for kind, _ in ends], ["PeerError"] * 2)
            self.assertIn("rank 1", ends[0][1])

    def test_a_mesh_of_two_dimensions_is_refused_with_advice(self):
        for two, none in on_ranks(2, "refusals"):
            self.assertIn("mesh inside a site", two)
            self.assertIn("fully_shard", none)


if __name__ == "__main__":
    if not has_its_hook():
        print("skipped: PyTorch 2.7 is missing, whose FSDPModule has set_all_reduce_hook")
        sys.exit(77)
    unittest.main()
