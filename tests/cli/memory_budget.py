"""--memory-budget: every task at a half, a quarter and a tenth of the model and its state has the bits of a run in memory,
and no more of them is in memory, by its own count and by the system's; clipping, Adam, NaN, resuming in both directions,
and what is refused."""
import os
import unittest
import zlib
from unittest import mock

import asr
import w2v_bert
from checkpoint_file import split_file
from support import CommandLineTest, run_tests, take_library, unless_kept, write_cifar, write_letters

import parts

COUNTER = take_library("count_resident")
SAME = ("weights_crc32c", "loss", "train_loss", "steps_skipped", "metric")


class BudgetTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.shared / "text.txt"
        write_letters(cls.text, 6000)

    def train_words(self, *options):
        return ["train", self.task, "--steps", 5, *options, *unless_kept(options)]

    def train_task(self, task, *options):
        self.task = task
        return self.train(*options)

    def transformer(self, *options):
        return self.train_task("lm", "--data", self.text, "--unit", "char", "--model", "transformer", "--layers", 20,
                          "--hidden", 64, "--heads", 2, "--batch", 2, "--bptt", 8, "--checkpoint-every", 2, *options)

    def counted(self, task, *options):
        """A run's summary, and the most bytes of what is paged that the system had in memory; None: nobody counted."""
        if not COUNTER:
            return task(*options), None
        told = self.folder / "resident"
        with mock.patch.dict(os.environ, LD_PRELOAD=COUNTER, RESIDENT_TO=str(told)):
            return task(*options), int(told.read_text())

    def assert_same(self, task, states):
        """At each share, of weights, gradients and so many arrays of state."""
        resident = task()
        self.assertNotIn("memory", resident)
        total = 4 * resident["parameters"] * (2 + states)
        for share in self.shares:
            paged, counted = self.counted(task, "--memory-budget", f"{total // share / 1000}kB")
            memory = paged["memory"]
            self.assertEqual({key: paged[key] for key in SAME}, {key: resident[key] for key in SAME}, share)
            self.assertEqual(memory["total"], total)
            self.assertLessEqual(memory["most_resident"], total / share)
            if counted is not None:
                self.assertLessEqual(counted, memory["most_resident"])
                self.assertGreater(counted, memory["most_resident"] / 2)
            self.assertGreaterEqual(memory["groups"], share // 2)


class TasksTest(BudgetTest):
    shares = (4,)

    def test_transformer(self):
        self.assert_same(lambda *options: self.transformer("--family", "qwen2", "--optimizer", "sgd", "--clip", 0.5, "--lr", 0.1, *options), 1)

    @parts.extra
    def test_tied_transformer_with_adam(self):
        self.assert_same(lambda *options: self.transformer("--family", "qwen3", "--head-width", 16, "--tied",
                                                           "--optimizer", "adamw", "--weight-decay", 0.1, *options), 2)

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


@parts.extra
class SharesTest(TasksTest):
    shares = (2, 10)


class RunTest(BudgetTest):
    SHAPE = ("--data", None, "--unit", "char", "--model", "transformer", "--layers", 12, "--hidden", 64, "--heads", 2,
             "--batch", 2, "--bptt", 8)

    def run_to(self, steps, *options):
        return self.train_task("lm", *(word or self.text for word in self.SHAPE), "--steps", steps, *options)

    BUDGET, FITS = ("--memory-budget", "2MB"), ("--memory-budget", "1GB")

    def test_resuming_in_both_directions(self):
        self.check_resuming((self.BUDGET, self.FITS), ((), self.BUDGET))

    @parts.extra
    def test_resuming_with_the_same_budget(self):
        """Without one it is what the run had."""
        self.check_resuming((self.BUDGET, ()))

    def check_resuming(self, *runs):
        whole = self.run_to(9)
        for first, then in runs:
            out = self.folder / f"{len(first)}-{'-'.join(then)}"
            self.run_to(6, "--out", out, "--checkpoint-every", 4, *first)
            rest = self.run_to(9, "--resume", out / "checkpoints" / "step-00000004", "--out", self.folder / f"{out}-on",
                               *then)
            self.assertEqual({key: rest[key] for key in SAME[:2]}, {key: whole[key] for key in SAME[:2]})
            self.assertEqual("memory" in rest, then != self.FITS)

    def test_a_checkpoint_is_one_of_a_run_in_memory(self):
        """What it holds is the same but for the run's name: the best one, too, with which the run is summed up."""
        kept = {}
        for name, options in (("paged", ("--memory-budget", "2MB")), ("resident", ())):
            kept[name] = self.run_to(12, "--out", self.folder / name, "--checkpoint-every", 4, "--lr", 0.05, *options)
            _, tensors = split_file(self.folder / name / "checkpoints" / "step-00000012" / "model.safetensors")
            kept[name]["tensors"] = zlib.crc32(tensors)
        self.assertEqual({key: kept["paged"][key] for key in (*SAME, "tensors", "chosen_step")},
                         {key: kept["resident"][key] for key in (*SAME, "tensors", "chosen_step")})

    def test_a_run_that_diverges_skips_and_ends_alike(self):
        """Ten steps with a NaN in a row, after some with which weights grew beyond floats."""
        self.task = "lm"
        words = self.train_words("--quiet", *(word or self.text for word in self.SHAPE), "--steps", 40, "--lr", 1e6,
                                 "--warmup", 0, "--optimizer", "sgd", "--schedule", "constant", "--clip", 0)
        paged, resident = self.run_program(*words, "--memory-budget", "2MB"), self.run_program(*words)
        self.assertIn("10 steps in a row", resident.stderr)
        self.assertEqual((paged.returncode, paged.stderr), (resident.returncode, resident.stderr))

    def test_nothing_but_memory_stays_behind(self):
        out = self.folder / "run"
        self.run_to(3, "--out", out, "--memory-budget", "2MB")
        self.assertEqual([path for path in self.folder.rglob("*") if "memory" in path.name], [])

    def test_all_of_it_fits(self):
        self.assertNotIn("memory", self.run_to(2, "--memory-budget", "1GB"))

    def test_a_run_whose_sync_has_changed_stays_in_memory(self):
        """As its checkpoint says, where nothing else does."""
        out, changes = self.folder / "changed", self.folder / "changed.yaml"
        changes.write_text('planned-changes: "2 local:every=2"\n')
        self.run_to(4, "--workers", 2, "--sync", "local:every=3", "--out", out, "--config", changes)
        (out / "config.yaml").unlink()
        words = (*(word or self.text for word in self.SHAPE), "--workers", 2, "--sync", "local:every=3", "--resume", out)
        self.refuse_training(2, ("not go with --memory-budget",), *words, "--memory-budget", "2MB")
        self.run_to(6, *words[len(self.SHAPE):])

    def test_what_does_not_go_with_it(self):
        self.task = "lm"
        shape = tuple(word or self.text for word in self.SHAPE)
        changes = self.folder / "changes.yaml"
        changes.write_text('planned-changes: "1 local:every=2"\n')
        for culprits, options in (
                (("after step 1", "--sync local:every=2", "not go with --memory-budget"),
                 ("--memory-budget", "2MB", "--config", changes)),
                (("--memory-budget 20", "such as 200MB"), ("--memory-budget", "20")),
                (("--memory-budget -1MB", "such as 200MB"), ("--memory-budget=-1MB",)),
                (("--memory-budget 10kB is too small", "or more"), ("--memory-budget", "10kB")),
                (("allreduce and one worker", "not with fp16"), ("--memory-budget", "2MB", "--sync", "fp16")),
                (("muon", "--optimizer adamw"), ("--memory-budget", "2MB", "--optimizer", "muon")),
                (("--dump-gradients",), ("--memory-budget", "2MB", "--dump-gradients", self.folder / "gradients"))):
            with self.subTest(options):
                self.refuse_training(2, culprits, *shape, *options)


if __name__ == "__main__":
    run_tests()
