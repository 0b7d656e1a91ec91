"""Options and operands that a script declares: their words on the command line, and whether their subjects exist.

Declarations must be known before the command line is read. They are kept between runs beside the compiled scripts, so
that a start from the cache does not parse: an entry is a line that identifies the code of pytrace it was made by, then
JSON. It depends on the script's text, which names it, and on the files that the script imports, whose fingerprints are
in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import msgspec

import pytrace
from pytrace import cache
from pytrace.base import private_files, typed_json
from pytrace.core.diagnostics import Diagnostics, TraceError, did_you_mean
from pytrace.core.script_options import JOINT, TYPES, ScriptOption, Value, WrongValueError, convert, default, entries
from pytrace.core.source import Source
from pytrace.runtime.machine import fingerprints


class ScriptWords(msgspec.Struct):
    """The words of the command line for the script *name*, which declares *options*.

    *positional*: whether the script reads ``$1`` …, so that undeclared operands are such parameters.
    """

    name: str
    options: tuple[ScriptOption, ...] = ()
    positional: bool = True
    operands: list[str] = msgspec.field(default_factory=list)
    given: dict[str, list[tuple[str, str | None]]] = msgspec.field(default_factory=dict)
    """For each option that was given, its spellings and texts, in order."""
    bcc_letters: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Letters of pytrace's own options, with the long names of the options that have them in bcc's tool."""
    taken: dict[str, str] = msgspec.field(default_factory=dict)
    """Letters on the command line that are pytrace's own elsewhere, with the long names of pytrace's options."""

    def letter(self, letter: str) -> ScriptOption | None:
        """The option ``-letter``."""
        return next((item for item in self.options if not item.operand and letter in item.letters), None)

    def word(self, word: str) -> ScriptOption | None:
        """The option ``--word``."""
        named = [item for item in self.options if not item.operand]
        # bcc's tools write both --extended_fields and --print-uid; who types the other gets it, too.
        dashed = word.replace("_", "-")
        exact = (item for item in named if word in item.words)
        return next(exact, next((item for item in named if dashed in [w.replace("_", "-") for w in item.words]), None))

    def abbreviated(self, start: str) -> ScriptOption | None:
        """The option whose long name begins with *start*; None if there is none.

        Raises:
            TraceError: there are several.
        """
        named = (item for item in self.options if not item.operand)
        matches = {word: item for item in named for word in item.words if word.startswith(start)}
        if len({item.name for item in matches.values()}) > 1:
            hint = "could be " + ", ".join(f"--{word}" for word in matches)
            raise TraceError(f"option --{start} is ambiguous", hints=(hint,))
        return next(iter(matches.values()), None)

    def is_operand(self, word: str) -> bool:
        """Whether a word that begins with a dash is a negative number, not an option of the script."""
        return bool(self.options) and word[1:].isdigit() and self.letter(word[1]) is None

    def takes_operands(self) -> bool:
        """Whether words without a dash are declared operands, or must not be given."""
        return bool(self.options) and (any(item.operand for item in self.options) or not self.positional)

    def general(self, after: Iterable[str]) -> list[tuple[str, str]]:
        """The operands that are options of pytrace itself, by their names; *after* are the words after ``--``."""
        words = [*self.operands, *(word for word in after if not word.startswith("--"))]
        operands = [item for item in self.options if item.operand]
        pairs = []
        for index, item in enumerate(operands):
            if item.general:
                pairs += [(item.general, word) for word in (words[index:] if item.repeat else words[index : index + 1])]
        return pairs

    def set(self, option: ScriptOption, written: str, text: str | None) -> bool:
        """Record an option. Returns whether it changes the value of an option that is used once."""
        texts = self.given.setdefault(option.name, [])
        again = not option.repeat and bool(texts) and texts[-1][1] != text
        texts.append((written, text))
        return again

    def fit_outputs(self, seconds: float) -> None:
        """Unless a count was given, set that of a script with ``[interval]`` and ``[count]`` to fill the duration.

        The last interval then ends with the run, and no further output follows at once.
        """
        operands = [option for option in self.options if option.operand]
        if [option.name for option in operands] != ["interval", "count"] or len(self.operands) > 1:
            return
        try:
            interval = convert(operands[0], self.operands[0]) if self.operands else default(operands[0])
        except WrongValueError:
            return  # reported with the others
        duration = round(seconds * 1e9)
        if isinstance(interval, int) and interval > 0 and duration > 0 and not duration % interval:
            self.set(operands[1], "count", str(duration // interval))

    def named(self, after: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, str | None], ...]:
        """The checked values of all options that were given, as named parameters of the compilation.

        *after* are named parameters after ``--``; those that the script does not declare at its root come last.

        Raises:
            TraceError: a value is invalid, a required operand is missing, or there are too many operands.
        """
        declared = {name: option for option in self.options for name in option.names}
        others = [(name, text) for name, text in after if name not in declared]
        for name, text in after:
            if name in declared:
                self.set(declared[name], f"--{name}", text)
        self._place_operands()
        texts_by_name: list[tuple[str, str | None]] = []
        for option in self.options:
            texts = self.given.get(option.name)
            if not texts or option.general:
                continue
            for written, text in texts:
                self._check(option, written, text)
            joined = JOINT.join(text or "" for _, text in texts) if option.repeat else texts[-1][1]
            texts_by_name.append((option.name, joined))
        return (*texts_by_name, *others)

    def has_typed_values(self) -> bool:
        """Whether a typed option was given, whose value may name something that the machine does not have."""
        return any(option.type and option.name in self.given for option in self.options)

    def check(self, *, other_network: bool) -> None:
        """Reject values, whose form has been checked, that name nothing on this machine.

        Args:
            other_network: whether interfaces belong to another network namespace, and are not checked.

        Raises:
            TraceError: a subject does not exist.
        """
        for option in self.options:
            finder = _FINDERS.get(option.type)
            if finder is None or (other_network and option.type == "interface"):
                continue
            for written, text in self.given.get(option.name, ()):
                for entry in entries(option, text or ""):
                    _check_entry(finder, option, written, entry)

    def values(self) -> dict[str, Value]:
        """The values of all options by name, after :meth:`named` has checked them."""
        values: dict[str, Value] = {}
        for option in self.options:
            texts = [text for _, text in self.given.get(option.name, ())]
            joined = JOINT.join(text or "" for text in texts) if option.repeat else texts[-1] if texts else None
            values[option.name] = convert(option, joined) if texts else default(option)
        return values

    def _place_operands(self) -> None:
        words = list(self.operands)
        for option in self.options:
            if not option.operand:
                continue
            own = words if option.repeat else words[:1]
            for word in own:
                self.set(option, option.name, word)
            words = [] if option.repeat else words[1:]
            if option.required and option.name not in self.given:
                raise TraceError(f"{self.name} needs <{option.general or option.name}>", hints=(self.synopsis(),))
        if words:
            raise TraceError(f"unexpected operand {words[0]!r}", hints=(*self._taken_letters(), self.synopsis()))

    def _taken_letters(self) -> tuple[str, ...]:
        """Hints about flags that were given by a letter that means another option of pytrace elsewhere."""
        flags = (written for texts in self.given.values() for written, text in texts if text is None)
        return tuple(f"pytrace's own {word} is --{self.taken[word]} here" for word in flags if word in self.taken)

    def _check(self, option: ScriptOption, written: str, text: str | None) -> None:
        try:
            convert(option, text)
        except WrongValueError as wrong:
            what = "operand" if option.operand else "option"
            hints = wrong.hints
            if written in self.taken and (option.type or not hints):
                hints = (*hints, f"pytrace's own {written} is --{self.taken[written]} here")
            if text is None and written.startswith("--"):
                hints = (*hints, f"write {written}={option.argument}")
            raise TraceError(f"{what} {written} needs {wrong.shown(text)}", hints=hints) from None

    def synopsis(self) -> str:
        """The synopsis line of the usage."""
        words = [f"usage: pytrace {self.name}"]
        if any(not item.operand for item in self.options):
            words.append("[options]")
        for item in self.options:
            if item.operand:
                more = "..." if item.repeat else ""
                name = (item.general or item.name) + more
                words.append(f"<{name}>" if item.required else f"[{name}]")
        if not self.takes_operands() and self.positional:
            words.append("[parameters] [-- parameters]")
        return " ".join(words)


# ---------------------------------------------------------------------------------------------- declarations


KIND = "options"
"""The kind of cached files (:mod:`pytrace.base.private_files`)."""

FORMAT = 3
"""Version of the entries."""

_CODE = "\t".join(
    f"/{name}.py"
    for name in ("frontend/expand/parameters", "core/script_options", "cli/script_options")
)
"""Files whose modification invalidates the entries of a checkout."""


class Declared(msgspec.Struct, frozen=True):
    """The options that a script and its imports declare at their roots; *positional*: it reads ``$1`` … or ``$#``."""

    options: tuple[ScriptOption, ...] = ()
    positional: bool = True


class _Entry(msgspec.Struct, frozen=True):
    """What is kept: the fingerprints of imported files, and the options."""

    files: tuple[tuple[str, ...], ...]
    declared: Declared


def of(source: Source, diagnostics: Diagnostics) -> Declared:
    """The options that a script declares; none, with errors in *diagnostics*, if it has syntax errors."""
    text = source.text
    if "getopt" not in text and "import" not in text:
        return Declared()
    name = _entry_name(source)
    cached = _load(name)
    if cached is not None:
        return cached
    from pytrace.frontend.expand import parameters  # the parser: unless the answer is cached

    options, positional, files = parameters.declared_by(source, diagnostics)
    declarations = Declared(options, positional)
    if not diagnostics.failed:
        _store(name, declarations, files)
    return declarations


def _entry_name(source: Source) -> str:
    parts = [pytrace.__version__, str(FORMAT), cache.checkout(), source.text]
    if "import" in source.text:
        parts.append(_import_folder(source))
    return private_files.digest("\0".join(parts).encode("utf-8", "surrogateescape"), size=20)


def _import_folder(source: Source) -> str:
    """The directory to which names of imported files are relative."""
    try:
        return os.path.abspath(os.path.dirname(source.path or ""))
    except FileNotFoundError:
        return ""


def _code_identity() -> bytes:
    return cache.changes(_CODE).encode() if cache.checkout() else b""


def _load(name: str) -> Declared | None:
    code, _, rest = (private_files.read(KIND, name) or b"").partition(b"\n")
    if not rest or code != _code_identity():
        return None
    try:
        entry = typed_json.decode(rest, _Entry)
    except msgspec.ValidationError:
        return None
    return entry.declared if fingerprints.still_true(entry.files) else None


def _store(name: str, declarations: Declared, files: list[str]) -> None:
    facts = tuple(fingerprints.file_fact(file) for file in files)
    if private_files.write(KIND, name, _code_identity(), b"\n", typed_json.encode(_Entry(facts, declarations))):
        private_files.trim(KIND, cache.KEEP)


# ---------------------------------------------------------------------------------------------- subjects of values


BLOCK = "/sys/class/block"
"""Disks and partitions; partitions have a file ``partition``."""
_CPUS = "/sys/devices/system/cpu"

_Finder = Callable[[str], "tuple[str, ...] | None"]


def offered(type_: str) -> list[str]:
    """The names that an option of the type *type_* may have; none where there is no short list of them."""
    if type_ == "cpu":
        return [name[3:] for name in names(_CPUS) if name[:3] == "cpu" and name[3:].isdigit()]
    if type_ == "disk":
        return [name for name in names(BLOCK) if not os.path.exists(f"{BLOCK}/{name}/partition")]
    if type_ == "interface":
        import socket

        return [name for _, name in socket.if_nameindex()]
    return list(TYPES[type_].known())


def names(folder: str) -> list[str]:
    """The sorted entries of a directory; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _check_entry(finder: _Finder, option: ScriptOption, written: str, entry: str) -> None:
    hints = finder(str(convert(ScriptOption(option.names, "", type=option.type), entry)))
    if hints is not None:
        what = "operand" if option.operand else "option"
        raise TraceError(f"{what} {written}: there is no {_NOUNS[option.type]} {entry}", hints=hints)


def _process(text: str) -> tuple[str, ...] | None:
    # Threads have directories in /proc as well, though they are not listed.
    return None if os.path.exists(f"/proc/{text}") else ()


def _cpu(text: str) -> tuple[str, ...] | None:
    with open(f"{_CPUS}/possible", encoding="ascii") as file:
        listed = file.read().strip()
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if int(first) <= int(text) <= int(last or first):
            return None
    return (f"CPUs of this machine are {listed}",)


def _disk(name: str) -> tuple[str, ...] | None:
    if os.path.exists(f"{BLOCK}/{name}/partition"):
        disk = os.path.basename(os.path.dirname(os.path.realpath(f"{BLOCK}/{name}")))
        return (f"{name} is a partition: its I/O is counted for the disk {disk}",)
    if os.path.exists(f"{BLOCK}/{name}"):
        return None
    disks = offered("disk")
    return did_you_mean(name, disks) or _listed("disks", disks)


def _interface(name: str) -> tuple[str, ...] | None:
    names = offered("interface")
    if name in names or _in_other_namespaces(name):
        return None
    return did_you_mean(name, names) or _listed("interfaces", names)


def _in_other_namespaces(name: str) -> bool:
    """Whether another network namespace has an interface of that name: tools see packets of all namespaces."""
    from pytrace.runtime.machine import host_names  # names of other namespaces

    for namespace in host_names.network_namespaces():
        try:
            descriptor = host_names.open_network_namespace(namespace)
        except TraceError:
            continue
        try:
            if host_names.Interfaces(descriptor).number(name) is not None:
                return True
        finally:
            os.close(descriptor)
    return any(f" {name}:" in f" {line}" for pid in names("/proc") if pid.isdigit() for line in _devices(pid))


def _devices(pid: str) -> list[str]:
    """The network interfaces that a process sees."""
    try:
        with open(f"/proc/{pid}/net/dev", encoding="utf-8", errors="surrogateescape", newline="") as file:
            return [line.strip() for line in file.read().split("\n")]
    except OSError:
        return []


def _system_call(name: str) -> tuple[str, ...] | None:
    from pytrace.core.system_calls import call_names  # few options name system calls

    known = sorted(filter(None, call_names(os.uname().machine)))
    return None if name in known or not known else did_you_mean(name, known)


def _listed(what: str, names: list[str]) -> tuple[str, ...]:
    shown = [name for name in names if not name.startswith(("loop", "ram"))] or names
    return (f"{what} of this machine are {', '.join(shown)}",) if 0 < len(shown) <= 20 else ()


_FINDERS: dict[str, _Finder] = {
    "pid": _process,
    "cpu": _cpu,
    "disk": _disk,
    "interface": _interface,
    "syscall": _system_call,
}
"""For types of options: the function that returns None if the subject exists, else hints."""

_NOUNS = {
    "pid": "process or thread", "cpu": "CPU", "disk": "disk", "interface": "network interface",
    "syscall": "system call",
}  # fmt: skip
