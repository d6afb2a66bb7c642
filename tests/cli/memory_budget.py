"""--memory-budget: every task at half, a quarter and a tenth of the model and its state has the bits of a run in memory;
clipping, Adam, NaN, resuming in both directions, and what is refused."""
import json
import pathlib
import random
import unittest

import asr
import w2v_bert
from support import CommandLineTest, run_tests, unless_kept, write_cifar

SHARES = (2, 4, 10)
SAME = ("weights_crc32c", "loss", "train_loss", "steps_skipped", "metric")


class BudgetTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(3)
        cls.text = cls.shared / "text.txt"
        cls.text.write_text("".join(generator.choice("abcdefg \n") for _ in range(6000)))

    def train_words(self, *options):
        return ["train", self.task, "--steps", 5, *options, *unless_kept(options)]

    def train_task(self, task, *options):
        self.task = task
        return self.train(*options)

    def transformer(self, *options):
        return self.train_task("lm", "--data", self.text, "--unit", "char", "--model", "transformer", "--layers", 20,
                          "--hidden", 64, "--heads", 2, "--batch", 2, "--bptt", 8, "--checkpoint-every", 2, *options)

    def assert_same(self, task, states):
        """At each share, of weights, gradients and so many arrays of state."""
        resident = task()
        self.assertNotIn("memory", resident)
        total = 4 * resident["parameters"] * (2 + states)
        for share in SHARES:
            paged = task("--memory-budget", f"{total // share / 1000}kB")
            memory = paged["memory"]
            self.assertEqual({key: paged[key] for key in SAME}, {key: resident[key] for key in SAME}, share)
            self.assertEqual(memory["total"], total)
            self.assertLessEqual(memory["most_resident"], total / share)
            self.assertGreaterEqual(memory["groups"], share // 2)


class TasksTest(BudgetTest):
    def test_transformer(self):
        self.assert_same(lambda *options: self.transformer("--optimizer", "sgd", "--clip", 0.5, "--lr", 0.1, *options), 1)

    def test_tied_transformer_with_adam(self):
        self.assert_same(lambda *options: self.transformer("--tied", "--optimizer", "adamw", "--weight-decay", 0.1,
                                                           *options), 2)

    def test_lstm(self):
        self.assert_same(lambda *options: self.train_task("lm", "--data", self.text, "--unit", "char", "--layers", 24,
                                                     "--hidden", 64, "--batch", 2, "--bptt", 8, *options), 1)

    def test_images(self):
        data = write_cifar(self.folder / "cifar")
        self.assert_same(lambda *options: self.train_task("image", "--data", data, "--model", "resnet56", "--batch", 4,
                                                     "--clip", 1, *options), 1)

    def test_speech(self):
        speech = asr.write_speech(self.folder / "speech")
        shape = ("--data", speech, "--test", speech, "--features", "rate=8000,bins=20", "--batch", 2)
        conformer = ("--encoder", "conformer", "--blocks", 24, "--width", 32, "--heads", 2, "--kernel", 3, "--channels", 4,
                     "--freeze-steps", 2)
        lstm = ("--layers", 16, "--hidden", 48, "--channels", 4, "--bottleneck", 16)
        for encoder, states in ((conformer, 2), (lstm, 1)):
            with self.subTest(encoder[1]):
                self.assert_same(lambda *options: self.train_task("asr", *shape, *encoder, *options), states)

    def test_pretraining(self):
        data = self.folder / "corpus"
        w2v_bert.write_speakers(data / "train")
        w2v_bert.write_speakers(data / "test", 2, 2)
        self.assert_same(lambda *options: self.train_task("w2v-bert", "--data", data, *w2v_bert.SMALL, "--width", 32,
                                                     "--contrastive-blocks", 12, "--masked-blocks", 12,
                                                     "--batch", 2, *options), 2)


if __name__ == "__main__":
    run_tests()
