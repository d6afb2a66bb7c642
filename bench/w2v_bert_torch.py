#!/usr/bin/python3
"""w2v-BERT's size "tiny" in PyTorch, 2.0 or later: the yardstick of bench_w2v_bert (bench/train.py), and a check of it.

    w2v_bert_torch.py build/bench_w2v_bert

Both take one step from the same weights: their three losses have to agree to 1e-4, and their gradients to 1e-3 of each
tensor's length. Prints JSON."""
from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional

CROPS, LENGTH, FEATURES, CHANNELS, WIDTH, HEADS, KERNEL = 16, 400, 40, 32, 128, 4, 15
CONTRASTIVE, MASKED, CODES, CODE_WIDTH, COMPARED = 4, 4, 128, 128, 64
TEMPERATURE, SIMILARITY, DIVERSITY = 0.8, 0.1, 0.1
ROWS, INPUTS = LENGTH // 4, CHANNELS * FEATURES // 4


def build(dropout: float):
    """The model; its parameters have the names and shapes of thinwire's."""
    class Part(nn.Module):
        """Named parts, and nothing else."""

        def __init__(self, **parts):
            super().__init__()
            for name, part in parts.items():
                self.add_module(name, part)

    def feed() -> nn.Module:
        return Part(intermediate_dense=nn.Linear(WIDTH, 4 * WIDTH), output_dense=nn.Linear(4 * WIDTH, WIDTH))

    class Block(nn.Module):
        """A conformer block with a layer norm in its convolution module."""

        def __init__(self):
            super().__init__()
            for name in ("ffn1", "self_attn", "ffn2", "final"):
                self.add_module(f"{name}_layer_norm", nn.LayerNorm(WIDTH))
            self.ffn1, self.ffn2 = feed(), feed()
            self.self_attn = Part(**{f"linear_{name}": nn.Linear(WIDTH, WIDTH) for name in ("q", "k", "v", "out")})
            self.conv_module = Part(
                layer_norm=nn.LayerNorm(WIDTH), pointwise_conv1=nn.Linear(WIDTH, 2 * WIDTH),
                depthwise_conv=nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH),
                depthwise_layer_norm=nn.LayerNorm(WIDTH), pointwise_conv2=nn.Linear(WIDTH, WIDTH))
            self.drop = nn.Dropout(dropout)

        def step(self, x, norm, ffn):
            wide = self.drop(functional.silu(ffn.intermediate_dense(norm(x))))
            return x + 0.5 * self.drop(ffn.output_dense(wide))

        def attend(self, x):
            parts, normed = self.self_attn, self.self_attn_layer_norm(x)
            q, k, v = (linear(normed).view(CROPS, ROWS, HEADS, -1).transpose(1, 2)
                       for linear in (parts.linear_q, parts.linear_k, parts.linear_v))
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(CROPS, ROWS, WIDTH)
            return x + self.drop(parts.linear_out(mixed))

        def convolve(self, x):
            parts = self.conv_module
            gated = functional.glu(parts.pointwise_conv1(parts.layer_norm(x)), dim=-1)
            along = parts.depthwise_conv(gated.transpose(1, 2)).transpose(1, 2)
            return x + self.drop(parts.pointwise_conv2(functional.silu(parts.depthwise_layer_norm(along))))

        def forward(self, x):
            x = self.step(x, self.ffn1_layer_norm, self.ffn1)
            x = self.step(self.convolve(self.attend(x)), self.ffn2_layer_norm, self.ffn2)
            return self.final_layer_norm(x)

    class Quantizer(nn.Module):
        """Codes by a Gumbel softmax with a straight-through gradient."""

        def __init__(self):
            super().__init__()
            self.codevectors = nn.Parameter(2 * torch.rand(1, CODES, CODE_WIDTH) - 1)
            self.weight_proj = nn.Linear(INPUTS, CODES)

        def forward(self, x, noise):
            logits = self.weight_proj(x)
            soft = ((logits + noise) / TEMPERATURE).softmax(-1)
            chosen = soft.argmax(-1)
            hard = functional.one_hot(chosen, CODES).to(soft) + soft - soft.detach()
            mean = logits.softmax(-1).mean(0)
            diversity = 1 - torch.exp(-(mean * torch.log(mean + 1e-7)).sum()) / CODES
            return hard @ self.codevectors[0], chosen, logits.argmax(-1), diversity

    class Model(nn.Module):
        """The whole."""

        def __init__(self):
            super().__init__()
            convolutions = [Part(conv=nn.Conv2d(inputs, CHANNELS, 3, 2, 1)) for inputs in (1, CHANNELS)]
            self.feature_extractor = Part(conv_layers=nn.ModuleList(convolutions))
            self.feature_projection = Part(layer_norm=nn.LayerNorm(INPUTS), projection=nn.Linear(INPUTS, WIDTH))
            self.encoder = Part(layers=nn.ModuleList(Block() for _ in range(CONTRASTIVE + MASKED)))
            self.masked_prediction = nn.Linear(WIDTH, CODES)
            self.project_hid, self.project_q = nn.Linear(WIDTH, COMPARED), nn.Linear(CODE_WIDTH, COMPARED)
            self.quantizer = Quantizer()
            self.drop = nn.Dropout(dropout)

        def features(self, frames):
            x = frames.view(CROPS, 1, LENGTH, FEATURES)
            for layer in self.feature_extractor.conv_layers:
                x = functional.relu(layer.conv(x))
            return self.feature_projection.layer_norm(x.permute(0, 2, 3, 1).reshape(CROPS, ROWS, INPUTS))

        def contrast(self, seen, codes, chosen, counts):
            c = functional.normalize(self.project_hid(seen), dim=-1, eps=1e-8).split(counts)
            q = functional.normalize(self.project_q(codes), dim=-1, eps=1e-8).split(counts)
            losses = []
            for a, b, ids in zip(c, q, chosen.split(counts)):
                scores = a @ b.T / SIMILARITY
                same = (ids[:, None] == ids[None, :]) & ~torch.eye(len(ids), dtype=torch.bool)
                rows = functional.cross_entropy(scores.masked_fill(same, float("-inf")), torch.arange(len(ids)),
                                                reduction="sum")
                losses.append(rows)
            return sum(losses) / sum(counts)

        def forward(self, frames, hidden, cover, noise):
            features = self.features(frames).reshape(-1, INPUTS)
            codes, chosen, best, diversity = self.quantizer(features[hidden], noise)
            covered = features.index_copy(0, hidden, cover[hidden]).view(CROPS, ROWS, INPUTS)
            x = self.drop(self.feature_projection.projection(covered))
            counts = torch.bincount(hidden // ROWS, minlength=CROPS).tolist()
            for index, block in enumerate(self.encoder.layers):
                x = block(x)
                if index + 1 == CONTRASTIVE:
                    contrastive = self.contrast(x.reshape(-1, WIDTH)[hidden], codes, chosen, counts)
            logits = self.masked_prediction(x.reshape(-1, WIDTH)[hidden])
            return contrastive, diversity, functional.cross_entropy(logits, best)

    return Model()


def draw():
    """Features, hidden rows, what covers them, and noise: as many as thinwire draws."""
    begins = torch.rand(CROPS, ROWS) < 0.12
    covered = torch.stack([torch.nn.functional.pad(begins, (shift, 0))[:, :ROWS] for shift in range(5)]).any(0)
    hidden = covered.flatten().nonzero().flatten()
    noise = -torch.log(-torch.log(torch.rand(len(hidden), CODES).clamp(1e-10, 1 - 1e-7)))
    return hidden, 0.1 * torch.randn(CROPS * ROWS, INPUTS), noise


def training(dropout: float):
    """A model, its loss on made-up features, and its optimiser."""
    torch.manual_seed(1)
    model = build(dropout)
    frames = torch.randn(CROPS, LENGTH, FEATURES)

    def loss():
        contrastive, diversity, masked = model(frames, *draw())
        return contrastive + DIVERSITY * diversity + masked

    return model, loss, torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-6)


def check(folder: pathlib.Path) -> dict[str, object]:
    """The same step on the same weights: losses, and how far the gradients of each tensor are from thinwire's."""
    def read(name: str, kind=torch.float32):
        return torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=kind)

    model = build(0.0)
    tensors = [line.split() for line in (folder / "tensors.txt").read_text().splitlines()]
    shapes = [[int(size) for size in sizes] for _, *sizes in tensors]
    sizes = [torch.Size(shape).numel() for shape in shapes]
    values = {name: part.view(shape) for (name, *_), part, shape in zip(tensors, read("values.f32").split(sizes), shapes)}
    model.load_state_dict(values)
    cover = read("cover.f32").view(-1, INPUTS)
    losses = model(read("frames.f32"), read("hidden.i64", torch.int64), cover, read("noise.f32").view(-1, CODES))
    contrastive, diversity, masked = losses
    (contrastive + DIVERSITY * diversity + masked).backward()
    named = dict(model.named_parameters())
    whole = torch.cat([parameter.grad.flatten() for parameter in named.values()]).norm()
    # A tensor whose gradient is only rounding, as the keys' bias, which no softmax sees, is measured against the whole.
    apart = {name: float((named[name].grad.flatten() - ours).norm() / max(named[name].grad.norm(), 1e-3 * whole))
             for (name, *_), ours in zip(tensors, read("gradients.f32").split(sizes))}
    worst = max(apart, key=apart.get)
    return {"contrastive": contrastive.item(), "diversity": diversity.item(), "masked": masked.item(),
            "gradient_apart": apart[worst], "of": worst, "torch": torch.__version__}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        ours = json.loads(subprocess.check_output([sys.argv[1], "1", "1", folder]))
        theirs = check(pathlib.Path(folder))
    apart = {name: abs(ours[name] - theirs[name]) for name in ("contrastive", "diversity", "masked")}
    print(json.dumps({"thinwire": ours, "torch": theirs, "apart": apart}))
    return 0 if max(apart.values()) <= 1e-4 and theirs["gradient_apart"] <= 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
