"""BPF object files that scripts import: which functions they have, and how they are linked with the script's own."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import ExitStack

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import ObjectFunction
from pytrace.runtime.btf import validation
from pytrace.runtime.btf.reader import Btf, Kind
from pytrace.runtime.btf.value_types import TypeReader
from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.load.verifier import LoadError
from pytrace.runtime.machine import libbpf

_SYMBOL = struct.Struct("<IBBHQQ")
_FUNC = 2
"""``STT_FUNC``."""


def functions(path: str, data: bytes) -> list[ObjectFunction]:
    """The functions of an object file that are no programs of their own (those lie in sections with other names).

    Raises:
        TraceError: the file has no type information.
    """
    file = ElfFile(data, path)
    section = file.section(".BTF")
    if section is None:
        raise TraceError(f"{path} has no type information", hints=("compile it with -g",))
    btf = Btf(bytes(file.contents(section)), path)
    validation.check(btf)
    reader = TypeReader(btf)
    return [
        ObjectFunction(reader.prototype(type_id), static=static)
        for name, static in _symbols(file)
        if (type_id := reader.btf.find(name, Kind.FUNC))
    ]


def _symbols(file: ElfFile) -> list[tuple[str, bool]]:
    """Names of functions in ``.text``, and whether they are static."""
    table = file.section(".symtab")
    if table is None:
        return []
    sections = file.sections
    strings = bytes(file.contents(file.linked(table)))
    functions = []
    rows = file.contents(table)
    for name, info, _, index, _, _ in _SYMBOL.iter_unpack(rows[: len(rows) // _SYMBOL.size * _SYMBOL.size]):
        if info & 15 == _FUNC and 0 < index < len(sections) and sections[index].name == ".text":
            text = strings[name:].partition(b"\0")[0].decode(errors="replace")
            functions.append((text, info >> 4 == 0))
    return functions


def link(script: bytes, objects: Sequence[bytes]) -> bytes:
    """One object file of the script's and those that it imports. libbpf's linker wants files: these live in memory.

    Raises:
        LoadError: the files do not fit together.
    """
    lib = libbpf.library()
    with ExitStack() as stack, libbpf.Messages() as messages:
        target = _in_memory(b"", stack)
        try:
            linker = lib.bpf_linker__new(b"/proc/self/fd/%d" % target, None)
            stack.callback(lib.bpf_linker__free, linker)
            for data in (script, *objects):
                lib.bpf_linker__add_file(linker, b"/proc/self/fd/%d" % _in_memory(data, stack), None)
            lib.bpf_linker__finalize(linker)
        except OSError as error:
            text = "\n".join(messages.warnings)
            first = messages.warnings[0] if messages.warnings else str(error.strerror)
            hints = ("set license in the config block to what the C file says",) if "'license'" in first else ()
            raise LoadError(f"the imported C does not fit the script: {first}", log=text, hints=hints) from None
        return os.pread(target, os.fstat(target).st_size, 0)


def _in_memory(data: bytes, stack: ExitStack) -> int:
    descriptor = os.memfd_create("pytrace-link", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor
