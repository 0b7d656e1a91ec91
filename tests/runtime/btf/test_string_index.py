"""The index of the strings of type information, made and read again."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from pytrace.runtime.btf import string_index
from pytrace.runtime.host import fingerprints

STRINGS = b"\0int\0O_CREAT\0int\0unsigned int\0\0last\0"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(b"int", [1, 13]), (b"O_CREAT", [5]), (b"unsigned int", [17]), (b"last", [31]), (b"O_", []), (b"nt", [])],
)
def test_places_of_whole_strings(text: bytes, wanted: list[int]) -> None:
    for _ in range(2):
        found = string_index.of_strings(STRINGS, "strings")
        assert list(found.offsets(text)) == wanted


def test_strings_with_the_same_checksum_are_all_named() -> None:
    assert crc32(b"plumless") == crc32(b"buckeroo")
    found = string_index.of_strings(b"\0plumless\0buckeroo\0", "strings")
    assert list(found.offsets(b"buckeroo")) == [1, 10]


@pytest.mark.parametrize("damage", [b"", b"PTBTFS1\n", b"x" * 40, b"PTBTFS1\n" + (5).to_bytes(8, "little") + bytes(8)])
def test_another_format_is_made_anew(damage: bytes) -> None:
    fingerprints.keep("strings", damage)
    assert list(string_index.of_strings(STRINGS, "strings").offsets(b"last")) == [31]
    assert len(fingerprints.read_kept("strings") or b"") > 40


def test_nothing_is_read_again_for_other_strings() -> None:
    string_index.of_strings(STRINGS, "strings")
    assert list(string_index.of_strings(b"\0last\0", "strings").offsets(b"last")) == [1]
