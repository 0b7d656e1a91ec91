"""bpf(2): commands that do not go through libbpf, and the BPF token of a container.

libbpf 1.1 does not know the newest commands (uprobe_multi, kprobe sessions), so maps, links, batches and information go
through here, as raw bytes.  Attribute layouts are those of ``union bpf_attr`` in ``include/uapi/linux/bpf.h``.  Every
function raises :class:`OSError` with the kernel's error number and a text that names the command.

The token (Linux 6.9) is the right to use some of ``bpf(2)`` in a user namespace. Who manages the container mounts a
bpffs for it and says what it delegates (``delegate_cmds``, ``delegate_maps``, ``delegate_progs``,
``delegate_attachs``). A process with CAP_BPF in that user namespace makes a token of the mount, and hands it over with
each command. libbpf does so from 1.5 on, with the bpffs where this module finds it, too.
"""

from __future__ import annotations

import errno
import os
import struct
from contextlib import suppress
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING

from pytrace.runtime.machine import syscalls
from pytrace.runtime.machine.syscalls import Memory, string_memory

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator, Sequence


class Command(IntEnum):
    """``enum bpf_cmd``."""

    MAP_CREATE = 0
    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    MAP_GET_NEXT_KEY = 4
    PROG_LOAD = 5
    OBJ_PIN = 6
    PROG_TEST_RUN = 10
    PROG_GET_NEXT_ID = 11
    MAP_GET_NEXT_ID = 12
    PROG_GET_FD_BY_ID = 13
    MAP_GET_FD_BY_ID = 14
    OBJ_GET_INFO_BY_FD = 15
    RAW_TRACEPOINT_OPEN = 17
    BTF_LOAD = 18
    BTF_GET_FD_BY_ID = 19
    BTF_GET_NEXT_ID = 23
    MAP_LOOKUP_BATCH = 24
    MAP_LOOKUP_AND_DELETE_BATCH = 25
    MAP_UPDATE_BATCH = 26
    LINK_CREATE = 28
    LINK_GET_FD_BY_ID = 30
    LINK_GET_NEXT_ID = 31
    ENABLE_STATS = 32
    ITER_CREATE = 33
    TOKEN_CREATE = 36


class ProgramType(IntEnum):
    """``enum bpf_prog_type``, as far as used."""

    SOCKET_FILTER = 1
    KPROBE = 2
    TRACEPOINT = 5
    PERF_EVENT = 7
    RAW_TRACEPOINT = 17
    TRACING = 26


class AttachType(IntEnum):
    """``enum bpf_attach_type``, as far as used."""

    NONE = 0
    TRACE_RAW_TP = 23
    TRACE_FENTRY = 24
    TRACE_FEXIT = 25
    TRACE_ITER = 28
    PERF_EVENT = 41
    TRACE_KPROBE_MULTI = 42
    TRACE_UPROBE_MULTI = 48
    TRACE_KPROBE_SESSION = 56
    TRACE_UPROBE_SESSION = 57


SLEEPABLE = 1 << 4
"""``BPF_F_SLEEPABLE``."""

_MULTI_RETURN = 1
"""``BPF_F_KPROBE_MULTI_RETURN`` and ``BPF_F_UPROBE_MULTI_RETURN``."""


def command(number: Command, attributes: bytes | bytearray) -> tuple[int, bytearray]:
    """Run one command, and return its result and the attributes, in which the kernel may have written.

    Raises:
        OSError: the command failed.
    """
    memory = Memory(attributes)
    try:
        result = syscalls.call("bpf", int(number), memory.address, len(memory.data))
    except OSError as error:
        code = error.errno or 0
        raise OSError(code, f"bpf({number.name}): {os.strerror(code)}") from None
    return result, memory.data


# ---------------------------------------------------------------------------------------------- token


_TOKEN_PATH_VARIABLE, _TOKEN_PATH = "LIBBPF_BPF_TOKEN_PATH", "/sys/fs/bpf"
"""The variable that names the bpffs to libbpf, and where that is otherwise."""
_TOKEN_FLAG = 1 << 16
"""``BPF_F_TOKEN_FD``: a descriptor of a token is among the attributes."""
_FIRST_NAMESPACE = "user:[4026531837]"
"""The user namespace of the machine has this number on every kernel (``PROC_USER_INIT_INO``)."""


def user_namespace() -> str:
    """The user namespace of this process, as the kernel shows it; empty on a kernel without any."""
    try:
        return os.readlink("/proc/self/ns/user")
    except OSError:
        return ""


def in_container() -> bool:
    """Whether this process is in another user namespace than that of the machine."""
    return user_namespace() not in ("", _FIRST_NAMESPACE)


def token_path() -> str:
    """The bpffs that a token is made of; empty when the user wants none."""
    return os.environ.get(_TOKEN_PATH_VARIABLE, _TOKEN_PATH)


def container_token() -> int | None:
    """A descriptor of the token, open until the process ends; None where there is none (:func:`token_refusal`)."""
    token = _token_or_refusal()
    return token if isinstance(token, int) else None


def token_refusal() -> str:
    """Why there is no token, in a user namespace; otherwise empty."""
    refusal = _token_or_refusal()
    return refusal if isinstance(refusal, str) else ""


@cache
def _token_or_refusal() -> int | str | None:
    # Only in a user namespace a token is of use, and only there the kernel makes one.
    if not token_path() or not in_container():
        return None
    try:
        folder = os.open(token_path(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return f"{token_path()}: {error.strerror}"
    try:
        attributes = Memory(struct.pack("=II", 0, folder))
        return syscalls.call("bpf", int(Command.TOKEN_CREATE), attributes.address, len(attributes.data))
    except OSError as error:
        return f"no BPF token of {token_path()}: {os.strerror(error.errno or 0)}"
    finally:
        os.close(folder)


# ---------------------------------------------------------------------------------------------- programs


_LOADS = 100
"""Attempts to load a program while signals interrupt the verifier."""


def prog_load(
    program_type: int,
    instructions: bytes,
    *,
    attach_type: int = 0,
    attach_btf_id: int = 0,
    log: Memory | None = None,
    flags: int = 0,
) -> int:
    """Load a program of raw instructions (8 bytes each) and return its descriptor.

    *log*, when given, takes the verifier's text. The load is repeated when a signal interrupts the verifier (EAGAIN).
    """
    insns, text, token = Memory(instructions), string_memory("GPL"), container_token()
    attributes = struct.pack(
        "=IIQQIIQII16sIIIIQIIQIIII",
        program_type,
        len(instructions) // 8,
        insns.address,
        text.address,
        1 if log is not None else 0,
        len(log.data) if log is not None else 0,
        log.address if log is not None else 0,
        0,
        flags | (_TOKEN_FLAG if token is not None else 0),
        b"",
        0,
        attach_type,
        0, 0, 0, 0, 0, 0, 0,
        attach_btf_id,
        0,
        0,
    ) + struct.pack("=QQIIi", 0, 0, 0, 0, token or 0)  # fmt: skip
    for _ in range(_LOADS - 1):
        with suppress(BlockingIOError):
            return command(Command.PROG_LOAD, attributes)[0]
    return command(Command.PROG_LOAD, attributes)[0]


def btf_load(data: bytes) -> int:
    """Load type information (``.BTF``) and return its descriptor."""
    memory, token = Memory(data), container_token()
    attributes = struct.pack("=QQIIII", memory.address, 0, len(data), 0, 0, 0)
    if token is not None:
        attributes += struct.pack("=Ii", _TOKEN_FLAG, token)
    return command(Command.BTF_LOAD, attributes)[0]


def prog_test_run(program: int, context: bytes) -> int:
    """Run a raw tracepoint program now, with *context* as its ``u64`` arguments, and return its result."""
    memory = Memory(context)
    attributes = struct.pack(
        "=IIIIQQIIIIQQIIII", program, 0, 0, 0, 0, 0, 0, 0, len(context), 0, memory.address, 0, 0, 0, 0, 0
    )
    _, data = command(Command.PROG_TEST_RUN, attributes)
    value: int = struct.unpack_from("=i", data, 4)[0]
    return value


# ---------------------------------------------------------------------------------------------- links


def _link_create(program: int, target: int, attach_type: int, tail: bytes = b"") -> int:
    """Make a link from *program* to *target* and return its descriptor; *tail* is the part for the link's kind."""
    return command(Command.LINK_CREATE, struct.pack("=IIII", program, target, attach_type, 0) + tail)[0]


def link_perf_event(program: int, event: int, cookie: int) -> int:
    """Attach *program* to an open perf event (since Linux 5.15)."""
    return _link_create(program, event, AttachType.PERF_EVENT, struct.pack("=Q", cookie))


def link_tracing(program: int, attach_type: int, cookie: int) -> int:
    """Attach a loaded fentry, fexit or BTF raw tracepoint program, with a cookie (raw tracepoints: since 6.9)."""
    return _link_create(program, 0, attach_type, struct.pack("=IIQ", 0, 0, cookie))


def raw_tracepoint_open(program: int) -> int:
    """Attach a fentry, fexit or BTF raw tracepoint program where it was loaded for, without cookie."""
    return command(Command.RAW_TRACEPOINT_OPEN, struct.pack("=QII", 0, program, 0))[0]


def link_iter(program: int) -> int:
    """Make the link of an iterator program, from which :func:`iter_create` opens readable files."""
    return _link_create(program, 0, AttachType.TRACE_ITER)


def iter_create(link: int) -> int:
    """A descriptor from which the output of an iterator is read."""
    return command(Command.ITER_CREATE, struct.pack("=II", link, 0))[0]


def read_iterator(link: int) -> Iterator[bytes]:
    """Run an iterator to its end. Yields what the program writes."""
    descriptor = iter_create(link)
    try:
        while True:
            try:
                text = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                continue  # the kernel asks to come again when a program had to give up its CPU
            if not text:
                return
            yield text
    finally:
        os.close(descriptor)


def _words(values: Sequence[int]) -> bytes:
    """An array of ``u64``."""
    return struct.pack(f"={len(values)}Q", *values)


def link_kprobe_multi(
    program: int,
    *,
    symbols: Sequence[str] = (),
    addresses: Sequence[int] = (),
    cookies: Sequence[int] = (),
    returns: bool = False,
    session: bool = False,
) -> int:
    """Attach to many kernel functions with one link, by name or by address (since 5.18; sessions since 6.10)."""
    texts = [string_memory(name) for name in symbols]
    names = Memory(_words([item.address for item in texts]))
    places = Memory(_words(addresses))
    values = Memory(_words(cookies))
    tail = struct.pack(
        "=IIQQQ",
        _MULTI_RETURN if returns else 0,
        len(texts) or len(addresses),
        names.address,
        places.address,
        values.address,
    )
    kind = AttachType.TRACE_KPROBE_SESSION if session else AttachType.TRACE_KPROBE_MULTI
    return _link_create(program, 0, kind, tail)


def link_uprobe_multi(
    program: int,
    path: str,
    offsets: Sequence[int],
    *,
    cookies: Sequence[int] = (),
    semaphores: Sequence[int] = (),
    pid: int = 0,
    returns: bool = False,
    session: bool = False,
) -> int:
    """Attach to many offsets of one file with one link (since 6.6; sessions since 6.13).

    *semaphores* are the file offsets of USDT reference counters (0 for none); *pid* 0 means every process.
    """
    name = string_memory(path)
    places = Memory(_words(offsets))
    counters = Memory(_words(semaphores))
    values = Memory(_words(cookies))
    tail = struct.pack(
        "=QQQQIIII",
        name.address,
        places.address,
        counters.address,
        values.address,
        len(offsets),
        _MULTI_RETURN if returns else 0,
        pid,
        0,
    )
    kind = AttachType.TRACE_UPROBE_SESSION if session else AttachType.TRACE_UPROBE_MULTI
    return _link_create(program, 0, kind, tail)


def obj_pin(descriptor: int, path: str) -> None:
    """Give a program, map or link a name in a bpffs."""
    name = string_memory(path)
    command(Command.OBJ_PIN, struct.pack("=QIIII", name.address, descriptor, 0, 0, 0))


# ---------------------------------------------------------------------------------------------- objects by id


def ids(kind: str) -> list[int]:
    """Ids of all objects of *kind* in the kernel: ``prog``, ``map``, ``link`` or ``btf``."""
    number = Command[f"{kind.upper()}_GET_NEXT_ID"]
    numbers: list[int] = []
    current = 0
    while True:
        try:
            _, data = command(number, struct.pack("=III", current, 0, 0))
        except FileNotFoundError:
            return numbers
        current = struct.unpack_from("=I", data, 4)[0]
        numbers.append(current)


def open_by_id(kind: str, number: int) -> int:
    """A descriptor of the object of *kind* (as in :func:`ids`) and id."""
    return command(Command[f"{kind.upper()}_GET_FD_BY_ID"], struct.pack("=III", number, 0, 0))[0]


def info(descriptor: int, size: int) -> bytes:
    """The first *size* bytes of an object's information structure (``struct bpf_prog_info`` and such)."""
    memory = Memory(size)
    command(Command.OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, size, memory.address))
    return bytes(memory.data)


def info_size(descriptor: int, most: int) -> int:
    """How many bytes of information this kernel has about an object, up to *most*."""
    memory = Memory(most)
    _, data = command(Command.OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, most, memory.address))
    return int(struct.unpack_from("=I", data, 4)[0])


def prog_id(program: int) -> int:
    """The id of a loaded program."""
    return int(struct.unpack_from("=II", info(program, 8))[1])


def map_info(descriptor: int) -> tuple[int, int, int, int, int]:
    """Type, id, key size, value size and number of entries of a map."""
    kind, number, key, value, entries = struct.unpack_from("=IIIII", info(descriptor, 20))
    return kind, number, key, value, entries


def link_info(descriptor: int) -> tuple[int, int, int]:
    """Type (``enum bpf_link_type``), id and program id of a link."""
    kind, number, program = struct.unpack_from("=III", info(descriptor, 12))
    return kind, number, program


_UPROBE_MULTI_LINK, _PROCESS_AT = 12, 60
"""``BPF_LINK_TYPE_UPROBE_MULTI``, and where ``uprobe_multi.pid`` lies in ``struct bpf_link_info``."""


def uprobe_multi_process(link: int) -> int:
    """The process that a multi link of user probes is bound to, by its first thread; 0 if that thread is gone.

    It is also 0 for links of all processes, and before Linux 6.8; -1 for other links.
    """
    data = info(link, _PROCESS_AT + 4)
    (kind,) = struct.unpack_from("=I", data)
    return int(struct.unpack_from("=I", data, _PROCESS_AT)[0]) if kind == _UPROBE_MULTI_LINK else -1


LINK_INFO_WITH_MISSES = 56
"""Bytes of ``struct bpf_link_info`` on kernels whose links count missed kprobes (6.7)."""

_RECURSION_AT = 208


def recursion_misses(program: int) -> int:
    """How often a program was not run because it (or, for some kinds, one like it) was running on that CPU."""
    return int(struct.unpack_from("=Q", info(program, _RECURSION_AT + 8), _RECURSION_AT)[0])


_RUN_TIME_AT = 192
"""Where ``run_time_ns`` and ``run_cnt`` lie in ``struct bpf_prog_info`` (``include/uapi/linux/bpf.h``)."""


def enable_statistics() -> int:
    """Have the kernel time all programs while the returned descriptor is open (Linux 5.8)."""
    return command(Command.ENABLE_STATS, struct.pack("=I", 0))[0]


def run_statistics(program: int) -> tuple[int, int]:
    """Nanoseconds that a program ran while statistics were on, and how often."""
    nanoseconds, count = struct.unpack_from("=QQ", info(program, _RUN_TIME_AT + 16), _RUN_TIME_AT)
    return nanoseconds, count


# ---------------------------------------------------------------------------------------------- maps


NO_BATCH = frozenset({errno.EINVAL, errno.EOPNOTSUPP, syscalls.ENOTSUPP})
"""Error numbers of batch commands on kernels or map types that lack them."""

_ELEMENT = struct.Struct("=IIQQQ")
_BATCH = struct.Struct("=QQQQIIQQ")


def map_create(
    kind: int, key_size: int, value_size: int, entries: int, *, flags: int = 0, name: str = "", inner: int = 0
) -> int:
    """Create a map.

    Args:
        kind: number of the type (``enum bpf_map_type``).
        key_size: bytes of a key.
        value_size: bytes of a value; for per-CPU maps of the value of one CPU.
        entries: most keys.
        flags: ``BPF_F_…``.
        name: for those who list the kernel's maps; truncated to 15 bytes.
        inner: descriptor of a map of the kind that a map of maps holds.

    Returns:
        Its descriptor.

    Raises:
        OSError: the kernel refuses (E2BIG: it does not allow that size).
    """
    token = container_token()
    flags |= _TOKEN_FLAG if token is not None else 0
    attributes = struct.pack("=IIIIIII16s", kind, key_size, value_size, entries, flags, inner, 0, name.encode()[:15])
    if token is not None:
        attributes += struct.pack("=IIIIIQii", 0, 0, 0, 0, 0, 0, 0, token)
    return command(Command.MAP_CREATE, attributes)[0]


def map_lookup(descriptor: int, key: bytes, value_size: int) -> bytes | None:
    """The value of *key* (per-CPU maps: of all possible CPUs, *value_size* bytes in total), or None."""
    place, value = Memory(key), Memory(value_size)
    try:
        command(Command.MAP_LOOKUP_ELEM, _ELEMENT.pack(descriptor, 0, place.address, value.address, 0))
    except FileNotFoundError:
        return None
    return bytes(value.data)


def map_update(descriptor: int, key: bytes, value: bytes) -> None:
    """Set the value of *key* (per-CPU maps: of all possible CPUs)."""
    place, content = Memory(key), Memory(value)
    command(Command.MAP_UPDATE_ELEM, _ELEMENT.pack(descriptor, 0, place.address, content.address, 0))


def map_delete(descriptor: int, key: bytes) -> bool:
    """Remove *key*; False when it was not there."""
    place = Memory(key)
    try:
        command(Command.MAP_DELETE_ELEM, _ELEMENT.pack(descriptor, 0, place.address, 0, 0))
    except FileNotFoundError:
        return False
    return True


def map_next_key(descriptor: int, key: bytes | None, key_size: int) -> bytes | None:
    """The key after *key* (the first one for None), or None at the end."""
    before = Memory(key or b"")
    after = Memory(key_size)
    try:
        command(Command.MAP_GET_NEXT_KEY, _ELEMENT.pack(descriptor, 0, before.address, after.address, 0))
    except FileNotFoundError:
        return None
    return bytes(after.data)


def close_mapping(mapped: mmap.mmap) -> None:
    """Unmap memory of a map, which stays mapped while there are views: an exception keeps those of frames it left."""
    with suppress(BufferError):
        mapped.close()


class MapBatch:
    """A walk through a hash map by batches.

    The position that the kernel keeps between two calls (``u32`` bucket number for hashes) is held here.

    Args:
        descriptor: the map.
        key_size: bytes of a key.
        value_size: bytes of a value; for per-CPU maps of the values of all possible CPUs.
        capacity: most elements of one call; at least as many as the fullest bucket has.
    """

    def __init__(self, descriptor: int, key_size: int, value_size: int, capacity: int) -> None:
        self.descriptor = descriptor
        self._sizes = key_size, value_size
        self.capacity = capacity
        self.keys = Memory(key_size * capacity)
        self.values = Memory(value_size * capacity)
        self._position = Memory(max(8, key_size))
        self._started = False

    def read(self, *, delete: bool = False) -> tuple[int, bool]:
        """Fill :attr:`keys` and :attr:`values` from the next elements; return their number, and True at the end.

        With *delete* the elements are taken out of the map in the same step.

        Raises:
            OSError: ENOSPC when a bucket holds more than *capacity*; EINVAL or ENOTSUPP where batches are missing.
        """
        number = Command.MAP_LOOKUP_AND_DELETE_BATCH if delete else Command.MAP_LOOKUP_BATCH
        position = self._position.address
        attributes = Memory(
            _BATCH.pack(
                position if self._started else 0,
                position,
                self.keys.address,
                self.values.address,
                self.capacity,
                self.descriptor,
                0,
                0,
            )
        )
        end = False
        try:
            syscalls.call("bpf", int(number), attributes.address, len(attributes.data))
        except FileNotFoundError:
            end = True
        self._started = True
        return struct.unpack_from("=I", attributes.data, 32)[0], end

    def grow(self) -> None:
        """Double :attr:`capacity`; the walk goes on where it was."""
        self.capacity *= 2
        self.keys = Memory(self._sizes[0] * self.capacity)
        self.values = Memory(self._sizes[1] * self.capacity)


def map_update_all(descriptor: int, keys: Sequence[bytes], value: bytes) -> None:
    """Set many keys to one value, by one batch where the kernel can."""
    if not keys:
        return
    places, contents = Memory(b"".join(keys)), Memory(value * len(keys))
    attributes = Memory(_BATCH.pack(0, 0, places.address, contents.address, len(keys), descriptor, 0, 0))
    try:
        syscalls.call("bpf", int(Command.MAP_UPDATE_BATCH), attributes.address, len(attributes.data))
    except OSError as error:
        if error.errno not in NO_BATCH:
            raise
        for key in keys:
            map_update(descriptor, key, value)
