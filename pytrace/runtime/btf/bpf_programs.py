"""Loaded BPF programs as targets of fentry and fexit: their functions, by the names in their type information."""

from __future__ import annotations

import os
import struct

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.abi import bpf
from pytrace.runtime.abi.syscalls import Memory
from pytrace.runtime.btf.reader import Btf
from pytrace.runtime.host.name_patterns import name_pattern

# Offsets in `struct bpf_prog_info` (include/uapi/linux/bpf.h), which only ever grows.
_BTF_ID, _RECORD_SIZE, _RECORDS, _RECORD_COUNT, _INFO_SIZE = 128, 132, 136, 144, 232
_BTF_INFO_SIZE = 16


def programs(pattern: str = "*") -> list[tuple[int, str]]:
    """``(id, function)`` of the functions and sub-programs of all loaded programs that have type information.

    Raises:
        TraceError: this user may not list programs.
    """
    accepts = name_pattern(pattern).fullmatch
    try:
        numbers = bpf.ids("prog")
    except PermissionError:
        raise TraceError(
            "this user may not see which BPF programs are loaded", hints=("that needs CAP_SYS_ADMIN, or root",)
        ) from None
    return [(number, name) for number in numbers for name in functions(number) if accepts(name)]


def functions(number: int) -> list[str]:
    """Names of a program's functions, the main one first; empty without type information or when it is gone."""
    try:
        descriptor = bpf.open_by_id("prog", number)
    except FileNotFoundError:
        # Unloaded since it was listed.
        return []
    try:
        size = bpf.info_size(descriptor, _INFO_SIZE)
        if size < _RECORD_COUNT + 4:
            return []
        data = bpf.info(descriptor, size)
        btf_id, record_size = struct.unpack_from("=II", data, _BTF_ID)
        (count,) = struct.unpack_from("=I", data, _RECORD_COUNT)
        if not btf_id or not count:
            return []
        records = _function_records(descriptor, count, record_size)
        # The open program keeps its type information, too.
        types = program_types(btf_id)
    finally:
        os.close(descriptor)
    return [types.type_name(type_id) for type_id in records]


def _function_records(descriptor: int, count: int, record_size: int) -> list[int]:
    """Type ids of the functions: ``struct bpf_func_info`` records, copied out by the kernel on request."""
    room = Memory(count * record_size)
    request = bytearray(_INFO_SIZE)
    struct.pack_into("=I", request, _RECORD_SIZE, record_size)
    struct.pack_into("=Q", request, _RECORDS, room.address)
    struct.pack_into("=I", request, _RECORD_COUNT, count)
    memory = Memory(request)
    bpf.command(bpf.Command.OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, _INFO_SIZE, memory.address))
    data = bytes(room.data)
    return [struct.unpack_from("=II", data, number * record_size)[1] for number in range(count)]


def program_types(btf_id: int) -> Btf:
    """The type information object of a program."""
    descriptor = bpf.open_by_id("btf", btf_id)
    try:
        (size,) = struct.unpack_from("=I", bpf.info(descriptor, _BTF_INFO_SIZE), 8)
        room = Memory(size)
        memory = Memory(struct.pack("=QII", room.address, size, 0))
        bpf.command(bpf.Command.OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, _BTF_INFO_SIZE, memory.address))
    finally:
        os.close(descriptor)
    return Btf(bytes(room.data), f"BPF program's BTF {btf_id}")
