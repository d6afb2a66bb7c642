#!/usr/bin/env python3
"""The pictures of the documents, and what bench/chart.py draws: nothing is cut off, covered, hidden or unreadable."""
import pathlib
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path[1:1] = [str(SOURCE / "tests/support"), str(SOURCE / "bench")]

import chart  # noqa: E402
import picture  # noqa: E402

DRAWN = ("changing", "demo", "network", "scale")


class DrawingsTest(unittest.TestCase):
    def drawn(self, page):
        with tempfile.TemporaryDirectory() as folder:
            page.write(pathlib.Path(folder) / "page.svg")
            return picture.Picture((pathlib.Path(folder) / "page.svg").read_text())

    def test_the_documents_pictures(self):
        for name in DRAWN:
            with self.subTest(name):
                seen = picture.Picture((SOURCE / f"docs/images/{name}.svg").read_text())
                self.assertEqual(picture.problems(seen), [])
                self.assertTrue(seen.curves and len(seen.names()) >= len(seen.curves))

    def test_bars(self):
        for values in ([0.012, 3, 13225.4], [66.15, 342], [999999, 2e7], [5, 5]):
            page = chart.Page()
            chart.bars(page, "Exchange of 25,557,032 gradients", [(f"way {v:g}", v, "#123456") for v in values], "ms")
            seen = self.drawn(page)
            self.assertEqual(picture.problems(seen), [])
            self.assertIn(f"{values[-1]:,.0f}", [text.words for text in seen.texts])

    def test_curves(self):
        long = "thinwire:dgc:density=0.01,masking=off,warmup_steps=0"
        for far in (0.003, 0.7, 14.1, 56.5, 100, 86400):
            page = chart.Page()
            chart.curves(page, "Training", [(f"{long} {i}", [(far * (i + 1) * t / 12, 3.06 - t / (4 + i))
                                                             for t in range(1, 5)]) for i in range(3)], "s", "loss", 0.4)
            seen = self.drawn(page)
            self.assertEqual(picture.problems(seen), [])
            self.assertEqual((len(seen.curves), len(seen.names())), (3, 3))
            self.assertGreaterEqual(sum(text.words.endswith(" s") for text in seen.texts), 4)  # marks

    def test_what_is_wrong_is_found(self):
        """The tests' own eyes."""
        def page(*items):
            return picture.Picture(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100">{"".join(items)}</svg>')

        def text(x, y, words, colour="#222"):
            return f'<text x="{x}" y="{y}" font-size="10" text-anchor="start" fill="{colour}">{words}</text>'

        def curve(width, *points):
            return f'<polyline stroke="red" stroke-width="{width}" points="{" ".join(points)}"/>'

        for wrong, items in (("cut off", [text(190, 50, "a long name", "red")]), ("cut off", [text(5, 3, "high")]),
                             ("lies on", [text(5, 50, "one"), text(9, 53, "two")]),
                             ("no number", [text(5, 50, "1e+06 ms")]), ("runs through", [
                                 text(50, 50, "name", "red"), curve(2, "0,0", "100,94")]),
                             ("hidden", [curve(2, "0,0", "50,50", "90,10"), curve(2, "0,0", "90,90", "50,50", "90,10")])):
            self.assertEqual([found for found in picture.problems(page(*items)) if wrong in found],
                             picture.problems(page(*items)))
            self.assertEqual(len(picture.problems(page(*items))), 1, wrong)
        self.assertEqual(picture.problems(page(curve(4, "0,0", "50,50"), curve(2, "0,0", "50,50"))), [])


if __name__ == "__main__":
    unittest.main()
