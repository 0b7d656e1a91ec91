"""Reading files of the kernel."""

from __future__ import annotations

from pathlib import Path

from pytrace.base import kernel_files


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert kernel_files.read_text(str(tmp_path)) == kernel_files.read_text(str(tmp_path / "none")) == ""


def test_bytes_of_any_encoding_are_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\r\n\xff\n")
    assert kernel_files.read_text(str(tmp_path / "file")) == "a\r\n\udcff\n"


def test_only_newlines_end_the_lines_of_the_kernel() -> None:
    assert kernel_files.lines("") == []
    assert kernel_files.lines("a\nb\n") == ["a", "b"]
    assert kernel_files.lines("a\x0b\x0c\x1c\x85\u2028\rb\n\nc") == ["a\x0b\x0c\x1c\x85\u2028\rb", "", "c"]
