"""What bench/adamw.py, bench/nanogpt.py and bench/sharded.py share: the GPT of examples/pytorch, which each of several ways
trains on text, and how a scheme stands beside AdamW."""

import argparse
import statistics
import sys
from pathlib import Path

import thinwire
import torch
import torch.distributed as dist
from made import as_json, made
from thinwire.spec import adapts, options_of, with_option

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "pytorch"))
import gpt  # noqa: E402

HELD_OUT = 16  # batches
CLIP = 1.0  # of the gradient's norm


class Beside:
    """A scheme as a run of so many steps has it, and what it asks of the training. Behind one that gives directions there is no
    gradient to clip, so it clips itself where it can."""

    def __init__(self, scheme, steps, clip=CLIP):
        self.spec = thinwire.for_run(scheme, steps)
        self.beta1, self.gives_directions = float(options_of(self.spec).get("momentum", 0.9)), adapts(self.spec)
        if self.gives_directions:
            self.spec = with_option(self.spec, "clip", str(clip))


def parser_of(description, ways, known, **numbers):
    """Options; the words of the command line are `ways`, and `numbers` are the defaults of what has whole ones."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(ways, nargs="*", default=known)
    parser.add_argument("--text", type=Path, nargs="*", default=sorted(gpt.DOCUMENTS.glob("*.md")), help="files in UTF-8")
    parser.add_argument("--rate", type=float, default=1e-3)
    for name, number in {**numbers, "length": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--batch", type=int, default=12, help="sequences a worker and step")
    return parser


def train(o, seed, model, optimizer, learnt, with_gradient=lambda: None):
    for step in range(o.steps):
        for group in optimizer.param_groups:
            group["lr"] = gpt.rate_at(step, o)
        generator = torch.Generator().manual_seed((seed * 1_000_000 + step) * 1000 + dist.get_rank())
        optimizer.zero_grad()
        gpt.loss_of(model, *gpt.drawn(learnt, generator, o.batch, o.length)).backward()
        with_gradient()
        optimizer.step()


@torch.no_grad()
def loss_on(unseen, model, o):
    """In nats a character, on the same batches every time."""
    generator = torch.Generator().manual_seed(0)
    return statistics.mean(gpt.loss_of(model, *gpt.drawn(unseen, generator, o.batch, o.length)).item() for _ in range(HELD_OUT))


def say(text):
    if dist.get_rank() == 0:
        print(text, file=sys.stderr, flush=True)


def run(o, ways, runs_of):
    """Prints what `runs_of` finds, of so many symbols, with the text to learn and the one that nobody trains on."""
    dist.init_process_group("gloo")
    alphabet, text = gpt.read(o.text)
    runs = runs_of(len(alphabet), text[:len(text) * 9 // 10], text[len(text) * 9 // 10:])
    if dist.get_rank() == 0:
        told = {name: value for name, value in vars(o).items() if name not in ("text", ways)}
        print(as_json({"made": made(), "torch": torch.__version__, "workers": dist.get_world_size(), **told, "runs": runs}))
    dist.destroy_process_group()
