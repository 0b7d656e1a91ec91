"""Ahead-of-time files: made ready for the kernel and the parameters of one run, without a compiler.

What the file left open is written into its read-only data section before the kernel sees it: parameters, addresses,
offsets of struct members. What it relies on is compared with this machine, unless this is the very kernel that it
was compiled for. The rest of a run is that of any compiled script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import MisfitError, TraceError, did_you_mean
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import LOAD_TIME_SECTION, AheadOfTime, CompiledScript, Manifest, Parameters
from pytrace.core.numbers import parse_flag, parse_integer
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.aot import layouts, moved_probes
from pytrace.runtime.machine import fingerprints

SHOWN = 5
"""Maximum number of differences in an error."""


class Given(msgspec.Struct, frozen=True):
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


def prepare(script: CompiledScript, given: Given, options: RunOptions, kernel: KernelInfo) -> Prepared:
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
    unwanted = sorted(options.disabled.intersection(ahead.features))
    if unwanted:
        found = f"the code of the file uses {', '.join(unwanted)}; give --no-feature when compiling it"
        raise TraceError(found)
    if not same:
        _check_layout(script.manifest, ahead, kernel)
    moved_probes.check_programs(script.manifest, kernel)
    manifest = script.manifest if same else layouts.renamed(script.manifest, kernel, ahead.relies)
    manifest = replace(manifest, programs=moved_probes.moved(manifest, ahead.binaries, kernel))
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
    differences = layouts.differences(kernel, ahead.relies)
    found += differences
    if not found:
        return
    more = len(found) - SHOWN
    hints = [*found[:SHOWN], *([f"and {more} more"] if more > 0 else []), "compile the script again on this machine"]
    _, there = _compiled_for(manifest)
    raise MisfitError(
        f"the file was compiled for kernel {there} and does not fit this one, {kernel.release}", hints=tuple(hints),
        lacks=() if differences else lacking, kernel=bool(differences),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- parameters


class _Parameters:
    """The values of parameters: those given now, those fixed in the file, or the defaults."""

    def __init__(self, known: Parameters, given: Given, warnings: list[str]) -> None:
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
            raise TraceError(f"parameter {_shown(name)} needs a value")
        found = parse_flag(text) if form == "flag" else parse_integer(text)
        if found is None:
            expected = "true or false" if form == "flag" else "a number"
            hints = (f"the script takes text where it says str(${name})",) if name.isdigit() else ()
            raise TraceError(f"parameter {_shown(name)} must be {expected}, not {text!r}", hints=hints)
        if not -(1 << 63) <= found < 1 << 63:
            raise TraceError(f"parameter {_shown(name)} does not fit 64 bits")
        return int(found)

    def text(self, name: str, default: str, skip: int, room: int) -> bytes:
        """The value of a text, which may take *room* bytes with its NUL."""
        text = self._text(name, default, "text")
        if text is None:
            raise TraceError(f"parameter {_shown(name)} needs a value")
        data = text.encode("utf-8", "surrogateescape")[skip:]
        if len(data) >= room:
            self._warn(f"parameter {_shown(name)} has {len(data)} bytes and is truncated to {room - 1} (max_strlen)")
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


def _shown(name: str) -> str:
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
        found = layouts.member(self._kernel, kind, name, path)
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
    from pytrace.runtime.elf.file import ElfFile

    image = bytearray(elf)
    section = ElfFile(elf, "").section(LOAD_TIME_SECTION)
    for offset, data in values:
        if section is None or offset + len(data) > section.size:
            raise TraceError("the file is damaged: a value is outside its section")
        start = section.offset + offset
        image[start : start + len(data)] = data
    return bytes(image)
