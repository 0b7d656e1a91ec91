"""What a script with dw_ustack consists of; that it unwinds is shown in tests/kernel/test_unwinding.py."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from pytrace import pipeline
from pytrace.codegen.walkers import unwinding
from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.stack_formats import RANGE_SIZE
from pytrace.core.types import INT32, UINT64, Field, Struct
from tests.support.facts import RecordedKernel

MEMBERS = (Field("mm", UINT64, 8), Field("real_parent", UINT64, 16), Field("tgid", INT32, 24))
KERNEL = replace(
    RecordedKernel(),
    features=RecordedKernel().features | {"bpf_loop"},
    structs={("struct", "task_struct"): Struct("struct", "task_struct", 64, MEMBERS, origin="vmlinux")},
)
TEXT = "config = { unstable_dw_ustack = enable } kprobe:vfs_read { @[dw_ustack] = count(); @l = len(dw_ustack(3)); }"


def compiled(text: str, kernel: RecordedKernel = KERNEL) -> CompiledScript:
    return pipeline.compile_script(Source("stdin", text, None), CompileOptions(), kernel, Diagnostics())


def symbols(script: CompiledScript) -> list[str]:
    table = ELFFile(io.BytesIO(script.elf)).get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    return [symbol.name for symbol in table.iter_symbols()]


def test_maps_are_there_once() -> None:
    script = compiled(TEXT)
    names = symbols(script)
    wanted = (unwinding.SPACES, unwinding.RANGES, unwinding.ROWS, unwinding.TOLD)
    for name in (*wanted, unwinding.RULE_FUNCTION):
        assert names.count(name) == 1
    assert script.manifest.unwind == unwinding.unwind_maps(selected=True, asks=False)


def test_nothing_of_it_without_it() -> None:
    script = compiled("kprobe:vfs_read { @[ustack] = count(); }")
    assert script.manifest.unwind is None
    assert unwinding.ROWS not in symbols(script)


def test_needs_loops_of_the_kernel() -> None:
    with pytest.raises(TraceError, match="bpf_loop"):
        compiled(TEXT, replace(KERNEL, features=KERNEL.features - {"bpf_loop"}))


def test_only_where_the_tables_are_understood() -> None:
    found = Diagnostics()
    with pytest.raises(ScriptError):
        pipeline.compile_script(Source("stdin", TEXT, None), CompileOptions(), replace(KERNEL, arch="aarch64"), found)
    assert {item.message for item in found.items} == {"dw_ustack is not available on aarch64"}


def test_search_has_steps_for_all_entries() -> None:
    assert 1 << unwinding._ROW_STEPS > unwinding.ROW_ENTRIES
    assert RANGE_SIZE == 8 * 4
