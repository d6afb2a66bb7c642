#!/usr/bin/env python3
"""thinwire.plan, and the spec "auto": the table is the program's, and a run with what was chosen has the same bits."""

import contextlib
import io
import math
import os
import pathlib
import shutil
import subprocess
import tempfile
import types
import unittest
import unittest.mock

import models  # noqa: F401: skips it where there is no torch
import ranks
import thinwire
import torch
from thinwire import planning
from thinwire.torch import _auto, _replan

SHAPES = [("first.weight", (400, 200)), ("first.bias", (400,)), ("scalar", ())]
LINE = "10Mbit/100Mbit,5ms"


def program():
    """Beside the library."""
    beside = pathlib.Path(os.environ.get("THINWIRE_LIBRARY", "")).with_name("thinwire")
    return str(beside) if beside.exists() else shutil.which("thinwire")


class PlanTest(unittest.TestCase):
    def plan(self, optimizer="adamw", **more):
        return thinwire.plan(SHAPES, optimizer, **{"line": LINE, "steps": 3000, "workers": 4, "step_time": 0.05, "codec_rate": 5e9,
                                                   **more})

    @unittest.skipUnless(program(), "needs the program")
    def test_it_prints_what_the_program_prints(self):
        """Memory is this process's, and not compared."""
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "table"
            table.write_text("first.weight 400 200\nfirst.bias 400\nscalar\n")
            done = subprocess.run([program(), "plan", "none", "--parameters", table, "--workers", "4", "--link", LINE, "--step-time",
                                   "0.05", "--codec-rate", "5", "--steps", "3000", "--optimizer", "adamw", "--quiet"],
                                  capture_output=True, text=True, check=True)

        def figures(text):
            return [line[:68] + line[80:] if line.count("%") and "kB" in line else line for line in text.splitlines()]

        self.assertEqual(figures(str(self.plan())), figures(done.stdout.rstrip("\n")))

    def test_its_rows(self):
        plan = self.plan()
        rows = {row.spec: row for row in plan.candidates}
        self.assertEqual(plan.choice, min((row for row in plan.candidates if row.seen and row.left_out is None),
                                          key=lambda row: (row.target_seconds > 1.05 * plan.choice.target_seconds)))
        self.assertAlmostEqual(rows["allreduce"].bytes_per_step, 2 * 3 / 4 * 4 * (80000 + 400 + 1), delta=64)
        self.assertIn("applies momentum", rows["dgc"].left_out)
        self.assertIn(plan.choice.spec, plan.command)
        self.assertIsNone(self.plan(steps=10).candidates[3].seen)

    def test_a_function_is_timed(self):
        calls = []
        self.assertGreaterEqual(planning.seconds_of(lambda: calls.append(1)), 0)
        self.assertEqual(len(calls), 1 + planning.PASSES)

    def test_refusals(self):
        for words, more in {"RATE,LATENCY": {"line": "ten"}, "line=3": {"line": 3}, "workers=1": {"workers": 1},
                            "steps=True": {"steps": True}, "step_time=0": {"step_time": 0}, "optimizer='lion'": {"optimizer": "lion"},
                            "step_time='x'": {"step_time": "x"}, "codec_rate='x'": {"codec_rate": "x"}, "codec_rate=nan": {"codec_rate": math.nan},
                            "codec_rate=-1": {"codec_rate": -1}, r"line=\(1, 2\)": {"line": (1, 2)},
                            r"line=\('a', 1, 2\)": {"line": ("a", 1, 2)}, "line=None": {"line": None}}.items():
            with self.subTest(words), self.assertRaisesRegex(thinwire.Error, words):
                self.plan(**more)

    def test_what_is_no_model(self):
        for model, words in ((None, "model=None: want a module"), ("abc", "model='abc'"), ([("w",)], "a list of"), ([("w", 3)], "a list of"),
                             ([("w", (-1,))], r"'w' of \(-1,\): want"), ([(3, (4,))], "3 of .* a text"), ([("w", ("x",))], "whole numbers"),
                             ([("w", (1 << 64,))], "whole numbers"), ([("w", (1 << 50,))], r"2\^31"), ([], "nothing to exchange"),
                             ([("w", (0, 3))], "w is empty")):
            with self.subTest(model), self.assertRaisesRegex(thinwire.Error, words):
                thinwire.plan(model, "sgd", line=LINE, steps=10, workers=2, step_time=1)

    def test_the_line_of_a_comm_that_is_known(self):
        """A comm whose exchanges take 2 ms and a hundredth of a microsecond a byte, on a clock of its own."""
        now = [0.0]

        class Known:
            size = 3

            def barrier(self):
                pass

            def allgather(self, data):
                now[0] += 2e-3 + (self.size - 1) * len(data) * 1e-8
                return [data] * self.size

        before, planning.time.perf_counter = planning.time.perf_counter, lambda: now[0]
        try:
            up, down, latency = planning.measured_line(Known())
        finally:
            planning.time.perf_counter = before
        self.assertAlmostEqual(up, 1e8, delta=1e6)
        self.assertEqual(up, down)
        self.assertAlmostEqual(latency, 2e-3, delta=1e-5)


def of_class(kind, spec, steps):
    """What a run of a few steps comes to on this rank, by attach() or by an OuterLoop; and the spec that it had."""
    torch.manual_seed(3)
    model = torch.nn.Linear(40, 30)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if kind == "attach":
        model = torch.nn.parallel.DistributedDataParallel(model)
        made = thinwire.torch.attach(model, spec, optimizer=optimizer, fallback=False)
    else:
        made = thinwire.torch.OuterLoop(model, optimizer, spec)
    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 40, generator=generator)).square().mean().backward()
        optimizer.step() if kind == "attach" or made._hooks else (optimizer.step(), made.step())
    if kind != "attach":
        made.finish()
    spec = made.spec if kind == "attach" else made._loop.spec
    made.close()
    return [parameter.detach().clone() for parameter in model.parameters()], spec


def takes_the_choice(rank, size, kind, folder):
    """Chosen, named, and kept: three runs."""
    auto = f"auto:steps=3000,pass_ms=20,rate=1Mbit,latency=5ms,keep={folder}/{kind}"
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        chosen, spec = of_class(kind, auto, 41)
    named, _ = of_class(kind, spec, 41)
    goes_on, again = of_class(kind, auto.replace("1Mbit", "100Gbit"), 41)
    measured = of_class(kind, "auto:steps=3000,pass_ms=20", 1)[1]
    same = all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(chosen, named, goes_on))
    return same, spec, again, text.getvalue(), measured


def says(rank, size, spec, optimizer):
    """What attach() says against a spec."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
    own = torch.optim.SGD(ddp.parameters(), lr=0.1) if optimizer else None
    return ranks.refused(lambda: thinwire.torch.attach(ddp, spec if isinstance(spec, str) else spec[rank], optimizer=own))


def walks_through(rank, size, kind, spec):
    """The line of a plan, as it is printed, and a step with what it makes."""
    model = torch.nn.Linear(4, 3)
    ddp, optimizer = torch.nn.parallel.DistributedDataParallel(model), torch.optim.SGD(model.parameters(), lr=0.1)
    with contextlib.closing(eval(planning.DOORS[kind].format(spec), {**globals(), **locals()})) as made:
        return type(made).__name__


FALL, RISE, LONG = 160, 320, 480  # steps


def gradients_of_inputs(rank, size, spec, steps, at, skipped=()):
    """A run whose gradients are its inputs, which goes on by other specs at some steps: what it ends with, what it would if
    all of them had arrived, and the compressor's changes. In steps that are skipped the last rank's is NaN, and is lost."""
    torch.manual_seed(3)
    model = torch.nn.Linear(40, 30, bias=False)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = model.weight.detach().clone()
    made = thinwire.torch.attach(ddp, spec, optimizer=optimizer, fallback=False)
    inputs = [torch.Generator().manual_seed(one) for one in range(size)]
    changes = []
    for step in range(steps):
        if step in at:
            made.go_on_by(at[step])
        gradients = [torch.randn(30, 40, generator=one) for one in inputs]
        optimizer.zero_grad()
        before = made.spec
        if step in skipped:
            gradients[-1] = torch.zeros(30, 40) if rank < size - 1 else torch.full((30, 40), float("nan"))
        (ddp(torch.eye(40)) * gradients[rank].t()).sum().backward()
        if not made.skipped:
            optimizer.step()
        expected -= 0.1 * sum(gradients) / size
        if made.spec != before:
            changes.append((step, made.spec))
    state = made.state_dict()
    made.close()
    return model.weight.detach(), expected, changes, state


def travels(rank, size, folder):
    """A line that falls by ten and comes back, with 40 % of noise: what is done by itself, and by hand."""
    step, noise = [0], torch.Generator().manual_seed(rank)

    class Line(planning.LineWatch):
        def add(self, sent, seconds):
            step[0] += 1
            factor = 0.6 + 0.8 * float(torch.rand(1, generator=noise))
            return super().add(1e6, (10 if FALL < step[0] <= RISE else 1) * factor)

    def choose(settled, rows, optimizer, kind, size, line):
        return ("powersgd:rank=2" if line[0] < 0.5e6 / 8 * 1e3 else "bf16"), "as the test has it"

    with unittest.mock.patch.object(_replan, "LineWatch", Line), unittest.mock.patch.object(_auto.Settled, "choose", choose):
        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            auto = f"auto:steps=3000,pass_ms=20,rate=1Gbit,latency=5ms,keep={folder}/kept"
            pathlib.Path(folder, "kept").unlink(missing_ok=True) if rank == 0 else None
            torch.distributed.barrier()
            by_itself = gradients_of_inputs(rank, size, auto, LONG, {})
    first = pathlib.Path(folder, "kept").read_text().strip()
    by_hand = gradients_of_inputs(rank, size, first, LONG, dict(by_itself[2]))
    return first, by_itself, by_hand, text.getvalue()


def follows(rank, size, folder, state):
    """A run of auto that goes on from a state of another scheme, which it had gone on by."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 30, bias=False))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with thinwire.torch.attach(ddp, f"auto:steps=3000,pass_ms=20,rate=1Gbit,latency=5ms,keep={folder}/kept", optimizer=optimizer,
                               fallback=False) as made:
        made.load_state_dict(state[rank])
        return made.spec, made.replanner is None


def refuses(rank, size, folder, states):
    """A damaged state of another scheme on one rank changes nothing on any; the whole one is then taken."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 30, bias=False))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with thinwire.torch.attach(ddp, f"auto:steps=3000,pass_ms=20,rate=1Gbit,latency=5ms,keep={folder}/kept", optimizer=optimizer,
                               fallback=False) as made:
        ddp(torch.eye(40)).square().sum().backward()
        before, seen = made.state_dict(), []
        for damaged in (True, False):
            state = {name: value for name, value in states[rank].items() if not (damaged and rank == 1 and name.startswith("residual"))}
            seen += [ranks.refused(lambda: made.load_state_dict(state)), made.spec]
            if damaged:
                seen.append(all(torch.equal(before[name], value) for name, value in made.state_dict().items() if torch.is_tensor(value)))
        ddp(torch.eye(40)).square().sum().backward()
        return seen


def is_left(rank, size):
    """A run of auto whose user takes another scheme, when a change is due already."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 30, bias=False))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with thinwire.torch.attach(ddp, "auto:steps=3000,pass_ms=20,rate=1Gbit,latency=5ms", optimizer=optimizer, fallback=False) as made:
        was_watched = made.replanner is not None
        made.go_on_by("bf16")
        made.set_scheme("sign")
        for _ in range(2):
            ddp(torch.eye(40)).square().sum().backward()
        return was_watched, made.spec, made.replanner is None, made.follows


def changes_of_line(fall, rise, steps=1000):
    """At which steps a run goes on with what, over a line that is ten times slower in between."""
    def comm():
        return types.SimpleNamespace(allgather=lambda row: [row])

    counts = {"bytes_sent": 0.0, "seconds_exchange": 0.0}
    made = types.SimpleNamespace(spec="fast", _connected=comm, _live=lambda: types.SimpleNamespace(stats=lambda: counts))
    made.go_on_by = lambda spec: seen.append((step, spec))
    replanner = _replan.Replanner((1e6, 1e6, 0.001), lambda line: ("slow" if line[0] < 5e5 else "fast", ""), 0, False)
    seen = []
    with unittest.mock.patch.object(_replan._transport, "gathered_by_all", lambda comm, mine: [mine()]):
        for step in range(steps):
            if seen and seen[-1][1] != made.spec:
                made.spec, counts = seen[-1][1], {"bytes_sent": 0.0, "seconds_exchange": 0.0}
            sent = 1e5 if made.spec == "fast" else 1e4
            counts = {"bytes_sent": counts["bytes_sent"] + sent,
                      "seconds_exchange": counts["seconds_exchange"] + sent * (10 if fall <= step < rise else 1) / 1e6}
            replanner.hear(made)
    return seen


class ChangeTest(unittest.TestCase):
    def test_a_line_that_recovers_while_no_plan_is_due(self):
        """The first 64 steps by a spec are what is compared with, and a change after them counts as soon as a plan may be made."""
        self.assertEqual([spec for _, spec in changes_of_line(160, 300)], ["slow", "fast"])
        self.assertEqual([spec for _, spec in changes_of_line(65, 10 ** 9)], ["slow"])
        self.assertEqual(changes_of_line(1000, 1000), [])

    def test_a_state_that_does_not_fit_changes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "kept").write_text("powersgd:rank=4\n")
            states = [state for _, _, _, state in ranks.on_ranks(2, gradients_of_inputs, "topk:density=0.05", 3, {})]
            for text, *seen in ranks.on_ranks(2, refuses, folder, states):
                self.assertIn("residual/weight", text)
                self.assertEqual(seen, ["powersgd:rank=4", True, "", "topk:density=0.05"])

    def test_who_sets_a_scheme_keeps_it(self):
        self.assertEqual(ranks.on_ranks(2, is_left), [(True, "sign", True, False)] * 2)

    def test_nothing_is_lost_on_the_way(self):
        for spec, at in (("powersgd:rank=1,leftovers=fp32", {7: "allreduce"}),
                         ("topk:density=0.05", {4: "powersgd:rank=2", 9: "allreduce"})):
            with self.subTest(spec):
                for weights, expected, changes, _ in ranks.on_ranks(2, gradients_of_inputs, spec, 12, at):
                    self.assertEqual(changes, list(at.items()))
                    self.assertTrue(torch.allclose(weights, expected, atol=1e-4), (weights - expected).abs().max())

    def test_nothing_is_paid_twice_where_a_step_is_skipped(self):
        """In the step of a change, which is then put off, and in the one after it. The healthy rank keeps its gradient."""
        for skipped in (5, 6):
            with self.subTest(skipped):
                (weights, expected, changes, _), _ = ranks.on_ranks(2, gradients_of_inputs, "topk:density=0.05", 12,
                                                                    {5: "sign:leftovers=fp32", 9: "allreduce"}, (skipped,))
                self.assertEqual(changes, [(6 if skipped == 5 else 5, "sign:leftovers=fp32"), (9, "allreduce")])
                self.assertTrue(torch.allclose(weights, expected, atol=1e-4), (weights - expected).abs().max())

    def test_it_goes_on_by_what_suits_the_line(self):
        with tempfile.TemporaryDirectory() as folder:
            results = ranks.on_ranks(2, travels, folder)
            for rank, (first, (weights, _, changes, _), (by_hand, _, _, _), text) in enumerate(results):
                self.assertEqual([spec for _, spec in changes], ["powersgd:rank=2", "bf16"], (first, text))
                for (step, _), begun in zip(changes, (FALL, RISE)):
                    self.assertTrue(begun + 32 < step <= begun + 4 * 32, changes)
                self.assertTrue(torch.equal(weights, by_hand))
                self.assertEqual(text.count("goes on with"), 2 * (1 - rank), text)
            pathlib.Path(folder, "kept").write_text("powersgd:rank=4\n")
            states = [by_itself[3] for _, by_itself, _, _ in results]
            self.assertEqual(ranks.on_ranks(2, follows, folder, states), [("bf16", True)] * 2)


class AutoTest(unittest.TestCase):
    def taken(self, kind):
        with tempfile.TemporaryDirectory() as folder:
            results = ranks.on_ranks(2, takes_the_choice, kind, folder)
            kept = pathlib.Path(folder, kind).read_text().strip()
        for rank, (same, spec, again, text, measured) in enumerate(results):
            self.assertTrue(same, spec)
            self.assertEqual((spec, again, measured), (results[0][1], results[0][1], results[0][4]))
            self.assertEqual(text.count("auto takes"), 1 - rank)
        self.assertNotIn(kept.split(":")[0], ("auto", "allreduce"))
        return results[0]

    def test_attach_takes_the_choice_bit_for_bit(self):
        _, spec, _, text, _ = self.taken("attach")
        self.assertIn(f"auto takes {spec.split(':')[0]}", text)
        self.assertIn("1 Mbit/s", text)

    def test_an_outer_loop_takes_a_method_of_local_updates(self):
        _, spec, _, _, measured = self.taken("outer")
        methods = [name for name, _ in thinwire.outers()]
        self.assertIn(spec.split(":")[0], methods)
        self.assertIn(measured.split(":")[0], methods)

    def test_refusals(self):
        for spec, optimizer, words in (("auto", True, "steps="), ("auto:steps=10", True, "pass_ms="),
                                       ("auto:steps=10,pass_ms=-1", True, "above 0"), ("auto:steps=1.5,pass_ms=1", True, "whole"),
                                       ("auto:steps=10,pass_ms=1,rate=1Mbit", True, "latency="),
                                       ("auto:steps=10,pass_ms=1,rate=ten,latency=1ms", True, "RATE,LATENCY"),
                                       ("auto:steps=10,pass_ms=1,speed=1", True, "\"speed\""),
                                       ("auto:steps=10,pass_ms=1", False, "optimizer="),
                                       (("auto:steps=10,pass_ms=1", "qsgd"), True, "give all ranks the same")):
            with self.subTest(spec):
                for text in ranks.on_ranks(2, says, spec, optimizer):
                    self.assertIn(words, text)

    def test_attach_names_the_class_that_a_spec_is_for(self):
        for spec, words in (("adpsgd-random", 'write thinwire.torch.GossipDataParallel(model, "adpsgd-random", optimizer=optimizer)'),
                            ("diloco:every=4", 'write thinwire.torch.OuterLoop(model, optimizer, "diloco:every=4")')):
            for text in ranks.on_ranks(2, says, spec, True):
                self.assertIn(words, text)

    def test_the_line_of_a_plan_runs(self):
        for kind, spec, name in ((planning.GRADIENTS, "qsgd", "Compressor"), (planning.WEIGHTS, "adpsgd-random", "GossipDataParallel"),
                                 (planning.UPDATES, "diloco:every=4", "OuterLoop")):
            self.assertEqual(ranks.on_ranks(2, walks_through, kind, spec), [name] * 2)

    def test_a_file_that_keeps_no_spec(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "kept")
            spec = f"auto:steps=10,pass_ms=1,rate=1Mbit,latency=1ms,keep={path}"
            for kept in (b"\x00\xff", b"bogus:every=3", b"dgc:nosuch=1"):
                path.write_bytes(kept)
                for text in ranks.on_ranks(2, says, spec, True):
                    self.assertIn(f"keep={path}: ", text)

    def test_a_file_that_keeps_a_spec_of_another_kind(self):
        from thinwire.torch import OuterLoop
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "kept")
            path.write_text("dgc")
            model = torch.nn.Linear(4, 3)
            with self.assertRaises(thinwire.SpecError) as refused:
                OuterLoop(model, torch.optim.SGD(model.parameters(), lr=0.1), f"auto:steps=10,pass_ms=1,keep={path}", workers=1,
                          join=f"folder:{folder}", rank=0, banner=False)
        self.assertIn(f"keep={path}: dgc is no method of local updates", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
