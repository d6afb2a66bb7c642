#!/usr/bin/env python3
"""tools/debian-speech on packages made here: who speaks, what is said, and which lists may know of it. apt-get is a
script that hands these packages out."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import wave

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools" / "debian-speech"
GAME = pathlib.PurePath("usr/share/games/fillets-ng")
LEVELS = ("wreck", "cave", "reef", "city", "ruin")  # five minutes of text each, of which two make the test


def load_tool():
    loader = importlib.machinery.SourceFileLoader("debian_speech_tool", str(TOOL))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def write_sound(path, seconds, channels=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as out:
        out.setparams((channels, 1, 1000, 0, "NONE", ""))
        out.writeframes(b"\x80" * int(1000 * seconds) * channels)


def write_dialogue(root, level, lines):
    script = root / GAME / "script" / level / "dialogs_cs.lua"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("".join(f'\ndialogId("{name}", "{font}", "in \\"English\\"")\ndialogStr("{text}")\n'
                              for name, font, text in lines), encoding="utf-8")


def make_trees(folder):
    """What is in each package, unpacked."""
    data, czech, dutch = (folder / f"fillets-ng-data{end}" for end in ("", "-cs", "-nl"))
    for level in LEVELS:
        write_dialogue(data, level, [(f"{level}-m-a", "font_small", "Ahoj, \\\"sv\u011bte\\\"!"),
                                     (f"{level}-hs-b", "font_statue", "Klid."),
                                     (f"{level}-v-c", "font_big", "\u043f\u0440\u0438\u0432\u0435\u0442")])
        for name in ("m-a", "hs-b", "v-c", "v-untold"):
            write_sound(czech / GAME / "sound" / level / "cs" / f"{level}-{name}.wav", 151)
    write_sound(dutch / GAME / "sound" / "wreck" / "nl" / "wreck-m-a.wav", 2, channels=2)
    (czech / GAME / "sound" / "wreck" / "cs" / "noise.ogg").write_text("not a sound")
    for name in load_tool().PROMPTS:
        write_sound(folder / name / "usr/share/asterisk/sounds" / "hello.wav", 1)


class DebianSpeech(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.work)
        (cls.work / "debs").mkdir()
        make_trees(cls.work / "trees")
        for tree in (cls.work / "trees").iterdir():
            (tree / "DEBIAN").mkdir()
            (tree / "DEBIAN/control").write_text(f"Package: {tree.name}\nVersion: 1\nArchitecture: all\n"
                                                 "Maintainer: a test\nDescription: a test\n")
            subprocess.run(["dpkg-deb", "-Znone", "--build", tree, cls.work / "debs"], check=True, capture_output=True)
        apt = cls.work / "bin/apt-get"
        apt.parent.mkdir()
        apt.write_text(f"""#!/bin/sh
echo "$2" >> {cls.work}/asked
cp {cls.work}/debs/"$2"_*.deb . 2> /dev/null || {{ echo "E: Unable to locate package $2" >&2; exit 100; }}
""")
        apt.chmod(0o755)

    def run_tool(self, folder):
        (self.work / "asked").unlink(missing_ok=True)
        return subprocess.run([sys.executable, "-B", TOOL, folder], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": f"{self.work}/bin:{os.environ['PATH']}"})

    def rows(self, folder, name):
        path = folder / name
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            self.assertTrue((path.parent / row["audio_filepath"]).is_file())
        return rows

    def test_lists(self):
        folder = self.work / "speech"
        done = self.run_tool(folder)
        self.assertEqual((done.returncode, "1 files are left out" in done.stderr), (0, True), done.stderr)
        train, test = self.rows(folder, "czech/train.json"), self.rows(folder, "czech/test.json")
        # of each level the Latin lines have a text: 302 s; two levels are the first to have 600
        self.assertEqual((len(train), len(test)), (6, 4))
        self.assertEqual({row["text"] for row in train}, {'Ahoj, "sv\u011bte"!', "Klid."})
        speakers = {row["speaker"] for row in train + test}
        self.assertEqual(speakers, {"cs-small"} | {f"cs-{level}-font_statue" for level in LEVELS})

        def level_of(row):
            return pathlib.PurePath(row["audio_filepath"]).parts[-3]

        tested = {level_of(row) for row in test}
        self.assertEqual(len(tested), 2)
        self.assertFalse(tested & {level_of(row) for row in train})
        heard = [row for name in ("unlabelled.json", "unlabelled-test.json") for row in self.rows(folder, name)]
        self.assertFalse([row for row in heard if "text" in row])
        czech = [row for row in heard if row["speaker"].startswith("cs-")]
        self.assertEqual(len(czech), 3 * 4)  # with those that nobody wrote down, without the test's levels
        self.assertFalse(tested & {level_of(row) for row in czech})
        self.assertEqual({row["speaker"] for row in czech if "untold" in row["audio_filepath"]}, {"cs-big"})
        self.assertEqual([row["channel"] for row in heard if row["speaker"] == "nl-small"], [0])
        self.assertEqual(sum("channel" in row for row in heard), 1)
        self.assertEqual(len(heard), 3 * 4 + 1 + 8)
        without = self.rows(folder, "unlabelled-no-czech.json")
        self.assertFalse([row for row in without if row["speaker"].startswith("cs-")])
        for k in (1, 2, 3):
            lists = [[row["audio_filepath"] for row in self.rows(folder, f"czech/train-{minutes}min-{k}.json")]
                     for minutes in (1, 5, 10)]
            self.assertEqual([len(one) for one in lists], [1, 2, 4])  # of 151 s each: as many as it takes
            self.assertTrue(lists[2][:2] == lists[1] and lists[1][:1] == lists[0])
        before = {path.name: path.read_bytes() for path in folder.rglob("*.json")}
        again = self.run_tool(folder)
        self.assertEqual((again.returncode, (self.work / "asked").exists()), (0, False))
        self.assertEqual(before, {path.name: path.read_bytes() for path in folder.rglob("*.json")})

    def test_refusals(self):
        missing = self.work / "debs/fillets-ng-data-nl_1_all.deb"
        kept = missing.rename(self.work / "kept.deb")
        self.addCleanup(kept.rename, missing)
        folder = self.work / "refused"
        done = self.run_tool(folder)
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]),
                         (1, "debian-speech: cannot fetch fillets-ng-data-nl (`apt-get update` first?): E: Unable to "
                             "locate package fillets-ng-data-nl"))
        self.assertEqual(sorted(path.name for path in (folder / "packages").iterdir()),
                         ["fillets-ng-data", "fillets-ng-data-cs"])
        file = self.work / "file"
        file.write_text("")
        done = self.run_tool(file)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertIn("Not a directory", done.stderr)


if __name__ == "__main__":
    if not shutil.which("dpkg-deb"):
        print("dpkg-deb is not here: skipped")
        sys.exit(77)
    unittest.main()
