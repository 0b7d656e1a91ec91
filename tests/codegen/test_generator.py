"""Programs that the generator adds to those of the script's blocks: sessions, and the services of --follow."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from elftools.elf.elffile import ELFFile

from pytrace import pipeline
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, ProcessFilters
from pytrace.core.source import Source
from pytrace.core.types import INT32, UINT32, UINT64, VOID, Array, Field, Pointer, Struct
from tests.frontend.probes.test_programs import SESSIONS
from tests.support.facts import RecordedKernel, event, function, tracepoint_field


def compile_text(text: str, kernel: RecordedKernel, options: CompileOptions | None = None) -> CompiledScript:
    return pipeline.compile_script(Source("stdin", text, None), options or CompileOptions(), kernel, Diagnostics())


def programs(script: CompiledScript) -> list[str]:
    """Sections of the ELF file that hold programs."""
    names = [section.name for section in ELFFile(io.BytesIO(script.elf)).iter_sections()]
    return [name for name in names if name.startswith("pytrace/")]


def test_sessions() -> None:
    script = compile_text("kprobe:vfs_* { @ = count(); } kretprobe:vfs_* { @n[probe] = count(); }", SESSIONS)
    entry, leaving = script.manifest.programs
    assert programs(script) == [f"pytrace/{entry.symbol}"]
    assert (entry.multi, leaving.multi, leaving.part_of) == ("kprobe_session", "kprobe_session", entry.symbol)
    assert script.manifest == CompiledScript.from_bytes(script.to_bytes()).manifest
    assert optimized(SESSIONS).count("call i32 @bpf_session_is_return()") == 1
    # ``bool bpf_session_is_return(void *ctx)`` of Linux 7.3.
    prototype = function("bpf_session_is_return", ("ctx", Pointer(VOID)))
    later = replace(SESSIONS, prototypes=(*RecordedKernel().prototypes, prototype))
    assert optimized(later).count("call i32 @bpf_session_is_return(ptr %ctx)") == 1


def optimized(kernel: RecordedKernel) -> str:
    """LLVM IR of a session."""
    source = Source("stdin", "kprobe:vfs_read { @ = count(); } kretprobe:vfs_read { @r = count(); }", None)
    compilation = pipeline.Compilation(source, CompileOptions(), kernel, Diagnostics())
    checked = pipeline.front_end(compilation).checked
    return generator.llvm_texts(checked, compilation.kernel, compilation.options).optimized


TASK = Struct(
    "struct", "task_struct", 64,
    (
        Field("pid", INT32, 0), Field("tgid", INT32, 4),
        Field("real_parent", UINT64, 8), Field("thread_pid", UINT64, 16),
    ),
    origin="vmlinux", alignment=8,
)  # fmt: skip
UPID = Struct("struct", "upid", 16, (Field("nr", INT32, 0),), origin="vmlinux", alignment=8)
PID = Struct(
    "struct", "pid", 128, (Field("level", UINT32, 4), Field("numbers", Array(UPID, 1), 96)),
    origin="vmlinux", alignment=8,
)
FORKS = replace(
    RecordedKernel(),
    events={
        **RecordedKernel().events,
        ("sched", "sched_process_fork"): event(tracepoint_field("child_pid", INT32, 20)),
        ("sched", "sched_process_free"): event(tracepoint_field("pid", INT32, 12)),
    },
    structs={("struct", item.name): item for item in (TASK, UPID, PID)},
)


EXECS = replace(FORKS, events={**FORKS.events, ("sched", "sched_process_exec"): event()})


@pytest.mark.parametrize("probe", ["tracepoint:sched:sched_switch", "profile:hz:99"])
def test_following_brings_its_own_programs(probe: str) -> None:
    options = CompileOptions(filters=ProcessFilters((7,)), follow=True)
    script = compile_text(f"{probe} {{ @ = count(); }}", FORKS, options)
    services = [item.targets[0].probe for item in script.manifest.programs if item.service]
    forks = ["tracepoint:sched:sched_process_fork", "tracepoint:sched:sched_process_free"]
    assert services == [*forks, "iter:task"]
    assert len(programs(script)) == 4
    assert script.manifest.follow_map == "followed"


def test_a_child_has_not_forked_before() -> None:
    script = compile_text("tracepoint:sched:sched_switch { }", FORKS, CompileOptions(child=True, follow=True))
    assert [item.kind for item in script.manifest.programs if item.service] == ["tracepoint", "tracepoint"]


def test_nothing_to_check_needs_no_followers() -> None:
    """Children inherit perf events that count."""
    for text, options in (
        ("software:faults:1 { @ = count(); }", CompileOptions(child=True, follow=True)),
        ("interval:hz:99 { @ = count(); }", CompileOptions(filters=ProcessFilters((7,)), follow=True)),
        ("tracepoint:sched:sched_switch { @ = count(); }", CompileOptions(filters=ProcessFilters((7,)))),
    ):
        script = compile_text(text, FORKS, options)
        assert [item.service for item in script.manifest.programs] == [False]


def test_a_script_compiles_to_the_same_bytes_each_time() -> None:
    """Also where a macro's expansions have variables of one name and one place."""
    text = (
        "macro total($n) { let $sum = 0; for ($i : 0..$n) { $sum += $i; } $sum }"
        f" begin {{ $n = 5; @ = {' + '.join(['total($n)'] * 8)}; }}"
    )
    kernel = replace(RecordedKernel(), features=RecordedKernel().features | {"bpf_loop"})
    assert len({compile_text(text, kernel).elf for _ in range(6)}) == 1


def test_more_maps_than_addresses_of_them_find_room_for_are_not_double_buffered() -> None:
    for count, twice in ((3, True), (70, False)):
        body = " ".join(f"@m{number}[{number}] = count();" for number in range(count))
        script = compile_text(f"begin {{ {body} }}", RecordedKernel(), CompileOptions(live=True))
        assert {spec.inner is not None for spec in script.manifest.maps} == {twice}
