"""The table of kernel features."""

from __future__ import annotations

import re
from pathlib import Path

from pytrace.runtime.features import FEATURES

SOURCE = Path(__file__).resolve().parents[2] / "pytrace"


def test_every_feature_that_is_asked_for_has_a_row() -> None:
    asked = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r'(?:\.feature|features\.has)\("(\w+)"\)', file.read_text(encoding="utf-8"))
    }
    assert asked
    assert asked <= set(FEATURES)
