"""What the functions of a script and of a program share."""

from __future__ import annotations

import io
from dataclasses import replace

from elftools.elf.elffile import ELFFile

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from tests.support.facts import RecordedKernel

KERNEL = replace(RecordedKernel(), features=RecordedKernel().features | {"bpf_loop"})


def compiled(text: str) -> CompiledScript:
    return pipeline.compile_script(Source("stdin", text, None), CompileOptions(), KERNEL, Diagnostics())


def functions(script: CompiledScript) -> list[str]:
    """Names of all functions in the ELF file."""
    table = ELFFile(io.BytesIO(script.elf)).get_section_by_name(".symtab")
    return sorted(item.name for item in table.iter_symbols() if item["st_info"]["type"] == "STT_FUNC")


def test_entries_are_counted_by_one_callback_of_the_script() -> None:
    script = compiled("begin { @a[1] = 1; @b[1] = 1; print(len(@a)); print(len(@b)); } end { print(len(@a)); }")
    assert [name for name in functions(script) if "count" in name] == ["count_entry"]


def test_functions_of_programs_have_names_of_their_own() -> None:
    loops = "for ($i : 0..pid) { @ += $i; } for ($i : 0..pid) { @ += 2 * $i; }"
    found = functions(compiled(f"begin {{ {loops} }} end {{ {loops} }}"))
    assert len(found) == len(set(found)) == 2 + 4
    assert {name.partition("__")[0] for name in found} == {"begin_0", "end_1"}


def test_programs_that_can_be_preempted_claim_a_copy_of_their_area() -> None:
    def counters(probe: str) -> set[str]:
        script = compiled(f'{probe} {{ $x = str(nsecs); @[$x] = 1; }}')
        assert script.manifest.counters is not None
        return {kind for kind, _ in script.manifest.counters.names}

    assert "missed" in counters("uprobe:/bin/app:main")
    assert "missed" not in counters("tracepoint:sched:sched_switch")
