from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from pytrace.results.report import document
from pytrace.results.report.document import Document


def read(packed: str | bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return data


def unpacked(made: Document) -> dict[str, Any]:
    return read(made.packed())


def test_each_text_is_there_once() -> None:
    made = Document()
    assert [made.text(text) for text in ("a", "b", "a")] == [0, 1, 0]
    made.frames[0, 1, 0] = 0
    assert unpacked(made) == {"texts": ["a", "b"], "frames": [[0], [1], [0]], "places": [[], []], "parts": []}


def test_bytes_and_control_characters_are_escapes() -> None:
    assert document.shown("a\x00\x1b[31m\udcff\n") == "a\\x00\\x1b[31m\\xff\n"


def test_what_a_double_would_round_is_text() -> None:
    assert document.exact(1 << 53) == 1 << 53
    assert document.exact((1 << 53) + 1) == str((1 << 53) + 1)
    assert document.exacts([1, -(1 << 60)]) == [1, str(-(1 << 60))]


def test_equal_documents_have_equal_bytes() -> None:
    assert Document().packed() == Document().packed()
