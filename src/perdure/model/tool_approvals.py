"""Approvals of tools: which tools a job may call by itself, which a person is asked about, and which it may not call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

from perdure.model.approvals import OnDeny
from perdure.model.errors import InvalidInput
from perdure.model.timing import Duration, seconds

Need: TypeAlias = Literal["never", "unless_auto_approved", "always"]
"""Whether a person is asked before a tool is called: never, unless a rule or an autonomous run allows it, or before each call."""

Answer: TypeAlias = Literal["run", "ask", "ask_each", "refuse"]
"""What is done with a call: it runs, a person is asked unless a rule decides, a person is asked in any case, it is refused."""

MARK = "[#tool:"
"""In the keys of approvals of tools, after the key of the call; no name of a handler's own ends like that."""

_ORDER = get_args(Need)


@dataclass(frozen=True, slots=True)
class ApprovalContext:
    """Which tools (names given to `ctx.tool`) need the approval of a person.

    tools: by name "never", "unless_auto_approved" or "always". default: of tools that are not named. autonomous: given for a run
    without a person: nothing is asked, tools that need approval "always" run if they are named here and are refused if not, all
    others run. None: a person is asked. assignees: who may decide; empty: any person. expires_in: seconds or text, after which
    an undecided approval counts as denied. on_deny: a denial makes the job "fail", or raises `Denied` in it ("resume").
    Raises InvalidInput.
    """

    tools: Mapping[str, Need] = field(default_factory=dict)
    default: Need = "unless_auto_approved"
    autonomous: Sequence[str] | None = None
    assignees: Sequence[str] = ()
    expires_in: Duration | None = None
    on_deny: OnDeny = "fail"

    def __post_init__(self) -> None:
        tools: Any = self.tools
        if not isinstance(tools, Mapping) or not all(map(_is_name, tools)):
            raise InvalidInput(f"tools of an ApprovalContext go by their names, got {tools!r:.120}")
        for need in (self.default, *self.tools.values()):
            if need not in _ORDER:
                raise InvalidInput(f"a tool needs approval {', '.join(map(repr, _ORDER))}, got {need!r:.60}")
        if self.on_deny not in get_args(OnDeny):
            raise InvalidInput(f"on_deny of an ApprovalContext is 'fail' or 'resume', got {self.on_deny!r:.60}")
        for name in ("autonomous", "assignees"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _names(name, getattr(self, name)))
        if self.expires_in is not None:
            try:
                object.__setattr__(self, "expires_in", seconds(self.expires_in))
            except (ValueError, TypeError) as error:
                raise InvalidInput(f"expires_in of an ApprovalContext is a duration: {error}") from None
        object.__setattr__(self, "tools", dict(self.tools))

    def need(self, tool: str) -> Need:
        """Whether this tool needs approval."""
        return self.tools.get(tool, self.default)

    def answer(self, tool: str) -> Answer:
        """What is done with a call of this tool."""
        need = self.need(tool)
        if need == "never":
            return "run"
        if self.autonomous is None:
            return "ask_each" if need == "always" else "ask"
        return "run" if need != "always" or tool in self.autonomous else "refuse"

    def as_json(self) -> dict[str, Any]:
        """As it is stored: what differs from a context of which nothing was said."""
        blank = ApprovalContext()
        said = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != getattr(blank, f.name)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}


def context_of(stored: Any) -> ApprovalContext:
    """A context as it was stored, or typed by a person. Raises InvalidInput."""
    known = {f.name for f in fields(ApprovalContext)}
    if not isinstance(stored, Mapping) or not known.issuperset(stored):
        raise InvalidInput(
            f"an ApprovalContext is an object, got {stored!r:.120}", hint=f"known: {', '.join(sorted(known))}"
        )
    return ApprovalContext(**stored)


def merged(contexts: Iterable[ApprovalContext | None]) -> ApprovalContext | None:
    """The strictest of what these say, of the App, a handler and a job: of each tool the stronger need. The run is autonomous if
    one of them says so, and then a tool that needs approval always runs only if each of those that say "always" names it.
    None if there are none."""
    given = [context for context in contexts if context is not None]
    if len(given) <= 1:
        return given[0] if given else None
    named = {tool for context in given for tool in context.tools}
    times = [context.expires_in for context in given if context.expires_in is not None]
    listed = {tool for context in given for tool in context.autonomous or ()}
    return ApprovalContext(
        tools={tool: _strictest(context.need(tool) for context in given) for tool in sorted(named | listed)},
        default=_strictest(context.default for context in given),
        autonomous=None
        if all(context.autonomous is None for context in given)
        else [tool for tool in sorted(listed) if all(_allows(context, tool) for context in given)],
        assignees=next((context.assignees for context in given if context.assignees), ()),
        expires_in=min(map(seconds, times)) if times else None,
        on_deny="fail" if any(context.on_deny == "fail" for context in given) else "resume",
    )


def tool_of(approval_key: str) -> str | None:
    """The key of the tool's call that an approval is for; None for any other approval."""
    key, mark, _ = approval_key.rpartition(MARK)
    return key if mark else None


def _allows(context: ApprovalContext, tool: str) -> bool:
    return context.need(tool) != "always" or tool in (context.autonomous or ())


def _strictest(needs: Iterable[Need]) -> Need:
    return max(needs, key=_ORDER.index)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 200


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable) or not all(map(_is_name, given := tuple(value))):
        raise InvalidInput(f"{name} of an ApprovalContext is a list of names, got {value!r:.120}")
    return given
