"""The table of kernel features."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytrace.core import kernel_info
from pytrace.runtime.abi import privileges
from pytrace.runtime.load import features
from pytrace.runtime.load.features import FEATURES

SOURCE = Path(__file__).resolve().parents[3] / "pytrace"


def test_every_feature_that_is_asked_for_has_a_row() -> None:
    asked = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r'(?:\.feature|features\.has)\("(\w+)"\)', file.read_text(encoding="utf-8"))
    }
    assert asked
    assert asked <= set(FEATURES)


def test_answers_are_kept_for_each_set_of_capabilities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What needs CAP_SYS_ADMIN is refused without it; that must not be remembered once the user has it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    held = 0

    def probe() -> bool:
        return held == 1

    monkeypatch.setitem(FEATURES, "fentry", features.Feature("fentry", "", probe))
    monkeypatch.setattr(privileges, "capability_mask", lambda: held)
    features.forget()
    try:
        assert not features.has("fentry")
        features.forget()
        held = 1
        assert features.has("fentry")
        features.forget()
        monkeypatch.setitem(FEATURES, "fentry", features.Feature("fentry", "", lambda: False))
        assert features.has("fentry"), "it is kept"
    finally:
        features.forget()


def test_each_name_has_a_probe() -> None:
    assert sorted(kernel_info.FEATURES) == sorted(FEATURES)
