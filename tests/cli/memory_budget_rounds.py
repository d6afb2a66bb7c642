"""--memory-budget with several workers: rounds have the bits of those in memory, over threads and processes; checkpoints
go on in both directions; and who is killed while a group is loaded, written or exchanged leaves nothing behind."""
import json
import unittest
import zlib

import asr
import w2v_bert
from checkpoint_file import split_file
from joining import Joining
from memory_budget import SAME, BudgetTest
from support import PROGRAM, free_place, killing, run_tests, saved_steps, take_library, wait_until, write_cifar

KILLER = take_library("kill_in_file")
SHARED = 2  # arrays beside the optimiser's: the shared weights and their momentum


class RoundsTest(BudgetTest):
    def assert_same(self, task, states, syncs, workers=2):
        for sync in syncs:
            options = ("--workers", workers, "--sync", sync, "--check-every", 2)
            resident = task(*options)
            total = 4 * resident["parameters"] * (2 + states + SHARED)
            with self.subTest(sync=sync, workers=workers):
                paged = task(*options, "--memory-budget", f"{total // 4 / 1000}kB")
                self.assertEqual({key: paged[key] for key in SAME}, {key: resident[key] for key in SAME})
                self.assertEqual(paged["memory"]["total"], total)
                self.assertLessEqual(paged["memory"]["most_resident"], total / 4)
                self.assertEqual(paged["bytes"]["dense"], resident["bytes"]["dense"])
                self.assertLessEqual(resident["bytes"]["sent"] - paged["bytes"]["sent"], 500)  # words of a round


class TasksTest(RoundsTest):
    """Five steps: a round in two or three, and one at the end of what is left."""
    def test_transformer(self):
        for workers in (2, 3):
            self.assert_same(lambda *options: self.transformer("--optimizer", "sgd", "--clip", 0.5, *options), 1,
                             ("local:every=2", "diloco:every=3,outer_lr=0.9,outer_momentum=0.8"), workers)

    def test_tied_transformer_with_adam(self):
        self.assert_same(lambda *options: self.transformer("--tied", *options), 2, ("diloco:every=2,nesterov=off",), 3)

    def test_one_worker(self):
        self.assert_same(self.transformer, 2, ("diloco:every=2",), 1)

    def test_images(self):
        data = write_cifar(self.folder / "cifar")
        self.assert_same(lambda *options: self.train_task("image", "--data", data, "--model", "resnet56", "--batch", 4,
                                                     *options), 1, ("local:every=1", "diloco:every=2"))

    def test_speech(self):
        speech = asr.write_speech(self.folder / "speech")
        self.assert_same(lambda *options: self.train_task("asr", "--data", speech, "--test", speech, "--features",
                                                     "rate=8000,bins=20", "--batch", 1, "--encoder", "conformer",
                                                     "--blocks", 24, "--width", 32, "--heads", 2, "--kernel", 3,
                                                     "--channels", 4, "--freeze-steps", 2, *options), 2,
                         ("diloco:every=2",))

    def test_pretraining(self):
        data = self.folder / "corpus"
        w2v_bert.write_speakers(data / "train")
        w2v_bert.write_speakers(data / "test", 2, 2)
        self.task = "w2v-bert"
        words = self.train_words("--quiet", "--json", "-", "--data", data, *w2v_bert.SMALL, "--width", 32,
                                 "--contrastive-blocks", 12, "--masked-blocks", 12, "--batch", 2)
        def pretrain(*options):
            # which says that each worker has code statistics of its own
            return json.loads(self.complete(*words, *options).stdout)
        self.assert_same(pretrain, 2, ("diloco:every=3",), 3)


class Run(BudgetTest):
    BUDGET = ("--memory-budget", "3MB")  # of 15.4 MB
    SHAPE = ("--unit", "char", "--model", "transformer", "--layers", 12, "--hidden", 64, "--heads", 2, "--batch", 2,
             "--bptt", 8, "--schedule", "constant", "--sync", "diloco:every=4")
    task = "lm"

    def words(self, *options):
        return ("--data", self.text, *self.SHAPE, *options)

    def run_to(self, steps, *options):
        return self.train(*self.words("--workers", 2, "--steps", steps, *options))


class RunTest(Run):
    def test_resuming_in_both_directions(self):
        """Between two rounds, and after one."""
        whole = self.run_to(9)
        fits = ("--memory-budget", "1GB")
        for first, then in ((self.BUDGET, fits), ((), self.BUDGET), (self.BUDGET, ())):
            out = self.folder / f"{len(first)}-{'-'.join(then)}"
            self.run_to(8, "--out", out, "--checkpoint-every", 2, *first)
            for step in (6, 8):
                rest = self.run_to(9, "--resume", out / "checkpoints" / f"step-{step:08}", "--out",
                                   self.folder / f"{out.name}-{step}", *then)
                self.assertEqual({key: rest[key] for key in SAME[:2]}, {key: whole[key] for key in SAME[:2]})
                self.assertEqual("memory" in rest, then != fits)

    def test_what_becomes_of_tensors_is_told_alike(self):
        tables = []
        for budget in (self.BUDGET, ()):
            done = self.complete(*self.train_words(*self.words("--workers", 2, "--steps", 1, "--out", "none", *budget)))
            tables.append([line for line in done.stdout.splitlines() if line.startswith("  ")])
        self.assertEqual(*tables)
        self.assertIn("allreduce", tables[0][0])

    def test_fewer_and_more_go_on(self):
        """As in memory."""
        first = self.folder / "first"
        self.run_to(6, "--out", first, *self.BUDGET)
        for workers in (1, 3):
            ends = []
            for name, budget in (("paged", self.BUDGET), ("resident", ("--memory-budget", "1GB"))):
                done = self.run_program(*self.train_words("--quiet", "--json", "-", *self.words(
                    "--workers", workers, "--steps", 9, "--resume", first / "checkpoints" / "step-00000006", "--out",
                    self.folder / f"{name}-{workers}", *budget)))
                self.assertEqual((done.returncode, len(done.stderr.splitlines())), (0, 1), done.stderr)
                ends.append(json.loads(done.stdout))
            self.assertEqual(*({key: end[key] for key in SAME[:2]} for end in ends))

    def test_a_recorded_run_is_predicted(self):
        """In memory: its folder need not be there."""
        self.run_to(5, "--out", self.folder / "run", *self.BUDGET)
        (self.folder / "run").rename(self.folder / "moved")
        done = self.complete("simulate", "lm", "--data", self.text, "--unit", "char", "--batch", 2, "--trace",
                             self.folder / "moved", "--workers", 2, "--steps", 1, "--sync", "allreduce", "--quiet", "--json", "-")
        self.assertGreater(json.loads(done.stdout)["trace"]["predicted_step_seconds"], 0)

    def test_a_run_that_diverges_skips_and_ends_alike(self):
        """A step that is skipped may be a round's last: the shared weights of each checkpoint are those in memory."""
        ends = []
        for name, budget in (("paged", self.BUDGET), ("resident", ())):
            out = self.folder / name
            done = self.run_program(*self.train_words("--quiet", *self.words(
                "--workers", 2, "--steps", 13, "--optimizer", "sgd", "--lr", 1e6, "--clip", 0, "--checkpoint-every", 4,
                "--out", out, *budget)))
            self.assertIn("the run has diverged", done.stderr)
            models = sorted(out.glob("*/step-*/model.safetensors"))
            ends.append((done.returncode, done.stderr, [zlib.crc32(split_file(path)[1]) for path in models]))
        self.assertEqual(*ends)
        self.assertGreater(len(set(ends[0][2])), 1)

    def test_what_does_not_go_with_it(self):
        words = ("--data", self.text, *self.SHAPE[:-2], *self.BUDGET, "--workers", 2)
        for sync, culprits in (("allreduce", ("2 workers", "diloco:every=30")), ("dgc", ("not with dgc",)),
                               ("streaming", ("local and diloco", "not with streaming")),
                               ("diloco:exchange=topk", ("not with diloco:exchange=topk",)),
                               ("local:every=2,eager=on", ("not with local:every=2,eager=on",)),
                               ("local:outer_lr=2", ("no option", "outer_lr")), ("diloco:every=x", ("every",)),
                               ("adpsgd-random", ("not with adpsgd-random",))):
            with self.subTest(sync):
                self.refuse_training(2, culprits, *words, "--sync", sync)


@unittest.skipUnless(KILLER, "needs a library that kills")
class KillTest(Run):
    """In the file stand weights, gradients, Adam's two arrays, the shared weights and their momentum. The run is killed
    some time after its second checkpoint, the sixth step's, and goes on from that or the next."""
    PHASES = {"load": "pread 5 0", "write back": "pwrite 7 0", "round, before": "pread 9 {shared}",
              "round, after": "pwrite 9 {shared}"}

    def test_killed_in_each_phase(self):
        whole = self.run_to(12)
        shared = 4 * 4 * whole["parameters"] + 5 * 4096
        for phase, when in self.PHASES.items():
            with self.subTest(phase):
                out = self.folder / phase.replace(", ", "-").replace(" ", "-")
                words = self.train_words("--quiet", *self.words("--workers", 2, *self.BUDGET, "--out", out,
                                                                "--checkpoint-every", 3, "--steps", 12))
                done = self.run_program(*words, env=killing(KILLER, when.format(shared=shared), out / "checkpoints" / "step-00000006"))
                self.assertEqual((done.returncode, done.stderr), (-9, ""))
                self.assertEqual([path for path in self.folder.rglob("*memory*")], [])
                rest = self.run_to(12, "--out", out, "--resume", *self.BUDGET)
                self.assertEqual({key: rest[key] for key in SAME[:2]}, {key: whole[key] for key in SAME[:2]})

    def test_killed_while_it_computes(self):
        """At any moment after a checkpoint."""
        job = self.start_program(*self.train_words("--quiet", *self.words(
            "--workers", 2, *self.BUDGET, "--out", self.folder, "--checkpoint-every", 2, "--steps", 100000)))
        wait_until(lambda: len(saved_steps(self.folder)) > 1, "two checkpoints", job)
        self.end(job)
        step = saved_steps(self.folder)[-1]
        resumed = self.run_to(step + 3, "--out", self.folder, "--resume", *self.BUDGET)
        self.assertEqual(resumed["weights_crc32c"], self.run_to(step + 3)["weights_crc32c"])


@unittest.skipUnless((PROGRAM.parent / "libthinwire_tcp.so").exists(), "needs sockets")
class ProcessesTest(Joining, Run):
    def start_one(self, rank, *options, workers=2, **env):
        return self.start_joined(*self.words(*options), "--rank", rank, workers=workers, **env)

    def test_processes_equal_threads(self):
        for workers in (2, 3):
            threads = self.train(*self.words("--workers", workers, "--steps", 6))
            self.meeting = free_place()
            paged = self.finish_all([self.start_one(rank, "--steps", 6, *self.BUDGET, workers=workers)
                                     for rank in range(workers)])
            self.assertEqual(paged["transport"], "tcp")
            self.assertEqual({key: paged[key] for key in SAME}, {key: threads[key] for key in SAME})

    @unittest.skipUnless(KILLER, "needs a library that kills")
    def test_a_process_killed_in_a_round(self):
        """The others are told, and all go on from the checkpoint."""
        whole = self.run_to(9)
        shared = 4 * 4 * whole["parameters"] + 5 * 4096
        options = ("--out", self.folder, "--checkpoint-every", 2, *self.BUDGET)
        jobs = [self.start_one(0, "--steps", 9, *options, "--timeout", 60),
                self.start_one(1, "--steps", 9, *options, "--timeout", 60,
                               **killing(KILLER, f"pread 9 {shared}", self.folder / "checkpoints" / "step-00000004"))]
        self.assertEqual([self.finish(job).returncode for job in jobs], [3, -9])
        rest = self.run_to(9, "--out", self.folder, "--resume", *self.BUDGET)
        self.assertEqual({key: rest[key] for key in SAME[:2]}, {key: whole[key] for key in SAME[:2]})


if __name__ == "__main__":
    run_tests()
