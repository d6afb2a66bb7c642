#!/usr/bin/env python3
"""No public function is forgotten: each that a library exports has a prototype in a public header, and for each of its
pointers there is a row in the tables of wrong calls (arguments.c, arguments_mpi.c, arguments_tcp.c). And each that may
fail on a comm, a reducer, a gossip, an outer loop or clusters is tried in a forked child (forks.c)."""
import argparse
import pathlib
import re
import subprocess
import sys

# What a transport's library exports for tw_comm_open; its type is in thinwire_plugin.h.
WITHOUT_PROTOTYPE = {"tw_transport_open": ["comm"]}


def pointers(parameters):
    """The names of those that are pointers, arrays or functions."""
    for parameter in parameters.split(","):
        name = re.search(r"(\w+)(\[\w*\])?\s*$", parameter.strip())
        if name and ("*" in parameter or "[" in parameter or re.search(r"tw_(world_worker|state_(visit|source)|log_fn|phantom_ready) ", parameter)):
            yield name.group(1)


def prototypes(folder, without):
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*.h")) if path.name not in without)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    found = re.finditer(r"TW_API\s[^;(]*?(\w+)\s*\(([^()]*)\)", text)
    return {match.group(1): list(pointers(match.group(2))) for match in found}


def refused_after_fork(folder):
    """Calls on what a forked child has from its parent, those that return a status."""
    text = re.sub(r"/\*.*?\*/", " ", "\n".join(path.read_text() for path in sorted(folder.glob("*.h"))), flags=re.S)
    return set(re.findall(r"TW_API tw_status (\w+)\((?:const )?tw_(?:comm|reducer|gossip|outer|clusters) \*\w", text))


def exported(nm, library):
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.split()[-2] in "TWi"}


def rows(program):
    listing = subprocess.run([program, "--list"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                             text=True).stdout
    return {tuple(line.split()) for line in listing.splitlines() if re.fullmatch(r"tw_\w+ \w+", line)}


def complaints(known, functions, tried):
    for function in sorted(functions):
        if function not in known:
            yield f"{function} is exported and no public header has it"
        for argument in known.get(function, []):
            if (function, argument) not in tried:
                yield f"{function}: no row tries a NULL for {argument}"
    for function, argument in sorted(tried):
        if argument not in known.get(function, []):
            yield f"{function}: a row names {argument}, which the header does not"
    for function in sorted(set(known) - functions - set(WITHOUT_PROTOTYPE)):
        yield f"{function} is in a header and no library exports it"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nm")
    parser.add_argument("headers", type=pathlib.Path)
    parser.add_argument("--libraries", nargs="+")
    parser.add_argument("--rows", nargs="+")
    parser.add_argument("--without", nargs="*", default=[], help="headers whose libraries this build does not make")
    parser.add_argument("--forks", type=pathlib.Path)
    words = parser.parse_args()
    known = {**prototypes(words.headers, words.without), **WITHOUT_PROTOTYPE}
    functions = set().union(*(exported(words.nm, library) for library in words.libraries))
    tried = set().union(*(rows(program) for program in words.rows))
    found = list(complaints(known, functions, tried))
    forks = words.forks.read_text()
    found += [f"{name}: no row in {words.forks.name} tries it in a forked child"
              for name in sorted(refused_after_fork(words.headers) & exported(words.nm, words.libraries[0])) if f"REFUSED({name}(" not in forks]
    print("\n".join(found) or f"{len(functions)} functions, {len(tried)} pointers")
    return 1 if found else 0


sys.exit(main())
