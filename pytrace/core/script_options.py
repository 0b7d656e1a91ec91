"""Options of a script or tool: declared by ``getopt``, read from the command line, their texts converted to values."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable

import msgspec

from pytrace.core.diagnostics import did_you_mean
from pytrace.core.options import MOST_PID
from pytrace.core.text import NANOSECONDS, parse_flag, parse_integer, parse_time

# ------------------------------------------------------------------------------------------------------- script options

# Options of a script or tool, declared by `getopt` and read from the command line.


Value = bool | int | str
"""Value of an option: a flag, an integer, or text."""


class ScriptOption(msgspec.Struct, frozen=True):
    """One option or operand of a script.

    Attributes:
        names: spellings without dashes, letters and words in the order of their declaration; an operand has one.
        default: value without the option; its type is the option's.
        help: description for the usage.
        argument: name of its argument in the usage; empty for a flag.
        choices: texts that are accepted; empty for all.
        operand: whether it is given by position instead of by name. An operand that stands for an option of pytrace
            has that option's name, with dashes: ``--pid``.
        required: whether it must be given.
        repeat: whether it may be given several times (an operand: takes all remaining words); values are then joined
            by newlines.
        type: the name of its type (``option_values``); empty for any integer or text.
        listed: whether it takes a comma-separated list of entries (of its type, of its choices); the value is then
            that text.
    """

    names: tuple[str, ...]
    default: Value
    help: str = ""
    argument: str = ""
    choices: tuple[str, ...] = ()
    operand: bool = False
    required: bool = False
    repeat: bool = False
    type: str = ""
    listed: bool = False

    @property
    def name(self) -> str:
        """The name that scripts use: the first that is not a single letter, else the letter."""
        return next((name for name in self.names if len(name) > 1), self.names[0])

    @property
    def general(self) -> str:
        """The option of pytrace that an operand stands for; empty for the script's own operands."""
        return self.name[2:] if self.name.startswith("--") else ""

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of one letter, written with one dash."""
        return tuple(name for name in self.names if len(name) == 1)

    @property
    def words(self) -> tuple[str, ...]:
        """The names of more than one letter, written with two dashes."""
        return tuple(name for name in self.names if len(name) > 1)


# -------------------------------------------------------------------------------------------------------- option values

# Conversion of option texts to values, for the command line and for the compiler.


# ---------------------------------------------------------------------------------------------------------------- types

# Types of option values other than plain texts and integers, which a script may name in `getopt`.
#
# A type validates entries and converts them to values; it does not check whether the machine has such a disk or CPU.


_MOST_ERRNO = 4095
"""MAX_ERRNO of ``include/linux/err.h``."""

NAMESPACES = "/run/netns"
"""The directory in which ``ip netns add`` stores names of network namespaces."""

_DISK = re.compile(r"[\w!.-]+")
_INTERFACE = re.compile(r"[\w.:@-]{1,15}")
_CALL = re.compile(r"\w+")


class OptionType(msgspec.Struct, frozen=True):
    """The type of an option.

    Attributes:
        one: the expected value, for messages.
        several: the same for an option that takes entries separated by commas.
        entry: returns the value of one entry, without spaces around it; None if it is not allowed.
        known: names that entries may have, for suggestions; empty for numbers.
        place: the path where *entry* looks, if any, which the value depends on.
    """

    one: str
    several: str
    entry: Callable[[str], int | str | None]
    known: Callable[[], tuple[str, ...]] = tuple
    place: Callable[[str], str] | None = None


def find_type(name: str) -> OptionType | None:
    """Look up a type by name: one of :data:`TYPES`, or a range of integers (``0..``, ``1..64``)."""
    least, dots, most = name.partition("..")
    if not dots:
        return TYPES.get(name)
    numbers = [least, most] if most else [least]
    if not all(text.removeprefix("-").isdecimal() for text in numbers):
        return None
    return _range(int(least), int(most) if most else None)


def suggestions(type_: OptionType, entry: str) -> tuple[str, ...]:
    """Hints about names that are similar to a wrong entry."""
    known = type_.known()
    return did_you_mean(entry.upper() if all(map(str.isupper, known)) else entry, known)


def _between(least: int, most: int | None) -> Callable[[str], int | None]:
    def entry(text: str) -> int | None:
        value = parse_integer(text)
        return None if value is None or value < least or (most is not None and value > most) else value

    return entry


def _range(least: int, most: int | None) -> OptionType:
    limits = f"from {least} on" if most is None else f"from {least} to {most}"
    shown = f"a number {limits}" if least != 0 or most is not None else "a number, 0 or more"
    return OptionType(shown, f"numbers {limits}, separated by commas", _between(least, most or 2**63 - 1))


def _interval(text: str) -> int | None:
    value = parse_time(text)
    # The shortest period of a timer is a microsecond.
    return None if value is None or value < 1000 else value


def _numbered(names: Callable[[], dict[str, int]], most: int) -> Callable[[str], int | None]:
    """An entry function that accepts a name of *names* in any case, or a number from 1 to *most*."""
    number = _between(1, most)

    def entry(text: str) -> int | None:
        return names()[text.upper()] if text.upper() in names() else number(text)

    return entry


def errors() -> dict[str, int]:
    """Names of error numbers."""
    return {name: number for number, name in errno.errorcode.items()} | {"EWOULDBLOCK": errno.EWOULDBLOCK}


def signals() -> dict[str, int]:
    """Names of signals, with and without SIG."""
    known = {item.name: int(item) for item in signal.Signals}
    return known | {name.removeprefix("SIG"): number for name, number in known.items()}


def _disk(text: str) -> str | None:
    name = text.removeprefix("/dev/")
    return name if _DISK.fullmatch(name) else None


def _name(text: str) -> str | None:
    return text if _INTERFACE.fullmatch(text) else None


def _call(text: str) -> str | None:
    return text if _CALL.fullmatch(text) else None


def _thread_name(text: str) -> str | None:
    return text if 0 < len(os.fsencode(text)) < 16 else None


def _directory(text: str) -> str | None:
    try:
        return os.path.realpath(text) if os.path.isdir(text) else None
    except FileNotFoundError:
        # A relative name, and the working directory was removed.
        return None


def _namespace(text: str) -> int | None:
    """Inode number of a namespace, from that number, its name, or a path such as ``/proc/12/ns/net``."""
    number = _between(1, 2**32 - 1)(text)
    if number is not None:
        return number
    try:
        return os.stat(_namespace_file(text)).st_ino
    except (OSError, ValueError):
        return None


def _namespace_file(text: str) -> str:
    return text if "/" in text else f"{NAMESPACES}/{text}"


def _namespaces() -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(NAMESPACES)))
    except OSError:
        return ()


def _address(text: str) -> str | None:
    import ipaddress

    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


_SECONDS = "a time in seconds (2 or 0.5) or with a unit (500ms, 2m)"

TYPES: dict[str, OptionType] = {
    "seconds": OptionType(_SECONDS, f"{_SECONDS}, separated by commas", parse_time),
    "interval": OptionType(f"{_SECONDS}, more than 0", f"{_SECONDS}, more than 0, separated by commas", _interval),
    "pid": OptionType("a process id", "process ids, separated by commas (12,34)", _between(1, MOST_PID)),
    "port": OptionType(
        "a port from 1 to 65535", "ports from 1 to 65535, separated by commas (80,443)", _between(1, 65535)
    ),
    "cpu": OptionType("the number of a CPU", "numbers of CPUs, separated by commas (0,2)", _between(0, 2**31 - 1)),
    "disk": OptionType(
        "the name of a disk, as /proc/partitions has it",
        "names of disks, as /proc/partitions has them, separated by commas (sda,sdb)",
        _disk,
    ),
    "interface": OptionType(
        "the name of a network interface", "names of network interfaces, separated by commas (eth0,lo)", _name
    ),
    "comm": OptionType(
        "the name of a thread, 15 bytes at most (the kernel keeps 15 of a name)",
        "names of threads, 15 bytes at most (the kernel keeps 15 of a name), separated by commas",
        _thread_name,
    ),
    "directory": OptionType(
        "a directory that exists", "directories that exist, separated by commas", _directory, place=str
    ),
    "netns": OptionType(
        "a network namespace: its name (ip netns list), its number or a path (/proc/PID/ns/net)",
        "network namespaces by name, number or path, separated by commas",
        _namespace,
        _namespaces,
        _namespace_file,
    ),
    "address": OptionType(
        "an address of IPv4 or IPv6", "addresses of IPv4 or IPv6, separated by commas", _address
    ),
    "errno": OptionType(
        "the name or number of an error (ENOENT or 2)",
        "names or numbers of errors, separated by commas (ENOENT,13)",
        _numbered(errors, _MOST_ERRNO),
        lambda: tuple(errors()),
    ),
    "signal": OptionType(
        "the name or number of a signal (SIGTERM, TERM or 15)",
        "names or numbers of signals, separated by commas (SIGTERM,9)",
        _numbered(signals, 64),
        lambda: tuple(signals()),
    ),
    "syscall": OptionType(
        "the name of a system call", "names of system calls, separated by commas (read,write)", _call
    ),
}  # fmt: skip
"""Types by name. Times are nanoseconds; names of errors, signals and network namespaces become their numbers."""


def default_of_type(name: str, value: int) -> int:
    """The value of a declared integer default: a default time is in seconds."""
    return value * NANOSECONDS if name in ("seconds", "interval") and value > 0 else value


# --------------------------------------------------------------------------------------------------------------- values


JOINT = "\n"
"""Separator of the values of a repeated option."""


class WrongValueError(ValueError):
    """A text that an option does not accept; the message says what it expects.

    Attributes:
        entry: the invalid part of the text; None for the whole text.
        hints: similar names that are allowed.
    """

    def __init__(self, needs: str, entry: str | None = None, hints: tuple[str, ...] = ()) -> None:
        super().__init__(needs)
        self.entry, self.hints = entry, hints

    def shown(self, text: str | None) -> str:
        """Expected and actual value, for messages."""
        if text is None:
            return str(self)
        text = text.replace(JOINT, " ")
        if self.entry is None or self.entry == text:
            return f"{self}, not {text!r}"
        return f"{self}, not {self.entry!r} (of {text!r})"


def convert(option: ScriptOption, text: str | None) -> Value:
    """Convert *text* to the option's value; None is an option without a value.

    Raises:
        WrongValueError: the option does not accept *text*.
    """
    if isinstance(option.default, bool):
        return _flag(text)
    if text is None:
        raise WrongValueError(f"an argument: {option.argument}")
    if option.type:
        return _typed(option, text)
    if isinstance(option.default, int):
        return _integer(text)
    if not option.choices and not option.listed:
        return text
    values = entries(option, text)
    for item in values:
        if option.choices and item not in option.choices:
            several = "some of" if option.listed else "one of"
            needs = f"{several} {', '.join(option.choices)}"
            raise WrongValueError(needs, item, did_you_mean(item, option.choices))
    return (",".join if option.listed else JOINT.join)(values)


def default(option: ScriptOption) -> Value:
    """The value of an option that was not given."""
    if not option.type or not isinstance(option.default, int):
        return option.default
    return default_of_type(option.type, option.default)


def entries(option: ScriptOption, text: str) -> list[str]:
    """The entries of the text of an option."""
    texts = text.split(JOINT) if option.repeat else [text]
    return [part.strip() for item in texts for part in (item.split(",") if option.listed else (item,))]


def _typed(option: ScriptOption, text: str) -> Value:
    type_ = find_type(option.type)
    assert type_ is not None, option.type
    values: list[int | str] = []
    for entry in entries(option, text):
        value = type_.entry(entry)
        if value is None:
            needs = type_.several if option.listed else type_.one
            raise WrongValueError(needs, entry, suggestions(type_, entry))
        values.append(value)
    if not option.listed and not option.repeat:
        return values[0]
    return (",".join if option.listed else JOINT.join)(map(str, values))


def _flag(text: str | None) -> bool:
    if text is None:
        return True
    value = parse_flag(text)
    if value is None:
        raise WrongValueError("true or false")
    return value


def _integer(text: str) -> int:
    value = parse_integer(text)
    if value is None:
        raise WrongValueError("an integer")
    if not -(2**63) <= value < 2**64:
        raise WrongValueError("an integer of 64 bits")
    return value
