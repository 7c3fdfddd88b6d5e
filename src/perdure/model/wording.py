"""English in messages."""

from __future__ import annotations


def a(thing: str) -> str:
    """`a list`, `an int`. Names that begin with a u are mostly said like `a UUID`."""
    return f"{'an' if thing[:1].lower() in {*'aeio'} else 'a'} {thing}"
