"""What the verifier refuses, programs that only it accepts, and instructions that the kernel does not probe."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelFunction
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.runtime.load import loader
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support import refused
from tests.support.compile import compiled
from tests.support.expect import Result
from tests.support.machine import kernel_version
from tests.support.refused import FILE, PROGRAMS, Refused
from tests.support.server import Server

pytestmark = pytest.mark.usefixtures('no_leaks')

def refusal(program: Refused, log_size: int = 1_000_000) -> loader.LoadError:
    """The error of loading a program."""
    with ExitStack() as stack, pytest.raises(loader.LoadError) as raised:
        loader.load(refused.script(program, log_size), options=loader.LoadOptions(), stack=stack)
    return raised.value


def named(name: str) -> Refused:
    return next(program for program in PROGRAMS if program.name == name)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_refused_program(program: Refused) -> None:
    if not program.since <= kernel_version() < program.until:
        with ExitStack() as stack:
            loader.load(refused.script(program), options=loader.LoadOptions(), stack=stack)
        return
    error = refusal(program)
    head, *excerpt = error.message.splitlines()
    assert head.startswith("the kernel's verifier rejected ")
    assert program.says in head, error.log[-2000:]
    assert program.hint in error.hints[0]
    assert error.hints[-1] == "-v shows the full verifier log"
    line = program.line or (error.location.line if error.location is not None else 0)
    column = 1 if line == 1 else 3
    assert head.endswith(f"({FILE}:{line}:{column})"), error.log[-2000:]
    text = refused.source(program).text.split("\n")[line - 1]
    assert excerpt[0] == text
    assert excerpt[1].startswith(f"{' ' * (column - 1)}~")
    assert excerpt[2].startswith("the verifier says: ")
    assert "processed " in error.log


@pytest.mark.parametrize(("name", "size"), [("branches", 1000), ("branches", 100_000)])
def test_a_log_that_does_not_fit(name: str, size: int) -> None:
    """Kernels before 6.4 keep what comes first: the reason comes from a second try without instructions."""
    program = named(name)
    error = refusal(program, log_size=size)
    assert program.says in error.message
    assert f"({FILE}:" in error.message
    assert "processed " in error.log
    assert not error.cut


# ---------------------------------------------------------------------------------------------- multi programs
# Programs for kprobe_multi and kprobe sessions: no test kernel can attach them, but one that knows them loads them.


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


REFUSED = """
int counter;
__attribute__((noinline)) void work_plain(void) { counter++; __asm__ volatile(""); }
__asm__(".text; .globl work_locked; .type work_locked,@function; work_locked: lock incl counter(%rip); ret;"
        ".size work_locked,.-work_locked");
void work_locked(void);
int main(void) { for (int i = 0; i < 5; i++) { work_plain(); work_locked(); } return 0; }
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="its instruction is one of x86-64")
@pytest.mark.parametrize("disabled", [(), ("--no-feature", "uprobe_multi")], ids=["any", "single"])
def test_an_instruction_that_the_kernel_does_not_probe(
    server: Server, tmp_path: Path, disabled: tuple[str, ...]
) -> None:
    """The kernel refuses it only where a traced process has mapped the file: of -c that would be later, in silence."""
    path = compiled(tmp_path, "locked", REFUSED, "-O1")

    def traced(kind: str, name: str, key: str) -> Result:
        return server.run((*disabled, "-e", f"{kind}:{path}:{name} {{ @[func, {key}] = count(); }}", "-c", str(path)))

    for kind, key in (("uprobe", "1"), ("call", "duration > 0")):
        result = traced(kind, "work_*", key)
        assert re.findall(r"^@\[(\w+), (?:1|true)\]: (\d+)$", result.stdout, re.MULTILINE) == [("work_plain", "5")]
        said = "1 function of a pattern is not traced, as the kernel cannot probe the instruction there"
        assert f"{said}: uprobe:{path}:work_locked" in result.stderr
        result = traced(kind, "work_locked", key)
        assert result.status == 1
        assert "the instruction there cannot be probed" in result.stderr
    result = server.run(("calls", "-c", str(path), f"{path}:work_*"))
    assert (result.status, result.stdout.count("work_plain(")) == (0, 5)
    assert f"cannot attach uprobe:{path}:work_locked" in result.stderr
