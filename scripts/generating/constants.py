"""Generates ``constants.json`` from kernel headers.

Values of the user-space API (``uapi``) are the same in all kernels, so constants of any of the given kernels are
included. Of the kernel's internal constants, only those with the same value in all given kernels are.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytrace.core.kernel_info import KernelHeaders
from pytrace.frontend.expand.c_translation import (
    BUILTIN_HEADERS,
    ERROR,
    KEEP_GOING,
    KERNEL_HEADER,
    VALUE,
    Tables,
)

if TYPE_CHECKING:
    from clang.cindex import SourceLocation, TranslationUnit

MACHINES = ("x86_64", "aarch64", "armv7l", "loongarch64", "mips64", "ppc64le", "riscv64", "s390x")

USER: tuple[tuple[str, str], ...] = (
    ("linux/errno.h", r"E[A-Z0-9]+"),
    ("linux/fcntl.h", r"O_\w+|FASYNC|F_\w+|AT_\w+|DN_\w+|LOCK_\w+|FD_CLOEXEC"),
    ("linux/stat.h", r"S_I\w+|STATX_\w+"),
    (
        "linux/fs.h",
        r"RENAME_\w+|SEEK_\w+|FS_\w+|RWF_\w+|BLOCK_SIZE\w*|SYNC_FILE_RANGE_\w+|FI[A-Z]+|FIGETBSZ|BLK[A-Z]\w+|FILE_DEDUPE_\w+",
    ),
    (
        "linux/mount.h",
        r"MS_\w+|MNT_\w+|MOVE_MOUNT_\w+|MOUNT_ATTR_\w+|OPEN_TREE_\w+|FS(?:OPEN|PICK|MOUNT|CONFIG)_\w+",
    ),
    ("linux/limits.h", r"\w+_MAX|NGROUPS_MAX|PIPE_BUF|NR_OPEN"),
    ("linux/falloc.h", r"FALLOC_\w+"),
    ("linux/fadvise.h", r"POSIX_FADV_\w+"),
    ("linux/openat2.h", r"RESOLVE_\w+"),
    ("linux/close_range.h", r"CLOSE_RANGE_\w+"),
    ("linux/random.h", r"GRND_\w+|RND\w+"),
    ("linux/ipc.h", r"IPC_\w+"),
    ("linux/shm.h", r"SHM_\w+"),
    ("linux/msg.h", r"MSG_\w+"),
    ("linux/sem.h", r"SEM_\w+|GET(?:PID|VAL|ALL|NCNT|ZCNT)|SETVAL|SETALL"),
    ("linux/eventfd.h", r"EFD_\w+"),
    ("linux/timerfd.h", r"TFD_\w+"),
    ("linux/signalfd.h", r"SFD_\w+"),
    ("linux/pidfd.h", r"PIDFD_\w+"),
    ("linux/userfaultfd.h", r"UFFD\w+"),
    ("linux/kcmp.h", r"KCMP_\w+"),
    ("linux/rseq.h", r"RSEQ_\w+"),
    ("linux/landlock.h", r"LANDLOCK_\w+"),
    ("linux/keyctl.h", r"KEYCTL_\w+|KEY_\w+"),
    ("linux/quota.h", r"Q_\w+|QIF_\w+|QFMT_\w+"),
    ("linux/timex.h", r"ADJ_(?!OFFSET_S)\w+|STA_\w+|TIME_\w+"),
    ("linux/auxvec.h", r"AT_\w+"),
    ("linux/audit.h", r"AUDIT_\w+"),
    ("linux/bpf.h", r"BPF_\w+|XDP_\w+"),
    ("linux/perf_event.h", r"PERF_\w+"),
    ("linux/kvm.h", r"KVM_\w+"),
    ("asm/vmx.h", r"EXIT_REASON_\w+|EXIT_QUAL\w+"),
    ("asm/svm.h", r"SVM_\w+"),
    ("asm/prctl.h", r"ARCH_\w+"),
    ("asm/ioctls.h", r"T[CI][A-Z0-9]+|FIO[A-Z]+"),
    ("linux/tty.h", r"N_[A-Z0-9]+"),
    ("linux/input-event-codes.h", r"(?:EV|SYN|KEY|BTN|REL|ABS|SW|MSC|LED|REP|SND|INPUT_PROP)_\w+"),
    ("linux/loop.h", r"LOOP_\w+|LO_\w+"),
    ("linux/usb/ch9.h", r"USB_\w+"),
    ("linux/magic.h", r"\w+_MAGIC\w*"),
    ("linux/sched.h", r"CLONE_\w+|SCHED_\w+"),
    ("linux/signal.h", r"(?:MIN)?SIG[A-Z0-9_]+|(?:SA|SI|SS|ILL|FPE|SEGV|BUS|TRAP|CLD|POLL)_\w+"),
    ("linux/mman.h", r"PROT_\w+|MAP_\w+|MADV_\w+|MCL_\w+|MS_\w+|MREMAP_\w+|MLOCK_\w+"),
    ("linux/memfd.h", r"MFD_\w+"),
    ("linux/mempolicy.h", r"MPOL_\w+"),
    ("linux/futex.h", r"FUTEX_\w+"),
    ("linux/capability.h", r"CAP_\w+"),
    ("linux/poll.h", r"POLL\w+"),
    ("linux/eventpoll.h", r"EPOLL\w+|EP_\w+"),
    ("linux/inotify.h", r"IN_\w+"),
    ("linux/fanotify.h", r"FAN_\w+"),
    ("linux/ioprio.h", r"IOPRIO_\w+"),
    ("linux/resource.h", r"RLIMIT_\w+|RUSAGE_\w+|PRIO_\w+|RLIM64?_INFINITY"),
    ("linux/time.h", r"CLOCK_\w+|ITIMER_\w+|TIMER_\w+"),
    ("linux/wait.h", r"W[A-Z]+|__W\w+|P_\w+"),
    ("linux/prctl.h", r"PR_\w+"),
    ("linux/ptrace.h", r"PTRACE_\w+"),
    ("linux/seccomp.h", r"SECCOMP_\w+"),
    ("linux/reboot.h", r"LINUX_REBOOT_\w+"),
    ("linux/personality.h", r"PER_\w+|ADDR_\w+|READ_IMPLIES_EXEC|MMAP_PAGE_ZERO|UNAME26"),
    ("linux/membarrier.h", r"MEMBARRIER_\w+"),
    ("linux/io_uring.h", r"IORING_\w+|IOSQE_\w+"),
    ("linux/elf-em.h", r"EM_\w+"),
    ("linux/elf.h", r"(?:PT|ET|DT|SHT|SHF|SHN|STB|STT|NT|EI|EV)_\w+|PF_[RWX]|ELF(?:CLASS|DATA|OSABI)\w+"),
    ("linux/xattr.h", r"XATTR_\w+"),
    ("linux/netlink.h", r"NETLINK_\w+|NLM\w+"),
    ("linux/rtnetlink.h", r"RTM_\w+|RTN_\w+|RTPROT_\w+|RT_\w+|RTMGRP_\w+"),
    ("linux/net.h", r"NPROTO|SYS_\w+|SS_\w+|__SO_\w+"),
    ("linux/socket.h", r"_K_SS_\w+|SOCK_\w+"),
    ("asm/socket.h", r"SO_\w+|SOL_SOCKET|SCM_\w+|SIOC\w+"),
    ("linux/in.h", r"IPPROTO_\w+|INADDR_\w+|IP_\w+|IPPORT_\w+|MCAST_\w+"),
    ("linux/in6.h", r"IPPROTO_\w+|IPV6_\w+|IN6ADDR_\w+"),
    ("linux/in_route.h", r"RTCF_\w+"),
    ("linux/ip.h", r"IPTOS_\w+|IPOPT_\w+|IPVERSION|MAXTTL|IPDEFTTL"),
    ("linux/icmp.h", r"ICMP_\w+"),
    ("linux/icmpv6.h", r"ICMPV6_\w+"),
    ("linux/igmp.h", r"IGMP\w+"),
    ("linux/tcp.h", r"TCP_\w+|TCPOPT_\w+|TCPI_\w+|TCP\w*_FLAG_\w+"),
    ("linux/udp.h", r"UDP_\w+"),
    ("linux/vm_sockets.h", r"VMADDR_\w+|SO_VM_\w+"),
    ("linux/un.h", r"UNIX_PATH_MAX"),
    ("linux/uio.h", r"UIO_\w+"),
    ("linux/route.h", r"RTF_\w+"),
    ("linux/ethtool.h", r"ETHTOOL_\w+|(?:DUPLEX|SPEED|PORT|WAKE)_\w+"),
    ("linux/if_tun.h", r"TUN\w+|IFF_\w+"),
    ("linux/if.h", r"IFF_\w+|IFNAMSIZ|IFALIASZ"),
    ("linux/if_arp.h", r"ARPHRD_\w+|ARPOP_\w+|ATF_\w+"),
    ("linux/if_ether.h", r"ETH_\w+"),
    ("linux/if_link.h", r"XDP_\w+"),
    ("linux/if_packet.h", r"PACKET_\w+"),
    ("linux/netfilter.h", r"NF_\w+|NFPROTO_\w+"),
    ("linux/netfilter/nf_conntrack_common.h", r"IPS_\w+|IP_CT_\w+|IPCT_\w+"),
    ("linux/pkt_cls.h", r"TC_ACT_\w+|TC_H_\w+"),
    ("linux/neighbour.h", r"NUD_\w+|NTF_\w+"),
    ("linux/sockios.h", r"SIOC\w+"),
    ("linux/virtio_ids.h", r"VIRTIO_ID_\w+"),
    ("linux/major.h", r"\w+_MAJOR"),
    ("linux/param.h", r"USER_HZ"),
)
"""Headers of the user-space API, and the names to include of each."""

KERNEL: tuple[tuple[str, str], ...] = (
    ("linux/sched.h", r"TASK_\w+|__TASK_\w+|EXIT_\w+|PF_\w+|TNF_\w+|MAX_SCHEDULE_TIMEOUT"),
    ("linux/sched/prio.h", r"MAX_\w*PRIO|DEFAULT_PRIO|NICE_WIDTH|MIN_NICE|MAX_NICE"),
    ("linux/sched/signal.h", r"SIGNAL_\w+"),
    ("linux/socket.h", r"AF_\w+|PF_\w+|SOL_\w+|MSG_\w+|SOMAXCONN|SCM_\w+"),
    ("linux/net.h", r"SOCK_\w+|SS_\w+|SOCKWQ_\w+|SOCK_\w+|SHUT_\w+"),
    ("net/sock.h", r"SOCK_\w+|SK_\w+|SOCKWQ_\w+"),
    ("net/tcp_states.h", r"TCP_\w+|TCPF_\w+"),
    ("net/tcp.h", r"TCPHDR_\w+|TCP_NAGLE_\w+"),
    ("net/dst.h", r"DST_\w+"),
    ("linux/skbuff.h", r"CHECKSUM_\w+|SKB_GSO_\w+|PACKET_\w+"),
    ("linux/netdevice.h", r"NETDEV_\w+|NET_RX_\w+|NET_XMIT_\w+|NAPI_\w+|RX_HANDLER_\w+"),
    ("linux/errno.h", r"E[A-Z0-9]+"),
    ("linux/err.h", r"MAX_ERRNO"),
    (
        "linux/fs.h",
        r"FMODE_\w+|MAY_\w+|IOCB_\w+|SB_\w+|S_[A-Z]+|ATTR_\w+|I_[A-Z_]+|RW_MASK|READA?|WRITE|MNT_\w+|UMOUNT_\w+",
    ),
    ("linux/fs_types.h", r"(?:DT|FT)_\w+"),
    ("linux/splice.h", r"SPLICE_\w+"),
    ("linux/eventfd.h", r"EFD_\w+"),
    ("linux/swap.h", r"SWAP_\w+"),
    ("linux/limits.h", r"[A-Z0-9]+_(?:MAX|MIN)"),
    ("linux/namei.h", r"LOOKUP_\w+|LAST_\w+"),
    ("linux/dcache.h", r"DCACHE_\w+"),
    ("linux/stat.h", r"S_I\w+|UTIME_\w+"),
    ("linux/gfp.h", r"_*GFP_\w+"),
    ("linux/mm.h", r"VM_\w+|FAULT_FLAG_\w+|FOLL_\w+|VM_FAULT_\w+"),
    ("linux/blk_types.h", r"REQ_\w+|BLK_STS_\w+|BIO_\w+"),
    ("linux/blk-mq.h", r"RQF_\w+|MQ_RQ_\w+|BLK_MQ_\w+"),
    ("linux/blkdev.h", r"QUEUE_FLAG_\w+|SECTOR_\w+"),
    ("linux/kdev_t.h", r"MINORBITS|MINORMASK"),
    ("linux/interrupt.h", r"\w+_SOFTIRQ|IRQF_\w+"),
    ("linux/irqreturn.h", r"IRQ_\w+"),
    ("linux/preempt.h", r"\w+_(?:BITS|SHIFT|MASK|OFFSET)"),
    ("linux/workqueue.h", r"WQ_\w+|WORK_\w+"),
    ("linux/time64.h", r"\w+_PER_\w+"),
    ("linux/cgroup-defs.h", r"CGRP_\w+|CSS_\w+"),
    ("linux/wait.h", r"WQ_FLAG_\w+"),
    ("linux/kthread.h", r"KTHREAD_\w+"),
    ("asm/page.h", r"PAGE_SIZE|PAGE_SHIFT"),
    ("linux/bio.h", r"BIO_MAX_\w+"),
    ("linux/inet.h", r"INET6?_ADDRSTRLEN"),
    ("net/ip.h", r"IP_(?:CE|DF|MF|OFFSET)"),
    ("linux/sizes.h", r"SZ_\w+"),
    ("linux/mmzone.h", r"MIGRATE_\w+"),
    ("linux/reboot.h", r"SYS_\w+"),
    ("linux/eventpoll.h", r"EPOLL\w+"),
    ("linux/poll.h", r"POLL\w+|EPOLL\w+"),
    (
        "scsi/scsi_proto.h",
        r"READ_\d+|WRITE_\d+|WRITE_SAME\w*|INQUIRY|READ_CAPACITY|SYNCHRONIZE_CACHE|TEST_UNIT_READY|UNMAP|SAM_STAT_\w+",
    ),
)
"""Internal kernel headers, and the names to include of each."""

_MARKS = ("__force", "__bitwise", "__user", "__packed", "__attribute_const__")
"""Annotations in the kernel's sources that ``headers_install`` removes."""

_PAGES = {
    machine: {"PAGE_SIZE": None, "PAGE_SHIFT": None} for machine in ("aarch64", "loongarch64", "mips64", "ppc64le")
}
"""Machines on which the page size depends on the kernel's configuration."""

LIBRARY: dict[str, str | int] = {
    "MAP_ANON": "MAP_ANONYMOUS", "O_ASYNC": "FASYNC", "O_FSYNC": "O_SYNC", "O_RSYNC": "O_SYNC",
    "S_IREAD": "S_IRUSR", "S_IWRITE": "S_IWUSR", "S_IEXEC": "S_IXUSR", "AF_FILE": "AF_UNIX",
    "SCHED_OTHER": "SCHED_NORMAL", "RLIM_INFINITY": "RLIM64_INFINITY", "HOST_NAME_MAX": 64,
    "F_OK": 0, "X_OK": 1, "W_OK": 2, "R_OK": 4, "STDIN_FILENO": 0, "STDOUT_FILENO": 1, "STDERR_FILENO": 2,
    "TH_FIN": 1, "TH_SYN": 2, "TH_RST": 4, "TH_PUSH": 8, "TH_ACK": 16, "TH_URG": 32,
}  # fmt: skip
"""Names that only headers of the C library define, with the kernel's name for the value, or the value."""

_LONGS = dict.fromkeys(
    ("LONG_MAX", "LONG_MIN", "ULONG_MAX", "SIZE_MAX", "SSIZE_MAX", "UINTPTR_MAX", "PTRDIFF_MAX", "PTRDIFF_MIN"), None
)
"""Limits of types with 64 bits on x86-64; internal constants are read from the x86-64 headers."""

_CONFIGURED = re.compile(
    r"CONFIG_\w+|__BITS_\w+|NFPROTO_NUMPROTO|"
    # Depends on the kernel's configuration, or on the number of members of an enumeration.
    r"GFP_ZONE_\w+|__GFP_BITS_\w+|\w*GFP_NOLOCKDEP|\w+_(?:LAST|MAX_NR|NR)|NR_\w+|\w*POISON\w*|VM_(?:ARCH|PKEY|SHADOW|SAO|GROWSUP|MAPPED)\w*|"
    r"PREEMPT_\w*|_?TIF_\w+|MMF_\w+|SOCK_DEBUG|PF_MAX|AF_MAX|WORK_\w*|QUEUE_FLAG_\w+|SECTION_\w+|MIGRATE_\w+"
)


def generate(kernels: list[KernelHeaders]) -> str:
    """The text of ``constants.json``, from the headers of several kernels, the oldest first."""
    tables = collect(kernels)
    content = {"values": tables.values, "machines": tables.machines}
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def collect(kernels: list[KernelHeaders]) -> Tables:
    """The constants of several kernels, the oldest first."""
    own = [own_constants(headers) for headers in kernels]
    common = {name: value for name, value in own[0].items() if all(table.get(name) == value for table in own)}
    of_user = {machine: _agreed([user_constants(headers, machine) for headers in kernels]) for machine in MACHINES}
    of_first = of_user[MACHINES[0]]
    # Internal definitions take precedence: internal flags share names with those of the user-space API.
    private = {name for name, value in own[0].items() if of_first.get(name) != value}
    values = {**of_first, **{name: common.get(name) for name in own[0]}}
    machines: dict[str, dict[str, int | None]] = {}
    for machine in MACHINES:
        unknown = _LONGS if machine == "armv7l" else _PAGES.get(machine, {})
        special = of_user[machine].items()
        machines[machine] = {
            name: value for name, value in special if name not in private and values.get(name) != value
        }
        lacking = (name for name in of_first if name not in of_user[machine] and name not in own[0])
        machines[machine].update({**dict.fromkeys(lacking), **unknown})
    return Tables({name: value for name, value in values.items() if value is not None}, machines)


def _agreed(tables: list[dict[str, int]]) -> dict[str, int]:
    """Entries of any table that no other table contradicts."""
    constants: dict[str, int] = {}
    for table in reversed(tables):
        constants.update(table)
    return {name: value for name, value in constants.items() if all(one.get(name, value) == value for one in tables)}


def own_constants(headers: KernelHeaders, names: Iterable[str] = ()) -> dict[str, int]:
    """Internal constants of a kernel built for x86-64: those of the table, or only *names*."""
    arguments = ["-target", "x86_64-linux-gnu", "-D__KERNEL__", '-DKBUILD_MODNAME="pytrace"']
    for path in headers.included:
        arguments.extend(("-include", path))
    return _of_headers(headers.folders, KERNEL, arguments, list(names))


def user_constants(headers: KernelHeaders, machine: str, names: Iterable[str] = ()) -> dict[str, int]:
    """Constants of the user-space API of one machine: those of the table, or only *names*."""
    source, arch = headers.trees[0], architecture(machine)
    target = machine.replace("ppc64le", "powerpc64le")
    arguments = ["-target", f"{target}-linux-gnu", *(f"-D{word}=" for word in _MARKS)]
    with tempfile.TemporaryDirectory() as directory:
        _wrappers(source, arch, directory)
        folders = (f"{source}/arch/{arch}/include/uapi", directory, f"{source}/include/uapi")
        constants = _of_headers(folders, USER, arguments, list(names))
    for name, same in LIBRARY.items():
        value = constants.get(same) if isinstance(same, str) else same
        if value is not None:
            constants[name] = value
    return constants


def architecture(machine: str) -> str:
    """The machine's directory under ``arch``."""
    names = {"x86_64": "x86", "aarch64": "arm64", "armv7l": "arm", "loongarch64": "loongarch", "mips64": "mips"}
    return {**names, "ppc64le": "powerpc", "riscv64": "riscv", "s390x": "s390"}[machine]


def _wrappers(source: str, arch: str, folder: str) -> None:
    """Create the wrapper headers that the kernel's build generates for ``asm-generic``, and empty headers in place of
    those that ``headers_install`` omits.
    """
    texts = dict.fromkeys(("linux/compiler.h", "linux/compiler_types.h", "sys/socket.h"), "")
    for name in os.listdir(f"{source}/include/uapi/asm-generic"):
        if not os.path.exists(f"{source}/arch/{arch}/include/uapi/asm/{name}"):
            texts[f"asm/{name}"] = f"#include <asm-generic/{name}>\n"
    for name, text in texts.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _of_headers(
    folders: tuple[str, ...], table: Iterable[tuple[str, str]], arguments: list[str], names: list[str]
) -> dict[str, int]:
    flags = ["-x", "c", "-w", "-ferror-limit=0", "-nostdinc", *arguments]
    for folder in (BUILTIN_HEADERS, *folders):
        flags.extend(("-isystem", folder))
    existing = [(header, wanted) for header, wanted in table if any(os.path.exists(f"{at}/{header}") for at in folders)]
    if names:  # all headers at once: fast, but does not say which header defines a name
        return _values("".join(f"#include <{header}>\n" for header, _ in existing), names, flags)
    constants: dict[str, int] = {}
    for header, wanted in existing:
        text = f"#include <{header}>\n"
        asked = [name for name in _declared(_parsed(text, flags)) if re.fullmatch(wanted, name)]
        constants.update(_values(text, asked, flags))
    return {name: value for name, value in constants.items() if not _CONFIGURED.fullmatch(name)}


def _values(text: str, names: list[str], flags: list[str]) -> dict[str, int]:
    unit = _parsed(text + "".join(f"enum {{ {VALUE}{name} = ({name}) }};\n" for name in names), flags)
    wrong = {item.location.line for item in unit.diagnostics if item.severity >= ERROR and _in_text(item.location)}
    return {
        member.spelling.removeprefix(VALUE): int(member.enum_value)
        for cursor in unit.cursor.get_children()
        if cursor.kind.name == "ENUM_DECL" and _in_text(cursor.location) and cursor.location.line not in wrong
        for member in cursor.get_children()
        if member.spelling.startswith(VALUE)
    }


def _parsed(text: str, flags: list[str]) -> TranslationUnit:
    from clang import cindex

    options = cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD | KEEP_GOING
    index = cindex.Index.create()
    return index.parse("main.c", flags, [("main.c", text)], options)


def _in_text(location: SourceLocation) -> bool:
    return location.file is not None and str(location.file) == "main.c"


def _declared(unit: TranslationUnit) -> dict[str, None]:
    """Names of all declared macros and enumerators."""
    names: dict[str, None] = {}
    for cursor in unit.cursor.get_children():
        if cursor.kind.name == "MACRO_DEFINITION" and cursor.location.file is not None:
            names[cursor.spelling] = None
        elif cursor.kind.name == "ENUM_DECL":
            names.update((item.spelling, None) for item in cursor.get_children())
    return names


def header_names(kernels: Iterable[KernelHeaders]) -> str:
    """The text of ``header_names.txt``: a line for each directory with its headers, without ``.h``."""
    names: dict[str, set[str]] = {}
    for kernel in kernels:
        for tree in kernel.folders:
            for parent, _, files in os.walk(tree):
                folder = os.path.relpath(parent, tree).removeprefix("uapi/")
                if re.match(KERNEL_HEADER, f"{folder}/"):
                    names.setdefault(folder, set()).update(name[:-2] for name in files if name.endswith(".h"))
    return "".join(f"{folder} {' '.join(sorted(held))}\n" for folder, held in sorted(names.items()) if held)
