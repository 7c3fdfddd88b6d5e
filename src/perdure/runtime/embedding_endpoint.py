"""Vectors from an endpoint with the interface of OpenAI's: POST {url}/embeddings."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from perdure.memory.embedding import unit
from perdure.model.errors import EmbedderUnavailable, MixedDimensions
from perdure.model.tooling import SecretReference

BATCH = 64
"""Texts of one request."""
TIMEOUT = 10.0
"""Seconds for an answer."""
ATTEMPTS = 5
"""Of a request, where the caller waits."""
LONGEST_PAUSE = 300.0
"""Seconds for which the endpoint is not asked after it failed."""
LARGEST_ANSWER = 64 * 1024 * 1024


class _NoAnswer(Exception):
    """It gave no answer. after: seconds that it asks for. final: the same request will not be answered later."""

    def __init__(self, message: str, after: float | None = None, *, final: bool = False) -> None:
        super().__init__(message)
        self.after = after
        self.final = final


class _NoRedirect(HTTPRedirectHandler):
    """The key is for this address alone."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """None: the redirect is an error."""


class EmbeddingEndpoint:
    """An embedder: see `embedders.Embedder`. After a failure it is not asked for a while, so that writes and searches do not wait
    for it."""

    weight = 1.0

    def __init__(self, url: str, model: str, key: SecretReference | None, dimensions: int | None) -> None:
        self.id = model
        self._url = f"{url.rstrip('/')}/embeddings"
        self._key = key
        self._asked_dimensions = self._dimensions = dimensions
        self._failures = 0
        self._not_before = 0.0
        self._why = ""
        self._opener = build_opener(_NoRedirect)

    async def vectors(self, texts: Sequence[str], *, wait: bool = False) -> list[list[float]]:
        """See `Embedder.vectors`."""
        found: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            found += self._checked(await self._asked(batch, wait), len(batch))
        return found

    async def of_query(self, query: str) -> list[float]:
        """See `Embedder.of_query`."""
        [vector] = await self.vectors([query])
        return vector

    async def _asked(self, texts: list[str], wait: bool) -> Any:
        attempts = ATTEMPTS if wait else 1
        while True:
            pause = self._not_before - time.monotonic()
            if pause > 0 and not wait:
                raise EmbedderUnavailable(f"{self._why}; it is asked again in {pause:.0f} s")
            await asyncio.sleep(max(0.0, pause))
            try:
                answer = await asyncio.to_thread(self._post, texts)
            except _NoAnswer as failed:
                self._failures += 1
                pause = min(60.0, 0.5 * 2**self._failures) * random.uniform(0.8, 1.2)
                pause = min(LONGEST_PAUSE, pause if failed.after is None else failed.after)
                self._not_before, self._why = time.monotonic() + pause, str(failed)
                attempts -= 1
                if attempts < 1 or failed.final:
                    raise EmbedderUnavailable(str(failed)) from None
            else:
                self._failures, self._not_before = 0, 0.0
                return answer

    def _post(self, texts: list[str]) -> Any:
        """Blocks. Raises _NoAnswer."""
        body: dict[str, Any] = {"model": self.id, "input": texts, "encoding_format": "float"}
        if self._asked_dimensions is not None:
            body["dimensions"] = self._asked_dimensions
        headers = {"content-type": "application/json"}
        key = self._secret()
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        request = Request(self._url, json.dumps(body).encode(), headers)  # noqa: S310  the settings permit http and https alone
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                return json.loads(answer.read(LARGEST_ANSWER))
        except HTTPError as error:
            with error:
                said = error.read(300).decode(errors="replace")
            message = f"{self._url} answered {error.code}: {said if key is None else said.replace(key, '[key]')}"
            after = _seconds_of(error.headers.get("retry-after"))
            raise _NoAnswer(message, after, final=error.code < 500 and error.code not in (408, 429)) from None
        except (OSError, HTTPException, ValueError) as error:
            raise _NoAnswer(f"{self._url} gave no answer: {error}") from None

    def _secret(self) -> str | None:
        """Read at each request: a file may change. Raises _NoAnswer."""
        if self._key is None:
            return None
        try:
            found = os.environ[self._key.name] if self._key.source == "env" else Path(self._key.name).read_text()
        except (KeyError, OSError):
            raise _NoAnswer(
                f"memory_key refers to {self._key.source}:{self._key.name}, which cannot be read", final=True
            ) from None
        key = found.strip()
        if not (key and key.isascii() and key.isprintable()):  # the error of a header would show it
            raise _NoAnswer(f"memory_key refers to {self._key.source}:{self._key.name}, which is no key", final=True)
        return key

    def _checked(self, answer: Any, number: int) -> list[list[float]]:
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            found = [[float(x) for x in row["embedding"]] for row in rows]
        except (KeyError, TypeError, ValueError):
            raise EmbedderUnavailable(f"{self._url} did not answer as an embedding endpoint does") from None
        if len(found) != number or not all(vector and all(map(isfinite, vector)) for vector in found):
            raise EmbedderUnavailable(f"{self._url} gave {len(found)} usable vectors for {number} texts")
        for dimensions in map(len, found):
            if self._dimensions is None:
                self._dimensions = dimensions
            if dimensions != self._dimensions:
                raise MixedDimensions(
                    f"the model {self.id} gave a vector of {dimensions} dimensions, and {self._dimensions} are expected",
                    hint="set memory_dimensions to what the model gives, then: perdure memory reindex --all",
                )
        return [unit(vector) for vector in found]


def _seconds_of(retry_after: str | None) -> float | None:
    """What a server says in `Retry-After`: seconds, or a date."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
