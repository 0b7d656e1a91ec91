"""Events, also those that are sent later."""

from __future__ import annotations

import struct

import pytest

from pytrace import pipeline
from pytrace.codegen.emit.events import IN_REGISTERS, REPORTED
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.codegen.running import compiled, helpers, machine, ran
from tests.support.machine import need


@pytest.mark.parametrize("count", [1, 5, IN_REGISTERS, IN_REGISTERS + 1, 40])
def test_any_number_of_arguments(count: int) -> None:
    values = [f"(uint64)pid + {at}" if at % 3 else f'"text{at}"' for at in range(count)]
    formats = " ".join("%d" if at % 3 else "%s" for at in range(count))
    ((_, found),) = ran(f'begin {{ printf("{formats}", {", ".join(values)}); }}').values()
    assert found == [4321 + at if at % 3 else f"text{at}".encode() for at in range(count)]


def test_events_of_fixed_size_are_filled_in_place() -> None:
    assert 131 in helpers(ran("begin { print(pid); }"))
    assert 130 in helpers(ran("begin { let $s: string[200] = comm; print($s); }"))


@pytest.mark.parametrize("value", ["pid", "str(comm, 9)", 'strftime("%F", 1)'])
def test_events_that_find_no_room_are_counted(value: str) -> None:
    found = ran(f"begin {{ print({value}); print({value}); }}", ring_full=True)
    assert found.events == []
    assert found.counts()["lost"] == 2


def test_tails_are_as_long_as_their_text() -> None:
    script = 'begin { let $s: string[200] = comm; printf("%s %d %s", $s, 5, "abc"); }'
    short, long = ran(script, comm=b"a"), ran(script, comm=b"abcdef")
    assert len(long.events[0]) - len(short.events[0]) == 5
    assert [arguments for _, arguments in long.values()] == [[b"abcdef", 5, b"abc"]]


def test_a_string_that_fills_all_room_is_cut_and_counted() -> None:
    config = "config = { max_strlen = 8 } "
    for text, cut in ((b"1234567", False), (b"12345678", True), (b"123456789", True)):
        found = machine(f"{config}kprobe:vfs_read {{ print(str(kptr(arg0))); }}")
        context = bytearray(168)
        context[112:120] = found.region(text + b"\0").to_bytes(8, "little")
        found.run(context=bytes(context))
        assert found.printed() == [text[:8]]
        assert found.counts()["cut"] == cut, text


def test_buffers() -> None:
    ((_, found),) = ran('begin { printf("%r|%r", buf("abcdef", 3), buf("x", 1)); }').values()
    assert found == [b"abc", b"x"]


def failing(level: int) -> tuple[int, int]:
    """Events and counted failures of a helper that fails in each of many runs."""
    found = machine(
        "kprobe:vfs_read { signal(9); }",
        options=CompileOptions(unsafe=True, checks=level),
        helpers={109: lambda *_: -1},
    )
    for _ in range(REPORTED + 10):
        found.run()
    return len(found.events), found.counts()["helper"]


def test_a_cpu_reports_the_first_failures_and_counts_all() -> None:
    assert failing(1) == (REPORTED, REPORTED + 10)
    assert failing(0) == (0, REPORTED + 10)


@pytest.mark.parametrize(("level", "events"), [(0, 0), (1, 0), (2, 1)])
def test_failed_reads_are_reported_on_request(level: int, events: int) -> None:
    found = ran("begin { @ = *(uint64 *)kptr(8); }", options=CompileOptions(checks=level))
    assert len(found.events) == events
    if events:
        ((kind, arguments),) = found.values()
        assert (kind, arguments) == ("helper_error", [-14])


def written(call: str) -> tuple[bytes, tuple[int, ...], list[bytes]]:
    """The kernel's format, its words, and the strings that they point to."""
    found = machine(f"iter:task:pin {{ {call} }}")
    seen: list[tuple[bytes, tuple[int, ...]]] = []

    def seq_printf(_file: int, text: int, size: int, data: int, length: int) -> int:
        words = struct.unpack(f"<{length // 8}Q", found.read(data, length)) if length else ()
        seen.append((found.read(text, size), words))
        return 0

    found.helpers[126] = seq_printf
    meta = found.region(struct.pack("<Q", 1) + bytes(8))
    found.run(context=struct.pack("<QQ", meta, found.current))
    ((text, words),) = seen
    texts = [
        found.read(word, 32).partition(b"\0")[0] for word in words if word >> 32 and word >> 32 < len(found.regions)
    ]
    return text, words, texts


@pytest.mark.parametrize(
    ("call", "text", "words"),
    [
        ('printf("hello %% you\\n");', b"hello %% you\n\0", ()),
        ('printf("%d", 5);', b"%lld\0", (5,)),
        ('printf("%-5d|%08x", pid, -1);', b"%-5lld|%08llx\0", (4321, 2**64 - 1)),
        ('printf("%p", 255);', b"0x%llx\0", (255,)),
        ('printf("%c", 65);', b"%c\0", (65,)),
        ('printf("%ld %llu %hd", 1, 2, 3);', b"%lld %llu %lld\0", (1, 2, 3)),
    ],
)
def test_numbers(call: str, text: bytes, words: tuple[int, ...]) -> None:
    assert written(call)[:2] == (text, words)


def test_strings() -> None:
    text, _, texts = written('printf("%s %10s", comm, "abc");')
    assert (text, texts) == (b"%s %10s\0", [b"task", b"abc"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("print(5);", "print value is not possible in a pinned iterator"),
        ('printf("%#x", 1);', "the kernel cannot print format '%#x'"),
        ('printf("%.2s", comm);', "the kernel cannot print format"),
        ('printf("%o", 1);', "the kernel cannot print format"),
        ('printf("' + "%d" * 13 + '"' + ", 1" * 13 + ");", "more than 12 values"),
        ('printf("%s", (1, 2));', "cannot be printed so in a pinned iterator"),
        ('printf("%s", 5);', "cannot be printed so in a pinned iterator"),
    ],
)
def test_what_the_kernel_does_not_format(call: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        compiled(f"iter:task:pin {{ {call} }}")


def test_the_most_values() -> None:
    call = 'printf("' + "%d" * 12 + '"' + ", 1" * 12 + ");"
    assert written(call)[1] == (1,) * 12


# ------------------------------------------------------------------------------------------------------ deferred events

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
