"""--pipeline: one stage has the bits of a run without; stages that are threads, processes and ranks of mpirun have the same
bits; a checkpoint is the whole network, and goes on with any number of stages; what is refused; a stage that dies."""
import json
import signal
import unittest

import asr
from support import (CommandLineTest, free_place, has_saved, has_stepped, needs_mpi, run_tests, saved_steps, under_mpi,
                     unless_kept, wait_until, without_notes, write_cifar, write_letters)

import parts

SAME = ("weights_crc32c", "loss", "train_loss", "steps_skipped", "metric")
THREE = ("--workers", 3, "--pipeline", "stages=3,cut=2+2+3")


class PipelineTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.shared / "text.txt"
        write_letters(cls.text, 9000)

    def train_words(self, *options):
        return ["train", "lm", "--data", self.text, "--unit", "char", "--model", "transformer", "--layers", 4,
                "--hidden", 32, "--heads", 2, "--batch", 3, "--bptt", 16, "--dropout", "0.2", "--steps", 12, *options,
                *unless_kept(options)]

    def figures(self, *options, **keywords):
        summary = self.train(*options, **keywords)
        return {key: summary[key] for key in SAME}


class OneStageTest(PipelineTest):
    def test_a_transformer(self):
        for options in (("--optimizer", "sgd", "--lr", 0.1, "--momentum", 0.9), ("--optimizer", "adamw"), ("--clip", 0.1)):
            with self.subTest(options):
                self.assertEqual(self.figures(*options, "--pipeline", "stages=1"), self.figures(*options))


class ImagesTest(CommandLineTest):
    @parts.extra
    def test_one_stage_and_resuming(self):
        """Running statistics are of their stage, and all of them in the checkpoint, whose figures one worker has, too."""
        data = write_cifar(self.folder / "cifar")
        words = ("--data", data, "--model", "resnet20", "--batch", 4, "--steps", 6)
        plain = self.train(*words)
        self.assertEqual({key: self.train(*words, "--pipeline", "stages=1")[key] for key in SAME},
                         {key: plain[key] for key in SAME})
        run = self.folder / "run"
        three = self.train(*words, "--workers", 3, "--pipeline", "stages=3,cut=3+4+5", "--checkpoint-every", 3, "--out", run)
        again = self.train(*words, "--workers", 3, "--pipeline", "stages=3", "--resume", run / "checkpoints/step-00000003",
                           "--out", "none")
        self.assertEqual(again["steps"], 6)
        whole = json.loads(self.run_program(*self.train_words(
            *words, "--resume", run, "--workers", 1, "--pipeline", "stages=1", "--out", "none", "--quiet", "--json", "-")).stdout)
        self.assertEqual({key: whole[key] for key in ("weights_crc32c", "loss", "metric")},
                         {key: three[key] for key in ("weights_crc32c", "loss", "metric")})


    def test_a_step_of_several_micro_batches(self):
        """Four of 2 images are one of 8: the same images, in the same order, over the end of an epoch."""
        words = ("--data", write_cifar(self.folder / "cifar"), "--model", "cnn", "--momentum", 0.9, "--lr", 0.01, "--epochs", 2,
                 "--limit-train", 70)
        whole, cut = self.train(*words, "--batch", 8), self.train(*words, "--batch", 2, "--pipeline", "stages=1,accumulate=4")
        self.assertEqual((cut["steps"], cut["epochs"]), (whole["steps"], whole["epochs"]))
        self.assertGreater(whole["steps"], 4)
        for key in ("train_loss", "loss"):
            self.assertAlmostEqual(cut[key], whole[key], delta=1e-5)

    def test_other_numbers_of_micro_batches_go_on(self):
        self.check_micro_batches(1, 8)

    @parts.extra
    def test_more_other_numbers_of_micro_batches_go_on(self):
        self.check_micro_batches(2, 4)

    def check_micro_batches(self, *numbers):
        """In the middle of an epoch, whose steps are counted anew."""
        run = self.folder / "run"
        words = ("--data", write_cifar(self.folder / "cifar"), "--model", "cnn", "--epochs", 2, "--limit-train", 64, "--batch", 2,
                 "--workers", 2)
        self.train(*words, "--pipeline", "stages=2,accumulate=4", "--checkpoint-every", 6, "--out", run)
        for each in numbers:
            done = self.complete(*self.train_words(*words, "--pipeline", f"stages=2,accumulate={each}", "--resume",
                                                   run / "checkpoints/step-00000012", "--out", "none"))
            self.assertIn(f"{64 // each} steps of {each} x 2 images, {32 // each} an epoch; resumed after step {48 // each}\n",
                          done.stdout)
            self.assertIn(f" after {64 // each} steps;", done.stdout)


class StagesTest(PipelineTest):
    def start_joined(self, *options, meeting, rank):
        return self.start_program(*self.train_words("--quiet", "--json", "-" if rank == 0 else self.folder / f"{rank}",
                                                    "--join", meeting, "--rank", rank, *options))

    def start_three(self, *options):
        meeting = free_place()
        return [self.start_joined(*THREE, *options, meeting=meeting, rank=rank) for rank in range(3)]

    def test_threads_and_processes_have_the_same_bits(self):
        threads = self.figures(*THREE)
        self.assertEqual(self.figures(*THREE), threads)
        done = self.complete_all(self.start_three())
        summary = json.loads(done[0].stdout)
        self.assertEqual({key: summary[key] for key in SAME}, threads)

    def test_drained_after_each_step_it_has_the_bits_of_one_stage(self):
        """Nothing is stale then: it is a synchronous pipeline."""
        for each in (1, 4):
            one, three = (self.figures("--workers", stages, "--clip", 0, "--checkpoint-every", 1, "--pipeline",
                                       f"stages={stages},cut={cut},accumulate={each}") for stages, cut in ((1, "7"), (3, "2+2+3")))
            self.assertEqual(three, one)

    def test_weights_to_begin_with_reach_all_stages(self):
        base = self.folder / "base"
        self.train("--seed", 7, "--out", base)
        one, three = (self.figures("--init-from", base, "--workers", stages, "--clip", 0, "--checkpoint-every", 1, "--pipeline",
                                   f"stages={stages},cut={cut}") for stages, cut in ((1, "7"), (3, "2+2+3")))
        self.assertEqual(three, one)

    @needs_mpi
    def test_ranks_have_them_too(self):
        threads = self.figures(*THREE)
        self.assertEqual(self.figures("--pipeline", THREE[-1], **under_mpi(3)), threads)

    def test_values_of_fewer_bits(self):
        """Each of 12 micro-batches sends 3 x 16 tokens of 32 values over two cuts and back; evaluations send fp32."""
        single = self.train(*THREE)
        for values, bytes_saved, delta in (("fp16", 2 * 1536, 1e-3), ("fp8", 3 * 1536 - 2, 1e-2)):
            few = self.train("--workers", 3, "--pipeline", f"{THREE[-1]},values={values}")
            self.assertNotEqual(few["weights_crc32c"], single["weights_crc32c"])
            self.assertAlmostEqual(few["train_loss"], single["train_loss"], delta=delta)
            self.assertEqual(few["bytes"]["dense"], single["bytes"]["sent"])
            self.assertAlmostEqual(single["bytes"]["sent"] - few["bytes"]["sent"], 12 * 4 * bytes_saved / 3, delta=1)

    def test_measured_layers_are_all_there(self):
        run = self.folder / "run"
        self.train("--workers", 3, "--pipeline", "stages=3", "--out", run)
        told = next(line for line in (run / "config.yaml").read_text().splitlines() if line.startswith("pipeline:"))
        counts = told.rpartition("cut=")[2].strip('"').split("+")
        self.assertEqual((len(counts), sum(map(int, counts))), (3, 7))

    def test_a_checkpoint_goes_on(self):
        """From one that both have been drained for, to the last bit; with other numbers of stages; and as any network."""
        run = self.folder / "run"
        whole = self.figures(*THREE, "--checkpoint-every", 6, "--out", run)
        middle = run / "checkpoints" / "step-00000006"
        again = self.train("--resume", middle, *THREE, "--checkpoint-every", 6, "--out", "none")
        self.assertEqual(again["weights_crc32c"], whole["weights_crc32c"])
        told = self.finish(self.start_program(*self.train_words("--resume", middle, "--workers", 2, "--pipeline", "stages=2",
                                                                "--quiet", "--json", "-", "--out", "none")))
        self.assertEqual((told.returncode, told.stderr.count("\n")), (0, 1), told.stderr)
        self.assertIn("the network is cut anew", told.stderr)
        single = self.finish(self.start_program(*self.train_words("--resume", run, "--workers", 1, "--pipeline", "stages=1",
                                                                  "--quiet", "--json", "-", "--out", "none")))
        self.assertEqual(json.loads(single.stdout)["loss"], whole["loss"])
        (middle / "worker-1.safetensors").unlink()
        told = self.complete(*self.train_words("--resume", middle, "--forget-lost", *THREE, "--out", "none"))
        self.assertIn("of worker 1 are lost, so what it remembered of the run's figures is dropped", told.stderr)
        self.succeed("generate", run, "--tokens", 5)
        self.assertEqual(self.run_program("export", run, self.folder / "net.safetensors").returncode, 0)

    def test_a_stop_drains(self):
        run = self.folder / "run"
        job = self.start_program(*self.train_words("--quiet", *THREE, "--steps", 100000, "--out", run))
        wait_until(lambda: has_stepped(run), "the first step", job)
        job.send_signal(signal.SIGINT)
        done = self.finish(job)
        self.assertEqual((done.returncode, done.stderr), (130, ""))
        step = saved_steps(run)[-1]
        done = self.train("--resume", run, *THREE, "--steps", step + 5)
        self.assertEqual(done["steps"], step + 5)

    def test_a_stage_that_dies_ends_the_others(self):
        for victim in range(3):
            with self.subTest(victim):
                run = self.folder / f"run{victim}"
                jobs = self.start_three("--steps", 1000000, "--out", run, "--timeout", 20, "--checkpoint-every", 8)
                wait_until(lambda: has_saved(run, 8), "a checkpoint", jobs[0])
                jobs[victim].kill()
                for rank, job in enumerate(jobs):
                    done = self.finish(job)
                    if rank == victim:
                        continue
                    told = without_notes(done.stderr)
                    self.assertEqual((done.returncode, len(told)), (3, 1), done.stderr)
                    self.assertIn("rank", told[0])
        saved = saved_steps(run)[-1]
        done = self.finish(self.start_program(*self.train_words("--resume", run, "--workers", 2, "--pipeline", "stages=2",
                                                                "--steps", saved + 4, "--quiet", "--json", "-")))
        self.assertEqual(json.loads(done.stdout)["steps"], saved + 4, done.stderr)


class DivergenceTest(PipelineTest):
    def test_it_is_told(self):
        """By the stage that saw it, whatever the others lose then."""
        for values in ("fp32", "fp8"):
            self.refuse_training(4, ("diverged",), "--workers", 3, "--pipeline", f"{THREE[-1]},values={values}", "--optimizer",
                                 "sgd", "--lr", "1e6", "--clip", 0, "--warmup", 0, "--steps", 200)


class RefusalsTest(PipelineTest):
    def test_options(self):
        changes = self.folder / "changes.yaml"
        changes.write_text('planned-changes: "1 qsgd"\n')
        for words, culprits in ((("--pipeline", "stages=2"), ("2 stages", "these are 1")),
                                (("--pipeline", "stages=0"), ("stages=0", "1 to 64")),
                                (("--pipeline", "cut=3+4"), ("how many stages",)),
                                (("--pipeline", "stages=1,values=int4"), ("fp32, fp16 or fp8",)),
                                (("--pipeline", "stages=1,speed=2"), ("no such key",)),
                                (("--pipeline", "stages=1,accumulate=0"), ("1 to 4096 micro-batches",)),
                                (("--pipeline", "stages=1,accumulate=4096"), ("--pipeline stages=1,accumulate=4096", "takes 4096 micro-batches", "an epoch has")),
                                (("--pipeline", "4"), ("needs its key", "stages=P")),
                                (("--pipeline", "stages=1,cut=3+4"), ("another number",)),
                                (("--pipeline", "stages=1,cut=6"), ("--pipeline stages=1,cut=6: the cut is of 6 layers", "has 7")),
                                (("--pipeline", "stages=1,cut=3x4"), ("there is +",)),
                                (("--pipeline", "stages=1,cut=-7"), ("one layer or more",)),
                                (("--pipeline", "stages=1,cut="), ("one layer or more",)),
                                (("--pipeline", "stages=1,cut=7+"), ("one layer or more",)),
                                (("--pipeline", "stages= -18446744073709551615"), ("1 to 64 stages",)),
                                (("--pipeline", "stages=2,stages=1"), ("twice",)),
                                (("--workers", 8, "--pipeline", "stages=8"), ("--pipeline stages=8: this network has 7 layers", "8 stages")),
                                (("--pipeline", "stages=1", "--tied"), ("without --tied",)),
                                (("--pipeline", "stages=1", "--model", "small"), ("--model transformer",)),
                                (("--pipeline", "stages=1", "--sync", "dgc"), ("--sync allreduce", "dgc")),
                                (("--pipeline", "stages=2", "--workers", 2, "--sync", "auto", "--link", "1Mbit,100ms"),
                                 ("--sync allreduce", "not with auto")),
                                (("--pipeline", "stages=1", "--config", changes), ("--sync qsgd", "not go with --pipeline")),
                                (("--pipeline", "stages=1", "--check-every", 5), ("--check-every 5", "nothing to compare")),
                                (("--pipeline", "stages=1", "--memory-budget", "1GB"), ("--memory-budget",))):
            with self.subTest(words):
                self.refuse_training(2, culprits, *words)

    def test_a_task_that_is_not_cut(self):
        speech = asr.write_speech(self.folder / "speech")
        self.refuse(2, ("--pipeline stages=1: task asr", "cannot be cut"), "train", "asr", "--data", speech, "--test", speech, "--features",
                    "rate=8000,bins=20", "--batch", 2, "--steps", 1, "--pipeline", "stages=1", "--quiet", "--out", "none")


if __name__ == "__main__":
    run_tests()
