"""Long texts in chunks: each has a vector, and a hit names the one that fits.

They follow the structure of the text: headings stay with what is below them, and paragraphs, items of lists, tables and blocks of
code are cut only where one alone is too long, between sentences, rows or lines.

What it makes is stored as vectors. So a change of it is a new version of `TOKENISER`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 1_200
"""The size of a chunk: characters, of which those of East Asia count twice. A text of this size is one chunk."""
MOST_CONTEXT = 300
"""Characters of what is said before a chunk."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"(#{1,6})\s+(.*\S)")
_ITEM = re.compile(r" ?([-*+]|\d{1,9}[.)])\s")
_SENTENCE = re.compile(r".+?(?:[。!?!?;;…]+[”’」』）)\"]*|\.(?=\s)|\n|$)\s*", re.DOTALL)
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003134f]")


class Chunk(NamedTuple):
    """A part of a text. start, end: its place, in characters. context: the headings above it, and the head of the table that it
    continues."""

    start: int
    end: int
    context: str


class _Block(NamedTuple):
    kind: str
    start: int
    end: int
    head: str = ""
    """Of a table: its first line. Of a heading: what it says."""
    level: int = 0


def chunks_of(text: str) -> list[Chunk]:
    """The chunks of a text, in order; at least one. Between them is nothing but white space."""
    if _size(text) <= LONGEST:
        return [Chunk(0, len(text), "")]
    found: list[Chunk] = []
    above: list[_Block] = []
    fitting = [block for block in _fitting(text) if not text[block.start : block.end].isspace()]
    for blocks in _packed(text, fitting):
        first, start = blocks[0], blocks[0].start
        if first.kind == "heading":
            above = [heading for heading in above if heading.level < first.level]
        said = [heading.head for heading in above] + ([first.head] if first.kind == "row" else [])
        end = start + len(text[start : blocks[-1].end].rstrip())
        found.append(Chunk(start, end, "\n".join(said)[-MOST_CONTEXT:]))
        for block in blocks:
            if block.kind == "heading":
                above = [heading for heading in above if heading.level < block.level] + [block]
    return found or [Chunk(0, len(text), "")]


def said_of(text: str, chunk: Chunk) -> str:
    """A chunk with its context, as its vector is made of it."""
    part = text[chunk.start : chunk.end]
    return f"{chunk.context}\n{part}" if chunk.context else part


def _packed(text: str, blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Blocks that are a chunk together. A heading is the last of none."""
    packed: list[_Block] = []
    size = 0
    for block in blocks:
        more = _size(text[packed[-1].end if packed else block.start : block.end])
        full = size + more > LONGEST or (block.kind == "heading" and size > LONGEST // 2)
        if full and packed:
            kept = len(packed)
            while kept and packed[kept - 1].kind == "heading":
                kept -= 1
            kept = kept or len(packed)  # nothing but headings
            yield packed[:kept]
            packed = packed[kept:]
            size = _size(text[packed[0].start : packed[-1].end]) if packed else 0
        packed.append(block)
        size += more
    if packed:
        yield packed


def _fitting(text: str) -> Iterator[_Block]:
    """The blocks of a text; those that are too long for a chunk in parts."""
    for block in _blocks(text):
        if _size(text[block.start : block.end]) <= LONGEST:
            yield block
        elif block.kind in ("code", "table"):
            for line in _lines(text, block.start, block.end):
                yield from _cut(text, block._replace(start=line[0], end=line[1]))
        else:
            for match in _SENTENCE.finditer(text, block.start, block.end):
                yield from _cut(text, _Block("sentence", match.start(), match.end()))


def _cut(text: str, block: _Block) -> Iterator[_Block]:
    """A line or a sentence, in parts if it is too long: between words if there are some."""
    kind = (
        "row" if block.head and block.kind == "table" and not text.startswith(block.head, block.start) else block.kind
    )
    start = block.start
    while _size(text[start : min(block.end, start + LONGEST + 1)]) > LONGEST:
        end = start + LONGEST // 2
        space = max(text.rfind(mark, start + LONGEST // 4, end) for mark in " ,，、\t")
        end = end if space < 0 else space + 1
        yield block._replace(kind=kind, start=start, end=end)
        start = end
    yield block._replace(kind=kind, start=start)


def _blocks(text: str) -> Iterator[_Block]:
    """Headings, blocks of code, tables, items of lists and paragraphs."""
    block: _Block | None = None
    fence = ""
    for start, end in _lines(text, 0, len(text)):
        line = text[start:end]
        if fence:
            assert block is not None
            block = block._replace(end=end)
            closing = _FENCE.match(line)
            if closing and closing[1].startswith(fence) and not line.strip().strip(fence[0]):
                yield block
                block, fence = None, ""
            continue
        begun = _begun(line, start, end)
        if begun is not None and begun.kind in ("table", "text") and block is not None and _goes_on(block, begun):
            block = block._replace(end=end)
            continue
        if block is not None:
            yield block
        block = begun
        if begun is not None and begun.kind == "code":
            opening = _FENCE.match(line)
            assert opening is not None
            fence = opening[1]
    if block is not None:
        yield block


def _begun(line: str, start: int, end: int) -> _Block | None:
    """What begins with a line; None: it is empty."""
    said = line.strip()
    if not said:
        return None
    if _FENCE.match(line):
        return _Block("code", start, end)
    if heading := _HEADING.match(line.rstrip()):  # blanks at the end would be tried one by one
        return _Block("heading", start, end, heading[2], len(heading[1]))
    if said.startswith("|"):
        return _Block("table", start, end, said)
    return _Block("item" if _ITEM.match(line) else "text", start, end)


def _goes_on(block: _Block, begun: _Block) -> bool:
    """Whether a line belongs to the block above it."""
    return block.kind == begun.kind or (block.kind == "item" and begun.kind == "text")


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        at = text.find("\n", start, end)
        following = end if at < 0 else at + 1
        yield start, following
        start = following


def _size(text: str) -> int:
    return len(text) + (0 if text.isascii() else len(_WIDE.findall(text)))
