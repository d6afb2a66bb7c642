#!/usr/bin/env python3
"""The files that ranks keep beside a framework's checkpoint: each its own, of one run and step, on one disk or on several;
by another number of ranks, after a machine is gone, and where there were none."""

import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import models
import ranks
import thinwire.torch
import torch
import torch.distributed as dist
from thinwire.torch import _state
from thinwire.torch._checkpoints import Checkpoints, Place, Record

SPEC = "topk:density=0.02,min_dims=0,min_elements=1"


class Run:
    """A model whose gradients are exchanged, with its checkpoints."""

    def __init__(self, rank, forget_lost=False, spec=SPEC):
        self.rank, self.ddp = rank, models.wrapped(models.small())
        self.compressor = thinwire.torch.attach(self.ddp, spec, banner=False, timeout=ranks.SECONDS)
        self.checkpoints = Checkpoints(self.compressor, forget_lost)

    def steps(self, count=2):
        for step in range(count):
            models.backward(self.ddp, self.rank, step)

    def save(self, folder, step):
        self.checkpoints.save(Place(pathlib.Path(folder)), self.checkpoints.record(step))
        return tuple(self.checkpoints.record(step))

    def load(self, folder, record=None):
        """What this rank was told, by an error or on stderr."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            try:
                self.checkpoints.load(Place(pathlib.Path(folder)), record and Record(*record))
            except thinwire.Error as error:
                return f"Error: {error}"
        return said.getvalue()

    def held(self):
        """What all ranks together hold back."""
        state = self.compressor.state_dict()
        all_of_it = torch.cat([state[name].reshape(-1).double() for name in sorted(state) if name.startswith("residual/")])
        dist.all_reduce(all_of_it)
        return all_of_it


def saves(rank, size, folders):
    """After two steps; where each has a folder of its own, and where all have one. What was held back, and in what file."""
    run = Run(rank)
    shared = [run.checkpoints.shares(folders[0]), run.checkpoints.shares(folders[rank % len(folders)])]
    run.steps()
    record = run.save(folders[rank % len(folders)], 2)
    return run.held(), record, shared


def goes_on(rank, size, folders, saved_again=None, forget_lost=False):
    """From the checkpoint of that step, and takes two steps more."""
    run = Run(rank, forget_lost)
    told = run.load(folders[rank % len(folders)])
    held = run.held()
    run.steps()
    if saved_again is not None:
        run.save(folders[rank % len(folders)], saved_again)
    return told, held, run.held()


def refused(rank, size, folders, record):
    """What ranks are told of: a file that is not there; with leave to forget it; a file of an earlier step, and of another
    run; no file at all, where the checkpoint says that there are some, and where it does not."""
    mine = pathlib.Path(folders[rank])
    own = mine / f"thinwire-{rank}.pt"
    whole, told, held = own.read_bytes(), {}, {}
    if rank == 1:
        own.unlink()
    told["missing"] = Run(rank).load(mine)
    told["missing, recorded"] = Run(rank).load(mine, record)
    run = Run(rank, forget_lost=True)
    told["forgotten"] = run.load(mine, record)
    held["forgotten"] = run.held()
    run.steps()
    own.write_bytes(whole)
    other = Run(rank)
    other.steps(1)
    if rank == 1:
        other.checkpoints.save(place_of(mine), other.checkpoints.record(1)._replace(run=record[0]))
    told["another step"] = Run(rank).load(mine)
    told["another step, recorded"] = Run(rank).load(mine, record)
    if rank == 1:
        other.save(mine, 2)
    told["another run"] = Run(rank).load(mine, record)
    told["two checkpoints"] = Run(rank).load(mine, (*record[:1], str(rank), 2))
    own.unlink()
    told["none, recorded"] = Run(rank).load(mine, record)
    run = Run(rank)
    told["none"] = run.load(mine)
    held["none"] = run.held()
    run.steps()
    told["dense"] = Run(rank, spec="allreduce").load(mine, record)
    own.write_bytes(whole[:len(whole) // 2])
    told["cut off"] = Run(rank).load(mine, record)
    if rank == 1:
        own.unlink()
    told["cut off, sent"] = Run(rank, forget_lost=True).load(mine, record)
    own.write_bytes(whole)
    run = Run(rank)
    told["whole"] = run.load(mine, record)
    held["whole"] = run.held()
    return told, held


def place_of(folder):
    return Place(folder)


class CheckpointsTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory()) if hasattr(self, "enterContext") else None
        if self.folder is None:  # Python before 3.11
            temporary = tempfile.TemporaryDirectory()
            self.addCleanup(temporary.cleanup)
            self.folder = temporary.name

    def folders(self, count):
        made = [pathlib.Path(self.folder, str(number)) for number in range(count)]
        for one in made:
            one.mkdir()
        return [str(one) for one in made]

    def same(self, one, other):
        self.assertLess(float((one - other).abs().max()), 1e-6)
        self.assertGreater(float(one.abs().max()), 1e-3)

    def test_four_then_two_then_four_in_one_folder(self):
        """What the others had left there is not taken for theirs."""
        folders = self.folders(1)
        held, _, shared = ranks.on_ranks(4, saves, folders)[0]
        self.assertEqual(shared, [True, True])
        for size, files in ((2, 2), (4, 4)):
            outcomes = ranks.on_ranks(size, goes_on, folders, size)
            self.assertEqual([told for told, _, _ in outcomes], [""] * size)
            self.same(outcomes[0][1], held)
            held = outcomes[0][2]
            self.assertEqual(sorted(path.name for path in pathlib.Path(folders[0]).iterdir()),
                             [f"thinwire-{rank}.pt" for rank in range(files)])

    def test_two_disks(self):
        """As many ranks read each its own; with others, what a machine lacks comes from one that has it. Then one disk is
        gone for good."""
        folders = self.folders(2)
        outcomes = ranks.on_ranks(2, saves, folders)
        held = outcomes[0][0]
        self.assertEqual([shared for _, _, shared in outcomes], [[True, False], [True, False]])
        self.assertEqual([[path.name for path in pathlib.Path(one).iterdir()] for one in folders],
                         [["thinwire-0.pt"], ["thinwire-1.pt"]])
        for size, order in ((2, folders), (4, [*folders, *folders]), (2, folders[::-1])):
            told, now, _ = ranks.on_ranks(size, goes_on, order)[0]
            self.assertEqual(told, "")
            self.same(now, held)
        alone, = ranks.on_ranks(1, goes_on, folders[1:])
        self.assertIn(f"there is no {folders[1]}/thinwire-0.pt, in which rank 0 of 2 kept what it held back; "
                      "forget_lost=True goes on without it", alone[0])

    def test_a_machine_that_is_gone_for_good(self):
        folders = self.folders(2)
        held = ranks.on_ranks(2, saves, folders)[0][0]
        for lost in range(2):
            path = pathlib.Path(folders[lost], f"thinwire-{lost}.pt")
            state = torch.load(path, weights_only=True)
            own = torch.cat([state[name].reshape(-1).double() for name in sorted(state) if name.startswith("residual/")])
            pathlib.Path(folders[1 - lost], "copy").write_bytes(path.read_bytes())
            path.unlink()
            for size in (1, 2):
                order = [folders[1 - lost]] if size == 1 else folders
                outcomes = ranks.on_ranks(size, goes_on, order, None, True)
                self.assertRegex(outcomes[0][0], f"^thinwire: what rank {lost} of 2 held back is dropped, since there is no ")
                self.assertEqual([told for told, _, _ in outcomes[1:]], [""] * (size - 1))
                self.same(outcomes[0][1], held - own)
            path.write_bytes(pathlib.Path(folders[1 - lost], "copy").read_bytes())

    def test_a_file_is_on_the_disk_before_it_has_its_name(self):
        path, kept = pathlib.Path(self.folder, "thinwire-0.pt"), []

        def keep(descriptor):
            kept.append((path.exists(), torch.load(f"/proc/self/fd/{descriptor}", weights_only=True)))

        with mock.patch("os.fsync", keep):
            _state.write_whole(path, {"step": 3})
        self.assertEqual(kept, [(False, {"step": 3})])
        self.assertEqual([one.name for one in path.parent.iterdir()], [path.name])
        self.assertEqual(torch.load(path, weights_only=True), {"step": 3})

    def test_all_ranks_are_told_at_once_what_is_wrong(self):
        folders = self.folders(2)
        held, record, _ = ranks.on_ranks(2, saves, folders)[0]
        outcomes = ranks.on_ranks(2, refused, folders, record)
        missing = f"there is no {folders[1]}/thinwire-1.pt, in which rank 1 of 2 kept what it held back; forget_lost=True goes on"
        of_another = f"{folders[1]}/thinwire-1.pt is of step "
        said = {"missing": missing, "missing, recorded": missing, "none, recorded": "there is no " + folders[0],
                "another step": f"has {folders[1]} of step 1 of run {record[0]}",
                "another step, recorded": f"{of_another}1 of run {record[0]} on 2 ranks, and step 2 of run {record[0]} on 2",
                "another run": f"{of_another}2 of run ", "two checkpoints": "resume all ranks from one checkpoint",
                "cut off": ".pt cannot be read as a state of a scheme, and is damaged",
                "cut off, sent": f"{folders[0]}/thinwire-0.pt cannot be read as a state of a scheme, and is damaged"}
        for told, now in outcomes:
            for what, part in said.items():
                with self.subTest(what):
                    self.assertRegex(told[what], "^Error: ")
                    self.assertIn(part, told[what])
            self.assertEqual(told["whole"], "")
            self.same(now["whole"], held)
            self.assertEqual(float(now["none"].abs().max()), 0)
            self.assertGreater(float(now["forgotten"].abs().max()), 0)
        first, second = (told for told, _ in outcomes)
        self.assertIn("topk:density=0.02,min_dims=0,min_elements=1 begins with nothing held back", first["none"])
        self.assertIn("what ranks 0, 1 held back is dropped, for nothing is compressed now", first["dense"])
        self.assertIn("what rank 1 of 2 held back is dropped", first["forgotten"])
        self.assertEqual([second[what] for what in ("none", "dense", "forgotten")], [""] * 3)


if __name__ == "__main__":
    unittest.main()
