"""Programs as a whole; strings, comparison, weights."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from pytrace import pipeline
from pytrace.codegen.emit.comparison import FOLLOWED_BYTES, UNROLLED
from pytrace.codegen.emit.map_uses import weights_symbol
from pytrace.codegen.emit.program import COPIES
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import RegisterPart, UserParameter
from pytrace.core.manifest import WEIGHT, CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT32, UINT64, Field, Struct
from tests.codegen.running import compiled, machine, printed, ran
from tests.support.bpf_machine import Machine
from tests.support.facts import RecordedKernel


class Watched(Machine):
    """Notes the words in which bits are set."""

    def _atomic(self, place: int, size: int, r: list[int], src: int, imm: int) -> None:
        if imm & 0xF0 == 0x40:
            self.words.add(place)
        super()._atomic(place, size, r, src, imm)


def test_programs_of_user_probes_claim_a_copy_of_the_scratch_area() -> None:
    """With all of them in use the program ends, and counts as a missed hit."""
    found = Watched(compiled("uprobe:/bin/app:work { @s[str(uptr(1))] = 1; @n++; }", RecordedKernel()))
    found.words = set()
    found.run()
    (word,) = found.words
    assert found.load(word, 8) == 0, "the copy is given back"
    for used in range(COPIES):
        found.write(word, ((1 << used) - 1).to_bytes(8, "little"))
        found.run()
        assert (found.slot("@n"), found.load(word, 8)) == (2 + used, (1 << used) - 1)
    found.write(word, ((1 << COPIES) - 1).to_bytes(8, "little"))
    found.run()
    assert (found.slot("@n"), found.counts()["missed"]) == (1 + COPIES, 1)


def test_programs_and_their_variables() -> None:
    script = compiled("kprobe:vfs_read { @s = str(kptr(1)); }")
    assert script.manifest.counters is None or "missed" not in {kind for kind, _ in script.manifest.counters.names}
    found = machine("begin { let $x: int64; for ($i : 0..2) { $x += 5; } @ = $x; }")
    for _ in range(3):
        found.run()
        assert found.slot("@") == 10


@pytest.mark.parametrize("limit", [0, 32, 500])
def test_values_are_the_same_wherever_they_live(limit: int) -> None:
    script = f"""config = {{ on_stack_limit = {limit} }} begin {{
      $s = "some text"; $t = ($s, 5, (1, 2)); @m[$t] = $s; print(($t.2.1, @m[$t], comm)); }}"""
    assert ran(script).printed() == [(2, b"some text", b"task")]


def test_results_of_programs() -> None:
    """A tracepoint program's 0 would keep the event from others; trampolines must return 0."""
    for script, result in (
        ("begin { return 7; }", 7), ("begin { }", 0), ("tracepoint:sched:sched_switch { }", 1),
        ("tracepoint:sched:sched_switch { return 5; }", 1), ("kprobe:vfs_read { return 5; }", 0),
    ):  # fmt: skip
        assert machine(script).run() == result, script


def test_elapsed_time_is_that_of_the_session() -> None:
    script = compiled("begin { print(elapsed); }")
    assert script.manifest.session is not None
    assert compiled("begin { print(pid); }").manifest.session is None


# -------------------------------------------------------------------------------------------------------------- program

KERNEL = replace(RecordedKernel(), features=RecordedKernel().features | {"bpf_loop"})


def program_compiled(text: str) -> CompiledScript:
    return pipeline.compile_script(Source("stdin", text, None), CompileOptions(), KERNEL, Diagnostics())


def functions(script: CompiledScript) -> list[str]:
    """Names of all functions in the ELF file."""
    table = ELFFile(io.BytesIO(script.elf)).get_section_by_name(".symtab")
    return sorted(item.name for item in table.iter_symbols() if item["st_info"]["type"] == "STT_FUNC")


def test_callbacks_and_functions_are_shared() -> None:
    script = program_compiled("begin { @a[1] = 1; @b[1] = 1; print(len(@a)); print(len(@b)); } end { print(len(@a)); }")
    assert [name for name in functions(script) if "count" in name] == ["count_entry"]
    loops = "for ($i : 0..pid) { @ += $i; } for ($i : 0..pid) { @ += 2 * $i; }"
    found = functions(program_compiled(f"begin {{ {loops} }} end {{ {loops} }}"))
    assert len(found) == len(set(found)) == 2 + 4
    assert {name.partition("__")[0] for name in found} == {"begin_0", "end_1"}


def test_programs_that_can_be_preempted_claim_a_copy_of_their_area() -> None:
    def counters(probe: str) -> set[str]:
        script = program_compiled(f'{probe} {{ $x = str(nsecs); @[$x] = 1; }}')
        assert script.manifest.counters is not None
        return {kind for kind, _ in script.manifest.counters.names}

    assert "missed" in counters("uprobe:/bin/app:main")
    assert "missed" not in counters("tracepoint:sched:sched_switch")



# ----------------------------------------------------------------------------------------------------------- comparison

@pytest.mark.parametrize("length", [1, 7, 8, 9, UNROLLED - 1, UNROLLED, UNROLLED + 1, 3 * UNROLLED, 5 * UNROLLED + 3])
def test_strings_of_all_lengths(length: int) -> None:
    text = "x" * length
    for at in {0, length // 2, length - 1}:
        other = text[:at] + "y" + text[at + 1 :]
        body = f'$a = "{text}"; $b = "{other}"; $c = "{text}"; if (pid == 0) {{ $a = "z"; $b = "z"; $c = "z"; }}'
        assert printed(f"{body} print(($a == $b, $a != $b, $a == $c, $a != $c));") == [(False, True, True, False)]


def test_strings_of_different_capacity() -> None:
    body = '$a = "abc"; $b = "abcdefgh"; $b = comm; if (pid == 0) { $a = "q"; }'
    assert printed(f"{body} print(($a == $b, $b == $a));", comm=b"abc") == [(True, True)]
    assert printed(f"{body} print(($a == $b, $b == $a));", comm=b"abd") == [(False, False)]


def test_what_is_longer_than_the_verifier_follows() -> None:
    size = FOLLOWED_BYTES + 64
    config = f"config = {{ max_strlen = {size} }} "
    from tests.codegen.running import machine

    for changed in (None, 0, FOLLOWED_BYTES, size - 2):
        found = machine(f"{config}kprobe:vfs_read {{ print(str(kptr(arg0)) == str(kptr(arg1))); }}")
        text = bytearray(b"x" * (size - 1) + b"\0")
        other = bytearray(text)
        if changed is not None:
            other[changed] = ord("y")
        # rdi and rsi in struct pt_regs of x86-64.
        registers = bytearray(168)
        registers[112:120] = found.region(text).to_bytes(8, "little")
        registers[104:112] = found.region(other).to_bytes(8, "little")
        found.run(context=bytes(registers))
        assert found.printed() == [changed is None], changed


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("(1, 2)", "(1, 2)", True), ("(1, 2)", "(1, 3)", False), ('(1, "a")', '(1, "a")', True),
        ('(1, "a")', '(1, "b")', False), ('(2, "a")', '(1, "a")', False), ("(1, (2, 3))", "(1, (2, 4))", False),
        ("(1, (2, 3))", "(1, (2, 3))", True), ('("a", "b", 1)', '("a", "c", 1)', False),
        ("(a=1, b=2)", "(b=2, a=1)", True), ("(a=1, b=2)", "(b=1, a=2)", False), ("(true, -1)", "(true, -1)", True),
    ],
)  # fmt: skip
def test_tuples_and_records(one: str, other: str, same: bool) -> None:
    assert printed(f"$a = {one}; $b = {other}; if (pid == 0) {{ $a = $b; }} print($a == $b);") == [same]


def test_arrays() -> None:
    body = "$a = (uint8[4])(uint32)5; $b = (uint8[4])(uint32)pid; print(($a == $b, $a == $a));"
    assert printed(body) == [(False, True)]


# ------------------------------------------------------------------------------------------------------ counted strings

TEXT = Struct("struct", "string", 16, (Field("str", UINT64, 0), Field("len", UINT64, 8)), origin="app")
MIXED = Struct("struct", "mixed", 24, (Field("a", INT32, 0), Field("b", TEXT, 8)), origin="app")
AX, BX, CX, SP = 80, 40, 88, 152
"""Offsets in ``struct pt_regs``."""


def ran_counted(body: str, *parameters: UserParameter, memory: bytes, registers: dict[int, int]) -> Machine:
    """A probe of a function with parameters. Values of registers that are not positive are in memory."""
    found = machine(f"uprobe:/bin/app:work {{ {body} }}", RecordedKernel(parameters={("/bin/app", "work"): parameters}))
    start = found.region(memory)
    context = bytearray(168)
    for offset, value in registers.items():
        context[offset : offset + 8] = (value if value > 0 else start - value).to_bytes(8, "little")
    found.run(context=bytes(context))
    return found


IN_REGISTERS = UserParameter("s", TEXT, "", "string", (RegisterPart(0, 8, "ax"), RegisterPart(8, 8, "bx")), True)


@pytest.mark.parametrize(
    ("body", "length", "wanted"),
    [
        ("print(args.s);", 4, b"abcd"),
        ("print(args.s);", 0x1000, b"abcdefgh"),
        ("@[args.s] = 1; for ($kv : @) { print($kv.0); }", 3, b"abc"),
        ("print(strlen(args.s));", 5, 5),
        ('print(args.s == "ab");', 2, True),
    ],
)
def test_strings_in_registers(body: str, length: int, wanted: object) -> None:
    found = ran_counted(body, IN_REGISTERS, memory=b"abcdefgh".ljust(4096, b"\0"), registers={AX: 0, BX: length})
    assert found.printed() == [wanted]


def test_strings_on_the_stack() -> None:
    parameter = UserParameter("s", TEXT, "sp+16", "string", text=True)
    kernel = RecordedKernel(parameters={("/bin/app", "work"): (parameter,)})
    found = machine("uprobe:/bin/app:work { print(args.s); }", kernel)
    text = found.region(b"abcdef".ljust(64, b"\0"))
    stack = found.region(bytes(16) + text.to_bytes(8, "little") + (3).to_bytes(8, "little") + bytes(8))
    context = bytearray(168)
    context[SP : SP + 8] = stack.to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [b"abc"]


def test_structs_in_registers() -> None:
    parts = (RegisterPart(0, 4, "ax"), RegisterPart(8, 8, "bx"), RegisterPart(16, 8, "cx"))
    parameter = UserParameter("m", MIXED, "", "main.Mixed", parts)
    registers = {AX: 2**64 - 5, BX: 0, CX: 2}
    body = "print((args.m.a, str(args.m.b.str, args.m.b.len)));"
    found = ran_counted(body, parameter, memory=b"xyz".ljust(64, b"\0"), registers=registers)
    assert found.printed() == [(-5, b"xy")]



# -------------------------------------------------------------------------------------------------------------- weights

A, B = "tracepoint:sched:sched_switch", "tracepoint:sched:sched_wakeup"
RANDOM = 7
SAMPLED = CompileOptions(sampled=True)


def sampled(text: str, *weights: int, draws: list[int] | None = None) -> Machine:
    """A machine whose programs have *weights*; *draws* are the random numbers, without it each hit runs."""
    numbers = iter(draws or ())
    helpers = {RANDOM: lambda *_: next(numbers, 0)}
    found = machine(text, RecordedKernel(), SAMPLED, helpers=helpers)
    sampling = found.script.manifest.sampling
    assert sampling is not None
    place = found.section(sampling.section) + sampling.offset
    found.write(place, struct.pack(f"={1 + len(weights)}Q", int(any(weight > 1 for weight in weights)), *weights))
    assert WEIGHT == 8
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("count()", 48), ("sum(5)", 240), ("sum(-5)", (1 << 64) - 240), ("avg(5)", (240, 48)), ("stats(5)", (240, 48)),
        ("min(5)", 0xFF ^ 5), ("max(5)", 5),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["", "[1]"])
def test_each_update_has_the_weight_of_its_hit(value: str, expected: object, key: str) -> None:
    found = sampled(f"{A} {{ @{key} = {value}; }}", 16)
    for _ in range(3):
        found.run()
    result: Any = found.entries("@")[1] if key else found.slot("@")
    if value[:3] in ("min", "max"):
        result = result[0] & 0xFF
    assert result == expected


def test_buckets_are_scaled() -> None:
    found = sampled(f"{A} {{ @h = hist(4); @l = lhist(25, 0, 100, 10); }}", 8)
    found.run()
    found.run()
    assert [sorted(found.slot(name))[-2:] for name in ("@h", "@l")] == [[0, 16], [0, 16]]


def test_weights_may_change_between_hits() -> None:
    found = sampled(f"{A} {{ @ = count(); }}", 1)
    found.run()
    sampling = found.script.manifest.sampling
    assert sampling is not None
    found.write(found.section(sampling.section) + sampling.offset + WEIGHT, struct.pack("=Q", 64))
    found.run()
    assert found.slot("@") == 65


def test_weights_are_in_loops_and_functions_too() -> None:
    found = sampled(f"{A} {{ @ = count(); }}", 4, draws=[0, 1 << 30, (1 << 30) - 1, 1 << 31, (1 << 32) - 1])
    for _ in range(5):
        found.run()
    assert (found.slot("@"), found.counts()["hits"]) == (8, 5)
    function = "fn f($n : int64) : int64 { @f = count(); return $n; }"
    text = f"{function} {A} {{ for ($i : 0..10) {{ @ = count(); }} f(1); }}"
    found = sampled(text, 4)
    found.run()
    assert (found.slot("@"), found.slot("@f")) == (40, 4)


PAIR = f"{A} {{ @t[1] = 5; }} {B} /@t[1]/ {{ @ = count(); @s = sum(@t[1]); delete(@t, 1); }}"


def test_a_pair_counts_with_the_weight_of_its_first_hit() -> None:
    found = sampled(PAIR, 16, 1, draws=[0, 1 << 31, 0])
    first, second = (program.symbol for program in found.script.manifest.programs)
    for _ in range(3):
        found.run(first)
        found.run(second)
    # The second entry was left out, so its return found nothing.
    assert (found.slot("@"), found.slot("@s")) == (32, 160)
    assert not found.maps[found.names[weights_symbol("@t")]].entries


def test_values_that_were_stored_before_count_once() -> None:
    found = sampled(PAIR, 1, 1)
    first, second = (program.symbol for program in found.script.manifest.programs)
    found.run(first)
    sampling = found.script.manifest.sampling
    assert sampling is not None
    found.write(found.section(sampling.section) + sampling.offset, struct.pack("=QQ", 1, 16))
    found.run(second)
    assert found.slot("@") == 1


def test_without_the_option_nothing_is_emitted() -> None:
    script = compiled(PAIR, RecordedKernel())
    assert script.manifest.sampling is None
    assert weights_symbol("@t").encode() not in script.elf
