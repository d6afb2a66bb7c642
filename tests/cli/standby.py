"""--pipeline stages=P,standby=S: whichever worker is lost, and whenever, the run goes on with the bits of one that lost
nobody, or ends with one sentence."""
import json
import pathlib
import re
import signal
import sys
import tempfile
import unittest

from support import CommandLineTest, free_place, run_tests, wait_until, write_letters

KILLER = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1].endswith(".so") else None
SAME = ("weights_crc32c", "loss", "train_loss", "metric", "steps", "steps_skipped")
CUT = "stages=3,cut=2+2+3"
STEPS = ("--steps", 24, "--checkpoint-every", 8)
LONG = ("--steps", 10 ** 7, "--checkpoint-every", 40)
SILENT = ("--timeout", 2)


class Worker:
    """One process, and what it has said so far."""
    def __init__(self, test, number, options, kill):
        self.test, self.path = test, test.folder / f"said-{number}"
        environment = {"LD_PRELOAD": KILLER, "KILL_AT": kill[0], "KILL_AFTER": str(kill[1])} if kill else {}
        with open(self.path, "w") as said:
            self.job = test.start_program(*test.train_words(*options), stdout=said, stderr=said, env=environment)

    def said(self, pattern):
        return re.findall(pattern, self.path.read_text())

    def await_word(self, pattern):
        wait_until(lambda: self.said(pattern), pattern, self.job)
        return self.said(pattern)[-1]

    def end(self):
        self.test.finish(self.job)
        return self.job.returncode

    def last_line(self):
        return self.path.read_text().splitlines()[-1]


class StandbyTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        """An epoch of 20 steps, and an evaluation of 41 batches."""
        super().setUpClass()
        cls.texts = cls.shared / "texts"
        cls.texts.mkdir()
        for part, count in (("train", 1000), ("valid", 2000), ("test", 480)):
            write_letters(cls.texts / f"text.{part}.txt", count)

    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.shared))
        self.out, self.meeting, self.workers = self.folder / "run", free_place(), []

    def train_words(self, *options):
        return ["train", "lm", "--data", self.texts, "--unit", "char", "--model", "transformer", "--layers", 4, "--hidden", 32,
                "--heads", 2, "--batch", 3, "--bptt", 16, "--dropout", "0.2", *options]

    def come(self, *options, standby=1, cut=CUT, out=None, kill=None, meeting=None):
        number = len(self.workers)
        self.workers.append(Worker(self, number, (
            "--join", meeting or self.meeting, "--workers", 3 + standby, "--pipeline", f"{cut},standby={standby}",
            "--out", out or self.out, "--json", self.folder / f"summary-{number}", *options), kill))
        return self.workers[-1]

    def line_up(self, *options, standby=1, kills={}, outs=None, **keywords):
        """Stages first: worker i has stage i, and those behind stand by."""
        for number in range(3 + standby):
            worker = self.come(*options, standby=standby, kill=kills.get(number), out=outs and outs(number), **keywords)
            if number < 3 + standby - 1:
                worker.await_word("in the group as rank" if number else "opens a group")
        return self.workers

    def checkpoint(self, step, suffix=""):
        return self.out / "checkpoints" / f"step-{step:08}{suffix}"

    def whole(self, *options):
        """What a run has that loses nobody."""
        done = self.run_program(*self.train_words("--quiet", "--json", "-", "--workers", 3, "--pipeline", CUT, "--out",
                                                  self.folder / "whole", *options))
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.figures(json.loads(done.stdout))

    @staticmethod
    def figures(summary):
        return {key: summary[key] for key in SAME}

    def assert_done(self, whole, killed, losses):
        """All but those that were killed come to the end, with the figures of the whole run, and have told of the losses."""
        codes = [worker.end() for worker in self.workers]
        said = [worker.path.read_text() for worker in self.workers]
        self.assertEqual(codes, [-signal.SIGKILL if number in killed else 0 for number in range(len(codes))], said)
        written, = [path for path in self.folder.glob("summary-*")]
        self.assertEqual(self.figures(json.loads(written.read_text())), whole, said)
        for number, worker in enumerate(self.workers):
            if number not in killed:
                self.assertEqual(len(worker.said("is lost")), losses, worker.path.read_text())


@unittest.skipUnless(KILLER, "needs what kills a program from within")
class KilledTest(StandbyTest):
    def setUp(self):
        super().setUp()
        self.expected = self.whole(*STEPS)

    def assert_goes_on(self, victim, call, *after):
        """Once that checkpoint is there, the victim is killed in its so manieth call."""
        with self.subTest(victim=victim, call=call, after=after):
            self.begin()
            self.line_up(*STEPS, kills={victim: (f"{call} 0", self.checkpoint(*after))})
            self.assert_done(self.expected, {victim}, 1)

    def test_while_the_pipeline_fills(self):
        for victim in range(3):
            self.assert_goes_on(victim, "sendmsg 1", 8)

    def test_in_the_midst_of_steps(self):
        for victim in range(3):
            self.assert_goes_on(victim, "sendmsg 10", 8)

    def test_while_all_look_at_the_validation_set(self):
        """Behind step 16 come four steps, and then 41 batches, of which the last stage sends nothing."""
        for victim in range(2):
            self.assert_goes_on(victim, "sendmsg 30", 16)

    def test_while_a_checkpoint_is_written(self):
        for victim, call in ((0, "write 1"), (0, "sendmsg 2"), (1, "write 1"), (2, "sendmsg 1")):
            self.assert_goes_on(victim, call, 16, ".partial")

    def test_while_the_first_checkpoint_is_written(self):
        """There is nothing to go back to then, and the run begins again."""
        for victim in (0, 1):
            self.assert_goes_on(victim, "write 1", 0, ".partial")


if __name__ == "__main__":
    run_tests()
