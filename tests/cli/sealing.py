"""--seal: ranks that encrypt and sign what they say to each other."""
import json
import os
import unittest

from support import MPI_ENVIRONMENT, PROGRAM, CommandLineTest, free_place, free_port, listens, needs_mpi, run_tests, under_mpi, wait_until, without_notes

HAS_TCP = (PROGRAM.parent / "libthinwire_tcp.so").exists()
HAS_SEAL = (PROGRAM.parent / "libthinwire_sealed.so").exists()


@unittest.skipUnless(HAS_SEAL, "needs libthinwire_sealed")
class SealingTest(CommandLineTest):
    def make_key(self, name, content=None, mode=0o600):
        path = self.folder / name
        path.write_bytes(os.urandom(32) if content is None else content)
        path.chmod(mode)
        return path

    def test_threads_have_nothing_to_seal(self):
        self.refuse_training(2, ["--seal", "threads"], "--seal", "--key-file", self.make_key("key"), "--workers", 2)

    @unittest.skipUnless(HAS_TCP, "needs libthinwire_tcp")
    def test_sealed_processes_equal_threads(self):
        words = self.train_words("--quiet", "--json", "-", "--steps", 4, "--workers", 2, "--join", free_place(), "--seal",
                                 "--key-file", self.make_key("key"))
        done = self.complete_all([self.start_program(*words) for _ in range(2)])
        said = [json.loads(one.stdout) for one in done if one.stdout]
        self.assertEqual(said[0]["weights_crc32c"], self.train("--steps", 4, "--workers", 2)["weights_crc32c"])

    @unittest.skipUnless(HAS_TCP, "needs libthinwire_tcp")
    def test_a_seal_on_one_side_only_is_named_on_both(self):
        """Neither drops its seal, and neither side has to guess."""
        for seals in (["--seal"], []):
            port = free_port()
            words = self.train_words("--quiet", "--steps", 2, "--workers", 2, "--join", f"127.0.0.1:{port}",
                                     "--key-file", self.make_key(f"key{len(seals)}"))
            first = self.start_program(*words, "--rank", 0, *seals)
            wait_until(lambda: listens(port), "somebody listens", first)
            other = self.run_program(*words, *([] if seals else ["--seal"]))
            sentence = "seal on all ranks or on none (--seal)"
            told = without_notes(other.stderr)
            self.assertEqual((other.returncode, len(told)), (3, 1), other.stderr)
            self.assertIn(sentence, told[0])
            self.assertIn(sentence, next(line for line in first.stderr if without_notes(line)))
            self.complete_all((first, self.start_program(*words, *seals)))

    @needs_mpi
    def test_sealed_ranks_equal_threads(self):
        key = self.make_key("key")
        for sync in ("dgc:density=0.01", "adpsgd-d1"):
            options = ("--sync", sync, "--steps", 6)
            threads = self.train(*options, "--workers", 3)
            ranks = self.train(*options, "--seal", "--key-file", key, **under_mpi(3))
            for name in ("weights_crc32c", "metric", "train_loss", "bytes") if sync[:3] == "dgc" else ("metric",):
                self.assertEqual(threads[name], ranks[name], name)

    @unittest.skipUnless(HAS_TCP, "needs libthinwire_tcp")
    def test_a_seal_that_the_environment_asks_for_is_not_forgotten(self):
        """Whoever set the variable and left --seal out is told, and nothing is written."""
        out = self.folder / "run"
        done = self.run_program(*self.train_words("--steps", 2, "--workers", 2, "--join", "127.0.0.1:9", "--out", out, "--quiet"),
                                env={"THINWIRE_SEAL_OVER": "tcp"})
        self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), done.stderr)
        for word in ('THINWIRE_SEAL_OVER is "tcp"', "add --seal --key-file FILE", "unset"):
            self.assertIn(word, done.stderr)
        self.assertFalse(out.exists())

    @needs_mpi
    def test_nor_under_mpirun(self):
        code, told = self.ours(env={**MPI_ENVIRONMENT, "THINWIRE_SEAL_OVER": "mpi"}, launcher=under_mpi(2)["launcher"])
        self.assertEqual(code, 2)
        self.assertTrue(told)
        for line in told:
            self.assertIn('THINWIRE_SEAL_OVER is "mpi"', line)

    def ours(self, *options, **where):
        done = self.run_program(*self.train_words("--quiet", "--steps", 2, *options), **where)
        return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("thinwire: ")]

    def refuse_on_ranks(self, culprit, *options, **where):
        """Each rank tells, unless mpirun has ended it because another one has."""
        code, told = self.ours("--seal", *options, **where)
        self.assertEqual(code, 2)
        self.assertTrue(told)
        for line in told:
            self.assertIn(culprit, line)

    @needs_mpi
    def test_what_lacks_or_is_no_key_is_refused(self):
        for culprit, options in {"--key-file": (), "/nonexistent": ("--key-file", "/nonexistent"),
                                 "characters": ("--key-file", self.make_key("short", b"short\n"))}.items():
            with self.subTest(culprit):
                self.refuse_on_ranks(culprit, *options, **under_mpi(2))

    @needs_mpi
    def test_a_key_that_others_can_read_is_told(self):
        code, told = self.ours("--seal", "--key-file", self.make_key("open", mode=0o644), **under_mpi(2))
        self.assertEqual((code, len(told)), (0, 1), told)
        self.assertIn("chmod 600", told[0])

    @needs_mpi
    def test_a_rank_with_another_key_is_named(self):
        for rank in range(3):
            self.make_key(f"key{rank}", b"the key of the first two of them\n" if rank < 2 else b"the key of somebody else, of rank 2\n")
        script = f'exec "$0" "$@" --key-file {self.folder}/key$OMPI_COMM_WORLD_RANK'
        launcher = ("mpirun", "--oversubscribe", "-n", "3", "sh", "-c", script)
        self.refuse_on_ranks("rank 2", "--timeout", 30, launcher=launcher, env=MPI_ENVIRONMENT)


if __name__ == "__main__":
    run_tests()
