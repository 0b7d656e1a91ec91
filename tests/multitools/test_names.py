from __future__ import annotations

from pytrace.multitools.names import LANGUAGES, MULTI_PURPOSE, NAMES


def test_each_tool_has_a_group_and_one_sentence() -> None:
    assert len(NAMES) == 8
    assert all(group in (LANGUAGES, MULTI_PURPOSE) for group, _ in NAMES.values())
    assert all(text and text == text.strip() and not text.endswith(".") for _, text in NAMES.values())
