#!/usr/bin/env python3
"""What a compressor remembers: plain tensors, each rank its own; a resumed run is the uninterrupted one."""

import copy
import io
import tempfile
import unittest

import models
import parts
import ranks
import thinwire.torch
import torch
import torch.distributed as dist

SCHEMES = ["dgc:density=0.02,warmup_steps=4", "powersgd:rank=2,warmup_steps=2"]
OTHERS = ["scalecom:rate=50,warmup_steps=2", "sdagc:warmup_steps=2", "sign", "adacomp"]


def resumed(rank, size, schemes):
    """Six steps, and three, a checkpoint, another process's objects with buckets of another size, and three more."""
    outcomes = {}
    for scheme in schemes:
        model = models.small()

        def run(start, steps, checkpoint=None, **more):
            ddp = models.wrapped(copy.deepcopy(start), **more)
            optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
            compressor = thinwire.torch.attach(ddp, scheme, optimizer=optimiser, banner=False, timeout=ranks.SECONDS)
            if checkpoint is not None:
                compressor.load_state_dict(checkpoint)
            models.train(ddp, optimiser, rank, steps)
            state = compressor.state_dict()
            compressor.close()
            return ddp.module, state

        whole, end = run(model, range(6))
        half, state = run(model, range(3))
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
        again, there = run(half, range(3, 6), state, bucket_cap_mb=0.01)
        same = all(torch.equal(a, b) for a, b in zip(models.weights(whole).values(), models.weights(again).values()))
        outcomes[scheme] = same, all(equal(end[name], there[name]) for name in {**end, **there})
    return outcomes


def equal(one, other):
    return torch.equal(one, other) if torch.is_tensor(one) else one == other


def under_another_rate(rank, size, spec, kind):
    """The gradients behind a load by a compressor that has exchanged under another rate than the state's, and by a new one."""
    made = []
    for is_new in (False, True):
        model = models.small().eval()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        more = {"optimizer": optimiser, "banner": False, "timeout": ranks.SECONDS}
        if kind == "attach":
            module, compressor = models.attached(model, spec, **more)
        else:
            module, compressor = model, thinwire.torch.Exchange(model, spec, **more).compressor

        def exchanged(step):
            optimiser.zero_grad()
            models.backward(module, rank, step)

        for step in () if is_new else range(3):
            exchanged(step)
        state = made[0][0] if is_new else compressor.state_dict()
        optimiser.param_groups[0]["lr"] = 0.02
        if not is_new:
            exchanged(3)
        if kind == "attach":
            compressor.load_state_dict(state)
        else:
            compressor.load_state_dicts(gathered(state))
        exchanged(4)
        made.append((state, models.gradients(model)))
        compressor.close()
    (_, here), (_, new) = made
    return all(torch.equal(here[name], new[name]) for name in new)


def gathered(state):
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    return states


def own(rank, size):
    """Each rank's residual is its own, and another's is refused."""
    ddp, compressor = models.attached(models.small(), "topk:density=0.02")
    models.backward(ddp, rank, 0)
    state = compressor.state_dict()
    states = [None] * size
    dist.all_gather_object(states, state)
    distance = float((states[0]["residual/4.weight"] - states[1]["residual/4.weight"]).abs().sum())
    texts = []

    def refused(changed):
        texts.append(ranks.refused(lambda: compressor.load_state_dict(changed)))

    refused(states[1 - rank])
    refused({})
    refused({name: value for name, value in state.items() if name != "residual/4.weight"})
    refused({**state, "residual/4.weight": torch.zeros(7)})
    refused({**state, "thinwire/order": {"0.weight": [0, 2, 3, 1]}})
    refused({**state, "thinwire/spec": "dgc:density=0.02"})
    refused({**state, "thinwire/fallback": "no"})
    refused({**state, "thinwire/tensors": [*state["thinwire/tensors"], "8.weight"]})
    refused({**state, "residual/4.weight": 7})
    refused(None)
    dense = thinwire.torch.attach(models.wrapped(models.small()), "allreduce", banner=False)
    wary = thinwire.torch.attach(models.wrapped(models.small()), "topk:density=0.02", banner=False, expect_ratio=2)
    for load in (lambda: dense.load_state_dict(state), lambda: dense.load_state_dicts(states),
                 lambda: wary.load_state_dict({**state, "thinwire/fallback": True})):
        texts.append(ranks.refused(load))
    unchanged = all(equal(value, compressor.state_dict()[name]) for name, value in state.items())
    return distance, texts, unchanged, sorted(state)


def wrapped(kind, spec):
    """A module whose gradients are exchanged, and what has the state; a gossip is both."""
    model, more = models.small(), {"banner": False, "timeout": ranks.SECONDS}
    if kind == "attach":
        ddp = models.wrapped(model)
        return ddp, thinwire.torch.attach(ddp, spec, **more)
    if kind == "Exchange":
        return model, thinwire.torch.Exchange(model, spec, **more).compressor
    return (thinwire.torch.GossipDataParallel(model, spec, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)),) * 2


def state_of(one):
    return one.gossip_state_dict() if hasattr(one, "gossip_state_dict") else one.state_dict()


def saved_by(rank, size, kinds):
    """After three steps, what this rank has saved, by the kind of exchange."""
    states = {}
    for kind, spec in kinds.items():
        module, one = wrapped(kind, spec)
        for step in range(3):
            models.backward(module, rank, step)
            if kind == "gossip":
                module.step()
        states[kind] = state_of(one)
        one.finish() if kind == "gossip" else one.close()
    return states


def taken_over(rank, size, kinds, states):
    """What this rank has of them, and that it goes on. And what it is told where a state is missing."""
    taken, texts = {}, []
    for kind, spec in kinds.items():
        module, one = wrapped(kind, spec)
        load = one.load_gossip_state_dicts if kind == "gossip" else one.load_state_dicts
        texts.append(ranks.refused(lambda: load([state[kind] for state in states[1:]])))
        load([state[kind] for state in states])
        taken[kind] = state_of(one)
        models.backward(module, rank, 3)
        if kind == "gossip":
            module.step(), module.finish()
    return taken, texts


def together(states, kind, begin):
    """The sum over ranks of all that is called so."""
    return sum(torch.cat([v.double().reshape(-1) for k, v in sorted(state[kind].items()) if k.startswith(begin)])
               for state in states)


def by_dcp(rank, size, folder):
    """torch.distributed.checkpoint keeps one of what has the same name on several ranks, and so each has its own."""
    import torch.distributed.checkpoint as dcp
    ddp, compressor = models.attached(models.small(), "topk:density=0.02")
    models.backward(ddp, rank, 0)
    before = compressor.state_dict()
    dcp.save({f"compressor{rank}": compressor}, checkpoint_id=folder)
    models.backward(ddp, rank, 1)
    changed = not all(equal(value, compressor.state_dict()[name]) for name, value in before.items())
    dcp.load({f"compressor{rank}": compressor}, checkpoint_id=folder)
    return changed, all(equal(value, compressor.state_dict()[name]) for name, value in before.items())


class StateTest(unittest.TestCase):
    def test_a_resumed_run_is_the_uninterrupted_one(self):
        self.check_resuming(SCHEMES)

    @parts.extra
    def test_a_resumed_run_of_others_is_the_uninterrupted_one(self):
        self.check_resuming(OTHERS)

    def test_the_rate_of_a_state_is_not_that_of_the_run(self):
        kinds = ["attach"] + ["Exchange"] * hasattr(torch.Tensor, "register_post_accumulate_grad_hook")
        for spec in ("sdagc:warmup_steps=0", "dgc:revision=rate,density=0.02,warmup_steps=0"):
            for kind in kinds:
                self.assertEqual(ranks.on_ranks(2, under_another_rate, spec, kind), [True, True], (spec, kind))

    def check_resuming(self, schemes):
        self.assertEqual(ranks.on_ranks(2, resumed, schemes), [dict.fromkeys(schemes, (True, True))] * 2)

    def test_each_rank_has_its_own_and_what_does_not_fit_is_refused(self):
        for distance, texts, unchanged, names in ranks.on_ranks(2, own):
            self.assertGreater(distance, 0)
            self.assertEqual(len(texts), 13)
            for text, part in zip(texts, ["each rank saves its own", "no state of a compressor", "residual/4.weight",
                                          "residual/4.weight", "0.weight has another memory format",
                                          "the state of dgc, and that of topk is wanted", "thinwire/fallback is 'no'",
                                          "a model that has 8.weight", "4.weight is a int", "this is a NoneType",
                                          "nowhere to put it", "nowhere to put it", "expect_ratio=2"], strict=True):
                self.assertIn(part, text)
            self.assertTrue(unchanged)
            self.assertIn("residual/4.weight", names)

    def test_distributed_checkpoints(self):
        try:
            from torch.distributed.checkpoint import load, save  # noqa: F401
            from torch.distributed.checkpoint.stateful import Stateful  # noqa: F401
        except ImportError:
            self.skipTest("this torch does not save objects with a state_dict in its distributed checkpoints")
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(ranks.on_ranks(2, by_dcp, folder), [(True, True)] * 2)

    def test_four_ranks_go_on_as_two_and_as_eight_and_these_as_four(self):
        """The sum of what they held back stays; of a gossip's weights the mean."""
        spec = "topk:density=0.02,min_dims=0,min_elements=1"
        kinds = {"attach": spec, "Exchange": spec, "gossip": "dpsgd"}
        if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
            del kinds["Exchange"]
        states = {4: ranks.on_ranks(4, saved_by, kinds)}
        for old, new in ((4, 2), (2, 4), (4, 8)):
            outcomes = ranks.on_ranks(new, taken_over, kinds, states[old])
            states[new] = [taken for taken, _ in outcomes]
            for _, texts in outcomes:
                self.assertEqual(len(texts), len(kinds))
                self.assertTrue(all("rank 1 of" in text for text in texts))
            for kind in kinds:
                begin, share = ("weights/", old / new) if kind == "gossip" else ("residual/", 1)
                before, now = together(states[old], kind, begin), together(states[new], kind, begin)
                self.assertGreater(float(now.abs().max()), 1e-3)
                self.assertLess(float((now * share - before).abs().max()), 1e-5 if kind == "gossip" else 1e-6)


if __name__ == "__main__":
    unittest.main(testLoader=parts.Loader())
