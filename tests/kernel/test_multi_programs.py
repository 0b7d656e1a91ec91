"""Programs for kprobe_multi and kprobe sessions: no test kernel can attach them, but one that knows them loads them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelFunction
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.runtime.load import loader
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.machine import kernel_version

pytestmark = pytest.mark.usefixtures("no_leaks")

MULTI, SESSIONS = (5, 18), (6, 13)
"""Kernels that know multi programs, and that have ``bpf_session_is_return`` without CONFIG_FPROBE (for uprobes)."""


class WithKprobes(LiveKernel):
    """This kernel, if it could attach kprobes of all kinds."""

    def feature(self, name: str) -> bool:
        return name.startswith("kprobe") or super().feature(name)

    def kernel_functions(self, pattern: str, module: str = "") -> list[KernelFunction]:
        return [KernelFunction(name) for name in ("vfs_read", "vfs_write") if pattern in (name, "vfs_*")]


SCRIPTS = [
    pytest.param("kprobe:vfs_* { @[probe, func] = count(); }", MULTI, ["kprobe_multi"], id="multi"),
    pytest.param("kretprobe:vfs_* { @[func, retval] = count(); }", MULTI, ["kprobe_multi"], id="return"),
    pytest.param(
        "kprobe:vfs_read { @start[tid] = nsecs; } kretprobe:vfs_read /@start[tid]/ "
        '{ @ns = hist(nsecs - @start[tid]); delete(@start, tid); @s[kstack(3)] = count(); '
        'printf("%s %d\\n", comm, retval); }',
        SESSIONS, ["kprobe_session", "kprobe_session"], id="session",
    ),
    pytest.param(
        "kprobe:vfs_* /comm == \"x\"/ { @a[probe, func] = count(); } kretprobe:vfs_* { @b[probe] = count(); }",
        SESSIONS, ["kprobe_session", "kprobe_session"], id="session_of_many",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "since", "links"), SCRIPTS)
def test_the_verifier_accepts(text: str, since: tuple[int, int], links: list[str]) -> None:
    if kernel_version() < since:
        pytest.skip(f"such programs came with kernel {since[0]}.{since[1]}")
    diagnostics = Diagnostics()
    script = pipeline.compile_script(Source("stdin", text, None), CompileOptions(), WithKprobes(), diagnostics)
    programs = script.manifest.programs
    assert [item.multi for item in programs] == links
    with ExitStack() as stack:
        loaded = loader.load(script, options=loader.LoadOptions(feature=lambda _name: True), stack=stack)
        assert loaded.symbols == [item.symbol for item in programs if not item.part_of]
