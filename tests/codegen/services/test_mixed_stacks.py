"""What a script with python_frames consists of, and how stacks are joined where handlers are functions.

What is shown of interpreters is tested in tests/kernel/test_python_stacks.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.walkers import python_stacks, python_threads, user_stacks
from pytrace.codegen.walkers.unwinding import REQUESTS, SPACES
from pytrace.core.python_format import FRAME, Word
from pytrace.core.types import UINT32, Field, Struct
from tests.codegen.services.python.test_stacks import KERNEL as WALKING
from tests.codegen.services.python.test_stacks import TASK, THREAD
from tests.codegen.services.test_user_unwinding import compiled, symbols
from tests.support.bpf_machine import Machine

KERNEL = replace(
    WALKING,
    features=WALKING.features | {"current_task_btf"},
    structs={
        ("struct", "task_struct"): Struct(
            "struct", "task_struct", 128, (*TASK.fields, Field("flags", UINT32, 28)), origin="vmlinux"
        ),
        ("struct", "thread_struct"): THREAD,
    },
)
CONFIG = "config = { python_frames = true } "


@pytest.mark.parametrize(
    ("probe", "stack", "mixed"),
    [
        ("kprobe:vfs_read", "ustack", True),
        ("kprobe:vfs_read", "ustack(perf, 5)", True),
        ("kprobe:vfs_read", "ustack(raw)", False),
        ("kprobe:vfs_read", "ustack(build_id)", False),
        ("kprobe:vfs_read", "kstack", False),
        ("begin", "ustack", False),
    ],
)
def test_which_stacks_have_python_frames(probe: str, stack: str, mixed: bool) -> None:
    script = compiled(f"{CONFIG}{probe} {{ @[{stack}] = count(); @l = len({stack}); }}", KERNEL)
    assert script.manifest.python == (python_threads.MAPS if mixed else None)
    names = symbols(script)
    for name in (python_threads.PROCESSES, SPACES, REQUESTS):
        assert names.count(name) == mixed


@pytest.mark.parametrize("way", ["frame_pointers", "tables"])
def test_not_where_the_script_says_how_to_unwind(way: str) -> None:
    text = f"config = {{ python_frames = true; stack_unwinding = {way} }} kprobe:vfs_read {{ @[ustack] = count(); }}"
    assert compiled(text, KERNEL).manifest.python is None


def test_frame_pointers_alone_without_loops_of_the_kernel() -> None:
    kernel = replace(KERNEL, features=KERNEL.features - {"bpf_loop"})
    assert compiled(CONFIG + "kprobe:vfs_read { @[ustack] = count(); }", kernel).manifest.python is None


def test_beside_the_others() -> None:
    text = "kprobe:vfs_read { @[ustack, pystack] = count(); @l = len(ustack(3)); } "
    text += "kprobe:vfs_write { @p[ustack] = count(); }"
    names = symbols(compiled(CONFIG + text, KERNEL))
    assert names.count(python_threads.CODE_FUNCTION) == names.count(SPACES) == 1


OPEN, HANDLER, LOOP, VECTORCALL, MAIN = range(0x1000, 0x6000, 0x1000)
NATIVE = (OPEN, HANDLER, LOOP, VECTORCALL, HANDLER, LOOP, MAIN)
"""Of each one the part of the stack has 256 bytes."""
LEAF, CALLER, MODULE = range(FRAME, FRAME + 3)
RUNS = (0x380, LEAF, CALLER, 0x680, MODULE)
"""The variables are in the frames of the loop."""


def _joined(
    monkeypatch: pytest.MonkeyPatch,
    native: Sequence[int],
    *,
    limit: int | None = 127,
    tail_calls: bool = True,
    words: Sequence[int] = RUNS,
) -> list[int]:
    """The mixed stack of native frames and of Python's, whose runs are *words*."""

    words_of_limit = "" if limit is None else f", {limit}"
    limit = limit or 127

    def write(e: Emitter, at: int, values: Sequence[int]) -> None:
        for index, word in enumerate(values):
            e.b.store(word - (word >= FRAME) * (1 << 64), e.area(at + 8 * index))

    def runs(part: python_stacks.PythonStacks, _node: object, out: int, _limit: int, state: int) -> None:
        e = part.e
        write(e, out, words)
        write(e, state, [int(tail_calls and word is Word.TAIL_CALLS) for word in Word])
        write(e, state + python_threads.STATE_COUNT, [len(words)])

    def chosen(e: Emitter, *_: object, parts: user_stacks.Parts) -> None:
        # What an earlier stack has left is beyond.
        write(e, parts.pointers, [0x100 * (index + 1) for index in range(min(len(native), limit + 1) + 1)])
        write(e, parts.stack, [len(native), *native])
        write(e, parts.count, [len(native)])

    monkeypatch.setattr(python_stacks.PythonStacks, "runs", runs)
    monkeypatch.setattr(user_stacks.UserUnwinding, "chosen", lambda part, *rest: chosen(part.e, parts=rest[-1]))
    script = compiled(f"{CONFIG}kprobe:vfs_read {{ @[ustack(perf{words_of_limit})] = count(); }}", KERNEL)
    found = Machine(script, task=bytes(128))
    found.run()
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    return list(struct.unpack_from(f"<{min(int.from_bytes(key[:4], 'little'), limit)}Q", key, 8))


def test_functions_of_handlers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _joined(monkeypatch, NATIVE) == [OPEN, LEAF, CALLER, VECTORCALL, MODULE, MAIN]
    ordinary = _joined(monkeypatch, NATIVE, tail_calls=False)
    assert ordinary == [OPEN, HANDLER, LEAF, CALLER, VECTORCALL, HANDLER, MODULE, MAIN]


@pytest.mark.parametrize("limit", range(1, 7))
def test_handlers_at_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    whole = [OPEN, LEAF, CALLER, VECTORCALL, MODULE, MAIN]
    assert _joined(monkeypatch, NATIVE[: limit + 1], limit=limit) == whole[: min(limit, 5)]


def test_a_truncated_native_stack_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though functions of handlers were left out; nothing is marked that the script limits."""
    native = (*NATIVE, *range(0x10000, 0x10000 + 121))
    assert len(native) == 128
    marked = _joined(monkeypatch, native, limit=None)
    assert (marked[:6], marked[-2:]) == ([OPEN, LEAF, CALLER, VECTORCALL, MODULE, MAIN], [native[126], 0])
    assert _joined(monkeypatch, native[:127], limit=None)[-1] == native[126]


def test_without_python_a_stack_has_no_more_frames_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _joined(monkeypatch, NATIVE[:4], limit=3, words=()) == [OPEN, HANDLER, LOOP]
    assert _joined(monkeypatch, NATIVE[:2], limit=3, words=()) == [OPEN, HANDLER]


def test_a_function_whose_caller_was_not_found_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _joined(monkeypatch, NATIVE[:2]) == [OPEN, HANDLER, LEAF, CALLER, MODULE]
