"""What docs/pytorch.md prints, taken from it: the program, and the commands that start it."""

import pathlib
import re
import textwrap

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"


def part():
    return PAGE.read_text(encoding="utf-8").split("## The whole of it")[1].split("\n## ")[0]


def blocks():
    """The indented ones."""
    return [textwrap.dedent(block).strip() + "\n" for block in re.findall(r"(?<=\n\n)((?:    [^\n]*\n|\n)+)", part())]


def program():
    return blocks()[0]


def on_one_machine():
    return re.search(r"`(torchrun [^`]*)`", part()).group(1)


def on_two_machines():
    """The two commands, and the address of the first machine."""
    first, second = blocks()[1].splitlines()
    return first, second, re.search(r"--master_addr=([\d.]+)", first).group(1)


def loss_of(text):
    """What rank 0 prints at the end."""
    found = re.search(r"loss ([\d.]+); thinwire dgc:density=0.25,warmup_steps=5: 100 steps, ", text)
    return float(found.group(1)) if found else None
