"""The commands beside train: what they print, and their JSON."""
import json
import unittest

from support import CommandLineTest

CODEC = ("bench", "codec", "--count", 20000, "--codec", "topk")
STEPS = ("bench", "train", "--batch", 2, "--size", 8, "--steps", 2)


class ToolsTest(CommandLineTest):
    def output(self, *words):
        done = self.run_program(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_json_goes_to_standard_output_or_to_a_file(self):
        path = self.folder / "figures.json"
        for words in (CODEC, STEPS, ("doctor", "--data", self.data)):
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

    def test_doctor_names_the_data(self):
        self.assertIn("192 training and 50 test images", self.output("doctor", "--data", self.data))
        found = json.loads(self.output("doctor", "--data", self.data, "--json"))
        self.assertEqual((found["data"]["train"], found["data"]["test"], found["data"]["format"]), (192, 50, "idx"))
        self.assertIn("/nonexistent", self.output("doctor", "--data", "/nonexistent"))

    def test_the_demo_compares_two_runs(self):
        demo = ("demo", "--data", self.data, "--workers", 2, "--epochs", 2, "--out", self.folder / "demo")
        text = self.output(*demo)
        self.assertIn("test", text)
        dense, compressed = (json.loads((self.folder / "demo" / name / "summary.json").read_text()) for name in
                             ("dense", "dgc"))
        self.assertLess(compressed["bytes"]["sent"], dense["bytes"]["sent"])
        for run in (dense, compressed):
            self.assertIn(f"{100 * run['metric']['value']:.2f} %", text)
        self.refuse(2, ["earlier demo", self.folder / "demo"], *demo)

    def test_schemes_are_listed_and_explained(self):
        listed = [line.split()[0] for line in self.output("schemes").splitlines() if line.startswith("  ")]
        self.assertIn("dgc", listed)
        for name in listed:
            page = self.output("schemes", name)
            self.assertTrue(page.startswith(name))
            self.assertIn("message_kb", page)
        self.assertIn("density", self.output("schemes", "dgc:density=0.1"))


if __name__ == "__main__":
    unittest.main()
