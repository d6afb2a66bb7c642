#!/usr/bin/env python3
"""Models on a GPU, by every class that takes one: two ranks on one GPU have the bits of the same program on the processor.

Every number in here is an integer, or one over a power of two, of few digits: no sum is rounded, in whatever order it
is taken, but for those of the weights to bf16, which all processors round alike. In front of all that the plug-in
copies the GPU has a long time to do nothing. Without a GPU there is the one of gpus.py."""

import contextlib
import ctypes
import datetime
import functools
import unittest
import zlib
from typing import NamedTuple

import gpus
import models
import parts
import ranks
import thinwire.torch
import torch
import torch.distributed as dist
from torch import nn

EXACT, LOSSY = "topk:dense=*,leftovers=fp32", "topk:density=0.25,min_elements=1,min_dims=1"
RATE = 1 / 64  # of learning: a product with it is exact
STEPS = 4


class Place(NamedTuple):
    """Where a program runs: on a device, over a backend of torch's, on tensors of so many elements. `simulated` is a
    kind of gpus.py, where the device is none."""

    device: str = "cpu"
    backend: str = "gloo"
    elements: int = 1 << 10
    simulated: str = ""

    def gpu(self):
        return gpus.simulated(self.simulated) if self.simulated else contextlib.nullcontext()

    def busy(self):
        """What is queued from now on comes late."""
        if self.device == "cuda":
            torch.cuda._sleep(gpus.CYCLES)

    def poison(self):
        """What is read before it was written is NaN."""
        if self.device == "cuda":
            del [torch.full((self.elements,), float("nan"), device="cuda") for _ in range(8)][:]

    def group(self, members):
        """A collective of all ranks, and of members alone a group."""
        return dist.new_group(members, backend=self.backend, timeout=datetime.timedelta(seconds=60))

    @contextlib.contextmanager
    def aside(self, step):
        """In every second step on a stream of its own."""
        if self.device != "cuda" or step % 2 == 0:
            yield
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)


def integers(shape, seed, dtype, device):
    drawn = torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(dtype).to(device)


class Products(nn.Module):
    """Whose gradients are what its weights are multiplied by."""

    def __init__(self, place, dtype, shapes):
        super().__init__()
        for number, (name, shape) in enumerate(shapes.items()):
            values = integers(shape, number, dtype, place.device)
            if len(shape) == 4:
                values = values.contiguous(memory_format=torch.channels_last)
            self.register_parameter(name, nn.Parameter(values))

    def forward(self, rank, step, leaves_out=(), factor=1):
        total = 0
        for number, (name, weight) in enumerate(self.named_parameters(recurse=False)):
            if name not in leaves_out:
                there = weight.to_local() if hasattr(weight, "to_local") else weight
                given = integers(there.shape, 100 * step + 10 * rank + number, weight.dtype, there.device) * factor
                total = total + (gpus.Late.apply(there) * given).sum()
        return total


def products(place, dtype):
    rows = place.elements // 8
    return Products(place, dtype, {"long": (place.elements,), "matrix": (rows, 8), "rare": (16,), "picture": (8, 4, rows // 8, 2)})


def digests(seen):
    """What was seen on the device, read when all is over. NaN has many bits, and a processor's own."""
    return [(name, zlib.crc32(ctypes.string_at(there.data_ptr(), there.numel() * there.element_size())))
            for name, values in seen for there in [values.cpu().nan_to_num(nan=7777.0).contiguous()]]


def note(seen, step, module):
    for name, parameter in module.named_parameters():
        for kind, values in (("gradient", parameter.grad), ("weight", parameter)):
            if values is None:
                seen.append((f"{step}: {name} has no {kind}", torch.zeros(1)))
            else:
                values = values.to_local() if hasattr(values, "to_local") else values
                seen.append((f"{step}: {kind} of {name}", values.detach().clone()))


def kinds():
    for dtype in (torch.float32, torch.bfloat16):
        for spec in (EXACT, f"{EXACT},overlap=off", LOSSY):
            yield dtype, spec


def trained(module, place, rank, rare=True):
    """The passes of a run: each rank leaves out the rare parameter now and then, and in one step rank 1 has NaN."""
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
    for step in range(STEPS):
        place.poison()
        optimiser.zero_grad()
        leaves_out = {"rare"} if rare and (rank + step) % 2 == 0 else ()
        yield step, optimiser, lambda: module(rank, step, leaves_out, float("nan") if (rank, step) == (1, 2) else 1)


def exchange(rank, group, place):
    """Also where gradients accumulate, on another stream, and with parameters that a rank does not use."""
    seen = []
    for dtype, spec in kinds():
        module = products(place, dtype)
        with thinwire.torch.Exchange(module, spec, group=group, timeout=ranks.SECONDS, banner=False) as there:
            for step, optimiser, loss in trained(module, place, rank):
                if step == 1:
                    with there.no_sync():
                        loss().backward()
                with place.aside(step):
                    loss().backward()
                    note(seen, f"{dtype} {spec} {step}", module)
                    optimiser.step()
            assert there.compressor.stats()["steps_skipped"] == 1
    return digests(seen)


def scaled(rank, group, place):
    """With a GradScaler, whose scale is a number on the GPU."""
    seen, module = [], products(place, torch.float32)
    scaler = torch.amp.GradScaler(place.device, init_scale=4.0, growth_interval=2)
    with thinwire.torch.Exchange(module, EXACT, group=group, timeout=ranks.SECONDS, banner=False, scaler=scaler):
        for step, optimiser, loss in trained(module, place, rank, rare=False):
            scaler.scale(loss()).backward()
            scaler.step(optimiser)
            scaler.update()
            note(seen, step, module)
    return digests(seen)


def both(rank, group, place):
    """Of one module a part is on the processor, whose hooks another thread calls."""
    seen, module = [], nn.ModuleList([products(place, torch.float32), products(place._replace(device="cpu"), torch.float32)])
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
    with thinwire.torch.Exchange(module, EXACT, group=group, timeout=ranks.SECONDS, banner=False):
        for step in range(STEPS):
            optimiser.zero_grad()
            (module[0](rank, step).to("cpu") + module[1](rank, step)).backward()
            note(seen, step, module)
            optimiser.step()
    return digests(seen)


class Layers(nn.Module):
    def __init__(self, place, dtype):
        super().__init__()
        rows = place.elements // 8
        self.first, self.second = (Products(place, dtype, {"matrix": (rows, 8), "bias": (12,)}) for _ in range(2))
        self.own = Products(place, dtype, {"long": (place.elements,)})

    def forward(self, rank, step, leaves_out=(), factor=1):
        return sum(part(rank, step, leaves_out, factor) for part in (self.first, self.second, self.own))


def sharded(module, place, inside, **more):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    mesh = DeviceMesh.from_group(inside, place.device)
    for part in (module.first, module.second, module):
        fully_shard(part, mesh=mesh, **more)
    return module


def groups_inside(place, per_site):
    """That of this rank's site, which on GPUs is NCCL's, and that between sites."""
    size, rank = dist.get_world_size(), dist.get_rank()
    here = place._replace(backend="nccl" if place.device == "cuda" else "gloo")
    inside = [here.group(list(range(first, first + per_site))) for first in range(0, size, per_site)]
    between = [place.group(list(range(first, size, per_site))) for first in range(per_site)]
    return inside[rank // per_site], between[rank % per_site]


def fsdp2(rank, group, place, per_site=1):
    """Also with gradients that are reduced in fp32, and cast afterwards."""
    from torch.distributed.fsdp import MixedPrecisionPolicy
    seen, (inside, between) = [], groups_inside(place, per_site)
    reduces = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float32)}
    for more, (dtype, spec) in [({}, kind) for kind in kinds()] + [(reduces, (torch.bfloat16, EXACT))]:
        module = sharded(Layers(place, dtype), place, inside, **more)
        compressor = thinwire.torch.attach_fsdp2(module, spec, between, timeout=ranks.SECONDS, banner=False)
        with contextlib.closing(compressor):
            for step, optimiser, loss in trained(module, place, rank, rare=False):
                module.set_requires_gradient_sync(False)
                if step == 1:
                    loss().backward()
                module.set_requires_gradient_sync(True)
                loss().backward()
                note(seen, f"{sorted(more)} {dtype} {spec} {step}", module)
                optimiser.step()
            assert compressor.stats()["steps_skipped"] == 1
    return digests(seen)


def fsdp2_of_two(rank, group, place):
    return fsdp2(rank, group, place, per_site=2)


def scattered(module):
    """With a parameter whose elements lie apart."""
    wide = nn.Parameter(integers((12, 10), 9, module.long.dtype, module.long.device)[:, ::3])
    module.register_parameter("wide", wide)
    return module


def gossip(rank, group, place):
    seen = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        module = scattered(products(place, dtype))
        module.register_buffer("statistic", torch.full((3,), float(rank), device=place.device))
        optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
        there = thinwire.torch.GossipDataParallel(module, "dpsgd", optimizer=optimiser, group=group, timeout=ranks.SECONDS)
        with contextlib.closing(there):
            for step in range(STEPS):
                optimiser.zero_grad()
                there(rank, step, factor=float("nan") if (rank, step) == (1, 2) else 1).backward()
                place.busy()
                assert there.step() == ((rank, step) != (1, 2))
                note(seen, f"{dtype} {step}", module)
            there.finish()
            note(seen, f"{dtype} end", module)
            seen.append((f"{dtype} statistic", module.statistic.clone()))
    return digests(seen)


def clusters(rank, group, place):
    """Of whole models, and of shards where torch has them."""
    seen = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        module = scattered(products(place, dtype))
        with thinwire.torch.Clusters(module, rank, group=group, timeout=ranks.SECONDS) as there:
            averaged(there, module, place, rank, seen, f"{dtype}")
    if has_fsdp2():
        module = sharded(Layers(place, torch.float32), place, groups_inside(place, 1)[0])
        with thinwire.torch.Clusters(module, rank, group=group, timeout=ranks.SECONDS) as there:
            averaged(there, module, place, rank, seen, "shards")
    return digests(seen)


def averaged(there, module, place, rank, seen, kind):
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
    for step in range(STEPS):
        optimiser.zero_grad()
        module(rank, step).backward()
        place.busy()
        optimiser.step()
        there.average()
        note(seen, f"{kind} {step}", module)


def ddp(rank, group, place):
    seen = []
    for dtype, spec in kinds():
        if dtype == torch.bfloat16 and torch.__version__.startswith("1."):
            continue  # DDP itself does not take it over Gloo
        wrapped, compressor = models.attached(products(place, dtype), spec, {"find_unused_parameters": True, "bucket_cap_mb": 0.001})
        with contextlib.closing(compressor):
            for step, optimiser, loss in trained(wrapped, place, rank):
                loss().backward()
                note(seen, f"{dtype} {spec} {step}", wrapped)
                optimiser.step()
    return digests(seen)


def outer(rank, group, place):
    seen = []
    for dtype in (torch.float32, torch.bfloat16):
        module = scattered(products(place, dtype))
        optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.5)
        with thinwire.torch.OuterLoop(module, optimiser, "diloco:every=2,first_moment=1", group=group, hook=False,
                                      timeout=ranks.SECONDS, banner=False) as there:
            for step in range(STEPS + 1):
                optimiser.zero_grad()
                module(rank, step).backward()
                place.busy()
                optimiser.step()
                there.step()
                note(seen, f"{dtype} {step}", module)
            there.finish()
            note(seen, f"{dtype} end", module)
            seen += [(f"{dtype} moment", optimiser.state[p]["momentum_buffer"].clone()) for p in module.parameters()]
    return digests(seen)


def play(rank, size, door, place):
    if place.device == "cuda":
        gpus.share_the_first(rank)
    group = place.group(list(range(size)))
    with place.gpu():
        return globals()[door](rank, group, place)


def has_gpu(rank, size):
    """In a process of its own: one that has looked for a GPU cannot fork others that use it."""
    return torch.cuda.is_available()


def adds_up(rank, group, place):
    ones = torch.ones(3, device=place.device)
    dist.all_reduce(ones, group=group)
    return float(ones.sum())


def has_hooks():
    return hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


def has_fsdp2():
    try:
        from torch.distributed.fsdp import FSDPModule
    except (ImportError, ValueError):  # the latter is 1.13's, under Python 3.11
        return False
    return hasattr(FSDPModule, "set_all_reduce_hook")


@functools.lru_cache(None)
def on_processor(door, size, elements):
    return ranks.on_ranks(size, play, door, Place(elements=elements))


class DoorsTest(unittest.TestCase):
    """On the GPU that is none."""
    kinds = gpus.KINDS[:1]

    def check(self, door):
        for kind in self.kinds:
            with self.subTest(kind=kind):
                self.assert_alike(door, Place(simulated=kind))

    def assert_alike(self, door, place, size=2):
        """The same bits as on the processor."""
        wanted = on_processor(door, size, place.elements)
        for rank, (there, right) in enumerate(zip(ranks.on_ranks(size, play, door, place), wanted, strict=True)):
            self.assertEqual([name for name, _ in there], [name for name, _ in right])
            self.assertEqual([name for (name, one), (_, other) in zip(there, right) if one != other], [], f"on rank {rank}")

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_an_exchange(self):
        self.check("exchange")

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "this torch has no GradScaler for all devices")
    def test_an_exchange_beside_a_scaler(self):
        self.check("scaled")

    @unittest.skipUnless(has_fsdp2(), "this torch has no FSDPModule.set_all_reduce_hook")
    def test_shards_between_sites(self):
        self.check("fsdp2")

    def test_gossip(self):
        self.check("gossip")

    def test_clusters(self):
        self.check("clusters")

    def test_buckets_of_ddp(self):
        self.check("ddp")

    def test_local_updates(self):
        self.check("outer")


@parts.extra
class OtherKindsTest(DoorsTest):
    kinds = gpus.KINDS[1:]


class CudaTest(DoorsTest):
    """On a GPU, over both backends. (test_cuda_ddp.py has what is not here.)"""

    test_buckets_of_ddp = test_local_updates = None

    @classmethod
    def setUpClass(cls):
        if not ranks.on_ranks(1, has_gpu)[0]:
            raise unittest.SkipTest("torch.cuda.is_available() is False: there is no GPU here")

    @staticmethod
    @functools.lru_cache(None)
    def why_not(place, size):
        """Why so many ranks do not run on one GPU."""
        try:
            ranks.on_ranks(size, play, "adds_up", place)
        except AssertionError as error:
            return f"{place.backend} does not run {size} ranks on one GPU here: {str(error).strip().splitlines()[-1]}"
        return ""

    def check(self, door, backends=("gloo", "nccl"), size=2):
        for backend in backends:
            place = Place("cuda", backend, 1 << 19)
            with self.subTest(backend=backend):
                if self.why_not(place, size):
                    self.skipTest(self.why_not(place, size))
                self.assert_alike(door, place, size)

    @unittest.skipUnless(has_hooks(), "this torch has no hooks after accumulation")
    def test_an_exchange_of_a_module_that_is_on_two_devices(self):
        self.check("both")

    @unittest.skipUnless(has_fsdp2(), "this torch has no FSDPModule.set_all_reduce_hook")
    def test_shards_inside_sites_of_two(self):
        self.check("fsdp2_of_two", ("nccl",), 4)


if __name__ == "__main__":
    unittest.main(testLoader=parts.Loader())
