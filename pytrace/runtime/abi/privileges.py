"""Check of the rights and kernel features that every run needs, before anything else, with messages."""

from __future__ import annotations

import ctypes
import errno
import os
import resource

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MapType
from pytrace.runtime.abi import bpf_maps, syscalls
from pytrace.runtime.host import fingerprints

OLDEST_KERNEL = (5, 15)
"""Below, pytrace warns: links to perf events, with cookies, are missing."""

CAPABILITIES = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_RESOURCE": 24,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""Bit numbers (include/uapi/linux/capability.h)."""

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
    check_capabilities(effective_capabilities())
    check_lockdown(fingerprints.read_text(_LOCKDOWN))
    check_bpf()
    return kernel_warnings(os.uname().release)


def effective_capabilities() -> frozenset[str]:
    """Which of :data:`CAPABILITIES` this process has."""
    mask = capability_mask()
    return frozenset(name for name, bit in CAPABILITIES.items() if mask >> bit & 1)


def capability_mask() -> int:
    """All effective capabilities of this process, a bit for each number."""
    for line in fingerprints.lines(fingerprints.read_text("/proc/self/status")):
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def keep_capabilities() -> None:
    """Pass no capability on to the programs that this process starts (``-c``, ``system()``): they run as their user."""
    arguments = (ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), *[ctypes.c_ulong(0)] * 3)
    # Kernels before 4.3 have no such capabilities and refuse.
    syscalls.libc().prctl(ctypes.c_int(_PR_CAP_AMBIENT), *arguments)


def check_capabilities(held: frozenset[str]) -> None:
    """Refuse a process that lacks what loading and reading need; the message names it."""
    wanted = ["CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"]
    if "CAP_SYS_ADMIN" not in held:
        wanted += ["CAP_BPF", "CAP_PERFMON"]
    missing = sorted(name for name in wanted if name not in held)
    if not missing:
        return
    if os.geteuid() == 0:
        raise TraceError(
            f"this process runs as root without {', '.join(missing)}",
            hints=("containers drop such capabilities: docker run --privileged, or --cap-add of those named",),
        )
    raise TraceError(
        "tracing needs root",
        hints=(f"run it with sudo, or give the process {', '.join(missing)}",),
    )


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
        os.close(bpf_maps.create(MapType.ARRAY, 4, 4, 1))
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
    if user_namespace(fingerprints.read_text("/proc/self/uid_map")):
        return TraceError(
            "this process is root in a user namespace only, which may not load BPF programs",
            hints=("run it outside of rootless containers, unshare --user and such, with sudo",),
        )
    return TraceError(
        "the kernel or this container does not allow the bpf system call",
        hints=(
            "in a container: docker run --privileged (a seccomp profile may block bpf)",
            "outside one: see /proc/sys/kernel/unprivileged_bpf_disabled, or run as root",
        ),
    )


def user_namespace(uid_map: str) -> bool:
    """True if ``/proc/self/uid_map`` is that of another user namespace than the first, which has all users."""
    rows = [line.split() for line in uid_map.splitlines()]
    return bool(rows) and rows != [["0", "0", "4294967295"]]


def kernel_warnings(release: str) -> list[str]:
    """Warnings about a kernel by its release (``6.1.0-13-amd64``)."""
    parts = release.split(".")
    try:
        version = int(parts[0]), int(parts[1].partition("-")[0])
    except (IndexError, ValueError):
        return []
    if version >= OLDEST_KERNEL:
        return []
    oldest = ".".join(str(part) for part in OLDEST_KERNEL)
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
