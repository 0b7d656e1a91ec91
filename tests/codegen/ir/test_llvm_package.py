"""The fallback of :mod:`pytrace.codegen.ir.llvm_library` has the same methods."""

from __future__ import annotations

from pytrace.codegen.ir import llvm_library, llvm_package


def _public(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


def test_both_have_what_is_needed_of_llvm() -> None:
    needed = _public(llvm_library.Llvm)
    assert needed >= {"set_option", "machine", "parse"}
    assert needed <= _public(llvm_library.Library)
    assert needed <= _public(llvm_package.Package)
    assert _public(llvm_library.Machine) <= _public(llvm_package._Machine)
