#!/usr/bin/env python3
"""How the documents are written, as far as a machine can tell. Sentences are not too long, and have none of the words
that readers stumbled on, but in pages that only authors read. No page promises something for later. Fragments without a
verb, only a reader finds."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONGEST = 32  # words

FOR_AUTHORS = ["CHANGELOG.md", "docs/architecture.md", "docs/wire-format.md"]  # the rest is for all

STUMBLED = {  # what, and what is better
    r"\bby gossip\b": "with gossip schemes",
    r"\b(?:MB|KB|GB|bytes|steps|images|threads|messages|parameters|epochs) a (?:worker|rank|step|epoch|second|machine)\b": "per",
    r"\ba worker sends a step\b": "per step",
    r"\b(?:is|are) told on\b": "is reported on",
    r"\b(?:simply|just|obviously|easily|of course|note that)\b": "leave it out",
    r"\b(?:utilize|leverage|in order to|facilitate)\b": "use, to",
    r"\b(?:blazing|seamless|cutting-edge|state-of-the-art|powerful|robust)\b": "say what it does",
    r"\bas well as\b": "and",
    r"\bwhat there (?:is|are) not\b": "name it",
}
PROMISES = r"\b(?:TODO|FIXME|coming soon|not yet implemented|will be (?:added|supported|available)|in a future (?:version|release)|planned for)\b"


def paragraphs(text):
    """Prose with the line it begins in: no code, no tables, no headings; of links their words."""
    text = re.sub(r"^\s*```.*?^\s*```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    lines, begin = [], 1
    for number, line in enumerate([*text.split("\n"), ""], 1):
        item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if not line.strip() or line.startswith(("#", "|", "    ", "!", "<")) or item:
            if lines:
                yield begin, " ".join(lines)
            lines = [line[item.end():]] if item else []
            begin = number
        else:
            if not lines:
                begin = number
            lines.append(line.strip())


def plain(text):
    text = re.sub(r"\[[^\]]*[./][^\]]*\]\([^)]*\)", "Page", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "Code", text).replace("**", "")


def sentences(text):
    return re.split(r"(?<=[.!?:])\s+(?=[A-Z`(])", plain(text))


def complaints(path, text, for_strangers):
    for begin, paragraph in paragraphs(text):
        if re.search(PROMISES, paragraph):
            yield f"{path}:{begin}: promises something for later"
        for sentence in sentences(paragraph) if for_strangers else ():
            words = sentence.split()
            if len(words) > LONGEST:
                yield f"{path}:{begin}: a sentence of {len(words)} words: {' '.join(words[:8])} ..."
        for pattern, better in STUMBLED.items() if for_strangers else ():
            found = re.search(pattern, plain(paragraph), re.I)
            if found:
                yield f"{path}:{begin}: \"{found[0]}\"; better: {better}"


def check_oneself():
    """The rules find what they are for."""
    wrong = ["It sends 4 MB a worker.", "Weights are averaged by gossip.", "Word " * (LONGEST + 1) + ".", "Simply run it."]
    for text in wrong:
        assert list(complaints("x", text, True)), text
    assert list(complaints("x", "Speech will be supported.", False))
    right = "It sends 4 MB per worker.\n\n```sh\nby gossip\n```\n\n| a table | by gossip |\n\n" + "One. Two. " * 40
    assert not list(complaints("x", right, True)), list(complaints("x", right, True))


def main():
    check_oneself()
    pages = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("python/*.md")])
    names = [str(page.relative_to(ROOT)) for page in pages]
    wrong = [f"{name} is missing" for name in FOR_AUTHORS if name not in names]
    for page, name in zip(pages, names):
        wrong += complaints(name, page.read_text(), name not in FOR_AUTHORS)
    print("\n".join(wrong) or f"{len(pages)} pages, {len(FOR_AUTHORS)} of them for authors: nothing to mend")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
