#!/usr/bin/env python3
"""Folders are layers when they are linked, too: checks that no object of src/ or trainer/ uses a function or a table of a layer it
may not see. An include is not needed for that: a declaration written by hand is enough. Files are layers, too: no two of them
need each other, by whatever way. And all memory of the library comes from
src/base/memory.c, so that a program's own allocator (tw_set_allocator) sees all of it.

`layers_linked.py NM OBJECT...`: the objects of the library, in the folders where CMake builds them."""
import collections
import re
import subprocess
import sys

sys.dont_write_bytecode = True
from layers import MAY_SEE

FOLDER = re.compile(r"(?:^|/)((?:src|trainer)/[\w/]+?)/CMakeFiles/")
ALLOCATION = {"malloc", "calloc", "realloc", "reallocarray", "free", "aligned_alloc", "posix_memalign", "memalign", "strdup",
              "strndup", "asprintf", "vasprintf", "getline", "getdelim", "open_memstream", "realpath"}


def symbols(nm, paths):
    """(path, names that an object defines for others, names that it needs from them) of each."""
    said = subprocess.run([nm, "--extern-only", "--print-file-name", *paths], capture_output=True, text=True, check=True).stdout
    names = {path: (set(), set()) for path in paths}
    for line in said.splitlines():
        path, text = line.split(":", 1)
        *_, kind, name = text.split()
        names[path][kind in "Uw"].add(name)
    return [(path, *both) for path, both in names.items()]


def may_use(folder, other):
    """The trainer finds the library's functions in its shared object, which hides what is not public."""
    return other in (folder, *MAY_SEE[folder]) or (folder.startswith("trainer/") and other.startswith("src/"))


def in_circles(objects):
    """The files that need each other, by way of others or not."""
    home = {name: path for path, defined, _ in objects for name in defined}
    needs = {path: {home[name] for name in needed if name in home} - {path} for path, _, needed in objects}

    def comes_back(path):
        seen, ahead = set(), {path}
        while ahead:
            ahead = set().union(*(needs[one] for one in ahead)) - seen
            seen |= ahead
        return path in seen

    return sorted(re.sub(r".*/((?:src|trainer)/.*)CMakeFiles/[^/]*/(?:\./)?(.*)\.o", r"\1\2", path) for path in filter(comes_back, needs))


def main(nm, *objects):
    owner, needs, found = {}, collections.defaultdict(set), []
    objects = symbols(nm, objects)
    for path, defined, needed in objects:
        folder = FOLDER.search(path).group(1)
        owner.update(dict.fromkeys(defined, folder))
        needs[folder] |= needed
        if folder.startswith("src/") and not path.endswith("memory.c.o"):
            found += [f"{path} uses {name} instead of memory.h" for name in sorted(needed & ALLOCATION)]
    found += [f"{folder} uses {name} of {owner[name]}" for folder, names in sorted(needs.items()) for name in sorted(names)
              if name in owner and not may_use(folder, owner[name])]
    if circle := in_circles(objects):
        found.append("these files need each other, in one circle or more: " + ", ".join(circle))
    links = sum(name in owner and owner[name] != folder for folder, names in needs.items() for name in names)
    print("\n".join(found) if found else f"{len(needs)} layers keep to their {links} links")
    return 1 if found or not links else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
