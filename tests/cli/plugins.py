"""A scheme from outside: built against what `cmake --install` leaves, in a folder that knows nothing of the tree, it
trains, is saved and resumed, simulated, measured and listed as the program's own.

`plugins.py PROGRAM BUILD EXAMPLE`: the build folder, and the folder of the example scheme."""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import support
from support import CommandLineTest, needs_mpi, run_tests, under_mpi

EXAMPLE, BUILD = pathlib.Path(sys.argv.pop()), pathlib.Path(sys.argv.pop())
SPEC = "hard:lambda=0.001"
SCHEME = """#include <thinwire/thinwire_scheme.h>
static double density(const void *self) {{ (void)self; return 1; }}
static size_t choose(void *self, tw_scheme *scheme, size_t tensor, const float *values, size_t most, uint32_t *index,
                     float *value)
{{ (void)self; return tw_scheme_choose_largest(scheme, tensor, values, most, 0, index, value); }}
static const tw_scheme_definition one = {{.struct_size = {size}, .name = "{name}", .summary = "nothing new",
                                          .density = density, .choose = choose}};
TW_PLUGIN(&one)
"""


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


# It believes what comes.
LOOSE = """#include <thinwire/thinwire_scheme.h>
static tw_status next(void *self, tw_scheme *scheme, int phase, tw_round *round)
{{
    (void)self;
    size_t tensor = 0;
    while (!tw_scheme_is_compressed(scheme, tensor)) tensor++;
    size_t count = tw_scheme_elements(scheme, tensor);
    float *gradient = tw_scheme_gradient(scheme, tensor);
    for (size_t i = 0; phase == 0 && i < count; i++) gradient[i] *= tw_scheme_scale(scheme);
    for (size_t i = 0; phase == 1 && i < count; i++) {{
        gradient[i] = 0;
        for (int r = 0; r < tw_scheme_size(scheme); r++) gradient[i] += ((const float *)round->packets[r])[i];
    }}
    round->kind = phase ? TW_ROUND_DONE : TW_ROUND_ALLGATHER;
    round->data = gradient;
    round->size = round->capacity = count * sizeof(float);
    return TW_OK;
}}
static const tw_scheme_definition one = {{.struct_size = sizeof one, .name = "loose", .summary = "nothing new",
                                          .next = next}};
TW_PLUGIN(&one)
"""


class PluginTest(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.shared / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        support.PROGRAM = cls.prefix / "bin" / "thinwire"
        outside = cls.shared / "outside"
        shutil.copytree(EXAMPLE, outside)
        run("cmake", "-S", outside, "-B", outside / "build", f"-DCMAKE_PREFIX_PATH={cls.prefix}")
        run("cmake", "--build", outside / "build")
        cls.plugin = outside / "build" / "libhard.so"

    def compile(self, name, text):
        """By hand, as pkg-config has it."""
        source, library = self.folder / f"{name}.c", self.folder / f"lib{name}.so"
        source.write_text(text)
        where = next(self.prefix.rglob("pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "thinwire", env={**os.environ, "PKG_CONFIG_PATH": str(where)})
        run("cc", "-shared", "-fPIC", source, "-o", library, *flags.split())
        return library

    def test_it_trains_and_goes_on_bit_for_bit(self):
        options = ("--plugin", self.plugin, "--sync", SPEC, "--workers", 3, "--check-every", 1, "--schedule", "constant")
        whole = self.train(*options, "--steps", 20)
        self.assertLess(whole["bytes"]["sent"], whole["bytes"]["dense"] / 2)
        self.train(*options, "--steps", 9, "--out", self.folder)
        resumed = self.train(*options, "--steps", 20, "--resume", "--out", self.folder)
        self.assertEqual(resumed["weights_crc32c"], whole["weights_crc32c"])
        dense = self.train("--workers", 3, "--steps", 20, "--schedule", "constant")
        self.assertNotEqual(dense["weights_crc32c"], whole["weights_crc32c"])

    def test_a_run_that_is_continued_loads_it_again(self):
        options = ("--sync", SPEC, "--workers", 2, "--schedule", "constant", "--out", self.folder / "run")
        self.train(*options, "--plugin", self.plugin, "--steps", 3)
        self.assertIn(str(self.plugin), (self.folder / "run" / "config.yaml").read_text())
        self.assertEqual(self.train(*options, "--steps", 5, "--resume")["steps"], 5)
        moved = self.plugin.with_suffix(".moved")
        self.plugin.rename(moved)
        self.addCleanup(moved.rename, self.plugin)
        self.refuse_training(2, [self.plugin, "cannot be loaded"], *options, "--steps", 7, "--resume")

    def test_a_run_goes_on_from_any_folder(self):
        """What is recorded is the file, whatever the way to it was called."""
        here, there = self.folder / "here", self.folder / "there"
        here.mkdir()
        there.mkdir()
        shutil.copy(self.plugin, here / "libhard.so")
        (there / "libhard.so").write_text("another file of that name")
        (self.folder / "link").symlink_to(here)
        options = ("--sync", SPEC, "--workers", 2, "--schedule", "constant", "--out", self.folder / "run")
        self.train(*options, "--plugin", "../link/libhard.so", "--steps", 3, cwd=there)
        recorded = (self.folder / "run" / "config.yaml").read_text()
        self.assertIn(f"plugin: \"{(here / 'libhard.so').resolve()}\"\n", recorded)
        self.assertEqual(self.train(*options, "--steps", 5, "--resume", cwd=there)["steps"], 5)

    def test_a_file_in_the_current_folder_needs_a_slash(self):
        self.refuse(2, ["libhard.so", "a file in the current folder is ./libhard.so"],
                    "schemes", "--plugin", "libhard.so", cwd=self.plugin.parent)

    def test_it_is_listed_explained_measured_and_simulated(self):
        self.assertIn("\n  hard ", self.run_program("schemes", "--plugin", self.plugin).stdout)
        page = self.run_program("schemes", "hard", "--plugin", self.plugin).stdout
        for option in ("lambda", "most_density", "values", "min_elements", "per_host"):
            self.assertIn(f"\n  {option} ", page)
        codec = self.run_program("bench", "codec", "--plugin", self.plugin, "--codec", SPEC, "--count", 20000, "--json")
        result, = json.loads(codec.stdout)["results"]
        self.assertEqual((result["codec"], result["floor_bytes_per_element"]), (SPEC, 12))
        self.assertIn("hard", self.run_program("doctor", "--data", self.data, "--plugin", self.plugin).stdout)
        done = self.complete("simulate", "image", "--data", self.data, "--plugin", self.plugin, "--sync", SPEC,
                             "--workers", 4, "--steps", 4, "--step-time", 0.01, "--json", "-", "--quiet")
        self.assertIn(SPEC, done.stdout)

    def test_a_recorded_run_is_predicted_with_its_plugin(self):
        self.train("--plugin", self.plugin, "--sync", SPEC, "--workers", 2, "--steps", 6, "--out", self.folder)
        done = self.complete("simulate", "image", "--data", self.data, "--trace", self.folder, "--sync", "allreduce",
                             "--workers", 2, "--steps", 4, "--json", "-", "--quiet")
        self.assertIn(SPEC, done.stdout)

    def check(self, code, *words):
        """The promises that are kept, and those that are not."""
        done = self.run_program("check-scheme", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        kept = [line[10:] for line in lines if line.startswith("  kept    ")]
        broken = [line[10:] for line in lines if line.startswith("  BROKEN  ")]
        self.assertEqual(len(done.stderr.splitlines()), code // 2, done.stderr)
        return kept, broken

    def test_a_sound_scheme_keeps_every_promise(self):
        kept, broken = self.check(0, self.plugin)
        self.assertEqual((len(kept), broken), (8, []))
        kept, broken = self.check(0, self.plugin, "--sync", "hard:lambda=0.1,values=fp32,feedback=off")
        self.assertEqual((len(kept), broken), (8, []))
        kept, broken = self.check(0, BUILD / "liboutside_forms.so")
        self.assertEqual((len(kept), broken), (24, []))

    def test_a_broken_promise_is_named(self):
        moody = SCHEME.format(size="sizeof one", name="moody").replace(
            "{ (void)self; return tw", "{ static size_t mood; (void)self; most -= mood++ % 7; return tw")
        _, broken = self.check(2, self.compile("moody", moody), "--sync", "moody:min_elements=1000")
        self.assertTrue(any(line.startswith("the same gradients come to the same bits: ") for line in broken), broken)
        _, broken = self.check(2, self.compile("loose", LOOSE.format()), "--sync", "loose:min_elements=1000")
        self.assertEqual(len(broken), 1)
        self.assertRegex(broken[0], "^every packet .* is refused: a packet of round 0 with a byte behind its end was taken in")
        self.refuse(2, ["No such file"], "check-scheme", self.folder / "nothing.so")

    def test_several_may_be_loaded(self):
        other = self.compile("other", SCHEME.format(size="sizeof one", name="other"))
        for words in (("--plugin", self.plugin, "--plugin", other), ("--plugin", f"{self.plugin},{other},{other}")):
            listed = self.run_program("schemes", *words).stdout
            self.assertIn("\n  hard ", listed)
            self.assertIn("\n  other ", listed)

    def test_what_is_no_plugin_is_refused_with_one_sentence(self):
        def refuse(culprits, library):
            self.refuse(2, [library, *culprits], "schemes", "--plugin", library)
        refuse(["No such file"], self.folder / "nothing.so")
        refuse(["tw_plugin_describe"], self.compile("empty", "int nothing;"))
        refuse(["scheme topk", "already"], self.compile("taken", SCHEME.format(size="sizeof one", name="topk")))
        refuse(["scheme dpsgd", "already"], self.compile("gossip", SCHEME.format(size="sizeof one", name="dpsgd")))
        refuse(["lower-case"], self.compile("capital", SCHEME.format(size="sizeof one", name="Mine")))
        refuse(["sizeof(tw_scheme_definition)"], self.compile("unsized", SCHEME.format(size="0", name="mine")))
        newer = "struct { tw_scheme_definition old; void *more; } newer = {{.struct_size = sizeof newer}, &newer};"
        entry = SCHEME.format(size="sizeof one", name="mine").replace("TW_PLUGIN(&one)", newer + "\nTW_PLUGIN(&newer.old)")
        refuse(["newer"], self.compile("newer", entry))
        refuse(["tw_of_tomorrow"], self.compile("needs", SCHEME.format(size="sizeof one", name="mine").replace(
            "(void)self; return 1;", "extern double tw_of_tomorrow(const void *); return tw_of_tomorrow(self);")))

    def test_a_scheme_whose_plugin_is_not_named_is_told_of_it(self):
        self.refuse_training(2, ["no scheme \"hard\"", "--plugin"], "--sync", SPEC)

    def run_unlike(self, first, second):
        """Two ranks with options of their own. mpirun's own way, a colon between them, crashes mpirun in Debian 13."""
        one, other = (shlex.join(map(str, (support.PROGRAM, *self.train_words("--quiet", *options)))) for options in (first, second))
        script = f'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then exec {one}; else exec {other}; fi'
        return self.finish(self.start("mpirun", "--oversubscribe", "-n", 2, "sh", "-c", script, env=support.MPI_ENVIRONMENT))

    @needs_mpi
    def test_ranks_equal_threads_and_a_rank_without_it_stops_all(self):
        options = ("--plugin", self.plugin, "--sync", SPEC, "--steps", 6)
        threads = self.train(*options, "--workers", 2)
        self.assertEqual(self.train(*options, **under_mpi(2))["weights_crc32c"], threads["weights_crc32c"])
        missing = self.folder / "libhard.so"
        done = self.run_unlike(options, ("--plugin", missing, *options[2:]))
        told = [line for line in done.stderr.splitlines() if line.startswith("thinwire: ")]
        self.assertEqual(len(told), 1, done.stderr)
        self.assertIn(str(missing), told[0])

    @needs_mpi
    def test_ranks_with_two_versions_of_a_plugin_are_told(self):
        text = (EXAMPLE / "hard.c").read_text()
        for old, new in (('.version = "1"', '.version = "2"'), ('"0.005"', '"0.006"')):
            self.assertIn(old, text)
            library = self.compile("newer", text.replace(old, new))
            done = self.run_unlike(*(("--plugin", plugin, "--sync", "hard", "--steps", 2) for plugin in (self.plugin, library)))
            self.assertIn("differ in release of thinwire or of a plug-in;", done.stderr)


if __name__ == "__main__":
    run_tests()
