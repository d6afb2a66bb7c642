#!/usr/bin/env python3
"""What `cmake --install` leaves can be compiled against, by CMake and by pkg-config, and run, wherever it was put.

`installed.py BUILD EXAMPLES WITH_MPI WITH_TCP`: the build folder, the folder of hello_threads.c, hello_mpi.c and
hello_tcp.c, 1 with MPI, 1 with sockets."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, EXAMPLES = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
WITH_MPI, WITH_TCP = (word == "1" for word in sys.argv[3:5])
TRANSPORTS = ["mpi"] * WITH_MPI + ["tcp"] * WITH_TCP
PROJECT = """cmake_minimum_required(VERSION 3.18)
project(outside LANGUAGES C)
find_package(thinwire 0.1 REQUIRED{components})
find_package(Threads REQUIRED)
add_executable(hello_threads {examples}/hello_threads.c)
target_link_libraries(hello_threads thinwire::thinwire Threads::Threads)
add_executable(hello_static {examples}/hello_threads.c)
target_link_libraries(hello_static thinwire::static)
"""
WORLD = """#include <stdio.h>
#include <thinwire/thinwire_sim.h>
static void worker(void *context, int rank, tw_comm *comm) { (void)context; (void)comm; tw_world_compute(rank); }
int main(void)
{
    const tw_world_options options = {.struct_size = sizeof options, .workers = 3};
    tw_world *world;
    if (tw_world_create(&options, &world) || tw_world_run(world, worker, NULL)) return 1;
    printf("%g seconds\\n", tw_world_seconds(world));
    tw_world_destroy(world);
}
"""
PROJECT_MORE = """add_executable(hello_{name} {examples}/hello_{name}.c)
target_link_libraries(hello_{name} thinwire::thinwire_{name})
"""


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class InstalledTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        shared = pathlib.Path(folder.name)
        run("cmake", "--install", BUILD, "--prefix", shared / "first")
        cls.prefix = shared / "moved"  # nothing in it may know where it was
        (shared / "first").rename(cls.prefix)
        cls.lib = next(cls.prefix.rglob("libthinwire.so")).parent
        cls.transports = [library.stem.split("_")[1] for library in cls.lib.glob("libthinwire_*.so")]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, program):
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        self.assertIn("rank 3: weight 1.5", run(program, env={**environment, "LD_LIBRARY_PATH": str(self.lib)}))

    def test_cmake_finds_it(self):
        text = PROJECT.format(examples=EXAMPLES, components=" ".join([" COMPONENTS", *self.transports]))
        text += "".join(f"get_target_property(unused thinwire::thinwire_{name} LOCATION)\n" for name in self.transports)
        text += "".join(PROJECT_MORE.format(examples=EXAMPLES, name=name) for name in TRANSPORTS)
        (self.folder / "CMakeLists.txt").write_text(text)
        run("cmake", "-S", self.folder, "-B", self.folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", self.folder / "build")
        self.check(self.folder / "build" / "hello_threads")
        self.check(self.folder / "build" / "hello_static")
        self.assertNotIn("libthinwire", run("readelf", "-d", self.folder / "build" / "hello_static"))

    def test_cmake_says_what_is_not_there(self):
        (self.folder / "CMakeLists.txt").write_text(PROJECT.format(examples=EXAMPLES, components=" COMPONENTS pigeon"))
        done = subprocess.run(["cmake", "-S", self.folder, "-B", self.folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}"],
                              capture_output=True, text=True, timeout=300)
        self.assertIn("it was installed without libthinwire_pigeon", " ".join(done.stderr.split()))

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_pkg_config_finds_it(self):
        search = {**os.environ, "PKG_CONFIG_PATH": str(self.lib / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "thinwire", env=search).split()
        run("cc", EXAMPLES / "hello_threads.c", "-o", self.folder / "hello", *flags, "-pthread")
        self.check(self.folder / "hello")
        for name in self.transports:
            self.assertIn(f"-lthinwire_{name}", run("pkg-config", "--libs", f"thinwire_{name}", env=search).split())

    def test_libraries_have_versions_and_no_empty_path(self):
        libraries = sorted(self.lib.glob("libthinwire*.so"))
        self.assertGreaterEqual(len(libraries), 1 + len(TRANSPORTS))
        for library in libraries:
            self.assertTrue(library.with_name(f"{library.name}.0").exists(), library)
            dynamic = run("readelf", "-d", library)
            self.assertIn(f"[{library.name}.0]", dynamic)
            paths = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "RUNPATH" in line]
            self.assertTrue(all(path for line in paths for path in line.split(":")), dynamic)
            names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()]
            self.assertTrue(all(re.search(r"THINWIRE_(EXPERIMENTAL_)?0\.1$", name) for name in names), names)

    def test_what_thinwire_h_declares_stays_and_nothing_else(self):
        names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", self.lib / "libthinwire.so").splitlines()]
        header = re.sub(r"/\*.*?\*/|#define[^\n]*", " ", (self.prefix / "include/thinwire/thinwire.h").read_text(), flags=re.S)
        declared = re.findall(r"TW_API\s[^;(]*?(\w+)\s*\(", header)
        self.assertEqual(sorted(name.split("@@")[0] for name in names if name.endswith("@@THINWIRE_0.1")), sorted(declared))
        for name in ("thinwire", "thinwire_tcp", "thinwire_sealed", "thinwire_mpi"):
            text = (self.prefix / f"include/thinwire/{name}.h").read_text()
            self.assertEqual(set(re.findall(r"#include <thinwire/(\w+)\.h>", text)) - {"thinwire"}, set(), name)
            self.assertNotIn("EXPERIMENTAL:", text)

    def public(self):
        """What the shared library exports."""
        listing = run("nm", "-D", "--defined-only", self.lib / "libthinwire.so").splitlines()
        return {line.split()[-1].split("@")[0] for line in listing if line.split()[-2] != "A"}

    def test_static_library_shows_what_the_shared_one_does(self):
        listing = run("nm", "-g", "--defined-only", self.lib / "libthinwire.a").splitlines()
        self.assertEqual({line.split()[-1] for line in listing if len(line.split()) == 3}, self.public())

    def test_a_program_may_use_a_name_from_inside(self):
        inside = {line.split()[-1] for line in run("nm", "--defined-only", self.lib / "libthinwire.a").splitlines()
                  if len(line.split()) == 3 and line.split()[1] == "t"}
        self.assertIn("tw_channel_create", inside)
        (self.folder / "own.c").write_text("int tw_channel_create(void);\nint tw_channel_create(void) { return 1; }\n")
        program = self.folder / "own"
        run("cc", EXAMPLES / "hello_threads.c", self.folder / "own.c", "-o", program, f"-I{self.prefix / 'include'}",
            self.lib / "libthinwire.a", "-pthread", "-lm", "-ldl")
        self.check(program)

    def test_a_world_runs_from_the_archives_and_from_the_libraries(self):
        (self.folder / "world.c").write_text(WORLD)
        for libraries in ([self.lib / "libthinwire_sim.a", self.lib / "libthinwire.a", "-pthread", "-lm", "-ldl"],
                          [self.lib / "libthinwire_sim.so", self.lib / "libthinwire.so", f"-Wl,-rpath,{self.lib}"]):
            run("cc", self.folder / "world.c", "-o", self.folder / "world", f"-I{self.prefix / 'include'}", *libraries)
            self.assertEqual(run(self.folder / "world"), "2 seconds\n")
        for kind, library in (("-g", "libthinwire_sim.a"), ("-D", "libthinwire_sim.so")):  # not its copy of tw_set_allocator
            lines = [line.split() for line in run("nm", kind, "--defined-only", self.lib / library).splitlines()]
            names = {words[2] for words in lines if len(words) == 3 and words[1] == "T"}
            self.assertTrue(names and all(name.startswith("tw_world_") for name in names), names)

    def test_each_component_is_what_its_name_says(self):
        for component, has, lacks in [("runtime", "libthinwire.so.0", "thinwire.h"), *[("mpi", "libthinwire_mpi.so.0", "thinwire.h")] * WITH_MPI,
                                      ("development", "thinwire.h", "libthinwire.so.0"),
                                      ("program", "thinwire", "thinwire.h")]:
            prefix = self.folder / component
            run("cmake", "--install", BUILD, "--prefix", prefix, "--component", component)
            names = {path.name for path in prefix.rglob("*")}
            if component != "program" or names:  # a build may be without the trainer
                self.assertIn(has, names)
            self.assertNotIn(lacks, names)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
