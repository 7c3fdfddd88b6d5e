"""The state of a session, which the next job of it finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

from perdure.model.agents import NewState
from perdure.model.errors import InvalidInput, LeaseLost, SessionChanged, Suspended
from perdure.model.events import NewEvent
from perdure.runtime import codec
from perdure.runtime.context.names import Keys
from perdure.runtime.run import Run

M = TypeVar("M")

_NOUN = "session"


class Session:
    """The state that the jobs of one session of an agent share: what one saves, the next one reads. Only `get` and `save` change
    what it knows: a version belongs to what was read."""

    def __init__(self, run: Run, keys: Keys) -> None:
        if run.of_agent is None:
            raise InvalidInput(
                "this job is not one of an agent: it has no session", hint="enqueue(..., agent=, session=)"
            )
        self._run = run
        self._keys = keys
        self._agent_id = run.of_agent.agent_id
        self._id = run.of_agent.session_id
        self._version = 0
        self._conflicts = 0

    @property
    def id(self) -> str | None:
        """The session; None: that of the agent's jobs without one."""
        return self._id

    @property
    def version(self) -> int:
        """How often it had been saved when this attempt read or saved it last; 0 before."""
        return self._version

    @overload
    async def get(self, model: type[M]) -> M | None: ...
    @overload
    async def get(self, model: None = None) -> Any: ...
    async def get(self, model: Any = None) -> Any:
        """What was saved last, as plain JSON or as `model`; None if nothing was. A replay gets the same, unless the attempt ended
        with SessionChanged: then the next one reads it again. Raises InvalidInput if it does not fit."""
        run, what = self._run, "the state of the session"
        codec.check_type(model, what)
        await run.enter()
        key = self._keys.next(_NOUN, "get", None)
        known = run.history.sessions.get(key)
        if known is None:
            with run.busy():
                found = await run.store.agents.read_state(self._agent_id, self._id or "")
            known = {"key": key, "version": 0, "state": None}
            if found is not None:
                known |= {"version": found.version, "state": found.state}
            await run.record([NewEvent("session_read", json.dumps(known, ensure_ascii=False))])
        self._version = known["version"]
        if known["version"] == 0:
            return None
        return codec.decode(json.dumps(known["state"]), model, what)

    async def save(self, state: Any) -> int:
        """Save the state for the next job of the session, once: a replay does not save again. Returns its version.

        Raises SessionChanged if another job has saved since this one called `get` or `save`: where several jobs of the session
        run at a time, or this one was suspended in between. Not caught, it ends the attempt without using a retry, and the next
        one reads again; from the 100th in a row on each uses a retry.
        Raises NotJson, TooLarge.
        """
        run = self._run
        text = codec.encode(state, "the state of the session")
        await run.enter()
        key = self._keys.next(_NOUN, "save", None)
        known = run.history.sessions.get(key)
        if known is None:
            if run.pending is not None:
                await run.record(())
            new = NewState(self._agent_id, self._id or "", text, self._version, key)
            try:
                with run.busy():
                    self._version = await run.store.agents.save_state(run.lease, new)
            except LeaseLost:
                run.lease_lost()
                raise Suspended("lease lost") from None
            except SessionChanged as error:
                await run.record([NewEvent("session_conflict", json.dumps({"key": key}))])
                self._conflicts += 1
                error.conflicts = run.history.conflicts + self._conflicts
                raise
        elif "version" not in known:
            raise SessionChanged(f"another job had saved the session before '{key}'")
        else:
            self._version = known["version"]
        return self._version


class BlockingSession:
    """`Session` for plain handlers."""

    def __init__(self, session: Session, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._session = session
        self._wait = wait

    @property
    def id(self) -> str | None:
        """See `Session.id`."""
        return self._session.id

    @property
    def version(self) -> int:
        """See `Session.version`."""
        return self._session.version

    @overload
    def get(self, model: type[M]) -> M | None: ...
    @overload
    def get(self, model: None = None) -> Any: ...
    def get(self, model: Any = None) -> Any:
        """See `Session.get`."""
        return self._wait(self._session.get(model))

    def save(self, state: Any) -> int:
        """See `Session.save`."""
        version: int = self._wait(self._session.save(state))
        return version
