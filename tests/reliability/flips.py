"""Seeded trials in which one bit of a file is wrong: a checkpoint's, or the data's.

    flips.py PATH/thinwire [--seed S] [--trials N] [--first K]

What has to hold: the program refuses the file with exit code 2 and one line that names it, or the flip is harmless. In a
checkpoint harmless means that the run goes on with the bits of the undamaged one. In data it means that the run ends as
runs end: a pixel or a sample that is another one is no damage that anybody could see. Nothing crashes or hangs, and
nothing is written over."""
import gzip
import json
import pathlib
import random
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from support import PROGRAM, write_cifar, write_data  # noqa: E402
from trials import Fault, make_shared, options_parser, run_trials  # noqa: E402

LIMIT = 120  # seconds that a run may take


def run(*words):
    """The exit code and the lines on stderr."""
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=LIMIT)
    return done.returncode, done.stderr.splitlines()


def flip(path, draw):
    """Flips one bit; headers, which are short, as often as what follows them."""
    content = bytearray(path.read_bytes())
    most = len(content) if draw.random() < 0.5 else min(len(content), 4096)
    at = draw.randrange(8 * most)
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)
    return f"{path.name}, bit {at % 8} of byte {at // 8}"


def expect_refusal(code, lines, where):
    if code != 2 or len(lines) != 1:
        raise Fault(f"{where}: exit code {code}, {len(lines)} lines: {lines[:3]}")


class Checkpoint:
    """Runs that are resumed from a damaged file."""

    def __init__(self, shared, sync):
        self.data, self.pristine = shared / "images", shared / f"checkpoint-{sync.split(':')[0]}"
        self.words = ["train", "image", "--data", self.data, "--batch", 8, "--workers", 2, "--sync", sync, "--schedule",
                      "constant", "--quiet"]
        self.must(run(*self.words, "--steps", 3, "--out", self.pristine))
        self.whole = self.go_on(self.pristine)

    @staticmethod
    def must(result):
        if result[0] != 0:
            raise Fault(f"an undamaged run failed: {result}")

    def go_on(self, folder):
        out = folder.parent / f"{folder.name}-on"
        code, lines = run(*self.words, "--steps", 5, "--resume", folder / "checkpoints/step-00000003", "--out", out)
        self.last = code, lines
        crc = json.loads((out / "summary.json").read_text())["weights_crc32c"] if code == 0 else None
        shutil.rmtree(out, ignore_errors=True)
        return crc

    def trial(self, draw, folder):
        damaged = folder / "damaged"
        shutil.copytree(self.pristine, damaged)
        where = flip(draw.choice(sorted(damaged.glob("checkpoints/*/*"))), draw)
        crc = self.go_on(damaged)
        if crc is None:
            expect_refusal(*self.last, where)
            return "refused"
        if crc != self.whole:
            raise Fault(f"{where}: taken, and the weights are others")
        return "harmless"


class Data:
    """Runs on damaged data."""

    def __init__(self, pristine, *words):
        self.pristine, self.words = pristine, words

    def trial(self, draw, folder):
        damaged = folder / "damaged"
        shutil.copytree(self.pristine, damaged)
        where = flip(draw.choice(sorted(path for path in damaged.rglob("*") if path.is_file())), draw)
        code, lines = run("train", *self.words, "--data", damaged, "--steps", 2, "--quiet", "--out", "none")
        if code == 0:
            return "harmless"
        expect_refusal(code, lines, where)
        return "refused"


def write_compressed(folder, images):
    folder.mkdir()
    for path in images.iterdir():
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    return folder


def write_text(folder, draw):
    folder.mkdir()
    words = ["wire", "thin", "slow", "line", "peer", "über"]
    for name in ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"):
        lines = (" ".join(draw.choice(words) for _ in range(12)) for _ in range(60))
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def main():
    options, shared = options_parser().parse_args(), make_shared("flips")
    images, small = write_data(shared / "images"), ("--batch", 4, "--workers", 2)
    kinds = {
        "checkpoint, allreduce": Checkpoint(shared, "allreduce"),
        "checkpoint, dgc": Checkpoint(shared, "dgc:density=0.02"),
        "checkpoint, powersgd": Checkpoint(shared, "powersgd"),
        "IDX": Data(images, "image", *small),
        "compressed IDX": Data(write_compressed(shared / "compressed", images), "image", *small),
        "CIFAR": Data(write_cifar(shared / "cifar"), "image", *small),
        "text": Data(write_text(shared / "text", random.Random(3)), "lm", "--batch", 2, "--workers", 2, "--bptt", 5),
    }

    def begin(number, folder):
        draw = random.Random(f"{options.seed}/{number}")
        kind = draw.choice(sorted(kinds))
        return kind, lambda: [f"{kind}: {kinds[kind].trial(draw, folder)}"]

    return run_trials(options, shared, begin)


if __name__ == "__main__":
    sys.exit(main())
