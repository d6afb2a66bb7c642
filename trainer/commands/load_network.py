"""Rebuilds in PyTorch what `thinwire export` wrote.

    network, description = load("photos.safetensors")
    scores = network(images)

`network` is an nn.Module in evaluation mode, `description` says what it takes and what its outputs are called. A
classifier takes (count, channels, height, width), pixels as `normalise` makes them, and gives logits. A language model
takes the numbers of tokens, (steps, batch), and a state or None, and gives logits and the state; that of a transformer is
None, and the tokens are all that it sees. A recogniser takes
features, (steps, batch, features), and gives logarithms of probabilities, of conformers a row for each four steps."""
import json
import re
import struct
import sys

import torch
from torch import nn
from torch.nn import functional


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Half a kernel of padding, no bias: a batch norm follows."""
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Cnn(nn.Module):
    """thinwire's own small network."""
    def __init__(self, shape: list, classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * (height // 2 // 2) * (width // 2 // 2), 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        x = functional.relu(functional.max_pool2d(self.conv2(x), 2))
        x = functional.relu(self.conv3(x))
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    """A residual block of `kernels`, each convolution with its norm. Its shortcut is a convolution where `project`
    says so, else the images themselves: every other pixel, and zeros for channels that are new."""
    def __init__(self, kernels: tuple, widths: tuple, stride: int, project: bool) -> None:
        super().__init__()
        strided = 1 if len(kernels) == 3 else 0
        for i, kernel in enumerate(kernels):
            step = stride if i == strided else 1
            self.add_module(f"conv{i + 1}", convolution(widths[i], widths[i + 1], kernel, step))
            self.add_module(f"bn{i + 1}", nn.BatchNorm2d(widths[i + 1]))
        self.count, self.stride, self.added = len(kernels), stride, widths[-1] - widths[0]
        if project:
            self.downsample = nn.Sequential(convolution(widths[0], widths[-1], 1, stride), nn.BatchNorm2d(widths[-1]))

    def shortcut(self, x: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "downsample"):
            return self.downsample(x)
        return functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.added))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = functional.relu(y) if i < self.count else y
        return functional.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """The names are those of torchvision. `small`: the networks for CIFAR of He et al. 2015."""
    def __init__(self, channels: int, classes: int, blocks: tuple, bottleneck: bool, small: bool) -> None:
        super().__init__()
        base = width = 16 if small else 64
        self.conv1 = convolution(channels, width, 3 if small else 7, 1 if small else 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        for stage, count in enumerate(blocks):
            made, narrow = [], base << stage
            for index in range(count):
                widths = (width, narrow, narrow, 4 * narrow) if bottleneck else (width, narrow, narrow)
                project = not small and index == 0 and (stage > 0 or bottleneck)
                stride = 2 if stage > 0 and index == 0 else 1
                made.append(Block((1, 3, 1) if bottleneck else (3, 3), widths, stride, project))
                width = widths[-1]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*made))
        self.stages = len(blocks)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(functional.relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


class LanguageModel(nn.Module):
    """The names are those of PyTorch's example word_language_model."""
    def __init__(self, d: dict) -> None:
        super().__init__()
        self.encoder = nn.Embedding(len(d["vocabulary"]), d["embedding"])
        self.rnn = nn.LSTM(d["embedding"], d["hidden"], d["layers"])
        self.decoder = nn.Linear(d["hidden"], len(d["vocabulary"]))
        if d["tied"]:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens: torch.Tensor, state: tuple = None) -> tuple:
        y, state = self.rnn(self.encoder(tokens), state)
        return self.decoder(y), state


class RmsNorm(nn.Module):
    def __init__(self, d: dict, width: int) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), d.get("epsilon", 1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.weight


class CausalAttention(nn.Module):
    """Grouped heads with rotary positions, in which the halves of a head turn together."""
    def __init__(self, d: dict) -> None:
        super().__init__()
        hidden, heads, shared, family = d["hidden"], d["heads"], d["kv_heads"], d.get("family", "llama")
        self.width, self.group, self.theta = d.get("head", hidden // heads), heads // shared, d.get("theta", 10000.0)
        self.scaling = d.get("scaling")
        for name, count in (("q", heads), ("k", shared), ("v", shared)):
            self.add_module(f"{name}_proj", nn.Linear(hidden, count * self.width, bias=family == "qwen2"))
        self.o_proj = nn.Linear(heads * self.width, hidden, bias=False)
        normed = family == "qwen3"
        self.q_norm, self.k_norm = (RmsNorm(d, self.width) if normed else nn.Identity() for _ in range(2))

    def speeds(self) -> torch.Tensor:
        """Angles from a position to the next."""
        plain = self.theta ** (-torch.arange(0, self.width, 2).double() / self.width)
        if not self.scaling:
            return plain
        factor, low, high, positions = self.scaling
        kept = ((positions * plain / (2 * torch.pi) - low) / (high - low)).clamp(0, 1)
        return kept * plain + (1 - kept) * plain / factor

    def turn(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, heads, rows, width of a head)."""
        falling = self.speeds()
        angles = (torch.arange(x.shape[2])[:, None] * falling).repeat(1, 2)
        left, right = x.chunk(2, -1)
        return x * angles.cos().to(x.dtype) + torch.cat((-right, left), -1) * angles.sin().to(x.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (linear(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
                   for linear in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.turn(self.q_norm(q)), self.turn(self.k_norm(k))
        k, v = k.repeat_interleave(self.group, 1), v.repeat_interleave(self.group, 1)
        scores = q @ k.transpose(2, 3) / self.width ** 0.5
        later = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        seen = scores.masked_fill(later, -torch.inf).softmax(-1) @ v
        return self.o_proj(seen.transpose(1, 2).flatten(2))


class SwiGlu(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        for name, inputs, outputs in (("gate", width, inner), ("up", width, inner), ("down", inner, width)):
            self.add_module(f"{name}_proj", nn.Linear(inputs, outputs, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Decoder(nn.Module):
    """A block."""
    def __init__(self, d: dict) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(d, d["hidden"]), RmsNorm(d, d["hidden"])
        self.self_attn = CausalAttention(d)
        self.mlp = SwiGlu(d["hidden"], d["inner"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Transformer(nn.Module):
    """The names are those of Hugging Face's LlamaForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM."""
    def __init__(self, d: dict) -> None:
        super().__init__()
        count, width = len(d["vocabulary"]), d["hidden"]
        layers = nn.ModuleList(Decoder(d) for _ in range(d["layers"]))
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(count, width), "layers": layers,
                                    "norm": RmsNorm(d, width)})
        self.lm_head = nn.Linear(width, count, bias=False)
        if d["tied"]:
            self.lm_head.weight = self.model["embed_tokens"].weight

    def forward(self, tokens: torch.Tensor, state: None = None) -> tuple:
        x = self.model["embed_tokens"](tokens.T)
        for block in self.model["layers"]:
            x = block(x)
        return self.lm_head(self.model["norm"](x)).transpose(0, 1), state


class FrontEnd(nn.Module):
    """Two convolutions that leave a row of four frames: (frames, batch, features) to (batch, rows, width)."""
    def __init__(self, d: dict) -> None:
        super().__init__()
        channels = d["channels"]
        self.width = (d["features"] + 3) // 4 * channels
        layers = [nn.ModuleDict({"conv": nn.Conv2d(inputs, channels, 3, 2, 1)}) for inputs in (1, channels)]
        self.conv_layers = nn.ModuleList(layers)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        x = features.transpose(0, 1)[:, None]
        for layer in self.conv_layers:
            x = functional.relu(layer["conv"](x))
        return x.permute(0, 2, 3, 1).flatten(2)


class AcousticModel(nn.Module):
    def __init__(self, d: dict) -> None:
        super().__init__()
        self.feature_extractor = FrontEnd(d) if d.get("channels") else None
        inputs = self.feature_extractor.width if self.feature_extractor else d["features"]
        self.rnn = nn.LSTM(inputs, d["hidden"], d["layers"], bidirectional=True)
        width = d["bottleneck"] or 2 * d["hidden"]
        self.bottleneck = nn.Linear(2 * d["hidden"], width) if d["bottleneck"] else nn.Identity()
        self.output = nn.Linear(width, d["labels"])

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.feature_extractor:
            features = self.feature_extractor(features).transpose(0, 1)
        return self.output(self.bottleneck(self.rnn(features)[0])).log_softmax(-1)


class Attention(nn.Module):
    """The names are those of Hugging Face's Wav2Vec2Conformer; relative positions in the form of Transformer-XL."""
    def __init__(self, width: int, heads: int, relative: bool) -> None:
        super().__init__()
        for name in ("q", "k", "v", "out"):
            self.add_module(f"linear_{name}", nn.Linear(width, width))
        self.heads, self.relative = heads, relative
        if relative:
            self.linear_pos = nn.Linear(width, width, bias=False)
            self.pos_bias_u = nn.Parameter(torch.zeros(heads, width // heads))
            self.pos_bias_v = nn.Parameter(torch.zeros(heads, width // heads))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, rows, width) to (batch, heads, rows, width of a head)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def positions(self, rows: int, width: int) -> torch.Tensor:
        """Of every row i and j, what stands for i - j: (heads, rows, rows, width of a head)."""
        apart = (torch.arange(rows)[:, None] - torch.arange(rows)).flatten().double()
        angles = apart[:, None] * 10000.0 ** (-torch.arange(0, width, 2).double() / width)
        waves = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :width].float()
        return self.split(self.linear_pos(waves)[None])[0].unflatten(1, (rows, rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.split(linear(x)) for linear in (self.linear_q, self.linear_k, self.linear_v))
        if self.relative:
            scores = (q + self.pos_bias_u[:, None]) @ k.transpose(2, 3)
            scores = scores + torch.einsum("bhid,hijd->bhij", q + self.pos_bias_v[:, None],
                                           self.positions(*x.shape[1:]))
        else:
            scores = q @ k.transpose(2, 3)
        seen = (scores / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.linear_out(seen.transpose(1, 2).flatten(2))


class Convolutions(nn.Module):
    """A conformer's, with layer norms."""
    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(width)
        self.pointwise_conv1 = nn.Linear(width, 2 * width)
        self.depthwise_conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.depthwise_layer_norm = nn.LayerNorm(width)
        self.pointwise_conv2 = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.glu(self.pointwise_conv1(self.layer_norm(x)), -1)
        x = self.depthwise_conv(x.transpose(1, 2)).transpose(1, 2)
        return self.pointwise_conv2(functional.silu(self.depthwise_layer_norm(x)))


class FeedForward(nn.Module):
    """A conformer's, four times as wide inside."""
    def __init__(self, width: int) -> None:
        super().__init__()
        self.intermediate_dense, self.output_dense = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output_dense(functional.silu(self.intermediate_dense(x)))


class Conformer(nn.Module):
    """A block."""
    def __init__(self, d: dict) -> None:
        super().__init__()
        width = d["width"]
        self.ffn1, self.ffn2 = FeedForward(width), FeedForward(width)
        self.self_attn = Attention(width, d["heads"], d["positions"] == "relative")
        self.conv_module = Convolutions(width, d["kernel"])
        for name in ("ffn1", "self_attn", "ffn2", "final"):
            self.add_module(f"{name}_layer_norm", nn.LayerNorm(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.ffn1(self.ffn1_layer_norm(x)) / 2
        x = x + self.self_attn(self.self_attn_layer_norm(x))
        x = x + self.conv_module(x)
        return self.final_layer_norm(x + self.ffn2(self.ffn2_layer_norm(x)) / 2)


class SpeechEncoder(nn.Module):
    """The front end, conformers, a linear layer to the labels."""
    def __init__(self, d: dict) -> None:
        super().__init__()
        self.feature_extractor = FrontEnd(d)
        width = self.feature_extractor.width
        self.feature_projection = nn.ModuleDict({"layer_norm": nn.LayerNorm(width),
                                                 "projection": nn.Linear(width, d["width"])})
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(Conformer(d) for _ in range(d["blocks"]))})
        self.output = nn.Linear(d["width"], d["labels"])

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        x = self.feature_projection["layer_norm"](self.feature_extractor(features))
        x = self.feature_projection["projection"](x)
        for block in self.encoder["layers"]:
            x = block(x)
        return self.output(x).log_softmax(-1).transpose(0, 1)


def read(path: str) -> tuple:
    """The tensors and the texts of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    texts = header.pop("__metadata__", {})
    values = torch.frombuffer(data, dtype=torch.float32)
    return {name: values[entry["data_offsets"][0] // 4:entry["data_offsets"][1] // 4].reshape(entry["shape"])
            for name, entry in header.items()}, texts


def build(d: dict) -> nn.Module:
    """The network of a description, before its weights are there."""
    name = d["architecture"]
    if d["task"] == "lm":
        return Transformer(d) if name == "transformer" else LanguageModel(d)
    if d["task"] == "asr":
        return SpeechEncoder(d) if name == "speech encoder" else AcousticModel(d)
    if name == "cnn":
        return Cnn(d["input"], len(d["classes"]))
    if not re.fullmatch(r"resnet\d+", name):
        raise ValueError(f"this loader has no class for a network called {name!r}; write one, and name it in build()")
    depth, stages = int(name[len("resnet"):]), {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
    blocks = stages.get(depth, 3 * ((depth - 2) // 6,))
    return ResNet(d["input"][0], len(d["classes"]), blocks, depth == 50, depth not in stages)


def load(path: str) -> tuple:
    """The network with its weights, and its description."""
    tensors, texts = read(path)
    description = json.loads(texts["network"])
    network = build(description)
    network.load_state_dict(tensors)
    return network.eval(), description


def normalise(pixels: torch.Tensor, description: dict) -> torch.Tensor:
    """Pixels of 0 .. 255, not 0 .. 1, (count, channels, height, width), as a classifier wants them."""
    if list(pixels.shape[1:]) != list(description["input"]):
        raise ValueError(f"pixels of {list(pixels.shape)}: want (count, *{list(description['input'])})")
    if pixels.is_floating_point() and 0 < pixels.max() <= 1:
        raise ValueError("pixels of 0 .. 1: want 0 .. 255")
    mean, deviation = (torch.tensor(description[key]).reshape(-1, 1, 1) for key in ("mean", "deviation"))
    return (pixels / 255 - mean) / deviation


if __name__ == "__main__":
    print(load(sys.argv[1])[0])
