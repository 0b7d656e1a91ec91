"""Names in output in place of numbers: symbols of addresses, stacks, users, times, cgroups, flags."""

from __future__ import annotations

import os
from functools import lru_cache, partial
from itertools import repeat
from typing import TYPE_CHECKING, Never, Protocol, TypeVar

from pytrace.core.types import TRUNCATED, TRUNCATED_NAME, Stack, StackMode
from pytrace.render.text import strftime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

F = TypeVar("F")


class NamedFrame(Protocol):
    """One function of an address, as the symbolizer finds it."""

    @property
    def name(self) -> str:
        """The function; empty when unknown."""

    @property
    def offset(self) -> int:
        """Bytes from the start of the function."""

    @property
    def module(self) -> str:
        """Kernel module or path of the binary."""

    @property
    def file(self) -> str:
        """Source file, empty when unknown."""

    @property
    def line(self) -> int:
        """Source line."""

    @property
    def inlined(self) -> bool:
        """True for a function that was inlined into the next one."""


class Symbols(Protocol):
    """The part of the symbolizer that output uses."""

    def kernel(self, address: int, *, caller: bool = False) -> Sequence[NamedFrame]:
        """Functions of a kernel address, inlined ones first; *caller*: of the call before it."""

    def user(self, pid: int, address: int, *, caller: bool = False) -> Sequence[NamedFrame]:
        """Functions of an address of a process, inlined ones first; *caller*: of the call before it."""

    def trampoline(self, pid: int, address: int) -> bool:
        """True if handlers of signals return to this address of a process."""


class Clock(Protocol):
    """The part of the kernel's clocks that output uses."""

    def wall(self, nanoseconds: int, clock: int = ...) -> int:
        """Wall time (nanoseconds since 1970) of a reading of *clock* (:class:`pytrace.core.types.Timestamp`)."""


class HostNames(Protocol):
    """Names that the machine of the run has."""

    def interface(self, index: int) -> str | None:
        """The name of a network interface; None where there is none."""

    def network_namespace(self, inode: int) -> str | None:
        """The name of a network namespace; None where it has none."""

    def cgroup(self, identity: int, pattern: str) -> str:
        """``hierarchy:path`` of a cgroup id, in the hierarchies that match *pattern*."""


RUNNING = -16
"""-EBUSY: the stack of a task that is on a CPU while an iterator visits it (``codegen.walkers.user_stacks``)."""

NO_STACK = -14
"""-EFAULT: what the stack helpers return where there is no such stack (a kernel thread has no user stack)."""

_REMEMBERED = 1 << 16
"""Frames whose lines are remembered."""


class ValueNames(Protocol):
    """Names for text forms; the values are decoded ones, or the portable ones of a snapshot."""

    def kernel_symbol(self, address: Never) -> bytes:
        """The function at a kernel address."""

    def user_symbol(self, value: Never) -> bytes:
        """The function at an address of a process."""

    def user(self, identity: Never) -> bytes:
        """The name of a user."""

    def interface(self, index: Never) -> bytes:
        """The name of a network interface."""

    def network_namespace(self, inode: Never) -> bytes:
        """The name of a network namespace."""

    def timestamp(self, value: Never) -> bytes:
        """A time by its format."""

    def cgroup(self, value: Never) -> bytes:
        """The path of a cgroup."""

    def stack(self, type_: Stack, indent: bytes = ...) -> Callable[[Never], bytes]:
        """The text form of stacks of a type."""

    def many_stacks(self, type_: Stack, indent: bytes = ...) -> Callable[[Never], bytes]:
        """As :meth:`stack`, for very many of them at one moment."""

    def frames(self, type_: Stack, /, *, lines: bool, offsets: bool) -> Callable[[Never], list[bytes]]:
        """The names of a stack's functions, the innermost first, with files and lines and with offsets if wanted."""


class Names:
    """Resolves what values refer to. *strings* is the manifest's string table."""

    def __init__(self, symbols: Symbols, clock: Clock, strings: Sequence[str], host: HostNames) -> None:
        self._symbols = symbols
        self._clock = clock
        self._strings = strings
        self._host = host
        self._users: dict[int, bytes] = {}
        self._kernel_lines: dict[tuple[int, bool, bool, bytes], bytes] = {}

    def kernel_symbol(self, address: int) -> bytes:
        """The function at a kernel address, without offset."""
        return _function(self._symbols.kernel(address), address)

    def user_symbol(self, value: tuple[int, int]) -> bytes:
        """The function at ``(process, address)``, without offset."""
        process, address = value
        return _function(self._symbols.user(process, address), address)

    def user(self, identity: int) -> bytes:
        """The name of a user id; the number where the system knows no name."""
        name = self._users.get(identity)
        if name is None:
            import pwd

            try:
                name = os.fsencode(pwd.getpwuid(identity).pw_name)
            except (KeyError, OverflowError):
                name = b"%d" % identity
            if len(self._users) >= _REMEMBERED:
                self._users.clear()  # ids of user namespaces are any numbers
            self._users[identity] = name
        return name

    def interface(self, index: int) -> bytes:
        """The name of a network interface; its index where there is none."""
        name = self._host.interface(index)
        return b"%d" % (index - (index >> 63 << 64)) if name is None else os.fsencode(name)

    def network_namespace(self, inode: int) -> bytes:
        """The name of a network namespace; its inode number where it has none."""
        name = self._host.network_namespace(inode)
        return b"%d" % inode if name is None else os.fsencode(name)

    def timestamp(self, value: tuple[int, int, int]) -> bytes:
        """A time by the format that belongs to it."""
        nanoseconds, layout, clock = value
        return strftime(self._strings[layout], self._clock.wall(nanoseconds, clock))

    def cgroup(self, value: tuple[int, int]) -> bytes:
        """``hierarchy:path`` of a cgroup id, by the filter that belongs to it."""
        identity, pattern = value
        return os.fsencode(self._host.cgroup(identity, self._strings[pattern]))

    def stack(self, type_: Stack, indent: bytes = b"        ") -> Callable[[Never], bytes]:
        """The text form of decoded stacks of type *type_* (:class:`StackForm`)."""
        form = StackForm(type_, indent)
        if type_.mode is StackMode.BUILD_ID:
            return _lines_text(form, partial(_build_id_line, form))
        return self._one_line(form) if type_.mode.one_line else _lines_text(form, self._lines(form))

    def many_stacks(self, type_: Stack, indent: bytes = b"        ") -> Callable[[Never], bytes]:
        """As :meth:`stack`, for very many of them at one moment: the lines of a frame are remembered."""
        if type_.mode is StackMode.BUILD_ID or type_.mode.one_line:
            return self.stack(type_, indent)
        form = StackForm(type_, indent)
        return _lines_text(form, lru_cache(_REMEMBERED)(self._lines(form)))

    def frames(self, type_: Stack, /, *, lines: bool, offsets: bool) -> Callable[[Never], list[bytes]]:
        """The names of a decoded stack's functions, the innermost first.

        Of a mode with a text of its own, its lines.
        """
        if type_.mode is not StackMode.BPFTRACE:
            whole = self.stack(type_, b"")
            return lambda value: [line.strip() for line in whole(value).split(b"\n") if line.strip()]
        functions = self._user_frames if type_.user else self._kernel_frames

        @lru_cache(_REMEMBERED)
        def named(process: int, address: int, inner: int | None) -> list[bytes]:
            return frame_names(functions(process, address, inner), address, lines=lines, offsets=offsets)

        def texts(value: tuple[int, tuple[int, ...], int]) -> list[bytes]:
            process, addresses, error = value
            if why := unread(error):
                return [unread_name(why)]
            return [
                line
                for address, inner in zip(addresses, (None, *addresses), strict=False)
                for line in ([TRUNCATED_NAME.encode()] if address == TRUNCATED else named(process, address, inner))
            ]

        return texts

    def _lines(self, form: StackForm) -> Callable[[int, int, int | None], bytes]:
        """``line(process, frame, inner)``, where *inner* is the frame before.

        All but the innermost are where functions return to, one instruction after the call; but what a signal
        interrupted, which stands after the place that its handler returns to, called nothing.
        """
        if form.type.mode is StackMode.RAW:
            return lambda _process, address, _inner: form.place(address)
        if form.type.user:
            return lambda process, address, inner: (
                form.truncated
                if address == TRUNCATED
                else form.symbols(self._user_frames(process, address, inner), address)
            )
        perf = form.type.mode is StackMode.PERF

        def kernel(_process: int, address: int, inner: int | None) -> bytes:
            if address == TRUNCATED:
                return form.truncated
            key = (address, inner is not None, perf, form.indent)
            lines = self._kernel_lines.get(key)
            if lines is None:
                if len(self._kernel_lines) >= _REMEMBERED:
                    self._kernel_lines.clear()
                frames = self._kernel_frames(0, address, inner)
                lines = self._kernel_lines[key] = form.symbols(frames, address)
            return lines

        return kernel

    def _one_line(self, form: StackForm) -> Callable[[tuple[int, tuple[int, ...], int]], bytes]:
        functions = self._user_frames if form.type.user else self._kernel_frames

        def text(value: tuple[int, tuple[int, ...], int]) -> bytes:
            process, addresses, error = value
            if why := unread(error):
                return form.unread(why)
            words: list[str] = []
            for address, inner in zip(addresses, (None, *addresses), strict=False):
                if address == TRUNCATED:
                    words.append(TRUNCATED_NAME)
                    continue
                frames = functions(process, address, inner)
                words.extend([form.word(frame, address) for frame in frames] or [f"0x{address:x}"])
            return form.joined(words)

        return text

    def _user_frames(self, process: int, address: int, inner: int | None) -> Sequence[NamedFrame]:
        # A call that never returns may be the end of its function: another one begins at the return address. But no
        # call is before code that signal handlers return to, and before what a signal interrupted.
        returns = self._symbols.trampoline
        calls = inner is not None and not returns(process, inner) and not returns(process, address)
        return self._symbols.user(process, address, caller=calls)

    def _kernel_frames(self, _process: int, address: int, inner: int | None) -> Sequence[NamedFrame]:
        frames = self._symbols.kernel(address)
        return self._symbols.kernel(address, caller=True) if inner is not None and in_source(frames) else frames


def _lines_text(
    form: StackForm, line: Callable[[int, F, F | None], bytes]
) -> Callable[[tuple[int, tuple[F, ...], int]], bytes]:
    """The text of a stack whose frames print as *line* says."""

    def text(value: tuple[int, tuple[F, ...], int]) -> bytes:
        process, frames, error = value
        why = unread(error)
        if why:
            return form.unread(why)
        return b"\n" + b"".join(map(line, repeat(process), frames, (None, *frames)))

    return text


def _build_id_line(form: StackForm, _process: int, frame: tuple[int, bytes, int], _inner: object) -> bytes:
    status, identity, place = frame
    valid = status == 1  # BPF_STACK_BUILD_ID_VALID
    return form.build_id(identity.hex() if valid else "", place)


def unread(error: int) -> str:
    """Why a stack with this error was not read; empty when it was, or there is none."""
    if error == RUNNING:
        return "running"
    return os.strerror(-error) if error and error != NO_STACK else ""


def unread_name(why: str) -> bytes:
    """What stands for the frames of a stack that was not read."""
    return os.fsencode(f"[{why}]" if why == unread(RUNNING) else f"[no stack: {why}]")


def in_source(frames: Sequence[NamedFrame]) -> bool:
    """True if source lines are known, and the byte before the address belongs to the same function."""
    return bool(frames) and bool(frames[-1].file) and frames[-1].offset > 0


def _function(frames: Sequence[NamedFrame], address: int) -> bytes:
    if not frames:
        return b"0x%x" % address
    return os.fsencode(frames[-1].name) if frames[-1].name else _unnamed(frames[-1], address)


def _unnamed(frame: NamedFrame, address: int) -> bytes:
    """The text of an address without a known function: the binary and the offset in it, as it was linked."""
    if not frame.module or not frame.offset:
        return b"0x%x" % address
    return b"%s+0x%x" % (os.fsencode(os.path.basename(frame.module)), frame.offset)


_ESCAPES = {";": ":", **{chr(code): f"\\x{code:02x}" for code in (*range(32), 127)}}
_TABLE = str.maketrans(_ESCAPES)
"""A semicolon ends a frame of a stack on one line; a line is a line."""


class StackForm:
    """The parts that the text of stacks of a type consists of, and how they are joined.

    It is an empty line, then lines for each frame; or in a mode with one line words of frames with semicolons between
    them, empty for no frames: root first for ``folded`` and ``annotated``, as flame graphs read them, or ``inverted``.
    """

    def __init__(self, type_: Stack, indent: bytes) -> None:
        self.type, self.indent = type_, indent
        self._perf = type_.mode is StackMode.PERF
        self._line = _perf_line if self._perf else _plain_line
        line = f"\t0 {TRUNCATED_NAME} ([unknown])\n" if self._perf else f"{TRUNCATED_NAME}\n"
        indented = type_.mode not in (StackMode.RAW, StackMode.BUILD_ID, StackMode.PERF)
        self.truncated = (indent if indented else b"") + line.encode()
        """The line after the last frame of a truncated stack."""

    def unread(self, why: str) -> bytes:
        """The text of a stack that could not be read."""
        name = unread_name(why)
        return name if self.type.mode.one_line else b"\n%s%s\n" % (self.indent, name)

    def place(self, place: int) -> bytes:
        """A frame by its address."""
        return self.truncated if place == TRUNCATED else b"%x\n" % place

    def build_id(self, identity: str, place: int) -> bytes:
        """A frame by the build id of its binary (empty when the kernel found none) and its place in there."""
        return b"%s 0x%02x\n" % (identity.encode(), place) if identity else self.place(place)

    def symbols(self, frames: Sequence[NamedFrame], address: int) -> bytes:
        """The lines of one place: inlined functions first; in the mode ``perf`` as ``perf script`` prints them."""
        indent = self.indent
        if not frames:
            return (b"\t%x 0x%x ([unknown])\n" % (address, address)) if self._perf else b"%s0x%x\n" % (indent, address)
        if len(frames) == 1:
            return self._line(frames[0], address, indent)
        return b"".join(self._line(frame, address, indent) for frame in frames)

    def word(self, frame: NamedFrame, address: int) -> str:
        """The name of a frame on one line: the function, else the binary in brackets, else the address."""
        name = frame.name.translate(_TABLE)
        if not name and frame.module:
            base = os.path.basename(frame.module)
            name = base if base.startswith("[") else f"[{base}]"
        if self.type.mode is StackMode.ANNOTATED:
            mark = "_[i]" if frame.inlined else "" if self.type.user else "_[k]"
            return f"{name or f'0x{address:x}'}{mark}"
        return name or f"0x{address:x}"

    def joined(self, words: Iterable[str]) -> bytes:
        """The line of frames whose words come innermost first."""
        listed = list(words)
        if self.type.mode is not StackMode.INVERTED:
            listed.reverse()
        return os.fsencode(";".join(listed))


def frame_names(frames: Sequence[NamedFrame], address: int, *, lines: bool, offsets: bool) -> list[bytes]:
    """The functions at one place of a stack, inlined ones first: names, if wanted with offsets and source lines."""
    named = []
    for frame in frames:
        spot = _spot(frame) if offsets else frame.name
        place = f" ({frame.file}:{frame.line})" if lines and frame.file else ""
        named.append(os.fsencode(f"{spot}{place}") if frame.name else _unnamed(frame, address))
    return named or [b"0x%x" % address]


def _plain_line(frame: NamedFrame, address: int, indent: bytes) -> bytes:
    if not frame.name:
        return b"%s%s\n" % (indent, _unnamed(frame, address))
    place = f"@{frame.file}:{frame.line}" if frame.file else ""
    return b"%s%s%s\n" % (indent, b"[inlined] " if frame.inlined else b"", os.fsencode(f"{_spot(frame)}{place}"))


def _spot(frame: NamedFrame) -> str:
    """Function and offset; what was inlined has no start of its own to count from."""
    return frame.name if frame.inlined else f"{frame.name}+{frame.offset}"


def _perf_line(frame: NamedFrame, address: int, _indent: bytes) -> bytes:
    if not frame.name:
        module = os.fsencode(frame.module) if frame.offset else b""
        return b"\t%x %s (%s)\n" % (address, _unnamed(frame, address), module or b"[unknown]")
    behind = b" (inlined)" if frame.inlined else (b" (%s)" % os.fsencode(frame.module) if frame.module else b"")
    return b"\t%x %s%s\n" % (address, os.fsencode(_spot(frame)), behind)


# -------------------------------------------------------------------------------------------- flags of page allocation

_GFP_NAMES = (
    "DMA", "HIGHMEM", "DMA32", "MOVABLE", "RECLAIMABLE", "HIGH", "IO", "FS", "ZERO", "", "DIRECT_RECLAIM",
    "KSWAPD_RECLAIM", "WRITE", "NOWARN", "RETRY_MAYFAIL", "NOFAIL", "NORETRY", "MEMALLOC", "COMP", "NOMEMALLOC",
    "HARDWALL", "THISNODE", "ACCOUNT", "ZEROTAGS",
)  # fmt: skip

GFP_BITS: dict[str, int] = {f"__GFP_{name}": 1 << index for index, name in enumerate(_GFP_NAMES) if name}
"""The single bits, lowest first."""

_RECLAIM = GFP_BITS["__GFP_DIRECT_RECLAIM"] | GFP_BITS["__GFP_KSWAPD_RECLAIM"]
_KERNEL = _RECLAIM | GFP_BITS["__GFP_IO"] | GFP_BITS["__GFP_FS"]
_USER = _KERNEL | GFP_BITS["__GFP_HARDWALL"]
_HIGHUSER = _USER | GFP_BITS["__GFP_HIGHMEM"]
_MOVABLE = _HIGHUSER | GFP_BITS["__GFP_MOVABLE"]
_LIGHT = (_MOVABLE | GFP_BITS["__GFP_COMP"] | GFP_BITS["__GFP_NOMEMALLOC"] | GFP_BITS["__GFP_NOWARN"]) & ~_RECLAIM

GFP_COMPOUNDS: tuple[tuple[str, int], ...] = (
    ("GFP_TRANSHUGE", _LIGHT | GFP_BITS["__GFP_DIRECT_RECLAIM"]),
    ("GFP_TRANSHUGE_LIGHT", _LIGHT),
    ("GFP_HIGHUSER_MOVABLE", _MOVABLE),
    ("GFP_HIGHUSER", _HIGHUSER),
    ("GFP_USER", _USER),
    ("GFP_KERNEL_ACCOUNT", _KERNEL | GFP_BITS["__GFP_ACCOUNT"]),
    ("GFP_KERNEL", _KERNEL),
    ("GFP_NOFS", _RECLAIM | GFP_BITS["__GFP_IO"]),
    ("GFP_NOIO", _RECLAIM),
    ("GFP_ATOMIC", GFP_BITS["__GFP_HIGH"] | GFP_BITS["__GFP_KSWAPD_RECLAIM"]),
    ("GFP_NOWAIT", GFP_BITS["__GFP_KSWAPD_RECLAIM"]),
    ("GFP_DMA32", GFP_BITS["__GFP_DMA32"]),
    ("GFP_DMA", GFP_BITS["__GFP_DMA"]),
)
"""Combinations that have names, those with more bits before those that they contain."""


def gfp_names(flags: int) -> bytes:
    """The names of *flags* joined by ``|``: compounds first, then single bits, then what has no name in hex."""
    if not flags:
        return b"0"
    texts, rest = [], flags
    for table in (GFP_COMPOUNDS, GFP_BITS.items()):
        for name, bits in table:
            if rest & bits == bits:
                texts.append(name)
                rest &= ~bits
    if rest:
        texts.append(f"{rest:#x}")
    return "|".join(texts).encode()
