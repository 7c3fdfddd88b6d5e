"""What goes through the database comes back as what it was: a replay gives exactly what the first run gave."""

import enum
import functools
import sys
import types
import typing
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from perdure import App, JobContext, Status
from perdure.model.errors import InvalidInput, NotJson
from tests.runtime.support import NOW, PATIENCE, ended, reached, working


@dataclass
class Source:
    """A dataclass with one inside."""

    url: str
    seen: datetime
    tags: list[str] = field(default_factory=list)
    next: "Source | None" = None


class Note(BaseModel):
    """A pydantic model."""

    id: uuid.UUID
    text: str
    sources: list[Source] = []


class Options(TypedDict, total=False):
    """A TypedDict."""

    depth: int
    until: datetime


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


MOMENT = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
SOURCE = Source("https://example.org/ä", MOMENT, ["a"], Source("https://example.org/2", MOMENT))


def a_dataclass() -> Source:
    return SOURCE


def a_model() -> Note:
    return Note(id=uuid.UUID(int=7), text="t", sources=[SOURCE])


def a_typed_dict() -> Options:
    return {"depth": 2, "until": MOMENT}


def a_tuple() -> tuple[int, str, Point]:
    return (1, "two", Point(3, 4))


def models_by_number() -> dict[int, list[Note]]:
    return {1: [a_model()]}


def perhaps() -> Source | None:
    return SOURCE


def nothing() -> Source | None:
    return None


def an_enum() -> Colour:
    return Colour.RED


def a_set() -> set[int]:
    return {3, 1, 2}


def a_day() -> date:
    return MOMENT.date()


def a_span() -> timedelta:
    return timedelta(hours=1, milliseconds=5)


def money() -> Decimal:
    return Decimal("12.340")


def a_path() -> Path:
    return Path("/tmp/x")


def a_whole_float() -> float:
    return 3


async def from_a_coroutine() -> Source:
    return SOURCE


def promised() -> Awaitable[Source]:
    return from_a_coroutine()


def no_annotation_dict() -> Any:
    return {"a": [1, None, True, 2.5, "x"], "b": {"c": {}}}


def not_annotated():  # type: ignore[no-untyped-def]  # that is the point
    return SOURCE


def not_annotated_tuple():  # type: ignore[no-untyped-def]  # that is the point
    return (1, (2, 3))


CASES: list[Callable[[], Any]] = [
    a_dataclass, a_model, a_typed_dict, a_tuple, models_by_number, perhaps, nothing, an_enum, a_set, a_day, a_span,
    money, a_path, a_whole_float, from_a_coroutine, promised, no_annotation_dict,
]  # fmt: skip


@pytest.mark.parametrize("as_tool", [False, True], ids=["step", "tool"])
async def test_a_replay_gives_what_the_first_run_gave(app: App, as_tool: bool) -> None:
    seen: dict[str, list[Any]] = {fn.__name__: [] for fn in [*CASES, not_annotated, not_annotated_tuple]}

    @app.job(backoff=NOW)
    async def all_of_them(ctx: JobContext) -> None:
        for fn in (*CASES, not_annotated, not_annotated_tuple):
            call = ctx.tool if as_tool else ctx.step
            seen[fn.__name__].append(await call(fn.__name__, fn))
        if ctx.attempt == 1:
            raise OSError("replay, please")

    async with working(app):
        await (await app.enqueue(all_of_them)).result(PATIENCE)
    for fn in CASES:
        first, replayed = seen[fn.__name__]
        given = SOURCE if fn in (from_a_coroutine, promised) else fn()
        assert first == given, fn.__name__
        assert replayed == given, fn.__name__
        assert type(first) is type(replayed), fn.__name__
    for name in ("not_annotated", "not_annotated_tuple"):
        first, replayed = seen[name]
        assert (first, type(first)) == (replayed, type(replayed)), name


async def test_a_record_that_no_longer_fits_its_type_fails_naming_the_step(app: App) -> None:
    def old() -> Any:
        return {"url": 7}

    @app.job(backoff=NOW, max_retries=1)
    async def one(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            await ctx.step("fetch", old)
            raise OSError("a new version is deployed")
        await ctx.step("fetch", a_dataclass)

    async with working(app):
        job = await ended(app, await app.enqueue(one))
    assert job.status in (Status.FAILED, Status.DEADLETTER)
    assert "the recorded result of step 'fetch' does not fit Source" in (job.error_message or "")


async def test_a_class_called_as_a_step_gives_its_instance(app: App) -> None:
    seen: list[Any] = []

    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> None:
        seen.append(await ctx.step("class", Source, "u", MOMENT))
        seen.append(await ctx.step("partial", functools.partial(Source, "u"), seen=MOMENT))
        seen.append(await ctx.step("tuple", tuple, [1, 2]))
        if ctx.attempt == 1:
            raise OSError("replay, please")

    async with working(app):
        await (await app.enqueue(one)).result(PATIENCE)
    assert seen == [Source("u", MOMENT), Source("u", MOMENT), (1, 2)] * 2


async def test_a_step_that_never_returns_raises_its_own_error(app: App) -> None:
    def refuse() -> NoReturn:
        raise KeyError("its own")

    @app.job
    async def one(ctx: JobContext) -> str:
        try:
            await ctx.step("refuse", refuse)
        except KeyError as error:
            return str(error)
        return "nothing was raised"

    async with working(app):
        assert await (await app.enqueue(one)).result(PATIENCE) == "'its own'"


# -- input and output of handlers -------------------------------------------------------------------------------------------


async def test_input_and_output_are_typed_end_to_end(app: App) -> None:
    @app.job
    async def with_dataclass(ctx: JobContext, source: Source) -> Note:
        assert isinstance(source, Source)
        assert isinstance(source.next, Source)
        return Note(id=ctx.job_id, text=source.url, sources=[source])

    @app.job
    async def with_model(ctx: JobContext, note: Note) -> Source:
        assert isinstance(note, Note)
        return note.sources[0]

    @app.job
    async def with_dict(ctx: JobContext, options: Options) -> tuple[int, datetime]:
        return options["depth"], options["until"]

    @app.job
    async def with_list(ctx: JobContext, sources: list[Source]) -> dict[str, Source]:
        return {s.url: s for s in sources}

    async with working(app):
        handle = await app.enqueue(with_dataclass, SOURCE)
        assert await handle.result(PATIENCE) == Note(id=handle.id, text=SOURCE.url, sources=[SOURCE])
        assert await (await app.enqueue(with_model, a_model())).result(PATIENCE) == SOURCE
        assert await (await app.enqueue(with_dict, a_typed_dict())).result(PATIENCE) == (2, MOMENT)
        assert await (await app.enqueue(with_list, [SOURCE])).result(PATIENCE) == {SOURCE.url: SOURCE}
        by_name = await app.enqueue("with_dict", {"depth": 2, "until": MOMENT.isoformat()})
        assert await by_name.result(PATIENCE) == (2, MOMENT)


async def test_input_that_does_not_fit_is_refused_at_enqueue(app: App) -> None:
    @app.job
    async def one(ctx: JobContext, source: Source) -> None: ...

    with pytest.raises(InvalidInput, match=r"payload of job 'one' does not fit Source: url: "):
        await app.enqueue("one", {"url": 7, "seen": MOMENT})
    with pytest.raises(InvalidInput, match="seen"):
        await app.enqueue("one", {"url": "u"})
    with pytest.raises(NotJson, match="payload of job 'one'"):
        await app.enqueue("one", object())
    assert (await app.jobs.list()).items == ()


async def test_input_that_no_longer_fits_fails_the_job_at_once(app: App) -> None:
    """As after a deployment: the payload was stored by a program with another type."""
    started = []

    async def one(ctx: JobContext, source: Source) -> None:
        started.append(ctx.attempt)

    handle = await app.enqueue("one", {"url": 7}, elsewhere=True)
    app.job(one)
    async with working(app):
        job = await ended(app, handle)
    assert (job.status, job.error_kind, job.retry_count) == (Status.FAILED, "fatal", 0)
    assert "does not fit Source" in (job.error_message or "")
    assert started == []


async def test_a_result_that_does_not_fit_its_type_is_refused(app: App) -> None:
    @app.job
    async def one(ctx: JobContext) -> str:
        return "text"

    async with working(app):
        handle = await app.enqueue(one)
        assert await handle.result(PATIENCE) == "text"
        with pytest.raises(InvalidInput, match=r"the result of job .* does not fit int"):
            await app.jobs.result(handle.id, output_type=int)
        with pytest.raises(InvalidInput, match=r"the result of job .* does not fit int"):
            await app.jobs.handle(handle.id, int).result()


async def test_an_input_that_json_cannot_be_read_into_is_refused_where_the_handler_is_registered(app: App) -> None:
    class Opaque:
        """No dataclass, no model."""

    said = "the input 'thing' of handler 'one' is annotated as .*, which cannot be read from JSON.*Opaque"
    for annotation in (Opaque, list[Opaque], Opaque | None):

        async def one(ctx: JobContext, thing: annotation) -> None: ...  # type: ignore[valid-type]

        with pytest.raises(InvalidInput, match=said):
            app.job(one)
    assert len(app.registry) == 0


async def test_an_input_that_names_what_comes_later_is_judged_when_it_is_used(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("names_what_comes_later")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module)["app"] = app
    exec(LATER, vars(module))
    async with working(app):
        for kind in ("model", "data"):
            assert await (await app.enqueue(kind, {"later": {"n": 1}})).result(PATIENCE) == 1
    assert app.registry.find("unknown") is not None


LATER = """
from __future__ import annotations
from dataclasses import dataclass
from pydantic import BaseModel
from perdure import JobContext

class Model(BaseModel):
    later: Later

@dataclass
class Data:
    later: Later

@app.job
async def model(ctx: JobContext, given: Model) -> int:
    return given.later.n

@app.job
async def data(ctx: JobContext, given: Data) -> int:
    return given.later.n

@app.job
async def unknown(ctx: JobContext, given: list["Never"]) -> None: ...

class Later(BaseModel):
    n: int
"""


async def test_the_typed_dict_of_typing_works_where_pydantic_can_read_it(app: App) -> None:
    class Plain(typing.TypedDict):
        moment: datetime

    async def one(ctx: JobContext, given: Plain) -> datetime:
        return given["moment"]

    given: Plain = {"moment": MOMENT}
    readable = bool(sys.version_info >= (3, 12))
    if not readable:
        with pytest.raises(InvalidInput, match=r"'given' of handler 'one' .*typing_extensions\.TypedDict"):
            app.job(one)
        return
    async with working(app):
        assert await (await app.enqueue(app.job(one), given)).result(PATIENCE) == MOMENT


async def test_a_step_with_such_a_type_is_refused_before_it_runs(app: App) -> None:
    class Opaque(dict[str, int]):
        """JSON can be made of it, but it cannot be made of JSON."""

        def __init__(self, one: int) -> None:
            super().__init__(one=one)

    ran = []

    def make() -> Opaque:
        ran.append(1)
        return Opaque(1)

    @app.job(max_retries=0)
    async def one(ctx: JobContext) -> None:
        await ctx.step("make", make)

    async with working(app):
        job = await ended(app, await app.enqueue(one))
    assert job.status.terminal
    assert "the result of step 'make' is annotated as" in (job.error_message or "")
    assert ran == []


async def test_a_handler_without_annotations_gets_plain_json(app: App) -> None:
    @app.job
    async def one(ctx: JobContext, given):  # type: ignore[no-untyped-def]  # that is the point
        return {"type": type(given).__name__, "given": given}

    async with working(app):
        handle = await app.enqueue("one", SOURCE)
        result = await handle.result(PATIENCE)
    assert result["type"] == "dict"
    assert result["given"]["url"] == SOURCE.url


async def test_the_result_is_none_where_the_handler_returns_nothing(app: App) -> None:
    @app.job
    async def one(ctx: JobContext) -> None: ...

    async with working(app):
        handle = await app.enqueue(one)
        await handle.result(PATIENCE)  # None, and mypy knows it
        job = await reached(handle, Status.COMPLETED)
    assert job.result is None


async def test_an_iterator_is_no_result_for_it_may_break_off(app: App) -> None:
    def rows() -> Any:
        yield 1
        raise ValueError("the connection broke")

    @app.job
    async def whole(ctx: JobContext) -> Any:
        return await ctx.step("rows", rows)

    @app.job
    async def inside(ctx: JobContext) -> Any:
        return {"of objects": (object() for _ in range(3))}

    async with working(app):
        for handler in (whole, inside):
            job = await ended(app, await app.enqueue(handler))
            assert job.status is Status.FAILED, job.result
            assert "holds a generator, which can be read only once" in (job.error_message or "")
