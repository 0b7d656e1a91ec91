"""Programs that the kernel's verifier refuses, one for each class of refusals, as scripts for the loader.

pytrace generates no such programs, so these are BPF instructions written by hand: lines of a made-up script
``refused.bt``, each with the instructions that it stands for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pytrace.codegen.ir import target
from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.module import Module
from pytrace.core.event_layout import Location
from pytrace.core.manifest import CompiledScript, Manifest, MapSpec, MapType, ProgramSpec, Target
from pytrace.core.options import Config
from pytrace.core.probe_kinds import AnyTarget, NoTarget, RawTracepointTarget
from pytrace.core.source import Source, Span
from pytrace.core.types import UINT64

FILE = "refused.bt"
ONE = MapSpec("@one", "one", "hash", UINT64, UINT64, 1)
PLACEHOLDER = 0x7E57
"""Number of the helper whose calls stand for the instructions until LLVM has assembled the program."""

_CALL = struct.pack("<BBhi", 0x85, 0, 0, PLACEHOLDER)

LOAD, STORE, MOVE, SET, CALL, GO = 0x79, 0x7B, 0xBF, 0xB7, 0x85, 0x05
ADD, MULTIPLY, AND, ADD_REGISTER = 0x07, 0x27, 0x57, 0x0F
IF_EQUAL, IF_GREATER, IF_LESS = 0x15, 0x25, 0xA5
"""Operations on 64 bits; those of the last two lines have a number as operand, but for the fourth."""


@dataclass(frozen=True)
class Code:
    """An instruction, as in the kernel's ``struct bpf_insn``."""

    operation: int
    target: int = 0
    source: int = 0
    offset: int = 0
    number: int = 0

    @property
    def data(self) -> bytes:
        return struct.pack("<BBhi", self.operation, self.source << 4 | self.target, self.offset, self.number)


@dataclass(frozen=True)
class Map:
    """Loads the address of a map into register 1."""

    symbol: str


@dataclass(frozen=True)
class Function:
    """Calls the made-up script's function."""


@dataclass(frozen=True)
class Line:
    """A line of the script, and its instructions."""

    text: str
    code: tuple[Code | Map | Function, ...]


_NOWHERE = NoTarget()


@dataclass(frozen=True)
class Refused:
    """A program that the verifier refuses.

    Lines are numbered from 2, the first is that of the probe; those of *function* come last. *line* is that of the
    place in the message (0: anywhere in the program), *says* a part of its sentence, and *hint* of the hint.
    *since* is the first kernel that refuses it, *until* the first that accepts it.
    """

    name: str
    lines: tuple[Line, ...]
    line: int
    says: str
    hint: str
    function: tuple[Line, ...] = ()
    place: AnyTarget = _NOWHERE
    since: tuple[int, int] = (5, 10)
    until: tuple[int, int] = (99, 0)


_ZERO, _NOTHING = Code(SET, 0), Code(GO)
_ON_STACK = (Code(SET, 1), Code(STORE, 10, 1, -8), Code(MOVE, 2, 10), Code(ADD, 2, number=-8))
_KEY = Line("@one[0]", (*_ON_STACK, Map("one"), Code(CALL, number=1)))
"""``r0 = bpf_map_lookup_elem(&one, &0)``."""
_FIRST = Line("$x = 1;", (Code(SET, 6, number=1),))
_NUMBER = Line("$n = rand();", (Code(CALL, number=7), Code(MOVE, 6, 0)))
_FOUND = Line("if ($p) {", (Code(IF_EQUAL, 0, offset=2),))
_BIG = Line("$big = (char[304])0;", (Code(SET, 1), Code(STORE, 10, 1, -304)))
_TURNS = (Code(SET, 6), Code(ADD, 6, number=1), Code(IF_LESS, 6, offset=-2, number=900_000))
_BRANCHES = tuple(Code(IF_GREATER, 6, number=number) for number in range(9999, 0, -1))
_RESERVED = (Map("events"), Code(SET, 2, number=16), Code(SET, 3), Code(CALL, number=131))
_PACKET = (Code(SET, 2), Code(MOVE, 3, 10), Code(ADD, 3, number=-8), Code(SET, 4, number=8), Code(CALL, number=26))
_TASK = RawTracepointTarget("sched_process_exit", "vmlinux")

PROGRAMS = (
    Refused("stack", (_FIRST, Line("$big = (char[520])0;", (Code(SET, 1), Code(STORE, 10, 1, -520)))), 3,
            "accesses stack beyond the 512 bytes", "max_strlen"),
    Refused("stack_of_calls", (_BIG, Line("f();", (Function(),))), 1, "more stack together than the 512 bytes",
            "macros instead of fn", function=(_BIG,), until=(6, 13)),
    Refused("loop", (_FIRST, Line("while ($x) { }", (Code(IF_GREATER, 6, offset=-1),))), 3, "does not see the loop end",
            "constant bound"),
    Refused("instructions", (_FIRST, Line("while ($x < 900000) { $x++; }", _TURNS)), 3, "a million instructions",
            "shorter loops"),
    Refused("branches", (_NUMBER, Line("if ($n) { }", _BRANCHES)), 3,
            "more branches than the verifier follows", "8192"),
    Refused("pointer", (Line("$p = ctx;", (Code(MOVE, 6, 10),)), Line("$p * 2", (Code(MULTIPLY, 6, number=2),))), 3,
            "arithmetic on a pointer", "(uint64)$p"),
    Refused("pointer_bits", (Line("ctx & 7", (Code(AND, 1, number=7),)),), 2, "arithmetic on a pointer", "(uint64)$p"),
    Refused("helper", (_FIRST, Line("future();", (Code(CALL, number=99_999),))), 3, "does not offer the function",
            "another kind of probe"),
    Refused("helper_of_type", (Line("packet(ctx);", _PACKET),), 2,
            "does not offer the function bpf_skb_load_bytes#26", "another kind of probe"),
    Refused("register", (_FIRST, Line("$y = $x;", (Code(MOVE, 6, 7),))), 3, "was not set on this path",
            "on every path"),
    # Linux accepts it from 6.3 on; Debian's 6.1 has that change, too.
    Refused("stack_read", (_FIRST, Line("$y = $x;", (Code(LOAD, 6, 10, -8),))), 3, "was not set on this path",
            "on every path", until=(6, 1)),
    Refused("memory", (_NUMBER, Line("*(uint64 *)$n", (Code(LOAD, 6, 6),))), 3, "memory that it may not",
            "check an index"),
    Refused("map_value", (_KEY, _FOUND, Line("$p[1] }", (Code(LOAD, 6, 0, 8), _ZERO))), 4, "memory that it may not",
            "check an index"),
    Refused("index", (_NUMBER, _KEY, _FOUND, Line("$p[$n] }", (Code(ADD_REGISTER, 0, 6), Code(LOAD, 6, 0)))), 5,
            "memory that it may not", "check an index"),
    Refused("null", (_KEY, Line("*$p", (Code(LOAD, 6, 0),))), 3, "may be null", "check the pointer first"),
    Refused("context", (_FIRST, Line("args.nothing", (Code(LOAD, 6, 1, 4096),))), 3, "the probe's context has nothing",
            "-lv PROBE"),
    Refused("held", (Line("$e = reserve();", _RESERVED), _FIRST), 2, "keeps a lock, or memory", "on every path"),
    Refused("types", (Line("$t = args.p;", (Code(LOAD, 6, 1),)), Line("$t.far", (Code(LOAD, 6, 6, 32000),))), 3,
            "type information", "compare the types", place=_TASK),
    Refused("code", (_FIRST, Line("$y = 0;", (Code(0xFF),))), 0, "does not know an instruction", "5.12"),
)  # fmt: skip


def source(refused: Refused) -> Source:
    """The made-up script."""
    lines = ["begin {", *(f"  {line.text}" for line in (*refused.lines, *refused.function))]
    return Source(FILE, "\n".join(lines) + "\n}\n")


def script(refused: Refused, log_size: int = Config().log_size) -> CompiledScript:
    """The program for the loader."""
    text = source(refused)
    module = Module(text, "GPL")
    module.map("one", {"type": MapType.HASH, "key_size": 8, "value_size": 8, "max_entries": 1})
    spans = _spans(text)
    probe = module.function("refused", ("*ctx",), spans[0], entry=True)
    _write(module, probe, refused.lines, spans[1:])
    codes = list(refused.lines)
    if refused.function:
        function = module.function("f", (), spans[1 + len(refused.lines)])
        _write(module, function, refused.function, spans[1 + len(refused.lines) :])
        codes += refused.function
    elf = target.elf(target.parse(module.text(0, 0)))
    for code in [code for line in codes for code in line.code if not isinstance(code, Function)]:
        elf = elf.replace(_CALL, code.data if isinstance(code, Code) else _NOTHING.data, 1)
    kind = "begin" if isinstance(refused.place, NoTarget) else "rawtracepoint"
    location = Location(FILE, 1, 1, 0, "begin {")
    multi = "" if kind == "begin" else "raw_tracepoint"
    spec = ProgramSpec("refused", kind, 0, (Target(kind, 0, refused.place),), location, multi)
    return CompiledScript(elf, Manifest((spec,), (ONE,), (), (), Config(log_size=log_size)))


def _spans(text: Source) -> list[Span]:
    """Each line without its indentation."""
    spans, start = [], 0
    for line in text.text.split("\n"):
        spans.append(Span(text, start + len(line) - len(line.lstrip()), start + len(line)))
        start += len(line) + 1
    return spans


def _write(module: Module, builder: Builder, lines: tuple[Line, ...], spans: list[Span]) -> None:
    for line, span in zip(lines, spans, strict=False):
        builder.location = module.debug.location(builder.scope, span, span.source)
        for code in line.code:
            if isinstance(code, Function):
                builder._define("call i64 @f()")
            else:
                argument = f"ptr @{code.symbol}" if isinstance(code, Map) else ""
                builder._define(f"call i64 inttoptr (i64 {PLACEHOLDER} to ptr)({argument})")
    builder.ret(0)
