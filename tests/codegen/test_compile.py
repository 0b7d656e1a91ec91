"""Compiling small scripts: what is in the ELF file and the manifest, and how long it takes."""

from __future__ import annotations

import io
import time

import pytest
from elftools.elf.elffile import ELFFile

from pytrace import pipeline
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.frontend.syntax.typed_program import CheckedProgram
from tests.support.facts import RecordedKernel
from tests.support.pace import unit


def compile_text(text: str) -> CompiledScript:
    source = Source("stdin", text, None)
    return pipeline.compile_script(source, CompileOptions(), RecordedKernel(), Diagnostics())


def sections(script: CompiledScript) -> dict[str, int]:
    return {section.name: section["sh_size"] for section in ELFFile(io.BytesIO(script.elf)).iter_sections()}


def test_sections_and_maps() -> None:
    found = sections(compile_text("begin { @x = 1; @c = count(); @k[1] = 2; exit(); }"))
    assert {"license", ".maps", ".BTF", ".BTF.ext", ".bss.percpu", ".bss.maps", "pytrace/begin_0"} <= set(found)
    script = compile_text("begin { @a[1] = 1; @b[1] = 1; @c[1] = 1; }")
    names = [section.name for section in ELFFile(io.BytesIO(script.elf)).iter_sections()]
    assert names.count(".maps") == 1
    assert names.count(".rodata") <= 1


def test_unkeyed_count_calls_no_map_helper() -> None:
    script = compile_text("tracepoint:sched:sched_switch { @ = count(); }")
    section = ELFFile(io.BytesIO(script.elf)).get_section_by_name(f"pytrace/{script.manifest.programs[0].symbol}")
    code = section.data()
    # An instruction is 8 bytes; 0x85 is a call, whose immediate is the helper's number.
    calls = [int.from_bytes(code[at + 4 : at + 8], "little") for at in range(0, len(code), 8) if code[at] == 0x85]
    # The one of the current process is for the time after exit() alone.
    assert sorted(calls) == [8, 14, 118], "bpf_get_smp_processor_id, and the watchdog's bpf_jiffies64, which is inlined"
    assert len(code) // 8 < 35


def exchanges(script: CompiledScript) -> int:
    """How many compare-and-exchange instructions the programs have."""
    found = 0
    for section in ELFFile(io.BytesIO(script.elf)).iter_sections():
        code = section.data() if section.name.startswith("pytrace/") else b""
        found += sum(code[at] == 0xDB and code[at + 4] == 0xF1 for at in range(0, len(code), 8))
    return found


def kinds_counted(script: CompiledScript) -> set[str]:
    counters = script.manifest.counters
    return {kind for kind, _ in counters.names} if counters is not None else set()


@pytest.mark.parametrize("target", ["@", "@[1]"])
def test_updates_of_extremes_that_may_be_lost_are_counted(target: str) -> None:
    """They are where programs can come in between of each other, and nowhere else."""
    shared = f"begin {{ {target} = max(nsecs); }} interval:s:1 {{ {target} = max(nsecs); }}"
    assert "collided" in kinds_counted(compile_text(shared))
    alone = f"interval:s:1 {{ {target} = max(nsecs); }} profile:hz:9 {{ {target} = max(nsecs); }}"
    assert "collided" not in kinds_counted(compile_text(alone))


@pytest.mark.parametrize("call", ["min(nsecs)", "max(nsecs)"])
@pytest.mark.parametrize("place", ["@", "@[comm]"])
def test_extremes_are_exchanged_where_programs_may_meet(call: str, place: str) -> None:
    alone = f"tracepoint:sched:sched_switch {{ {place} = {call}; }}"
    # Tracepoints do not interrupt each other, but a raw one may.
    assert exchanges(compile_text(alone)) == 0
    assert exchanges(compile_text(f"{alone} tracepoint:syscalls:sys_enter_openat {{ {place} = {call}; }}")) == 0
    assert exchanges(compile_text(f"{alone} rawtracepoint:sched_switch {{ {place} = {call}; }}")) >= 2 * 8
    assert exchanges(compile_text(f"iter:task:pin {{ {place} = {call}; }}")) >= 8


def test_same_script_same_bytes_also_when_written_and_read() -> None:
    text = 'begin { @x["a"] = count(); for ($i : 0..3) { printf("%d %s\\n", $i, comm); } }'
    assert compile_text(text).elf == compile_text(text).elf
    script = compile_text('begin { @x["a", 1] = hist(5); printf("%s\\n", kstack); exit(); }')
    again = CompiledScript.from_bytes(script.to_bytes())
    assert again.elf == script.elf
    assert again.manifest.encoded() == script.manifest.encoded()


def test_texts_of_the_stages() -> None:
    source = Source("stdin", "begin { @ = count(); }", None)
    compilation = pipeline.Compilation(source, CompileOptions(), RecordedKernel(), Diagnostics())
    checked = pipeline.front_end(compilation).checked
    texts = generator.llvm_texts(checked, compilation.kernel, compilation.options)
    assert "define dso_local i64 @begin_0" in texts.original
    assert "define dso_local" in texts.optimized
    assert "exit" in texts.assembly


@pytest.mark.parametrize(("probes", "most"), [(1, 80), (50, 1200)])
def test_time_of_the_back_end(probes: int, most: int) -> None:
    text = "".join(f"begin {{ @[{at}] = count(); }} " for at in range(probes))
    compilation = pipeline.Compilation(Source("stdin", text, None), CompileOptions(), RecordedKernel(), Diagnostics())
    checked = pipeline.front_end(compilation).checked
    generator.compile_program(checked, compilation.kernel, compilation.options)
    best = min(_timed(compilation, checked) for _ in range(3))
    assert best < most * unit()


def _timed(compilation: pipeline.Compilation, checked: CheckedProgram) -> float:
    start = time.process_time()
    generator.compile_program(checked, compilation.kernel, compilation.options)
    return time.process_time() - start
