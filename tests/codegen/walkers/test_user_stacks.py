"""Stacks of user code by frame pointers, and when they are unwound by tables."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field, replace

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from pytrace import pipeline
from pytrace.codegen.walkers import unwinding
from pytrace.codegen.walkers.frame_pointers import CODE_64, WINDOW
from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.stack_formats import RANGE_SIZE
from pytrace.core.types import INT32, UINT64, Field, Struct
from tests.codegen.running import compiled, helpers, machine, task_structs
from tests.support.bpf_machine import FAULT, Machine
from tests.support.facts import RecordedKernel
from tests.support.recorded import Facts

GET_STACK, READ_USER, PT_REGS, LOOP = 67, 112, 175, 181
IP, FP, CS = 128, 32, 136
"""Offsets in ``struct pt_regs``."""
PROBE = "kprobe:vfs_read"


class Kernel(Facts):
    """A machine with what a walk needs."""

    def __init__(self, *missing: str) -> None:
        super().__init__(missing=frozenset(missing))
        self.structs = {**self.structs, **task_structs()}


@dataclass
class User:
    """A user program: its registers, and its memory by address."""

    fp: int
    memory: dict[int, bytes] = field(default_factory=dict)
    task: tuple[int, int, int] = (1, 0, 0)
    """mm, flags, utask."""
    segment: int = CODE_64

    def chain(self, at: int, frames: int, step: int) -> User:
        """The same with a page-wise mapping that has a chain of frames."""
        end = at + frames * step + 16
        data = bytearray(-(-end // 4096) * 4096 - at // 4096 * 4096)
        base = at // 4096 * 4096
        for n in range(frames):
            place = at + n * step - base
            struct.pack_into("<QQ", data, place, at + (n + 1) * step if n + 1 < frames else 1, 1000 + n)
        return replace(self, memory={**self.memory, base: bytes(data)})

    def run(self, body: str) -> tuple[Machine, list[int]]:
        """A machine that has run the program; sizes that it read."""
        task = bytearray(64)
        struct.pack_into("<Q", task, 24, self.task[0])
        struct.pack_into("<I", task, 32, self.task[1])
        struct.pack_into("<Q", task, 40, self.task[2])
        found = machine(f"{PROBE} {{ {body} }}", Kernel(), task=bytes(task))
        registers = bytearray(168)
        for place, value in ((IP, 0x400000), (FP, self.fp), (CS, self.segment)):
            struct.pack_into("<Q", registers, place, value)
        saved, sizes = found.region(bytes(registers)), []

        def read(target: int, size: int, source: int, *_: int) -> int:
            size &= 0xFFFFFFFF
            sizes.append(size)
            for base, data in self.memory.items():
                if base <= source and source + size <= base + len(data):
                    found.write(target, data[source - base : source - base + size])
                    return 0
            found.write(target, bytes(size))
            return FAULT

        found.helpers[PT_REGS] = lambda *_: saved
        found.helpers[READ_USER] = read
        found.helpers[GET_STACK] = lambda *_: FAULT
        found.run()
        return found, sizes


def stack(found: Machine) -> list[int]:
    """The frames of the stack that is the key of the only map."""
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    count = int.from_bytes(key[:4], "little", signed=True)
    words = list(struct.unpack(f"<{len(key) // 8 - 1}Q", key[8:]))
    assert not any(words[max(count, 0) :])
    return words[:count] if count >= 0 else [count]


BASE = 1 << 32


@pytest.mark.parametrize("limit", [1, 2, 8, 9, 10, 11, 16, 17, 18, 127])
@pytest.mark.parametrize("frames", [0, 1, 7, 8, 9, 15, 16, 17, 40, 200])
def test_frames_and_zeros_behind_them(limit: int, frames: int) -> None:
    user = User(BASE + 64 if frames else 0).chain(BASE + 64, frames, 48)
    found, _ = user.run(f"@[ustack({limit})] = count();")
    assert stack(found) == [0x400000, *range(1000, 1000 + min(frames, limit - 1))]


@pytest.mark.parametrize("frames", [125, 126, 127, 200])
def test_a_stack_with_more_frames_has_one_too_many(frames: int) -> None:
    found, _ = User(BASE + 64).chain(BASE + 64, frames, 48).run("@[ustack] = count(); print(len(ustack));")
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    assert int.from_bytes(key[:4], "little") == min(frames + 1, 128)
    assert struct.unpack_from("<127Q", key, 8)[: frames + 1] == (0x400000, *range(1000, 1000 + min(frames, 126)))


@pytest.mark.parametrize("step", [16, 100, 1024, 2032, 2033, 2048, 4096])
def test_a_read_takes_many_frames(step: int) -> None:
    found, sizes = User(BASE).chain(BASE, 30, step).run("@[ustack] = count();")
    assert len(stack(found)) == 31
    assert max(sizes[1:]) <= WINDOW
    # The first one clears the key.
    assert len(sizes) - 1 <= 2 + 30 * step // (WINDOW - 16 - step if step < WINDOW // 2 else step)


def test_ends_of_memory() -> None:
    end = BASE + 4096
    found, sizes = User(end - 6 * 32).chain(end - 6 * 32, 5, 32).run("@[ustack] = count();")
    assert len(stack(found)) == 6
    assert sizes[1:] == [WINDOW, 6 * 32]
    found, sizes = replace(User(0).chain(BASE, 1, 16), fp=BASE + 4096 - 8).run("@[ustack] = count();")
    assert stack(found) == [0x400000]
    assert sizes[1:] == [WINDOW, 16]


@pytest.mark.parametrize(
    ("user", "own"),
    [
        (User(0), True),
        (User(0, task=(0, 0, 0)), False),
        (User(0, task=(1, 0x00200000, 0)), False),
        (User(0, task=(1, 0x4000, 0)), False),
        (User(0, task=(1, 0, 5)), False),
        (User(0, segment=0x23), False),
    ],
)
def test_other_tasks_are_left_to_the_kernel(user: User, own: bool) -> None:
    found, _ = user.run("@[ustack] = count();")
    assert (GET_STACK not in helpers(found)) is own
    assert stack(found) == ([0x400000] if own else [FAULT])


@pytest.mark.parametrize(
    ("probe", "stacks"),
    [("uprobe:/bin/true:main", "ustack"), (PROBE, "kstack"), (PROBE, "ustack(build_id)"), ("profile:hz:99", "ustack")],
)
def test_other_probes_and_stacks_are_left_to_the_kernel(probe: str, stacks: str) -> None:
    assert b"walk_127" not in compiled(f"{probe} {{ @[{stacks}] = count(); }}", Kernel()).elf
    assert b"walk_127" in compiled(f"{PROBE} {{ @[ustack] = count(); }}", Kernel()).elf


@pytest.mark.parametrize("stacks", ["kstack, ustack", "ustack, kstack"])
def test_kernel_stacks_that_are_recognised_beside(stacks: str) -> None:
    """Both have functions of their own, whichever comes first."""
    elf = compiled(f"rawtracepoint:sched_switch {{ @[{stacks}] = count(); }}", Kernel()).elf
    assert b"walk_127" in elf
    assert b"same_stack" in elf


@pytest.mark.parametrize("missing", ["bpf_loop", "current_task_btf"])
def test_without_what_it_needs_the_kernel_walks(missing: str) -> None:
    assert b"walk_127" not in compiled(f"{PROBE} {{ @[ustack] = count(); }}", Kernel(missing)).elf


def test_a_frame_that_points_to_itself_is_the_last_one() -> None:
    user = User(BASE).chain(BASE, 3, 48)
    page = bytearray(user.memory[BASE])
    struct.pack_into("<Q", page, 2 * 48, BASE + 2 * 48)
    found, _ = replace(user, memory={BASE: bytes(page)}).run("@[ustack] = count();")
    assert stack(found) == [0x400000, 1000, 1001, 1002]


# ------------------------------------------------------------------------------------------------------- user unwinding

MEMBERS = (Field("mm", UINT64, 8), Field("real_parent", UINT64, 16), Field("tgid", INT32, 24))
KERNEL = replace(
    RecordedKernel(),
    features=RecordedKernel().features | {"bpf_loop"},
    structs={("struct", "task_struct"): Struct("struct", "task_struct", 64, MEMBERS, origin="vmlinux")},
)
TEXT = "config = { unstable_dw_ustack = enable } kprobe:vfs_read { @[dw_ustack] = count(); @l = len(dw_ustack(3)); }"


def compiled_unwinding(text: str, kernel: RecordedKernel = KERNEL) -> CompiledScript:
    return pipeline.compile_script(Source("stdin", text, None), CompileOptions(), kernel, Diagnostics())


def symbols(script: CompiledScript) -> list[str]:
    table = ELFFile(io.BytesIO(script.elf)).get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    return [symbol.name for symbol in table.iter_symbols()]


def test_maps_are_there_once() -> None:
    script = compiled_unwinding(TEXT)
    names = symbols(script)
    wanted = (unwinding.SPACES, unwinding.RANGES, unwinding.ROWS, unwinding.TOLD)
    for name in (*wanted, unwinding.RULE_FUNCTION):
        assert names.count(name) == 1
    assert script.manifest.unwind == unwinding.unwind_maps(selected=True, asks=False)


def test_where_stacks_are_unwound_by_tables() -> None:
    script = compiled_unwinding("kprobe:vfs_read { @[ustack] = count(); }")
    assert script.manifest.unwind is None
    assert unwinding.ROWS not in symbols(script)
    with pytest.raises(TraceError, match="bpf_loop"):
        compiled_unwinding(TEXT, replace(KERNEL, features=KERNEL.features - {"bpf_loop"}))
    found = Diagnostics()
    with pytest.raises(ScriptError):
        pipeline.compile_script(Source("stdin", TEXT, None), CompileOptions(), replace(KERNEL, arch="aarch64"), found)
    assert {item.message for item in found.items} == {"dw_ustack is not available on aarch64"}


def test_search_has_steps_for_all_entries() -> None:
    assert 1 << unwinding._ROW_STEPS > unwinding.ROW_ENTRIES
    assert RANGE_SIZE == 8 * 4
