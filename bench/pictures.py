#!/usr/bin/env python3
"""pictures.py PROGRAM --from FOLDER: trains a ResNet-18 on 100,000 small JPEGs in 1,000 classes.

It prints how much memory the process holds as the run goes on, how long a step takes, how much of that it waits for
pictures that are not decoded yet, and what was learned. A class is one picture of FOLDER, in a hundred copies: each is
another file, and flips and crops vary it. FOLDER may be any tree with as many .jpg files, such as CIFAR-10's.

With --varied (needs Pillow) no two pictures of a class are alike: each is a part of the class's picture, of 40 to 100 %
of its pixels, turned by up to 20 degrees, mirrored or not, in other light, contrast and colour (Dosovitskiy et al.
2014). The validation set, 2 of the 100, is of views that the network has never seen. With --cold (needs root) the
system forgets what it has read of the disk before the run begins."""
import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time


def write_copies(picture, each, place):
    """The same bytes, as often as asked for."""
    content = picture.read_bytes()
    for copy in range(each):
        (place / f"{copy}.jpg").write_bytes(content)


def write_views(picture, each, place):
    """As many different views; which ones, the class's name decides."""
    from PIL import Image, ImageEnhance, ImageOps  # what only --varied needs
    draw = random.Random(place.name)
    with Image.open(picture) as opened:
        whole = opened.convert("RGB")
    width, height = whole.size
    for number in range(each):
        side = draw.uniform(0.4, 1) ** 0.5
        left, top = draw.uniform(0, 1 - side) * width, draw.uniform(0, 1 - side) * height
        view = whole.rotate(draw.uniform(-20, 20), Image.Resampling.BICUBIC)
        view = view.resize(whole.size, Image.Resampling.BICUBIC,
                           (left, top, left + side * width, top + side * height))
        view = ImageOps.mirror(view) if draw.random() < 0.5 else view
        for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            view = enhance(view).enhance(draw.uniform(0.6, 1.4))
        view.save(place / f"{number}.jpg", quality=85)


def write_classes(source, classes, each, folder, write):
    """Pictures from all over the tree, in the order of their names, each as a class."""
    pictures = sorted(source.rglob("*.jp*g"))
    if len(pictures) < classes:
        raise SystemExit(f"pictures.py: {source} has {len(pictures)} pictures, but {classes} are needed")
    for number in range(classes):
        place = folder / f"class-{number:04}"
        place.mkdir()
        write(pictures[number * len(pictures) // classes], each, place)


def forget_disk():
    """Nothing of the disk is in memory any more."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def memory_of(process):
    """Resident bytes; 0 when it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


def watch(process):
    """Seconds and resident bytes, every half second until it ends."""
    seen, began = [], time.monotonic()
    while process.poll() is None:
        seen.append((time.monotonic() - began, memory_of(process)))
        time.sleep(0.5)
    return [sample for sample in seen if sample[1]]


def tell(seen, run, lines):
    steps = [line for line in lines if line["kind"] == "step"]
    for share in (0.25, 0.5, 0.75, 0.98):
        second, held = seen[int(share * (len(seen) - 1))]
        print(f"after {second:4.0f} s: {held / 1e6:.1f} MB resident")
    print(f"a step: {1000 * run['seconds']['training'] / run['steps']:.1f} ms, of which it waits "
          f"{1000 * run['seconds']['data'] / run['steps']:.2f} ms for pictures")
    print(f"loss {steps[0]['loss']:.3f} at step 1, {run['train_loss']:.3f} over the run; "
          f"{run['split']} accuracy {run['metric']['value']:.2%} of {run['steps']} steps")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--from", dest="source", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--varied", action="store_true")
    parser.add_argument("--cold", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="thinwire-pictures-") as folder:
        photos, out = pathlib.Path(folder) / "photos", pathlib.Path(folder) / "run"
        photos.mkdir()
        write_classes(given.source, given.classes, given.each, photos, write_views if given.varied else write_copies)
        if given.cold:
            forget_disk()
        share, schedule = (0.02, "cosine") if given.varied else (0.01, "constant")
        words = ["train", "image", "--data", photos, "--validation", share, "--image-size", 32, "--model", "resnet18",
                 "--flip", "--crop", 4, "--batch", 32, "--lr", 0.05, "--warmup", 50, "--schedule", schedule, "--steps",
                 given.steps, "--quiet", "--out", out]
        with subprocess.Popen([given.program, *map(str, words)]) as process:
            seen = watch(process)
        if process.returncode:
            raise SystemExit(f"pictures.py: the run ended with code {process.returncode}")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        tell(seen, json.loads((out / "summary.json").read_text()), lines)


if __name__ == "__main__":
    main()
