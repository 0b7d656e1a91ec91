"""Subjects of typed options (processes, CPUs, disks, interfaces, system calls): their names, and whether they exist."""

from __future__ import annotations

import os
from collections.abc import Callable

from pytrace.cli.scripts.words import ScriptWords
from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.options.option_values import TYPES, convert, entries
from pytrace.core.options.script_options import ScriptOption

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


def check(words: ScriptWords, *, other_network: bool) -> None:
    """Reject values that name nothing on this machine.

    Args:
        words: the options of a script; the form of their values has been checked.
        other_network: whether interfaces belong to another network namespace, and are not checked.

    Raises:
        TraceError: a subject does not exist.
    """
    for option in words.options:
        finder = _FINDERS.get(option.type)
        if finder is None or (other_network and option.type == "interface"):
            continue
        for written, text in words.given.get(option.name, ()):
            for entry in entries(option, text or ""):
                _check_entry(finder, option, written, entry)


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
    from pytrace.runtime.machine import host_names

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
    from pytrace.codegen.ir import machine

    names = {name.decode() for name in machine.syscalls(os.uname().machine) if name}
    return None if name in names or not names else did_you_mean(name, sorted(names))


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
