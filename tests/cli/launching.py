"""Threads and MPI ranks: the same bits, one voice, and every way to end."""
import os
import signal

from support import MPI_ENVIRONMENT, PROGRAM, CommandLineTest, has_stepped, needs_mpi, run_tests, under_mpi, wait_until


class DivergenceTest(CommandLineTest):
    def test_nan_ends_with_four(self):
        for workers in ("1", "2"):
            self.refuse_training(4, ["diverged", "--lr"], "--lr", "1e6", "--workers", workers, "--steps", "100")

    def test_no_checkpoint_is_written_of_a_run_that_has_diverged(self):
        self.refuse_training(4, ["diverged"], "--lr", "1e6", "--steps", "100", "--out", self.folder)
        self.assertEqual(list(self.folder.glob("checkpoints/step-*")), [])


class OpeningTest(CommandLineTest):
    def test_a_start_that_does_not_end_is_given_up(self):
        """With a transport beside the library that opens as MPI_Init does when a rank has died in it: never."""
        for library in PROGRAM.parent.glob("libthinwire.so*"):
            (self.folder / library.name).symlink_to(library)
        (self.folder / "libthinwire_mpi.so").symlink_to(PROGRAM.parent / "libthinwire_stuck.so")
        done = self.run_program(*self.train_words("--quiet", "--transport", "mpi", "--timeout", 0.5),
                                env={"LD_LIBRARY_PATH": str(self.folder)})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stderr, "thinwire: MPI_Init did not end within 20 seconds: "
                                      "a rank may have died while starting; see --timeout\n")


@needs_mpi
class MpiTest(CommandLineTest):
    def test_ranks_equal_threads(self):
        for sync in ("allreduce", "dgc:density=0.01", "dgc:density=0.01,per_host=3"):
            options = ("--sync", sync, "--steps", 6, "--crop", 2, "--check-every", 1)
            threads = self.train(*options, "--workers", 3)
            ranks = self.train(*options, **under_mpi(3))
            self.assertEqual((threads["transport"], ranks["transport"]), ("threads", "mpi"))
            for key in ("weights_crc32c", "metric", "loss", "train_loss", "bytes", "workers"):
                self.assertEqual(threads[key], ranks[key], key)

    def test_no_bar_goes_through_the_launcher(self):
        """mpirun gives ranks a terminal of its own, whatever its own output is."""
        done = self.run_program(*self.train_words("--steps", 60, "--model", "resnet20"), **under_mpi(2))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("epoch 1", done.stdout)
        self.assertNotIn("\033", done.stdout)

    def test_threads_resume_what_ranks_saved(self):
        options = ("--sync", "dgc", "--schedule", "constant")
        whole = self.train(*options, "--steps", 6, "--workers", 2)
        self.train(*options, "--steps", 3, "--out", self.folder, **under_mpi(2))
        resumed = self.train(*options, "--steps", 6, "--workers", 2, "--out", self.folder, "--resume")
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])

    def assert_told_once(self, code, culprit, *options):
        """mpirun has words of its own on stderr; ours is one line."""
        done = self.run_program(*self.train_words("--quiet", *options), **under_mpi(2))
        self.assertEqual(done.returncode, code, done.stderr)
        told = [line for line in done.stderr.splitlines() if line.startswith("thinwire: ")]
        self.assertEqual(len(told), 1, done.stderr)
        self.assertIn(culprit, told[0])

    def test_a_failure_of_all_is_told_once(self):
        self.assert_told_once(2, "--workers", "--workers", "4")
        self.assert_told_once(2, "vgg", "--model", "vgg")
        self.assert_told_once(2, "densty", "--sync", "dgc:densty=1")
        self.assert_told_once(2, "/nonexistent", "--data", "/nonexistent")
        self.assert_told_once(2, "--wrkers", "--wrkers", "4")
        self.assert_told_once(2, "--expect-ratio", "--expect-ratio", "2", "--steps", "2")
        self.assert_told_once(2, "/proc/gradients", "--dump-gradients", "/proc/gradients")
        self.assert_told_once(4, "diverged", "--lr", "1e6", "--steps", "100")

    def test_a_killed_rank_ends_the_others(self):
        for sync in ("allreduce", "dpsgd", "adpsgd-random:survive=off"):
            with self.subTest(sync=sync):
                folder = self.folder / sync.split(":")[0]
                folder.mkdir()
                self.kill_a_rank(folder, "--sync", sync)

    def kill_a_rank(self, folder, *options):
        """Rank 1 leaves its process id, rank 0 its exit code: with --enable-recovery, mpirun itself returns 0."""
        pid, code = folder / "pid", folder / "code"
        script = f'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then echo $$ >{pid}; exec "$0" "$@"; fi; "$0" "$@"; echo $? >{code}'
        words = self.train_words("--quiet", "--epochs", 100000, "--timeout", 2, "--out", folder / "run", *options)
        launcher = ("mpirun", "--oversubscribe", "--enable-recovery", "-n", "2", "sh", "-c", script)
        job = self.start_program(*words, launcher=launcher, env=MPI_ENVIRONMENT)
        wait_until(lambda: has_stepped(folder / "run"), "the first step", job)
        os.kill(int(pid.read_text()), signal.SIGKILL)
        stderr = self.finish(job).stderr
        told = [line for line in stderr.splitlines() if line.startswith("thinwire: ")]
        self.assertEqual((code.read_text().strip(), len(told)), ("3", 1), stderr)
        self.assertIn("rank 1", told[0])


if __name__ == "__main__":
    run_tests()
