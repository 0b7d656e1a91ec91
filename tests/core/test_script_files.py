"""Scripts as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core import script_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MAGIC


def test_a_text(tmp_path: Path) -> None:
    file = tmp_path / "a.bt"
    file.write_bytes(b"\xef\xbb\xbfbegin { print(\"\xff\") }\r\n")
    source, compiled = script_files.read(str(file))
    assert (source.name, source.path, compiled) == (str(file), str(file), None)
    assert source.text == 'begin { print("\udcff") }\r\n'
    assert script_files.text(str(file), "a").text == source.text
    assert script_files.text(str(file), "a").name == "a"


def test_a_compiled_script(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    file.write_bytes(MAGIC + b"\0\0")
    source, compiled = script_files.read(str(file))
    assert (source.text, compiled) == ("", MAGIC + b"\0\0")


@pytest.mark.parametrize(
    ("data", "path", "hints"),
    [
        (b"a\0b", "/a", ()),
        (b"\x7fELF\0", "/a", ("-c name runs a program and traces it",)),
        (b"\x7fELF\0", None, ()),
    ],
)
def test_other_files_are_refused(data: bytes, path: str | None, hints: tuple[str, ...]) -> None:
    with pytest.raises(TraceError, match="'name' is not a script: there are zero bytes in it") as caught:
        script_files.from_bytes("name", data, path)
    assert caught.value.hints == hints


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is a directory, not a script"):
        script_files.read(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        script_files.read(str(tmp_path / "none"))
