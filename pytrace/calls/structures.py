"""Structs that system calls read and write: their sizes, and their text.

A row of :data:`FIELDS` lists the fields of a struct of the kernel's UAPI headers on 64-bit machines:
``name:code:type``, with a code of Python's ``struct``, or another struct; ``.N`` are N bytes without a name. Types are
those of :mod:`pytrace.calls.signatures`; a field in parentheses is not shown, and ``...`` says that some are left out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache

import msgspec

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
