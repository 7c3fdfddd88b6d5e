"""What errors call the payload of a job."""

from __future__ import annotations

from perdure.model.jobs import ClaimedJob


class PayloadOf:
    """What an error calls a payload, as text only when it is asked for: making the text takes as long as the check."""

    __slots__ = ("_claimed",)

    def __init__(self, claimed: ClaimedJob) -> None:
        self._claimed = claimed

    def __str__(self) -> str:
        return f"the payload of job …{self._claimed.id.hex[-8:]} {self._claimed.kind}"
