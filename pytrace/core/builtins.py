"""The builtin table: one row for each builtin value and function.

A row is data: names, arguments, mode, safety, allowed probes, documentation. Its check is the method that handles its
name in a family's module of ``frontend.check``, its code in the module of its family in ``codegen.lower``, the handler
of an asynchronous one in ``runtime.output.handlers`` (by event kind). A test checks that none is missing.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from pytrace.core.probe_kinds import FENTRY, FEXIT, ITER, KPROBE, PROBE_KINDS, PYTHON_KINDS, Context

# ---------------------------------------------------------------------------------------------------------------- a row

# One row of the builtin table.


class Mode(Enum):
    """Where a builtin is evaluated."""

    KERNEL = "kernel"
    """In the BPF program."""
    ASYNC = "async"
    """The program sends an event that the runtime handles."""
    COMPILE = "compile"
    """When the script is compiled."""


class Builtin(msgspec.Struct, frozen=True):
    """One row.

    *signature* is shown in documentation and messages. *least* … *most* is the number of arguments of a call
    (most None: any number); *value* says that the bare name may be used without parentheses. *probes* are the kinds
    that allow it (None for all). *family* names the module of its check and emission.
    """

    name: str
    family: str
    signature: str
    doc: str
    mode: Mode = Mode.KERNEL
    least: int = 0
    most: int | None = 0
    value: bool = False
    call: bool = True
    unsafe: bool = False
    probes: frozenset[str] | None = None
    example: str = ""
    """A script that shows the use, for the documentation; a test compiles it."""
    no_loop: bool = False
    """Not allowed in the body of a ``for`` over a map (reads the context)."""
    yields: bool = False
    """A function of the script with its name takes precedence: bpftrace has no such builtin."""

    @property
    def bare(self) -> bool:
        """Whether the name without parentheses denotes this builtin; otherwise it may be a constant or type."""
        return self.value or self.least == 0


# ------------------------------------------------------------------------------------------------------------ the table


IN_SCOPE = "in_scope"
"""The builtin by which a script applies the process filters itself."""

_CTX = (Context.REGISTERS, Context.PERF_EVENT, Context.ITERATOR)

_FUNCTION_PROBES = frozenset(row.name for row in PROBE_KINDS if row.function)
_REGISTER_PROBES = frozenset(row.name for row in PROBE_KINDS if row.context is Context.REGISTERS)
_ARGUMENT_PROBES = frozenset(row.name for row in PROBE_KINDS if row.positional)
_CTX_PROBES = frozenset(row.name for row in PROBE_KINDS if row.context in _CTX)
_RETURN_PROBES = frozenset(row.name for row in PROBE_KINDS if row.returns)
_TRACING_PROBES = frozenset(row.name for row in PROBE_KINDS if row.typed)
_SIGNAL_PROBES = frozenset(row.name for row in PROBE_KINDS if row.signals)
_USER_PROBES = frozenset(row.name for row in PROBE_KINDS if row.user)

_A, _C = Mode.ASYNC, Mode.COMPILE

VALUES: tuple[Builtin, ...] = (
    Builtin("argN", "context", "arg0, arg1 …",
            "Argument N of the traced function or probe, as an unsigned 64-bit integer.",
            value=True, call=False, probes=_ARGUMENT_PROBES, no_loop=True,
            example='uprobe:/bin/bash:readline { printf("prompt: %s\\n", str(arg0)); }'),
    Builtin("args", "context", "args",
            "All typed arguments of the probe: `args.name` is one of them, `print(args)` prints them.",
            value=True, call=False,
            example='tracepoint:syscalls:sys_enter_openat { printf("%s %d\\n", str(args.filename), args.flags); }'),
    Builtin("ctx", "context", "ctx",
            "Pointer to the context of the BPF program.", value=True, probes=_CTX_PROBES, no_loop=True,
            example='iter:task { printf("%s\\n", ctx.task != 0 ? ctx.task.comm : ""); }'),
    Builtin("func", "context", "func", "Name of the traced function.", value=True, probes=_FUNCTION_PROBES,
            example="fentry:vfs_read, fentry:vfs_write { @[func] = count(); }"),
    Builtin("probe", "context", "probe", "Full name of the probe that fired.", value=True,
            example='tracepoint:syscalls:sys_enter_sync* { printf("%s\\n", probe); }'),
    Builtin("probetype", "context", "probetype",
            "Kind of the probe; `special` for begin, end and self.", _C, value=True,
            example="begin { print(probetype); }"),
    Builtin("retval", "context", "retval",
            "Value that the traced function returned.", value=True, probes=_RETURN_PROBES, no_loop=True,
            example="fexit:vfs_read /retval < 0/ { @[strerror(-retval)] = count(); }"),
    Builtin("usermode", "context", "usermode", "1 when the CPU was in user mode, else 0 (x86-64).", value=True,
            example="profile:hz:99 { @[usermode] = count(); }"),
    Builtin("cgroup", "process", "cgroup", "Id of the current task's cgroup (version 2).", value=True,
            example='tracepoint:sched:sched_process_exec /cgroup == cgroupid("/sys/fs/cgroup")/ { print(comm); }'),
    Builtin("comm", "process", "comm or comm(uint32 pid)",
            "Name of the current thread, or of the thread with that id in the initial pid namespace.",
            most=1, value=True,
            example='tracepoint:signal:signal_generate { printf("%s -> %s\\n", comm, args.comm); }'),
    Builtin("cpid", "process", "cpid", "Process id of the child that -c started.", value=True,
            example="tracepoint:syscalls:sys_enter_openat /pid == cpid/ { @ = count(); }"),
    Builtin("has_cpid", "process", "has_cpid", "True when -c started a child.", _C, value=True,
            example='begin { if comptime has_cpid { print("following a child"); } }'),
    Builtin("has_filter", "process", "has_filter",
            "True when options select processes: `-p`, `--comm` and the like, for tools also `-c`.", _C, value=True,
            example='begin { if comptime (!has_filter) { print("all processes"); } }'),
    Builtin("has_self", "process", "has_self",
            "True when the work of pytrace itself is shown: in scripts without `--no-self`, in tools with `--self`.",
            _C, value=True, example='begin { if comptime (!has_self) { print("without pytrace"); } }'),
    Builtin("cpu", "process", "cpu", "Number of the CPU that runs the program.", value=True),
    Builtin("curtask", "process", "curtask", "The current task as `struct task_struct *`.", value=True,
            example="profile:hz:99 { @[curtask.real_parent.comm] = count(); }"),
    Builtin("user_registers", "process", "user_registers",
            "Registers with which the current task entered the kernel, as `struct pt_regs *`: number and arguments of "
            "its system call (Linux 5.17).", value=True,
            example="rawtracepoint:sched_switch { @[syscall_name(user_registers.orig_ax)] = count(); }"),
    Builtin("gid", "process", "gid", "Group id of the current process, in the initial namespace.", value=True),
    Builtin("uid", "process", "uid", "User id of the current process, in the initial namespace.", value=True),
    Builtin("username", "process", "username", "Name of the current user; only for printing.", value=True,
            example='tracepoint:syscalls:sys_enter_execve { printf("%s\\n", username); }'),
    Builtin("netns", "process", "netns",
            "Network namespace of the current task: its inode number, which prints as the name in `/run/netns` where "
            "it has one. `(uint64)netns` is the number.", value=True,
            example="tracepoint:syscalls:sys_enter_connect { @[netns, comm] = count(); }"),
    Builtin("leader_comm", "process", "leader_comm or leader_comm(struct task_struct *task)",
            "Name of the thread group's leader.", most=1, value=True,
            example="profile:hz:99 { @[leader_comm, comm] = count(); }"),
    Builtin("leader_tid", "process", "leader_tid or leader_tid(struct task_struct *task)",
            "Thread id of the thread group's leader, in the initial pid namespace.", most=1, value=True),
    Builtin("pcomm", "process", "pcomm or pcomm(struct task_struct *task)",
            "Name of the real parent process.", most=1, value=True,
            example='tracepoint:sched:sched_process_exec { printf("%s started %s\\n", pcomm, comm); }'),
    Builtin("ppid", "process", "ppid or ppid(struct task_struct *task)",
            "Process id of the real parent, in the initial pid namespace.", most=1, value=True),
    Builtin("pid", "process", "pid or pid([curr_ns|init])",
            "Process id, in the tracer's pid namespace or the initial one.", most=1, value=True,
            example='tracepoint:sched:sched_process_exec { printf("%d, outside %d\\n", pid, pid(init)); }'),
    Builtin("tid", "process", "tid or tid([curr_ns|init])",
            "Thread id, in the tracer's pid namespace or the initial one.", most=1, value=True),
    Builtin("in_scope", "process", "in_scope or in_scope(struct task_struct *task)",
            "True when the options select the current task, or *task* (`-p`, `--follow`, `--comm`, `--uid`, "
            "`--cgroup`, `--container`, `--netns`, `--exec-wait`), or none of them is given. A script that uses it "
            "applies them itself: its probes run for all tasks.", most=1, value=True,
            example='tracepoint:sched:sched_switch /in_scope/ { @off[tid] = nsecs; }\n'
                    "interval:s:1 { print(@off); }"),
    Builtin("ncpus", "process", "ncpus", "Number of possible CPUs.", _C, value=True),
    Builtin("numaid", "process", "numaid", "Number of the NUMA node that runs the program.", value=True),
    Builtin("rand", "process", "rand", "A random unsigned 32-bit number.", value=True,
            example="tracepoint:raw_syscalls:sys_enter /rand % 100 == 0/ { @[comm] = count(); }"),
    Builtin("elapsed", "time", "elapsed", "Nanoseconds since tracing started.", value=True,
            example='interval:s:1 { printf("%d s\\n", elapsed / 1s); }'),
    Builtin("jiffies", "time", "jiffies", "The kernel's tick counter.", value=True),
    Builtin("nsecs", "time", "nsecs or nsecs([monotonic|boot|tai|sw_tai])",
            "Nanoseconds of a clock; since boot by default.", most=1, value=True,
            example="tracepoint:raw_syscalls:sys_enter { @start[tid] = nsecs; }\n"
                    "tracepoint:raw_syscalls:sys_exit /@start[tid]/ { @ = hist(nsecs - @start[tid]); }"),
    Builtin("kstack", "stack", "kstack or kstack([mode][, limit])",
            "Stack of the kernel; modes bpftrace, perf, raw, folded, annotated and inverted.", most=2, value=True,
            example="profile:hz:99 { @[kstack(perf, 10)] = count(); }"),
    Builtin("ustack", "stack", "ustack or ustack([mode][, limit])",
            "Stack of the user process; modes bpftrace, perf, raw, build_id, folded, annotated and inverted.",
            most=2, value=True,
            example='profile:hz:99 /comm == "bash"/ { @[ustack(5)] = count(); }'),
)  # fmt: skip

FUNCTIONS: tuple[Builtin, ...] = (
    Builtin("dw_ustack", "stack", "dw_ustack([mode][, limit])",
            "User stack unwound by DWARF tables that are read at start (x86-64).", most=2, value=True),
    Builtin("pystack", "stack", "pystack([mode][, limit])",
            "Stack of CPython's functions (x86-64); modes bpftrace, perf, folded, annotated and inverted.", most=2,
            value=True, yields=True,
            example="tracepoint:syscalls:sys_enter_openat { @[pystack(5)] = count(); }"),
    # ---- output
    Builtin("printf", "output", "printf(const string fmt, args…)", "Print formatted text.", _A, least=1, most=128,
            example='begin { printf("%-8s|%5d|%x\\n", "name", 42, 255); }'),
    Builtin("heading", "output", "heading(const string fmt, args…)",
            "Print formatted text as part of a table for people: nothing in JSON, CSV and other formats for programs.",
            _A, least=1, most=128, yields=True,
            example='begin { heading("%s, the largest first:\\n", comm); row((pid=pid, comm=comm)); }'),
    Builtin("errorf", "output", "errorf(const string fmt, args…)",
            "Print an error that names its place in the script.", _A, least=1, most=128,
            example='begin { errorf("unexpected state %d", 3); }'),
    Builtin("warnf", "output", "warnf(const string fmt, args…)",
            "Print a warning that names its place in the script.", _A, least=1, most=128,
            example='begin { warnf("slow: %d ms", 1500); }'),
    Builtin("debugf", "output", "debugf(const string fmt, args…)",
            "Write to the kernel's trace pipe; for debugging only.", least=1, most=4,
            example='begin { debugf("reached %d", 1); }'),
    Builtin("cat", "output", "cat(const string fmt, args…)", "Print the contents of a file.", _A, least=1, most=128,
            example='interval:s:5 { cat("/proc/%d/status", cpid); }'),
    Builtin("system", "output", "system(const string fmt, args…)",
            "Run a shell command and print its output.", _A, least=1, most=128, unsafe=True,
            example='begin { system("ps -p %d", pid); }'),
    Builtin("print", "output", "print(value) or print(@map[, top[, div[, order]]])",
            "Print a value, or a map as it is when the event is read; order is key, -key, value or -value.",
            _A, least=1, most=4,
            example='begin { @a[1] = 10; @a[2] = 20; print(@a, 1); print((1, "x")); }'),
    Builtin("row", "output", "row((name=value, …)[, const string column…])",
            "Print a row of a table: the members of a record as columns. With columns (\"-column\" for descending "
            "order), keep it for print_rows(), which sorts by them.", _A, least=1, most=9, yields=True,
            example='tracepoint:syscalls:sys_enter_openat { row((pid=pid, comm=comm, path=str(args.filename))); }'),
    Builtin("print_rows", "output", "print_rows([int64 n])",
            "Print the first n (all by default) of the rows that row() keeps, sorted, and forget them.", _A, most=1,
            yields=True,
            example="tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }\n"
                    'interval:s:1 { for ($kv : @) { row((comm=$kv.0, calls=$kv.1), "-calls"); } print_rows(10); '
                    "clear(@); }"),
    Builtin("clear_terminal", "output", "clear_terminal()",
            "Clear the screen when the output is text on a terminal; do nothing otherwise.", _A, yields=True,
            example="tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }\n"
                    "interval:s:1 { clear_terminal(); print_clear(@, 10); }"),
    Builtin("fixed", "output", "fixed(int value, const int divisor, const int digits)",
            "A number that prints as value / divisor with `digits` decimals; a number in JSON, too.",
            least=3, most=3, yields=True,
            example='begin { $ns = nsecs; row((pid=pid, "UPTIME(s)"=fixed($ns, 1000000000, 3))); }'),
    Builtin("file_number", "output", "file_number(const string path, const int word, const int digits)",
            "A number in a file, read when it is printed: word number `word` (the first is 1), with `digits` decimals; "
            "0 when it cannot be read.", least=3, most=3, yields=True,
            example='begin { row((load1=file_number("/proc/loadavg", 1, 2))); }'),
    Builtin("joined", "output", "joined(const string separator, value…)",
            "Values that print as one text, with the separator between them.", least=2, most=None, yields=True,
            example='begin { row((address=joined(":", ntop(0x0100007f), 80))); }'),
    Builtin("sprintf", "output", "sprintf(const string fmt, args…)",
            "Formatted text as a value, for columns of row(), keys, print(); formatted when it is printed.",
            least=1, most=None, yields=True,
            example='begin { row((pid=pid, message=sprintf("%d of %x", 1, 255))); }'),
    Builtin("print_clear", "output", "print_clear(@map[, top[, div[, order]]])",
            "Print a map and empty it, so that each update is in exactly one print.", _A, least=1, most=4,
            example="tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }\n"
                    "interval:s:1 { print_clear(@, 10); }"),
    Builtin("quantiles", "output", "quantiles(@hist[, const percent…])",
            "Print percentiles of a hist map; 50, 90, 99 and \"99.9\" by default.", _A, least=1, most=17,
            example="tracepoint:raw_syscalls:sys_enter { @size = hist(args.id, 3); }\n"
                    "end { quantiles(@size, 50, 99); clear(@size); }"),
    Builtin("time", "output", "time([const string fmt])", "Print the time of day.", _A, most=1,
            example='interval:s:1 { time("%H:%M:%S  "); print(@); clear(@); }\n'
                    "tracepoint:raw_syscalls:sys_enter { @ = count(); }"),
    Builtin("join", "output", "join(char **argv[, const string separator])",
            "Print an array of strings as one line: 16 of them at most, longer ones are counted as truncated.", _A,
            least=1, most=2,
            example="tracepoint:syscalls:sys_enter_execve { join(args.argv); }"),
    Builtin("exit", "output", "exit([int code])",
            "End tracing, with an exit status of 0 to 255 (more is truncated to 8 bits, with a warning).", _A, most=1,
            example="interval:s:10 { exit(0); }"),
    Builtin("skboutput", "output", "skboutput(const string path, struct sk_buff *skb, uint64 length, uint64 offset)",
            "Write a packet to a pcap file.", _A, least=4, most=4, probes=_TRACING_PROBES - {ITER},
            example='fentry:ip_rcv { skboutput("in.pcap", args.skb, args.skb->len, 0); }'),
    Builtin("unwatch", "output", "unwatch(void *address)", "Remove the watchpoints on an address.", _A, least=1, most=1,
            example="watchpoint:0x10000000:8:w { print(comm); unwatch((uint8*)0x10000000); }"),
    # ---- maps
    Builtin("clear", "map", "clear(@map)", "Remove all entries of a map.", _A, least=1, most=1,
            example="interval:s:1 { print(@); clear(@); }\n"
                    "tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }"),
    Builtin("zero", "map", "zero(@map)", "Set all values of a map to zero.", _A, least=1, most=1,
            example="interval:s:1 { print(@); zero(@); }\n"
                    "tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }"),
    Builtin("delete", "map", "delete(@map, key) or delete(@scalar)",
            "Remove one entry; true when it was there.", least=1, most=2,
            example="tracepoint:sched:sched_process_exit { if (!delete(@seen, tid)) { @unknown++; } }\n"
                    "tracepoint:raw_syscalls:sys_enter { @seen[tid] = 1; }"),
    Builtin("find", "map", "find(@map, key, $variable)",
            "Read an entry into a variable; true when it is there.", least=3, most=3,
            example='begin { @a["x"] = 1; if (find(@a, "x", $v)) { print($v); } }'),
    Builtin("has_key", "map", "has_key(@map, key)", "True when the map has the key.", least=2, most=2,
            example='begin { @a["x"] = 0; print(has_key(@a, "x")); }'),
    Builtin("len", "map", "len(@map) or len(stack)",
            "Number of entries of a map or of frames of a stack.", least=1, most=1,
            example="begin { @a[1] = 1; @a[2] = 1; print(len(@a)); print(len(kstack)); }"),
    Builtin("is_scalar", "map", "is_scalar(@map)", "True when the map has no key.", _C, least=1, most=1,
            example="macro total(@m) { if comptime is_scalar(@m) { 1 } else { len(@m) } }\n"
                    "begin { @m[1] = 1; print(total(@m)); }"),
    # ---- strings and memory
    Builtin("str", "string", "str(char *address[, length])",
            "The NUL-terminated string at an address, or the text of a `std::string` or `std::string_view` of C++, a "
            "`String` or `&str` of Rust, or a `string` of Go that the program's debug information describes. A length "
            "limits it.",
            least=1, most=2,
            example="tracepoint:syscalls:sys_enter_openat { print(str(args.filename, 16)); }"),
    Builtin("buf", "string", "buf(void *data[, length])", "Bytes at an address, or of an array.", least=1, most=2,
            example='tracepoint:syscalls:sys_enter_write { printf("%r\\n", buf(args.buf, args.count)); }'),
    Builtin("path", "string", "path(struct path *path[, const int size])",
            "The path name that a `struct path` stands for.",
            least=1, most=2, probes=frozenset({FENTRY, FEXIT, ITER}),
            example="fentry:filp_close { print(path(args.filp.f_path)); }"),
    Builtin("pystr", "python", "pystr(object[, const int size])",
            "Text of a Python object: of a string or bytes the contents, of a number, bool or None what Python "
            "prints; of others the type, as in `<list>`; empty if there is none.",
            least=1, most=2, probes=PYTHON_KINDS,
            example='python:json:loads { print(pystr(args.s, 64)); }'),
    Builtin("pyint", "python", "pyint(object)",
            "Value of a Python integer or bool (its low 64 bits); 0 for other objects.",
            least=1, most=1, probes=PYTHON_KINDS,
            example='pythonret:*:fib { @ = hist(pyint(retval)); }'),
    Builtin("pyfloat", "python", "pyfloat(object)",
            "Value of a Python float as a `double`, of subclasses too (as `numpy.float64`); 0 for other objects.",
            least=1, most=1, probes=PYTHON_KINDS,
            example='python:shop:pay { printf("%.2f\\n", pyfloat(args.price)); }'),
    Builtin("strcap", "string", "strcap(value)", "Capacity in bytes of a string.", least=1, most=1,
            example='begin { $a = "abc"; print(strcap($a)); }'),
    Builtin("strlen", "string", "strlen(value)", "Length of a string in bytes.", least=1, most=1,
            example='begin { print(strlen("abc")); }'),
    Builtin("strcontains", "string", "strcontains(string haystack, string needle)",
            "True when one string holds the other.", least=2, most=2,
            example='tracepoint:syscalls:sys_enter_openat /strcontains(str(args.filename), "lib")/ { @ = count(); }'),
    Builtin("strstr", "string", "strstr(string haystack, string needle)",
            "Position of one string in the other, or -1.", least=2, most=2,
            example='begin { print(strstr("haystack", "st")); }'),
    Builtin("strncmp", "string", "strncmp(string a, string b, const int n)",
            "0 when the first n characters are equal.", least=3, most=3,
            example='tracepoint:raw_syscalls:sys_enter /strncmp("python", comm, 6) == 0/ { @ = count(); }'),
    Builtin("str_concat", "string", "str_concat(string a, string b)", "One string after the other.", least=2, most=2,
            example='begin { print(str_concat("left", "right")); }'),
    Builtin("memcmp", "string", "memcmp(left, right, uint64 n)",
            "0 when n bytes are equal, else their difference.", least=3, most=3,
            example='begin { print(memcmp("abc", "abd", 3)); }'),
    Builtin("bswap", "string", "bswap(int n)", "The integer with its bytes in reverse order.", least=1, most=1,
            example='begin { printf("%x\\n", bswap((uint32)0x12345678)); }'),
    Builtin("signal_name", "string", "signal_name(int n)", "Description of a signal.", least=1, most=1,
            example="tracepoint:signal:signal_deliver { @[signal_name(args.sig)] = count(); }"),
    Builtin("strerror", "string", "strerror(int error)", "Description of an error number.", least=1, most=1,
            example="tracepoint:raw_syscalls:sys_exit /args.ret < 0/ { @[strerror(-args.ret)] = count(); }"),
    Builtin("syscall_name", "string", "syscall_name(int n)", "Name of a system call.", least=1, most=1,
            example="tracepoint:raw_syscalls:sys_enter { @[syscall_name(args.id)] = count(); }"),
    # ---- addresses and symbols
    Builtin("kaddr", "symbol", "kaddr(const string symbol)", "Address of a kernel symbol.", _C, least=1, most=1,
            example='begin { printf("%d\\n", *(uint64*)kaddr("jiffies_64")); }'),
    Builtin("uaddr", "symbol", "uaddr(const string symbol)",
            "Address of a symbol of the traced binary.", least=1, most=1, probes=_USER_PROBES,
            example='uprobe:/bin/bash:readline { printf("%s\\n", str(*uaddr("ps1_prompt"))); }'),
    Builtin("percpu_kaddr", "symbol", "percpu_kaddr(const string symbol[, uint32 cpu])",
            "Address of a per-CPU kernel variable on this or another processor.", least=1, most=2,
            example='begin { $p = (uint32*)percpu_kaddr("cpu_number", 0); if ($p != 0) { print(*$p); } }'),
    Builtin("ksym_name", "symbol", "ksym_name(address)",
            "Name of the function at a kernel address as a string, looked up in the kernel (Linux 5.13).",
            least=1, most=1, yields=True,
            example="tracepoint:timer:timer_expire_entry {\n"
                    '  if (strcontains(ksym_name(args.function), "tcp")) { @ = count(); }\n}'),
    Builtin("ksym", "symbol", "ksym(address)", "Kernel address that prints as a symbol.", least=1, most=1,
            example="fentry:schedule { @[ksym(curtask.stack)] = count(); }"),
    Builtin("usym", "symbol", "usym(address)",
            "User address that prints as a symbol of the current process.", least=1, most=1,
            example='uprobe:/bin/bash:readline { printf("%s\\n", usym(reg("ip"))); }'),
    Builtin("scaled", "string", "scaled(double value, const int factor)",
            "A floating-point number times a factor, as the nearest int64; 0 for what is not a number.",
            least=2, most=2, yields=True,
            example="uprobe:/bin/bash:readline { @ = sum(scaled(*(double *)arg0, 1000)); }"),
    Builtin("kptr", "symbol", "kptr(pointer)",
            "The pointer, marked as one into kernel memory. An integer stays one: `*kptr(number)` reads the 64-bit "
            "word at an address.",
            least=1, most=1,
            example='uprobe:/bin/bash:readline { print(*kptr((uint32*)kaddr("pid_max"))); }'),
    Builtin("uptr", "symbol", "uptr(pointer)",
            "The pointer, marked as one into user memory. An integer stays one: `*uptr(number)` reads the 64-bit "
            "word at an address.",
            least=1, most=1,
            example="fentry:do_sys_openat2 { print(str(uptr(args.filename))); }"),
    Builtin("is_err", "symbol", "is_err(pointer)", "True for a pointer that carries an error number.", least=1, most=1,
            example="fexit:do_filp_open { if (is_err(retval)) { @failed = count(); } }"),
    Builtin("reg", "symbol", "reg(const string name)",
            "Value of a processor register.", least=1, most=1, probes=_REGISTER_PROBES, no_loop=True,
            example='uprobe:/bin/bash:readline { printf("%p\\n", reg("sp")); }'),
    Builtin("goid", "symbol", "goid",
            "Number of the goroutine that runs, in probes of Go functions (1.17 and later, x86-64); 0 on the stacks of "
            "Go's scheduler.", value=True, probes=_USER_PROBES - PYTHON_KINDS, no_loop=True, yields=True),
    # ---- network
    Builtin("ifname", "network", "ifname(int32 index)",
            "Index of a network interface that prints as its name, looked up when printed (in the namespace of "
            "`--netns`, else in the tracer's); an index without a name prints as a number.", least=1, most=1,
            example="rawtracepoint:net_dev_queue { @[ifname(args.skb.dev.ifindex)] = count(); }"),
    Builtin("macaddr", "network", "macaddr(char[6] address)", "A hardware address.", least=1, most=1,
            example="rawtracepoint:net_dev_queue { print(macaddr(args.skb.dev.dev_addr)); }"),
    Builtin("ntop", "network", "ntop([int family,] address)", "An IPv4 or IPv6 address.", least=1, most=2,
            example='begin { print(ntop(pton("127.0.0.1"))); print(ntop(0x0100007f)); }'),
    Builtin("pton", "network", "pton(const string address)",
            "The bytes of an IPv4 or IPv6 address.", _C, least=1, most=1,
            example='begin { $a = pton("::1"); print(ntop($a)); }'),
    Builtin("socket_cookie", "network", "socket_cookie(struct sock *socket)",
            "The kernel's unique number of a socket.", least=1, most=1, probes=_TRACING_PROBES,
            example="fentry:tcp_rcv_established { @[socket_cookie(args.sk)] = count(); }"),
    # ---- cgroups and time
    Builtin("cgroupid", "process", "cgroupid(const string path)", "Id of the cgroup at a path.", _C, least=1, most=1,
            example='begin { print(cgroupid("/sys/fs/cgroup")); }'),
    Builtin("cgroup_path", "process", "cgroup_path(uint64 id[, const string filter])",
            "Path of a cgroup; looked up when printed.", least=1, most=2,
            example="profile:hz:99 { @[cgroup_path(cgroup)] = count(); }"),
    Builtin("strftime", "time", "strftime(const string fmt, uint64 nsecs)",
            "A time stamp as text; formatted when printed.", least=2, most=2,
            example='begin { print(strftime("%Y-%m-%d %H:%M:%S.%f", nsecs)); }'),
    # ---- changing the system
    Builtin("override", "control", "override(uint64 rc)",
            "Make the traced function return a value without running.",
            least=1, most=1, unsafe=True, probes=frozenset({KPROBE}),
            example='kprobe:__x64_sys_mkdir /comm == "test"/ { override(-1); }'),
    Builtin("signal", "control", "signal(const string name or int n)",
            "Send a signal to the current process.", least=1, most=1, unsafe=True, probes=_SIGNAL_PROBES,
            example='tracepoint:syscalls:sys_enter_reboot { signal("SIGSTOP"); }'),
    Builtin("signal_thread", "control", "signal_thread(const string name or int n)",
            "Send a signal to the current thread.", least=1, most=1, unsafe=True, probes=_SIGNAL_PROBES,
            example='tracepoint:syscalls:sys_enter_reboot { signal_thread("SIGUSR1"); }'),
    Builtin("write_user", "control", "write_user(void *target, void *source, uint32 length)",
            "Write to user memory; true on success.", least=3, most=3, unsafe=True,
            example="tracepoint:syscalls:sys_enter_nanosleep { let $t: uint64[2]; write_user(args.rqtp, &$t, 16); }"),
    # ---- compile time
    Builtin("assert_str", "meta", "assert_str(expression)",
            "Compile only when the expression is a string.", _C, least=1, most=1,
            example='macro shout(text) { assert_str(text); printf("%s!\\n", text); }\n'
                    'begin { shout("hello"); }'),
    Builtin("static_assert", "meta", "static_assert(bool condition, const string message)",
            "Compile only when the condition holds.", _C, least=2, most=2,
            example='begin { static_assert(sizeof(uint64) == 8, "not a 64-bit machine"); }'),
    Builtin("fail", "meta", "fail(const string fmt, args…)", "Stop compilation with a message.", _C, least=1, most=128,
            example='macro positive(n) { if comptime (n <= 0) { fail("%d is not positive", n); } n }\n'
                    "begin { print(positive(3)); }"),
    Builtin("output_format", "meta", "output_format(const string format)",
            "The format (as after -f) in which a run without -f and without a file name that says another is written.",
            _C, least=1, most=1, yields=True,
            example="profile:hz:99 { @[comm, ustack] = count(); }\n"
                    'begin { if comptime getopt("folded") { output_format("folded:ordered"); } }'),
    Builtin("stack_layout", "meta", "stack_layout(const string word)",
            "In text, maps with stacks as keys print as in bcc's tools: names of frames, other members, the value; "
            "equal ones are joined, the 20 largest are last. Words: names, lines, offsets (shown, too), all (not 20).",
            _C, least=1, most=1, yields=True,
            example='profile:hz:99 { @[kstack, ustack, comm, pid] = count(); }\nbegin { stack_layout("names"); }'),
    Builtin("default_str_length", "meta", "default_str_length()", "The configured `max_strlen`.", _C,
            example="begin { print(default_str_length()); }"),
    Builtin("config", "meta", "config, config() or config(const string key)",
            "The effective value of a configuration key; without one, a record of all keys (`config.max_strlen`).", _C,
            most=1, example='begin { print(config("max_strlen")); }'),
    Builtin("getopt", "meta", "getopt(const string name[, default[, const string description]])",
            "A named parameter of the script, or an option that it declares at its root (see Options in the language).",
            _C, least=1, most=3,
            example='begin { $limit = getopt("limit", 10, "how many lines"); print($limit); }'),
    Builtin("is_array", "meta", "is_array(expression)", "True for an array.", _C, least=1, most=1,
            example='begin { print(is_array(pton("::1"))); }'),
    Builtin("is_integer", "meta", "is_integer(expression)", "True for an integer.", _C, least=1, most=1,
            example="begin { print(is_integer(5)); }"),
    Builtin("is_literal", "meta", "is_literal(expression)", "True for a literal.", _C, least=1, most=1,
            example="begin { $a = 5; print((is_literal(5), is_literal($a))); }"),
    Builtin("is_ptr", "meta", "is_ptr(expression)", "True for a pointer.", _C, least=1, most=1,
            example="begin { print(is_ptr(curtask)); }"),
    Builtin("is_str", "meta", "is_str(expression)", "True for a string.", _C, least=1, most=1,
            example='begin { print(is_str("abc")); }'),
    Builtin("is_unsigned_integer", "meta", "is_unsigned_integer(expression)",
            "True for an unsigned integer.", _C, least=1, most=1,
            example="begin { print(is_unsigned_integer((uint8)1)); }"),
    Builtin("kfunc_allowed", "meta", "kfunc_allowed(const string name)",
            "True when this probe may call the kernel function.", _C, least=1, most=1,
            example='fentry:vfs_read { print(kfunc_allowed("bpf_task_from_pid")); }'),
    Builtin("kfunc_exist", "meta", "kfunc_exist(const string name)",
            "True when the kernel has the kernel function.", _C, least=1, most=1,
            example='begin { print(kfunc_exist("bpf_task_from_pid")); }'),
    Builtin("probe_exist", "meta", "probe_exist(const string attach_point)",
            "True when the attach point, or something that its pattern matches, exists and this kernel can attach it.",
            _C, least=1, most=1, yields=True,
            example='begin { print(probe_exist("kprobe:vfs_read")); }'),
    Builtin("type_exist", "meta", "type_exist(type)",
            "True when the kernel or the script defines the type: `struct X`, `union X`, `enum X` or a typedef.",
            _C, least=1, most=1, yields=True,
            example="begin { print(type_exist(struct task_struct)); }"),
    Builtin("member_exist", "meta", "member_exist(type or expression, member)",
            "True when a struct has the member, also `a.b` and members of anonymous structs; false when there is no "
            "such struct. `member_exist(args, member)` asks about an argument of the probe.",
            _C, least=2, most=2, yields=True,
            example="begin { print(member_exist(struct task_struct, __state)); }"),
    Builtin("constant_exist", "meta", "constant_exist(const string name)",
            "True when there is an enumerator or macro of that name.", _C, least=1, most=1, yields=True,
            example='begin { print(constant_exist("TASK_COMM_LEN")); }'),
    Builtin("symbol_exist", "meta", "symbol_exist(const string name)",
            "True when `kaddr()` can resolve the symbol: functions, and variables if the kernel was built with "
            "CONFIG_KALLSYMS_ALL.", _C, least=1, most=1, yields=True,
            example='begin { print(symbol_exist("jiffies_64")); }'),
    Builtin("one_of", "meta", "one_of(int or string value, const string list)",
            "True when the value is one of the entries of a literal text, separated by commas or line ends; false for "
            "an empty list.",
            least=2, most=2, yields=True,
            example='begin { print((one_of(443, "80, 443"), one_of(comm, "bash,sh"))); }'),
    Builtin("only_if", "meta", "only_if(const bool condition, value)",
            "As the value of a record's member: the member exists only if the condition, which is known when the "
            "script is compiled, is true.", _C, least=2, most=2, yields=True,
            example='getopt("t|time", false, "show the time");\n'
                    'begin { row((time=only_if(getopt("time"), strftime("%H:%M:%S", nsecs)), pid=pid)); }'),
)  # fmt: skip

AGGREGATES: tuple[Builtin, ...] = (
    Builtin("count", "aggregate", "count()", "Count how often this is reached.",
            example="tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }"),
    Builtin("sum", "aggregate", "sum(int n)", "Add up values.", least=1, most=1,
            example="tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @bytes[comm] = sum(args.ret); }"),
    Builtin("avg", "aggregate", "avg(int n)", "Average of values.", least=1, most=1,
            example="tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @[comm] = avg(args.ret); }"),
    Builtin("min", "aggregate", "min(int n)", "Least value.", least=1, most=1,
            example="tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @ = min(args.ret); }"),
    Builtin("max", "aggregate", "max(int n)", "Greatest value.", least=1, most=1,
            example="tracepoint:syscalls:sys_exit_read { @ = max(args.ret); }"),
    Builtin("stats", "aggregate", "stats(int n)", "Count, average and total of values.", least=1, most=1,
            example="tracepoint:syscalls:sys_exit_read /args.ret > 0/ { @[comm] = stats(args.ret); }"),
    Builtin("hist", "aggregate", "hist(int n[, const int bits])",
            "Histogram by powers of two, each split in 2^bits buckets.", least=1, most=2,
            example="tracepoint:syscalls:sys_exit_read { @ = hist(args.ret, 2); }"),
    Builtin("lhist", "aggregate", "lhist(int n, const int min, const int max, const int step)",
            "Histogram in equal steps.", least=4, most=4,
            example="tracepoint:syscalls:sys_exit_read { @ = lhist(args.ret, 0, 1000, 100); }"),
    Builtin("tseries", "aggregate", "tseries(int n, const int interval_ns, const int num[, const string aggregation])",
            "Values over time: the last, avg, max, min or sum of each interval.", least=3, most=4,
            example='tracepoint:raw_syscalls:sys_enter { @ = tseries(1, 1s, 20, "sum"); }'),
)  # fmt: skip

BUILTINS: tuple[Builtin, ...] = (*VALUES, *FUNCTIONS, *AGGREGATES)


_INDEX = {row.name: row for row in BUILTINS}


JOINED = {"symbol": "context", "time": "process", "control": "output", "network": "string", "python": "string"}
"""Families of builtins whose checks and whose code are in the module of another family."""


def argument_number(name: str) -> int | None:
    """N of ``argN``; None for any other name."""
    number = name.removeprefix("arg")
    return int(number) if number != name and number.isascii() and number.isdigit() else None


def is_argument(name: str) -> bool:
    """Whether a name is ``args`` or that of a numbered argument."""
    return name == "args" or argument_number(name) is not None


def builtin(name: str) -> Builtin | None:
    """The row of a builtin by name; that of ``arg0``, ``arg1`` … is ``argN``."""
    if argument_number(name) is not None:
        return _INDEX["argN"]
    return None if name == "argN" else _INDEX.get(name)


def bare_builtin(name: str) -> bool:
    """Whether *name* without parentheses denotes a builtin, whatever the script defines."""
    row = builtin(name)
    return row is not None and row.bare


def builtin_names() -> list[str]:
    """All names, for suggestions."""
    return [name for name in _INDEX if name != "argN"]
