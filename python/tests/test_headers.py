#!/usr/bin/env python3
"""The table of _library.py says what the public headers say. `THINWIRE_INCLUDE` is the folder of these headers."""

import ctypes
import logging
import os
import pathlib
import re
import unittest
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p

import ranks  # noqa: F401: finds the sources
from thinwire import _library, errors, outer, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = pathlib.Path(os.environ.get("THINWIRE_INCLUDE", ROOT / "include" / "thinwire"))
HEADERS = [f"thinwire{part}.h" for part in ("", "_gossip", "_outer", "_clusters", "_tcp", "_members", "_folder", "_sealed", "_sim",
                                       "_plan", "_by_hand")]
PLAIN = {"int": c_int, "size_t": c_size_t, "uint64_t": c_uint64, "double": c_double, "float": c_float, "tw_dtype": c_int,
         "tw_status": c_int, "tw_memory_kind": c_int,
         "tw_option_kind": c_int, "int64_t": c_int64, "tw_members_wish": c_int, "tw_plan_optimizer": c_int, "tw_plan_kind": c_int,
         "tw_state_source": _library.Source, "tw_world_worker": c_void_p, "tw_log_fn": _library.Log, "tw_folder_stopped": _library.Stopped}
TO_PLAIN = {"int": POINTER(c_int), "tw_outer_event": POINTER(c_int), "tw_members_outcome": POINTER(c_int),
            "size_t": POINTER(c_size_t), "char": c_char_p}


def headers():
    text = "\n".join((INCLUDE / name).read_text() for name in HEADERS if (INCLUDE / name).exists())
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S).replace("#define TW_API", "#define")


def meant(text):
    """The ctypes type of a C type: structures by name, and what is opaque, or data, is an address."""
    kind = re.sub(r"\bconst\b|\bstruct\b", "", text).replace(" ", "")
    if kind == "unsignedchar":  # an array of bytes, which is an address
        return c_void_p
    name, stars = kind.rstrip("*"), len(kind) - len(kind.rstrip("*"))
    if name in _library.STRUCTURES:
        return POINTER(_library.STRUCTURES[name]) if stars else _library.STRUCTURES[name]
    if name == "void" and not stars:
        return None
    if name == "char" and stars == 2:
        return POINTER(c_char_p)
    return [PLAIN.get(name), TO_PLAIN.get(name, c_void_p), POINTER(c_void_p)][stars]


def split(declaration):
    """The type of `const char *name` or `size_t name`."""
    return re.match(r"(.*?)\w+(?:\[\w+\])?$", declaration.strip(), re.S).group(1)


def functions(text):
    found = {}
    for result, name, arguments in re.findall(r"TW_API\s+([\w\s\*]+?)(\w+)\(([^;]*?)\)\s*;", text):
        words = [] if arguments.strip() == "void" else re.split(r",", arguments)
        result = _library.Status if result.strip() == "tw_status" else meant(result)
        found[name] = (result, *(meant(split(word)) for word in words))
    return found


def fields(text, name):
    body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name), text, re.S).group(1)
    callbacks = {call: None for call in re.findall(r"\(\*(\w+)\)\([^)]*\)", body)}
    body = re.sub(r"[\w ]+\(\*(\w+)\)\([^)]*\)", r"callback \1", body)
    for line in filter(None, map(str.strip, body.split(";"))):
        kind, names = re.match(r"((?:const\s+)?\w+\s*)(.*)", line, re.S).groups()
        for one in names.split(","):
            stars, field, length = re.match(r"\s*(\**)\s*(\w+)(?:\[(\w+)\])?", one).groups()
            yield field, "callback" if field in callbacks else kind.strip() + stars, length


class HeadersTest(unittest.TestCase):
    def setUp(self):
        self.text = headers()

    def test_functions_are_declared_as_in_the_headers(self):
        there = functions(self.text)
        tables = {**_library.FUNCTIONS, **_library.FOLDER_FUNCTIONS, **_library.SIM_FUNCTIONS, **(_library.TCP_FUNCTIONS if "tw_tcp_listen" in there else {}),
                  **(_library.SEALED_FUNCTIONS if "tw_seal_read_key" in there else {})}
        for name, mine in tables.items():
            with self.subTest(name):
                self.assertEqual(mine, there[name])

    def test_structures_are_laid_out_as_in_the_headers(self):
        for name, structure in _library.STRUCTURES.items():
            if name not in self.text:
                continue
            with self.subTest(name):
                there = list(fields(self.text, name))
                self.assertEqual([field for field, _, _ in there], [field for field, *_ in structure._fields_])
                for (field, kind, length), (_, mine) in zip(there, structure._fields_):
                    if kind == "callback":
                        self.assertTrue(issubclass(mine, ctypes._CFuncPtr), field)
                        continue
                    length = {"TW_MAX_DIMS": _library.MAX_DIMS}.get(length, length)
                    one = c_char_p if field == "key" else meant(kind)
                    self.assertEqual(mine, one * int(length) if length else one, field)

    def test_numbers_are_those_of_the_headers(self):
        statuses = dict(re.findall(r"X\((TW_\w+), (\d+),", self.text))
        for name, value in [("TW_OK", errors.OK), ("TW_ERROR_SPEC", errors.SPEC), ("TW_ERROR_PEER", errors.PEER),
                            ("TW_SKIPPED", errors.SKIPPED)]:
            self.assertEqual(int(statuses[name]), value, name)
        for event in outer.Event:
            self.assertIn(f"TW_OUTER_{event.name} = {event.value}", self.text)
        for level, number in (("NOTE", logging.INFO), ("WARNING", logging.WARNING)):
            self.assertIn(f"TW_LOG_{level} = {[n for n, there in _library.LEVELS.items() if there == number][0]}", self.text)
        short = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}
        for number, name in enumerate(table.DTYPES):
            word, bits = re.match(r"([a-z]+)(\d+)", name).groups()
            self.assertIn(f"TW_{(short[word] + bits).upper()} = {number}", self.text)
        self.assertIn(f"#define TW_MAX_DIMS {_library.MAX_DIMS}", self.text)
        major, minor = (re.search(rf"TW_VERSION_{part} (\d+)", self.text).group(1) for part in ("MAJOR", "MINOR"))
        self.assertEqual(_library.INTERFACE, f"{major}.{minor}")


if __name__ == "__main__":
    unittest.main()
