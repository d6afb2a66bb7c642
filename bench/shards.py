"""The parts of a text that workers get, alike or unlike. A worker of thinwire train reads a stretch of its own of the text, so what
stands where decides who learns what."""
import hashlib
import pathlib
import random

WAYS = ("like", "unlike")
TRAINED, VALIDATED = 0.9, 0.95  # as thinwire train cuts a file


def blocks_of(text):
    """What stands between empty lines: a speech of a play, or a paragraph."""
    return [block.strip("\n") for block in text.split("\n\n") if block.strip()]


def read(path):
    """In UTF-8, which is all that thinwire train takes; lines end as they do here, wherever the text was written."""
    return pathlib.Path(path).read_text(encoding="utf-8")


def has_blocks(path):
    """Else nothing can be dealt out: a folder of texts, or one whose lines are all alike."""
    return pathlib.Path(path).is_file() and len(blocks_of(cut(read(path))[0])) > 1


def arranged(text, how):
    """The same blocks: dealt out, or by their first lines, which in a play name who speaks."""
    blocks = blocks_of(text)
    if how == "unlike":
        return "\n\n".join(sorted(blocks, key=lambda block: block.partition("\n")[0])) + "\n"
    random.Random(1).shuffle(blocks)
    return "\n\n".join(blocks) + "\n"


def cut(text):
    """Training, validation and test text, each to the end of a line."""
    ends = [0, *(text.find("\n", int(len(text) * share)) + 1 or len(text) for share in (TRAINED, VALIDATED)), len(text)]
    return [text[begin:end] for begin, end in zip(ends, ends[1:])]


def arrange(path, out, how):
    """A folder of texts in `out`, named by what they are. Only the training text differs from one way to the other."""
    train, *others = cut(read(path))
    texts = dict(zip(("train", "valid", "test"), (arranged(train, how), *others)))
    folder = pathlib.Path(out) / f"text-{how}-{hashlib.sha256(''.join(texts.values()).encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder
