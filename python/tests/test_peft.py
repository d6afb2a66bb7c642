#!/usr/bin/env python3
"""Adapters of thinwire train lm --lora, in peft: the same losses over twenty steps of AdamW, and a folder that peft loads,
with the logits of the merged network.

    test_peft.py PROGRAM"""

import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import ranks

PROGRAM = pathlib.Path(sys.argv.pop(1))
STRIPS, STEPS, COUNT = 4, 10, 20
RATE, CLIP, DECAY = 0.01, 0.5, 0.1


def has_all():
    return all(importlib.util.find_spec(name) for name in ("torch", "transformers", "tokenizers", "peft"))


class PeftTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.texts = self.folder / "texts"
        self.texts.mkdir()
        generator = random.Random(1)
        for split, lines in (("train", 300), ("valid", 30), ("test", 30)):
            words = [" ".join(f"w{int(12 * generator.random() ** 3)}" for _ in range(9)) for _ in range(lines)]
            (self.texts / f"{split}.txt").write_text("".join(f"{line}\n" for line in words))
        self.base = self.folder / "base"
        self.train(self.base, "--model", "transformer", "--hidden", 32, "--layers", 2, "--heads", 4, "--kv-heads", 2,
                   "--steps", 2)

    def succeed(self, *words):
        done = subprocess.run([str(PROGRAM), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False, timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def train(self, out, *options):
        return json.loads(self.succeed("train", "lm", "--data", self.texts, "--batch", STRIPS, "--bptt", STEPS, "--quiet",
                                       "--json", "--out", out, *options))

    def train_adapters(self, out, spec, *options):
        return self.train(out, "--init-from", self.base, "--lora", spec, "--lr", RATE, "--clip", CLIP, "--weight-decay", DECAY,
                          "--schedule", "constant", "--warmup", 0, *options)

    def load(self, adapters, **options):
        """The base's network in transformers, with a run's adapters beside it."""
        import peft
        import transformers
        self.succeed("export", adapters, f"{adapters}.peft", "--peft", "--checkpoint", "last")
        if not self.base.with_suffix(".llama").exists():
            self.succeed("export", self.base, self.base.with_suffix(".llama"), "--transformers")
        model = transformers.AutoModelForCausalLM.from_pretrained(self.base.with_suffix(".llama"))
        return peft.PeftModel.from_pretrained(model, f"{adapters}.peft", **options)

    def batches(self):
        vocabulary = json.loads((self.base.with_suffix(".llama") / "tokenizer.json").read_text())["model"]["vocab"]
        words = (self.texts / "train.txt").read_text().replace("\n", " <eos> ").split()
        numbers = [vocabulary[word] for word in words]
        length = (len(numbers) - 1) // STRIPS
        strips = [numbers[strip * length:] for strip in range(STRIPS)]
        return [([strip[at:at + STEPS] for strip in strips], [strip[at + 1:at + STEPS + 1] for strip in strips])
                for at in range(0, COUNT * STEPS, STEPS)]

    def losses_there(self, spec):
        import torch
        first = self.folder / "first"
        self.train_adapters(first, spec, "--steps", 1, "--lr", 0)
        model = self.load(first, is_trainable=True)
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(learned, lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY)
        losses = []
        for tokens, targets in self.batches():
            logits = model(torch.tensor(tokens)).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(learned, CLIP)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_peft_loses_what_thinwire_loses(self):
        spec = "rank=4,alpha=32,targets=q+v+o+gate+down"
        there, sums = self.losses_there(spec), [0.0]
        for steps in range(1, COUNT + 1):
            sums.append(steps * self.train_adapters("none", spec, "--steps", steps)["train_loss"])
        here = [after - before for before, after in zip(sums, sums[1:])]
        self.assertLess(there[-1], there[0] - 0.02)
        self.assertLess(max(abs(a - b) for a, b in zip(here, there, strict=True)), 1e-5)

    def test_peft_loads_the_adapters(self):
        import torch
        import transformers
        run, merged = self.folder / "run", self.folder / "merged"
        self.train_adapters(run, "rank=4", "--lr", 0.01, "--steps", 30)
        model = self.load(run).eval()
        self.succeed("export", run, merged, "--transformers", "--checkpoint", "last")
        whole = transformers.AutoModelForCausalLM.from_pretrained(merged).eval()
        tokens = torch.tensor([[i % 13 for i in range(STEPS)]])
        with torch.no_grad():
            expected = whole(tokens).logits
            self.assertLess(float((model(tokens).logits - expected).abs().max()), 1e-5)
            with model.disable_adapter():
                self.assertGreater(float((model(tokens).logits - expected).abs().max()), 0.1)


def adapted(machine, size, port):
    """A Llama that both have, with adapters that each draws by itself: A is at random, and B is zero."""
    import peft
    import thinwire.torch
    import torch
    import transformers
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32, **sizes))
    torch.manual_seed(2 + machine)
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    frozen = [one.detach().clone() for one in model.parameters() if not one.requires_grad]
    optimizer = torch.optim.AdamW(trained.values(), lr=RATE)
    drawn = next(iter(trained.values())).detach().flatten().tolist()
    with thinwire.torch.OuterLoop(model, optimizer, "local:every=2", join=f"127.0.0.1:{port}", workers=size, timeout=ranks.SECONDS,
                                  banner=False) as loop:
        for _ in range(5):
            tokens = torch.randint(32, (2, 8))
            optimizer.zero_grad()
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
        loop.finish()
    kept = all(map(torch.equal, frozen, (one for one in model.parameters() if not one.requires_grad)))
    return {"drawn": drawn, "hash": loop.hash, "names": sorted(trained) == sorted(loop.trained()), "kept": kept,
            "end": [x for one in trained.values() for x in one.detach().flatten().tolist()]}


class LoopTest(unittest.TestCase):
    def test_adapters_of_other_seeds_end_alike(self):
        with ranks.Machines(adapted, 2, ranks.free_port()) as machines:
            first, other = machines.results()
        self.assertNotEqual(first["drawn"], other["drawn"])
        for key in "hash", "end":
            self.assertEqual(first[key], other[key])
        self.assertEqual([(one["names"], one["kept"]) for one in (first, other)], [(True, True)] * 2)


if __name__ == "__main__":
    if not has_all():
        print("skipped: there is no peft here, or what it needs")
        sys.exit(77)
    os.environ["HF_HUB_OFFLINE"] = "1"
    unittest.main()
