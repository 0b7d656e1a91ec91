"""The replacements behave as the standard library's."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from typing import Any

import pytest

from pytrace.base import fast_library

BOTH = pytest.mark.parametrize("make", [fast_library.ExitStack, contextlib.ExitStack], ids=["own", "standard"])


class Step:
    """A context that records when it is left, and may raise or swallow."""

    def __init__(self, done: list[str], name: str, raised: BaseException | None = None, swallow: bool = False) -> None:
        self.done, self.name, self.raised, self.swallow = done, name, raised, swallow

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert (kind is None) is (error is None) is (trace is None)
        self.done.append(f"{self.name} {error}")
        if self.raised is not None:
            raise self.raised
        return self.swallow


def contexts(error: BaseException) -> list[str]:
    found, current = [], error.__context__
    while current is not None:
        found.append(str(current))
        current = current.__context__
    return found


@BOTH
def test_everything_is_left_in_the_reverse_order(make: Any) -> None:
    done: list[str] = []
    with make() as stack:
        assert stack.enter_context(Step(done, "first")) == "first"
        stack.callback(done.append, "called")
        assert stack.push(step := Step(done, "pushed")) is step
        stack.push(lambda kind, _error, _trace: done.append(f"function {kind}"))
        kept = stack.pop_all()
    assert done == []
    kept.close()
    assert done == ["function None", "pushed None", "called", "first None"]


@BOTH
@pytest.mark.parametrize("swallow", [False, True])
def test_an_error_reaches_all_of_them(make: Any, swallow: bool) -> None:
    done: list[str] = []

    def run() -> None:
        with make() as stack:
            stack.enter_context(Step(done, "last"))
            stack.enter_context(Step(done, "middle", swallow=swallow))
            stack.enter_context(Step(done, "first"))
            raise ValueError("wrong")

    if swallow:
        run()
    else:
        with pytest.raises(ValueError, match="wrong"):
            run()
    assert done == ["first wrong", "middle wrong", "last None" if swallow else "last wrong"]


@BOTH
def test_errors_while_leaving(make: Any) -> None:
    done: list[str] = []

    def run() -> None:
        with make() as stack:
            stack.enter_context(Step(done, "last"))
            stack.enter_context(Step(done, "second", KeyError("key")))
            stack.enter_context(Step(done, "first", ValueError("value")))
            raise RuntimeError("body")

    with pytest.raises(KeyError) as caught:
        run()
    assert done == ["first body", "second value", "last 'key'"]
    assert contexts(caught.value) == ["value", "body"]


@BOTH
def test_an_error_of_a_callback_without_another(make: Any) -> None:
    with pytest.raises(OSError, match="no") as caught, make() as stack:
        stack.callback(lambda: (_ for _ in ()).throw(OSError("no")))
    assert contexts(caught.value) == []


@BOTH
def test_what_is_no_context(make: Any) -> None:
    with make() as stack, pytest.raises((AttributeError, TypeError)):
        stack.enter_context(3)


def test_suppress() -> None:
    with fast_library.suppress(KeyError, OSError):
        raise FileNotFoundError
    with pytest.raises(ValueError, match="other"), fast_library.suppress(KeyError):
        raise ValueError("other")


@pytest.mark.parametrize("library", [fast_library, functools], ids=["own", "standard"])
def test_caches(library: Any) -> None:
    calls: list[int] = []

    @library.cache
    def twice(number: int) -> int:
        """The double."""
        calls.append(number)
        return 2 * number

    assert [twice(1), twice(1), twice(2)] == [2, 2, 4]
    assert calls == [1, 2]
    assert (twice.__name__, twice.__doc__, twice.__wrapped__(3)) == ("twice", "The double.", 6)
    twice.cache_clear()
    assert twice(1) == 2
    assert calls == [1, 2, 3, 1]
    few = library.lru_cache(maxsize=1)(calls.append)
    few(7), few(8), few(7)
    assert calls[-3:] == [7, 8, 7]


def test_cached_property() -> None:
    class Thing:
        made = 0

        @fast_library.cached_property
        def value(self) -> int:
            """Made once."""
            self.made += 1
            return self.made

    thing = Thing()
    assert (thing.value, thing.value, thing.made) == (1, 1, 1)
    del thing.value
    assert thing.value == 2
    assert Thing.value.__doc__ == "Made once."


def test_the_standard_modules_are_not_imported() -> None:
    code = "import sys, pytrace.base.fast_library; print({'functools', 'contextlib'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


MANAGERS = pytest.mark.parametrize(
    "make", [fast_library.contextmanager, contextlib.contextmanager], ids=["own", "standard"]
)


@MANAGERS
def test_a_generator_is_a_context(make: Any) -> None:
    done: list[str] = []

    @make
    def around(name: str, *, swallow: type[BaseException] = KeyError) -> Any:
        """Text."""
        try:
            yield name
        except swallow as error:
            done.append(f"swallowed {error!r}")
        finally:
            done.append(f"left {name}")

    assert (around.__name__, around.__doc__) == ("around", "Text.")
    with around("one") as name:
        assert name == "one"
    with around("two"):
        raise KeyError("x")
    with pytest.raises(ValueError, match="passes"), around("three"):
        raise ValueError("passes")
    with pytest.raises(StopIteration), around("four"):
        raise StopIteration
    assert done == ["left one", "swallowed KeyError('x')", "left two", "left three", "left four"]


@MANAGERS
def test_generators_that_raise_or_do_not_stop(make: Any) -> None:
    @make
    def replaces() -> Any:
        try:
            yield
        except KeyError as error:
            raise ValueError("instead") from error

    @make
    def goes_on() -> Any:
        try:
            yield 1
        except KeyError:
            yield 2
        yield 3

    with pytest.raises(ValueError, match="instead"), replaces():
        raise KeyError
    with pytest.raises(RuntimeError, match="stop"), goes_on():
        pass
    with pytest.raises(RuntimeError, match="stop"), goes_on():
        raise KeyError
