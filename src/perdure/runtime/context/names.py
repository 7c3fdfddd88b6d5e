"""The keys of an attempt's calls: a name, the key of its options, and a number where it is used again."""

from __future__ import annotations

import functools
import re

from perdure.model.errors import InvalidInput

UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that a database refuses in text."""
_RESERVED_ENDING = re.compile(r"#\d+$|\[.*\]$")


@functools.lru_cache(maxsize=1024)
def _check_name(name: str) -> None:
    if not name or len(name) > 200 or UNSTORABLE.search(name):
        raise InvalidInput(f"a step name is 1 to 200 whole characters without NUL, got {name!r}")
    if _RESERVED_ENDING.search(name):
        raise InvalidInput(f"step name {name!r} ends like a repeat ('#2') or a key ('[...]'): choose another")


class Keys:
    """Counts how often the calls of each kind used each name in an attempt."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def next(self, kind: str, name: str, key: str | None) -> str:
        """`name`, `name[key]` if it has a key, and with `#2`, `#3`, ... from its second use by calls of this kind. Raises
        InvalidInput for a name that cannot be stored or that could be mistaken for one of these."""
        _check_name(name)
        if key is not None:
            name = f"{name}[{key}]"
        of = kind, name
        count = self._counts[of] = self._counts.get(of, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def again(self, kind: str, key: str) -> str:
        """A key that is given: as it is, and with `#wait2`, `#wait3`, ... from its second use by calls of this kind."""
        of = kind, key
        count = self._counts[of] = self._counts.get(of, 0) + 1
        return key if count == 1 else f"{key}#wait{count}"
