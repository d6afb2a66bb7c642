"""--join: processes that were started one by one are one run, with the bits of threads, and every way not to be."""
import functools
import json
import os
import shutil
import signal
import subprocess
import unittest

from support import CommandLineTest, free_place, has_stepped, listens, run_tests, wait_until, without_notes, write_letters

DEADLINE = 2  # seconds of silence, in the tests that wait them out
PATIENT = {"THINWIRE_JOIN_SECONDS": "600"}  # until then, a rank may take as long to start as it likes


class Joining(CommandLineTest):
    """Processes that meet at a port of this test."""
    @functools.cached_property
    def meeting(self):
        """Chosen as it is first needed, because it is nobody's until somebody listens there."""
        return free_place()

    def start_joined(self, *options, workers=3, launcher=(), **env):
        return self.start_program(*self.train_words("--quiet", "--json", "-", "--join", self.meeting, "--workers", workers, *options),
                                  launcher=launcher, env=env)

    def finish_all(self, jobs):
        """Their ends, and the summary, which one of them has."""
        said, = [one.stdout for one in self.complete_all(jobs) if one.stdout]
        return json.loads(said)


class JoinTest(Joining):
    def assert_alike(self, threads, joined):
        self.assertEqual((threads["transport"], joined["transport"]), ("threads", "tcp"))
        for key in ("weights_crc32c", "metric", "loss", "train_loss", "bytes", "workers"):
            self.assertEqual(threads[key], joined[key], key)

    def test_processes_equal_threads(self):
        for sync in ("allreduce", "dgc:density=0.01", "dgc:density=0.01,per_host=3", "streaming:every=4,fragments=2,delay=1",
                     "sparseloco:every=2", "diloco:every=2,eager=on", "diloco:every=2,merge=rda,first_moment=1", "gasloc:every=2"):
            options = ("--sync", sync, "--steps", 6, "--crop", 2, "--check-every", 1)
            threads = self.train(*options, "--workers", 3)
            self.meeting = free_place()
            self.assert_alike(threads, self.finish_all([self.start_joined(*options) for _ in range(3)]))

    def test_ranks_and_a_key_may_be_given(self):
        key = self.folder / "key"
        key.write_bytes(bytes(range(32)))
        options = ("--steps", 3, "--key-file", key)
        joined = self.finish_all([self.start_joined(*options, "--rank", rank, THINWIRE_STREAMS="2") for rank in (2, 0, 1)])
        self.assertEqual(joined["weights_crc32c"], self.train("--steps", 3, "--workers", 3)["weights_crc32c"])

    def test_threads_resume_what_processes_saved(self):
        options = ("--sync", "dgc", "--schedule", "constant")
        whole = self.train(*options, "--steps", 6, "--workers", 2)
        self.finish_all([self.start_joined(*options, "--steps", 3, "--out", self.folder / "run", workers=2) for _ in range(2)])
        resumed = self.train(*options, "--steps", 6, "--workers", 2, "--out", self.folder / "run", "--resume")
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])

    def assert_refused(self, jobs, code, *culprits):
        """Each process was started by somebody, who is told."""
        for done in map(self.finish, jobs):
            told = without_notes(done.stderr)
            self.assertEqual((done.returncode, len(told)), (code, 1), done.stderr)
            for culprit in culprits:
                self.assertIn(culprit, told[0])

    def test_other_options_are_named(self):
        self.assert_refused([self.start_joined("--lr", rate, workers=2) for rate in ("0.1", "0.2")], 2,
                            "thinwire: rank 1 was started with", "--lr 0.1", "--lr 0.2")
        self.assert_refused([self.start_joined(*options, workers=2) for options in (("--slow", "0:2"), ())], 2,
                            '"--slow 0:2"', '"--slow (nothing)"')

    def test_other_tasks_are_named(self):
        none = ("--data", self.data, "--out", "none", "--quiet", "--join", self.meeting, "--workers", 2)
        self.assert_refused([self.start_program("train", task, *none, "--rank", rank) for rank, task in enumerate(("image", "lm"))],
                            2, "rank 1 trains task lm where rank 0 trains image")

    def test_what_changes_no_bit_may_differ(self):
        self.finish_all([self.start_joined("--steps", 2, "--decoders", count, workers=2) for count in (2, 4)])
        self.meeting = free_place()
        text = self.folder / "text"
        write_letters(text, 3000)
        words = ("train", "lm", "--data", text, "--unit", "char", "--hidden", 8, "--bptt", 8, "--batch", 2, "--steps", 2,
                 "--out", "none", "--quiet", "--json", "-", "--join", self.meeting, "--workers", 2)
        self.finish_all([self.start_program(*words, "--memory", megabytes) for megabytes in (100, 200)])

    def test_whose_data_are_missing_is_told(self):
        """Each is started in a folder of its own, as on machines of their own, and the second one's is empty."""
        shutil.copytree(self.data, self.folder / "0" / "images")
        (self.folder / "1").mkdir()
        words = self.train_words("--quiet", "--join", self.meeting, "--workers", 2)
        words[words.index(self.data)] = "images"
        jobs = [self.start_program(*words, "--rank", rank, cwd=self.folder / str(rank)) for rank in (0, 1)]
        told = [without_notes(done.stderr) for done in map(self.finish, jobs)]
        (first,), (second,) = told
        self.assertRegex(second, "^thinwire: .*images")
        self.assertEqual(first, second.replace("thinwire: ", "thinwire: rank 1: ", 1))

    def test_a_misspelt_scheme_is_told_before_anybody_waits(self):
        self.assert_refused([self.start_joined("--sync", "dilco:every=5", workers=2)], 2, "did you mean diloco?")

    def test_another_number_of_workers_is_refused(self):
        one = self.start_joined("--steps", 2, workers=2)
        wait_until(self.is_listening, "somebody listens", one)
        self.assert_refused([self.start_joined(workers=3)], 3, "this group has 2 ranks, not 3")
        self.finish_all([one, self.start_joined("--steps", 2, workers=2)])

    def is_listening(self):
        return listens(self.meeting.split(":")[1])

    def test_a_rank_is_given_once(self):
        one = self.start_joined("--steps", 2, "--rank", 0)
        wait_until(self.is_listening, "somebody listens", one)
        two = self.start_joined("--steps", 2, "--rank", 1), self.start_joined("--steps", 2, "--rank", 1)
        wait_until(lambda: any(job.poll() is not None for job in two), "one is refused")
        refused = [job for job in two if job.poll() is not None]
        self.assert_refused(refused, 3, "rank 1 is taken")
        self.finish_all([one, *(job for job in two if job not in refused), self.start_joined("--steps", 2)])

    def test_who_was_let_in_hears_that_the_first_has_gone(self):
        """A second rank 1 is turned away as soon as the first one is in."""
        one = self.start_first("--rank", 0)
        two = [self.start_joined("--rank", 1, THINWIRE_JOIN_SECONDS="8") for _ in range(2)]
        wait_until(lambda: any(job.poll() is not None for job in two), "one is refused")
        self.end(one)
        kept = [job for job in two if job.poll() is None]
        self.assert_refused(kept, 3, "let this one in, and went before the group was complete")
        self.assertEqual(len(kept), 1)

    def start_first(self, *options, **more):
        job = self.start_joined(*options, **more)
        wait_until(self.is_listening, "somebody listens", job)
        return job

    def test_the_first_hears_who_cannot_join(self):
        """While it waits, on its own terminal, a line for each; and the group comes together all the same."""
        keys = [self.folder / "key", self.folder / "other"]
        for number, path in enumerate(keys):
            path.write_bytes(bytes(range(number, number + 32)))
        one = self.start_first("--steps", 2, "--rank", 0, "--key-file", keys[0], workers=2)
        self.assert_refused([self.start_joined("--rank", 0, "--key-file", keys[0], workers=2)], 3, "rank 0 is taken")
        stranger = self.start_joined("--key-file", keys[1], workers=2)
        for told in ("rank 0 is taken", "did not prove that it knows this group and its key"):
            self.assertIn(told, next(line for line in one.stderr if without_notes(line)))
        self.end(stranger)
        self.finish_all([one, self.start_joined("--steps", 2, "--key-file", keys[0], workers=2)])

    def test_one_too_many_is_told_so_at_once(self):
        run = self.folder / "run"
        jobs = [self.start_joined("--epochs", 100000, "--rank", rank, "--out", run, workers=2) for rank in (0, 1)]
        wait_until(lambda: has_stepped(run), "the first step", jobs[0])
        self.assert_refused([self.start_joined(workers=2), self.start_joined("--rank", 1, workers=2)], 3,
                            "the group is complete, with all of its 2 ranks")
        self.assertEqual([job.poll() for job in jobs], [None, None])

    def test_every_terminal_tells_how_it_went(self):
        words = ["train", "image", "--data", self.data, "--steps", 2, "--json", "-", "--join", self.meeting, "--workers", 2]
        jobs = [self.start_program(*words, "--rank", rank) for rank in (0, 1)]
        done = self.complete_all(jobs)
        self.assertEqual(json.loads(done[0].stdout)["workers"], 2)
        self.assertEqual(done[1].stdout, "")
        self.assertEqual(without_notes(done[1].stderr), [
            f"thinwire: joining 2 workers at {self.meeting}, and waiting for them for up to 600 seconds; all are "
            "started with the same command",
            f"thinwire: joined as rank 1 of 2 at {self.meeting}; rank 0 prints the progress",
            "thinwire: rank 1 has finished; rank 0 has the results"])
        self.assertIn(f"thinwire: joined as rank 0 of 2 at {self.meeting}\n", done[0].stderr)

    def test_who_is_missing_is_told(self):
        self.assert_refused([self.start_joined(workers=2, THINWIRE_JOIN_SECONDS="0.5")], 3, "1 of 2 ranks came")

    def test_a_join_waits_as_long_as_asked(self):
        self.assert_refused([self.start_joined("--timeout", 0.5, workers=2)], 3, "1 of 2 ranks came", "within 0.5 seconds")

    def test_gradients_need_a_number_of_workers(self):
        self.refuse_training(2, ["--join without --workers", "give --workers N"], "--join", self.meeting)

    def test_nobody_joins_alone(self):
        self.refuse_training(2, ["--workers 1", "nobody to meet", "all machines"], "--join", self.meeting, "--workers", 1)

    def assert_data_differ(self, file, what):
        """Rank 1's last byte of the file is another: as many images, and nothing else would have told."""
        other = self.folder / "other"
        shutil.copytree(self.data, other)
        *same, last = (other / file).read_bytes()
        (other / file).write_bytes(bytes([*same, last ^ 1]))
        jobs = [self.start_joined("--rank", rank, "--data", data, "--out", "none", workers=2)
                for rank, data in enumerate((self.data, other))]
        self.assert_refused(jobs, 2, "rank 1 has read other data than rank 0", "192 training", what)

    def test_data_that_are_others_are_named(self):
        self.assert_data_differ("train-labels-idx1-ubyte", "labels")

    def test_other_pixels_are_other_data(self):
        self.assert_data_differ("train-images-idx3-ubyte", "pixels")

    def test_the_banner_says_who_can_reach_the_links(self):
        key = self.folder / "key"
        key.write_bytes(bytes(range(32)))
        for options, said in (((), "over tcp, open to whoever reaches the port,"),
                              (("--key-file", key), "over tcp, not encrypted, open to those who know the key,")):
            words = ["train", "image", "--data", self.data, "--steps", 1, "--out", "none", "--join", self.meeting,
                     "--workers", 2, *options]
            done = self.complete_all([self.start_program(*words, "--rank", rank) for rank in (0, 1)])
            self.assertIn(said, done[0].stdout + done[0].stderr)
        self.meeting = free_place()
        self.assert_refused([self.start_joined("--rank", 1, workers=2, THINWIRE_JOIN_SECONDS="5")], 3, "Connection refused")
        self.meeting = "192.0.2.1:29400"  # nobody's
        self.assert_refused([self.start_joined(workers=2, THINWIRE_JOIN_SECONDS="0.5")], 3, "nobody brought the group together")

    def test_words_that_cannot_be_are_refused(self):
        for culprits, *options in (
                (["--workers"], "--join", self.meeting),
                (["--transport"], "--join", self.meeting, "--workers", 2, "--transport", "mpi"),
                (["--rank"], "--join", self.meeting, "--workers", 2, "--rank", 2),
                (["HOST:PORT"], "--join", "nowhere", "--workers", 2),
                (["cannot be resolved"], "--join", "no.such.host.invalid:1234", "--workers", 2),
                (["/nonexistent"], "--join", self.meeting, "--workers", 2, "--key-file", "/nonexistent"),
                (["/dev/null", "32 random bytes", "20 to 4096 characters"], "--join", self.meeting, "--workers", 2, "--key-file", "/dev/null"),
                (["3 stages", "these are 4"], "--join", self.meeting, "--workers", 4, "--pipeline", "stages=3", "--timeout", 0.5),
                (["--join HOST:PORT", "THINWIRE_JOIN"], "--transport", "tcp")):
            self.refuse_training(2, culprits, *options)

    def test_no_thread_that_computes_handles_signals(self):
        run = self.folder / "run"
        options = ("--epochs", 100000, "--sync", "dgc:message_kb=1,in_flight=2", "--out", run)
        jobs = [self.start_joined(*options, "--rank", rank, workers=2, OMP_NUM_THREADS="2") for rank in range(2)]
        wait_until(lambda: has_stepped(run), "the first step", jobs[0])
        self.assert_one_listens(jobs[0].pid, 2 + 1 + 2)  # the first and OpenMP's, the group's; two lanes

    def test_a_killed_process_ends_the_others(self):
        run = self.folder / "run"
        options = ("--epochs", 100000, "--timeout", 30, "--out", run)
        jobs = [self.start_joined(*options, "--rank", rank) for rank in range(3)]
        wait_until(lambda: has_stepped(run), "the first step", jobs[0])
        os.kill(jobs[1].pid, signal.SIGKILL)
        self.assert_refused([jobs[0], jobs[2]], 3, "rank")

    def test_a_stopped_process_ends_the_others_in_time(self):
        run = self.folder / "run"
        options = ("--epochs", 100000, "--timeout", DEADLINE, "--out", run)
        jobs = [self.start_joined(*options, "--rank", rank, **PATIENT) for rank in range(3)]
        wait_until(lambda: has_stepped(run), "the first step", jobs[0])
        os.kill(jobs[1].pid, signal.SIGSTOP)
        self.assert_refused([jobs[0], jobs[2]], 3, "rank")
        os.kill(jobs[1].pid, signal.SIGCONT)
        self.assert_refused([jobs[1]], 3, "rank")


def may_make_namespaces():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"tw-join-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made


@unittest.skipUnless(may_make_namespaces(), "needs root, and a system that lets it make network namespaces")
class TwoMachinesTest(JoinTest):
    """The same, on two machines, as far as their network is concerned: namespaces with a cable between them."""

    def setUp(self):
        super().setUp()
        self.names = [f"tw-join-{os.getpid()}-{i}" for i in range(2)]
        for i, name in enumerate(self.names):
            self.ip("netns", "add", name)
            self.addCleanup(self.ip, "netns", "del", name)
        self.ip("link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
        for i, name in enumerate(self.names):
            self.ip("-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "lo", "up")
            self.ip("-n", name, "link", "set", "eth0", "up")
        self.meeting = "10.78.0.2:29400"

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def start_on(self, machine, *options, workers=2, stderr="/dev/stderr", **env):
        launcher = ("ip", "netns", "exec", self.names[machine], "sh", "-c", f'exec "$0" "$@" 2>>{stderr}')
        return self.start_joined(*options, workers=workers, launcher=launcher, **env)

    def lose_machine(self, change):
        """"add": nothing that machine 0 says arrives any more, though its cable is well. "del": it is heard again."""
        self.ip("-n", self.names[0], "route", change, "blackhole", "10.78.0.2/32")

    def test_processes_equal_threads(self):
        options = ("--sync", "dgc:density=0.01", "--steps", 6, "--check-every", 1)
        self.assert_alike(self.train(*options, "--workers", 2),
                          self.finish_all([self.start_on(machine, *options) for machine in (0, 1)]))

    def test_a_cable_that_is_cut_ends_both_in_time(self):
        runs = [self.folder / "0", self.folder / "1"]
        options = ("--epochs", 100000, "--timeout", DEADLINE)
        jobs = [self.start_on(i, *options, "--rank", 1 - i, "--out", runs[i], **PATIENT) for i in (0, 1)]
        wait_until(lambda: has_stepped(runs[1]), "the first step", jobs[1])
        self.ip("-n", self.names[0], "link", "set", "eth0", "down")
        self.assert_refused(jobs, 3, "rank")

    def test_a_machine_that_vanishes_is_given_up_in_time(self):
        """Its process ends, and its system cannot tell: the connection is half open."""
        runs = [self.folder / "0", self.folder / "1"]
        options = ("--epochs", 100000, "--timeout", DEADLINE)
        jobs = [self.start_on(i, *options, "--rank", 1 - i, "--out", runs[i], **PATIENT) for i in (0, 1)]
        wait_until(lambda: has_stepped(runs[1]), "the first step", jobs[1])
        self.lose_machine("add")
        os.kill(jobs[0].pid, signal.SIGKILL)
        self.assert_refused([jobs[1]], 3, "rank 1", f"nothing was heard of it for a timeout of {DEADLINE} seconds")

    def test_a_machine_that_comes_back_too_late_is_refused(self):
        """The others have gone on: neither its process nor a new one with its rank can take part any more."""
        said, runs = self.folder / "said", [self.folder / str(rank) for rank in range(3)]
        jobs = [self.start_on(machine, "--sync", "adpsgd-random", "--epochs", 100000, "--timeout", DEADLINE, "--rank", rank,
                              "--out", runs[rank], workers=3, stderr=stderr, **PATIENT)
                for rank, machine, stderr in ((0, 1, said), (1, 1, "/dev/stderr"), (2, 0, "/dev/stderr"))]
        wait_until(lambda: has_stepped(runs[0]), "the first step", jobs[0])
        self.lose_machine("add")
        os.kill(jobs[2].pid, signal.SIGSTOP)
        wait_until(lambda: "1 of 3 workers lost" in said.read_text(), "the others go on", jobs[0])
        self.lose_machine("del")
        self.assert_refused([self.start_on(0, "--sync", "adpsgd-random", "--rank", 2, workers=3)], 3, "the group is complete")
        os.kill(jobs[2].pid, signal.SIGCONT)
        self.assert_refused([jobs[2]], 3, "rank")
        self.assertEqual([jobs[0].poll(), jobs[1].poll()], [None, None])


# What one machine has shown is not shown again.
for name in [name for name in dir(JoinTest) if name.startswith("test_") and name not in TwoMachinesTest.__dict__]:
    setattr(TwoMachinesTest, name, None)

if __name__ == "__main__":
    run_tests()
