"""Values of labels, limited in number: after the first ones all others become "other"."""

from __future__ import annotations

import re
from collections.abc import Callable

OTHER = "other"
_REPEAT = re.compile(r"#\d+$")


class Labels:
    """The values of one label: at most `most`, and all that are `known`."""

    def __init__(self, most: int, known: Callable[[str], bool] = lambda _: False) -> None:
        self._most = most
        self._known = known
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """The value, or "other"."""
        if value in self._seen or self._known(value):
            return value
        if len(self._seen) >= self._most:
            return OTHER
        self._seen.add(value)
        return value


def call_name(key: str) -> str:
    """The name of a step or tool, from its key in the log: without `#2`, and without the `[key]` of parallel ones."""
    name = _REPEAT.sub("", key)
    if name.endswith("]"):
        name = name.partition("[")[0] or OTHER
    return name
