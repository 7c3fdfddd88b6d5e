"""Documents: values under sorted keys, alike in every store."""

from typing import Any

import pytest

from perdure.model.documents import DocumentRange, NewDocument
from perdure.model.effects import add_document, remove_range
from perdure.model.errors import LeaseLost
from perdure.store.protocol import Store
from tests.conformance.support import event, started

ALL = DocumentRange("notes")


def note(key: str, value: str = "1", **more: Any) -> NewDocument:
    return NewDocument("notes", key, value)._replace(**more)


async def keys(store: Store, within: DocumentRange = ALL, *, last: bool = False, limit: int = 9) -> list[str]:
    return [found.key for found in await store.documents.list_documents(within, limit=limit, last=last)]


async def test_a_document_is_read_as_it_was_written(store: Store) -> None:
    assert await store.documents.change_documents(put=[note("a", '{"x": "一"}', body=b"\x00\xff")]) == 0
    found = await store.documents.read_document("notes", "a")
    assert found is not None
    assert (found.key, found.value, found.body) == ("a", {"x": "一"}, b"\x00\xff")
    assert found.created_at == found.updated_at
    assert await store.documents.read_document("notes", "b") is None
    assert await store.documents.read_document("other", "a") is None


async def test_one_that_is_replaced_keeps_its_birth_and_one_that_is_kept_its_value(store: Store) -> None:
    await store.documents.change_documents(put=[note("a", body=b"x")])
    first = await store.documents.read_document("notes", "a")
    await store.documents.change_documents(put=[note("a", "2")])
    second = await store.documents.read_document("notes", "a")
    assert first is not None
    assert second is not None
    assert (second.value, second.body, second.created_at) == (2, None, first.created_at)
    assert second.updated_at >= first.updated_at
    await store.documents.change_documents(put=[note("a", "3", keep=True), note("b", "4", keep=True)])
    assert [(d.key, d.value) for d in await store.documents.list_documents(ALL, limit=9)] == [("a", 2), ("b", 4)]


async def test_ranges_are_in_the_order_of_code_points(store: Store) -> None:
    await store.documents.change_documents(
        put=[note(key) for key in ("b/1", "B/1", "b0", "é", "b/10", "b/2", "\U0001f600", "一")]
    )
    assert await keys(store) == ["B/1", "b/1", "b/10", "b/2", "b0", "é", "一", "\U0001f600"]
    assert await keys(store, last=True, limit=2) == ["\U0001f600", "一"]
    inside = DocumentRange("notes", "b/", "b0")
    assert await keys(store, inside) == ["b/1", "b/10", "b/2"]
    assert await keys(store, inside, last=True, limit=1) == ["b/2"]
    assert await store.documents.change_documents(remove=[inside], put=[note("b/3")]) == 3
    assert await keys(store, inside) == ["b/3"]
    assert await store.documents.change_documents(remove=[ALL]) == 6
    assert await keys(store) == []


async def test_a_tenant_sees_its_own(store: Store) -> None:
    other = store.tenant(f"{store.tenant_id}-other")
    await store.documents.change_documents(put=[note("a")])
    assert await keys(other) == []
    assert await other.documents.change_documents(remove=[ALL]) == 0
    assert await keys(store) == ["a"]


async def test_a_worker_without_the_lease_changes_nothing(store: Store) -> None:
    lease = await started(store)
    await store.documents.change_documents(put=[note("a")], lease=lease)
    late = lease._replace(attempt=lease.attempt + 1)
    with pytest.raises(LeaseLost):
        await store.documents.change_documents(put=[note("b")], remove=[ALL], lease=late)
    assert await keys(store) == ["a"]


async def test_effects_commit_with_events_and_only_under_the_lease(store: Store) -> None:
    lease = await started(store)
    tenant = store.tenant_id
    adds = [add_document(tenant, note(key, body=b"x")) for key in ("a", "b")]
    await store.leases.record(lease, [event()], effects=adds)
    again = [
        add_document(tenant, note("a", "2")),
        remove_range(tenant, DocumentRange("notes", "b", "c")),
        add_document(tenant, note("c")),
    ]
    await store.leases.record(lease, [event()], effects=again)
    assert [(d.key, d.value, d.body) for d in await store.documents.list_documents(ALL, limit=9)] == [
        ("a", 1, b"x"),
        ("c", 1, None),
    ]
    late = lease._replace(attempt=lease.attempt + 1)
    with pytest.raises(LeaseLost):
        await store.leases.record(late, [event()], effects=[remove_range(tenant, ALL)])
    assert await keys(store) == ["a", "c"]
