#!/usr/bin/env python3
"""Clusters: models that are cut in unlike ways become their mean, bit for bit."""

import array
import collections
import pathlib
import random
import re
import sys
import unittest

import launched
import ranks
import thinwire

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch" / "clusters.py"
SMALL = "--steps 12 --average 5 --width 32 --layers 1 --heads 2 --length 32 --batch 4"
ELEMENTS = 420


def drawn_cut(draw, cluster):
    """The ranges of two to four ranks of a cluster."""
    edges = sorted({0, ELEMENTS, *(draw.randrange(1, ELEMENTS) for _ in range(6))})
    held = [[] for _ in range(draw.randrange(2, 5))]
    for first, end in zip(edges, edges[1:]):
        draw.choice(held).append((first, end - first))
    return [(cluster, ranges) for ranges in held]


class CoreTest(unittest.TestCase):
    def test_the_mean_is_that_of_whole_models(self):
        """Multiples of 1/8 below 1000 add up without rounding, so the mean of two or four has one right value."""
        draw = random.Random(3)
        for clusters in (2, 4):
            models = [[draw.randrange(-8000, 8000) / 8 for _ in range(ELEMENTS)] for _ in range(clusters)]
            mean = [sum(values) / clusters for values in zip(*models)]
            members = [member for cluster in range(clusters) for member in drawn_cut(draw, cluster)]

            def play(rank, comm):
                cluster, ranges = members[rank]
                values = [array.array("f", models[cluster][first:first + count]) for first, count in ranges]
                with thinwire.Clusters(comm, cluster, ELEMENTS, ranges) as here:
                    here.average([value.buffer_info()[0] for value in values])
                return [list(value) for value in values]

            for (_, ranges), got in zip(members, ranks.on_threads(len(members), play)):
                self.assertEqual(got, [mean[first:first + count] for first, count in ranges])

    def test_a_gap_is_told_on_every_rank(self):
        def play(rank, comm):
            thinwire.Clusters(comm, rank, ELEMENTS, [(0, ELEMENTS - rank)])
        for error in ranks.on_threads(2, play):
            self.assertRegex(str(error), "no rank of cluster 1 holds elements 419 to 419")

    def test_a_number_of_addresses_is_checked(self):
        comm, = thinwire.Comm.threads(1)
        with thinwire.Clusters(comm, 0, 6, [(0, 4), (4, 2)]) as clusters:
            with self.assertRaisesRegex(thinwire.Error, "1 addresses were given, and there are 2 ranges"):
                clusters.average([8])


def layers(seed):
    import torch
    torch.manual_seed(seed)
    return collections.OrderedDict(first=torch.nn.Linear(7, 5), second=torch.nn.Linear(5, 3), third=torch.nn.Linear(3, 1))


def whole_mean(clusters):
    """By name, of the models that the clusters begin with."""
    import torch
    models = [torch.nn.Sequential(layers(cluster)).state_dict() for cluster in range(clusters)]
    return {name: sum((model[name] for model in models[1:]), models[0][name]) / clusters for name in models[0]}


def is_mean(model, clusters, here):
    """And what it has sent for it."""
    import torch
    mean, before = whole_mean(clusters), here.traffic()["bytes_sent"]
    here.average()
    sent = here.traffic()["bytes_sent"] - before
    with torch.no_grad():
        values = {name: one.full_tensor() if hasattr(one, "full_tensor") else one for name, one in model.named_parameters()}
    return all(torch.equal(value, mean[name]) for name, value in values.items()), sent


def sharded_unlike(rank, size):
    """Ranks 0 and 1 have sharded a model, and so have the others."""
    import thinwire.torch
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    cluster = int(rank > 1)
    groups = [dist.new_group([0, 1]), dist.new_group(list(range(2, size)))]
    model = torch.nn.Sequential(layers(cluster))
    fully_shard(model, mesh=DeviceMesh.from_group(groups[cluster], "cpu"))
    whole, inputs = torch.nn.Sequential(layers(0)), torch.ones(2, 7)
    whole.load_state_dict(whole_mean(2))
    with torch.no_grad():
        model(inputs)  # FSDP has whole parameters after it
        with thinwire.torch.Clusters(model, cluster, timeout=ranks.SECONDS) as here:
            model(inputs)
            result = is_mean(model, 2, here)
        return result[0] and torch.allclose(model(inputs), whole(inputs)), result[1]


def staged_unlike(rank, size):
    """A whole model, and one in two stages of which the first has another layer than in the last cluster."""
    import thinwire.torch
    import torch
    cluster, names = [(0, "first second third"), (1, "first"), (1, "second third"), (2, "first third"), (2, "second")][rank]
    model = torch.nn.Sequential(collections.OrderedDict((name, layers(cluster)[name]) for name in names.split()))
    with thinwire.torch.Clusters(model, cluster, timeout=ranks.SECONDS) as here:
        return is_mean(model, 3, here)


def narrow_and_scattered(rank, size):
    """Two clusters have 1 and 2 everywhere; of one parameter the elements lie apart."""
    import thinwire.torch
    import torch
    whole = torch.full((4, 6), 1.0 + rank)
    model = torch.nn.Module()
    model.apart = torch.nn.Parameter(whole[:, ::3])
    model.narrow = torch.nn.Parameter(torch.full((5,), 1.0 + rank, dtype=torch.bfloat16))
    with thinwire.torch.Clusters(model, rank, timeout=ranks.SECONDS) as here:
        here.average()
    return whole.tolist(), model.narrow.tolist()


def refused(rank, size):
    """What is said where a layer is of another shape, one is missing, one is of another type or has no memory of its
    own, and of a wrong number."""
    import thinwire.torch
    import torch
    said = []
    for wrong in ("shape", "missing", "dtype", "expanded", "number"):
        parts = layers(rank)
        if rank == 1 and wrong == "shape":
            parts["second"] = torch.nn.Linear(5, 4)
        elif rank == 1 and wrong == "missing":
            del parts["third"]
        elif rank == 1 and wrong == "dtype":
            parts["second"].to(torch.complex64)
        elif rank == 1 and wrong == "expanded":
            parts["second"].weight = torch.nn.Parameter(torch.zeros(1, 5).expand(3, 5))
        cluster = "1" if rank == 1 and wrong == "number" else rank
        said.append(ranks.refused(lambda: thinwire.torch.Clusters(torch.nn.Sequential(parts), cluster, timeout=ranks.SECONDS).close()))
    return said


@unittest.skipIf(ranks.torch_is_missing(), "there is no torch here")
class TorchTest(unittest.TestCase):
    def test_stages_become_the_mean(self):
        results = ranks.on_ranks(5, staged_unlike)
        self.assertEqual([equal for equal, _ in results], [True] * 5)
        elements = 7 * 5 + 5 + 5 * 3 + 3 + 3 + 1
        self.assertEqual(sum(sent for _, sent in results), 2 * (3 - 1) * 4 * elements)

    def needs_fully_shard(self):
        try:
            from torch.distributed.fsdp import fully_shard  # noqa: F401
        except (ImportError, ValueError):  # the latter is 1.13's, under Python 3.11
            self.skipTest("this torch has no fully_shard")

    def test_the_example_ends_with_the_same_weights_in_all_groups(self):
        self.needs_fully_shard()
        ends = launched.started_as_torchrun_does([EXAMPLE, *SMALL.split(), "--sizes", "1", "2"], 3)
        self.assertEqual([code for code, _, _ in ends], [0] * 3, "\n".join(out + err[-4000:] for _, out, err in ends))
        weights = re.findall(r"group (\d) of \d: .* weights (\w+)", "".join(out for _, out, _ in ends))
        self.assertEqual(weights, [("0", weights[0][1]), ("1", weights[0][1])])

    def test_shards_become_the_mean(self):
        self.needs_fully_shard()
        results = ranks.on_ranks(5, sharded_unlike)
        self.assertEqual([equal for equal, _ in results], [True] * 5)

    def test_parameters_of_another_type_and_such_that_lie_apart_become_the_mean(self):
        for rank, (whole, narrow) in enumerate(ranks.on_ranks(2, narrow_and_scattered)):
            self.assertEqual(whole, [[1.5, 1.0 + rank, 1.0 + rank] * 2] * 4)
            self.assertEqual(narrow, [1.5] * 5)

    def test_models_that_do_not_fit_are_refused_everywhere(self):
        for shape, missing, dtype, expanded, number in ranks.on_ranks(2, refused):
            self.assertIn("second.weight has the shape [4, 5] on rank 1", shape)
            self.assertRegex(missing, r"no rank of cluster 1 holds elements (\d+) to \d+; element \1 is in third.bias$")
            self.assertIn("second.weight: its values are torch.complex64", dtype)
            self.assertIn("second.weight is expanded", expanded)
            self.assertIn("cluster='1': want the number of this rank's cluster, from 0 to 1", number)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
