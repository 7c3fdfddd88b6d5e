"""What a plain (sync) handler reads of its job without waiting: part of BlockingContext."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from perdure.model.agents import AgentInstance
from perdure.model.job_fields import JobFields
from perdure.model.messages import Message
from perdure.model.schedules import ScheduledFor
from perdure.model.signals import ReceivedSignal
from perdure.model.tool_approvals import ApprovalContext
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.tool_stash import ToolCall


class BlockingFacts:
    """The part of a BlockingContext that asks for nothing."""

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx

    @property
    def job_id(self) -> UUID:
        """See `JobContext.job_id`."""
        return self._ctx.job_id

    @property
    def kind(self) -> str:
        """See `JobContext.kind`."""
        return self._ctx.kind

    @property
    def goal(self) -> str | None:
        """See `JobContext.goal`."""
        return self._ctx.goal

    @property
    def attempt(self) -> int:
        """See `JobContext.attempt`."""
        return self._ctx.attempt

    @property
    def retry_count(self) -> int:
        """See `JobContext.retry_count`."""
        return self._ctx.retry_count

    @property
    def scheduled_for(self) -> ScheduledFor | None:
        """See `JobContext.scheduled_for`."""
        return self._ctx.scheduled_for

    @property
    def worker_id(self) -> str:
        """See `JobContext.worker_id`."""
        return self._ctx.worker_id

    @property
    def last_checkpoint(self) -> Any:
        """See `JobContext.last_checkpoint`."""
        return self._ctx.last_checkpoint

    @property
    def fields(self) -> JobFields:
        """See `JobContext.fields`."""
        return self._ctx.fields

    @property
    def budget_left(self) -> Mapping[str, Any] | None:
        """See `JobContext.budget_left`."""
        return self._ctx.budget_left

    @property
    def approval_context(self) -> ApprovalContext | None:
        """See `JobContext.approval_context`."""
        return self._ctx.approval_context

    @property
    def nudges(self) -> int:
        """See `JobContext.nudges`."""
        return self._ctx.nudges

    @property
    def tool_stack(self) -> tuple[ToolCall, ...]:
        """See `JobContext.tool_stack`."""
        return self._ctx.tool_stack

    @property
    def agent(self) -> AgentInstance | None:
        """See `JobContext.agent`."""
        return self._ctx.agent

    @property
    def agent_id(self) -> str | None:
        """See `JobContext.agent_id`."""
        return self._ctx.agent_id

    @property
    def session_id(self) -> str | None:
        """See `JobContext.session_id`."""
        return self._ctx.session_id

    @property
    def agent_messages(self) -> tuple[Message, ...]:
        """See `JobContext.agent_messages`."""
        return self._ctx.agent_messages

    @property
    def signals(self) -> tuple[ReceivedSignal, ...]:
        """See `JobContext.signals`."""
        return self._ctx.signals

    @property
    def message(self) -> Message | None:
        """See `JobContext.message`."""
        return self._ctx.message
