"""The C library: where it is, and what of it is called.

FUNCTIONS and the structures are the public headers' once more, and a test compares the two. Calls that return a status
raise; all calls release the interpreter's lock while they run."""

import atexit
import ctypes
import logging
import os
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Dict, Tuple

from . import errors
from ._told import say, say_apart

INTERFACE = "0.1"  # what this package was written for: the library's major and minor version
MAX_DIMS = 8
LEVELS = {0: logging.INFO, 1: logging.WARNING}  # of a tw_log_level


class Status(c_int):
    """A tw_status: Library raises what is not TW_OK."""


class Traffic(Structure):
    _fields_ = [("struct_size", c_size_t), ("bytes_sent", c_uint64), ("bytes_received", c_uint64),
                ("messages_sent", c_uint64), ("messages_received", c_uint64)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("dims", c_size_t), ("shape", c_size_t * MAX_DIMS), ("reserved", c_void_p * 2)]


class Gradient(Structure):
    _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("dtype", c_int), ("memory", c_int), ("stream", c_void_p),
                ("absent", c_int), ("ready", CFUNCTYPE(c_int, c_void_p)), ("context", c_void_p)]


class ReducerCounts(Structure):
    _fields_ = [("struct_size", c_size_t), ("steps", c_uint64), ("steps_skipped", c_uint64), ("steps_warmup", c_uint64),
                ("bytes_sent", c_uint64), ("bytes_received", c_uint64), ("bytes_dense", c_uint64),
                ("elements_sent", c_uint64), ("elements_total", c_uint64), ("compressed_fp32", c_uint64),
                ("compressed_packet", c_uint64), ("message_fp32", c_uint64), ("message_packet", c_uint64),
                ("seconds_codec", c_double), ("seconds_exchange", c_double), ("seconds_wait", c_double),
                ("bytes_between", c_uint64)]


class GossipCounts(Structure):
    _fields_ = [("struct_size", c_size_t), ("steps", c_uint64), ("steps_skipped", c_uint64), ("rounds", c_uint64),
                ("bytes_sent", c_uint64), ("bytes_received", c_uint64), ("bytes_dense", c_uint64),
                ("seconds_exchange", c_double), ("seconds_wait", c_double), ("last_distance", c_double),
                ("ranks_lost", c_uint64), ("lowest_rank", c_uint64)]


class OuterCounts(Structure):
    _fields_ = [("struct_size", c_size_t), ("steps", c_uint64), ("rounds", c_uint64), ("rounds_empty", c_uint64),
                ("offers_dropped", c_uint64), ("bytes_sent", c_uint64), ("bytes_received", c_uint64),
                ("bytes_between", c_uint64), ("bytes_dense", c_uint64), ("elements_sent", c_uint64),
                ("elements_total", c_uint64), ("compressed_fp32", c_uint64), ("compressed_packet", c_uint64), ("message_fp32", c_uint64),
                ("message_packet", c_uint64), ("seconds_codec", c_double), ("seconds_exchange", c_double),
                ("seconds_wait", c_double), ("cosine", c_double), ("gain", c_double), ("energy", c_double),
                ("rounds_unstable", c_uint64)]


class StateEntry(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("dims", c_size_t), ("shape", POINTER(c_size_t)),
                ("data", c_void_p), ("bytes", c_size_t), ("reserved", c_void_p * 2)]


class Range(Structure):
    _fields_ = [("first", c_uint64), ("count", c_uint64)]


class OptionInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("kind", c_int), ("common", c_int), ("fallback", c_char_p),
                ("least", c_double), ("most", c_double), ("choices", c_char_p), ("help", c_char_p)]


Told = CFUNCTYPE(None, c_void_p, c_char_p)
Log = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class WorldOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("workers", c_int), ("workers_per_host", c_int), ("bandwidth", c_double),
                ("latency", c_double), ("overhead", c_double), ("time_limit", c_double), ("stack_bytes", c_size_t),
                ("element_seconds", c_double), ("byte_seconds", c_double), ("bandwidth_down", c_double)]


Simulate = CFUNCTYPE(c_int, POINTER(WorldOptions), c_void_p, c_void_p)


class PlanQuestion(Structure):
    _fields_ = [("struct_size", c_size_t), ("tensors", POINTER(Tensor)), ("tensor_count", c_size_t), ("workers", c_int),
                ("optimizer", c_int), ("kinds", c_int), ("unmeasured", c_int), ("keeps_momentum", c_int), ("steps", c_uint64), ("seed", c_uint64),
                ("pass_seconds", c_double), ("other_seconds", c_double), ("bandwidth", c_double), ("bandwidth_down", c_double),
                ("latency", c_double), ("codec_rate", c_double), ("factors", c_void_p), ("elements", c_size_t), ("told", Told),
                ("context", c_void_p), ("goes_on", c_int), ("adapters", c_int),
                ("simulate", Simulate)]


class PlanRow(Structure):
    _fields_ = [("struct_size", c_size_t), ("spec", c_char_p), ("left_out", c_char_p), ("seen", c_char_p), ("page", c_char_p),
                ("kind", c_int), ("extra", c_double), ("step_seconds", c_double), ("utilisation", c_double),
                ("bytes_per_step", c_double), ("memory_bytes", c_double), ("codec_seconds", c_double),
                ("target_seconds", c_double), ("end_seconds", c_double)]


Source = CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_void_p))
Stopped = CFUNCTYPE(c_int, c_void_p)


class TcpOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("bind", c_char_p), ("advertise", c_char_p), ("first_port", c_int),
                ("last_port", c_int), ("streams", c_int), ("key", c_char_p), ("key_size", c_size_t), ("refused", Told),
                ("stopped", Stopped), ("context", c_void_p), ("sealed", c_int), ("behind", c_size_t)]


class MembersOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("quorum", c_int), ("grace", c_double), ("patience", c_double)]


class Generation(Structure):
    _fields_ = [("struct_size", c_size_t), ("number", c_uint64), ("rank", c_int), ("size", c_int), ("donor", c_int),
                ("behind", c_int), ("kept", c_int), ("late", c_int), ("lost", c_int)]


STRUCTURES = {"tw_traffic": Traffic, "tw_tensor": Tensor, "tw_gradient": Gradient, "tw_reducer_counts": ReducerCounts,
              "tw_gossip_counts": GossipCounts, "tw_outer_counts": OuterCounts, "tw_state_entry": StateEntry,
              "tw_option_info": OptionInfo, "tw_tcp_options": TcpOptions, "tw_range": Range,
              "tw_members_options": MembersOptions, "tw_generation": Generation, "tw_world_options": WorldOptions,
              "tw_plan_question": PlanQuestion, "tw_plan_row": PlanRow}

# Objects, the data of tensors and arrays of addresses of such data are addresses. First comes what is returned.
FUNCTIONS = {
    "tw_version": (c_char_p,),
    "tw_status_name": (c_char_p, c_int),
    "tw_last_error": (c_char_p,),
    "tw_set_log": (None, Log, c_void_p),
    "tw_comm_create_threads": (Status, c_int, POINTER(c_void_p)),
    "tw_comm_open": (Status, c_char_p, POINTER(c_void_p)),
    "tw_comm_leave": (None, c_void_p),
    "tw_comm_destroy": (None, c_void_p),
    "tw_comm_rank": (c_int, c_void_p),
    "tw_comm_size": (c_int, c_void_p),
    "tw_comm_transport": (c_char_p, c_void_p),
    "tw_comm_set_timeout": (Status, c_void_p, c_double),
    "tw_comm_set_patience": (Status, c_void_p, c_double),
    "tw_comm_barrier": (Status, c_void_p),
    "tw_comm_broadcast": (Status, c_void_p, c_int, c_void_p, c_size_t),
    "tw_comm_broadcast_packed": (Status, c_void_p, c_int, c_void_p, c_size_t, c_size_t),
    "tw_comm_allgather": (Status, c_void_p, c_void_p, c_size_t, c_void_p),
    "tw_comm_traffic": (Status, c_void_p, POINTER(Traffic)),
    "tw_schemes_count": (c_size_t,),
    "tw_schemes_name": (c_char_p, c_size_t),
    "tw_schemes_find": (c_int, c_char_p, POINTER(c_size_t)),
    "tw_schemes_summary": (c_char_p, c_size_t),
    "tw_schemes_option_count": (c_size_t, c_size_t),
    "tw_schemes_option": (Status, c_size_t, c_size_t, POINTER(OptionInfo)),
    "tw_spec_for_run": (c_size_t, c_char_p, c_uint64, c_char_p, c_size_t),
    "tw_gossips_count": (c_size_t,),
    "tw_gossips_name": (c_char_p, c_size_t),
    "tw_gossips_summary": (c_char_p, c_size_t),
    "tw_reducer_create": (Status, c_void_p, c_char_p, POINTER(Tensor), c_size_t, POINTER(c_void_p)),
    "tw_reducer_destroy": (None, c_void_p),
    "tw_reducer_submit": (Status, c_void_p, c_size_t, c_void_p),
    "tw_reducer_submit_with": (Status, c_void_p, c_size_t, POINTER(Gradient)),
    "tw_reducer_wait_for": (Status, c_void_p, c_double, POINTER(c_int)),
    "tw_reducer_set_rates": (Status, c_void_p, c_void_p),
    "tw_reducer_set_gradient_scale": (Status, c_void_p, c_double),
    "tw_reducer_momentum": (c_float, c_void_p, POINTER(c_int)),
    "tw_reducer_stats": (Status, c_void_p, POINTER(ReducerCounts)),
    "tw_reducer_plan": (c_char_p, c_void_p, c_size_t),
    "tw_reducer_save_state": (Status, c_void_p, c_char_p, c_void_p),
    "tw_reducer_load_state": (Status, c_void_p, c_char_p, c_void_p),
    "tw_reducer_regroup_state": (Status, c_char_p, POINTER(Tensor), c_size_t, c_int, Source, c_void_p, c_int, c_int,
                                 c_char_p, c_void_p),
    "tw_reducer_state_of_moments": (Status, c_char_p, POINTER(Tensor), c_size_t, c_uint64, POINTER(c_void_p), POINTER(c_void_p),
                                    c_int, c_int, c_char_p, c_void_p),
    "tw_reducer_moments_of_state": (Status, c_char_p, POINTER(Tensor), c_size_t, c_int, Source, c_void_p, c_char_p,
                                    c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "tw_gossip_create": (Status, c_void_p, c_char_p, POINTER(Tensor), c_size_t, POINTER(c_void_p), POINTER(c_void_p)),
    "tw_gossip_destroy": (None, c_void_p),
    "tw_gossip_read": (Status, c_void_p, POINTER(c_void_p)),
    "tw_gossip_step": (Status, c_void_p, POINTER(c_void_p)),
    "tw_gossip_finish": (Status, c_void_p, POINTER(c_void_p)),
    "tw_gossip_stats": (Status, c_void_p, POINTER(GossipCounts)),
    "tw_gossip_save_state": (Status, c_void_p, c_char_p, c_void_p),
    "tw_gossip_load_state": (Status, c_void_p, c_char_p, c_void_p),
    "tw_gossip_regroup_state": (Status, c_char_p, POINTER(Tensor), c_size_t, c_int, Source, c_void_p, c_int, c_int,
                                c_char_p, c_void_p),
    "tw_outer_create": (Status, c_void_p, c_char_p, POINTER(Tensor), c_size_t, POINTER(c_void_p)),
    "tw_outer_destroy": (None, c_void_p),
    "tw_outer_begin": (Status, c_void_p, POINTER(c_void_p)),
    "tw_outer_step": (Status, c_void_p, POINTER(c_void_p), POINTER(c_int)),
    "tw_outer_is_due": (c_int, c_void_p),
    "tw_outer_has_met": (c_int, c_void_p),
    "tw_outer_set_weight": (Status, c_void_p, c_double),
    "tw_outer_show_moments": (Status, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "tw_outer_read": (Status, c_void_p, POINTER(c_void_p)),
    "tw_outer_finish": (Status, c_void_p, POINTER(c_void_p)),
    "tw_outer_plan": (c_char_p, c_void_p, c_size_t),
    "tw_outer_stats": (Status, c_void_p, POINTER(OuterCounts)),
    "tw_outers_count": (c_size_t,),
    "tw_outers_name": (c_char_p, c_size_t),
    "tw_outers_find": (c_int, c_char_p, POINTER(c_size_t)),
    "tw_outers_summary": (c_char_p, c_size_t),
    "tw_outers_option_count": (c_size_t, c_size_t),
    "tw_outers_option": (Status, c_size_t, c_size_t, POINTER(OptionInfo)),
    "tw_outer_save_state": (Status, c_void_p, c_char_p, c_void_p),
    "tw_outer_save_apart": (Status, c_void_p, c_char_p, c_void_p),
    "tw_outer_load_state": (Status, c_void_p, c_char_p, c_void_p),
    "tw_outer_rebase": (Status, c_char_p, POINTER(Tensor), c_size_t, c_char_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "tw_outer_regroup_state": (Status, c_char_p, POINTER(Tensor), c_size_t, c_int, Source, c_void_p, c_int, c_int,
                               c_char_p, c_void_p),
    "tw_clusters_create": (Status, c_void_p, c_int, c_uint64, POINTER(Range), c_size_t, POINTER(c_void_p)),
    "tw_clusters_destroy": (None, c_void_p),
    "tw_clusters_average": (Status, c_void_p, POINTER(c_void_p)),
    "tw_line_read": (Status, c_char_p, POINTER(WorldOptions)),
    "tw_plan_make": (Status, POINTER(PlanQuestion), POINTER(c_void_p)),
    "tw_plan_destroy": (None, c_void_p),
    "tw_plan_count": (c_size_t, c_void_p),
    "tw_plan_row_at": (Status, c_void_p, c_size_t, POINTER(PlanRow)),
    "tw_plan_choice": (c_size_t, c_void_p),
    "tw_plan_why": (c_char_p, c_void_p),
    "tw_plan_text": (c_size_t, c_void_p, c_char_p, c_size_t),
    "tw_plan_bytes": (Status, POINTER(PlanQuestion), c_char_p, c_void_p),
    "tw_plan_can_switch": (Status, c_char_p),
    "tw_reducer_hand_over": (Status, c_void_p, POINTER(c_void_p)),
    "tw_watch_create": (Status, c_size_t, POINTER(c_void_p)),
    "tw_watch_destroy": (None, c_void_p),
    "tw_watch_add": (c_int, c_void_p, c_double, c_double, c_void_p),
    "tw_watch_judge": (c_double, c_void_p, c_void_p, c_int),
    "tw_state_create": (Status, POINTER(c_void_p)),
    "tw_state_destroy": (None, c_void_p),
    "tw_state_put": (Status, c_void_p, c_char_p, c_int, c_size_t, POINTER(c_size_t), c_void_p),
    "tw_state_count": (c_size_t, c_void_p),
    "tw_state_at": (Status, c_void_p, c_size_t, POINTER(StateEntry)),
}

TCP_FUNCTIONS = {  # of libthinwire_tcp
    "tw_tcp_listen": (Status, POINTER(TcpOptions), POINTER(c_void_p)),
    "tw_tcp_address": (c_char_p, c_void_p),
    "tw_tcp_connect": (Status, c_void_p, c_int, c_int, POINTER(c_char_p), c_double, POINTER(c_void_p)),
    "tw_tcp_destroy": (None, c_void_p),
    "tw_tcp_join": (Status, c_char_p, c_int, c_int, POINTER(TcpOptions), c_double, POINTER(c_void_p)),
    "tw_members_environment": (Status, POINTER(TcpOptions)),
    "tw_members_join": (Status, c_char_p, c_char_p, POINTER(MembersOptions), POINTER(TcpOptions), POINTER(c_void_p)),
    "tw_members_destroy": (None, c_void_p),
    "tw_members_address": (c_char_p, c_void_p),
    "tw_members_opened": (c_int, c_void_p),
    "tw_members_next": (Status, c_void_p, c_int64, c_int, POINTER(Generation), POINTER(c_void_p)),
    "tw_members_due": (Status, c_void_p, c_void_p, c_int, POINTER(c_int)),
}

FOLDER_FUNCTIONS: Dict[str, Tuple[Any, ...]] = {  # of libthinwire_folder
    "tw_folder_join": (Status, c_char_p, c_int, c_int, c_double, Stopped, c_void_p, POINTER(c_void_p)),
}

SIM_FUNCTIONS: Dict[str, Tuple[Any, ...]] = {  # of libthinwire_sim
    "tw_world_play": (Status, POINTER(WorldOptions), c_void_p, c_void_p),
}

SEALED_FUNCTIONS = {  # of libthinwire_sealed
    "tw_comm_create_sealed": (Status, c_void_p, c_void_p, c_size_t, POINTER(c_void_p)),
    "tw_seal_read_key": (Status, c_char_p, c_void_p, POINTER(c_int)),
}


def path_of_library() -> str:
    """What the environment says, then what is in the wheel, then what the system has."""
    inside = Path(__file__).with_name("lib") / "libthinwire.so.0"
    return os.environ.get("THINWIRE_LIBRARY") or (str(inside) if inside.exists() else "libthinwire.so.0")


def beside(name: str) -> str:
    """The library `name` from where libthinwire comes from."""
    folder = os.path.dirname(path_of_library())
    return os.path.join(folder, name) if folder else name


def load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path_of_library())
    except OSError as error:
        raise ImportError(f"the C library of thinwire cannot be loaded: {error}; install the wheel "
                          "(pip install ./python), or set THINWIRE_LIBRARY to a libthinwire.so") from error


def load_part(name: str, functions: Dict[str, Tuple[Any, ...]], without: str) -> ctypes.CDLL:
    """A library that only some programs need, when one does. `without` says what cannot be had where it is missing."""
    try:
        return declare(ctypes.CDLL(beside(name + ".so.0")), functions)
    except OSError as error:
        raise errors.Error(f"{without}: {error}; {name} is in the wheel (pip install ./python), and make builds it in a clone", 10,
                           "TW_ERROR_UNSUPPORTED") from error


def raise_what_failed(result: Status, function: Any, arguments: Any) -> bool:
    """What a call that returns a status gives: whether it was TW_OK. TW_SKIPPED is no error."""
    if result.value in (errors.OK, errors.SKIPPED):
        return result.value == errors.OK
    text = library.tw_last_error().decode(errors="replace")
    name = library.tw_status_name(result.value).decode()
    raise errors.of_library(text, result.value, name)


def declare(handle: ctypes.CDLL, functions: Dict[str, Tuple[Any, ...]]) -> ctypes.CDLL:
    for name, (result, *arguments) in functions.items():
        function = getattr(handle, name, None)
        if function is None:
            raise ImportError(f"{handle._name} has no {name}: it is no library of thinwire {INTERFACE}, which this Python "
                              "package is for; unset THINWIRE_LIBRARY, or install both from one source")
        function.restype = result
        function.argtypes = arguments
        if result is Status:
            function.errcheck = raise_what_failed
    return handle


def checked(handle: ctypes.CDLL) -> ctypes.CDLL:
    version = handle.tw_version().decode()
    if not version.startswith(INTERFACE + "."):
        raise ImportError(f"this is the Python package for thinwire {INTERFACE}, and {handle._name} is {version}")
    return handle


@Log
def tell(context: Any, level: int, line: bytes) -> None:
    """From any thread. Where nothing of Python's is below this, it is one of the library's, which may be waited for."""
    by = say if sys._getframe().f_back else say_apart
    by(LEVELS.get(level, logging.WARNING), errors.printable(line.decode(errors="replace")))


library = checked(declare(load(), FUNCTIONS))
library.tw_set_log(tell, None)
atexit.register(library.tw_set_log, Log(0), None)  # a thread that is left then has no Python to tell
