"""Training with local updates: workers take steps of their own, with any optimiser, and meet once in a while."""
import json
import shutil

from gradients import read_tensors
from support import CommandLineTest, needs_mpi, run_tests, under_mpi

import parts

STREAM = "streaming:every=12,fragments=2,delay=2,exchange=topk,density=0.05"
EAGER = "diloco:every=7,eager=on"
MOMENTS = "diloco:every=3,first_moment=2,second_moment=3"
ADAM = ("--optimizer", "adamw", "--lr", 0.002)


class LocalUpdatesTest(CommandLineTest):
    def test_alone_it_is_the_optimiser_by_itself(self):
        """But for rounding, since the weights go the way over what they moved by."""
        for form in ((), ADAM, ("--clip", 0.5, "--nesterov")):
            plain = self.train("--steps", 12, *form)
            summary = self.train("--steps", 12, "--sync", "local:every=5", *form)
            for key in ("loss", "train_loss"):
                self.assertAlmostEqual(summary[key], plain[key], places=5)

    def test_a_meeting_after_each_step_is_training_on_the_mean_gradient(self):
        """Without momentum the mean of the weights after a step of each is a step along the mean gradient."""
        options = ("--workers", 3, "--steps", 8, "--momentum", 0, "--lr", 0.1, "--warmup", 0)
        dense, local = self.train(*options), self.train(*options, "--sync", "local:every=1")
        self.assertAlmostEqual(dense["loss"], local["loss"], places=5)
        apart = self.train(*options, "--sync", "local:every=4")
        self.assertGreater(abs(apart["loss"] - dense["loss"]), 1e-4)

    def test_hosts_are_workers_with_larger_batches(self):
        self.check_hosts(("diloco:every=3", ("--momentum", 0.9)))

    @parts.extra
    def test_hosts_of_others_are_workers_with_larger_batches(self):
        self.check_hosts(("streaming:every=4,fragments=2,delay=1", ADAM), (EAGER, ()))

    def check_hosts(self, *runs):
        for spec, form in runs:
            options = ("--steps", 14, "--warmup", 0, *form, "--sync")
            two = self.train("--workers", 2, "--batch", 16, *options, spec)
            hosts = self.train("--workers", 4, "--batch", 8, *options, f"{spec},per_host=2")
            apart = self.train("--workers", 4, "--batch", 8, *options, spec)
            self.assertAlmostEqual(hosts["loss"], two["loss"], places=4)
            self.assertGreater(abs(apart["loss"] - two["loss"]), 5e-4)

    def test_bytes_fall_with_the_steps_between(self):
        sent = {every: self.train("--workers", 4, "--steps", 24, "--sync", f"diloco:every={every}") for every in (4, 12)}
        for every, summary in sent.items():
            self.assertAlmostEqual(summary["ratio"]["traffic"], every, delta=0.03 * every)
            self.assertEqual(summary["ratio"]["message"], 1)

    def test_the_summary_tells_what_the_exchange_compresses(self):
        summary = self.train("--workers", 2, "--steps", 24, "--sync", "local:every=3,exchange=topk,density=0.02", *ADAM)
        self.assertAlmostEqual(summary["density"], 0.02, delta=0.002)
        self.assertGreater(summary["ratio"]["compressed"], 20)
        self.assertGreater(summary["ratio"]["message"], 5)

    def test_it_learns_with_adamw(self):
        summary = self.train("--workers", 4, "--epochs", 12, "--sync", "diloco:every=8", *ADAM)
        self.assertGreater(summary["metric"]["value"], 0.9)

    def test_moments_are_averaged(self):
        """In the round that ends the run all workers have the same moments, and without the options their own."""
        for spec, alike in ((MOMENTS, True), ("diloco:every=3", False)):
            out = self.folder / f"run{alike}"
            self.train("--workers", 2, "--steps", 18, "--sync", spec, "--out", out, *ADAM)
            own = [read_tensors(out / f"checkpoints/step-00000018/worker-{rank}.safetensors") for rank in range(2)]
            for moment in ("optimiser.momentum.", "optimiser.second_moment."):
                names = [name for name in own[0] if name.startswith(moment)]
                self.assertGreater(len(names), 4)
                for name in names:
                    self.assertEqual(own[0][name] == own[1][name], alike, name)

    def test_the_journal_says_what_the_outer_steps_come_to(self):
        """Of a first round with Nesterov's momentum m the step is 1 + m times as long as the mean; without it, as long."""
        for spec, first in (("diloco:every=8", 1.5), ("diloco:every=8,outer_momentum=0.9", 1.9), ("local:every=8", 1)):
            out = self.folder / spec.replace(":", "-")
            self.train("--workers", 2, "--steps", 30, "--sync", spec, "--out", out)
            one, ten, *_, last = [line for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
                                  if line["kind"] == "step"]
            self.assertEqual([one[key] for key in ("rounds", "cosine", "gain", "energy")], [0, 0, 0, 0])
            self.assertEqual((ten["rounds"], ten["cosine"]), (1, 0))
            self.assertAlmostEqual(ten["gain"], first, places=5)
            self.assertAlmostEqual(ten["energy"], first ** 2, places=5)
            self.assertEqual(last["rounds"], 3)
            self.assertGreater(last["cosine"], 0)
        out = self.folder / "dense"
        self.train("--workers", 2, "--steps", 1, "--out", out)
        self.assertNotIn("cosine", (out / "metrics.jsonl").read_text())

    def test_an_outer_step_that_is_too_long_is_told(self):
        words = ("--workers", 2, "--steps", 120, "--lr", 0.3, "--momentum", 0, "--warmup", 0, "--schedule", "constant", "--out", "none")
        for rate, is_told in ((1, False), (2.4, True)):
            done = self.run_program(*self.train_words(*words, "--sync", f"diloco:every=10,outer_lr={rate},outer_momentum=0"))
            self.assertEqual("a smaller outer_lr or outer_momentum would be stable" in done.stdout, is_told, done.stdout)

    def test_gradients_are_clipped_by_each_worker(self):
        loss = {clip: self.train("--workers", 2, "--steps", 4, "--sync", "local:every=4", "--clip", clip)["loss"]
                for clip in (0.01, 0.02)}
        self.assertGreater(abs(loss[0.01] - loss[0.02]), 1e-4)

    def test_what_is_looked_at_are_the_shared_weights(self):
        """In the middle of a round the model file holds the weights that the last round gave, which are no worker's."""
        out = self.folder / "run"
        options = ("--workers", 2, "--sync", "local:every=6")
        self.train(*options, "--steps", 12, "--checkpoint-every", 8, "--out", out)
        after_round = self.folder / "short"
        self.train(*options, "--steps", 6, "--out", after_round)
        at_8 = read_tensors(out / "checkpoints/step-00000008/model.safetensors")
        at_6 = read_tensors(after_round / "checkpoints/step-00000006/model.safetensors")
        own = read_tensors(out / "checkpoints/step-00000008/worker-0.safetensors")
        names = [name[4:] for name in own if name.startswith("own/")]
        self.assertGreater(len(names), 4)
        for name in names:
            self.assertEqual(at_8[name], at_6[name], name)
            self.assertNotEqual(own["own/" + name], at_8[name], name)

    def test_a_checkpoint_in_the_middle_of_a_round_changes_no_bit(self):
        self.check_checkpoints((STREAM, ADAM))

    @parts.extra
    def test_other_checkpoints_in_the_middle_of_a_round_change_no_bit(self):
        self.check_checkpoints((STREAM, ()), (EAGER, ADAM), (MOMENTS, ADAM))

    def check_checkpoints(self, *runs):
        for number, (spec, form) in enumerate(runs):
            options = ("--workers", 3, "--steps", 24, "--sync", spec, *form)
            whole = self.train(*options)
            out = self.folder / f"run{number}"
            # Step 18 sends a fragment, step 20 takes it: it is under way in the checkpoint of step 19.
            saved = self.train(*options, "--checkpoint-every", 19, "--out", out)
            self.assertEqual(saved["weights_crc32c"], whole["weights_crc32c"])
            shutil.rmtree(out / "checkpoints/step-00000024")
            resumed = self.train("--workers", 3, "--resume", out)
            for key in ("weights_crc32c", "metric", "loss"):
                self.assertEqual(resumed[key], whole[key], key)

    def test_more_workers_begin_at_the_shared_weights(self):
        """All of them: steps of no length leave the weights where the checkpoint has them."""
        options = ("--sync", "local:every=4", "--schedule", "constant", "--warmup", 0, "--out", self.folder / "run")
        saved = self.train(*options, "--steps", 8)
        words = self.train_words(*options, "--steps", 16, "--workers", 3, "--lr", 0, "--resume", "--quiet", "--json", "-")
        resumed = json.loads(self.run_program(*words).stdout)
        self.assertEqual((resumed["weights_crc32c"], resumed["steps"]), (saved["weights_crc32c"], 16))

    def test_other_numbers_of_workers_go_on(self):
        self.check_numbers((STREAM, 2))

    @parts.extra
    def test_more_other_numbers_of_workers_go_on(self):
        self.check_numbers((STREAM, 8), (EAGER, 3))

    def check_numbers(self, *runs):
        for spec, workers in runs:
            out = self.folder / f"run{workers}"
            self.train("--workers", 4, "--steps", 24, "--sync", spec, "--checkpoint-every", 19, "--out", out, *ADAM)
            shutil.rmtree(out / "checkpoints/step-00000024")
            there = self.folder / f"of{workers}"
            shutil.copytree(out, there)
            done = self.complete(*self.train_words("--workers", workers, "--resume", there, "--json", "-"))
            self.assertIn(f"of 4 workers, this run has {workers}", done.stderr)

    def test_rounds_are_of_all_workers_at_each_epoch(self):
        out = self.folder / "run"
        self.train("--workers", 2, "--epochs", 2, "--sync", "diloco:every=7", "--out", out)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["weights"] for line in lines if line["kind"] == "epoch"], ["all", "all"])

    def test_a_run_is_asked_for_the_same_exchange_when_it_goes_on(self):
        out = self.folder / "run"
        self.train("--workers", 2, "--steps", 6, "--sync", "local:every=3,exchange=topk,density=0.1", "--out", out)
        self.refuse_training(2, ["density=0.1", "density=0.2"], "--workers", 2, "--steps", 12, "--resume", out,
                             "--sync", "local:every=3,exchange=topk,density=0.2")

    def test_specs_that_are_refused(self):
        self.refuse_training(2, ["outer_momentum"], "--sync", "diloco:outer_momentun=0.5")
        self.refuse_training(2, ["every=1"], "--sync", "diloco:every=1")
        self.refuse_training(2, ["second_moment=6"], "--workers", 2, "--sync", "diloco:second_moment=6")
        self.refuse_training(2, ["dgc", "momentum=0"], "--workers", 2, "--sync", "diloco:exchange=dgc")
        self.refuse_training(2, ["diloco"], "--sync", "dilocco")

    @needs_mpi
    def test_mpi_gives_the_bits_of_threads(self):
        for spec in (STREAM, EAGER, MOMENTS, "sparseloco:every=5", "pulseloco:every=5"):
            options = ("--steps", 14, "--sync", spec, *ADAM)
            threads = self.train("--workers", 3, *options)
            self.assertEqual(self.train(*options, **under_mpi(3))["weights_crc32c"], threads["weights_crc32c"], spec)


if __name__ == "__main__":
    run_tests()
