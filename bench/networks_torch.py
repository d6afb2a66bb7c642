#!/usr/bin/python3
"""What a training step of thinwire's networks takes in PyTorch, on one thread with made-up data, for bench/train.py.

    networks_torch.py MODEL STEPS

resnet20 is ResNet-20 for CIFAR (He et al. 2015, option A shortcuts) with 128 images, in the better of both memory
layouts. lstm-2x650 (35 steps, batch 20) and bilstm-2x256 (200 steps, batch 16) are layers alone, with the sum of
the outputs as loss; lm-medium is the whole language model of Zaremba et al. (2014) over 10,000 words, with its
dropout. lm-transformer is a decoder in Llama's shape, of 4 blocks of 256 features and 4 heads, over 10,000 words,
with 128 steps of 20 strips; its attention is PyTorch's own. All step with SGD, momentum and weight decay; w2v-bert
is in w2v_bert_torch.py. Prints one JSON object; where PyTorch is missing or too old, {"skipped": why}."""
import json
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded
try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as missing:
    print(json.dumps({"skipped": f"torch cannot be imported: {missing}"}))
    sys.exit()

VOCABULARY = 10000


def tokens(steps, batch):
    return (torch.arange((steps + 1) * batch) * 7919 % VOCABULARY).view(steps + 1, batch)


# ---- images ----

class Residual(nn.Module):
    def __init__(self, before, filters):
        super().__init__()
        self.stride = 1 if before == filters else 2
        self.padding = filters - before
        self.conv1 = nn.Conv2d(before, filters, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)

    def forward(self, images):
        branch = functional.relu(self.bn1(self.conv1(images)), inplace=True)
        branch = self.bn2(self.conv2(branch))
        if self.padding:
            images = functional.pad(images[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.padding))
        return functional.relu(branch + images, inplace=True)


def resnet20(layout):
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Residual(*pair) for pair in zip(widths, widths[1:])]
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), *blocks,
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(memory_format=layout)
    images = torch.randn(128, 3, 32, 32).contiguous(memory_format=layout)
    labels = torch.randint(10, (128,))
    return model, lambda: functional.cross_entropy(model(images), labels)


# ---- LSTMs ----

def layers(hidden, bidirectional, steps, batch):
    lstm = nn.LSTM(hidden, hidden, 2, bidirectional=bidirectional)
    inputs = torch.rand(steps, batch, hidden, requires_grad=True)

    def loss():
        inputs.grad = None
        return lstm(inputs)[0].sum()

    return lstm, loss


class LanguageModel(nn.Module):
    def __init__(self, hidden, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(VOCABULARY, hidden)
        self.rnn = nn.LSTM(hidden, hidden, 2, dropout=dropout)
        self.decoder = nn.Linear(hidden, VOCABULARY)

    def forward(self, words, state):
        outputs, state = self.rnn(self.drop(self.encoder(words)), state)
        return self.decoder(self.drop(outputs)).view(-1, VOCABULARY), state


def medium(hidden=650, steps=35, batch=20):
    model, words = LanguageModel(hidden, 0.5), tokens(steps, batch)
    carried = [torch.zeros(2, batch, hidden), torch.zeros(2, batch, hidden)]

    def loss():
        logits, state = model(words[:-1], tuple(carried))
        carried[:] = [part.detach() for part in state]
        return functional.cross_entropy(logits, words[1:].reshape(-1))

    return model, loss


# ---- a transformer ----

LAYERS, WIDTH, HEADS, INNER, STEPS, BATCH = 4, 256, 4, 704, 128, 20


class Decoder(nn.Module):
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


def transformer():
    half = WIDTH // HEADS // 2
    angles = torch.arange(STEPS)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    waves = [wave(angles).repeat(1, 2) for wave in (torch.cos, torch.sin)]
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *(Decoder(waves) for _ in range(LAYERS)),
                          nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, VOCABULARY, bias=False))
    words = tokens(STEPS, BATCH).T.contiguous()
    return model, lambda: functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


# ---- what they take ----

NETWORKS = {"lstm-2x650": lambda: layers(650, False, 35, 20), "bilstm-2x256": lambda: layers(256, True, 200, 16),
            "lm-medium": medium, "lm-transformer": transformer}


def measure(model, loss, optimiser, steps, clip=None):
    """Medians of the steps' wall and processor time."""
    wall, processor = [], []
    for _ in range(steps + 2):  # the first two are warm-up
        start, processor_start = time.perf_counter(), time.process_time()
        optimiser.zero_grad(set_to_none=True)
        loss().backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - processor_start)
    return {"step_ms": 1e3 * statistics.median(wall[2:]), "step_cpu_ms": 1e3 * statistics.median(processor[2:]),
            "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__}


def with_momentum(network, rate, steps):
    torch.manual_seed(1)
    model, loss = network()
    return measure(model, loss, torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4), steps)


def blas():
    """The library behind torch's matrix products, as the loader found it."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sorted({line.split()[-1].rsplit("/", 1)[-1] for line in maps if "blas" in line})


def figures(model, steps):
    if model.startswith("w2v-bert"):
        if not hasattr(functional, "scaled_dot_product_attention"):
            return {"skipped": f"torch {torch.__version__} is older than 2.0"}
        import w2v_bert_torch
        return measure(*w2v_bert_torch.training(0.0 if model.endswith("no-dropout") else 0.1), steps, clip=5.0)
    if model == "resnet20":
        found = [{"layout": layout, **with_momentum(lambda: resnet20(getattr(torch, layout)), 0.1, steps)}
                 for layout in ("contiguous_format", "channels_last")]
        return min(found, key=lambda one: one["step_ms"])
    if model == "lm-transformer" and not hasattr(nn, "RMSNorm"):
        return {"skipped": f"torch {torch.__version__} has no RMSNorm"}
    return {**with_momentum(NETWORKS[model], 0.01, steps), "blas": blas()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(figures(sys.argv[1], int(sys.argv[2]))))
