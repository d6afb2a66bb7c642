"""Training on processors that this machine is not: it starts on them, and has the bits that oneDNN gives here when it is
held to their instructions. The loops of wide.h run as this processor has them best, and there as that one has: that the
bits are equal shows that theirs do not depend on it."""
import json
import platform
import random
import shutil
import unittest

from support import CommandLineTest

QEMU = "qemu-x86_64"
QUIETLY = ("--quiet", "--json", "-")


class EmulatedTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        if platform.machine() != "x86_64":
            raise unittest.SkipTest(f"this build is for {platform.machine()}")
        if not shutil.which(QEMU):
            raise unittest.SkipTest(f"there is no {QEMU} here: Debian has it in qemu-user")
        super().setUpClass()
        text = cls.shared / "text.txt"
        generator = random.Random(5)
        text.write_text("\n".join(" ".join(f"w{generator.randrange(12)}" for _ in range(20)) for _ in range(100)) + "\n")
        cls.text_words = ("train", "lm", "--data", text, "--layers", 1, "--hidden", 32, "--batch", 8, "--bptt", 10,
                          "--steps", 1, *QUIETLY)

    def image_words(self):
        return self.train_words("--batch", 2, "--steps", 1, "--workers", 2, "--sync", "dgc:density=0.05", *QUIETLY)

    def checksum(self, words, launcher=(), **env):
        """Of the weights. On standard error the emulator says what it lacks."""
        return json.loads(self.complete(*words, launcher=launcher, env=env).stdout)["weights_crc32c"]

    def compare(self, cpu, instructions):
        for words in (self.image_words(), self.text_words):
            with self.subTest(words[1]):
                self.assertEqual(self.checksum(words, (QEMU, "-cpu", cpu)),
                                 self.checksum(words, ONEDNN_MAX_CPU_ISA=instructions))

    def has_avx2(self):
        found = json.loads(self.run_program("doctor", "--data", self.data, "--json").stdout)
        return "avx2" in found["isa_levels"].split()

    def test_without_avx(self):
        self.compare("Nehalem", "SSE41")

    def test_with_avx2_and_without_avx512(self):
        if not self.has_avx2():
            self.skipTest("this processor has no AVX2 to compare with")
        self.compare("Haswell", "AVX2")

    def test_the_level_of_the_kernels_changes_no_bit(self):
        expected = self.checksum(self.image_words())
        for level in ["scalar"] + ["avx2"] * self.has_avx2():
            self.assertEqual(self.checksum(self.image_words(), THINWIRE_ISA=level), expected, level)


if __name__ == "__main__":
    unittest.main()
