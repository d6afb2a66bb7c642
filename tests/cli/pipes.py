"""A pipe in a file's place, which nobody writes to and nobody reads: it is refused at once, wherever a path is given."""
import json
import os
import unittest

from support import CommandLineTest


class PipeTest(CommandLineTest):
    def pipe(self, *parts):
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.unlink()
        os.mkfifo(path)
        return path

    def refuse_pipe(self, path, *words):
        self.refuse(2, [path], *words)

    def text(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def test_settings_and_results(self):
        for option in ("--config", "--json", "--out"):
            with self.subTest(option):
                path = self.pipe(option)
                self.refuse_pipe(path, *self.train_words("--quiet", "--steps", 1, option, path))

    def test_a_pipe_for_the_summary_is_looked_at_first(self):
        """One that nobody reads ends the run before its first step; who reads it gets the summary and nothing else."""
        path, out = self.pipe("summary"), self.folder / "run"
        words = self.train_words("--quiet", "--steps", 1, "--json", path, "--out")
        self.refuse(2, [path, "nobody reads"], *words, out)
        self.assertFalse((out / "checkpoints").exists())
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as reader:  # a pipe has room for a summary
            self.assertEqual(self.run_program(*words, out).returncode, 0)
            self.assertEqual(json.loads(reader.read()), json.loads((out / "summary.json").read_text()))

    def test_in_a_run_folder(self):
        for name in ("run.lock", "metrics.jsonl", "config.yaml.partial"):
            with self.subTest(name):
                path = self.pipe(f"out-{name}", name)
                named = path.with_name(name.replace(".partial", ""))  # the file that it is to become
                self.refuse_pipe(named, *self.train_words("--quiet", "--steps", 1, "--out", path.parent))

    def test_in_a_checkpoint(self):
        for name in ("model.safetensors", "worker-0.safetensors"):
            with self.subTest(name):
                out = self.folder / f"run-{name}"
                self.train("--steps", 1, "--out", out)
                path = self.pipe(out, "checkpoints/step-00000001", name)
                self.refuse_pipe(path, *self.train_words("--quiet", "--steps", 2, "--resume", out))
                if name.startswith("model"):
                    self.refuse_pipe(path, "generate", out)
                    self.refuse_pipe(path, "transcribe", out, path)

    def test_images(self):
        path = self.pipe("images/train-images-idx3-ubyte")
        for name in os.listdir(self.data):
            if name != path.name:
                os.symlink(self.data / name, path.parent / name)
        self.refuse_pipe(path, "train", "image", "--data", path.parent, "--quiet")

    def test_text(self):
        path = self.pipe("text")
        self.refuse_pipe(path, "train", "lm", "--data", path, "--quiet")
        path = self.pipe("ptb/ptb.valid.txt")
        for name in ("train", "test"):
            self.text(f"ptb/ptb.{name}.txt", "one two three\n" * 100)
        self.refuse_pipe(path, "train", "lm", "--data", path.parent, "--quiet")

    def test_speech(self):
        path = self.pipe("sound.wav")
        manifest = self.text("manifest.json", '{"audio_filepath": "%s", "text": "one", "duration": 1}\n' % path * 20)
        self.refuse_pipe(path, "train", "asr", "--data", manifest, "--test", manifest, "--quiet")
        path = self.pipe("pipe.json")
        self.refuse_pipe(path, "train", "asr", "--data", path, "--quiet")
        path = self.pipe("kaldi/wav.scp")
        self.text("kaldi/text", "a one\n")
        self.refuse_pipe(path, "train", "asr", "--data", path.parent, "--quiet")

    def test_gradients(self):
        path = self.pipe("gradients.safetensors")
        self.refuse_pipe(path, "bench", "codec", "--gradients", path)

    def test_simulations(self):
        path = self.pipe("trace/summary.json")
        self.refuse_pipe(path, "simulate", "image", "--data", self.data, "--trace", path.parent, "--quiet")
        for name in ("results.json",):
            path = self.pipe("simulated", name)
            self.refuse_pipe(path, "simulate", "none", "--workers", 2, "--steps", 1, "--parameters", "1k", "--step-time",
                             0.01, "--out", path.parent, "--quiet")


if __name__ == "__main__":
    unittest.main()
