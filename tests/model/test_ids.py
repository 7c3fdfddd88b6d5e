"""Ids order by the moment they were made, and tokens are kept as hashes only."""

import hashlib
import itertools
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.ids import hash_json, hash_token, new_event_id, new_token, same_json, short_id, uuid7


def test_an_id_is_a_uuid_of_version_7_and_tells_its_millisecond() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert made.version == 7
    assert made.variant == RFC_4122
    # a burst before this test may have borrowed a few milliseconds from the future
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000 + 1000


def test_ids_of_one_process_strictly_increase_also_within_a_millisecond() -> None:
    made = [uuid7() for _ in range(20_000)]
    assert all(a < b for a, b in itertools.pairwise(made))
    assert [str(i) for i in made] == sorted(str(i) for i in made), "their text sorts alike"


def test_ids_made_by_many_threads_are_unique() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: [uuid7() for _ in range(2000)], range(8)))
    assert len({i for ids in made for i in ids}) == 16_000
    assert all(ids == sorted(ids) for ids in made)


def test_the_short_form_is_the_random_end() -> None:
    made = uuid7()
    assert made.hex.endswith(short_id(made))
    assert len(short_id(made)) == 8
    assert len({short_id(uuid7()) for _ in range(1000)}) == 1000


def test_an_event_id_is_a_uuid_and_no_other_thread_makes_it() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [id for ids in pool.map(lambda _: [new_event_id() for _ in range(2000)], range(8)) for id in ids]
    assert len(set(made)) == 16_000
    assert {(str(id), id.version, id.variant) for id in map(UUID, made[:10])} == {(id, 4, RFC_4122) for id in made[:10]}


FORK = """
import os
from perdure.model.ids import new_event_id, uuid7
uuid7()  # there is some noise in stock
child = os.fork()
text = f"{new_event_id()[:24]} {uuid7().int & (1 << 62) - 1} "
if child:
    os.waitpid(child, 0)
os.write(1, text.encode())
"""


def test_a_child_makes_ids_of_its_own() -> None:
    """It begins as a copy of its parent, random digits and all."""
    said = subprocess.run([sys.executable, "-c", FORK], check=True, capture_output=True, text=True).stdout.split()
    assert len(said) == 4
    assert len(set(said)) == 4, "two prefixes of event ids, the noise of two job ids"


def test_tokens_are_unguessable_and_only_their_hash_is_kept() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(token.startswith("pdt_") and len(token) == 4 + 43 for token in tokens), "256 bits"
    token = tokens.pop()
    assert hash_token(token) == hashlib.sha256(token.encode()).hexdigest()
    assert token not in hash_token(token)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_json_is_hashed_as_the_exact_text(one: str, other: str) -> None:
    assert (hash_json(one) == hash_json(other)) == (one == other)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def turned(value: Any) -> Any:
    """The same value, the keys of its objects the other way round."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_one_value_is_the_same_however_it_is_spelled(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for other in (text, json.dumps(value, indent=2), json.dumps(turned(value), ensure_ascii=True) + "\n"):
        assert same_json(text, other)
        assert same_json(other, text)
        assert not same_json(text, f"[{other}]")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1", "1.0", True),
        ("100", "1e2", True),
        ("0", "-0.0", True),
        ("0.1", "0.10000000000000000555", False),
        ("9007199254740993", "9007199254740992", False),
        ("1e1000000000", "10e999999999", True),
        ("1", "true", False),
        ("0", "null", False),
        ('"1"', "1", False),
        ('{"a": 1}', '{"a": 1, "b": null}', False),
        ('{"a": 1, "a": 2}', '{"a": 2}', True),
        ("[1, 2]", "[2, 1]", False),
        ("[1]", "[1, 1]", False),
        ("[]", "{}", False),
        ("what", "what", True),
        ("what", "what ", False),
        ("[" * 100_000, "[" * 100_001, False),
    ],
)
def test_what_is_the_same_json(one: str, other: str, same: bool) -> None:
    assert same_json(one, other) is same_json(other, one) is same
