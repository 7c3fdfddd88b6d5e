"""Texts as search terms: one tokeniser for Chinese, English and mixed text.

What it makes of a text is stored. So a change of it is a new version: entries keep the name of the one that made their terms, and
`reindex` makes them again.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

TOKENISER = "tok-v1"
"""The version of what is stored."""
LONGEST = 64
"""Characters of a term; longer words (hashes, encoded data) are cut."""
LEAST_PREFIX = 4
"""Characters that the beginning of a word needs to find longer words."""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
_RUN = re.compile(rf"(?P<cjk>[{_CJK}]+)|[^\W{_CJK}]+")
_ENDINGS = ("ations", "ation", "ments", "ment", "ings", "ing", "ions", "ion", "ers", "er", "ies", "es", "ed", "s", "e")

_WORDS = """
a about after again all also am an and any are as at be been before being but by can could did do does doing down for
from get got had has have he her here him his how i if in into is it its just last me more most my no not now of off on
once only or other our out over own please she should so some such than that the their them then there these they this
those through time to too under until up us very was we were what when where which while who why will with would you
your
"""
_BIGRAMS = """
上次 这次 那次 后来 怎么 什么 如何 为何 为什 么样 么办 哪个 哪些
哪里 那个 这个 这些 那些 我们 你们 他们 她们 它们 咱们 可以 是否
以及 或者 还是 一下 一个 已经 现在 之前 之后 以前 以后 时候 的时
请问 告诉 诉我 帮我 知道 是不 不是 有没 没有 的是 是什 了吗 了什
么时 多少 谁的 我的 你的 他的 来着
"""
STOP_WORDS = frozenset(_WORDS.split())
"""English words that a query is better without."""
STOP_BIGRAMS = frozenset(_BIGRAMS.split())
"""Chinese pairs of characters that a query is better without."""
STOP_CHARACTERS = frozenset("的了吗呢啊吧呀嘛么是在我你他她它们这那有和与就都也还很把被给对从到去来个些要会能得着过")
"""A pair of such characters says nothing either, nor does a pair with one of 的了吗呢 in it."""
_PARTICLES = frozenset("的了吗呢啊吧呀嘛")


def normalised(text: str) -> str:
    """The text as terms are made of it: NFKC, in lower case."""
    return unicodedata.normalize("NFKC", text).lower()


def terms_of(text: str) -> Counter[str]:
    """The terms of a text that is stored, and how often each is in it: words, and of CJK text each character and each pair of
    neighbours."""
    found: Counter[str] = Counter()
    for run, cjk in _runs(text):
        if cjk:
            found.update(run)
            found.update(run[at : at + 2] for at in range(len(run) - 1))
        else:
            found[run[:LONGEST]] += 1
    return found


def query_terms(query: str) -> list[str]:
    """The terms that a query is searched by, each once: words and pairs of CJK characters, without those that say nothing unless
    there are no others."""
    every = list(dict.fromkeys(_query_runs(query)))
    return [term for term in every if not _says_nothing(term)] or every


def prefixes(term: str) -> list[str]:
    """The beginnings by which a word of a query also finds other words: itself, and without an English ending."""
    if len(term) < LEAST_PREFIX or _is_cjk(term):
        return []
    found = [term]
    for ending in _ENDINGS:
        if term.endswith(ending) and len(term) - len(ending) >= LEAST_PREFIX:
            found.append(term[: -len(ending)])
            break
    return found


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    for match in _RUN.finditer(normalised(text)):
        yield match[0], match["cjk"] is not None


def _query_runs(query: str) -> Iterator[str]:
    for run, cjk in _runs(query):
        if cjk and len(run) > 1:
            yield from (run[at : at + 2] for at in range(len(run) - 1))
        else:
            yield run[:LONGEST]


def _is_cjk(term: str) -> bool:
    match = _RUN.match(term)
    return match is not None and match["cjk"] is not None


def _says_nothing(term: str) -> bool:
    if term in STOP_WORDS or term in STOP_BIGRAMS:
        return True
    characters = set(term)
    return characters <= STOP_CHARACTERS or (len(term) == 2 and bool(characters & _PARTICLES))
