"""Which variables of the environment a compilation depends on."""

from __future__ import annotations

import pytest

from pytrace.core.options.compile_options import environment

KEPT = {"PYTRACE_STRLEN": "9", "BPFTRACE_STRLEN": "8", "CPATH": "/a", "C_INCLUDE_PATH": "/b"}


@pytest.mark.parametrize(("mark_unreadable", "added"), [(False, {}), (True, {"PYTRACE_MARK_UNREADABLE": "1"})])
def test_variables_that_do_not_matter_are_left_out(
    mark_unreadable: bool, added: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {"HOME": "/root", "XPYTRACE_STRLEN": "7", "CPATHS": "/c", "pytrace_strlen": "6"}
    monkeypatch.setattr("os.environ", {**others, **KEPT})
    assert environment(mark_unreadable=mark_unreadable) == {**KEPT, **added}


def test_the_option_overrides_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PYTRACE_MARK_UNREADABLE": "0"})
    assert environment(mark_unreadable=False) == {"PYTRACE_MARK_UNREADABLE": "0"}
    assert environment(mark_unreadable=True) == {"PYTRACE_MARK_UNREADABLE": "1"}
