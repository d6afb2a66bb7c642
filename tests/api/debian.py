#!/usr/bin/env python3
"""The Debian packages of `make deb` hold what their names say, depend on each other and on what their files are linked
with, and the program in them runs.

`debian.py BUILD CPACK`: a build folder with the program, and CMake's cpack. Skipped where dpkg-shlibdeps or file is missing."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, CPACK = sys.argv[1:3]


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class PackagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run(CPACK, "-B", cls.folder, "--config", pathlib.Path(BUILD) / "CPackConfig.cmake")
        cls.packages = {path.name.split("_")[0]: path for path in cls.folder.glob("*.deb")}

    def field(self, package, name):
        return run("dpkg-deb", "-f", self.packages[package], name).strip()

    def files(self, package):
        return {line.split()[5].rpartition("/")[2] for line in run("dpkg-deb", "-c", self.packages[package]).splitlines()}

    def links(self, package):
        lines = [line.split() for line in run("dpkg-deb", "-c", self.packages[package]).splitlines()]
        return [words[7].rpartition("/")[2] for words in lines if words[0].startswith("l")]

    def test_each_holds_what_its_name_says(self):
        self.assertLessEqual({"libthinwire0", "libthinwire-dev"}, set(self.packages))
        for package, file in (("thinwire", "thinwire"), ("libthinwire-mpi0", "libthinwire_mpi.so")):
            self.assertEqual(package in self.packages, (pathlib.Path(BUILD) / file).exists(), package)
        self.assertIn("libthinwire.so.0", self.files("libthinwire0"))
        self.assertIn("thinwire.h", self.files("libthinwire-dev"))
        self.assertLessEqual({"thinwire", "thinwire.1", "_thinwire"}, self.files("thinwire"))
        together = [name for package in self.packages for name in self.files(package) if name.startswith("lib") and ".so" in name]
        self.assertEqual(len(together), len(set(together)), "a file is in two packages")

    def test_each_holds_the_licence(self):
        licence = (pathlib.Path(__file__).parents[2] / "LICENSE").read_text()
        for package, path in self.packages.items():
            place = self.folder / "unpacked" / package
            place.mkdir(parents=True)
            run("dpkg-deb", "-x", path, place)
            self.assertEqual((place / "usr/share/doc" / package / "copyright").read_text(), licence)

    def test_each_depends_on_what_it_needs(self):
        version = self.field("libthinwire0", "Version")
        for package in set(self.packages) - {"libthinwire0"}:
            self.assertIn(f"libthinwire0 (= {version})", self.field(package, "Depends"))
        self.assertIn("libc6", self.field("libthinwire0", "Depends"))
        self.assertIn("dnnl", self.field("thinwire", "Depends"))
        for package in ("libthinwire0", "thinwire"):
            self.assertNotIn("mpi", self.field(package, "Depends"))
        if "libthinwire-mpi0" in self.packages:
            self.assertIn("mpi", self.field("libthinwire-mpi0", "Depends").replace("libthinwire-mpi0", ""))

    def test_no_link_leads_nowhere(self):
        """libthinwire-dev has the links; the libraries are in packages that it depends on."""
        there = {name for package in self.packages for name in self.files(package)}
        self.assertEqual([file for package in self.packages for file in self.links(package) if file not in there], [])
        for package in set(self.packages) & {"libthinwire0", "libthinwire-mpi0"}:
            self.assertIn(package, self.field("libthinwire-dev", "Depends"))

    def test_the_program_runs_where_it_is_unpacked(self):
        for package in self.packages.values():
            run("dpkg-deb", "-x", package, self.folder / "root")
        program = self.folder / "root/usr/bin/thinwire"
        self.assertIn(self.field("thinwire", "Version"), run(program, "--version"))
        used = [line for line in run("ldd", program).splitlines() if "libthinwire.so" in line]
        self.assertIn(str(self.folder / "root/usr"), used[0].replace("/usr/bin/../", "/usr/"))


if __name__ == "__main__":
    missing = [name for name in ("dpkg-shlibdeps", "dpkg-deb", "file") if not shutil.which(name)]
    if missing:
        print(f"skipped: there is no {missing[0]} here; apt install dpkg-dev file")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
