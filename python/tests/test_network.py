"""bench/network.py, over links in network namespaces: what it reports, and that nothing of it is left behind."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import ranks

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import link  # noqa: E402
import network  # noqa: E402

DGC = "thinwire:dgc:warmup_steps=0"


def needs_links(test):
    reason = "only root may make network namespaces" if os.getuid() else ""
    missing = [tool for tool in ("ip", "tc", "mpirun") if not shutil.which(tool)]
    reason = reason or (f"{missing[0]} is not installed" if missing else "")
    return unittest.skipIf(reason, reason)(test)


def needs_torch(test):
    return unittest.skipIf(ranks.torch_is_missing(), "there is no torch here")(test)


def command(out, *words):
    build = pathlib.Path(os.environ["THINWIRE_LIBRARY"]).parent if "THINWIRE_LIBRARY" in os.environ else "build"
    return [sys.executable, "-B", BENCH / "network.py", "--python", sys.executable, "--build", build, "--out", out,
            "--ranks", "2", "--rates", "1", "--rounds", "1", "--parameters", "10000", *words]


def namespaces(of=""):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line.startswith(f"tw-link-{of}")}


def heed_interrupts():
    """A shell has what it starts in the background ignore them, and the children of that, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition, what):
    end = time.monotonic() + ranks.SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"it did not come: {what}")
        time.sleep(0.05)


class FiguresTest(unittest.TestCase):
    """By hand: at 1 Gbit/s dense sends 125 MB in 2 s, so half of the line is used."""

    DENSE = {"way": "torch:dense", "step_ms": 2040.0, "bytes_sent": 125e6, "bytes_received": 100e6}

    def results(self, *more):
        none = {"way": "torch:none", "step_ms": 40.0, "bytes_sent": 0, "bytes_received": 0}
        found = [none, dict(self.DENSE), *more]
        network.add_exchange(found, 1)
        return {result["way"]: result for result in found}

    def test_what_a_step_has_beside_the_exchange_is_taken_off(self):
        found = self.results({"way": DGC, "step_ms": 140.0, "bytes_sent": 0, "bytes_received": 0},
                             {"way": "mpi:dgc", "step_ms": 140.0, "bytes_sent": 0, "bytes_received": 0})
        self.assertEqual(found["torch:dense"]["exchange_ms"], 2000)
        self.assertEqual((found[DGC]["exchange_ms"], found[DGC]["faster_than_dense"]), (100, 20))
        self.assertEqual(found["mpi:dgc"]["exchange_ms"], 140)

    def test_break_even(self):
        """100 ms on any line, and 0.2 Gbit sent at half the rate. Dense sends 1 Gbit: 2 / B = 0.1 + 0.4 / B."""
        found = self.results({"way": DGC, "step_ms": 540.0, "bytes_sent": 25e6, "bytes_received": 25e6})
        self.assertAlmostEqual(found[DGC]["break_even_gbit"], 16)

    def test_what_sends_more_is_never_better(self):
        found = self.results({"way": DGC, "step_ms": 5040.0, "bytes_sent": 250e6, "bytes_received": 0})
        self.assertEqual(found[DGC]["break_even_gbit"], 0)

    def test_what_costs_nothing_beside_its_bytes_is_always_better(self):
        found = self.results({"way": DGC, "step_ms": 440.0, "bytes_sent": 25e6, "bytes_received": 25e6})
        self.assertIsNone(found[DGC]["break_even_gbit"])

    def test_the_best_hook_is_compared_with(self):
        hooks = [{"way": f"torch:powersgd={rank}", "step_ms": ms, "bytes_sent": 0, "bytes_received": 0}
                 for rank, ms in ((1, 640.0), (2, 540.0), (4, 740.0))]
        found = self.results({"way": DGC, "step_ms": 140.0, "bytes_sent": 0, "bytes_received": 0}, *hooks)
        values = {row["name"]: row["value"] for row in network.compare(list(found.values()))}
        self.assertEqual(values, {"dgc_to_dense": 20, "dgc_to_powersgd_hook": 5})

    def test_a_way_that_failed_is_told_and_spoils_nothing(self):
        self.assertEqual(network.summarise(DGC, [{"error": "no"}]), {"way": DGC, "error": "no"})
        found = [{"way": DGC, "error": "no"}]
        network.add_exchange(found, 1)
        self.assertEqual(network.compare(found), [])

    def test_the_reason_is_the_exception(self):
        text = "a\n[rank3]: RuntimeError: it broke\n-----\nmpirun noticed\n----"
        self.assertEqual(network.reason(text), "RuntimeError: it broke")

    def test_a_run_that_says_nothing_has_failed(self):
        self.assertEqual(network.told_by('a word\n{"steps": 3}\n'), {"steps": 3})
        self.assertRaises(network.link.Failed, network.told_by, "")

    def test_pictures_are_well_formed(self):
        from xml.etree import ElementTree
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "network.svg"
            found = self.results({"way": "thinwire:a<b&c", "step_ms": 50.0, "bytes_sent": 1, "bytes_received": 1})
            part = {"gbit_per_second": 1, "parameters": 5, "results": list(found.values())}
            network.draw({"ranks": 2, "exchange": [part], "train": None}, path)
            self.assertIn("thinwire:a<b&c", "".join(ElementTree.parse(path).getroot().itertext()))

    @unittest.skipIf(os.getuid() == 0, "this is root")
    def test_without_root_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command(folder), capture_output=True, text=True)
            self.assertEqual(done.returncode, 77)
            self.assertIn("only root may make network namespaces", done.stderr)

    def test_a_way_that_there_is_not_is_refused(self):
        done = subprocess.run(command("x", "torch:fp8"), capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("'torch:fp8' is no way", done.stderr)


@needs_links
class LinkTest(unittest.TestCase):
    def setUp(self):
        try:
            link.run("1", 1, ["true"], ranks.SECONDS)
        except link.Missing as missing:
            self.skipTest(str(missing))

    def test_a_run_that_takes_too_long_is_ended_with_its_network(self):
        jobs, start = [], subprocess.Popen
        with mock.patch.object(link.subprocess, "Popen", lambda *a, **b: jobs.append(start(*a, **b)) or jobs[-1]):
            with self.assertRaisesRegex(link.Failed, "not done after 3 s"):
                link.run("2", 1, ["sleep", "1000"], 3)
        self.assertFalse(namespaces(f"{jobs[0].pid}-"))

    def test_single_packets_are_for_links_below_a_gigabit(self):
        for gbit, single in ((10, False), (1, False), (0.9, True), (0.01, True)):
            shown = link.run("1", gbit, ["ip", "-d", "link", "show", "eth0"], ranks.SECONDS)
            self.assertEqual("gso_max_segs 1 " in shown, single, (gbit, shown))

    def test_what_a_program_wrote_is_told_when_it_fails(self):
        with self.assertRaisesRegex(link.Failed, "it broke"):
            link.run("1", 1, ["sh", "-c", "echo it broke >&2; exit 3"], ranks.SECONDS)

    @needs_torch
    def test_a_small_report(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command(folder, "--steps", "4", "--task", "width=32", "--task", "loss=100", "--task",
                                          "accuracy=0", "torch:dense", DGC), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.check(json.loads((pathlib.Path(folder) / "network.json").read_text()))
            self.assertIn(DGC, (pathlib.Path(folder) / "network.svg").read_text())

    def check(self, report):
        self.assertTrue(report["complete"])
        (part,) = report["exchange"]
        by_way = {result["way"]: result for result in part["results"]}
        self.assertEqual(list(by_way), ["torch:none", "torch:dense", DGC])
        self.assertEqual((part["gbit_per_second"], part["parameters"], report["ranks"]), (1, 10000, 2))
        for result in by_way.values():
            self.assertEqual(result["steps"], 8 if result["way"] == network.NONE else 4, result)
            self.assertLessEqual(result["least_ms"], result["step_ms"])
        # Each of two ranks sends as many bytes as the gradients have, and the headers; a thousandth of them takes less.
        self.assertTrue(40000 < by_way["torch:dense"]["bytes_sent"] < 60000, by_way)
        self.assertLess(by_way[DGC]["bytes_sent"], 10000)
        for result in report["train"]["results"]:
            self.assertIsNotNone(result["seconds"], result)
            self.assertEqual(result["steps"], report["train"]["task"]["look_every"])

    def interrupted(self, folder, how):
        """The exit code of a report that got a signal while its ranks ran; what it had made is gone at the end."""
        words = ("--only", "exchange", "--steps", "1000000", "--seconds", "1000", "torch:dense")
        job = subprocess.Popen(command(folder, *words), preexec_fn=heed_interrupts,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with job:
            self.addCleanup(job.kill)
            mine = []

            def ranks_run():
                children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
                mine[:] = [name for child in children for name in namespaces(child + "-")]
                hub = [name for name in mine if name.endswith("-1")]
                return hub and subprocess.run(["ip", "netns", "pids", hub[0]], capture_output=True, text=True).stdout

            wait_until(ranks_run, "a rank")
            job.send_signal(how)
            code = job.wait(ranks.SECONDS)
        wait_until(lambda: not namespaces() & set(mine), f"the end of {mine}")
        return code

    @needs_torch
    def test_interrupted_it_leaves_no_namespace(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(how), tempfile.TemporaryDirectory() as folder:
                self.assertEqual(self.interrupted(folder, how), 130)
                self.assertFalse(json.loads((pathlib.Path(folder) / "network.json").read_text())["complete"])

    @needs_torch
    def test_killed_it_leaves_no_namespace(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.interrupted(folder, signal.SIGKILL), -signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
