"""Texts of the kernel and of other processes: tracepoint formats, kallsyms, ``/proc`` with hostile names, perf maps."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from pytrace.base import cgroups, kernel_files
from pytrace.core.types import AddressSpace
from pytrace.runtime.machine import fingerprints, procfs, selected_processes, tracefs
from pytrace.runtime.machine.kernel_functions import Kallsyms, KernelFunctions, ModuleIndex
from pytrace.runtime.stacks import compiled_code
from pytrace.runtime.stacks.compiled_code import JitDump, PerfMap
from tests.fuzz.scratch import FOLDER, stored
from tests.fuzz.target import NOTHING, Target
from tests.runtime.machine.test_kernel_symbols import FORMAT, KNOWN
from tests.support import hostile_files, hostile_processes


def tracepoint_format(data: bytes) -> None:
    """The format of a tracepoint's record."""
    text = data.decode("utf-8", "surrogateescape")
    for field in tracefs.parse_format(text, lambda kind, name: KNOWN.get((kind, name)), AddressSpace.KERNEL):
        assert field.offset >= 0
        str(field.type)


def format_seeds() -> Iterator[bytes]:
    """Formats with each form of field."""
    yield FORMAT.encode()


def available_events(data: bytes) -> None:
    """The list of tracepoints: what a name cannot be is not in it."""
    lines = [line for line in kernel_files.lines(data.decode("utf-8", "surrogateescape")) if line]
    assert fingerprints.lasting("\n".join(lines)) == [line for line in lines if line in fingerprints.lasting(line)]


def kallsyms(data: bytes) -> None:
    """The symbols of the kernel, of modules and BPF programs, whose names are any that a module may bring."""
    names = [name or b"a" for name in re.split(rb"[\0-\x20\n]", data)]
    core = [b"%016x t %s\n" % (0xFFFFFFFF81000000 + 16 * at, name) for at, name in enumerate(names)]
    added = [b"%016x t %s\t[mod]\n" % (0xFFFFFFFFC0000000 + 16 * at, name) for at, name in enumerate(names)]
    modules = b"mod 16384 1 - Live 0xffffffffc0000000\n" + data.replace(b"\n", b"").replace(b"\0", b"")
    found = Kallsyms(stored(b"".join(core + added)), stored(modules, "second"))
    assert found.module_start("mod") == 0xFFFFFFFFC0000000
    assert not found.hidden
    for at, name in enumerate(names):
        text = name.decode("utf-8", "surrogateescape")
        place = found.place(0xFFFFFFFFC0000004 + 16 * at)
        assert place is not None
        assert (place.name, place.offset, place.module) == (text, 4, "mod")
        assert found.has(text)
        assert found.address(text) is not None
        found.function_size(text)
        assert found.owners(text, "mod") == ["mod"]
    found.function_lists("__")


KALLSYMS = b"_text vfs_read a helper\t[x] jiffies\xff"


def functions(data: bytes) -> None:
    """The functions that can be traced, and indexes of modules."""
    listed = KernelFunctions(stored(data), Kallsyms, live=False)
    for name in ("vfs_read", "a", "*"):
        listed.match(name)
        listed.match(name, "mod")
    listed.match("*", "*")


FUNCTIONS = b"vfs_read\nvfs_write\t[mod]\nhelper [mod]\na.part.0\n__pfx_a\n"


def modules(data: bytes) -> None:
    """The indexes of modules (``modules.dep``, ``modules.symbols``)."""
    for name in ("modules.dep", "modules.symbols", "modules.builtin"):
        stored(data, name)
    index = ModuleIndex("", str(FOLDER))
    _built_in = index.built_in
    for pattern in ("nvme_submit", "*", "ext4_a*"):
        index.exporting(pattern)
        index.named_like(pattern)
        index.of_family(pattern)


MODULES = b"kernel/fs/ext4/ext4.ko: kernel/lib/crc.ko.xz\nkernel/nvme-core.ko:\nalias symbol:ext4_a ext4\n"


def maps(data: bytes) -> None:
    """``/proc/PID/maps``: a line is a mapping, whatever is in the names of files."""
    executable = procfs.executable_mappings(data)
    others = procfs.writable_mappings(data)
    assert len(executable) + len(others) <= 2 * data.count(b"\n") + 2
    for mapping in (*executable, *others):
        assert "\n" not in mapping.path


MAPS = b"""\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
00e03000-00e24000 rw-p 00000000 00:00 0           [heap]
35b1a21000-35b1a22000 rwxp 00000000 00:00 0       /tmp/a b\\012c (deleted)
"""


def status(data: bytes) -> None:
    """``/proc/PID/status``: the name of the process, which is *data*, changes neither its users nor its number."""
    name = data[:15].replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\0", b"")
    text = b"Name:\t%s\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t5\t5\t5\t5\nNSpid:\t70\t7\n" % name
    assert compiled_code._identity(text.decode("utf-8", "surrogateescape"), 70) == (7, {5})


def mounts(data: bytes) -> None:
    """``/proc/self/mountinfo``: a mount point, whose name is *data*, is no cgroup hierarchy."""
    name = "".join(f"\\{byte:03o}" if byte in b" \t\n\\#" else chr(byte) for byte in data if byte)
    text = f"""\
36 35 98:0 / /{name} rw,noatime master:1 - ext4 /dev/{name} rw
33 24 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate
""".encode("latin-1")
    path = stored(text)
    assert [mount.point for mount in cgroups.mounts(path)] == ["/sys/fs/cgroup"]
    cgroups.hierarchies(path)


def cgroup_of_process(data: bytes) -> None:
    """``/proc/PID/cgroup``: a process is in the container that one of its cgroups is named by."""
    stored(data, "proc/7/cgroup")
    selected_processes.container_processes("0123456789ab", str(FOLDER / "proc"))


CGROUP = b"0::/system.slice/docker-0123456789abcdef0123456789abcdef.scope\n1:cpu:/kubepods/pod12345678-1234\n"


def map_file(data: bytes) -> None:
    """``/tmp/perf-PID.map``, which the traced process writes."""
    found = PerfMap(os.getpid())
    found._paths = [stored(data)]
    for address in (0x1000, 0x1010, 0, (1 << 64) - 1):
        assert not any("\n" in name for name, _ in found.find(address))


MAP_FILE = b"1000 20 first\n0x2000 0x10 with a blank\nnonsense\n3000 ffffffffffffffff big\n"


def jit_file(data: bytes) -> None:
    """``jit-PID.dump``, which the traced process writes."""
    found = JitDump(stored(data), {os.geteuid()}, 0)
    for address in (0x1000, 0x1010, 0, (1 << 64) - 1):
        assert not any("\0" in name for name, _ in found.find(address))
    segments = found._code._segments
    assert all(one.start < one.end <= two.start for one, two in pairwise(segments))


JIT_FILE = (
    struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 7, 0, 0)
    + struct.pack("<IIQIIQQQQ", 0, 80, 5, 7, 7, 0x1000, 0x1000, 16, 1) + b"first\0".ljust(24, b"\x90")
    + struct.pack("<IIQIIQQQQQ", 1, 64, 5, 7, 7, 0x3000, 0x1000, 0x3000, 16, 1)
)  # fmt: skip


def hostile(data: bytes) -> None:
    """Hostile processes beside an honest one, by a seed."""
    with hostile_files.low_limits(), ThreadPoolExecutor(1) as thread:
        thread.submit(hostile_processes.attempt, int.from_bytes(data[:8])).result()


TARGETS = {
    "tracepoint_format": Target(
        "formats of tracepoints", tracepoint_format, seeds=format_seeds
    ),
    "available_events": Target("the list of tracepoints", available_events, NOTHING),
    "kallsyms": Target("/proc/kallsyms and /proc/modules", kallsyms, NOTHING,
                       seeds=lambda: [KALLSYMS]),
    "functions": Target("available_filter_functions", functions, NOTHING,
                        seeds=lambda: [FUNCTIONS]),
    "modules": Target("indexes of modules", modules, NOTHING, seeds=lambda: [MODULES]),
    "maps": Target("/proc/PID/maps", maps, NOTHING, seeds=lambda: [MAPS]),
    "status": Target("/proc/PID/status with any name of a process", status, NOTHING, length=16),
    "mounts": Target("/proc/self/mountinfo with any mount point", mounts, NOTHING, length=256),
    "cgroup_of_process": Target("/proc/PID/cgroup", cgroup_of_process, NOTHING,
                                seeds=lambda: [CGROUP]),
    "map_file": Target("perf-PID.map", map_file, NOTHING, seeds=lambda: [MAP_FILE]),
    "jit_file": Target("jit-PID.dump", jit_file, NOTHING, seeds=lambda: [JIT_FILE]),
    "hostile_processes": Target(
        "processes with hostile names, mappings and roots, which change them", hostile, NOTHING, length=8,
        seeds=lambda: [bytes([0, 0, 0, 0, 0, 0, 0, 1])],
    ),
}  # fmt: skip
