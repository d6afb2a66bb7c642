"""The spec "auto": rank 0 plans, all ranks take what it chooses, and a file keeps it for a run that goes on."""

import contextlib
import math
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .._lines import tell
from ..comm import Comm
from ..errors import SpecError
from ..planning import GRADIENTS, Plan, line_of, measured_line, plan_of, trains_adapters
from ..spec import for_run, name_of, options_of, with_more
from ..tcp import Tcp
from . import _transport
from ._parameters import Row
from ._replan import Line, in_words

NAME, EXACT = "auto", "allreduce"
OPTIONS = ("steps", "pass_ms", "rate", "latency", "keep")
WANTED = 'write "auto:steps=20000,pass_ms=120", the steps of the run and the milliseconds of a forward and backward pass'


class _Line:
    """What is measured over a comm, which is then closed."""

    def __init__(self, comm: Comm):
        self.comm = comm
        self.figures = measured_line(comm)

    def close(self) -> None:
        self.comm.close()


def is_auto(spec: str) -> bool:
    return name_of(spec) == NAME


def refuse(text: str) -> SpecError:
    return SpecError(f"auto: {text}", 2, "TW_ERROR_SPEC")


def of_framework(spec: str, steps: float) -> str:
    """The spec as it suits a run of so many steps of the optimiser, where the framework knows how many there are."""
    if not 0 < steps < math.inf:
        return spec
    if is_auto(spec):
        return spec if "steps" in options_of(spec) else with_more(spec, f"steps={int(steps)}")
    return for_run(spec, int(steps))


def number(options: Dict[str, str], option: str) -> float:
    try:
        value = float(options[option])
    except (KeyError, ValueError):
        value = math.nan
    if not 0 < value < math.inf:
        raise refuse(f"{option}={options.get(option, '')}: want a number above 0; {WANTED}")
    return value


def wishes(spec: str) -> Dict[str, str]:
    """The options of the spec, or what is wrong with them."""
    options = options_of(spec)
    for option in options:
        if option not in OPTIONS:
            raise refuse(f'there is no option "{option}"; there are {", ".join(OPTIONS)}')
    if number(options, "steps") != int(number(options, "steps")):
        raise refuse(f"steps={options['steps']}: want a whole number; {WANTED}")
    number(options, "pass_ms")
    if ("rate" in options) != ("latency" in options):
        raise refuse("rate= and latency= say what the line is, such as rate=100Mbit,latency=1ms: give both or neither")
    if "rate" in options:
        line_of(f"{options['rate']},{options['latency']}")
    return options


def line_between(options: Dict[str, str], transport: Union[str, Tcp, Comm], group: Any,
                 limits: _transport.Limits) -> Tuple[float, float, float]:
    """A collective unless the spec says it, which has to be said alike by all ranks."""
    if "rate" in options:
        return line_of(f"{options['rate']},{options['latency']}")
    if isinstance(transport, Comm):
        return measured_line(transport)
    if transport == "mpi":
        raise refuse('the line is not measured over transport="mpi"; say rate= and latency=')
    measured = _transport.with_comm(transport, group, limits, _Line)
    measured.close()
    return measured.figures


def kept(path: str) -> str:
    """What the file has; "" where there is none."""
    try:
        text = Path(path).read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise refuse(f"keep={path}: {error}") from error
    if not text or len(text) > 1000 or not text.isprintable() or is_auto(text):
        raise refuse(f"keep={path}: the file holds no spec; take it away, and a new choice is written into it")
    return text


@contextlib.contextmanager
def naming_file(spec: str) -> Iterator[None]:
    """Around what is made of the spec that was settled: one that a file keeps may be anybody's."""
    try:
        yield
    except SpecError as error:
        if not is_auto(spec) or "keep" not in options_of(spec):
            raise
        raise refuse(f"keep={options_of(spec)['keep']}: {error}; take the file away, and a new choice is written into it") from error


def keep(path: str, spec: str) -> None:
    whole = Path(path)
    try:
        whole.parent.mkdir(parents=True, exist_ok=True)
        partial = whole.with_name(whole.name + ".partial")
        partial.write_text(spec + "\n")
        partial.replace(whole)
    except OSError as error:
        raise refuse(f"keep={path}: {error}") from error


def planned(options: Dict[str, str], rows: List[Row], optimizer: Any, kind: int, size: int, line: Line, adapters: bool,
            goes_on: bool = False) -> Plan:
    return plan_of([(row.name, row.shape) for row in rows], optimizer, line=line, steps=int(float(options["steps"])), workers=size,
                   step_time=number(options, "pass_ms") / 1e3, kinds=kind, adapters=adapters, goes_on=goes_on)


def chosen(options: Dict[str, str], rows: List[Row], optimizer: Any, kind: int, size: int, line: Line,
           adapters: bool) -> Tuple[str, str]:
    """The spec, and the line that says so."""
    plan = planned(options, rows, optimizer, kind, size, line, adapters)
    spec = for_run(plan.choice.spec, int(float(options["steps"])))  # as it was planned
    if "keep" in options:
        keep(options["keep"], spec)
    return spec, f"auto takes {spec} for a line of {in_words(line)}. {plan.why}"


class Settled(NamedTuple):
    """What a spec comes to; and of "auto", where it has chosen now, the line, the options and whether adapters are trained."""

    spec: str
    line: Optional[Line] = None
    options: Dict[str, str] = {}
    adapters: bool = False

    def choose(self, rows: List[Row], optimizer: Any, kind: int, size: int, line: Line) -> Tuple[str, str]:
        """For a run under way: the spec, and why."""
        plan = planned(self.options, rows, optimizer, kind, size, line, self.adapters, goes_on=True)
        return plan.choice.spec, plan.why


def settled(spec: str, model: Any, rows: Callable[[], List[Row]], optimizer: Any, kind: int, *, group: Any,
            transport: Union[str, Tcp, Comm], limits: _transport.Limits, banner: bool, inside: Any = None) -> Settled:
    """The spec itself, or what "auto" comes to, the same on all ranks. A collective. Rank 0 alone asks for the model's rows.
    `inside`: the ranks that have the other shards of the model. Their groups measure at once, and what the first one's rank 0
    chooses, all take."""
    def of_all(make: Callable[[], Any]) -> List[Any]:
        return _transport.gathered_by_every(group, inside, make)

    def wished() -> Dict[str, str]:
        if optimizer is None:
            raise refuse("the choice depends on the optimiser: give it as optimizer=")
        return wishes(spec)

    asked = of_all(lambda: spec if is_auto(spec) else "")
    if not any(asked):
        return Settled(spec)
    if any(one != asked[0] for one in asked):
        rank = next(rank for rank, one in enumerate(asked) if one != asked[0])
        raise refuse(f'rank {rank} has "{asked[rank] or "another spec"}", and rank 0 has "{asked[0] or "another spec"}": give all '
                     "ranks the same")
    options, size = of_all(wished)[0], _transport.size_of(group)
    leads = _transport.rank_of(group) == 0 and (inside is None or _transport.rank_of(inside) == 0)
    if size == 1 and kind == GRADIENTS:
        return Settled(EXACT)
    line: Optional[Line] = None
    adapters = trains_adapters(model)
    found = of_all(lambda: kept(options["keep"]) if leads and "keep" in options else "")[0]
    text = f"auto goes on with {found}, which {options.get('keep')} keeps"
    if not found:
        lines: List[Line] = []
        of_all(lambda: lines.append(line_between(options, transport, group, limits)))  # no group waits for one that could not
        line = between = lines[0]
        found, text = of_all(lambda: chosen(options, rows(), optimizer, kind, size, between, adapters) if leads else None)[0]
    if banner and leads:
        tell(text)
    return Settled(str(found), line, options, adapters)
