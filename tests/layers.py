#!/usr/bin/env python3
"""Folders are layers: checks that no file includes a header of a layer it may not see.

The build enforces this by its include paths; this check also says what each layer may see in one table, and catches a
path smuggled into an include ("../comm/comm.h")."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TASKS = ["trainer/tasks", "trainer/paging", "trainer/options", "trainer/words", "trainer"]
COMMANDS = ["trainer/plot", "trainer/run", "trainer/plan", "trainer/simulation", "trainer/lines", "trainer/record", "trainer/checkpoint", "trainer/join", "trainer/train", "trainer/optimiser", "trainer/files",
            "trainer/data/text", "trainer/data", *TASKS]
MAY_SEE = {
    "src/base": [],
    "src/kernels": ["src/base"],
    "src/wire": ["src/base"],
    "src/state": ["src/base"],
    "src/compress/parts": ["src/wire", "src/kernels", "src/base"],
    "src/compress/schemes": ["src/compress/parts", "src/wire", "src/kernels", "src/base"],
    "src/compress": ["src/compress/schemes", "src/compress/parts", "src/wire", "src/kernels", "src/state", "src/base"],
    "src/comm": ["src/kernels", "src/base"],
    "src/comm/shared": [],
    "src/comm/folder": ["src/comm/shared"],
    "src/comm/mpi": ["src/comm/shared"],
    "src/comm/members": [],
    "src/comm/tcp": ["src/comm/shared", "src/comm/members"],
    "src/comm/sealed": ["src/comm/shared"],
    "src/sim": ["src/base"],
    "src/sync": ["src/compress", "src/compress/parts", "src/wire", "src/comm", "src/kernels", "src/base"],
    "src/sync/reducer": ["src/sync", "src/compress", "src/compress/parts", "src/state", "src/wire", "src/comm", "src/kernels", "src/base"],
    "src/sync/gossip/core": ["src/sync", "src/compress", "src/compress/parts", "src/state", "src/wire", "src/comm", "src/kernels", "src/base"],
    "src/sync/gossip/schemes": ["src/sync/gossip/core", "src/sync", "src/wire", "src/comm", "src/kernels", "src/base", "src/compress/parts"],
    "src/sync/gossip": ["src/sync/gossip/schemes", "src/sync/gossip/core", "src/sync", "src/compress", "src/compress/parts", "src/state", "src/wire", "src/comm", "src/kernels", "src/base"],
    "src/sync/clusters": ["src/sync", "src/compress", "src/compress/parts", "src/wire", "src/comm", "src/kernels", "src/base"],
    "src/sync/outer/methods": ["src/base"],
    "src/sync/outer": ["src/sync/outer/methods", "src/sync/reducer", "src/sync", "src/compress", "src/compress/parts", "src/state", "src/wire", "src/comm", "src/kernels", "src/base"],
    "src/plan": ["src/sync/outer", "src/sync/outer/methods", "src/sync/gossip", "src/sync/gossip/core", "src/sync/reducer", "src/sync", "src/compress", "src/compress/parts", "src/state", "src/wire", "src/comm", "src/kernels", "src/base"],
    "src/plugin": ["src/compress", "src/compress/parts", "src/base", "src/sync/gossip"],
    "trainer/words": ["trainer"],
    "trainer/options": ["trainer/words", "trainer"],
    "trainer/files": ["trainer"],
    "trainer/paging": ["trainer"],
    "trainer/nn": ["trainer/paging", "trainer"],
    "trainer/models": ["trainer/nn", "trainer/paging", "trainer/words", "trainer"],
    "trainer/data": ["trainer"],
    "trainer/data/image/decode": ["trainer"],
    "trainer/data/image": ["trainer/data/image/decode", "trainer/data", "trainer"],
    "trainer/data/speech": ["trainer/data", "trainer"],
    "trainer/data/text": ["trainer/data", "trainer"],
    "trainer/tasks/speech": ["trainer"],
    "trainer/tasks": ["trainer/models", "trainer/nn", "trainer/paging", "trainer/data", "trainer/data/image", "trainer/data/speech", "trainer/data/text", "trainer/tasks/speech", "trainer/options", "trainer/words", "trainer"],
    "trainer/optimiser": ["trainer/files", "trainer/nn", "trainer/paging", "trainer"],
    "trainer/train": ["trainer/optimiser", "trainer/files", "trainer/data", *TASKS],
    "trainer/simulation": ["trainer/train", "trainer/optimiser", "trainer/files", *TASKS],
    "trainer/lines": ["trainer"],
    "trainer/plan": ["trainer/simulation", "trainer/lines", "trainer/train", "trainer/optimiser", "trainer/files", *TASKS],
    "trainer/join": ["trainer/train", "trainer/optimiser", *TASKS],
    "trainer/checkpoint": ["trainer/join", "trainer/train", "trainer/optimiser", "trainer/files", *TASKS],
    "trainer/record": ["trainer/join", "trainer/train", "trainer/optimiser", "trainer/files", *TASKS],
    "trainer/run": ["trainer/plan", "trainer/simulation", "trainer/lines", "trainer/record", "trainer/checkpoint", "trainer/join", "trainer/train", "trainer/optimiser", "trainer/files", *TASKS],
    "trainer/plot": ["trainer/files", "trainer"],
    "trainer/commands": COMMANDS,
    "trainer/commands/bench": ["trainer/commands", "trainer/nn", "trainer/models", *COMMANDS],
    "trainer/commands/check_scheme": ["trainer/commands", *COMMANDS],
    "trainer/commands/doctor": ["trainer/commands", "trainer/nn", "trainer/data/image", "trainer/data", *COMMANDS],
    "trainer/commands/plan": ["trainer/commands", *COMMANDS],
    "trainer/commands/report": ["trainer/commands", *COMMANDS],
    "trainer/commands/simulate": ["trainer/commands", *COMMANDS],
    "trainer": ["trainer/commands", "trainer/options"],
    "examples": [],
    "include/thinwire": [],
}


def headers(folder):
    return {path.name for path in (ROOT / folder).glob("*.h")}


def complaints(folder, allowed):
    seen = set().union(headers(folder), *(headers(other) for other in allowed))
    for path in sorted([*(ROOT / folder).glob("*.c"), *(ROOT / folder).glob("*.h")]):
        for line, text in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include\s+"([^"]+)"', text)
            if include and include.group(1) not in seen:
                yield f"{path.relative_to(ROOT)}:{line}: {folder} may not include {include.group(1)}"


def folders_of_sources():
    files = [path for top in ("src", "trainer") for path in (ROOT / top).rglob("*.[ch]")]
    return sorted({str(path.parent.relative_to(ROOT)) for path in files})


def main():
    found = [text for folder, allowed in MAY_SEE.items() for text in complaints(folder, allowed)]
    found += [f"{folder}: not in the table of tests/layers.py" for folder in folders_of_sources() if folder not in MAY_SEE]
    print("\n".join(found) if found else f"{len(MAY_SEE)} layers keep to their includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
