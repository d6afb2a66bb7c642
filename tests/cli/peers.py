"""thinwire doctor --peers: threads, ranks of mpirun, and ranks behind links whose rate is known."""
import json
import pathlib
import socket
import subprocess
import unittest

from support import PROGRAM, CommandLineTest, needs_mpi, run_tests, seconds_left, under_mpi

LINK = pathlib.Path(__file__).resolve().parents[2] / "bench" / "link.sh"


class PeersTest(CommandLineTest):
    def measure(self, *words, **where):
        path = self.folder / "lines.json"
        done = self.run_program("doctor", "--peers", "--json", path, *words, **where)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(path.read_text()), done.stdout

    def check(self, found, table, transport, ranks):
        pairs = [(one, other) for one in range(ranks) for other in range(ranks) if one != other]
        self.assertEqual(found["transport"], transport)
        self.assertEqual(len(found["hosts"]), ranks)
        self.assertEqual(sorted((link["from"], link["to"]) for link in found["links"]), pairs)
        for link in found["links"]:
            for key in ("mbit_per_second", "mbit_per_second_both_ways", "latency_ms_median"):
                self.assertGreater(link[key], 0, key)
            self.assertGreaterEqual(link["latency_ms_worst"], link["latency_ms_median"])
        slowest = min(found["links"],
                      key=lambda link: min(link["mbit_per_second"], link["mbit_per_second_both_ways"]))
        self.assertEqual((found["slowest"]["from"], found["slowest"]["to"]), (slowest["from"], slowest["to"]))
        self.assertLess(found["slowest"]["dgc_step_ms"], found["slowest"]["dense_step_ms"])
        self.assertIn(found["summary"], table)
        self.assertEqual(sum(" -> " in line for line in table.splitlines()), len(pairs))

    def test_threads(self):
        self.check(*self.measure("--workers", 3), "threads", 3)

    @unittest.skipUnless((PROGRAM.parent / "libthinwire_tcp.so").exists(), "needs libthinwire_tcp")
    def test_processes_that_join(self):
        key, path = self.folder / "key", self.folder / "lines.json"
        key.write_bytes(bytes(range(32)))
        for sealed in ((), ("--seal", "--key-file", key)):
            with self.subTest(sealed=bool(sealed)), socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                words = ("doctor", "--peers", "--workers", 3, "--json", path, *sealed, "--join",
                         f"127.0.0.1:{probe.getsockname()[1]}")
                probe.close()
                done = [self.finish(job) for job in [self.start_program(*words) for _ in range(3)]]
                self.assertEqual([one.returncode for one in done], [0, 0, 0], [one.stderr for one in done])
                table, = [one.stdout for one in done if one.stdout]
                self.check(json.loads(path.read_text()), table, "tcp", 3)

    def test_json_alone_on_standard_output(self):
        done = self.run_program("doctor", "--peers", "--workers", 2, "--json")
        self.assertEqual(json.loads(done.stdout)["transport"], "threads")

    def test_one_rank_is_refused(self):
        self.refuse(2, ["two ends", "mpirun"], "doctor", "--peers")

    @needs_mpi
    def test_ranks_of_mpirun(self):
        for ranks in (2, 4):
            with self.subTest(ranks):
                self.check(*self.measure(**under_mpi(ranks)), "mpi", ranks)

    @needs_mpi
    def test_a_line_of_known_rate(self):
        """Links of 100 Mbit/s, whose TCP packets have 5 % of headers, between two namespaces."""
        path = self.folder / "lines.json"
        done = subprocess.run(["sh", LINK, "2", "100mbit", PROGRAM, "doctor", "--peers", "--json", path],
                              capture_output=True, text=True, timeout=seconds_left())
        if done.returncode == 77:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(path.read_text())
        self.assertEqual(len(set(found["hosts"])), 2)
        for link in found["links"]:
            self.assertEqual(link["interface"], "eth0")
            self.assertTrue(90 <= link["mbit_per_second"] <= 110, link)


if __name__ == "__main__":
    run_tests()
