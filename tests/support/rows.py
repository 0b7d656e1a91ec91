"""One test for all rows of a table: it runs every row, and its failure lists each that fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from _pytest.outcomes import OutcomeException, Skipped

Table = Iterable[Any] | Callable[[], Iterable[Any]]
Ids = Callable[[Any], object] | Iterable[str] | None
Row = tuple[str, dict[str, Any]]


def each_row(names: str | Sequence[str], table: Table, ids: Ids = None) -> Callable[[Callable[..., None]], Any]:
    """Used as ``pytest.mark.parametrize`` is, and stacked likewise, where rows are many and cheap.

    *table* may be a function: what it returns is read when the test runs, not when tests are collected. Each row has a
    ``monkeypatch`` and an empty ``tmp_path`` of its own; other fixtures are shared by all rows.
    """
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner: Callable[[], Iterator[Row]] = getattr(test, "rows_of_the_table", lambda: iter([("", {})]))
        body: Callable[..., None] = getattr(test, "body_of_a_row", test)

        def all_rows() -> Iterator[Row]:
            for name, values in _named(words, table() if callable(table) else table, ids):
                for rest, others in inner():
                    yield (f"{name}-{rest}" if rest else name), values | others

        @wraps(body)
        def run(**fixtures: Any) -> None:
            _run(body, all_rows(), fixtures)

        signature = inspect.signature(test)
        missing = set(words) - set(signature.parameters)
        assert not missing, f"{test.__name__} takes no {missing}"
        kept = [item for name, item in signature.parameters.items() if name not in words]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        run.rows_of_the_table, run.body_of_a_row = all_rows, body  # type: ignore[attr-defined]
        del run.__wrapped__  # pytest reads the signature of what is wrapped
        return run

    return decorate


def _named(words: Sequence[str], table: Iterable[Any], ids: Ids) -> Iterator[Row]:
    given = None if ids is None or callable(ids) else list(ids)
    for number, item in enumerate(table):
        name = None
        if isinstance(item, type(pytest.param())):
            assert not item.marks, "a row with marks is a test of its own"
            name, item = item.id, item.values if len(words) > 1 else item.values[0]
        values = tuple(item) if len(words) > 1 else (item,)
        assert len(values) == len(words), f"row {number} has {len(values)} values for {', '.join(words)}"
        if name is None:
            named = [given[number]] if given else [ids(value) if callable(ids) else value for value in values]
            name = "-".join(repr(part) if not isinstance(part, str) else part for part in named)
        yield str(name), dict(zip(words, values, strict=True))


def _run(body: Callable[..., None], table: Iterator[Row], fixtures: dict[str, Any]) -> None:
    failed, skipped, number = [], [], 0
    for number, (name, values) in enumerate(table, 1):
        try:
            with ExitStack() as stack:
                body(**values, **_own(fixtures, number, stack))
        except Skipped as reason:
            skipped.append(str(reason))
        except (Exception, OutcomeException) as error:  # noqa: BLE001  (as pytest does)
            failed.append(f"-- {name}\n{_told(error)}")
    if failed:
        pytest.fail(f"{len(failed)} of {number} rows fail\n" + "\n".join(failed), pytrace=False)
    assert number, "the table has no rows"
    if skipped:
        pytest.skip(f"{len(skipped)} of {number} rows: {'; '.join(sorted(set(skipped)))}")


def _own(fixtures: dict[str, Any], number: int, stack: ExitStack) -> dict[str, Any]:
    """What a row must not share with the others."""
    own = dict(fixtures)
    if "monkeypatch" in own:
        own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
    if isinstance(own.get("tmp_path"), Path):
        own["tmp_path"] = own["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    return own


def _told(error: BaseException) -> str:
    """An exception with the lines of the test that led to it, as pytest shows it."""
    if isinstance(error, OutcomeException):
        return str(error)
    info = pytest.ExceptionInfo.from_exception(error)
    info.traceback = info.traceback[1:]  # without this module
    return str(info.getrepr(style="short"))
