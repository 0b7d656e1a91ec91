"""Places where a uprobe would corrupt the program are refused, or left out of patterns."""

from __future__ import annotations

from pytrace.core.kernel_info import UsdtProbe, UserSymbol
from pytrace.core.options import Config
from pytrace.frontend.probes import uprobes
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel
from tests.support.rows import each_row

BAD = bytes.fromhex("62f27d487ac7")
"""vpbroadcastb."""
ALSO_BAD = bytes.fromhex("c5f97ec0")
"""vmovd."""
GOOD = b"\x90" * 16
NOP5_HEX = "0f1f440000"
NOP5 = bytes.fromhex(NOP5_HEX)
LEAF = bytes.fromhex("48897c24f8") + NOP5 + b"\xc3"
"""Stores below the stack pointer."""

SYMBOLS = {
    "/bin/app": (
        UserSymbol("bad", 0x401000, 0x1000, 64),
        UserSymbol("good", 0x401040, 0x1040, 64),
        UserSymbol("worse", 0x401080, 0x1080, 64),
        UserSymbol("short", 0x4010C0, 0x10C0, 6),
        UserSymbol("leaf", 0x401100, 0x1100, len(LEAF)),
        UserSymbol("nops", 0x401140, 0x1140, 32),
    )
}
CODE = {
    0x1000: BAD + GOOD,
    0x1040: GOOD,
    0x1044: BAD + GOOD,
    0x1080: BAD + ALSO_BAD + GOOD,
    0x10C0: BAD,
    0x1100: LEAF,
    0x1105: NOP5 + b"\xc3",
    0x1140: NOP5 + LEAF,
}
KERNEL = RecordedKernel(symbols=SYMBOLS, code_at=CODE, features=FEATURES | {"nop5_uprobes"})


def usdt(*offsets: int) -> RecordedKernel:
    probes = tuple(UsdtProbe("/bin/app", "one", "start", 0x400000 + at, at, 0, "") for at in offsets)
    return RecordedKernel(symbols=SYMBOLS, code_at=CODE, usdt=probes, features=FEATURES | {"nop5_uprobes"})


def test_a_named_function_is_an_error() -> None:
    for kind in ("uprobe", "uretprobe"):
        found = Expanded(f"{kind}:/bin/app:bad {{ }}", KERNEL)
        why = "the kernel would misread the instruction there (62 f2 7d 48 7a c7) and corrupt the program"
        assert found.errors == [f"cannot probe {kind}:/bin/app:bad: {why}"]
        assert found.hints == ["the next instruction that can be probed: uprobe:/bin/app:bad+6"]
        assert found.places == [f"{kind}:/bin/app:bad"]


def test_the_hint_passes_other_such_instructions_but_not_the_end() -> None:
    assert "uprobe:/bin/app:worse+10" in Expanded("uprobe:/bin/app:worse { }", KERNEL).hints[0]
    found = Expanded("uprobe:/bin/app:short { }", KERNEL)
    assert found.errors
    assert not found.hints


def test_offsets_and_addresses() -> None:
    found = Expanded("uprobe:/bin/app:good+4 { }", KERNEL)
    assert found.errors
    assert "uprobe:/bin/app:good+10" in found.hints[0]
    found = Expanded("uprobe:/bin/app:0x401044 { }", KERNEL)
    assert "misread" in found.errors[0]
    assert "uprobe:/bin/app:0x40104a" in found.hints[0]
    assert not Expanded("uprobe:/bin/app:0x401040 { }", KERNEL).errors
    # --unsafe means what may go wrong; this does.
    assert Expanded("uprobe:/bin/app:bad { }", KERNEL, unsafe=True).errors


def test_source_lines() -> None:
    third, fourth = UserSymbol("good", 0x401044, 0x1044, 0), UserSymbol("good", 0x401040, 0x1040, 0)
    lines = {("app.c", 3): [third], ("app.c", 4): [fourth]}
    kernel = RecordedKernel(symbols=SYMBOLS, code_at=CODE, lines=lines)
    assert "misread" in Expanded("uprobe:/bin/app@app.c:3 { }", kernel).errors[0]
    assert Expanded("uprobe:/bin/app@app.c:4 { }", kernel).unit


def test_patterns_leave_them_out() -> None:
    found = Expanded("uprobe:/bin/app:* { }", KERNEL)
    assert found.names == ["uprobe:/bin/app:good", "uprobe:/bin/app:leaf", "uprobe:/bin/app:nops"]
    assert found.warnings == ["3 of 6 probes left out: the kernel would corrupt the program there"]
    assert found.hints == ["-v shows which"]
    assert not found.errors
    found = Expanded("uprobe:/bin/app:* { }", KERNEL, verbose=True)
    assert not found.hints
    notes = [item.message for item in found.diagnostics.notes]
    assert [note.split(":")[2] for note in notes] == ["bad", "worse", "short"]


def test_nothing_left_is_an_error() -> None:
    found = Expanded("uprobe:/bin/app:b* { }", KERNEL)
    assert found.errors == ["there are no probes to attach"]
    assert found.warnings


def test_filtered_names_are_not_counted() -> None:
    found = Expanded("uprobe:/bin/app:* { }", KERNEL, probe_filter=":(good|bad)$")
    assert found.warnings == ["1 of 2 probes left out: the kernel would corrupt the program there"]


def test_missing_probes_decides() -> None:
    found = Expanded("uprobe:/bin/app:bad,uprobe:/bin/app:good { }", KERNEL, Config(missing_probes="warn"))
    assert found.names == ["uprobe:/bin/app:good"]
    assert len(found.warnings) == 1
    found = Expanded("uprobe:/bin/app:* { }", KERNEL, Config(missing_probes="ignore"))
    assert len(found.names) == 3
    assert not found.warnings


def test_lists_and_other_machines_have_all() -> None:
    assert len(Expanded("uprobe:/bin/app:* { }", KERNEL, mode="list").names) == 6
    arm = RecordedKernel(symbols=SYMBOLS, code_at=CODE, arch="aarch64")
    assert not Expanded("uprobe:/bin/app:bad { }", arm).errors


def test_static_probes() -> None:
    found = Expanded("usdt:/bin/app:one:start { }", usdt(0x1000))
    assert "misread" in found.errors[0]
    assert not found.hints
    # One of several locations.
    found = Expanded("usdt:/bin/app:one:start { }", usdt(0x1000, 0x1040))
    assert len(found.unit.targets) == 1
    assert found.warnings == ["1 of 2 probes left out: the kernel would corrupt the program there"]


def test_nops_that_become_calls() -> None:
    found = Expanded("usdt:/bin/app:one:start { }", usdt(0x1105))
    assert "replaces the 5-byte nop there by a call" in found.errors[0]
    assert found.hints == ["a function compiled with -mno-red-zone can be probed there"]
    # At the entry of a function nothing is in the red zone yet.
    assert Expanded("usdt:/bin/app:one:start { }", usdt(0x1140)).unit
    assert Expanded("uprobe:/bin/app:leaf { }", KERNEL).unit
    # A function of unknown size, probed at its start.
    sizeless = usdt(0x1140)
    sizeless.symbols = {"/bin/app": (UserSymbol("nops", 0x401140, 0x1140, 0),)}
    assert Expanded("usdt:/bin/app:one:start { }", sizeless).unit
    # No function is known to be there.
    outside = usdt(0x2000)
    outside.code_at = {0x2000: NOP5}
    assert Expanded("usdt:/bin/app:one:start { }", outside).errors


def test_other_kernels_leave_nops_alone() -> None:
    kernel = usdt(0x1105)
    kernel.features = FEATURES
    assert Expanded("usdt:/bin/app:one:start { }", kernel).unit
    hidden = Expanded("usdt:/bin/app:one:start { }", usdt(0x1105), disabled=frozenset({"nop5_uprobes"}))
    assert hidden.unit




@each_row(
    ("code", "offset", "expected"),
    [
        (NOP5_HEX, 0x1000, True),
        (NOP5_HEX, 0x1FFB, True),  # the last place in a page
        (NOP5_HEX, 0x1FFC, False),
        ("6666666690", 0, True),
        ("90", 0, False),
        ("0f1f4000", 0, False),  # four bytes
        ("660f1f440000", 0, False),  # six bytes
        ("0f1f4c0000", 0, False),  # another instruction of the group
        ("e800000000", 0, False),
        ("b811223344", 0, False),
        ("0f1f44", 0, False),  # cut off
        ("", 0, False),
        ("06", 0, False),
    ],
)
def test_becomes_call(code: str, offset: int, expected: bool) -> None:
    assert uprobes.becomes_call(bytes.fromhex(code), offset) is expected


def test_at_entry() -> None:
    assert uprobes.red_zone_unused(b"")
    assert uprobes.red_zone_unused(bytes.fromhex("f30f1efa"))
    assert not uprobes.red_zone_unused(bytes.fromhex("55"))


@each_row(
    ("code", "expected"),
    [
        (f"48897c24f8{NOP5_HEX}c3", True),  # mov [rsp-8], rdi
        (f"4889bc2478ffffff{NOP5_HEX}c3", True),  # mov [rsp-136], rdi
        (f"554889e5488945f8{NOP5_HEX}c3", True),  # mov [rbp-8], rax
        (f"488985f0feffff{NOP5_HEX}c3", True),  # mov [rbp-272], rax
        (f"4c8b44cdf8{NOP5_HEX}c3", True),  # mov r8, [rbp+rcx*8-8]
        (f"c5fa7f4424f0{NOP5_HEX}c3", True),  # vmovdqu [rsp-16], xmm0
        (f"48897c24f8{NOP5_HEX}e800000000c3", False),  # calls
        (f"48897c24f8{NOP5_HEX}ff5008c3", False),  # call [rax+8]
        (f"48897c24f8{NOP5_HEX}ffe0", True),  # jmp rax
        (f"48897c2408{NOP5_HEX}c3", False),  # mov [rsp+8], rdi
        (f"488947f8{NOP5_HEX}c3", False),  # mov [rdi-8], rax
        (f"4889f8{NOP5_HEX}c3", False),  # between registers
        (f"{NOP5_HEX}06", True),  # not an instruction
        (f"{NOP5_HEX}48", True),  # cut off
    ],
)
def test_used(code: str, expected: bool) -> None:
    assert uprobes.uses_red_zone(bytes.fromhex(code)) is expected
