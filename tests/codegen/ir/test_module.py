"""Modules, their debug information, and the target."""

from __future__ import annotations

import faulthandler
import io
import os
import re
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from elftools.elf.elffile import ELFFile
from llvmlite.binding.ffi import ObjectRef

from pytrace.codegen.ir import target
from pytrace.codegen.ir.module import Module, quoted
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from tests.codegen.running import compiled, printed
from tests.support.front import analyse
from tests.support.recorded import Facts


def section(script: CompiledScript, name: str) -> bytes | None:
    found = ELFFile(io.BytesIO(script.elf)).get_section_by_name(name)
    return None if found is None else found.data()


@pytest.mark.parametrize("licence", ["GPL", "Dual MIT/GPL"])
def test_the_licence(licence: str) -> None:
    script = compiled(f'config = {{ license = "{licence}" }} begin {{ }}')
    assert section(script, "license") == licence.encode() + b"\0"


def test_each_program_has_its_section() -> None:
    script = compiled("begin { } end { } interval:s:1 { }")
    for program in script.manifest.programs:
        assert section(script, f"pytrace/{program.symbol}")


def test_constants_are_there_once() -> None:
    script = compiled('begin { $a = "a rather long text"; print($a); $b = "a rather long text"; print($b); }')
    data = b"".join(
        item.data() for item in ELFFile(io.BytesIO(script.elf)).iter_sections() if item.name.startswith(".rodata")
    )
    assert data.count(b"a rather long text") <= 1


def test_modules_without_content_or_numbers() -> None:
    # The stride of a CPU's block depends on what the last program counts.
    assert printed("@a = count(); @b[1] = 1; @h = hist(5); $x = (int64)@a; print($x);") == [1]
    module = Module(None, "GPL")
    assert target.elf(target.parse(module.text(0, 0), verify=True))


# ----------------------------------------------------------------------------------------------------------- debug info


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain", '"plain"'),
        ('a"b', '"a\\22b"'),
        ("a\\b", '"a\\5Cb"'),
        ("é", '"\\C3\\A9"'),
        ("a\nb", '"a\\0Ab"'),
        ("\udcff", '"\\FF"'),
    ],
)
def test_strings(text: str, wanted: str) -> None:
    assert quoted(text) == wanted


def ir(script: str) -> str:
    text, _ = generator.generate(analyse(script).checked(), Facts(), CompileOptions())
    return text


def test_places_of_instructions() -> None:
    text = ir("begin {\n  @a[1] = 5;\n    print(pid);\n}")
    places = set(re.findall(r"!DILocation\(line: (\d+), column: (\d+)", text))
    assert {("2", "3"), ("3", "5")} <= places
    assert b"print(pid);" in compiled("begin {\n    print(pid);\n}").elf
    assert len(set(re.findall(r"!DIFile\(filename: (\S+),", ir('begin { assert(pid == 0, "x"); }')))) == 2
    found = re.findall(r"column: (\d+)", ir("begin {" + " " * 3000 + "print(pid); }"))
    assert max(map(int, found)) == 1023


def test_equal_nodes_are_shared() -> None:
    text = ir("begin { @a[1] = 1; @b[1] = 1; @c[1] = 1; }")
    assert len(re.findall(r'!DIBasicType\(name: "int",', text)) == 1


@pytest.mark.parametrize(
    "script",
    [
        "begin { @a[1] = 1; }",
        "begin { for ($i : 0..2) { @ = $i; } }",
        "fn f($a: int64): int64 { return $a; } begin { print(f(1)); }",
    ],
)
def test_functions_and_maps_have_types(script: str) -> None:
    """The kernel wants the name of each parameter."""
    text = ir(script)
    functions = re.findall(r"^define (?:dso_local |internal )*\w+ @(\w+)\(", text, re.MULTILINE)
    described = set(re.findall(r'!DISubprogram\(name: "(\w+)"', text))
    assert functions
    assert set(functions) <= described


# --------------------------------------------------------------------------------------------------------------- target

TEXT = """
target triple = "bpfel"
define i64 @f(i64 %n) section "text" {
  %twice = add i64 %n, %n
  ret i64 %twice
}
"""


INVALID = TEXT.replace("ret i64 %twice", "%x = add i64 %later, 1\n  %later = add i64 %x, 1\n  ret i64 %later")


def test_the_stages() -> None:
    text = TEXT.replace("%twice = add i64 %n, %n", "%slot = alloca i64\n  store i64 %n, ptr %slot\n"
                        "  %same = load i64, ptr %slot\n  %twice = add i64 %same, 5")  # fmt: skip
    with target.parsed(text, verify=True) as module:
        assert "alloca" in str(module)
        target.optimise(module)
        assert "alloca" not in str(module)
        assert "r0 += 5" in target.assembly(module)
        assert target.elf(module).startswith(b"\x7fELF")
    assert target.llvm_version().count(".") == 2


def test_ir_that_is_not_valid() -> None:
    with pytest.raises(InternalError, match="parsing error"):
        target.parse("define nothing")
    with pytest.raises(InternalError, match="dominate"):
        target.parse(INVALID, verify=True)


def test_several_threads() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: target.compiled(TEXT), range(20)))) == 1


def test_ctrl_c_leaves_no_object_of_llvm_half_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while LLVM makes each of its objects, and while it frees each."""
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    places: list[str] = []
    came: list[str] = []
    for name in ("__init__", "detach"):
        whole = getattr(ObjectRef, name)

        def interrupt(self: ObjectRef, *arguments: object, name: str = name, whole: Any = whole) -> None:
            place = f"{type(self).__name__}.{name}"
            if not came and place not in places:
                came.append(place)
                signal.raise_signal(signal.SIGINT)
            whole(self, *arguments)

        monkeypatch.setattr(ObjectRef, name, interrupt)
    while True:
        came.clear()
        try:
            target.compiled(TEXT)
        except KeyboardInterrupt:
            places += came
        else:
            break
    assert {"ModuleRef.__init__", "ModuleRef.detach", "PassBuilder.__init__"} <= set(places)
    assert not ignored


def test_large_programs_are_made_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = target.elf(target.parse(TEXT))
    monkeypatch.setattr(target, "LARGE", 1)
    assert target.elf(target.parse(TEXT)) == here
    assert here.startswith(b"\x7fELF")


def test_branches_reach_in_a_long_program_with_many_unlikely_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid out by likelihood, the last instruction's branch would go past 32767 others."""
    emit = target._emit

    def without_pytests_handler(*words: Any) -> NoReturn:  # which would show how LLVM ends the first try
        faulthandler.disable()
        emit(*words)

    monkeypatch.setattr(target, "_emit", without_pytests_handler)
    lines = ['target triple = "bpfel"', 'define i64 @f(ptr %p) section "text" {', "  br label %b0"]
    for at in range(steps := 1500):
        lines += [f"b{at}:", f"  %v{at} = load volatile i64, ptr %p", f"  %c{at} = icmp eq i64 %v{at}, {at}"]
        lines += [f"  br i1 %c{at}, label %seldom{at}, label %often{at}, !prof !0"]
        lines += [f"often{at}:", *("  store volatile i64 1, ptr %p" for _ in range(24)), f"  br label %b{at + 1}"]
        lines += [f"seldom{at}:", f"  store volatile i64 {at}, ptr %p", f"  br label %b{at + 1}"]
    lines += [f"b{steps}:", "  ret i64 0", "}", '!0 = !{!"branch_weights", i32 1, i32 2000}']
    text = "\n".join(lines)
    assert target.elf(target.parse(text), target.longest(text)).startswith(b"\x7fELF")


def test_a_program_that_llvm_gives_up_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that is too far makes LLVM end its process."""

    class GivingUp:
        def emit_object(self, _module: object) -> bytes:
            faulthandler.disable()  # pytest's, which would show this in its output
            os.abort()

    monkeypatch.setattr(target, "LARGE", 1)
    monkeypatch.setattr(target, "_machine", GivingUp)
    with pytest.raises(TraceError, match="too long"):
        target.elf(target.parse(TEXT))


def test_short_texts_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "LARGE", 1)
    monkeypatch.setattr(target, "_in_a_child", lambda _emit: b"child")
    assert target.elf(target.parse(TEXT), 0) != b"child"
    assert target.elf(target.parse(TEXT), target.longest(TEXT)) == b"child"


def _emitted_in_a_child() -> bytes | None:
    return target._in_a_child(lambda: target._with_options(cast(Any, None), ()))


def _no_memory() -> bytes:
    raise MemoryError


def _llvm_gives_up(said: bytes) -> bytes:
    faulthandler.disable()  # pytest's, which would show this in its output
    os.write(2, said)
    os.abort()


@pytest.mark.parametrize("emit", [_no_memory, lambda: _llvm_gives_up(b"LLVM ERROR: out of memory\n"),
                                  lambda: _llvm_gives_up(b"what():  std::bad_alloc\n")])  # fmt: skip
def test_a_child_without_memory_says_nothing_of_branches(
    emit: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_machine", lambda: SimpleNamespace(emit_object=lambda _module: emit()))
    with pytest.raises(MemoryError):
        _emitted_in_a_child()


def test_a_child_that_llvm_ends_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(emit_object=lambda _module: _llvm_gives_up(b"LLVM ERROR: branch out of range\n"))
    monkeypatch.setattr(target, "_machine", lambda: made)
    assert _emitted_in_a_child() is None
    monkeypatch.setattr(target, "_machine", lambda: SimpleNamespace(emit_object=lambda _module: b"elf"))
    assert _emitted_in_a_child() == b"elf"


def test_with_a_limit_of_memory_all_of_llvm_is_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[object] = []
    real = target._in_a_child

    def counted(emit: Callable[[], bytes]) -> bytes | None:
        children.append(emit)
        return real(emit)

    monkeypatch.setattr(target, "_in_a_child", counted)
    without = target.compiled(TEXT)
    assert not children
    monkeypatch.setattr(target, "memory_is_limited", lambda: True)
    assert target.compiled(TEXT) == without
    assert len(children) == 1
    with pytest.raises(InternalError, match="not valid"):
        target.compiled("define nothing")
    assert len(children) == 2
    monkeypatch.setattr(target, "optimise", lambda _module: _llvm_gives_up(b"out of memory"))
    with pytest.raises(MemoryError):
        target.compiled(TEXT)
