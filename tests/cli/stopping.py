"""SIGTERM in an evaluation: it ends at its next batch, is not told, and the run that goes on has the bits of one that nobody
asked to stop. Threads, stages of a pipeline, and workers that come and go."""
import json
import os
import signal
import unittest

from support import (CommandLineTest, Talker, await_stop, free_place, killing, run_tests, saved_steps, take_library, wait_until,
                     write_texts)

KILLER = take_library("kill_in_file")
SAME = ("weights_crc32c", "loss", "train_loss", "metric", "steps")
EPOCH = 20  # steps of one worker
STAGES = ("--model", "transformer", "--layers", 4, "--heads", 2, "--workers", 2, "--pipeline", "stages=2,cut=3+4")
PLAIN = ("--schedule", "constant", "--warmup", 0)
STATELESS = ("--model", "transformer", "--layers", 1, "--heads", 2)


@unittest.skipUnless(KILLER, "needs what sends a signal from within")
class StoppingTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        """So many letters are read from their file. The training text's are few, so what is read behind them is of an evaluation."""
        super().setUpClass()
        cls.texts = cls.shared / "texts"
        write_texts(cls.texts, train=1000, valid=220000, test=480)

    def setUp(self):
        super().setUp()
        self.out = self.folder / "run"

    def train_words(self, *options):
        return ["train", "lm", "--data", self.texts, "--unit", "char", "--memory", 1, "--hidden", 16, "--batch", 3, "--bptt", 16,
                *options]

    @staticmethod
    def asked(out):
        """The environment of one that is asked to stop as it reads the first batch of an evaluation."""
        return killing(KILLER, "pread 1 2000", out / "metrics.jsonl", os.devnull, int(signal.SIGTERM))

    def looks(self, out):
        journal = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [(line["step"], line["validation_loss"]) for line in journal if "validation_loss" in line]

    def figures(self, summary):
        return {key: summary[key] for key in SAME}

    def assert_stopped(self, step):
        self.assertEqual((self.looks(self.out), saved_steps(self.out)), ([], [step]))

    def assert_goes_on(self, step, *options):
        other = self.out.with_suffix(".whole")
        whole, again = (self.train(*options, "--out", out, *resume) for out, resume in ((other, ()), (self.out, ("--resume",))))
        self.assertEqual(self.figures(again), self.figures(whole))
        looks = self.looks(other)
        self.assertEqual(looks, self.looks(self.out))
        self.assertEqual([at for at, _ in looks], [step, 2 * step])

    def assert_stops(self, step, *options):
        """In the evaluation after the first epoch."""
        options = (*options, "--epochs", 2)
        done = self.run_program(*self.train_words(*options, "--out", self.out, "--quiet"), env=self.asked(self.out))
        self.assertEqual((done.returncode, done.stderr), (130, ""))
        self.assert_stopped(step)
        self.assert_goes_on(step, *options)

    def test_workers(self):
        self.assert_stops(EPOCH // 2, "--workers", 2, "--sync", "dgc")

    def test_stages(self):
        self.assert_stops(EPOCH, *STAGES)

    def test_one_stage(self):
        self.assert_stops(EPOCH, *STAGES, "--workers", 1, "--pipeline", "stages=1")

    def test_one_stage_of_several(self):
        """Each is a process, and the last alone is asked."""
        meeting = free_place()
        jobs = [self.start_program(*self.train_words(*STAGES, "--epochs", 2, "--out", self.out, "--join", meeting, "--rank", rank,
                                                     "--quiet"), env=self.asked(self.out) if rank else {}) for rank in range(2)]
        self.assertEqual([self.finish(job).returncode for job in jobs], [130, 130])
        self.assert_stopped(EPOCH)
        self.assert_goes_on(EPOCH, *STAGES, "--epochs", 2)

    def train_with_standby(self, *options, env):
        meeting = free_place()
        words = self.train_words(*STAGES, "--workers", 3, "--pipeline", "stages=2,cut=3+4,standby=1", "--epochs", 1, "--join", meeting,
                                 "--quiet", *options)
        jobs = [self.start_program(*words, env=env) for _ in range(3)]
        return [self.finish(job).returncode for job in jobs]

    def test_what_was_made_up_for_is_kept_in_another_folder(self):
        """The run begins with a checkpoint in it, after which the evaluation is still to be made."""
        other = self.folder / "other"
        self.assertEqual(self.train_with_standby("--out", self.out, env=self.asked(self.out)), [130] * 3)
        self.assertEqual(self.looks(self.out), [])
        self.assertEqual(self.train_with_standby("--resume", self.out, "--out", other, env={}), [0] * 3)
        model, = (path for path in (other / "checkpoints").glob("*/model*"))
        self.assertNotIn(b"unseen", model.read_bytes())

    # ---- workers that come and go ----

    def test_one_that_is_a_group(self):
        for sync in ("diloco:every=4", "adpsgd-random"):
            with self.subTest(sync):
                self.out = self.folder / sync
                self.assert_stops(EPOCH, "--join", free_place(), "--sync", sync, *PLAIN)

    def come(self, number, meeting, every, *kill):
        words = self.train_words(*STATELESS, *PLAIN, "--steps", 10 ** 7, "--join", meeting, "--sync", f"diloco:every={every}",
                                 "--timeout", 600, "--out", self.folder / f"run-{number}")
        return Talker(self, number, words, env=killing(KILLER, *kill))

    def open_group(self, every, *kills):
        """Of two, who get signals, each as killing() has it."""
        meeting = free_place()
        first = self.come(1, meeting, every, *kills[0])
        first.await_word("opens a group")
        return first, self.come(2, meeting, every, *kills[1])

    def await_training(self, first):
        """The first of the group stands still, and no evaluation is under way, which none begins without it: the newest line of its
        journal is that of the last one."""
        def is_training():
            return json.loads((self.folder / "run-1/metrics.jsonl").read_text().splitlines()[-1])["kind"] == "epoch"
        while True:
            wait_until(is_training, "the end of an evaluation", first.job)
            first.job.send_signal(signal.SIGSTOP)
            await_stop(first.job)
            if is_training():
                return
            first.job.send_signal(signal.SIGCONT)

    def replay(self, spans, every):
        """What threads see after so many steps of so many workers."""
        out = self.folder / "threads"
        for workers, steps in spans:
            resumes = ("--resume",) if out.exists() else ()
            self.complete(*self.train_words(*STATELESS, *PLAIN, "--evaluate-every", 10 ** 6, "--sync", f"diloco:every={every}",
                                            "--workers", workers, "--steps", steps, "--quiet", "--out", out, *resumes))
        return self.looks(out)[-1]

    def test_who_is_asked_before_an_evaluation_leaves_before_it(self):
        """In its first step with the other, and long before a round is due. The other stands still as soon as it looks at anything."""
        there, config = self.folder / "there", self.folder / "run-2/config.yaml"
        first, other = self.open_group(37, ("pread 1 2000", there, os.devnull, int(signal.SIGSTOP)),
                                       ("pread 1 0", config, there, int(signal.SIGTERM)))
        self.finish(other.job)
        self.assertEqual((other.job.returncode, len(saved_steps(self.folder / "run-2"))), (130, 1), other.path.read_text())
        await_stop(first.job)

    def test_a_group_comes_to_its_end_all_the_same(self):
        """In the evaluation of the test data, when the last checkpoint is there."""
        texts = self.folder / "texts"
        write_texts(texts, train=1000, valid=480, test=220000)
        options = ("--data", texts, "--sync", "diloco:every=4", "--epochs", 1)
        summary = self.train(*options, "--join", free_place(), "--out", self.out, env=self.asked(self.out))
        self.assertEqual(self.figures(summary), self.figures(self.train(*options, "--workers", 1)))

    def test_one_of_two_leaves_and_the_other_looks_at_all(self):
        for every in (5, 37):  # an epoch of two workers ends with a round, and in the midst of one
            with self.subTest(every):
                self.check_leaving(every)

    def check_leaving(self, every):
        self.folder = self.folder / str(every)
        self.folder.mkdir()
        there = self.folder / "there"
        first, other = self.open_group(every, *(("pread 1 2000", there, os.devnull, int(number))
                                                for number in (signal.SIGSTOP, signal.SIGTERM)))
        first.await_word("2 workers from step")
        self.await_training(first)
        there.touch()
        first.job.send_signal(signal.SIGCONT)
        wait_until(lambda: saved_steps(self.folder / "run-2"), "what the other has is kept while it waits for the first", other.job)
        await_stop(first.job)
        first.job.send_signal(signal.SIGCONT)
        step = int(other.await_word(r"left the group after step (\d+)"))
        self.finish(other.job)
        self.assertEqual((other.job.returncode, saved_steps(self.folder / "run-2")), (130, [step]))
        wait_until(lambda: self.looks(self.folder / "run-1")[-1][0] > step, "the next evaluation", first.job)
        first.job.send_signal(signal.SIGTERM)
        self.finish(first.job)
        self.assertEqual(first.job.returncode, 130)
        spans = [(int(size), int(at)) for size, at in first.said(r"(\d) workers? from step (\d+) on")]
        self.assertEqual((len(spans), spans[-1]), (3, (1, step)))
        looks = self.looks(self.folder / "run-1")
        self.assertEqual(len({at for at, _ in looks}), len(looks), looks)
        at, loss = self.replay([(size, until) for (size, _), (_, until) in zip(spans, spans[1:])], every)
        self.assertEqual(at, step)
        self.assertAlmostEqual(dict(looks)[step], loss, delta=1e-6)


if __name__ == "__main__":
    run_tests()
