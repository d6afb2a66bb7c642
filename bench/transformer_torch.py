#!/usr/bin/python3
"""Training speed of a transformer in PyTorch, the yardstick for `thinwire bench train --model lm-transformer`.

The same network: a decoder in Llama's shape, of 4 blocks of 256 features and 4 heads, over 10,000 words, with 128 steps of
20 strips, and SGD with momentum and weight decay. Attention is PyTorch's own scaled_dot_product_attention. One thread,
made-up data. Prints one JSON object; where torch is missing or older than 2.4, {"skipped": why}.
"""
import argparse
import json
import os
import statistics
import sys
import time

VOCABULARY, LAYERS, WIDTH, HEADS, INNER, STEPS, BATCH = 10000, 4, 256, 4, 704, 128, 20


def language_model(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, waves):
            super().__init__()
            self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-5) for _ in range(2))
            self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.gates, self.down = nn.Linear(WIDTH, 2 * INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)
            self.waves = waves

        def turn(self, x):
            left, right = x.chunk(2, -1)
            return x * self.waves[0] + torch.cat((-right, left), -1) * self.waves[1]

        def forward(self, x):
            q, k, v = self.joint(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            gate, up = self.gates(self.norms[1](x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            half = WIDTH // HEADS // 2
            angles = torch.arange(STEPS)[:, None] * 10000.0 ** (-torch.arange(half) / half)
            waves = [wave(angles).repeat(1, 2) for wave in (torch.cos, torch.sin)]
            self.encoder = nn.Embedding(VOCABULARY, WIDTH)
            self.blocks = nn.Sequential(*(Block(waves) for _ in range(LAYERS)))
            self.norm, self.decoder = nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, tokens):
            return self.decoder(self.norm(self.blocks(self.encoder(tokens))))

    model = Model()
    tokens = (torch.arange((STEPS + 1) * BATCH) * 7919 % VOCABULARY).view(STEPS + 1, BATCH).T.contiguous()

    def loss():
        return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, loss


def seconds_per_step(torch, steps):
    torch.manual_seed(1)
    model, loss = language_model(torch)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    wall, processor = [], []
    for _ in range(steps + 2):  # the first two are warm-up
        start, processor_start = time.perf_counter(), time.process_time()
        optimiser.zero_grad(set_to_none=True)
        loss().backward()
        optimiser.step()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - processor_start)
    return statistics.median(wall[2:]), statistics.median(processor[2:]), sum(p.numel() for p in model.parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded
    try:
        import torch
    except ImportError as error:
        print(json.dumps({"skipped": f"torch cannot be imported: {error}"}))
        return 0
    if not hasattr(torch.nn, "RMSNorm"):
        print(json.dumps({"skipped": f"torch {torch.__version__} has no RMSNorm"}))
        return 0
    torch.set_num_threads(1)
    wall, processor, parameters = seconds_per_step(torch, options.steps)
    print(json.dumps({"step_ms": 1e3 * wall, "step_cpu_ms": 1e3 * processor, "parameters": parameters,
                      "threads": torch.get_num_threads(), "torch": torch.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
