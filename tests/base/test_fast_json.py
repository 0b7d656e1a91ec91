"""JSON of pytrace's own files is read as the standard library reads it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pytrace.base import fast_json

VALUES: list[object] = [
    {}, [], "", 0, -5, 1 << 70, 1.5, -2e-7, True, None, "a\"\\/\n\x00é\udcff\u2028",
    [[1, [2]], {"a": {"b": [None, False]}}],
    {"x": "y" * 5000, "": 1}, float("inf"),
]  # fmt: skip


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_values_are_those_of_the_standard_library(compact: bool, ascii_only: bool) -> None:
    for value in VALUES:
        text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":") if compact else None)
        if ascii_only or "\udcff" not in text:
            assert fast_json.loads(text.encode()) == json.loads(text) == value


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b'{"a" 1}', b"nul", b"1 2", b'"a', b'"\n"', b"\xff", b"{} "])
def test_other_texts_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        fast_json.loads(text)


def test_interpreters_without_the_scanner_read_the_same() -> None:
    code = "import sys; sys.modules['_json'] = None; from pytrace.base import fast_json; print(fast_json.loads(b'[1]'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[1]\n"
