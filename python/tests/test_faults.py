#!/usr/bin/env python3
"""Values that are not finite, ranks that are killed or stop, Ctrl-C, and processes that fork or end: nobody hangs, and
the others are told who it was."""

import ctypes
import os
import signal
import time
import unittest
import warnings

import models
import ranks
import thinwire.torch
import torch

EVERYTHING = "dgc:density=0.05,warmup_steps=0"
ADAM = "dgc-adam:density=0.05,warmup_steps=0"
FOREVER = 10_000
TIMEOUT, TIMEOUTS = 6.0, 1.5  # of a rank that is not lost, and for how many of them it is busy
PATIENCE = 12.0  # half of it is what the other one has to answer in


def attached(spec=EVERYTHING, timeout=ranks.SECONDS, ddp_more=None, **more):
    return models.attached(models.small(), spec, ddp_more, timeout=timeout, **more)


def not_finite(rank, size, nonfinite):
    """Rank 0 has an infinite gradient in steps 1 and 2. What each rank's gradients are then, and that all goes on."""
    ddp, compressor = attached(nonfinite=nonfinite)
    kinds, raised, skips = [], [], []
    for step in range(4):
        ddp.zero_grad()
        try:
            models.backward(ddp, rank, step, float("inf") if rank == 0 and step in (1, 2) else 1.0)
        except RuntimeError as error:
            raised.append((step, str(error)))
        skips.append(compressor.skipped)
        kinds.append(models.kind_of_gradients(ddp.module))
    held = torch.cat([v.reshape(-1).double() for k, v in compressor.state_dict().items() if k.startswith("residual/")])
    assert skips == [False, True, True, False]
    return kinds, raised, compressor.stats()["steps_skipped"], bool(torch.isfinite(held).all())


class Scaler:
    """As torch's GradScaler, which 1.13 has for GPUs only."""

    scale = 1024.0

    def get_scale(self):
        return self.scale


def scaled(rank, size, scheme):
    """With a scaler, what is held back is in units of the loss, whatever the scale was: steps with a scale that changes
    give what steps without one give."""
    results = []
    for changing in (False, True):
        scaler = Scaler()
        ddp, compressor = attached(scheme, scaler=scaler)
        last = None
        for step in range(4):
            scaler.scale = 2.0 ** (3 * step) if changing else 1.0
            ddp.zero_grad()
            models.backward(ddp, rank, step, scaler.scale)
            last = torch.cat([g.reshape(-1) / scaler.scale for g in models.gradients(ddp.module).values()])
        held = torch.cat([v.reshape(-1) for k, v in sorted(compressor.state_dict().items()) if k.startswith("residual/")])
        results.append((last, held))
        compressor.close()
    return [bool(torch.equal(a, b)) for a, b in zip(*results)]


def with_grad_scaler(rank, size, scheme):
    """torch's own: an infinite gradient on rank 0 has all ranks skip the step and halve the scale."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)
    ddp, compressor = attached(scheme, scaler=scaler)
    if scheme == ADAM:
        optimiser = thinwire.torch.AdamW(ddp.parameters(), lr=0.05)
    else:
        optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
    scales = []
    for step in range(3):
        optimiser.zero_grad()
        x, y = models.batch(rank, step)
        loss = torch.nn.functional.cross_entropy(ddp(x), y) * (float("inf") if rank == 0 and step == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, models.same_everywhere(ddp.module)


def with_no_scaler(rank, size, fallback):
    """A disabled one, which a script has for bf16 and steps with all the same: whether the weights survive an infinite gradient."""
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    ddp, compressor = attached(scaler=scaler)
    if fallback:
        compressor._fall_back()
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05)
    x, y = models.batch(rank, 0)
    loss = torch.nn.functional.cross_entropy(ddp(x), y) * (float("inf") if rank == 0 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
    return compressor.skipped, all(bool(torch.isfinite(p).all()) for p in ddp.parameters())


def never_finite(rank, size, scheme, scaler):
    """Rank 0 has an infinite gradient in all steps but the first five and the fifteenth: in which step it is an error, and
    what is said; that training can go on all the same."""
    ddp, compressor = attached(scheme, scaler=Scaler() if scaler else None)
    raised = []
    for step in range(30):
        ddp.zero_grad()
        try:
            models.backward(ddp, rank, step, 1.0 if rank or step < 5 or step in (14, 29) else float("inf"))
        except RuntimeError as error:
            raised.append((step, str(error)))
    return raised, compressor.skipped


def killed(rank, size):
    """Rank 1 kills itself in its fourth pass, with half of its gradients sent; rank 0 says what it got."""
    ddp, compressor = attached(timeout=600.0, ddp_more={"broadcast_buffers": False})
    for step in range(FOREVER):
        if rank == 1 and step == 3:
            ddp.module[0].weight.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
        try:
            ddp.zero_grad()
            models.backward(ddp, rank, step)
        except RuntimeError as error:
            return isinstance(error, thinwire.PeerError), str(error)


def say_when_it_waits():
    """This rank comes to "waits" in its next exchange, inside thinwire's own call: a Ctrl-C before it, in the forward pass
    say, would be none of thinwire's business, and the group would rightly wait for a rank that lives on."""
    from thinwire.reducer import Reducer
    wait = Reducer.wait

    def wait_and_say(reducer):
        ranks.reached("waits")
        return wait(reducer)

    Reducer.wait = wait_and_say


def stop_here():
    ranks.reached("stop")
    os.kill(os.getpid(), signal.SIGSTOP)


def stop(rank, size, timeout):
    """Rank 1 is stopped in its fourth pass, with half of its gradients not there. Rank 0 then has this timeout."""
    ddp, compressor = attached(ddp_more={"broadcast_buffers": False})
    for step in range(FOREVER):
        if rank == 1 and step == 3:
            ddp.module[0].weight.register_hook(lambda gradient: stop_here())
        if rank == 0 and step == 3:
            ranks.meet("stop", 1)
            compressor._comm.set_timeout(timeout)
            say_when_it_waits()
        try:
            ddp.zero_grad()
            models.backward(ddp, rank, step)
        except RuntimeError as error:
            return isinstance(error, thinwire.PeerError), str(error)


def gossips_on(rank, size):
    """Rank 2 kills itself after some steps. The others gossip until they have agreed on that, and end: the weights that they have
    then, whether the buffers are what they were before, what is said, and whether the group is left."""
    model = models.small(seed=rank)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    gossip = thinwire.torch.GossipDataParallel(model, "adpsgd-random", optimizer=optimiser, timeout=ranks.SECONDS)
    for step in range(FOREVER):
        if (rank, step) == (2, 3):
            os.kill(os.getpid(), signal.SIGKILL)
        optimiser.zero_grad()
        models.backward(gossip, rank, step)
        gossip.step()
        if gossip.stats()["ranks_lost"]:
            break
    before = [buffer.clone() for buffer in model.buffers()]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gossip.finish()
    return ([p.detach().flatten().tolist() for p in model.parameters()], all(map(torch.equal, before, model.buffers())),
            before[0].tolist(), [str(one.message) for one in told], gossip._comm.closed)


def busy(rank, size):
    """Rank 1 does something else in its pass until rank 0 has had enough of it. It is asked whether it is there meanwhile."""
    ddp, compressor = attached(transport=thinwire.Tcp(seal=True), ddp_more={"broadcast_buffers": False})
    models.backward(ddp, rank, 0)
    if rank == 0:
        compressor._comm.set_timeout(PATIENCE), compressor._comm.set_patience(PATIENCE)
    else:
        ddp.module[0].weight.register_hook(lambda gradient: ranks.meet("enough", 0))
    try:
        ddp.zero_grad()
        models.backward(ddp, rank, 1)
    except RuntimeError as error:
        ranks.reached("enough")
        return str(error)


def locked(rank, size, pipe):
    """Each rank does something else once, while the other waits for its gradients: rank 1 within its pass, rank 0 before it.
    It is in C, with Python's lock held, until there is a letter in the pipe. What the last step gives."""
    ddp, compressor = attached(ddp_more={"broadcast_buffers": False})

    def be_busy():
        ranks.meet("waits", 1 - rank)
        ranks.reached("busy")
        ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)

    ddp.module[0].weight.register_hook(lambda gradient: be_busy() if (rank, step) == (1, 1) else None)
    for step in range(4):
        waits = step == 1 + rank
        compressor._comm.set_timeout(TIMEOUT if waits else ranks.SECONDS)
        if waits:
            say_when_it_waits()
        if (rank, step) == (0, 2):
            be_busy()
        ddp.zero_grad()
        models.backward(ddp, rank, step)
    return models.gradients(ddp.module)


def interrupted(rank, size):
    """Rank 1 never comes to its last gradient; rank 0 waits for it, and gets a Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return stop(rank, size, 600.0)[1]  # torch 1 makes a RuntimeError of all that a hook raises
    except KeyboardInterrupt as error:
        return repr(error)


def all_interrupted(rank, size):
    """Rank 0 gets a Ctrl-C and goes on to live; rank 1 comes back later, and learns that rank 0 has left."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ddp, compressor = attached(timeout=600.0, ddp_more={"broadcast_buffers": False})
    models.backward(ddp, rank, 0)
    if rank == 1:
        ddp.module[0].weight.register_hook(lambda gradient: ranks.meet("left", 0))
    else:
        say_when_it_waits()
    try:
        ddp.zero_grad()
        models.backward(ddp, rank, 1)
    except (KeyboardInterrupt, RuntimeError) as error:
        ranks.reached("left")
        ranks.meet("left", 1 - rank)
        return repr(error)


def breaks_in_backward(rank, size):
    """An exception of the user's in one rank's backward pass: the other does not wait for the deadline."""
    ddp, compressor = attached(timeout=600.0)
    models.backward(ddp, rank, 0)

    def breaks(gradient):
        raise ValueError("the user's own")

    if rank == 1:
        ddp.module[0].weight.register_hook(breaks)
    ddp.zero_grad()
    models.backward(ddp, rank, 1)


def ends_without_closing(rank, size):
    ranks.WHOLE_END = True
    ddp, compressor = attached()
    models.backward(ddp, rank, 0)
    data = torch.utils.data.DataLoader(list(range(8)), num_workers=2, multiprocessing_context="fork")
    seen = sum(int(b) for b in data)
    ranks.kept = compressor
    return seen


def closes(rank, size):
    """No thread of thinwire's is left."""
    before = set(os.listdir("/proc/self/task"))
    ddp, compressor = attached()
    reducer_and_transport = set(os.listdir("/proc/self/task")) - before
    models.backward(ddp, rank, 0)
    compressor.close()
    end = time.monotonic() + ranks.SECONDS
    while reducer_and_transport & set(os.listdir("/proc/self/task")) and time.monotonic() < end:
        time.sleep(0.005)
    left = reducer_and_transport & set(os.listdir("/proc/self/task"))
    try:
        ddp.zero_grad()
        models.backward(ddp, rank, 1)
    except RuntimeError as error:
        return len(left), str(error)


class FaultsTest(unittest.TestCase):
    def check_not_finite(self, nonfinite, kind):
        results = ranks.on_ranks(2, not_finite, nonfinite)
        for kinds, raised, skipped, finite in results:
            self.assertEqual(kinds, ["numbers", kind, kind, "numbers"])
            self.assertEqual(skipped, 2)
            self.assertTrue(finite)
            self.assertEqual([step for step, _ in raised], [1, 2] if nonfinite == "raise" else [])
            self.assertTrue(all("no rank has taken the step" in text for _, text in raised))

    def test_a_step_that_is_not_finite_is_zero(self):
        self.check_not_finite(None, "zero")

    def test_or_raises_and_leaves_ddp_whole(self):
        self.check_not_finite("raise", "zero")

    def test_or_is_nan(self):
        self.check_not_finite("nan", "nan")

    def test_what_is_held_back_keeps_its_worth_when_the_scale_changes(self):
        for scheme in (EVERYTHING, ADAM):
            self.assertEqual(ranks.on_ranks(2, scaled, scheme), [[True, True]] * 2)

    def test_a_grad_scaler_skips_the_step_on_all_ranks(self):
        if not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"):
            self.skipTest("this torch has no GradScaler for CPUs")
        for scheme in (EVERYTHING, ADAM):
            self.assertEqual(ranks.on_ranks(2, with_grad_scaler, scheme), [([1024.0, 512.0, 512.0], True)] * 2)

    def test_a_grad_scaler_that_is_disabled_gets_zeros(self):
        if not hasattr(torch, "amp") or not hasattr(torch.amp, "GradScaler"):
            self.skipTest("this torch has no GradScaler for CPUs")
        for fallback in (False, True):
            self.assertEqual(ranks.on_ranks(2, with_no_scaler, fallback), [(True, True)] * 2)

    def test_ten_steps_skipped_in_a_row_are_an_error(self):
        for scheme in (EVERYTHING, "powersgd:rank=2"):
            for raised, skipped in ranks.on_ranks(2, never_finite, scheme, False):
                self.assertEqual([step for step, _ in raised], [*range(24, 29)])
                self.assertIn("the gradients of 10 steps in a row held NaN or infinity, and no step was taken; with a GradScaler "
                              "give attach() scaler=", raised[0][1])
                self.assertFalse(skipped)

    def test_a_scaler_that_lowers_its_scale_has_more_than_ten(self):
        for raised, skipped in ranks.on_ranks(2, never_finite, EVERYTHING, True):
            self.assertEqual((raised, skipped), ([], False))

    def check_named(self, crew):
        code, text = crew.end(0)
        self.assertEqual(code, 0, text)
        is_peer_error, error = crew.result(0)
        self.assertIn("rank 1", error)
        if not torch.__version__.startswith("1."):  # which turns what a hook raises into a RuntimeError
            self.assertTrue(is_peer_error)

    def test_a_rank_killed_in_the_pass_is_named(self):
        with ranks.Crew(killed, 2) as crew:
            self.assertEqual(crew.end(1)[0], -signal.SIGKILL)
            self.check_named(crew)

    def test_a_gossip_whose_rank_was_killed_ends_with_each_ranks_own_buffers(self):
        with ranks.Crew(gossips_on, 3) as crew:
            self.assertEqual(crew.end(2)[0], -signal.SIGKILL)
            for rank in range(2):
                code, text = crew.end(rank)
                self.assertEqual(code, 0, text)
            (weights, *first), (others, *second) = (crew.result(rank) for rank in range(2))
        self.assertEqual(weights, others)
        self.assertNotEqual(first[1], second[1])
        for kept, _, told, closed in first, second:
            self.assertTrue(kept and closed)
            self.assertEqual(len(told), 1, told)
            self.assertIn("1 rank was lost, and so the buffers of the model", told[0])

    def test_a_rank_that_is_silent_is_named_at_the_deadline(self):
        with ranks.Crew(stop, 2, 1.0) as crew:
            self.check_named(crew)
            self.assertIn("nothing was heard of it for a timeout of 1 seconds", crew.result(0)[1])

    def test_a_rank_that_is_busy_is_waited_for_longer(self):
        impatient, _ = ranks.on_ranks(2, busy)
        self.assertIn(f"rank 1 is there, but did not answer rank 0 within {PATIENCE:g} seconds: where it may be busy for longer, set a "
                      "longer patience", impatient)

    def test_a_rank_that_is_busy_with_pythons_lock_held_is_not_lost(self):
        """For several timeouts, each of two ranks once. It all ends as where nobody is busy."""
        pipe, letters = os.pipe()
        self.addCleanup(os.close, pipe)
        self.addCleanup(os.close, letters)
        with ranks.Crew(locked, 2, pipe) as crew:
            for rank in (1, 0):
                ranks.wait_for(ranks.pathlib.Path(crew.folder.name, f"busy{rank}"))
                time.sleep(TIMEOUTS * TIMEOUT)
                os.write(letters, b".")
            disturbed = crew.results()
        os.write(letters, b"..")
        for ended, wanted in zip(disturbed, ranks.on_ranks(2, locked, pipe)):
            for name, gradient in wanted.items():
                self.assertTrue(torch.equal(ended[name], gradient), name)

    def test_ctrl_c_ends_the_wait(self):
        with ranks.Crew(interrupted, 2) as crew:
            ranks.wait_for(ranks.pathlib.Path(crew.folder.name, "waits0"))
            os.kill(crew.processes[0].pid, signal.SIGINT)
            code, text = crew.end(0)
            self.assertEqual(code, 0, text)
            self.assertIn("KeyboardInterrupt", crew.result(0))

    def test_ctrl_c_ends_the_other_ranks(self):
        with ranks.Crew(all_interrupted, 2) as crew:
            ranks.wait_for(ranks.pathlib.Path(crew.folder.name, "waits0"))
            os.kill(crew.processes[0].pid, signal.SIGINT)
            first, second = crew.results()
            self.assertIn("KeyboardInterrupt", first)
            self.assertIn("rank 0", second)

    def test_an_exception_in_one_ranks_backward_ends_the_others(self):
        with ranks.Crew(breaks_in_backward, 2) as crew:
            code, text = crew.end(1)
            self.assertIn("the user's own", text)
            code, text = crew.end(0)
            self.assertNotEqual(code, 0)
            self.assertIn("rank 1", text)

    def test_the_end_of_python_closes_what_is_open_and_forks_do_not(self):
        self.assertEqual(ranks.on_ranks(2, ends_without_closing), [28, 28])

    def test_close_leaves_no_thread_and_a_later_pass_is_told(self):
        for left, text in ranks.on_ranks(2, closes):
            self.assertEqual(left, 0)
            self.assertIn("the compressor was closed", text)


if __name__ == "__main__":
    unittest.main()
