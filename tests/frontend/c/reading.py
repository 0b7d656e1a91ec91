"""The C part of a short script, read on a recorded kernel."""

from __future__ import annotations

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import Struct
from pytrace.frontend.expand import c_definitions
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.syntax import parser
from tests.support.facts import RecordedKernel


def read(text: str, kernel: RecordedKernel | None = None, **options: object) -> tuple[Definitions, Diagnostics]:
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", f"{text}\nbegin {{ }}"), diagnostics)
    diagnostics.check()
    found = c_definitions.read(program, CompileOptions(**options), kernel or RecordedKernel(), diagnostics)  # type: ignore[arg-type]
    return found, diagnostics


def good(text: str, kernel: RecordedKernel | None = None, **options: object) -> Definitions:
    found, diagnostics = read(text, kernel, **options)
    assert not diagnostics.items, diagnostics.items
    return found


def fields(struct: Struct | None) -> list[tuple[str, str, int, int, int]]:
    assert struct is not None
    return [(item.name, str(item.type), item.offset, item.bit_offset, item.bit_size) for item in struct.fields]
