"""``--heat``: when lines are printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, MapSpec
from pytrace.core.types import Count, Hist, Type
from pytrace.runtime.session.services import heat
from pytrace.runtime.session.services.heat import Heat


class Renderer:
    def __init__(self) -> None:
        self.printed: list[tuple[Sequence[str], bool]] = []

    def print_heat(self, names: Sequence[str], *, rest: bool = False) -> None:
        self.printed.append((names, rest))


def manifest(kind: Type) -> Manifest:
    return Manifest((), (MapSpec("@h", "", "global", None, kind, 1),), (), (), Config())


def test_a_line_each_second_and_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(heat.time, "monotonic", lambda: now)
    renderer = Renderer()
    service = Heat(manifest(Hist()), cast(Any, renderer))
    assert service.pause(5.0) == 5.0
    service.begin()
    assert service.pause(5.0) == 1.0
    for now in (100.9, 101.0, 101.5, 104.2, 104.9, 105.0):  # noqa: B007 - the clock reads it
        service.work(0)
    assert renderer.printed == [(["@h"], False)] * 3, "what took too long leaves out lines"
    service.stop()
    assert renderer.printed[-1] == (["@h"], True)


def test_scripts_without_histograms() -> None:
    with pytest.raises(TraceError, match="--heat shows histograms, and the script has no map of them"):
        Heat(manifest(Count()), cast(Any, Renderer()))
