"""The types of functions that become handlers, for type checkers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, overload

from perdure.runtime.context.blocking import BlockingContext
from perdure.runtime.context.context import JobContext
from perdure.runtime.registry import Handler

I = TypeVar("I")  # noqa: E741  the handler's input
O = TypeVar("O")  # noqa: E741  the handler's output
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)


class AsyncDefault(Protocol[I_contra, O_co]):
    """An async handler whose input has a default."""

    def __call__(self, ctx: JobContext, input: I_contra = ..., /) -> Awaitable[O_co]: ...


class PlainDefault(Protocol[I_contra, O_co]):
    """A plain handler whose input has a default."""

    def __call__(self, ctx: BlockingContext, input: I_contra = ..., /) -> O_co: ...


class JobDecorator(Protocol):
    """`@app.job(...)`: keeps the handler's input and output types."""

    @overload
    def __call__(self, fn: AsyncDefault[I, O], /) -> Handler[I | None, O]: ...
    @overload
    def __call__(self, fn: Callable[[JobContext], Awaitable[O]], /) -> Handler[None, O]: ...
    @overload
    def __call__(self, fn: Callable[[JobContext, I], Awaitable[O]], /) -> Handler[I, O]: ...
    @overload
    def __call__(self, fn: PlainDefault[I, O], /) -> Handler[I | None, O]: ...
    @overload
    def __call__(self, fn: Callable[[BlockingContext], O], /) -> Handler[None, O]: ...
    @overload
    def __call__(self, fn: Callable[[BlockingContext, I], O], /) -> Handler[I, O]: ...
