#!/usr/bin/env python3
"""example_listing.py PAGE FOLDER: what the page prints of the example scheme is what the folder has, to the letter."""
import pathlib
import re
import sys


def main(page, folder):
    text, wrong = pathlib.Path(page).read_text(), []
    for language, name in (("c", "hard.c"), ("cmake", "CMakeLists.txt")):
        printed = re.search(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if not printed or printed.group(1) != pathlib.Path(folder, name).read_text():
            wrong.append(f"{page} prints another {name} than {folder} has")
    print("\n".join(wrong))
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:]))
