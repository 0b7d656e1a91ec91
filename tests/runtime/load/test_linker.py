"""Object files that scripts import: their functions, and linking."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import BOOL, INT8, INT32, UINT32, UINT64, VOID, Enum, Pointer, Struct
from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.load import linker
from pytrace.runtime.load.verifier import LoadError

OBJECT = Path(__file__).resolve().parents[2] / "programs" / "imported" / "arith.bpf.o"


def test_functions_and_their_types() -> None:
    found = {item.prototype.name: item for item in linker.functions(str(OBJECT), OBJECT.read_bytes())}
    assert [name for name, item in found.items() if item.static] == ["twice"]
    triple, weigh = found["triple"].prototype, found["weigh"].prototype
    assert (triple.parameters, triple.result) == ((("n", INT32),), INT32)
    assert weigh.parameters == (("n", UINT64), ("factor", UINT32), ("more", BOOL))
    assert found["add_calls"].prototype.result == VOID
    (_, text), = found["first_byte"].prototype.parameters
    assert isinstance(text, Pointer)
    assert text.target == INT8
    shape, pair = found["shape_of"].prototype.result, found["a_pair"].prototype.result
    assert isinstance(shape, Enum)
    assert dict(shape.members) == {"ROUND": 1, "SQUARE": 4}
    assert isinstance(pair, Pointer)
    assert isinstance(pair.target, Struct)
    assert list(pair.target.names()) == ["first", "second"]


def test_without_type_information() -> None:
    data = OBJECT.read_bytes().replace(b".BTF\0", b".XTF\0")
    with pytest.raises(TraceError, match="no type information"):
        linker.functions("x.bpf.o", data)


def test_link_joins_symbols() -> None:
    whole = ElfFile(linker.link(OBJECT.read_bytes(), []), "linked")
    assert whole.section(".BTF") is not None
    assert whole.any_symbol("triple") is not None


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(LoadError, match="does not fit the script"):
        linker.link(OBJECT.read_bytes(), [OBJECT.read_bytes()])
