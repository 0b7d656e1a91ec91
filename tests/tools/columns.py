"""What each tool prints: the columns that users know, in their order. More may follow them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["rows", "histogram", "stacks", "counts", "list"]


@dataclass(frozen=True)
class Output:
    """The main form of a tool's output: *columns* of rows; none where it prints maps."""

    kinds: tuple[Kind, ...]
    columns: tuple[str, ...] = ()


def _rows(*columns: str) -> Output:
    return Output(("rows",), columns)


_HISTOGRAM = Output(("histogram",))
_STACKS = Output(("stacks",))
_STACKS_AND_HISTOGRAM = Output(("stacks", "histogram"))


TOOLS: dict[str, Output] = {
    # Processes
    "execsnoop": _rows("PCOMM", "PID", "PPID", "RET", "ARGS"),
    "exitsnoop": _rows("PCOMM", "PID", "PPID", "TID", "AGE(s)", "EXIT_CODE"),
    "threadsnoop": _rows("TIME(ms)", "PID", "COMM", "FUNC"),
    "killsnoop": _rows("TIME", "PID", "COMM", "SIG", "TPID", "RESULT"),
    "setuids": _rows("TIME", "PID", "COMM", "UID", "SYSCALL", "ARGS", "RESULT"),
    "capable": _rows("TIME", "UID", "PID", "COMM", "CAP", "NAME", "AUDIT"),
    "oomkill": _rows("TIME", "TRIGGERED", "KILLED", "PAGES", "LOADAVG"),
    "pidpersec": _rows("TIME", "COUNT"),
    "naptime": _rows("TIME", "PPID", "PCOMM", "PID", "COMM", "SECONDS"),
    "bashreadline": _rows("TIME", "PID", "COMMAND"),
    "syscount": _rows("SYSCALL", "COUNT", "TIME(us)"),
    "undump": _rows("TIME", "COMM", "PID", "SIZE", "DATA"),
    # Processors and scheduling
    "profile": _STACKS,
    "offcputime": _STACKS,
    "offwaketime": _STACKS,
    "wakeuptime": _STACKS,
    "runqlat": _HISTOGRAM,
    "runqlen": _HISTOGRAM,
    "runqslower": _rows("TIME", "COMM", "TID", "LAT(us)", "PREV COMM", "PREV TID"),
    "cpudist": _HISTOGRAM,
    "cpuwalk": _HISTOGRAM,
    "loads": _rows("TIME", "LOAD1", "LOAD5", "LOAD15"),
    "hardirqs": _rows("HARDIRQ", "TOTAL(us)"),
    "softirqs": _rows("SOFTIRQ", "TOTAL(us)"),
    "wqlat": _HISTOGRAM,
    "llcstat": _rows("PID", "NAME", "CPU", "REFERENCE", "MISS", "HIT%"),
    "klockstat": _rows("CALLER", "AVG-WAIT", "COUNT", "MAX-WAIT", "TOTAL-WAIT"),
    "futexwait": _rows("PID", "COMM", "ADDRESS", "COUNT", "TOTAL(us)", "P99(us)"),
    "cpufreq": _rows("CPU", "MHZ", "TIME(ms)"),
    # Memory
    "memleak": _STACKS,
    "mallocs": _STACKS_AND_HISTOGRAM,
    "pagefaults": _rows("PID", "COMM", "MAJOR", "MINOR"),
    "drsnoop": _rows("TIME(s)", "COMM", "PID", "LAT(ms)", "PAGES"),
    "compactsnoop": _rows("TIME(s)", "COMM", "PID", "NODE", "ZONE", "ORDER", "MODE", "LAT(ms)", "STATUS"),
    "slabratetop": _rows("CACHE", "ALLOCS", "BYTES"),
    "swapin": _rows("COMM", "PID", "COUNT"),
    "shmsnoop": _rows("TIME(s)", "PID", "COMM", "SYS", "RET", "ARGS"),
    # Files
    "opensnoop": _rows("TIME(s)", "PID", "COMM", "FD", "ERR", "PATH"),
    "statsnoop": _rows("TIME(s)", "PID", "COMM", "FD", "ERR", "PATH"),
    "syncsnoop": _rows("TIME(s)", "COMM", "CALL"),
    "filelife": _rows("TIME", "PID", "COMM", "AGE(s)", "FILE"),
    "filetop": _rows("PID", "COMM", "READS", "WRITES", "R_KB", "W_KB", "T", "FILE"),
    "fileslower": _rows("TIME(s)", "COMM", "PID", "D", "BYTES", "LAT(ms)", "FILENAME"),
    "fsslower": _rows("TIME", "COMM", "PID", "T", "BYTES", "OFF_KB", "LAT(ms)", "FILENAME"),
    "fsdist": _HISTOGRAM,
    "cachestat": _rows("HITS", "MISSES", "DIRTIES", "HITRATIO", "BUFFERS_MB", "CACHED_MB"),
    "cachetop": _rows("PID", "UID", "CMD", "HITS", "MISSES", "DIRTIES", "READ_HIT%", "WRITE_HIT%"),
    "dcsnoop": _rows("TIME(s)", "PID", "COMM", "T", "FILE"),
    "dcstat": _rows("TIME", "REFS/s", "SLOW/s", "MISS/s", "HIT%"),
    "vfsstat": _rows("TIME", "READ/s", "WRITE/s", "FSYNC/s", "OPEN/s", "CREATE/s", "UNLINK/s", "MKDIR/s", "RMDIR/s"),
    "vfscount": _rows("FUNC", "COUNT"),
    "writeback": _rows("TIME", "DEVICE", "PAGES", "REASON", "ms"),
    "mountsnoop": _rows("COMM", "PID", "TID", "MNT_NS", "CALL"),
    # Block devices
    "biolatency": _HISTOGRAM,
    "biosnoop": _rows("TIME(s)", "COMM", "PID", "DISK", "T", "SECTOR", "BYTES", "QUE(ms)", "LAT(ms)"),
    "biostacks": _STACKS_AND_HISTOGRAM,
    "biotop": _rows("PID", "COMM", "D", "MAJ", "MIN", "DISK", "I/O", "KBYTES", "AVG(ms)"),
    "biopattern": _rows("TIME", "DISK", "%RND", "%SEQ", "COUNT", "KBYTES"),
    "bitesize": _HISTOGRAM,
    "mdflush": _rows("TIME", "PID", "COMM", "DEVICE"),
    # Network
    "tcpconnect": _rows("TIME(s)", "PID", "COMM", "IP", "SADDR", "LPORT", "DADDR", "DPORT"),
    "tcpaccept": _rows("TIME(s)", "PID", "COMM", "IP", "RADDR", "RPORT", "LADDR", "LPORT"),
    "tcpconnlat": _rows("PID", "COMM", "IP", "SADDR", "DADDR", "DPORT", "LAT(ms)"),
    "tcplife": _rows("TIME(s)", "PID", "COMM", "IP", "LADDR", "LPORT", "RADDR", "RPORT", "TX_KB", "RX_KB", "MS"),
    "tcpretrans": _rows("TIME", "PID", "IP", "LADDR:LPORT", "T>", "RADDR:RPORT", "STATE"),
    "tcpdrop": _rows("TIME", "PID", "IP", "SADDR:SPORT", ">", "DADDR:DPORT", "STATE", "(FLAGS)", "REASON"),
    "tcpstates": _rows("SKADDR", "PID", "COMM", "LADDR", "LPORT", "RADDR", "RPORT", "OLDSTATE", "->", "NEWSTATE", "MS"),
    "tcptop": _rows("PID", "COMM", "LADDR", "RADDR", "RX_KB", "TX_KB"),
    "tcprtt": _HISTOGRAM,
    "tcpsynbl": _HISTOGRAM,
    "solisten": _rows("PID", "COMM", "NETNS", "PROTO", "BACKLOG", "ADDR", "PORT"),
    "udpsnoop": _rows("TIME", "PID", "COMM", "DIR", "LADDR:LPORT", "RADDR:RPORT", "BYTES"),
    "gethostlatency": _rows("TIME", "PID", "COMM", "LAT(ms)", "HOST"),
    "sslsnoop": _rows("TIME(us)", "FUNC", "COMM", "PID", "LEN", "LAT(ms)"),
    "netqtop": _rows("QUEUE", "AVG_SIZE", "[0,64)", "[64,512)", "[512,2K)", "[2K,16K)", "[16K,64K)", "BPS", "PPS"),
    "skbdrop": _rows("REASON", "FUNC", "COUNT"),
    # Languages and databases (USDT)
    "ucalls": _rows("METHOD", "CALLS", "TIME(us)"),
    "uflow": _rows("CPU", "PID", "TID", "TIME(us)", "METHOD"),
    "ugc": _rows("START", "TIME(us)", "DESCRIPTION"),
    "uobjnew": _rows("TYPE", "ALLOCS", "BYTES"),
    "dbslower": _rows("TIME(s)", "PID", "MS", "QUERY"),
    "dbstat": _HISTOGRAM,
    "tplist": Output(("list",)),
    # Multi-purpose
    "funccount": _rows("FUNC", "COUNT"),
    "funclatency": _HISTOGRAM,
    "functime": _rows("FUNC", "COUNT", "TOTAL(ms)", "AVG(us)", "P99(us)", "MAX(us)"),
    "funcslower": _rows("COMM", "PID", "LAT(ms)", "RVAL", "FUNC", "ARGS"),
    "stackcount": _STACKS,
    "trace": _rows("TIME", "PID", "TID", "COMM", "FUNC", "-"),
    "argdist": Output(("counts", "histogram")),
}  # fmt: skip
"""All tools, in the order of their groups."""

ALIASES: dict[str, str] = {
    "ext4slower": "fsslower", "ext4dist": "fsdist",
    "xfsslower": "fsslower", "xfsdist": "fsdist",
    "btrfsslower": "fsslower", "btrfsdist": "fsdist",
    "nfsslower": "fsslower", "nfsdist": "fsdist",
}  # fmt: skip
"""Other names of tools."""
