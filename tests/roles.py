"""The roles of docs/rights.md, made by the SQL that stands there."""

from __future__ import annotations

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "rights.md"
ROLES = ("worker", "reader", "shop", "acme")


def make(role: str) -> str:
    """The SQL that makes one of ROLES."""
    [block] = [block.text for block in blocks(PAGE, "sql") if f"create role {role};" in block.text]
    return block


def drop(role: str) -> str:
    """The SQL that removes it from the database, and from the server."""
    return f"drop owned by {role}; drop role {role}"


def enqueue_only(role: str) -> list[str]:
    """Its statements, for a role of another name."""
    text = make("shop").replace("shop", role)
    return [statement for statement in text.split(";") if statement.strip()]
