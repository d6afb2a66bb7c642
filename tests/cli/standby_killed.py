"""--pipeline stages=P,standby=S: whichever worker is killed, and whenever, the run goes on with the bits of one that lost
nobody, or ends with one sentence."""
import ctypes
import json
import os
import select
import signal
import unittest

from standby import KILLER, STEPS, StandbyTest
from support import free_place, run_tests, wait_until

import parts

IN_OPEN = 0x20
PIDFD_GETFD = 438  # on all processors
LIBC = ctypes.CDLL(None)


@unittest.skipUnless(KILLER, "needs what kills a program from within")
class KilledTest(StandbyTest):
    expected = None  # figures of the run that loses nobody

    def setUp(self):
        """The port of the first line-up is chosen behind the run that has none."""
        super().setUp()
        if not KilledTest.expected:
            KilledTest.expected = self.whole(*STEPS)
            self.begin()

    def assert_goes_on(self, start, victim, call, *after):
        """Once that checkpoint is there, the victim is killed in its so manieth call. The others tell where they go on."""
        with self.subTest(victim=victim, call=call, after=after):
            self.begin()
            self.line_up(*STEPS, kills={victim: (f"{call} 0", self.checkpoint(*after))})
            self.assert_done(self.expected, {victim})
            for number, worker in enumerate(self.workers):
                if number != victim:
                    lost, = worker.said("the worker of stage (.), at .* is lost, and the one at .* takes its place; the run " +
                                        start)
                    self.assertEqual(int(lost), victim)

    @parts.extra
    def test_while_the_pipeline_fills(self):
        for victim in range(3):
            self.assert_goes_on("goes on from step 8", victim, "sendmsg 1", 8)

    def test_in_the_midst_of_steps(self):
        for victim in range(3):
            self.assert_goes_on("goes on from step 8", victim, "sendmsg 10", 8)

    @parts.extra
    def test_while_all_look_at_the_validation_set(self):
        """Behind step 16 come four steps, and then 41 batches, of which the last stage sends nothing."""
        for victim in range(2):
            self.assert_goes_on("goes on from step 16", victim, "sendmsg 30", 16)

    @parts.extra
    def test_when_the_last_checkpoint_is_there(self):
        """What is left are the figures, which who takes the place works out."""
        self.assert_goes_on("goes on from step 24", 0, "sendmsg 3", 24)

    def test_while_a_checkpoint_is_written(self):
        self.check_writing((0, "write 1"), (2, "sendmsg 1"))

    @parts.extra
    def test_at_other_moments_while_a_checkpoint_is_written(self):
        self.check_writing((0, "sendmsg 2"), (1, "write 1"))

    def check_writing(self, *deaths):
        for victim, call in deaths:
            self.assert_goes_on("goes on from step 8", victim, call, 16, ".partial")

    def test_while_the_first_checkpoint_is_written(self):
        """There is nothing to go back to then, and the run begins again."""
        for victim in (0, 1):
            self.assert_goes_on("begins again", victim, "write 1", 0, ".partial")

    def share_lock(self, pid):
        """That of another process, which holds from here on for as long as either of the two has it."""
        name = os.path.realpath(self.out / "run.lock")
        number, = (int(one.name) for one in os.scandir(f"/proc/{pid}/fd") if os.path.realpath(one.path) == name)
        process = os.pidfd_open(pid)
        self.addCleanup(os.close, process)
        shared = LIBC.syscall(PIDFD_GETFD, process, number, 0)
        if shared < 0:
            self.skipTest("nobody may have the files of another process here")
        return open(shared)

    def test_a_lock_that_stays_for_a_while(self):
        """As where worker 0's machine goes while it writes the first checkpoint, and the server of the folder has not
        heard of that: its successor looks for the lock again."""
        mark = self.folder / "stopped"
        first, *others = self.line_up(*STEPS, kills={0: ("write 1 0", self.checkpoint(0, ".partial"), mark,
                                                         int(signal.SIGSTOP))})
        wait_until(mark.exists, "worker 0 writes", first.job)
        with self.share_lock(first.job.pid), open(LIBC.inotify_init(), "rb", buffering=0) as looks:
            self.assertGreaterEqual(LIBC.inotify_add_watch(looks.fileno(), os.fsencode(self.out / "run.lock"), IN_OPEN), 0)
            first.job.kill()
            seen = []
            def looked_twice():
                if select.select([looks], [], [], 0)[0]:
                    seen.append(len(looks.read(4096)))
                return sum(seen) >= 2 * 16
            wait_until(looked_twice, "two looks for the lock", others[-1].job)
        self.assert_done(self.expected, {0})

    @parts.extra
    def test_a_run_that_leaves_a_course(self):
        """From an older checkpoint in its folder: until it has one of its own, that is where it goes on."""
        for call, step, start in (("write 1", None, "begins again"), ("sendmsg 1", 24, "goes on from step")):
            with self.subTest(call=call):
                self.begin()
                self.whole(*STEPS)
                self.meeting = free_place()
                (self.folder / "whole").rename(self.out)
                older = min((self.out / "checkpoints").iterdir())
                self.assertLess(int(older.name[5:]), 24)
                self.line_up(*STEPS, "--resume", older,
                             kills={1: (f"{call} 0", self.checkpoint(step or int(older.name[5:]), ".partial"))})
                self.assert_done(self.expected, {1})
                self.assertEqual(len(self.workers[0].said("is lost, and the one at .* takes its place; the run " + start)), 1)

    def kill_two(self, first, second, call, **keywords):
        """The second is killed in that call once the first is."""
        mark = self.folder / "killed"
        self.line_up(*STEPS, kills={first: ("sendmsg 10 0", self.checkpoint(8), mark), second: (f"{call} 0", mark)}, **keywords)

    def test_a_second_loss_while_the_first_is_mended(self):
        self.check_second_losses((0, "send 3"), (3, "sendmsg 5"))

    @parts.extra
    def test_other_second_losses_while_the_first_is_mended(self):
        self.check_second_losses((3, "send 2"), (2, "sendmsg 3"), (0, "sendmsg 20"))

    def check_second_losses(self, *deaths):
        """While they decide who is left (send), tell each other what they know, and read the checkpoint (sendmsg)."""
        for second, call in deaths:
            with self.subTest(second=second, call=call):
                self.begin()
                self.kill_two(1, second, call, standby=2)
                self.assert_done(self.expected, {1, second})

    def test_when_nobody_stands_by_any_more_a_person_goes_on(self):
        self.kill_two(1, 2, "sendmsg 12")
        self.assert_ended(3, "the worker of stage .* is lost, and nobody stands by: 2 workers are left for 3 stages; "
                             f"thinwire train --resume {self.out} goes on", {1, 2})
        told = self.succeed("train", "--resume", self.out, "--workers", 3, "--quiet", "--json", "-", "--out", "none")
        self.assertEqual(self.figures(json.loads(told)), self.expected)

    @parts.extra
    def test_over_sealed_lines(self):
        key = self.folder / "key"
        key.write_bytes(bytes(range(32)))
        self.line_up(*STEPS, "--seal", "--key-file", key, kills={1: ("sendmsg 10 0", self.checkpoint(8))})
        self.assert_done(self.expected, {1})

    @parts.extra
    def test_a_cut_that_was_measured_stays(self):
        self.line_up(*STEPS, cut="stages=3", kills={1: ("sendmsg 10 0", self.checkpoint(8))})
        for number, worker in enumerate(self.workers):
            self.assertEqual(worker.end(), -signal.SIGKILL if number == 1 else 0, worker.path.read_text())
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        first, second = [line["configuration"]["pipeline"] for line in lines if line["kind"] == "start"]
        self.assertIn("cut=", first)
        self.assertEqual(first, second)

    @parts.extra
    def test_folders_of_their_own(self):
        """What a stage had on its disk is not missed, and what worker 0 had there is."""
        outs = lambda number: self.folder / f"run-{number}"
        self.out = outs(0)
        self.line_up(*STEPS, outs=outs, kills={1: ("sendmsg 10 0", self.checkpoint(8))})
        self.assert_done(self.expected, {1})
        self.begin()
        self.out = outs(0)
        self.line_up(*STEPS, outs=outs, kills={0: ("sendmsg 10 0", self.checkpoint(8))})
        self.assert_ended(2, "takes the place of worker 0, and its --out has no checkpoint of step 8: give all workers one", {0})


if __name__ == "__main__":
    run_tests()
