"""--pipeline stages=P,standby=S: workers that come, go, fall silent and fail. standby_killed.py has those that are killed."""
import json
import pathlib
import signal
import tempfile
import time

from support import (CommandLineTest, Ended, Talker, await_stop, free_place, has_saved, killing, run_tests, take_library, wait_until,
                     write_texts)

KILLER = take_library("kill_in_file")
SAME = ("weights_crc32c", "loss", "train_loss", "metric", "steps", "steps_skipped")
CUT = "stages=3,cut=2+2+3"
STEPS = ("--steps", 24, "--checkpoint-every", 8)
LONG = ("--steps", 10 ** 7, "--checkpoint-every", 40)
SILENT = ("--timeout", 6)
COMING = 600  # seconds in which all may come together, however soon they miss each other later


class Worker(Talker):
    def __init__(self, test, number, options, kill, coming):
        environment = {"THINWIRE_JOIN_SECONDS": str(coming)} if coming else {}
        super().__init__(test, number, test.train_words(*options), env=environment | (killing(KILLER, *kill) if kill else {}))

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
        write_texts(cls.texts, train=1000, valid=2000, test=480)

    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.shared))
        self.out, self.meeting, self.workers = self.folder / "run", free_place(), []

    def train_words(self, *options):
        return ["train", "lm", "--data", self.texts, "--unit", "char", "--model", "transformer", "--layers", 4, "--hidden", 32,
                "--heads", 2, "--batch", 3, "--bptt", 16, "--dropout", "0.2", *options]

    def come(self, *options, standby=1, cut=CUT, out=None, kill=None, meeting=None, coming=COMING):
        number = len(self.workers)
        self.workers.append(Worker(self, number, (
            "--join", meeting or self.meeting, "--workers", 3 + standby, "--pipeline", f"{cut},standby={standby}",
            "--out", out or self.out, "--json", self.folder / f"summary-{number}", *options), kill, coming))
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
        done = self.complete(*self.train_words("--quiet", "--json", "-", "--workers", 3, "--pipeline", CUT, "--out",
                                               self.folder / "whole", *options))
        return self.figures(json.loads(done.stdout))

    @staticmethod
    def figures(summary):
        return {key: summary[key] for key in SAME}

    def assert_done(self, whole, killed):
        """All but those that were killed come to the end, with the figures of the whole run."""
        codes = [worker.end() for worker in self.workers]
        said = [worker.path.read_text() for worker in self.workers]
        self.assertEqual(codes, [-signal.SIGKILL if number in killed else 0 for number in range(len(codes))], said)
        written, = [path for path in self.folder.glob("summary-*")]
        self.assertEqual(self.figures(json.loads(written.read_text())), whole, said)

    def assert_ended(self, code, pattern, killed=()):
        """All but those have ended so, and the last line of each is of that kind."""
        for number, worker in enumerate(self.workers):
            if number not in killed:
                self.assertEqual(worker.end(), code, worker.path.read_text())
                self.assertRegex(worker.last_line(), pattern)


class LivingTest(StandbyTest):
    """Runs that end when they are asked to."""
    def assert_stops(self, asked, gone=()):
        asked.job.send_signal(signal.SIGINT)
        for number, worker in enumerate(self.workers):
            if number not in gone:
                self.assertEqual(worker.end(), 130, worker.path.read_text())

    def await_checkpoint(self, first):
        wait_until(lambda: has_saved(self.out, 40), "a checkpoint", first.job)

    def test_who_was_silent_comes_back_and_stands_by(self):
        first, silent, last, spare = self.line_up(*LONG, *SILENT)
        self.await_checkpoint(first)
        silent.job.send_signal(signal.SIGSTOP)
        for other in (first, last, spare):
            other.await_word("the worker of stage 1, .* is lost, and the one at .* takes its place")
        silent.job.send_signal(signal.SIGCONT)
        silent.await_word("this worker stands by for 3 stages")
        first.await_word("a worker has come to stand by; the run goes on from step")
        last.job.kill()
        silent.await_word("the worker of stage 2, .* is lost, and the one at .* takes its place")
        self.assert_stops(first, {2})

    def test_a_silent_worker_0_still_has_the_folder(self):
        first, *_ = self.line_up(*LONG, *SILENT)
        self.await_checkpoint(first)
        first.job.send_signal(signal.SIGSTOP)
        self.assert_ended(2, "another run writes there", {0})

    def test_until_it_dies(self):
        first, *_, spare = self.line_up(*LONG, *SILENT)
        self.await_checkpoint(first)
        first.job.send_signal(signal.SIGSTOP)
        spare.await_word("the worker of stage 0, .* is lost, and the one at .* takes its place")
        first.job.kill()
        spare.await_word("resumed after step")
        self.assert_stops(spare, {0})

    def test_workers_that_lose_each_other_again_and_again_end(self):
        """One is busy for longer than the others have patience, and there again each time before they go on without it."""
        while True:
            try:
                self.line_up(*STEPS, "--timeout", 3, "--patience", 3, "--pause", "1:6:4.5")
                break
            except Ended:  # of so little patience may be who comes, too, where the others take longer to let it in
                self.end(*(worker.job for worker in self.workers))
                self.assertRegex(self.workers[-1].last_line(), "no member of a group let this process in|answers any more")
                self.begin()
        self.assert_ended(3, "3 times in a row no worker was lost, and the run came to no checkpoint|nobody stands by|too few")

    def test_who_stands_by_may_go_and_others_come(self):
        first, second, third, spare = self.line_up(*LONG)
        address = second.await_word(r"others may come to (\S+)")
        spare.await_word("stands by for 3 stages")
        spare.job.send_signal(signal.SIGTERM)
        self.assertEqual(spare.end(), 130)
        for other in (first, second, third):
            other.await_word("a worker that stood by is lost; the run goes on from step")
        new = self.come(*LONG, meeting=address)
        new.await_word("stands by for 3 stages")
        first.job.kill()
        second.await_word("the worker of stage 0, .* is lost, and the one at .* takes its place")
        self.assert_stops(new, {0, 3})

    def test_all_have_to_come(self):
        """Those who are to stand by, too. Whoever comes when the others have given up is told that, or gives up alone."""
        for _ in range(3):
            self.come(*STEPS, *SILENT, coming=None)
        self.assert_ended(3, "[123] of --workers 4 have come, and nobody else within 6 seconds|its run is over|answers any more")

    def test_a_standstill_is_no_time_that_others_take(self):
        """The machine of the one that waits for all was asleep for longer than it waits, and they have come meanwhile."""
        first = self.come(*STEPS, coming=3)
        first.await_word("opens a group")
        first.job.send_signal(signal.SIGSTOP)
        await_stop(first.job)
        asleep = time.monotonic()
        for _ in range(3):
            self.come(*STEPS).await_word("coming to the group")
        wait_until(lambda: time.monotonic() > asleep + 3, "the time is over that it would have waited")
        first.job.send_signal(signal.SIGCONT)
        self.assertEqual([worker.end() for worker in self.workers], [0] * 4, [worker.path.read_text() for worker in self.workers])

    def test_who_waits_at_the_end_is_told_of_it(self):
        """The run has no checkpoint on its way at which it would be let in. It may be in the last meeting, and hears it there; or it has
        asked, and the run is over before it asks for the second time, as one that waits; or nobody has heard it."""
        options = ("--steps", 1000, "--evaluate-every", 10 ** 6, "--patience", 60)
        first, second, *others = self.line_up(*options)
        address = second.await_word(r"others may come to (\S+)")
        second.await_word("this worker is stage 1")
        first.job.send_signal(signal.SIGSTOP)
        late = self.come(*options, meeting=address)
        late.await_word("coming to the group")
        first.job.send_signal(signal.SIGCONT)
        self.assertEqual([worker.end() for worker in (first, second, *others)], [0] * 4)
        code, told = late.end(), late.path.read_text()
        if "in the group as rank" not in told:
            self.assertEqual(code, 3, told)
            self.assertRegex(told, "has ended before it let this process in: its run is over|answers any more: its run has ended, or all"
                                   "|no member of a group let this process in")

    def test_a_run_that_diverges_ends_alike(self):
        self.line_up(*STEPS, "--optimizer", "sgd", "--lr", "1e6", "--clip", 0, "--warmup", 0)
        self.assert_ended(4, "diverged")
        self.assertFalse([line for worker in self.workers for line in worker.said("is lost")])

    def test_what_does_not_go_with_it_is_refused(self):
        spec = f"{CUT},standby=1"
        for words, culprits in ((("--workers", 3, "--pipeline", spec, "--out", self.out), ("--join HOST:PORT", "threads")),
                                (("--workers", 3, "--pipeline", spec, "--join", self.meeting, "--out", self.out),
                                 ("--workers 4",)),
                                (("--workers", 4, "--pipeline", spec, "--join", self.meeting, "--out", "none"), ("--out DIR",)),
                                (("--workers", 4, "--pipeline", spec, "--join", self.meeting), ("--out DIR",)),
                                (("--workers", 4, "--pipeline", spec, "--join", self.meeting, "--out", self.out, "--rank", 1),
                                 ("--rank 1", "leave it out")),
                                (("--workers", 4, "--pipeline", "stages=3,standby=0", "--join", self.meeting, "--timeout", 0.5),
                                 ("1 to 64 workers stand by",)),
                                (("--workers", 4, "--pipeline", spec, "--join", self.meeting, "--out", self.out, "--sync", "dgc"),
                                 ("--sync allreduce", "dgc")),
                                (("--workers", 67, "--pipeline", "stages=3,standby=64", "--join", self.meeting, "--out", self.out),
                                 ("67 workers", "64")),
                                (("--pipeline", "stages=3,standby=0"), ("1 to 64 workers stand by",))):
            with self.subTest(words):
                self.refuse(2, culprits, *self.train_words("--quiet", *words))


if __name__ == "__main__":
    run_tests()
