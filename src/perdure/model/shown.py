"""Values as people may see them: without what looks like a secret."""

from __future__ import annotations

import functools
import re
from typing import Any

from perdure.model.urls import masked

HIDDEN = "[redacted]"

SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|^pass$|pwd|secret|token$|credential|api[-_]?key|access[-_]?key|private[-_]?key|authorization|cookie|"
    r"session[-_]?id|signature|^auth$|^key$|^pin$|^cvv$|card[-_]?number|^iban$|^ssn$",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=4096)
def names_secret(name: str) -> bool:
    """Whether a value of this name is a secret."""
    return SECRET_NAME.search(name) is not None


SECRET_TEXT = re.compile(
    r"(?i:\b(bearer|basic) +\S{8,})|\b(sk|pk|rk|ghp|gho|ghs|glpat|xox[abp])[-_]\w{8,}|\bAKIA\w{12,}|"
    r"\beyJ[\w-]+\.[\w-]+\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_REST_OF_SECRET = re.compile(rf"(?s:{SECRET_TEXT.pattern})[\w/+=.-]*")
_URL = re.compile(r"\w+://\S+")
_DEEPEST = 100


def sanitised(value: Any, level: int = 0) -> Any:
    """JSON values without values whose name looks like that of a secret, without texts that look like one, and without passwords
    in URLs. What is deeper than 100 levels is left out."""
    if isinstance(value, str):
        return _URL.sub(lambda m: masked(m[0]), _REST_OF_SECRET.sub(HIDDEN, value))
    if level > _DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {k: HIDDEN if names_secret(k) else sanitised(v, level + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [sanitised(item, level + 1) for item in value]
    return value
