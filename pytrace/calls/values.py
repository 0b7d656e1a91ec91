"""Arguments and results of system calls as text, in the form that strace's readers know."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec

from pytrace.calls import flag_tables
from pytrace.calls.descriptors import Descriptors
from pytrace.calls.signatures import Signature, Type

# ---------------------------------------------------------------------------------------------- structs

# Structs that system calls read and write: their sizes, and their text.
#
# A row of `FIELDS` lists the fields of a struct of the kernel's UAPI headers on 64-bit machines: ``name:code:type``,
# with a code of Python's ``struct``, or another struct; ``.N`` are N bytes without a name. Types are those of
# `pytrace.calls.signatures`; a field in parentheses is not shown, and ``...`` says that some are left out.

_STAT = {
    "x86_64": "(st_dev:Q) (st_ino:Q) (st_nlink:Q) st_mode:I:filemode (st_uid:I) (st_gid:I) .4 (st_rdev:Q:dev) "
              "st_size:q (st_blksize:q) (st_blocks:q) (st_atim:timespec) (st_mtim:timespec) (st_ctim:timespec) "
              ".24 ...",
    "aarch64": "(st_dev:Q) (st_ino:Q) st_mode:I:filemode (st_nlink:I) (st_uid:I) (st_gid:I) (st_rdev:Q:dev) .8 "
               "st_size:q (st_blksize:i) .4 (st_blocks:q) (st_atim:timespec) (st_mtim:timespec) "
               "(st_ctim:timespec) .8 ...",
}  # fmt: skip

FIELDS: Mapping[str, str] = {
    "caphead": "version:I:hex pid:i",
    "capdata": "effective:I:hex permitted:I:hex inheritable:I:hex",
    "clone_args": "flags:Q:|unshare (pidfd:Q:ptr) child_tid:Q:ptr parent_tid:Q:ptr exit_signal:Q:sig0 stack:Q:ptr "
                  "stack_size:Q:hex tls:Q:ptr ...",
    "epoll_event": "events:I:|epollevents data:Q:epolldata",
    "flock": "l_type:h:#flock l_whence:h:#whence .4 l_start:q l_len:q (l_pid:i) .4",
    "iovec": "iov_base:Q:ptr iov_len:Q",
    "itimerspec": "it_interval:timespec it_value:timespec",
    "itimerval": "it_interval:timeval it_value:timeval",
    "landlock_attr": "handled_access_fs:Q:hex",
    "mq_attr": "mq_flags:q mq_maxmsg:q mq_msgsize:q mq_curmsgs:q .32",
    "offs": "@:q",
    "open_how": "flags:Q:open mode:Q:oct0 resolve:Q:|resolve",
    "perf_attr": "type:I size:I config:Q:hex ...",
    "pollfd": "fd:i:fd events:h:|poll revents:h:|poll",
    "rlimit": "rlim_cur:Q:rlim rlim_max:Q:rlim",
    "rusage": "ru_utime:timeval ru_stime:timeval (maxrss:q) .104 ...",
    "sched_attr": "size:I sched_policy:I:#sched sched_flags:Q:hex sched_nice:i sched_priority:I sched_runtime:Q "
                  "sched_deadline:Q sched_period:Q ...",
    "sembuf": "sem_num:H sem_op:h sem_flg:h:hex",
    "sigevent": "sigev_value:Q:hex sigev_signo:i:sig sigev_notify:i:#sigev ...",
    "siginfo": "si_signo:i:sig .4 si_code:i:sicode .4 si_pid:i si_uid:I si_status:i .100 ...",
    "stack": "ss_sp:Q:ptr ss_flags:i:|ssflags .4 ss_size:Q",
    "statfs": "f_type:q:#fsmagic f_bsize:q f_blocks:Q f_bfree:Q f_bavail:Q f_files:Q f_ffree:Q (f_fsid:Q) f_namelen:q "
              "f_frsize:q f_flags:q:|statfs .32",
    "statx": "stx_mask:I:|statx (blksize:I) stx_attributes:Q:|statxattr (nlink:I) (uid:I) (gid:I) stx_mode:H:filemode "
             ".2 (ino:Q) stx_size:Q .208 ...",
    "sysinfo": "uptime:q loads:sysloads totalram:Q freeram:Q sharedram:Q bufferram:Q totalswap:Q freeswap:Q procs:H .6 "
               "totalhigh:Q freehigh:Q mem_unit:I .4",
    "sysloads": "@:Q @:Q @:Q",
    "termios": "c_iflag:I:hex c_oflag:I:hex c_cflag:I:hex c_lflag:I:hex (c_line:B) .19 ...",
    "timespec": "tv_sec:q tv_nsec:q",
    "timeval": "tv_sec:q tv_usec:q",
    "tms": "tms_utime:q tms_stime:q tms_cutime:q tms_cstime:q",
    "uring_params": "(sq:I) (cq:I) flags:I:|iouringsetup sq_thread_cpu:I sq_thread_idle:I .100 ...",
    "utimbuf": "actime:q modtime:q",
    "utsname": "sysname:65s nodename:65s release:65s version:65s machine:65s domainname:65s",
    "winsize": "ws_row:H ws_col:H ws_xpixel:H ws_ypixel:H",
}

_NUMBERS = {"I": "uint", "q": "long", "Q": "ulong", "H": "uint"}
"""Types of fields by their codes, where they are not 32-bit numbers with a sign."""

SCALARS: Mapping[str, str] = {"int": "i", "uint": "I", "long": "q", "ulong": "Q", "ptr": "Q", "off": "q", "status": "i",
                              "sigset": "Q"}  # fmt: skip
"""Integers that addresses point to, with their codes."""

SPECIAL: Mapping[str, int] = {"sigaction": 32, "msghdr": 56, "sockaddr": 128}
"""Forms with a function of their own, with their sizes in bytes."""


class Field(msgspec.Struct, frozen=True):
    """A field: its name (empty: none), its type, the struct that it is (empty: a number), whether it is shown."""

    name: str
    type: str
    inner: str
    shown: bool


class Layout(msgspec.Struct, frozen=True):
    """A struct: its format, its fields in their order, its size in bytes, and whether some are left out of its text."""

    fields: tuple[Field, ...]
    unpack: Callable[[bytes], tuple[object, ...]]
    size: int
    shortened: bool
    bare: bool
    """Its values have no names."""


@cache
def layout(name: str, machine: str) -> Layout:
    """The layout of a struct."""
    text = _STAT.get(machine, _STAT["aarch64"]) if name == "stat" else FIELDS[name]
    if name == "epoll_event" and machine != "x86_64":
        # EPOLL_PACKED of linux/eventpoll.h is for x86-64 only.
        text = text.replace(" data", " .4 data")
    words = text.split()
    shortened = words[-1] == "..."
    fields, form = [], "="
    for word in words[: len(words) - shortened]:
        if word.startswith("."):
            form += f"{word[1:]}x"
            continue
        shown = not word.startswith("(")
        title, code, *rest = word.strip("()").split(":", 2)
        inner = code if code in FIELDS else ""
        form += f"{layout(inner, machine).size}s" if inner else code
        fields.append(Field(title, rest[0] if rest else _NUMBERS.get(code, "int"), inner, shown))
    packed = struct.Struct(form)
    return Layout(tuple(fields), packed.unpack, packed.size, shortened, fields[0].name == "@")


def size_of(name: str, machine: str) -> int:
    """The size in bytes of what an address of type *name* points to; 0 where that depends on the call."""
    if name in SCALARS:
        return struct.calcsize(SCALARS[name])
    if name in SPECIAL:
        return SPECIAL[name]
    return layout(name, machine).size if name in FIELDS or name == "stat" else 0


# ---------------------------------------------------------------------------------------------- values

UNREADABLE = "<unreadable>"
LONGEST_PATH = 1024

_RESTARTED = {
    512: "ERESTARTSYS (To be restarted if SA_RESTART is set)", 513: "ERESTARTNOINTR (To be restarted)",
    514: "ERESTARTNOHAND (To be restarted if no handler)", 516: "ERESTART_RESTARTBLOCK (Interrupted by signal)",
    517: "EPROBE_DEFER", 530: "ERECALLCONFLICT",
}  # fmt: skip
"""Results that programs never see (``include/linux/errno.h``): the kernel restarts the call, or returns EINTR."""

_ERRORS = {errno.EOPNOTSUPP: "EOPNOTSUPP", errno.EDEADLK: "EDEADLK", errno.EAGAIN: "EAGAIN"}
"""Names of errors that have two."""
_ESCAPES = {9: r"\t", 10: r"\n", 11: r"\v", 12: r"\f", 13: r"\r", 34: r"\"", 92: r"\\"}


class Recorded(msgspec.Struct):
    """A call as it was recorded: what it read (*before*) and wrote (*after*) by argument, and lists by argument."""

    number: int
    signature: Signature | None
    pid: int
    tid: int
    start: int
    duration: int
    result: int
    arguments: tuple[int, ...]
    finished: bool = True
    before: dict[int, bytes] = {}
    after: dict[int, bytes] = {}
    parts: dict[int, bytes] = {}
    """Bytes of a vector, by index; strings of a list."""
    listed: int | None = None
    """The number of strings of the list that is only counted."""
    lost: bool = False
    """What the call read is lost."""


@cache
def _table(name: str, machine: str) -> dict[int, str]:
    return flag_tables.OF_MACHINE.get(machine, {}).get(name) or flag_tables.TABLES[name]


def quoted(data: bytes, *, cut: bool = False) -> str:
    """Bytes as a string of C, with ``...`` after it if it was truncated."""
    parts = []
    for index, byte in enumerate(data):
        if byte in _ESCAPES:
            parts.append(_ESCAPES[byte])
        elif 32 <= byte < 127:
            parts.append(chr(byte))
        else:
            digit = index + 1 < len(data) and 48 <= data[index + 1] < 58
            parts.append(f"\\{byte:03o}" if digit else f"\\{byte:o}")
    return f'"{"".join(parts)}"{"..." if cut else ""}'


def flags(value: int, table: Mapping[int, str], *, none: str = "0", octal: bool = False) -> str:
    """The names of the bits of *value*, and the rest as a number."""
    names = []
    for bits, name in table.items():
        if value & bits == bits:
            names.append((bits, name))
            value &= ~bits
    texts = [name for _, name in sorted(names)]
    if value or not texts:
        texts.append((f"{value:#o}".replace("0o", "0") if octal else f"{value:#x}") if value else none)
    return "|".join(texts)


def signed(value: int, bits: int = 32) -> int:
    """The low *bits* of a register as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def octal(value: int) -> str:
    """A number as C writes it in octal."""
    return f"0{value:o}" if value else "000"


def file_mode(value: int) -> str:
    """The type and the permissions of a file."""
    kinds = {0o140000: "S_IFSOCK", 0o120000: "S_IFLNK", 0o100000: "S_IFREG", 0o060000: "S_IFBLK", 0o040000: "S_IFDIR",
             0o020000: "S_IFCHR", 0o010000: "S_IFIFO"}  # fmt: skip
    texts = [kinds[value & 0o170000]] if value & 0o170000 in kinds else []
    texts += [name for bit, name in ((0o4000, "S_ISUID"), (0o2000, "S_ISGID"), (0o1000, "S_ISVTX")) if value & bit]
    return "|".join([*texts, f"0{value & 0o777:03o}"])


def signal_name(number: int) -> str:
    """The name of a signal."""
    known = flag_tables.TABLES["sig"].get(number)
    if known is None and 32 <= number <= 64:
        return f"SIGRT_{number - 32}" if number > 32 else "SIGRTMIN"
    return known or str(number)


def signal_set(mask: int) -> str:
    """The signals of a set; its complement where more than half are in it."""
    inverted = mask.bit_count() > 32
    numbers = [number for number in range(1, 65) if bool(mask >> (number - 1) & 1) != inverted]
    names = [signal_name(number).removeprefix("SIG") for number in numbers]
    return f"{'~' if inverted else ''}[{' '.join(names)}]"


def socket_address(data: bytes, length: int | None = None) -> str:
    """A socket address, of which *length* bytes hold."""
    if length is not None:
        data = data[: max(0, length)]
    if len(data) < 2:
        return quoted(data) if data else "NULL"
    (family,) = struct.unpack_from("=H", data)
    name = flag_tables.TABLES["addrfam"].get(family, f"{family:#x}")
    rest = data[2:]
    if name == "AF_UNIX":
        if not rest:
            return "{sa_family=AF_UNIX}"
        if rest[0] == 0:
            path = rest[1:] if length is not None else rest[1:].rstrip(bytes(1))
            return f"{{sa_family=AF_UNIX, sun_path=@{quoted(path)}}}"
        return f"{{sa_family=AF_UNIX, sun_path={quoted(rest.partition(bytes(1))[0])}}}"
    if name == "AF_INET" and len(rest) >= 6:
        (port,) = struct.unpack_from("!H", rest)
        return f'{{sa_family=AF_INET, sin_port=htons({port}), sin_addr=inet_addr("{socket.inet_ntoa(rest[2:6])}")}}'
    if name == "AF_INET6" and len(rest) >= 26:
        (port, flow), (scope,) = struct.unpack_from("!HI", rest), struct.unpack_from("=I", rest, 22)
        address = socket.inet_ntop(socket.AF_INET6, rest[6:22])
        return (
            f"{{sa_family=AF_INET6, sin6_port=htons({port}), sin6_flowinfo=htonl({flow}), "
            f'inet_pton(AF_INET6, "{address}", &sin6_addr), sin6_scope_id={scope}}}'
        )
    if name == "AF_NETLINK" and len(rest) >= 10:
        pid, groups = struct.unpack_from("=II", rest, 2)
        return f"{{sa_family=AF_NETLINK, nl_pid={pid}, nl_groups={groups:08x}}}"
    if name == "AF_PACKET" and len(rest) >= 10:
        protocol, index = struct.unpack_from("!H", rest)[0], struct.unpack_from("=i", rest, 2)[0]
        return f"{{sa_family=AF_PACKET, sll_protocol=htons({protocol:#x}), sll_ifindex={index}}}"
    return f"{{sa_family={name}, sa_data={quoted(rest[:14])}}}"


class Texts:
    """Text of the arguments and results of calls. *longest* is how many bytes of a string are shown."""

    def __init__(self, machine: str, longest: int, descriptors: Descriptors | None) -> None:
        self._machine, self._longest, self._descriptors = machine, longest, descriptors
        self.unreadable = 0
        """Values that could not be read."""
        self._call: Recorded

    def _names(self, name: str) -> dict[int, str]:
        return _table(name, self._machine)

    # ---- a call

    def arguments(self, call: Recorded) -> list[str]:
        """The text of each argument."""
        self._call = call
        signature = call.signature
        if signature is None:
            return [f"{value:#x}" for value in call.arguments]
        shown = []
        for index, type_ in enumerate(signature.types):
            text = self._argument(index, type_, call.arguments[index])
            if text is not None:
                shown.append(text)
        return shown

    def result(self, call: Recorded) -> str:
        """What the call returned, with the name and the text of an error."""
        value = call.result
        if not call.finished:
            return "?"
        if -4096 < value < 0:
            if -value in _RESTARTED:
                return f"? {_RESTARTED[-value]}"
            name = _ERRORS.get(-value) or errno.errorcode.get(-value)
            return f"-1 {name} ({os.strerror(-value)})" if name else f"-1 (errno {-value})"
        kind = call.signature.result if call.signature is not None else "int"
        if kind == "fd":
            return self._fd(value, call)
        if kind == "ptr" or call.signature is None:
            return f"{value & 0xFFFFFFFFFFFFFFFF:#x}"
        if kind == "oct":
            return octal(value)
        if kind.startswith("#"):
            return f"{value:#x} ({self._enum(kind[1:], value)})".replace("0x0 ", "0 ")
        return self._result_of(call, value)

    def _result_of(self, call: Recorded, value: int) -> str:
        assert call.signature is not None
        name, arguments = call.signature.name, call.arguments
        if name == "fcntl":
            command = self._names("fcntl").get(arguments[1] & 0xFFFFFFFF, "")
            if command in ("F_DUPFD", "F_DUPFD_CLOEXEC"):
                return self._fd(value, call)
            if command == "F_GETFL":
                return f"{value:#x} (flags {self.open_flags(value)})"
            if command == "F_GETFD":
                return f"{value:#x} (flags {flags(value, self._names('fdflags'))})" if value else "0"
        if name == "personality":
            return f"{f'{value:#x}' if value else '0'} ({self._personality(value, 0)})"
        if name == "prctl" and self._names("prctl").get(arguments[0] & 0xFFFFFFFF) == "PR_GET_DUMPABLE":
            return f"{value} ({_DUMPABLE.get(value, '?')})"
        if name in ("poll", "ppoll", "select", "pselect6") and value == 0:
            return "0 (Timeout)"
        if name in ("poll", "ppoll") and 0 in call.after:
            self._call = call
            ready = self._array(Type("pollfd", ">"), call.after[0], only=lambda item: bool(item[2]))
            ready = re.sub("(?<=, )events=[A-Z|0-9x]+, ", "", ready)
            return f"{value} ({ready}{self._left(call, 2) if name == 'ppoll' else ''})"
        if name in ("select", "pselect6"):
            self._call = call
            ready = ", ".join(
                f"{word} {numbers}" for index, word in ((1, "in"), (2, "out"), (3, "except"))
                if arguments[index] and (data := call.after.get(index))
                and (numbers := self._fdset(index, call.signature.types[index], data)) != "[]"
            )  # fmt: skip
            return f"{value} ({ready}{self._left(call, 4)})" if ready else str(value)
        return str(value)

    def _left(self, call: Recorded, index: int) -> str:
        """What is left of the time that a call may wait, which the kernel has written in its place."""
        data = call.after.get(index)
        if not data or call.signature is None:
            return ""
        return f", left {self._one(call.signature.types[index].base, data)}"

    # ---- an argument

    def _argument(self, index: int, type_: Type, value: int) -> str | None:
        if type_.direction:
            return self._pointed(index, type_, value)
        own = _VALUES.get(type_.base)
        if own is not None:
            return own(self, value, index)
        return self.scalar(type_.base, value)

    def scalar(self, base: str, value: int) -> str:
        """A number of a type of :mod:`pytrace.calls.signatures`."""
        if base.startswith("|"):
            return flags(value & 0xFFFFFFFFFFFFFFFF, self._names(base[1:]))
        if base.startswith("#"):
            return self._enum(base[1:], value)
        return _SCALARS[base](value)

    def _enum(self, name: str, value: int) -> str:
        table = self._names(name)
        known = table.get(value & 0xFFFFFFFF) or table.get(value & 0xFFFFFFFFFFFFFFFF)
        known = known or table.get(signed(value) & 0xFFFFFFFFFFFFFFFF)
        return known or f"{value & 0xFFFFFFFF:#x}"

    def _pointed(self, index: int, type_: Type, address: int) -> str | None:
        call = self._call
        if not address and type_.base not in ("buf", "argv"):
            return "NULL"
        if not address:
            return "NULL"
        if call.lost and type_.direction in "<=" and index not in call.after:
            return "<lost>"
        if type_.base == "argv":
            return self._list(index, address)
        if type_.base == "envp":
            return f"{address:#x} /* {call.listed} vars */" if call.listed is not None else f"{address:#x}"
        data = call.before.get(index) if type_.direction in "<=" else call.after.get(index)
        wrote = type_.direction == ">"
        if data is None or (wrote and not call.finished) or (
            wrote and call.result < 0 and not type_.failing
        ):
            return f"{address:#x}"
        if type_.direction == "=" and type_.base == "int" and call.result >= 0 and index in call.after:
            before, now = self._one("int", data), self._one("int", call.after[index])
            return before if before == now else f"{before[:-1]} => {now[1:]}"
        if call.result == -errno.EFAULT and not any(data):
            return f"{address:#x}"
        return self._data(index, type_, data)

    def _data(self, index: int, type_: Type, data: bytes) -> str:
        base, call = type_.base, self._call
        if base in ("path", "str"):
            if data == UNREADABLE.encode():
                self.unreadable += 1
                return UNREADABLE
            longest = LONGEST_PATH if base == "path" else self._longest
            return quoted(data[:longest], cut=len(data) > longest or (base == "path" and len(data) >= 1023))
        if base in ("buf", "rand", "cstr"):
            whole = call.result if type_.count == -1 else call.arguments[type_.count or 0]
            if base == "cstr":
                return quoted(data.rstrip(bytes(1)))
            return quoted(data[: self._longest], cut=whole > min(len(data), self._longest))
        if base == "sockaddr":
            if type_.sized is None:
                return socket_address(data, call.arguments[type_.count or 0])
            size = call.after.get(type_.sized)
            return socket_address(data, struct.unpack("=i", size[:4])[0] if size else None)
        own = _DATA.get(base)
        if own is not None:
            return own(self, index, type_, data)
        if type_.count is not None or type_.times is not None:
            return self._array(type_, data)
        return self._one(base, data)

    def _one(self, base: str, data: bytes) -> str:
        """A struct, or a number in brackets."""
        if base in SCALARS:
            size = size_of(base, self._machine)
            if len(data) < size:
                return UNREADABLE
            (value,) = struct.unpack("=" + SCALARS[base], data[:size])
            return f"[{value:#x}]" if base == "ptr" else f"[{value}]"
        form = layout(base, self._machine)
        return self._struct(form, data) if len(data) >= form.size else UNREADABLE

    def _struct(self, form: Layout, data: bytes) -> str:
        values = form.unpack(data[: form.size])
        texts = []
        device = any(
            field.type == "filemode" and isinstance(value, int) and value & 0o170000 in (0o020000, 0o060000)
            for field, value in zip(form.fields, values, strict=True)
        )
        for field, value in zip(form.fields, values, strict=True):
            # stat(2) has a size, or the number of a device.
            if not (field.shown or (device and field.type == "dev")) or (device and field.name == "st_size"):
                continue
            if field.inner:
                assert isinstance(value, bytes)
                text = self._struct(layout(field.inner, self._machine), value)
            elif isinstance(value, bytes):
                text = quoted(value.partition(bytes(1))[0])
            else:
                assert isinstance(value, int)
                own = _VALUES.get(field.type)
                text = (own(self, value, -1) if own is not None else None) or self.scalar(field.type, value)
            texts.append(text if form.bare else f"{field.name}={text}")
        if form.bare:
            return f"[{', '.join(texts)}]"
        return f"{{{', '.join(texts)}{', ...' if form.shortened else ''}}}"

    def _array(self, type_: Type, data: bytes, only: Callable[[Sequence[object]], bool] | None = None) -> str:
        size = size_of(type_.base, self._machine)
        texts = []
        for start in range(0, len(data) - size + 1, size):
            item = data[start : start + size]
            if type_.base in SCALARS:
                texts.append(str(struct.unpack("=" + SCALARS[type_.base], item)[0]))
                continue
            form = layout(type_.base, self._machine)
            if only is not None and not only(form.unpack(item)):
                continue
            text = self._struct(form, item)
            texts.append(text.replace(", revents=0}", "}") if type_.base == "pollfd" else text)
        count = self._call.arguments[type_.count] if type_.count is not None and type_.count >= 0 else None
        if type_.count == -1:
            count = self._call.result
        more = ", ..." if count is not None and only is None and count * size > len(data) else ""
        if type_.base == "pollfd" and only is None and type_.direction == "=":
            texts = [text.partition(", revents=")[0].removesuffix("}") + "}" for text in texts]
        return f"[{', '.join(texts)}{more}]"

    def _list(self, index: int, address: int) -> str:
        parts = self._call.parts
        if not parts:
            return f"{address:#x}"
        texts = [quoted(parts[key][: 200], cut=len(parts[key]) >= 199) for key in sorted(parts)]
        return f"[{', '.join(texts)}{', ...' if len(texts) >= 32 else ''}]"

    # ---- descriptors, and types with rules of their own

    def _fd(self, value: int, call: Recorded | None = None) -> str:
        number = signed(value)
        name = None
        if self._descriptors is not None and number >= 0:
            name = self._descriptors.name((call or self._call).pid, number)
        return f"{number}<{name}>" if name else str(number)

    def _fd_value(self, value: int, _index: int) -> str:
        return self._fd(value)

    def _at(self, value: int, _index: int) -> str:
        if signed(value) != -100:
            return self._fd(value)
        name = self._descriptors.folder(self._call.pid) if self._descriptors is not None else None
        return f"AT_FDCWD<{name}>" if name else "AT_FDCWD"

    def open_flags(self, value: int) -> str:
        """The flags of open(2)."""
        mode = self._names("accmode").get(value & 3, "O_ACCMODE")
        rest = value & ~3 & 0xFFFFFFFF
        return f"{mode}|{flags(rest, self._names('open'))}" if rest else mode

    def _open(self, value: int, _index: int) -> str:
        return self.open_flags(value)

    def _mode(self, value: int, index: int) -> str | None:
        """The permissions, only where the call may create a file."""
        given = self._call.arguments[index - 1]
        tmpfile = 0o20000000
        return octal(value & 0o7777) if given & 0o100 or given & tmpfile else None

    def _ioctl(self, value: int, _index: int) -> str:
        value &= 0xFFFFFFFF
        known = self._names("ioctl").get(value)
        if known is not None:
            return known
        direction, size, kind, number = value >> 30, value >> 16 & 0x3FFF, value >> 8 & 0xFF, value & 0xFF
        ways = ("_IOC_NONE", "_IOC_WRITE", "_IOC_READ", "_IOC_READ|_IOC_WRITE")
        return f"_IOC({ways[direction]}, {kind:#x}, {number:#x}, {size:#x})"

    def _protection(self, value: int, _index: int) -> str:
        return flags(value, self._names("prot"), none="PROT_NONE")

    def _access(self, value: int, _index: int) -> str:
        return flags(value, self._names("access"), none="F_OK")

    def _socktype(self, value: int, _index: int) -> str:
        kind = self._enum("socktype", value & 0xF)
        rest = value & ~0xF & 0xFFFFFFFF
        return f"{kind}|{flags(rest, self._names('sockflags'))}" if rest else kind

    def _protocol(self, value: int, _index: int) -> str:
        family = self._names("addrfam").get(self._call.arguments[0] & 0xFFFF)
        if family in ("AF_INET", "AF_INET6"):
            return self._enum("ipproto", value)
        if family == "AF_NETLINK":
            return self._enum("netlink", value)
        return str(signed(value))

    def _clone_flags(self, value: int, _index: int) -> str:
        exit_signal = value & 0xFF
        text = flags(value & ~0xFF, self._names("clone")) if value & ~0xFF else ""
        return "|".join(part for part in (text, signal_name(exit_signal) if exit_signal else "") if part) or "0"

    def _futex_op(self, value: int, _index: int) -> str:
        base = value & 0x7F
        name = self._names("futex").get(base, f"{base:#x}")
        clock = "|FUTEX_CLOCK_REALTIME" if value & 256 else ""
        return f"{name}{'_PRIVATE' if value & 128 else ''}{clock}"

    def _futex_time(self, value: int, index: int) -> str | None:
        operation = self._call.arguments[1] & 0x7F
        if operation in (0, 6, 9, 11, 13):
            data = self._call.before.get(index)
            return "NULL" if not value else self._one("timespec", data) if data else f"{value:#x}"
        return None if operation in (1, 2, 7, 8, 10) else str(signed(value))

    def _futex_rest(self, value: int, index: int) -> str | None:
        operation = self._call.arguments[1] & 0x7F
        if index == 4:
            return (f"{value:#x}" if value else "NULL") if operation in (3, 4, 5, 9, 11, 12) else None
        if operation in (9, 10):
            return "FUTEX_BITSET_MATCH_ANY" if value & 0xFFFFFFFF == 0xFFFFFFFF else f"{value & 0xFFFFFFFF:#x}"
        return f"{value & 0xFFFFFFFF:#x}" if operation == 5 else str(signed(value)) if operation in (4, 12) else None

    def _fcntl_arg(self, value: int, index: int) -> str | None:
        command = self._names("fcntl").get(self._call.arguments[1] & 0xFFFFFFFF, "")
        if command in ("F_GETFD", "F_GETFL", "F_GETOWN", "F_GETSIG", "F_GETLEASE", "F_GETPIPE_SZ", "F_GET_SEALS"):
            return None
        if command == "F_SETFD":
            return flags(value, self._names("fdflags"))
        if command == "F_SETFL":
            return self.open_flags(value)
        if command in ("F_DUPFD", "F_DUPFD_CLOEXEC", "F_SETOWN", "F_SETPIPE_SZ"):
            return str(signed(value))
        data = self._call.after.get(index) or self._call.before.get(index)
        if command.endswith(("LK", "LKW")) and data:
            return self._one("flock", data)
        return f"{value:#x}"

    def _prctl(self, value: int, index: int) -> str | None:
        option = self._names("prctl").get(self._call.arguments[0] & 0xFFFFFFFF, "")
        count = _PRCTL.get(option, 4)
        if index > count:
            return None
        if option == "PR_SET_NAME" and index == 1 and (data := self._call.before.get(1)):
            return quoted(data.partition(bytes(1))[0])
        if option == "PR_SET_PDEATHSIG" and index == 1:
            return signal_name(value)
        if option in ("PR_CAPBSET_READ", "PR_CAPBSET_DROP"):
            return self._enum("cap", value)
        return str(value) if count == 1 and value < 4096 else f"{value:#x}" if value else "0"

    def _sockopt(self, value: int, _index: int) -> str:
        level = self._names("sol").get(self._call.arguments[1] & 0xFFFFFFFF, "")
        table = {"SOL_SOCKET": "sockopt", "SOL_IP": "ipopt", "SOL_IPV6": "ipv6opt", "SOL_TCP": "tcpopt"}.get(level)
        return self._enum(table, value) if table is not None else f"{value & 0xFFFFFFFF:#x}"

    def _sockval(self, index: int, type_: Type, data: bytes) -> str:
        call = self._call
        size = call.arguments[4] if type_.direction == "<" else None
        if type_.direction == ">" and (length := call.after.get(4)):
            (size,) = struct.unpack("=I", length[:4])
        size = min(len(data), size if size is not None else len(data))
        option = self._sockopt(call.arguments[2], 2)
        if option in ("SO_RCVTIMEO", "SO_SNDTIMEO") and size == 16:
            return self._one("timeval", data)
        if option == "SO_LINGER" and size == 8:
            on, linger = struct.unpack("=ii", data[:8])
            return f"{{l_onoff={on}, l_linger={linger}}}"
        if option == "SO_PEERCRED" and size == 12:
            pid, uid, gid = struct.unpack("=iii", data[:12])
            return f"{{pid={pid}, uid={uid}, gid={gid}}}"
        if size == 4:
            return f"[{struct.unpack('=i', data[:4])[0]}]"
        return quoted(data[:size])

    def _statx_flags(self, value: int, _index: int) -> str:
        sync = {0: "AT_STATX_SYNC_AS_STAT", 0x2000: "AT_STATX_FORCE_SYNC", 0x4000: "AT_STATX_DONT_SYNC"}
        rest = value & ~0x6000 & 0xFFFFFFFF
        text = sync.get(value & 0x6000, "")
        return f"{text}|{flags(rest, self._names('at'))}" if rest else text

    def _ipc_flags(self, value: int, _index: int) -> str:
        value &= 0xFFFFFFFF
        text = flags(value & ~0o777, self._names("ipc")) if value & ~0o777 else ""
        return f"{text}|{octal(value & 0o777)}" if text else octal(value & 0o777)

    def _personality(self, value: int, _index: int) -> str:
        if value & 0xFFFFFFFF == 0xFFFFFFFF:
            return "0xffffffff"
        kind = self._names("persona").get(value & 0xFF, f"{value & 0xFF:#x}")
        rest = value & ~0xFF
        return f"{kind}|{flags(rest, self._names('personality'))}" if rest else kind

    def _hex_if_3(self, value: int, index: int) -> str | None:
        fixed = self._call.signature is not None and self._call.signature.name == "mremap"
        if fixed:
            return f"{value:#x}" if self._call.arguments[3] & 2 else None
        return str(signed(value)) if self._call.arguments[1] else None

    def _epoll_data(self, value: int, _index: int) -> str:
        return f"{{u32={value & 0xFFFFFFFF}, u64={value:#x}}}" if value >> 32 else f"{{u32={value}, u64={value}}}"

    def _mmap_flags(self, value: int, _index: int) -> str:
        return flags(value & 0xFFFFFFFF, self._names("mapflags"))

    def _ioctl_arg(self, value: int, index: int) -> str:
        call = self._call
        request = self._names("ioctl").get(call.arguments[1] & 0xFFFFFFFF, "")
        form = _IOCTLS.get(request)
        data = call.before.get(index) or (call.after.get(index) if call.result >= 0 else None)
        if form is not None and data:
            return self._one(form, data)
        return f"{value:#x}" if value else "0"

    # ---- data with rules of their own

    def _sigset(self, _index: int, _type: Type, data: bytes) -> str:
        return signal_set(struct.unpack("=Q", data[:8])[0]) if len(data) >= 8 else UNREADABLE

    def _sigaction(self, _index: int, _type: Type, data: bytes) -> str:
        handler, bits, restorer, mask = struct.unpack("=QQQQ", data[:32])
        name = {0: "SIG_DFL", 1: "SIG_IGN"}.get(handler, f"{handler:#x}")
        tail = f", sa_restorer={restorer:#x}" if bits & 0x04000000 else ""
        return f"{{sa_handler={name}, sa_mask={signal_set(mask)}, sa_flags={flags(bits, self._names('sa'))}{tail}}}"

    def _status(self, _index: int, _type: Type, data: bytes) -> str:
        if self._call.result <= 0:
            return f"{self._call.arguments[1]:#x}"
        (value,) = struct.unpack("=i", data[:4])
        if value & 0x7F == 0:
            return f"[{{WIFEXITED(s) && WEXITSTATUS(s) == {value >> 8 & 0xFF}}}]"
        if value & 0xFF == 0x7F:
            return f"[{{WIFSTOPPED(s) && WSTOPSIG(s) == {signal_name(value >> 8 & 0xFF)}}}]"
        if value == 0xFFFF:
            return "[{WIFCONTINUED(s)}]"
        core = " && WCOREDUMP(s)" if value & 0x80 else ""
        return f"[{{WIFSIGNALED(s) && WTERMSIG(s) == {signal_name(value & 0x7F)}{core}}}]"

    def _remaining(self, index: int, _type: Type, data: bytes) -> str:
        """The rest of a sleep, which is written only when a signal ended it."""
        interrupted = self._call.result in (-errno.EINTR, -516)
        return self._one("timespec", data) if interrupted else f"{self._call.arguments[index]:#x}"

    def _random(self, _index: int, _type: Type, data: bytes) -> str:
        shown = "".join(f"\\x{byte:02x}" for byte in data[: self._longest])
        return f'"{shown}"{"..." if self._call.result > min(len(data), self._longest) else ""}'

    def _fdset(self, _index: int, _type: Type, data: bytes) -> str:
        most = self._call.arguments[0]
        numbers = [number for number in range(min(most, len(data) * 8)) if data[number // 8] >> (number % 8) & 1]
        return f"[{' '.join(self._fd(number) for number in numbers)}]"

    def _resident(self, _index: int, _type: Type, data: bytes) -> str:
        pages = (self._call.arguments[1] + 4095) // 4096
        return f"[{', '.join(str(byte & 1) for byte in data)}{', ...' if pages > len(data) else ''}]"

    def _cpuset(self, _index: int, _type: Type, data: bytes) -> str:
        numbers = [number for number in range(len(data) * 8) if data[number // 8] >> (number % 8) & 1]
        return f"[{' '.join(map(str, numbers))}]"

    def _vector(self, index: int, type_: Type, data: bytes) -> str:
        return self._buffers(data, self._call.arguments[type_.count or 0], type_.direction)

    def _buffers(self, data: bytes, count: int, direction: str) -> str:
        left = self._call.result if direction == ">" else None
        texts = []
        for number, (address, length) in enumerate(struct.iter_unpack("=QQ", data[: len(data) // 16 * 16])):
            if number >= count:
                break
            part = self._call.parts.get(number)
            used = length if left is None else max(0, min(length, left))
            if left is not None:
                left -= used
            if part is None:
                text = f"{address:#x}" if address else "NULL"
                text = '""' if direction == ">" and not used else text
            else:
                part = part[:used]
                text = quoted(part[: self._longest], cut=used > min(len(part), self._longest))
            texts.append(f"{{iov_base={text}, iov_len={length}}}")
        return f"[{', '.join(texts)}{', ...' if count > len(texts) else ''}]"

    def _message(self, _index: int, type_: Type, data: bytes) -> str:
        name, name_size, iov, iov_count, control, control_size, bits = struct.unpack("=Qi4xQQQQi4x", data[:56])
        parts = self._call.parts
        address = parts.get(100)
        name_text = "NULL" if not name else socket_address(address, name_size) if address is not None else f"{name:#x}"
        vector = parts.get(102)
        vector_text = self._buffers(vector, iov_count, type_.direction) if vector is not None else f"{iov:#x}"
        control_text = f"msg_control={control:#x}, " if control and control_size else ""
        return (
            f"{{msg_name={name_text}, msg_namelen={name_size}, msg_iov={vector_text}, msg_iovlen={iov_count}, "
            f"{control_text}msg_controllen={control_size}, msg_flags={flags(bits & 0xFFFFFFFF, self._names('msg'))}}}"
        )


_PRCTL = {
    "PR_SET_NAME": 1, "PR_GET_NAME": 1, "PR_SET_PDEATHSIG": 1, "PR_GET_DUMPABLE": 0, "PR_SET_DUMPABLE": 1,
    "PR_GET_KEEPCAPS": 0, "PR_SET_KEEPCAPS": 1, "PR_CAPBSET_READ": 1, "PR_CAPBSET_DROP": 1, "PR_GET_SECCOMP": 0,
    "PR_SET_SECCOMP": 2,
    "PR_SET_CHILD_SUBREAPER": 1, "PR_GET_TIMERSLACK": 0, "PR_SET_TIMERSLACK": 1, "PR_GET_SECUREBITS": 0,
    "PR_SET_SECUREBITS": 1,
}  # fmt: skip
"""Arguments of prctl(2) that an option has, beside itself."""

_IOCTLS = {
    "TCGETS": "termios", "TCSETS": "termios", "TCSETSW": "termios", "TCSETSF": "termios", "TIOCGPGRP": "int",
    "TIOCSPGRP": "int", "TIOCGWINSZ": "winsize", "TIOCSWINSZ": "winsize", "FIONREAD": "int", "FIONBIO": "int",
    "TIOCGPTN": "int",
}  # fmt: skip
"""What the last argument of ioctl(2) points to, by request."""

_SCALARS: Mapping[str, Callable[[int], str]] = {
    "int": lambda value: str(signed(value)),
    "uint": lambda value: str(value & 0xFFFFFFFF),
    "long": lambda value: str(signed(value, 64)),
    "ulong": lambda value: str(value & 0xFFFFFFFFFFFFFFFF),
    "hex": lambda value: f"{value:#x}" if value else "0",
    "ptr": lambda value: f"{value & 0xFFFFFFFFFFFFFFFF:#x}" if value else "NULL",
    "oct": octal,
    "oct0": lambda value: octal(value) if value else "0",
    "id": lambda value: str(signed(value)),
    "sig": lambda value: signal_name(signed(value)),
    "sig0": lambda value: signal_name(value) if value else "0",
    "dev": lambda value: f"makedev({os.major(value):#x}, {os.minor(value):#x})",
    "filemode": file_mode,
    "key": lambda value: f"{value & 0xFFFFFFFF:#x}" if value & 0xFFFFFFFF else "IPC_PRIVATE",
    "mapoff": lambda value: f"{value:#x}" if value else "0",
    "rlim": lambda value: "RLIM64_INFINITY" if value == 0xFFFFFFFFFFFFFFFF else (
        f"{value // 1024}*1024" if value > 1024 and value % 1024 == 0 else str(value)
    ),
    "futexval": lambda value: str(value & 0xFFFFFFFF),
    "sicode": lambda value: flag_tables.TABLES["cld"].get(value) or str(value),
}

_VALUES: Mapping[str, Callable[[Texts, int, int], str | None]] = {
    "fd": Texts._fd_value, "at": Texts._at, "open": Texts._open, "mode": Texts._mode, "ioctl": Texts._ioctl,
    "prot": Texts._protection, "access": Texts._access, "socktype": Texts._socktype, "protocol": Texts._protocol,
    "cloneflags": Texts._clone_flags, "futexop": Texts._futex_op, "futextime": Texts._futex_time,
    "futexrest": Texts._futex_rest, "fcntlarg": Texts._fcntl_arg, "prctlarg": Texts._prctl, "prctlrest": Texts._prctl,
    "sockopt": Texts._sockopt, "statxflags": Texts._statx_flags, "ipcflags": Texts._ipc_flags,
    "personality": Texts._personality, "persona": Texts._personality, "hexif3": Texts._hex_if_3,
    "epolldata": Texts._epoll_data, "mapflags": Texts._mmap_flags, "ioctlarg": Texts._ioctl_arg,
}  # fmt: skip

_DUMPABLE = {0: "SUID_DUMP_DISABLE", 1: "SUID_DUMP_USER", 2: "SUID_DUMP_ROOT"}
"""Of include/linux/sched/coredump.h, which is no header of the UAPI."""

_DATA: Mapping[str, Callable[[Texts, int, Type, bytes], str]] = {
    "sigset": Texts._sigset, "sigaction": Texts._sigaction, "status": Texts._status, "rand": Texts._random,
    "fdset": Texts._fdset, "resident": Texts._resident, "cpuset": Texts._cpuset, "iov": Texts._vector,
    "msghdr": Texts._message, "sockval": Texts._sockval,
}  # fmt: skip

assert set(FIELDS).isdisjoint(_DATA)
