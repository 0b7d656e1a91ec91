"""What a machine answers about its kernel, and another machine as the compiler sees it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace import pipeline
from pytrace.core import kernel_info
from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError
from pytrace.core.kernel_info import FEATURES, Facts, KernelInfo
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.runtime.binaries.btf_types import Kind
from pytrace.runtime.load import features, remote_kernel
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.load.remote_kernel import RemoteKernel
from pytrace.runtime.machine import perf
from tests.runtime.binaries.test_kernel_types import add_event, folder, module, vmlinux
from tests.support.btf_builder import BtfBuilder

# ---------------------------------------------------------------------------------------------- kernel answers
# What this machine says of itself, over the small kernel of :mod:`tests.runtime.binaries.test_kernel_types`.


__all__ = ["folder"]

FORMAT = """\
name: woken
ID: 316
format:
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;

print fmt: "%d", REC->pid
"""


@pytest.fixture
def kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LiveKernel:
    made = LiveKernel(environment={})
    monkeypatch.setattr(perf, "possible_cpus", lambda: list(range(12)))
    monkeypatch.setattr(features, "has", lambda name: name == "btf")
    text = lambda _category, event: FORMAT if event == "woken" else None  # noqa: E731
    match = lambda category, event: [(category, name) for name in ("woken", event) if "*" in event]  # noqa: E731
    parts: dict[str, Any] = {
        "_btf_path": str(folder / "vmlinux"),
        "tracepoint_files": SimpleNamespace(path="/nowhere", format=text, match=match),
        "_functions": SimpleNamespace(match=lambda pattern, _: {"": [pattern], "nf": ["nf_hook"]}),
        "kallsyms": SimpleNamespace(
            function_size=lambda name, _: 64 if name == "vfs_read" else None, withheld="",
            address=lambda name: 5 if name == "jiffies" else None, in_kernel=lambda _: True, has=lambda _: False,
        ),
    }  # fmt: skip
    made.__dict__.update(parts)
    return made


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("tracepoints", "sched", "w*"), ("sched:woken", "sched:w*")),
        (("tracepoint_format", "sched", "none"), ()),
        (("kernel_functions", "vfs_read", ""), ("vfs_read ", "nf_hook nf")),
        (("kernel_function_size", "vfs_read", ""), ("64",)),
        (("kernel_function_size", "none", ""), ()),
        (("kernel_symbol", "jiffies"), ("1",)),
        (("kernel_symbol", "none"), ()),
        (("cgroup_id", "/nowhere"), ()),
        (("owners", "struct", "nf_hook_state", ""), ("nf",)),
        (("owners", "struct", "task", ""), ()),
        (("owners", "enumerator", "NF_HOOK_ON", ""), ("nf",)),
        (("owners", "enumerator", "BLUE", ""), ()),
        (("owners", "typedef", "none", ""), ()),
        (("owners", "function", "both", ""), ("alpha", "nf")),
        (("owners", "function", "both", "nf"), ("nf",)),
        (("owners", "function", "*_hook", ""), ("nf",)),
        (("owners", "rawtracepoint", "nf_event", ""), ("nf",)),
        (("owners", "rawtracepoint", "*", ""), ("alpha", "nf")),
        (("owners", "iterator", "*", ""), ("alpha", "nf")),
        (("raw_tracepoints", "n*"), ("named", "nameless", "nf_event")),
    ],
)
def test_answers(kernel: LiveKernel, question: tuple[str, ...], answer: tuple[str, ...]) -> None:
    facts = remote_kernel.answer_questions(kernel, [question])
    assert facts.answers == ((question, answer),)
    assert set(facts.modules) == (set(answer) if question[0] == "owners" else set())


def test_facts_do_not_change_with_the_boot(kernel: LiveKernel, folder: Path) -> None:
    """Numbers of tracepoints do, and the order in which a script asks is that of another compilation."""
    questions = [("tracepoint_format", "sched", "woken"), ("kernel_symbol", "jiffies")]
    facts = remote_kernel.answer_questions(kernel, questions)
    assert facts == remote_kernel.answer_questions(kernel, questions[::-1] * 2)
    _, (_, (text,)) = facts.answers
    assert text.count("field:") == 2
    assert "ID:" not in text
    assert (facts.cpus, facts.features, facts.btf) == (16, ("btf",), (folder / "vmlinux").read_bytes())
    assert (facts.machine, facts.release) == (os.uname().machine, os.uname().release)
    assert facts.build[0] == "kernel"


def test_probes_that_patterns_match(kernel: LiveKernel) -> None:
    exact = [("tracepoints", "sched", "woken"), ("kernel_functions", "vfs_read", ""), ("owners", "iterator", "*", "")]
    assert remote_kernel.probe_digest(kernel, exact) == ""
    wild = [*exact, ("tracepoints", "sched", "w*"), ("kernel_functions", "*", "nf")]
    matches = remote_kernel.probe_digest(kernel, wild)
    assert matches == remote_kernel.probe_digest(kernel, wild[::-1] * 2)
    kernel.__dict__["tracepoint_files"].match = lambda category, _: [(category, "woken")]
    assert remote_kernel.probe_digest(kernel, wild) not in ("", matches)


@pytest.mark.parametrize("question", [("tomorrow",), ("kernel_symbol",), ("modules", "a", "b")])
def test_other_questions(kernel: LiveKernel, question: tuple[str, ...]) -> None:
    """A later controller may have them."""
    with pytest.raises(TraceError, match="does not know the question"):
        remote_kernel.answer_questions(kernel, [question])


def test_all_features_are_stated(kernel: LiveKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "has", lambda _: True)
    assert remote_kernel.answer_questions(kernel, []).features == FEATURES


# ---------------------------------------------------------------------------------------------- stated kernel
# Compilations for kernels that are known by what they state: a small one, and one that differs from it.


OF_FILES = frozenset({
    "binaries", "user_symbols", "user_code", "user_codes", "user_exits", "user_implementations", "user_address",
    "user_size", "user_thread_local", "cpp_symbols", "executable",
    "user_offset", "user_address_at", "user_parameters", "user_type", "user_result", "user_goid", "user_go_results",
    "user_debug_problems", "user_lines", "usdt_probes", "object_functions", "headers", "depend_on_file",
    "depend_on_headers", "depend_on_path",
})  # fmt: skip
"""Queries about files, which are those of the machine that compiles."""
BY_OTHERS = {"struct": "_value_type", "enum": "_value_type", "typedef": "_value_type", "type_names": "types",
             "type_id": "types", "kernel_functions": "kernel_function_lists", "features_used": "feature"}  # fmt: skip
"""Queries that one of the stated kernel's answers."""


def queries() -> list[str]:
    return [name for name in vars(KernelInfo) if not name.startswith("_")]


def test_each_query_about_a_kernel_has_an_answer_of_it() -> None:
    """A new query must not be answered by the machine that compiles."""
    own = vars(RemoteKernel)
    assert not [name for name in queries() if name not in OF_FILES and BY_OTHERS.get(name, name) not in own]


# ---------------------------------------------------------------------------------------------- two kernels


def row(declaration: str, offset: int, size: int) -> str:
    return f"\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:1;"


def stated(btf: bytes, *fields: str, **others: Any) -> Facts:
    """A kernel with one tracepoint and its fields."""
    said: dict[str, Any] = {
        "machine": "x86_64", "release": "6.1.0", "build": ("kernel", "", "x86_64", "6.1.0", "", "0"), "cpus": 4,
        "features": FEATURES, "btf": btf,
        "answers": (
            (("tracepoint_format", "sched", "woken"), ("\n".join((row("int common_pid", 4, 4), *fields)),)),
            (("tracepoints", "sched", "woken"), ("sched:woken",)),
        ),
    }  # fmt: skip
    return Facts(**said | others)


def task(offset: int) -> bytes:
    """Type information with a struct whose member is at an offset."""
    builder = BtfBuilder()
    number = builder.integer("int", 4, 1)
    builder.struct("task", 64, ("pid", number, 8 * offset))
    builder.add(Kind.TYPEDEF, "pid_t", number)
    return builder.build()


def compiled(text: str, facts: Facts) -> tuple[CompiledScript, RemoteKernel]:
    kernel = RemoteKernel(kernel_info.decoded_facts(facts.encoded()))
    return pipeline.compile_script(Source("x", text), CompileOptions(ahead=True), kernel, Diagnostics()), kernel


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_kernels_with_other_fields_and_structs() -> None:
    """The same script, where a field and a member have moved, and for a kernel whose field has another name."""
    text = "t:sched:woken { @[args.pid] = sum(offsetof(struct task, pid)); }"
    old, kernel = compiled(text, stated(task(8), row("pid_t pid", 8, 4)))
    new, _ = compiled(text, stated(task(16), row("char comm[16]", 8, 16), row("pid_t pid", 24, 4)))
    assert old.elf != new.elf
    assert not kernel.unanswered
    assert [row_[5:7] for row_ in reliance(old)] == [("4", "pid_t pid")]
    assert [row_[4] for row_ in reliance(old) + reliance(new)] == ["8", "24"]
    with pytest.raises(ScriptError):
        compiled(text, stated(task(8), row("pid_t tid", 8, 4)))


def reliance(script: CompiledScript) -> list[tuple[str, ...]]:
    assert script.manifest.ahead is not None
    return [row for row in script.manifest.ahead.relies if row[0] == "tracepoint"]


def test_what_the_facts_do_not_say_is_noted() -> None:
    facts = stated(task(0), row("pid_t pid", 8, 4))
    kernel = RemoteKernel(facts)
    diagnostics = Diagnostics()
    text = "t:sched:woken { @ = count(); } t:sched:s* { @ = count(); } k:vfs_read { @ = count(); }"
    with pytest.raises(ScriptError):
        pipeline.compile_script(Source("x", text), CompileOptions(ahead=True), kernel, diagnostics)
    assert {("tracepoints", "sched", "s*"), ("kernel_functions", "vfs_read", "")} <= kernel.unanswered.keys()
    assert ("tracepoints", "sched", "woken") not in kernel.unanswered


def test_types_of_modules() -> None:
    base = vmlinux()
    facts = stated(base, modules={"nf": module(base, "nf_hook", "nf_event")}, answers=(
        (("owners", "function", "both", ""), ("nf",)), (("owners", "struct", "nf_hook_state", ""), ("nf",)),
        (("owners", "enumerator", "NF_HOOK_ON", ""), ("nf",)), (("owners", "rawtracepoint", "nf_event", ""), ("nf",)),
        (("owners", "iterator", "*", ""), ("nf",)),
    ))  # fmt: skip
    kernel = RemoteKernel(facts)
    struct = kernel.struct("struct", "nf_hook_state")
    assert struct is not None
    assert struct.origin == "nf"
    found = kernel.enumerator("NF_HOOK_ON")
    assert found is not None
    assert found[1] == 3
    assert kernel.function("both") is not None
    assert kernel.raw_tracepoint_prototype("nf_event") is not None
    assert sorted(kernel.iterators()) == ["nf_event", "task"]
    assert not kernel.unanswered
    # The first definition counts, and that is known.
    assert kernel.function("vfs_read") is not None
    assert kernel.struct("struct", "task") is not None
    assert kernel.enumerator("BLUE") is not None
    assert not kernel.unanswered
    assert kernel.typedef("nothing_t") is None
    assert [item.module for item in kernel.function_prototypes("nf_*")] == ["nf"]
    assert list(kernel.unanswered) == [("owners", "typedef", "nothing_t", ""), ("owners", "function", "nf_*", "")]


def test_other_answers() -> None:
    kernel = RemoteKernel(stated(b"", cpus=128, features=("ringbuf",), answers=(
        (("cgroup_id", "/a"), ("1",)), (("kernel_function_size", "a", ""), ("64",)),
        (("kernel_function_size", "b", ""), ("big",)), (("kernel_functions", "v*", ""), ("vfs_read ", "v nf")),
        (("kernel_symbol", "jiffies"), ("1",)), (("kernel_symbol", "no"), ()), (("module_state", "nf"), ("loaded",)),
        (("modules",), ("nf",)), (("sleepable_function", "f"), ("1",)),
        (("untraceable_reason", "g"), ("missing",)), (("unloaded_modules", "x"), ("sure", "mod")),
    )), disabled=["btf"])  # fmt: skip
    assert [(item.name, item.module) for item in kernel.kernel_functions("v*")] == [("vfs_read", ""), ("v", "nf")]
    assert [kernel.kernel_function_size(name) for name in "ab"] == [64, None]
    # Addresses and numbers are those of the boot on which the file is loaded.
    assert [kernel.kernel_symbol(name) for name in ("jiffies", "no")] == [0, None]
    assert kernel.cgroup_id("/a") == 0
    assert (kernel.modules(), kernel.module_state("nf"), kernel.unloaded_modules("x")) == (
        ["nf"], "loaded", (["mod"], True)
    )  # fmt: skip
    assert kernel.sleepable_function("f")
    assert kernel.untraceable_reason("g") == "missing"
    assert (kernel.possible_cpus, kernel.has_btf, kernel.struct("struct", "task")) == (128, False, None)
    assert [kernel.feature(name) for name in ("ringbuf", "btf", "fentry")] == [True, False, False]
    assert kernel.features_used == {"ringbuf"}
    assert (kernel.pid_namespace, kernel.bpf_programs("*")) == (None, [])
    assert kernel.dependencies()[1] == ("boot", "")
    assert (kernel.raw_tracepoints("*"), kernel.iterators(), kernel.function("f")) == ([], {}, None)


def test_other_machines() -> None:
    """What is in a script about kernels alone can be compiled for another architecture of this byte order."""
    text = "t:sched:woken { @[args.pid] = count(); }"
    script, _ = compiled(text, stated(task(0), row("pid_t pid", 8, 4), machine="aarch64"))
    assert script.elf
    with pytest.raises(TraceError, match="does not compile for s390x"):
        RemoteKernel(stated(b"", machine="s390x"))


def _void() -> bytes:
    builder = BtfBuilder()
    builder.add(Kind.TYPEDEF, "u32", 99)
    return builder.build()


@pytest.mark.parametrize("btf", [b"x", task(0)[:-4], task(0)[:40], _void()])
def test_bad_type_information(btf: bytes) -> None:
    answers = ((("owners", "typedef", "u32", ""), ("nf",)),)
    for facts in (stated(btf), stated(task(0), modules={"nf": btf}, answers=answers)):
        with pytest.raises(TraceError, match=r"type information of (vmlinux|nf) "):
            RemoteKernel(facts).typedef("u32")


# ---------------------------------------------------------------------------------------------- this kernel


@pytest.mark.skipif(not os.path.exists("/sys/kernel/tracing/available_events"), reason="needs tracefs")
def test_what_this_kernel_states_compiles_to_what_it_compiles_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the type information, of which checking all takes seconds: a small one stands for it."""
    builder = BtfBuilder()
    add_event(builder, "sched_wakeup", ("", builder.pointer(0)), ("p", builder.integer("int", 4, 1)))
    path = Path(os.environ["XDG_CACHE_HOME"]).parent / "vmlinux"
    path.write_bytes(builder.build())
    monkeypatch.setenv("PYTRACE_BTF", str(path))
    text = (
        't:sched:sched_wakeup* { @[probe, args.pid] = count(); } '
        't:syscalls:sys_enter_openat { @f[str(args.filename)] = count(); }'
    )
    options = CompileOptions(ahead=True)
    kernel = LiveKernel(ahead=True)
    here = pipeline.compile_script(Source("x", text), options, kernel, Diagnostics())
    assert {question[0] for question in kernel.questions} >= {"tracepoints", "tracepoint_format"}
    there, other = compiled(text, remote_kernel.answer_questions(LiveKernel(), kernel.questions))
    assert not other.unanswered
    assert there.elf == here.elf
    assert there.manifest.programs == here.manifest.programs
    assert there.manifest.facts[0] == here.manifest.facts[0]
