"""Opens the store of a database URL: `memory:`, `sqlite:///path`, `postgresql://...`."""

from __future__ import annotations

from perdure.model.errors import InvalidInput, MalformedUrl
from perdure.model.jobs import DEFAULT_TENANT
from perdure.model.timing import SettableClock
from perdure.model.urls import has_parameters, masked
from perdure.store.protocol import Store
from perdure.store.protocol.blobs import ContentSettings

_FORMS = "memory:, sqlite:///relative/path.db, sqlite:////absolute/path.db, postgresql://user@host:5432/database"


async def open_store(
    url: str,
    *,
    tenant: str = DEFAULT_TENANT,
    clock: SettableClock | None = None,
    creates: bool = True,
    allow_other_tables: bool = True,
    contents: ContentSettings | None = None,
) -> Store:
    """Connect to the store that a URL names. The schema is not checked here: call `check_schema` or `migrate`.

    clock: database time of a memory: store, for tests; the others use the time of their database.
    creates: whether a SQLite file may be created, or used if it does not have perdure's schema.
    allow_other_tables: also use a file that has other tables, unless one of them has a name that the schema needs.
    contents: where contents of files are kept.
    Raises MalformedUrl for anything but the three forms, StoreUnreachable if the database does not answer, InvalidInput
    for a clock that the store cannot use; for a SQLite file ForeignDatabase, and with creates=False as `check_schema`.
    """
    scheme, _, rest = url.strip().partition(":")
    if clock is not None and scheme != "memory":
        raise InvalidInput("only a memory: store can be given a clock: the others use the time of their database")
    if scheme == "memory" and not rest:
        from perdure.store.sqlite.store import SqliteStore

        return await SqliteStore.open(None, tenant=tenant, clock=clock, contents=contents)
    if scheme == "sqlite" and rest.startswith("///") and len(rest) > 3:
        if has_parameters(rest):
            path = rest.partition("?")[0]
            raise MalformedUrl(
                f"'{masked(url)}' has parameters, and a SQLite file has none",
                hint=f"write sqlite:{path}; no part of it is secret",
            )
        from perdure.store.sqlite.store import SqliteStore

        return await SqliteStore.open(
            rest[3:], tenant=tenant, creates=creates, allow_other_tables=allow_other_tables, contents=contents
        )
    if scheme.partition("+")[0] in ("postgresql", "postgres") and rest.startswith("//") and len(rest) > 2:
        from perdure.store.postgres.store import PostgresStore

        return await PostgresStore.open(url.strip(), tenant=tenant, contents=contents)
    raise MalformedUrl(f"'{masked(url)}' is not a database URL", hint=f"write one of: {_FORMS}")
