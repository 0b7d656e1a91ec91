"""Views of maps; their text is tested where maps are printed."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.types import INT64, Count
from tests.support.encode import Run


def test_a_view_is_created_once() -> None:
    run = Run()
    run.keyed("@m", INT64, INT64, {1: 5})
    maps = run.renderer._context.maps
    assert maps.view("@m") is maps.view("@m")
    with pytest.raises(InternalError, match="an event names @other, a map that the script does not have"):
        maps.view("@other")


def test_what_grew_is_among_the_greatest() -> None:
    """The live view shows what is busy now, not only what was busy once."""
    run = Run()
    old = {key: 1000 + key for key in range(100)}
    run.keyed("@m", INT64, Count(), {**old, 500: 1, 501: 2})
    view = run.renderer._context.maps.view("@m")
    first, total = view.greatest(10, lambda: None)
    assert (len(first), total) == (10, 102)
    run.keyed("@m", INT64, Count(), {**old, 500: 7, 501: 2, 502: 3})
    again, total = view.greatest(10, lambda: None)
    assert (len(again), total) == (10, 103)
    assert {key for key, _ in again} >= {500, 502, 99, 98, 97, 96, 95}
