#!/usr/bin/env python3
"""What a plan takes candidates to cost is what was measured: docs/figures has the losses, these make the steps more, and the
library plans with them. `plan_costs.py LIBTHINWIRE`"""
import json
import os
import pathlib
import statistics
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ["THINWIRE_LIBRARY"] = sys.argv.pop()
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python" / "src")]
sys.dont_write_bytecode = True
from adapters import dense_steps  # noqa: E402
from thinwire import planning  # noqa: E402

FIVE_EPOCHS = {"pictures": 5 * (60000 // 64), "resnet20": 5 * (50000 // 64)}  # of Fashion-MNIST and of CIFAR-10, in steps
LONG = 10 ** 6  # steps, for which all that was measured speaks
UNKNOWN = (None, None)


def figures(name):
    return json.loads((ROOT / "docs" / "figures" / f"{name}.json").read_text())


def numbers(text):
    """Of "2.151, 2.039", "1,500, 2,000" or "88.0 %, 88.1 %"."""
    return [float(one.replace(",", "").split()[0]) for one in text.split(", ")]


def percent(text):
    return int(text.split()[0])


def reached(row):
    """The loss of each length; of one length with several seeds their mean."""
    steps, losses = numbers(row["steps"]), numbers(row["loss"])
    return dict(zip(steps, losses)) if len(steps) == len(losses) else {steps[0]: statistics.mean(losses)}


def costs_of(rows):
    """Of (spec, steps of the run, percent more): the most that a candidate was seen to take more, and its shortest run."""
    found = {}
    for spec, steps, more in rows:
        before, most = found.get(spec, (steps, more))
        found[spec] = min(before, steps), max(most, more)
    return found


def with_adam():
    planned = figures("planning")
    rows = [(row["spec"].replace(",warmup_steps=0", ""), numbers(row["steps"])[0], percent(row["more"]))
            for row in planned["adam"] if row["more"]]
    return costs_of([*rows, ("dgc-adam:density=0.01,warmup_density=0.1", 600, planned["pictures"][0]["more"])])


def with_adapters():
    return costs_of((row["spec"], row["steps"], round(row["more"])) for row in figures("adapters")["rows"] if row["more"] is not None)


def with_sgd():
    """Steps of local updates and of fp8 were counted; the others are level with dense where they reach what it does."""
    rows = [(row["spec"], numbers(row["steps"])[0], percent(row["more"])) for row in figures("planning")["sgd"] if row["more"]]
    reached = {row["sync"].strip("`"): row for row in figures("schemes")["reached"]["rows"]}
    for spec, scheme in (("bf16", "bf16"), ("qsgd", "qsgd"), ("powersgd:rank=16", "powersgd")):
        rows += [(spec, steps, 0) for task, steps in FIVE_EPOCHS.items() if reached[scheme][task]["mean"] >= reached["allreduce"][task]["mean"]]
    rows += [("dgc", row["steps"], 0) for row in figures("schemes")["defaults"]["rows"]
             if "MNIST" in row["task"] and float(row["dgc"].split()[0]) >= float(row["dense"].split()[0])]
    return costs_of(rows)


def in_words(more, where=""):
    return (f"{more} % more steps" if more else "as dense") + where


class CostsTest(unittest.TestCase):
    def planned(self, optimizer, steps, adapters):
        """Of each candidate what a plan takes it to cost; over a line that is fast enough for gossip to average each step."""
        plan = planning.plan_of([("fc", (64, 16))], optimizer, line="10Gbit,1us", steps=int(steps), workers=2, step_time=1, codec_rate=1e9,
                                adapters=adapters)
        return {row.spec: (row.extra, row.seen) for row in plan.candidates}

    def check(self, measured, optimizer, adapters=False, more=()):
        """In a run as long as the one that was measured it is known, and in one a step shorter it is not."""
        where = " with adapters" if adapters else ""
        wanted = {spec: (steps, (percent_more / 100, in_words(percent_more, where))) for spec, (steps, percent_more) in measured.items()}
        wanted.update(more, allreduce=(0, (0, "exact")))
        for length in {LONG, *(steps - shorter for steps, _ in wanted.values() for shorter in (0, 1) if steps)}:
            for spec, found in self.planned(optimizer, length, adapters).items():
                steps, cost = wanted.get(spec, (LONG + 1, UNKNOWN))
                self.assertEqual(found, cost if length >= steps else UNKNOWN, (spec, length))

    def test_with_adam(self):
        """The most that a candidate was seen to take more counts, and what it was seen on is told."""
        spec, measured = "dgc-adam:density=0.01,warmup_density=0.1", with_adam()
        steps, more = measured[spec]
        self.assertEqual(more, figures("planning")["pictures"][0]["more"])
        self.check(measured, "adamw", more={spec: (steps, (more / 100, in_words(more, " on pictures")))})

    def test_with_adapters(self):
        self.check(with_adapters(), "adamw", adapters=True)

    def test_with_sgd(self):
        """Gossip is not level with dense, and is known by how much less it reaches."""
        accuracy = {row["sync"]: row["accuracy"] for row in figures("training")["gossip"]["rows"]}
        less = f"{accuracy['allreduce'] - accuracy['adpsgd-random']:.1f} points less"
        self.check(with_sgd(), "sgd", more={"adpsgd-random": (FIVE_EPOCHS["pictures"], (0, less))})

    def check_steps(self, loss, steps, after, more, dense):
        """Where dense had that loss, as far as three digits of it say."""
        found = min(steps, dense_steps(loss, dense))
        self.assertAlmostEqual(after / found, 1, delta=0.01)
        self.assertAlmostEqual(more, 100 * (steps / found - 1), delta=1)

    def test_steps_more_are_those_of_the_losses(self):
        """On the line between two runs of dense. Of accuracies more is better."""
        for table, sign in (("adam", 1), ("sgd", -1)):
            rows = figures("planning")[table]
            dense = {steps: sign * loss for row in rows if row["spec"] == "allreduce" for steps, loss in reached(row).items()}
            for row in rows:
                if row["after"] and "but for" not in row["after"]:
                    (steps, loss), = reached(row).items()
                    self.check_steps(sign * loss, steps, numbers(row["after"])[0], percent(row["more"]), dense)

    def test_steps_more_on_pictures_are_those_of_the_losses(self):
        row, = figures("planning")["pictures"]
        self.check_steps(row["loss"], 600, row["after"], row["more"], {one["steps"]: one["loss"] for one in row["dense"]})

    def test_steps_more_with_adapters_are_those_of_the_losses(self):
        rows = figures("adapters")["rows"]
        dense = {row["steps"]: row["loss"] for row in rows if row["spec"] == "allreduce"}
        for row in rows:
            self.assertAlmostEqual(row["loss"], statistics.mean(row["losses"]))
            if row["after"] is not None:
                self.check_steps(row["loss"], row["steps"], row["after"], row["more"], dense)


if __name__ == "__main__":
    unittest.main()
