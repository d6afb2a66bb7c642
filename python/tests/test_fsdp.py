#!/usr/bin/env python3
"""attach_fsdp2: sites of one rank each, or of two, that agree through thinwire."""

import unittest

import ranks

if not ranks.torch_is_missing():
    import torch


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))


def inputs(rank, step):
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(10 * step + rank))


def full(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def sharded(sites, per_site, two_dimensions=False):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (sites, per_site), mesh_dim_names=("site", "rank"))
    model = layers()
    inside = mesh if two_dimensions else mesh["rank"]
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=inside)
    fully_shard(model, mesh=inside)
    return model, mesh["site"].get_group()


def compare(rank, size, per_site, spec):
    """The largest relative difference to the mean of all ranks' gradients; the share of elements that are not 0."""
    import thinwire.torch
    import torch.distributed as dist
    model, group = sharded(size // per_site, per_site)
    compressor = thinwire.torch.attach_fsdp2(model, spec, group, timeout=ranks.SECONDS)
    alone = layers()
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


def resumed(rank, size):
    import thinwire.torch

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
    return all(torch.equal(a, b) for a, b in zip(whole, again))


def rates(rank, size):
    """What a module's scheme is told of the optimiser, before and after a schedule; and what is refused."""
    import thinwire
    import thinwire.torch
    from unittest import mock
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
        optimiser.param_groups[0]["momentum"] = 0.9
        compressor._optimiser = None
        step()
        optimiser = torch.optim.SGD([{"params": [p], "lr": 0.1 * (i + 1)} for i, p in enumerate(model.parameters())])
        compressor._optimiser = optimiser
        step()
    for spec, more in (("topk:dens=1", {}), ("dgc", {"optimizer": torch.optim.Adam(model.parameters())})):
        try:
            thinwire.torch.attach_fsdp2(sharded(size, 1)[0], spec, group, **more)
        except thinwire.Error as error:
            texts.append(str(error))
    return told, texts


def refusals(rank, size):
    import thinwire.torch
    texts = []
    for model, group in (sharded(size, 1, two_dimensions=True), (layers(), None)):
        try:
            thinwire.torch.attach_fsdp2(model, "topk", group)
        except thinwire.Error as error:
            texts.append(str(error))
    return texts


class FsdpTest(unittest.TestCase):
    def setUp(self):
        try:
            from torch.distributed.fsdp import FSDPModule
        except (ImportError, ValueError):  # the latter is 1.13's, under Python 3.11
            FSDPModule = None
        if not hasattr(FSDPModule, "set_all_reduce_hook"):
            self.skipTest("this torch has no FSDPModule.set_all_reduce_hook")

    def test_sites_of_one_rank_agree_on_the_mean(self):
        for worst, _, steps in ranks.on_ranks(2, compare, 1, "allreduce"):
            self.assertLess(worst, 1e-6)
            self.assertEqual(steps, 2 * 3)

    def test_sites_of_two_ranks_agree_on_the_mean(self):
        for worst, _, _ in ranks.on_ranks(4, compare, 2, "allreduce"):
            self.assertLess(worst, 1e-6)

    def test_what_goes_between_sites_is_compressed(self):
        for _, there, _ in ranks.on_ranks(2, compare, 1, "topk:density=0.05"):
            self.assertGreater(there, 0.02)
            self.assertLess(there, 0.11)

    def test_a_resumed_run_is_the_uninterrupted_one(self):
        self.assertEqual(ranks.on_ranks(2, resumed), [True, True])

    def test_learning_rates_are_told_and_what_cannot_be_is_refused(self):
        for told, texts in ranks.on_ranks(1, rates):
            self.assertEqual(told, [[0.5]] * 2 + [[0.25]] * 2)
            self.assertEqual(len(texts), 4)
            for text, part in zip(texts, ["applied twice", "learning rates", 'no option "dens"', "applied twice"]):
                self.assertIn(part, text)

    def test_a_mesh_of_two_dimensions_is_refused_with_advice(self):
        for two, none in ranks.on_ranks(2, refusals):
            self.assertIn("mesh inside a site", two)
            self.assertIn("fully_shard", none)


if __name__ == "__main__":
    ranks.main()
