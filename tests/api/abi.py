#!/usr/bin/env python3
"""The interface may grow and does not change: what docs/abi.md promises, tried.

`abi.py CC HEADERS KEPT LIBRARY PROGRAM`: the compiler, include/, the folder that keeps the headers of each release
(KEPT/0.1/thinwire/thinwire.h), libthinwire.so, and older.c, which is compiled against a header that knows less.

Headers say all of an interface: arguments_complete compares their functions with those of the libraries, and the
compiler compares prototypes with definitions. So two sets of headers are compared, each compiled into a library of
functions that do nothing. abigail's abidw says what is in it; abidiff's report goes with every complaint."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

CC, HEADERS, KEPT, LIBRARY, PROGRAM = sys.argv[1], *(pathlib.Path(word) for word in sys.argv[2:6])
WITHOUT_ABIGAIL = "no abidw (install abigail-tools)"


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)


def must(*command):
    done = run(*command)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


# ---- a library of functions that do nothing ---------------------------------------------------------------------------


def definitions(text):
    """Of each function in a header one that may be called and does nothing."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^[ \t]*#.*?(?<!\\)$", " ", text, flags=re.S | re.M)
    for result, name, arguments in re.findall(r"TW_API\s([^;(]*?)(\w+)\s*\(([^()]*)\)", text):
        yield f"{result} {name}({arguments}) {{ __builtin_trap(); }}"


def compile_headers(include, folder):
    """A library with the interface of the headers in include/thinwire."""
    names = sorted(path.name for path in (include / "thinwire").glob("*.h"))
    names = [name for name in names if name != "thinwire_mpi.h"]  # half of its types are MPI's
    texts = [(include / "thinwire" / name).read_text() for name in names]
    source = "".join(f"#include <thinwire/{name}>\n" for name in names)
    source += "\n".join(line for text in texts for line in definitions(text)) + "\n"
    # What only callers use, such as the table that a transport hands over, is in a library's interface if it says so.
    types = {name for text in texts for name in re.findall(r"^\} (tw_\w+);", text, flags=re.M)}
    source += "".join(f"__attribute__((visibility(\"default\"))) {name} *of_{name};\n" for name in sorted(types))
    (folder / "all.c").write_text(source)
    must(CC, "-g", "-w", "-fPIC", "-shared", "-std=c11", f"-I{include}", folder / "all.c", "-o", folder / "all.so")
    must("abidw", "--no-show-locs", "--no-comp-dir-path", "--no-corpus-path", "--load-all-types", "--out-file",
         folder / "all.abi", folder / "all.so")
    return folder / "all.abi"


# ---- what is in it -----------------------------------------------------------------------------------------------------


class Interface:
    def __init__(self, path):
        root = xml.etree.ElementTree.parse(path).getroot()
        self.types = {node.get("id"): node for node in root.iter() if node.get("id")}
        self.functions = {node.get("name"): self.function(node) for node in root.iter("function-decl")}
        self.structs = {node.get("name"): node for node in root.iter("class-decl")
                        if node.get("is-declaration-only") != "yes" and node.get("name", "").startswith("tw_")}
        self.enums = {node.get("name"): {value.get("name"): int(value.get("value")) for value in node.iter("enumerator")}
                      for node in root.iter("enum-decl")}

    def say(self, identity):
        """A type as one would write it, down to the names of structs and enums."""
        node = self.types.get(identity)
        if node is None:
            return identity
        inner = self.say(node.get("type-id")) if node.get("type-id") else ""
        if node.tag == "pointer-type-def":
            return f"{inner} *"
        if node.tag == "qualified-type-def":
            return f"{inner} const" if node.get("const") == "yes" else inner
        if node.tag == "array-type-def":
            return f"{inner} [{','.join(part.get('length') for part in node.iter('subrange'))}]"
        if node.tag == "typedef-decl":
            return node.get("name") if node.get("name").startswith("tw_") else inner
        if node.tag == "function-type":
            return self.function(node)
        return node.get("name") or node.tag

    def function(self, node):
        arguments = [self.say(part.get("type-id")) if part.get("type-id") else "..." for part in node.findall("parameter")]
        return f"{self.say(node.find('return').get('type-id'))} ({', '.join(arguments)})"

    def members(self, struct):
        """{name: (offset, type)}, in bits."""
        return {part.find("var-decl").get("name"):
                (int(part.get("layout-offset-in-bits")), self.say(part.find("var-decl").get("type-id")))
                for part in self.structs[struct].findall("data-member")}

    def bits(self, struct):
        return int(self.structs[struct].get("size-in-bits"))


# ---- the promise -------------------------------------------------------------------------------------------------------


def struct_complaints(name, old, new):
    before, after = old.members(name), new.members(name)
    for member, place in before.items():
        if member == "reserved":
            continue  # what becomes of the room is for the struct's size to tell
        if member not in after:
            yield f"{name}.{member} is gone"
        elif after[member] != place:
            yield f"{name}.{member} was a {place[1]} at bit {place[0]} and is a {after[member][1]} at bit {after[member][0]}"
    free = before["reserved"][0] if "reserved" in before else old.bits(name)
    for member, (offset, _) in after.items():
        if member not in before and offset < free:
            yield f"{name}.{member} is in front of what was there"
    sized = next(iter(before), None) == "struct_size"
    if new.bits(name) < old.bits(name) or (new.bits(name) != old.bits(name) and not sized):
        yield f"{name} had {old.bits(name)} bits and has {new.bits(name)}"


def complaints(old, new):
    for name, form in old.functions.items():
        if name not in new.functions:
            yield f"{name} is gone"
        elif new.functions[name] != form:
            yield f"{name} was a {form} and is a {new.functions[name]}"
    for name in old.structs:
        yield from struct_complaints(name, old, new) if name in new.structs else [f"{name} is gone"]
    for name, values in old.enums.items():
        for word, value in values.items():
            if new.enums.get(name, {}).get(word) != value:
                yield f"{word} was {value} and is {new.enums.get(name, {}).get(word)}"


def compare(old, new):
    """What the new interface broke, with abidiff's report. Two headers that abidiff finds alike are."""
    report = run("abidiff", old, new)
    if report.returncode & 3:
        raise AssertionError(f"abidiff: {report.returncode}\n{report.stdout}\n{report.stderr}")
    found = list(complaints(Interface(old), Interface(new)))
    return found + [report.stdout] if found else []


# ---- tests -------------------------------------------------------------------------------------------------------------


def edited(folder, name, edits):
    """A copy of the headers in which each edit (file, old, new) was made."""
    include = folder / name
    shutil.copytree(HEADERS / "thinwire", include / "thinwire")
    for file, old, new in edits:
        path = include / "thinwire" / file
        text, count = re.subn(old, new, path.read_text())
        if count != 1:
            raise AssertionError(f"{file} has {count} of {old}")
        path.write_text(text)
    return include


ROOM = r"const void \*reserved\[2\];( +/\* NULL \*/\n\} tw_tensor;)"
# Edits that are made together, as no two of them are about the same struct: to compile and to look takes nearly all of the time.
GROWTH = [{
    "a field in reserved room": ("thinwire.h", ROOM, r"const float *rates; const void *reserved[1];\1"),
    "a field at the end of a sized struct": ("thinwire_by_hand.h", r"\} tw_cost;", r"uint64_t later; } tw_cost;"),
    "a field in a transport's table": ("thinwire_plugin.h", r"\} tw_transport_ops;", r"int (*later)(void *self); } tw_transport_ops;"),
    "a function": ("thinwire.h", r"(TW_API int tw_comm_rank)", r"TW_API int tw_comm_new(const tw_comm *comm);\n\1"),
    "a value of an enum": ("thinwire.h", r"TW_BF16 = 8", r"TW_BF16 = 8, TW_I8 = 9"),
}, {
    "all of the reserved room": ("thinwire.h", ROOM, r"const float *rates; uint64_t more;\1"),
}]
BREAKAGE = [{
    "tw_tensor.dims": ("thinwire.h", r"size_t dims;( +/\* 0 )", r"\1"),
    "tw_round had": ("thinwire_by_hand.h", r"void \*reserved\[2\];( +/\* NULL \*/\n\} tw_round;)", r"\1"),
    "tw_cost.warmup": ("thinwire_by_hand.h", r"(size_t struct_size;\n    )(int warmup;)", r"\1uint64_t early; \2"),
    "tw_transport_ops.poll": ("thinwire_plugin.h", r"int \(\*poll\)\(void \*self", r"long (*poll)(void *self"),
    "tw_comm_rank is gone": ("thinwire.h", r"TW_API int tw_comm_rank\(const tw_comm \*comm\);", r""),
    "tw_scheme_clip": ("thinwire_by_hand.h", r"TW_API double tw_scheme_clip", r"TW_API float tw_scheme_clip"),
    "tw_comm_barrier": ("thinwire.h", r"tw_comm_barrier\(tw_comm \*comm\)", r"tw_comm_barrier(tw_comm *comm, int how)"),
    "TW_BF16": ("thinwire.h", r"TW_BF16 = 8", r"TW_BF16 = 9"),
    "TW_SKIPPED": ("thinwire.h", r"TW_SKIPPED, 13", r"TW_SKIPPED, 14"),
}, {
    "tw_tensor.shape": ("thinwire.h", r"size_t shape\[TW_MAX_DIMS\]", r"uint32_t shape[TW_MAX_DIMS]"),
    "tw_round.stream": ("thinwire_by_hand.h", r"(    tw_memory_kind memory;\n)(    void \*stream;\n)", r"\2\1"),
    "tw_cost.exact_bytes is gone": ("thinwire_by_hand.h", r"uint64_t exact_bytes;", r""),
}, {
    "tw_tensor had": ("thinwire.h", ROOM, r"const void *reserved[4];\1"),
}, {
    "tw_tensor.rates": ("thinwire.h", r"(typedef struct tw_tensor \{)", r"\1 const float *rates;"),
}]


class AbiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.now = cls.interface(HEADERS) if shutil.which("abidw") else None

    @classmethod
    def interface(cls, include):
        folder = pathlib.Path(tempfile.mkdtemp(dir=cls.folder))
        return compile_headers(include, folder)

    def complaints_at(self, edits):
        return compare(self.now, self.interface(edited(self.folder, "+".join(edits), edits.values())))

    @unittest.skipUnless(shutil.which("abidw"), WITHOUT_ABIGAIL)
    def test_nothing_that_was_promised_has_changed(self):
        versions = sorted(KEPT.iterdir())
        self.assertTrue(versions)
        for version in versions:
            self.assertEqual(compare(self.interface(version), self.now), [], f"against {version.name}: see docs/abi.md")

    @unittest.skipUnless(shutil.which("abidw"), WITHOUT_ABIGAIL)
    def test_growth_is_clean(self):
        for edits in GROWTH:
            with self.subTest(list(edits)):
                self.assertEqual(self.complaints_at(edits), [])

    @unittest.skipUnless(shutil.which("abidw"), WITHOUT_ABIGAIL)
    def test_breakage_is_caught(self):
        for edits in BREAKAGE:
            found = self.complaints_at(edits)
            for name in edits:
                with self.subTest(name):
                    self.assertTrue(any(line.startswith(name) for line in found), found)

    def test_an_older_program_runs(self):
        """Its headers lack the last field of every answer, and what is asked for before create is shorter."""
        include = edited(self.folder, "older", [])
        cuts = 0
        for name in ("thinwire.h", "thinwire_gossip.h", "thinwire_by_hand.h"):
            path = include / "thinwire" / name
            text, cut = re.subn(r"(typedef struct (tw_\w+) \{\s+size_t struct_size;(?:(?!\n\}).)*\n)[^\n;]*;(?:(?!\n\}).)*\n(\} \2;)",
                                r"\1\3", path.read_text(), flags=re.S)
            path.write_text(text)
            cuts += cut
        self.assertGreaterEqual(cuts, 5)
        for headers, defined in [(include, "-DEXPERIMENTAL"), *((kept, "-DSETTLED") for kept in sorted(KEPT.iterdir()))]:
            program = self.folder / "program"
            must(CC, "-std=c11", "-Wall", "-Werror", defined, f"-I{headers}", PROGRAM, "-o", program, LIBRARY.with_name("libthinwire_sim.so"), LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}")
            self.assertIn("as promised", must(program))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
