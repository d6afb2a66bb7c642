"""Training end to end: what a run leaves behind, and that its figures add up."""
import json
import unittest

from support import TEST, CommandLineTest


class TrainingTest(CommandLineTest):
    def test_the_summary_has_the_fields_that_scripts_read(self):
        summary = self.train("--workers", 2, "--steps", 3, "--sync", "topk")
        fields = {"task": str, "model": str, "parameters": int, "workers": int, "transport": str, "sync": str,
                  "seed": int, "epochs": float, "steps": int, "loss": float, "weights_crc32c": str,
                  "samples_per_second": float}
        for key, kind in fields.items():
            self.assertIsInstance(summary[key], kind, key)
        self.assertEqual(summary["metric"]["name"], "accuracy")
        self.assertLessEqual(summary["metric"]["value"], 1)
        for group, keys in {"bytes": ("dense", "sent", "received"), "ratio": ("compressed", "message", "traffic"),
                            "seconds": ("wall", "compute", "codec", "exchange")}.items():
            for key in keys:
                self.assertGreater(summary[group][key], 0, f"{group}.{key}")
        exact = summary["bytes"]["dense"] / summary["ratio"]["traffic"]  # the mean of the workers
        self.assertAlmostEqual(summary["bytes"]["sent"], exact, delta=0.5)

    def test_every_number_of_workers_and_kind_of_scheme_trains(self):
        for sync in ("allreduce", "dgc:density=0.01"):
            for workers in (1, 2, 4):
                with self.subTest(sync=sync, workers=workers):
                    summary = self.train("--workers", workers, "--sync", sync, "--steps", 6, "--check-every", 1)
                    self.assertEqual((summary["workers"], summary["steps"], summary["sync"]), (workers, 6, sync))
                    correct = summary["metric"]["value"] * TEST
                    self.assertAlmostEqual(correct, round(correct), places=6)

    def test_the_same_seed_gives_the_same_bits_and_another_does_not(self):
        options = ("--workers", 2, "--sync", "dgc", "--steps", 5, "--crop", 2, "--flip")
        first, again, other = (self.train(*options, "--seed", seed)["weights_crc32c"] for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_not_every_epoch_is_looked_at(self):
        """Nor does that change a bit of the run. The last one is."""
        for sync in ("allreduce", "adpsgd-fixed"):
            options = ("--epochs", 5, "--workers", 2 if sync == "allreduce" else 1, "--sync", sync, "--out")
            each = self.train(*options, self.folder / f"each-{sync}")
            some = self.train(*options, self.folder / sync, "--evaluate-every", 2)
            lines = [json.loads(line) for line in (self.folder / sync / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([line["epoch"] for line in lines if line["kind"] == "epoch"], [2, 4, 5])
            self.assertEqual(some["weights_crc32c"], each["weights_crc32c"])
            self.assertEqual(some["metric"], each["metric"])
        self.refuse_training(2, ["--evaluate-every", "from 1"], "--evaluate-every", 0)

    def test_rates_are_told_as_the_options_that_they_are(self):
        """Those of the model, where nobody has set them."""
        for words, told in (((), "--lr 0.03 --schedule step:3 --warmup 400 --optimizer sgd --momentum 0.9"),
                            (("--optimizer", "adam", "--schedule", "cosine", "--warmup", 1),
                             "--lr 0.001 --schedule cosine --warmup 1 --optimizer adam --momentum 0.9"),
                            (("--weight-decay", 0.1, "--clip", 5),
                             "--lr 0.03 --schedule step:3 --warmup 400 --optimizer sgd --momentum 0.9 --weight-decay 0.1 --clip 5"),
                            (("--optimizer", "adamw", "--beta2", 0.98, "--epsilon", 1e-6),
                             "--lr 0.001 --schedule step:3 --warmup 400 --optimizer adamw --momentum 0.9 --beta2 0.98 --epsilon 1e-06")):
            done = self.run_program(*self.train_words("--steps", 1, *words))
            self.assertIn(told, done.stdout.splitlines())
        text = self.folder / "text"
        text.write_text("one two three four\n" * 200)
        decoder = ("train", "lm", "--model", "transformer", "--layers", 1, "--heads", 2, "--data", text, "--unit", "char",
                   "--steps", 1)
        for optimiser, told in (("adamw", " --momentum 0.9 --beta2 0.95 --weight-decay 0.1 --clip 1\n"), ("sgd", " --momentum 0.9 --weight-decay 0.1 --clip 1\n")):
            self.assertIn(told, self.run_program(*decoder, "--optimizer", optimiser).stdout)

    def test_lines_say_whose_bytes_they_count(self):
        done = self.run_program(*self.train_words("--steps", 1, "--workers", 2))
        self.assertRegex(done.stdout, r"(?m)^epoch 1 .* [kM]?B sent by rank 0  ")
        self.assertRegex(done.stdout, r"(?m) after 1 steps; .* [kM]?B sent a worker on average, dense fp32 would have sent .* [kM]?B$")

    def test_adam_is_told_of_gradients_that_come_late(self):
        """Before its moments; not behind them, nor where weights are exchanged, nor where all of a gradient comes at once."""
        for optimiser, sync, told in (("adamw", "topk", "topk sends most of a gradient many steps late, and Adam learns badly from that: "
                                       "take --sync dgc-adam, powersgd:rank=16, qsgd or fp8"),
                                      ("adam", "scalecom", "scalecom sends most of a gradient many steps late, and Adam learns badly "
                                       "from that: take --sync powersgd:rank=16, qsgd or fp8"),
                                      ("adamw", "dgc-adam", ""), ("adamw", "demo", ""), ("adamw", "qsgd", ""), ("sgd", "topk", ""),
                                      ("adamw", "choco", ""), ("adamw", "topk:density=1", ""), ("adam", "scalecom:rate=1", "")):
            with self.subTest(optimiser=optimiser, sync=sync):
                done = self.complete(*self.train_words("--steps", 1, "--workers", 2, "--optimizer", optimiser, "--sync", sync))
                self.assertEqual([line for line in done.stdout.splitlines() if "late" in line], [told] if told else [])

    def test_dgc_that_sends_everything_is_momentum_sgd_bit_for_bit(self):
        for form, nesterov in (((), "off"), (("--nesterov",), "on")):
            with self.subTest(nesterov=nesterov):
                dense = self.train("--workers", 1, "--steps", 20, *form)
                dgc = self.train("--workers", 1, "--steps", 20, "--sync",
                                 f"dgc:density=1,masking=off,nesterov={nesterov},values=fp32,leftovers=fp32")
                self.assertEqual(dense["weights_crc32c"], dgc["weights_crc32c"])

    def test_workers_with_small_batches_are_one_with_a_large_batch(self):
        losses = [self.train("--workers", workers, "--batch", 16 // workers, "--steps", 12, "--warmup", 0)["loss"]
                  for workers in (1, 2, 4)]
        for loss in losses[1:]:
            self.assertAlmostEqual(loss / losses[0], 1, places=4)

    def test_half_a_run_of_hosts_resumed_is_the_whole_run(self):
        options = ("--workers", 4, "--sync", "dgc:density=0.01,warmup_steps=8,per_host=2")
        whole = self.train(*options, "--epochs", 4)
        self.train(*options, "--epochs", 2, "--out", self.folder)
        resumed = self.train(*options, "--epochs", 4, "--resume", "--out", self.folder)
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])

    def test_only_the_packets_of_hosts_cross_their_lines(self):
        """Two hosts of two workers send in a step what two workers do."""
        def run(workers, steps, sync):
            return self.train("--workers", workers, "--batch", 32 // workers, "--steps", steps, "--sync", sync)

        plain, longer, hosts = run(2, 3, "fp16"), run(2, 6, "fp16"), run(4, 6, "fp16:per_host=2")
        of_six = 2 * (longer["bytes"]["sent"] - plain["bytes"]["sent"])
        self.assertEqual(2 * hosts["bytes"]["between"], of_six)
        self.assertGreater(hosts["bytes"]["sent"], hosts["bytes"]["between"])
        self.assertEqual(plain["bytes"]["between"], plain["bytes"]["sent"])
        self.assertEqual(hosts["ratio"]["message"], plain["ratio"]["message"])

    def test_dense_traffic_is_counted_as_the_formula_has_it(self):
        summary = self.train("--workers", 4, "--steps", 3)
        dense = 2 * 3 / 4 * 4 * summary["parameters"] * 3
        self.assertEqual(summary["bytes"]["dense"], dense)
        self.assertAlmostEqual(summary["bytes"]["sent"] / dense, 1, delta=0.01)

    def test_a_compressed_run_sends_less(self):
        summary = self.train("--workers", 4, "--steps", 3, "--sync", "topk:density=0.01")
        self.assertGreater(summary["ratio"]["traffic"], 5)
        self.assertGreater(summary["ratio"]["compressed"], 50)
        self.assertAlmostEqual(summary["density"], 0.01, delta=0.001)

    def test_it_learns(self):
        summary = self.train("--epochs", 5, "--lr", 0.01)
        self.assertGreater(summary["metric"]["value"], 0.8)

    def test_a_run_folder_holds_what_it_should(self):
        out = self.folder / "run"
        summary = self.train("--workers", 2, "--epochs", 2, "--out", out)
        self.assertEqual(json.loads((out / "summary.json").read_text()), summary)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["kind"] for line in lines if line["kind"] != "step"], ["start", "epoch", "epoch"])
        self.assertEqual(lines[0]["configuration"]["batch"], 8)
        self.assertEqual(lines[-1]["accuracy"], summary["metric"]["value"])
        self.assertEqual(len(list(out.glob("events.out.tfevents.*"))), 1)
        self.assertEqual(len(list(out.glob("checkpoints/step-*/worker-1.safetensors"))), 2)

    def test_models_are_chosen_by_what_is_held_out_and_tested_once(self):
        out, whole = self.folder / "run", self.folder / "whole"
        options = ("--validation", 0.2, "--sync", "dgc", "--epochs")
        self.train(*options, 1, "--workers", 2, "--out", out)
        self.succeed("train", "--resume", out, "--epochs", 2, "--quiet")
        summary = json.loads((out / "summary.json").read_text())
        self.assertEqual(self.train(*options, 2, "--workers", 2, "--out", whole)["weights_crc32c"],
                         summary["weights_crc32c"])
        lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
        found = [sorted(key for key in line if key in ("validation_loss", "test_loss")) for line in lines
                 if line["kind"] == "epoch"]
        self.assertEqual(found, [["validation_loss"], ["validation_loss"], ["test_loss"]])
        self.assertEqual(summary["split"], "test")
        self.assertEqual(summary["loss"], lines[-1]["test_loss"])
        self.assertEqual(summary["validation"]["loss"], lines[-2]["validation_loss"])
        self.assertEqual(summary["validation"]["metric"]["value"], lines[-2]["accuracy"])
        losses = [self.train("--validation", 0.2, "--workers", workers, "--steps", 1, "--lr", 0)["validation"]["loss"]
                  for workers in (1, 3)]
        self.assertAlmostEqual(losses[1] / losses[0], 1, places=5)
        self.refuse(2, ["training data", "this run has"], "train", "--resume", out, "--validation", 0.3, "--epochs", 3)

    def test_its_configuration_makes_the_same_run_again(self):
        for sync in ("allreduce", "dgc"):
            out = self.folder / sync
            first = self.train("--steps", 4, "--sync", sync, "--lr", 0.02, "--out", out)
            again = self.run_program("train", "image", "--config", out / "config.yaml", "--out", self.folder / "again",
                                     "--json", self.folder / "again.json", "--quiet")
            self.assertEqual((again.returncode, again.stderr), (0, ""))
            summary = json.loads((self.folder / "again.json").read_text())
            self.assertEqual(summary["weights_crc32c"], first["weights_crc32c"])
            (self.folder / "again").rename(self.folder / f"again-{sync}")

    def test_the_line_of_biases_speaks_of_all_of_them(self):
        for sync, plan in (("allreduce", "allreduce"), ("topk", "dense bf16: 1 dimension"),
                           ("dgc-bold", "0 dense, 5 compressed")):
            with self.subTest(sync=sync):
                done = self.run_program(*self.train_words("--steps", 1, "--sync", sync))
                line, = (line for line in done.stdout.splitlines() if "biases and norms" in line)
                self.assertTrue(line.endswith("250  " + plan), line)

    def test_a_pipe_gets_plain_lines(self):
        told = self.succeed(*self.train_words("--epochs", 1))
        self.assertNotIn("\r", told)
        self.assertIn("conv1.weight", told)
        self.assertIn("epoch 1", told)


if __name__ == "__main__":
    unittest.main()
