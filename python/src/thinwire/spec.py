"""The text that names a scheme and its options: "scheme:option=value,option=value"."""

import contextlib
import ctypes
import math
import re
from typing import Callable, Dict, Optional, Sequence, Tuple

from ._library import OptionInfo, library
from .errors import Error, SpecError


def name_of(spec: str) -> str:
    if not isinstance(spec, str):
        raise SpecError(f"the spec is {spec!r}: want a text, such as \"dgc:density=0.01\"", 2, "TW_ERROR_SPEC")
    return spec.split(":")[0]


def bytes_of(spec: str) -> bytes:
    """As C has it, which would end it at a zero byte."""
    name_of(spec)
    if not spec.isprintable():
        raise SpecError(f"the spec {spec!r} has a character in it that cannot be printed: want a text, such as \"dgc:density=0.01\"",
                        2, "TW_ERROR_SPEC")
    return spec.encode()


def for_run(spec: str, steps: int) -> str:
    """The spec as it suits a run of so many optimiser steps: what follows from the length, and the spec does not say, is
    added, such as density and warm-up of dgc; every other spec is given back as it is. Where nobody knows the length, the
    defaults suit 10,000."""
    told = bytes_of(spec)
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 < steps < 1 << 64:
        raise Error(f"steps={steps!r}: want how many steps the optimiser takes in the run, a whole number above 0")
    text = ctypes.create_string_buffer(library.tw_spec_for_run(told, steps, None, 0) + 1)
    library.tw_spec_for_run(told, steps, text, len(text))
    return text.value.decode()


def options_of(spec: str) -> Dict[str, str]:
    """What the spec sets."""
    pairs = (option.partition("=") for option in spec.partition(":")[2].split(",") if option)
    return {name: value for name, _, value in pairs}


def defaults_of(scheme: str) -> Dict[str, str]:
    """Each option of a scheme that agrees on gradients, and its value where a spec says none."""
    return fallbacks(library.tw_schemes_find, library.tw_schemes_option_count, library.tw_schemes_option, scheme) or {}


def settings_of(spec: str) -> Dict[str, str]:
    """Each option of a method of local updates and its value, and what else the spec sets, which is the exchange's."""
    defaults = fallbacks(library.tw_outers_find, library.tw_outers_option_count, library.tw_outers_option,
                         name_of(spec))
    return {} if defaults is None else {**defaults, **options_of(spec)}


def fallbacks(find: Callable, count: Callable, option: Callable, spec: str) -> Optional[Dict[str, str]]:
    """The options of what a spec names, each with its default, by these C functions of a list; None: it is not there."""
    index = ctypes.c_size_t()
    if not find(spec.encode(), ctypes.byref(index)):
        return None
    return dict(option_at(option, index.value, number) for number in range(count(index.value)))


def option_at(option: Callable, index: int, number: int) -> Tuple[str, str]:
    info = OptionInfo(struct_size=ctypes.sizeof(OptionInfo))
    option(index, number, ctypes.byref(info))
    return info.name.decode(), info.fallback.decode()


def with_more(spec: str, option: str) -> str:
    """The spec with one more "option=value" at its end."""
    return f"{spec}{',' if ':' in spec else ':'}{option}"


def with_option(spec: str, option: str, value: str) -> str:
    """The spec with another value of an option; as it is, where the scheme has no such option."""
    scheme = name_of(spec)
    if option not in defaults_of(scheme):
        return spec
    return f"{scheme}:" + ",".join(f"{name}={what}" for name, what in {**options_of(spec), option: value}.items())


def of_part(spec: str, part: Sequence[str], whole: Sequence[str]) -> str:
    """The spec for a table that has the tensors `part` of all that there are: without what it says of others, which a reducer
    would take for misspelt names."""
    for option, end in (("dense", "|"), ("rates", "@")):
        rules = options_of(spec).get(option, "").split("|")
        kept = [rule for rule in rules if names_any(rule.partition(end)[0], part) or not names_any(rule.partition(end)[0], whole)]
        spec = spec if kept == rules else with_option(spec, option, "|".join(kept))
    return spec


def names_any(pattern: str, names: Sequence[str]) -> bool:
    """As the library reads one: ``*`` is any text, and ``?`` one character."""
    wanted = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
    return any(wanted.fullmatch(name) for name in names)


def number_of(spec: str, option: str) -> float:
    """What an option comes to, 0 where the scheme has none of that name."""
    return number({**defaults_of(name_of(spec)), **options_of(spec)}.get(option, "0"))


def number(text: str) -> float:
    """As the library reads it, such as 1e2 where a whole number is wanted, or 0x10; what is none is the library's to refuse."""
    ways: Tuple[Callable[[str], float], ...] = float, float.fromhex
    for read in ways:
        with contextlib.suppress(ValueError, OverflowError):
            return read(text)
    return math.nan


def adapts(spec: str) -> bool:
    """Whether what arrives is Adam's direction, of which no optimiser must take moments again."""
    return number_of(spec, "beta2") > 0


def gives_signs(spec: str) -> bool:
    """Whether what arrives is the sign of each element of a momentum: a whole step, but for the rate and the decay."""
    return {**defaults_of(name_of(spec)), **options_of(spec)}.get("map") == "sign"


def sends_a_part(spec: str) -> bool:
    """Whether a step sends a part of a gradient, and the rest of it goes later. Of a density of 1 nothing does."""
    known = {**defaults_of(name_of(spec)), **options_of(spec)}
    shares = {known[option] for option in ("density", "rate") if option in known} - {"1", "1.0"}
    return bool(shares) or not {"tau", "bin", "k"}.isdisjoint(known)


def minds_rates(spec: str) -> bool:
    """Whether what the scheme holds back is in units of the learning rate, which it has to be told then."""
    return {**defaults_of(name_of(spec)), **options_of(spec)}.get("revision") == "rate"
