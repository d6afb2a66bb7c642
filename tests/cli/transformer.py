"""The transformer as a language model, end to end: a source of known entropy, the optimiser of its own, PyTorch's losses,
resuming, writing beyond what it remembers, and wrong options."""
import json
import pathlib
import shutil
import unittest

from checkpoint_file import rewrite_texts, split_file
from lm import CHOICES, LanguageTest, followers
from support import find_torch, run_tests, unless_kept

import parts

HERE = pathlib.Path(__file__).parent
TORCH = find_torch()
STRIPS, STEPS = 4, 10  # of a batch


class TransformerTest(LanguageTest):
    def train_words(self, *options):
        return ["train", "lm", "--model", "transformer", "--data", self.texts, "--layers", 2, "--hidden", 16, "--heads", 4,
                "--kv-heads", 2, "--batch", STRIPS, "--bptt", STEPS, "--lr", 0.01, *options, *unless_kept(options)]

    def first_line(self, out):
        return json.loads((out / "metrics.jsonl").read_text().splitlines()[0])


class TrainingTest(TransformerTest):
    def test_the_entropy_of_a_source_is_approached_and_not_beaten(self):
        out = self.folder / "run"
        summary = self.train("--epochs", 6, "--out", out, "--workers", 2, "--batch", 2)
        self.assertLess(summary["metric"]["value"], CHOICES * 1.05)
        self.assertGreater(summary["metric"]["value"], CHOICES * 0.995)
        done = self.run_program("generate", out, "--tokens", 300, "--top-k", CHOICES, "--prompt", "w1")
        words = [int(word[1:]) for word in done.stdout.split()]
        self.assertGreater(len(words), 250)  # many times what it remembers
        for word, after in zip(words, words[1:]):
            self.assertIn(after, followers(word))

    def test_its_optimiser_follows_the_model(self):
        out = self.folder / "run"
        self.train("--steps", 1, "--out", out)
        found = self.first_line(out)["configuration"]
        expected = {"optimizer": "adamw", "momentum": 0.9, "beta2": 0.95, "weight-decay": 0.1, "clip": 1,
                    "schedule": "cosine", "warmup": 100, "epochs": 10, "lr": 0.01}
        self.assertEqual({key: found[key] for key in expected}, expected)

    def test_heads_share_no_keys_unless_they_are_told_to(self):
        out = self.folder / "run"
        self.succeed("train", "lm", "--model", "transformer", "--data", self.texts, "--layers", 1, "--hidden", 24,
                     "--heads", 6, "--steps", 1, "--quiet", "--out", out)
        self.assertEqual(self.metadata(out)["transformer"], "heads=6,kv_heads=6,context=128")

    def test_sizes_follow_the_options(self):
        """Embedding and output, and in each block norms, q and o, k and v, and three matrices of the feed-forward part."""
        for name, options, (width, layers, queries, shared, inner, matrices) in (
                ("own", (), (16, 2, 16, 8, 64, 2)), ("tied", ("--tied",), (16, 2, 16, 8, 64, 1)),
                ("many", ("--heads", 8, "--kv-heads", 8), (16, 2, 16, 16, 64, 2)),
                ("wide", ("--hidden", 24, "--inner", 40, "--layers", 1), (24, 1, 24, 12, 40, 2)),
                ("qwen2", ("--family", "qwen2"), (16, 2, 16, 8, 64, 2)),
                ("qwen3", ("--family", "qwen3", "--head-width", 6), (16, 2, 24, 12, 64, 2))):
            with self.subTest(name):
                out = self.folder / name
                self.train("--steps", 1, "--out", out, *options)
                types = len(self.metadata(out)["vocabulary.txt"].splitlines()) - 1
                block = 2 * width + 2 * width * queries + 2 * width * shared + 3 * width * inner
                block += {"qwen2": queries + 2 * shared, "qwen3": 2 * 6}.get(name, 0)
                self.assertEqual(self.first_line(out)["parameters"], matrices * types * width + layers * block + width)

    def test_wrong_options(self):
        self.refuse_training(2, ["--heads", "--model transformer"], "--model", "small")
        for option, value in (("--kv-heads", 2), ("--inner", 2), ("--head-width", 2), ("--family", "qwen2"),
                              ("--rope-scaling", "linear:2")):
            self.refuse(2, [option, "--model transformer"], "train", "lm", "--data", self.texts, "--quiet", option, value)
        self.refuse_training(2, ["3 heads", "16 features"], "--heads", 3)
        self.refuse_training(2, ["3 key heads", "4 heads"], "--kv-heads", 3)
        self.refuse_training(2, ["even number of features, not 5"], "--head-width", 5)
        for spec in ("yarn:4", "linear:", "linear:0", "linear:2,3", "llama3:8,1,4", "llama3:8,1,4,0", "llama3:8,1,4,9,1"):
            self.refuse_training(2, [f"--rope-scaling {spec}", "llama3:8,1,4,8192"], "--rope-scaling", spec)
        self.refuse_training(2, ["a factor from 1 to 1e6", "0.5, 1, 4 and 8"], "--rope-scaling", "llama3:0.5,1,4,8")
        self.refuse_training(2, ["a low bound below the high one"], "--rope-scaling", "llama3:8,4,4,8")
        self.refuse_training(2, ["adamw", "dgc", "sgd"], "--sync", "dgc", "--workers", 2)


class ResumingTest(TransformerTest):
    def test_resumed_equals_uninterrupted(self):
        self.check_resuming(("powersgd:rank=2", "adamw"), ("diloco:every=9", "muon"))

    @parts.extra
    def test_others_resumed_equal_uninterrupted(self):
        self.check_resuming(("allreduce", "adamw"), ("dgc-adam", "adamw"), ("dpsgd", "adamw"), ("fp16", "muon"))

    def check_resuming(self, *runs):
        for sync, optimizer in runs:
            with self.subTest(sync=sync):
                out = self.folder / sync[:3]
                options = ("--sync", sync, "--optimizer", optimizer, "--workers", 2, "--batch", 2, "--dropout", 0.2, "--warmup", 20)
                whole = self.train(*options, "--steps", 130, "--checkpoint-every", 65, "--out", out)
                shutil.rmtree(out / "checkpoints/step-00000130")
                resumed = self.train(*options, "--steps", 130, "--checkpoint-every", 65, "--out", out, "--resume")
                self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])
                self.assertEqual(resumed["metric"], whole["metric"])

    def test_other_heads_are_refused(self):
        out = self.folder / "run"
        self.train("--steps", 2, "--out", out)
        for options in (("--heads", 2), ("--kv-heads", 4), ("--inner", 32), ("--bptt", 12), ("--head-width", 6),
                        ("--family", "qwen2"), ("--rope-scaling", "linear:2")):
            self.refuse_training(2, [out], *options, "--steps", 4, "--out", out, "--resume")


class WritingTest(TransformerTest):
    def test_a_checkpoint_says_how_many_heads_it_has(self):
        out = self.folder / "run"
        self.train("--steps", 2, "--out", out)
        self.assertEqual(self.metadata(out)["transformer"], f"heads=4,kv_heads=2,context={STEPS}")
        newest = sorted((out / "checkpoints").iterdir())[-1] / "model.safetensors"
        for text in ("heads=4,kv_heads=2,context=10,rope=", "heads=4,kv_heads=2,context=10,rope=llama3:8,1,4,8x",
                     "heads=4,kv_heads=2,context=10,rope=linear:0.5", "heads=4,kv_heads=2,context=10,theta=5",
                     "heads=0,kv_heads=2,context=10", "heads=4,kv_heads=3,context=10", "heads=4,kv_heads=2", "heads=3,"
                     "kv_heads=1,context=10", "heads=4,kv_heads=2,context=99999999999", "heads=4,kv_heads=2,context=10,"):
            shutil.copy(newest, self.folder / "spoilt")
            rewrite_texts(self.folder / "spoilt", lambda texts: texts.update(transformer=text))
            self.refuse(2, ["spoilt"], "generate", self.folder / "spoilt")

    def test_greedy_text_heeds_what_stands_before_the_last_token(self):
        """After x comes x or y, which only the token before it tells."""
        text, out = self.folder / "text.txt", self.folder / "run"
        text.write_text("x x y\n" * 400)
        self.train("--data", text, "--epochs", 6, "--out", out)
        done = self.run_program("generate", out, "--temperature", 0, "--tokens", 40)
        self.assertEqual(done.stdout, "x x y\n" * 10)

    def test_what_was_written_is_the_beginning_of_more(self):
        out = self.folder / "run"
        self.train("--steps", 30, "--out", out)
        texts = [self.run_program("generate", out, "--tokens", count, "--seed", 3).stdout for count in (50, 20)]
        self.assertTrue(texts[0].startswith(texts[1].rstrip("\n")))


class FolderTest(TransformerTest):
    """What transformers makes of it is asked in python/tests/test_llama.py, where there is one."""

    def test_a_folder_has_the_weights_and_what_describes_them(self):
        run, folder = self.folder / "run", self.folder / "new" / "llama"
        self.train("--steps", 2, "--tied", "--out", run)
        done = self.run_program("export", run, folder, "--transformers")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
        self.assertEqual(sorted(path.name for path in folder.iterdir()), names)
        config = json.loads((folder / "config.json").read_text())
        expected = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 64,
                    "max_position_embeddings": STEPS, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": True}
        self.assertEqual({key: config[key] for key in expected}, expected)
        vocabulary = self.metadata(run)["vocabulary.txt"].splitlines()[1:]
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        self.assertEqual(tokenizer["model"]["vocab"], {token: number for number, token in enumerate(vocabulary)})
        self.assertEqual(config["vocab_size"], len(vocabulary))
        self.assertEqual(vocabulary[config["bos_token_id"]], "<eos>")
        header, _ = split_file(folder / "model.safetensors")
        self.assertEqual(header["model.layers.1.self_attn.k_proj.weight"]["shape"], [8, 16])
        self.assertNotIn("lm_head.weight", header)

    def test_what_is_refused(self):
        run, lstm, image, new = (self.folder / name for name in ("run", "lstm", "image", "new"))
        self.train("--steps", 2, "--out", run)
        for task, out, options in (("lm", lstm, ("--data", self.texts, "--hidden", 4)), ("image", image, ("--data", self.data))):
            self.complete("train", task, *options, "--steps", 1, "--quiet", "--out", out)
        self.refuse(2, ["LSTM", "--transformers"], "export", lstm, new, "--transformers")
        self.refuse(2, ["train image", "--transformers"], "export", image, new, "--transformers")
        self.refuse(2, ["--loader"], "export", run, new, "--transformers", "--loader", self.folder / "x.py")
        self.refuse(2, [run, "already"], "export", run, run, "--transformers")
        self.assertFalse(new.exists())


@unittest.skipUnless(TORCH, "needs PyTorch")
class TorchTest(TransformerTest):
    """AdamW's steps, and all that leads to them, against those of a network in plain PyTorch."""
    COUNT, LOOKS = 20, [1, 10, 20]  # steps, and of which a run notes the loss

    def batches(self, vocabulary):
        text, = self.texts.glob("*train*")
        words = text.read_text().replace("\n", " <eos> ").split()
        numbers = [vocabulary.index(word) for word in words]
        length = (len(numbers) - 1) // STRIPS
        def rows(at):
            return [[numbers[strip * length + at + t] for strip in range(STRIPS)] for t in range(STEPS)]
        return [(rows(step * STEPS), rows(step * STEPS + 1)) for step in range(self.COUNT)]

    FORMS = ((), ("--tied",), ("--optimizer", "muon", "--momentum", 0.9), ("--family", "qwen2", "--rope-scaling", "linear:4"),
             ("--family", "qwen3", "--head-width", 6, "--rope-scaling", "llama3:8,1,4,8"))
    TOLD = {"lr": 0.003, "betas": (0.9, 0.95), "weight_decay": 0.1, "clip": 0.5}

    def options(self, form):
        return (*form, "--lr", self.TOLD["lr"], "--clip", self.TOLD["clip"], "--schedule", "constant", "--warmup", 0)

    def losses_there(self):
        """Of each form."""
        loader, words = self.folder / "load_network.py", []
        for number, form in enumerate(self.FORMS):
            run, file, told = (self.folder / f"{kind}-{number}" for kind in ("first", "network.safetensors", "told.json"))
            self.train(*self.options(form), "--steps", 1, "--lr", 0, "--out", run)  # its weights are those that all begin with
            self.succeed("export", run, file, "--loader", loader)
            vocabulary = self.metadata(run)["vocabulary.txt"].splitlines()[1:]
            told.write_text(json.dumps({**self.TOLD, "optimizer": "muon" if "muon" in form else "adamw",
                                        "batches": self.batches(vocabulary)}))
            words += [file, told]
        done = self.finish(self.start(TORCH, "-B", HERE / "torch_training.py", loader, *words))
        self.assertEqual(done.returncode, 0, done.stderr)
        return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]

    def test_pytorch_loses_what_thinwire_loses(self):
        for number, (form, there) in enumerate(zip(self.FORMS, self.losses_there(), strict=True)):
            with self.subTest(form=form):
                run = self.folder / f"run-{number}"
                self.train(*self.options(form), "--steps", self.COUNT, "--out", run)
                lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
                here = {line["step"]: line["loss"] for line in lines if line["kind"] == "step"}
                self.assertEqual(list(here), self.LOOKS)
                self.assertLess(there[-1], there[0] - 0.05)
                for step, loss in here.items():
                    self.assertAlmostEqual(loss, there[step - 1], delta=1e-5)


if __name__ == "__main__":
    run_tests()
