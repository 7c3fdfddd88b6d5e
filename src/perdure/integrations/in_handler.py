"""What the adapters share: settings of calls, numbers of calls, and documents from inside and outside of a handler."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypedDict

from perdure.model.documents import Document, DocumentRange, NewDocument
from perdure.model.errors import ConfigError
from perdure.model.timing import Backoff, Duration
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.current_context import running_context
from perdure.runtime.context.job_documents import change_at_once, store_of
from perdure.runtime.context.options import OnChange, OnUnknown
from perdure.store.protocol import Store

PAGE = 500


class CallSettings(TypedDict, total=False):
    """How the calls of an agent behave; each as in `JobContext.options`. timeout: seconds, or text such as "1m"."""

    retries: int
    backoff: Backoff
    timeout: Duration
    on_change: OnChange
    on_unknown: OnUnknown


class Opens(Protocol):
    """An `App`, or a client of one."""

    async def open(self) -> Store:
        """The store."""
        ...


_counts: weakref.WeakKeyDictionary[JobContext, Counter[str]] = weakref.WeakKeyDictionary()
"""How often each attempt has done what is counted here."""


def numbered(ctx: JobContext, name: str) -> str:
    """The name and its number in this attempt, from 1: the same in every attempt, as the calls of a handler are."""
    counts = _counts.setdefault(ctx, Counter())
    counts[name] += 1
    return f"{name} {counts[name]}"


def escaped(part: str) -> str:
    """A part of a key, which parts of keys are separated from by slashes."""
    return part.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")


def unescaped(part: str) -> str:
    """See `escaped`."""
    return part.replace("%00", "\0").replace("%2F", "/").replace("%25", "%")


def key_of(*parts: str) -> str:
    """A key made of parts."""
    return "/".join(map(escaped, parts))


def under(collection: str, *parts: str) -> DocumentRange:
    """The documents whose keys begin with these parts."""
    prefix = "".join(f"{escaped(part)}/" for part in parts)
    return DocumentRange(collection, prefix, f"{prefix[:-1]}0" if prefix else None)  # the character after the slash


def only(collection: str, key: str) -> DocumentRange:
    """One document."""
    return DocumentRange(collection, key, f"{key}\1")


class Documents:
    """The documents of a job, read and written directly: under its lease in a job, via the app outside."""

    def __init__(self, app: Opens | None) -> None:
        self._app = app

    async def store(self) -> Store:
        """That of the job this code runs in, or the app's. Raises ConfigError outside of jobs without an app."""
        ctx = running_context.get(None)
        if ctx is not None:
            return store_of(ctx)
        if self._app is None:
            raise ConfigError("outside of a job this needs an app", hint="give it the App when you make it")
        return await self._app.open()

    async def get(self, collection: str, key: str) -> Document | None:
        """One document; None if it is not there."""
        return await (await self.store()).documents.read_document(collection, key)

    async def read(self, within: DocumentRange) -> list[Document]:
        """All documents of a range."""
        store = await self.store()
        found: list[Document] = []
        while True:
            page = await store.documents.list_documents(within, limit=PAGE)
            found += page
            if len(page) < PAGE:
                return found
            within = within._replace(first=f"{page[-1].key}\1")

    async def last(self, within: DocumentRange, limit: int = 1) -> list[Document]:
        """The last documents of a range, in the order of their keys."""
        store = await self.store()
        return (await store.documents.list_documents(within, limit=limit, last=True))[::-1]

    async def change(self, *, put: Sequence[NewDocument] = (), remove: Sequence[DocumentRange] = ()) -> int:
        """See `DocumentStore.change_documents`."""
        ctx = running_context.get(None)
        if ctx is not None:
            return await change_at_once(ctx, put, remove)
        return await (await self.store()).documents.change_documents(put=put, remove=remove)
