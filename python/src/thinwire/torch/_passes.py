"""The end of a backward pass."""

from typing import Any, Callable

import torch

from ..errors import Error


def this_pass() -> int:
    """A number of the backward pass under way, which no other one has."""
    return int(torch._C._current_graph_task_id())


def never_compiled(method: Any) -> Any:
    """torch.compile of a module takes what its forward pass calls as well, of which reading memory by address would come out wrong."""
    return getattr(torch, "_disable_dynamo", lambda one: one)(method)  # torch has it from 2.1 on


def is_under_way() -> bool:
    """Whether this is called inside of a backward pass, as what a parameter's hook does is."""
    return this_pass() >= 0


def at_the_end(finish: Callable[[], Any], what: str = "the first gradients of a backward pass came from",
               otherwise: str = "attach()") -> None:
    """Has finish() called when the pass under way has computed all its gradients. What it raises, backward() raises."""
    def at_the_end_of_all() -> None:
        if torch._C._current_autograd_node() is not None:  # a pass inside of another one, which goes on
            raise Error(f"{what} a checkpoint with use_reentrant=True, whose end would be taken for the end of the pass; use "
                        f"checkpoint(..., use_reentrant=False), or {otherwise}")
        finish()

    torch.autograd.Variable._execution_engine.queue_callback(at_the_end_of_all)
