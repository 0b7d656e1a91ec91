"""Programs that the generator makes beside those of the script's blocks: sessions, and the trackers of --follow."""

from __future__ import annotations

import io
from dataclasses import replace

from elftools.elf.elffile import ELFFile

from pytrace import codegen, pipeline
from pytrace.compiled import CompiledScript
from pytrace.diagnostics import Diagnostics
from pytrace.options import CompileOptions
from pytrace.source import Source
from pytrace.types import INT32
from tests.frontend.test_sessions import SESSIONS
from tests.support.facts import RecordedKernel, event, tracepoint_field


def compile_text(text: str, kernel: RecordedKernel, options: CompileOptions | None = None) -> CompiledScript:
    return pipeline.compile_script(Source("stdin", text, None), options or CompileOptions(), kernel, Diagnostics())


def programs(script: CompiledScript) -> list[str]:
    """Sections of the ELF file that hold programs."""
    names = [section.name for section in ELFFile(io.BytesIO(script.elf)).iter_sections()]
    return [name for name in names if name.startswith("pytrace/")]


def test_a_session_is_one_program() -> None:
    script = compile_text("kprobe:vfs_* { @ = count(); } kretprobe:vfs_* { @n[probe] = count(); }", SESSIONS)
    entry, leaving = script.manifest.programs
    assert programs(script) == [f"pytrace/{entry.symbol}"]
    assert (entry.multi, leaving.multi, leaving.part_of) == ("kprobe_session", "kprobe_session", entry.symbol)
    assert script.manifest == CompiledScript.from_bytes(script.to_bytes()).manifest


def test_a_session_asks_where_it_is() -> None:
    source = Source("stdin", "kprobe:vfs_read { @ = count(); } kretprobe:vfs_read { @r = count(); }", None)
    compilation = pipeline.Compilation(source, CompileOptions(), SESSIONS, Diagnostics())
    pipeline.run(compilation, pipeline.FRONT_END)
    text = codegen.llvm_texts(compilation["checked"], compilation.kernel, compilation.options).optimized
    assert text.count("call i32 @bpf_session_is_return()") == 1


FORKS = replace(
    RecordedKernel(),
    events={
        **RecordedKernel().events,
        ("sched", "sched_process_fork"): event(tracepoint_field("child_pid", INT32, 20)),
        ("sched", "sched_process_free"): event(tracepoint_field("pid", INT32, 12)),
    },
)


def test_following_brings_its_own_programs() -> None:
    text = "tracepoint:sched:sched_switch { @ = count(); }"
    script = compile_text(text, FORKS, CompileOptions(pid=7, follow=True))
    services = [item for item in script.manifest.programs if item.service]
    assert [item.targets[0].details["event"] for item in services] == ["sched_process_fork", "sched_process_free"]
    assert len(programs(script)) == 3
    assert not any(item.service for item in compile_text(text, FORKS, CompileOptions(pid=7)).manifest.programs)


def test_nothing_to_check_needs_no_followers() -> None:
    script = compile_text("profile:hz:99 { @ = count(); }", FORKS, CompileOptions(pid=7, follow=True))
    assert [item.service for item in script.manifest.programs] == [False]
