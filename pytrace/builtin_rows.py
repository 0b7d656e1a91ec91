"""All builtins, one row each (reference sections 16, 17 and 18).

The rows are data; see :mod:`pytrace.builtin_table` for what each column means.  Look rows up with :func:`builtin`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytrace.builtin_table import Builtin, Mode

_FUNCTION_PROBES = frozenset({"kprobe", "kretprobe", "uprobe", "uretprobe", "fentry", "fexit"})
_REGISTER_PROBES = frozenset({"kprobe", "kretprobe", "uprobe", "uretprobe", "usdt"})
_ARGUMENT_PROBES = frozenset({"kprobe", "uprobe", "usdt", "rawtracepoint"})
_CTX_PROBES = _REGISTER_PROBES | {"profile", "interval", "software", "hardware", "watchpoint", "iter"}
_RETURN_PROBES = frozenset({"kretprobe", "uretprobe", "fexit"})
_TRACING_PROBES = frozenset({"fentry", "fexit", "rawtracepoint", "iter"})
_SIGNAL_PROBES = _REGISTER_PROBES | {"tracepoint", "profile", "fentry", "fexit", "rawtracepoint"}
_USER_PROBES = frozenset({"uprobe", "uretprobe", "usdt"})

_A, _C = Mode.ASYNC, Mode.COMPILE

VALUES: tuple[Builtin, ...] = (
    Builtin("argN", "context", "arg0, arg1 …",
            "Argument N of the traced function or probe, as an unsigned 64-bit integer.",
            value=True, call=False, probes=_ARGUMENT_PROBES, no_loop=True),
    Builtin("args", "context", "args",
            "All typed arguments of the probe: `args.name` is one of them, `print(args)` prints them.",
            value=True, call=False),
    Builtin("ctx", "context", "ctx",
            "Pointer to the context of the BPF program.", value=True, probes=_CTX_PROBES, no_loop=True),
    Builtin("func", "context", "func", "Name of the traced function.", value=True, probes=_FUNCTION_PROBES),
    Builtin("probe", "context", "probe", "Full name of the probe that fired.", value=True),
    Builtin("probetype", "context", "probetype",
            "Kind of the probe; `special` for begin, end and self.", _C, value=True),
    Builtin("retval", "context", "retval",
            "Value that the traced function returned.", value=True, probes=_RETURN_PROBES, no_loop=True),
    Builtin("usermode", "context", "usermode", "1 when the processor was in user mode, else 0 (x86-64).", value=True),
    Builtin("cgroup", "process", "cgroup", "Id of the current task's cgroup (version 2).", value=True),
    Builtin("comm", "process", "comm or comm(uint32 pid)",
            "Name of the current thread, or of the thread with that id.", most=1, value=True),
    Builtin("cpid", "process", "cpid", "Process id of the child that -c started.", value=True),
    Builtin("has_cpid", "process", "has_cpid", "True when -c started a child.", _C, value=True),
    Builtin("cpu", "process", "cpu", "Number of the processor that runs the program.", value=True),
    Builtin("curtask", "process", "curtask", "The current task as `struct task_struct *`.", value=True),
    Builtin("gid", "process", "gid", "Group id of the current process, in the initial namespace.", value=True),
    Builtin("uid", "process", "uid", "User id of the current process, in the initial namespace.", value=True),
    Builtin("username", "process", "username", "Name of the current user; only for printing.", value=True),
    Builtin("leader_comm", "process", "leader_comm or leader_comm(struct task_struct *task)",
            "Name of the thread group's leader.", most=1, value=True),
    Builtin("leader_tid", "process", "leader_tid or leader_tid(struct task_struct *task)",
            "Thread id of the thread group's leader.", most=1, value=True),
    Builtin("pcomm", "process", "pcomm or pcomm(struct task_struct *task)",
            "Name of the real parent process.", most=1, value=True),
    Builtin("ppid", "process", "ppid or ppid(struct task_struct *task)",
            "Process id of the real parent.", most=1, value=True),
    Builtin("pid", "process", "pid or pid([curr_ns|init])",
            "Process id, in the tracer's pid namespace or the initial one.", most=1, value=True),
    Builtin("tid", "process", "tid or tid([curr_ns|init])",
            "Thread id, in the tracer's pid namespace or the initial one.", most=1, value=True),
    Builtin("ncpus", "process", "ncpus", "Number of processors that may ever be online.", _C, value=True),
    Builtin("numaid", "process", "numaid", "Number of the NUMA node that runs the program.", value=True),
    Builtin("rand", "process", "rand", "A random unsigned 32-bit number.", value=True),
    Builtin("elapsed", "time", "elapsed", "Nanoseconds since tracing started.", value=True),
    Builtin("jiffies", "time", "jiffies", "The kernel's tick counter.", value=True),
    Builtin("nsecs", "time", "nsecs or nsecs([monotonic|boot|tai|sw_tai])",
            "Nanoseconds of a clock; since boot by default.", most=1, value=True),
    Builtin("kstack", "stack", "kstack or kstack([mode][, limit])",
            "Stack of the kernel; modes bpftrace, perf and raw.", most=2, value=True),
    Builtin("ustack", "stack", "ustack or ustack([mode][, limit])",
            "Stack of the user process; modes bpftrace, perf, raw and build_id.", most=2, value=True),
)  # fmt: skip

FUNCTIONS: tuple[Builtin, ...] = (
    Builtin("dw_ustack", "stack", "dw_ustack([mode][, limit])",
            "User stack unwound by DWARF tables that are read at start (x86-64).", most=2, value=True),
    # ---- output
    Builtin("printf", "output", "printf(const string fmt, args…)", "Print formatted text.", _A, least=1, most=128),
    Builtin("errorf", "output", "errorf(const string fmt, args…)",
            "Print an error that names its place in the script.", _A, least=1, most=128),
    Builtin("warnf", "output", "warnf(const string fmt, args…)",
            "Print a warning that names its place in the script.", _A, least=1, most=128),
    Builtin("debugf", "output", "debugf(const string fmt, args…)",
            "Write to the kernel's trace pipe; for debugging only.", least=1, most=4),
    Builtin("cat", "output", "cat(const string fmt, args…)", "Print the contents of a file.", _A, least=1, most=128),
    Builtin("system", "output", "system(const string fmt, args…)",
            "Run a shell command and print its output.", _A, least=1, most=128, unsafe=True),
    Builtin("print", "output", "print(value) or print(@map[, top[, div[, order]]])",
            "Print a value, or a map as it is when the event is read; order is key, -key, value or -value.",
            _A, least=1, most=4),
    Builtin("print_clear", "output", "print_clear(@map[, top[, div[, order]]])",
            "Print a map and empty it, so that each update is in exactly one print.", _A, least=1, most=4),
    Builtin("quantiles", "output", "quantiles(@hist[, const percent…])",
            "Print percentiles of a hist map; 50, 90, 99 and \"99.9\" by default.", _A, least=1, most=17),
    Builtin("time", "output", "time([const string fmt])", "Print the time of day.", _A, most=1),
    Builtin("join", "output", "join(char **argv[, const string separator])",
            "Print an array of strings as one line.", _A, least=1, most=2),
    Builtin("exit", "output", "exit([int code])", "End tracing, with an exit status.", _A, most=1),
    Builtin("skboutput", "output", "skboutput(const string path, struct sk_buff *skb, uint64 length, uint64 offset)",
            "Write a packet to a pcap file.", _A, least=4, most=4, probes=_TRACING_PROBES - {"iter"}),
    Builtin("unwatch", "output", "unwatch(void *address)", "Remove the watchpoint on an address.", _A, least=1, most=1),
    # ---- maps
    Builtin("clear", "map", "clear(@map)", "Remove all entries of a map.", _A, least=1, most=1),
    Builtin("zero", "map", "zero(@map)", "Set all values of a map to zero.", _A, least=1, most=1),
    Builtin("delete", "map", "delete(@map, key) or delete(@scalar)",
            "Remove one entry; true when it was there.", least=1, most=2),
    Builtin("find", "map", "find(@map, key, $variable)",
            "Read an entry into a variable; true when it is there.", least=3, most=3),
    Builtin("has_key", "map", "has_key(@map, key)", "True when the map has the key.", least=2, most=2),
    Builtin("len", "map", "len(@map) or len(stack)",
            "Number of entries of a map or of frames of a stack.", least=1, most=1),
    Builtin("is_scalar", "map", "is_scalar(@map)", "True when the map has no key.", _C, least=1, most=1),
    # ---- strings and memory
    Builtin("str", "string", "str(char *address[, length])",
            "The NUL-terminated string at an address.", least=1, most=2),
    Builtin("buf", "string", "buf(void *data[, length])", "Bytes at an address, or of an array.", least=1, most=2),
    Builtin("path", "string", "path(struct path *path[, const int size])",
            "The path name that a `struct path` stands for.",
            least=1, most=2, probes=frozenset({"fentry", "fexit", "iter"})),
    Builtin("strcap", "string", "strcap(value)", "Capacity in bytes of a string.", least=1, most=1),
    Builtin("strlen", "string", "strlen(value)", "Length of a string in bytes.", least=1, most=1),
    Builtin("strcontains", "string", "strcontains(string haystack, string needle)",
            "True when one string holds the other.", least=2, most=2),
    Builtin("strstr", "string", "strstr(string haystack, string needle)",
            "Position of one string in the other, or -1.", least=2, most=2),
    Builtin("strncmp", "string", "strncmp(string a, string b, const int n)",
            "0 when the first n characters are equal.", least=3, most=3),
    Builtin("str_concat", "string", "str_concat(string a, string b)", "One string after the other.", least=2, most=2),
    Builtin("memcmp", "string", "memcmp(left, right, const int n)",
            "0 when n bytes are equal, else their difference.", least=3, most=3),
    Builtin("bswap", "string", "bswap(int n)", "The integer with its bytes in reverse order.", least=1, most=1),
    Builtin("signal_name", "string", "signal_name(int n)", "Description of a signal.", least=1, most=1),
    Builtin("strerror", "string", "strerror(int error)", "Description of an error number.", least=1, most=1),
    Builtin("syscall_name", "string", "syscall_name(int n)", "Name of a system call.", least=1, most=1),
    # ---- addresses and symbols
    Builtin("kaddr", "symbol", "kaddr(const string symbol)", "Address of a kernel symbol.", _C, least=1, most=1),
    Builtin("uaddr", "symbol", "uaddr(const string symbol)",
            "Address of a symbol of the traced binary.", least=1, most=1, probes=_USER_PROBES),
    Builtin("percpu_kaddr", "symbol", "percpu_kaddr(const string symbol[, uint32 cpu])",
            "Address of a per-CPU kernel variable on this or another processor.", least=1, most=2),
    Builtin("ksym", "symbol", "ksym(address)", "Kernel address that prints as a symbol.", least=1, most=1),
    Builtin("usym", "symbol", "usym(address)",
            "User address that prints as a symbol of the current process.", least=1, most=1),
    Builtin("kptr", "symbol", "kptr(pointer)", "The pointer, marked as one into kernel memory.", least=1, most=1),
    Builtin("uptr", "symbol", "uptr(pointer)", "The pointer, marked as one into user memory.", least=1, most=1),
    Builtin("is_err", "symbol", "is_err(pointer)", "True for a pointer that carries an error number.", least=1, most=1),
    Builtin("reg", "symbol", "reg(const string name)",
            "Value of a processor register.", least=1, most=1, probes=_REGISTER_PROBES, no_loop=True),
    # ---- network
    Builtin("macaddr", "network", "macaddr(char[6] address)", "A hardware address.", least=1, most=1),
    Builtin("ntop", "network", "ntop([int family,] address)", "An IPv4 or IPv6 address.", least=1, most=2),
    Builtin("pton", "network", "pton(const string address)",
            "The bytes of an IPv4 or IPv6 address.", _C, least=1, most=1),
    Builtin("socket_cookie", "network", "socket_cookie(struct sock *socket)",
            "The kernel's unique number of a socket.", least=1, most=1, probes=_TRACING_PROBES),
    # ---- cgroups and time
    Builtin("cgroupid", "process", "cgroupid(const string path)", "Id of the cgroup at a path.", _C, least=1, most=1),
    Builtin("cgroup_path", "process", "cgroup_path(uint64 id[, const string filter])",
            "Path of a cgroup; looked up when printed.", least=1, most=2),
    Builtin("strftime", "time", "strftime(const string fmt, uint64 nsecs)",
            "A time stamp as text; formatted when printed.", least=2, most=2),
    # ---- that change the system
    Builtin("override", "control", "override(uint64 rc)",
            "Make the traced function return a value without running.",
            least=1, most=1, unsafe=True, probes=frozenset({"kprobe"})),
    Builtin("signal", "control", "signal(const string name or int n)",
            "Send a signal to the current process.", least=1, most=1, unsafe=True, probes=_SIGNAL_PROBES),
    Builtin("signal_thread", "control", "signal_thread(const string name or int n)",
            "Send a signal to the current thread.", least=1, most=1, unsafe=True, probes=_SIGNAL_PROBES),
    Builtin("write_user", "control", "write_user(void *target, void *source, uint32 length)",
            "Write to user memory; true on success.", least=3, most=3, unsafe=True),
    # ---- compile time
    Builtin("assert_str", "meta", "assert_str(expression)",
            "Compile only when the expression is a string.", _C, least=1, most=1),
    Builtin("static_assert", "meta", "static_assert(bool condition, const string message)",
            "Compile only when the condition holds.", _C, least=2, most=2),
    Builtin("fail", "meta", "fail(const string fmt, args…)", "Stop compilation with a message.", _C, least=1, most=128),
    Builtin("default_str_length", "meta", "default_str_length()", "The configured `max_strlen`.", _C),
    Builtin("config", "meta", "config(const string key)",
            "The effective value of a configuration key.", _C, least=1, most=1),
    Builtin("getopt", "meta", "getopt(const string name[, default[, const string description]])",
            "A named parameter of the script.", _C, least=1, most=3),
    Builtin("is_array", "meta", "is_array(expression)", "True for an array.", _C, least=1, most=1),
    Builtin("is_integer", "meta", "is_integer(expression)", "True for an integer.", _C, least=1, most=1),
    Builtin("is_literal", "meta", "is_literal(expression)", "True for a literal.", _C, least=1, most=1),
    Builtin("is_ptr", "meta", "is_ptr(expression)", "True for a pointer.", _C, least=1, most=1),
    Builtin("is_str", "meta", "is_str(expression)", "True for a string.", _C, least=1, most=1),
    Builtin("is_unsigned_integer", "meta", "is_unsigned_integer(expression)",
            "True for an unsigned integer.", _C, least=1, most=1),
    Builtin("kfunc_allowed", "meta", "kfunc_allowed(const string name)",
            "True when this probe may call the kernel function.", _C, least=1, most=1),
    Builtin("kfunc_exist", "meta", "kfunc_exist(const string name)",
            "True when the kernel has the kernel function.", _C, least=1, most=1),
)  # fmt: skip

AGGREGATES: tuple[Builtin, ...] = (
    Builtin("count", "aggregate", "count()", "Count how often this is reached."),
    Builtin("sum", "aggregate", "sum(int n)", "Add up values.", least=1, most=1),
    Builtin("avg", "aggregate", "avg(int n)", "Average of values.", least=1, most=1),
    Builtin("min", "aggregate", "min(int n)", "Least value.", least=1, most=1),
    Builtin("max", "aggregate", "max(int n)", "Greatest value.", least=1, most=1),
    Builtin("stats", "aggregate", "stats(int n)", "Count, average and total of values.", least=1, most=1),
    Builtin("hist", "aggregate", "hist(int n[, const int bits])",
            "Histogram by powers of two, each split in 2^bits buckets.", least=1, most=2),
    Builtin("lhist", "aggregate", "lhist(int n, const int min, const int max, const int step)",
            "Histogram in equal steps.", least=4, most=4),
    Builtin("tseries", "aggregate", "tseries(int n, const int interval_ns, const int num[, const string aggregation])",
            "Values over time: the last, avg, max, min or sum of each interval.", least=3, most=4),
)  # fmt: skip

BUILTINS: tuple[Builtin, ...] = (*VALUES, *FUNCTIONS, *AGGREGATES)


def _index(rows: Iterable[Builtin]) -> dict[str, Builtin]:
    found: dict[str, Builtin] = {}
    for row in rows:
        for name in (row.name, *row.aliases):
            if name in found:
                raise ValueError(f"duplicate builtin {name!r}")
            found[name] = row
    return found


_INDEX = _index(BUILTINS)


def builtin(name: str) -> Builtin | None:
    """The row of a builtin's name; every ``arg0``, ``arg1`` … gives the row ``argN``."""
    number = name.removeprefix("arg")
    if number != name and number.isascii() and number.isdigit():
        return _INDEX["argN"]
    return None if name == "argN" else _INDEX.get(name)


def builtin_names() -> list[str]:
    """All names, for suggestions."""
    return [name for name in _INDEX if name != "argN"]
