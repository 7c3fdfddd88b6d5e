"""The working memory of a job as one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from perdure.model.actions import Action
from perdure.model.conversation import ConversationMessage


@dataclass(frozen=True, slots=True)
class Memory:
    """The working memory of a job, as its log has it: its conversation, what it did, and its variables."""

    job_id: UUID
    conversation: tuple[ConversationMessage, ...]
    actions: tuple[Action, ...]
    variables: dict[str, Any]

    @property
    def next_sequence(self) -> int:
        """The sequence of its next action."""
        return len(self.actions)
