"""Warnings that show the line of the program, not one of the libraries between it and here."""

import sys
import warnings
from typing import Optional, Tuple

BETWEEN = {"thinwire", "torch", "lightning", "accelerate", "transformers", "contextlib"}  # warn()'s skip_file_prefixes is Python 3.12's
Place = Tuple[str, int]  # a file, and a line in it


def place_outside() -> Place:
    """Of the program's call that has led here."""
    frame = sys._getframe(1)
    while str(frame.f_globals.get("__name__")).partition(".")[0] in BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def warn(text: str, place: Optional[Place] = None) -> None:
    warnings.warn_explicit(text, UserWarning, *(place or place_outside()))
