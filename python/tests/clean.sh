#!/bin/sh
# What a newcomer does: a fresh virtual environment, PyTorch and this package by pip, and the program that docs/pytorch.md
# prints, by the commands that it prints.
#
#     sudo python/tests/clean.sh                    # torch==2.13.0
#     sudo python/tests/clean.sh torch==2.12.1 --index-url https://download.pytorch.org/whl/cpu
#
# The arguments are for pip install. Without root the two commands for two machines are left out.
set -eu
[ $# -gt 0 ] || set -- torch==2.13.0
tests=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
unset PYTHONPATH THINWIRE_LIBRARY
python3 -m venv "$work/venv"
PATH=$work/venv/bin:$PATH
pip install --quiet --disable-pip-version-check "$@"
pip install --quiet --disable-pip-version-check "$tests/.."
cd "$work"
python -m thinwire
python -B "$tests/test_page.py"
