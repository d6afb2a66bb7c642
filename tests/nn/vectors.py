#!/usr/bin/env python3
"""What is compiled for each width of vectors (NN_WIDE, trainer/nn/wide.h) computes with vectors: no clone for AVX2 multiplies,
adds or divides one number at a time alone. GCC says nothing when it takes a loop for none of vectors, and results stay the same.

`vectors.py OBJDUMP PROGRAM`"""
import re
import subprocess
import sys

ONE, MANY = (re.compile(rf"\tv(?:add|sub|mul|div){kind} .*%{register}") for kind, register in (("s[sd]", "xmm"), ("p[sd]", "ymm")))


def clones(objdump, program):
    """(name, instructions) of each function that the loader takes where there is AVX2 and no more."""
    said = subprocess.run([objdump, "--disassemble", "--no-show-raw-insn", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^[0-9a-f]+ <(\w+)\.avx2[\w.]*>:\n(.*?)\n\n", said + "\n\n", flags=re.M | re.S)


def main():
    all_clones = clones(*sys.argv[1:])
    found = [f"{name}: no vectors" for name, code in all_clones if ONE.search(code) and not MANY.search(code)]
    if len(all_clones) < 20:  # else nothing is looked at
        found.append(f"{len(all_clones)} functions for AVX2")
    print("\n".join(found) or f"{len(all_clones)} functions")
    return 1 if found else 0


sys.exit(main())
