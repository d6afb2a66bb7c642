"""Threads and MPI ranks: the same bits, one voice, and every way to end."""
import json
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


class SignalTest(CommandLineTest):
    """A handler on the stack of a thread that computes damages what oneDNN's kernels keep there."""
    OPTIONS = ("--quiet", "--epochs", 100000, "--sync", "dgc:message_kb=1,in_flight=2")

    def test_no_thread_that_computes_handles_signals(self):
        words = self.train_words(*self.OPTIONS, "--workers", 2, "--out", self.folder / "run")
        job = self.start_program(*words, env={"OMP_NUM_THREADS": "2"})
        wait_until(lambda: has_stepped(self.folder / "run"), "the first step", job)
        self.assert_one_listens(job.pid, 1 + 1 + 2 * 4)  # the first, the listener; two that compute and two lanes each

    @needs_mpi
    def test_nor_does_one_of_a_rank(self):
        pid = self.folder / "pid"
        script = f'[ $OMPI_COMM_WORLD_RANK = 1 ] && echo $$ >{pid}; exec "$0" "$@"'
        launcher = ("mpirun", "--oversubscribe", "-n", "2", "sh", "-c", script)
        job = self.start_program(*self.train_words(*self.OPTIONS, "--out", self.folder / "run"), launcher=launcher,
                                 env={**MPI_ENVIRONMENT, "OMP_NUM_THREADS": "2"})
        wait_until(lambda: has_stepped(self.folder / "run"), "the first step", job)
        self.assert_one_listens(int(pid.read_text()), 1 + 1 + 2)


class CrowdTest(CommandLineTest):
    def test_many_workers_on_a_core_are_told(self):
        """The core is one that this process may use; the task has been taken by then, and the seats are refused for --slow."""
        one_core = ("taskset", "-c", min(os.sched_getaffinity(0)))
        told = "64 workers are threads of this program and share 1 core;"
        for workers, options, count in ((64, (), 1), (63, (), 0), (64, ("--quiet",), 0)):
            words = self.train_words("--batch", 1, "--workers", workers, "--slow", "99:2", *options)
            done = self.run_program(*words, launcher=one_core)
            self.assertIn("names no rank", done.stderr)
            self.assertEqual(done.stderr.count(told), count, done.stderr)


class SlurmTest(CommandLineTest):
    """Tasks of a plain srun have no way to find each other."""
    def test_tasks_that_do_not_know_each_other_are_refused(self):
        words = self.train_words("--steps", 1)
        first, second = (self.run_program(*words, env={"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": task}) for task in "01")
        self.assertEqual((first.returncode, second.returncode, second.stderr), (2, 2, ""))
        for word in ("4 tasks", "srun --mpi=pmix", "--join", "--transport threads"):
            self.assertIn(word, first.stderr)

    def test_one_task_and_who_means_it_train(self):
        for tasks, options in (("1", ()), ("4", ("--transport", "threads"))):
            words = self.train_words("--steps", 1, "--quiet", *options)
            self.succeed(*words, env={"SLURM_STEP_NUM_TASKS": tasks, "SLURM_PROCID": "0"})

    @needs_mpi
    def test_a_launcher_that_mpi_does_not_know_is_noticed(self):
        """As under srun --mpi=pmi2 with an MPI that lacks it: each process is a world of its own."""
        done = self.run_program(*self.train_words("--steps", 1, "--transport", "mpi"),
                                env={**MPI_ENVIRONMENT, "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("4 tasks that do not know each other", done.stderr)


class OpeningTest(CommandLineTest):
    def test_a_start_that_does_not_end_is_given_up(self):
        """With a transport beside the library that opens as MPI_Init does when a rank has died in it: never."""
        for library in PROGRAM.parent.glob("libthinwire.so*"):
            (self.folder / library.name).symlink_to(library)
        (self.folder / "libthinwire_mpi.so").symlink_to(PROGRAM.parent / "libthinwire_stuck.so")
        done = self.run_program(*self.train_words("--quiet", "--transport", "mpi", "--timeout", 600),
                                env={"LD_LIBRARY_PATH": str(self.folder), "THINWIRE_JOIN_SECONDS": "0.5"})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stderr, "thinwire: MPI_Init did not end within 0.5 seconds: "
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
        done = self.complete(*self.train_words("--steps", 60, "--model", "resnet20"), **under_mpi(2))
        self.assertIn("epoch 1", done.stdout)
        self.assertNotIn("\033", done.stdout)

    def test_threads_resume_what_ranks_saved(self):
        options = ("--sync", "dgc", "--schedule", "constant")
        whole = self.train(*options, "--steps", 6, "--workers", 2)
        self.train(*options, "--steps", 3, "--out", self.folder, **under_mpi(2))
        resumed = self.train(*options, "--steps", 6, "--workers", 2, "--out", self.folder, "--resume")
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])

    def take_over(self, *options, **keywords):
        """What is done is told in one line, of one rank."""
        done = self.run_program(*self.train_words("--quiet", "--json", "-", *options), **keywords)
        told = [line for line in done.stderr.splitlines() if line.startswith("thinwire: ")]
        self.assertEqual((done.returncode, len(told)), (0, 1), done.stderr)
        self.assertIn("is of 3 workers, this run has 2: what they held back is shared out", told[0])
        return json.loads(done.stdout)

    def test_ranks_take_over_what_threads_saved(self):
        options = ("--sync", "dgc", "--schedule", "constant", "--steps", 6)
        self.train(*options[:-1], 3, "--workers", 3, "--out", self.folder)
        start = ("--resume", self.folder / "checkpoints/step-00000003")
        threads = self.take_over(*options, "--workers", 2, *start)
        ranks = self.take_over(*options, *start, **under_mpi(2))
        self.assertEqual((ranks["workers"], ranks["steps"], ranks["transport"]), (2, 6, "mpi"))
        for key in ("weights_crc32c", "metric", "loss", "train_loss", "bytes"):
            self.assertEqual(threads[key], ranks[key], key)

    def assert_told_once(self, code, culprit, *options):
        """mpirun has words of its own on stderr; ours is one line."""
        done = self.run_program(*self.train_words("--quiet", *options), **under_mpi(2))
        self.assertEqual(done.returncode, code, done.stderr)
        told = [line for line in done.stderr.splitlines() if line.startswith("thinwire: ")]
        self.assertEqual(len(told), 1, done.stderr)
        self.assertIn(culprit, told[0])

    def test_a_failure_of_all_is_told_once(self):
        self.assert_told_once(2, "--workers", "--workers", "4")
        self.assert_told_once(2, "densty", "--sync", "dgc:densty=1")
        self.assert_told_once(2, "/nonexistent", "--data", "/nonexistent")
        self.assert_told_once(2, "did you mean dgc?", "--sync", "dcg", "--data", "/nonexistent")
        self.assert_told_once(2, "--wrkers", "--wrkers", "4")
        self.assert_told_once(2, "--expect-ratio", "--expect-ratio", "2", "--steps", "2")
        self.assert_told_once(2, "/proc/gradients", "--dump-gradients", "/proc/gradients")
        self.assert_told_once(4, "diverged", "--lr", "1e6", "--steps", "100")

    def test_a_killed_rank_ends_the_others_and_another_tells(self):
        for sync, victim in (("allreduce", 0), ("dpsgd", 1), ("adpsgd-random:survive=off", 1)):
            with self.subTest(sync=sync):
                folder = self.folder / sync.split(":")[0]
                folder.mkdir()
                self.kill_a_rank(folder, victim, "--sync", sync)

    def kill_a_rank(self, folder, victim, *options):
        """It leaves its process id, the other its exit code: with --enable-recovery, mpirun itself returns 0."""
        pid, code = folder / "pid", folder / "code"
        script = (f'if [ $OMPI_COMM_WORLD_RANK = {victim} ]; then echo $$ >{pid}; exec "$0" "$@"; fi; '
                  f'"$0" "$@"; echo $? >{code}')
        words = self.train_words("--quiet", "--epochs", 100000, "--timeout", 20, "--out", folder / "run", *options)
        launcher = ("mpirun", "--oversubscribe", "--enable-recovery", "-n", "2", "sh", "-c", script)
        job = self.start_program(*words, launcher=launcher, env=MPI_ENVIRONMENT)
        wait_until(lambda: has_stepped(folder / "run"), "the first step", job)
        os.kill(int(pid.read_text()), signal.SIGKILL)
        stderr = self.finish(job).stderr
        told = [line for line in stderr.splitlines() if line.startswith("thinwire: ")]
        self.assertEqual((code.read_text().strip(), len(told)), ("3", 1), stderr)
        self.assertIn(f"rank {victim}", told[0])


if __name__ == "__main__":
    run_tests()
