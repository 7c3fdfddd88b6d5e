"""Checks of what callers say of rules about tools."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

from perdure.model.approval_rules import RuleScope, RuleVerdict
from perdure.model.errors import InvalidInput


def parse_rule_scope(text: str) -> str:
    """A scope as a caller writes it. Raises InvalidInput."""
    kind, _, name = str(text).partition(":")
    if text == "tenant":
        return text
    if kind == "job":
        try:
            return f"job:{UUID(name)}"
        except ValueError:
            raise InvalidInput(f"the scope of a job has its full id, got {text!r:.120}") from None
    if kind in get_args(RuleScope) and kind != "tenant" and 1 <= len(name) <= 300 and name.isprintable():
        if kind == "session" and "/" not in name:
            raise InvalidInput(f"the scope of a session is session:AGENT/SESSION, got {text!r:.120}")
        return text
    raise InvalidInput(
        f"unknown scope of a rule {text!r:.120}", hint="tenant, user:NAME, agent:ID, session:AGENT/SESSION or job:ID"
    )


def check_verdict(value: str) -> RuleVerdict:
    """Raise InvalidInput unless a rule can say this."""
    if value not in get_args(RuleVerdict):
        raise InvalidInput(f"a rule says 'allow' or 'deny', got {value!r:.60}")
    return "allow" if value == "allow" else "deny"
