"""What the library remembers, as plain tensors by name, and back."""

import ctypes
import os
from pathlib import Path
from typing import Any, Dict, Sequence

import torch

from ..errors import Error
from ..spec import name_of
from ..table import Entries, Entry

# Unsigned integers are kept in the signed type of their size, since torch has had them only from 2.3 on.
KEPT_AS = {"uint32": torch.int32, "uint64": torch.int64}
ABOUT = "thinwire/"  # what is no tensor of the scheme's


def to_tensor(entry: Entry) -> torch.Tensor:
    dtype = KEPT_AS.get(entry.dtype) or getattr(torch, entry.dtype)
    if not entry.data:
        return torch.empty(entry.shape, dtype=dtype)
    return torch.frombuffer(bytearray(entry.data), dtype=dtype).reshape(entry.shape)


def from_tensor(tensor: torch.Tensor, dtype: str) -> Entry:
    whole = tensor.detach().to("cpu").contiguous()
    data = ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size()) if whole.numel() else b""
    return Entry(dtype, tuple(whole.shape), data)


def to_dict(entries: Entries, about: Dict[str, Any]) -> Dict[str, Any]:
    """`about` is what else there is to know: numbers, texts, and lists of them."""
    tensors = {name: to_tensor(entry) for name, entry in entries.items()}
    unsigned = {name: entry.dtype for name, entry in entries.items() if entry.dtype in KEPT_AS}
    return {**{ABOUT + key: value for key, value in {**about, "unsigned": unsigned}.items()}, **tensors}


def from_dict(state: Dict[str, Any]) -> Entries:
    unsigned = state.get(ABOUT + "unsigned", {})
    tensors = {name: value for name, value in state.items() if not name.startswith(ABOUT)}
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor):
            raise Error(f"{name} is a {type(value).__name__} in this state, and a tensor is wanted")
        if value.layout != torch.strided or value.is_meta:
            raise Error(f"{name} is a {'sparse' if value.layout != torch.strided else 'meta'} tensor in this state, and a plain one "
                        "is wanted")
    return {name: from_tensor(t, unsigned.get(name, str(t.dtype).split(".")[1])) for name, t in tensors.items()}


def spec_of(state: Any) -> str:
    """"" where it says none."""
    spec = state.get(ABOUT + "spec", "") if isinstance(state, dict) else ""
    return spec if isinstance(spec, str) else ""


def is_of_fallback(state: Dict[str, Any]) -> bool:
    """Whether torch did the exchange when it was saved."""
    return bool(state.get(ABOUT + "fallback"))


def refuse_mixed(of_fallback: Sequence[bool]) -> None:
    """`of_fallback` is what the states of all ranks say, in order of rank, the same list everywhere."""
    for rank, one in enumerate(of_fallback):
        if one != of_fallback[0]:
            by_torch, by_scheme = (rank, 0) if one else (0, rank)
            raise Error(f"rank {by_torch} has the state of a run whose exchange torch did itself, and rank {by_scheme} that of "
                        "one that compressed: load on all ranks what one run saved", 9, "TW_ERROR_STATE")


def does_not_fit(name: str, shape: Sequence[int], count: int) -> Error:
    return Error(f"{name} is {tuple(shape)} in this state, and {count} elements are wanted", 9, "TW_ERROR_STATE")


def refuse_other_forms(state: Any, about: Dict[str, Any], of: str) -> None:
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise Error(f"this is a {type(state).__name__}, and what state_dict() gave is wanted")
    if state.get(ABOUT + "rank") is None:
        raise Error(f"this is no state of {of}: it does not say whose it is")
    forms = {"rank": int, "size": int, "order": dict, "spec": str, "tensors": list, "unsigned": dict}
    for name, form in forms.items():
        there = state.get(ABOUT + name, about.get(name, form()))  # older states do not have all
        if type(there) is not form:
            raise Error(f"{ABOUT}{name} is {there!r} in this state, and {form.__name__} is wanted: it is no state of {of}")
    if not all(isinstance(name, str) for name in state.get(ABOUT + "tensors", ())):
        raise Error(f"{ABOUT}tensors has other things than names in this state: it is no state of {of}")


def check(state: Any, about: Dict[str, Any], of: str = "a compressor") -> None:
    """Each rank has its own: a residual of another rank would be sent a second time, and one's own be lost. `of` is what
    has such states."""
    refuse_other_forms(state, about, of)
    there: Dict[str, Any] = {key: state.get(ABOUT + key, {}) for key in ("rank", "size", "order")}
    scheme, wanted = name_of(state.get(ABOUT + "spec", about["spec"])), name_of(about["spec"])
    if scheme != wanted:
        raise Error(f"this is the state of {scheme}, and that of {wanted} is wanted: what {scheme} held back would be lost")
    if not isinstance(state.get(ABOUT + "fallback", False), bool):
        raise Error(f"{ABOUT}fallback is {state[ABOUT + 'fallback']!r} in this state, and not True or False")
    if (there["rank"], there["size"]) != (about["rank"], about["size"]):
        raise Error(f"this is the state of rank {there['rank']} of {there['size']}, and that of rank {about['rank']} of "
                    f"{about['size']} is wanted: each rank saves its own, and loads that; load_state_dicts is for "
                    "another number of ranks")
    for name in sorted({*(state.get(ABOUT + "tensors") or ())} - {*about.get("tensors", ())}):  # older states do not tell
        raise Error(f"this state is of a model that has {name}, too, and what was held back of it would be lost")
    for name in {**there["order"], **about["order"]}:
        if there["order"].get(name) != about["order"].get(name):
            raise Error(f"{name} has another memory format than when its state was saved: channels_last in one, not in "
                        "the other")


def read_file(path: Path, of: str, data: Any = None) -> Any:
    """What is in the file, of which the data may be here: a state of `of`."""
    try:
        return torch.load(path if data is None else data, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has many for a file that is damaged, of several lines
        raise Error(f"{path} cannot be read as a state of {of}, and is damaged or something else ({type(error).__name__}); take the "
                    "checkpoint of another step, on all machines", 9, "TW_ERROR_STATE") from error


def write_whole(path: Path, state: Dict[str, Any]) -> None:
    """A file that is whole, or what stood there before, also when the power fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
