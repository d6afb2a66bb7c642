#!/usr/bin/env python3
"""attach() with each kind of scheme, and OuterLoop with each kind of method, for models on a GPU: two ranks on one GPU have the
bits of the same program on the processor. test_cuda.py has the other classes. It is skipped where there is no GPU."""

import copy
import os
import sys
import unittest

import gpus
import models
import ranks
import thinwire.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHAPES = [(64, 48), (40,), (3,), (128, 40), (9, 8, 3, 3), (200, 100)]
STEPS = 6
SCHEMES = ["topk:density=1,values=fp32,leftovers=fp32", "topk:density=0.05", "dgc:density=0.02,warmup_steps=0", "sdagc",
           "powersgd:rank=2,warmup_steps=2", "qsgd", "sign", "fp8", "bf16", "dgc-adam", "dgc:density=0.02,warmup_steps=0,clip=1"]


def skip_without_a_gpu():
    """Without a look at CUDA, which forks do not survive."""
    if not os.path.exists("/dev/nvidiactl") and not os.path.exists("/dev/kfd"):
        print("skipped: there is no GPU here")
        sys.exit(77)


class Given(nn.Module):
    """The gradient of each parameter is what it is given, so that a GPU and a processor have the same bits."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(5)
        self.parts = nn.ParameterList([nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES])

    def forward(self, gradients):
        return sum((gpus.Late.apply(part) * gradient).sum() for part, gradient in zip(self.parts, gradients))


def given(rank, step, like):
    """Gradients with few digits, of which no product with a power of two is rounded."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return [torch.randint(-64, 65, shape, generator=generator).to(like) / 64 for shape in SHAPES]


def of_nccl(rank):
    if DEVICE == "cpu":
        return None
    gpus.share_the_first(rank)
    return dist.new_group(backend="nccl")


def trained(rank, device, spec, group=None, dtype=torch.float32, bad=None, scaler=False, steps=STEPS, **more):
    """Weights and gradients of each step of a run on `device`."""
    model = Given(dtype).to(device)
    ddp = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=more.pop("views", True), bucket_cap_mb=0.02)
    optimiser = (thinwire.torch.AdamW(ddp.parameters(), lr=0.5, weight_decay=0.0) if spec.startswith("dgc-adam") else
                 thinwire.torch.SGD(ddp.parameters(), lr=0.5, momentum=0.5))
    scale = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=3) if scaler else None
    compressor = thinwire.torch.attach(ddp, spec, optimizer=optimiser, scaler=scale, banner=False, timeout=ranks.SECONDS, **more)
    seen = []
    for step in range(steps):
        optimiser.zero_grad(set_to_none=step % 2 == 0)
        gradients = [one.to(device) for one in given(rank, step, dtype)]
        if bad == (rank, step):
            gradients[2][1] = float("inf")
        loss = ddp(gradients)
        (scale.scale(loss) if scale else loss).backward()
        seen.append([p.grad.to("cpu").clone() for p in ddp.parameters()])
        if scale:
            scale.step(optimiser)
            scale.update()
        elif not compressor.skipped:
            optimiser.step()
        seen.append([p.detach().to("cpu").clone() for p in ddp.parameters()])
    state = {name: one for name, one in compressor.state_dict().items() if isinstance(one, torch.Tensor)}
    counts = {name: one for name, one in compressor.stats().items() if "bytes" in name or "steps" in name}
    compressor.close()
    return seen, state, counts


def differences(here, there):
    """Where two runs differ, in words."""
    (seen, state, counts), (other, other_state, other_counts) = here, there
    found = [f"step {i} tensor {j}" for i, (a, b) in enumerate(zip(seen, other)) for j, (x, y) in enumerate(zip(a, b))
             if not torch.equal(x.nan_to_num(7777), y.nan_to_num(7777))]
    found += [f"state {name}" for name in state if not torch.equal(state[name], other_state[name])]
    return found + [f"{name}: {counts[name]} and {other_counts[name]}" for name in counts if counts[name] != other_counts[name]]


def schemes(rank, size, device, backend):
    group = of_nccl(rank) if backend == "nccl" else None
    found = {}
    for spec in SCHEMES:
        found[spec] = differences(trained(rank, device, spec, group), trained(rank, "cpu", spec))
    return found


def corners(rank, size, device):
    """Types, buckets that are no views, a step with infinity, and a scaler's."""
    found, topk = {}, "topk:density=0.1"
    for name, more in (("bf16", {"dtype": torch.bfloat16}), ("fp16", {"dtype": torch.float16}), ("no views", {"views": False}),
                       ("infinity", {"bad": (1, 2)}), ("infinity as nan", {"bad": (1, 2), "nonfinite": "nan"}),
                       ("scaler", {"scaler": True}), ("scaler with infinity", {"scaler": True, "bad": (1, 2)}),
                       ("overlap off", {"spec": topk + ",overlap=off"})):
        more = dict(more)
        spec = more.pop("spec", topk)
        found[name] = differences(trained(rank, device, spec, **more), trained(rank, "cpu", spec, **more))
    return found


def accumulated(rank, size, device):
    """no_sync() for two passes of three: the third sends the sum."""
    def run(there):
        ddp = DistributedDataParallel(Given().to(there), bucket_cap_mb=0.02)
        compressor = thinwire.torch.attach(ddp, "topk:density=0.1", banner=False)
        for step in range(2):
            with ddp.no_sync():
                ddp([one.to(there) for one in given(rank, step, torch.float32)]).backward()
        ddp([one.to(there) for one in given(rank, 2, torch.float32)]).backward()
        return [p.grad.to("cpu") for p in ddp.parameters()], compressor.close()

    return all(torch.equal(x, y) for x, y in zip(run(device)[0], run("cpu")[0]))


def weighed(rank, size, device, backend):
    """Whatever attach() finds to be faster here: what it costs is measured on the device, and the mean is right."""
    os.environ.pop("THINWIRE_FALLBACK", None)
    group = of_nccl(rank) if backend == "nccl" else None
    ddp = DistributedDataParallel(Given().to(device), process_group=group, bucket_cap_mb=0.02)
    spec = "topk:density=1,values=fp32,leftovers=fp32"
    compressor = thinwire.torch.attach(ddp, spec, fallback=True, banner=False)
    ddp([one.to(device) for one in given(rank, 0, torch.float32)]).backward()
    means = [(x + y) / 2 for x, y in zip(given(0, 0, torch.float32), given(1, 0, torch.float32))]
    return (compressor.costs is not None, all(torch.equal(p.grad.to("cpu"), mean) for p, mean in zip(ddp.parameters(), means)))


def saved(rank, size, device):
    """What a run on the device has saved goes on in the host's memory, and the other way round."""
    def run(first, then):
        seen = []
        ddp = DistributedDataParallel(Given().to(first), bucket_cap_mb=0.02)
        compressor = thinwire.torch.attach(ddp, "topk:density=0.1", banner=False)
        ddp([one.to(first) for one in given(rank, 0, torch.float32)]).backward()
        state = copy.deepcopy(compressor.state_dict())
        compressor.close()
        ddp = DistributedDataParallel(Given().to(then), bucket_cap_mb=0.02)
        compressor = thinwire.torch.attach(ddp, "topk:density=0.1", banner=False)
        compressor.load_state_dict(state)
        ddp([one.to(then) for one in given(rank, 1, torch.float32)]).backward()
        seen = [p.grad.to("cpu") for p in ddp.parameters()]
        compressor.close()
        return seen

    wanted = run("cpu", "cpu")
    return [all(torch.equal(x, y) for x, y in zip(run(*pair), wanted)) for pair in ((device, "cpu"), ("cpu", device))]


# ---- OuterLoop

OUTER = ["local:every=2", "diloco:every=2", "diloco:every=2,exchange=topk:density=0.1", "streaming:every=6,fragments=2,delay=1",
         "sparseloco:every=2", "pulseloco:every=2", "local:every=2,eager=on"]


def walked(rank, device, spec, dtype=torch.float32, group=None):
    """Seven steps of a worker's own, the shared weights in the midst of them, and those at the end."""
    model = Given(dtype).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    loop = thinwire.torch.OuterLoop(model, optimiser, spec, banner=False, timeout=ranks.SECONDS, group=group)
    seen = []
    for step in range(7):
        optimiser.zero_grad()
        model([one.to(device) for one in given(rank, step, dtype)]).backward()
        optimiser.step()
        if step == 4:
            with loop.averaged():
                seen.append([p.detach().to("cpu").clone() for p in model.parameters()])
            state = loop.state_dict()
        seen.append([p.detach().to("cpu").clone() for p in model.parameters()])
    loop.finish()
    seen.append([p.detach().to("cpu").clone() for p in model.parameters()])
    tensors = {name: one for name, one in state.items() if isinstance(one, torch.Tensor)}
    return seen, tensors, {"bytes": loop.stats()["bytes_sent"]}


def loops(rank, size, device, backend):
    group = of_nccl(rank) if backend == "nccl" else None
    found = {spec: differences(walked(rank, device, spec, group=group), walked(rank, "cpu", spec)) for spec in OUTER}
    for dtype in (torch.bfloat16, torch.float16):
        found[str(dtype)] = differences(walked(rank, device, OUTER[1], dtype, group), walked(rank, "cpu", OUTER[1], dtype))
    return found


def apart(rank, size, device, port):
    """Two programs that know nothing of each other, and meet; then two that may come and go."""
    ends = {}
    for there in ("cpu", device):
        model = Given().to(there)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
        loop = thinwire.torch.OuterLoop(model, optimiser, "diloco:every=2", join=f"127.0.0.1:{port}", workers=2, rank=rank, banner=False)
        for step in range(5):
            optimiser.zero_grad()
            model([one.to(there) for one in given(rank, step, torch.float32)]).backward()
            optimiser.step()
        loop.finish()
        ends[there] = [p.detach().to("cpu").clone() for p in model.parameters()]
    return all(torch.equal(x, y) for x, y in zip(ends["cpu"], ends[device]))


DEVICE = os.environ.get("THINWIRE_TEST_DEVICE", "cuda")  # "cpu" tries the test itself


class CudaTest(unittest.TestCase):
    def agree(self, function, *more):
        for found in ranks.on_ranks(2, function, DEVICE, *more):
            for name, where in found.items():
                with self.subTest(name):
                    self.assertEqual(where, [])

    def test_every_scheme_gives_the_bits_of_the_host(self):
        self.agree(schemes, "gloo")

    def test_beside_nccl_too(self):
        self.agree(schemes, "nccl")

    def test_types_and_steps_that_are_not_finite(self):
        self.agree(corners)

    def test_no_sync_sends_the_sum(self):
        self.assertEqual(ranks.on_ranks(2, accumulated, DEVICE), [True, True])

    def test_what_is_faster_is_measured_on_the_device(self):
        for backend in ("gloo", "nccl"):
            with self.subTest(backend):
                self.assertEqual(ranks.on_ranks(2, weighed, DEVICE, backend), [(True, True)] * 2)

    def test_a_state_goes_from_device_to_device(self):
        self.assertEqual(ranks.on_ranks(2, saved, DEVICE), [[True, True]] * 2)

    def test_outer_loops_give_the_bits_of_the_host(self):
        self.agree(loops, "gloo")

    def test_outer_loops_beside_nccl_too(self):
        self.agree(loops, "nccl")

    def test_programs_that_meet(self):
        self.assertEqual(ranks.on_ranks(2, apart, DEVICE, ranks.free_port()), [True, True])


if __name__ == "__main__":
    if DEVICE != "cpu":
        skip_without_a_gpu()
    assert models
    unittest.main()
