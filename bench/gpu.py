#!/usr/bin/env python3
"""What a step costs a model on a GPU, beside its pass alone: a GPT of 124 million parameters, two workers on one GPU.

    torchrun --standalone --nproc_per_node=2 bench/gpu.py                                   the ways below
    torchrun --standalone --nproc_per_node=2 bench/gpu.py none torch dgc-adam:threads=4     these

A WAY is none (no exchange), torch (DDP over Gloo), nccl (DDP over NCCL), a scheme of attach(), or a method of local updates.
The workers reach each other inside the machine, so the figures are what computing and copying take; over a line, the bytes
come on top. Prints one line of JSON a way: the median of the steps and of the longest ones, which are the rounds of local
updates, in milliseconds, and what a worker sends a step. Needs a GPU and PyTorch 2.4 or later."""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch
from thinwire.spec import name_of

WAYS = ["none", "torch", "nccl", "bf16:threads=4", "fp8:threads=4", "powersgd:rank=4,warmup_steps=0,threads=4", "dgc-adam:threads=4",
        "dgc-adam:warmup_steps=0,threads=4", "diloco:every=4"]
WIDTH, LAYERS, HEADS, SYMBOLS, LENGTH, BATCH = 768, 12, 12, 50304, 512, 8
STEPS, UNMEASURED = 12, 4  # DDP makes its buckets anew in the second step


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbols, self.places = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        for table in (self.symbols, self.places):
            nn.init.normal_(table.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.register_buffer("future", torch.full((LENGTH, LENGTH), -torch.inf).triu(1), persistent=False)

    def forward(self, x):
        here = self.layers(self.symbols(x) + self.places.weight, mask=self.future, is_causal=True)
        return nn.functional.linear(here, self.symbols.weight)


class Way:
    """A model that exchanges in one way."""

    def __init__(self, name, group):
        torch.manual_seed(0)
        self.model, self.closes, self.sent = GPT().cuda(), None, lambda: 0.0
        with_moments = name not in ("none", "torch", "nccl") and name_of(name) in ("dgc-adam", "onebit-adam")
        self.optimiser = (thinwire.torch.AdamW if with_moments else torch.optim.AdamW)(self.model.parameters(), lr=1e-4)
        self.net = self.model
        if name != "none" and name_of(name) in dict(thinwire.outers()):
            self._keep(thinwire.torch.OuterLoop(self.model, self.optimiser, name, banner=False))
        elif name != "none":
            self.net = DistributedDataParallel(self.model, process_group=group if name == "nccl" else None, gradient_as_bucket_view=True)
            if name not in ("torch", "nccl"):
                self._keep(thinwire.torch.attach(self.net, name, optimizer=self.optimiser, fallback=False, banner=False))

    def _keep(self, exchange):
        self.closes, self.sent = exchange.close, lambda: float(exchange.stats()["bytes_sent"])

    def step(self, tokens):
        self.optimiser.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.net(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimiser.step()


def measured(name, group):
    way, seconds = Way(name, group), []
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(STEPS):
        tokens = torch.randint(0, SYMBOLS, (BATCH, LENGTH + 1), generator=generator).cuda()
        torch.cuda.synchronize()
        dist.barrier()
        if step == UNMEASURED:
            before = way.sent()
        begin = time.perf_counter()
        way.step(tokens)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    counted = sorted(seconds[UNMEASURED:])
    sent = (way.sent() - before) / len(counted)
    if way.closes:
        way.closes()
    return {"way": name, "parameters": sum(p.numel() for p in way.model.parameters()), "gpu": torch.cuda.get_device_name(),
            "step_ms": round(1e3 * statistics.median(counted), 1),
            "longest_ms": round(1e3 * statistics.median(counted[-2:]), 1), "sent_mb": round(sent / 1e6, 3)}


def main():
    rank = int(os.environ["RANK"])
    os.environ.setdefault("NCCL_HOSTID", f"worker{rank}")  # else NCCL refuses two workers of one GPU
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("gloo")
    group = dist.new_group(backend="nccl")
    for name in sys.argv[1:] or WAYS:
        row = measured(name, group)
        if rank == 0:
            print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
