"""The wait for a question: a person says whether a tool call that was cut off took effect. An approval with other answers."""

from __future__ import annotations

from perdure.model.approvals import Approval
from perdure.model.explanation import Move
from perdure.model.waits.approval import ApprovalWait, by_option


class QuestionWait(ApprovalWait):
    """Its subject is an approval of kind `question`."""

    name = "question"
    noun = "a question"

    def ways_to_decide(self, approval: Approval) -> tuple[Move, ...]:
        """The commands that answer it."""
        id, by = approval.short_id, by_option(approval)
        return (
            Move("it happened", f"perdure approvals approve {id} --outcome happened --result JSON{by}"),
            Move("run it again", f"perdure approvals approve {id} --outcome retry{by}"),
            Move("fail the job", f"perdure approvals deny {id}{by}"),
        )


QUESTION = QuestionWait()
