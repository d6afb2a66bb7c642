"""What can be seen in an SVG that gnuplot or bench/chart.py drew: texts with their boxes, curves with their width.

A text's width is estimated: letters of a sans-serif font are 0.42 to 0.6 of its size wide in the mean. What has to keep
clear of others is taken for narrow, so that nothing is found that nobody sees."""
import math
import re
import xml.etree.ElementTree
from typing import NamedTuple

NARROW, WIDE = 0.42, 0.62  # shares of the font's size, in the mean over a text
EDGE = 0.3  # pixels of a line that are seen beside a thinner one
NUMBER = r"(-?[\d.]+(?:e-?\d+)?)"


class Text(NamedTuple):
    words: str
    x: float
    y: float  # of its baseline
    size: float
    anchor: str
    colour: str
    upright: bool

    def box(self, letter):
        """left, top, right, bottom."""
        width = letter * self.size * len(self.words)
        left = self.x - {"start": 0, "middle": width / 2, "end": width}[self.anchor]
        if self.upright:
            return self.x - 0.8 * self.size, self.y - width / 2, self.x, self.y + width / 2
        return left, self.y - 0.7 * self.size, left + width, self.y


class Curve(NamedTuple):
    colour: str
    width: float
    points: "tuple[tuple[float, float], ...]"


def colour_of(element):
    """As rgb(...) without blanks, or as it is written."""
    return element.get("fill", "").replace(" ", "")


class Picture:
    def __init__(self, text):
        root = xml.etree.ElementTree.fromstring(text)
        self.width, self.height = (float(number) for number in root.get("viewBox").split()[2:])
        self.texts, self.curves = [], []
        self.look(root, {}, 1.0)

    def look(self, element, group, line):
        """`group` is what places the texts within it; `line` the width of its lines."""
        kind = element.tag.rpartition("}")[2]
        if kind == "g" and "transform" in element.attrib:
            group = element.attrib
        line = float(element.get("stroke-width", line))
        if kind == "text":
            self.add_text(element, group)
        if kind == "polyline":
            self.add_curve(element.get("stroke"), line, re.findall(f"{NUMBER},{NUMBER}", element.get("points")))
        if kind == "path" and re.match(r"rgb", element.get("stroke", "")) and not element.get("stroke-dasharray"):
            self.add_curve(element.get("stroke").replace(" ", ""), line,
                           re.findall(f"[ML]{NUMBER},{NUMBER}", element.get("d")))
        for child in element:
            self.look(child, group, line)

    def add_text(self, element, group):
        words = "".join(element.itertext()).replace("\xa0", " ").strip()
        place = re.match(rf"translate\({NUMBER},{NUMBER}\)( rotate\(-?(?:90|270))?", group.get("transform", ""))
        about = group if place else element.attrib
        x, y = (place[1], place[2]) if place else (element.get("x"), element.get("y"))
        if words:
            self.texts.append(Text(words, float(x), float(y), float(about["font-size"]), about["text-anchor"],
                                   about.get("fill", "").replace(" ", ""), bool(place and place[3])))

    def add_curve(self, colour, line, points):
        if len(points) > 1:
            self.curves.append(Curve(colour, line, tuple((float(x), float(y)) for x, y in points)))

    def names(self):
        """Those texts that have a colour of their own: the names of curves."""
        return [text for text in self.texts if text.colour not in ("black", "#222", "#666", "")]


def apart(one, other):
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def distance(point, start, end):
    """From a point to the way from start to end."""
    way = end[0] - start[0], end[1] - start[1]
    length = way[0] ** 2 + way[1] ** 2
    share = ((point[0] - start[0]) * way[0] + (point[1] - start[1]) * way[1]) / length if length else 0
    share = min(max(share, 0), 1)
    return math.hypot(point[0] - start[0] - share * way[0], point[1] - start[1] - share * way[1])


def covers(later, curve):
    """Whether nothing is seen of a curve beside one that is drawn over it."""
    ways = list(zip(later.points, later.points[1:]))
    room = (later.width - curve.width) / 2 + EDGE
    return room > 0 and all(any(distance(point, *way) <= room for way in ways) for point in curve.points)


def crosses(box, start, end):
    """Whether the way from start to end comes into the box (Liang and Barsky's clipping)."""
    first, last = 0.0, 1.0
    for axis in (0, 1):
        way = end[axis] - start[axis]
        low, high = box[axis] - start[axis], box[axis + 2] - start[axis]
        if way == 0:
            if low >= 0 or high <= 0:
                return False
            continue
        near, far = sorted((low / way, high / way))
        first, last = max(first, near), min(last, far)
    return first < last


def problems(picture):
    """What a person who looks at it would complain of, a sentence each."""
    found = []
    for i, text in enumerate(picture.texts):
        left, top, right, bottom = text.box(WIDE if text in picture.names() else NARROW)
        if left < 0 or top < 0 or right > picture.width + 1 or bottom > picture.height:
            found.append(f"{text.words!r} is cut off")
        if re.fullmatch(r"-?[\d.]+e[+-]?\d+\D*", text.words):
            found.append(f"{text.words!r} is no number that people read")
        for other in picture.texts[:i]:
            if not apart(text.box(NARROW), other.box(NARROW)):
                found.append(f"{text.words!r} lies on {other.words!r}")
    for name in picture.names():
        box = name.box(NARROW)
        for curve in picture.curves:
            if any(crosses(box, start, end) for start, end in zip(curve.points, curve.points[1:])):
                found.append(f"a curve runs through {name.words!r}")
                break
    for i, curve in enumerate(picture.curves):
        if any(covers(later, curve) for later in picture.curves[i + 1:]):
            found.append(f"a curve in {curve.colour} is hidden under another")
    return found
