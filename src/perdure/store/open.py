"""From a database URL to an open store: `memory:`, `sqlite:///path`, `postgresql://...`."""

from __future__ import annotations

from perdure.model.errors import MalformedUrl
from perdure.model.jobs import DEFAULT_TENANT
from perdure.store.protocol import Store

_FORMS = "memory:, sqlite:///relative/path.db, sqlite:////absolute/path.db, postgresql://user@host:5432/database"


async def open_store(url: str, *, tenant: str = DEFAULT_TENANT) -> Store:
    """Connect to the store a URL names. The schema is not looked at here: `check_schema` or `migrate` follows.

    Raises MalformedUrl for anything else than the three forms, StoreUnreachable if the database does not answer.
    """
    scheme, _, rest = url.strip().partition(":")
    if scheme == "memory" and not rest:
        from perdure.store.sqlite.store import SqliteStore

        return await SqliteStore.open(None, tenant=tenant)
    if scheme == "sqlite" and rest.startswith("///") and len(rest) > 3:
        from perdure.store.sqlite.store import SqliteStore

        return await SqliteStore.open(rest[3:], tenant=tenant)
    if scheme in ("postgresql", "postgres") and rest.startswith("//") and len(rest) > 2:
        from perdure.store.postgres.store import PostgresStore

        return await PostgresStore.open(url.strip(), tenant=tenant)
    shown = url if "@" not in url else scheme + "://…"
    raise MalformedUrl(f"'{shown}' is not a database URL", hint=f"write one of: {_FORMS}")
