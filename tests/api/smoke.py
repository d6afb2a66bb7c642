#!/usr/bin/env python3
"""Every function that a public header declares, called at least once with arguments that are right, through a binding
that is read from the headers (binding.py); and before that without each of its pointers in turn, which is refused by
name, answered as promised, or does nothing.

`smoke.py HEADERS PLUGIN LIBTHINWIRE [LIBRARY...]`: include/thinwire, a plug-in with a scheme "hard", and the libraries.
The transport "solo" stands beside them. Of libthinwire_mpi, whose header speaks of MPI's types, nothing is called."""
import ctypes
import os
import pathlib
import random
import re
import socket
import sys
import tempfile
import threading
import unittest
from unittest import mock

sys.dont_write_bytecode = True
from binding import Binding

HEADERS, PLUGIN = pathlib.Path(sys.argv[1]), sys.argv[2]
LIBRARIES = {pathlib.Path(path).name.split(".")[0][3:]: path for path in sys.argv[3:]}  # by the name of its header
LIBRARIES.pop("thinwire_mpi", None)
ELSEWHERE = {"thinwire_mpi", "thinwire_tcp", "thinwire_sealed"} - set(LIBRARIES)
ELSEWHERE |= {"thinwire_members"} if "thinwire_tcp" in ELSEWHERE else set()  # one library has both
FILES = [path for path in sorted(HEADERS.glob("*.h")) if path.stem not in ELSEWHERE]
COUNT, RANKS = 64, 2

binding = Binding(FILES)
libraries = [ctypes.CDLL(path) for path in LIBRARIES.values()]
functions = {name: binding.bind(next(each for each in libraries if hasattr(each, name)), name) for name in binding.prototypes}
called, wrong = set(), []
kept = []  # what the library goes on to use
here = threading.local()

# What may be left out, though the first call of a thread gives it: a test says what is promised then. And what a refused
# call would destroy.
SPARED = {("tw_fail", "format"), ("tw_spec_for_run", "text"), ("tw_reducer_momentum", "nesterov"), ("tw_state_text_at", "value"),
          ("tw_scheme_begin_without", "absent"), ("tw_scheme_shape", "shape"), ("tw_line_text", "text"), ("tw_plan_text", "text"),
          ("tw_watch_judge", "watch"), ("tw_watch_judge", "middles"), ("tw_phantom_step", "ready"), ("tw_tcp_listen", "options"),
          ("tw_tcp_join", "options"), ("tw_members_join", "options"), ("tw_members_join", "tcp"), ("tw_folder_join", "stopped"),
          ("tw_seal_read_key", "exposed"), ("tw_comm_create_sealed", "key"), ("tw_comm_create_sealed", "comm")}


def nothings(name):
    """Of each parameter that is a pointer its place, its name and NULL; and of one to tensors' arrays, one to a NULL."""
    for place, words in enumerate(binding.prototypes[name][1]):
        kind, argument, array = re.fullmatch(r"(.*?)(\w+)?\s*(\[\w*\])?", words).groups()
        function = binding.types.get(kind.strip())
        if isinstance(function, type) and issubclass(function, ctypes._CFuncPtr):
            yield place, argument, function()
        elif "*" in kind or array:
            yield place, argument, None
        if kind.replace("const ", "").strip() == "float **":
            yield place, argument, (ctypes.c_void_p * 1)()


def leave_out(name, arguments):
    for place, argument, nothing in nothings(name):
        if arguments[place] is None or (name, argument) in SPARED:
            continue
        got = functions[name](*arguments[:place], nothing, *arguments[place + 1:])
        refused = got == binding.constants["TW_ERROR_ARGUMENT"] and argument.encode() in functions["tw_last_error"]()
        if not refused if binding.prototypes[name][0] == "tw_status " else got:
            wrong.append(f"{name} without {argument}: {got}: {functions['tw_last_error']()}")


def call(name, *arguments):
    called.add(name)
    tried = here.__dict__.setdefault("tried", set())
    if name not in tried:  # on all ranks alike: a create is refused together
        tried.add(name)
        leave_out(name, arguments)
    return functions[name](*arguments)


def ok(name, *arguments):
    status = call(name, *arguments)
    if status != 0:
        raise AssertionError(f"{name}: {call('tw_status_name', status)}: {call('tw_last_error')}")


def made(name, *arguments):
    """What a create gives, which comes last."""
    thing = ctypes.c_void_p()
    ok(name, *arguments, ctypes.byref(thing))
    return thing


def struct(kind, **fields):
    thing = binding.types[kind](**fields)
    if hasattr(thing, "struct_size"):
        thing.struct_size = ctypes.sizeof(thing)
    return thing


def told(name, thing, kind):
    answer = struct(kind)
    ok(name, thing, ctypes.byref(answer))
    return answer


def floats(*values):
    return (ctypes.c_float * len(values))(*values)


def pointers(*buffers):
    return (ctypes.c_void_p * len(buffers))(*(ctypes.addressof(each) for each in buffers))


def tensors():
    table = (binding.types["tw_tensor"] * 1)()
    table[0].name, table[0].dims = b"w", 2
    table[0].shape[0], table[0].shape[1] = 8, COUNT // 8
    return table


def together(work):
    """work(rank) on a thread for each rank, and the first complaint, if there is one."""
    complaints = []

    def play(rank):
        try:
            work(rank)
        except Exception as complaint:
            complaints.append(complaint)

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if complaints:
        raise complaints[0]


def on_ranks(work, comms):
    def play(rank):
        try:
            work(rank, comms[rank])
        finally:
            call("tw_comm_destroy", comms[rank])
    together(play)


def free_ports(count):
    """The first of so many in a row that are free just now, and that the system gives to nobody who asks for any."""
    while True:
        first = random.randrange(20000, 32000)
        trials = [socket.socket() for _ in range(count)]
        try:
            for number, trial in enumerate(trials):
                trial.bind(("127.0.0.1", first + number))
            return first
        except OSError:
            continue
        finally:
            for trial in trials:
                trial.close()


def on_threads(work):
    comms = (ctypes.c_void_p * RANKS)()
    ok("tw_comm_create_threads", RANKS, comms)
    on_ranks(work, [ctypes.c_void_p(each) for each in comms])


# ---- the process's own functions, before anything else ----------------------------------------------------------------


lines, blocks = [], set()
libc = ctypes.CDLL(None)
libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def allocate(_, alignment, size):
    block = libc.aligned_alloc(alignment, size)
    blocks.add(block)
    return block


def release(_, block):
    blocks.remove(block)
    libc.free(block)


def set_hooks():
    fields = dict(binding.types["tw_allocator"]._fields_)
    mine = struct("tw_allocator", allocate=fields["allocate"](allocate), release=fields["release"](release))
    log = binding.types["tw_log_fn"](lambda _, level, text: lines.append((level, text)))
    kept.extend([mine, log])
    ok("tw_set_allocator", ctypes.byref(mine))
    call("tw_set_log", log, None)


# ---- tests -------------------------------------------------------------------------------------------------------------


class SmokeTest(unittest.TestCase):
    """In the order of their names."""

    def test_1_version_and_statuses(self):
        self.assertEqual(call("tw_version").decode(), "{TW_VERSION_MAJOR}.{TW_VERSION_MINOR}.{TW_VERSION_PATCH}".format(**binding.constants))
        self.assertIn(call("tw_isa"), call("tw_isa_levels").split())
        for name, value in binding.constants.items():
            if name.startswith("TW_ERROR") or name in ("TW_OK", "TW_SKIPPED"):
                self.assertEqual(call("tw_status_name", value).decode(), name)
                self.assertEqual(call("tw_status_is_error", value), int(name.startswith("TW_ERROR")))
                self.assertTrue(call("tw_status_sentence", value))
        self.assertEqual(call("tw_fail", 4, b"%s", b"a text"), 4)
        self.assertEqual(call("tw_last_error"), b"a text")
        self.assertEqual(call("tw_fail", 4, None), 4)
        self.assertEqual(call("tw_last_error"), call("tw_status_sentence", 4))

    def test_2_helpers(self):
        self.assertEqual(call("tw_crc32c", 0, b"123456789", 9), 0xE3069283)  # the polynomial's check value
        self.assertEqual((call("tw_crc32c", 5, None, 0), call("tw_crc32c", 5, None, 9)), (5, 0))
        words = (ctypes.c_uint32 * 4)()
        call("tw_random", 0, 0, 0, words)
        self.assertEqual(list(words), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])  # Philox's known answer
        single, eight = (ctypes.c_float * 3)(0.5, -448, 1.07), (ctypes.c_ubyte * 4)()
        self.assertEqual((call("tw_fp8_bytes", 3), call("tw_fp8_bytes", 1025)), (4, 1027))
        call("tw_fp8_encode", single, 3, eight)
        call("tw_fp8_decode", eight, 3, single)
        self.assertEqual(list(single), [0.5, -448, 1.125])
        self.assertGreater(call("tw_clock"), 0)
        call("tw_log", 1, b"%s", b"a line")
        self.assertEqual(lines.pop(), (1, b"a line"))
        self.assertEqual(call("tw_tensor_count", tensors()), COUNT)

    def test_3_lists(self):
        for kind in ["schemes", "gossips", "outers"]:
            self.assertEqual(call(f"tw_{kind}_help", 999, None, 99), 0)
            for index in range(call(f"tw_{kind}_count")):
                self.assertTrue(call(f"tw_{kind}_name", index) and call(f"tw_{kind}_summary", index))
                found = ctypes.c_size_t()
                self.assertEqual(call(f"tw_{kind}_find", call(f"tw_{kind}_name", index), ctypes.byref(found)), 1)
                self.assertEqual(found.value, index)
                page = ctypes.create_string_buffer(call(f"tw_{kind}_help", index, None, 0) + 1)
                call(f"tw_{kind}_help", index, ctypes.addressof(page), len(page))
                for number in range(call(f"tw_{kind}_option_count", index)):
                    option = struct("tw_option_info")
                    ok(f"tw_{kind}_option", index, number, ctypes.byref(option))
                    self.assertIn(b"  " + option.name, page.value)
        self.assertIn(call("tw_gossips_is_synchronous", 0), (0, 1))
        self.assertGreater(call("tw_spec_floor_bytes", b"topk"), 0)
        self.assertEqual({call("tw_schemes_is_experimental", i) for i in range(call("tw_schemes_count") + 1)}, {0, 1})
        spec = ctypes.create_string_buffer(64)
        call("tw_spec_for_run", b"dgc:density=0.5", 320, ctypes.addressof(spec), len(spec))
        self.assertEqual(spec.value, b"dgc:density=0.5,warmup_steps=16")
        self.assertEqual(call("tw_spec_for_run", b"topk", 99, None, 99), 4)
        self.assertEqual(call("tw_spec_for_run", None, 99, ctypes.addressof(spec), len(spec)), 0)
        self.assertEqual(spec.value, b"")

    def test_4_comms(self):
        def work(rank, comm):
            self.assertEqual((call("tw_comm_rank", comm), call("tw_comm_size", comm)), (rank, RANKS))
            self.assertEqual(call("tw_comm_transport", comm), b"threads")
            ok("tw_comm_set_timeout", comm, 60)
            ok("tw_comm_set_patience", comm, 600)
            ok("tw_comm_barrier", comm)
            values = floats(rank, 1)
            ok("tw_comm_allreduce", comm, values, 2)
            self.assertEqual(list(values), [1, 2])
            ok("tw_comm_broadcast", comm, 1, values, 8)
            gathered = floats(0, 0, 0, 0)
            ok("tw_comm_allgather", comm, values, 8, gathered)
            self.assertEqual(list(gathered), [1, 2, 1, 2])
            ok("tw_comm_allreduce", comm, None, 0)  # nothing needs no place
            ok("tw_comm_broadcast", comm, 0, None, 0)
            values = floats(rank, 1)
            ok("tw_comm_broadcast_packed", comm, 1, values, 2, 4)
            self.assertEqual(list(values), [1, 1])
            ok("tw_comm_broadcast_packed", comm, 1, None, 0, 8)
            ok("tw_comm_allgather", comm, None, 0, None)
            self.assertGreater(told("tw_comm_traffic", comm, "tw_traffic").bytes_sent, 0)
            self.assertEqual(call("tw_comm_timeout", comm), 60)
            self.assertEqual(call("tw_comm_patience", comm), 600)
            ops, self_ = struct("tw_transport_ops"), ctypes.c_void_p()
            ok("tw_comm_lend", comm, ctypes.byref(ops), ctypes.byref(self_))
            self.assertEqual(ops.name, b"threads")
            ok("tw_comm_barrier", comm)
            call("tw_comm_destroy", made("tw_comm_create_part", comm, (ctypes.c_int * RANKS)(*range(RANKS)), RANKS))
            call("tw_comm_leave", comm)
            self.assertEqual(call("tw_comm_barrier", comm), binding.constants["TW_ERROR_PEER"])
        on_threads(work)
        call("tw_comm_destroy", made("tw_comm_open", b"solo"))

    def test_5_a_transport_of_its_own(self):
        fields = dict(binding.types["tw_transport_ops"]._fields_)
        gone = []
        refuse = {name: fields[name](lambda *_: binding.constants["TW_ERROR_PEER"])
                  for name in ["start_send", "start_recv", "wait", "poll"]}
        ops = struct("tw_transport_ops", version=binding.constants["TW_TRANSPORT_VERSION"], name=b"python",
                     destroy=fields["destroy"](lambda _: gone.append(1)), **refuse)
        comm = made("tw_comm_create_custom", ctypes.byref(ops), None, 0, 1)
        ok("tw_comm_barrier", comm)
        self.assertEqual(call("tw_comm_transport", comm), b"python")
        call("tw_comm_destroy", comm)
        self.assertEqual(gone, [1, 1])  # and that of a call that had no place for the comm

    def visitor(self):
        """What it is shown, and itself."""
        seen = set()

        def visit(_, entry):
            seen.add(binding.types["tw_remembered"].from_address(entry).what)
            return 0
        return seen, binding.types["tw_state_visit"](visit)

    @staticmethod
    def hand_over(state, where):
        ctypes.c_void_p.from_address(where).value = state.value
        return 0

    def reduce(self, comm, spec, value):
        """A reducer that has taken a step, and the mean."""
        reducer = made("tw_reducer_create", comm, spec, tensors(), 1)
        gradient = floats(*[value] * COUNT)
        ok("tw_reducer_submit", reducer, 0, gradient)
        ok("tw_reducer_wait", reducer)
        return reducer, list(gradient)

    def take_a_step_with(self, reducer):
        """With everything that can be said and asked."""
        values, done = (ctypes.c_double * COUNT)(*[1] * COUNT), ctypes.c_int(0)
        ready = dict(binding.types["tw_gradient"]._fields_)["ready"](lambda _: 1)
        gradient = struct("tw_gradient", data=ctypes.addressof(values), dtype=binding.constants["TW_F64"], ready=ready)
        ok("tw_reducer_submit_with", reducer, 0, ctypes.byref(gradient))
        while not done.value:
            ok("tw_reducer_wait_tensor", reducer, 0, 0.1, ctypes.byref(done))
        done.value = 0
        while not done.value:
            ok("tw_reducer_wait_for", reducer, 0.1, ctypes.byref(done))

    def test_6_reducers(self):
        def work(rank, comm):
            reducer, mean = self.reduce(comm, b"allreduce", rank)
            self.assertEqual(mean, [0.5] * COUNT)
            call("tw_reducer_destroy", reducer)
            reducer, _ = self.reduce(comm, b"dgc-bold:density=0.1,momentum=0.9", rank + 1)
            self.take_a_step_with(reducer)
            nesterov = ctypes.c_int(7)
            self.assertAlmostEqual(call("tw_reducer_momentum", reducer, ctypes.byref(nesterov)), 0.9, 6)
            self.assertEqual(nesterov.value, 0)
            nesterov.value = 7
            self.assertEqual((call("tw_reducer_momentum", None, ctypes.byref(nesterov)), nesterov.value), (0, 0))
            self.assertAlmostEqual(call("tw_reducer_momentum", reducer, None), 0.9, 6)
            nowhere = struct("tw_gradient")
            self.assertEqual(call("tw_reducer_submit_with", reducer, 0, ctypes.byref(nowhere)), binding.constants["TW_ERROR_ARGUMENT"])
            self.assertIn(b"gradient", call("tw_last_error"))
            ok("tw_reducer_set_rate", reducer, 0.1)
            ok("tw_reducer_set_rates", reducer, floats(0.1))
            ok("tw_reducer_set_gradient_scale", reducer, 1)
            self.assertIn(b"dgc", call("tw_reducer_plan", reducer, 0))
            self.assertGreater(call("tw_reducer_state_bytes", reducer), 0)
            self.assertEqual(told("tw_reducer_stats", reducer, "tw_reducer_counts").steps, 2)
            state = made("tw_state_create")
            ok("tw_reducer_save_state", reducer, b"", state)
            ok("tw_reducer_load_state", reducer, b"", state)
            seen, visit = self.visitor()
            ok("tw_reducer_visit_state", reducer, visit, None)
            ok("tw_reducer_fill_state", reducer, visit, None)
            self.assertEqual({b"residual", b"momentum"} & seen, {b"residual", b"momentum"})
            source = binding.types["tw_state_source"](lambda _, old, where: self.hand_over(state, where))
            for_two = made("tw_state_create")
            ok("tw_reducer_regroup_state", b"dgc-bold:density=0.1,momentum=0.9", tensors(), 1, 1, source, None, 0, 2, b"", for_two)
            self.assertGreater(call("tw_state_count", for_two), 0)
            call("tw_state_destroy", for_two)
            call("tw_state_destroy", state)
            call("tw_reducer_destroy", reducer)
        on_threads(work)

    def test_7_gossips(self):
        def work(rank, comm):
            weights, step = floats(*[rank] * COUNT), floats(*[1] * COUNT)
            gossip = made("tw_gossip_create", comm, b"dpsgd", tensors(), 1, pointers(weights))
            state = made("tw_state_create")
            ok("tw_gossip_save_state", gossip, b"", state)
            ok("tw_gossip_load_state", gossip, b"", state)
            seen, visit = self.visitor()
            ok("tw_gossip_visit_state", gossip, visit, None)
            self.assertEqual(seen, {b"weights"})
            source = binding.types["tw_state_source"](lambda _, old, where: self.hand_over(state, where))
            for_two = made("tw_state_create")
            ok("tw_gossip_regroup_state", b"dpsgd", tensors(), 1, 1, source, None, 0, 2, b"", for_two)
            call("tw_state_destroy", for_two)
            call("tw_state_destroy", state)
            ok("tw_gossip_read", gossip, pointers(weights))
            ok("tw_gossip_add", gossip, pointers(step))
            ok("tw_gossip_finish", gossip, pointers(weights))
            self.assertEqual(list(weights), [1] * COUNT)  # rank 0's start, and the mean of the steps
            self.assertEqual(told("tw_gossip_stats", gossip, "tw_gossip_counts").steps, 1)
            call("tw_gossip_destroy", gossip)
            gossip = made("tw_gossip_create", comm, b"adpsgd-random", tensors(), 1, pointers(weights))
            ok("tw_gossip_read", gossip, pointers(weights))
            ok("tw_gossip_step", gossip, pointers(weights))
            ok("tw_gossip_finish", gossip, pointers(weights))
            others = made("tw_gossip_survivors", gossip)
            ok("tw_comm_barrier", others)
            call("tw_comm_destroy", others)
            call("tw_gossip_destroy", gossip)
        on_threads(work)

    def test_6_outer_loop(self):
        def work(rank, comm):
            outer = made("tw_outer_create", comm, b"local:every=2", tensors(), 1)
            weights, event = floats(*[rank] * COUNT), ctypes.c_int()
            ok("tw_outer_show_moments", outer, None, None)
            ok("tw_outer_begin", outer, pointers(weights))
            self.assertEqual(list(weights), [0] * COUNT)
            ok("tw_outer_set_weight", outer, 1)
            ok("tw_outer_average", outer, pointers(weights))
            state = made("tw_state_create")
            ok("tw_outer_save_state", outer, b"", state)
            ok("tw_outer_save_apart", outer, b"", state)
            for step in range(2):
                weights[0] += rank
                self.assertEqual(call("tw_outer_is_due", outer), step)
                ok("tw_outer_step", outer, pointers(weights), ctypes.byref(event))
                self.assertEqual(call("tw_outer_has_met", outer), step)
            self.assertEqual(event.value, binding.constants["TW_OUTER_APPLIED"])
            self.assertEqual(weights[0], 1)  # the mean of 0 and 2
            ok("tw_outer_finish", outer, pointers(weights))
            ok("tw_outer_load_state", outer, b"", state)
            ok("tw_outer_read", outer, pointers(weights))
            self.assertEqual(weights[0], 0)
            self.assertEqual(told("tw_outer_stats", outer, "tw_outer_counts").steps, 2)
            self.assertIn(b"allreduce", call("tw_outer_plan", outer, 0))
            source = binding.types["tw_state_source"](lambda _, old, where: self.hand_over(state, where))
            other = made("tw_state_create")
            ok("tw_outer_regroup_state", b"local:every=2", tensors(), 1, 2, source, None, 0, 1, b"", other)
            weights[0] = 3
            ok("tw_outer_rebase", b"local:every=2", tensors(), 1, b"", state, other, pointers(weights))
            self.assertEqual(weights[0], 3)  # from where it was to the same place
            for one in (state, other):
                call("tw_state_destroy", one)
            call("tw_outer_destroy", outer)
        on_threads(work)

    def test_6_clusters(self):
        """Rank 0 has a model of its own, and of the other one rank 1 has the halves as two ranges."""
        half = COUNT // 2
        parts = [[(0, COUNT)], [(half, half), (0, half)]]

        def work(rank, comm):
            ranges = (binding.types["tw_range"] * len(parts[rank]))(*parts[rank])
            clusters = made("tw_clusters_create", comm, rank, COUNT, ranges, len(ranges))
            values = [floats(*[2 * rank + first] * count) for first, count in parts[rank]]
            ok("tw_clusters_average", clusters, pointers(*values))
            call("tw_clusters_destroy", clusters)
            self.assertEqual([list(value) for value in values],
                             [[1] * half + [1 + half / 2] * half] if rank == 0 else [[1 + half / 2] * half, [1] * half])
        on_threads(work)

    def test_7_states(self):
        state, shape, values = made("tw_state_create"), (ctypes.c_size_t * 1)(3), floats(1, 2, 3)
        ok("tw_state_put", state, b"t", binding.constants["TW_F32"], 1, shape, values)
        ok("tw_state_put_text", state, b"k", b"v")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s").encode()
            ok("tw_state_save", state, path)
            loaded = made("tw_state_load", path)
        back, value, entry = floats(0, 0, 0), ctypes.c_char_p(), struct("tw_state_entry")
        ok("tw_state_get", loaded, b"t", binding.constants["TW_F32"], 3, back)
        self.assertEqual(list(back), [1, 2, 3])
        self.assertEqual(call("tw_state_count", loaded), 1)
        self.assertEqual([call("tw_state_index", loaded, name) for name in (b"t", b"u")], [0, 1])
        ok("tw_state_at", loaded, 0, ctypes.byref(entry))
        self.assertEqual((entry.name, entry.bytes), (b"t", 12))
        self.assertEqual(call("tw_state_text", loaded, b"k"), b"v")
        self.assertEqual(call("tw_state_text_at", loaded, 0, ctypes.byref(value)), b"k")
        self.assertEqual(value.value, b"v")
        self.assertEqual(call("tw_state_text_at", loaded, 0, None), b"k")
        call("tw_state_destroy", loaded)
        call("tw_state_destroy", state)

    def answer(self, scheme):
        """Plays a lone rank's rounds; how many there were."""
        turn, rounds = binding.types["tw_round"](), 0
        while True:
            ok("tw_scheme_next", scheme, ctypes.byref(turn))
            if turn.kind == binding.constants["TW_ROUND_DONE"]:
                return rounds
            rounds += 1
            if turn.kind in (binding.constants["TW_ROUND_ALLGATHER"], binding.constants["TW_ROUND_BROADCAST"]):
                packet, size = (ctypes.c_void_p * 1)(turn.data), (ctypes.c_size_t * 1)(turn.size)
                turn.packets, turn.sizes = ctypes.addressof(packet), ctypes.addressof(size)

    def test_8_schemes_by_hand(self):
        scheme, gradient = made("tw_scheme_create", b"dgc-bold:density=0.1,clip=1", tensors(), 1, 0, 1), floats(*range(COUNT))
        ok("tw_scheme_set_rate", scheme, 0.1)
        ok("tw_scheme_set_rates", scheme, floats(0.1))
        ok("tw_scheme_set_gradient_scale", scheme, 1)
        ok("tw_scheme_begin", scheme, pointers(gradient), -1)
        self.assertGreater(self.answer(scheme), 0)
        ok("tw_scheme_revert", scheme)
        for absent in ((ctypes.c_ubyte * 1)(0), None):
            ok("tw_scheme_begin_without", scheme, pointers(gradient), absent, -1)
            self.answer(scheme)
        self.assertEqual(call("tw_scheme_clip", scheme), 1)
        self.assertAlmostEqual(call("tw_scheme_momentum", scheme, None), 0.9, 6)
        self.assertIn(b"dgc", call("tw_scheme_plan", scheme, 0))
        self.assertGreater(call("tw_scheme_state_bytes", scheme), 0)
        self.assertGreater(told("tw_scheme_cost", scheme, "tw_cost").packet_bytes, 0)
        state = made("tw_state_create")
        ok("tw_scheme_save_state", scheme, b"", state)
        ok("tw_scheme_load_state", scheme, b"", state)
        ok("tw_scheme_visit_state", scheme, self.visitor()[1], None)
        ok("tw_scheme_fill_state", scheme, self.visitor()[1], None)
        call("tw_state_destroy", state)
        call("tw_scheme_destroy", scheme)

    def test_8_moments(self):
        first, second, steps = floats(*[1] * COUNT), floats(*[4] * COUNT), ctypes.c_uint64()
        got_first, got_second = floats(*[0] * COUNT), floats(*[0] * COUNT)
        state = made("tw_state_create")
        source = binding.types["tw_state_source"](lambda _, old, where: self.hand_over(state, where))
        ok("tw_reducer_state_of_moments", b"dgc-adam", tensors(), 1, 7, pointers(first), pointers(second), 0, 1, b"", state)
        ok("tw_reducer_moments_of_state", b"dgc-adam", tensors(), 1, 1, source, None, b"", ctypes.byref(steps),
           pointers(got_first), pointers(got_second))
        self.assertEqual((list(got_first), list(got_second), steps.value), (list(first), list(second), 7))
        call("tw_state_destroy", state)

    def with_rounds_of_its_own(self, fields):
        """A scheme that adds gradients up, counts its steps and skips the second."""
        one = binding.constants["TW_F32"]

        def go(_, scheme, phase, turn):
            turn = binding.types["tw_round"].from_address(turn)
            if phase == 0 and not call("tw_scheme_is_absent", scheme, 0):
                at, scale = call("tw_scheme_gradient", scheme, 0), call("tw_scheme_scale", scheme)
                gradient = (ctypes.c_float * COUNT).from_address(at)
                for i in range(COUNT * call("tw_scheme_is_finite", scheme)):
                    gradient[i] *= scale
                turn.kind, turn.values, turn.count, turn.dtype = binding.constants["TW_ROUND_ALLREDUCE"], at, COUNT, one
            else:
                turn.kind = binding.constants["TW_ROUND_DONE"]
                if call("tw_scheme_step", scheme) == 1:
                    call("tw_scheme_skip", scheme)
            return 0

        count = floats(5)
        kept.append(count)

        def walk(_, scheme, visitor):
            kind = binding.constants["TW_STATE_SAME"]
            return call("tw_walk_visit", visitor, b"count", b"w", kind, one, 1, count)

        return struct("tw_scheme_definition", name=b"python_sum", summary=b"an all-reduce, by a callback", floor_bytes=4,
                      option_size=ctypes.sizeof(binding.types["tw_scheme_option"]), next=fields["next"](go),
                      walk=fields["walk"](walk))

    def play_own_rounds(self, rank, comm):
        reducer, mean = self.reduce(comm, b"python_sum:min_elements=1", rank)
        self.assertEqual(mean, [0.5] * COUNT)
        gradient = floats(*[1] * COUNT)
        ok("tw_reducer_submit", reducer, 0, gradient)
        self.assertEqual(call("tw_reducer_wait", reducer), binding.constants["TW_SKIPPED"])
        state, got = made("tw_state_create"), floats(0)
        ok("tw_reducer_save_state", reducer, b"", state)
        ok("tw_state_get", state, b"count/w", binding.constants["TW_F32"], 1, got)
        self.assertEqual(got[0], 5)
        call("tw_state_destroy", state)
        call("tw_reducer_destroy", reducer)

    def test_8_schemes_from_outside(self):
        fields, seen = dict(binding.types["tw_scheme_definition"]._fields_), []

        def choose(_, scheme, tensor, values, most, index, value):
            shape = (ctypes.c_size_t * binding.constants["TW_MAX_DIMS"])()
            seen.append((call("tw_scheme_rank", scheme), call("tw_scheme_size", scheme), call("tw_scheme_tensors", scheme),
                         call("tw_scheme_tensor_name", scheme, tensor), call("tw_scheme_elements", scheme, tensor),
                         call("tw_scheme_shape", scheme, tensor, shape), shape[0],
                         call("tw_scheme_is_compressed", scheme, tensor), call("tw_scheme_step", scheme)))
            return call("tw_scheme_choose_largest", scheme, tensor, values, most, 0, index, value)

        before = len(blocks)
        definition = struct("tw_scheme_definition", name=b"python_topk", summary=b"the largest, by a callback",
                            floor_bytes=12, option_size=ctypes.sizeof(binding.types["tw_scheme_option"]),
                            density=fields["density"](lambda _: 0.25), choose=fields["choose"](choose))
        rounds = self.with_rounds_of_its_own(fields)
        kept.extend([definition, rounds])
        ok("tw_scheme_register", ctypes.byref(definition))
        ok("tw_scheme_register", ctypes.byref(rounds))
        ok("tw_plugin_load", PLUGIN.encode())
        kept.append(len(blocks) - before)  # the library never lets go of a scheme
        on_threads(self.play_own_rounds)
        for spec in [b"python_topk:min_elements=1", b"hard:min_elements=1"]:
            on_threads(lambda rank, comm: call("tw_reducer_destroy", self.reduce(comm, spec, 1)[0]))
        self.assertEqual(sorted(seen), [(rank, RANKS, 1, b"w", COUNT, 2, 8, 1, 0) for rank in range(RANKS)])

    def test_8_worlds(self):
        seen = []

        def worker(_, rank, comm):
            call("tw_world_compute", 2)
            seen.append((rank, call("tw_comm_size", comm), call("tw_clock")))
            call("tw_world_kill")

        options = struct("tw_world_options", workers=1, bandwidth=1e9)
        world, run = made("tw_world_create", ctypes.byref(options)), binding.types["tw_world_worker"](worker)
        ok("tw_world_run", world, run, None)
        self.assertEqual(seen, [(0, 1, 2)])
        self.assertEqual(call("tw_world_seconds", world), 2)
        self.assertEqual(call("tw_world_bytes", world, 0), 0)
        call("tw_world_destroy", world)
        ok("tw_world_play", ctypes.byref(options), run, None)
        self.assertEqual(len(seen), 2)

    def test_8_time(self):
        answers = dict(clock=lambda thread: 7 * thread, wait=lambda *_: 1, wake=lambda *_: None, start=lambda *_: 0, join=lambda *_: None,
                       charge=lambda *_: None)
        ops = struct("tw_time_ops", **{name: kind(answers[name]) for name, kind in binding.types["tw_time_ops"]._fields_ if name in answers})
        seen = []

        def take():
            ok("tw_time_take", ctypes.byref(ops), 1)
            seen.extend([call("tw_clock"), functions["tw_time_take"](ctypes.byref(ops), 2), call("tw_clock")])
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        self.assertEqual(seen, [7, binding.constants["TW_ERROR_ORDER"], 7])
        for name in answers:
            lacking = struct("tw_time_ops", **{other: kind(answers[other]) for other, kind in binding.types["tw_time_ops"]._fields_
                                               if other in answers and other != name})
            self.assertEqual(functions["tw_time_take"](ctypes.byref(lacking), 1), binding.constants["TW_ERROR_ARGUMENT"], name)

    def test_8_plans(self):
        line, text, told = struct("tw_world_options"), ctypes.create_string_buffer(4096), []
        ok("tw_line_read", b"1Mbit,1ms", ctypes.byref(line))
        self.assertEqual(call("tw_line_text", ctypes.byref(line), text, 64), len(text.value))
        self.assertEqual(text.value, b"1Mbit,1ms")
        self.assertEqual(call("tw_line_text", ctypes.byref(line), None, 0), len(text.value))
        fields = dict(binding.types["tw_plan_question"]._fields_)
        tell = fields["told"](lambda _, line: told.append(line))
        table = tensors()
        question = struct("tw_plan_question", tensors=ctypes.addressof(table), tensor_count=1, workers=2, steps=1, pass_seconds=1,
                          bandwidth=line.bandwidth, latency=line.latency, told=tell, simulate=ctypes.cast(functions["tw_world_play"], fields["simulate"]))
        plan = made("tw_plan_make", ctypes.byref(question))
        self.assertEqual(len(told), call("tw_plan_count", plan))
        row = struct("tw_plan_row")
        ok("tw_plan_row_at", plan, call("tw_plan_choice", plan), ctypes.byref(row))
        self.assertEqual(row.spec, b"allreduce")
        sent = ctypes.c_double()
        ok("tw_plan_bytes", ctypes.byref(question), row.spec, ctypes.byref(sent))
        self.assertEqual(sent.value, row.bytes_per_step)
        self.assertGreater(call("tw_plan_text", plan, text, 4096), len(call("tw_plan_why", plan)))
        self.assertEqual(call("tw_plan_text", plan, None, 0), len(text.value))
        call("tw_plan_destroy", plan)
        ok("tw_plan_can_switch", b"bf16")

        def hand_over(rank, comm):
            reducer = made("tw_reducer_create", comm, b"allreduce", tensors(), 1)
            held = (ctypes.c_float * COUNT)()
            ok("tw_reducer_hand_over", reducer, (ctypes.c_void_p * 1)(ctypes.addressof(held)))
            call("tw_reducer_destroy", reducer)
        on_threads(hand_over)

        watch, middle = made("tw_watch_create", 3), (ctypes.c_double * 2)()
        self.assertEqual([call("tw_watch_add", watch, 8, 1, middle) for _ in range(3)], [0, 0, 1])
        self.assertEqual((*middle, call("tw_watch_judge", watch, middle, 1)), (8, 1, 1))
        self.assertEqual((call("tw_watch_judge", None, middle, 1), call("tw_watch_judge", watch, None, 1)), (1, 1))
        call("tw_watch_destroy", watch)

        noise, ready = (ctypes.c_float * (2 * COUNT + binding.constants["TW_NOISE_MARGIN"]))(), []
        ok("tw_phantom_noise", noise, len(noise), 1)
        became = binding.types["tw_phantom_ready"](lambda _: ready.append(call("tw_phantom_pass", 1, 1, 1)))

        def work(rank, comm):
            phantom = made("tw_phantom_create", comm, b"topk", tensors(), 1, noise, 1)
            ok("tw_phantom_step", phantom, 0, became, None)
            ok("tw_phantom_step", phantom, 1, binding.types["tw_phantom_ready"](), None)
            ok("tw_phantom_finish", phantom, None)
            call("tw_phantom_destroy", phantom)
        on_threads(work)
        self.assertEqual(len(ready), RANKS)

    @unittest.skipUnless("thinwire_sealed" in LIBRARIES, "built without libthinwire_sealed")
    def test_8_sealed(self):
        key, exposed = (ctypes.c_ubyte * binding.constants["TW_SEAL_KEY_BYTES"])(), ctypes.c_int(7)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "key")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(descriptor, bytes(range(128, 160)))
            os.close(descriptor)
            ok("tw_seal_read_key", path.encode(), key, ctypes.byref(exposed))
            ok("tw_seal_read_key", path.encode(), key, None)
        for secret, place in ((None, ctypes.c_void_p()), (key, None)):  # the comm that it was given is destroyed, too
            lone = (ctypes.c_void_p * 1)()
            ok("tw_comm_create_threads", 1, lone)
            self.assertEqual(functions["tw_comm_create_sealed"](lone[0], secret, len(key), place and ctypes.byref(place)),
                             binding.constants["TW_ERROR_ARGUMENT"])
            self.assertIn(b"key" if secret is None else b"comm", call("tw_last_error"))
        self.assertEqual((bytes(key), exposed.value), (bytes(range(128, 160)), 0))

        def work(rank, comm):
            values = floats(rank)
            ok("tw_comm_allreduce", comm, values, 1)
            self.assertEqual(values[0], 1)
        inner, comms = (ctypes.c_void_p * RANKS)(), [None] * RANKS
        ok("tw_comm_create_threads", RANKS, inner)

        def seal(rank):
            comms[rank] = made("tw_comm_create_sealed", ctypes.c_void_p(inner[rank]), key, len(key))
        together(seal)
        on_ranks(work, comms)

    def test_8_folder(self):
        comms = [None] * RANKS
        with tempfile.TemporaryDirectory() as folder:
            def join(rank):
                comms[rank] = made("tw_folder_join", folder.encode(), rank, RANKS, ctypes.c_double(60),
                                   binding.types["tw_folder_stopped"](), None)
            together(join)
            on_ranks(lambda rank, comm: ok("tw_comm_barrier", comm), comms)

    @unittest.skipUnless("thinwire_tcp" in LIBRARIES, "built without libthinwire_tcp")
    def test_8_tcp(self):
        options = struct("tw_tcp_options", bind=b"127.0.0.1")
        ends = [made("tw_tcp_listen", ctypes.byref(options)) for _ in range(RANKS)]
        addresses = (ctypes.c_char_p * RANKS)(*(call("tw_tcp_address", end) for end in ends))
        comms = [None] * RANKS

        def connect(rank):
            comms[rank] = made("tw_tcp_connect", ends[rank], rank, RANKS, addresses, 60)

        def join(rank):
            comms[rank] = made("tw_tcp_join", meeting, -1, RANKS, ctypes.byref(options), 60)

        first = free_ports(1 + RANKS)  # of the meeting, and of the ranks, who must not take it
        meeting, options.first_port, options.last_port = f"127.0.0.1:{first}".encode(), first + 1, first + RANKS
        for open_one in [connect, join]:
            together(open_one)
            on_ranks(lambda rank, comm: ok("tw_comm_barrier", comm), comms)
        last = ctypes.c_char_p(b"?")
        self.assertEqual((call("tw_tcp_refused", None, ctypes.byref(last)), last.value), (0, b""))
        for end in [*ends, made("tw_tcp_listen", None)]:
            self.assertEqual(call("tw_tcp_refused", end, None), 0)
            call("tw_tcp_destroy", end)
        self.assertEqual(call("tw_tcp_join", b"no port", 0, 1, None, 1, ctypes.byref(end)), binding.constants["TW_ERROR_ARGUMENT"])

    @unittest.skipUnless("thinwire_tcp" in LIBRARIES, "built without libthinwire_tcp")
    def test_8_members(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            meeting = f"127.0.0.1:{free.getsockname()[1]}".encode()
        tcp, options = struct("tw_tcp_options"), struct("tw_members_options", grace=10.0)
        with mock.patch.dict(os.environ, THINWIRE_BIND="127.0.0.1", THINWIRE_STREAMS="2", THINWIRE_REACHABLE="yes"):
            ok("tw_members_environment", ctypes.byref(tcp))
        self.assertEqual((tcp.bind, tcp.streams, tcp.behind), (b"127.0.0.1", 2, 0))
        self.assertEqual(call("tw_members_join", b"no port", b"", None, None, ctypes.byref(ctypes.c_void_p())),
                         binding.constants["TW_ERROR_ARGUMENT"])
        members = made("tw_members_join", meeting, b"the spec local", ctypes.byref(options), ctypes.byref(tcp))
        self.assertEqual((call("tw_members_address", members), call("tw_members_opened", members)), (meeting, 1))
        generation, due = struct("tw_generation"), ctypes.c_int(7)
        comm = made("tw_members_next", members, 0, 0, ctypes.byref(generation))
        self.assertEqual((generation.number, generation.size, generation.donor, generation.behind), (1, 1, 0, 0))
        ok("tw_members_due", members, comm, 0, ctypes.byref(due))
        self.assertEqual(due.value, 0)
        call("tw_comm_destroy", comm)
        call("tw_members_destroy", members)

    def test_8_what_opens_a_transport(self):
        """It has no prototype in a header."""
        for name, library in zip(LIBRARIES, libraries):
            if name not in ("thinwire", "thinwire_sim"):
                self.assertEqual(library.tw_transport_open(None), binding.constants["TW_ERROR_ARGUMENT"], name)
                self.assertIn(b"comm", call("tw_last_error"))

    def test_9_nothing_was_left_out(self):
        self.assertEqual(sorted(set(functions) - called), [])
        self.assertEqual(sorted(set(wrong)), [])

    def test_9_what_was_told_and_taken(self):
        self.assertTrue(any(b"compresses" in text for _, text in lines), lines)
        self.assertEqual(len(blocks), sum(each for each in kept if isinstance(each, int)))
        call("tw_set_log", binding.types["tw_log_fn"](), None)


if __name__ == "__main__":
    set_hooks()
    unittest.main(argv=sys.argv[:1])
