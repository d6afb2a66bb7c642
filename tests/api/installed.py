#!/usr/bin/env python3
"""What `cmake --install` leaves can be compiled against, by CMake and by pkg-config, and run, wherever it was put.

`installed.py BUILD EXAMPLES WITH_MPI`: the build folder, the folder of hello_threads.c and hello_mpi.c, 1 with MPI."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, EXAMPLES, WITH_MPI = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3] == "1"
PROJECT = """cmake_minimum_required(VERSION 3.18)
project(outside LANGUAGES C)
find_package(thinwire 0.1 REQUIRED{components})
find_package(Threads REQUIRED)
add_executable(hello_threads {examples}/hello_threads.c)
target_link_libraries(hello_threads thinwire::thinwire Threads::Threads)
"""
PROJECT_MPI = """add_executable(hello_mpi {examples}/hello_mpi.c)
target_link_libraries(hello_mpi thinwire::thinwire_mpi)
"""


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class InstalledTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        run("cmake", "--install", BUILD, "--prefix", self.folder / "first")
        self.prefix = self.folder / "moved"  # nothing in it may know where it was
        (self.folder / "first").rename(self.prefix)
        self.lib = next(self.prefix.rglob("libthinwire.so")).parent

    def check(self, program):
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        self.assertIn("rank 3: weight 1.5", run(program, env={**environment, "LD_LIBRARY_PATH": str(self.lib)}))

    def test_cmake_finds_it(self):
        text = PROJECT.format(examples=EXAMPLES, components=" COMPONENTS mpi" if WITH_MPI else "")
        text += PROJECT_MPI.format(examples=EXAMPLES) if WITH_MPI else ""
        (self.folder / "CMakeLists.txt").write_text(text)
        run("cmake", "-S", self.folder, "-B", self.folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", self.folder / "build")
        self.check(self.folder / "build" / "hello_threads")

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_pkg_config_finds_it(self):
        search = {**os.environ, "PKG_CONFIG_PATH": str(self.lib / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "thinwire", env=search).split()
        run("cc", EXAMPLES / "hello_threads.c", "-o", self.folder / "hello", *flags, "-pthread")
        self.check(self.folder / "hello")
        if WITH_MPI:
            self.assertIn("-lthinwire_mpi", run("pkg-config", "--libs", "thinwire_mpi", env=search).split())

    def test_libraries_have_versions_and_no_empty_path(self):
        for library in ["libthinwire", *["libthinwire_mpi"] * WITH_MPI]:
            self.assertTrue((self.lib / f"{library}.so.0").exists(), library)
            dynamic = run("readelf", "-d", self.lib / f"{library}.so")
            self.assertIn(f"[{library}.so.0]", dynamic)
            paths = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "RUNPATH" in line]
            self.assertTrue(all(path for line in paths for path in line.split(":")), dynamic)
        self.assertIn("@@THINWIRE_0.1", run("nm", "-D", "--defined-only", self.lib / "libthinwire.so"))

    def test_each_component_is_what_its_name_says(self):
        for component, has, lacks in [("runtime", "libthinwire.so.0", "thinwire.h"), ("development", "thinwire.h", "libthinwire.so.0"),
                                      ("program", "thinwire", "thinwire.h")]:
            prefix = self.folder / component
            run("cmake", "--install", BUILD, "--prefix", prefix, "--component", component)
            names = {path.name for path in prefix.rglob("*")}
            if component != "program" or names:  # a build may be without the trainer
                self.assertIn(has, names)
            self.assertNotIn(lacks, names)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
