"""The budget of a job in one attempt: what a call may use is set aside before it, and what it used is counted after it.

What is counted is in the log, so that a later attempt counts the same. In memory is only what calls that run now have set aside;
with an estimate that is in the log too, as a crash leaves unknown whether the call used it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from perdure.model.budgets import NOTHING, THINGS, TYPES, Amounts, Budget, Reservation, Use, amounts_of, shown
from perdure.model.cost import text_of_cost
from perdure.model.effects import Effect
from perdure.model.errors import BudgetExceeded, Denied, InvalidBudget
from perdure.model.events import LIFECYCLE_TYPES, NewEvent
from perdure.model.shared_budgets import TENANT
from perdure.model.waits import APPROVAL
from perdure.runtime.context import approvals
from perdure.runtime.context.approvals import Question
from perdure.runtime.context.current_call import running_call
from perdure.runtime.context.shared_budget import SharedBudgets, shared_scopes
from perdure.runtime.run import Run

_PAGE = 1000
_KEY = "budget[#{}]"
"""Of the approvals that ask for more; no name of a handler's own ends like it."""


class Counted(NamedTuple):
    """What is written together with a report of usage. more: for the payload of the report itself."""

    more: dict[str, Any]
    events: list[NewEvent]
    effects: list[Effect]


class Share(NamedTuple):
    """The part of a child. amounts: what is set aside. stored: the child's budget. first: what is written before it."""

    amounts: Amounts
    stored: dict[str, Any]
    first: list[NewEvent]


def ledger_of(run: Run) -> Ledger | None:
    """The ledger of an attempt whose job has a budget, given when it was enqueued or by its handler; else None."""
    own = run.handler.policy.budget
    use = run.history.use
    if use.budget is None and own is None and not run.budget_scopes:
        return None
    known = _LEDGERS.get(run)
    if known is None:
        scopes = shared_scopes(run)
        if use.budget is None and own is None and not scopes:
            return None
        # a copy, as the history of a first attempt is shared by all
        known = Ledger(run, use if use.budget is not None else Use(spent=use.spent), own)
        if scopes:
            known.shared = SharedBudgets(run, scopes)
        _LEDGERS[run] = known
    return known


_LEDGERS: WeakKeyDictionary[Run, Ledger] = WeakKeyDictionary()


class Ledger:
    """What the job may use and has used, as this attempt knows it. Nothing else writes to the job's log meanwhile."""

    def __init__(self, run: Run, use: Use, own: Budget | None) -> None:
        self._run = run
        self._use = use
        self._to_write: list[NewEvent] = []
        self.shared: SharedBudgets | None = None
        """Those of the job's agent and tenant, if they have some."""
        self.has_own = use.budget is not None or own is not None
        """Whether the job itself has one."""
        if not self.has_own:
            use.budget = Budget()
        elif use.budget is None:  # the handler's: written with the first event that has to do with it
            use.budget = own
            self._to_write.append(
                NewEvent("budget_set", json.dumps({"budget": self.budget.as_json(), "by": "handler"}))
            )
        self._running: set[str] = set()
        """The reservations of calls that run now."""
        self._freed = asyncio.Event()
        self._asking = asyncio.Lock()
        self._time_read = self.budget.wall_time is None
        for number in range(1, use.asked + 1):
            self._meet(_KEY.format(number))

    @property
    def budget(self) -> Budget:
        """The budget as it was given."""
        assert self._use.budget is not None
        return self._use.budget

    @property
    def attempt(self) -> int:
        """The number of this attempt."""
        return self._run.lease.attempt

    @property
    def left(self) -> Mapping[str, Any]:
        """What is left of each thing that is limited."""
        return self._use.left(now=self._now())

    # -- before a call ---------------------------------------------------------------------------------------------------

    async def admit(self, noun: str, key: str, estimate: Amounts = NOTHING) -> Hold | None:
        """Wait until a call of this kind fits, and set aside what it may use. None for a call inside another one, which belongs
        to that one. Raises BudgetExceeded, Suspended."""
        if self._inside():
            if noun == "tool":
                self._use.spent += Amounts(tool_calls=1)
            return None
        need = estimate + _ONE.get(noun, NOTHING)
        if self.shared is not None:
            await self.shared.admit(hold := f"{noun}:{key}/{self.attempt}", need)
            try:
                await self._until_fits(need)
            except BudgetExceeded:
                await self._run.record((), *self.shared.released(hold))
                raise
        else:
            await self._until_fits(need)
        return Hold(self, noun, key, estimate)

    async def _until_fits(self, need: Amounts) -> None:
        await self._read_time()
        while (thing := self._lacking(need)) is not None:
            if self._running and self._lacking(need, waiting=True) is None:
                self._freed.clear()
                await self._freed.wait()
            else:
                await self._ask(thing, need)

    def _inside(self) -> bool:
        call = running_call.get(None)
        return call is not None and call.lease == self._run.lease

    def _lacking(self, need: Amounts, *, waiting: bool = False) -> str | None:
        """What there is too little of. waiting: as if the calls that run now had used nothing."""
        use, budget = self._use, self.budget
        spent = use.spent + Amounts(wall_time=self._running_seconds())
        for key, reservation in use.reservations.items():
            if not (waiting and key in self._running):
                spent += reservation.left
        has = dict(zip(THINGS, (use.extended - spent).values(), strict=True))
        needed = dict(zip(THINGS, need.values(), strict=True))
        for thing, limit in budget.limits.items():
            left = limit + has[thing]
            if left < needed[thing] or (left <= 0 and thing not in ("tool_calls", "children")):
                return thing
        return None

    def fits(self, need: Amounts) -> bool:
        """Whether a call that needs this fits now."""
        return self._lacking(need) is None

    # -- around a call ---------------------------------------------------------------------------------------------------

    def opened(self, key: str, need: Amounts) -> None:
        """A call has set this aside."""
        self._use.spent += Amounts(tool_calls=need.tool_calls, children=need.children)
        rest = need - Amounts(tool_calls=need.tool_calls, children=need.children)
        if rest != NOTHING:
            self._use.reservations[key] = Reservation(rest)
            self._running.add(key)

    def closed(self, key: str) -> None:
        """The call of this reservation has ended, and what it used is known."""
        self._use.reservations.pop(key, None)
        self.left_running(key)

    def left_running(self, key: str) -> None:
        """The call has ended, known or not."""
        self._running.discard(key)
        self._freed.set()

    def written_first(self) -> list[NewEvent]:
        """What goes into the log before the next event: the handler's budget, and warnings."""
        events, self._to_write = self._to_write, []
        return events + self._warnings()

    def _warnings(self) -> list[NewEvent]:
        use, budget, events = self._use, self.budget, []
        spent = (use.spent + Amounts(wall_time=self._running_seconds())).values()
        for thing, used, more in zip(THINGS, spent, use.extended.values(), strict=True):
            limit = budget.limits.get(thing)
            if limit is None or thing in use.warned or used < (limit + more) * _part(limit, budget.warn_at):
                continue
            use.warned.add(thing)
            payload = {"thing": thing, "spent": _plain(used), "limit": _plain(limit + more)}
            events.append(NewEvent("budget_warned", json.dumps(payload)))
        return events

    # -- children --------------------------------------------------------------------------------------------------------

    async def admit_child(self, key: str) -> None:
        """Wait until the budgets of agent and tenant allow one more child. Raises BudgetExceeded, Suspended."""
        if self.shared is not None and not self._inside():
            await self.shared.admit(f"spawn:{key}/{self.attempt}", _ONE["spawn"])

    def child_admitted(self, key: str) -> list[Effect]:
        """What is to be written with the child."""
        return [] if self.shared is None else self.shared.released(f"spawn:{key}/{self.attempt}")

    def events_of_child(self) -> list[NewEvent]:
        """What the log of a child begins with: what it uses counts for the agent of this job."""
        scopes = [] if self.shared is None else [scope for scope in self.shared.scopes if scope != TENANT]
        return [NewEvent("budget_scopes_set", json.dumps({"scopes": scopes}))] if scopes else []

    async def share(self, key: str, child_id: UUID, wanted: Budget | None, usual: Budget | None) -> Share:
        """Set aside a part for a child: what `wanted` says, else half of what is left, and at most `usual`, that of its handler.
        Raises BudgetExceeded, Suspended."""
        asked = {} if wanted is None else wanted.limits
        carved = {
            thing: value for thing, value in asked.items() if thing in self.budget.limits and thing != "wall_time"
        }
        need = Amounts(**carved)
        if not self._inside():
            await self._until_fits(need + _ONE["spawn"])
        self._use.spent += _ONE["spawn"]
        part: dict[str, Any] = {} if usual is None else usual.limits
        part |= asked
        for thing, left in self.left.items():
            if thing == "wall_time" or thing in carved:
                part[thing] = min(left, part.get(thing, left))
            elif thing == "children":
                part[thing] = 0  # else it would take the place of children of this job
            else:
                part[thing] = min(left / 2 if isinstance(left, Decimal) else left // 2, part.get(thing, left))
        amounts = Amounts(**{thing: part[thing] for thing in self.budget.limits if thing != "wall_time"})
        self._use.set_aside(key, str(child_id), amounts)
        source = wanted or usual or self.budget
        stored = {thing: _plain(value) for thing, value in part.items()}
        stored |= {"on_breach": source.on_breach, "warn_at": source.warn_at}
        return Share(amounts, stored, self.written_first())

    async def settle(self, ids: Iterable[UUID]) -> list[NewEvent]:
        """Children have ended: what they used is spent, the rest of their parts is free. Returns what is to be written."""
        events = []
        for id in ids:
            key = self._use.children.get(str(id))
            if key is None or key not in self._use.reservations:
                continue
            use = await self._use_of(id)
            spent = replace(use.spent + use.reserved, wall_time=0.0)
            del self._use.reservations[key]
            self._use.spent += spent
            events.append(NewEvent("budget_settled", json.dumps({"key": key, **spent.as_json()})))
            self._freed.set()
        return events + self._warnings() if events else []

    async def _use_of(self, id: UUID) -> Use:
        run, after, use = self._run, 0, Use()
        with run.busy():
            while events := await run.store.jobs.list_events(id, after=after, limit=_PAGE, types=sorted(TYPES)):
                for event in events:
                    use.read(event)
                after = events[-1].version
                if len(events) < _PAGE:
                    break
        return use

    # -- usage -----------------------------------------------------------------------------------------------------------

    def usage(self, tokens: int, cost: Decimal) -> Counted:
        """Count usage that is about to be written."""
        used = Amounts(tokens, cost)
        self._use.spent += used
        more, hold = {}, None
        call = running_call.get(None)
        if call is not None and call.lease == self._run.lease:
            hold = f"{call.kind}:{call.key}/{call.lease.attempt}"
            key = f"{call.kind}:{call.key}/{call.lease.attempt}.{call.number}"
            if (reservation := self._use.reservations.get(key)) is not None:
                reservation.used += used
                more = {"reserved": key}
        effects = [] if self.shared is None else self.shared.usage(hold, used)
        return Counted(more, self.written_first(), effects)

    # -- time ------------------------------------------------------------------------------------------------------------

    async def _read_time(self) -> None:
        """How long the job ran in earlier attempts, from its transitions."""
        if self._time_read:
            return
        self._time_read = True
        run, after, use = self._run, 0, Use()
        with run.busy():
            while events := await run.store.jobs.list_events(
                run.claimed.id, after=after, limit=_PAGE, types=sorted(LIFECYCLE_TYPES)
            ):
                for event in events:
                    use.read(event)
                after = events[-1].version
                if len(events) < _PAGE:
                    break
        self._use.spent += Amounts(wall_time=use.spent.wall_time)
        self._use.running_since = use.running_since

    def _now(self) -> datetime:
        return self._run.database_now()

    def _running_seconds(self) -> float:
        since = self._use.running_since
        return 0.0 if since is None else max(0.0, (self._now() - since) / timedelta(seconds=1))

    # -- asking for more -------------------------------------------------------------------------------------------------

    async def _ask(self, thing: str, need: Amounts) -> None:
        """Ask a person for more of this thing. Raises BudgetExceeded where none is given, or the budget says to fail."""
        if self.budget.on_breach == "fail":
            raise BudgetExceeded(self._text(thing, need), thing=thing)
        async with self._asking:
            if self._lacking(need) != thing:  # a parallel call has asked
                return
            await self._asked(thing, need)

    async def _asked(self, thing: str, need: Amounts) -> None:
        run, use = self._run, self._use
        key = _KEY.format(use.asked + 1)
        self._meet(key)
        text = self._text(thing, need)
        more = max(getattr(need, thing), self.budget.limits[thing])
        question = Question(
            key=key,
            title=f"{text}. Allow more?",
            payload={"thing": thing, "goal": run.claimed.goal, "extend": {thing: _plain(more)}},
            expires_in=None,
            assignees=(),
            on_expiry="fail",
            on_deny="resume",
        )
        if first := self.written_first():
            await run.record(first)
        try:
            decision = await approvals.approve(run, question, None, keep_changed=True)
        except Denied as denied:
            raise BudgetExceeded(f"{text}, and {denied.by or 'a person'} allowed no more", thing=thing) from None
        try:
            given = amounts_of(decision.payload["extend"])
        except (InvalidBudget, KeyError, TypeError, AttributeError):
            given = NOTHING  # the edited payload says nothing: it is asked again
        payload = {"key": key, "by": decision.by, **given.as_json()}
        await run.record([NewEvent("budget_extended", json.dumps(payload))])
        use.extended += given
        use.asked += 1
        use.warned.clear()

    def _text(self, thing: str, need: Amounts) -> str:
        use = self._use
        total = self.budget.limits[thing] + getattr(use.extended, thing)
        spent = getattr(use.spent, thing) + (self._running_seconds() if thing == "wall_time" else 0)
        reserved, needed = getattr(use.reserved, thing), getattr(need, thing)
        if needed and spent + reserved < total:
            what = f"is too small for a call that needs {shown(thing, needed)}"
        else:
            what = "is used up"
        text = f"the budget of {shown(thing, total)} {what}: {shown(thing, spent)} spent"
        return text + (f", {shown(thing, reserved)} set aside" if reserved else "")

    def _meet(self, key: str) -> None:
        if self._run.history.unmet:
            self._run.history.meet(APPROVAL.name, key)


def _part(limit: Any, part: float) -> Any:
    return Decimal(str(part)) if isinstance(limit, Decimal) else part


_ONE = {"tool": Amounts(tool_calls=1), "spawn": Amounts(children=1)}


class Hold:
    """What one keyed call has set aside, for each time that its function is called."""

    __slots__ = ("_estimate", "_key", "_ledger", "_need", "_noun", "_number")

    def __init__(self, ledger: Ledger, noun: str, key: str, estimate: Amounts) -> None:
        self._ledger = ledger
        self._noun = noun
        self._key = key
        self._estimate = estimate
        self._need = estimate + _ONE.get(noun, NOTHING)
        self._number = 1
        ledger.opened(self._id, self._need)

    @property
    def _id(self) -> str:
        return f"{self._noun}:{self._key}/{self._ledger.attempt}.{self._number}"

    def before_call(self, number: int) -> list[NewEvent]:
        """What is to be in the log before the call of this number, which counts from 1."""
        if number != self._number:
            self._number = number
            self._ledger.opened(self._id, self._need)
        events = self._ledger.written_first() if self._noun == "tool" or self._estimate != NOTHING else []
        if self._estimate != NOTHING:
            events.append(NewEvent("budget_reserved", json.dumps({"key": self._id, **self._estimate.as_json()})))
        return events

    def effects_before(self, number: int) -> list[Effect]:
        """What is written together with what `before_call` gives."""
        shared = self._ledger.shared
        return [] if shared is None or number == 1 else shared.called_again(self._need.tool_calls)

    def effects_after(self) -> list[Effect]:
        """What is written together with what `after_call` gives, once the call is not made again."""
        shared = self._ledger.shared
        return [] if shared is None else shared.released(f"{self._noun}:{self._key}/{self._ledger.attempt}")

    def again(self) -> bool:
        """Whether one more call fits."""
        return self._ledger.fits(self._need)

    def after_call(self) -> list[NewEvent]:
        """What goes into the log once it is known how the call ended."""
        self._ledger.closed(self._id)
        if self._estimate == NOTHING:
            return []
        return [NewEvent("budget_settled", json.dumps({"key": self._id}))]

    def end(self) -> None:
        """The call is over, also where it was cut off."""
        self._ledger.left_running(self._id)


def _plain(value: Any) -> Any:
    return text_of_cost(value) if isinstance(value, Decimal) else value
