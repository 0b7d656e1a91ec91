"""Rights of this process: the check of what every run needs, before anything else, with messages; and giving them up.

Capabilities belong to a thread: what is given up here (capabilities(7), prctl(2)) stays with threads that were started
before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
from collections.abc import Iterable

from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MapType
from pytrace.runtime.machine import bpf, libbpf, syscalls
from pytrace.runtime.machine.syscalls import Memory

_OLDEST_KERNEL = (5, 15)
"""Below, pytrace warns: links to perf events, with cookies, are missing."""

CAPABILITIES = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_KILL": 5,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_RESOURCE": 24,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
}
"""Bit numbers (include/uapi/linux/capability.h)."""

NEEDED = ("CAP_BPF", "CAP_PERFMON", "CAP_DAC_READ_SEARCH")
"""What every run needs; CAP_SYS_ADMIN stands for the first two."""
WITH_TOKENS = (1, 5)
"""The first version of libbpf that uses BPF tokens."""
_TOKEN = "a bpffs that delegates BPF to it (Linux 6.9, libbpf 1.5; pytrace help privileges)"
_LOCKDOWN = "/sys/kernel/security/lockdown"
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
"""``prctl(2)``: capabilities that programs get which have none of their own."""


def check() -> list[str]:
    """Check that this process may trace, and return warnings about the machine.

    Raises:
        TraceError: rights or BPF are missing, or the kernel is locked down.
    """
    if not os.path.exists("/proc/self/status"):
        raise TraceError("/proc is not mounted", hints=("run as root: mount -t proc proc /proc",))
    check_namespace()
    check_capabilities(effective_capabilities())
    check_lockdown(kernel_files.read_text(_LOCKDOWN))
    check_bpf()
    return kernel_warnings(os.uname().release)


def effective_capabilities() -> frozenset[str]:
    """Which of :data:`CAPABILITIES` this process has."""
    mask = capability_mask()
    return frozenset(name for name, bit in CAPABILITIES.items() if mask >> bit & 1)


def capability_mask() -> int:
    """All effective capabilities of this process, a bit for each number."""
    for line in kernel_files.lines(kernel_files.read_text("/proc/self/status")):
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def clear_ambient_capabilities() -> None:
    """Pass no capability on to the programs that this process starts (``-c``, ``system()``): they run as their user."""
    arguments = (ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), *[ctypes.c_ulong(0)] * 3)
    # Kernels before 4.3 have no such capabilities and refuse.
    syscalls.libc().prctl(ctypes.c_int(_PR_CAP_AMBIENT), *arguments)


def missing_capabilities(held: frozenset[str], wanted: Iterable[str] = NEEDED) -> list[str]:
    """Those of *wanted* that are not among *held*."""
    stand_in = {"CAP_BPF", "CAP_PERFMON"} if "CAP_SYS_ADMIN" in held else set()
    return sorted(name for name in wanted if name not in held and name not in stand_in)


def check_capabilities(held: frozenset[str]) -> None:
    """Refuse a process that lacks what loading and reading need; the message names it, and three ways on."""
    missing = missing_capabilities(held)
    if not missing:
        return
    names = ", ".join(missing)
    unit = f"in a systemd unit: AmbientCapabilities={' '.join(missing)}, and the same in CapabilityBoundingSet="
    if os.geteuid() == 0:
        raise TraceError(
            f"this process runs as root without {names}",
            hints=(
                f"in a container: docker run {' '.join(f'--cap-add {name}' for name in missing)}, or --privileged",
                unit,
                f"in a user namespace of its own: {_TOKEN}",
            ),
        )
    raise TraceError(
        f"tracing needs root, or {names}, which this process lacks",
        hints=(
            "as root: sudo pytrace ...",
            f"as this user: setpriv --ambient-caps (pytrace help privileges); {unit}",
            f"in a container: {_TOKEN}",
        ),
    )


def check_namespace() -> None:
    """Refuse a user namespace (a rootless container) where nothing was delegated, or that libbpf cannot make use of."""
    if not bpf.in_container():
        return
    if bpf.container_token() is None:
        why = bpf.token_refusal() or "it has no BPF token"
        raise TraceError(
            f"this process is in a user namespace, which may not load BPF programs: {why}",
            hints=(
                "outside of it: sudo pytrace ..., not in a rootless container, unshare --user and such",
                "a container of the first user namespace: docker run --privileged, without --userns-remap",
                f"in this container: {_TOKEN}",
            ),
        )
    version = libbpf.version()
    if version_numbers(version.removeprefix("v")) < WITH_TOKENS:
        raise TraceError(
            f"this container has a BPF token, and libbpf {version} does not use any",
            hints=(
                "libbpf 1.5 or newer does: Debian 13 has it, and LD_LIBRARY_PATH may name the folder of another one",
                "outside of it: sudo pytrace ...",
                "a container of the first user namespace: docker run --privileged, without --userns-remap",
            ),
        )


def version_numbers(text: str) -> tuple[int, int]:
    """The first two numbers of a version; zeros where there are none."""
    numbers = [int(part) if part.isdecimal() else 0 for part in text.split(".")[:2]]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def check_lockdown(text: str) -> None:
    """Refuse a kernel whose lockdown mode hides kernel memory; *text* is that of the kernel's lockdown file."""
    if "[confidentiality]" in text:
        raise TraceError(
            "the kernel is locked down (confidentiality mode): BPF programs may not read kernel memory",
            hints=("boot with lockdown=integrity or lockdown=none, or switch secure boot off",),
        )


def check_bpf() -> None:
    """Refuse a kernel, or a sandbox, without the bpf system call.

    A map is made: that needs CAP_BPF and no more, where asking for the ids of programs needs CAP_SYS_ADMIN.
    """
    try:
        os.close(bpf.map_create(MapType.ARRAY, 4, 4, 1))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        if error.errno in (errno.EPERM, errno.EACCES):
            raise _refused() from None
        raise TraceError(
            f"this kernel cannot run BPF programs: {error.strerror}",
            hints=("it must be built with CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT and CONFIG_BPF_EVENTS",),
        ) from None


def _refused() -> TraceError:
    """Why bpf(2) is not allowed although this process seems to have the capabilities."""
    if bpf.container_token() is not None:
        return TraceError(
            "the BPF token of this container does not allow to make maps",
            hints=(
                "its bpffs must delegate what pytrace uses: pytrace help privileges",
                "outside of it: sudo pytrace ...",
            ),
        )
    return TraceError(
        "the kernel or this container does not allow the bpf system call",
        hints=(
            "in a container: docker run --privileged (a seccomp profile may block bpf)",
            "in a systemd unit: SystemCallFilter= must allow bpf and perf_event_open",
            "outside one: see /proc/sys/kernel/unprivileged_bpf_disabled, or run as root",
        ),
    )


def kernel_warnings(release: str) -> list[str]:
    """Warnings about a kernel by its release (``6.1.0-13-amd64``)."""
    parts = release.split(".")
    try:
        version = int(parts[0]), int(parts[1].partition("-")[0])
    except (IndexError, ValueError):
        return []
    if version >= _OLDEST_KERNEL:
        return []
    oldest = ".".join(str(part) for part in _OLDEST_KERNEL)
    return [f"kernel {release} is older than {oldest}; some features will be missing"]


def raise_limits(descriptors: int) -> None:
    """Raise the limits on locked memory and, to *descriptors* at least, on open files, as far as this process may."""
    _raise(resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY)
    _raise(resource.RLIMIT_NOFILE, descriptors)


def descriptors_needed(targets: int, programs: int, maps: int) -> int:
    """Open files that a session may need: event and link of each target, programs, maps, and some more."""
    return 3 * targets + programs + maps + 50 + 2 * (os.cpu_count() or 1)


def _raise(limit: int, wanted: int) -> None:
    soft, hard = resource.getrlimit(limit)
    infinite = resource.RLIM_INFINITY
    if soft == infinite or (wanted != infinite and soft >= wanted):
        return
    reach = hard if hard == infinite or wanted == infinite else max(hard, wanted)
    for soft_limit, hard_limit in ((wanted, reach if wanted != infinite else wanted), (hard, hard)):
        try:
            resource.setrlimit(limit, (soft_limit, hard_limit))
        except (ValueError, OSError):
            # Not allowed beyond the hard limit: take as much as there is.
            continue
        return


# ---------------------------------------------------------------------------------------------- giving up

_VERSION_3 = 0x20080522
"""``_LINUX_CAPABILITY_VERSION_3``: 64 bits in two words."""
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_SET_NO_NEW_PRIVS = 38
_LAST = 63


def permitted_capabilities() -> int:
    """The permitted capabilities of this thread, a bit for each number."""
    header, data = Memory(struct.pack("=Ii", _VERSION_3, 0)), Memory(24)
    _check(syscalls.libc().capget(ctypes.c_void_p(header.address), ctypes.c_void_p(data.address)), "capget")
    words = struct.unpack("=6I", data.data)
    return int(words[1] | words[4] << 32)


def hold_capabilities(effective: int, permitted_: int) -> None:
    """Hold these capabilities and no other; none is inheritable or ambient.

    Raises:
        OSError: the kernel refuses, as *permitted_* has one that was not held.
    """
    words = (effective & 0xFFFFFFFF, permitted_ & 0xFFFFFFFF, 0, effective >> 32, permitted_ >> 32, 0)
    header, data = Memory(struct.pack("=Ii", _VERSION_3, 0)), Memory(struct.pack("=6I", *words))
    _check(syscalls.libc().capset(ctypes.c_void_p(header.address), ctypes.c_void_p(data.address)), "capset")


def limit_bounding_set(kept: int) -> bool:
    """Remove all but *kept* from the bounding set; False where that is not allowed (it takes CAP_SETPCAP)."""
    for number in range(_LAST + 1):
        if kept >> number & 1 or _prctl(_PR_CAPBSET_READ, number) != 1:
            continue
        if _prctl(_PR_CAPBSET_DROP, number):
            return False
    return True


def set_no_new_privileges() -> None:
    """Give this thread and all that it starts no privileges by ``execve`` any more (``no_new_privs``).

    Raises:
        OSError: the kernel refuses (before Linux 3.5).
    """
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "prctl")


def _prctl(option: int, value: int) -> int:
    words = (ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)
    return int(syscalls.libc().prctl(ctypes.c_int(option), *words))


def _check(result: int, name: str) -> None:
    if result:
        error = ctypes.get_errno()
        raise syscalls.failure(error, name)
