"""Language models end to end: a source of known entropy, workers, resuming, wrong texts, generating."""
import json
import math
import os
import random
import resource
import shutil
import subprocess

from checkpoint_file import join_file, split_file
from support import PROGRAM, CommandLineTest, run_tests, seconds_left, unless_kept

import parts

WORDS, CHOICES = 12, 3


def followers(word):
    """After each word one of three follows, all as likely: the source's perplexity is exactly 3."""
    return [(3 * word + choice) % WORDS for choice in range(CHOICES)]


def write_source(path, count, generator):
    text, word = [], 0
    for _ in range(count):
        word = generator.choice(followers(word))
        text.append(f"w{word}")
    path.write_text(" ".join(text) + "\n")


def write_texts(folder):
    """PTB's layout. The training text is longest."""
    folder.mkdir(parents=True)
    generator = random.Random(3)
    for split, count in (("train", 4000), ("valid", 600), ("test", 1500)):
        write_source(folder / f"source.{split}.txt", count, generator)
    return folder


class LanguageTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.texts = write_texts(cls.shared / "texts")

    def train_words(self, *options):
        """A small network that learns the source in a few hundred steps."""
        return ["train", "lm", "--data", self.texts, "--layers", 1, "--hidden", 16, "--init", 0.5, "--batch", 4,
                "--bptt", 10, "--lr", 2, "--schedule", "constant", *options, *unless_kept(options)]

    def metadata(self, out):
        return split_file(sorted((out / "checkpoints").iterdir())[-1] / "model.safetensors")[0]["__metadata__"]


class TrainingTest(LanguageTest):
    def test_the_entropy_of_a_source_is_approached_and_not_beaten(self):
        out = self.folder / "run"
        summary = self.train("--epochs", 8, "--schedule", "decay:0.5,4", "--out", out)
        self.assertEqual(summary["metric"]["name"], "perplexity")
        self.assertLess(summary["metric"]["value"], CHOICES * 1.05)
        self.assertGreater(summary["metric"]["value"], CHOICES * 0.995)
        self.assertAlmostEqual(summary["metric"]["value"], math.exp(summary["loss"]))
        self.assertAlmostEqual(summary["metrics"]["bits_per_token"], summary["loss"] / math.log(2))
        done = self.run_program("generate", out, "--tokens", 300, "--top-k", CHOICES, "--prompt", "w1")
        words = [int(word[1:]) for word in done.stdout.split()]
        self.assertEqual(words[0], 1)
        self.assertGreater(len(words), 250)
        for word, after in zip(words, words[1:]):
            self.assertIn(after, followers(word))

    def test_a_run_goes_on_without_the_one_whose_tokens_it_has(self):
        """Not even its own checkpoint of then is there for ever."""
        base, out = self.folder / "base", self.folder / "run"
        self.train("--steps", 2, "--out", base)
        self.train("--init-from", base, "--steps", 2, "--out", out)
        shutil.rmtree(base)
        for steps in (4, 6, 8):
            self.train("--resume", "--steps", steps, "--checkpoint-every", 2, "--out", out)

    def test_the_best_is_of_one_validation_text(self):
        """Another one that is harder makes later weights no worse. With the first one back both are another's again."""
        texts, out = self.folder / "texts", self.folder / "run"
        shutil.copytree(self.texts, texts)
        hard = texts / "source.valid.txt"
        easy = hard.read_text()
        words = ("--data", texts, "--out", out)
        self.train("--epochs", 1, *words)
        hard.write_text("w1 " * 600 + "\n")
        done = self.complete(*self.train_words("--quiet", "--resume", "--epochs", 2, *words))
        self.assertRegex(done.stderr, "^thinwire: .*model.safetensors was written with other validation data, by which step "
                         "100 was the best; the best is chosen anew\n$")
        summary = json.loads((out / "summary.json").read_text())
        self.assertEqual(summary["chosen_step"], 200)
        self.train("--resume", "--epochs", 2, *words)
        hard.write_text(easy)
        self.assertIn("by which step 200 was the best", self.run_program(
            *self.train_words("--quiet", "--resume", "--epochs", 3, *words)).stderr)

    def test_epochs_end_with_validation_and_the_run_with_the_test(self):
        out = self.folder / "run"
        summary = self.train("--epochs", 2, "--out", out)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        epochs = [line for line in lines if line["kind"] == "epoch"]
        self.assertEqual(["validation_loss" in line for line in epochs], [True, True, False])
        self.assertEqual(epochs[-1]["test_loss"], summary["loss"])
        self.assertEqual(lines[0]["steps_per_epoch"], 4000 // 4 // 10)

    @parts.extra
    def test_a_text_larger_than_memory_is_read_from_its_file(self):
        """Its bytes alone are more than the data that the process may hold."""
        limit = 96 << 20
        generator, text = random.Random(5), self.folder / "long" / "train.txt"
        text.parent.mkdir()
        block = "".join(" ".join(f"word{generator.randrange(300)}" for _ in range(12)) + "\n" for _ in range(4000))
        with text.open("w") as file:
            while file.tell() <= 1.1 * limit:
                file.write(block)
        for name in ("valid.txt", "test.txt"):
            (text.parent / name).write_text(block[:1000])
        words = ["--data", text.parent, "--layers", 1, "--hidden", 8, "--batch", 4, "--bptt", 20, "--steps", 3, "--memory"]

        def run(memory, bytes_allowed, env=()):
            bound = (bytes_allowed, bytes_allowed)
            return subprocess.run([str(PROGRAM), "train", "lm", *map(str, words), str(memory), "--quiet", "--out", "none",
                                   "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=seconds_left(), check=False, env={**os.environ, **dict(env)},
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, bound))

        capped = run(16, limit)
        if capped.returncode not in (0, 2):
            self.skipTest("the program does not start under a limit: a sanitizer needs all addresses")
        self.assertEqual((capped.returncode, capped.stderr), (0, ""))
        held = run(4096, limit)
        self.assertEqual((held.returncode, held.stdout), (2, ""))
        self.assertIn("memory", held.stderr)
        of_many = run(4096, limit, {"OMPI_COMM_WORLD_LOCAL_SIZE": "16"})  # as many ranks divide it
        self.assertEqual((of_many.returncode, of_many.stderr), (0, ""))
        text.unlink()

    def test_workers_with_small_batches_are_one_with_a_large_batch(self):
        losses = [self.train("--workers", workers, "--batch", 4 // workers, "--steps", 40)["loss"]
                  for workers in (1, 2, 4)]
        for loss in losses[1:]:
            self.assertAlmostEqual(loss / losses[0], 1, places=5)

    def test_a_text_is_evaluated_alike_by_any_number_of_workers(self):
        losses = [self.train("--workers", workers, "--batch", batch, "--steps", 1, "--lr", 0)["loss"]
                  for workers, batch in ((1, 4), (1, 32), (3, 2), (8, 1))]
        for loss in losses[1:]:
            self.assertAlmostEqual(loss / losses[0], 1, places=6)

    def test_every_kind_of_scheme_trains(self):
        self.check_schemes("dgc:density=0.02", "adpsgd-random")

    @parts.extra
    def test_other_schemes_train(self):
        self.check_schemes("sdagc", "scalecom", "powersgd", "dpsgd")

    def check_schemes(self, *schemes):
        for sync in schemes:
            with self.subTest(sync=sync):
                summary = self.train("--workers", 2, "--batch", 2, "--epochs", 2, "--sync", sync)
                self.assertLess(summary["metric"]["value"], WORDS - 2)

    def test_a_scheme_with_momentum_of_its_own_has_none_here(self):
        options = ("--workers", 2, "--batch", 2, "--steps", 30)
        weights = [self.train(*options, "--sync", sync)["weights_crc32c"]
                   for sync in ("dgc", "dgc:momentum=0", "dgc:momentum=0.9")]
        self.assertEqual(weights[0], weights[1])
        self.assertNotEqual(weights[0], weights[2])

    def test_its_configuration_makes_the_same_run_again(self):
        for sync in ("allreduce", "dgc", "dgc:momentum=0.5"):
            out, again = self.folder / sync, self.folder / f"{sync} again.json"
            first = self.train("--workers", 2, "--batch", 2, "--steps", 30, "--sync", sync, "--out", out)
            self.succeed("train", "lm", "--config", out / "config.yaml", "--out", self.folder / f"{sync} again",
                         "--json", again, "--quiet")
            self.assertEqual(json.loads(again.read_text())["weights_crc32c"], first["weights_crc32c"])

    def test_characters_of_a_single_file(self):
        text = self.folder / "input.txt"
        text.write_text("\u00e4 b\\\n" * 400)
        out = self.folder / "run"
        summary = self.train("--data", text, "--unit", "char", "--epochs", 5, "--out", out, "--model", "medium")
        self.assertLess(summary["metric"]["value"], 1.5)
        self.assertEqual(self.metadata(out)["vocabulary.txt"], "characters\n\\n\n \n\\\\\nb\n\u00e4\n")
        done = self.run_program("generate", out, "--temperature", 0, "--tokens", 10)
        self.assertEqual(done.stdout, "\u00e4 b\\\n" * 2)

    def configuration(self, name, *options):
        """What a run of one step recorded of its options."""
        out = self.folder / name
        self.complete("train", "lm", "--data", self.texts, "--hidden", 16, *options, "--steps", 1, "--quiet", "--out", out)
        return json.loads((out / "metrics.jsonl").read_text().splitlines()[0])["configuration"]

    def test_defaults_follow_the_model(self):
        for model, lr, epochs in (("small", 20, 13), ("medium", 35, 39), ("dgc", 20, 40)):
            config = self.configuration(model, "--model", model)
            self.assertEqual((config["lr"], config["epochs"], config["momentum"]), (lr, epochs, 0))
            self.assertTrue(config["schedule"].startswith("plateau" if model == "dgc" else "decay"))

    def test_defaults_follow_the_optimiser(self):
        for name, given, rate in (("own", (), 0.001), ("given", ("--lr", 0.002), 0.002)):
            config = self.configuration(name, "--optimizer", "adam", *given)
            self.assertEqual((config["lr"], config["momentum"]), (rate, 0.9))


class ResumingTest(LanguageTest):
    DGC = "dgc:density=0.05,momentum=0,warmup_steps=40"

    def test_resumed_equals_uninterrupted_in_the_middle_of_an_epoch(self):
        self.check_resuming((self.DGC, 2))

    @parts.extra
    def test_others_resumed_equal_uninterrupted(self):
        self.check_resuming(("allreduce", 1), ("allreduce", 2), (self.DGC, 1), ("dpsgd", 2))

    def check_resuming(self, *runs):
        for sync, workers in runs:
            with self.subTest(sync=sync, workers=workers):
                out = self.folder / f"{sync[:3]}-{workers}"
                options = ("--sync", sync, "--workers", workers, "--dropout", 0.3)
                whole = self.train(*options, "--steps", 130, "--checkpoint-every", 65, "--out", f"{out}-whole")
                self.train(*options, "--steps", 65, "--out", out)
                resumed = self.train(*options, "--steps", 130, "--out", out, "--resume")
                self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])
                self.assertEqual(resumed["metric"], whole["metric"])
                self.assertEqual(resumed["train_loss"], whole["train_loss"])

    def test_a_plateau_is_remembered(self):
        options = ("--schedule", "plateau:0.25", "--lr", 8)
        whole = self.train(*options, "--epochs", 6)
        self.train(*options, "--epochs", 4, "--out", self.folder / "run")
        resumed = self.train(*options, "--epochs", 6, "--out", self.folder / "run", "--resume")
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])

    def test_another_text_or_vocabulary_is_refused(self):
        out = self.folder / "run"
        self.train("--steps", 2, "--out", out)
        other = self.folder / "other"
        other.mkdir()
        for path in self.texts.iterdir():
            (other / path.name).write_text(path.read_text().replace("w1 w3", "w1 w4", 1))
        for options in (("--data", other), ("--vocabulary", 8), ("--unit", "char"), ("--bptt", 12)):
            self.refuse_training(2, [out], *options, "--steps", 4, "--out", out, "--resume")


class WrongTextTest(LanguageTest):
    def refuse_text(self, culprits, **texts):
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        for split, text in {"train": "a b\n" * 40, "valid": "a b\n", "test": "b a\n", **texts}.items():
            if text is not None:
                (folder / f"{split}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
        self.refuse_training(2, culprits, "--data", folder)

    def test_wrong_files(self):
        self.refuse_text(["no test text"], test=None)
        self.refuse_text(["valid.txt", "empty"], valid="")
        self.refuse_text(["train.txt", "line 2", "offset 5", "UTF-8"], train=b"abc\nd\xff\n")
        self.refuse_text(["test.txt", "line 2", "zebra", "--vocabulary"], test="a b\na zebra\n")
        self.refuse_text(["training text has 5 tokens", "4 strips of 10"], train="a b a b\n")
        self.refuse_text(["validation text has 1 tokens"], valid="a")

    def test_unknown_words_are_counted_where_the_vocabulary_has_a_place_for_them(self):
        (self.folder / "train.txt").write_text("a b c <unk>\n" * 40)
        (self.folder / "valid.txt").write_text("a zebra b\n")
        (self.folder / "test.txt").write_text("a b\n")
        done = self.complete(*self.train_words("--data", self.folder, "--steps", 1))
        self.assertIn("1 unknown", done.stdout)

    def test_wrong_options(self):
        self.refuse(2, ["--data"], "train", "lm", "--quiet")
        self.refuse_training(2, ["nowhere"], "--data", self.folder / "nowhere")
        self.refuse_training(2, ["huge", "small, medium, large, dgc"], "--model", "huge")
        self.refuse_training(2, ["--vocabulary 1"], "--vocabulary", 1)
        self.refuse_training(2, ["--unit", "syllable"], "--unit", "syllable")
        self.refuse_training(2, ["plateau", "adpsgd-random"], "--schedule", "plateau:0.5", "--sync", "adpsgd-random",
                             "--workers", 2)


class GeneratingTest(LanguageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.shared / "run"
        cls().train("--epochs", 2, "--out", cls.run_folder)

    def runTest(self):
        pass

    def generate(self, *options, path=None):
        return self.succeed("generate", path or self.run_folder, *options)

    def test_the_seed_decides(self):
        first = self.generate("--seed", 4)
        self.assertEqual(first, self.generate("--seed", 4))
        self.assertNotEqual(first, self.generate("--seed", 5))
        likeliest = self.generate("--temperature", 0, "--seed", 4)
        self.assertEqual(likeliest, self.generate("--top-k", 1, "--seed", 5))

    def test_the_prompt_stands_first_and_tokens_are_counted(self):
        text = self.generate("--prompt", " w3  w9", "--tokens", 25)
        self.assertTrue(text.startswith("w3 w9"))
        self.assertTrue(text.endswith("\n"))
        self.assertEqual(len(text.replace("\n", " \n ").split(" ")) - text.count("\n"), 27 + text.count("\n"))
        self.assertEqual(self.generate("--prompt", "w3 w9", "--tokens", 0), "w3 w9\n")
        whole = self.generate("--tokens", 30)
        self.assertTrue(whole.startswith(self.generate("--tokens", 20).rstrip()))

    def test_every_name_of_a_checkpoint(self):
        newest = sorted((self.run_folder / "checkpoints").iterdir())[-1]
        texts = {self.generate(path=path) for path in (self.run_folder, newest, newest / "model.safetensors")}
        self.assertEqual(len(texts), 1)

    def test_what_cannot_be_used(self):
        newest = sorted((self.run_folder / "checkpoints").iterdir())[-1] / "model.safetensors"
        damaged = bytearray(newest.read_bytes())
        damaged[-5] ^= 1
        (self.folder / "damaged").write_bytes(damaged)
        self.refuse(2, ["nowhere"], "generate", self.folder / "nowhere")
        self.refuse(2, ["damaged"], "generate", self.folder / "damaged")
        self.refuse(2, ["damaged"], "generate", self.folder / "damaged", "--prompt", "x")
        header, data = split_file(newest)
        header["__metadata__"]["vocabulary.txt"] = "words\na\na\n"
        for culprit in ("texts", "line 3 repeats"):
            join_file(self.folder / "spoilt", header, data)
            self.refuse(2, ["spoilt", culprit], "generate", self.folder / "spoilt")
            header["__metadata__"].pop("checksum of texts", None)  # as in the first checkpoints
        self.refuse(2, ["zebra", "vocabulary"], "generate", self.run_folder, "--prompt", "w1 zebra")
        self.refuse(2, ["--prompt", "UTF-8"], "generate", self.run_folder, "--prompt", "\udcff")
        self.refuse(2, ["CHECKPOINT"], "generate")
        self.refuse(2, ["--temperature"], "generate", self.run_folder, "--temperature", -1)
        image = self.folder / "image"
        self.complete("train", "image", "--data", self.data, "--steps", 1, "--quiet", "--out", image)
        self.refuse(2, [image, "train image", "thinwire predict"], "generate", image)

    def test_predict_goes_on_with_files(self):
        one, two = self.folder / "one", self.folder / "two"
        one.write_text("w3  w9")
        two.write_text("w1\n")
        words = ("--tokens", 12, "--seed", 3)
        text = self.generate("--prompt", "w3 w9", *words)
        self.assertEqual(self.generate(one, *words), text)
        done = self.run_program("predict", self.run_folder, one, self.folder / "nowhere", two, *words)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1))
        self.assertEqual(done.stdout, f"==> {one} <==\n{text}==> {two} <==\n{self.generate(two, *words)}")
        done = self.run_program("predict", self.run_folder, one, "--json", *words)
        self.assertEqual(json.loads(done.stdout), {"file": str(one), "text": text})
        self.refuse(2, ["--prompt", one], "predict", self.run_folder, one, "--prompt", "w1")


if __name__ == "__main__":
    run_tests()
