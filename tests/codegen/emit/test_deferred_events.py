"""Events whose strings are read when their system call returns. tests/cases/unreadable.case runs them."""

from __future__ import annotations

import pytest

from pytrace import pipeline
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.machine import need

OPENS = "tracepoint:syscalls:sys_enter_openat"


def _text(script: str, options: CompileOptions | None = None, *, disabled: str = "") -> str:
    """LLVM IR of a script, compiled for this kernel; *disabled* is a feature to do without."""
    need(*({"task_work", "raw_syscalls"} - {disabled}))
    options = options or CompileOptions()
    kernel = LiveKernel(disabled=frozenset({disabled} - {""}), ahead=options.ahead)
    compilation = pipeline.Compilation(Source("stdin", script, None), options, kernel, Diagnostics())
    front = pipeline.front_end(compilation)
    assert pipeline.back_end(compilation, front).elf
    return generator.generate(front.checked, kernel, options)[0]


@pytest.mark.kernel
def test_an_event_with_strings_of_user_memory_can_wait() -> None:
    text = _text(f'{OPENS} {{ printf("%s %d\\n", str(args.filename), args.flags); }}')
    assert text.count("call i32 @bpf_task_work_schedule_resume") == 1
    assert text.count("@pending_") > 1


@pytest.mark.kernel
def test_events_of_one_size_share_a_map() -> None:
    text = _text(f'{OPENS} {{ printf("%s", str(args.filename)); printf("<%s>", str(args.filename)); }}')
    assert text.count("dso_local global { ptr, ptr, ptr, ptr }") == 1
    assert text.count("call i32 @bpf_task_work_schedule_resume") == 2


@pytest.mark.kernel
@pytest.mark.parametrize(
    "script",
    [
        'tracepoint:sched:sched_switch { printf("%s", str(uptr(args.prev_pid))); }',
        'rawtracepoint:sched_switch { printf("%s", str(uptr(8))); }',
        f'config = {{ syscall_tracepoints = plain }} {OPENS} {{ printf("%s", str(args.filename)); }}',
    ],
)
def test_events_of_all_tracepoints_can_wait(script: str) -> None:
    assert _text(script).count("call i32 @bpf_task_work_schedule_resume") == 1


@pytest.mark.kernel
@pytest.mark.parametrize(
    "script",
    [
        f'{OPENS} {{ printf("%d\\n", args.flags); }}',
        f"{OPENS} {{ @[str(args.filename)] = count(); }}",
        f'{OPENS} {{ $s = str(args.filename); printf("%s", $s); }}',
        f'{OPENS} {{ printf("%s", str(args.filename, 30)); }}',
        f'{OPENS} {{ printf("%s %s", str(args.filename), str(kptr(8))); }}',
        'profile:hz:9 { printf("%s", str(uptr(8))); }',
    ],
)
def test_what_does_not_wait(script: str) -> None:
    """No string, a map, a variable, a limited length, memory of the kernel, another kind of probe."""
    assert "bpf_task_work" not in _text(script)


@pytest.mark.kernel
def test_nothing_waits_without_the_feature() -> None:
    script = f'{OPENS} {{ printf("%s", str(args.filename)); }}'
    assert "bpf_task_work" not in _text(script, disabled="task_work")
    assert "bpf_task_work" not in _text(script, CompileOptions(ahead=True))


@pytest.mark.kernel
@pytest.mark.parametrize(
    "probe",
    [OPENS, "tracepoint:raw_syscalls:sys_enter", "rawtracepoint:sys_enter", "tracepoint:syscalls:sys_enter_*at"],
)
def test_entries_of_system_calls_wait_for_the_return_where_tasks_get_no_work(probe: str) -> None:
    text = _text(f'{probe} {{ printf("%s", str(uptr(8))); }}', disabled="task_work")
    assert ("bpf_task_work" in text, "@returning_" in text, "@complete_events(" in text) == (False, True, True)


@pytest.mark.kernel
@pytest.mark.parametrize(
    "probe",
    ["tracepoint:sched:sched_switch", "rawtracepoint:sched_switch", "tracepoint:syscalls:sys_exit_openat"],
)
def test_other_probes_wait_for_no_return(probe: str) -> None:
    assert "@returning_" not in _text(f'{probe} {{ printf("%s", str(uptr(8))); }}', disabled="task_work")
