"""Tests of the version of Go that a program was built by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.runtime.elf import go_build


def file(data: bytes | None) -> Any:
    section = None if data is None else SimpleNamespace(name=".go.buildinfo")
    return SimpleNamespace(section=lambda _: section, contents=lambda _: memoryview(data or b""))


def info(version: str, flags: int = 2) -> bytes:
    head = b"\xff Go buildinf:" + bytes([8, flags])
    return head.ljust(32, b"\0") + bytes([len(version)]) + version.encode() + b"\x04path"


@pytest.mark.parametrize(
    ("version", "offset"),
    [("go1.19.8", 152), ("go1.22.12", 152), ("go1.24.4", 160), ("go1.27.3", 152), ("go1.99", None)],
)
def test_where_goroutines_have_their_numbers(version: str, offset: int | None) -> None:
    assert go_build.version(file(info(version))) == version
    assert go_build.goroutine_number(file(info(version))) == offset


@pytest.mark.parametrize("data", [None, b"", b"\xff Go buildinf:", info("go1.17", flags=0), info("")[:32], b"x" * 64])
def test_programs_that_do_not_say_it(data: bytes | None) -> None:
    assert go_build.version(file(data)) == ""
    assert go_build.goroutine_number(file(data)) is None
