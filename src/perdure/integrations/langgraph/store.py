"""The store: values that the runs of a graph share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from perdure.integrations.in_handler import Documents, Opens, key_of, only, under, unescaped
from perdure.integrations.langgraph.blocking import Blocking, Closing
from perdure.memory.embedding import hash_v1
from perdure.model.documents import Document, DocumentRange, NewDocument
from perdure.model.errors import InvalidInput, NotJson

ITEMS = "langgraph-store"


class PerdureStore(Closing, BaseStore):
    """A store of LangGraph in perdure's database: `builder.compile(store=PerdureStore(app))`.

    Values are JSON objects. A search with a query orders by `hash-v1`: it compares words and parts of words, not their meaning;
    without one the last changed come first. app: an App or a client; in jobs it may be left out. There is no time to live.
    """

    def __init__(self, app: Opens | None = None) -> None:
        self._blocking = Blocking(app)
        self._documents = Documents(app)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `BaseStore.abatch`. All puts are one transaction, after the reads. Raises NotJson, InvalidInput."""
        results: list[Result] = []
        puts: dict[str, NewDocument | None] = {}
        for op in ops:
            match op:
                case GetOp():
                    found = await self._documents.get(ITEMS, key_of(*op.namespace, op.key))
                    results.append(None if found is None else _item(found))
                case SearchOp():
                    results.append(await self._search(op))
                case ListNamespacesOp():
                    results.append(await self._namespaces(op))
                case PutOp():
                    key = key_of(*op.namespace, op.key)
                    puts[key] = None if op.value is None else NewDocument(ITEMS, key, _json(op.value))
                    results.append(None)
                case _:
                    raise InvalidInput(f"a store does not know the operation {type(op).__name__}")
        if puts:
            await self._documents.change(
                put=[new for new in puts.values() if new is not None],
                remove=[only(ITEMS, key) for key, new in puts.items() if new is None],
            )
        return results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """See `BaseStore.batch`."""
        return self._blocking.wait(self.abatch(ops))

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        found = await self._documents.read(under(ITEMS, *op.namespace_prefix))
        fitting = [document for document in found if _fits(document.value, op.filter or {})]
        fitting.sort(key=lambda document: document.updated_at, reverse=True)
        scores: dict[str, float] = {}
        if op.query:
            wanted = hash_v1(op.query)
            for document in fitting:
                words = " ".join(_texts(document.value))
                scores[document.key] = math.fsum(a * b for a, b in zip(wanted, hash_v1(words), strict=True))
            fitting.sort(key=lambda document: scores[document.key], reverse=True)
        return [
            SearchItem(
                namespace=item.namespace,
                key=item.key,
                value=item.value,
                created_at=item.created_at,
                updated_at=item.updated_at,
                score=scores.get(document.key),
            )
            for document in fitting[op.offset : op.offset + op.limit]
            for item in [_item(document)]
        ]

    async def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        within = DocumentRange(ITEMS)
        for condition in conditions:
            if condition.match_type == "prefix" and "*" not in condition.path:
                within = under(ITEMS, *condition.path)
        found = {_parts(document.key)[:-1] for document in await self._documents.read(within)}
        fitting = {
            namespace[: op.max_depth] for namespace in found if all(_matches(one, namespace) for one in conditions)
        }
        return sorted(fitting)[op.offset : op.offset + op.limit]


def _parts(key: str) -> tuple[str, ...]:
    return tuple(map(unescaped, key.split("/")))


def _item(document: Document) -> Item:
    *namespace, key = _parts(document.key)
    return Item(
        value=document.value,
        key=key,
        namespace=tuple(namespace),
        created_at=document.created_at,
        updated_at=document.updated_at,
    )


def _matches(condition: MatchCondition, namespace: Sequence[str]) -> bool:
    path: Sequence[str] = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", is_) for wanted, is_ in zip(path, part, strict=True))


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value has what a filter wants: equal values, objects with these members, or `{"$gt": 3}`. Raises InvalidInput."""
    if not isinstance(wanted, Mapping):
        return bool(value == wanted)
    if any(name.startswith("$") for name in wanted):
        return all(_compares(name, value, other) for name, other in wanted.items())
    return isinstance(value, Mapping) and all(_fits(value.get(name), other) for name, other in wanted.items())


def _compares(operator: str, value: Any, other: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return (value == other) is (operator == "$eq")
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise InvalidInput(f"a search of a store has no operator '{operator}'", hint="$eq, $ne, $gt, $gte, $lt, $lte")
    try:
        left, right = float(value), float(other)
    except (TypeError, ValueError):
        return False
    if left == right:
        return operator in ("$gte", "$lte")
    return (left > right) is operator.startswith("$gt")


def _texts(value: Any) -> Iterable[str]:
    """The texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise NotJson(f"a value of a store must be JSON: {error}") from None
