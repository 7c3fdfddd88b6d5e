"""Text of jobs as it may be shown: without characters that control a terminal, reorder words or cannot be seen."""

from __future__ import annotations

import re

_INVISIBLE = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f{_INVISIBLE}]")
_UNSAFE_IN_JSON = re.compile(f"[{_INVISIBLE}]")


def clean_text(text: str) -> str:
    """Text with control and direction characters escaped, so that data cannot move the cursor or hide words."""
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same on one line."""
    return clean_text(" ".join(text.split()))


def safe_json(text: str) -> str:
    """JSON text without characters that control a terminal; it is still JSON."""
    return _UNSAFE_IN_JSON.sub(_escaped_in_json, text)


def same_length(text: str) -> str:
    """Text with a question mark for each character that `clean_text` escapes: for text whose places are known already."""
    return _UNSAFE.sub("\ufffd", text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _escaped_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4))
