"""The commands beside train: what they print, and their JSON."""
import json
import shutil

from support import PROGRAM, CommandLineTest, run_tests

import parts
import picture

SETTLED = {"allreduce", "bf16", "dgc", "fp16", "powersgd", "qsgd", "topk"}  # docs/abi.md
CODEC = ("bench", "codec", "--count", 20000, "--codec", "topk")
STEPS = ("bench", "train", "--batch", 2, "--size", 8, "--steps", 2)


class ToolsTest(CommandLineTest):
    def output(self, *words):
        return self.complete(*words).stdout

    def test_output_that_cannot_be_written_is_a_failure(self):
        for words in (["schemes", "dgc"], ["--help"], ["doctor", "--data", self.data], CODEC,
                      self.train_words("--steps", 1)):
            with self.subTest(words[0]), open("/dev/full", "w") as full:
                done = self.run_program(*words, stdout=full)
                self.assertEqual(done.returncode, 2)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn("standard output", done.stderr)

    def listed_schemes(self):
        """The names in the list: of schemes for gradients, those that stay first, of those for weights, and of methods of
        local updates."""
        groups = [group.splitlines() for group in self.output("schemes").split("\n\n") if "\n  " in group]
        self.assertEqual([("experimental" in group[0]) for group in groups], [False, True, True, True])
        settled, *others = [[line.split()[0] for line in group[1:]] for group in groups]
        self.assertEqual(set(settled), SETTLED)
        return settled + others[0], others[1], others[2]

    def test_json_goes_to_standard_output_or_to_a_file(self):
        self.check_json(CODEC, STEPS)

    @parts.extra
    def test_json_of_doctor_goes_there_too(self):
        self.check_json(("doctor", "--data", self.data))

    def check_json(self, *commands):
        path = self.folder / "figures.json"
        for words in commands:
            with self.subTest(words[0]):
                keys = json.loads(self.output(*words, "--json")).keys()
                self.assertEqual(json.loads(self.output(*words, "--json", "-")).keys(), keys)
                first = [str(word).startswith("--") for word in words].index(True)
                self.assertEqual(json.loads(self.output(*words[:first], "--json", *words[first:])).keys(), keys)
                self.assertNotIn("{", self.output(*words, "--json", path))
                self.assertEqual(json.loads(path.read_text()).keys(), keys)

    def test_the_summary_too(self):
        summary = json.loads(self.output(*self.train_words("--json", "--steps", 1)))
        self.assertEqual(summary["steps"], 1)

    def test_bench_codec_has_the_figures_that_scripts_read(self):
        result, = json.loads(self.output(*CODEC, "--density", 0.01, "--json"))["results"]
        self.assertEqual((result["codec"], result["count"], result["threads"]), ("topk", 20000, 1))
        self.assertEqual(result["elements_sent"], 200)
        self.assertGreaterEqual(result["bits_per_index"], result["bound_bits_per_index"])
        for key in ("encode_ms", "floor_ms", "floor_bytes_per_element", "decode_ms", "packet_bytes"):
            self.assertGreater(result[key], 0, key)
        for key in ("step_ms", "step_floor_ms"):
            self.assertGreater(result[key], 0, key)
        self.assertAlmostEqual(result["step_over_floor"], result["step_ms"] / result["step_floor_ms"])
        self.assertEqual(result["message_bytes"], result["packet_bytes"])
        self.assertAlmostEqual(result["message_mib"] * 2**20, result["message_bytes"])
        self.assertAlmostEqual(result["bits_per_element"], 8 * result["message_bytes"] / 20000)
        self.assertAlmostEqual(result["message_ratio"], 4 * 20000 / result["message_bytes"])

    def test_bench_codec_knows_every_scheme_on_even_and_odd_numbers_of_elements(self):
        listed, _, _ = self.listed_schemes()
        for count, threads in ((1, 1), (4099, 1), (6000, 3), (6000, 8)):
            found = json.loads(self.output("bench", "codec", "--count", count, "--threads", threads, "--json"))
            self.assertEqual({"shared_step_ms" in result for result in found["results"]}, {threads == 3})
            self.assertEqual([result["codec"] for result in found["results"]], listed)
            self.assertEqual({result["count"] for result in found["results"]}, {count})

    def test_bench_codec_says_what_more_threads_do_for_a_step(self):
        result, = json.loads(self.output(*CODEC, "--threads", 2, "--json"))["results"]
        for kind in ("step", "step_floor"):
            self.assertAlmostEqual(result[f"shared_{kind}_speedup"], result[f"{kind}_ms"] / result[f"shared_{kind}_ms"])
        self.assertIn("on 2 threads the step takes", self.output(*CODEC, "--threads", 2))

    def test_bench_codec_knows_sums_in_pieces(self):
        for codec in ("sign:exchange=scatter", "fp8:exchange=scatter"):
            result, = json.loads(self.output("bench", "codec", "--codec", codec, "--count", 5000, "--json"))["results"]
            self.assertGreater(result["packet_bytes"], 0)

    def test_bench_codec_leaves_a_dense_gradient_as_it_is(self):
        result, = json.loads(self.output("bench", "codec", "--codec", "allreduce", "--count", 777, "--json"))["results"]
        self.assertEqual((result["message_bytes"], result["message_ratio"], result["bits_per_element"]), (3108, 1, 32))
        self.assertIsNone(result["bits_per_index"])

    @parts.extra
    def test_the_message_of_resnet50_is_its_arithmetic(self):
        found = json.loads(self.output("bench", "codec", "--table", "resnet50", "--codec",
                                       "topk:values=fp32,indices=rice,leftovers=fp32", "--json"))
        result, = found["results"]
        self.assertEqual((found["tensors"], result["count"]), (161, 25557032))
        sent, indices = result["elements_sent"], result["bits_per_index"] * result["elements_sent"] / 8
        self.assertGreaterEqual(sent, 0.001 * (25557032 - 54120))
        self.assertEqual(result["exact_bytes"], 4 * 54120)
        headers = result["message_bytes"] - result["exact_bytes"] - 4 * sent - indices
        self.assertTrue(0 < headers < 54 * 64, headers)
        self.assertGreaterEqual(result["bits_per_index"], result["bound_bits_per_index"])

    def test_doctor_names_the_data(self):
        self.assertIn("192 training and 50 test images", self.output("doctor", "--data", self.data))
        found = json.loads(self.output("doctor", "--data", self.data, "--json"))
        self.assertEqual((found["data"]["train"], found["data"]["test"], found["data"]["format"]), (192, 50, "idx"))
        self.assertIn("/nonexistent", self.output("doctor", "--data", "/nonexistent"))

    def test_doctor_lists_the_levels_of_the_kernels(self):
        self.check_levels(1)

    @parts.extra
    def test_doctor_takes_each_level(self):
        self.check_levels(None)

    def check_levels(self, count):
        listed = json.loads(self.output("doctor", "--data", self.data, "--json"))["isa_levels"]
        self.assertEqual(listed.split()[0], "scalar")
        for level in listed.split()[:count]:
            done = self.run_program("doctor", "--data", self.data, "--json", env={"THINWIRE_ISA": level})
            found = json.loads(done.stdout)
            self.assertEqual((found["isa"], found["isa_levels"]), (level, listed))

    def test_doctor_refuses_an_instruction_set_that_is_none(self):
        self.refuse(2, ["THINWIRE_ISA=sse9", "scalar"], "doctor", "--data", self.data, env={"THINWIRE_ISA": "sse9"})

    def test_the_demo_compares_its_runs(self):
        demo = ("demo", "--data", self.data, "--workers", 2, "--epochs", 2, "--out", self.folder / "demo")
        text = self.output(*demo)
        self.assertIn("test", text)
        runs = [json.loads((self.folder / "demo" / name / "summary.json").read_text())
                for name in ("dense", "dgc", "dgc-bold")]
        dense, dgc, bold = (run["bytes"]["sent"] for run in runs)
        self.assertTrue(bold < dgc < dense)
        for run in runs:
            self.assertIn(f"{100 * run['metric']['value']:.2f} %", text)
            self.assertIn(f" {100 * run['metric']['value']:.2f} %", (self.folder / "demo/demo.gnuplot").read_text())
        self.refuse(2, ["earlier demo", self.folder / "demo"], *demo)
        if shutil.which("gnuplot"):
            seen = picture.Picture((self.folder / "demo/demo.svg").read_text())
            self.assertEqual(picture.problems(seen), [])
            self.assertEqual((len(seen.curves), len(seen.names())), (9, 9))  # three runs in three panels

    def test_schemes_are_listed_and_explained(self):
        gradients, weights, updates = self.listed_schemes()
        self.assertIn("dgc", gradients)
        self.assertIn("adpsgd-random", weights)
        self.assertIn("diloco", updates)
        for name in gradients + weights + updates:
            page = self.output("schemes", name)
            self.assertTrue(page.startswith(name))
            self.assertEqual("(experimental)" in page, name not in SETTLED)
            self.assertEqual("message_kb" in page, name in gradients)
        self.assertIn("pace", self.output("schemes", "adpsgd-fixed"))
        self.assertIn("density", self.output("schemes", "dgc:density=0.1"))


if __name__ == "__main__":
    run_tests()
