"""Runs short scripts on the BPF machine of tests."""

from __future__ import annotations

import contextlib
from typing import Any

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT32, UINT32, UINT64, Array, Field, Struct
from tests.support.bpf_machine import Machine
from tests.support.recorded import Facts

TASK_MEMBERS = (
    Field("pid", INT32, 0),
    Field("tgid", INT32, 4),
    Field("comm", Array(UINT64, 2), 8),
    Field("mm", UINT64, 24),
    Field("flags", UINT32, 32),
    Field("utask", UINT64, 40),
    Field("cred", UINT64, 48),
)
CRED = Struct("struct", "cred", 8, (Field("uid", UINT32, 0), Field("gid", UINT32, 4)), origin="vmlinux")


def task_structs(*more: Field) -> dict[tuple[str, str], Struct]:
    """The structs that walks of user stacks read: of a task, with *more* members, and of its credentials."""
    task = Struct("struct", "task_struct", 64, (*TASK_MEMBERS, *more), origin="vmlinux")
    return {("struct", "task_struct"): task, ("struct", "cred"): CRED}


def compiled(text: str, kernel: KernelInfo | None = None, options: CompileOptions | None = None) -> CompiledScript:
    """A compiled script."""
    options = options or CompileOptions(unsafe=True)
    return pipeline.compile_script(Source("stdin", text, None), options, kernel or Facts(), Diagnostics())


def machine(
    text: str, kernel: KernelInfo | None = None, options: CompileOptions | None = None, **state: Any
) -> Machine:
    """A machine with a compiled script."""
    return Machine(compiled(text, kernel, options), **state)


def ran(text: str, kernel: KernelInfo | None = None, options: CompileOptions | None = None, **state: Any) -> Machine:
    """A machine whose first program has run once."""
    found = machine(text, kernel, options, **state)
    found.run()
    return found


def printed(
    body: str, kernel: KernelInfo | None = None, options: CompileOptions | None = None, **state: Any
) -> list[Any]:
    """First arguments of the events of ``begin { BODY }``."""
    return ran(f"begin {{ {body} }}", kernel, options, **state).printed()


def messages(text: str, kernel: KernelInfo | None = None, options: CompileOptions | None = None) -> list[str]:
    """What is wrong with a script that does not compile."""
    found, options = Diagnostics(), options or CompileOptions(unsafe=True)
    with contextlib.suppress(ScriptError):
        pipeline.compile_script(Source("stdin", text, None), options, kernel or Facts(), found)
    return [item.message for item in found.errors]


def helpers(found: Machine) -> list[int]:
    """Numbers of the helpers that were called."""
    return [number for number, _ in found.calls]
