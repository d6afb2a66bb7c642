#!/usr/bin/env python3
"""The examples for PyTorch: what matters is as without thinwire, replicas are equal, and a resumed run is the whole one.

    test_recipes.py NAME

runs those of examples/pytorch/NAME.py, which are skipped where what it imports is not installed. Every rank runs one after
another what `jobs` says, in a process of its own, and leaves its weights and losses."""

import importlib
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import launched
import models  # noqa: F401: skips it where there is no torch
import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"
SMALL = {  # what makes each of them small
    "gpt": "--steps 30 --every 15 --width 32 --layers 1 --heads 2 --length 32 --batch 4 --scheme powersgd:rank=2",
    "lora": "--steps 30 --every 15 --width 32 --layers 1 --heads 2 --length 32 --batch 4 --scheme topk:density=0.1",
    "resnet": "--epochs 2 --batch 128 --width 4 --scheme dgc:density=0.1,warmup_steps=10",
    "with_lightning": "--epochs 2 --scheme dgc:density=0.05,warmup_steps=10",
    "with_accelerate": "--steps 60 --every 30 --scheme topk:density=0.05",
    "with_trainer": "--steps 30 --every 15 --width 32 --length 32 --scheme topk:density=0.1",
}
NEEDS = {"with_lightning": "lightning", "with_accelerate": "accelerate", "with_trainer": "trainer"}
RESUME = {"with_lightning": ["--resume"], "with_trainer": ["--resume"]}
LAST = {"gpt": "step-30", "lora": "step-30", "resnet": "step-20", "with_accelerate": "step-60", "with_trainer": "checkpoint-30"}
SAME = 2e-5  # what rounding may do to weights of about 1 in some dozens of steps: torch's own sums change order, too


def jobs(name, folder):
    """(what it is called, words, what has to go first). The last goes on from the middle."""
    small, first, second = SMALL[name].split(), folder / "first", folder / "second"
    for scheme in ("none", "allreduce"):
        yield scheme, [*small, "--scheme", scheme, "--out", folder / scheme], None
    yield "whole", [*small, "--out", first], None
    if name == "with_lightning":  # it keeps one checkpoint, and has the same rate however long it takes
        yield "half", [*small, "--epochs", "1", "--out", second], None
        yield "resumed", [*small, "--out", second, *RESUME[name]], None
    else:
        yield "resumed", [*small, "--out", first, *RESUME.get(name, [])], first / LAST[name]


def play(name, folder):
    sys.path.insert(0, str(EXAMPLES))
    rank = int(os.environ["RANK"])
    example = importlib.import_module(name)
    for number, (job, words, gone) in enumerate(jobs(name, folder)):
        launched.meet_anew(folder, f"{number}", rank, 2, lambda gone=gone: gone and shutil.rmtree(gone))
        model, losses = example.main([str(word) for word in words])
        torch.save({"weights": dict(model.named_parameters()), "losses": losses}, folder / f"{job}{rank}.pt")
        launched.forget_group()


def distance(one, other):
    return max(float((one[key] - other[key]).detach().abs().max()) for key in one)


class RecipeTest(unittest.TestCase):
    def test_the_recipe(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            with launched.forks_as_torchrun_has_them(2, play, NAME, folder) as crew:
                crew.results()
                said = [crew.end(rank)[1] for rank in range(2)]
            left = {job: [torch.load(folder / f"{job}{rank}.pt") for rank in range(2)] for job, _, _ in jobs(NAME, folder)}
        for job, (first, second) in left.items():
            with self.subTest("replicas are equal", job=job):
                self.assertEqual(distance(first["weights"], second["weights"]), 0)
        weights = {job: first["weights"] for job, (first, _) in left.items()}
        self.assertLess(distance(weights["none"], weights["allreduce"]), SAME)
        self.assertGreater(distance(weights["none"], weights["whole"]), SAME)
        self.assertEqual(distance(weights["whole"], weights["resumed"]), 0)
        losses = left["whole"][0]["losses"]
        third = len(losses) // 3
        self.assertLess(sum(losses[-third:]), sum(losses[:third]))
        self.assertIn("instead of", said[0])
        self.assertNotIn("instead of", said[1])


if __name__ == "__main__":
    NAME = sys.argv.pop(1)
    if NAME in NEEDS:
        launched.load(NEEDS[NAME])
    if NAME == "resnet" and torch.__version__.startswith("1."):
        print("skipped: PyTorch 2 is missing; 1 may hang when a group ends: it holds Python while it waits for a thread of Gloo's, "
              "which waits for Python to free the tensor of a collective")
        sys.exit(77)
    unittest.main()
