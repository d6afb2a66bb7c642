"""--compute bf16: it learns what fp32 learns, where the processor has the instructions; elsewhere it is refused."""
import json
import random
import subprocess
import unittest

from support import PROGRAM, CommandLineTest

NEVER_NATIVE = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
NEARLY_NATIVE = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"} # oneDNN 3 emulates it there, under a name with bf16 in it


class ComputeTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        asked = subprocess.check_output([PROGRAM, "doctor", "--data", cls.data, "--json"])
        cls.is_native = json.loads(asked)["bf16"]

    def skip_unless_native(self):
        if not self.is_native:
            self.skipTest("this processor has no bf16 instructions")

    def write_text(self):
        """Each word is followed by one of three, all as likely."""
        generator, word, words = random.Random(5), 0, []
        for _ in range(6000):
            word = (3 * word + generator.randrange(3)) % 12
            words.append(f"w{word}")
        path = self.folder / "text.txt"
        path.write_text("".join(" ".join(words[i:i + 20]) + "\n" for i in range(0, len(words), 20)))
        return path

    def compare(self, *words):
        """The summaries of the same run in both precisions."""
        summaries = []
        for compute in ("fp32", "bf16"):
            summaries.append(json.loads(self.succeed(*words, "--quiet", "--json", "-", "--compute", compute)))
        fp32, bf16 = summaries
        self.assertNotEqual(bf16["weights_crc32c"], fp32["weights_crc32c"])
        return fp32, bf16

    def test_a_language_model_learns_as_in_fp32(self):
        self.skip_unless_native()
        fp32, bf16 = self.compare("train", "lm", "--data", self.write_text(), "--layers", 1, "--hidden", 32, "--init",
                                  0.3, "--batch", 8, "--bptt", 10, "--lr", 2, "--schedule", "constant", "--epochs", 4)
        self.assertAlmostEqual(bf16["loss"] / fp32["loss"], 1, delta=0.01)

    def test_an_image_model_learns_as_in_fp32(self):
        self.skip_unless_native()
        fp32, bf16 = self.compare(*self.train_words("--epochs", 3, "--workers", 2, "--sync",
                                                    "dgc:density=0.05,warmup_steps=8"))
        self.assertAlmostEqual(bf16["loss"] / fp32["loss"], 1, delta=0.1)

    def test_the_same_run_has_the_same_bits(self):
        self.skip_unless_native()
        words = ("--compute", "bf16", "--steps", 4)
        self.assertEqual(self.train(*words)["weights_crc32c"], self.train(*words)["weights_crc32c"])

    def test_a_run_is_not_resumed_in_another_precision(self):
        self.skip_unless_native()
        out = self.folder / "run"
        self.train("--compute", "bf16", "--steps", 2, "--out", out)
        self.refuse_training(2, ["compute bf16", "compute fp32"], "--compute", "fp32", "--resume", out, "--steps", 4)

    def test_it_is_refused_where_it_is_not_native(self):
        self.refuse_training(2, ["bf16", "AVX512_BF16", "fp32"], "--compute", "bf16", "--steps", 1, env=NEVER_NATIVE)
        self.refuse(2, ["bf16", "AVX512_BF16"], "bench", "train", "--model", "lstm-2x650", "--compute", "bf16",
                    env=NEVER_NATIVE)
        self.refuse_training(2, ["compute", "fp16", "bf16"], "--compute", "fp16")

    def test_doctor_says_whether_it_is(self):
        for env in (NEVER_NATIVE, NEARLY_NATIVE):
            self.assertFalse(json.loads(self.run_program("doctor", "--data", self.data, "--json", env=env).stdout)["bf16"])
        for env, native in (({}, self.is_native), (NEVER_NATIVE, False)):
            done = self.run_program("doctor", "--data", self.data, env=env)
            line = next(line for line in done.stdout.splitlines() if "bf16" in line)
            self.assertEqual("not" not in line, native)


if __name__ == "__main__":
    unittest.main()
