"""Errors of approvals and of who decides them."""

from __future__ import annotations

from perdure.model.errors.base import Conflict, HandlerError, NotFound, NotPermitted


class ApprovalNotFound(NotFound):
    """No approval has this id, or the named job has requested none."""

    code = "approval-not-found"


class ApprovalRuleNotFound(NotFound):
    """No rule about a tool has this id."""

    code = "approval-rule-not-found"


class AlreadyDecided(Conflict):
    """The approval was already decided; the first decision counts."""

    code = "already-decided"


class ApprovalExpired(Conflict):
    """The approval expired before the decision."""

    code = "approval-expired"


class ApprovalChanged(Conflict):
    """The payload is not the reviewed one: its digest differs."""

    code = "approval-changed"


class WrongToken(NotPermitted):
    """No approval has this token."""

    code = "wrong-token"


class NotAssigned(NotPermitted):
    """The approval has assignees, and the caller is not one of them."""

    code = "not-assigned"


class NotifyFailed(HandlerError):
    """The notify function of an approval raised; it is called again, with a new token, when the job retries."""

    code = "notify-failed"
