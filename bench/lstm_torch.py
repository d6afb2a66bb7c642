#!/usr/bin/python3
"""Training speed of LSTMs in PyTorch, the yardstick for `thinwire bench train`.

One of the networks of `thinwire bench train --model`: lstm-2x650 (35 steps, batch 20) and bilstm-2x256 (200 steps,
batch 16) are the layers alone, with the sum of the outputs as loss; lm-medium is the whole language model of Zaremba et
al. (2014) over 10,000 words, with its dropout. One thread, made-up data, SGD with momentum and weight decay. Prints one
JSON object; where torch is missing, {"skipped": why}.
"""
import argparse
import json
import os
import statistics
import sys
import time

LAYERS = {"lstm-2x650": (650, False, 35, 20), "bilstm-2x256": (256, True, 200, 16)}
VOCABULARY, HIDDEN, STEPS, BATCH, DROPOUT = 10000, 650, 35, 20, 0.5


def layers(torch, name):
    hidden, bidirectional, steps, batch = LAYERS[name]
    lstm = torch.nn.LSTM(hidden, hidden, 2, bidirectional=bidirectional)
    inputs = torch.rand(steps, batch, hidden, requires_grad=True)

    def loss():
        inputs.grad = None
        return lstm(inputs)[0].sum()

    return lstm, loss


def language_model(torch):
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(DROPOUT)
            self.encoder = nn.Embedding(VOCABULARY, HIDDEN)
            self.rnn = nn.LSTM(HIDDEN, HIDDEN, 2, dropout=DROPOUT)
            self.decoder = nn.Linear(HIDDEN, VOCABULARY)

        def forward(self, tokens, state):
            outputs, state = self.rnn(self.drop(self.encoder(tokens)), state)
            return self.decoder(self.drop(outputs)).view(-1, VOCABULARY), state

    model = Model()
    tokens = (torch.arange((STEPS + 1) * BATCH) * 7919 % VOCABULARY).view(STEPS + 1, BATCH)
    carried = [torch.zeros(2, BATCH, HIDDEN), torch.zeros(2, BATCH, HIDDEN)]

    def loss():
        logits, state = model(tokens[:-1], tuple(carried))
        carried[:] = [part.detach() for part in state]
        return nn.functional.cross_entropy(logits, tokens[1:].reshape(-1))

    return model, loss


def seconds_per_step(torch, name, steps):
    torch.manual_seed(1)
    model, loss = language_model(torch) if name == "lm-medium" else layers(torch, name)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    wall, processor = [], []
    for _ in range(steps + 2):  # the first two are warm-up
        start, processor_start = time.perf_counter(), time.process_time()
        optimiser.zero_grad(set_to_none=True)
        loss().backward()
        optimiser.step()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - processor_start)
    return statistics.median(wall[2:]), statistics.median(processor[2:])


def blas():
    """The library behind torch's matrix products, as the loader found it."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        found = {line.split()[-1].rsplit("/", 1)[-1] for line in maps if "blas" in line}
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=[*LAYERS, "lm-medium"], default="lstm-2x650")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded
    try:
        import torch
    except ImportError as error:
        print(json.dumps({"skipped": f"torch cannot be imported: {error}"}))
        return 0
    torch.set_num_threads(1)
    wall, processor = seconds_per_step(torch, options.model, options.steps)
    print(
        json.dumps(
            {
                "model": options.model,
                "step_ms": 1e3 * wall,
                "step_cpu_ms": 1e3 * processor,
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
                "blas": blas(),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
