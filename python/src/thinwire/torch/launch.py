"""Local updates for a script that nobody may edit.

    python -m thinwire launch --join 10.0.0.5:7000 --workers 2 --spec local:every=16 train.py --its options

Each machine runs it. Without --workers machines may come and go. docs/pytorch.md says what it does, and when not to take it."""

import argparse
import contextlib
import gc
import logging
import os
import re
import runpy
import sys
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import nn

from .._lines import show, tell
from ..errors import Error, PeerError
from ..seal import read_key
from ..spec import settings_of
from ..tcp import Tcp
from . import _interrupted, _optimiser, _transport
from ._alike import checksum
from ._counts import counted
from .outer import OuterLoop, joined_group, refuse_half_joined, refuse_other_specs

USAGE, PEER_LOST, INTERRUPTED, TERMINATED = 2, 3, 130, 143  # exit codes, as the program thinwire has them
BEGIN_AGAIN = "so many workers as --workers says go on together or not at all: start all of them again, or leave --workers out on all, and " \
              "machines may come and go"


def launch(words: List[str]) -> int:
    """The exit code."""
    settings = parsed(words)
    launched: Optional[Launched] = None
    try:
        refuse_old_torch()
        refuse_other_specs(settings.spec, settings.workers is None)
        refuse_missing(settings.command)
        with told_once(), _interrupted.heeding_sigterm(settings.workers is None), meeting_of(settings) as meeting, Launched(settings.spec, meeting) as launched:
            return launched.run(settings.command)
    except Error as error:
        advice = isinstance(error, PeerError) and settings.workers is not None and launched is not None
        tell(str(error) + f"; {BEGIN_AGAIN}" * advice)
        return PEER_LOST if isinstance(error, PeerError) else USAGE
    except (KeyboardInterrupt, _interrupted.Terminated) as end:
        tell("interrupted, and so this machine has " + ("left" if launched and launched.is_in else "given up coming in"))
        return TERMINATED if isinstance(end, _interrupted.Terminated) else INTERRUPTED


@contextlib.contextmanager
def told_once() -> Iterator[None]:
    """A group that breaks is logged, and ends the script with an Error, which is told in the end and says the same."""
    def is_new(record: logging.LogRecord) -> bool:
        return " ranks broke: " not in record.getMessage()

    log = logging.getLogger("thinwire")
    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)


def parsed(words: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m thinwire launch", description="Has several machines train one model together, each by the same "
        "script, as it is: each takes steps of its own, and once in a while all go on from shared weights.")
    parser.add_argument("--join", metavar="HOST:PORT", required=True,
                        help="where the machines meet: an address of one of them, and a port that is free there; or "
                        "folder:PATH, a folder that all see, or https://HOST/PATH, one on a web server, "
                        "with s3+ before it where that wants requests signed as Amazon's S3 does")
    parser.add_argument("--workers", type=int, metavar="N", help="how many machines there are; without it they come and go")
    parser.add_argument("--quorum", type=int, default=0, metavar="N", help="without --workers, how many of them have to be there for "
                        "those to go on when some are lost: 1 lets the last one train alone (default: more than half)")
    parser.add_argument("--rank", type=int, metavar="R", help="with a folder: for each machine another number from 0 on")
    parser.add_argument("--spec", default="local:every=16", help="a method of local updates, or auto:steps=20000,pass_ms=120, "
                        "which plans (default: %(default)s)")
    parser.add_argument("--key-file", metavar="FILE", help="the secret that all have to know")
    parser.add_argument("--seal", action="store_true", help="encrypt what is sent; needs --key-file")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT",
                        help="the script and its words, or behind -- what would be behind python: -- -m package.train")
    settings = parser.parse_args(words)
    settings.command = settings.command[settings.command[:1] == ["--"]:]
    if settings.command and re.fullmatch(r"python[\d.]*", os.path.basename(settings.command[0])):
        settings.command = settings.command[1:]
    if settings.command[:1] == ["-m"] and len(settings.command) > 1:
        return settings
    if not settings.command or settings.command[0].startswith("-"):
        parser.error("name the script behind the options, such as train.py, or -- -m package.train; options of Python itself "
                     "go before -m thinwire")
    return settings


def refuse_old_torch() -> None:
    if _optimiser.registers_steps() is None:
        raise Error(f"torch {torch.__version__} does not tell when an optimizer steps, and launch needs to know: take 2.0 or "
                    "later, or write OuterLoop into the script")


def refuse_missing(command: List[str]) -> None:
    if command[0] != "-m" and not os.path.exists(command[0]):
        raise Error(f"there is no {command[0]}; want the path of a Python script")


@contextlib.contextmanager
def meeting_of(settings: argparse.Namespace) -> Iterator[Dict[str, Any]]:
    """What an OuterLoop takes of where it meets the others: as many as are told of meet at once."""
    key = read_key(settings.key_file) if settings.key_file else b""
    tcp, limits = Tcp(key=key, seal=settings.seal), _transport.Limits(60.0)
    refuse_half_joined(None, settings.join, settings.workers, settings.rank, settings.quorum, tcp)
    if settings.workers is None:
        yield {"join": settings.join, "quorum": settings.quorum, "transport": tcp}
        return
    with contextlib.closing(joined_group(settings.join, settings.workers, settings.rank, tcp, limits)) as comm:
        yield {"group": comm, "transport": comm}


class Launched:
    """The script's run. The first optimizer that steps gets an OuterLoop, just before that step."""

    def __init__(self, spec: str, meeting: Dict[str, Any]):
        self._spec, self._meeting, self._process = spec, meeting, os.getpid()
        self._loop: Optional[OuterLoop] = None
        self._optimiser: Any = None
        self._is_stepping = False  # one may step another that is inside of it, as SAM does
        self._unhook = [_optimiser.at_each_step(self._before_step), _optimiser.at_each_step(self._behind_step, "post")]
        self._has_saved = False

    @property
    def is_in(self) -> bool:
        """A group: as many as are told of meet before the script begins."""
        return "group" in self._meeting or (self._loop is not None and self._loop.has_come)

    def run(self, command: List[str]) -> int:
        """Ends when all machines have ended: who is done early takes part in the others' rounds, with nothing of its own."""
        code: Any = 0
        try:
            run_as_python(command)
        except Error:
            raise
        except SystemExit as end:
            if _interrupted.is_by_signal(end):
                raise
            code = end.code
        except Exception:
            traceback.print_exc()
            code = 1
        if isinstance(code, str):
            show(code)
            code = 1
        if os.getpid() == self._process:  # the script may have forked, and this be the child
            self._finish(code)
        return code or 0

    def _finish(self, code: Any) -> None:
        has_failed = bool(code)
        if self._loop is None:
            if not has_failed:
                raise Error("the script took no step with an optimizer of torch's, and so nothing was exchanged")
            tell(f"the script has ended with code {code} before it took a step with an optimizer of torch's, and so nothing was exchanged")
            return
        behind, every = self._loop._unshared.steps, settings_of(self._loop._loop.spec)["every"]
        self._loop.finish()
        if behind and self._has_saved and not has_failed:
            tell(f"what the script has saved lacks the {counted(behind)} behind its last round: let it take a multiple of {every} steps")
        show(self._loop.summary())

    def __enter__(self) -> "Launched":
        return self

    def __exit__(self, kind: object, end: Optional[BaseException], *where: object) -> None:
        for unhook in self._unhook:
            unhook()
        if self._loop is not None:
            self._loop.close_after(end)

    def _before_step(self, optimiser: torch.optim.Optimizer) -> None:
        if self._loop is None:
            self._begin(optimiser)
        elif optimiser is not self._optimiser and not self._is_stepping:
            raise Error(f"a second optimizer steps, {type(optimiser).__name__} beside {type(self._optimiser).__name__}, and "
                        "launch knows one: write OuterLoop(model, [the optimizers], ...) into the script")
        self._is_stepping = True

    def _behind_step(self, optimiser: torch.optim.Optimizer) -> None:
        self._is_stepping = self._is_stepping and optimiser is not self._optimiser

    def _begin(self, optimiser: torch.optim.Optimizer) -> None:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise Error(f"the script is one of {dist.get_world_size()} processes of torch.distributed, and launch takes one "
                        "process a machine: start it without torchrun")
        parts = trained_by(optimiser)
        module = parts[0] if len(parts) == 1 else nn.ModuleList(parts)
        before = checksum_of(module)
        self._loop = OuterLoop(module, optimiser, self._spec, **self._meeting)
        self._optimiser = optimiser
        self._loop.begin()
        if checksum_of(module) != before:  # this gradient is of weights that are gone: the step leaves out what has none
            optimiser.zero_grad(set_to_none=True)
        for part in parts:
            save_shared(part, self._loop, self._note_saved)

    def _note_saved(self) -> None:
        self._has_saved = True


def run_as_python(command: List[str]) -> None:
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = command
    sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
    runpy.run_path(command[0], run_name="__main__")


# ---- what the optimizer trains ----


def of_optimiser(optimiser: torch.optim.Optimizer) -> Dict[int, torch.Tensor]:
    return {id(p): p for group in optimiser.param_groups for p in group["params"] if p.requires_grad}


def trained_ids(module: nn.Module) -> List[int]:
    return [id(p) for p in module.parameters() if p.requires_grad]


def trained_by(optimiser: torch.optim.Optimizer) -> List[nn.Module]:
    """The largest modules in this process of which the optimizer trains all that is trained, in the order of their parameters
    in there: a script may have several, and no module around them."""
    wanted = of_optimiser(optimiser)
    place = {key: number for number, key in enumerate(wanted)}
    # type(), because proxies and lazy modules act when they are asked for their class.
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    known = [(one, ids) for one, ids in ((one, trained_ids(one)) for one in modules) if ids and place.keys() >= set(ids)]
    parts: List[Tuple[int, nn.Module]] = []
    covered: set[int] = set()
    for one, ids in sorted(known, key=lambda pair: (-len(pair[1]), -sum(1 for _ in pair[0].modules()))):
        if not covered & set(ids):
            parts.append((min(place[key] for key in ids), one))
            covered |= set(ids)
    for key in wanted.keys() - covered:
        raise Error(f"no module has a parameter of {tuple(wanted[key].shape)} that this {type(optimiser).__name__} trains, and "
                    "so it has no name: write OuterLoop into the script")
    return [one for _, one in sorted(parts, key=lambda part: part[0])]


# ---- what it has then ----


def checksum_of(module: nn.Module) -> int:
    return checksum(p for p in module.parameters() if p.requires_grad)


def save_shared(module: nn.Module, loop: OuterLoop, note: Callable[[], None]) -> None:
    """What state_dict() of the module gives, and of each that has all its trained parameters, are the shared weights. Who asks
    for it is noted."""
    count = len(trained_ids(module))

    def give(part: Any, state: Dict[str, Any], prefix: str, metadata: Any) -> None:
        note()
        with loop.averaged(buffers=False):
            for name, parameter in part.named_parameters(remove_duplicate=False):
                if parameter.requires_grad and prefix + name in state:
                    state[prefix + name] = parameter.detach().clone()

    for part in module.modules():
        if len(trained_ids(part)) == count:
            part._register_state_dict_hook(give)
