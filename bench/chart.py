"""Pictures as SVG: bars on a logarithmic scale, and curves. Enough for a report, and no package needed."""
import math
from xml.sax.saxutils import escape

COLOURS = ["#1f5fa8", "#c2571a", "#2e7d4f", "#8a3d8f", "#7a6a1c", "#a3273b", "#3a8c94", "#555555"]
WIDTH, LEFT, RIGHT, ROW, TITLE, MARGIN = 900, 260, 80, 20, 34, 16
CURVES_HEIGHT, CURVES_LEFT = 300, 70
CHARACTER, MOST_TICKS = 8, 6  # pixels; marks at an axis


class Page:
    """Panels one below the other."""

    def __init__(self):
        self.items, self.height = [], MARGIN

    def text(self, x, y, words, anchor="start", size=12, colour="#222"):
        self.items.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
                          f"{escape(str(words))}</text>")

    def line(self, x1, y1, x2, y2, colour="#ddd"):
        self.items.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>')

    def box(self, x, y, width, height, colour):
        self.items.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height}" '
                          f'fill="{colour}"/>')

    def path(self, points, colour):
        words = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.items.append(f'<polyline points="{words}" fill="none" stroke="{colour}" stroke-width="1.8"/>')

    def write(self, path):
        size = f'width="{WIDTH}" height="{self.height}" viewBox="0 0 {WIDTH} {self.height}"'
        path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">\n'
                        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(self.items) + "\n</svg>\n")


def bars(page, title, rows, unit):
    """rows: (name, value, colour). A tenth of an inch is not a tenth of the time: the scale is logarithmic."""
    least, most = (edge([value for _, value, _ in rows], way) for way in (math.floor, math.ceil))
    most = max(most, least + 1)
    top, right = page.height + TITLE, WIDTH - RIGHT

    def at(value):
        return LEFT + (right - LEFT) * (math.log10(value) - least) / (most - least)

    page.text(MARGIN, page.height + 16, title, size=14)
    for power in range(least, most + 1):
        page.line(at(10.0 ** power), top - 4, at(10.0 ** power), top + ROW * len(rows))
        page.text(at(10.0 ** power), top + ROW * len(rows) + 14, f"{show(10.0 ** power)} {unit}", "middle", 11)
    for i, (name, value, colour) in enumerate(rows):
        y = top + ROW * i
        page.text(LEFT - 8, y + 13, name, "end")
        page.box(LEFT, y + 2, at(value) - LEFT, ROW - 5, colour)
        page.text(at(value) + 5, y + 13, show(value), size=11)
    page.height = top + ROW * len(rows) + TITLE


def show(value):
    """Four digits at least, and no exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def edge(values, way):
    """The power of ten below or above all of them."""
    return way(math.log10(min(values) if way is math.floor else max(values)))


def marks(most, least=0):
    """From `least` or below it past `most`, in steps of 1, 2 or 5 times a power of ten."""
    span = most - least or 1
    power = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    step = next(step for step in (1, 2, 5, 10) if step * power * MOST_TICKS >= span) * power
    first = math.floor(least / step + 1e-9)
    return [i * step for i in range(first, max(math.ceil(most / step - 1e-9), first + 1) + 1)]


def curves(page, title, named, x_unit, y_label, target=None, y_least=0):
    """named: (name, [(x, y), ...]). Names stand at the right in the order in which the curves end. The axis begins at y_least."""
    named = sorted(named, key=lambda one: one[1][-1][0])
    left, right = CURVES_LEFT, WIDTH - MARGIN - CHARACTER * max(len(name) for name, _ in named)
    top = page.height + TITLE + ROW
    bottom = top + CURVES_HEIGHT
    points = [point for _, line in named for point in line]
    x_marks = marks(max(x for x, _ in points))
    y_marks = marks(max([y for _, y in points] + [target or 0]), y_least)
    x_most, y_first, y_most = x_marks[-1], y_marks[0], y_marks[-1]

    def at(x, y):
        return left + (right - left) * x / x_most, bottom - (bottom - top) * (y - y_first) / (y_most - y_first)

    page.text(MARGIN, page.height + 16, title, size=14)
    for y in y_marks:
        page.line(left, at(0, y)[1], right, at(0, y)[1])
        page.text(left - 6, at(0, y)[1] + 4, show(y), "end", 11)
    for x in x_marks:
        page.text(at(x, y_first)[0], bottom + 16, f"{show(x)} {x_unit}", "middle", 11)
    page.text(left, top - 8, y_label, size=11, colour="#666")
    if target is not None:
        page.line(left, at(0, target)[1], right, at(0, target)[1], "#888")
        page.text(left + 4, at(0, target)[1] - 4, "target", size=11, colour="#666")
    for i, (name, line) in enumerate(named):
        page.path([at(x, y) for x, y in line], COLOURS[i % len(COLOURS)])
        page.text(right + 14, top + 12 + 17 * i, name, colour=COLOURS[i % len(COLOURS)])
    page.height = bottom + TITLE
