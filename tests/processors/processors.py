#!/usr/bin/env python3
"""The library on processors that this machine is not: it starts, takes the best level of kernels that is there, passes
the suites of the kernels, and exchanges the same bits as here.

`processors.py BUILD NAME SUITE...`: NAME is a class below, SUITE a test of BUILD that every processor runs."""
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import unittest

BUILD, NAME, SUITES = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
HERE = pathlib.Path(__file__).resolve().parent
ARM = BUILD / "aarch64"
ROWS_EMULATED, ROWS_HERE = 97, 427
LEVELS = ("scalar", "neon", "avx2", "avx512")


def cached(key):
    """A variable of the build's CMake cache."""
    return re.search(f"^{key}:[A-Z]+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE).group(1)


def run(*command, check=True, **env):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=800, env={**os.environ, **env})
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def exchanges(*emulator, build=BUILD, rows=ROWS_EMULATED, **env):
    """The level that was used, and the line of every scheme."""
    level, *lines = run(*emulator, build / "tests/exchanges", rows, **env).stdout.splitlines()
    return level, lines


class Levels(unittest.TestCase):
    """Every level that this processor has."""

    def test_every_scheme_exchanges_the_same_bits(self):
        best, expected = exchanges(rows=ROWS_HERE)
        for level in LEVELS:
            done = run(BUILD / "tests/exchanges", ROWS_HERE, THINWIRE_ISA=level, check=False)
            if done.returncode == 0:
                self.assertEqual(done.stdout.splitlines(), [level, *expected])
            else:
                self.assertIn(f"THINWIRE_ISA={level}: not supported here; this processor's best is \"{best}\"",
                              done.stderr)

    def test_no_function_is_called_whose_bits_differ(self):
        """libm's are within a unit or so of the right result, each processor's in a way of its own."""
        called = run(cached("CMAKE_NM"), "-D", "--undefined-only", BUILD / "libthinwire.so").stdout
        self.assertIn(" pthread_create", called)
        inexact = r"\b(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|cbrt|hypot|sin|cos|tan|asin|acos|atan|atan2|" \
                  r"sinh|cosh|tanh|asinh|acosh|atanh|sincos|erf|erfc|lgamma|tgamma|fma)f?\b"
        self.assertEqual(re.findall(inexact, called), [])


class Processor:
    """A processor by its emulator, the build that runs on it, and the level it must use."""
    emulator, build, level, env = (), BUILD, None, {}

    @classmethod
    def setUpClass(cls):
        if not shutil.which(cls.emulator[0]):
            raise unittest.SkipTest(f"there is no {cls.emulator[0]} here: Debian has it in qemu-user")

    def test_the_suites_pass(self):
        for suite in SUITES:
            with self.subTest(suite):
                run(*self.emulator, self.build / f"tests/test_{suite}", **self.env)

    def test_every_scheme_exchanges_the_same_bits(self):
        level, lines = exchanges(*self.emulator, build=self.build)
        self.assertEqual(level, self.level)
        self.assertEqual(lines, exchanges()[1])

    def test_the_example_runs(self):
        self.assertIn("rank 3: weight 1.5", run(*self.emulator, self.build / "hello_threads").stdout)


class X86(Processor):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if platform.machine() != "x86_64":
            raise unittest.SkipTest(f"this build is for {platform.machine()}")
        if "-march=" in cached("CMAKE_C_FLAGS"):
            raise unittest.SkipTest(f"this build is for one kind of processor: {cached('CMAKE_C_FLAGS')}")


class Nehalem(X86, unittest.TestCase):
    """Without AVX."""
    emulator, level = ("qemu-x86_64", "-cpu", "Nehalem"), "scalar"


class Haswell(X86, unittest.TestCase):
    """AVX2, and no AVX-512."""
    emulator, level, env = ("qemu-x86_64", "-cpu", "Haswell"), "avx2", {"THINWIRE_TEST_STRIDE": "11"}


class Lacking(X86, unittest.TestCase):
    """The plainest of its kind, without even an instruction for CRC-32C; one with AVX alone; and processors and systems
    that lack one thing of what the compiler was allowed to use for AVX2."""
    emulator = ("qemu-x86_64",)
    test_the_suites_pass = test_the_example_runs = None

    def test_every_scheme_exchanges_the_same_bits(self):
        expected = exchanges(rows=5)[1]
        for cpu in ("qemu64", "SandyBridge", *(f"Haswell,-{part}" for part in ("avx2", "f16c", "popcnt", "xsave"))):
            with self.subTest(cpu):
                self.assertEqual(exchanges("qemu-x86_64", "-cpu", cpu, rows=5), ("scalar", expected))


class Aarch64(Processor, unittest.TestCase):
    emulator, build, level = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"), ARM, "neon"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if platform.machine() == "aarch64":
            raise unittest.SkipTest("this machine is one")
        if not shutil.which("aarch64-linux-gnu-gcc"):
            raise unittest.SkipTest("there is no aarch64-linux-gnu-gcc here: Debian has it in gcc-aarch64-linux-gnu, "
                                    "and its libc in libc6-dev-arm64-cross")
        cmake = cached("CMAKE_COMMAND")
        run(cmake, "-S", cached("CMAKE_HOME_DIRECTORY"), "-B", ARM, "-G", cached("CMAKE_GENERATOR"),
            f"-DCMAKE_TOOLCHAIN_FILE={HERE / 'aarch64.cmake'}", "-DTHINWIRE_TRAINER=OFF", "-DTHINWIRE_MPI=OFF")
        run(cmake, "--build", ARM, "--target", "portable", "-j", os.cpu_count())


class Valgrind(unittest.TestCase):
    """Its processor has AVX2 where this one has, and never AVX-512."""

    @classmethod
    def setUpClass(cls):
        if not shutil.which("valgrind"):
            raise unittest.SkipTest("there is no valgrind here: Debian has it in valgrind")

    def test_the_example_makes_no_error(self):
        done = run("valgrind", "--quiet", "--leak-check=full", "--error-exitcode=9", BUILD / "hello_threads")
        self.assertIn("rank 3: weight 1.5", done.stdout)
        self.assertEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], NAME.capitalize()])
