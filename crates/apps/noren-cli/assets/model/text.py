"""Writes the text that the embedded model is trained on: the six novels of Jane Austen, which are in the public domain.

They are taken from the Debian package r-cran-janeaustenr (its source is Project Gutenberg): `apt-get download` and
`dpkg-deb -x` bring the file, an R data base of one vector of lines for each novel.

    python text.py Rdata.rdb > austen.txt

Paragraphs come out as lines, chapters with a blank line between.
"""

import re
import struct
import sys
import zlib


def novels(data):
    """The lines of each novel; a novel is a length, a deflated R vector of strings, and nothing between."""
    at = 0
    while at < len(data):
        inflate = zlib.decompressobj()
        raw = inflate.decompress(data[at + 4 :])
        at = len(data) - len(inflate.unused_data)
        yield lines(raw)


def lines(raw):
    """The strings of an R vector of strings (type 16): each has its flags, its length and its bytes."""
    at = raw.index(b"\0\0\0\x10") + 4
    (count,) = struct.unpack_from(">I", raw, at)
    at += 4
    for _ in range(count):
        _, length = struct.unpack_from(">Ii", raw, at)
        at += 8 + max(length, 0)
        yield raw[at - max(length, 0) : at].decode()


def chapters(novel):
    """Chapters as lists of paragraphs. What comes before the first chapter is left out."""
    text = "\n".join(line.strip().replace("_", "") for line in novel)
    parts = re.split(r"\n(?:CHAPTER|Chapter) +[IVXLC0-9]+\.?\n", text)[1:]
    for part in parts:
        paragraphs = [" ".join(p.split()) for p in part.split("\n\n")]
        yield [p for p in paragraphs if p and not re.match(r"(VOLUME|Volume|THE END|FINIS|Finis|END)\b.{0,10}$", p)]


if __name__ == "__main__":
    books = novels(open(sys.argv[1], "rb").read())
    print("\n\n".join("\n".join(chapter) for book in books for chapter in chapters(book)))
