#!/usr/bin/env python3
"""No public function is forgotten: each that a library exports has a prototype in a public header. And each that may
fail on a comm, a reducer, a gossip, an outer loop or clusters is tried in a forked child (forks.c)."""
import argparse
import pathlib
import re
import subprocess
import sys

# What a transport's library exports for tw_comm_open; its type is in thinwire_plugin.h.
WITHOUT_PROTOTYPE = {"tw_transport_open"}


def prototypes(folder, without):
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*.h")) if path.name not in without)
    return set(re.findall(r"^TW_API\s[^;(]*?(\w+)\s*\(", re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S), flags=re.M))


def refused_after_fork(folder):
    """Calls on what a forked child has from its parent, those that return a status."""
    text = re.sub(r"/\*.*?\*/", " ", "\n".join(path.read_text() for path in sorted(folder.glob("*.h"))), flags=re.S)
    return set(re.findall(r"TW_API tw_status (\w+)\((?:const )?tw_(?:comm|reducer|gossip|outer|clusters) \*\w", text))


def exported(nm, library):
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.split()[-2] in "TWi"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nm")
    parser.add_argument("headers", type=pathlib.Path)
    parser.add_argument("--libraries", nargs="+")
    parser.add_argument("--without", nargs="*", default=[], help="headers whose libraries this build does not make")
    parser.add_argument("--forks", type=pathlib.Path)
    words = parser.parse_args()
    known = prototypes(words.headers, words.without) | WITHOUT_PROTOTYPE
    functions = set().union(*(exported(words.nm, library) for library in words.libraries))
    found = [f"{name} is exported and no public header has it" for name in sorted(functions - known)]
    found += [f"{name} is in a header and no library exports it" for name in sorted(known - functions - WITHOUT_PROTOTYPE)]
    forks = words.forks.read_text()
    found += [f"{name}: no row in {words.forks.name} tries it in a forked child"
              for name in sorted(refused_after_fork(words.headers) & exported(words.nm, words.libraries[0])) if f"REFUSED({name}(" not in forks]
    print("\n".join(found) or f"{len(functions)} functions")
    return 1 if found else 0


sys.exit(main())
