"""A GPU that is none: tensors of the host are taken for those of a device, and streams do everything as late as they may.

A copy that the plug-in queues is made when somebody waits for it, and not before. So whoever reads too early reads what
was there, and what nobody waits for never comes. What the GPU would still be reading is compared, once it has been
waited for, with what it was. (That what is copied was computed by then is asked for, and not simulated.)

And what the tests of a real GPU share."""

import contextlib
import os
import types
from unittest import mock

import ranks

ranks.skip_without_torch()

import torch  # noqa: E402
from thinwire.torch import _pinned, _working  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

KINDS = "late", "at once", "without streams"


class Stream:
    """What is queued, of which the first `done` are done."""

    def __init__(self, gpu):
        self.gpu, self.queue, self.done, self.has_waited = gpu, [], 0, False

    def wait_stream(self, other):
        assert other is self.gpu.now, "the copies are made by one stream, and wait for the other"
        self.has_waited = True

    def record_event(self):
        return Event(self, len(self.queue))

    def run(self, end):
        while self.done < end:
            self.done += 1
            self.queue[self.done - 1]()

    def synchronize(self):
        self.run(len(self.queue))
        self.gpu.has_read()


class Now:
    """The stream that all else is queued on, which does it at once."""

    def __init__(self, gpu):
        self.gpu = gpu

    def wait_stream(self, side):
        side.run(len(side.queue))


class Event:
    def __init__(self, stream, end):
        self.stream, self.end = stream, end

    def query(self):
        if self.stream.gpu.arrives_at_once:
            self.synchronize()
        return self.stream.done >= self.end

    def synchronize(self):
        self.stream.run(self.end)
        self.stream.gpu.has_read()


class Queueing(TorchFunctionMode):
    """While a stream is the current one."""

    def __init__(self, stream):
        super().__init__()
        self.stream, self.copied = stream, []

    def __torch_function__(self, function, types, arguments=(), more=None):
        name = getattr(function, "__name__", "")
        if name == "copy_":
            assert (more or {}).get("non_blocking") and self.stream.has_waited, "a copy before what it copies is there"
            self.copied += [one for one in arguments if not self.stream.gpu.is_pinned(one)]
            self.stream.queue.append(lambda: self.stream.gpu.copy(*arguments))
            return arguments[0]
        return function(*arguments, **(more or {}))


class Gpu:
    def __init__(self, kind):
        self.has_streams, self.arrives_at_once = kind != "without streams", kind == "at once"
        self.now, self.current, self.uses = Now(self), None, []
        self._pinned, self._reading = {}, []
        self.cuda = types.SimpleNamespace(Stream=lambda device: Stream(self), stream=self.stream,
                                          current_stream=lambda device: self.current or self.now)

    def empty(self, size, dtype, device, pin_memory):
        assert device == "cpu" and pin_memory == self.has_streams
        room = torch.full(size, float("nan"), dtype=dtype)
        return self._pinned.setdefault(room.data_ptr(), room)

    def is_pinned(self, values):
        return values.data_ptr() in self._pinned

    @contextlib.contextmanager
    def stream(self, one):
        before, self.current, self.uses = self.current, one, []
        with Queueing(one) as queueing:
            yield
        self.current, one.has_waited = before, False
        used = [(values, stream) for values in queueing.copied for stream in (self.now, one)]
        assert self.uses == used, "memory that a stream uses may be given away"

    def copy(self, to, values):
        if self.is_pinned(to):
            self.has_read(to)
        else:
            self._reading.append((values, values.clone()))
        to.copy_(values)

    def has_read(self, only=None):
        """All that was queued, or what was queued of this memory."""
        for values, was in [one for one in self._reading if only is None or one[0] is only]:
            assert torch.equal(values.nan_to_num(), was.nan_to_num()), "the host has written what the GPU was reading"
        self._reading = [one for one in self._reading if only is not None and one[0] is not only]


@contextlib.contextmanager
def simulated(kind):
    """All tensors are on it, for the plug-in. `kind` is one of KINDS: copies that the host looks at without waiting
    have not arrived, or they have; or it is another device, which waits for each copy."""
    gpu = Gpu(kind)
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(_pinned, "torch", gpu))
        patches.enter_context(mock.patch.object(_pinned, "is_on_gpu", lambda values: gpu.has_streams))
        for part in (_pinned, _working):
            patches.enter_context(mock.patch.object(part, "is_on_host", lambda values: False))
        patches.enter_context(mock.patch.object(torch.Tensor, "record_stream", lambda *use: gpu.uses.append(use)))
        yield
    gpu.has_read()
    assert gpu._pinned, "nothing was copied"


# ---- a real one ----

CYCLES = 20_000_000  # in which it does nothing; some 10 ms


class Late(torch.autograd.Function):
    """Has the gradient arrive long after the kernel that makes it was queued: who reads before sees what was there."""

    @staticmethod
    def forward(context, values):
        return values.view_as(values)

    @staticmethod
    def backward(context, gradient):
        if gradient.is_cuda:
            torch.cuda._sleep(CYCLES)
        return gradient * 1


def share_the_first(rank):
    """All ranks have the one GPU, which NCCL refuses inside one host: it takes these for several."""
    os.environ.update(NCCL_HOSTID=f"rank{rank}", NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(0)
