"""Regular expressions that are compiled on first use."""

from __future__ import annotations

import re

import pytest

from pytrace.base.lazy_regex import late


def test_it_does_what_the_compiled_expression_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = re.compile
    monkeypatch.setattr(re, "compile", lambda *given: compiled.append(given[0]) or original(*given))
    pattern = late(r"(?P<letter>[a-c])(\d)", re.IGNORECASE)
    assert compiled == []
    assert [match["letter"] for match in pattern.finditer("a1 B2 d3")] == ["a", "B"]
    assert pattern.sub("x", "a1-c2") == "x-x"
    assert pattern.fullmatch("a12") is None
    assert pattern.match("zc3", 1) is not None
    assert (pattern.findall("a1"), pattern.split("0a1")) == ([("a", "1")], ["0", "a", "1", ""])
    assert (pattern.pattern, dict(pattern.groupindex)) == (r"(?P<letter>[a-c])(\d)", {"letter": 1})
    assert len(compiled) == 1
    assert late(rb"\x00+").search(b"a\0\0").span() == (1, 3)  # type: ignore[union-attr]


def test_what_expressions_do_not_have() -> None:
    with pytest.raises(AttributeError, match="scan"):
        late("a").scan  # type: ignore[attr-defined]
