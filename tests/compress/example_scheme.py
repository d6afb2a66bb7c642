#!/usr/bin/env python3
"""example_scheme.py PAGE LIST FOLDER: writes the scheme that a page builds, in the ```c blocks behind the heading with the
file's name, to FOLDER/cyclic.c, and the list of schemes, with that one alone in it, to FOLDER/scheme_list.c."""
import pathlib
import re
import sys


def main(page, scheme_list, folder):
    text = pathlib.Path(page).read_text().partition("\n## src/compress/schemes/cyclic.c\n")[2]
    blocks = re.findall(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    alone, count = re.subn(r"#define (SETTLED|EXPERIMENTAL)\(X\).*?\n\n",
                           lambda found: f"#define {found[1]}(X) {'X(cyclic)' * (found[1] == 'SETTLED')}\n\n",
                           pathlib.Path(scheme_list).read_text(), flags=re.DOTALL)
    pathlib.Path(folder, "cyclic.c").write_text("\n".join(blocks))
    pathlib.Path(folder, "scheme_list.c").write_text(alone)
    return 0 if blocks and count == 2 else 1


sys.exit(main(*sys.argv[1:]))
