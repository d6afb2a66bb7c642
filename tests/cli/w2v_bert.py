"""Pre-training end to end, on sounds that the test makes: workers that are one, resuming, MPI, collapse, bad input."""
import json
import math
import random
import resource
import shutil
import struct
import unittest
import wave

from support import CommandLineTest, run_tests, unless_kept

RATE = 8000
SPEAKERS, SOUNDS, SECONDS = 3, 3, 1.3  # 7 crops of half a second each, when they are joined: 21
SMALL = ("--features", "rate=8000,bins=8,low=60,high=3800,floor=0.01", "--contrastive-blocks", 1, "--masked-blocks", 1,
         "--width", 16, "--heads", 2, "--kernel", 3, "--codes", 8, "--crop", 0.5, "--mask-span", 2,
         "--mask-probability", 0.2, "--lr", 0.002)


def write_sound(path, samples, rate=RATE):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples))


def murmur(seed, seconds=SECONDS):
    """Noise whose loudness and colour change every tenth of a second."""
    generator = random.Random(seed)
    samples, before = [], 0
    for _ in range(round(10 * seconds)):
        loudness, colour = generator.uniform(1000, 20000), generator.uniform(0, 0.95)
        for _ in range(RATE // 10):
            before = colour * before + (1 - colour) * generator.uniform(-1, 1)
            samples.append(round(loudness * before))
    return samples


def write_speakers(folder, speakers=SPEAKERS, sounds=SOUNDS):
    for speaker in range(speakers):
        for sound in range(sounds):
            write_sound(folder / f"s{speaker}" / f"{sound}.wav", murmur(f"{speaker} {sound}"))
    return folder


class PretrainingTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train_folder = write_speakers(cls.shared / "corpus" / "train")
        write_speakers(cls.shared / "corpus" / "test", 2, 2)

    def train_words(self, *options):
        return ["train", "w2v-bert", "--data", self.shared / "corpus", *SMALL, *options, *unless_kept(options)]


class LearningTest(PretrainingTest):
    def epochs(self, *options):
        out = self.folder / "run"
        self.train("--out", out, *options)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if line["kind"] == "epoch"]

    def test_workers_with_small_batches_are_one_with_a_large_batch(self):
        """An epoch is a step here, so each step's loss is written down."""
        alone, together = [], []
        for workers, batch, lines in ((1, 16, alone), (4, 4, together)):
            self.folder = self.folder / str(workers)
            self.folder.mkdir()
            lines += self.epochs("--workers", workers, "--batch", batch, "--steps", 20, "--dropout", 0)
        self.assertEqual(len(alone), 20)
        for step, (a, b) in enumerate(zip(alone, together)):
            self.assertAlmostEqual(b["train_loss"] / a["train_loss"], 1, delta=1e-5 if step == 0 else 1e-4)
            self.assertAlmostEqual(b["test_loss"] / a["test_loss"], 1, delta=1e-4)
            self.assertAlmostEqual(b["hard_perplexity"] / a["hard_perplexity"], 1, delta=1e-2)
        self.assertNotEqual(alone[0]["train_loss"], alone[1]["train_loss"])

    def test_resumed_equals_uninterrupted_and_a_seed_is_a_run(self):
        out, again = self.folder / "run", self.folder / "again"
        options = ("--workers", 2, "--batch", 3, "--steps", 9, "--dropout", 0.2, "--mask-fill", "learned",
                   "--checkpoint-every", 5, "--sync", "topk:density=0.2,min_elements=64")
        whole = self.train(*options, "--out", out)
        told = self.succeed("train", "--resume", out / "checkpoints" / "step-00000005", "--out", again, "--quiet",
                            "--json", "-")  # all else is in the run's config.yaml
        resumed = json.loads(told)
        for key in ("weights_crc32c", "metrics", "loss", "train_loss"):
            self.assertEqual(resumed[key], whole[key], key)
        cache = self.folder / "cache"
        self.assertEqual(self.train(*options, "--feature-cache", cache)["weights_crc32c"], whole["weights_crc32c"])
        self.assertEqual(len(list(cache.iterdir())), 2)  # training and test
        self.assertNotEqual(self.train(*options, "--seed", 2)["weights_crc32c"], whole["weights_crc32c"])

    def test_a_resumed_run_finds_the_features_of_its_first_half(self):
        """The file of its configuration has absolute paths."""
        here = self.shared / "corpus"
        self.succeed("train", "w2v-bert", "--data", ".", *SMALL, "--feature-cache", self.folder / "cache", "--steps", 2,
                     "--out", self.folder / "run", "--quiet", cwd=here)
        made = {path: path.stat().st_mtime_ns for path in (self.folder / "cache").iterdir()}
        self.assertEqual(len(made), 2)
        self.succeed("train", "--resume", self.folder / "run", "--steps", 3, "--quiet")
        self.assertEqual({path: path.stat().st_mtime_ns for path in (self.folder / "cache").iterdir()}, made)

    def test_inside_of_a_round_of_local_updates_it_goes_on_as_it_was_begun(self):
        options = ("--workers", 2, "--batch", 3, "--steps", 9, "--checkpoint-every", 6, "--sync", "streaming:every=4,fragments=2,delay=1")
        for out in "whole", "resumed":
            self.run_program(*self.train_words(*options, "--out", self.folder / out, "--quiet"))
        first, last = (self.folder / "resumed" / "checkpoints" / f"step-{step:08}" for step in (6, 9))
        self.assertTrue(first.is_dir())
        shutil.rmtree(last)
        self.run_program("train", "--resume", self.folder / "resumed", "--quiet")
        self.assertTrue(last.is_dir())
        whole, resumed = (json.loads((self.folder / out / "summary.json").read_text()) for out in ("whole", "resumed"))
        for key in ("weights_crc32c", "metrics", "loss", "train_loss"):
            self.assertEqual(resumed[key], whole[key], key)

    def test_codes_are_summed_over_workers_and_counted(self):
        """8 + 1 floats a step, and 2 * 8 + 4 in the evaluation after it, to and from the other of two workers."""
        options = ("--workers", 2, "--batch", 8, "--sync", "allreduce", "--warmup", 100, "--schedule", "isqrt")
        one, two = (self.train(*options, "--steps", steps)["bytes"] for steps in (1, 2))
        per_step = two["sent"] - one["sent"] - (two["dense"] - one["dense"])
        self.assertEqual(per_step, 4 * (8 + 1) + 4 * (2 * 8 + 4))

    def test_what_a_step_has_seen_is_written_down(self):
        for weight, options in ((1, ()), (0.1, ("--diversity", 0.1))):
            with self.subTest(diversity=weight):
                self.check_what_is_written(weight, *options)

    def check_what_is_written(self, weight, *options):
        out = self.folder / f"run{weight}"
        self.train("--steps", 10, "--batch", 4, "--out", out, *options)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        epoch = next(line for line in lines if line["kind"] == "epoch")
        steps = [line for line in lines if line["kind"] == "step"]
        self.assertEqual([line["step"] for line in steps], [1, 10])
        for line in steps:
            self.assertLessEqual({"contrastive_loss", "accuracy", "hard_perplexity", "information"},
                                 line.keys() & epoch.keys())
            self.assertTrue(1 <= line["hard_perplexity"] <= 8)
            joint = line["contrastive_loss"] + line["masked_loss"] + weight * line["diversity"]
            self.assertAlmostEqual(line["loss"], joint, places=3)

    def test_tensors_of_a_deep_network_are_counted_and_not_listed(self):
        done = self.run_program(*self.train_words("--steps", 1))
        self.assertIn("matrices and kernels", done.stdout)
        self.assertNotIn("encoder.layers.0", done.stdout)
        out = self.folder / "run"
        self.train("--steps", 1, "--out", out)
        start = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
        self.assertIn("encoder.layers.0.ffn1.intermediate_dense.weight", [one["name"] for one in start["tensors"]])

    def test_random_targets_and_either_task_alone(self):
        masked = self.train("--targets", "random", "--contrastive-blocks", 0, "--steps", 3)["metrics"]
        self.assertEqual((masked["contrastive_loss"], masked["accuracy"]), (0, 0))
        self.assertGreater(masked["masked_loss"], 0)
        contrastive = self.train("--masked-blocks", 0, "--steps", 3)["metrics"]
        self.assertEqual((contrastive["masked_loss"], contrastive["masked_gain"]), (0, 0))
        self.assertGreater(contrastive["contrastive_loss"], 0)

    def test_codes_that_nobody_learns_are_warned_of(self):
        alone = ("--contrastive-blocks", 0, "--steps", 1)
        self.assertIn("nothing teaches the quantiser", self.run_program(*self.train_words(*alone)).stderr)
        self.assertEqual(self.run_program(*self.train_words(*alone, "--targets", "random")).stderr, "")

    def test_by_gossip_statistics_are_each_workers_own(self):
        done = self.run_program(*self.train_words("--workers", 2, "--sync", "adpsgd-random", "--steps", 4))
        self.assertEqual(done.returncode, 0)
        self.assertIn("code statistics of its own", done.stderr)


class CollapseTest(PretrainingTest):
    def train_words(self, *options):
        """What is silent has one code: the quantiser hears nothing."""
        folder = self.shared / "silence"
        if not folder.exists():
            for speaker in range(4):
                write_sound(folder / f"s{speaker}" / "0.wav", [0] * RATE)
        return ["train", "w2v-bert", "--data", folder, *SMALL, "--batch", 1, "--lr", 0, "--schedule",
                "constant", "--warmup", 0, *options, *unless_kept(options)]

    def test_a_run_whose_codes_have_died_ends(self):
        done = self.run_program(*self.train_words("--workers", 2, "--steps", 150))
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stderr, r"^thinwire: the codes have collapsed: in the 50 steps before step 100, 1\.0 of 8 "
                                      r"were in use .*\n$")

    def test_or_goes_on_where_somebody_wants_to_see_that(self):
        done = self.run_program(*self.train_words("--steps", 150, "--on-collapse", "go"))
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("the codes have collapsed"), 1)
        self.assertNotIn("nan", done.stdout.lower())


class InputTest(PretrainingTest):
    def test_sizes_are_shown_without_memory(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        for size, least, most, blocks in (("xl", 0.58e9, 0.62e9, 24), ("xxl", 1.0e9, 1.08e9, 42)):
            told = self.succeed("train", "w2v-bert", "--size", size, "--describe")
            lines = [line.split() for line in told.splitlines()]
            in_blocks = sum(int(line[-1]) for line in lines if line[0].startswith("encoder.layers."))
            width, kernel = 1024, 5
            self.assertEqual(in_blocks, blocks * (23 * width**2 + (30 + kernel) * width))
            total = int(lines[-1][2])
            self.assertEqual(total, sum(int(line[-1]) for line in lines[:-1]))
            self.assertTrue(least < total < most, total)
        self.assertLess(max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss), 50000 + before)

    def test_a_size_that_the_memory_has_no_room_for_is_said_before_the_data_are_read(self):
        """20 bytes a parameter: the weight, its gradient, the exchange's copy of it and two moments. Beside them is what
        a step keeps. All workers of the process have them, and so has each rank that mpirun has started here."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        def needed(size):
            return [size, "1.00 GiB are there", "--size or --width"]

        small = ("--size", "xl", "--width", 256, "--batch", 1)  # 0.88 GiB
        ranks = {"OMPI_COMM_WORLD_LOCAL_SIZE": "16000"}
        for culprits, environment, *options in (
                (needed("13.60 GiB"), {}, "--size", "xl"),
                (["nowhere"], {}, *small),
                (needed("2 workers of this size take 1.76 GiB"), {}, *small, "--workers", 2),
                (needed("--batch 16"), {}, *small, "--batch", 16),
                (["nowhere"], {}, *small, "--workers", 2, "--memory-budget", "1GB"),
                (["16000 workers", "--size or --width"], ranks, *small)):
            with self.subTest(options=options):
                self.refuse(2, culprits, "train", "w2v-bert", "--data", "nowhere", *options, env=environment,
                            preexec_fn=limit)

    def test_what_cannot_be_is_refused(self):
        for culprits, *options in (
                (["heads", "16"], "--heads", 3),
                (["kernel", "4"], "--kernel", 4),
                (["3 groups", "code width"], "--groups", 3),
                (["block", "0 and 0"], "--contrastive-blocks", 0, "--masked-blocks", 0),
                (["--crop 0.1", "two spans"], "--crop", 0.1),
                (["probability", "0"], "--mask-probability", 0),
                (["probability", "1"], "--mask-probability", 1),
                (["--temperature 0,0,0.5"], "--temperature", "0,0,0.5"),
                (["--temperature 1,2,0.5"], "--temperature", "1,2,0.5"),
                (["--temperature 1,1e-300,0.5"], "--temperature", "1,1e-300,0.5"),
                (["distractor"], "--distractors", 0),
                (["--warmup"], "--schedule", "isqrt", "--warmup", 0),
                (["contrastive blocks"], "--targets", "random", "--contrastive-blocks", 1),
                (["none of 3 training speakers has a whole crop of 4 s", "--crop"], "--crop", 4),
                (["--batch 100", "crops"], "--batch", 100),
                (["thinwire/nowhere"], "--data", "/thinwire/nowhere")):
            with self.subTest(options=options):
                self.refuse_training(2, culprits, *options)
        self.refuse(2, ["--data is missing"], "train", "w2v-bert")

    def test_speakers_with_too_little_and_sounds_that_are_too_long_are_counted(self):
        folder = write_speakers(self.folder / "corpus", 4, 1)
        write_sound(folder / "short" / "0.wav", murmur("short", 0.3))
        write_sound(folder / "s0" / "long.wav", [5] * 11 * RATE)
        told = self.succeed(*self.train_words("--data", folder, "--test", folder, "--batch", 1, "--steps", 1,
                                              "--max-seconds", 10))
        self.assertIn("training: 1 of 5 speakers have no whole crop and are left out", told)
        self.assertIn("longer than 10 s", told)

    def finite_metrics(self, *options):
        """Of a run in which no figure at all is NaN or infinite."""
        out = self.folder / "run"
        summary = self.train("--steps", 12, "--out", out, *options)
        for line in (out / "metrics.jsonl").read_text().splitlines():
            for key, value in json.loads(line).items():
                self.assertTrue(not isinstance(value, float) or math.isfinite(value), (key, line))
        return summary["metrics"]

    def test_digital_silence_is_learned_from_without_nan(self):
        silence = self.folder / "silence"
        for speaker in range(4):
            write_sound(silence / f"s{speaker}" / "0.wav", [0] * RATE)
        metrics = self.finite_metrics("--data", silence, "--test", silence, "--batch", 2)
        self.assertEqual((metrics["hard_perplexity"], metrics["masked_negatives"]), (1, 1))

    def test_crops_with_fewer_than_two_hidden_rows_are_counted(self):
        metrics = self.finite_metrics("--batch", 2, "--mask-probability", 1e-9)
        crops = 2 * int(2 * SECONDS / 0.5)  # of the two speakers of the test part, who said two sounds each
        self.assertEqual((metrics["lonely_crops"], metrics["contrastive_loss"]), (crops, 0))

    def test_who_transcribes_with_it_is_told_what_is_missing(self):
        out = self.folder / "run"
        self.train("--steps", 1, "--out", out)
        self.refuse(2, ["pre-trained", "thinwire train asr"], "transcribe", out,
                    self.train_folder / "s0" / "0.wav")


if __name__ == "__main__":
    run_tests()
