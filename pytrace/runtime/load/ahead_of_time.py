"""Ahead-of-time files: made ready for the kernel and the parameters of one run, without a compiler.

What the file left open is written into its read-only data section before the kernel sees it: parameters, addresses,
offsets of struct members. What it relies on is compared with this machine, unless this is the very kernel that it
was compiled for. The rest of a run is that of any compiled script.

Rows are tuples of texts, their kind first, as ``codegen.emit.load_time`` writes them down. Of layouts:

- ``member``, kind, struct, path of names, offset, bit offset, bits, type
- ``size``, kind, struct, bytes
- ``tracepoint``, category, event, field, offset, size, declaration
- ``function``, name, module, prototype; ``rawtracepoint``, event, prototype
- ``enumerator``, name, value
- ``names``, enumeration, bytes: its names are printed (:func:`_with_local_names` brings those of this kernel)
- ``kfunc``, name, 1 or 0: whether the kernel has a function
- ``type_exist``, kind, name, 1 or 0; ``member_exist``, kind, name, path, 1 or 0; ``constant_exist``, name, 1 or 0;
  ``symbol_exist``, name, 1 or 0
- ``build``, what: right on the very kernel build only

Of probes in user binaries, which may have changed since:

- ``symbol``, path, function, file offset
- ``usdt``, path, provider, name, file offset, arguments of the note
- ``exact``, path, why no other file will do
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import MisfitError, TraceError, did_you_mean
from pytrace.core.instructions import is_misread
from pytrace.core.kernel_info import KernelInfo, UsdtProbe
from pytrace.core.manifest import (
    LOAD_TIME_SECTION,
    AheadOfTime,
    CompiledScript,
    Manifest,
    Parameters,
    ProgramSpec,
    Target,
)
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import FileTarget, StaticProbeTarget, TypedFunctionTarget, UserTarget
from pytrace.core.text import parse_flag, parse_integer
from pytrace.core.types import Array, Enum, Field, Pointer, Struct, Type, rebuilt
from pytrace.runtime.binaries.elf_file import ElfFile, attach_path
from pytrace.runtime.machine import fingerprints

_MOST_SHOWN = 5
"""Maximum number of differences in an error."""


class RunParameters(msgspec.Struct, frozen=True):
    """The parameters of one run."""

    positional: tuple[str, ...]
    named: tuple[tuple[str, str | None], ...]


class Prepared(msgspec.Struct):
    """A script that is ready to be loaded, and warnings about it."""

    script: CompiledScript
    warnings: list[str] = msgspec.field(default_factory=list)


def usage(script: CompiledScript, name: str) -> str:
    """The text of ``pytrace FILE -- --help``."""
    parameters = _ahead(script.manifest).parameters
    lines = [f"parameters of {name}:\n{parameters.help}"] if parameters.names else []
    count = parameters.most
    if count:
        lines.append(f"{name} takes {count} positional parameter{'' if count == 1 else 's'}\n")
    fixed = [f"${at + 1}={text}" for at, text in enumerate(parameters.positional)]
    fixed += [f"--{key}" + ("" if text is None else f"={text}") for key, text in parameters.fixed]
    if fixed:
        lines.append(f"fixed when it was compiled: {' '.join(fixed)}\n")
    return "".join(lines) or f"{name} has no parameters\n"


def prepare(script: CompiledScript, given: RunParameters, options: RunOptions, kernel: KernelInfo) -> Prepared:
    """Make *script* ready for this machine and the *given* parameters.

    Raises:
        MisfitError: the file does not fit this machine; the message says why.
        TraceError: a parameter is missing or wrong.
    """
    ahead = _ahead(script.manifest)
    prepared = Prepared(script)
    parameters = _Parameters(ahead.parameters, given, prepared.warnings)
    parameters.check()
    _check_machine(script.manifest, ahead, kernel)
    if options.follow != ahead.follow:
        also = ", and to this one" if ahead.follow else ""
        raise TraceError(f"--follow is part of the code: give it when compiling the file{also}")
    filters = options.filters.shape.text()
    if filters != ahead.filters:
        raise TraceError(
            "filters of processes are part of the code: "
            f"the file was compiled with {ahead.filters or 'none'}, and this run has {filters or 'none'}",
            hints=("give the same options, with any values, when compiling the file and when running it",),
        )
    same = fingerprints.still_true(fact for fact in script.manifest.facts if fact[0] in ("kernel", "modules"))
    unwanted = sorted(options.no_features.intersection(ahead.features))
    if unwanted:
        found = f"the code of the file uses {', '.join(unwanted)}; give --no-feature when compiling it"
        raise TraceError(found)
    if not same:
        _check_layout(script.manifest, ahead, kernel)
    check_programs(script.manifest, kernel)
    manifest = script.manifest if same else _with_local_names(script.manifest, kernel, ahead.relies)
    manifest = replace(manifest, programs=moved_programs(manifest, ahead.binaries, kernel))
    filler = _Filler(ahead, parameters, options, kernel, manifest, same)
    prepared.script = CompiledScript(_patched(script.elf, filler.fill()), manifest)
    return prepared


def _ahead(manifest: Manifest) -> AheadOfTime:
    if manifest.ahead is None:
        raise TraceError("this file is an entry of the compile cache, not one that --aot wrote")
    return manifest.ahead


# ---------------------------------------------------------------------------------------------- the machine


def _check_machine(manifest: Manifest, ahead: AheadOfTime, kernel: KernelInfo) -> None:
    machine, _ = _compiled_for(manifest)
    if machine != kernel.arch:
        raise MisfitError(f"the file was compiled for {machine}, this machine is {kernel.arch}", kernel=True)
    if kernel.possible_cpus > ahead.copies:
        raise MisfitError(
            f"the file was compiled for up to {ahead.copies} CPUs, this machine may have {kernel.possible_cpus}",
            hints=("compile it again on this machine",), cpus=kernel.possible_cpus,
        )  # fmt: skip


def _compiled_for(manifest: Manifest) -> tuple[str, str]:
    """The machine and the release of the kernel that a file was compiled for (:func:`fingerprints.kernel_fact`)."""
    for fact in manifest.facts[:1]:
        if fact[:1] == ("kernel",) and len(fact) > 3:
            return fact[2], fact[3]
    raise TraceError("the file is damaged: it does not say for which kernel it was compiled")


def _check_layout(manifest: Manifest, ahead: AheadOfTime, kernel: KernelInfo) -> None:
    lacking = [name for name in ahead.features if not kernel.feature(name)]
    found = [f"this kernel lacks {name}, which the code uses" for name in lacking]
    differences = layout_differences(kernel, ahead.relies)
    found += differences
    if not found:
        return
    more = len(found) - _MOST_SHOWN
    hints = [*found[:_MOST_SHOWN], *([f"and {more} more"] if more > 0 else []), *_COMPILE_AGAIN]
    _, there = _compiled_for(manifest)
    raise MisfitError(
        f"the file was compiled for kernel {there} and does not fit this one, {kernel.release}", hints=tuple(hints),
        lacks=() if differences else lacking, kernel=bool(differences),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- parameters


class _Parameters:
    """The values of parameters: those given now, those fixed in the file, or the defaults."""

    def __init__(self, known: Parameters, given: RunParameters, warnings: list[str]) -> None:
        self._declared = known.names
        self._fixed = known.positional
        self._fixed_named = dict(known.fixed)
        self._positional = given.positional
        self._named = dict(given.named)
        self._warnings = warnings

    def check(self) -> None:
        """Refuse parameters that the script does not declare, and others than those that are fixed."""
        for at, (fixed, text) in enumerate(zip(self._fixed, self._positional, strict=False)):
            if fixed != text:
                raise TraceError(f"parameter ${at + 1} is fixed in the file: it is {fixed!r}, not {text!r}")
        for name, value in self._named.items():
            if name in self._fixed_named:
                if self._fixed_named[name] != value:
                    raise TraceError(f"parameter --{name} is fixed in the file")
            elif name not in self._declared:
                hints = did_you_mean(name, self._declared) or (
                    ("-- --help lists the parameters",) if self._declared else ("it has no named parameters",)
                )
                raise TraceError(f"the script has no parameter --{name}", hints=tuple(hints))

    def number(self, name: str, form: str, default: str) -> int:
        """The value of a number or flag."""
        if name == "#":
            return max(len(self._fixed), len(self._positional))
        text = self._text(name, default, form)
        if text is None:
            raise TraceError(f"parameter {_option_text(name)} needs a value")
        found = parse_flag(text) if form == "flag" else parse_integer(text)
        if found is None:
            expected = "true or false" if form == "flag" else "a number"
            hints = (f"the script takes text where it says str(${name})",) if name.isdigit() else ()
            raise TraceError(f"parameter {_option_text(name)} must be {expected}, not {text!r}", hints=hints)
        if not -(1 << 63) <= found < 1 << 63:
            raise TraceError(f"parameter {_option_text(name)} does not fit 64 bits")
        return int(found)

    def text(self, name: str, default: str, skip: int, room: int) -> bytes:
        """The value of a text, which may take *room* bytes with its NUL."""
        text = self._text(name, default, "text")
        if text is None:
            raise TraceError(f"parameter {_option_text(name)} needs a value")
        data = text.encode("utf-8", "surrogateescape")[skip:]
        if len(data) >= room:
            option = _option_text(name)
            self._warn(f"parameter {option} has {len(data)} bytes and is truncated to {room - 1} (max_strlen)")
        return data[: room - 1]

    def _text(self, name: str, default: str, form: str) -> str | None:
        if not name.isdigit():
            if name not in self._named:
                return default
            value = self._named[name]
            return "1" if value is None and form == "flag" else value
        number = int(name)
        if number <= len(self._positional):
            return self._positional[number - 1]
        if form == "number":
            self._warn(f"parameter ${name} was not given; it is 0")
        return default

    def _warn(self, text: str) -> None:
        """One parameter may be in several places."""
        if text not in self._warnings:
            self._warnings.append(text)


def _option_text(name: str) -> str:
    return f"${name}" if name.isdigit() else f"--{name}"


# ---------------------------------------------------------------------------------------------- open values


class _Filler:
    """Finds the open values of a file."""

    def __init__(
        self,
        ahead: AheadOfTime,
        parameters: _Parameters,
        options: RunOptions,
        kernel: KernelInfo,
        manifest: Manifest,
        same: bool,
    ) -> None:
        self._ahead = ahead
        self._parameters = parameters
        self._options = options
        self._kernel = kernel
        self._same_kernel = same
        self._same_boot = same and fingerprints.still_true(fact for fact in manifest.facts if fact[0] == "boot")

    def fill(self) -> Iterable[tuple[int, bytes]]:
        """Offsets and bytes of the values that differ from those in the file."""
        for item in self._ahead.values:
            try:
                found = self._value(item.what, item.parts, item.size)
            except (LookupError, ValueError) as error:
                raise TraceError(f"the file is damaged: the value {item.what!r} has another form") from error
            if found is not None:
                yield item.offset, found.ljust(item.size, b"\0")

    def _value(self, what: str, parts: tuple[str, ...], size: int) -> bytes | None:
        if what == "parameter":
            name, form, default, skip = parts
            if form == "text":
                return self._parameters.text(name, default, int(skip), size)
            return _word(self._parameters.number(name, form, default))
        found = _VALUES[what](self, parts)
        return None if found is None else _word(found)

    def member(self, parts: tuple[str, ...]) -> int | None:
        """Offset of a struct member."""
        if self._same_kernel:
            return None
        kind, name, path, type_text = parts
        found = nested_member(self._kernel, kind, name, path)
        if found is None or str(found.type) != type_text or found.bit_size:
            raise MisfitError(
                f"the file does not fit this kernel, {self._kernel.release}: {kind} {name} "
                + (f"has no member {path}" if found is None else f"has {path} of type {found.type}, not {type_text}"),
                hints=("compile the script again on this machine",), kernel=True,
            )  # fmt: skip
        return found.offset

    def size(self, parts: tuple[str, ...]) -> int | None:
        """Size of a struct."""
        if self._same_kernel:
            return None
        found = self._kernel.struct(*parts)
        if found is None:
            raise MisfitError(f"the file does not fit this kernel: there is no {' '.join(parts)}", kernel=True)
        return found.size

    def kaddr(self, parts: tuple[str, ...]) -> int | None:
        """Address of a kernel symbol."""
        if self._same_boot:
            return None
        found = self._kernel.kernel_symbol(parts[0])
        if found is None:
            raise TraceError(f"the kernel has no symbol {parts[0]!r}")
        return found

    def cgroup(self, parts: tuple[str, ...]) -> int:
        """Id of a cgroup."""
        found = self._kernel.cgroup_id(parts[0])
        if found is None:
            raise TraceError(f"there is no cgroup at {parts[0]!r}")
        return found

    def cpus(self, _parts: tuple[str, ...]) -> int:
        """Number of CPUs."""
        return self._kernel.possible_cpus

    def child(self, _parts: tuple[str, ...]) -> int:
        """Whether ``-c`` was given."""
        return int(self._options.command is not None)

    def pid(self, _parts: tuple[str, ...]) -> int:
        """Process of ``-p``, 0 for all."""
        return self._options.filters.pid or 0

    def namespace(self, parts: tuple[str, ...]) -> int:
        """Device or inode of our pid namespace; 0 for the initial one."""
        found = self._kernel.pid_namespace
        return 0 if found is None else found[0 if parts[0] == "device" else 1]


_VALUES: dict[str, Callable[[_Filler, tuple[str, ...]], int | None]] = {
    "member": _Filler.member,
    "size": _Filler.size,
    "kaddr": _Filler.kaddr,
    "cgroup": _Filler.cgroup,
    "cpus": _Filler.cpus,
    "child": _Filler.child,
    "pid": _Filler.pid,
    "namespace": _Filler.namespace,
}


def _word(value: int) -> bytes:
    return (value % (1 << 64)).to_bytes(8, "little")


def _patched(elf: bytes, values: Iterable[tuple[int, bytes]]) -> bytes:
    """*elf* with *values* written into the section for them."""
    image = bytearray(elf)
    section = ElfFile(elf, "").section(LOAD_TIME_SECTION)
    for offset, data in values:
        if section is None or offset + len(data) > section.size:
            raise TraceError("the file is damaged: a value is outside its section")
        start = section.offset + offset
        image[start : start + len(data)] = data
    return bytes(image)


# ------------------------------------------------------------------------------------------------ layouts of the kernel


_LayoutRow = tuple[str, ...]


def layout_differences(kernel: KernelInfo, rows: Iterable[_LayoutRow]) -> list[str]:
    """Differences between *rows* and this kernel, a sentence each."""
    return [text for row in rows if (text := _layout_difference(kernel, row))]


def _layout_difference(kernel: KernelInfo, row: _LayoutRow) -> str:
    check = _LAYOUT_CHECKS.get(row[0]) if row else None
    if check is None:
        return f"unknown fact {row[0] if row else ''!r}"
    try:
        return check(kernel, row)
    except (TypeError, ValueError):
        return f"the fact {row[0]!r} has another form than this version writes"


def nested_member(kernel: KernelInfo, kind: str, name: str, path: str) -> Field | None:
    """The member of a struct that the names of *path* lead to; its offset is from the start of the last struct."""
    struct: object = kernel.struct(kind, name)
    found: Field | None = None
    for step in path.split("."):
        if isinstance(struct, Pointer):
            struct = struct.target
        found = struct.find(step) if isinstance(struct, Struct) else None
        if found is None:
            return None
        struct = found.type
    return found


def _with_local_names(manifest: Manifest, kernel: KernelInfo, rows: Iterable[_LayoutRow]) -> Manifest:
    """*manifest* with the names that enumerations have on this kernel."""
    names = {row[1] for row in rows if row[0] == "names"}
    present = {name: found for name in names if (found := kernel.enum(name)) is not None}

    def current(type_: Type) -> Type:
        return present.get(type_.name, type_) if isinstance(type_, Enum) else type_

    return manifest.with_types(lambda type_: rebuilt(type_, current)) if present else manifest


def _member(kernel: KernelInfo, row: _LayoutRow) -> str:
    _, kind, name, path, offset, bit_offset, bits, type_text = row
    title = f"{kind} {name}"
    found = nested_member(kernel, kind, name, path)
    if found is None:
        missing = kernel.struct(kind, name) is None
        return f"there is no {title} here" if missing else f"{title} has no member {path} here"
    if str(found.type) != type_text:
        return f"{title}: member {path} is of type {found.type} here, it was {type_text}"
    here = (found.offset, found.bit_offset, found.bit_size)
    if here != (int(offset), int(bit_offset), int(bits)):
        before = _bits_text(offset, bit_offset, bits)
        return f"{title}: member {path} is at {_bits_text(*here)} here, it was at {before}"
    return ""


def _bits_text(offset: int | str, bit_offset: int | str, bits: int | str) -> str:
    return f"offset {offset}" + (f" (bit {bit_offset}, {bits} bits)" if int(bits) else "")


def _size(kernel: KernelInfo, row: _LayoutRow) -> str:
    _, kind, name, size = row
    found = kernel.struct(kind, name)
    if found is None:
        return f"there is no {kind} {name} here"
    return "" if found.size == int(size) else f"{kind} {name} has {found.size} bytes here, it had {size}"


def _tracepoint(kernel: KernelInfo, row: _LayoutRow) -> str:
    _, category, event, name, offset, size, declaration = row
    fields = kernel.tracepoint_fields(category, event)
    title = f"tracepoint {category}:{event}"
    if fields is None:
        return f"there is no {title} here"
    found = next((item for item in fields if item.name == name), None)
    if found is None:
        return f"{title} has no field {name} here"
    if (found.offset, found.size) != (int(offset), int(size)):
        now = f"{found.size} bytes at offset {found.offset} here"
        return f"{title}: field {name} has {now}, it had {size} at offset {offset}"
    if found.declaration != declaration:
        return f"{title}: field {name} is {found.declaration!r} here, it was {declaration!r}"
    return ""


def _function(kernel: KernelInfo, row: _LayoutRow) -> str:
    _, name, module, text = row
    found = kernel.function(name, module)
    return _prototype(f"function {name}", None if found is None else found.text, text)


def _raw_tracepoint(kernel: KernelInfo, row: _LayoutRow) -> str:
    _, event, text = row
    found = kernel.raw_tracepoint_prototype(event)
    return _prototype(f"raw tracepoint {event}", None if found is None else found.text, text)


def _prototype(title: str, here: str | None, text: str) -> str:
    if here is None:
        return f"there is no {title} here"
    return "" if here == text else f"{title} is {here} here, it was {text}"


def _enumerator(kernel: KernelInfo, row: _LayoutRow) -> str:
    found = kernel.enumerator(row[1])
    if found is None:
        return f"there is no enumerator {row[1]} here"
    return "" if found[1] == int(row[2]) else f"enumerator {row[1]} is {found[1]} here, it was {row[2]}"


def _names(kernel: KernelInfo, row: _LayoutRow) -> str:
    found = kernel.enum(row[1])
    if found is None:
        return f"there is no enum {row[1]} here"
    return "" if found.width == int(row[2]) else f"enum {row[1]} has {found.width} bytes here, it had {row[2]}"


def _kfunc(kernel: KernelInfo, row: _LayoutRow) -> str:
    there = kernel.function(row[1]) is not None
    return "" if there == (row[2] == "1") else f"there is {'a' if there else 'no'} function {row[1]} here"


def _type_exists(kernel: KernelInfo, row: _LayoutRow) -> str:
    there = _type(kernel, row[1], row[2]) is not None
    shown = f"{row[1]} {row[2]}"
    return "" if there == (row[3] == "1") else f"there is {'a' if there else 'no'} {shown} here"


def _type(kernel: KernelInfo, kind: str, name: str) -> Type | None:
    if kind == "enum":
        return kernel.enum(name)
    return kernel.typedef(name) if kind == "typedef" else kernel.struct(kind, name)


def _member_exists(kernel: KernelInfo, row: _LayoutRow) -> str:
    found = _type(kernel, row[1], row[2])
    for step in row[3].split("."):
        inner = found.target if isinstance(found, Pointer) else found
        inner = inner.element if isinstance(inner, Array) else inner
        field = inner.find(step) if isinstance(inner, Struct) else None
        found = field.type if field is not None else None
    there = found is not None
    shown = f"{row[1]} {row[2]} has {'a' if there else 'no'} member {row[3]} here"
    return "" if there == (row[4] == "1") else shown


def _constant_exists(kernel: KernelInfo, row: _LayoutRow) -> str:
    there = kernel.enumerator(row[1]) is not None
    return "" if there == (row[2] == "1") else f"there is {'a' if there else 'no'} constant {row[1]} here"


def _symbol_exists(kernel: KernelInfo, row: _LayoutRow) -> str:
    try:
        there = kernel.kernel_symbol(row[1]) is not None
    except TraceError:
        there = False
    return "" if there == (row[2] == "1") else f"there is {'a' if there else 'no'} symbol {row[1]} here"


def _build(_kernel: KernelInfo, row: _LayoutRow) -> str:
    return f"it uses {row[1]}"


_LAYOUT_CHECKS: dict[str, Callable[[KernelInfo, _LayoutRow], str]] = {
    "member": _member,
    "size": _size,
    "tracepoint": _tracepoint,
    "function": _function,
    "rawtracepoint": _raw_tracepoint,
    "enumerator": _enumerator,
    "names": _names,
    "kfunc": _kfunc,
    "type_exist": _type_exists,
    "member_exist": _member_exists,
    "constant_exist": _constant_exists,
    "symbol_exist": _symbol_exists,
    "build": _build,
}


# ------------------------------------------------------------------------------------------- probes in changed binaries


_BinaryRow = Sequence[str]
_LONGEST_INSTRUCTION = 16
"""Bytes that are enough for any instruction."""
_COMPILE_AGAIN = ("compile the script again on this machine",)


def moved_programs(manifest: Manifest, rows: Iterable[_BinaryRow], kernel: KernelInfo) -> tuple[ProgramSpec, ...]:
    """The programs of *manifest*, attached to where their functions and locations are now.

    Raises:
        MisfitError: a binary was changed so that the code does not fit it.
    """
    known = {fact[1]: fact for fact in manifest.facts if fact[0] == "file"}
    paths = dict.fromkeys(row[1] for row in rows)
    changed = {path for path in paths if not _unchanged(known.get(attach_path(path)))} - _paths_of_gone_files(manifest)
    if not changed:
        return manifest.programs
    concerned = [row for row in rows if row[1] in changed]
    for row in concerned:
        if row[0] == "exact":
            _check_exact(row, known.get(attach_path(row[1])))
    shifts = _moved_functions([row for row in concerned if row[0] == "symbol"], kernel)
    locations = _moved_locations([row for row in concerned if row[0] == "usdt"], kernel)
    move = partial(_moved_target, shifts=shifts, locations=locations)
    programs = tuple(replace(spec, targets=tuple(map(move, spec.targets))) for spec in manifest.programs)
    _check_instructions(programs, changed, kernel)
    return programs


def check_programs(manifest: Manifest, kernel: KernelInfo) -> None:
    """Probes on other BPF programs are on the very programs that were there.

    Raises:
        MisfitError: one of them is gone.
    """
    for spec in manifest.programs:
        for target in spec.targets:
            place = target.place
            if not isinstance(place, TypedFunctionTarget) or place.program_id is None:
                continue
            if (place.program_id, place.function) not in kernel.bpf_programs(place.function):
                message = f"{target.probe}: the BPF program with id {place.program_id} is gone"
                raise MisfitError(message, hints=_COMPILE_AGAIN)


def _moved_target(
    target: Target, shifts: dict[tuple[str, str], int], locations: dict[tuple[str, int], UsdtProbe]
) -> Target:
    place = target.place
    if isinstance(place, UserTarget):
        shift = shifts.get((place.path, place.symbol), 0)
        return replace(target, place=replace(place, offset=place.offset + shift)) if shift else target
    if isinstance(place, StaticProbeTarget):
        found = locations.get((place.path, place.offset))
        if found is not None:
            place = replace(place, offset=found.offset, semaphore_offset=found.semaphore_offset)
            return replace(target, place=place)
    return target


def _paths_of_gone_files(manifest: Manifest) -> set[str]:
    """Files that a pattern found and that are no longer there: nothing is attached to them."""
    places = (target.place for spec in manifest.programs for target in spec.targets)
    found = {place.path for place in places if isinstance(place, FileTarget) and place.by_pattern}
    return {path for path in found if not os.path.exists(attach_path(path))}


def _unchanged(known: fingerprints.Fact | None) -> bool:
    return known is not None and fingerprints.still_true([known])


def _check_exact(row: _BinaryRow, known: fingerprints.Fact | None) -> None:
    _, path, why = row
    # Size and time of change; the inode is another one where the same file system is mounted elsewhere.
    if known is None or fingerprints.file_fact(known[1])[2:4] != tuple(known[2:4]):
        raise MisfitError(f"{path} is not the file that the script was compiled for, and {why}", hints=_COMPILE_AGAIN)


def _check_instructions(programs: Iterable[ProgramSpec], changed: set[str], kernel: KernelInfo) -> None:
    """The code of a changed file may start with another instruction: the compiler checked the former one."""
    if kernel.arch != "x86_64":
        return
    for spec in programs:
        for target in spec.targets:
            place = target.place
            if not isinstance(place, FileTarget) or place.path not in changed:
                continue
            if is_misread(kernel.user_code(place.path, place.offset, _LONGEST_INSTRUCTION)):
                message = f"cannot probe {target.probe}: the kernel would misread the instruction there and corrupt "
                raise MisfitError(message + "the program", hints=_COMPILE_AGAIN)


def _moved_functions(rows: Iterable[_BinaryRow], kernel: KernelInfo) -> dict[tuple[str, str], int]:
    """How far each function moved."""
    found: dict[tuple[str, str], int] = {}
    for _, path, name, offset in rows:
        symbol = next((item for item in kernel.user_symbols(path, name) if item.name == name), None)
        if symbol is None:
            raise MisfitError(f"{path} no longer has a function {name!r}", hints=_COMPILE_AGAIN)
        found[path, name] = symbol.offset - int(offset)
    return found


def _moved_locations(rows: Iterable[_BinaryRow], kernel: KernelInfo) -> dict[tuple[str, int], UsdtProbe]:
    """The present place of each static probe location, by path and former offset."""
    groups: dict[tuple[str, str, str], list[_BinaryRow]] = {}
    for row in rows:
        groups.setdefault((row[1], row[2], row[3]), []).append(row)
    found: dict[tuple[str, int], UsdtProbe] = {}
    for (path, provider, name), former in groups.items():
        present = kernel.usdt_probes(path, provider, name)
        if [item.arguments for item in present] != [row[5] for row in former]:
            raise MisfitError(f"the arguments of usdt:{path}:{provider}:{name} have changed", hints=_COMPILE_AGAIN)
        for row, item in zip(former, present, strict=True):
            found[path, int(row[4])] = item
    return found
