"""Write down what the migrations of PostgreSQL make, for the schema check: `python -m tests.schema_catalog`."""

import asyncio
import json
from pathlib import Path

import perdure.store.postgres.schema as package
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.schema.schema_check import CATALOG, SchemaObject, object_of
from perdure.store.postgres.store import PostgresStore
from tests.postgres_server import PostgresServer

FILE = Path(package.__path__[0]) / CATALOG


async def catalog_of(url: str) -> list[SchemaObject]:
    """Every part of the schema in a migrated database, in order."""
    store = await PostgresStore.open(url)

    async def read(tx: Transaction) -> list[SchemaObject]:
        return sorted({object_of(row) for row in await tx.rows("schema_objects")})

    try:
        return await store.engine.database.transact(read, readonly=True)
    finally:
        await store.close()


def as_text(parts: list[SchemaObject]) -> str:
    """A part on each line."""
    lines = [json.dumps([part.kind, part.name, part.table, part.body]) for part in parts]
    return "[\n" + ",\n".join(lines) + "\n]\n"


async def write(url: str) -> None:
    """Migrate an empty database and write its catalog."""
    store = await PostgresStore.open(url)
    await store.schema.migrate()
    await store.close()
    FILE.write_text(as_text(await catalog_of(url)))


if __name__ == "__main__":
    with PostgresServer() as server:
        server.create_database("catalog")
        asyncio.run(write(server.url("catalog")))
