#!/usr/bin/env python3
"""thinwire.plan, and the spec "auto": the table is the program's, and a run with what was chosen has the same bits."""

import concurrent.futures
import contextlib
import copy
import functools
import io
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import models  # noqa: F401: skips it where there is no torch
import parts
import ranks
import thinwire
import torch
from thinwire import planning
from thinwire.torch import _auto, _checkpoints, _local, _replan, _state
from thinwire.torch._parameters import table_of
from thinwire.torch.accelerate import LocalSGD

needs_hooks = unittest.skipUnless(hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), "an Exchange needs torch 2.1")
SHAPES = [("first.weight", (400, 200)), ("first.bias", (400,)), ("scalar", ())]
LINE = "10Mbit/100Mbit,5ms"
AUTO = "auto:steps=3000,pass_ms=20,rate=10Mbit,latency=1ms"


class BytesTest(unittest.TestCase):
    def test_what_a_round_sends_is_known_before(self):
        """Beside the second of two rounds of noise: in the first one nothing is held back yet."""
        def play(comm):
            weights = [torch.zeros(shape) for _, shape in SHAPES]
            addresses, sent, drawn = [one.data_ptr() for one in weights], [], torch.Generator().manual_seed(comm.rank)
            with thinwire.OuterLoop(comm, spec, SHAPES) as loop:
                loop.begin(addresses)
                for _ in range(4):
                    for one in weights:
                        one += torch.randn(one.shape, generator=drawn)
                    loop.step(addresses)
                    sent.append(loop.stats()["bytes_sent"])
                loop.finish(addresses)
            return sent[3] - sent[1]

        for spec in ("local:every=2", "diloco:every=2,exchange=bf16", "local:every=2,exchange=topk,density=0.05", "sparseloco:every=2"):
            with self.subTest(spec), concurrent.futures.ThreadPoolExecutor(2) as pool:
                sent = sum(pool.map(play, thinwire.Comm.threads(2))) / 2
                self.assertAlmostEqual(2 * planning.bytes_sent(SHAPES, spec, 2) / sent, 1, delta=0.05)


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
                                   "0.05", "--codec-rate", "5", "--steps", "3000", "--optimizer", "adamw", "--quiet", "--json", table.with_name("plan")],
                                  capture_output=True, text=True, check=True)
            rows = json.loads(table.with_name("plan").read_text())["candidates"]

        def figures(text):
            return [line[:68] + line[80:] if line.count("%") and "kB" in line else line for line in text.splitlines()]

        plan = self.plan()
        self.assertEqual(figures(str(plan)), figures(done.stdout.rstrip("\n")))
        ends = {row["sync"]: row.get("end_seconds", 0) for row in rows}
        self.assertEqual({row.spec: row.end_seconds for row in plan.candidates}, ends)
        self.assertGreater(max(ends.values()), 0)

    def test_without_the_simulator(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(planning.library._name, pathlib.Path(folder) / "libthinwire.so")
            asked = "import thinwire; thinwire.plan([('w', (4,))], 'sgd', line='1Gbit,1ms', steps=10, workers=2, step_time=1)"
            done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False,
                                  env={**os.environ, "THINWIRE_LIBRARY": str(alone), "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertRegex(done.stderr, "no plan can be made: .*libthinwire_sim.* is in the wheel")

    def test_its_rows(self):
        plan = self.plan()
        rows = {row.spec: row for row in plan.candidates}
        self.assertEqual(plan.choice, min((row for row in plan.candidates if row.seen and row.left_out is None),
                                          key=lambda row: (row.target_seconds > 1.05 * plan.choice.target_seconds)))
        self.assertAlmostEqual(rows["allreduce"].bytes_per_step, 2 * 3 / 4 * 4 * (80000 + 400 + 1), delta=64)
        self.assertIn("applies momentum", rows["dgc"].left_out)
        self.assertIn(plan.choice.spec, plan.command)
        self.assertIsNone(self.plan(steps=10).candidates[3].seen)

    @parts.extra
    def test_adapters_have_costs_of_their_own(self):
        """LoRA of rank 8 beside the c_attn of a GPT-2, in a run that is shorter than those of whole networks were."""
        model = torch.nn.ModuleList(torch.nn.Linear(768, 2304, device="meta") for _ in range(12))
        for one in model:
            one.requires_grad_(False)
            one.adapters = torch.nn.ModuleList([torch.nn.Linear(768, 8, False, "meta"), torch.nn.Linear(8, 2304, False, "meta")])
        how = {"line": "100Mbit,1ms", "steps": 300, "workers": 4, "step_time": 0.1, "codec_rate": 5e9}
        plan = thinwire.plan(model, "adamw", **how)
        self.assertEqual(len(planning.tensors_of(model)), 24)
        self.assertNotEqual(plan.choice.spec, "allreduce")
        self.assertIn("adapters", plan.choice.seen)
        self.assertIn(f"Measured on small networks with few seeds, in docs/planning.md: {plan.choice.seen}.", plan.why)
        self.assertEqual(thinwire.plan(planning.tensors_of(model), "adamw", **how).choice.spec, "allreduce")

    def test_who_trains_adapters(self):
        model = torch.nn.ModuleList([torch.nn.Linear(10, 10, False), torch.nn.Linear(10, 1, False)])
        self.assertFalse(planning.trains_adapters(model))
        model[0].requires_grad_(False)  # 10 of 110 are left
        self.assertTrue(planning.trains_adapters(model))
        self.assertFalse(planning.trains_adapters(torch.nn.ModuleList([*model, torch.nn.Linear(1, 2, False)])))
        self.assertFalse(planning.trains_adapters(model.requires_grad_(False)))

    def test_a_function_is_timed(self):
        calls = []
        self.assertGreaterEqual(planning.seconds_of(lambda: calls.append(1)), 0)
        self.assertEqual(len(calls), 1 + planning.PASSES)

    def test_refusals(self):
        for words, more in {"RATE,LATENCY": {"line": "ten"}, "line=3": {"line": 3}, "workers=1": {"workers": 1},
                            "5000 workers: a plan .* at most 128": {"workers": 5000},
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


@contextlib.contextmanager
def door(kind, model, optimizer, spec):
    """What is trained, what is called after each step of the optimizer, and what tells the spec."""
    if kind == "attach":
        model = torch.nn.parallel.DistributedDataParallel(model)
        with thinwire.torch.attach(model, spec, optimizer=optimizer, fallback=False) as made:
            yield model, lambda: None, lambda: made.spec
    elif kind == "exchange":
        with thinwire.torch.Exchange(model, spec, optimizer=optimizer) as made:
            yield model, lambda: None, lambda: made.compressor.spec
    elif kind == "outer":
        with thinwire.torch.OuterLoop(model, optimizer, spec) as made:
            yield model, (lambda: None) if made._hooks else made.step, lambda: made._loop.spec
            made.finish()
    else:
        model, steps = torch.nn.parallel.DistributedDataParallel(model), None
        if not spec.startswith("auto"):
            name, _, options = spec.partition(":")
            steps = options.partition("=")[2].partition(",")[0]
            spec = ":".join([name, *options.split(",", 1)[1:]])
        accelerator = types.SimpleNamespace(num_processes=2, gradient_accumulation_steps=1, _optimizers=[optimizer],
                                            unwrap_model=lambda one: one.module,
                                            is_main_process=torch.distributed.get_rank() == 0)
        with LocalSGD(accelerator, model, steps, spec=spec) as made:
            yield model, made.step, lambda: made.loop._loop.spec


def of_class(kind, spec, steps):
    """What a run of a few steps comes to on this rank by a door, and the spec that it had."""
    torch.manual_seed(3)
    model = torch.nn.Linear(40, 30)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    with door(kind, model, optimizer, spec) as (trained, after_step, spec_of):
        for _ in range(steps):
            optimizer.zero_grad()
            trained(torch.randn(8, 40, generator=generator)).square().mean().backward()
            optimizer.step()
            after_step()
        spec = spec_of()
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


def says(rank, size, asked):
    """What attach() says against each of these specs, with an optimizer or without."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
    own = torch.optim.SGD(ddp.parameters(), lr=0.1)
    return [ranks.refused(lambda: thinwire.torch.attach(ddp, spec if isinstance(spec, str) else spec[rank], optimizer=own if optimizer else None))
            for spec, optimizer in asked]


def says_elsewhere(rank, size):
    model = torch.nn.Linear(4, 3)
    optimizer, accelerator = torch.optim.SGD(model.parameters(), lr=0.1), types.SimpleNamespace(num_processes=2)
    return [ranks.refused(made) for made in (
        lambda: thinwire.torch.GossipDataParallel(model, AUTO, optimizer=optimizer), lambda: LocalSGD(accelerator, model, 8, spec=AUTO),
        lambda: LocalSGD(accelerator, model, None), lambda: thinwire.torch.OuterLoop(model, optimizer, AUTO, join="127.0.0.1:1"))]


def of_adapters(rank, size, is_frozen):
    """What auto takes for a run of 300 steps at two doors, or what it says."""
    def model():
        base = torch.nn.Linear(200, 200).requires_grad_(not is_frozen)
        return torch.nn.Sequential(base, torch.nn.Linear(200, 8, bias=False), torch.nn.Linear(8, 200, bias=False))

    auto, found = "auto:steps=300,pass_ms=20,rate=1Mbit,latency=5ms", []
    for kind in ("attach", "outer"):
        one = model()
        optimizer = torch.optim.AdamW([parameter for parameter in one.parameters() if parameter.requires_grad])
        try:
            with door(kind, one, optimizer, auto) as (_, _, spec_of):
                found.append(spec_of())
                one(torch.ones(1, 200)).sum().backward()
        except thinwire.Error as error:
            found.append(str(error))
    return found


def walks_through(rank, size, doors):
    """The line of each plan, as it is printed, and what it makes."""
    names = []
    for kind, spec in doors:
        model = torch.nn.Linear(4, 3)
        ddp, optimizer = torch.nn.parallel.DistributedDataParallel(model), torch.optim.SGD(model.parameters(), lr=0.1)
        with contextlib.closing(eval(planning.DOORS[kind].format(spec), {**globals(), **locals()})) as made:
            names.append(type(made).__name__)
    return names


FALL, RISE, LONG = 160, 320, 480  # steps


def gradients_of_inputs(rank, size, spec, steps, at, skipped=(), by_exchange=False):
    """A run whose gradients are its inputs, which goes on by other specs at some steps: what it ends with, what it would if
    all of them had arrived, and the compressor's changes. In steps that are skipped the last rank's is NaN, and is lost."""
    torch.manual_seed(3)
    model = torch.nn.Linear(40, 30, bias=False)
    ddp = model if by_exchange else torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = model.weight.detach().clone()
    made = (thinwire.torch.Exchange(model, spec, optimizer=optimizer).compressor if by_exchange else
            thinwire.torch.attach(ddp, spec, optimizer=optimizer, fallback=False))
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


def travels(rank, size, folder, by_exchange):
    """A line that falls by ten and comes back, with 40 % of noise: what is done by itself, and by hand."""
    step, noise = [0], torch.Generator().manual_seed(rank)

    class Line(planning.LineWatch):
        def add(self, sent, seconds):
            step[0] += 1
            factor = 0.6 + 0.8 * float(torch.rand(1, generator=noise))
            return super().add(1e6, (10 if FALL < step[0] <= RISE else 1) * factor)

    def choose(settled, rows, optimizer, kind, size, line):
        return ("powersgd:rank=2" if line[0] < 5e6 / 8 else "bf16"), "as the test has it"

    with unittest.mock.patch.object(_replan, "LineWatch", Line), unittest.mock.patch.object(_auto.Settled, "choose", choose):
        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            auto = f"auto:steps=3000,pass_ms=20,rate=10Mbit,latency=1ms,keep={folder}/kept"
            pathlib.Path(folder, "kept").unlink(missing_ok=True) if rank == 0 else None
            torch.distributed.barrier()
            by_itself = gradients_of_inputs(rank, size, auto, LONG, {}, by_exchange=by_exchange)
    first = pathlib.Path(folder, "kept").read_text().strip()
    by_hand = gradients_of_inputs(rank, size, first, LONG, dict(by_itself[2]), by_exchange=by_exchange)
    return first, by_itself, by_hand, text.getvalue()


def follows(rank, size, keep, state):
    """A run of auto that goes on from a state of another scheme, which it had gone on by."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 30, bias=False))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with thinwire.torch.attach(ddp, f"auto:steps=3000,pass_ms=20,rate=10Mbit,latency=1ms{keep}", optimizer=optimizer,
                               fallback=False) as made:
        made.load_state_dict(state[rank])
        return made.spec, made.replanner is None


def follows_from_disks(rank, size, folder, states):
    """The same where each rank has its own file alone, and where the first one's is lost: what it goes on by."""
    found = []
    for lost in (False, True):
        place = _checkpoints.Place(pathlib.Path(folder, f"disk{rank}"))
        if lost and rank == 0:
            place.remove({0})
        else:
            _state.write_whole(place.path(rank), {**states[rank], _checkpoints.RUN: "one", _checkpoints.STEP: "3"})
        ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 30, bias=False))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        with thinwire.torch.attach(ddp, f"auto:steps=3000,pass_ms=20,rate=10Mbit,latency=1ms,keep={folder}/kept", optimizer=optimizer,
                                   fallback=False) as made:
            _checkpoints.Checkpoints(made, forget_lost=True).load(place)
            found.append(made.spec)
    return found


def refuses(rank, size, folder, states):
    """A damaged state of another scheme on one rank changes nothing on any; the whole one is then taken."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 30, bias=False))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with thinwire.torch.attach(ddp, f"auto:steps=3000,pass_ms=20,rate=10Mbit,latency=1ms,keep={folder}/kept", optimizer=optimizer,
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


def is_broken_off(rank, size):
    """Rank 0 gets a Ctrl-C while an Exchange changes its scheme: what each rank is told of this pass and of the next."""
    from thinwire.reducer import Reducer
    model, told = torch.nn.Linear(40, 30, bias=False), []
    exchange = thinwire.torch.Exchange(model, "topk:density=0.05", banner=False, timeout=ranks.SECONDS)
    exchange.compressor.go_on_by("powersgd:rank=2,warmup_steps=0")
    wait = Reducer.wait

    def waits(reducer):
        if rank == 0 and reducer.spec.startswith("powersgd"):
            raise KeyboardInterrupt
        return wait(reducer)

    with unittest.mock.patch.object(Reducer, "wait", waits):
        for _ in range(2):
            try:
                model(torch.eye(40)).square().sum().backward()
            except (KeyboardInterrupt, thinwire.Error) as error:
                told.append(repr(error))
    return told, exchange.compressor._reducer.closed


def is_left(rank, size):
    """A run of auto whose user takes another scheme, when a change is due already."""
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 30, bias=False))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with thinwire.torch.attach(ddp, "auto:steps=3000,pass_ms=20,rate=10Mbit,latency=1ms", optimizer=optimizer, fallback=False) as made:
        was_watched = made.replanner is not None
        made.go_on_by("bf16")
        made.set_scheme("sign")
        for _ in range(2):
            ddp(torch.eye(40)).square().sum().backward()
        return was_watched, made.spec, made.replanner is None, made.follows


SLOW = range(20, 60)  # rounds


@contextlib.contextmanager
def over_a_line(rank, first, then, slow=SLOW):
    """Where `first` is chosen for a line that is ten times slower in some rounds, with 40 % of noise, and `then` suits it then."""
    rounds, noise = [0], torch.Generator().manual_seed(rank)

    class Line(planning.LineWatch):
        def add(self, sent, seconds):
            rounds[0] += 1
            return super().add(1e6, (10 if rounds[0] in slow else 1) * (0.6 + 0.8 * float(torch.rand(1, generator=noise))))

    def choose(settled, rows, optimizer, kind, size, line):
        return (then if line[0] < 5e6 / 8 else first), "as the test has it"

    with unittest.mock.patch.object(_replan, "LineWatch", Line), unittest.mock.patch.object(_auto.Settled, "choose", choose), \
            unittest.mock.patch.object(_auto, "chosen", lambda *of: (first, f"auto takes {first}")):
        yield


def steps_apart(rank, spec, steps, by_hand=(), weight=1.0, save_at=0, saved=None):
    """A run of local steps on inputs of each rank's own: the weights that it ends with, the changes of its spec, what it saved,
    and the loop. Where it goes on by other specs by hand, a loop is finished, and another one made."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    made = thinwire.torch.OuterLoop(model, optimizer, spec, timeout=20)
    made.set_weight(weight)
    generator, changes, state, begun = torch.Generator().manual_seed(rank), [], None, 0
    if saved:
        begun = saved["step"]
        model.load_state_dict(saved["model"]), optimizer.load_state_dict(saved["optimizer"]), made.load_state_dict(saved["loop"])
    for step in range(1, steps + 1):
        inputs, before = torch.randn(8, 40, generator=generator), made._loop.spec
        if step <= begun:
            continue
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step() if made._hooks else (optimizer.step(), made.step())
        if step in dict(by_hand):
            made.finish()
            made = thinwire.torch.OuterLoop(model, optimizer, dict(by_hand)[step], timeout=20)
            made.set_weight(weight)
        if made._loop.spec != before:
            changes.append((step, made._loop.spec))
        if step == save_at:
            state = {"step": step, "model": {name: one.clone() for name, one in model.state_dict().items()},
                     "optimizer": copy.deepcopy(optimizer.state_dict()), "loop": made.state_dict()}
    made.finish()
    return [parameter.detach().clone() for parameter in model.parameters()], changes, state, made


def goes_on_apart(rank, size, first, then):
    """By itself and by hand, with parts that count unlike where the specs take that; and from a state."""
    weight, text = (1.0 + rank if "delay" not in first else 1.0), io.StringIO()
    with over_a_line(rank, first, then), contextlib.redirect_stderr(text):
        weights, changes, _, made = steps_apart(rank, AUTO, 700, weight=weight)
    by_hand, *_ = steps_apart(rank, first, 700, changes, weight)
    with over_a_line(rank, first, then, slow=range(20, 10 ** 9)):
        whole, (change,), state, _ = steps_apart(rank, AUTO, 800, weight=weight, save_at=333)
    with over_a_line(rank, first, then, slow=range(40)):  # it would leave what it has loaded, if it watched
        resumed, changed_by_load, _, loaded = steps_apart(rank, AUTO, 800, weight=weight, saved=state)
    return (weights, by_hand, changes, made.stats()["steps"], text.getvalue(),
            change[0] < 333 and all(map(torch.equal, whole, resumed)), changed_by_load, loaded._loop.spec)


def ends_early(rank, size, first, then, ends):
    """Rank 1 ends about the step in which all go on by another spec; the others have as many steps again. A line that is slow
    from round 20 on has the plan made behind round 32."""
    found = []
    for end in ends:
        with over_a_line(rank, first, then, slow=range(20, 10 ** 9)):
            weights, changes, _, _ = steps_apart(rank, AUTO, end if rank == 1 else 2 * end)
        found.append((weights, changes))
    return found


def stays_where_a_weight_does_not_fit(rank, size):
    first, text = "diloco:every=4", io.StringIO()
    with over_a_line(rank, first, "streaming:every=8,fragments=2,delay=1"), contextlib.redirect_stderr(text):
        return steps_apart(rank, AUTO, 240, weight=0.5 if rank else 1)[1], text.getvalue()


def saves_apart(rank, size):
    return (*steps_apart(rank, "local:every=8", 20, save_at=10)[:3], None)


@contextlib.contextmanager
def not_begun(rank, first):
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    with over_a_line(rank, first, first), contextlib.closing(thinwire.torch.OuterLoop(model, optimizer, AUTO, timeout=20)) as made:
        yield made


def regroups(rank, size, first, states):
    """What more ranks have saved, of which the first is lost."""
    with not_begun(rank, first) as made:
        made.load_state_dicts([None, *(one["loop"] for one in states[1:])])
        return made._loop.spec


def refuses_a_state(rank, size, first, states):
    """A damaged state of another spec changes nothing, and neither does what is of no method; the whole one is then taken."""
    seen = []
    with not_begun(rank, first) as made:
        for state in ({name: one for name, one in states[rank]["loop"].items() if not name.startswith("theta")},
                      {**states[rank]["loop"], "thinwire/spec": "qsgd"}, states[rank]["loop"]):
            seen += [ranks.refused(lambda: made.load_state_dict(state)), made._loop.spec]
        return seen


def changes_of_line(fall, rise, steps=1000, each=1, banner=False, **more):
    """At which steps a run goes on with what, over a line that is ten times slower in between. An exchange comes `each` so many."""
    spec, counts, seen = "fast", {"bytes_sent": 0.0, "seconds_exchange": 0.0}, []
    comm, = thinwire.Comm.threads(1)
    replanner = _replan.Replanner((4e6, 1e6, 0.001), lambda line: ("slow" if line[1] < 5e5 else "fast", "It is faster."), 0, banner, **more)
    for step in range(0, steps, each):
        sent = 1e5 if spec == "fast" else 1e4
        counts = {"bytes_sent": counts["bytes_sent"] + sent,
                  "seconds_exchange": counts["seconds_exchange"] + sent * (10 if fall <= step < rise else 1) / 1e6}
        changed = replanner.hear(spec, counts, comm, each)
        if changed:
            seen.append((step, changed))
            spec, counts = changed, {"bytes_sent": 0.0, "seconds_exchange": 0.0}
    comm.close()
    return seen


class ChangeTest(unittest.TestCase):
    def test_a_line_that_recovers_while_no_plan_is_due(self):
        """The first 64 steps by a spec are what is compared with, and a change after them counts as soon as a plan may be made."""
        self.assertEqual([spec for _, spec in changes_of_line(160, 300)], ["slow", "fast"])
        self.assertEqual([spec for _, spec in changes_of_line(65, 10 ** 9)], ["slow"])
        self.assertEqual(changes_of_line(1000, 1000), [])
        slow_at, fast_at = (step for step, _ in changes_of_line(640, 1600, 4000, each=20, window=8))  # of rounds
        self.assertEqual((slow_at, fast_at), (20 * 47, 20 * 95))

    def test_a_change_is_told_in_a_line(self):
        """Of a line whose ways differ, what the slower one has."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            changes_of_line(160, 300, banner=True)
        slow, fast = "0.8 Mbit/s with 1 ms", "8 Mbit/s with 1 ms"
        self.assertEqual(said.getvalue(), "".join(
            f"thinwire: auto goes on with {spec} in place of {before}, as the line has {now} now, and had {was}. It is faster.\n"
            for spec, before, now, was in (("slow", "fast", slow, fast), ("fast", "slow", fast, slow))))

    def test_a_state_that_does_not_fit_changes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "kept").write_text("powersgd:rank=4\n")
            states = [state for _, _, _, state in ranks.on_ranks(2, gradients_of_inputs, "topk:density=0.05", 3, {})]
            for text, *seen in ranks.on_ranks(2, refuses, folder, states):
                self.assertIn("residual/weight", text)
                self.assertEqual(seen, ["powersgd:rank=4", True, "", "topk:density=0.05"])

    def test_each_rank_needs_no_more_than_the_state_on_its_own_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "kept").write_text("powersgd:rank=4\n")
            states = [state for _, _, _, state in ranks.on_ranks(2, gradients_of_inputs, "topk:density=0.05", 3, {})]
            self.assertEqual(ranks.on_ranks(2, follows_from_disks, folder, states), [["topk:density=0.05"] * 2] * 2)

    @needs_hooks
    def test_ctrl_c_while_it_changes_is_heard_by_all(self):
        (first, is_closed), (second, _) = ranks.on_ranks(2, is_broken_off)
        self.assertEqual(first[0], "KeyboardInterrupt()")
        self.assertIn("an earlier step was broken off: KeyboardInterrupt", first[1])
        self.assertIn("rank 0", second[0])
        self.assertTrue(is_closed)

    def test_who_sets_a_scheme_keeps_it(self):
        self.assertEqual(ranks.on_ranks(2, is_left), [(True, "sign", True, False)] * 2)

    def test_nothing_is_lost_on_the_way(self):
        for spec, at in (("powersgd:rank=1,warmup_steps=0,leftovers=fp32", {7: "allreduce"}),
                         ("topk:density=0.05", {4: "powersgd:rank=2,warmup_steps=0", 9: "allreduce"})):
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
            results = ranks.on_ranks(2, travels, folder, False)
            for rank, (first, (weights, _, changes, _), (by_hand, _, _, _), text) in enumerate(results):
                self.assertEqual([spec for _, spec in changes], ["powersgd:rank=2", "bf16"], (first, text))
                for (step, _), begun in zip(changes, (FALL, RISE)):
                    self.assertTrue(begun + 32 < step <= begun + 4 * 32, changes)
                self.assertTrue(torch.equal(weights, by_hand))
                self.assertEqual(text.count("goes on with"), 2 * (1 - rank), text)
            pathlib.Path(folder, "kept").write_text("powersgd:rank=4\n")
            states = [by_itself[3] for _, by_itself, _, _ in results]
            for keep in ("", f",keep={folder}/kept"):
                self.assertEqual(ranks.on_ranks(2, follows, keep, states), [("bf16", True)] * 2, keep)

    @needs_hooks
    def test_an_exchange_goes_on_too(self):
        with tempfile.TemporaryDirectory() as folder:
            for first, (weights, _, changes, _), (by_hand, _, _, _), text in ranks.on_ranks(2, travels, folder, True):
                self.assertEqual([spec for _, spec in changes], ["powersgd:rank=2", "bf16"], (first, text))
                self.assertTrue(torch.equal(weights, by_hand))
        for weights, expected, changes, _ in ranks.on_ranks(2, gradients_of_inputs, "topk:density=0.05", 12, {7: "allreduce"}, (), True):
            self.assertTrue(torch.allclose(weights, expected, atol=1e-4), (weights - expected).abs().max())

    def test_local_updates_go_on_by_what_suits_the_line(self):
        """The bits are those of finishing by hand behind the same step; a state has the spec that it was of, and resumes it."""
        self.check_going_on("streaming:every=8,fragments=2,delay=1", "diloco:every=8,eager=on")

    @parts.extra
    def test_local_updates_without_a_delay_go_on_by_what_suits_the_line(self):
        self.check_going_on("diloco:every=4", "local:every=8")

    def check_going_on(self, first, then):
        results = ranks.on_ranks(2, goes_on_apart, first, then)
        for rank, (weights, by_hand, changes, steps, text, resumes, changed_by_load, spec) in enumerate(results):
            with self.subTest(rank=rank):
                self.assertEqual([spec for _, spec in changes], [then, first], text)
                self.assertTrue(all(map(torch.equal, weights, by_hand)))
                self.assertTrue(all(map(torch.equal, weights, results[0][0])))
                self.assertEqual((steps, text.count("goes on with")), (700, 2 * (1 - rank)))
                self.assertEqual((resumes, changed_by_load, spec), (True, [], then))

    def test_nobody_waits_for_a_worker_that_has_ended(self):
        self.check_ending("diloco:every=4")

    @parts.extra
    def test_nobody_waits_for_a_worker_that_has_ended_with_a_part_on_its_way(self):
        self.check_ending("streaming:every=8,fragments=2,delay=2")

    def check_ending(self, first):
        results = ranks.on_ranks(3, ends_early, first, "local:every=4", range(127, 131))
        seen = set()
        for runs in zip(*results):
            for weights, changes in runs:
                seen.add(tuple(changes))
                self.assertEqual(changes, runs[0][1])
                self.assertTrue(all(map(torch.equal, weights, runs[0][0])))
        self.assertEqual(len(seen), 2, seen)  # it was made in some, and in some it was too late

    def test_local_updates_stay_where_a_part_counts_for_less(self):
        for rank, (changes, text) in enumerate(ranks.on_ranks(2, stays_where_a_weight_does_not_fit)):
            self.assertEqual((changes, text.count("Not every rank can take streaming")), ([], 1 - rank), text)

    def test_a_state_of_local_updates_that_does_not_fit_changes_nothing(self):
        states = [state for _, _, state, _ in ranks.on_ranks(3, saves_apart)]
        self.assertEqual(ranks.on_ranks(2, regroups, "diloco:every=4", states), ["local:every=8"] * 2)
        for lacks, after_it, other, after_that, none, taken in ranks.on_ranks(3, refuses_a_state, "diloco:every=4", states):
            self.assertIn("theta", lacks)
            self.assertIn("qsgd", other)
            self.assertEqual((after_it, after_that, none, taken), ("diloco:every=4", "diloco:every=4", "", "local:every=8"))


@functools.cache
def choices_of(kind):
    """What two ranks took, and what they kept."""
    with tempfile.TemporaryDirectory() as folder:
        return ranks.on_ranks(2, takes_the_choice, kind, folder), pathlib.Path(folder, kind).read_text().strip()


class AutoTest(unittest.TestCase):
    def taken(self, kind):
        results, kept = choices_of(kind)
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

    @needs_hooks
    def test_an_exchange_takes_the_choice(self):
        self.assertEqual(self.taken("exchange")[1], self.taken("attach")[1])

    @parts.extra
    def test_local_sgd_takes_the_choice(self):
        self.assertEqual(self.taken("local_sgd")[1], self.taken("outer")[1])

    def test_what_is_chosen_knows_the_length_of_the_run(self):
        """As it was predicted, and as its cost was measured."""
        model = torch.nn.Linear(400, 200)
        optimizer, line = thinwire.torch.AdamW(model.parameters()), planning.line_of("10Mbit,5ms")
        spec, text = _auto.chosen({"steps": "3000", "pass_ms": "20"}, table_of(model)[0], optimizer, planning.GRADIENTS, 4, line, False)
        self.assertIn(spec, [thinwire.for_run(one, 3000) for one in ("dgc-adam", "dgc-adam:density=0.01,warmup_density=0.1")])
        self.assertIn(f"takes {spec} for", text)

    def test_a_framework_says_how_long_the_run_is(self):
        for spec, steps, wanted in (("auto", 9, "auto:steps=9"), (AUTO, 9, AUTO), ("auto:pass_ms=1", 9.0, "auto:pass_ms=1,steps=9"),
                                    ("auto:pass_ms=1", math.inf, "auto:pass_ms=1"), ("dgc", -1, "dgc"),
                                    ("dgc", 9000, thinwire.for_run("dgc", 9000))):
            self.assertEqual(_auto.of_framework(spec, steps), wanted)

    def test_a_local_sgd_of_one_process_says_so_unless_it_is_to_be_silent(self):
        for more, told in (({}, 1), ({"banner": False}, 0)):
            with contextlib.redirect_stderr(io.StringIO()) as said, LocalSGD(types.SimpleNamespace(num_processes=1), None, 8, **more) as made:
                made.step()
            self.assertEqual(said.getvalue().count("this run has one process, and LocalSGD exchanges nothing"), told)

    def test_members_have_one_spec_however_many_steps_each_takes(self):
        spec = "local:every=4,exchange=dgc,momentum=0"
        for more, wanted in (({}, spec), ({"workers": 2}, thinwire.for_run(spec, 400))):
            with unittest.mock.patch.object(_local, "OuterLoop") as made:
                _local.Local(None, None, spec, None, 400, join="here:1", **more)
            self.assertEqual(made.call_args.args[2], wanted, more)

    def test_it_knows_adapters(self):
        for gradients, updates in ranks.on_ranks(2, of_adapters, False):
            self.assertEqual(gradients, "allreduce")
            self.assertIn("has been measured in a run of 300 steps", updates)
        for gradients, updates in ranks.on_ranks(2, of_adapters, True):
            self.assertNotEqual(gradients, "allreduce")
            self.assertIn(updates.partition(":")[0], ("diloco", "sparseloco"))

    def test_where_nothing_is_to_be_chosen(self):
        for text in ranks.on_ranks(2, says_elsewhere):
            gossip, too_many, none, changing = text
            self.assertIn('write "adpsgd-random"', gossip)
            self.assertIn("give local_sgd_steps=None with it", too_many)
            self.assertIn("a number with any other spec", none)
            self.assertIn("give workers=", changing)

    def check_said(self, *asked):
        """By spec and optimizer, what attach() says against it."""
        for texts in ranks.on_ranks(2, says, [(spec, optimizer) for spec, optimizer, _ in asked]):
            for (spec, _, words), text in zip(asked, texts, strict=True):
                with self.subTest(spec):
                    self.assertIn(words, text)

    def test_refusals(self):
        self.check_said(("auto", True, "steps="), ("auto:steps=10", True, "pass_ms="), ("auto:steps=10,pass_ms=-1", True, "above 0"),
                        ("auto:steps=1.5,pass_ms=1", True, "whole"), ("auto:steps=10,pass_ms=1,rate=1Mbit", True, "latency="),
                        ("auto:steps=10,pass_ms=1,rate=ten,latency=1ms", True, "RATE,LATENCY"),
                        ("auto:steps=10,pass_ms=1,speed=1", True, "\"speed\""), ("auto:steps=10,pass_ms=1", False, "optimizer="),
                        (("auto:steps=10,pass_ms=1", "qsgd"), True, "give all ranks the same"))

    def test_attach_names_the_class_that_a_spec_is_for(self):
        self.check_said(("adpsgd-random", True, 'write thinwire.torch.GossipDataParallel(model, "adpsgd-random", optimizer=optimizer)'),
                        ("diloco:every=4", True, 'write thinwire.torch.OuterLoop(model, optimizer, "diloco:every=4")'))

    def test_the_line_of_a_plan_runs(self):
        doors = {"Compressor": (planning.GRADIENTS, "qsgd"), "GossipDataParallel": (planning.WEIGHTS, "adpsgd-random"),
                 "OuterLoop": (planning.UPDATES, "diloco:every=4")}
        self.assertEqual(ranks.on_ranks(2, walks_through, list(doors.values())), [list(doors)] * 2)

    def test_a_file_that_keeps_no_spec(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, f"kept{i}") for i in range(3)]
            for path, kept in zip(paths, (b"\x00\xff", b"bogus:every=3", b"dgc:nosuch=1")):
                path.write_bytes(kept)
            self.check_said(*((f"auto:steps=10,pass_ms=1,rate=1Mbit,latency=1ms,keep={path}", True, f"keep={path}: ") for path in paths))

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
    unittest.main(testLoader=parts.Loader())
