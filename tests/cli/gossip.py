"""Training by gossip: every scheme ends in one set of weights, however the workers fared on the way."""
import json
import os
import signal
import subprocess

from gradients import read_tensors
from support import (MPI_ENVIRONMENT, PROGRAM, TEST, CommandLineTest, has_stepped, needs_mpi, run_tests, under_mpi,
                     wait_until)

import parts

ALONE_LIKE_ALLREDUCE = ("adpsgd-fixed", "adpsgd-random", "adpsgd-d1", "dpsgd", "prague")


class GossipTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        listed = subprocess.run([PROGRAM, "schemes"], capture_output=True, text=True, check=True).stdout.split("\n\n")
        weights, = [group for group in listed if group.startswith("Workers exchange weights")]
        cls.schemes = [line.split()[0] for line in weights.splitlines()[1:]]

    def check_summary(self, summary, workers, steps):
        self.assertEqual((summary["workers"], summary["steps"], summary["steps_skipped"]), (workers, steps, 0))
        correct = summary["metric"]["value"] * TEST
        self.assertAlmostEqual(correct, round(correct), places=6)
        ratio = summary["ratio"]
        self.assertEqual((ratio["compressed"], ratio["message"], summary["density"]), (None, None, None))
        dense = 2 * (workers - 1) * (4 * summary["parameters"]) // workers
        self.assertAlmostEqual(summary["bytes"]["dense"], dense * steps, delta=steps)
        self.assertEqual(summary["bytes"]["sent"] > 0, workers > 1)

    def test_every_scheme_trains_on_three_workers(self):
        """That all replicas hold the same weights is checked by the run itself, before it ends."""
        self.check_numbers(3)

    @parts.extra
    def test_every_scheme_trains_on_other_numbers_of_workers(self):
        self.check_numbers(1, 2, 4)

    def check_numbers(self, *numbers):
        for sync in self.schemes:
            for workers in numbers:
                with self.subTest(sync=sync, workers=workers):
                    self.check_summary(self.train("--workers", workers, "--sync", sync, "--steps", 5), workers, 5)

    def test_alone_it_is_plain_sgd_bit_for_bit(self):
        self.check_alone("--nesterov", "--weight-decay", 1e-3)

    @parts.extra
    def test_alone_it_is_the_plainest_sgd_bit_for_bit(self):
        self.check_alone()

    def check_alone(self, *form):
        plain = self.train("--steps", 12, *form)
        for sync in ALONE_LIKE_ALLREDUCE:
            with self.subTest(sync=sync):
                summary = self.train("--steps", 12, "--sync", sync, *form)
                for key in ("weights_crc32c", "metric", "loss", "train_loss"):
                    self.assertEqual(summary[key], plain[key], key)

    def test_a_checkpoint_cuts_no_round_short(self):
        """A round of gasloc is so many steps, and a meeting for a checkpoint begins a new one."""
        options = ("--workers", 2, "--steps", 8, "--checkpoint-every")
        done = self.run_program(*self.train_words("--sync", "gasloc:every=4", *options, 6, "--out", self.folder / "6"))
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("--checkpoint-every 6: ", done.stderr)
        self.assertIn("write a multiple of its every=4", done.stderr)
        self.refuse_training(2, ['dpsgd: no option "every"'], *options, 6, "--out", self.folder / "none", "--sync", "dpsgd:every=4")
        sums = {self.train("--sync", f"gasloc:every=4,outer_lr={rate}", *options, 4, "--out", self.folder / str(rate))
                ["weights_crc32c"] for rate in (0.5, 2)}
        self.assertEqual(len(sums), 2)

    def test_it_clips_as_schemes_that_compress_do(self):
        """After one step from equal weights the consensus is where the mean of all clipped gradients leads."""
        options = ("--workers", 4, "--steps", 1, "--warmup", 0, "--momentum", 0, "--lr", 1)
        gossip, compressed, other = (self.train(*options, "--clip", clip, "--sync", sync)["loss"] for clip, sync in (
            (0.1, "dpsgd"), (0.1, "topk:density=1,values=fp32,leftovers=fp32"), (0.05, "dpsgd")))
        self.assertAlmostEqual(gossip, compressed, places=5)
        self.assertGreater(abs(gossip - other), 1e-3)

    def test_a_synchronous_scheme_has_the_same_bits_every_time(self):
        for sync in ("dpsgd", "adpsgd-d1"):
            first, again = (self.train("--workers", 3, "--steps", 6, "--sync", sync) for _ in range(2))
            self.assertEqual(first["weights_crc32c"], again["weights_crc32c"])

    def test_it_learns(self):
        """At a rate that it bears however long workers wait for a core; at four times as much some runs diverge."""
        summary = self.train("--workers", 3, "--sync", "adpsgd-random", "--epochs", 15, "--lr", 0.005, "--warmup", 20,
                             "--schedule", "constant")
        self.assertGreater(summary["metric"]["value"], 0.9)

    def test_rank_0_tells_what_is_its_own(self):
        out = self.folder / "run"
        summary = self.train("--workers", 2, "--epochs", 2, "--sync", "adpsgd-fixed", "--out", out)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        epochs = [line for line in lines if line["kind"] == "epoch"]
        self.assertEqual([line["weights"] for line in epochs], ["own", "all"])
        self.assertEqual(epochs[-1]["accuracy"], summary["metric"]["value"])
        self.assertEqual(lines[0]["tensors"][0]["plan"], "averaged with other workers'")

    def test_batch_norm_statistics_are_averaged(self):
        self.train("--model", "resnet20", "--workers", 2, "--steps", 2, "--sync", "adpsgd-random", "--out", self.folder)
        model, first, second = (read_tensors(self.folder / f"checkpoints/step-00000002/{name}.safetensors")
                                for name in ("model", "worker-0", "worker-1"))
        statistics = [name for name in model if "running" in name]
        self.assertGreater(len(statistics), 30)
        for name in statistics:
            self.assertNotEqual(first[name], second[name], name)
            for mean, own, other in zip(model[name][1], first[name][1], second[name][1]):
                self.assertAlmostEqual(mean, (own + other) / 2, delta=1e-6 * (1 + abs(mean)))

    def test_slow_and_standing_workers_lose_nothing(self):
        handicaps = ("--slow", "1:3,0:1", "--pause", "0:2:0.01,1:1:0.01,0:5:0")
        for sync in ("allreduce", "dpsgd"):
            plain = self.train("--workers", 2, "--steps", 5, "--sync", sync)
            slow = self.train("--workers", 2, "--steps", 5, "--sync", sync, *handicaps)
            self.assertEqual(slow["weights_crc32c"], plain["weights_crc32c"])
        self.check_summary(self.train("--workers", 2, "--steps", 5, "--sync", "adpsgd-random", *handicaps), 2, 5)

    def test_gradients_can_be_kept(self):
        self.train("--workers", 2, "--steps", 4, "--sync", "prague", "--dump-gradients", self.folder, "--dump-steps", 3)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["step-000003.safetensors"])


class EndingTest(CommandLineTest):
    def test_nan_ends_with_four(self):
        for sync in ("adpsgd-random", "adpsgd-d1"):
            self.refuse_training(4, ["diverged", "--lr"], "--lr", "1e6", "--warmup", "0", "--momentum", "0.99",
                                 "--workers", "2", "--steps", "200", "--sync", sync)

    def test_a_resumed_run_goes_on_from_the_consensus(self):
        """Alone there is nothing but the consensus and the momentum, so it is the whole run bit for bit."""
        for workers in (1, 3):
            out = self.folder / str(workers)
            options = ("--workers", workers, "--sync", "adpsgd-random", "--schedule", "constant")
            self.train(*options, "--steps", 4, "--out", out)
            resumed = self.train(*options, "--steps", 9, "--out", out, "--resume")
            self.assertEqual(resumed["steps"], 9)
            if workers == 1:
                self.assertEqual(resumed["weights_crc32c"], self.train(*options, "--steps", 9)["weights_crc32c"])

    def test_checkpoints_on_the_way_are_meetings(self):
        """A synchronous scheme that meets for a checkpoint continues from it as a run resumed from it does."""
        out = self.folder / "run"
        options = ("--workers", 2, "--sync", "dpsgd", "--schedule", "constant", "--steps", 8)
        whole = self.train(*options, "--out", out, "--checkpoint-every", 3)
        self.assertEqual(sorted(path.name for path in out.glob("checkpoints/*")), ["step-00000006", "step-00000008"])
        again = self.train(*options, "--resume", out / "checkpoints/step-00000006")
        self.assertEqual(again["weights_crc32c"], whole["weights_crc32c"])
        self.assertEqual(again["bytes"]["dense"], whole["bytes"]["dense"])

    def interrupt(self, out, *options):
        """Stops a run after its first line of metrics."""
        job = self.start_program(*self.train_words("--epochs", 100000, "--out", out, *options))
        wait_until(lambda: has_stepped(out), "the first step", job)
        job.send_signal(signal.SIGINT)
        return self.finish(job)

    def test_an_interrupted_run_ends_in_a_checkpoint_of_all(self):
        self.check_interrupting("adpsgd-random", "dpsgd")

    @parts.extra
    def test_others_that_are_interrupted_end_in_a_checkpoint_of_all(self):
        self.check_interrupting("adpsgd-fixed", "prague", "adpsgd-d1")

    def check_interrupting(self, *schemes):
        for sync in schemes:
            with self.subTest(sync=sync):
                out = self.folder / sync
                options = ("--workers", 3, "--sync", sync, "--schedule", "constant")
                done = self.interrupt(out, *options)
                self.assert_interrupted(done)
                self.assertIn("interrupted after step", done.stdout)
                checkpoint, = out.glob("checkpoints/*")
                step = int(checkpoint.name.removeprefix("step-"))
                self.assertEqual(self.train(*options, "--steps", step + 5, "--resume", out)["steps"], step + 5)


class ResumeTest(CommandLineTest):
    def resume(self, *options):
        done = self.complete(*self.train_words("--quiet", "--json", "-", "--schedule", "constant", *options))
        told = done.stderr.splitlines()
        self.assertEqual(len(told), 1, done.stderr)
        return json.loads(done.stdout), told[0]

    def test_with_fewer_and_with_more_workers(self):
        """It goes on from the consensus: the mean of two copies is exact, that of five nearly so. (The running statistics
        of two of three workers are not those of three; whoever is new begins with their mean.)"""
        out = self.folder / "run"
        whole = self.train("--workers", 3, "--sync", "adpsgd-random", "--steps", 4, "--out", out,
                           "--schedule", "constant", "--model", "resnet20")
        for workers, word in ((2, "is left there"), (5, "no momentum")):
            with self.subTest(workers=workers):
                options = ("--workers", workers, "--sync", "adpsgd-random", "--model", "resnet20",
                           "--resume", out / "checkpoints/step-00000004")
                same, told = self.resume(*options, "--steps", 4)
                if workers == 2:
                    self.assertEqual(same["weights_crc32c"], whole["weights_crc32c"])
                else:
                    self.assertAlmostEqual(same["loss"], whole["loss"], places=3)
                self.assertIn("of 3 workers", told)
                self.assertIn(word, told)
                further, _ = self.resume(*options, "--steps", 6)
                self.assertEqual((further["steps"], further["workers"]), (6, workers))


@needs_mpi
class LostTest(CommandLineTest):
    """Processes that are killed, from outside, once there is progress."""
    def lose(self, victim, launcher_options, is_time, *options):
        """A run of four that loses one when `is_time` says so of its folder; the launcher's code, and what was said."""
        pids, out = self.folder, self.folder / "run"
        script = f'echo $$ >{pids}/pid-$OMPI_COMM_WORLD_RANK; exec "$0" "$@"'
        words = self.train_words("--quiet", "--timeout", 20, "--out", out, "--schedule", "constant", *options)
        launcher = ("mpirun", "--oversubscribe", *launcher_options, "-n", "4", "sh", "-c", script)
        job = self.start_program(*words, launcher=launcher, env=MPI_ENVIRONMENT)
        wait_until(lambda: is_time(out), "the time to kill", job)
        os.kill(int((pids / f"pid-{victim}").read_text()), signal.SIGKILL)
        done = self.finish(job)
        told = [line for line in done.stderr.splitlines() if line.startswith("thinwire: ")]
        return done.returncode, told, done.stderr

    @staticmethod
    def checkpoints(out):
        return sorted(out.glob("checkpoints/step-????????"))

    def test_the_others_go_on(self):
        for victim in (2, 0):
            with self.subTest(victim=victim):
                self.folder = self.folder / str(victim)
                self.folder.mkdir()
                code, told, stderr = self.lose(victim, ["--enable-recovery"], has_stepped, "--sync", "adpsgd-random",
                                               "--steps", 4000)
                self.assertEqual((code, len(told)), (0, 1), stderr)
                self.assertIn("1 of 4 workers lost", told[0])
                summary = json.loads((self.folder / "run/summary.json").read_text())
                self.assertEqual((summary["workers"], summary["steps"]), (3, 4000))
                checkpoint = self.folder / "run/checkpoints/step-00004000"
                self.assertEqual(len(list(checkpoint.glob("worker-*"))), 3)

    def test_where_the_launcher_ends_the_run_fewer_take_it_up(self):
        code, _, stderr = self.lose(1, [], self.checkpoints, "--sync", "adpsgd-random", "--steps", 100000,
                                    "--checkpoint-every", 10)
        self.assertNotEqual(code, 0, stderr)
        newest = self.checkpoints(self.folder / "run")[-1]
        step = int(newest.name.removeprefix("step-"))
        done = self.complete(*self.train_words("--quiet", "--json", "-", "--workers", 3, "--sync", "adpsgd-random",
                                               "--schedule", "constant", "--steps", step + 5, "--resume", newest))
        self.assertIn("of 4 workers, this run has 3", done.stderr)
        self.assertEqual(json.loads(done.stdout)["steps"], step + 5)


@needs_mpi
class MpiTest(CommandLineTest):
    def test_three_ranks(self):
        for sync in ("adpsgd-random", "adpsgd-fixed", "prague"):
            summary = self.train("--sync", sync, "--steps", 5, **under_mpi(3))
            self.assertEqual((summary["transport"], summary["workers"], summary["steps"]), ("mpi", 3, 5))

    def test_synchronous_ranks_equal_threads(self):
        for sync in ("dpsgd", "adpsgd-d1"):
            options = ("--sync", sync, "--steps", 5)
            threads, ranks = self.train(*options, "--workers", 3), self.train(*options, **under_mpi(3))
            for key in ("weights_crc32c", "metric", "loss", "train_loss"):
                self.assertEqual(threads[key], ranks[key], key)

    def test_divergence_is_told_once(self):
        done = self.run_program(*self.train_words("--quiet", "--sync", "adpsgd-random", "--lr", 1e6, "--warmup", 0,
                                                  "--momentum", 0.99, "--steps", 200),
                                **under_mpi(3))
        told = [line for line in done.stderr.splitlines() if line.startswith("thinwire: ") and "diverged" in line]
        self.assertEqual((done.returncode, len(told)), (4, 1), done.stderr)


if __name__ == "__main__":
    run_tests()
