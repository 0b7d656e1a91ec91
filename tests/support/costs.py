"""What programs cost, without a clock: instructions, stack and helper calls of a fixed set of scripts.

``python -m tests.support.costs`` records the numbers of this source in ``costs.json``; tests fail when one grows.
"""

from __future__ import annotations

import io
import json
import os
import struct
from pathlib import Path

from elftools.elf.elffile import ELFFile

from pytrace import pipeline
from pytrace.codegen.ir import target
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import TracepointField
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT32, INT64, UINT32, UINT64, AddressSpace, Field, Pointer, String, Struct, Type
from tests.support.bpf_machine import Machine
from tests.support.facts import FEATURES, FILE, LIST, REGISTERS, RecordedKernel, event, function, tracepoint_field

RECORDED = Path(__file__).with_name("costs.json")
TOOLS = Path(__file__).resolve().parent.parent.parent / "pytrace" / "tools"
GETSID = "tracepoint:syscalls:sys_enter_getsid"
SWITCH = "tracepoint:sched:sched_switch"

Costs = dict[str, int]

SCRIPTS = {
    "empty": f"{GETSID} {{ }}",
    "count": f"{GETSID} {{ @ = count(); }}",
    "count by comm": f"{GETSID} {{ @[comm] = count(); }}",
    "count by pid": f"{GETSID} {{ @[pid] = count(); }}",
    "sum by pid and comm": f"{GETSID} {{ @[pid, comm] = sum(args.pid); }}",
    "hist": f"{GETSID} {{ @ = hist(nsecs); }}",
    "lhist": f"{GETSID} {{ @ = lhist(nsecs & 1023, 0, 1000, 10); }}",
    "hist by comm": f"{GETSID} {{ @[comm] = hist(nsecs); }}",
    "avg": f"{GETSID} {{ @ = avg(nsecs); }}",
    "stats": f"{GETSID} {{ @ = stats(nsecs); }}",
    "max by pid": f"{GETSID} {{ @[pid] = max(nsecs); }}",
    "increment": f"{GETSID} {{ @x++; }}",
    "string key": "tracepoint:syscalls:sys_enter_openat { @[str(args.filename)] = count(); }",
    "entry and return": f"{GETSID} {{ @start[tid] = nsecs; }} tracepoint:syscalls:sys_exit_getsid /@start[tid]/ "
    "{ @ns = hist(nsecs - @start[tid]); delete(@start, tid); }",
    "printf": f'{GETSID} {{ printf("%s %d %lu\\n", comm, pid, nsecs); }}',
    "false pid": f"{GETSID} /pid == 1/ {{ @ = count(); }}",
    "false comm": f'{GETSID} /comm == "x"/ {{ @ = count(); }}',
    "two conditions": f'{GETSID} /pid == 1 && comm == "x"/ {{ @[comm, pid] = hist(nsecs); }}',
    "kernel stack": f"{GETSID} {{ @[kstack] = count(); }}",
    "user stack": f"{GETSID} {{ @[ustack] = count(); }}",
    "both stacks": f"{GETSID} {{ @[kstack, ustack] = count(); }}",
    "arguments": "uprobe:/bin/app:work { @[arg0, arg1] = count(); } uretprobe:/bin/app:work { @r = hist(retval); }",
    "loop": f"{SWITCH} {{ $n = 0; while ($n < 20) {{ @a[$n] = count(); $n++; }} }}",
    "tuple and string": f"{SWITCH} {{ @[(args.prev_pid, comm)] = count(); }}",
}
"""Actions that every tracer has; the names are the keys of the record."""

OF_TOOLS = ("killsnoop", "runqlat")

_CALLS = {
    "getsid": "pid", "kill": "pid sig", "tkill": "pid sig", "tgkill": "tgid pid sig", "rt_sigqueueinfo": "pid sig",
    "rt_tgsigqueueinfo": "tgid pid sig", "pidfd_send_signal": "pidfd sig", "sync": "", "msync": "start len flags",
    "syncfs": "fd", "fsync": "fd", "fdatasync": "fd", "sync_file_range": "fd offset nbytes flags",
}  # fmt: skip
"""System calls and the numbers that they take."""


def _events() -> dict[tuple[str, str], tuple[TracepointField, ...]]:
    events = {}
    for name, numbers in _CALLS.items():
        fields = [tracepoint_field(field, INT64, 16 + 8 * at) for at, field in enumerate(numbers.split())]
        events["syscalls", f"sys_enter_{name}"] = event(*fields)
        events["syscalls", f"sys_exit_{name}"] = event(tracepoint_field("ret", INT64, 16))
    path = tracepoint_field("filename", Pointer(INT8, AddressSpace.USER), 24)
    events["syscalls", "sys_enter_openat"] = event(tracepoint_field("dfd", INT64, 16), path)
    events["sched", "sched_switch"] = event(
        tracepoint_field("prev_comm", String(16), 8), tracepoint_field("prev_pid", INT32, 24)
    )
    events["signal", "signal_generate"] = event(
        tracepoint_field("sig", INT32, 8), tracepoint_field("pid", INT32, 36), tracepoint_field("comm", String(16), 20)
    )
    return events


def _task() -> Struct:
    """Members of the current task that scripts and tools read."""
    members: tuple[tuple[str, Type, int], ...] = (
        ("__state", UINT32, 24), ("pid", INT32, 1000), ("tgid", INT32, 1004), ("comm", String(16), 1200),
        ("mm", UINT64, 1104), ("start_time", UINT64, 1300),
    )  # fmt: skip
    return Struct("struct", "task_struct", 4096, tuple(Field(*item) for item in members), origin="vmlinux", alignment=8)


def kernel() -> RecordedKernel:
    """The made-up kernel that all are compiled for."""
    structs = {(item.kind, item.name): item for item in (_task(), FILE, REGISTERS, LIST)}
    task = Pointer(structs["struct", "task_struct"])
    raw = {name: function(name, ("p", task)) for name in ("sched_wakeup", "sched_wakeup_new")}
    raw["sched_switch"] = function(
        "sched_switch", ("preempt", INT32), ("prev", task), ("next", task), ("prev_state", UINT32)
    )
    return RecordedKernel(events=_events(), structs=structs, raw=raw, features=FEATURES, possible_cpus=4)


def compiled(name: str) -> CompiledScript:
    """A script of the set, or a tool."""
    if name in OF_TOOLS:
        path = next(TOOLS.rglob(f"{name}.bt"))
        source = Source(name, path.read_text(encoding="utf-8"), str(path))
    else:
        source = Source("stdin", SCRIPTS[name], None)
    found = Diagnostics()
    try:
        return pipeline.compile_script(source, CompileOptions(), kernel(), found)
    except ScriptError:
        raise AssertionError(f"{name}: {[(item.span.text, item.message) for item in found.errors]}") from None


_INSTRUCTION = struct.Struct("<BBhi")
_CALL, _OF_HELPER = 0x85, 0


def costs(script: CompiledScript) -> Costs:
    """Of all its programs and functions together."""
    instructions = calls = 0
    for section in ELFFile(io.BytesIO(script.elf)).iter_sections():
        if not section.name.startswith("pytrace/") and section.name != ".text":
            continue
        for operation, registers, _, _ in _INSTRUCTION.iter_unpack(section.data()):
            instructions += 1
            calls += operation == _CALL and registers >> 4 == _OF_HELPER
    return {"instructions": instructions, "stack": target.stack_needed(script.elf, ""), "helper calls": calls}


def executed(script: CompiledScript) -> int:
    """Instructions that run for an event of each program after the first, when keys are there already."""
    machine = Machine(script)
    steps = []
    for program in script.manifest.programs * 2:
        machine.run(program.symbol)
        steps.append(machine.steps)
    return sum(steps[len(script.manifest.programs) :])


def llvm() -> str:
    """The part of the record of this LLVM: other versions optimise otherwise."""
    from llvmlite import binding

    return f"compiled by LLVM {'.'.join(map(str, binding.llvm_version_info))}"


def recorded(part: str) -> dict[str, Costs]:
    """A part of the record; empty when none was made of it."""
    data: dict[str, dict[str, Costs]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return data.get(part, {})


def changes(found: dict[str, Costs], expected: dict[str, Costs], tolerance: float = 0.0) -> tuple[list[str], list[str]]:
    """What grew, and what became smaller, by more than *tolerance* of the old number: a sentence each."""
    grown, shrunk = [], []
    for name, numbers in found.items():
        for what, new in numbers.items():
            old = expected.get(name, {}).get(what, 0)
            if new > old * (1 + tolerance):
                grown.append(f"{name}: {what} grew from {old} to {new}")
            elif new < old * (1 - tolerance):
                shrunk.append(f"{name}: {what} fell from {old} to {new}")
    return grown, shrunk


RECORD_AGAIN = "if that is meant, record it: python -m tests.support.costs (as root for what the kernel counts)"


def check(part: str, found: dict[str, Costs], tolerance: float = 0.0) -> None:
    """Compare with the record.

    Raises:
        AssertionError: a number grew, or fell and would hide the next growth.
    """
    grown, shrunk = changes(found, recorded(part), tolerance)
    assert not grown, [*grown, RECORD_AGAIN]
    assert not shrunk, ["less than recorded, well done", *shrunk, RECORD_AGAIN]


def record(part: str, numbers: dict[str, Costs]) -> None:
    """Write a part of the record, one script a line."""
    data = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    data[part] = numbers
    parts = [
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(item)}: {json.dumps(costs)}" for item, costs in content.items())
        + "\n }"
        for name, content in sorted(data.items())
    ]
    RECORDED.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def of_all_programs() -> dict[str, Costs]:
    """Of every script and tool, as this source compiles it; tools read structs that no test machine has."""
    scripts = {name: compiled(name) for name in (*SCRIPTS, *OF_TOOLS)}
    return {
        name: {**costs(script), **({"executed": executed(script)} if name in SCRIPTS else {})}
        for name, script in scripts.items()
    }


if __name__ == "__main__":
    record(llvm(), of_all_programs())
    if os.geteuid() == 0:
        from tests.support import kernel_costs

        record(kernel_costs.verifier(), kernel_costs.of_all_programs())
        record(kernel_costs.starter(), kernel_costs.of_all_starts())
