#!/usr/bin/env python3
"""The Dockerfile of docs/several-machines.md, without building it: its RUN lines are shell that shellcheck accepts, each
target of make exists, and the packages of its last stage have every library that the program is linked with.

usage: container.py BUILD

The packages are those of one release of Debian; elsewhere that case is skipped, as the first is without shellcheck."""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/several-machines.md").read_text()
DOCKERFILE = re.search(r"^```Dockerfile\n(.*?)^```", PAGE, re.M | re.S)[1]
LINES = re.sub(r"\\\n\s*", "", DOCKERFILE).splitlines()
RUNS = [line.removeprefix("RUN ") for line in LINES if line.startswith("RUN ")]
ALWAYS_THERE = {"libc6", "libgcc-s1", "libgomp1", "libstdc++6", "zlib1g"}  # in the image, or with a package of the list
BUILD = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ROOT / "build").resolve()


def release():
    os_release = pathlib.Path("/etc/os-release").read_text()
    return ":".join(re.search(rf"^{key}=\"?([^\"\n]*)", os_release, re.M)[1] for key in ("ID", "VERSION_ID"))


def needed(file):
    """Where the libraries lie that a file names itself, not those that its libraries need in turn."""
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.check_output(["readelf", "-d", file], text=True))
    found = dict(re.findall(r"(\S+) => (\S+)", subprocess.check_output(["ldd", file], text=True)))
    return {pathlib.Path(found[name]).resolve() for name in names if name in found}


def package_of(library):
    for path in (library, pathlib.Path("/") / library.relative_to("/usr")):  # where /lib is a link to usr/lib
        said = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            return said.stdout.split(":")[0]
    raise AssertionError(f"no package has {library}")


class Dockerfile(unittest.TestCase):
    def test_its_commands_are_sound(self):
        if not shutil.which("shellcheck"):
            self.skipTest("no shellcheck")
        self.assertGreater(len(RUNS), 2)
        script = "#!/bin/sh\n" + "\n".join(RUNS) + "\n"
        told = subprocess.run(["shellcheck", "-"], input=script, capture_output=True, text=True, check=False)
        self.assertEqual(told.stdout, "")

    def test_what_it_makes_exists(self):
        makefile = (ROOT / "Makefile").read_text()
        for target in re.findall(r"\bmake ([a-z]+)(?: |$)", "\n".join(RUNS), re.M):
            self.assertRegex(makefile, rf"(?m)^{target}:")

    def test_its_packages_have_what_the_program_needs(self):
        image = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)[-1]
        if release() != image:
            self.skipTest(f"the packages are those of {image}")
        listed = set(re.search(r"--no-install-recommends((?: +[\w.+-]+)+)", RUNS[-1])[1].split())
        files = [BUILD / "thinwire", *BUILD.glob("libthinwire*.so.0")]  # those of the tests have no number
        self.assertGreater(len(files), 3)
        libraries = {library for file in files for library in needed(file) if BUILD not in library.parents}
        packages = {package_of(library) for library in libraries}
        self.assertLessEqual(packages - ALWAYS_THERE, listed)
        self.assertLessEqual(listed, packages, "the image has packages that nothing needs")


if __name__ == "__main__":
    unittest.main()
