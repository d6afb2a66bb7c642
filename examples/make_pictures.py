#!/usr/bin/env python3
"""make_pictures.py FOLDER: writes pictures of circles, crosses and squares, a folder for each, to try training with.

Each picture has 32 x 32 pixels, colours drawn at random, and noise. The same pictures are written every time."""
import pathlib
import random
import struct
import sys
import zlib

SIDE, PICTURES = 32, 300


def is_inside(shape, x, y, radius):
    """Whether the point, seen from the middle of the shape, belongs to it."""
    if shape == "circles":
        return x * x + y * y <= radius * radius
    if shape == "squares":
        return abs(x) <= radius and abs(y) <= radius
    return max(abs(x), abs(y)) <= radius and min(abs(x), abs(y)) <= radius / 3


def draw(shape, generator):
    """The pixels of a picture, row by row, three bytes each."""
    radius = generator.uniform(5, 11)
    middle_x, middle_y = (generator.uniform(radius, SIDE - radius) for _ in range(2))
    dark, bright = ([generator.randrange(low, low + 90) for _ in range(3)] for low in (10, 140))
    pixels = bytearray()
    for y in range(SIDE):
        for x in range(SIDE):
            colour = bright if is_inside(shape, x - middle_x, y - middle_y, radius) else dark
            pixels += bytes(value + generator.randrange(-10, 11) for value in colour)
    return pixels


def write_png(path, pixels):
    """Writes an RGB picture of SIDE x SIDE pixels."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[3 * SIDE * y:3 * SIDE * (y + 1)] for y in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) +
                     chunk(b"IEND", b""))


def main():
    folder, generator = pathlib.Path(sys.argv[1]), random.Random(1)
    for shape in ("circles", "crosses", "squares"):
        (folder / shape).mkdir(parents=True, exist_ok=True)
        for i in range(PICTURES):
            write_png(folder / shape / f"{i}.png", draw(shape, generator))
    print(f"{folder}: {3 * PICTURES} pictures of 3 shapes")


if __name__ == "__main__":
    main()
