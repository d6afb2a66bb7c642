"""One rank of bench/network.py: a PyTorch process, started by mpirun, that exchanges gradients in one way, or trains.

    network_torch.py exchange WAY [--parameters N] [--steps N] [--seconds S] [--optimizer adamw]
    network_torch.py train WAY [--task JSON]

WAY is torch:none, torch:dense, torch:fp16, torch:bf16, torch:powersgd=RANK, torch:postlocal, thinwire:SPEC,
auto:SPEC or gossip:SPEC. Ranks meet at JOIN, HOST:PORT, and use the device eth0. Rank 0 prints a line of JSON."""
import argparse
import dataclasses
import inspect
import json
import os
import statistics
import time
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import link
import network_tasks as tasks

UNMEASURED = 3  # DDP makes its buckets anew in the second step
SETS = 3        # of gradients, in turn
PERIOD = 4      # steps between two averages of PostLocalSGD
BUCKET_MB = 25  # DDP's own default
ONE_BUCKET_MB = 4000

# All ranks make the same weights themselves: not to send them saves seconds at 1 Gbit/s. No buffer changes, either, and one that
# DDP sends in each step would be bytes that no gradient has.
ALIKE = {"init_sync": False} if "init_sync" in inspect.signature(DistributedDataParallel).parameters else {}


# ---- ways of exchanging ---------------------------------------------------------------------------------------------

def keep(state, bucket):
    """No exchange: what a step costs without one."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def halve_as_bf16(state, bucket):
    """torch's own bf16 hook refuses Gloo."""
    buffer = bucket.buffer()
    half = buffer.to(torch.bfloat16).div_(dist.get_world_size())
    return dist.all_reduce(half, async_op=True).get_future().then(lambda done: buffer.copy_(done.value()[0]))


def average_now_and_then(parameters):
    from torch.distributed.algorithms.model_averaging import averagers
    averager = averagers.PeriodicModelAverager(period=PERIOD, warmup_steps=0)
    return lambda: averager.average_parameters(parameters)


class Way:
    """A module that exchanges in one way. `after_step` is what has to be done once the optimiser has stepped."""

    def __init__(self, name, module, optimiser):
        self.family, _, self.spec = name.partition(":")
        self.plugged, self.after_step, self.step, self.period = None, None, optimiser.step, 1
        make = {"torch": self._by_torch, "thinwire": self._by_thinwire, "auto": self._by_thinwire,
                "gossip": self._by_gossip}[self.family]
        self.module = make(module, optimiser)

    def _ddp(self, module, megabytes=BUCKET_MB):
        return DistributedDataParallel(module, bucket_cap_mb=megabytes, gradient_as_bucket_view=True, broadcast_buffers=False, **ALIKE)

    def _by_torch(self, module, optimiser):
        scheme, _, rank = self.spec.partition("=")
        if scheme == "powersgd":  # with several buckets its collectives overtake each other, and it hangs or aborts
            with mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", ONE_BUCKET_MB << 20):
                ddp = self._ddp(module, ONE_BUCKET_MB)
        else:
            ddp = self._ddp(module)
        getattr(self, f"_hook_{scheme}")(ddp, module, rank)
        return ddp

    def _hook_dense(self, ddp, module, rank):
        pass

    def _hook_none(self, ddp, module, rank):
        ddp.register_comm_hook(None, keep)

    def _hook_fp16(self, ddp, module, rank):
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)

    def _hook_bf16(self, ddp, module, rank):
        ddp.register_comm_hook(None, halve_as_bf16)

    def _hook_powersgd(self, ddp, module, rank):
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=int(rank), start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    def _hook_postlocal(self, ddp, module, rank):
        alone, _ = dist.new_subgroups(group_size=1)
        state = post_localSGD_hook.PostLocalSGDState(None, subgroup=alone, start_localSGD_iter=0)
        ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        self.after_step, self.period = average_now_and_then(list(module.parameters())), PERIOD

    def _by_thinwire(self, module, optimiser):
        import thinwire.torch
        ddp = self._ddp(module)
        self.plugged = thinwire.torch.attach(ddp, self.spec, optimizer=optimiser, banner=False,
                                             fallback=self.family == "auto")
        return ddp

    def _by_gossip(self, module, optimiser):
        import thinwire.torch
        wrapped = self.plugged = thinwire.torch.GossipDataParallel(module, self.spec, optimizer=optimiser)
        self.step = wrapped.step
        return wrapped

    def finish(self):
        if self.family == "gossip":
            self.plugged.finish()
        elif self.plugged:
            self.plugged.close()


# ---- what is measured ------------------------------------------------------------------------------------------------

def largest(values):
    """Of each value the largest of any rank."""
    values = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values.tolist()


class Stopwatch:
    """The processor's seconds of a step that DDP's hook takes on the thread of the backward pass, without those in the
    library's calls, and without what the looks at the clock take themselves. (On the wall's clock it would also have
    what the library's other threads take away from this one.)"""

    CALLS = ["tw_reducer_submit", "tw_reducer_submit_with", "tw_reducer_wait_for", "tw_reducer_wait"]
    IDLE = 2000

    def __init__(self):
        self.look = self._cost_of_a_look()
        self.begin()

    def begin(self):
        self.inside = self.outside = self.calls = 0

    def watch(self):
        from thinwire._library import library
        from thinwire.torch import ddp
        for name in self.CALLS:
            setattr(library, name, self._timed_inside(getattr(library, name)))
        ddp._Bridge.take = self._timed_outside(ddp._Bridge.take)

    def _timed_inside(self, call):
        def timed(*arguments):
            start = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.inside += time.thread_time() - start
                self.calls += 1
        return timed

    def _timed_outside(self, call):
        def timed(*arguments):
            start = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.outside += time.thread_time() - start
        return timed

    def _cost_of_a_look(self):
        self.begin()
        nothing = self._timed_inside(lambda: None)
        start = time.thread_time()
        for _ in range(self.IDLE):
            nothing()
        return (time.thread_time() - start - self.inside) / self.IDLE

    @property
    def python(self):
        return self.outside - self.inside - self.calls * self.look


class Still:
    """An optimiser that leaves the weights alone, for exchanges without training."""

    param_groups = ()

    def step(self):
        pass


def adamw_of(way, module, **words):
    """AdamW as torch is fastest with it, which leaves the moments to a scheme that has them."""
    kind = torch.optim.AdamW
    if way.startswith(("thinwire", "auto")):
        import thinwire.torch
        kind = thinwire.torch.AdamW
    has_fused = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)  # on a processor
    return kind(module.parameters(), **words, **({"fused": True} if has_fused else {}))


class Exchange:
    """Steps whose gradients are given, so that little but their exchange and the optimiser takes time."""

    def __init__(self, options):
        self.options = options
        self.watch = Stopwatch()
        module = tasks.Table(tasks.shapes(options.parameters))
        if options.way.startswith(("thinwire", "auto")):
            self.watch.watch()
        self.way = Way(options.way, module, adamw_of(options.way, module, lr=1e-4) if options.optimizer else Still())
        self.gradients = tasks.Gradients(module, dist.get_rank(), dist.get_world_size(), SETS)
        self.taken, self.python = 0, []

    def step(self):
        """Seconds; over all of a period, if the way has one."""
        seconds = 0.0
        self.watch.begin()
        for _ in range(self.way.period):
            for parameter in self.way.module.parameters():
                parameter.grad = None
            given = self.gradients.of_step(self.taken)
            self.taken += 1
            dist.barrier()
            start = time.perf_counter()
            self.way.module(given).backward()
            self.way.step()
            if self.way.after_step:
                self.way.after_step()
            seconds += time.perf_counter() - start
        self.python.append(self.watch.python)
        return seconds / self.way.period

    def measure(self):
        warm = [self.step() for _ in range(UNMEASURED)][-1]
        steps = int(largest([min(self.options.steps, max(2, self.options.seconds / max(warm, 1e-9)))])[0])
        dist.barrier()
        self.python.clear()
        before = link.bytes_of_device()
        seconds = largest([self.step() for _ in range(steps)])
        sent, received = (now - then for now, then in zip(link.bytes_of_device(), before))
        count = steps * self.way.period
        sent, received, python = largest([sent / count, received / count, statistics.median(self.python)])
        self.way.finish()
        return {"way": self.options.way, "parameters": sum(p.numel() for p in self.way.module.parameters()),
                "step_ms": [1e3 * second for second in seconds], "python_ms": 1e3 * python,
                "bytes_sent": sent, "bytes_received": received}


# ---- end to end ------------------------------------------------------------------------------------------------------

class Training:
    """A run to a target, on a clock that stands while the held-out data is looked at."""

    def __init__(self, options):
        self.task = tasks.Task(**json.loads(options.task))
        self.way_name, self.rank, self.ranks = options.way, dist.get_rank(), dist.get_world_size()
        self.data = tasks.data_of(self.task)
        torch.manual_seed(self.task.seed)
        module = tasks.network_of(self.task)
        self.optimiser = torch.optim.SGD(module.parameters(), lr=self.task.rate, momentum=self._momentum())
        self.way = Way(options.way, module, self.optimiser)
        self.shuffle = torch.Generator().manual_seed(self.task.seed + 1 + self.rank)
        self.curve = []

    def _momentum(self):
        """dgc and its kin have their own."""
        corrects = self.way_name.startswith(("thinwire:", "auto:")) and self.way_name.split(":")[1] in ("dgc", "sdagc")
        return 0.0 if corrects else self.task.momentum

    def step(self):
        chosen = torch.randint(len(self.data.labels), (self.task.batch,), generator=self.shuffle)
        self.optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.way.module(self.data.inputs[chosen]), self.data.labels[chosen])
        loss.backward()
        self.way.step()
        if self.way.after_step:
            self.way.after_step()

    @torch.no_grad()
    def look(self, step, seconds):
        """Loss and accuracy on the held-out data, of the mean rank; every rank knows them."""
        module = self.way.module.module
        module.eval()
        scores = module(self.data.held_out)
        module.train()
        loss = torch.nn.functional.cross_entropy(scores, self.data.held_labels)
        right = (scores.argmax(1) == self.data.held_labels).double().mean()
        mean = torch.tensor([loss.item(), right.item(), seconds], dtype=torch.float64)
        dist.all_reduce(mean)
        loss, accuracy, seconds = (mean / self.ranks).tolist()
        self.curve.append({"step": step, "seconds": seconds, "loss": loss, "accuracy": accuracy})
        return loss <= self.task.loss and accuracy >= self.task.accuracy

    def run(self):
        seconds, step, end = 0.0, 0, False
        while not end:
            dist.barrier()
            start = time.perf_counter()
            for _ in range(self.task.look_every):
                self.step()
            seconds += time.perf_counter() - start
            step += self.task.look_every
            there = self.look(step, seconds)
            end = there or self.curve[-1]["seconds"] > self.task.seconds
        self.way.finish()
        return {"way": self.way_name, "reached": there, "curve": self.curve, "task": self.described()}

    def described(self):
        return {**dataclasses.asdict(self.task), "parameters": sum(p.numel() for p in self.way.module.parameters())}


# ---- the program ----------------------------------------------------------------------------------------------------

def parse_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["exchange", "train"])
    parser.add_argument("way", metavar="WAY")
    parser.add_argument("--parameters", type=int, default=tasks.RESNET50)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--optimizer", choices=["adamw"])
    parser.add_argument("--task", default="{}", metavar="JSON")
    return parser.parse_args()


def main():
    options = parse_line()
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    os.environ.update(GLOO_SOCKET_IFNAME="eth0", THINWIRE_BIND="eth0")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://" + os.environ["JOIN"], rank=rank, world_size=ranks)
    found = Exchange(options).measure() if options.mode == "exchange" else Training(options).run()
    if rank == 0:
        print(json.dumps({**found, "ranks": ranks, "torch": torch.__version__}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # now and then torch aborts when a process of a Gloo group ends by itself


if __name__ == "__main__":
    main()
