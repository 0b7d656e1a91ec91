"""Checks of builtins, a family after the other."""

from __future__ import annotations

import pytest

from pytrace.core.event_layout import (
    CurrentTime,
    Exit,
    Formatted,
    PacketFile,
    PrintedMap,
    Quantiles,
    RowMembers,
    StaticPart,
)
from pytrace.core.event_layout import Joined as JoinedEvent
from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.options import CompileOptions
from pytrace.core.types import (
    INT32,
    UINT16,
    UINT32,
    VOID,
    AddressSpace,
    Buffer,
    Field,
    Fixed,
    Joined,
    Pointer,
    Record,
    Stack,
    StackMode,
    String,
    Struct,
    Type,
)
from pytrace.frontend.check.map_family import MAX_BUCKETS, MAX_INTERVALS
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import (
    CgroupFilter,
    DateFormat,
    MapAccess,
    NetworkAddress,
    PidNamespace,
    RegisterName,
    SignalNumber,
)
from tests.codegen.walkers.test_python_stacks import KERNEL
from tests.codegen.walkers.test_python_stacks import calls_compiled as compiled
from tests.frontend.checking import UNSAFE, last_value, refusals, refused, value, values, warned, warnings
from tests.support.facts import RecordedKernel
from tests.support.front import analyse
from tests.support.recorded import Facts
from tests.support.rows import each_row

# ruff: noqa: E501 - one script a line




REFUSED = [
    ("begin { row(pid=1); }", "1:16-17", "syntax: unexpected '=', expected ')' or ','"),
    ("begin { row(); }", "1:9-14", "row() takes 1 to 9 arguments, not 0"),
    ("begin { row((a=1), (b=2)); }", "1:20-25", "the column that rows are sorted by must be a string literal"),
    ("begin { row((pid, comm)); }", "1:13-24", "row() takes a record, whose members have names, not the tuple (uint32,string[16])"),
    ("begin { row(()); }", "1:13-15", "row() takes a record, whose members have names, not the tuple ()"),
    ("begin { row(5); }", "1:13-14", "row() takes a record, whose members have names, not int8"),
    ("begin { row(comm); }", "1:13-17", "row() takes a record, whose members have names, not string[16]"),
    ("begin { row(*curtask); }", "1:13-21", "row() takes a record, whose members have names, not struct task_struct"),
    ("begin { row(uint32); }", "1:13-19", "row() takes a record, not a type"),
    ("begin { @m[1] = (a=1); row(@m); }", "1:28-30", "row() takes a record, not the map @m"),
    ("begin { @m[1] = count(); row(@m); }", "1:30-32", "row() takes a record, not the map @m"),
    ("begin { @m = hist(2); row((a=@m)); }", "1:30-32", "a value of hist_t cannot be read by the script"),
    ("begin { @m = stats(2); row((a=@m)); }", "1:31-33", "stats_t cannot be part of a value"),
    ("begin { row((a=print(1))); }", "1:16-24", "print() returns nothing"),
    ("begin { row((a=1, a=2)); }", "1:19-20", "syntax: the record has a field 'a' already"),
    ("begin { row((a=1, \"a\"=2)); }", "1:19-22", "syntax: the record has a field 'a' already"),
    ("begin { print((\"\"=2).x); }", "1:16-18", 'syntax: a field cannot have the name ""'),
    ("begin { $r = (\"a b\"=2); print($r.a); }", "1:31-35", "the record has no field 'a'"),
    ("begin { row((reads=1, b=2), \"-read\"); }", "1:29-36", "the rows have no column 'read' to sort by"),
    ("begin { row((a=1), \"-\"); }", "1:9-24", 'no column follows the "-"'),
    ("begin { row((a=1), comm); }", "1:20-24", "the column that rows are sorted by must be a string literal"),
    ("begin { print_rows(-1); }", "1:20-22", "print_rows() cannot print -1 rows"),
    ("begin { print_rows(comm); }", "1:9-25", "the number of rows of print_rows() must be an integer, not string[16]"),
    ("begin { print(fixed(1, 0, 3)); }", "1:15-29", "the divisor of fixed() must be 1 to 1000000000000, not 0"),
    ("begin { print(fixed(1, pid, 3)); }", "1:15-31", "the divisor of fixed() must be an integer literal"),
    ("begin { print(fixed(1, 2, 10)); }", "1:15-30", "the number of decimals of fixed() must be 0 to 9, not 10"),
    ("begin { print(fixed(comm, 2, 1)); }", "1:15-32", "the value of fixed() must be an integer, not string[16]"),
    ("begin { print(fixed(1, 2, 1) + 1); }", "1:15-33", "operator + needs integers, not fixed_t"),
    ("begin { @ = fixed(1, 2, 1); @ = fixed(1, 2, 2); }", "1:29-47",
     "the value of @ is fixed_t of divisor 2 with 1 decimals, this is fixed_t of divisor 2 with 2 decimals"),
    ("begin { print(joined(comm, 2)); }", "1:22-26", "the separator of joined() must be a string literal"),
    ("begin { @s = stats(1); print(joined(\":\", @s)); }", "1:42-44", "stats_t cannot be part of a text"),
    ("begin { print(row); }", "1:15-18", "row is a function: row((name=value, …)[, const string column…])"),
    # output family
    ("begin { if (1 == $#) { $b = 1; } print($b); }", "1:40-42", "undefined variable $b"),
    ("begin { printf(\"%d %d\\n\", 1); }", "1:9-29", "not enough values for printf(): the format takes 2, 1 given"),
    ("begin { printf(\"%y\\n\", 1); }", "1:9-26", "too many values for printf(): the format takes 0, 1 given"),
    ("begin { printf(\"%f\\n\", 1); }", "1:9-26", "printf(): %f takes a floating-point number, not int8"),
    ("begin { printf(\"%\", 1); }", "1:9-23", "too many values for printf(): the format takes 0, 1 given"),
    ("begin { printf(\"100% done\"); }", "1:9-28", "not enough values for printf(): the format takes 1, 0 given"),
    ("begin { $x = \"a\"; printf($x); }", "1:26-28", "the format of printf() must be a string literal"),
    ("begin { printf(\"%r\", 5); }", "1:9-24", "printf(): %r takes a buffer, not int8"),
    ("begin { for ($i : 0..5) { exit(); } }", "1:27-33", "exit() cannot be called inside a for loop"),
    ("begin { debugf(\"%c\", 5); }", "1:9-24", "debugf() does not know %c"),
    ("begin { print(1, 2); }", "1:9-20", "only a map takes more arguments of print()"),
    ("begin { @x[1] = 1; print(@x, -1); }", "1:20-33", "the number of entries must be 0 to 4294967295, not -1"),
    ("begin { @h = 5; quantiles(@h); }", "1:17-30", "quantiles() takes a map of hist(), @h holds int8"),
    ("begin { cat(5); }", "1:13-14", "the format of cat() must be a string literal"),
    ("begin { cat(\"%d\"); }", "1:9-18", "not enough values for cat(): the format takes 1, 0 given"),
    ("begin { cat(\"%d\", \"x\"); }", "1:9-23", "cat(): %d takes an integer, not string[2]"),
    ("begin { print(cat(\"x\")); }", "1:15-23", "cat() returns nothing"),
    ("begin { errorf(5); }", "1:16-17", "the format of errorf() must be a string literal"),
    ("begin { warnf(\"%d\"); }", "1:9-20", "not enough values for warnf(): the format takes 1, 0 given"),
    ("begin { exit(\"a\"); }", "1:9-18", "the exit status must be an integer, not string[2]"),
    ("begin { exit(true); }", "1:9-19", "the exit status must be an integer, not bool"),
    ("begin { join(comm); }", "1:9-19", "the argument of join() must be a pointer or an integer, not string[16]"),
    ("begin { join(0, 5); }", "1:17-18", "the separator of join() must be a string literal"),
    ("begin { @m[1] = 1; print(@m, \"x\"); }", "1:20-34", "the number of entries must be an integer literal"),
    ("begin { @m[1] = 1; $n = 1; print(@m, $n); }", "1:28-41", "the number of entries must be an integer literal"),
    ("begin { @m[1] = 1; print(@m, 1, \"y\"); }", "1:20-37", "the divisor must be an integer literal"),
    ("begin { print(time()); }", "1:15-21", "time() returns nothing"),
    ("begin { unwatch(\"x\"); }", "1:9-21", "the address must be a pointer or an integer, not string[2]"),
    ("begin { @m[1] = 1; print(@m, 1, 1, \"up\"); }", "1:20-41", "the order must be key, -key, value, -value"),
    ("begin { @m[1] = 1; print(@m, 1, -1); }", "1:20-36", "the divisor must be 0 to 9223372036854775807, not -1"),
    ("begin { print_clear(5); }", "1:9-23", "print_clear() takes a map"),
    ("begin { quantiles(5); }", "1:9-21", "quantiles() takes a map"),
    ("begin { @h = hist(1); quantiles(@h, 0); }",
     "1:23-39", "a percentile must be a literal between 0 and 100, such as 90 or \"99.9\""),
    ("begin { @h = hist(1); quantiles(@h, 100); }",
     "1:23-41", "a percentile must be a literal between 0 and 100, such as 90 or \"99.9\""),
    ("begin { @h = hist(1); quantiles(@h, \"many\"); }",
     "1:23-44", "a percentile must be a literal between 0 and 100, such as 90 or \"99.9\""),
    ("begin { debugf(\"%5.2d\", 1); }", "1:9-27", "debugf() does not know %5.2d"),
    ("begin { debugf(\"%#x\", 1); }", "1:9-25", "debugf() does not know %#x"),
    ("begin { debugf(\"%s\", pid); }", "1:9-26", "debugf(): the kernel writes %s of strings only, not uint32"),
    ("begin { print(printf(\"x\")); }", "1:15-26", "printf() returns nothing"),
    ("rawtracepoint:consume_skb { skboutput(\"f\", 5, 1, 0); }",
     "1:29-52", "skboutput() takes a struct sk_buff *, not int8"),
    ("rawtracepoint:consume_skb { skboutput(\"f\", args.skb, \"x\", 0); }",
     "1:29-61", "the length must be an integer, not string[2]"),
    # meta family
    ("begin { static_assert(1 == 2, \"no\"); }", "1:9-36", "no"),
    ("begin { output_format(\"csv\"); output_format(\"csv\"); output_format(\"json\"); }",
     "1:53-74", "another output_format() says 'csv'"),
    ("begin { stack_layout(\"names\"); stack_layout(\"tree\"); }", "1:32-52", "stack_layout() has no 'tree'"),
    ("begin { output_format(comm); }", "1:23-27", "the format of output_format() must be a string literal"),
    ("begin { fail(\"bad %d %s\", 5, \"x\"); }", "1:9-34", "bad 5 x"),
    ("begin { print(config(\"foo\")); }", "1:15-28", "there is no configuration key 'foo'"),
    ("begin { print(kfunc_exist(comm)); }", "1:27-31", "the argument of kfunc_exist() must be a string literal"),
    ("begin { print(kfunc_allowed(5)); }", "1:29-30", "the argument of kfunc_allowed() must be a string literal"),
    ("begin { fail(\"%x %X %o %p %s %d %s\", 255, 255, 8, 255, \"t\", true, -1); }",
     "1:9-70", "ff FF 10 0xff t true -1"),
    ("begin { static_assert(0, \"\"); }", "1:9-29", "static_assert() does not hold"),
    ("begin { static_assert(pid, \"m\"); }",
     "1:23-26", "the condition of static_assert() must be known at compile time"),
    ("begin { fail(\"\"); }", "1:9-17", "fail() was reached; it says nothing more"),
    ("begin { fail(\"%d\", pid); }", "1:20-23", "the values of fail() must be literals"),
    ("begin { static_assert(1, comm); }", "1:26-30", "the message of static_assert() must be a string literal"),
    ("begin { print(getopt(pid)); }", "1:22-25", "the name of a parameter must be a string literal"),
    ("begin { print(probe_exist(comm)); }", "1:27-31", "the argument of probe_exist() must be a string literal"),
    ("begin { print(probe_exist(\"kprob:f\")); }", "1:27-36", "there is no provider 'kprob'"),
    ("begin { print(type_exist(3)); }", "1:26-27", "type_exist() takes a type"),
    ("begin { print(type_exist(pid)); }", "1:26-29", "type_exist() takes a type"),
    ("begin { print(member_exist(struct task_struct, 3)); }", "1:48-49",
     "the second argument of member_exist() is a member"),
    ("begin { print(member_exist(args, x)); }", "1:28-32", "begin probes have no args here"),
    ("begin { print(constant_exist(3)); }", "1:30-31", "the argument of constant_exist() must be a string literal"),
    ("begin { print(one_of(pid, comm)); }", "1:27-31", "the list of one_of() must be a string literal"),
    ("begin { print(one_of(pid, \"1, x\")); }", "1:27-33", "'x' in the list of one_of() is not an integer"),
    ("begin { print(one_of(pid, \"1,\")); }", "1:27-31", "an empty entry in the list of one_of() is not an integer"),
    ("enum e { A }; begin { print(one_of((enum e)pid, \"A,C,3\")); }", "1:49-56",
     "'C' in the list of one_of() is not an integer or a member of enum e"),
    ("begin { print(one_of(curtask, \"1\")); }", "1:22-29",
     "one_of() compares integers and strings, not struct task_struct *"),
    ("begin { fail(\"%d\", \"x\"); }", "1:9-24", "fail(): %d takes an integer, not string[2]"),
    # process family
    ("begin { $a = pid(foo); }", "1:14-22", "pid() takes curr_ns or init"),
    ("begin { print(ppid(1)); }", "1:15-22", "ppid() takes a struct task_struct *, not int8"),
    ("begin { print(pcomm(comm)); }", "1:15-26", "pcomm() takes a struct task_struct *, not string[16]"),
    ("begin { print(leader_tid(5)); }", "1:15-28", "leader_tid() takes a struct task_struct *, not int8"),
    ("begin { print(cgroup_path(\"x\")); }", "1:15-31", "the cgroup id must be an integer, not string[2]"),
    ("begin { print(cgroup_path(1, 2)); }", "1:30-31", "the filter of cgroup_path() must be a string literal"),
    ("begin { print(cgroupid(5)); }", "1:24-25", "the path of cgroupid() must be a string literal"),
    ("begin { print(cgroupid(\"/no/such\")); }", "1:15-35", "there is no cgroup at '/no/such'"),
    ("begin { print(tid(foo)); }", "1:15-23", "tid() takes curr_ns or init"),
    # context family
    ("fn f(): uint64 { return args.x; } begin { print(f()); }", "1:25-29", "a function has no args"),
    ("begin { print(args); }", "1:15-19", "begin probes have no args here"),
    ("fn f(): uint64 { print(probe); return 1; } begin { print(f()); }",
     "1:24-29", "a function does not know which probe called it"),
    ("fn f(): uint64 { print(probetype); return 1; } begin { print(f()); }",
     "1:24-33", "a function does not know which probe called it"),
    ("rawtracepoint:consume_skb { print(arg1); }", "1:35-39", "the probe has 1 argument, so there is no arg1"),
    # string family
    ("begin { str(\"a\", \"b\"); }", "1:9-22", "the length of str() must be an integer, not string[2]"),
    ("begin { print(str((1,2))); }", "1:15-25", "str() takes a pointer, an integer or a string, not (int8,int8)"),
    ("begin { print(strlen(username)); }", "1:15-31", "strlen() takes a string, not username"),
    ("begin { print(bswap(\"a\")); }", "1:15-25", "the argument of bswap() must be an integer, not string[2]"),
    ("begin { print(bswap(true)); }", "1:15-26", "the argument of bswap() must be an integer, not bool"),
    ("begin { print(bswap(curtask)); }",
     "1:15-29", "the argument of bswap() must be an integer, not struct task_struct *"),
    ("begin { print(buf(5)); }", "1:15-21", "buf() needs a length for int8"),
    ("begin { print(buf(curtask)); }", "1:15-27", "buf() needs a length for struct task_struct *"),
    ("begin { print(buf(\"a\", \"b\")); }", "1:15-28", "the length of buf() must be an integer, not string[2]"),
    ("begin { print(buf(\"a\", -1)); }", "1:15-27", "the length of buf() cannot be negative"),
    ("begin { print(buf((1, 2), 3)); }",
     "1:15-29", "buf() takes a pointer, integer, array or string, not (int8,int8)"),
    ("begin { print(signal_name(\"SIGKILL\")); }",
     "1:15-37", "the argument of signal_name() must be an integer, not string[8]"),
    ("begin { print(strerror(\"x\")); }", "1:15-28", "the argument of strerror() must be an integer, not string[2]"),
    ("begin { print(syscall_name(curtask)); }",
     "1:15-36", "the argument of syscall_name() must be an integer, not struct task_struct *"),
    ("begin { print(str(\"a\", -1)); }", "1:15-27", "the length of str() cannot be negative"),
    ("begin { print(strcap(5)); }", "1:15-24", "strcap() takes a string, not int8"),
    ("begin { print(strlen((uint64*)5)); }", "1:15-33", "strlen() takes a string, not uint64 *"),
    ("begin { print(strlen(curtask)); }", "1:15-30", "strlen() takes a string, not struct task_struct *"),
    ("begin { print(strcontains(5, \"a\")); }",
     "1:15-34", "the first argument of strcontains() must be a string, not int8"),
    ("begin { print(strstr(\"a\", 5)); }", "1:15-29", "the second argument of strstr() must be a string, not int8"),
    ("begin { print(strncmp(1, \"a\", 1)); }",
     "1:15-33", "the first argument of strncmp() must be a string, not int8"),
    ("begin { $n = 2; print(strncmp(\"a\", \"b\", $n)); }",
     "1:23-44", "the length of strncmp() must be an integer literal"),
    ("begin { print(strncmp(\"a\", \"b\", -1)); }",
     "1:15-36", "the length of strncmp() must be 0 to 2147483647, not -1"),
    ("begin { print(memcmp(\"ab\", comm, 4)); }", "1:15-36", "memcmp() compares 4 bytes, but string[3] is shorter"),
    ("begin { print(memcmp(\"ab\", (1, 2), 1)); }",
     "1:15-38", "memcmp() takes strings, arrays, integers and pointers, not (int8,int8)"),
    ("begin { print(memcmp(\"ab\", comm, -1)); }", "1:15-37", "the length of memcmp() must be 0 to 1024, not -1"),
    ("begin { print(memcmp(\"ab\", comm, 1025)); }", "1:15-39", "the length of memcmp() must be 0 to 1024, not 1025"),
    ("begin { print(memcmp(1, 2, 9)); }", "1:15-30", "memcmp() compares 9 bytes, but int8 is shorter"),
    ("fentry:vfs_getattr { print(path(5)); }", "1:28-35", "path() takes a struct path, not int8"),
    ("fentry:vfs_read { print(path(args.file)); }", "1:25-40", "path() takes a struct path, not struct file *"),
    ("fentry:vfs_getattr { print(path(args.path, 1025)); }",
     "1:28-49", "the size of path() must be 1 to 1024, not 1025"),
    ("begin { print(str_concat(\"a\", 5)); }",
     "1:15-33", "the second argument of str_concat() must be a string, not int8"),
    # symbol family
    ("kprobe:vfs_read { print(reg(\"foo\")); }", "1:25-35", "there is no register 'foo'"),
    ("begin { print(kaddr(\"nosuch_symbol\")); }", "1:15-37", "the kernel has no symbol 'nosuch_symbol'"),
    ("begin { kaddr($1); }", "1:15-17", "the symbol of kaddr() must be a string literal"),
    ("begin { print(is_err(\"x\")); }",
     "1:15-26", "the argument of is_err() must be a pointer or an integer, not string[2]"),
    ("begin { print(kaddr(comm)); }", "1:21-25", "the symbol of kaddr() must be a string literal"),
    ("begin { print(kptr(\"x\")); }", "1:15-24", "kptr() takes a pointer or an integer, not string[2]"),
    ("begin { print(uptr((1, 2))); }", "1:15-27", "uptr() takes a pointer or an integer, not (int8,int8)"),
    ("begin { print(ksym(\"x\")); }",
     "1:15-24", "the address of ksym() must be a pointer or an integer, not string[2]"),
    ("begin { print(usym(\"x\")); }",
     "1:15-24", "the address of usym() must be a pointer or an integer, not string[2]"),
    ("begin { print(percpu_kaddr(5)); }", "1:28-29", "the symbol of percpu_kaddr() must be a string literal"),
    ("kprobe:vfs_read { print(reg(5)); }", "1:29-30", "the register of reg() must be a string literal"),
    ("uprobe:/bin/true:main { print(uaddr(\"nothing\")); }", "1:31-47", "/bin/true has no symbol 'nothing'"),
    ("kprobe:vfs_read { print(reg(\"r0\")); }", "1:25-34", "there is no register 'r0'"),
    ("uprobe:/bin/true:main { print(goid); }", "1:31-35",
     "goid is not available: uprobe:/bin/true:main is not in code of Go"),
    ("begin { print(percpu_kaddr(\"nothing\")); }", "1:15-38", "the kernel has no symbol 'nothing'"),
    # aggregate family
    ("begin { @ = tseries(1, 0, 10); }",
     "1:13-30", "the interval of tseries() must be 1 to 9223372036854775807, not 0"),
    ("begin { @ = tseries(1, 1s, 10, \"foo\"); }", "1:13-38", "tseries() aggregates by avg, max, min, sum"),
    ("begin { @ = lhist(1, 0, 100000, 1); }", "1:13-35", "lhist() would have 100000 buckets, the limit is 1000"),
    ("begin { $x = count(); }", "1:14-21", "count() must be assigned to a map directly"),
    ("begin { print(count()); }", "1:15-22", "count() must be assigned to a map directly"),
    ("begin { @x[count()] = 1; }", "1:12-19", "count() must be assigned to a map directly"),
    ("begin { @ = sum(\"a\"); }", "1:13-21", "sum() takes an integer, not string[2]"),
    ("begin { @ = avg(curtask); }", "1:13-25", "avg() takes an integer, not struct task_struct *"),
    ("begin { @ = max((1, 2)); }", "1:13-24", "max() takes an integer, not (int8,int8)"),
    ("begin { @ = stats(\"a\"); }", "1:13-23", "stats() takes an integer, not string[2]"),
    ("begin { @ = hist(\"a\"); }", "1:13-22", "hist() takes an integer, not string[2]"),
    ("begin { @ = hist(1, 6); }", "1:13-23", "the number of bits of hist() must be 0 to 5, not 6"),
    ("begin { @ = hist(1, -1); }", "1:13-24", "the number of bits of hist() must be 0 to 5, not -1"),
    ("begin { $k = 2; @ = hist(1, $k); }", "1:21-32", "the number of bits of hist() must be an integer literal"),
    ("begin { @ = lhist(1, 10, 5, 1); }",
     "1:13-31", "the minimum of lhist() must be less than the maximum, but 10 is not less than 5"),
    ("begin { @ = lhist(1, 0, 10, 0); }", "1:13-31", "the step of lhist() must be 1 or more, not 0"),
    ("begin { @ = lhist(1, 0, 10, 20); }", "1:13-32", "the step of lhist() (20) is greater than the range (10)"),
    ("begin { @ = lhist(1, -1, 10, 1); }",
     "1:13-32", "the minimum of lhist() must be 0 to 9223372036854775807, not -1"),
    ("begin { @ = tseries(\"a\", 1s, 3); }", "1:13-32", "tseries() takes an integer, not string[2]"),
    ("begin { @ = tseries(1, 1s, 0); }", "1:13-30", "the number of intervals must be 1 to 999999, not 0"),
    ("begin { @ = tseries(1, 1s, 1000000); }", "1:13-36", "the number of intervals must be 1 to 999999, not 1000000"),
    ("begin { @ = tseries(1, 1s, 3, 5); }", "1:31-32", "the aggregation of tseries() must be a string literal"),
    ("begin { @ = tseries(1, 1s, 3); @ = tseries(1, 1s, 4); }",
     "1:36-53", "the value of @ is tseries_t of 3 intervals of 1000000000 ns, this is tseries_t of 4 intervals of 1000000000 ns"),
    ("begin { @ = tseries(1, 1s, 3); @ = tseries(1, 1s, 3, \"sum\"); }",
     "1:36-60", "the value of @ is tseries_t of 3 intervals of 1000000000 ns, this is tseries_t of 3 intervals of 1000000000 ns by sum"),
    ("begin { @ = tseries(1, 1s, 3); $x = (int64)@; }",
     "1:44-45", "a value of tseries_t cannot be read by the script"),
    ("begin { $x = sum(1); }", "1:14-20", "sum() must be assigned to a map directly"),
    ("begin { @ = hist(nsecs); $x = hist(1); }", "1:31-38", "hist() must be assigned to a map directly"),
    ("begin { @ = lhist(1, 5, 5, 1); }",
     "1:13-30", "the minimum of lhist() must be less than the maximum, but 5 is not less than 5"),
    ("begin { @ = lhist(1, 0, 1001, 1); }", "1:13-33", "lhist() would have 1001 buckets, the limit is 1000"),
    ("begin { @ = tseries(1, 9223372036854775808, 3); }",
     "1:13-47", "the interval of tseries() must be 1 to 9223372036854775807, not 9223372036854775808"),
    ("config = { unstable_tseries = \"error\" } begin { @ = tseries(1, 1s, 3); }",
     "1:53-70", "tseries is unstable and disabled"),
    # map family
    ("begin { clear(5); }", "1:9-17", "clear() takes a map"),
    ("begin { @x = 5; print(has_key(@x, 1)); }", "1:23-37", "@x has no keys"),
    ("begin { @x[1] = 5; delete(@x); }", "1:20-30", "@x has keys: delete() needs the one to remove"),
    ("begin { @x[1] = 5; find(@x, 1, 5); }", "1:20-34", "the third argument of find() is a variable"),
    ("begin { @a[1] = 1; clear(@a[1]); }", "1:20-32", "clear() takes a map"),
    ("begin { zero(5); }", "1:9-16", "zero() takes a map"),
    ("begin { @s = 1; delete(@s, 1); }", "1:17-30", "@s has no keys"),
    ("begin { @a[1] = 1; delete(@a, \"x\"); }", "1:20-35", "the key of @a is int8, this is string[2]"),
    ("begin { delete(5); }", "1:9-18", "delete() takes a map"),
    ("begin { @t[1, \"a\"] = 1; delete(@t, 1); }", "1:25-38", "the key of @t is (int8,string[2]), this is int8"),
    ("begin { @a[1] = 5; find(@a, \"x\", $v); }", "1:20-37", "the key of @a is int8, this is string[2]"),
    ("begin { @a[1] = 5; $s = \"x\"; find(@a, 1, $s); }", "1:30-45", "$s is string[2], this is int8"),
    ("begin { @a[1] = hist(5); find(@a, 1, $v); }", "1:26-41", "find() cannot read hist_t"),
    ("begin { @s = 5; find(@s, 1, $v); }", "1:17-32", "@s has no keys"),
    ("begin { @a[1] = 5; print(has_key(@a, \"x\")); }", "1:26-42", "the key of @a is int8, this is string[2]"),
    ("begin { print(has_key(5, 1)); }", "1:15-28", "has_key() takes a map"),
    ("begin { print(is_scalar(5)); }", "1:15-27", "is_scalar() takes a map"),
    ("begin { print(len(\"abc\")); }", "1:15-25", "len() takes a map or a stack, not string[4]"),
    ("begin { @s = 1; print(len(@s)); }", "1:23-30", "@s has no keys to count"),
    ("begin { print(len(@nothing)); }", "1:19-27", "undefined map @nothing: nothing is ever stored in it"),
    ("begin { @m[1] = stats(1); $f = find(@m, 1, $v); }", "1:32-47", "find() cannot read stats_t"),
    # network family
    ("begin { print(pton(\"300.1.1.1\")); }", "1:15-32", "'300.1.1.1' is not an IPv4 or IPv6 address"),
    ("begin { print(ifname(\"eth0\")); }",
     "1:15-29", "the interface index of ifname() must be an integer, not string[5]"),
    ("begin { print(macaddr(pton(\"1.2.3.4\"))); }", "1:15-39", "macaddr() takes an array of 6 bytes, not uint8[4]"),
    ("begin { print(macaddr((1, 2))); }", "1:15-30", "macaddr() takes an array of 6 bytes, not (int8,int8)"),
    ("begin { print(ntop(99, 5)); }", "1:15-26", "ntop() knows families 2 and 10, not 99"),
    ("begin { print(ntop(uint8[5])); }", "1:20-28", "a type cannot be an argument here"),
    ("begin { print(ntop((uint8*)0)); }", "1:15-30", "ntop() of a pointer needs the address family"),
    ("begin { print(ntop(\"x\", 5)); }", "1:15-27", "the address family of ntop() must be an integer, not string[2]"),
    ("begin { print(pton(5)); }", "1:20-21", "the address of pton() must be a string literal"),
    ("begin { print(pton(\"1.2.3\")); }", "1:15-28", "'1.2.3' is not an IPv4 or IPv6 address"),
    ("begin { print(ntop((1, 2))); }",
     "1:15-27", "ntop() takes an integer or an array of 4 or 16 bytes, not (int8,int8)"),
    ("fentry:tcp_sendmsg { print(socket_cookie(5)); }", "1:28-44", "socket_cookie() takes a struct sock *, not int8"),
]


@each_row(("script", "place", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(script: str, place: str, message: str) -> None:
    assert analyse(script).errors == [(place, message)]


test_refused_with_other_errors = refusals(
    [
        ("begin { print(assert_str(5)); }", "1:26-27", "this must be a string, not int8"),
        ("begin { print(comm(\"x\")); }", "1:15-24", "the process id must be an integer, not string[2]"),
        ("begin { print(percpu_kaddr(\"runqueues\", \"x\")); }",
         "1:15-45", "the CPU number must be an integer, not string[2]"),
    ]
)


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { row(pid=1); }", "row() takes a record: write row((name=value, …)), with two pairs of parentheses"),
        ("begin { row((1, 2)); }", "write row((pid=pid, comm=comm)), with a name for each column"),
        ("begin { @m[1] = (a=1); row(@m); }", "print(@m) prints the map, row(@m[key]) the record of one key"),
    ],
)
def test_hints(script: str, hint: str) -> None:
    (error,) = analyse(script).diagnostics.errors
    assert hint in error.hints


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("begin { row((a=1, b=comm)); }", ["a", "b"]),
        ("begin { row((a=(b=1, c=(2, pid)), d=3)); }", ["a.b", "a.c.0", "a.c.1", "d"]),
        ("begin { $r = (a=1, b=2); row($r); }", [""]),
        ("begin { $r = (a=1, b=2); row((x=$r, y=1)); }", ["x", "y"]),
        ("begin { @m[1] = (a=1); row(@m[1]); }", [""]),
        ("begin { @r = (a=1); row(@r); }", [""]),
    ],
)
def test_literals_are_sent_by_their_members_and_values_whole(script: str, names: list[str]) -> None:
    (event,) = analyse(script).checked().events.values()
    assert event.static == RowMembers(names)
    assert ("" in names) == (len(event.args) == 1 and isinstance(event.args[0], Record))


@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        ("", []),
        (', "a"', [1]),
        (', "-b.c", "a"', [-2, 1]),
        (', "-", "LAT(ms)"', [-3]),
        (', "-LAT(ms)"', [-3]),
        (', "-x"', [4]),
    ],
)
def test_columns_that_rows_are_sorted_by(arguments: str, order: list[int]) -> None:
    script = f'begin {{ row((a=1, b=(c=2,), "LAT(ms)"=fixed(3, 1000, 2), "-x"=4){arguments}); }}'
    (event,) = analyse(script.replace("(c=2,)", "(c=2)")).checked().events.values()
    assert event.static == RowMembers(["a", "b.c", '"LAT(ms)"', '"-x"'], order)


def test_near_columns_are_named() -> None:
    (error,) = analyse('begin { row((reads=1, writes=2), "-raeds"); }').diagnostics.errors
    assert any("reads" in hint for hint in error.hints)
    (error,) = analyse('begin { row((reads=1, writes=2), "q"); }').diagnostics.errors
    assert "the columns are reads, writes" in error.hints


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("fixed(nsecs, 1000, 3)", Fixed(1000, 3, False)),
        ("fixed((int32)-1, 1024, 0)", Fixed(1024, 0, True)),
        ('joined(":", pid, (uint16)80)', Joined(":", (UINT32, UINT16))),
    ],
)
def test_types_of_values_for_rows(expression: str, type_: Type) -> None:
    (event,) = analyse(f"begin {{ row((a={expression})); }}").checked().events.values()
    assert event.args == (type_,)


@pytest.mark.parametrize(
    "script",
    [
        "begin { $row = 1; @row = $row; print(@row); print((row=3).row); }",
        "macro row(x) { x + 1 } begin { print(row(3)); }",
        "macro row() { 8 } begin { print(row); print(row()); }",
        "macro twice(row) { row * 2 } begin { print(twice(3)); }",
        "fn row($x: int64): int64 { return $x + 1; } begin { print(row(3)); }",
        "struct s { int row; }; begin { $s = (struct s *)0; if ($s != 0) { print($s->row); } print(offsetof(struct s, row)); }",
    ],
)
def test_scripts_may_have_the_name(script: str) -> None:
    assert analyse(script).errors == []


# -------------------------------------------------------------------------------------------------------- output family

# fmt: off
WARNED = [
    ("begin { @a[1] = stats(1); print(@a[1]); print(@a, 5); }",
     "1:41-53", "number of entries and divisor have no effect on stats"),
    ("begin { debugf(\"%d\", 5); }",
     "1:9-24", "debugf() is for debugging: it writes to a file that the whole system shares"),
    ("begin { exit(256); }", "1:9-18", "an exit status has 8 bits: 256 is truncated to 0"),
    ("begin { @m[1] = 1; for ($kv : @m) { print(@m); } }",
     "1:37-46", "@m is printed after the loop, as it is at that time; each iteration sends another request"),
    ("begin { @m[1] = stats(1); print(@m, 0, 2, \"key\"); }",
     "1:27-49", "number of entries and divisor have no effect on stats"),
    # context family
    ("config = { stack_mode = \"build_id\" } begin { print(kstack); }",
     "1:52-58", "build_id is a mode of user stacks; this one uses the default mode"),
    ("begin { print(dw_ustack); }", "1:15-24", "dw_ustack is unstable: its behaviour may change"),
    # string family
    ("begin { print(str(0, 1025)); }", "1:15-27", "str() is truncated to max_strlen, which is 1024"),
    ("begin { print(buf(0, 1025)); }", "1:15-27", "buf() is truncated to max_strlen, which is 1024"),
]
# fmt: on

test_warned = warnings(WARNED)


SENT = [
    ('printf("%d\\n", pid);', "printf", Formatted("%d\n")),
    ("@m[1] = 1; print(@m);", "print_map", PrintedMap("@m", 0, 1, "", clear=False)),
    ('@m[1] = 1; print_clear(@m, 5, 2, "-value");', "print_map", PrintedMap("@m", 5, 2, "-value", clear=True)),
    ('@m[1] = stats(1); print(@m, 0, 1, "key");', "print_map", PrintedMap("@m", 0, 1, "key", clear=False)),
    ("@h = hist(1); quantiles(@h);", "quantiles", Quantiles("@h", [50.0, 90.0, 99.0, 99.9])),
    ('@h = hist(1); quantiles(@h, 10, "12.5");', "quantiles", Quantiles("@h", [10.0, 12.5])),
    ("join(0);", "join", JoinedEvent(" ")),
    ('join(0, ",");', "join", JoinedEvent(",")),
    ("exit(3);", "exit", Exit(True)),
    ("exit(pid);", "exit", Exit(False)),
]


@each_row(("body", "kind", "static"), SENT)
def test_events(body: str, kind: str, static: StaticPart) -> None:
    (event,) = analyse(f"begin {{ {body} }}").checked().event_list
    assert (event.kind, event.static) == (kind, static)


def test_exit_in_timers_ends_at_a_time() -> None:
    for kind, timed in (("interval:s:1", True), ("profile:hz:99", True), ("tracepoint:sched:sched_switch", False)):
        (event,) = analyse(f"{kind} {{ exit(); }}").checked().event_list
        assert event.static == Exit(True, timed)


def test_formats_and_room_in_events() -> None:
    result = analyse('begin { printf("100%\\n"); printf("%y %d%", 5); warnf("9%"); }')
    assert [place for place, _ in result.warnings] == ["1:9-25", "1:27-46", "1:27-46", "1:48-59"]
    (joined,) = analyse("begin { join(0); }").checked().event_list
    assert joined.args[1:] == (String(1024),) * 16
    (packet,) = analyse('rawtracepoint:consume_skb { $n = skboutput("f", args.skb, 10, 0); }').checked().event_list
    assert (packet.static, packet.args[2]) == (PacketFile("f"), Buffer(1024))


def test_packets_of_a_kernel_without_them() -> None:
    text = 'struct sk_buff { int x; } rawtracepoint:kfree_skb { skboutput("f", (struct sk_buff *)1, 1, 0); }'
    result = analyse(text, kernel=RecordedKernel())
    assert [text for _, text in result.errors] == ["skboutput() needs struct sk_buff among the kernel's types"]


@pytest.mark.parametrize("text", ["%d %u %p", "%ld %llu %lx", "%-5d %05u"])
def test_what_the_kernel_formats(text: str) -> None:
    count = text.count("%")
    assert warned(f'begin {{ debugf("{text}"{", 1" * count}); }}')[1].startswith("debugf() is for debugging")


# fmt: off
REFUSED_control = [
    ("kprobe:vfs_read { signal(0); }", "1:19-28", "there is no signal 0"),
    ("kprobe:vfs_read { signal(65); }", "1:19-29", "there is no signal 65"),
    ("kprobe:vfs_read { signal(\"SIGKIL\"); }", "1:19-35", "there is no signal 'SIGKIL'"),
    ("kprobe:vfs_read { signal((1, 2)); }",
     "1:19-33", "the argument of signal() must be an integer, not (int8,int8)"),
    ("kprobe:vfs_read { override(\"x\"); }", "1:19-32", "the result of override() must be an integer, not string[2]"),
    ("kprobe:vfs_read { write_user(\"x\", 0, 1); }",
     "1:19-40", "the target of write_user() must be a pointer or an integer, not string[2]"),
    ("kprobe:vfs_read { write_user(0, 0, \"x\"); }",
     "1:19-40", "the length of write_user() must be an integer, not string[2]"),
    ("kprobe:vfs_read { write_user(0, (1, 2), 1); }",
     "1:19-43", "the source of write_user() must be a pointer or an integer, not (int8,int8)"),
]
# fmt: on

test_refused_control = refusals(REFUSED_control)


@each_row(
    ("argument", "number"), [("1", 1), ("64", 64), ('"SIGKILL"', 9), ('"kill"', 9), ('"Usr1"', 10), ("pid", None)]
)
@each_row("name", ["signal", "signal_thread"])
def test_signals_by_number_and_name(name: str, argument: str, number: int | None) -> None:
    program = analyse(f"kprobe:vfs_read {{ {name}({argument}); }}", UNSAFE).checked()
    (call,) = (node for node in walk(program.units[0].body) if isinstance(node, nodes.Call))
    assert program.fact(call, SignalNumber).number == number


@pytest.mark.parametrize(
    ("call", "feature", "message"),
    [
        ("override(1)", "override_return", "CONFIG_BPF_KPROBE_OVERRIDE"),
        ("write_user(0, 0, 1)", "probe_write_user", "may not write to user memory"),
    ],
)
def test_what_the_kernel_does_not_allow(call: str, feature: str, message: str) -> None:
    script = f"kprobe:vfs_read {{ {call}; }}"
    assert not analyse(script, UNSAFE).errors
    assert message in refused(script, kernel=Facts(missing=frozenset({feature})))[1]


def test_values_of_several_bytes_may_be_written() -> None:
    assert not analyse('kprobe:vfs_read { write_user(arg0, "abc", 3); }', UNSAFE).errors



# ---------------------------------------------------------------------------------------------------------- meta family

# ruff: noqa: E501 - one script a line



# fmt: off
VALUES = [
    ("begin { print(is_array((uint8[4])(uint32)1)); }", "bool", True),
    ("begin { print(is_array(5)); }", "bool", False),
    ("begin { print(is_integer(5)); }", "bool", True),
    ("begin { print(is_integer(true)); }", "bool", False),
    ("begin { print(is_integer(curtask)); }", "bool", False),
    ("begin { print(is_ptr(curtask)); }", "bool", True),
    ("begin { print(is_ptr(pid)); }", "bool", False),
    ("begin { print(is_str(\"a\")); }", "bool", True),
    ("begin { print(is_str(5)); }", "bool", False),
    ("begin { print(is_unsigned_integer(pid)); }", "bool", True),
    ("begin { print(is_unsigned_integer(-5)); }", "bool", False),
    ("begin { print(is_literal(5)); }", "bool", True),
    ("begin { print(is_literal(-5)); }", "bool", True),
    ("begin { print(is_literal(\"a\")); }", "bool", True),
    ("begin { print(is_literal(true)); }", "bool", True),
    ("begin { print(is_literal(pid)); }", "bool", False),
    ("begin { print(is_literal(in_scope)); }", "bool", True),
    ("begin { print(is_literal(-pid)); }", "bool", False),
    ("begin { print(default_str_length()); }", "uint64", 1024),
    ("begin { print(config(\"max_strlen\")); }", "int16", 1024),
    ("begin { print(config(\"license\")); }", "string[4]", b"GPL"),
    ("begin { print(config(\"cpp_demangle\")); }", "bool", True),
    ("begin { print(config()); }",
     "(cache_user_symbols=string[5],cpp_demangle=bool,debuginfod_lines=bool,lazy_symbolication=bool,license=string[4],log_size=int32,mark_unreadable=bool,max_bpf_progs=int16,max_cat_bytes=int16,max_loop_iterations=int32,max_map_keys=int16,max_memory=string[1],max_metric_series=int16,max_probes=int16,max_rate=int8,max_stack_depth=int8,max_strlen=int16,missing_probes=string[6],on_stack_limit=int8,perf_rb_pages=int8,print_maps_on_exit=bool,python_frames=bool,raw_tracepoints=string[5],short_generics=bool,show_debug_info=bool,use_blazesym=bool,stack_mode=string[9],stack_unwinding=string[8],str_trunc_trailer=string[3],syscall_tracepoints=string[5],watchdog=int8,unstable_tseries=string[5],unstable_dw_ustack=string[5],unstable_typeinfo=string[6],unstable_import_statement=string[6])", None),
    ("begin { print(kfunc_exist(\"vfs_read\")); }", "bool", True),
    ("begin { print(kfunc_exist(\"nothing\")); }", "bool", False),
    ("begin { print(kfunc_allowed(\"vfs_read\")); }", "bool", True),
    ("begin { print(kfunc_allowed(\"nothing\")); }", "bool", False),
    ("begin { print(probe_exist(\"kprobe:vfs_read\")); }", "bool", True),
    ("begin { print(probe_exist(\"kprobe:nothing\")); }", "bool", False),
    ("begin { print(probe_exist(\"kprobe:vfs_*\")); }", "bool", True),
    ("begin { print(probe_exist(\"interval:s:1\")); }", "bool", True),
    ("begin { print(type_exist(struct task_struct)); }", "bool", True),
    ("begin { print(type_exist(struct task_struct *)); }", "bool", True),
    ("begin { print(type_exist(struct nothing)); }", "bool", False),
    ("begin { print(type_exist(nothing_t)); }", "bool", False),
    ("begin { print(type_exist(uint64)); }", "bool", True),
    ("struct mine { int a; struct { int b; }; struct { int config; } c; }; begin { print(type_exist(struct mine)); }",
     "bool", True),
    ("struct mine { int a; }; begin { print(member_exist(struct mine, a)); }", "bool", True),
    ("struct mine { int a; }; begin { print(member_exist(struct mine, b)); }", "bool", False),
    ("struct mine { struct { int b; }; }; begin { print(member_exist(struct mine, b)); }", "bool", True),
    ("struct mine { struct { int config; } c; }; begin { print(member_exist(struct mine, c.config)); }", "bool", True),
    ("struct mine { struct { int x; } c; }; begin { print(member_exist(struct mine, c.y)); }", "bool", False),
    ("struct mine { struct { int x; } c; }; begin { $p = (struct mine *)1; print(member_exist($p, c.x)); }",
     "bool", True),
    ("struct mine { int a; }; macro has(T, m) { member_exist(T, m) } begin { print(has(struct mine, a)); }",
     "bool", True),
    ("struct mine { int a; };\n#define a 5\nbegin { print(member_exist(struct mine, a)); }", "bool", True),
    ("struct mine { int a; }; macro a() { 5 } begin { print(member_exist(struct mine, a)); }",
     "bool", True),
    ("begin { print(member_exist(struct nothing, a)); }", "bool", False),
    ("enum e { ONE }; begin { print(constant_exist(\"ONE\")); }", "bool", True),
    ("#define TWO 2\nbegin { print(constant_exist(\"TWO\")); }", "bool", True),
    ("begin { print(constant_exist(\"NO_SUCH_CONSTANT\")); }", "bool", False),
    ("begin { print(symbol_exist(\"no_such_symbol\")); }", "bool", False),
    ("begin { print(symbol_exist(\"jiffies\")); }", "bool", True),
    ("begin { print(one_of(443, \"80, 443\")); }", "bool", True),
    ("begin { print(one_of(44, \"80, 443\")); }", "bool", False),
    ("begin { print(one_of(443, \"0x1bb\")); }", "bool", True),
    ("begin { print(one_of(\"b\", \"a, b ,c\")); }", "bool", True),
    ('begin { print(one_of("b", "a\\nb\\nc")); }', "bool", True),
    ("begin { print(one_of(pid, \"\")); }", "bool", False),
    ("begin { print(one_of(pid, \" \")); }", "bool", False),
    ("begin { print(one_of(pid, \"80,443\")); }", "bool", None),
    ("begin { print(one_of(comm, \"a,b\")); }", "bool", None),
    ("config = { max_strlen = 99 } begin { print(default_str_length()); }", "uint64", 99),
    # process family
    ("begin { print(pid); }", "uint32", None),
    ("begin { print(tid); }", "uint32", None),
    ("begin { print(pid(init)); }", "uint32", None),
    ("begin { print(tid(curr_ns)); }", "uint32", None),
    ("begin { print(comm); }", "string[16]", None),
    ("begin { print(cpu); }", "uint32", None),
    ("begin { print(uid); }", "uint64", None),
    ("begin { print(gid); }", "uint64", None),
    ("begin { print(cgroup); }", "uint64", None),
    ("begin { print(numaid); }", "uint32", None),
    ("begin { print(rand); }", "uint32", None),
    ("begin { print(cpid); }", "uint32", None),
    ("begin { print(has_cpid); }", "bool", False),
    ("begin { print(ncpus); }", "uint64", 4),
    ("begin { print(curtask); }", "struct task_struct *", None),
    ("begin { print(username); }", "username", None),
    ("begin { print(netns); }", "netns_t", None),
    ("begin { print(pcomm); }", "string[16]", None),
    ("begin { print(leader_comm(curtask)); }", "string[16]", None),
    ("begin { print(ppid); }", "int32", None),
    ("begin { print(leader_tid); }", "int32", None),
    ("begin { print(cgroupid(\"/sys/fs/cgroup\")); }", "uint64", 42),
    ("begin { print(cgroup_path(1)); }", "cgroup_path_t", None),
    # context family
    ("kprobe:vfs_read { print(arg3); }", "uint64", None),
    ("rawtracepoint:sched_switch { print(arg2); }", "uint64", None),
    ("kprobe:vfs_read { print(ctx); }", "void *", None),
    ("kprobe:vfs_read { print(func); }", "ksym_t", None),
    ("uprobe:/bin/true:main { print(func); }", "usym_t", None),
    ("begin { print(probe); }", "string[6]", b"begin"),
    ("kprobe:vfs_read, kprobe:tcp_sendmsg { print(probe); }", "string[19]", None),
    ("begin { print(probetype); }", "string[8]", b"special"),
    ("kprobe:vfs_read { print(probetype); }", "string[7]", b"kprobe"),
    ("kretprobe:vfs_read { print(retval); }", "int64", None),
    ("uretprobe:/bin/true:main { print(retval); }", "uint64", None),
    ("begin { print(usermode); }", "uint8", None),
    ("tracepoint:sched:sched_switch { print(args); }", "struct args(tracepoint:sched:sched_switch)", None),
    # string family
    ("begin { print(str(0)); }", "string[1024]", None),
    ("begin { print(str(0, 5)); }", "string[6]", None),
    ("begin { print(str(0, 0)); }", "string[1]", None),
    ("begin { print(str(0, pid)); }", "string[1024]", None),
    ("begin { print(str(\"abc\")); }", "string[4]", b"abc"),
    ("begin { print(str(\"abc\", 2)); }", "string[3]", b"ab"),
    ("begin { print(str(\"abc\", pid)); }", "string[4]", None),
    ("begin { print(str(comm)); }", "string[16]", None),
    ("begin { print(str(comm, 3)); }", "string[4]", None),
    ("begin { print(str(comm, 100)); }", "string[16]", None),
    ("begin { print(buf(\"abc\")); }", "buffer[4]", None),
    ("begin { print(buf(\"abc\", 2)); }", "buffer[2]", None),
    ("begin { print(buf(0, 8)); }", "buffer[8]", None),
    ("begin { print(buf(0, 0)); }", "buffer[1]", None),
    ("begin { print(buf(0, pid)); }", "buffer[1024]", None),
    ("begin { print(buf(curtask.bits)); }", "buffer[32]", None),
    ("begin { print(strcap(\"abc\")); }", "uint64", 4),
    ("begin { print(strcap(comm)); }", "uint64", 16),
    ("begin { print(strcap((int8*)0)); }", "uint64", 1024),
    ("begin { print(strlen(\"abc\")); }", "uint64", 3),
    ("begin { print(strlen(comm)); }", "uint64", None),
    ("begin { print(strlen(\"a\\x00b\")); }", "uint64", 1),
    ("begin { print(strcontains(\"a\", comm)); }", "bool", None),
    ("begin { print(strstr(\"a\", comm)); }", "int64", None),
    ("begin { print(strncmp(\"a\", comm, 3)); }", "uint64", None),
    ("begin { print(str_concat(\"ab\", comm)); }", "string[18]", None),
    ("begin { print(str_concat(\"ab\", str(0))); }", "string[1024]", None),
    ("begin { print(memcmp(\"ab\", comm, 2)); }", "int64", None),
    ("begin { print(bswap((uint16)0x1234)); }", "uint16", 13330),
    ("begin { print(bswap((uint32)1)); }", "uint32", 16777216),
    ("begin { print(bswap(nsecs)); }", "uint64", None),
    ("begin { print(bswap((uint8)5)); }", "uint8", 5),
    ("begin { print(strerror(1)); }", "string[64]", None),
    ("begin { print(signal_name(1)); }", "string[64]", None),
    ("begin { print(syscall_name(1)); }", "string[64]", None),
    ("fentry:vfs_getattr { print(path(args.path)); }", "string[1024]", None),
    ("fentry:vfs_getattr { print(path(args.path, 16)); }", "string[16]", None),
    ("begin { $s = comm; $s = str_concat($s, $s); print($s); }", "string[1024]", None),
    # symbol family
    ("begin { print(kaddr(\"vfs_read\")); }", "uint64", 18446744071581156704),
    ("begin { print(percpu_kaddr(\"jiffies_64\")); }", "uint64", None),
    ("begin { print(percpu_kaddr(\"jiffies_64\", 1)); }", "uint64", None),
    ("uprobe:/bin/true:main { print(uaddr(\"counter\")); }", "uint32 *", None),
    ("uprobe:/bin/true:main { print(uaddr(\"main\")); }", "uint64 *", None),
    ("uprobe:/bin/true:main { print(uaddr(\"table\")); }", "uint64 *", None),
    ("begin { print(ksym(5)); }", "ksym_t", None),
    ("begin { print(usym(5)); }", "usym_t", None),
    ("begin { print(kptr(5)); }", "int8", None),
    ("begin { print(uptr(nsecs) + 1); }", "uint64", None),
    ("begin { print(kptr((int8 *)5)); }", "int8 *", None),
    ("begin { print(uptr(curtask)); }", "struct task_struct *", None),
    ("begin { print(is_err(curtask)); }", "bool", None),
    ("kprobe:vfs_read { print(reg(\"ip\")); }", "uint64", None),
    # map family
    ("begin { @m[1] = 1; print(is_scalar(@m)); }", "bool", False),
    ("begin { @m = 1; print(is_scalar(@m)); }", "bool", True),
    ("begin { @m[1] = 1; print(len(@m)); }", "int64", None),
    ("begin { @s = kstack; print(len(@s)); }", "int64", None),
    ("begin { print(len(ustack)); }", "int64", None),
    ("begin { @m[1] = nsecs; $f = find(@m, 1, $v); print($v); }", "uint64", None),
    ("begin { @m[1] = count(); $f = find(@m, 1, $v); print($v); }", "int64", None),
    ("begin { @m[1] = 1; print(has_key(@m, 1)); }", "bool", None),
    ("begin { @m[1] = 1; print(delete(@m, 1)); }", "bool", None),
    ("begin { @m = 1; print(delete(@m)); }", "bool", None),
    # network family
    ("begin { print(pton(\"127.0.0.1\")); }", "uint8[4]", b"\x7f\x00\x00\x01"),
    ("begin { print(pton(\"::1\")); }",
     "uint8[16]", b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"),
    ("begin { print(ntop(1)); }", "inet", None),
    ("begin { print(macaddr(curtask)); }", "macaddr_t", None),
    ("begin { print(macaddr(pid)); }", "macaddr_t", None),
    ("begin { print(ifname(1)); }", "ifname_t", None),
    ("kprobe:tcp_sendmsg { print(macaddr(arg0)); }", "macaddr_t", None),
]
# fmt: on

test_values = values(VALUES)


def test_calls_depend_on_the_program_type_of_a_probe() -> None:
    kernel = Facts(missing=frozenset({"kfunc_kprobe"}))
    assert value('kprobe:vfs_read { print(kfunc_allowed("vfs_read")); }', kernel) == ("bool", False)
    assert value('kprobe:vfs_read { print(kfunc_exist("vfs_read")); }', kernel) == ("bool", True)
    script = 'begin { print(probe_exist("kprobe:vfs_read")); }'
    assert value(script, Facts(missing=frozenset({"kprobe"}))) == ("bool", False)
    script = 'begin { print(probe_exist("fentry:vfs_read")); }'
    assert value(script) == ("bool", True)
    assert value(script, Facts(missing=frozenset({"fentry"}))) == ("bool", False)


def test_arguments_of_a_probe() -> None:
    script = "kprobe:vfs_read { if comptime (member_exist(args, %s)) { print(1); } else { print(args.no_such); } }"
    assert not analyse(script % "count", UNSAFE).errors
    assert "no_such" in refused(script % "no_such_either")[1]
    script = "kprobe:vfs_read { if comptime (member_exist(args, count)) { print(args.count); } else { print(arg1); } }"
    assert not analyse(script, UNSAFE, RecordedKernel(prototypes=())).errors
    assert not analyse(script, UNSAFE, RecordedKernel()).errors


def test_entries_that_no_value_equals() -> None:
    place, message = warned('begin { print(one_of((uint8)pid, "1,300")); }')
    assert (place, message) == ("1:34-41", "300 in the list of one_of() never matches: the value is uint8")


# ------------------------------------------------------------------------------------------------------- process family

# ruff: noqa: E501 - one script a line




# fmt: off
# fmt: on



class WithTasks(Facts):
    """A kernel that finds tasks by their number for some programs."""

    def function(self, name: str, module: str = "") -> FunctionPrototype | None:
        found = FunctionPrototype("bpf_task_from_pid", "vmlinux", (("pid", INT32),), Pointer(VOID))
        return found if name == found.name else super().function(name, module)


def test_names_of_other_processes() -> None:
    script = "kprobe:vfs_read { print(comm(1)); }"
    assert refused(script)[1] == "comm() of another process needs a kernel with bpf_task_from_pid (6.2)"
    assert value(script, WithTasks()) == ("string[64]", None)
    some = WithTasks(missing=frozenset({"kfunc_kprobe"}))
    (error,) = analyse(script, kernel=some).diagnostics.errors
    assert error.message.startswith("comm() of another process is not possible in kprobe probes")
    assert "fentry" in error.hints[0]
    assert "kprobe" not in error.hints[0]


def test_numbers_and_filters_of_both_namespaces() -> None:
    for call, namespace in (("pid", "tracer"), ("tid(curr_ns)", "tracer"), ("pid(init)", "init")):
        program, node = last_value(f"begin {{ print({call}); }}")
        assert program.fact(node, PidNamespace).name == namespace
    program, node = last_value('begin { print(strftime("%F", 1)); print(cgroup_path(1, "a*")); }')
    assert program.fact(node, CgroupFilter).string == 1
    program = analyse("begin { print((ncpus, has_cpid)); }", CompileOptions(ahead=True)).checked()
    assert {item.what for item in program.loaded.values()} == {"cpus", "child"}


@pytest.mark.parametrize("name", ["netns", "ppid", "pcomm"])
def test_kernels_without_types(name: str) -> None:
    message = f"{name} needs the kernel's type information (BTF)"
    assert refused(f"begin {{ print({name}); }}", kernel=Facts(has_btf=False))[1] == message


def test_curtask_is_a_number_without_types() -> None:
    assert value("begin { print(curtask); }", Facts(has_btf=False)) == ("uint64", None)


# fmt: off
REFUSED_time = [
    ("begin { print(strftime(\"%F\", nsecs(monotonic))); }",
     "1:30-46", "the monotonic clock cannot be turned into a date"),
    ("begin { print(nsecs(\"boot\")); }", "1:15-28", "nsecs() takes monotonic, boot, tai, sw_tai"),
    ("begin { print(strftime(5, nsecs)); }", "1:24-25", "the format of strftime() must be a string literal"),
    ("begin { print(strftime(\"%Y\", \"x\")); }",
     "1:15-34", "the time of strftime() must be an integer, not string[2]"),
    ("begin { print(strftime(comm, nsecs)); }", "1:24-28", "the format of strftime() must be a string literal"),
    ("begin { time(5); }", "1:14-15", "the format of time() must be a string literal"),
]
VALUES_time = [
    ("begin { print(nsecs); }", "uint64", None),
    ("begin { print(nsecs(sw_tai)); }", "uint64", None),
    ("begin { print(elapsed); }", "uint64", None),
    ("begin { print(jiffies); }", "uint64", None),
    ("begin { print(strftime(\"%F\", nsecs)); }", "timestamp", None),
]
# fmt: on

test_refused_time = refusals(REFUSED_time)
test_values_time = values(VALUES_time)


@pytest.mark.parametrize(("time", "clock"), [("nsecs", 0), ("5", 0), ("nsecs(boot)", 0), ("nsecs(tai)", 1), ("nsecs(sw_tai)", 2)])
def test_dates_know_their_clock(time: str, clock: int) -> None:
    program, node = last_value(f'begin {{ print(strftime("%F", {time})); }}')
    assert program.fact(node, DateFormat).clock == clock
    assert program.strings == ["%F"]


def test_times_and_clocks() -> None:
    first, second = analyse('begin { time(); time("%H"); }').checked().event_list
    assert (first.static, second.static) == (CurrentTime("%H:%M:%S\n"), CurrentTime("%H"))
    kernel = Facts(missing=frozenset({"tai_clock"}))
    assert refused("begin { print(nsecs(tai)); }", kernel=kernel)[1] == "the kernel has no helper for the tai clock"
    assert value("begin { print(nsecs(sw_tai)); }", kernel) == ("uint64", None)


# ------------------------------------------------------------------------------------------------------- context family

# fmt: off
# fmt: on



def arm() -> Facts:
    kernel = Facts()
    kernel.arch = "aarch64"
    return kernel


def test_other_machines_do_not_tell_user_mode() -> None:
    assert refused("begin { print(usermode); }", kernel=arm()) == ("1:15-23", "usermode is not available on aarch64")


def test_saved_registers_need_their_helper() -> None:
    message = "user_registers needs Linux 5.17 and the kernel's type information (BTF)"
    assert refused("begin { print(user_registers.di); }") == ("1:15-29", message)


# fmt: off
REFUSED_stack = [
    ("begin { kstack(0); }", "1:9-18", "kstack() takes 1 to 127 frames, not 0"),
    ("begin { print(kstack(128)); }", "1:15-26", "kstack() takes 1 to 127 frames, not 128"),
    ("begin { print(kstack(3, perf)); }", "1:15-30", "kstack() takes a mode and then a number of frames"),
    ("begin { $n = 3; print(kstack($n)); }",
     "1:23-33", "the number of frames of kstack() must be an integer literal"),
    ("begin { print(ustack(\"perf\")); }", "1:15-29", "the number of frames of ustack() must be an integer literal"),
    ("begin { print(kstack(build_id)); }", "1:15-31", "build_id is a mode of user stacks only"),
    ("begin { print(dw_ustack(foo)); }", "1:15-29",
     "'foo' is not a stack mode: bpftrace, perf, raw, build_id, folded, annotated, inverted"),
    ("begin { print(kstack(0)); }", "1:15-24", "kstack() takes 1 to 127 frames, not 0"),
    ("begin { print(dw_ustack(build_id)); }", "1:15-34", "dw_ustack has no build_id mode"),
    ("begin { print(pystack(build_id)); }", "1:15-32", "pystack has no build_id mode"),
    ("begin { print(pystack(raw, 3)); }", "1:15-30", "pystack has no raw mode"),
    ("begin { print(pystack(200)); }", "1:15-27", "pystack() takes 1 to 127 frames, not 200"),
    ("begin { print(ustack(perf, 0)); }", "1:15-30", "ustack() takes 1 to 127 frames, not 0"),
    ("begin { print(kstack(true)); }", "1:15-27", "the number of frames of kstack() must be an integer literal"),
    ("config = { unstable_dw_ustack = \"error\" } begin { print(dw_ustack); }",
     "1:57-66", "dw_ustack is unstable and disabled"),
]
# fmt: on

test_refused_stack = refusals(REFUSED_stack)


@pytest.mark.parametrize(
    ("call", "stack"),
    [
        ("kstack", Stack(False, 127, StackMode.BPFTRACE)),
        ("ustack", Stack(True, 127, StackMode.BPFTRACE)),
        ("kstack(127)", Stack(False, 127, StackMode.BPFTRACE)),
        ("kstack(raw)", Stack(False, 127, StackMode.RAW)),
        ("kstack(annotated, 5)", Stack(False, 5, StackMode.ANNOTATED)),
        ("ustack(folded)", Stack(True, 127, StackMode.FOLDED)),
        ("ustack(perf, 1)", Stack(True, 1, StackMode.PERF)),
        ("ustack(build_id)", Stack(True, 127, StackMode.BUILD_ID)),
    ],
)
def test_modes_and_frames(call: str, stack: Stack) -> None:
    program, node = last_value(f"begin {{ print({call}); }}")
    assert program.types[node] == stack


def test_unwinding_by_configuration_and_machine() -> None:
    program, node = last_value('config = { stack_mode = "perf" } begin { print(ustack(5)); }')
    assert program.types[node] == Stack(True, 5, StackMode.PERF)
    assert refused("begin { print(dw_ustack); }", kernel=arm()) == ("1:15-24", "dw_ustack is not available on aarch64")
    assert refused("begin { print(pystack); }", kernel=arm()) == ("1:15-22", "pystack is not available on aarch64")


class Sleepers(Facts):
    """A kernel that knows whether a task is on a CPU."""

    def struct(self, kind: str, name: str) -> Struct | None:
        found = super().struct(kind, name)
        if name != "task_struct" or found is None:
            return found
        return Struct("struct", name, 112, (*found.fields, Field("on_cpu", INT32, 104)), origin="vmlinux")


@pytest.mark.parametrize(
    ("stack", "missing", "what"),
    [
        ("kstack", "", "kstack of the tasks that an iterator visits needs type information with task_struct.on_cpu"),
        ("kstack", "get_task_stack", "needs the helper bpf_get_task_stack, which this kernel does not have"),
        ("ustack", "task_memory", "needs bpf_copy_from_user_task_str in iterators that may sleep (Linux 6.15)"),
        ("pystack", "none", "pystack is not available in iterators: it is a stack of the current task"),
        ("ustack(build_id)", "none", "build_id is a mode of stacks of the current task"),
    ],
)
def test_stacks_of_visited_tasks(stack: str, missing: str, what: str) -> None:
    kernel = Sleepers(missing=frozenset({missing})) if missing else Facts()
    _, text = refused(f"iter:task {{ print({stack}); }}", kernel=kernel)
    assert what in text


# -------------------------------------------------------------------------------------------------------- string family

# fmt: off
# fmt: on


# -------------------------------------------------------------------------------------------------------- symbol family

# ruff: noqa: E501 - one script a line




# fmt: off
# fmt: on





@pytest.mark.parametrize(
    ("name", "register", "kernel"),
    [("ip", "ip", Facts()), ("pc", "ip", Facts()), ("orig_rax", "orig_ax", Facts()), ("pc", "pc", arm()), ("r30", "r30", arm())],
)
def test_registers_by_machine(name: str, register: str, kernel: Facts) -> None:
    program, node = last_value(f'kprobe:vfs_read {{ print(reg("{name}")); }}', kernel)
    assert program.fact(node, RegisterName).register == register


@pytest.mark.parametrize(
    ("call", "space"),
    [
        ("kptr((int8 *)5)", AddressSpace.KERNEL),
        ("uptr((int8 *)5)", AddressSpace.USER),
        ("uptr(curtask)", AddressSpace.USER),
    ],
)
def test_pointers_get_their_memory(call: str, space: AddressSpace) -> None:
    program, node = last_value(f"begin {{ print({call}); }}")
    type_ = program.types[node]
    assert isinstance(type_, Pointer)
    assert (type_.space, type_.trusted) == (space, False)


def hints(kernel: Facts) -> list[str]:
    (error,) = analyse('begin { print(kaddr("nosuch_symbol")); }', kernel=kernel).diagnostics.errors
    return list(error.hints)


def test_kernels_that_list_functions_only_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hints(Facts()) == []
    functions = Facts()
    monkeypatch.setattr(functions, "kernel_symbol", lambda name: None)
    assert hints(functions) == [
        "/proc/kallsyms has functions only, no variables: this kernel was built without CONFIG_KALLSYMS_ALL"
    ]


# ----------------------------------------------------------------------------------------------------- aggregate family

# ruff: noqa: E501 - one script a line



# fmt: off
# fmt: on



KEPT = [
    ("count()", "count_t"), ("count", "count_t"), ("sum(nsecs)", "usum_t"), ("sum((int8)pid)", "sum_t"), ("sum(5)", "sum_t"),
    ("sum(18446744073709551615)", "usum_t"), ("sum(true)", "sum_t"), ("avg(nsecs)", "uavg_t"), ("avg(-5)", "avg_t"),
    ("min(nsecs)", "umin_t"), ("max((int32)1)", "max_t"), ("stats(nsecs)", "ustats_t"), ("hist(1)", "hist_t"),
    (f"lhist(1, 0, {MAX_BUCKETS}, 1)", "lhist_t"), (f"tseries(1, 1s, {MAX_INTERVALS - 1})", "tseries_t"),
]  # fmt: skip


@each_row(("call", "type_"), KEPT)
def test_types_of_maps(call: str, type_: str) -> None:
    assert str(analyse(f"begin {{ @ = {call}; }}").checked().maps["@"].value) == type_


def test_time_series_are_unstable() -> None:
    result = analyse('begin { @ = tseries(1, 1s, 10); @b = tseries(1, 1s, 5, "avg"); }')
    assert [place for place, _ in result.warnings] == ["1:13-31", "1:38-62"]


def test_constants_take_the_sign_of_their_company() -> None:
    assert str(analyse("begin { @ = sum(5); @ = sum(nsecs); }").checked().maps["@"].value) == "usum_t"


# ----------------------------------------------------------------------------------------------------------- map family

# fmt: off
# fmt: on



def test_which_map_and_key_a_call_means() -> None:
    """``delete(@m[k])`` is the old form of ``delete(@m, k)``."""
    for call, keys in (("delete(@m, 1)", 1), ("delete(@m[1])", 1), ("has_key(@m, 1)", 1), ("len(@m)", 0)):
        program, node = last_value(f"begin {{ @m[1] = 1; print({call}); }}")
        access = program.fact(node, MapAccess)
        assert (access.map, len(access.keys)) == ("@m", keys), call


# ------------------------------------------------------------------------------------------------------- network family

# fmt: off
# fmt: on



@pytest.mark.parametrize(
    ("call", "family"),
    [
        ("ntop(1)", 2), ("ntop(2, 1)", 2), ("ntop(10, curtask)", 10), ('ntop(pton("1.2.3.4"))', 2),
        ('ntop(pton("::1"))', 10), ('ntop(2, pton("1.2.3.4"))', 2), ("ntop(pid, 1)", None),
    ],
)  # fmt: skip
def test_families(call: str, family: int | None) -> None:
    program, node = last_value(f"begin {{ print({call}); }}")
    assert program.fact(node, NetworkAddress).family == family


# -------------------------------------------------------------------------------------------------------- python family

@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print(pystr((1, 2)));", "pystr() takes an argument or result of a Python function, not (int8,int8)"),
        ("print(pyint(\"a\"));", "pyint() takes an argument or result of a Python function, not string[2]"),
        ("print(pyfloat(\"a\"));", "pyfloat() takes an argument or result of a Python function, not string[2]"),
        ("@ = sum(pyfloat(args.x));", "sum() takes an integer, not double"),
        ("print(pystr(args.x, 5000));", "the size of pystr() must be 1 to 1023, not 5000"),
        ("print(str(args.x));", "str() reads C strings, and this is a Python object"),
        ("print(args);", "python probes have no args here"),
    ],
)  # fmt: skip
def test_mistakes(body: str, message: str) -> None:
    assert message in refused(f"python:a.py:f {{ {body} }}", CompileOptions(child=True), KERNEL)[1]


def test_python_family_values() -> None:
    body = "@[func, pystr(args.name, 16)] = sum(pyint(args.n)); if (args.x == 0) { print(args.x); }"
    assert compiled(f"python:a.py:f {{ {body} }}").elf
