"""Identifiers: time-ordered job ids and their short form, ids of events, and approval tokens."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import struct
import threading
import time
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, SafeUUID, uuid4

SHORT_ID_DIGITS = 8
MIN_SUFFIX_DIGITS = 6

_VERSION_7 = 0x7 << 76 | 0x2 << 62  # with the variant of RFC 9562
_UNKNOWN = SafeUUID.unknown  # looking up a member of an enum takes half as long as making an id
_set_number, _set_safety = (
    UUID.__dict__["int"].__set__,
    UUID.__dict__["is_safe"].__set__,
)  # UUID forbids plain assignment
_lock = threading.Lock()
_last_ms = 0
_sequence = 0
_noise: list[int] = []
_prefix = ""


def uuid7() -> UUID:
    """A new UUIDv7: 48 bits of Unix milliseconds, a 12-bit counter, 62 random bits.

    Ids made by one process are strictly increasing; across processes they order by millisecond.
    """
    global _last_ms, _sequence, _noise  # noqa: PLW0603  the counter is the process's own
    with _lock:
        now = time.time_ns() // 1_000_000
        if now > _last_ms:
            _last_ms, _sequence = now, 0
        else:
            _sequence += 1
            if _sequence > 0xFFF:  # more than 4096 ids in a millisecond borrow from the next one
                _last_ms, _sequence = _last_ms + 1, 0
        if not _noise:  # a system call for every id would cost more than the rest of this function
            _noise = [noise >> 2 | _VERSION_7 for noise in struct.unpack("512Q", os.urandom(4096))]
        return uuid_of(_last_ms << 80 | _sequence << 64 | _noise.pop())


def uuid_of(number: int) -> UUID:
    """The UUID of a number known to have 128 bits. UUID's own constructor takes three times as long."""
    id = object.__new__(UUID)
    _set_number(id, number)
    _set_safety(id, _UNKNOWN)
    return id


def first_id_of(moment: datetime) -> UUID:
    """A bound below every UUIDv7 made at `moment` (timezone-aware, to the millisecond) or later, and above all earlier ones."""
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)


def new_event_id() -> str:
    """A new UUID as text: random digits of this process, then a count, because each step needs one and this is cheap."""
    return f"{_prefix}{next(_count):012x}"


def keyed_event_id(job_id: UUID, key: str) -> str:
    """The id of the event that a handler writes under this key, as text: the same in every attempt."""
    return str(UUID(bytes=hashlib.sha256(f"{job_id}:event:{key}".encode()).digest()[:16], version=5))


def _renew_randomness() -> None:
    global _noise, _prefix  # noqa: PLW0603  a child process must not repeat its parent's random bits
    _noise = []
    _prefix = str(uuid4())[:24]


_count = itertools.count()
_renew_randomness()
os.register_at_fork(after_in_child=_renew_randomness)


def short_id(id: UUID) -> str:
    """The last 8 hex digits: the random end, so that ids of one moment still look different."""
    return id.hex[-SHORT_ID_DIGITS:]


def new_token() -> str:
    """A fresh approval token: 256 random bits, URL-safe. Show it once; keep only `hash_token` of it."""
    return "pdt_" + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """SHA-256 of a token, in hex: the only form in which it is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def hash_json(text: str) -> str:
    """SHA-256 of a JSON text exactly as stored, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def same_json(one: str, other: str) -> bool:
    """Whether two JSON texts hold the same value, whatever their spaces, order of keys, escapes, and `1.0` or `1`.

    Other languages format JSON differently; PostgreSQL compares `jsonb` like this.
    """
    if one == other:
        return True
    try:
        return _equal(_exact(one), _exact(other))
    except (ValueError, ArithmeticError, RecursionError):  # a text that cannot be read equals only itself
        return False


def _exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
