"""uprobe and uretprobe: functions, offsets, addresses and source lines of user programs; python and pythonret."""

from __future__ import annotations

import re
import shlex
from collections.abc import Hashable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from pytrace.core import instructions
from pytrace.core.diagnostics import TraceError
from pytrace.core.instructions import BadCodeError, Decoder
from pytrace.core.kernel_info import DefinedEvent, IndirectFunction, KernelInfo, UserParameter, UserSymbol
from pytrace.core.probe_kinds import UPROBE, URETPROBE, FileTarget, PythonTarget, UserTarget
from pytrace.core.source import Span
from pytrace.core.types import AddressSpace, Pointer, String, Struct
from pytrace.frontend.probes import contexts
from pytrace.frontend.probes.contexts import SLOT, args_struct, in_space, location, registers, returning
from pytrace.frontend.probes.functions import SUGGEST_FROM, made_of, split_offset
from pytrace.frontend.probes.providers import (
    BinaryProvider,
    Match,
    Part,
    Point,
    Scope,
    UserFunction,
    Uses,
    by_pattern,
    nearest,
    number_of,
)
from pytrace.frontend.syntax.typed_program import (
    CountedText,
    ProbeArgument,
    ProbeContext,
    PythonValue,
    RegisterLocation,
    RegisterParts,
    Unreadable,
)

# ------------------------------------------------------------------------------------------------------------- binaries

# Resolves the binary of a uprobe or USDT probe to paths.


_GLOB = frozenset("*?[")

_UNREADABLE = Unreadable("in a floating-point register")

_IN_VECTOR = String(len(_UNREADABLE.text) + 1)
"""The type of what ``args`` shows in place of a value in a floating-point register."""


def is_glob(text: str) -> bool:
    """Whether a target is a glob pattern."""
    return bool(_GLOB & set(text))


def resolve_binary(target: Part | None, span: Span, scope: Scope) -> list[str]:
    """Paths of the binaries that *target* names; None means the program of ``-p``. Empty after an error."""
    pid = scope.options.filters.pid
    if target is None or not target.text:
        if pid is None:
            name = span.source.text[span.start : span.end].rpartition(":")
            written = f"{name[0] or 'usdt'}:/path/to/program:{name[2]}"
            scope.error("the program of the probe is missing", span, [f"write {written}, or name a process by -p"])
            return []
        paths = scope.kernel.binaries(f"/proc/{pid}/exe", pid)
        if not paths:
            scope.missing(f"the program of process {pid} cannot be found", span)
        return paths
    paths = scope.kernel.binaries(target.text, pid, _command(scope)) if "\0" not in target.text else []
    if not paths:
        _missing_binary(target, scope)
        return []
    glob = is_glob(target.text)
    if len(paths) > 1 and not glob:
        others = ", ".join(paths[1:])
        scope.diagnostics.warn(f"{target.text!r} matches several files; {paths[0]} is used, not {others}", target.span)
        paths = paths[:1]
    if scope.options.unsafe:
        return paths
    usable = [path for path in paths if scope.kernel.executable(path)]
    if not usable and not glob:
        scope.missing(f"{paths[0]} is not an executable ELF file", target.span, ["--unsafe attaches to any file"])
    return usable


def _command(scope: Scope) -> str:
    """The path of the ``-c`` program, which is not running yet."""
    try:
        words = shlex.split(scope.options.child_command)
    except ValueError:
        # The session reports the error in the command.
        return ""
    return words[0] if words else ""


def _missing_binary(target: Part, scope: Scope) -> None:
    text = target.text
    if is_glob(text):
        what = "no process maps a file that matches" if text == "*" else "no file matches"
        scope.unmatched(f"{what} {text!r}", target.span)
    elif "/" in text:
        scope.missing(f"there is no file {text!r}", target.span)
    else:
        scope.missing(
            f"there is no program {text!r} on PATH and no such library",
            target.span,
            ["a path with '/' is taken as it is"],
        )


# -------------------------------------------------------------------------------------------------------------- uprobes


_LONGEST_INSTRUCTION = 16
"""Maximum length of an instruction, rounded up."""
_LINES_NEAR = 10
"""Maximum distance of suggested source lines from one without code."""


def _user_argument(item: UserParameter, max_strlen: int) -> ProbeArgument:
    """A parameter or result from DWARF."""
    if item.text:
        return ProbeArgument(item.name, String(max_strlen), _counted_text(item))
    type_ = in_space(item.type, AddressSpace.USER)
    if item.parts:
        parts = tuple((part.offset, part.size, part.register) for part in item.parts)
        return ProbeArgument(item.name, type_, RegisterParts(parts))
    return ProbeArgument(item.name, type_, location(item))


def _dotted(member: str) -> str:
    """A member's name as it stands after that of its struct; nothing for the struct itself."""
    return f".{member}" if member else ""


def _go_returning(result: UserParameter | None, kernel: KernelInfo, max_strlen: int) -> ProbeContext:
    """The context at a return instruction of Go: ``retval`` is the first result, pointers as plain numbers."""
    context = returning(result.type if result is not None and not result.parts else None, kernel)
    if result is None or isinstance(result.type, Pointer):
        return context
    context = replace(context, lost=tuple(f"retval{_dotted(member)}" for member in result.lost))
    if not result.readable:
        return context
    argument = _user_argument(result, max_strlen)
    return replace(context, result=ProbeArgument("retval", argument.type, argument.place))


def user_entry(
    name: str,
    parameters: Sequence[UserParameter] | None,
    kernel: KernelInfo,
    max_strlen: int,
    missing: Iterable[str] = (),
) -> ProbeContext:
    """The context of a uprobe; *parameters* from DWARF, None when there is none for the reasons *missing*."""
    arguments = tuple(
        _user_argument(item, max_strlen) if item.readable else ProbeArgument(item.name, _IN_VECTOR, _UNREADABLE)
        for item in parameters or ()
    )
    members = None if parameters is None else args_struct(name, arguments)
    lost = tuple(f"args.{item.name}{_dotted(part)}" for item in parameters or () for part in item.lost)
    return ProbeContext(arguments, members, ctx_type=registers(kernel), missing=tuple(missing), lost=lost)


class UserProbe(BinaryProvider):
    """``uprobe:BINARY:FUNCTION[+OFFSET]``, ``:ADDRESS``, ``:cpp:NAME`` and ``uprobe:BINARY@FILE:LINE[:COLUMN]``."""

    shape = "{0}:BINARY:FUNCTION, {0}:BINARY:cpp:FUNCTION (uprobe also FUNCTION+OFFSET, ADDRESS and BINARY@FILE:LINE)"
    counts = range(2, 4)

    def __init__(self, *, offsets: bool) -> None:
        self.offsets = offsets

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if any(part.before == "@" for part in parts):
            return self._line(point, scope)
        target: Part | None = parts[0] if len(parts) > 1 else None
        if not 1 <= len(parts) <= 3 or not parts[-1].text or (len(parts) == 3 and parts[1].text != "cpp"):
            if "::" in (name := point.span.text.partition(":")[2].partition(":")[2].removeprefix("cpp:")):
                # Colons of a C++ name separate parts, unless it is in quotes.
                written = f"{point.kind.name}:{parts[0].text}:cpp:{_quoted_name(name)}"
                return scope.error(f"the C++ name {name} must be in quotes", point.span, [f"write {written}"])
            return self.bad_shape(point, scope)
        if len(parts) == 1 and scope.options.filters.pid is None:
            return scope.error(
                f"{point.kind.name} needs a binary",
                point.span,
                ["for example uprobe:libc:malloc; -p PID means its program"],
            )
        matches: list[Match] = []
        paths = resolve_binary(target, point.span, scope)
        many = target is not None and is_glob(target.text)
        for path in paths:
            places = self._binary_matches(point, path, scope, quiet=many, cpp=len(parts) == 3)
            matches.extend(_entries(path, places, scope) if self.offsets else _exit_targets(point, places, scope))
        if many and paths and not matches:
            message = f"none of the binaries of {parts[0].text!r} has a function {parts[-1].text!r}"
            scope.unmatched(message, point.span)
        if parts[-1].wild:
            matches = [replace(match, place=replace(match.of(UserTarget), found=True)) for match in matches]
        return by_pattern(matches) if many else matches

    def _binary_matches(self, point: Point, path: str, scope: Scope, *, quiet: bool, cpp: bool) -> list[Match]:
        part = point.parts[-1]
        try:
            if cpp:
                return self._cpp_matches(point, path, part, scope, quiet=quiet)
            if part.number and not part.quoted:
                return self._address(point, path, part, scope)
            if part.wild:
                return self._pattern(point, path, part, scope, quiet=quiet)
            return self._exact_matches(point, path, part, scope, quiet=quiet)
        except TraceError as error:
            # Damaged, or (with --unsafe) not an ELF file.
            hints = [f"probe a file offset instead: {point.kind.name}:{path}:0xOFFSET, with --unsafe"]
            if not quiet:
                scope.missing(error.message, point.span, hints if self.offsets else ())
            return []

    def _pattern(self, point: Point, path: str, part: Part, scope: Scope, *, quiet: bool) -> list[Match]:
        symbols = scope.kernel.user_symbols(path, part.text)
        if scope.attaching:
            symbols = self._implementations(point, path, symbols, scope)
            symbols = _name_per_address(symbols, f"{point.kind.name}:{path}:", scope.probe_filter)
        if not symbols and not quiet:
            hints = _usdt_probes(path, part.text, scope)
            scope.unmatched(f"no function of {path} matches {part.text!r}", point.span, hints)
        kind = point.kind.name
        return [
            self._symbol_match(point, path, symbol, f"{kind}:{path}:{symbol.name}", wild=True) for symbol in symbols
        ]

    def _exact_matches(self, point: Point, path: str, part: Part, scope: Scope, *, quiet: bool) -> list[Match]:
        split = split_offset(part, scope, "" if self.offsets else point.kind.name)
        if split is None:
            return []
        name, offset = split
        symbols = scope.kernel.user_symbols(path, name)
        if not symbols:
            if not quiet:
                self._report_no_symbol(point, path, name, scope)
            return []
        if not offset:
            self._warn_of_clones(point, path, part, scope)
        # Static functions of several source files may have one name, and versions of a library's function (pow of
        # glibc 2.2.5, for programs of then, and 2.29): a probe on one of them would count others as never called.
        found: dict[int, Match] = {}
        for symbol in {symbol.address: symbol for symbol in symbols}.values():
            for match in self._function_matches(point, path, symbol, part, offset, scope):
                found.setdefault(match.of(UserTarget).offset, match)
        return list(found.values())

    def _function_matches(
        self, point: Point, path: str, symbol: UserSymbol, part: Part, offset: int, scope: Scope
    ) -> list[Match]:
        name = symbol.name
        if symbol.indirect and scope.attaching:
            return self._indirect_matches(point, path, symbol, offset, scope)
        if not symbol.size and not scope.options.unsafe:
            message = f"the size of {name!r} is not known: the symbol table does not have it"
            hint = "--unsafe attaches anyway, which may crash the program if it is not a function"
            return scope.error(message, part.span, [hint])
        if offset and symbol.size and offset >= symbol.size and not scope.options.unsafe:
            message = f"offset {offset} is outside function {name!r}, which has {symbol.size} bytes"
            return scope.error(message, part.span, ["--unsafe attaches anyway"])
        if offset and not self._check_instruction(path, symbol, offset, part, scope):
            return []
        suffix = f"+{offset}" if offset else ""
        return [self._symbol_match(point, path, symbol, f"{point.kind.name}:{path}:{name}{suffix}", offset)]

    def _check_instruction(self, path: str, symbol: UserSymbol, offset: int, part: Part, scope: Scope) -> bool:
        """Whether an instruction starts at *offset* in a function: a breakpoint elsewhere would corrupt code."""
        if scope.options.unsafe:
            return True
        code = scope.kernel.user_code(path, symbol.offset, max(symbol.size, offset + _LONGEST_INSTRUCTION))
        problem = f"no instruction starts at offset {offset} of function {symbol.name!r}"
        hints = ["--unsafe attaches anyway, which may crash the program"]
        before = 0
        try:
            for start in instructions.instruction_starts(code, scope.kernel.arch):
                if start >= offset:
                    if start == offset:
                        return True
                    hints.insert(0, f"instructions start at {symbol.name}+{before} and {symbol.name}+{start}")
                    break
                before = start
        except instructions.BadCodeError as error:
            problem = f"the code of function {symbol.name!r} cannot be checked: {error}"
        scope.error(problem, part.span, hints)
        return False

    @staticmethod
    def _warn_of_clones(point: Point, path: str, part: Part, scope: Scope) -> None:
        """Say that the compiler has made other functions of this one, too, which callers may call in its place."""
        name = part.text
        clones = _clones(name, [item.name for item in scope.kernel.user_symbols(path, f"{name}.*")])
        if clones:
            text = f"{name} is traced, not {' and '.join(clones)}, which the compiler made of it for some callers"
            scope.diagnostics.warn(text, part.span, hints=[f"{point.kind.name}:{path}:{name}.* traces these"])

    def _report_no_symbol(self, point: Point, path: str, name: str, scope: Scope) -> None:
        if scope.ignores_missing:
            return
        known = [item.name for item in scope.kernel.user_symbols(path, f"{name[:SUGGEST_FROM]}*")]
        hints = nearest(name, known, f"{point.kind.name}:{path}:{{}}")
        clones = _clones(name, known)
        if clones:
            hints = [made_of(clones, f"{point.kind.name}:{path}:{{}}")]
        overloads = scope.kernel.cpp_symbols(path, name)
        if overloads:
            hints = [f"it is a C++ function: write {point.kind.name}:{path}:cpp:{_quoted_name(name)}"]
        elif not hints and not scope.kernel.user_symbols(path, "*"):
            hints = ["the file has no symbols: probe an address instead, with --unsafe"]
            hints += scope.kernel.user_debug_problems(path)
        hints = [*_usdt_probes(path, name, scope), *_library_hints(point, path, name, scope), *hints]
        scope.missing(f"there is no function {name!r} in {path}", point.span, hints)

    def _cpp_matches(self, point: Point, path: str, part: Part, scope: Scope, *, quiet: bool) -> list[Match]:
        symbols = scope.kernel.cpp_symbols(path, part.text)
        if not symbols and not quiet:
            known = {_quoted_name(name.partition("(")[0]) for _, name in scope.kernel.cpp_symbols(path, "*")}
            hints = nearest(part.text, known, f"{point.kind.name}:{path}:cpp:{{}}")
            report = scope.unmatched if part.wild else scope.missing
            report(f"there is no C++ function {part.text!r} in {path}", point.span, hints)
        wild = part.wild or len(symbols) > 1
        if scope.attaching:
            symbols = [(item, name) for symbol, name in symbols
                       for item in self._implementations(point, path, [symbol], scope)]  # fmt: skip
        return [
            self._symbol_match(point, path, symbol, f"{point.kind.name}:{path}:cpp:{_quoted_name(name)}", wild=wild)
            for symbol, name in symbols
        ]

    def _indirect_matches(self, point: Point, path: str, symbol: UserSymbol, offset: int, scope: Scope) -> list[Match]:
        """The functions that stand for an IFUNC symbol; the symbol itself is their resolver, which is never probed."""
        found = self._indirect_functions(path, symbol, scope)
        part = point.parts[-1]
        if not found.functions:
            message = f"{symbol.name} is chosen among several functions when programs start (IFUNC): {found.reason}"
            return scope.missing(message, part.span)
        if found.also:
            names = ", ".join(found.also)
            scope.diagnostics.warn(f"{symbol.name} also counts {names}: they are one function here", part.span)
        suffix = f"+{offset}" if offset else ""
        return [
            self._symbol_match(point, path, item, f"{point.kind.name}:{path}:{symbol.name}{suffix}", offset)
            for item in found.functions
            if not offset or self._check_instruction(path, item, offset, part, scope)
        ]

    def _indirect_functions(self, path: str, symbol: UserSymbol, scope: Scope) -> IndirectFunction:
        if scope.options.ahead:
            return IndirectFunction(reason="that depends on the processor, so ahead-of-time files cannot name it")
        pids = scope.options.filters.pids
        found = [scope.kernel.user_implementations(path, symbol, pid) for pid in (pids or (None,))]
        functions = dict.fromkeys(item for each in found for item in each.functions)
        return replace(found[0], functions=tuple(functions))

    def _implementations(
        self, point: Point, path: str, symbols: list[UserSymbol], scope: Scope
    ) -> list[UserSymbol]:
        """The symbols of a pattern, with the functions that stand for IFUNC symbols in their place."""
        if not any(symbol.indirect for symbol in symbols):
            return symbols
        implementing: list[UserSymbol] = []
        left: list[_FunctionExit] = []
        # A debug file has names of the resolvers, too (strlen_ifunc).
        resolvers = {symbol.address for symbol in symbols if symbol.indirect}
        for symbol in symbols:
            if symbol.indirect:
                found = self._indirect_functions(path, symbol, scope)
                implementing += found.functions
                left += [] if found.functions else [_FunctionExit(symbol.name, found.reason)]
            elif symbol.address not in resolvers:
                implementing.append(symbol)
        _warn_about(left, "left out {0}, which programs choose when they start (IFUNC): {1}", point, scope)
        return implementing

    def _address(self, point: Point, path: str, part: Part, scope: Scope) -> list[Match]:
        if not self.offsets:
            return scope.error(f"{point.kind.name} needs a function: an address does not return", part.span)
        address = number_of(part, scope, "the address")
        if address is None:
            return []
        if scope.options.unsafe and not scope.kernel.executable(path):
            # The kernel accepts any file.
            return [self._address_match(point, path, address)]
        offset = scope.kernel.user_offset(path, address)
        if offset is None and scope.options.unsafe and 0 <= address < 2**63:
            offset = address
        if offset is None:
            message = f"{path} maps nothing at address {address:#x}"
            return scope.missing(message, part.span, ["--unsafe takes the number as a file offset"])
        covering = [
            item for item in scope.kernel.user_symbols(path, "*") if item.address <= address < item.address + item.size
        ]
        if not covering and not scope.options.unsafe:
            message = f"no function of {path} that the symbol table knows has code at address {address:#x}"
            return scope.error(message, part.span, ["--unsafe attaches anyway, which may crash the program"])
        if covering and not self._check_instruction(path, covering[0], address - covering[0].address, part, scope):
            return []
        return [self._address_match(point, path, address, offset)]

    def _address_match(self, point: Point, path: str, address: int, offset: int | None = None) -> Match:
        place = UserTarget(path, address if offset is None else offset)
        name = f"{point.kind.name}:{path}:{address}"
        return Match(point.kind, name, place, point.span, UserFunction(path, "", inside=True))

    def _line(self, point: Point, scope: Scope) -> list[Match]:
        """``BINARY@FILE:LINE[:COLUMN]``; with ``-p`` BINARY may be empty."""
        parts = point.parts
        if len(parts) not in (3, 4) or parts[1].before != "@" or any(p.before == "@" for p in parts[2:]):
            return self.bad_shape(point, scope)
        if not self.offsets:
            return scope.error(f"{point.kind.name} cannot probe a source line: only functions return", point.span)
        if any(part.wild for part in parts):
            return scope.error("a probe at a source line takes no pattern", point.span)
        line = number_of(parts[2], scope, "the line")
        column = number_of(parts[3], scope, "the column") if len(parts) == 4 else None
        if line is None or (len(parts) == 4 and column is None):
            return []
        matches: list[Match] = []
        for path in resolve_binary(parts[0], point.span, scope):
            symbols = scope.kernel.user_lines(path, parts[1].text, line, column)
            if not symbols:
                where = f"{parts[1].text}:{line}" + (f":{column}" if column is not None else "")
                hints = scope.kernel.user_debug_problems(path) or _line_hints(path, parts[1].text, line, scope)
                scope.missing(f"{path} has no code of {where}", point.span, hints)
            name = f"{point.kind.name}:{path}" + "".join(f"{part.before}{part.text}" for part in parts[1:])
            for symbol in symbols:
                subject = UserFunction(path, symbol.name, inside=True)
                matches.append(Match(point.kind, name, UserTarget(path, symbol.offset), point.span, subject))
        return matches

    def _symbol_match(
        self, point: Point, path: str, symbol: UserSymbol, name: str, offset: int = 0, *, wild: bool = False
    ) -> Match:
        place = UserTarget(path, symbol.offset + offset, symbol=symbol.name, inside=offset > 0, go=symbol.go)
        subject = UserFunction(path, symbol.name, offset > 0, symbol.size, symbol.go, symbol.address)
        return Match(point.kind, name, place, point.span, subject, wild)

    def apart(self, match: Match) -> Hashable:
        place = match.of(UserTarget)
        return match.exits, place.go, place.has_goroutine

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        function = match.subject
        if isinstance(function, DefinedEvent):
            return contexts.defined_event(match.probe, function, scope.kernel)
        assert isinstance(function, UserFunction), function
        strings = scope.config.max_strlen
        if "retval" in uses and match.exits and match.of(UserTarget).go:
            results = scope.kernel.user_go_results(function.path, function.symbol)
            return _go_returning(results[0] if results else None, scope.kernel, strings)
        if match.kind.returns and "retval" in uses:
            result = scope.kernel.user_result(function.path, function.symbol, function.address or None)
            if result is None:
                for problem in scope.kernel.user_debug_problems(function.path):
                    scope.diagnostics.warn(f"{problem}, so the type of retval is not known", match.span)
            return replace(contexts.returning(result, scope.kernel), reads_result=True)
        if match.kind.returns or function.inside or not uses.args:
            return ProbeContext(ctx_type=contexts.registers(scope.kernel) if "ctx" in uses else None)
        parameters = scope.kernel.user_parameters(function.path, function.symbol, function.address or None)
        missing: list[str] = []
        if parameters is None:
            what = f"{function.path} has no debug information about {function.symbol}"
            missing = scope.kernel.user_debug_problems(function.path) or [
                f"{what} (gcc -g; --debuginfo for separate files)"
            ]
        return user_entry(match.probe, parameters, scope.kernel, strings, missing)


_STACK_CHECK = re.compile(
    rb"(?:\x49\x3b\x66\x10"  # cmp 0x10(%r14),%rsp
    rb"|\x4c\x8d(?:\x64\x24.|\xa4\x24....)\x4d\x3b\x66\x10"  # lea -N(%rsp),%r12; cmp 0x10(%r14),%r12
    # mov %rsp,%r12; sub $N,%r12; jb; cmp 0x10(%r14),%r12
    rb"|\x49\x89\xe4\x49\x81\xec....(?:\x72.|\x0f\x82....)\x4d\x3b\x66\x10)"
    rb"(?:\x76.|\x0f\x86....)",  # jbe
    re.DOTALL,
)
"""The first instructions of functions of Go that compare the stack pointer with ``g.stackguard0``, since Go 1.17
(``stacksplit`` of src/cmd/internal/obj/x86/obj6.go)."""
_LONGEST_CHECK = 32
_MARKED_PUSH = re.compile(rb"\xf3\x0f\x1e\xfa(?=\x41?[\x50-\x57])", re.DOTALL)
"""``endbr64``, a mark of where code may jump to, before a ``push``."""


def _entries(path: str, matches: list[Match], scope: Scope) -> list[Match]:
    """The targets of uprobes: functions of Go are probed after they have compared the size of their stack.

    Where it is too small, or the goroutine has to yield, the runtime calls the function anew from its first
    instruction: a probe there would be hit twice for one call. Of others a ``push`` after the ``endbr64`` that many
    begin with is probed: the kernel emulates it (``push_setup_xol_ops`` of arch/x86/kernel/uprobes.c), where it has to
    step over the mark. Ahead-of-time files have the first instruction, as their binaries may change.
    """
    chosen = [
        number for number, match in enumerate(matches) if (place := match.of(UserTarget)).symbol and not place.inside
    ]
    if not chosen or not scope.attaching or scope.options.ahead or scope.kernel.arch != "x86_64":
        return matches
    entries = list(matches)
    offsets = [matches[number].of(UserTarget).offset for number in chosen]
    for number, code in zip(chosen, scope.kernel.user_codes(path, offsets, _LONGEST_CHECK), strict=True):
        place = matches[number].of(UserTarget)
        check = _STACK_CHECK.match(code) if place.has_goroutine else _MARKED_PUSH.match(code)
        if check is not None:
            checked = replace(place, offset=place.offset + check.end(), checked=check.end())
            entries[number] = replace(matches[number], place=checked)
    return entries


def _exit_targets(point: Point, matches: list[Match], scope: Scope) -> list[Match]:
    """The targets of uretprobes: the instructions at which functions are left, where these are known.

    The kernel's uretprobe replaces the return address on the stack. An exception, a panic of Rust or ``pthread_cancel``
    that has to pass through the function meets an address that no unwind table knows, which ends the program or leaves
    out its handlers; and the kernel does not replace more than 64 of a task. Go moves stacks, and its runtime ends the
    program when it meets such an address (golang/go#22008). Ahead-of-time files have the kernel's, as their binaries
    may change.
    """
    if not scope.attaching or len(matches) > scope.config.max_probes:
        # So many are refused.
        return matches
    leaving: list[Match] = []
    replacing: list[_FunctionExit] = []
    unseen: list[_FunctionExit] = []
    for match in matches:
        function = match.subject
        assert isinstance(function, UserFunction), function
        if function.go:
            leaving += [match] if scope.options.unsafe else _go_return_targets(match, function, point, scope)
            continue
        if scope.options.ahead:
            leaving.append(match)
            continue
        place = match.of(UserTarget)
        symbol = UserSymbol(function.symbol, function.address, place.offset, function.size)
        found = scope.kernel.user_exits(function.path, symbol)
        if found.problem and not (found.exits and found.unwound):
            # Exceptions do not pass through the few of the C library's functions that are left (calloc, iconv …).
            # That of a process has a path of its own.
            pids = {None, scope.options.filters.pid}
            libraries = [path for pid in pids for path in scope.kernel.binaries("libc", pid)]
            if scope.options.verbose or function.path not in libraries:
                replacing.append(_FunctionExit(function.symbol, found.problem))
            leaving.append(match)
            continue
        if found.problem:
            unseen.append(_FunctionExit(function.symbol, found.problem))
        elif not found.exits and not match.wild:
            hint = f"it ends by a call that does not return: {UPROBE} probes its start"
            scope.missing(f"{function.symbol} does not return: it has no return instruction", point.span, [hint])
        leaving += [
            replace(
                match,
                place=replace(place, offset=item.offset, leaving=item.distance, way=item.way, condition=item.condition),
            )
            for item in found.exits
        ]
    _warn_about(replacing, _REPLACING, point, scope)
    _warn_about(unseen, _UNSEEN, point, scope)
    return leaving


class _FunctionExit(msgspec.Struct, frozen=True):
    """A function that is not traced at all of its exits, and why."""

    name: str
    why: str


_REPLACING = (
    "the return address of {0} is replaced, as {1}: an exception or pthread_cancel that passes through ends the "
    "program or leaves out its handlers, and returns of more than 64 nested calls are not seen"
)
_UNSEEN = "returns of {0} are taken to be where it jumps to another function, as {1}: retval is not known there"
_NAMED = 3
"""Functions that a warning names."""


_OF_STARTUP = frozenset({
    "_init", "_fini", "_start", "deregister_tm_clones", "register_tm_clones", "__do_global_dtors_aux", "frame_dummy",
})  # fmt: skip
"""Functions that the linker adds to every program (``crt1.o``): they run once, before and after all others."""


def _warn_about(functions: list[_FunctionExit], message: str, point: Point, scope: Scope) -> None:
    """Warn of functions that have a problem, once for an attach point."""
    functions = [item for item in functions if item.name not in _OF_STARTUP]
    if not functions or scope.quiet:
        return
    names = ", ".join(item.name for item in functions[:_NAMED])
    more = len(functions) - _NAMED
    subject = f"{names} and {more} more functions" if more > 0 else names
    hints = () if len(functions) == 1 or scope.options.verbose else ("-v says why for each function",)
    scope.diagnostics.warn(message.format(subject, functions[0].why), point.span, hints=hints)
    if scope.options.verbose:
        for item in functions[1:]:
            scope.diagnostics.note(f"{item.name}: {item.why}", point.span)


def _go_return_targets(match: Match, function: UserFunction, point: Point, scope: Scope) -> list[Match]:
    """One target for each return instruction of a function of Go; functions of a pattern may have none."""
    place = match.of(UserTarget)
    code = scope.kernel.user_code(place.path, place.offset, function.size)
    try:
        starts = list(instructions.instruction_starts(code, scope.kernel.arch))
    except instructions.BadCodeError as error:
        message = f"{function.symbol} is a function of Go, whose stacks move, and its code cannot be followed: {error}"
        return [] if match.wild else scope.error(message, point.span, ["--unsafe attaches a uretprobe anyway"])
    returns = [start for start in starts if code[start] in _RETURNS]
    if not returns and not match.wild:
        message = f"{function.symbol} does not return: it has no return instruction"
        return scope.error(message, point.span, ["a function of Go is traced at its return instructions"])
    return [replace(match, place=replace(place, offset=place.offset + at, leaving=at, go=True)) for at in returns]


_RETURNS = frozenset({0xC2, 0xC3})
"""Opcodes of ``ret``."""


def _name_per_address(symbols: list[UserSymbol], prefix: str, probe_filter: re.Pattern[str] | None) -> list[UserSymbol]:
    """One name for each address, so that a pattern hits a function with several names (``open``, ``__open``) once.

    Names that ``--probe-filter`` drops do not represent others; of the rest, names without leading underscores are
    preferred, then the shortest.
    """
    best: dict[int, UserSymbol] = {}
    for symbol in symbols:
        known = best.get(symbol.address)
        if probe_filter is not None and not probe_filter.search(prefix + symbol.name):
            continue
        if known is None or _name_order(symbol.name) < _name_order(known.name):
            best[symbol.address] = symbol
    return [symbol for symbol in symbols if best.get(symbol.address) is symbol]


def _name_order(name: str) -> tuple[int, int, str]:
    return len(name) - len(name.lstrip("_")), len(name), name


def _usdt_probes(path: str, name: str, scope: Scope) -> list[str]:
    """A hint for a missing function if the file has USDT probes of that name: ``u:`` means USDT in tools of bcc."""
    providers = sorted({probe.provider for probe in scope.kernel.usdt_probes(path, "*", name)})
    return [f"USDT probes are usdt:{path}:{provider}:{name}" for provider in providers[:2]]


def _library_hints(point: Point, path: str, name: str, scope: Scope) -> list[str]:
    """A hint for functions such as malloc, which programs call but do not define."""
    libraries = scope.kernel.binaries("libc", None)
    if path in libraries or not any(scope.kernel.user_symbols(library, name) for library in libraries):
        return []
    return [f"the C library has it: {point.kind.name}:libc:{name}"]


def _line_hints(path: str, file: str, line: int, scope: Scope) -> list[str]:
    """Hints for a source line without code."""
    around = sorted(range(max(1, line - _LINES_NEAR), line + _LINES_NEAR + 1), key=lambda number: abs(number - line))
    numbers = [number for number in around if scope.kernel.user_lines(path, file, number, None)][:2]
    if numbers:
        lines = "lines" if len(numbers) > 1 else "line"
        return [f"the nearest {lines} with code: {', '.join(str(number) for number in sorted(numbers))}"]
    return ["the binary needs debug information of that line (gcc -g), in it or in a separate file (--debuginfo)"]


def _clones(name: str, known: Iterable[str]) -> list[str]:
    """What the compiler made of a function; parts that are jumped to (``.cold``) are no functions."""
    return [item for item in known if item.startswith(f"{name}.") and _CLONE.fullmatch(item[len(name) :])]


_CLONE = re.compile(r"(?:\.(?:constprop|isra|part|lto_priv|llvm)\.\d+)+")


def _quoted_name(name: str) -> str:
    """A C++ name, quoted for an attach point."""
    return f'"{name}"' if any(character in name for character in ':@" ,(<*') else name


# ----------------------------------------------------------------------------------------------------- python functions

# python and pythonret: functions of Python programs.


PYTHON_OBJECT = Pointer(Struct("struct", "PyObject", 0, (), origin="python"), AddressSpace.USER)
"""The type of arguments and results, which ``pystr()`` and ``pyint()`` read."""
LONGEST_PATTERN = 256
"""Most characters of a pattern."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class PythonFunction(BinaryProvider):
    """``python:FILE_OR_MODULE:FUNCTION``; both may be patterns."""

    shape = "{0}:FILE:FUNCTION or {0}:MODULE:FUNCTION"
    counts = range(2, 3)
    single = True  # which function it is, the program decides: targets have nothing that they could share

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if not self.fit(point) or not all(part.text for part in parts) or any(part.before == "@" for part in parts):
            return self.bad_shape(point, scope)
        if scope.attaching and not self._check_selection(point, scope):
            return []
        for part in parts:
            if len(part.text) > LONGEST_PATTERN:
                return scope.error(f"the pattern has more than {LONGEST_PATTERN} characters", part.span)
        place = PythonTarget(python_files(parts[0].text), parts[1].text)
        return [Match(point.kind, point.name, place, point.span, wild=any(part.wild for part in parts))]

    def _check_selection(self, point: Point, scope: Scope) -> bool:
        """True when the traced processes are known, and this machine can probe them; reports an error otherwise."""
        options = scope.options
        if scope.kernel.arch != "x86_64":
            scope.error(f"{point.kind.name} probes are for x86-64, not {scope.kernel.arch}", point.span)
        elif not scope.feature("bpf_loop"):
            scope.error(f"{point.kind.name} probes need a kernel with bpf_loop (Linux 5.17)", point.span)
        elif options.ahead or not (options.filters.pids or options.child):
            hints = ["-p PID probes a process, -c COMMAND one that is started; other programs are not slowed down"]
            scope.error(f"{point.kind.name} probes need a process", point.span, hints)
        else:
            return True
        return False

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        """Any name may be that of an argument: the functions are not known yet."""
        arguments = tuple(
            ProbeArgument(name, PYTHON_OBJECT, PythonValue(index)) for index, name in enumerate(sorted(uses.fields))
        )
        result = ProbeArgument("retval", PYTHON_OBJECT, PythonValue(len(arguments))) if match.kind.returns else None
        ctx = contexts.registers(scope.kernel) if "ctx" in uses else None
        missing = ("args.NAME is the argument of that name",)
        return ProbeContext(arguments, result=result, ctx_type=ctx, missing=missing)


def python_files(text: str) -> tuple[str, ...]:
    """The patterns of file names that a file or module stands for.

    A file with a folder is one; without, it is in any folder. A module may be a file, a package, or in the interpreter.
    """
    if "/" in text or text == "*" or text.startswith("<"):
        return (text,)
    if text.endswith(".py") or not _MODULE.fullmatch(text.replace("*", "x")):
        return text, f"*/{text}"
    path = text.replace(".", "/")
    return f"{path}.py", f"*/{path}.py", f"{path}/__init__.py", f"*/{path}/__init__.py", f"<frozen {text}>"


# ------------------------------------------------------------------------------------------------------- harmful places

# Uprobe targets at which the kernel would corrupt the traced program: refused, or dropped from patterns.
#
# The x86-64 red zone are the 128 bytes below the stack pointer that a leaf function may use without moving it.
# Linux 6.18 replaces a nop of 5 bytes under a uprobe by a call after the first hit (`arch_uprobe_optimize`,
# commit ba2bfc97b462), which overwrites the 32 bytes below the stack pointer. Later kernels do so with nops of 10 bytes
# and move the stack pointer first.


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


def leave_out_harmful(matches: list[Match], scope: Scope) -> list[Match]:
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
            if instructions.is_misread(code):
                harmful.append(self._misread_harm(index, match, code))
            elif self._overwrites(match, code):
                hint = "a function compiled with -mno-red-zone can be probed there"
                harmful.append(_Harm(index, _OVERWRITES, (hint,)))
        return harmful

    def _misread_harm(self, index: int, match: Match, code: bytes) -> _Harm:
        size = _length(code)
        shown = code[: size or 4].hex(" ")
        why = f"the kernel would misread the instruction there ({shown}) and corrupt the program"
        after = size
        while size and instructions.is_misread(code[after:]):
            size = _length(code[after:])
            after += size
        return _Harm(index, why, self._next_hint(match, after) if size else ())

    def _next_hint(self, match: Match, distance: int) -> tuple[str, ...]:
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
        if red_zone_unused(before):
            return False
        return uses_red_zone(self._kernel.user_code(self._path, function.offset, function.size))

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
        return instructions.instruction_length(code, 0, "x86_64")
    except instructions.BadCodeError:
        return 0


def _report(matches: Sequence[Match], harms: Sequence[_Harm], scope: Scope) -> None:
    """Report an error for targets given by name, a warning for matches of patterns and for one of several locations."""
    groups: dict[Span, list[_Harm]] = {}
    for harm in harms:
        groups.setdefault(matches[harm.index].span, []).append(harm)
    for span, group in groups.items():
        together = [match for match in matches if match.span == span]
        if len(group) == len(together) and not any(_is_by_pattern(match) for match in together):
            for harm in group:
                scope.missing(f"cannot probe {matches[harm.index].probe}: {harm.why}", span, harm.hints)
        else:
            _warn_left_out(matches, group, len(together), span, scope)


def _is_by_pattern(match: Match) -> bool:
    return match.wild or (isinstance(match.place, FileTarget) and match.place.by_pattern)


def _warn_left_out(matches: Sequence[Match], harms: Sequence[_Harm], count: int, span: Span, scope: Scope) -> None:
    if scope.ignores_missing:
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


def red_zone_unused(before: bytes) -> bool:
    """Whether the red zone is still unused after *before*, the function's code up to the probe."""
    return before in (b"", _ENDBR64)


def uses_red_zone(code: bytes) -> bool:
    """Whether a function may use its red zone: it is a leaf function with operands below its stack pointer.

    Compilers use the red zone in leaf functions only, since a call would overwrite it. True for undecodable code.
    """
    offset, below = 0, False
    try:
        while offset < len(code):
            instruction = Decoder(code, offset)
            if _calls(code, instruction):
                return False
            below = below or _is_below_stack(code, instruction)
            offset = instruction.end
    except (BadCodeError, IndexError):
        return True
    return below


def _calls(code: bytes, instruction: Decoder) -> bool:
    if instruction.opcode == _GROUP_5:
        return code[instruction.operand] >> 3 & 7 in (2, 3)
    return instruction.opcode == _CALL


def _counted_text(item: UserParameter) -> CountedText:
    """Address and length of a string are in two registers, or one after the other in memory."""
    if item.parts:
        address, length = (RegisterLocation(part.register) for part in item.parts)
        return CountedText(address, length)
    register, _, offset = item.location.partition("+")
    return CountedText(*(RegisterLocation(register, int(offset) + at, True) for at in (0, SLOT)))


def _is_below_stack(code: bytes, instruction: Decoder) -> bool:
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
