"""--join without --workers: a run whose workers come and go, and every way for them to do so."""
import contextlib
import json
import re
import shutil
import signal
import unittest

from gradients import read_tensors
from support import (CommandLineTest, Ended, Talker, free_place, kill_sessions, killing, run_tests, saved_steps, take_library,
                     wait_until)

KILLER = take_library("kill_in_file")

BATCH = ("--batch", 2)
ROUND = 4  # steps
LOCAL = ("--sync", f"diloco:every={ROUND}")
TOPK = ("--sync", "diloco:every=4,exchange=topk,density=0.05")
GOSSIP = ("--sync", "adpsgd-random", "--checkpoint-every", 200)
PLAIN = ("--schedule", "constant", "--warmup", 0)
SELDOM = ("--evaluate-every", 10 ** 6)
LONG = ("--steps", 10 ** 7)  # such a run ends because its workers leave


class Member(Talker):
    def __init__(self, test, number, meeting, options, **keywords):
        self.out = test.folder / f"run-{number}"
        out = () if "--out" in options else ("--out", self.out)
        super().__init__(test, number, ["train", "image", "--data", test.data, *BATCH, "--join", meeting, *out, *options],
                         **keywords)

    def sizes(self):
        return [(int(size), int(step)) for size, step in self.said(r"(\d+) workers? from step (\d+) on")]

    def await_size(self, size):
        wait_until(lambda: self.sizes() and self.sizes()[-1][0] == size, f"{size} workers", self.job)

    def await_round(self, size):
        """One of a group of that size, of which this one tells: all that are in it have its weights then."""
        self.await_size(size)
        begun, journal = self.sizes()[-1][1], self.out / "metrics.jsonl"
        wait_until(lambda: any(int(step) > begun + ROUND for step in re.findall('"step","step":(\\d+)', journal.read_text())),
                   f"a round of {size} workers", self.job)

    def address(self):
        return self.await_word(r"others may come to (\S+)")

    def kill(self):
        kill_sessions(self.job.pid)
        self.job.wait()

    def ask(self):
        self.job.send_signal(signal.SIGTERM)

    @contextlib.contextmanager
    def stands_still(self):
        """Meanwhile its group waits for it, so that a run of a given length cannot end before others come."""
        self.job.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.job.send_signal(signal.SIGCONT)

    def finish(self, code=0):
        self.test.finish(self.job)
        self.test.assertEqual(self.job.returncode, code, self.path.read_text())
        return self

    def end(self):
        """Rounds, and the weights' hash."""
        (rounds, least, most, weights), = self.finish().said(
            r"(\d+) rounds? of the group, which had (?:(\d+) to )?(\d+) workers? while this one was there; it sent .*; weights (\w{8})")
        return int(rounds), int(least or most), int(most), weights


class ChangingTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.meeting, self.members = free_place(), []

    def come(self, *options, meeting=None, **keywords):
        self.members.append(Member(self, len(self.members) + 1, meeting or self.meeting, options, **keywords))
        return self.members[-1]

    def in_time(self, play, steps):
        """Plays it with a run of so many steps. Where the run is over before all that should come to it have, as on a machine
        that has much to do, then with one of more steps."""
        for length in (steps, 4 * steps, 16 * steps, 64 * steps):
            try:
                return play(length)
            except Ended as ended:
                if ended.code or length == 64 * steps:
                    raise
            self.end(*(member.job for member in self.members))
            self.meeting = free_place()

    def open_group(self, *options, **keywords):
        first = self.come(*options, **keywords)
        first.await_size(1)
        return first

    def come_to(self, member, *each_options, meeting=None):
        """Some who are at its door at once: one for each tuple of options."""
        with member.stands_still():
            new = [self.come(*options, meeting=meeting) for options in each_options]
            for one in new:
                one.await_word("coming to the group")
        return new

    # ---- nobody is lost ----

    def test_it_is_the_run_that_more_and_more_threads_resume(self):
        """For the same number of workers from the same steps on: with the bits of checkpoints that threads resume."""
        self.in_time(self.check_growing, 2000)

    def check_growing(self, steps):
        shared = (*LOCAL, *PLAIN, *SELDOM, "--crop", 2)
        options = (*shared, "--steps", steps)
        first = self.open_group(*options)
        others = self.come_to(first, options, options)
        first.await_size(3)
        rounds, _, _, weights = first.end()
        self.assertEqual({other.end()[3] for other in others}, {weights})
        self.assertEqual(rounds, steps // ROUND)
        spans, out = first.sizes(), self.folder / f"threads-{steps}"
        self.assertEqual((spans[0], spans[-1][0]), ((1, 0), 3))
        for number, (size, _) in enumerate(spans):
            until = spans[number + 1][1] if number + 1 < len(spans) else steps
            resumes = ("--resume",) if number else ()
            done = self.complete(*self.train_words("--quiet", "--json", "-", *BATCH, *shared, "--steps", until, "--workers", size,
                                                   "--out", out, *resumes))
        self.assertEqual(json.loads(done.stdout)["weights_crc32c"], weights)

    def test_some_may_keep_nothing(self):
        """They take the best weights with the others, and meet where rank 0 does. Without a rate the first are the best."""
        for sync in (("--sync", "diloco:every=3"), GOSSIP):
            self.in_time(lambda steps: self.check_keeping(*sync, "--steps", steps), 1500)
            self.meeting = free_place()

    def check_keeping(self, *options):
        options = (*options, *PLAIN, "--lr", 0, "--validation", 0.3, "--evaluate-every", 10)
        first = self.open_group(*options)
        other, = self.come_to(first, (*options, "--out", "none"))
        first.await_size(2)
        self.assertEqual(first.end()[3], other.end()[3])
        self.assertTrue(first.said("with the weights of step"), first.path.read_text())
        looks = first.said(r"step (\d+) .*validation")
        self.assertEqual(len(looks), len(set(looks)), first.path.read_text())

    def test_who_waits_at_the_end_is_told_of_it(self):
        """They train together, and meet no more: the last round is the run's end."""
        self.in_time(self.check_waiting, 2500)

    def check_waiting(self, every):
        options = ("--sync", f"diloco:every={every}", *PLAIN, *SELDOM, "--lr", 0, "--steps", 2 * every - 1)
        first = self.open_group(*options)
        other, = self.come_to(first, options)
        first.await_size(2)
        late, = self.come_to(first, options, meeting=other.address())
        self.assertEqual(first.end()[3], other.end()[3])
        late.finish(3)
        self.assertRegex(late.path.read_text(), "has ended before it let this process in: its run is over|"
                         "no member of the group .* answers any more")

    # ---- somebody is ----

    def assert_survives(self, *options):
        """Four, of whom one is killed, then the one that opened the group; two come to another's address; one leaves. Who is
        lost is told by its address."""
        return self.in_time(lambda steps: self.check_surviving(*options, "--steps", steps), 3000)

    def check_surviving(self, *options):
        options = (*options, *SELDOM, "--check-every", 40)
        first = self.open_group(*options)
        others = self.come_to(first, *3 * [options])
        first.await_size(4)
        addresses = [other.address() for other in others]
        others[0].kill()
        first.await_size(3)
        first.kill()
        wait_until(lambda: any(other.sizes() for other in others[1:]), "another one is rank 0")
        teller, leaver = sorted(others[1:], key=lambda other: not other.sizes())
        new = self.come_to(teller, options, options, meeting=addresses[2])
        teller.await_size(4)
        leaver.ask()
        leaver.await_word("left the group")
        leaver.finish(130)
        ends = [one.end() for one in (teller, *new)]
        self.assertEqual(len({weights for *_, weights in ends}), 1)
        self.assertEqual({rounds for rounds, *_ in ends}, {ends[0][0]})
        self.assertEqual({most for _, _, most, _ in ends}, {4})
        self.assertEqual(teller.said(r"the group goes on without rank \d at (\S+)"), [addresses[0], self.meeting])
        return leaver

    def test_a_run_outlives_whoever_is_lost(self):
        leaver = self.assert_survives(*TOPK)
        step, = leaver.said(r"left the group after step (\d+); thinwire train --resume \S+ goes on")
        resumed = self.open_group(*TOPK, *SELDOM, "--steps", int(step) + 40, "--check-every", 40, "--resume", leaver.out)
        resumed.end()
        self.assertEqual(resumed.sizes(), [(1, int(step))])

    def checkpoint(self, member):
        """The newest."""
        return max((member.out / "checkpoints").glob("step-????????"))

    def there_to_come(self, checkpoint):
        """Where theta is once all that is held back has been sent."""
        theta, to_come = read_tensors(checkpoint / "model.safetensors"), {}
        for entry, (_, values) in read_tensors(checkpoint / "worker-0.safetensors").items():
            if entry.startswith(("scheme.exchange0/residual/", "scheme.exchange0/rounding/")):
                name = entry.split("/")[2]
                to_come[name] = [there - held for there, held in zip(to_come.get(name, theta[name][1]), values)]
        return to_come

    def held_back(self, checkpoint):
        """By tensor, element by element."""
        theta = read_tensors(checkpoint / "model.safetensors")
        return {name: [old - after for old, after in zip(theta[name][1], to_come)]
                for name, to_come in self.there_to_come(checkpoint).items()}

    def leave_and_stop(self, first, options):
        """Another comes and leaves, and the first stands still before its next round. It may be too late for that, or too early for
        the other to hold anything back: then once more. The checkpoint of the one that has left."""
        while True:
            other, = self.come_to(first, options)
            other.address()
            other.ask()
            other.finish(130)
            first.job.send_signal(signal.SIGSTOP)
            left = self.checkpoint(other)
            if self.checkpoint(first).name == left.name and max(map(abs, sum(self.held_back(left).values(), []))) > 1e-5:
                return left
            first.job.send_signal(signal.SIGCONT)

    def test_who_leaves_hands_over_what_it_held_back(self):
        """The one that stays goes on from there, and so does a run that has nothing but what that one held back itself."""
        every, alone = 400, self.folder / "alone"
        options = ("--sync", f"local:every={every},exchange=topk,density=0.05", "--checkpoint-every", every, "--lr", 0.001, *PLAIN,
                   *SELDOM)
        first = self.open_group(*options, *LONG)
        left = self.leave_and_stop(first, (*options, *LONG))
        begun = shutil.copytree(self.checkpoint(first), self.folder / "begun" / "checkpoints" / left.name)
        shutil.copy(first.out / "config.yaml", self.folder / "begun")
        first.job.send_signal(signal.SIGCONT)
        first.ask()
        first.finish(130)
        last = self.checkpoint(first)
        self.complete("train", "--resume", begun, "--out", alone, "--workers", 1, "--steps", int(last.name[5:]), "--quiet")
        with_it, without = self.there_to_come(last), self.there_to_come(alone / "checkpoints" / last.name)
        for name, held in self.held_back(left).items():
            for one, other, difference in zip(without[name], with_it[name], held):
                self.assertAlmostEqual(one - other, difference, delta=1e-6, msg=name)

    def test_so_does_a_gossip(self):
        self.assert_survives(*GOSSIP)

    def test_half_of_a_group_without_its_first_stops(self):
        """It cannot know that it is not the other half that is cut off. What it has is kept."""
        options = (*LOCAL, *SELDOM, *LONG, "--timeout", 2)
        first = self.open_group(*options)
        other = self.come(*options)
        first.await_round(2)
        first.kill()
        (out,), = [other.finish(3).said(r"too few of the 2 members .*; what this worker has is kept: thinwire train --resume (\S+)")]
        step, = (self.folder / out / "checkpoints").iterdir()
        self.assertTrue(read_tensors(step / "model.safetensors"))
        alone = self.open_group(*LOCAL, *SELDOM, "--resume", out, "--steps", int(step.name[5:]) + 8, "--timeout", 2)
        alone.end()
        self.assertEqual(alone.sizes(), [(1, int(step.name[5:]))])

    def test_who_hears_too_few_ends_when_it_is_asked_to(self):
        options = (*LOCAL, *SELDOM, *LONG, "--timeout", 2)
        first = self.open_group(*options)
        other = self.come(*options)
        first.await_round(2)
        with first.stands_still():
            other.await_word("(this process hears too few of the 2 members)")
            other.ask()
            (out,), = [other.finish(130).said(r"left the group after step .*; thinwire train --resume (\S+) goes on")]
            self.assertTrue(read_tensors(next((self.folder / out / "checkpoints").iterdir()) / "model.safetensors"))
            first.kill()

    @unittest.skipUnless(KILLER, "needs what kills a program from within")
    def test_who_was_given_nothing_yet_keeps_nothing(self):
        """The one that opened the group is killed as it is to hand over its weights. What the other began with is not the
        group's, and no run to go on with."""
        options = (*LOCAL, *SELDOM, *LONG, "--timeout", 2)
        first = self.open_group(*options, env=killing(KILLER, "sendmsg 1 0", self.data))
        other, = self.come_to(first, options)
        self.finish(first.job)
        self.assertEqual(first.job.returncode, -signal.SIGKILL)
        other.finish(3)
        self.assertRegex(other.path.read_text(), "in the group as rank 1 of 2(.*\n)*"
                         ".*too few of the 2 members .*; this worker had nothing of the group's yet, and keeps nothing\n$")
        self.assertEqual(saved_steps(other.out), [])

    def test_all_may_leave(self):
        members = [self.open_group(*LOCAL, *SELDOM, *LONG), self.come(*LOCAL, *SELDOM, *LONG)]
        members[0].await_size(2)
        for member in members:
            member.ask()
        for member in members:
            member.finish(130)
            self.assertEqual(len(list((member.out / "checkpoints").iterdir())), 1)

    def test_who_waits_may_go(self):
        """A process whose own address the meeting point is opens a group; any other waits."""
        waits = self.come(*LOCAL, "--patience", 77, meeting="192.0.2.1:29400")
        waits.await_word("coming to the group at 192.0.2.1:29400, which lets newcomers in when its workers meet; this worker tries for up to "
                         "77 seconds")
        waits.ask()
        waits.finish(130)

    # ---- who does not come in ----

    def test_what_differs_is_named(self):
        first = self.open_group(*LOCAL, *SELDOM, *LONG)
        for options, culprits in (((*LOCAL, *SELDOM, *LONG, "--lr", 0.1), ("--lr 0.1", "--lr 0.03")),
                                  ((*TOPK, *SELDOM, *LONG), ("exchange=topk",)),
                                  ((*LOCAL, *SELDOM, *LONG, "--limit-train", 100), ("--limit-train 100",))):
            stranger = self.come(*options).finish(2)
            for culprit in culprits:
                self.assertTrue(stranger.said(re.escape(culprit)), stranger.path.read_text())
            self.assertFalse(stranger.out.joinpath("checkpoints").exists())
        first.ask()
        self.assertEqual(first.finish(130).sizes()[1:], [])

    def test_of_more_than_the_data_have_room_for_the_last_goes(self):
        options = (*LOCAL, *SELDOM, *LONG, "--limit-train", 4)
        first = self.open_group(*options)
        other = self.come(*options)
        first.await_size(2)
        third = self.come(*options).finish(2)
        self.assertTrue(third.said("too few for a step of 3 workers with --batch 2 each; they are enough for 2"))
        for member in (first, other):
            member.ask()
        self.assertEqual([size for size, _ in first.finish(130).sizes()][:3], [1, 2, 2])
        other.finish(130)

    def test_the_banner_names_the_key(self):
        key = self.folder / "key"
        key.write_bytes(bytes(range(32)))
        first = self.come(*LOCAL, "--steps", 8, "--key-file", key)
        self.assertTrue(first.finish().said("over tcp, not encrypted, open to those who know the key,"))
        self.assertFalse(first.said("whoever reaches the port"))

    def test_who_has_another_key_is_told_of_once(self):
        """It tries again and again, and then gives up."""
        keys = [self.folder / name for name in ("key", "other")]
        for number, key in enumerate(keys):
            key.write_bytes(bytes(range(number, 32 + number)))
        first = self.open_group(*LOCAL, *SELDOM, *LONG, "--key-file", keys[0])
        self.come(*LOCAL, *SELDOM, *LONG, "--key-file", keys[1]).finish(3)
        first.ask()
        told = first.finish(130).said("a connection from (.*) was refused: it did not prove that it knows this group and its key")
        self.assertEqual(told, ["127.0.0.1"])

    def test_what_does_not_go_with_it_is_refused(self):
        for spec, culprit in (("streaming:every=4,fragments=2,delay=1", "delay=0"),
                              ("diloco:every=4,eager=on", "takes eager=off"),
                              ("local:every=4,first_moment=1", "first_moment=0"),
                              ("diloco:every=4,delay=1", 'diloco: no option "delay"'),
                              ("streaming:every=4,fragments=2,delay=0,eager=on", 'streaming: no option "eager"'),
                              ("local:every=4,per_host=2", "no per_host")):
            self.refuse(2, [culprit], *self.train_words("--join", self.meeting, "--sync", spec))
        changes = self.folder / "changes.yaml"
        changes.write_text('planned-changes: "2 local:every=2"\n')
        self.refuse(2, ["--sync local:every=2, which does not go with --join without --workers"],
                    *self.train_words("--join", self.meeting, *LOCAL, "--config", changes))
        for name, value in (("THINWIRE_REACHABLE", "maybe"), ("THINWIRE_STREAMS", "many")):
            self.refuse(2, [name, value], *self.train_words("--join", self.meeting, *LOCAL), env={name: value})

    def test_wrong_words_are_told_before_the_data_are_read(self):
        for options, culprit in ((("--sync", "dilco:every=5"), "did you mean diloco?"),
                                 (("--sync", "dgc"), "give --workers N, who stay, for --sync dgc"),
                                 (("--sync", "auto"), "for --sync auto"),
                                 (("--sync", "choco"), "or asynchronous gossip"),
                                 ((*LOCAL, "--rank", 0), "--rank 0: where workers come and go"),
                                 ((*LOCAL, "--slow", "0:2"), "--slow"),
                                 (("--pipeline", "stages=2"), "--pipeline"),
                                 ((*LOCAL, "--memory-budget", "1GB"), "workers that come and go"),
                                 ((*LOCAL, "--seal"), "--key-file"),
                                 ((*LOCAL, "--transport", "threads"), "--transport")):
            self.refuse(2, [culprit], *self.train_words("--join", self.meeting, *options, "--data", "/nonexistent"))


if __name__ == "__main__":
    run_tests()
