"""The kinds of waits: a file for each kind, and their registry."""

from perdure.model.waits.approval import APPROVAL
from perdure.model.waits.base import Facts, WaitFault, WaitKind, WaitLine
from perdure.model.waits.child import CHILD
from perdure.model.waits.code import CODE
from perdure.model.waits.message import MESSAGE
from perdure.model.waits.question import QUESTION
from perdure.model.waits.registry import answers, kind_of, opened_wait, register, suspended_status
from perdure.model.waits.signal import SIGNAL
from perdure.model.waits.timer import TIMER

__all__ = [
    "APPROVAL",
    "CHILD",
    "CODE",
    "MESSAGE",
    "QUESTION",
    "SIGNAL",
    "TIMER",
    "Facts",
    "WaitFault",
    "WaitKind",
    "WaitLine",
    "answers",
    "kind_of",
    "opened_wait",
    "register",
    "suspended_status",
]
