#!/usr/bin/env python3
"""What comes out of a backward pass is what the library gives for the same gradients, bit for bit."""

import copy
import unittest
from inspect import signature

import models
import parts
import ranks
import thinwire.torch
import torch
from thinwire.torch import _parameters, _transport
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
SCHEMES = ["dgc:density=0.02,warmup_steps=2", "dgc:density=0.02,warmup_steps=0,clip=1", "scalecom:rate=50,warmup_steps=2",
           "sdagc:density=0.02,warmup_steps=2", "fp16", "bf16", "powersgd:rank=2,warmup_steps=2", "topk:density=0.05", "sign", "qsgd",
           "adacomp"]
EVERYTHING = "topk:density=0.05,min_dims=0,min_elements=1"


def by_hand(rank, size, reducer, names, given):
    """The reducer's answer to these gradients, as they lie in memory, without any DDP."""
    copies = [given[name].clone(memory_format=torch.preserve_format) for name in names]
    for i, copy in enumerate(copies):
        reducer.submit(i, copy.data_ptr())
    reducer.wait()
    return dict(zip(names, copies))


def compare_with_reducer(rank, size, schemes, layout, more):
    """For each scheme the largest difference to a reducer that is given the gradients of each rank's own."""
    differences = {}
    for scheme in schemes:
        model = models.small().to(memory_format=getattr(torch, layout))
        ddp = models.wrapped(copy.deepcopy(model), **more)
        alone = copy.deepcopy(model)
        compressor = thinwire.torch.attach(ddp, scheme, banner=False, timeout=ranks.SECONDS)
        comm = _transport.with_comm("tcp", None, _transport.Limits(ranks.SECONDS), lambda comm: comm)
        names = [name for name, _ in alone.named_parameters()]
        shapes = {n: p.permute(_parameters.order_in_memory(p)).shape for n, p in alone.named_parameters()}
        reducer = thinwire.Reducer(comm, scheme, list(shapes.items()))
        worst = 0.0
        for step in range(STEPS):
            ddp.zero_grad()
            alone.zero_grad()
            models.backward(ddp, rank, step)
            models.backward(alone, rank, step)
            expected = by_hand(rank, size, reducer, names, models.gradients(alone))
            got = models.gradients(ddp.module)
            assert set(got) == set(names)
            worst = max([worst, *(float((got[n] - expected[n]).abs().max()) for n in names)])
            with torch.no_grad():
                for pairs in (ddp.module.named_parameters(), alone.named_parameters()):
                    for name, p in pairs:
                        p.sub_(0.05 * expected[name])
        differences[scheme] = worst
        assert models.same_everywhere(ddp.module)
        compressor.close()
        reducer.close()
        comm.close()
    return differences


def compare_with_ddp(rank, size, spec):
    model = models.small()
    plain, ours = models.wrapped(copy.deepcopy(model)), models.wrapped(copy.deepcopy(model))
    compressor = thinwire.torch.attach(ours, spec, banner=False, timeout=ranks.SECONDS)
    worst = 0.0
    for step in range(3):
        plain.zero_grad(), ours.zero_grad()
        models.backward(plain, rank, step), models.backward(ours, rank, step)
        a, b = models.gradients(plain.module), models.gradients(ours.module)
        worst = max([worst, *(float((a[n] - b[n]).abs().max()) for n in a)])
    return worst, compressor.summary()


class EqualityTest(unittest.TestCase):
    def assert_bit_equal(self, size, schemes, layout="contiguous_format", **more):
        for result in ranks.on_ranks(size, compare_with_reducer, schemes, layout, more):
            self.assertEqual(result, dict.fromkeys(schemes, 0.0))

    def test_every_scheme_on_two_ranks(self):
        self.assert_bit_equal(2, SCHEMES)

    @parts.extra
    def test_every_scheme_on_four_ranks(self):
        self.assert_bit_equal(4, SCHEMES[:7])

    def test_with_channels_last(self):
        self.assert_bit_equal(2, [EVERYTHING, *SCHEMES[:2]], "channels_last")
        rows, _ = _parameters.table_of(models.small().to(memory_format=torch.channels_last))
        self.assertEqual(_parameters.orders_of(rows), {"0.weight": [0, 2, 3, 1]})

    def test_with_many_small_buckets(self):
        self.assert_bit_equal(2, [EVERYTHING, *SCHEMES[:2]], bucket_cap_mb=0.01, gradient_as_bucket_view=False)

    def test_with_a_static_graph(self):
        self.assert_bit_equal(2, SCHEMES[:1], static_graph=True)

    def test_with_a_search_for_unused_parameters(self):
        self.assert_bit_equal(2, SCHEMES[:1], find_unused_parameters=True)

    def test_with_gradients_copied_together(self):
        if "batched_grad_copy" not in signature(DistributedDataParallel.__init__).parameters:
            self.skipTest("this torch copies one by one")
        self.assert_bit_equal(2, SCHEMES[:1], batched_grad_copy=True)

    def test_dense_is_plain_ddp(self):
        for size in (2, 4):
            for worst, summary in ranks.on_ranks(size, compare_with_ddp, "allreduce"):
                self.assertEqual(worst, 0.0)
                self.assertIn("torch's own", summary)


if __name__ == "__main__":
    unittest.main(testLoader=parts.Loader())
