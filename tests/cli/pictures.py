"""A folder of pictures, from the first training to the classes of new ones: train, resume, predict."""
import json
import os
import random
import shutil
import struct
import unittest
import zlib

from support import CommandLineTest, needs_mpi, run_tests, under_mpi

CLASSES = {"green": (40, 200, 60), "red": (210, 50, 40), "sea blue": (30, 60, 190)}


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, pixel):
    rows = b"".join(b"\0" + bytes(value for x in range(width) for value in pixel(x, y)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_picture(path, colour, generator):
    """A noisy surface, of another size each time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = generator.randrange(12, 40), generator.randrange(12, 40)
    path.write_bytes(png(width, height, lambda x, y: (min(255, max(0, value + generator.randrange(-40, 40)))
                                                      for value in colour)))


class PicturesTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(3)
        cls.photos = cls.shared / "photos"
        for name, colour in CLASSES.items():
            for i in range(20):
                write_picture(cls.photos / name / f"{i}.png", colour, generator)
            write_picture(cls.shared / "new" / f"{name}.png", colour, generator)
        cls.new = [cls.shared / "new" / f"{name}.png" for name in CLASSES]

    def train_words(self, *options):
        return ["train", "image", "--data", self.photos, "--validation", 0.2, "--image-size", 16, "--batch", 6, *options]

    def predict(self, run, *words, code=0):
        done = self.run_program("predict", run, *words)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout.splitlines(), done.stderr.splitlines()


class RunTest(PicturesTest):
    def test_train_resume_and_predict(self):
        run, whole = self.folder / "run", self.folder / "whole"
        varied = ("--flip", "--crop", 2, "--resized-crop", "--lr", 0.01)
        self.train("--epochs", 2, "--out", run, *varied)
        resumed = self.train("--epochs", 6, "--resume", run, *varied)
        uninterrupted = self.train("--epochs", 6, "--out", whole, *varied, "--decoders", 5)
        self.assertEqual(resumed["weights_crc32c"], uninterrupted["weights_crc32c"])
        self.assertEqual(uninterrupted["metric"]["value"], 1.0)
        self.assertGreater(uninterrupted["seconds"]["data"], 0)
        self.assertLess(uninterrupted["seconds"]["data"], uninterrupted["seconds"]["compute"])
        lines, complaints = self.predict(whole, *self.new)
        self.assertEqual(complaints, [])
        for line, file, name in zip(lines, self.new, CLASSES, strict=True):
            path, _, answer = line.partition("\t")
            self.assertEqual((path, answer.rpartition(" %")[1]), (str(file), " %"))
            self.assertTrue(answer.startswith(f"{name} "), answer)
            self.assertEqual(answer.count("%"), 3)

    def test_a_last_layer_of_other_classes_is_taken_with_a_warning(self):
        run, others = self.folder / "run", self.folder / "others"
        self.train("--steps", 1, "--out", run)
        shutil.copytree(self.photos, others)
        os.rename(others / "red", others / "pink")
        words = self.train_words("--steps", 1, "--lr", 0, "--init-from", run, "--out", "none")
        self.assertEqual(self.run_program(*words).stderr, "")
        done = self.complete(*words, "--data", others)
        self.assertIn(f"warning: the last layer of {run} (", done.stderr)
        self.assertIn('where it had "red" this run has "pink"\n', done.stderr)

    def predictions(self, run, *options):
        """Of new pictures, with every digit; and what was told of the checkpoint."""
        lines, told = self.predict(run, *self.new, "--json", "--top", 3, *options)
        return [json.loads(line)["classes"] for line in lines], told

    def check_best(self, *gently, **keywords):
        """The third epoch's rate spoils what the first two have learned: the second or the first was the best."""
        run = self.folder / "run"
        self.train("--epochs", 2, "--out", run, "--lr", 0.01, *gently, **keywords)
        spoilt = self.train("--epochs", 3, "--out", run, "--resume", "--lr", 0.5, "--warmup", 0, **keywords)
        step, last = spoilt["chosen_step"], spoilt["steps"]
        self.assertLess(step, last)
        names = {f"step-{number:08}" for number in (step, last * 2 // 3, last)}
        self.assertEqual({path.name for path in run.glob("checkpoints/*")}, names)
        looks = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        looks = {line["step"]: line for line in looks if line["kind"] == "epoch"}
        self.assertEqual(spoilt["metric"]["value"], max(look["accuracy"] for look in looks.values()))
        self.assertEqual((spoilt["loss"], spoilt["metric"]["value"]),
                         (looks[step]["validation_loss"], looks[step]["accuracy"]))
        self.assertLess(looks[last]["accuracy"], looks[step]["accuracy"])
        return run, step, last

    def test_the_best_by_validation_is_used(self):
        run, step, last = self.check_best()
        checkpoint = run / "checkpoints" / f"step-{step:08}"
        best, told = self.predictions(run)
        self.assertEqual(told, [f"thinwire: {checkpoint} is taken, which did best on the validation set; the last is "
                                f"{checkpoint.with_name(f'step-{last:08}')}"])
        self.assertEqual((best, []), self.predictions(checkpoint))
        self.assertEqual((best, []), self.predictions(run, "--checkpoint", step))
        spoilt, told = self.predictions(run, "--checkpoint", "last")
        self.assertEqual(told, [])
        self.assertNotEqual(spoilt, best)
        files = [self.folder / name for name in ("run.safetensors", "best.safetensors", "last.safetensors")]
        for source, file, options in ((run, files[0], ()), (checkpoint, files[1], ()), (run, files[2], ("--checkpoint", last))):
            self.assertEqual(self.run_program("export", source, file, *options).returncode, 0)
        self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
        self.assertNotEqual(files[0].read_bytes(), files[2].read_bytes())
        begun = self.run_program(*self.train_words("--steps", 1, "--lr", 0, "--init-from", run, "--out", "none"))
        self.assertIn("did best on the validation set", begun.stderr)
        for words, wanted in ((("--checkpoint", "first"), "it is best, last or the number of a step"),
                              (("--checkpoint", 1), "holds no checkpoint of step 1")):
            self.assertIn(wanted, self.predict(run, self.new[0], *words, code=2)[1][0])
        self.assertIn("it comes first, as in thinwire predict", self.predict(self.new[0], run, code=2)[1][0])
        self.assertIn("is one of them", self.predict(checkpoint, self.new[0], "--checkpoint", "last", code=2)[1][0])
        again = self.run_program("train", "--resume", run)
        self.assertEqual(again.stderr, f"thinwire: {run} is finished: all its {last} steps were taken, and none is left; "
                                       "--epochs or --steps, larger than before, trains on\n")
        self.assertIn(f"with the weights of step {step}, the best by validation, after {last} steps", again.stdout)

    @needs_mpi
    def test_ranks_keep_the_best_too(self):
        self.check_best("--warmup", 0, **under_mpi(2))

    def test_the_classes_in_json(self):
        run = self.folder / "run"
        self.train("--epochs", 4, "--out", run, "--model", "resnet20")
        lines, _ = self.predict(run, *self.new, "--json", "--top", 2)
        for line, file in zip(lines, self.new, strict=True):
            found = json.loads(line)
            likely = [entry["probability"] for entry in found["classes"]]
            self.assertEqual((found["file"], len(likely)), (str(file), 2))
            self.assertGreaterEqual(likely[0], likely[1])
            self.assertLessEqual(sum(likely), 1.0000001)
        whole = json.loads(self.predict(run, self.new[0], "--json")[0][0])["classes"]
        self.assertAlmostEqual(sum(entry["probability"] for entry in whole), 1)
        self.assertEqual({entry["class"] for entry in whole}, set(CLASSES))

    def test_bad_files_among_good_ones(self):
        run = self.folder / "run"
        self.train("--steps", 2, "--out", run)
        bad = {"empty.jpg": b"", "page.jpg": b"<html>", "cut.png": self.new[0].read_bytes()[:200]}
        for name, content in bad.items():
            (self.folder / name).write_bytes(content)
        files = [self.new[0], *(self.folder / name for name in bad), self.folder / "nowhere.png", self.new[1]]
        lines, complaints = self.predict(run, *files, code=2)
        self.assertEqual([line.partition("\t")[0] for line in lines], [str(self.new[0]), str(self.new[1])])
        for complaint, file in zip(complaints, files[1:-1], strict=True):
            self.assertIn(str(file), complaint)

    def test_odd_names_are_one_line_each_and_in_json_what_they_are(self):
        run = self.folder / "run"
        self.train("--steps", 2, "--out", run)
        broken, foreign = self.folder / "two\nlines\x1b[2J.png", self.folder / os.fsdecode(b"caf\xe9.png")
        for file in (broken, foreign):
            file.write_bytes(self.new[0].read_bytes())
        lines, _ = self.predict(run, broken, foreign)
        self.assertEqual([line.partition("\t")[0] for line in lines],
                         [f"{self.folder}/two\\x0alines\\x1b[2J.png", f"{self.folder}/caf\\xe9.png"])
        lines, _ = self.predict(run, broken, foreign, "--json")
        self.assertEqual([json.loads(line)["file"] for line in lines], [str(broken), f"{self.folder}/caf\\xe9.png"])

    def test_a_damaged_picture_is_named_and_does_not_end_a_run(self):
        photos = self.folder / "photos"
        generator = random.Random(4)
        for name, colour in CLASSES.items():
            for i in range(8):
                write_picture(photos / name / f"{i}.png", colour, generator)
        (photos / "red" / "3.png").write_bytes(b"no picture")
        done = self.run_program("train", "image", "--data", photos, "--validation", 0.2, "--batch", 4, "--quiet",
                                "--epochs", 3)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (0, 1), done.stderr)
        self.assertIn("red/3.png: neither a JPEG nor a PNG", done.stderr)

    def test_what_predict_refuses(self):
        text = self.folder / "text.txt"
        text.write_text("a b c d\n" * 200)
        self.complete("train", "lm", "--data", text, "--layers", 1, "--hidden", 4, "--steps", 2, "--batch", 2,
                      "--quiet", "--out", self.folder / "lm")
        self.refuse(2, [self.new[0], "UTF-8"], "predict", self.folder / "lm", self.new[0])
        self.refuse(2, ["--top", "train image", self.folder / "lm"], "predict", self.folder / "lm", "--top", 2)
        self.refuse(2, [self.folder / "lm", "train lm", "thinwire predict"], "transcribe", self.folder / "lm", text)
        self.refuse(2, [self.new[0]], "predict", self.new[0], self.new[0])
        self.refuse(2, [self.folder, "is a folder", "name the files in it"], "predict", self.folder / "lm", self.folder)
        self.refuse(2, ["nowhere"], "predict", self.folder / "nowhere", self.new[0])
        run = self.folder / "run"
        self.train("--steps", 1, "--out", run)
        self.refuse(2, ["FILE"], "predict", run)
        self.refuse(2, ["--beam", "train asr", run], "predict", run, self.new[0], "--beam", 3)

    def test_other_data_make_classifiers_too(self):
        """Of IDX files the classes are numbers, and a picture becomes grey and 28 x 28."""
        run = self.folder / "run"
        self.complete("train", "image", "--data", self.data, "--batch", 8, "--steps", 2, "--quiet", "--out", run)
        found = json.loads(self.predict(run, self.new[0], "--json", "--top", 20)[0][0])
        self.assertEqual({entry["class"] for entry in found["classes"]}, {str(i) for i in range(10)})


if __name__ == "__main__":
    run_tests()
