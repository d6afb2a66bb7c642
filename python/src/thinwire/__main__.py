"""`python -m thinwire`: what is installed, in lines that a report of a fault should begin with. `python -m thinwire launch`
trains with a script that nobody may edit."""

import platform
import sys
from typing import Iterator, List, Tuple

from . import Error, __version__, gossip_schemes, outers, schemes
from ._library import path_of_library
from .tcp import tcp_library


def torch_version() -> str:
    try:
        import torch
    except ImportError:
        return "none; thinwire.torch needs it (pip install torch)"
    return str(torch.__version__)


def sockets() -> str:
    """Whether the transport that attach() takes is there."""
    try:
        return str(tcp_library()._name)
    except Error as error:
        return str(error)


def names(listed: List[Tuple[str, str]]) -> str:
    return " ".join(name for name, _ in listed)


def lines() -> Iterator[Tuple[str, str]]:
    yield "thinwire", __version__
    yield "library", path_of_library()
    yield "sockets", sockets()
    yield "Python", f"{platform.python_version()} on {platform.platform()}"
    yield "PyTorch", torch_version()
    yield "schemes", names(schemes())
    yield "gossip", names(gossip_schemes())
    yield "local", names(outers())


if __name__ == "__main__":
    if sys.argv[1:2] == ["launch"]:
        try:
            from .torch.launch import launch
            sys.exit(launch(sys.argv[2:]))
        except KeyboardInterrupt:
            print("thinwire: interrupted before it had begun", file=sys.stderr)
            sys.exit(130)
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        sys.exit(0)
    if sys.argv[1:]:
        print(f"thinwire: there is no {sys.argv[1]} here: want nothing, for what is installed, or launch; doctor, plan and others are "
              "commands of the program thinwire, which `make deps program` builds in a clone", file=sys.stderr)
        sys.exit(2)
    for title, text in lines():
        print(f"{title + ':':10}{text}")
