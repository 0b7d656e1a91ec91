"""Kinds of probes, what names a place, and instructions at it."""

from __future__ import annotations

import ast
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import pytrace
from pytrace.base import typed_json
from pytrace.core import probe_kinds
from pytrace.core.instructions import (
    BadCodeError,
    Decoder,
    Jump,
    control_flow,
    instruction_length,
    instruction_starts,
    is_misread,
)
from pytrace.core.probe_kinds import (
    ALWAYS,
    PROBE_KINDS,
    AnyTarget,
    CountedEventTarget,
    IteratorTarget,
    KernelFunctionTarget,
    NamedRunTarget,
    NoTarget,
    ProbeTarget,
    PythonTarget,
    RawTracepointTarget,
    SignalTarget,
    StaticProbeTarget,
    TimerTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
    WatchpointTarget,
    kind_of,
    known_kind,
    probe_kind,
    split_attach_point,
)
from pytrace.core.system_calls import ABIS, call_names, numbers
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- kinds
# The probe table: names, and where a name may come from.


def test_names_of_kinds() -> None:
    for name, kind in (
        ("KPROBE", "kprobe"), ("K", "kprobe"), ("u", "uprobe"), ("U", "usdt"), ("kfunc", "fentry"),
        ("kretfunc", "fexit"), ("End", "end"), ("I", "interval"),
    ):  # fmt: skip
        found = probe_kind(name)
        assert found is not None
        assert found.name == kind
    assert probe_kind("nothing") is None
    assert [known_kind(row.name) for row in PROBE_KINDS] == list(PROBE_KINDS)
    with pytest.raises(KeyError):
        known_kind("nothing")


# ---------------------------------------------------------------------------------------------- kind names
# Kinds of probes are named by constants: no other module spells them where it decides something.


PACKAGE = Path(pytrace.__file__).resolve().parent
NAMES = {row.name for row in probe_kinds.PROBE_KINDS}


def _literals(node: ast.AST) -> set[str]:
    return {item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str)}


def _is_kind(node: ast.expr) -> bool:
    """``kind.name``, ``spec.kind`` and the like."""
    name = node.attr if isinstance(node, ast.Attribute) else ""
    inner = node.value if isinstance(node, ast.Attribute) else node
    return name == "kind" or (name == "name" and "kind" in ast.unparse(inner).rpartition(".")[2])


def _named(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    """Literals that kinds are compared with, those that are the keys of a table of all kinds, and sets of kinds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and _is_kind(node.left):
            yield node.lineno, set().union(*map(_literals, node.comparators))
        elif isinstance(node, ast.Set) and _literals(node) <= NAMES:
            yield node.lineno, _literals(node)
        elif isinstance(node, ast.Dict):
            keys = set().union(*(_literals(key) for key in node.keys if key is not None))
            if len(keys & NAMES) > 2:
                yield node.lineno, keys


def test_kinds_are_named_by_their_constants() -> None:
    quoted = re.compile("|".join(f'"{name}"' for name in NAMES))  # most files name none: parsing all takes seconds
    texts = {path: path.read_text() for path in PACKAGE.rglob("*.py") if path != Path(probe_kinds.__file__)}
    wrong = [
        f"{path}:{line}: {', '.join(found)}"
        for path, text in texts.items()
        if quoted.search(text)
        for line, literals in _named(ast.parse(text))
        if (found := sorted(literals & NAMES))
    ]
    assert not wrong
    names = {value for name, value in vars(probe_kinds).items() if isinstance(value, str) and name == value.upper()}
    assert names >= NAMES


# ---------------------------------------------------------------------------------------------- attach point text
# The text of attach points: its parts, and its kind.


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("begin", ["begin"]),
        ("", [""]),
        ("kprobe:vfs_read", ["kprobe", "vfs_read"]),
        ("kprobe:", ["kprobe", ""]),
        ("tracepoint:sched:*", ["tracepoint", "sched", "*"]),
        ('uprobe:"/a:b":f', ["uprobe", "/a:b", "f"]),
        (r'uprobe:/a:"f(\"x\")"', ["uprobe", "/a", 'f("x")']),
        ("uprobe:/a@f.c:12", ["uprobe", "/a@f.c", "12"]),
        ("kprobe:$1:$name", ["kprobe", "$1", "$name"]),
        ('kprobe:"open', ["kprobe", '"open']),
    ],
)
def test_parts(text: str, parts: list[str]) -> None:
    assert split_attach_point(text) == parts


@pytest.mark.parametrize(
    ("text", "kind"),
    [("k:f", "kprobe"), (" BEGIN ", "begin"), ('"tracepoint":a:b', "tracepoint"), ("$1", None), ("k*:f", None)],
)
def test_kinds(text: str, kind: str | None) -> None:
    row = kind_of(text)
    assert (None if row is None else row.name) == kind


# ---------------------------------------------------------------------------------------------- targets
# Targets of probes: each class is restored from its values, and each kind has one.


EACH = (
    NoTarget(),
    SignalTarget("SIGUSR1"),
    NamedRunTarget("a"),
    KernelFunctionTarget("vfs_read", "ext4", 4),
    KernelFunctionTarget(address=2**63),
    TypedFunctionTarget("vfs_read", "vmlinux"),
    TypedFunctionTarget("hit", program_id=7, by_pattern=True),
    UserTarget("/bin/a", 0x40, symbol="main"),
    UserTarget("/bin/a", 0x40, by_pattern=True),
    StaticProbeTarget("/bin/a", 0x40, provider="p", name="n", semaphore_offset=8),
    PythonTarget(("a.py", "*/a.py"), "C.f"),
    TracepointTarget("sched", "sched_switch"),
    RawTracepointTarget("sched_switch", "vmlinux"),
    TimerTarget(frequency=99),
    TimerTarget(period_ns=10**9),
    CountedEventTarget("page-faults", 2, 100),
    WatchpointTarget(4096, 8, "rw"),
    IteratorTarget("task", "/sys/fs/bpf/list"),
)


@each_row("place", EACH, ids=repr)
def test_what_is_encoded_is_decoded(place: ProbeTarget) -> None:
    data = typed_json.encode(place)
    # mypy does not take a union for a class.
    assert typed_json.decode(data, cast(Any, AnyTarget)) == place
    with pytest.raises(msgspec.ValidationError):
        typed_json.decode(data.replace(b'"', b'"X', 1), cast(Any, AnyTarget))


def test_targets_differ_and_each_kind_has_one() -> None:
    assert {row.target for row in PROBE_KINDS} == {type(place) for place in EACH}
    assert len(set(EACH)) == len(EACH)


@pytest.mark.parametrize(
    ("place", "whole"),
    [
        (KernelFunctionTarget("f"), True),
        (KernelFunctionTarget("f", "m"), True),
        (KernelFunctionTarget("f", offset=1), False),
        (KernelFunctionTarget(address=0), False),
    ],
)
def test_start_of_a_function(place: KernelFunctionTarget, whole: bool) -> None:
    assert place.whole == whole


# ---------------------------------------------------------------------------------------------- system calls
# Numbers and registers of system calls.


def test_the_names_are_those_of_tracepoints() -> None:
    known = numbers("x86_64")
    assert [known[name] for name in ("read", "newfstat", "umount", "sendfile64", "openat", "restart_syscall")] == [
        0, 5, 166, 40, 257, 219,
    ]  # fmt: skip
    assert "fstat" not in known
    assert "umount2" not in known
    assert len(set(known.values())) == len(known)


def test_numbers_of_system_calls() -> None:
    known = numbers("aarch64")
    wanted = {"statfs": 43, "truncate": 45, "ftruncate": 46, "openat": 56, "lseek": 62, "read": 63, "newfstatat": 79,
              "newfstat": 80, "sendfile64": 71, "clone": 220, "mmap": 222, "wait4": 260, "openat2": 437}  # fmt: skip
    assert {name: known[name] for name in wanted} == wanted
    assert numbers("s390x") == {}
    assert call_names("x86_64")[335] == "uretprobe"
    assert call_names("aarch64")[244] == ""
    assert call_names("aarch64") == call_names("riscv64")
    assert call_names("sparc") == []


@pytest.mark.parametrize("machine", ABIS)
def test_registers_do_not_overlap(machine: str) -> None:
    abi = ABIS[machine]
    assert len({*abi.arguments, abi.number}) == 7
    assert all(offset % 8 == 0 for offset in (*abi.arguments, abi.number))


# ---------------------------------------------------------------------------------------------- function exits
# Functions are decoded from their start to their end, or not at all: a breakpoint elsewhere would corrupt them.


START = 0x1000


@each_row(
    ("code", "returns", "jumps"),
    [
        pytest.param("90 c3", [1], [], id="ret"),
        pytest.param("48c7c0c3909090 c3", [7], [], id="a number with the byte of a ret"),
        pytest.param("7402 f3c3 f2c3 c20800", [2, 4, 6], [], id="rep ret, bnd ret, ret N"),
        pytest.param("c3 0f1f00 c3 9090", [0, 4], [], id="padding at the end"),
        pytest.param("7401 c3 0f0b", [2], [], id="ends by ud2"),
        pytest.param("7401 c3 e800000000", [2], [], id="ends by a call that does not return"),
        pytest.param("eb00 c3 e9f8ffffff", [2], [], id="jumps inside"),
        pytest.param("31c0 e9f9efffff", [], [Jump(0x1002, 0)], id="tail call"),
        pytest.param("0f84fa000000 c3", [6], [Jump(0x1000, 0x1100, 4)], id="conditional tail call"),
        pytest.param("75fb c3", [2], [Jump(0x1000, 0xFFD, 5)], id="short conditional tail call"),
        pytest.param("ffe0", [], [Jump(0x1000, None)], id="tail call of a pointer"),
        pytest.param("ff2500000000", [], [Jump(0x1000, None)], id="tail call by the GOT"),
        pytest.param("ff6010", [], [Jump(0x1000, None)], id="tail call of a virtual method"),
        pytest.param("4863048a 4801d0 ffe0 c3", [9], [Jump(0x1007, None, ALWAYS, True)], id="table of distances"),
        pytest.param("ff24c500000000 c3", [7], [Jump(0x1000, None, ALWAYS, True)], id="table of addresses"),
        pytest.param("3effe0 c3", [3], [], id="notrack jump by a table"),
        pytest.param("ffd0 c3", [2], [], id="call of a pointer"),
    ],
)
def test_exits_of_x86_code(code: str, returns: list[int], jumps: list[Jump]) -> None:
    found = control_flow(bytes.fromhex(code), START, "x86_64")
    assert list(found.returns) == [START + at for at in returns]
    assert list(found.jumps) == jumps


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "no code"),
        ("31c0", "continues in what follows"),
        ("c3 31c0", "continues in what follows"),
        ("c3 90 06", "is not an instruction"),
        ("c3 48b8 0011", "ends inside an instruction"),
        ("7401 48c3 c3", "a branch leads into an instruction"),
        ("66e900000000 c3", "operand size prefix"),
        ("cb", "unusual branch"),
        ("cf", "unusual branch"),
        ("ff28 c3", "another segment"),
        ("e3fb c3", "loop instruction leads out"),
    ],
)
def test_code_that_is_in_doubt(code: str, reason: str) -> None:
    with pytest.raises(BadCodeError, match=reason):
        control_flow(bytes.fromhex(code), START, "x86_64")


def words(*instructions: int) -> bytes:
    return struct.pack(f"<{len(instructions)}I", *instructions)


def test_exits_of_aarch64_code() -> None:
    # cbz x0, +8; ret; retaa; b -16 (out of the function)
    found = control_flow(words(0xB4000040, 0xD65F03C0, 0xD65F0BFF, 0x17FFFFFC), START, "aarch64")
    assert (found.returns, found.jumps) == ((START + 4, START + 8), (Jump(START + 12, START - 4),))
    for code in (words(0xD61F0000), words(0xB4000080, 0xD65F03C0), words(0xD503201F), b"\xc0\x03"):
        with pytest.raises(BadCodeError):
            control_flow(code, START, "aarch64")
    with pytest.raises(BadCodeError, match="not supported"):
        control_flow(b"\0\0", START, "s390x")


# ---------------------------------------------------------------------------------------------- instruction starts
# .


@each_row(
    ("code", "size"),
    [
        ("90", 1),  # nop
        ("55", 1),  # push
        ("4889e5", 3),  # mov rbp, rsp
        ("488b4508", 4),  # mov rax, [rbp+8]
        ("8b048d00000000", 7),  # mov eax, [rcx*4+0]
        ("488d0511223344", 7),  # lea rax, [rip+…]
        ("48b81122334455667788", 10),  # movabs
        ("66b81122", 4),  # mov ax, imm16
        ("b811223344", 5),  # mov eax, imm32
        ("f6450801", 4),  # test byte [rbp+8], 1
        ("f7d8", 2),  # neg eax
        ("e811223344", 5),  # call
        ("0f8411223344", 6),  # je
        ("0f1f440000", 5),  # nop
        ("f30f1efa", 4),  # endbr64
        ("c8112233", 4),  # enter
        ("c21100", 3),  # ret imm16
        ("660f3a0fc108", 6),  # palignr
        ("660f3800c1", 5),  # pshufb
        ("c5f877", 3),  # vzeroupper
        ("c4e37d0fc108", 6),  # vpalignr
        ("62f1fe486f06", 6),  # vmovdqu64 zmm
        ("64488b042528000000", 9),  # mov rax, fs:0x28
        ("a11122334455667788", 9),  # mov eax, moffs
    ],
)
def test_lengths(code: str, size: int) -> None:
    assert instruction_length(bytes.fromhex(code) + b"\x90" * 16, 0, "x86_64") == size


@pytest.mark.parametrize(
    ("code", "opcode", "operand"),
    [
        ("4889e5", 0x89, 2),
        ("90", 0x90, -1),
        ("0f1f440000", 0x0F1F, 2),
        ("0f8411223344", 0x0F84, -1),
        ("660f3800c1", -1, 4),
        ("c5f877", -1, -1),
        ("62f1fe486f06", -1, 5),
    ],
)
def test_instruction_starts_parts(code: str, opcode: int, operand: int) -> None:
    found = Decoder(bytes.fromhex(code), 0)
    assert (found.opcode, found.operand, found.end) == (opcode, operand, len(code) // 2)


def test_starts() -> None:
    assert list(instruction_starts(bytes.fromhex("554889e5c3"), "x86_64")) == [0, 1, 4]
    assert list(instruction_starts(b"\0" * 12, "aarch64")) == [0, 4, 8]


@pytest.mark.parametrize(
    ("code", "machine"), [("06", "x86_64"), ("48", "x86_64"), ("66" * 16 + "90", "x86_64"), ("90", "vax")]
)
def test_no_instruction(code: str, machine: str) -> None:
    with pytest.raises(BadCodeError):
        instruction_length(bytes.fromhex(code), 0, machine)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
def test_like_the_disassembler() -> None:
    path = Path("/bin/true").resolve()
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-j", ".text", str(path)], capture_output=True, text=True, check=True
    ).stdout
    if "elf64-x86-64" not in text:
        pytest.skip("another machine")
    found = [(int(item[1], 16), item[2]) for item in re.finditer(r"^\s+([0-9a-f]+):\s+(.*)$", text, re.MULTILINE)]
    sections = subprocess.run(["objdump", "-h", str(path)], capture_output=True, text=True, check=True).stdout
    row = re.search(r"\.text\s+(\w+)\s+(\w+)\s+\w+\s+(\w+)", sections)
    assert row is not None
    size, base, offset = (int(item, 16) for item in row.groups())
    code = path.read_bytes()[offset : offset + size]
    for (at, shown), (following, _) in pairwise(found):
        if "(bad)" not in shown:
            assert instruction_length(code, at - base, "x86_64") == following - at, shown


# ---------------------------------------------------------------------------------------------- misread instructions
# Which instructions the kernel's uprobes misread: most were tried on Linux 6.1 and 6.18.


@each_row(
    "code",
    [
        "c5f970c01b",  # vpshufd
        "c5f974c1",  # vpcmpeqb
        "c5f97ec0",  # vmovd to a register
        "c5f877",  # vzeroupper
        "c5f8c2c101",  # vcmpltps
        "c5f9e8c1",  # vpsubsb
        "c5f9e9c1",  # vpsubsw
        "c5f9eac1",  # vpminsw: older kernels, newer ones refuse it
        "c5f9ebc1",  # vpor
        "c5f8900de23e0000",  # kmovw
        "c4e2719ac0",  # vfmsub132ps: older kernels
        "c4e2719dc0",  # vfnmadd132ss
        "c4e27978c0",  # vpbroadcastb
        "65c5f97f00",  # vmovdqa to gs:
        "62e1fd08ebc1",  # vporq
        "62f27d487ac7",  # vpbroadcastb of a register
        "62f27d08900400",  # vpgatherdd
        "8fe978e1c1",  # XOP: vpmacs…
        "4990",  # xchg rax, r8
        "4190",  # xchg eax, r8d
    ],
)
def test_misread(code: str) -> None:
    assert is_misread(bytes.fromhex(code))
    assert is_misread(bytes.fromhex(code) + b"\x90" * 8)


@each_row(
    "code",
    [
        "",
        "c5",
        "c5f9",
        "62f27d48",
        "55",  # push
        "90",  # nop
        "4890",  # nop with REX.W
        "6690",  # nop of two bytes
        "f390",  # pause
        "7a05",  # jp
        "e800000000",  # call
        "0f1f440000",  # nop of five bytes
        "f30f1efa",  # endbr64
        "660f70c01b",  # pshufd
        "660febc1",  # por
        "8f00",  # pop to memory
        "4157",  # push r15
        "c3",
        "c5f858c1",  # vaddps
        "c5f854c1",  # vandps
        "c5f850c0",  # vmovmskps
        "c4e27998c0",  # vfmadd132ps
        "c4e27958c1",  # vpbroadcastd
        "c4e3790fc103",  # vpalignr
        "62e17c405805773e0000",  # vaddps, EVEX
    ],
)
def test_others(code: str) -> None:
    assert not is_misread(bytes.fromhex(code))
