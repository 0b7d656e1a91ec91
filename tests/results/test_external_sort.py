from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.core import types
from pytrace.results import external_sort
from tests.support.snapshots import STRING, stack

PAIR = types.Tuple((types.INT64, types.INT64))


@pytest.mark.parametrize(("run", "chunk"), [(1, 1), (3, 2), (7, 100), (1000, 10)])
@given(st.lists(st.integers(0, 9), max_size=40))
def test_items_are_sorted_as_in_memory(run: int, chunk: int, items: list[int]) -> None:
    before = external_sort.RUN, external_sort.CHUNK
    external_sort.RUN, external_sort.CHUNK = run, chunk
    try:
        numbered = list(enumerate(items))
        blocks = list(external_sort.in_order(iter(numbered), lambda item: item[1], PAIR))
        assert [item for block in blocks for item in block] == sorted(numbered, key=lambda item: item[1])
        assert all(0 < len(block) <= max(run, chunk) for block in blocks)
    finally:
        external_sort.RUN, external_sort.CHUNK = before


def test_all_values_survive_and_no_file_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(external_sort, "RUN", 2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    type_ = types.Tuple((types.INT64, types.Stack(True), types.Buffer(4), STRING, types.Int(16, True), types.Hist()))
    items = [
        (number, stack("f", f"main{number}"), b"\xff", "a\udcff", -(1 << 100), {number: 3})
        for number in range(9, 0, -1)
    ]
    blocks = external_sort.in_order(items, lambda item: item[0], type_)
    first = next(blocks)
    assert os.listdir(tmp_path) == []
    assert first + [item for block in blocks for item in block] == items[::-1]
