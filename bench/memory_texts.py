"""Texts for long-term memory, made of lists and of words as frequent as those of a language: few are in many texts."""

import itertools
import random
from collections.abc import Iterator

from bench.retrieval import CHINESE, ENGLISH, MIXED, PEOPLE, PEOPLE_ZH, SERVICES, SERVICES_ZH

_SYLLABLES = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "is", "on")]
_WORDS = 20_000
_CHARACTERS = 2_500
_GROUPS = ((ENGLISH, SERVICES, PEOPLE), (CHINESE, SERVICES_ZH, PEOPLE_ZH), (MIXED, SERVICES, PEOPLE))


class Texts:
    """Texts and questions, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        vocabulary = random.Random(7)
        self._words = ["".join(vocabulary.choices(_SYLLABLES, k=vocabulary.randint(2, 4))) for _ in range(_WORDS)]
        self._word_shares = _shares(_WORDS)
        self._characters = [chr(0x4E00 + n * 7) for n in range(_CHARACTERS)]
        self._character_shares = _shares(_CHARACTERS)

    def texts(self) -> Iterator[str]:
        """Paragraphs of some 130 terms, without end: two sentences that other texts have as well, and words."""
        for number in itertools.count():
            said = f"{self._sentence()} {self._sentence()}"
            yield f"{said} {self._english(40)}. {self._chinese(15)}。" if number % 2 else f"{said} {self._english(65)}."

    def questions(self) -> Iterator[str]:
        """Questions without end: of common words, of words of all kinds, and of both."""
        while True:
            yield self._question()
            yield self._english(5)
            yield f"{self._chinese(4)} {self._question()} {self._english(3)}"

    def _sentence(self) -> str:
        topics, services, people = self._chance.choice(_GROUPS)
        return self._chance.choice(topics).entry.format(**self._filling(services, people))

    def _question(self) -> str:
        topics, services, people = self._chance.choice(_GROUPS)
        question = self._chance.choice(self._chance.choice(topics).questions)
        return question.format(**self._filling(services, people))

    def _filling(self, services: list[str], people: list[str]) -> dict[str, str]:
        return {
            "s": self._chance.choice(services),
            "p": self._chance.choice(people),
            "n": str(self._chance.randint(2, 900)),
        }

    def _english(self, words: int) -> str:
        return " ".join(self._chance.choices(self._words, cum_weights=self._word_shares, k=words))

    def _chinese(self, characters: int) -> str:
        return "".join(self._chance.choices(self._characters, cum_weights=self._character_shares, k=characters))


def _shares(number: int) -> list[float]:
    """The n-th most frequent word is an n-th as frequent as the first; summed up."""
    return list(itertools.accumulate(1 / (n + 3) for n in range(number)))
