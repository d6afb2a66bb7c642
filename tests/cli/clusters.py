"""thinwire plan --clusters: what it forms of a file, and what it says of files that are wrong."""
import json

from support import CommandLineTest, run_tests

NAMES = ("desk", "lap", "attic", "server")
MACHINES = [dict(name=name, memory_mb=memory, mbit=mbit)
            for name, memory, mbit in zip(NAMES, (2000, 1000, 1000, 2000), (100, 100, 100, 50))]


class ClustersTest(CommandLineTest):
    def plan(self, content, *options):
        path = self.folder / "machines.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return self.run_program("plan", "--clusters", path, *options)

    def planned(self, content, *options):
        done = self.plan(content, "--json", "-", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, content, *words):
        done = self.plan(content)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in ("machines.json", *words):
            self.assertIn(word, done.stderr)

    def test_by_hand(self):
        """The times are 20, 10, 10 and 40. Of two clusters that hold 3000 MB each, {desk, lap} and {attic, server} are 20 apart,
        as {desk, attic} is from the others, and comes first."""
        plan = self.planned({"model_mb": 3000, "machines": MACHINES})
        self.assertEqual(plan["search"], "exact")
        self.assertEqual(plan["tried"][:2], [{"clusters": 1, "lacking_mb": 0, "times_apart": 0},
                                             {"clusters": 2, "lacking_mb": 0, "times_apart": 20}])
        self.assertGreater(plan["tried"][2]["lacking_mb"], 0)
        self.assertEqual(plan["clusters"], [[{"name": "desk", "holds_mb": 2000}, {"name": "lap", "holds_mb": 1000}],
                                            [{"name": "attic", "holds_mb": 1000}, {"name": "server", "holds_mb": 2000}]])

    def test_the_table_says_the_same(self):
        done = self.plan({"model_mb": 3000, "machines": MACHINES}, "--json", self.folder / "plan.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split() for line in done.stdout.splitlines()]
        self.assertIn(["1", "server", "2000", "50", "2000"], rows)
        self.assertIn(["2", "0", "20"], rows)
        self.assertTrue(done.stdout.endswith("\n2 clusters: the most there are of which each holds the model.\n"), done.stdout)
        self.assertEqual(json.loads((self.folder / "plan.json").read_text()),
                         self.planned({"model_mb": 3000, "machines": MACHINES}))

    def test_many_machines(self):
        """The same seed, the same clusters; each machine is in one of them."""
        machines = [dict(name=f"m{i}", memory_mb=500 + 37 * i % 900, mbit=10 + 13 * i % 90) for i in range(40)]
        content = {"model_mb": 4000, "machines": machines}
        plan = self.planned(content)
        self.assertEqual(plan["search"], "genetic")
        self.assertEqual(plan, self.planned(content, "--seed", 1))
        self.assertNotEqual(plan["clusters"], self.planned(content, "--seed", 2)["clusters"])
        self.assertEqual(sorted(m["name"] for cluster in plan["clusters"] for m in cluster), sorted(m["name"] for m in machines))
        for cluster in plan["clusters"]:
            self.assertEqual(sum(m["holds_mb"] for m in cluster), 4000)

    def test_a_model_for_which_there_is_no_room(self):
        self.refused({"model_mb": 6001, "machines": MACHINES}, "6001 MB", "lack 1 MB")
        self.assertEqual(len(self.planned({"model_mb": 6000, "machines": MACHINES})["clusters"]), 1)

    def test_wrong_files(self):
        def changed(**what):
            return {"model_mb": 3000, "machines": [*MACHINES[:3], {**MACHINES[3], **what}]}

        self.refused("{", "is not JSON")
        self.refused("", "is not JSON")
        self.refused("[" * 100000, "is not JSON")
        self.refused("[[1]]", "model_mb")
        self.refused("7", "model_mb")
        self.refused({"machines": MACHINES}, "model_mb", "from 1 to")
        self.refused({"model_mb": 3000}, "machines", "1 to 1000")
        self.refused({"model_mb": 3000, "machines": []}, "machines", "1 to 1000")
        self.refused({"model_mb": 3000, "machines": {"a": 1}}, "machines", "1 to 1000")
        self.refused({"model_mb": 3000, "machines": MACHINES, "nodes": 3}, '"nodes"', "model_mb, machines")
        self.refused({"model_mb": 3000, "machines": [dict(MACHINES[0], name=f"m{i}") for i in range(1001)]}, "1 to 1000")
        self.refused({"model_mb": 3000, "machines": ["desk"]}, "machine 1 needs a name")
        self.refused({"model_mb": 3000, "machines": [["desk"]]}, "machine 1 needs a name")
        self.refused(changed(name="desk"), "machine desk is there twice")
        self.refused(changed(name=3), "machine 4 needs a name")
        self.refused(changed(name=""), "machine 4 needs a name")
        self.refused(changed(name="m" * 41), "machine 4 needs a name")
        self.refused(changed(name="a\nb"), "machine 4 needs a name")
        self.refused(changed(mbits=3), '"mbits"', "name, memory_mb, mbit")
        for wrong in (0, -1, 1.5, 10000001, 1e300, "100", None, True):
            self.refused(changed(mbit=wrong), "machine server needs mbit", "whole number from 1 to 10000000")
            self.refused(changed(memory_mb=wrong), "machine server needs memory_mb")
            self.refused({"model_mb": wrong, "machines": MACHINES}, "the file needs model_mb")

    def test_wrong_words(self):
        good = {"model_mb": 3000, "machines": MACHINES}
        for words, said in (((), "cannot open"), (("image",), "one word too many"), (("--workers", 3), "--workers"),
                            (("--json", self.folder), "Is a directory")):
            path = self.folder / "nothing" if not words else self.folder / "machines.json"
            self.plan(good)
            done = self.run_program("plan", "--clusters", path, *words)
            self.assertEqual(done.returncode, 2, (words, done.stdout))
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    run_tests()
