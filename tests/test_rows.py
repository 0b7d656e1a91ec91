"""A test of all rows of a table runs each of them, and lists each that fails."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.support.rows import each_row


def test_every_row_that_fails_is_listed() -> None:
    seen = []

    @each_row("left, right", [(1, 1), (1, 2), pytest.param(2, 3, id="odd"), (4, 4)])
    @each_row("sign", lambda: iter("+-"), ids={"sign +": 1, "sign -": 2})
    def test(left: int, right: int, sign: str) -> None:
        seen.append((left, sign))
        assert left == right, f"{sign} differs"

    with pytest.raises(pytest.fail.Exception) as caught:
        test()
    assert len(seen) == 8
    text = str(caught.value)
    assert text.startswith("4 of 8 rows fail\n-- 1-2-sign +\n")
    assert [line for line in text.splitlines() if line.startswith("-- ")] == [
        "-- 1-2-sign +", "-- 1-2-sign -", "-- odd-sign +", "-- odd-sign -"
    ]  # fmt: skip
    assert text.count("AssertionError: - differs") == 2
    assert "test_rows.py" in text


def test_rows_share_no_folder_and_no_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_ROW", "before")

    @each_row("name", ["one", "two"])
    def test(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import os

        assert os.environ["PYTRACE_ROW"] == "before"
        assert not list(tmp_path.iterdir())
        monkeypatch.setenv("PYTRACE_ROW", name)
        (tmp_path / name).touch()

    assert list(inspect.signature(test).parameters) == ["tmp_path", "monkeypatch"]
    test(tmp_path=tmp_path, monkeypatch=monkeypatch)


def test_a_row_that_is_skipped_leaves_the_others() -> None:
    seen = []

    @each_row("number", [1, 2, 3])
    def test(number: int) -> None:
        seen.append(number)
        if number == 1:
            pytest.skip("no first")

    with pytest.raises(pytest.skip.Exception, match="1 of 3 rows: no first"):
        test()
    assert seen == [1, 2, 3]


def test_a_table_without_rows_and_a_wrong_name_are_mistakes() -> None:
    @each_row("number", [])
    def test(number: int) -> None: ...

    with pytest.raises(AssertionError, match="no rows"):
        test()
    with pytest.raises(AssertionError, match="takes no"):
        each_row("nubmer", [1])(lambda number: None)
