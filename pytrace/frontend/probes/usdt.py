"""usdt: static trace points of user programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Container

from msgspec.structs import replace

from pytrace.core.kernel_info import UsdtProbe
from pytrace.core.probe_kinds import StaticProbeTarget
from pytrace.frontend.probes import contexts, uprobes
from pytrace.frontend.probes.providers import BinaryProvider, Match, Part, Point, Scope, Uses, by_pattern, nearest
from pytrace.frontend.syntax.typed_program import ProbeContext, RegisterLocation

# ------------------------------------------------------------------------------------------------------- usdt arguments

# Parser of USDT argument descriptions: the location of each argument at the probe's address.
#
# A note has one word for each argument, `SIZE@OPERAND`: SIZE in bytes, negative for a signed value; OPERAND in the
# assembler's syntax of the machine (https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation).


_X86_BASES = ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")


def _x86_names() -> dict[str, str]:
    """Register names of the assembler and their ``pt_regs`` names (without ``ah`` …, which do not start at bit 0)."""
    names = {"rip": "ip"}
    for base in _X86_BASES:
        low = f"{base[0]}l" if base[1] == "x" else f"{base}l"
        names.update({f"r{base}": base, f"e{base}": base, base: base, low: base})
    for number in range(8, 16):
        names.update({f"r{number}{suffix}": f"r{number}" for suffix in ("", "d", "w", "b")})
    return names


_X86 = _x86_names()

_NUMBER = r"[+-]?(?:0[xX][0-9a-fA-F]++|[0-9]++)"
"""Possessive, as are repetitions below: notes are written by whoever built the binary, and must not take long."""
_X86_REGISTER = r"%([a-z0-9]+)"
_X86_CONSTANT = rf"\$({_NUMBER})"
_X86_MEMORY = rf"""(?x)(?P<offset>(?:{_NUMBER})*+)
    (?P<symbol>[+-]?[A-Za-z_.$][\w.$@]*(?P<addend>(?:{_NUMBER})?))?
    \((?:%(?P<base>[a-z0-9]+))?(?:,\s*%(?P<index>[a-z0-9]+)(?:,\s*(?P<scale>[1248]))?)?\)"""


class BadArgumentError(ValueError):
    """An operand that cannot be parsed."""


def argument_locations(
    text: str,
    machine: str,
    symbol: Callable[[str], int | None],
    address: int = 0,
    *,
    wanted: Container[int] | None = None,
) -> tuple[RegisterLocation, ...]:
    """Locations of all arguments of a note's argument *text*.

    *symbol* returns the virtual address of a name for operands such as ``sym+4(%rip)``, which are relative to the
    probe's *address*. Locations of arguments that are not *wanted* (None: all are) may be wrong.

    Raises:
        BadArgumentError: a wanted operand cannot be parsed.
    """
    read = _OPERANDS.get(machine)
    if read is None:
        raise BadArgumentError(f"USDT arguments of {machine} are not supported")
    locations_ = []
    for number, word in enumerate(_split_arguments(text)):
        size, separator, operand = word.partition("@")
        if not separator:
            size, operand = "8", word
        try:
            width = _size(size, word)
            place = read(operand.strip(), abs(width), width < 0, symbol, address)
            locations_.append(replace(place, fraction=size.endswith("f") and abs(width) in (4, 8)))
        except BadArgumentError:
            if wanted is None or number in wanted:
                raise
            locations_.append(RegisterLocation(""))
    return tuple(locations_)


_WORD = r"(?:\[[^\]]*\]|\([^)]*\)|[^\s\[\(])+"


def _split_arguments(text: str) -> list[str]:
    """The arguments; blanks inside brackets belong to an operand."""
    return re.findall(_WORD, text)


def _size(text: str, word: str) -> int:
    # ``8f`` marks a floating-point value.
    try:
        width = int(text.removesuffix("f"))
    except ValueError:
        raise BadArgumentError(f"{word!r} has an unknown size") from None
    if abs(width) not in (1, 2, 4, 8):
        raise BadArgumentError(f"{word!r} has a size of {abs(width)} bytes")
    return width


def _x86(operand: str, size: int, signed: bool, symbol: Callable[[str], int | None], address: int) -> RegisterLocation:
    match = re.fullmatch(_X86_CONSTANT, operand)
    if match:
        return RegisterLocation("", _number_value(match[1]), size=size, signed=signed)
    match = re.fullmatch(_X86_REGISTER, operand)
    if match:
        return RegisterLocation(_x86_register(match[1], operand), size=size, signed=signed)
    match = re.fullmatch(_X86_MEMORY, operand)
    if match is None:
        raise BadArgumentError(f"operand {operand!r} is not supported")
    offset = _sum(match["offset"])
    base = _x86_register(match["base"], operand) if match["base"] else ""
    if match["symbol"]:
        offset += _sum(match["addend"]) + _symbol_distance(match["symbol"], match["addend"], base, symbol, address)
    index = _x86_register(match["index"], operand) if match["index"] else ""
    return RegisterLocation(base, offset, True, size, signed, index, int(match["scale"] or 1))


def _symbol_distance(name: str, addend: str, base: str, symbol: Callable[[str], int | None], address: int) -> int:
    """Distance of a symbol from the probe's address: both move together when the binary is loaded."""
    plain = name.removesuffix(addend).lstrip("+-")
    target = symbol(plain.partition("@")[0])
    if target is None:
        raise BadArgumentError(f"the binary has no symbol {plain!r}")
    if base != "ip":
        raise BadArgumentError(f"symbol {plain!r} is not relative to the program counter")
    return target - address


def _x86_register(name: str, operand: str) -> str:
    if name.startswith(("xmm", "ymm", "zmm", "st")):
        raise BadArgumentError(f"{name} is a floating-point register, which BPF programs cannot read")
    if name not in _X86:
        raise BadArgumentError(f"operand {operand!r} names register {name!r}, which cannot be read")
    return _X86[name]


def _sum(text: str) -> int:
    """Value of ``8``, ``-24`` or ``4+16-8``."""
    return sum(map(_number_value, re.findall(_NUMBER, text or "")))


def _number_value(number: str) -> int:
    """The value of a number as the assembler reads it: ``010`` is octal."""
    digits = number.lstrip("+-")
    octal = digits.startswith("0") and digits.isdecimal()
    try:
        value = int(digits, 8 if octal else 0)
    except ValueError:
        raise BadArgumentError(f"{number!r} is not a number") from None
    if value >> 64:
        raise BadArgumentError(f"{number!r} does not fit 64 bits")
    return -value if number.startswith("-") else value


_ARM_MEMORY = (
    rf"\[\s*(?P<base>[a-z0-9]+)\s*(?:,\s*(?:#?(?P<offset>{_NUMBER})"
    r"|(?P<index>[a-z0-9]+)\s*(?:,\s*(?:lsl|sxtw|uxtw|sxtx)\s*(?:#?(?P<shift>[0-9]+))?)?))?\s*\]"
)
_ARM_REGISTER = r"(?:[xw](?:[12]?[0-9]|30)|w?sp|[xw]zr|lr|fp)"
_ARM_MOST_SHIFT = 4
_ARM_SPECIAL = {"sp": "sp", "wsp": "sp", "lr": "r30", "fp": "r29"}


def _arm64(
    operand: str, size: int, signed: bool, symbol: Callable[[str], int | None], address: int
) -> RegisterLocation:
    del symbol, address
    constant = operand.removeprefix("#")
    if re.fullmatch(_NUMBER, constant):
        return RegisterLocation("", _number_value(constant), size=size, signed=signed)
    if operand in ("xzr", "wzr"):
        return RegisterLocation("", 0, size=size, signed=signed)
    if re.fullmatch(_ARM_REGISTER, operand):
        return RegisterLocation(_arm_register(operand), size=size, signed=signed)
    match = re.fullmatch(_ARM_MEMORY, operand)
    if re.fullmatch(r"[bhsdqv][0-9]+(?:\.\w+)?", operand):
        raise BadArgumentError(f"{operand} is a floating-point register, which BPF programs cannot read")
    if match is None:
        raise BadArgumentError(f"operand {operand!r} is not supported")
    index = _arm_register(match["index"]) if match["index"] else ""
    offset = _number_value(match["offset"] or "0")
    shift = _number_value(match["shift"] or "0")
    if shift > _ARM_MOST_SHIFT:
        raise BadArgumentError(f"operand {operand!r} shifts by more than {_ARM_MOST_SHIFT} bits")
    return RegisterLocation(_arm_register(match["base"]), offset, True, size, signed, index, 1 << shift)


def _arm_register(name: str) -> str:
    """``x3`` and ``w3`` as ``r3``."""
    if not re.fullmatch(_ARM_REGISTER, name):
        raise BadArgumentError(f"register {name!r} cannot be read")
    return _ARM_SPECIAL.get(name, f"r{name[1:]}")


_OPERANDS = {"x86_64": _x86, "aarch64": _arm64}


# ----------------------------------------------------------------------------------------------------------------- usdt


class Usdt(BinaryProvider):
    """``usdt:BINARY:[PROVIDER:]NAME``."""

    shape = "{0}:BINARY:NAME or {0}:BINARY:PROVIDER:NAME"
    counts = range(2, 4)

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if not 1 <= len(parts) <= 3 or not parts[-1].text or any(part.before == "@" for part in parts):
            return self.bad_shape(point, scope)
        target: Part | None = parts[0] if len(parts) > 1 else None
        name = parts[-1]
        provider = parts[1] if len(parts) == 3 and parts[1].text else None
        probes: list[UsdtProbe] = []
        paths = uprobes.resolve_binary(target, point.span, scope)
        for path in paths:
            probes.extend(scope.kernel.usdt_probes(path, provider.text if provider is not None else "*", name.text))
        if paths and not probes:
            self._report_missing(point, paths, provider, name, scope)
        if provider is None and not name.wild and not self._check_unique(point, probes, scope):
            return []
        wild = name.wild or (provider is not None and provider.wild) or len(paths) > 1
        matches = [self._match(point, item, wild=wild) for item in probes]
        return by_pattern(matches) if target is not None and uprobes.is_glob(target.text) else matches

    def _check_unique(self, point: Point, probes: list[UsdtProbe], scope: Scope) -> bool:
        providers = sorted({item.provider for item in probes})
        if len(providers) < 2:
            return True
        name, path = point.parts[-1].text, probes[0].path
        hints = [f"write {' or '.join(f'usdt:{path}:{item}:{name}' for item in providers)}"]
        scope.error(f"probe {name!r} is in several providers: {', '.join(providers)}", point.span, hints)
        return False

    def _report_missing(self, point: Point, paths: list[str], provider: Part | None, name: Part, scope: Scope) -> None:
        known = [item for path in paths[:8] for item in scope.kernel.usdt_probes(path, "*", "*")]
        where = paths[0] if len(paths) == 1 else f"{len(paths)} files"
        wanted = f"{provider.text}:{name.text}" if provider is not None else name.text
        if provider is not None:
            hints = nearest(wanted, [f"{item.provider}:{item.name}" for item in known], f"usdt:{where}:{{}}")
        else:
            hints = nearest(wanted, [item.name for item in known], f"usdt:{where}:{{}}")
        if not known:
            hints = ["there are no USDT probes at all"]
        if provider is None and any(scope.kernel.user_symbols(path, name.text) for path in paths[:8]):
            hints.insert(0, f"functions are uprobe:{where if len(paths) == 1 else 'FILE'}:{name.text}")
        report = scope.unmatched if any(part.wild for part in point.parts) else scope.missing
        report(f"there is no USDT probe {wanted!r} in {where}", point.span, hints)

    def _match(self, point: Point, item: UsdtProbe, *, wild: bool) -> Match:
        place = StaticProbeTarget(
            item.path,
            item.offset,
            provider=item.provider,
            name=item.name,
            semaphore_offset=item.semaphore_offset,
        )
        name = f"{point.kind.name}:{item.path}:{item.provider}:{item.name}"
        return Match(point.kind, name, place, point.span, item, wild)

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        item = match.subject
        assert isinstance(item, UsdtProbe), item
        ctx = contexts.registers(scope.kernel) if "ctx" in uses else None
        if not uses.positional:
            return ProbeContext(ctx_type=ctx)
        try:
            places = argument_locations(
                item.arguments,
                scope.kernel.arch,
                lambda name: scope.kernel.user_address(item.path, name),
                item.address,
                wanted=uses.positional,
            )
        except BadArgumentError as problem:
            scope.error(f"the arguments of {match.probe} cannot be read: {problem}", match.span)
            places = ()
        return ProbeContext(positional=places, ctx_type=ctx)
