"""Speech end to end: tones that stand for letters, workers, resuming, frames with classes, wrong sounds and lists,
transcribing."""
import json
import math
import os
import random
import shutil
import struct
import unittest
import wave

from checkpoint_file import split_file
from support import CommandLineTest, run_tests, unless_kept

RATE, WINDOW, HOP = 8000, 200, 80
PITCH = {"a": 300, "b": 600, "c": 1100, "d": 2000}  # Hz; other characters are silent
TEXTS = ("ab", "ba cd", "dda", "c", "abc d", "bb ac", "dcba", "a d")
WORDS = sum(len(text.split()) for text in TEXTS)
LETTER, GAP = 0.09, 0.03  # seconds


def speak(text, rate=RATE):
    """A tone a letter and some noise throughout, as samples from -1 to 1."""
    noise = random.Random(text)
    samples = []
    for letter in text:
        turn = 2 * math.pi * PITCH.get(letter, 0) / rate
        samples += [math.sin(turn * i) / 2 for i in range(int(LETTER * rate))] + [0] * int(GAP * rate)
    return [sample + noise.uniform(-.01, .01) for sample in samples]


def write_wav(path, samples, rate=RATE, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(struct.pack(f"<{len(samples)}h", *(int(32000 * sample) for sample in samples)))


def write_speech(folder, texts=TEXTS):
    """0.wav, 1.wav, ... and their manifest, whose path is returned."""
    folder.mkdir(parents=True)
    for i, text in enumerate(texts):
        write_wav(folder / f"{i}.wav", speak(text))
    return write_manifest(folder / "manifest.json", [(f"{i}.wav", text) for i, text in enumerate(texts)])


def write_words(folder):
    """Recordings 0 to 7 of two words, as the Free Spoken Digit Dataset names them; 0 to 4 are its owners' test."""
    folder.mkdir(parents=True)
    for index in range(8):
        for label, text in (("a", "ab"), ("7", "dcb")):
            write_wav(folder / f"{label}_nobody_{index}.wav", speak(text))
    return folder


def write_manifest(path, entries):
    """Of (file, text); a text of None is left out."""
    lines = [{"audio_filepath": str(name), **({} if text is None else {"text": text})} for name, text in entries]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def classes(text):
    """Which tone each frame's middle lies in; 0: none."""
    labels = []
    for first in range(0, len(speak(text)) - WINDOW + 1, HOP):
        letter, within = divmod((first + WINDOW // 2) / RATE, LETTER + GAP)
        labels.append(list(" " + "".join(PITCH)).index(text[int(letter)]) if within < LETTER else 0)
    return labels


def write_kaldi(folder, texts=TEXTS):
    """Kaldi's tables, with the classes of all frames in ali.txt."""
    write_speech(folder, texts)
    (folder / "text").write_text("".join(f"u{i} {text}\n" for i, text in enumerate(texts)))
    (folder / "wav.scp").write_text("".join(f"u{i} {i}.wav\n" for i in range(len(texts))))
    (folder / "ali.txt").write_text("".join(f"u{i} {' '.join(map(str, classes(text)))}\n"
                                            for i, text in enumerate(texts)))
    return folder


class SpeechTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.speech = write_speech(cls.shared / "speech")

    def train_words(self, *options):
        """A small network that knows the eight utterances by heart in a second."""
        return ["train", "asr", "--data", self.speech, "--test", self.speech, "--features",
                "rate=8000,bins=20,stack=2,stride=2", "--layers", 1, "--hidden", 24, "--batch", 2, "--lr", 0.3,
                "--warmup", 4, "--schedule", "constant", *options, *unless_kept(options)]

    def banner(self, *options):
        return self.succeed(*self.train_words("--steps", 1, *options))


class TrainingTest(SpeechTest):
    def test_eight_utterances_are_learned_by_heart(self):
        summary = self.train("--epochs", 30, "--batch", 4)
        self.assertEqual(summary["metric"], {"name": "wer", "value": 0})
        self.assertEqual(summary["metrics"], {"wer": 0, "cer": 0, "substitutions": 0, "insertions": 0, "deletions": 0,
                                              "words": WORDS})

    def test_convolutions_before_the_lstm_layers(self):
        """A quarter of the rows are enough to learn the eight by heart; a checkpoint says what it is of."""
        options, out = ("--features", "rate=8000,bins=20", "--channels", 6), self.folder / "run"
        summary = self.train(*options, "--epochs", 50, "--batch", 4, "--out", out)
        self.assertEqual(summary["metric"], {"name": "wer", "value": 0})
        done = self.run_program("transcribe", out, self.speech.parent / "0.wav")
        self.assertEqual(done.stdout, f"{self.speech.parent / '0.wav'}\t{TEXTS[0]}\n")
        losses = [self.train(*options, "--workers", workers, "--batch", 4 // workers, "--steps", 12)["loss"]
                  for workers in (1, 4)]
        self.assertAlmostEqual(losses[1] / losses[0], 1, places=4)

    def test_the_error_rate_is_that_of_the_counts(self):
        metrics = self.train("--epochs", 5, "--workers", 2)["metrics"]
        errors = metrics["substitutions"] + metrics["insertions"] + metrics["deletions"]
        self.assertEqual(metrics["words"], WORDS)
        self.assertGreater(errors, 0)
        self.assertAlmostEqual(metrics["wer"], errors / WORDS)

    def test_workers_with_small_batches_are_one_with_a_large_batch(self):
        masks = ("--tempo", 0.2, "--time-masks", 2, "--time-mask", 3, "--frequency-masks", 1, "--frequency-mask", 6)
        losses = [self.train("--workers", workers, "--batch", 4 // workers, "--steps", 12, *masks)["loss"]
                  for workers in (1, 2, 4)]
        for loss in losses[1:]:
            self.assertAlmostEqual(loss / losses[0], 1, places=4)

    def test_more_workers_than_test_utterances_evaluate_them_all_once(self):
        test = write_manifest(self.speech.parent / "three.json", [(f"{i}.wav", TEXTS[i]) for i in (1, 4, 5)])
        runs = [self.train("--test", test, "--steps", 1, "--lr", 0, "--workers", workers, "--batch", batch)
                for workers, batch in ((1, 1), (1, 8), (2, 2), (4, 2), (8, 1))]
        for run in runs:
            self.assertEqual(run["metrics"], runs[0]["metrics"])
            self.assertAlmostEqual(run["loss"] / runs[0]["loss"], 1, places=5)
        self.assertEqual(runs[0]["metrics"]["words"], 6)

    def test_what_is_held_out_is_watched_and_the_test_comes_last(self):
        out = self.folder / "run"
        self.train("--validation", 0.3, "--epochs", 1, "--out", out)
        told = self.succeed("train", "--resume", out, "--epochs", 2)
        summary = json.loads((out / "summary.json").read_text())
        held = len(TEXTS) - summary["steps"]  # batches of 2, twice
        self.assertIn(f"{len(TEXTS) - held} training, {held} validation and {len(TEXTS)} test utterances", told)
        self.assertIn("validation loss", told)
        self.assertRegex(told.splitlines()[-1], "^test wer .* after")
        self.assertEqual((summary["split"], summary["metrics"]["words"]), ("test", WORDS))
        self.assertLess(summary["validation"]["metrics"]["words"], WORDS)
        whole = self.train("--validation", 0.3, "--epochs", 2)
        self.assertEqual(whole["weights_crc32c"], summary["weights_crc32c"])
        beside = self.train("--validation-data", self.speech, "--steps", 1)
        self.assertEqual(beside["validation"], {key: beside[key] for key in ("metric", "metrics", "loss")})
        self.refuse_training(2, ["--validation-data", "one of them"], "--validation", 0.3, "--validation-data", self.speech)

    def test_every_kind_of_scheme_trains(self):
        for sync in ("dgc:density=0.05,warmup_steps=10", "sdagc:density=0.05,warmup_steps=10",
                     "scalecom:rate=10,warmup_steps=10", "powersgd", "adpsgd-random", "dpsgd"):
            with self.subTest(sync=sync):
                self.assertLess(self.train("--workers", 2, "--epochs", 60, "--sync", sync)["metrics"]["cer"], 0.3)

    def test_a_folder_of_words_has_its_owners_split(self):
        done = self.run_program("train", "asr", "--data", write_words(self.folder / "words"), "--features", "rate=8000",
                                "--batch", 2, "--hidden", 8, "--steps", 1)
        self.assertIn("6 training and 10 test utterances", done.stdout)
        self.assertIn("5 letters", done.stdout)  # of "a" and "seven"


class FramesTest(SpeechTest):
    def train_words(self, *options):
        folder = self.shared / "kaldi"
        if not folder.exists():
            write_kaldi(folder)
        return ["train", "asr", "--model", "frames", "--data", folder, "--test", folder, "--alignment",
                folder / "ali.txt", "--features", "rate=8000,bins=20", "--window", 12, "--layers", 1, "--hidden", 16,
                "--bottleneck", 8, "--batch", 4, "--lr", 0.3, "--warmup", 4, "--schedule", "constant", *options,
                *unless_kept(options)]

    def test_tones_are_told_apart(self):
        summary = self.train("--epochs", 15, "--workers", 2)
        self.assertEqual(summary["metric"]["name"], "frame_accuracy")
        self.assertGreater(summary["metric"]["value"], 0.9)
        frames = sum(len(classes(text)) for text in TEXTS if len(classes(text)) >= 12)
        correct = summary["metric"]["value"] * frames
        self.assertAlmostEqual(correct, round(correct), places=6)

    def test_windows_and_frames_are_what_is_counted(self):
        windows = sum(-(-len(classes(text)) // 12) for text in TEXTS if len(classes(text)) >= 12)
        text = self.banner("--workers", 2)
        self.assertIn(f"{windows} training and {windows} test windows of 12 frames", text)
        self.assertIn("a worker; 1 steps of 2 x 4 windows", text)
        self.assertNotIn("would send", self.banner("--workers", 1))

    def test_wrong_alignments(self):
        folder = self.folder / "kaldi"
        write_kaldi(folder, TEXTS[:6])
        path = folder / "ali.txt"
        lines = path.read_text().splitlines()
        cut = [" ".join(lines[0].split()[:-6]), *lines[2:]]
        path.write_text("\n".join(cut) + "\n")
        options = ("--data", folder, "--alignment", path)
        self.assertIn("training: 3 utterances skipped: 1 too short (u3: frames 10), 2 without a fitting alignment (first: "
                      "u0", self.banner(*options))
        path.write_text("\n".join(["u0 1 x 2", *lines[1:]]) + "\n")
        self.refuse_training(2, [path, "line 1", "x"], *options)
        path.write_text("other 1 2 3\n")
        self.refuse_training(2, ["none of 6 training utterances", "alignment"], *options)
        self.refuse_training(2, ["nowhere"], "--alignment", folder / "nowhere")

    def test_wrong_options(self):
        words = list(map(str, self.train_words("--quiet")))
        at = words.index("--alignment")
        self.refuse(2, ["--alignment"], *words[:at], *words[at + 2:])
        self.refuse_training(2, ["stride=1"], "--features", "rate=8000,bins=20,stack=2,stride=2")
        self.refuse_training(2, ["--time-masks", "ctc"], "--time-masks", 1)
        self.refuse_training(2, ["--tempo", "ctc"], "--tempo", 0.1)
        self.refuse_training(2, ["--batch 400", "windows"], "--batch", 400)


class OtherRunTest(SpeechTest):
    def test_other_speech_or_settings_are_refused(self):
        out = self.folder / "run"
        self.train("--steps", 2, "--out", out)
        other = write_manifest(self.speech.parent / "other.json", [(f"{i}.wav", "ab dc") for i in range(8)])
        for options in (("--data", other), ("--features", "rate=8000,bins=20"), ("--hidden", 25), ("--dropout", 0.1),
                        ("--time-masks", 1), ("--model", "frames", "--alignment", other)):
            self.refuse_training(2, [], *options, "--steps", 4, "--out", out, "--resume")


class WrongSpeechTest(SpeechTest):
    def add(self, name, samples, **form):
        path = self.folder / name
        write_wav(path, samples, **form)
        return path

    def manifest(self, *entries):
        """The eight good utterances, and others."""
        good = [(self.speech.parent / f"{i}.wav", text) for i, text in enumerate(TEXTS)]
        return write_manifest(self.folder / "list.json", [*good, *entries])

    def test_sounds_that_cannot_be_used_are_left_out_and_counted(self):
        sound = (self.speech.parent / "4.wav").read_bytes()
        bad = {"empty": b"", "text": b"this is no sound at all\n" * 40, "random": random.Random(1).randbytes(3000),
               "header": sound[:44], "half-a-header": sound[:20]}
        for name, content in bad.items():
            (self.folder / name).write_bytes(content)
        names = [*bad, "missing", ".", self.add("stereo.wav", speak("ab"), channels=2),
                 self.add("long.wav", 4 * speak("abcd abcd")), self.add("none.wav", [])]
        for name in names:
            with self.subTest(name=name):
                text = self.banner("--data", self.manifest((name, "ab")), "--max-seconds", 3)
                self.assertIn("8 training and 8 test utterances", text)
                self.assertIn(f"training: 1 utterance skipped: 1 with unusable audio ({self.folder}/"
                              if "/" not in str(name) else str(name), text)
        text = self.banner("--data", self.manifest(*((name, "ab") for name in names)), "--max-seconds", 3)
        self.assertIn(f"training: {len(names)} utterances skipped: {len(names)} with unusable audio (first: ", text)

    def test_what_has_no_sound_or_no_name_is_counted(self):
        kaldi = write_kaldi(self.folder / "kaldi")
        with (kaldi / "text").open("a") as text:
            text.write("lost ab\n")
        self.assertIn("training: 1 utterance skipped: 1 with unusable audio (lost: in text, but not in wav.scp)",
                      self.banner("--data", kaldi, "--test", self.speech))
        words = write_words(self.folder / "words")
        shutil.copy(words / "a_nobody_7.wav", os.fsencode(words) + b"/caf\xe9_nobody_7.wav")
        text = self.banner("--data", words, "--test", words)
        self.assertIn("16 training and 16 test utterances", text)
        self.assertIn("training: 1 utterance skipped: 1 with unusable audio (caf\\xe9_nobody_7: the name", text)

    def test_transcripts_that_cannot_be_used(self):
        entries = [("0.wav", None), ("0.wav", ""), ("0.wav", "?!"), ("0.wav", "abcdabcdabcdabcdabcdabcdabcd")]
        listed = write_manifest(self.speech.parent / "list.json",
                                [*((f"{i}.wav", text) for i, text in enumerate(TEXTS)), *entries])
        text = self.banner("--data", listed)
        self.assertIn("4 utterances skipped: 3 without a transcript (first: 0.wav), 1 too short (0.wav: ", text)

    def test_characters_that_training_has_not(self):
        text = self.banner("--test", self.manifest(("x.wav", "abx")))
        self.assertIn("test: 1 utterance skipped: 1 with characters outside the alphabet", text)
        self.assertIn('has no "x"', text)

    def test_other_rates_and_named_channels_are_used(self):
        pair = [sample for one in speak("ab", 16000) for sample in (0, one)]
        entries = (self.add("16k.wav", speak("ab", 16000), rate=16000), "ab"), \
                  (self.add("stereo.wav", pair, rate=16000, channels=2), "ab")
        self.assertIn("9 training", self.banner("--data", self.manifest(entries[0])))
        self.assertNotIn("fits", self.banner())
        self.assertIn("0.wav: 8000 samples a second", self.banner("--features", "rate=16000"))
        text = self.banner("--data", write_manifest(self.folder / "two.json", 2 * [entries[1]]), "--channel", 1,
                           "--max-seconds", 3, "--test", write_manifest(self.folder / "one.json", [entries[1]]))
        self.assertIn("2 training and 1 test", text)

    def refuse_list(self, culprits, content):
        path = self.folder / "bad.json"
        path.write_bytes(content)
        self.refuse_training(2, [path, *culprits], "--data", path)

    def test_lists_that_cannot_be_read(self):
        good = json.dumps({"audio_filepath": str(self.speech.parent / "0.wav"), "text": "ab"}).encode() + b"\n"
        self.refuse_list(["line 3", "not a JSON object", "{nonsense"], 2 * good + b"{nonsense\n" + good)
        self.refuse_list(["line 2", "not a JSON object"], good + b"[1, 2]\n")
        self.refuse_list(["line 1", "audio_filepath"], b'{"text": "ab"}\n')
        self.refuse_list(["line 2", "duration"], good + good.replace(b"{", b'{"duration": "long", '))
        self.refuse_list(["line 2", "UTF-8"], good + good.replace(b"ab", b"a\xff"))
        self.refuse_list(["empty"], b"")
        none = write_manifest(self.folder / "none.json", 2 * [("nowhere.wav", "ab")])
        for option, part in (("--data", "training"), ("--test", "test"), ("--validation-data", "validation")):
            done = self.refuse_training(2, [f"none of 2 {part} utterances", "2 with unusable audio"], option, none)
            self.assertNotIn("drawn", done.stderr)

    def test_of_too_few_it_is_told_what_was_left_out(self):
        """In one line, also where several parts lack some."""
        some = write_manifest(self.speech.parent / "some.json", [("0.wav", "ab"), *3 * [("nowhere.wav", "ab")]])
        self.refuse_training(2, ["but there are only 1; training: 3 utterances skipped: 3 with unusable audio",
                                 "; test: 3 utterances skipped"], "--data", some, "--test", some, "--batch", 4)

    def test_of_parts_that_were_drawn_the_option_that_names_others_is_told(self):
        """Of digits, the first five that each speaker says are the test part."""
        folder = self.folder / "digits"
        folder.mkdir()
        for index in (1, 7, 8):
            write_wav(folder / f"0_jo_{index}.wav", speak("abcd"))
        (folder / "0_jo_1.wav").write_text("no sound")
        hint = "; they were drawn out of the training part, and --test names others"
        self.refuse(2, ["none of 1 test utterances", hint], "train", "asr", "--data", folder, "--out", "none")

    def test_folders_without_speech(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.refuse_training(2, [empty, "no speech corpus"], "--data", empty)
        self.refuse_training(2, [self.folder / "nowhere"], "--data", self.folder / "nowhere")
        self.refuse_training(2, [empty], "--test", empty)
        kaldi = write_kaldi(self.folder / "kaldi")
        (kaldi / "wav.scp").write_text("u0 sox x.wav -t wav - |\n")
        self.refuse_training(2, [kaldi, "wav.scp", "line 1", "command"], "--data", kaldi)

    def test_wrong_options(self):
        self.refuse(2, ["--data"], "train", "asr", "--quiet")
        self.refuse_training(2, ["features", "bans"], "--features", "bans=3")
        self.refuse_training(2, ["low", "high"], "--features", "rate=8000,low=5000")
        self.refuse_training(2, ["bins=200"], "--features", "rate=8000,bins=200")
        self.refuse_training(2, ["--alignment", "ctc"], "--alignment", self.speech)
        self.refuse_training(2, ["--batch 9", "utterances", "8"], "--batch", 9)
        self.refuse_training(2, ["--model", "ctc"], "--model", "rnnt")
        self.refuse_training(2, ["/nowhere", "beyond 1 MiB", "TMPDIR", "--memory"], "--features",
                             "rate=8000,bins=20,hop_ms=1,stack=64", "--memory", 4,
                             env={"TMPDIR": "/nowhere", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"})

    def test_features_beyond_the_memory_are_the_same(self):
        """What is read from the temporary file, or from that of an earlier run, has the bits of what was kept."""
        features = ("--features", "rate=8000,bins=20,hop_ms=1,stack=64,stride=8", "--steps", 2)
        kept, filed = (self.train(*features, "--memory", megabytes)["weights_crc32c"] for megabytes in (100, 1))
        self.assertEqual(kept, filed)
        cache = self.folder / "parents/of/the/cache"
        for _ in range(2):
            self.assertEqual(self.train(*features, "--feature-cache", cache)["weights_crc32c"], kept)
            self.assertEqual(len(list(cache.iterdir())), 1)  # both parts are one list here
        self.refuse_training(2, ["Not a directory", "--feature-cache"], "--feature-cache", self.speech)


class TranscribingTest(SpeechTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.shared / "run"
        cls().train("--epochs", 30, "--batch", 4, "--out", cls.run_folder)
        cls.files = [cls.speech.parent / f"{i}.wav" for i in range(len(TEXTS))]

    def runTest(self):
        pass

    def transcribe(self, *words, path=None, code=0):
        done = self.run_program("transcribe", path or self.run_folder, *words)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout.splitlines(), done.stderr.splitlines()

    def test_a_file_that_says_more_than_it_holds_is_refused(self):
        """Before memory is taken: these few bytes would ask for 17 gigabytes."""
        path = self.folder / "model.safetensors"
        texts = {"format": "thinwire checkpoint 1", "task": "asr", "checksum": "00000000", "alphabet": " ab", "layers": "1",
                 "feature settings": "rate=8000,bins=4", "hidden": "16384", "bottleneck": "0"}
        for more in ({}, {"hidden": "1", "channels": "65536"}):
            header = json.dumps({"__metadata__": texts | more}).encode()
            path.write_bytes(struct.pack("<Q", len(header)) + header)
            self.refuse(2, [path, "weights", "holds 0"], "transcribe", path, self.files[0])

    def test_what_was_learned_is_written_down(self):
        expected = [f"{file}\t{text}" for file, text in zip(self.files, TEXTS)]
        for options in ((), ("--beam", 8), ("--beam", 1, "--bonus", 0.1)):
            self.assertEqual(self.transcribe(*self.files, *options), (expected, []))

    def test_json(self):
        lines, _ = self.transcribe("--json", *self.files, "--beam", 4)
        for line, file, text in zip(lines, self.files, TEXTS, strict=True):
            found = json.loads(line)
            self.assertEqual((found["file"], found["text"]), (str(file), text))
            self.assertAlmostEqual(found["seconds"], len(speak(text)) / RATE, places=3)
        done = self.run_program("predict", self.run_folder, "--json", *self.files, "--beam", 4)
        self.assertEqual(done.stdout.splitlines(), lines)

    def test_every_name_of_a_checkpoint(self):
        newest = sorted((self.run_folder / "checkpoints").iterdir())[-1]
        for path in (newest, newest / "model.safetensors"):
            self.assertEqual(self.transcribe(self.files[1], path=path)[0], [f"{self.files[1]}\t{TEXTS[1]}"])

    def test_bad_files_among_good_ones(self):
        bad = {"empty.wav": b"", "text.wav": b"no sound\n" * 100, "short.wav": None, "stereo.wav": None}
        for name, content in bad.items():
            if content is not None:
                (self.folder / name).write_bytes(content)
        write_wav(self.folder / "short.wav", speak("a")[:50])
        write_wav(self.folder / "stereo.wav", speak("a"), channels=2)
        files = [self.files[0], *(self.folder / name for name in bad), self.folder / "nowhere.wav", self.files[1]]
        lines, complaints = self.transcribe(*files, code=2)
        self.assertEqual(lines, [f"{self.files[i]}\t{TEXTS[i]}" for i in (0, 1)])
        self.assertEqual(len(complaints), 5)
        for file, complaint in zip(files[1:-1], complaints):
            self.assertIn(str(file), complaint)
        self.refuse(2, [self.files[1], "longer"], "transcribe", self.run_folder, self.files[1], "--max-seconds", 0.2)

    def test_other_rates_and_channels(self):
        both = [sample for one in speak("ba cd", 16000) for sample in (0.01 * one, one)]
        path = self.folder / "stereo.wav"
        write_wav(path, both, rate=16000, channels=2)
        self.assertEqual(self.transcribe(path, "--channel", 1)[0], [f"{path}\tba cd"])

    def test_what_is_no_recogniser(self):
        newest = sorted((self.run_folder / "checkpoints").iterdir())[-1] / "model.safetensors"
        damaged = bytearray(newest.read_bytes())
        damaged[-5] ^= 1
        (self.folder / "damaged").write_bytes(damaged)
        image = self.folder / "image"
        self.complete("train", "image", "--data", self.data, "--batch", 8, "--steps", 1, "--quiet", "--out", image)
        self.refuse(2, ["nowhere"], "transcribe", self.folder / "nowhere", self.files[0])
        self.refuse(2, ["damaged"], "transcribe", self.folder / "damaged", self.files[0])
        self.refuse(2, [image, "train image", "thinwire predict"], "transcribe", image, self.files[0])
        self.refuse(2, [self.files[0]], "transcribe", self.files[0], self.files[0])
        self.refuse(2, ["CHECKPOINT"], "transcribe", self.run_folder)
        self.refuse(2, ["--beam"], "transcribe", self.run_folder, self.files[0], "--beam", -1)

    def test_the_weights_are_a_safetensors_file(self):
        header, data = split_file(sorted((self.run_folder / "checkpoints").iterdir())[-1] / "model.safetensors")
        text = header.pop("__metadata__")
        self.assertEqual(text["alphabet"], " abcd")
        for pair in ("rate=8000", "bins=20", "stack=2", "stride=2", "window_ms=25"):
            self.assertIn(pair, text["feature settings"].split(","))
        self.assertEqual(header["rnn.weight_ih_l0"]["shape"], [4 * 24, 2 * 20])
        self.assertEqual(header["output.weight"]["shape"], [5 + 1, 2 * 24])
        self.assertEqual(max(entry["data_offsets"][1] for entry in header.values()), len(data))


if __name__ == "__main__":
    run_tests()
