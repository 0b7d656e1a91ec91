"""Generates ``pytrace/calls/flag_tables.py``: names of the flags and enumerations of system calls.

The values come from ``pytrace/frontend/expand/constants.json``, which ``scripts/generate-constants`` reads from the
kernel's UAPI headers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import filterfalse
from pathlib import Path

import msgspec


class Table(msgspec.Struct, frozen=True):
    """A table of names: constants that *pattern* matches whole, without those that *without* matches.

    Where several constants have one value, that of *first* is taken, else the shortest name.
    """

    pattern: str
    without: str = ""
    first: str = ""


FLAGS: Mapping[str, Table] = {
    "access": Table(r"[RWX]_OK"),
    "at": Table(r"AT_(?:SYMLINK_\w+|EACCESS|REMOVEDIR|NO_AUTOMOUNT|EMPTY_PATH|STATX_\w+_SYNC|RECURSIVE|HANDLE_FID)",
                first="AT_EACCESS AT_SYMLINK_NOFOLLOW"),
    "atunlink": Table(r"AT_REMOVEDIR"),
    "atfile": Table(r"AT_(?:SYMLINK_\w+|NO_AUTOMOUNT|EMPTY_PATH|STATX_(?:FORCE|DONT)_SYNC|RECURSIVE)"),
    "clone": Table(r"CLONE_\w+", r"CLONE_ARGS\w+|CLONE_NEWTIME"),
    "unshare": Table(r"CLONE_\w+", r"CLONE_ARGS\w+"),
    "closerange": Table(r"CLOSE_RANGE_\w+"),
    "efd": Table(r"EFD_(?:SEMAPHORE|NONBLOCK|CLOEXEC)"),
    "epollevents": Table(r"EPOLL(?:IN|OUT|PRI|ERR|HUP|NVAL|RD\w+|WR\w+|MSG|EXCLUSIVE|WAKEUP|ONESHOT|ET)"),
    "epollcreate": Table(r"EPOLL_CLOEXEC"),
    "fallocate": Table(r"FALLOC_FL_\w+"),
    "fanclass": Table(r"FAN_(?:CLASS_\w+|CLOEXEC|NONBLOCK|UNLIMITED_\w+|ENABLE_AUDIT|REPORT_\w+)"),
    "fanmark": Table(r"FAN_MARK_\w+"),
    "fanmask": Table(r"FAN_(?:ACCESS|MODIFY|ATTRIB|CLOSE_\w+|OPEN|MOVED_\w+|CREATE|DELETE|DELETE_SELF|MOVE_SELF|"
                     r"OPEN_EXEC|Q_OVERFLOW|OPEN_PERM|ACCESS_PERM|OPEN_EXEC_PERM|ONDIR|EVENT_ON_CHILD|RENAME|FS_ERROR)"),
    "fdflags": Table(r"FD_CLOEXEC"),
    "fsmount": Table(r"FSMOUNT_\w+"),
    "fsopen": Table(r"FSOPEN_\w+"),
    "fspick": Table(r"FSPICK_\w+"),
    "grnd": Table(r"GRND_\w+"),
    "inotifyinit": Table(r"IN_(?:NONBLOCK|CLOEXEC)"),
    "inotify": Table(r"IN_\w+", r"IN_(?:NONBLOCK|CLOEXEC|MOVE|CLOSE|Q_OVERFLOW|IGNORED|UNMOUNT|ISDIR)"),
    "iouringsetup": Table(r"IORING_SETUP_\w+"),
    "iouringenter": Table(r"IORING_ENTER_\w+"),
    "ipc": Table(r"IPC_(?:CREAT|EXCL|NOWAIT)"),
    "lock": Table(r"LOCK_(?:SH|EX|NB|UN)"),
    "mapflags": Table(r"MAP_(?:SHARED\w*|PRIVATE|FIXED\w*|ANONYMOUS|32BIT|GROWSDOWN|DENYWRITE|EXECUTABLE|LOCKED|"
                      r"NORESERVE|POPULATE|NONBLOCK|STACK|HUGETLB|SYNC|ABOVE4G)", first="MAP_SHARED_VALIDATE"),
    "mcl": Table(r"MCL_\w+"),
    "mfd": Table(r"MFD_(?:CLOEXEC|ALLOW_SEALING|HUGETLB|NOEXEC_SEAL|EXEC)"),
    "mlock": Table(r"MLOCK_\w+"),
    "mount": Table(r"MS_\w+", r"MS_(?:ASYNC|SYNC|INVALIDATE|RMT_MASK|MGC_\w+|VERBOSE)"),
    "mountattr": Table(r"MOUNT_ATTR_\w+", r"MOUNT_ATTR_(?:_ATIME|RELATIME|SIZE\w*)"),
    "movemount": Table(r"MOVE_MOUNT_\w+", r"MOVE_MOUNT__MASK"),
    "mremap": Table(r"MREMAP_\w+"),
    "msg": Table(r"MSG_(?:OOB|PEEK|DONTROUTE|CTRUNC|PROBE|TRUNC|DONTWAIT|EOR|WAITALL|FIN|SYN|CONFIRM|RST|ERRQUEUE|"
                 r"NOSIGNAL|MORE|WAITFORONE|BATCH|ZEROCOPY|FASTOPEN|CMSG_CLOEXEC)"),
    "msync": Table(r"MS_(?:ASYNC|SYNC|INVALIDATE)"),
    "msgop": Table(r"MSG_(?:NOERROR|EXCEPT|COPY)|IPC_NOWAIT"),
    "open": Table(r"O_\w+", r"O_(?:ACCMODE|NDELAY|RSYNC|FSYNC|RDONLY|WRONLY|RDWR)", first="O_SYNC"),
    "opentree": Table(r"OPEN_TREE_\w+|AT_(?:SYMLINK_NOFOLLOW|NO_AUTOMOUNT|EMPTY_PATH|RECURSIVE)"),
    "perf": Table(r"PERF_FLAG_\w+"),
    "personality": Table(r"ADDR_\w+|READ_IMPLIES_EXEC|MMAP_PAGE_ZERO|UNAME26|STICKY_TIMEOUTS|WHOLE_SECONDS|SHORT_INODE"),
    "pidfd": Table(r"PIDFD_(?:NONBLOCK|THREAD)", first="PIDFD_NONBLOCK"),
    "pipe": Table(r"O_(?:CLOEXEC|NONBLOCK|DIRECT)"),
    "poll": Table(r"POLL(?:IN|PRI|OUT|ERR|HUP|NVAL|RD\w+|WR\w+|MSG|REMOVE)"),
    "prot": Table(r"PROT_\w+", r"PROT_NONE"),
    "rename": Table(r"RENAME_\w+"),
    "resolve": Table(r"RESOLVE_\w+"),
    "rwf": Table(r"RWF_\w+", r"RWF_SUPPORTED"),
    "sa": Table(r"SA_\w+", r"SA_(?:NOMASK|ONESHOT|UNSUPPORTED|EXPOSE_TAGBITS)"),
    "seccompfilter": Table(r"SECCOMP_FILTER_FLAG_\w+"),
    "sfd": Table(r"SFD_(?:CLOEXEC|NONBLOCK)"),
    "shm": Table(r"IPC_(?:CREAT|EXCL)|SHM_(?:HUGETLB|NORESERVE)"),
    "shmat": Table(r"SHM_(?:RDONLY|RND|REMAP|EXEC)"),
    "sockflags": Table(r"SOCK_(?:CLOEXEC|NONBLOCK)"),
    "splice": Table(r"SPLICE_F_\w+", r"SPLICE_F_ALL"),
    "statfs": Table(r"ST_(?:VALID|RDONLY|NOSUID|NODEV|NOEXEC|SYNCHRONOUS|MANDLOCK|NOATIME|NODIRATIME|RELATIME|NOSYMFOLLOW)"),
    "ssflags": Table(r"SS_(?:ONSTACK|DISABLE|AUTODISARM)"),
    "statx": Table(r"STATX_\w+", r"STATX_(?:ATTR_\w+|_RESERVED)", first="STATX_BASIC_STATS"),
    "statxattr": Table(r"STATX_ATTR_\w+"),
    "syncrange": Table(r"SYNC_FILE_RANGE_\w+", r"SYNC_FILE_RANGE_WRITE_AND_WAIT"),
    "tfd": Table(r"TFD_(?:CLOEXEC|NONBLOCK)"),
    "tfdset": Table(r"TFD_TIMER_\w+"),
    "timerset": Table(r"TIMER_ABSTIME"),
    "uffd": Table(r"O_(?:CLOEXEC|NONBLOCK)|UFFD_USER_MODE_ONLY"),
    "umount": Table(r"MNT_(?:FORCE|DETACH|EXPIRE)|UMOUNT_NOFOLLOW"),
    "wait": Table(r"WNOHANG|WUNTRACED|WCONTINUED|WNOWAIT|WEXITED|__W\w+"),
    "waitid": Table(r"WNOHANG|WSTOPPED|WCONTINUED|WNOWAIT|WEXITED|__W\w+"),
    "xattr": Table(r"XATTR_(?:CREATE|REPLACE)"),
}
"""Tables of bits."""

ENUMS: Mapping[str, Table] = {
    "accmode": Table(r"O_(?:RDONLY|WRONLY|RDWR)"),
    "addrfam": Table(r"AF_\w+", r"AF_MAX", first="AF_UNIX AF_NETLINK"),
    "arch": Table(r"ARCH_(?:[GS]ET_\w+|REQ_\w+|MAP_\w+|ENABLE_\w+|FORCE_\w+|SHSTK_(?:ENABLE|DISABLE|LOCK|UNLOCK|STATUS))"),
    "cap": Table(r"CAP_[A-Z_]+", r"CAP_LAST_CAP|CAP_AUDIT_MASK|CAP_OPT\w*"),
    "bpf": Table(r"BPF_(?:MAP_(?:CREATE|\w+_ELEM|\w*KEY|FREEZE|\w+_BATCH|GET_\w+)|PROG_(?:LOAD|ATTACH|DETACH|TEST_RUN|GET_\w+|"
                 r"QUERY|BIND_MAP)|OBJ_(?:PIN|GET)|OBJ_GET_INFO_BY_FD|RAW_TRACEPOINT_OPEN|BTF_(?:LOAD|GET_\w+)|TASK_FD_QUERY|"
                 r"LINK_(?:CREATE|UPDATE|GET_\w+|DETACH)|ENABLE_STATS|ITER_CREATE|TOKEN_CREATE)",
                 first="BPF_PROG_TEST_RUN"),
    "clock": Table(r"CLOCK_\w+"),
    "cld": Table(r"CLD_\w+"),
    "dt": Table(r"DT_(?:UNKNOWN|FIFO|CHR|DIR|BLK|REG|LNK|SOCK)"),
    "epollctl": Table(r"EPOLL_CTL_\w+"),
    "fadvise": Table(r"POSIX_FADV_\w+"),
    "fcntl": Table(r"F_(?:DUPFD\w*|[GS]ET(?:FD|FL|LKW?|OWN|SIG|OWN_EX|LEASE|PIPE_SZ)|OFD_\w+|NOTIFY|CANCELLK|ADD_SEALS|"
                   r"GET_SEALS|[GS]ET_\w+HINT|GETOWNER_UIDS|CREATED_QUERY)"),
    "flock": Table(r"F_(?:RDLCK|WRLCK|UNLCK)"),
    "fsconfig": Table(r"FSCONFIG_\w+"),
    "futex": Table(r"FUTEX_(?:WAIT|WAKE|FD|REQUEUE|CMP_REQUEUE|WAKE_OP|LOCK_PI|UNLOCK_PI|TRYLOCK_PI|WAIT_BITSET|"
                   r"WAKE_BITSET|WAIT_REQUEUE_PI|CMP_REQUEUE_PI|LOCK_PI2)"),
    "ioctl": Table(r"TC[GS]ET\w+|TC(?:SBRK\w*|XONC|FLSH)|TIOC\w+|FIO\w+|SIOC\w+|BLK[A-Z]\w+|FS_IOC_\w+|FI(?:BMAP|GETBSZ|"
                   r"CLONE|CLONERANGE|DEDUPERANGE|FREEZE|THAW|TRIM)|LOOP_(?:SET|CLR|GET|CHANGE|CONFIGURE|CTL)\w*|TUN[GS]ET\w+|"
                   r"RND\w+|PERF_EVENT_IOC_\w+|KVM_(?:CREATE|GET|SET|RUN|CHECK)\w*|UFFDIO_\w+|NS_GET_\w+",
                   r"TIOCM_\w+|TIOCPKT_\w+|TIOCSER_\w+|SIOCDEVPRIVATE|SIOCPROTOPRIVATE|FIOQSIZE|PERF_EVENT_IOC_FLAGS\w*"
                   r"|UFFDIO_\w+_MODE\w*|BLK_\w+|UFFDIO_REGISTER_\w+|\w+ABLE_FLAGS|KVM_RUN_X86\w+", first="FIONREAD"),
    "iouringregister": Table(r"IORING_(?:UN)?REGISTER_\w+", r"IORING_REGISTER_(?:FILES_SKIP|LAST|USE_REGISTERED_RING|SRC_\w+|DST_\w+)"),
    "ioprio": Table(r"IOPRIO_WHO_\w+"),
    "ipccmd": Table(r"IPC_(?:RMID|SET|STAT|INFO)"),
    "ipproto": Table(r"IPPROTO_\w+", r"IPPROTO_MAX", first="IPPROTO_IP"),
    "itimer": Table(r"ITIMER_\w+"),
    "kcmp": Table(r"KCMP_\w+", r"KCMP_TYPES"),
    "keyctl": Table(r"KEYCTL_\w+", r"KEYCTL_(?:CAPS\w+|SUPPORTS_\w+|MOVE_EXCL)"),
    "madv": Table(r"MADV_\w+"),
    "membarrier": Table(r"MEMBARRIER_CMD_\w+", r"MEMBARRIER_CMD_(?:FLAG_CPU|SHARED)"),
    "mpol": Table(r"MPOL_(?:DEFAULT|PREFERRED|BIND|INTERLEAVE|LOCAL|PREFERRED_MANY|WEIGHTED_INTERLEAVE)"),
    "netlink": Table(r"NETLINK_[A-Z0-9_]+", r"NETLINK_(?:\w+_MEMBERSHIP\w*|PKTINFO|BROADCAST_ERROR|NO_ENOBUFS|RX_RING|TX_RING|"
                     r"CAP_ACK|EXT_ACK|GET_STRICT_CHK|LISTEN_ALL_NSID|UNCONNECTED|CONNECTED|INET_DIAG|UNUSED)"),
    "persona": Table(r"PER_\w+", r"PER_MASK", first="PER_LINUX"),
    "prctl": Table(r"PR_(?:[GS]ET_\w+|TASK_\w+|MCE_KILL\w*|CAPBSET_\w+|CAP_AMBIENT|SCHED_CORE|SVE_\w+|PAC_RESET_KEYS|"
                   r"FUTEX_HASH|RISCV_\w+_CTRL)", r"PR_SET_MM_\w+|PR_SET_VMA_\w+|PR_MCE_KILL_\w+|PR_CAP_AMBIENT_\w+"),
    "priority": Table(r"PRIO_(?:PROCESS|PGRP|USER)"),
    "ptrace": Table(r"PTRACE_\w+", r"PTRACE_(?:O_\w+|EVENT\w*|SYSCALL_INFO_\w+|PEEKSIGINFO_SHARED|OLDSETOPTIONS)"),
    "reboot": Table(r"LINUX_REBOOT_CMD_\w+"),
    "rlimit": Table(r"RLIMIT_\w+"),
    "rusage": Table(r"RUSAGE_\w+"),
    "sched": Table(r"SCHED_(?:NORMAL|FIFO|RR|BATCH|IDLE|DEADLINE|EXT|OTHER)", first="SCHED_OTHER"),
    "seccomp": Table(r"SECCOMP_(?:SET_MODE_\w+|GET_\w+)"),
    "semctl": Table(r"GET(?:PID|VAL|ALL|NCNT|ZCNT)|SETVAL|SETALL|IPC_(?:RMID|SET|STAT|INFO)|SEM_(?:STAT|INFO|STAT_ANY)"),
    "shmctl": Table(r"SHM_(?:LOCK|UNLOCK|STAT|INFO|STAT_ANY)|IPC_(?:RMID|SET|STAT|INFO)"),
    "msgctl": Table(r"MSG_(?:STAT|INFO|STAT_ANY)|IPC_(?:RMID|SET|STAT|INFO)"),
    # Those of linux/magic.h; other headers have what only is named so.
    "fsmagic": Table(r"\w+_MAGIC\d*(?:_V1)?", r"\w+_MAGICLINKS|(?:WAKE|SECCOMP_IOC|LINUX_REBOOT|STACK_END)_MAGIC\w*",
                     first="EXT2_SUPER_MAGIC"),
    "shut": Table(r"SHUT_\w+"),
    "si": Table(r"SI_\w+", r"SI_(?:LOAD_SHIFT|MAX_SIZE|DETHREAD)"),
    "sig": Table(r"SIG[A-Z0-9]+", r"SIGUNUSED|SIGSTKSZ|SIGRTMIN|SIGRTMAX|SIGIOT|SIGPOLL", first="SIGABRT SIGIO SIGSYS"),
    "sigev": Table(r"SIGEV_(?:SIGNAL|NONE|THREAD|THREAD_ID)"),
    "sighow": Table(r"SIG_(?:BLOCK|UNBLOCK|SETMASK)"),
    "sockopt": Table(r"SO_\w+", r"SO_(?:VM_\w+|\w+_OLD|SECURITY_\w+|DEVMEM_\w+|GET_FILTER|DETACH_BPF)", first="SO_RCVTIMEO SO_SNDTIMEO"),
    "sol": Table(r"SOL_\w+"),
    "socktype": Table(r"SOCK_(?:STREAM|DGRAM|RAW|RDM|SEQPACKET|DCCP|PACKET)"),
    "ipopt": Table(r"IP_[A-Z_]+", r"IP_(?:PMTUDISC_\w+|DEFAULT_\w+|CT_\w+|RF|DF|MF|OFFSET|DROP\w*|ADD\w*|MAX\w*|MSFILTER|BLOCK\w*)"),
    "ipv6opt": Table(r"IPV6_[A-Z0-9_]+", r"IPV6_(?:PMTUDISC_\w+|FL_\w+|TLV_\w+|OPT_\w+|SRCRT_\w+|FLOWLABEL_\w+|PREFER_SRC_\w+|PRIORITY_\w+|MIN_MTU|2292\w+)"),
    "tcpopt": Table(r"TCP_[A-Z0-9_]+", r"TCP_(?:ESTABLISHED|SYN_\w+|FIN_\w+|TIME_WAIT|CLOSE\w*|LAST_ACK|LISTEN|CLOSING|NEW_SYN_RECV|"
                    r"MAX_\w+|BOUND\w*|MSS_\w+|NAGLE_\w+|CA_\w+|FLAG_\w+|NLA_\w+|MD5SIG_\w+|METRICS_\w+|QUEUES_NR|NO_QUEUE|RECV_QUEUE|SEND_QUEUE|S_DATA_\w+|"
                    r"COOKIE_\w+|AO_[A-Z]+_\w+|REPAIR_\w+|RECEIVE_ZEROCOPY_\w+|FASTOPEN_\w+(?<!CONNECT)(?<!KEY)(?<!COOKIE)|DATA_\w+|V\d+)",
                    first="TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT TCP_LINGER2 "
                          "TCP_DEFER_ACCEPT TCP_WINDOW_CLAMP TCP_INFO TCP_QUICKACK TCP_CONGESTION"),
    "waitid_type": Table(r"P_(?:ALL|PID|PGID|PIDFD)"),
    "whence": Table(r"SEEK_(?:SET|CUR|END|DATA|HOLE)"),
}
"""Tables of values."""


def generate(constants: Path) -> str:
    """The text of the module."""
    data = json.loads(constants.read_text())
    values: dict[str, int] = {**data["values"], **_STATFS}
    machines: dict[str, dict[str, int | None]] = data["machines"]
    base = _tables({**values, **_known(machines["x86_64"])} if "x86_64" in machines else values)
    lines = [
        '"""Names of the flags and enumerations of system calls, of x86-64; :data:`OF_MACHINE` has what others do otherwise.',
        "",
        "Made by scripts/generate-call-tables from the constants of the kernel's UAPI headers.",
        '"""',
        "",
        "# fmt: off",
        "Names = dict[int, str]",
        "",
        *_written("TABLES: dict[str, Names]", base),
        'OF_MACHINE: dict[str, dict[str, Names]] = {',
    ]
    for machine in sorted(machines):
        own = machines[machine]
        changed = {name: value for name, value in values.items() if name not in own} | _known(own)
        others = {name: table for name, table in _tables(changed).items() if table != base[name]}
        if others and machine != "x86_64":
            lines += [f"  {machine!r}: {{", *(f"    {name!r}: {table!r}," for name, table in others.items()), "  },"]
    lines += ["}", "FLAGS = frozenset((", *(f"  {name!r}," for name in sorted(FLAGS)), "))", '"""The tables of bits."""', ""]
    return "\n".join(lines)


_STATFS = {
    "ST_RDONLY": 0x1, "ST_NOSUID": 0x2, "ST_NODEV": 0x4, "ST_NOEXEC": 0x8, "ST_SYNCHRONOUS": 0x10, "ST_VALID": 0x20,
    "ST_MANDLOCK": 0x40, "ST_NOATIME": 0x400, "ST_NODIRATIME": 0x800, "ST_RELATIME": 0x1000, "ST_NOSYMFOLLOW": 0x2000,
}  # fmt: skip
"""Flags of include/linux/statfs.h, which is no header of the UAPI."""


def _known(own: Mapping[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in own.items() if value is not None}


def _written(head: str, tables: Mapping[str, dict[int, str]]) -> list[str]:
    return [f"{head} = {{", *(f"  {name!r}: {table!r}," for name, table in tables.items()), "}"]


def _tables(values: Mapping[str, int]) -> dict[str, dict[int, str]]:
    found = {}
    for name, row in {**FLAGS, **ENUMS}.items():
        matching = list(filter(re.compile(row.pattern).fullmatch, values))
        if row.without:
            matching = list(filterfalse(re.compile(row.without).fullmatch, matching))
        preferred = row.first.split()
        matching.sort(key=lambda constant: (constant not in preferred, len(constant), constant))
        table: dict[int, str] = {}
        for constant in matching:
            if values[constant] or name in ENUMS:
                table.setdefault(values[constant] & 0xFFFFFFFFFFFFFFFF, constant)
        if name in FLAGS:
            # Those of several bits first, as O_SYNC contains O_DSYNC.
            order = sorted(table, key=lambda value: (-value.bit_count(), value))
        else:
            order = sorted(table)
        found[name] = {value: table[value] for value in order}
    return found
