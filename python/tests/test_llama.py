#!/usr/bin/env python3
"""A transformer that thinwire trained, in transformers: its folder loads as a LlamaForCausalLM that gives the same logits,
with a tokenizer that gives the same tokens, and writes the same text. And one of transformers, which a run begins with; of
Llama 3.1, Qwen2 and Qwen3, too, with what they lose over twenty steps of AdamW, and adapters beside them.

    test_llama.py PROGRAM NETWORK_OUTPUTS"""

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

PROGRAM, NETWORK_OUTPUTS = (pathlib.Path(word) for word in (sys.argv.pop(1), sys.argv.pop(1)))
STEPS, BATCH = 9, 2  # as in network_outputs.c
CONTEXT = 24


def has_all():
    return all(importlib.util.find_spec(name) for name in ("torch", "transformers", "tokenizers"))


class FolderTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        generator = random.Random(1)
        self.lines = [" ".join(f"w{generator.randrange(12)}" for _ in range(9)) for _ in range(300)]
        (self.folder / "text.txt").write_text("".join(f"{line}\n" for line in self.lines))

    def run_program(self, *words):
        return subprocess.run([str(PROGRAM), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False, timeout=300)

    def succeed(self, *words):
        done = self.run_program(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def train(self, name, *options):
        run = self.folder / name
        self.succeed("train", "lm", "--model", "transformer", "--data", self.folder / "text.txt", "--hidden", 32, "--layers",
                     2, "--heads", 4, "--kv-heads", 2, "--batch", 4, "--bptt", CONTEXT, "--steps", 60, "--lr", 0.01,
                     "--quiet", "--out", run, *options)
        return run

    def load(self, run, kind="Llama"):
        import transformers
        folder = run.with_suffix(".llama")
        self.succeed("export", run, folder, "--transformers", "--checkpoint", "last")
        model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        self.assertEqual((type(model).__name__, model.dtype), (f"{kind}ForCausalLM", __import__("torch").float32))
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(told[kind], kind)
        tokenizer = (folder / "tokenizer.json").exists() and transformers.AutoTokenizer.from_pretrained(folder)
        return model.eval(), tokenizer

    def check_logits(self, run, model):
        import torch
        newest = sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors"
        printed = subprocess.run([str(NETWORK_OUTPUTS), str(newest)], stdout=subprocess.PIPE, text=True, check=True).stdout
        expected = torch.tensor([float(line) for line in printed.split()]).reshape(STEPS, BATCH, -1)
        types = model.config.vocab_size
        tokens = torch.tensor([(7 * i + 3) % types for i in range(STEPS * BATCH)]).reshape(STEPS, BATCH)
        with torch.no_grad():
            found = model(tokens.T.contiguous()).logits.transpose(0, 1)
        self.assertGreater(float(expected.max() - expected.min()), 0.1)
        self.assertLess(float((found - expected).abs().max()), 1e-4)


class LlamaTest(FolderTest):
    def check_text(self, run, model, tokenizer, prompt, count):
        """The likeliest text from a prompt on. Both begin with the end of a line."""
        import torch
        begin = [model.config.bos_token_id, *tokenizer.encode(prompt)]
        made = model.generate(torch.tensor([begin]), max_new_tokens=count, do_sample=False)[0].tolist()
        found = tokenizer.decode(made[1:]).replace(" <eos> ", "\n").replace(" <eos>", "\n")
        said = self.succeed("generate", run, "--prompt", prompt, "--tokens", count, "--temperature", 0, "--checkpoint",
                            "last")
        self.assertEqual(len(made), len(begin) + count)
        self.assertEqual(found.rstrip("\n"), said.rstrip("\n"))

    def test_characters(self):
        for options in ((), ("--tied",)):
            run = self.train("characters" + "".join(options), "--unit", "char", *options)
            model, tokenizer = self.load(run)
            self.check_logits(run, model)
            text = "w1 w11\nw3  w4"
            self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)
            self.assertEqual(len(tokenizer.encode(text)), len(text))
            self.check_text(run, model, tokenizer, "w1", 15)

    def test_words(self):
        run = self.train("words", "--unit", "word")
        model, tokenizer = self.load(run)
        self.check_logits(run, model)
        vocabulary = json.loads((run.with_suffix(".llama") / "tokenizer.json").read_text())["model"]["vocab"]
        expected = [vocabulary[word] for word in ("w1", "w11", "<eos>", "w3", "w4")]
        self.assertEqual(tokenizer.encode("w1 w11\nw3\t  w4"), expected)
        self.assertEqual(tokenizer.decode(expected), "w1 w11 <eos> w3 w4")
        self.check_text(run, model, tokenizer, "w1 w3", 15)

    def test_words_that_are_unknown(self):
        run = self.train("few", "--unit", "word", "--vocabulary", 8)
        tokenizer = self.load(run)[1]
        self.assertEqual(tokenizer.decode(tokenizer.encode("zebra")), "<unk>")

    def write_mixed_text(self):
        """Lines of words, spaces, tabs and characters of all lengths."""
        generator = random.Random(5)
        parts = ["the", "of", "running", "12345", " ", "  ", "\t", "é", "日本", "🙂", "x" * 30, "\u2581", "'", "Don't"]
        self.lines = ["".join(generator.choice(parts) + generator.choice(("", " ")) for _ in range(12)) for _ in range(1000)]
        (self.folder / "text.txt").write_text("".join(f"{line}\n" for line in self.lines))

    def numbers_of(self, run):
        newest = sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors"
        done = subprocess.run([str(NETWORK_OUTPUTS), str(newest), "pieces"], input="".join(f"{line}\n" for line in self.lines),
                              stdout=subprocess.PIPE, text=True, check=True)
        return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]

    def train_pieces(self, name, *options):
        done = self.run_program("train", "lm", "--unit", "piece", "--data", self.folder / "text.txt", "--steps", 0)
        if "without SentencePiece" in done.stderr:
            self.skipTest("there is no SentencePiece here")
        return self.train(name, "--unit", "piece", *options)

    def test_pieces(self):
        self.write_mixed_text()
        run = self.train_pieces("pieces", "--vocabulary", 320)
        model, tokenizer = self.load(run)
        self.check_logits(run, model)
        self.assertEqual([tokenizer.encode(line) for line in self.lines], self.numbers_of(run))
        whole = "\n".join(self.lines)
        self.assertEqual(tokenizer.decode(tokenizer.encode(whole)), whole.replace("\u2581", " "))
        self.check_text(run, model, tokenizer, "the", 15)

    def test_a_model_with_a_space_in_front(self):
        """As Llama's is, and with its special tokens: what LlamaTokenizer of transformers makes of it, too."""
        import transformers
        self.write_mixed_text()
        first = self.train_pieces("pieces", "--vocabulary", 320)
        self.load(first)
        model = (first.with_suffix(".llama") / "tokenizer.model").read_bytes()
        for name in (b"<s>", b"</s>"):  # a piece, a control token
            piece = b"\x0a" + bytes([len(name)]) + name + b"\x15" + bytes(4) + b"\x18\x03"
            model += b"\x0a" + bytes([len(piece)]) + piece
        (self.folder / "llama.model").write_bytes(model + b"\x1a\x02\x18\x01")  # add_dummy_prefix
        run = self.train("prefixed", "--unit", "piece", "--tokenizer", self.folder / "llama.model")
        model, tokenizer = self.load(run)
        expected = self.numbers_of(run)
        self.assertEqual([tokenizer.encode(line) for line in self.lines], expected)
        other = transformers.LlamaTokenizer.from_pretrained(run.with_suffix(".llama"), add_bos_token=False)
        for line, numbers in zip(self.lines, expected):
            if not line.startswith((" ", "\u2581")):  # before these it puts no other
                self.assertEqual(other.encode(line), numbers, line)
        self.assertEqual(tokenizer.convert_tokens_to_ids("<s>"), model.config.bos_token_id)
        self.check_text(run, model, tokenizer, "the", 15)
        self.begin_with_the_tokens(expected, len(tokenizer))

    def begin_with_the_tokens(self, expected, types):
        """A network of transformers beside nothing but a tokenizer.model."""
        import torch
        import transformers
        folder, begun = self.folder / "random", self.folder / "begun"
        config = transformers.LlamaConfig(vocab_size=types, hidden_size=24, num_attention_heads=2,
                                          intermediate_size=48, num_hidden_layers=1, max_position_embeddings=CONTEXT,
                                          rms_norm_eps=1e-5, initializer_range=0.3)
        torch.manual_seed(3)
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        (folder / "tokenizer.model").write_bytes((self.folder / "llama.model").read_bytes())
        self.succeed("train", "lm", "--data", self.folder / "text.txt", "--init-from", folder, "--batch", 4, "--lr", 0,
                     "--warmup", 0, "--steps", 1, "--quiet", "--out", begun)
        self.assertEqual(self.numbers_of(begun), expected)
        self.check_logits(begun, transformers.AutoModelForCausalLM.from_pretrained(folder).eval())

    def test_a_run_begins_with_a_network_of_transformers(self):
        """Random weights and grouped heads, in fp32 and bf16, in one file and in several."""
        import torch
        import transformers
        known = self.train("known", "--unit", "word")  # has the tokens
        tokens = len(self.load(known)[1].get_vocab())
        for number, (tied, dtype, shard, epsilon, theta) in enumerate((
                (False, torch.float32, "1GB", 1e-5, 10000.0), (True, torch.bfloat16, "20KB", 1e-3, 300.0))):
            torch.manual_seed(number)
            config = transformers.LlamaConfig(
                vocab_size=tokens, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
                num_key_value_heads=2, max_position_embeddings=CONTEXT, rms_norm_eps=epsilon,
                rope_parameters={"rope_type": "default", "rope_theta": theta},
                initializer_range=0.3, tie_word_embeddings=tied)
            folder, run = self.folder / f"random-{number}", self.folder / f"begun-{number}"
            transformers.LlamaForCausalLM(config).to(dtype).save_pretrained(folder, max_shard_size=shard)
            self.assertEqual((folder / "model.safetensors").exists(), shard == "1GB")
            self.succeed("train", "lm", "--data", self.folder / "text.txt", "--init-from", folder, "--tokenizer",
                         known.with_suffix(".llama"), "--batch", 4, "--lr", 0, "--warmup", 0, "--steps", 1, "--quiet",
                         "--out", run)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            self.check_logits(run, model.eval())

    def byte_level(self):
        """A tokenizer of the kind that Llama 3 has, learnt from text of all kinds of characters; and the text."""
        import tokenizers
        generator = random.Random(9)
        parts = ["the", " running", "\n\n", "  ", "é", "日本語", "🙂", "\u0301", "12345", "don't", "\t", "\u2028", "ß" * 3]
        text = "".join(generator.choice(parts) + chr(generator.randrange(0x20, 0xd800)) for _ in range(3000))
        own = tokenizers.Tokenizer(tokenizers.models.BPE())
        own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        own.decoder = tokenizers.decoders.ByteLevel()
        own.train_from_iterator([text], tokenizers.trainers.BpeTrainer(
            vocab_size=700, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
        return own, text

    def loss_of(self, model, ids):
        """As a run evaluates it: 20 strips, a context at a time."""
        import torch
        length = (len(ids) - 1) // 20
        ids, total = torch.tensor(ids.astype("int64")), 0.0
        with torch.no_grad():
            for begin in range(0, length, CONTEXT):
                end = min(begin + CONTEXT, length)
                strips = torch.stack([ids[strip * length + begin:strip * length + end + 1] for strip in range(20)])
                total += float(torch.nn.functional.cross_entropy(model(strips[:, :-1]).logits.flatten(0, 1),
                                                                 strips[:, 1:].flatten(), reduction="sum"))
        return total / (20 * length)

    def test_ids_of_any_tokenizer(self):
        """A folder as those of the hub: a byte-level tokenizer.json, which thinwire does not read."""
        import numpy
        import torch
        import transformers
        tokenizer, text = self.byte_level()
        folder, run, again = self.folder / "hub", self.folder / "ids", self.folder / "again"
        torch.manual_seed(4)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=704, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=CONTEXT, initializer_range=0.3)).save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
        ids = numpy.array(tokenizer.encode(text).ids, dtype="uint16")
        numpy.save(self.folder / "text.npy", ids)
        words = ["train", "lm", "--data", self.folder / "text.npy", "--init-from", folder, "--batch", 4, "--warmup", 0,
                 "--quiet", "--json", "-"]
        done = self.run_program(*words, "--steps", 1)
        self.assertIn("--unit id", done.stderr)
        began = json.loads(self.succeed(*words, "--unit", "id", "--lr", 0, "--steps", 1, "--out", run))
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        test = ids[int(len(ids) * 0.95):]
        self.assertAlmostEqual(began["loss"], self.loss_of(model, test), delta=1e-4)
        self.check_logits(run, model)
        learned = json.loads(self.succeed(*words, "--unit", "id", "--lr", 0.01, "--steps", 60, "--out", again))
        self.assertLess(learned["loss"], began["loss"] - 1)
        out = again.with_suffix(".llama")
        self.succeed("export", again, out, "--transformers", "--checkpoint", "last")
        self.assertFalse((out / "tokenizer.json").exists())
        model = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
        self.assertAlmostEqual(learned["loss"], self.loss_of(model, test), delta=1e-4)
        begin = tokenizer.encode("the running").ids
        made = model.generate(torch.tensor([begin]), max_new_tokens=CONTEXT - len(begin), do_sample=False)[0].tolist()
        said = self.succeed("generate", again, "--prompt", " ".join(map(str, begin)), "--tokens", len(made) - len(begin),
                            "--temperature", 0, "--checkpoint", "last")
        self.assertEqual([int(word) for word in said.split()], made)


KIN = {  # their sizes are not those that hidden_size and heads would give
    "llama3": ("Llama", {"head_dim": 6, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}}),
    "linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
    "qwen2": ("Qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
}
TYPES, STRIPS, RATE, CLIP, DECAY = 40, 4, 0.003, 0.5, 0.1
COUNT, LOOKS = 20, (1, 10, 20)  # steps, and of which the loss is compared


class KinTest(FolderTest):
    def setUp(self):
        import numpy
        super().setUp()
        self.numbers, generator = self.folder / "numbers", numpy.random.default_rng(2)
        self.numbers.mkdir()
        for split, count in (("train", STRIPS * CONTEXT * (COUNT + 1)), ("valid", 600), ("test", 600)):
            steps = generator.integers(1, 4, count)
            numpy.save(self.numbers / f"{split}.npy", (numpy.cumsum(steps) % TYPES).astype("uint16"))

    def make(self, name):
        """A folder of random weights, norms and biases among them."""
        import torch
        import transformers
        kind, options = KIN[name]
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=TYPES, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=CONTEXT, **options)
        torch.manual_seed(6)
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1) * 0.5)
        model.save_pretrained(self.folder / name)
        return self.folder / name

    def begin(self, folder, out, *options):
        return json.loads(self.succeed(
            "train", "lm", "--unit", "id", "--data", self.numbers, "--init-from", folder, "--batch", STRIPS, "--bptt", CONTEXT,
            "--warmup", 0, "--schedule", "constant", "--clip", CLIP, "--weight-decay", DECAY, "--lr", RATE, "--quiet", "--json",
            "-", "--out", out, *options))

    def read(self, folder):
        import torch
        import transformers
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def losses_there(self, model, rank=0, size=1, wrap=lambda model, optimizer: None):
        """Of those that learn, and matrices alone decay. Each of `size` workers has strips of its own."""
        import numpy
        import torch
        numbers = torch.tensor(numpy.load(self.numbers / "train.npy").astype("int64"))
        length, losses, own = (len(numbers) - 1) // STRIPS, [], STRIPS // size
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW([{"params": [p for p in learned if p.dim() > 1], "weight_decay": DECAY},
                                       {"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0}],
                                      lr=RATE, betas=(0.9, 0.95), eps=1e-8)
        wrapped = wrap(model, optimizer)
        for at in range(0, COUNT * CONTEXT, CONTEXT):
            strips = torch.stack([numbers[strip * length + at:strip * length + at + CONTEXT + 1]
                                  for strip in range(rank * own, (rank + 1) * own)])
            loss = torch.nn.functional.cross_entropy(model(strips[:, :-1]).logits.flatten(0, 1), strips[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(learned, CLIP)
            optimizer.step()
            losses.append(loss.item())
        if wrapped:
            wrapped.finish()
        return losses

    def loss_here(self, step, folder, *options):
        """What it adds to the sum of all."""
        before, after = (n * self.begin(folder, "none", "--steps", n, *options)["train_loss"] if n else 0.0
                         for n in (step - 1, step))
        return after - before

    def check_losses(self, there, folder, *options):
        self.assertLess(there[-1], there[0] - 0.02)
        for step in LOOKS:
            self.assertAlmostEqual(self.loss_here(step, folder, *options), there[step - 1], delta=1e-5 * there[step - 1])

    def check_written(self, run, model):
        import torch
        begin = [3, 5, 8]
        made = model.generate(torch.tensor([begin]), max_new_tokens=CONTEXT - 3, do_sample=False)[0].tolist()
        said = self.succeed("generate", run, "--prompt", "3 5 8", "--tokens", CONTEXT - 3, "--temperature", 0, "--checkpoint",
                            "last")
        self.assertEqual([int(word) for word in said.split()], made)

    def test_they_begin_learn_and_come_back(self):
        for name, (kind, options) in KIN.items():
            with self.subTest(name):
                folder, run = self.make(name), self.folder / f"{name}-run"
                self.begin(folder, run, "--lr", 0, "--steps", 1)
                self.check_logits(run, self.read(folder))
                model = self.load(run, kind)[0]
                self.check_logits(run, model)
                self.check_written(run, model)
                self.assertEqual({key: model.config.rope_parameters[key] for key in options["rope_parameters"]},
                                 options["rope_parameters"])
                self.check_losses(self.losses_there(self.read(folder)), folder)

    @unittest.skipUnless(importlib.util.find_spec("peft"), "needs peft")
    def test_adapters_beside_them(self):
        import peft
        for name in ("qwen2", "qwen3"):
            with self.subTest(name):
                folder, first = self.make(name), self.folder / f"{name}-first"
                lora = ("--lora", "rank=4,alpha=32,targets=q+k+v+o+down")
                self.begin(folder, first, *lora, "--lr", 0, "--steps", 1)
                self.succeed("export", first, f"{first}.peft", "--peft", "--checkpoint", "last")
                model = peft.PeftModel.from_pretrained(self.read(folder), f"{first}.peft", is_trainable=True)
                self.check_losses(self.losses_there(model), folder, *lora)

    def weights_there(self, rank, size, folder, spec):
        import thinwire.torch
        model = self.read(folder).train()
        self.losses_there(model, rank, size, lambda *both: thinwire.torch.OuterLoop(*both, spec, banner=False))
        return {name: tensor.numpy() for name, tensor in model.state_dict().items()}

    def test_local_updates_come_to_the_same_weights(self):
        """The program's and the plug-in's: two workers, whole rounds and one of two steps. In fragments they would not be the
        same, as the two have the tensors in other orders."""
        folder = self.make("llama3")
        before = {name: tensor.numpy() for name, tensor in self.read(folder).state_dict().items()}
        for spec in ("diloco:every=4", "local:every=3", "sparseloco:every=4"):
            with self.subTest(spec):
                run = self.folder / spec.partition(":")[0]
                self.begin(folder, run, "--workers", 2, "--batch", STRIPS // 2, "--sync", spec, "--steps", COUNT)
                here = self.load(run)[0].state_dict()
                first, second = ranks.on_ranks(2, self.weights_there, folder, spec)
                for name, theta in first.items():
                    self.assertEqual(theta.tobytes(), second[name].tobytes(), name)
                    moved = abs(theta - before[name]).max()
                    self.assertGreater(moved, 0.005, name)
                    self.assertLess(abs(here[name].numpy() - theta).max(), 0.003 * moved, name)

    def test_what_transformers_4_writes(self):
        folder, run = self.make("llama3"), self.folder / "older"
        config = json.loads((folder / "config.json").read_text())
        config["rope_scaling"] = config.pop("rope_parameters")
        config["rope_theta"] = config["rope_scaling"].pop("rope_theta")
        model = self.read(folder)
        (folder / "config.json").write_text(json.dumps(config))
        self.begin(folder, run, "--lr", 0, "--steps", 1)
        self.check_logits(run, model)


if __name__ == "__main__":
    if not has_all():
        print("skipped: there is no transformers here, or no torch")
        sys.exit(77)
    os.environ["HF_HUB_OFFLINE"] = "1"
    unittest.main()
