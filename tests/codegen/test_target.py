"""LLVM's way from IR to ELF, and what happens where LLVM gives up."""

from __future__ import annotations

import faulthandler
import os

import pytest

from pytrace.codegen import target
from pytrace.diagnostics import TraceError

TEXT = """
target triple = "bpfel"
define i64 @f(i64 %n) section "text" {
  %twice = add i64 %n, %n
  ret i64 %twice
}
"""


def test_large_programs_are_made_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = target.elf(target.parse(TEXT))
    monkeypatch.setattr(target, "LARGE", 1)
    assert target.elf(target.parse(TEXT)) == here
    assert here.startswith(b"\x7fELF")


def test_a_program_that_llvm_gives_up_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that is too far makes LLVM end its process."""

    class GivingUp:
        def emit_object(self, _module: object) -> bytes:
            faulthandler.disable()  # pytest's, which would show this in its output
            os.abort()

    monkeypatch.setattr(target, "LARGE", 1)
    monkeypatch.setattr(target, "_machine", GivingUp)
    with pytest.raises(TraceError, match="too long"):
        target.elf(target.parse(TEXT))


def test_short_texts_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "LARGE", 1)
    monkeypatch.setattr(target, "_in_a_child", lambda _module: b"child")
    assert target.elf(target.parse(TEXT), 10) != b"child"
    assert target.elf(target.parse(TEXT), target.LARGE_TEXT) == b"child"
