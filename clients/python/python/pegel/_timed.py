"""Durations: a context manager and decorator, for functions and coroutines."""

import functools
import inspect
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Callable, Mapping, TypeVar, cast

from ._native import Timer, timer

F = TypeVar("F", bound=Callable[..., Any])

# The running measurements of this thread or task, newest first: (start, owner, earlier ones). Each
# thread and each task has its own, so that one object may be shared by all of them.
_running: "ContextVar[Any]" = ContextVar("pegel_running", default=None)


class Scope:
    """A piece of work with a beginning and an end: with, async with, or a decorator."""

    def _begin(self) -> Any:
        raise NotImplementedError

    def _end(self, begun: Any) -> None:
        raise NotImplementedError

    def __enter__(self) -> "Scope":
        _running.set((self._begin(), self, _running.get()))
        return self

    def __exit__(self, *_: object) -> None:
        newest = _running.get()
        begun, rest = _without(newest, self)
        _running.set(rest)
        if begun is not None:
            self._end(begun)

    async def __aenter__(self) -> "Scope":
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__(*error)

    def __call__(self, function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **keywords: Any) -> Any:
                begun = self._begin()
                try:
                    return await function(*args, **keywords)
                finally:
                    self._end(begun)

            return cast(F, run_async)

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator cannot be timed as a whole; use `with` inside it")

        @functools.wraps(function)
        def run(*args: Any, **keywords: Any) -> Any:
            begun = self._begin()
            try:
                return function(*args, **keywords)
            finally:
                self._end(begun)

        return cast(F, run)


def _without(running: Any, owner: Scope) -> "tuple[Any, Any]":
    """Returns the newest beginning of an owner, and the rest.

    Usually the first one; a generator that is suspended inside `with` may have left others before it.
    """
    if running is None:
        return None, None
    begun, found, earlier = running
    if found is owner:
        return begun, earlier
    result, rest = _without(earlier, owner)
    return result, (begun, found, rest)


class timed(Scope):
    """Records how long a block, a function or a coroutine takes, also when it raises.

        with pegel.timed("epoch"): ...
        async with pegel.timed("request"): ...
        @pegel.timed("step")
        def step(): ...

    The durations are in seconds, with count, sum, smallest, largest and buckets.
    """

    __slots__ = ("timer",)

    timer: Timer

    def __init__(
        self,
        name: str,
        *,
        help: "str | None" = None,
        labels: "Mapping[str, object] | None" = None,
        level: "int | None" = None,
        pid: bool = False,
        rank: bool = False,
    ) -> None:
        given = None if labels is None else dict(labels)
        self.timer = timer(name, help=help, labels=given, level=level, pid=pid, rank=rank)

    def _begin(self) -> float:
        return perf_counter()

    def _end(self, begun: float) -> None:
        self.timer.record(perf_counter() - begun)
