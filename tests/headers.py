#!/usr/bin/env python3
"""headers.py COMPILER FOLDER [SYSTEM-FOLDER...]: every public header compiles alone, as pedantic C11 and as C++11.

thinwire_mpi.h is left out when no SYSTEM-FOLDER, where mpi.h would be, is given."""
import pathlib
import subprocess
import sys

LANGUAGES = ("-xc", "-std=c11"), ("-xc++", "-std=c++11")
STRICT = "-fsyntax-only", "-Wall", "-Wextra", "-pedantic-errors", "-Werror"


def compiles(compiler, folder, system, header, language):
    includes = [f"-I{folder}", *(f"-isystem{path}" for path in system)]
    text = f"#include <thinwire/{header}>\n#include <thinwire/{header}>\n"  # twice: the include guard is part of it
    return subprocess.run([compiler, *language, *STRICT, *includes, "-"], input=text, text=True).returncode == 0


def main(compiler, folder, *system):
    headers = sorted(path.name for path in pathlib.Path(folder, "thinwire").glob("*.h"))
    if not system:
        headers.remove("thinwire_mpi.h")
    failed = [(header, language) for header in headers for language in LANGUAGES
              if not compiles(compiler, folder, system, header, language)]
    print(f"{len(headers)} public headers, {len(failed)} complaints")
    return 1 if failed or not headers else 0


sys.exit(main(*sys.argv[1:]))
