"""Keys of an input that its type does not have are refused when the job is enqueued."""

from dataclasses import dataclass, field
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from perdure import App, InvalidInput, JobContext
from perdure.runtime.unknown_keys import check_keys


@dataclass
class Source:
    """A part of an input."""

    url: str
    weight: int = 1


@dataclass
class Brief:
    """An input."""

    topic: str
    limit: int = 2
    sources: list[Source] = field(default_factory=list)
    best: Source | None = None
    by_name: dict[str, Source] = field(default_factory=dict)


class Model(BaseModel):
    """An input of another make."""

    topic: str = Field(alias="Topic")

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own documentation has it
    @property
    def size(self) -> int:
        """Is written, and not read."""
        return len(self.topic)


class Open(BaseModel):
    """Takes any key."""

    model_config = ConfigDict(extra="allow")
    topic: str


class Typed(TypedDict, total=False):
    """A dict with known keys."""

    topic: str


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (Brief, {"topic": "tea", "limt": 3}, "has the key 'limt', which its type does not have; did you mean 'limit'?"),
        (Brief, {"topic": "tea", "sources": [{"url": "a"}, {"url": "b", "x": 1}]}, "'x' at sources.1"),
        (Brief, {"topic": "tea", "best": {"uri": "a"}}, "'uri' at best"),
        (Brief, {"topic": "tea", "by_name": {"a": {"url": "a", "x": 1}}}, "'x' at by_name.a"),
        (Model, {"Topic": "tea", "x": 1}, "'x'"),
        (Typed, {"topic": "tea", "x": 1}, "'x'"),
    ],
)
def test_an_unknown_key_is_named_with_its_place(annotation: Any, value: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match="the input") as raised:
        check_keys(value, annotation, "the input")
    assert says in raised.value.message
    assert (raised.value.hint or "").startswith("known: ")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Brief, {"topic": "tea", "sources": [{"url": "a", "weight": 2}], "best": None}),
        (Brief, Brief("tea")),
        (Model, {"Topic": "tea"}),
        (Model, Model(Topic="tea")),
        (Open, {"topic": "tea", "x": 1}),
        (dict[str, Any], {"x": 1}),
        (Any, {"x": 1}),
        (str, "x"),
        (Brief | Model, {"x": 1}),
    ],
)
def test_other_inputs_pass(annotation: Any, value: Any) -> None:
    check_keys(value, annotation, "the input")


async def test_nothing_is_enqueued(app: App) -> None:
    @app.job
    async def research(ctx: JobContext, brief: Brief) -> None: ...

    with pytest.raises(InvalidInput, match="'limt'"):
        await app.enqueue("research", {"topic": "tea", "limt": 3})
    assert await app.jobs.count() == {}
    await app.enqueue(research, Brief("tea"))
    await app.enqueue("research", {"topic": "tea", "limit": 3})
    assert await app.jobs.count() == {"PENDING": 2}
