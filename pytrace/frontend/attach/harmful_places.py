"""Uprobe targets at which the kernel would corrupt the traced program: refused, or dropped from patterns.

The x86-64 red zone are the 128 bytes below the stack pointer that a leaf function may use without moving it.
Linux 6.18 replaces a nop of 5 bytes under a uprobe by a call after the first hit (``arch_uprobe_optimize``,
commit ba2bfc97b462), which overwrites the 32 bytes below the stack pointer. Later kernels do so with nops of 10 bytes
and move the stack pointer first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import UserSymbol
from pytrace.core.probes import instruction_starts, misread_instructions
from pytrace.core.probes.instruction_starts import BadCodeError, Decoder
from pytrace.core.probes.kinds import UPROBE, URETPROBE
from pytrace.core.probes.targets import FileTarget, UserTarget
from pytrace.core.source import Span
from pytrace.frontend.attach.providers.base import Match, Scope

_ENOUGH = 64
"""Bytes of code to read: the probed instruction (at most 15) and some after it."""
_OVERWRITES = (
    "this kernel replaces the 5-byte nop there by a call, which overwrites data that the function may keep below the "
    "stack pointer"
)


class _Harm(msgspec.Struct, frozen=True):
    """A match that must not be attached to: its *index* in all matches, and *hints* about alternatives."""

    index: int
    why: str
    hints: tuple[str, ...]


def leave_out(matches: list[Match], scope: Scope) -> list[Match]:
    """*matches* without those whose probe would corrupt the program, which are reported."""
    if scope.kernel.arch != "x86_64" or not scope.attaching:
        return matches
    by_path: dict[str, list[int]] = {}
    for index, match in enumerate(matches):
        if isinstance(match.place, FileTarget):
            by_path.setdefault(match.place.path, []).append(index)
    harms = [harm for path, indexes in by_path.items() for harm in _File(path, scope).harms(matches, indexes)]
    if not harms:
        return matches
    _report(matches, harms, scope)
    harmful = {harm.index for harm in harms}
    return [match for index, match in enumerate(matches) if index not in harmful]


class _File:
    """The code of one binary."""

    def __init__(self, path: str, scope: Scope) -> None:
        self._path = path
        self._scope = scope
        self._kernel = scope.kernel
        self._functions: list[UserSymbol] | None = None

    def harms(self, matches: Sequence[Match], indexes: Sequence[int]) -> list[_Harm]:
        """The harmful ones of the matches in this file."""
        offsets = [matches[index].of(FileTarget).offset for index in indexes]
        harmful = []
        for index, code in zip(indexes, self._kernel.user_codes(self._path, offsets, _ENOUGH), strict=True):
            match = matches[index]
            if misread_instructions.misread(code):
                harmful.append(self._misread(index, match, code))
            elif self._overwrites(match, code):
                hint = "a function compiled with -mno-red-zone can be probed there"
                harmful.append(_Harm(index, _OVERWRITES, (hint,)))
        return harmful

    def _misread(self, index: int, match: Match, code: bytes) -> _Harm:
        size = _length(code)
        shown = code[: size or 4].hex(" ")
        why = f"the kernel would misread the instruction there ({shown}) and corrupt the program"
        after = size
        while size and misread_instructions.misread(code[after:]):
            size = _length(code[after:])
            after += size
        return _Harm(index, why, self._next(match, after) if size else ())

    def _next(self, match: Match, distance: int) -> tuple[str, ...]:
        """A hint with the attach point *distance* bytes after *match*; none at the end of the function."""
        place = match.place
        if not isinstance(place, UserTarget) or match.kind.name not in (UPROBE, URETPROBE):
            return ()
        after = place.offset + distance
        if place.symbol:
            function = next(iter(self._kernel.user_symbols(self._path, place.symbol)), None)
            if function is None or after - function.offset >= function.size:
                return ()
            where = f"{place.symbol}+{after - function.offset}"
        else:
            function = self._function(after)
            if function is None:
                return ()
            where = f"{function.address + after - function.offset:#x}"
        return (f"the next instruction that can be probed: {UPROBE}:{self._path}:{where}",)

    def _overwrites(self, match: Match, code: bytes) -> bool:
        """Whether the probe is on a nop that becomes a call, in a function that may use its red zone."""
        offset = match.of(FileTarget).offset
        if not becomes_call(code, offset) or not self._scope.feature("nop5_uprobes"):
            return False
        function = self._function(offset)
        if function is None:
            return True
        before = self._kernel.user_code(self._path, function.offset, offset - function.offset)
        if at_entry(before):
            return False
        return used(self._kernel.user_code(self._path, function.offset, function.size))

    def _function(self, offset: int) -> UserSymbol | None:
        """The function at a file offset; a function of unknown size contains only its first instruction."""
        if self._functions is None:
            try:
                self._functions = self._kernel.user_symbols(self._path, "*")
            except TraceError:
                self._functions = []  # not an ELF file (--unsafe)
        return next((item for item in self._functions if 0 <= offset - item.offset < (item.size or 1)), None)


def _length(code: bytes) -> int:
    """Length of the first instruction of *code*; 0 if it is invalid."""
    try:
        return instruction_starts.length(code, 0, "x86_64")
    except instruction_starts.BadCodeError:
        return 0


def _report(matches: Sequence[Match], harms: Sequence[_Harm], scope: Scope) -> None:
    """Report an error for targets given by name, a warning for matches of patterns and for one of several locations."""
    groups: dict[Span, list[_Harm]] = {}
    for harm in harms:
        groups.setdefault(matches[harm.index].span, []).append(harm)
    for span, group in groups.items():
        together = [match for match in matches if match.span == span]
        if len(group) == len(together) and not any(_by_pattern(match) for match in together):
            for harm in group:
                scope.missing(f"cannot probe {matches[harm.index].probe}: {harm.why}", span, harm.hints)
        else:
            _warn(matches, group, len(together), span, scope)


def _by_pattern(match: Match) -> bool:
    return match.wild or (isinstance(match.place, FileTarget) and match.place.by_pattern)


def _warn(matches: Sequence[Match], harms: Sequence[_Harm], count: int, span: Span, scope: Scope) -> None:
    if scope.quiet or scope.config.missing_probes == "ignore":
        return
    probes = "probe" if count == 1 else "probes"
    message = f"{len(harms)} of {count} {probes} left out: the kernel would corrupt the program there"
    scope.diagnostics.warn(message, span, hints=() if scope.options.verbose else ("-v shows which",))
    if scope.options.verbose:
        for harm in harms:
            scope.diagnostics.note(f"left out {matches[harm.index].probe}: {harm.why}", span)


# ---------------------------------------------------------------------------------------------- the red zone


NOP5 = 5
"""Length of a nop that becomes a call."""
_PAGE = 4096
_ENDBR64 = bytes.fromhex("f30f1efa")
_CALL, _GROUP_5 = 0xE8, 0xFF
_RSP, _RBP = 4, 5


def becomes_call(code: bytes, offset: int) -> bool:
    """Whether *code*, at a file offset, starts with a nop that the kernel replaces by a call."""
    try:
        instruction = Decoder(code, 0)
    except (BadCodeError, IndexError):
        return False
    if instruction.end != NOP5 or offset % _PAGE > _PAGE - NOP5:
        return False  # the kernel does not write across pages
    nop = instruction.opcode == 0x90
    long_nop = instruction.opcode == 0x0F1F and code[instruction.operand] >> 3 & 7 == 0
    return nop or long_nop


def at_entry(before: bytes) -> bool:
    """Whether the red zone is still unused after *before*, the function's code up to the probe."""
    return before in (b"", _ENDBR64)


def used(code: bytes) -> bool:
    """Whether a function may use its red zone: it is a leaf function with operands below its stack pointer.

    Compilers use the red zone in leaf functions only, since a call would overwrite it. True for undecodable code.
    """
    offset, below = 0, False
    try:
        while offset < len(code):
            instruction = Decoder(code, offset)
            if _calls(code, instruction):
                return False
            below = below or _below_stack(code, instruction)
            offset = instruction.end
    except (BadCodeError, IndexError):
        return True
    return below


def _calls(code: bytes, instruction: Decoder) -> bool:
    if instruction.opcode == _GROUP_5:
        return code[instruction.operand] >> 3 & 7 in (2, 3)
    return instruction.opcode == _CALL


def _below_stack(code: bytes, instruction: Decoder) -> bool:
    """Whether the operand is memory at a negative offset from rsp or rbp (r12 and r13 are taken for them)."""
    offset = instruction.operand
    if offset < 0:
        return False
    mode, register = code[offset] >> 6, code[offset] & 7
    if mode not in (1, 2):
        return False
    displacement = offset + 1
    if register == _RSP:
        register = code[displacement] & 7
        displacement += 1
    highest = displacement if mode == 1 else displacement + 3
    return register in (_RSP, _RBP) and code[highest] >= 0x80
