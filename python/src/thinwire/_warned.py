"""Warnings that show the line of the program, not one of the libraries between it and here."""

import sys
import warnings
from types import FrameType

BETWEEN = {"thinwire", "torch", "lightning", "accelerate", "transformers", "contextlib"}  # warn()'s skip_file_prefixes is Python 3.12's


def warn(text: str) -> None:
    frame, level = sys._getframe(1), 2
    while is_between(frame) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def is_between(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in BETWEEN
