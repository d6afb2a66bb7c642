"""A pre-trained speech encoder becomes a recogniser: what is taken, what is frozen, resuming, MPI, transcribing, and what
does not fit."""
import json
import shutil

from asr import TEXTS, speak, write_manifest, write_speech, write_wav
from checkpoint_file import split_file
from support import CommandLineTest, run_tests, unless_kept

FEATURES = "rate=8000,bins=8,low=60,high=3800,floor=0.01"
ENCODER = ("feature_extractor.", "feature_projection.", "encoder.")
UNFELT = "linear_k.bias"  # a key's bias adds as much to all of a row's scores, and softmax does not feel that
AT_ONCE = ("--freeze-steps", 0)
NEVER = "the run ends before --freeze-steps does: the encoder does not learn; give more --steps\n"
CONVOLUTIONS = ("feature_extractor.", "feature_projection.layer_norm")


class FineTuningTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.speech = write_speech(cls.shared / "speech", 2 * TEXTS)
        cls.run_folder = cls.shared / "w2v"
        cls().pretrain(cls.run_folder)

    def runTest(self):
        pass

    def pretrain(self, out, *options):
        self.complete("train", "w2v-bert", "--data", self.speech.parent, "--features", FEATURES,
                      "--contrastive-blocks", 1, "--masked-blocks", 1, "--width", 16, "--heads", 2, "--kernel", 3,
                      "--codes", 8, "--crop", 0.4, "--mask-span", 2, "--mask-probability", 0.2, "--steps", 2,
                      "--batch", 2, "--quiet", "--out", out, *options)

    def train_words(self, *options):
        return ["train", "asr", "--data", self.speech, "--test", self.speech, "--init", self.run_folder, "--batch", 2,
                *options, *unless_kept(options)]

    def tensors(self, run, prefixes=("",)):
        """Of the newest checkpoint, but for the optimiser's."""
        header, data = split_file(sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors")
        return {name: bytes(data[slice(*entry["data_offsets"])]) for name, entry in header.items()
                if name.startswith(prefixes) and "." in name and not name.startswith("optimiser.")}


class TakingTest(FineTuningTest):
    def test_what_was_taken_left_and_new_is_told(self):
        done = self.complete(*self.train_words("--steps", 1))
        taken = len(self.tensors(self.run_folder, ENCODER))
        left = sorted(name for name in self.tensors(self.run_folder) if not name.startswith(ENCODER))
        self.assertIn(f"{taken} tensors are taken; {len(left)} are left (", done.stderr)
        self.assertIn("project_q.weight", left)
        for name in (*left, "new: output.weight, output.bias\n"):
            self.assertIn(name, done.stderr)

    def test_sizes_and_features_are_those_of_the_checkpoint(self):
        out = self.folder / "run"
        self.train("--steps", 1, "--lr", 0, "--out", out)
        config = (out / "config.yaml").read_text()
        for line in ("encoder: conformer", "blocks: 2", "width: 16", "heads: 2", "kernel: 3", "channels: 32"):
            self.assertIn(line + "\n", config)
        self.assertIn("high=3800", config)
        self.assertEqual(self.tensors(out, ENCODER), self.tensors(self.run_folder, ENCODER))
        again = self.folder / "again"  # and what was fine-tuned can be begun with, by a run of other letters
        letters = write_manifest(self.speech.parent / "ab.json", [("0.wav", "ab"), ("5.wav", "bb a")])
        self.train("--data", letters, "--test", letters, "--init", out, "--steps", 1, "--lr", 0, "--out", again)
        self.assertEqual(self.tensors(again, ENCODER), self.tensors(out, ENCODER))
        self.assertNotEqual(len(self.tensors(again)["output.bias"]), len(self.tensors(out)["output.bias"]))

    def test_a_last_layer_of_other_letters_is_taken_with_a_warning(self):
        out = self.folder / "run"
        self.train("--steps", 1, "--out", out)
        letters = write_manifest(self.speech.parent / "abce.json", [("0.wav", "abe c"), ("5.wav", "bb a")])
        for speech, told in ((self.speech, []), (letters, ['where it had " abcd" this run has " abce"'])):
            done = self.run_program(*self.train_words("--data", speech, "--test", speech, "--init", out, "--steps", 1))
            self.assertEqual((done.returncode, [line.split("labels: ")[1] for line in done.stderr.splitlines()]), (0, told),
                             done.stderr)

    def test_it_learns_and_writes_down_what_it_hears(self):
        out = self.folder / "run"
        summary = self.train("--steps", 200, "--batch", 4, "--lr", 0.01, *AT_ONCE, "--out", out)
        self.assertLess(summary["metrics"]["cer"], 0.05)
        file = self.speech.parent / "2.wav"
        done = self.run_program("transcribe", out, file)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{file}\t{TEXTS[2]}\n", ""))
        exported = self.folder / "network"
        self.complete("export", out, exported)

    def test_letters_come_from_another_corpus(self):
        some = write_manifest(self.speech.parent / "some.json", [("0.wav", "ab"), ("5.wav", "bb ac")])
        options = ("--data", some, "--steps", 1, "--lr", 0)
        fewer = self.run_program(*self.train_words(*options))
        self.assertIn("2 training and 6 test utterances of 4 letters", fewer.stdout)  # those without a d
        done = self.run_program(*self.train_words(*options, "--labels-from", self.speech))
        self.assertIn("2 training and 16 test utterances of 5 letters", done.stdout)
        empty = write_manifest(self.speech.parent / "untold.json", [("0.wav", None), ("1.wav", None)])
        self.refuse(2, ["--labels-from", "untold.json", "transcripts"],
                    *self.train_words(*options, "--labels-from", empty))

    def test_words_said_faster_than_four_frames_a_letter_are_left_out(self):
        """Three letters need three rows: nine frames, and twelve to be sure."""
        hop, window = 80, 200
        for frames, text in ((8, "abc"), (9, "abc"), (30, "ab")):
            write_wav(self.speech.parent / f"f{frames}.wav", speak("abcd")[:window + (frames - 1) * hop])
        fast = write_manifest(self.speech.parent / "fast.json",
                              [("f8.wav", "abc"), ("f9.wav", "abc"), ("f30.wav", "ab")])
        done = self.run_program(*self.train_words("--data", fast, "--test", fast, "--steps", 1))
        self.assertIn("2 training and 2 test utterances", done.stdout)


class FreezingTest(FineTuningTest):
    def frozen(self, *options):
        """The names that are as they were, and those that are not."""
        out = self.folder / "run"
        self.train("--steps", 4, "--weight-decay", 0.1, *options, "--out", out)
        before, after = self.tensors(self.run_folder, ENCODER), self.tensors(out, ENCODER)
        self.assertEqual(before.keys(), after.keys())
        self.assertNotEqual(set(self.tensors(out, "output.weight")["output.weight"]), {0})
        same = {name for name in before if before[name] == after[name] and not name.endswith(UNFELT)}
        shutil.rmtree(out)
        return same, {name for name in before if before[name] != after[name]}

    def test_what_is_frozen_keeps_its_bits(self):
        for sync in ("allreduce", "topk:density=0.1", "adpsgd-random"):
            workers = ("--workers", 2, "--sync", sync)
            self.assertEqual(self.frozen("--freeze", "encoder", *workers)[1], set())
            same, moved = self.frozen("--freeze", "features", *workers, *AT_ONCE)
            self.assertEqual(same, {name for name in same | moved if name.startswith(CONVOLUTIONS)})
            self.assertEqual(len(same), 6)
            same, moved = self.frozen(*workers, *AT_ONCE)
            self.assertEqual(same, set())

    def test_the_last_layer_moves_alone_before_a_step(self):
        for optimiser in ((), ("--optimizer", "sgd", "--lr", 0.01)):
            for workers in (1, 2):
                self.assertEqual(self.frozen("--freeze-steps", 4, "--workers", workers, *optimiser)[1], set())
                self.assertEqual(self.frozen("--freeze-steps", 3, "--workers", workers, *optimiser)[0], set())

    def test_after_pre_training_the_last_layer_moves_alone_at_first(self):
        self.assertEqual(self.frozen()[1], set())
        first, again = self.folder / "first", self.folder / "again"
        for out, begin in ((first, self.run_folder), (again, first)):
            self.train("--init", begin, "--steps", 1, "--out", out)
        told = self.run_program(*self.train_words("--steps", 1)).stdout
        self.assertIn("--freeze-steps 500: before that the last layer alone learns\n", told)
        self.assertIn(NEVER, told)
        for steps, never in ((3, True), (4, False)):
            told = self.run_program(*self.train_words("--steps", steps, "--freeze-steps", 3)).stdout
            self.assertEqual(NEVER in told, never, steps)
        self.assertNotIn(NEVER, self.run_program(*self.train_words("--steps", 1, "--freeze", "encoder")).stdout)
        for out, steps in ((first, 500), (again, 0)):
            self.assertIn(f"freeze-steps: {steps}\n", (out / "config.yaml").read_text())

    def test_what_is_frozen_is_not_exchanged(self):
        full, probe = (self.train("--steps", 2, "--workers", 2, *freeze) for freeze in (AT_ONCE, ("--freeze", "encoder")))
        output = 16 * 6 + 6
        self.assertLess(probe["bytes"]["sent"], full["bytes"]["sent"] / 50)
        self.assertGreater(probe["bytes"]["sent"], 0)
        self.assertLessEqual(probe["bytes"]["sent"], 2 * 2 * output * 4)

    def test_resumed_equals_uninterrupted(self):
        for freeze in (("--freeze-steps", 3), ("--freeze", "features", *AT_ONCE), ("--freeze", "encoder", "--dropout", 0.1)):
            whole, parts = self.folder / "whole", self.folder / "parts"
            options = ("--workers", 2, "--epochs", 2, *freeze)
            self.train(*options, "--out", whole)
            self.train(*options, "--checkpoint-every", 2, "--out", parts)
            shutil.rmtree(sorted((parts / "checkpoints").iterdir())[-1])
            self.succeed("train", "--resume", parts, "--quiet")
            self.assertEqual(self.tensors(whole), self.tensors(parts))
            for run in (whole, parts):
                shutil.rmtree(run)


class RefusalTest(FineTuningTest):
    def test_what_does_not_fit(self):
        damaged = self.folder / "damaged"
        newest = sorted((self.run_folder / "checkpoints").iterdir())[-1] / "model.safetensors"
        spoilt = bytearray(newest.read_bytes())
        spoilt[-5] ^= 1
        damaged.write_bytes(spoilt)
        foreign = self.folder / "foreign.safetensors"
        header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        foreign.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        image, lstm = self.folder / "image", self.folder / "lstm"
        for words in (("image", "--data", self.data, "--batch", 8, "--out", image),
                      ("asr", "--data", self.speech, "--test", self.speech, "--hidden", 4, "--out", lstm)):
            self.complete("train", *words, "--steps", 1, "--quiet")
        wrong = [(("--init", "nowhere"), ["nowhere"]),
                 (("--init", self.speech), ["manifest.json", "safetensors"]),
                 (("--init", foreign), ["foreign.safetensors", "thinwire checkpoint"]),
                 (("--init", image), ["image", "asr", "w2v-bert"]),
                 (("--init", lstm, "--encoder", "conformer"), ["--encoder conformer", "LSTM"]),
                 (("--encoder", "lstm"), ["--encoder lstm", "--encoder conformer"]),
                 (("--width", 32), ["feature_projection.projection.weight", "16x64", "32x64"]),
                 (("--blocks", 3), ["encoder.layers.2."]),
                 (("--init", damaged), ["damaged"]),
                 (("--features", FEATURES.replace("60", "70")), ["--features", "low=60"]),
                 (("--bottleneck", 4), ["--bottleneck", "lstm"])]
        for options, culprits in wrong:
            with self.subTest(options=options):
                self.refuse(2, culprits, *self.train_words(*options, "--steps", 1), "--quiet")
        self.refuse(2, ["--resume", "--init-from"], *self.train_words("--resume", self.run_folder))

    def test_sizes_that_cannot_be(self):
        words = ("train", "asr", "--data", self.speech, "--test", self.speech, "--steps", 1, "--out", "none")
        for options, culprit in ((("--heads", 3), "3 heads"), (("--kernel", 4), "odd"), (("--blocks", 0), "block"),
                                 (("--model", "frames", "--alignment", "x"), "--model frames")):
            self.refuse(2, [culprit], *words, "--encoder", "conformer", *options)
        for option in ("--blocks", "--width", "--heads", "--kernel", "--freeze-steps"):
            self.refuse(2, [option, "--encoder conformer"], *words, option, 2)
        self.refuse(2, ["--freeze", "--encoder conformer"], *words, "--freeze", "encoder")
        self.refuse(2, ["--channels", "--model ctc"], *words, "--channels", 2, "--model", "frames", "--alignment", "x")

    def test_transcribing_with_what_is_only_pre_trained(self):
        self.refuse(2, ["pre-trained", "thinwire train asr", "--init-from"], "transcribe", self.run_folder,
                    self.speech.parent / "0.wav")

    def test_a_file_that_says_more_than_it_holds_is_refused(self):
        path = self.folder / "model.safetensors"
        texts = {"format": "thinwire checkpoint 1", "task": "asr", "checksum": "00000000", "alphabet": " ab",
                 "feature settings": "rate=8000,bins=4"}
        for sizes, culprit in (("width=65536,heads=1,kernel=3,blocks=1000", "weights"),
                               ("width=4294967295,heads=1,kernel=3,blocks=1000", "cannot be"), ("width=4", "cannot be")):
            texts["speech encoder"] = f"features=4,channels=4,{sizes},relative=0"
            header = json.dumps({"__metadata__": texts}).encode()
            path.write_bytes(len(header).to_bytes(8, "little") + header)
            self.refuse(2, [path, culprit], "transcribe", path, self.speech.parent / "0.wav")


if __name__ == "__main__":
    run_tests()
