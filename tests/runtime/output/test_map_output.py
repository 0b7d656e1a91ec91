"""Views of maps; their text is tested where maps are printed."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.types import INT64
from tests.support.encode import Run


def test_a_view_is_created_once() -> None:
    run = Run()
    run.keyed("@m", INT64, INT64, {1: 5})
    maps = run.renderer._context.maps
    assert maps.view("@m") is maps.view("@m")
    with pytest.raises(InternalError, match="an event names @other, a map that the script does not have"):
        maps.view("@other")
