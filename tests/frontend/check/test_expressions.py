"""Rules of expressions: members, calls, operators, casts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core.builtins import BUILTINS, Builtin
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import FunctionPrototype, ObjectFunction, RegisterPart, UserParameter
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import INT8, INT32, UINT8, UINT64, VOID, AddressSpace, Array, Field, Pointer, Struct, Type
from pytrace.frontend.check.expressions import MOST_NESTED
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import BoundsCheck, CheckedProgram, ImportedFunction, Signedness
from pytrace.pipeline import Compilation, front_end
from tests.frontend.checking import last_value, refusals, refused, value, values, warnings
from tests.support.facts import FILE, TASK, RecordedKernel, function
from tests.support.front import analyse
from tests.support.rows import each_row

# ruff: noqa: E501 - one script a line



# fmt: off
REFUSED = [
    ("begin { @a = hist(1); print((int64)@a); }", "1:36-38", "a value of hist_t cannot be read by the script"),
    ("begin { @a[1] = hist(1); print(@a[1]); }", "1:32-37", "a value of hist_t cannot be read by the script"),
    ("begin { print(comptime pid); }", "1:24-27", "this cannot be computed at compile time"),
    ("begin { $c = nsecs; print($c ? \"a\" : 5); }",
     "1:27-39", "the branches have different types, string[2] and int8"),
    ("begin { print(if (pid > 5) { 1 } else { \"s\" }); }",
     "1:15-46", "the branches have different types, int8 and string[2]"),
    ("begin { @x[@y] = 5; @y = hist(5); }", "1:12-14", "a value of hist_t cannot be read by the script"),
    ("begin { print(sarg0); }", "1:15-20", "unknown name 'sarg0'"),
    ("begin { print(undefd); }", "1:15-21", "unknown name 'undefd'"),
    ("begin { print(sizeof(nosuch)); }", "1:22-28", "unknown name 'nosuch'"),
    ("begin { @ = lhist(1, 0, 10, 1); $x = (uint64)@; }",
     "1:46-47", "a value of lhist_t cannot be read by the script"),
    ("begin { print(nothing); }", "1:15-22", "unknown name 'nothing'"),
    ("begin { print(strlen); }", "1:15-21", "strlen is a function: strlen(value)"),
    ("begin { @m[@h] = 1; @h = stats(1); }", "1:12-14", "stats_t cannot be a key"),
    ("begin { @m = 1; @m[1] = 1; }", "1:17-22", "@m has no key, so it cannot be indexed"),
    ("begin { @m[1] = 1; @m = 1; }", "1:20-22", "@m has keys, so it needs one here"),
    ("kprobe:vfs_read { @m[ctx] = 1; }", "1:22-25", "the context cannot be a key: it is gone after the probe"),
    ("begin { print((a=1, a=2)); }", "1:21-22", "syntax: the record has a field 'a' already"),
    ("begin { @h = hist(1); print((1, @h)); }", "1:33-35", "a value of hist_t cannot be read by the script"),
    ("begin { print(pid ? (1, 2) : 3); }", "1:15-31", "the branches have different types, (int8,int8) and int8"),
    ("begin { print(sargN); }", "1:15-20", "unknown name 'sargN'"),
    ("begin { print(\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"); }",
     "1:15-1041", "the string takes 1025 bytes, the limit is 1024"),
    # operators
    ("begin { $a = 1; $b = *$a; }", "1:22-25", "int8 is not a pointer"),
    ("begin { print(1 + \"a\"); }", "1:15-22", "operator + needs integers, not string[2]"),
    ("begin { print(*true); }", "1:15-20", "bool is not a pointer"),
    ("begin { print(comm < \"b\"); }", "1:15-25", "cannot compare string[16] with string[2] by <"),
    ("begin { print((1,2) == (1,2,3)); }", "1:15-31", "cannot compare (int8,int8) with (int8,int8,int8) by =="),
    ("begin { print((1,\"a\") == (\"a\",1)); }",
     "1:15-33", "cannot compare (int8,string[2]) with (string[2],int8) by =="),
    ("begin { $s = \"a\"; $s++; }", "1:19-23", "++ needs an integer, not string[2]"),
    ("begin { print(9223372036854775807 * 4); }",
     "1:15-38", "the result of 9223372036854775807 * 4 does not fit 64 bits"),
    ("begin { print(5 / 0); }", "1:15-20", "division by zero"),
    ("begin { if (\"abc\" == 5) { } }", "1:13-23", "cannot compare string[4] with int8 by =="),
    ("begin { print(username == \"root\"); }", "1:15-33", "cannot compare username with string[5] by =="),
    ("begin { print(netns == 4026531833); }", "1:15-34", "cannot compare netns_t with int64 by =="),
    ("begin { print(comm + 1); }",
     "1:15-23", "+ of a string needs constants: an integer skips characters, another string is appended"),
    ("begin { print(\"a\" + -1); }", "1:21-23", "cannot skip a negative number of characters"),
    ("begin { print(curtask * 2); }", "1:15-26", "cannot compute struct task_struct * * int8"),
    ("begin { print(curtask + curtask); }", "1:15-32", "cannot compute struct task_struct * + struct task_struct *"),
    ("begin { print(5 - curtask); }", "1:15-26", "cannot compute int8 - struct task_struct *"),
    ("begin { print(\"a\" - 1); }", "1:15-22", "operator - needs integers, not string[2]"),
    ("begin { print(-\"a\"); }", "1:16-19", "the operand of - must be an integer, not string[2]"),
    ("begin { print(~comm); }", "1:16-20", "the operand of ~ must be an integer, not string[16]"),
    ("begin { print(*(void *)0); }", "1:15-25", "a void pointer cannot be dereferenced"),
    ("begin { print(*comm); }", "1:15-20", "string[16] is not a pointer"),
    ("begin { print(curtask == comm); }", "1:15-30", "cannot compare struct task_struct * with string[16] by =="),
    ("begin { print((1, 2) < (1, 2)); }", "1:15-30", "cannot compare (int8,int8) with (int8,int8) by <"),
    ("begin { print(1 % 0); }", "1:15-20", "division by zero"),
    ("begin { $p = curtask; $p *= 2; }", "1:23-30", "cannot compute struct task_struct * * int8"),
    ("begin { $s = \"a\"; $s += 1; }", "1:19-26", "operator + needs integers, not string[2]"),
    ("begin { print(-9223372036854775809 - 1); }",
     "1:15-35", "the result of 0 - 9223372036854775809 does not fit 64 bits"),
    # casts
    ("enum e { A, B }; begin { $x = (enum e)7; }", "1:31-40", "7 is not a member of enum e"),
    ("begin { $x = (struct task_struct)0; }", "1:14-35", "nothing can be cast to struct task_struct"),
    ("begin { $x = (int8[3])5; }", "1:14-24", "int8 has 1 bytes, int8[3] has 3"),
    ("begin { @ = stats(1); print((int64)@); }", "1:29-37", "cannot cast stats_t to int64"),
    ("begin { print((enum task_state)3); }", "1:15-33", "3 is not a member of enum task_state"),
    ("begin { print((int8[3])(uint32)5); }", "1:15-33", "uint32 has 4 bytes, int8[3] has 3"),
    ("begin { print((int64[])(uint8)5); }", "1:15-32", "cannot cast uint8 to int64[0]"),
    ("begin { print((string[4])5); }", "1:15-27", "cannot cast int8 to string[4]"),
    ("begin { print((int64)(1, 2)); }", "1:15-28", "cannot cast (int8,int8) to int64"),
    ("begin { print((void)1); }", "1:15-22", "nothing can be cast to void"),
    ("begin { print((bool)(1, 2)); }", "1:15-27", "cannot cast (int8,int8) to bool"),
    ("begin { print((int8 *)(1, 2)); }", "1:15-29", "cannot cast (int8,int8) to int8 *"),
    ("begin { print((int32)comm); }", "1:15-26", "cannot cast string[16] to int32"),
    ("begin { print((uint8[2])300000); }", "1:15-31", "int32 has 4 bytes, uint8[2] has 2"),
    ("begin { print((int8 *)true); }", "1:15-27", "cannot cast bool to int8 *"),
    # members
    ("begin { $t = (1, 2); $i = 1; print($t[$i]); }", "1:39-41", "the index of a tuple must be a constant"),
    ("begin { $r = (a=1, b=2); print($r.c); }", "1:32-36", "the record has no field 'c'"),
    ("begin { $p = curtask; print($p->nosuch); }", "1:29-39", "struct task_struct has no member 'nosuch'"),
    ("begin { $a = 1; $b = $a.x; }", "1:22-26", "int8 has no member 'x'"),
    ("struct s { int a[4]; }; begin { $s = (struct s *)0; print($s.a[4]); }",
     "1:59-66", "index 4 is outside of int32[4], which has 4 elements"),
    ("tracepoint:sched:sched_switch { print(args.nosuch); }", "1:39-50", "tracepoint:sched:sched_switch has no argument 'nosuch'"),
    ("begin { print(curtask.nosuch); }", "1:15-29", "struct task_struct has no member 'nosuch'"),
    ("begin { print(pid.x); }", "1:15-20", "uint32 has no member 'x'"),
    ("begin { print(curtask.pdi); }", "1:15-26", "struct task_struct has no member 'pdi'"),
    ("begin { print((a=1).b); }", "1:15-22", "the record has no field 'b'"),
    ("begin { print((1, 2).2); }", "1:15-23", "the tuple has 2 fields, so there is no field 2"),
    ("begin { print((1, 2)[-1]); }", "1:15-25", "the tuple has 2 fields, so there is no field -1"),
    ("begin { print(5[1]); }", "1:15-19", "int8 cannot be indexed"),
    ("begin { print(((void *)0)[1]); }", "1:16-29", "void * cannot be indexed: the size of void is not known"),
    ("begin { print(curtask.bits[4]); }", "1:15-30", "index 4 is outside of uint64[4], which has 4 elements"),
    ("begin { print(curtask.bits[-1]); }", "1:15-31", "index -1 is outside of uint64[4], which has 4 elements"),
    ("begin { print(curtask.bits[comm]); }", "1:28-32", "the index must be an integer, not string[16]"),
    ("begin { print(pid.0); }", "1:15-20", "uint32 is not a tuple"),
    ("begin { print(((struct nothing2 *)0)[1]); }", "1:17-34", "unknown struct 'nothing2'"),
    ("tracepoint:sched:sched_switch { print(args.next_pdi); }", "1:39-52", "tracepoint:sched:sched_switch has no argument 'next_pdi'"),
    # calls
    ("fn add($a: int64): int64 { return $a; } begin { print(add(\"x\")); }",
     "1:59-62", "$a of add() is int64, this is string[2]"),
    ("fn add($a: int64): int64 { return $a; } begin { print(add(1, 2)); }",
     "1:55-64", "add() takes 1 argument, not 2"),
    ("kprobe:vfs_read { for ($i : 0..5) { print(arg0); } }", "1:43-47", "arg0 cannot be read inside a for loop"),
    ("begin { print(retval); }", "1:15-21", "retval is not available in begin probes"),
    ("begin { print(func); }", "1:15-19", "func is not available in begin probes"),
    ("begin { reg(\"ip\"); }", "1:9-18", "reg is not available in begin probes"),
    ("begin { printff(\"x\"); }", "1:9-21", "unknown function 'printff'"),
    ("tracepoint:sched:sched_switch { print(ctx); }", "1:39-42", "ctx is not available in tracepoint probes"),
    ("tracepoint:sched:sched_switch { print(arg0); }", "1:39-43", "arg0 is not available in tracepoint probes"),
    ("begin { print(comm(1, 2)); }", "1:15-25", "comm() takes 0 to 1 arguments, not 2"),
    ("begin { print(cpu(1)); }", "1:15-21", "cpu() takes no arguments, not 1"),
    ("begin { print(ncpus(\"x\")); }", "1:15-25", "ncpus() takes no arguments, not 1"),
    ("begin { print(nsecs(boot, tai)); }", "1:15-31", "nsecs() takes 0 to 1 arguments, not 2"),
    ("begin { print(netns(1)); }", "1:15-23", "netns() takes no arguments, not 1"),
    ("begin { print(ifname()); }", "1:15-23", "ifname() takes 1 argument, not 0"),
    ("begin { print(kstack(perf, 3, 4)); }", "1:15-33", "kstack() takes 0 to 2 arguments, not 3"),
    ("begin { @a[1] = 5; find(@a, 1); }", "1:20-31", "find() takes 3 arguments, not 2"),
    ("begin { @a[1] = 5; print(has_key(@a)); }", "1:26-37", "has_key() takes 2 arguments, not 1"),
    ("begin { print(is_array()); }", "1:15-25", "is_array() takes 1 argument, not 0"),
    ("begin { print(path(5)); }", "1:15-22", "path is not available in begin probes"),
    ("begin { print(socket_cookie(5)); }", "1:15-31", "socket_cookie is not available in begin probes"),
    ("begin { print(str(1, 2, 3)); }", "1:15-27", "str() takes 1 to 2 arguments, not 3"),
    ("begin { time(\"a\", \"b\"); }", "1:9-23", "time() takes 0 to 1 arguments, not 2"),
    ("begin { print(uaddr(\"main\")); }", "1:15-28", "uaddr is not available in begin probes"),
    ("begin { @ = count(1); }", "1:13-21", "count() takes no arguments, not 1"),
    ("begin { @ = min(); }", "1:13-18", "min() takes 1 argument, not 0"),
    ("begin { @ = lhist(1, 0, 10); }", "1:13-28", "lhist() takes 4 arguments, not 3"),
    ("begin { pid(1, 2); }", "1:9-18", "pid() takes 0 to 1 arguments, not 2"),
    ("begin { prin(1); }", "1:9-16", "unknown function 'prin'"),
    ("begin { print(elapsed(1)); }", "1:15-25", "elapsed() takes no arguments, not 1"),
    ("fn f($a: int8): int8 { return $a; } begin { print(f(300)); }", "1:53-56", "$a of f() is int8, this is int16"),
    ("fn f($a: int8): int8 { return $a; } begin { print(f()); }", "1:51-54", "f() takes 1 argument, not 0"),
    ("fn f($a: int64): int64 { return (int64)arg0; } begin { print(f(1)); }",
     "1:40-44", "arg0 is not available in functions"),
    ("begin { printf(); }", "1:9-17", "printf() takes 1 to 128 arguments, not 0"),
]
VALUES = [
    ("begin { print(5); }", "int8", 5),
    ("begin { print(128); }", "int16", 128),
    ("begin { print(-128); }", "int8", -128),
    ("begin { print(18446744073709551615); }", "uint64", 18446744073709551615),
    ("begin { print(true); }", "bool", True),
    ("begin { print(\"abc\"); }", "string[4]", b"abc"),
    ("begin { print(TASK_STOPPED); }", "enum task_state", 4),
    ("begin { print(()); }", "()", None),
    ("begin { print((1, \"a\")); }", "(int8,string[2])", None),
    ("begin { print((a=1, b=true)); }", "(a=int8,b=bool)", None),
    ("begin { print(pid ? 1 : 1000); }", "int16", None),
    ("begin { print(1 ? 5 : nothing); }", "int8", 5),
    ("begin { print(0 ? nothing : 5); }", "int8", 5),
    ("begin { print(pid ?: 5); }", "uint32", None),
    ("begin { print(5 ?: pid); }", "int8", 5),
    ("begin { print({ 7 }); }", "int8", 7),
    ("begin { print({ let $x = 7; $x }); }", "int8", None),
    ("begin { print(if (pid) { 1 } else { 300 }); }", "int16", None),
    ("begin { print(if (1) { 1 } else { 300 }); }", "int8", 1),
    ("begin { print(comptime (1 + 2)); }", "int8", 3),
    ("begin { print(comptime sizeof(int16)); }", "int8", 2),
    ("begin { @m = sum(nsecs); print((1, @m)); }", "(int8,uint64)", None),
    ("begin { @m[1] = avg(-1); print(@m[1]); }", "int64", None),
    ("begin { $x = 1; $x = nsecs; print($x); }", "uint64", None),
    ("begin { let $x; print($x); }", "int64", None),
    # operators
    ("begin { print(1 + 2); }", "int8", 3),
    ("begin { print(7 / 2); }", "int8", 3),
    ("begin { print(nsecs + 1); }", "uint64", None),
    ("begin { print(nsecs - 1); }", "int64", None),
    ("begin { print(nsecs - nsecs); }", "int64", None),
    ("begin { print(pid * 2); }", "uint64", None),
    ("begin { print((int8)pid + 1); }", "int64", None),
    ("begin { print(nsecs >> 1); }", "uint64", None),
    ("begin { print((int32)pid << 1); }", "int64", None),
    ("begin { print(-5 + nsecs); }", "int64", None),
    ("begin { print(nsecs & 255); }", "uint64", None),
    ("begin { print(~0); }", "uint64", 18446744073709551615),
    ("begin { print(~pid); }", "uint64", None),
    ("begin { print(-pid); }", "int64", None),
    ("begin { print(-5); }", "int8", -5),
    ("begin { print(-(uint8)5); }", "int64", -5),
    ("begin { print(!pid); }", "bool", None),
    ("begin { print(!5); }", "bool", False),
    ("begin { print(1 == 1); }", "bool", True),
    ("begin { print(pid == 1); }", "bool", None),
    ("begin { print(\"a\" == \"a\"); }", "bool", True),
    ("begin { print(\"a\" < \"b\"); }", "bool", True),
    ("begin { print(comm == \"x\"); }", "bool", None),
    ("begin { print(1 && 0); }", "bool", False),
    ("begin { print(0 && nothing); }", "bool", False),
    ("begin { print(1 || nothing); }", "bool", True),
    ("begin { print(pid && 1); }", "bool", None),
    ("begin { print(\"hello\" + 2); }", "string[4]", b"llo"),
    ("begin { print(\"ab\" + \"cd\"); }", "string[5]", b"abcd"),
    ("begin { print(\"ab\" + 5); }", "string[1]", b""),
    ("begin { print((int32 *)0 + 1); }", "int32 *", None),
    ("begin { print(1 + (int32 *)0); }", "int32 *", None),
    ("begin { print(*(int32 *)0); }", "int32", None),
    ("begin { print(*5); }", "uint64", None),
    ("begin { print(*kptr(5)); }", "uint64", None),
    ("begin { print(*curtask.real_parent.mm); }", "struct mm_struct", None),
    ("begin { print((1, 2) == (1, 3)); }", "bool", None),
    ("begin { print(TASK_STOPPED | 1); }", "uint64", 5),
    ("begin { print((int64)-1 < (uint64)1); }", "bool", True),
    ("begin { print(-1 < 5); }", "bool", True),
    ("begin { print(true + true); }", "int8", 2),
    ("begin { print(9223372036854775807 + 1); }", "uint64", 9223372036854775808),
    ("begin { $x = 1; print(&$x); }", "int8 *", None),
    ("begin { @m = 1; print(&@m); }", "int8 *", None),
    ("begin { $x = (uint8)1; print($x++); }", "uint64", None),
    ("begin { let $x: uint8 = 1; print($x++); }", "uint8", None),
    ("begin { $p = (int32 *)0; print($p++); }", "int32 *", None),
    ("begin { @m = nsecs; print(@m--); }", "int64", None),
    ("begin { @m[1] = 1; print(++@m[1]); }", "int64", None),
    # casts
    ("begin { print((uint8)300); }", "uint8", 44),
    ("begin { print((int8)200); }", "int8", -56),
    ("begin { print((uint64)-1); }", "uint64", 18446744073709551615),
    ("begin { print((int32)nsecs); }", "int32", None),
    ("begin { print((bool)5); }", "bool", True),
    ("begin { print((bool)0); }", "bool", False),
    ("begin { print((bool)\"\"); }", "bool", False),
    ("begin { print((bool)\"a\"); }", "bool", True),
    ("begin { print((enum task_state)4); }", "enum task_state", 4),
    ("begin { print((int64)curtask); }", "int64", None),
    ("begin { print((int64*)5); }", "int64 *", 5),
    ("begin { print((int8[4])(uint32)1); }", "int8[4]", None),
    ("begin { print((uint8[])(uint16)1); }", "uint8[2]", None),
    ("begin { print((uint8[8])5); }", "uint8[8]", None),
    ("begin { print((uint32)(uint8[4])(uint32)7); }", "uint32", None),
    ("begin { print((string[4])comm); }", "string[4]", None),
    ("begin { print((int8[])comm); }", "int8[16]", None),
    ("begin { print((uint64)ksym(5)); }", "uint64", None),
    ("begin { print((uint64)username); }", "uint64", None),
    ("begin { print((int8 *)curtask.bits); }", "int8 *", None),
    ("begin { print((int64)true); }", "int64", 1),
    ("begin { print((struct file *)curtask); }", "struct file *", None),
    # members
    ("begin { print(curtask.pid); }", "int32", None),
    ("begin { print(curtask->comm); }", "string[16]", None),
    ("begin { print(curtask.exit_code); }", "int32", None),
    ("begin { print(curtask.flag); }", "uint32", None),
    ("begin { print(curtask.bits); }", "uint64[4]", None),
    ("begin { print(curtask.bits[1]); }", "uint64", None),
    ("begin { print(curtask.real_parent.pid); }", "int32", None),
    ("begin { print((a=1, b=nsecs).b); }", "uint64", None),
    ("begin { print((1, nsecs).1); }", "uint64", None),
    ("begin { print((1, nsecs)[1]); }", "uint64", None),
    ("begin { print(comm[0]); }", "uint8", None),
    ("begin { print(((int32 *)0)[3]); }", "int32", None),
    ("begin { print(((struct path *)0)[1].mnt); }", "void *", None),
    ("tracepoint:sched:sched_switch { print(args.prev_comm); }", "string[16]", None),
    ("tracepoint:sched:sched_switch { print(args.next_pid); }", "int32", None),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)


def test_depth_of_values_and_length_of_literals() -> None:
    def script(levels: int) -> str:
        return f"begin {{ $x = {'(' * levels}1{',)' * levels}; }}"
    assert not analyse(script(MOST_NESTED)).errors
    assert refused(script(MOST_NESTED + 1))[1] == "values cannot be nested more than 64 levels deep"
    text = "x" * 1024
    (error,) = analyse(f'begin {{ print("{text}"); }}').diagnostics.errors
    assert error.hints == ("raise max_strlen in the config block to 1025 or more",)
    assert not analyse(f'config = {{ max_strlen = 1025 }} begin {{ print("{text}"); }}').errors
    assert not analyse(f'config = {{ max_strlen = 16 }} begin {{ print("{text[1:]}"); }}').errors


# ------------------------------------------------------------------------------------------------------------ operators

# ruff: noqa: E501 - one script a line



# fmt: off
WARNED = [
    ("begin { $a = (int32*)1; $b = (int64*)2; print($a == $b); }",
     "1:47-55", "compares pointers to different types, int32 * and int64 *"),
    ("begin { print((uint64)pid - 1); }", "1:15-23", "the difference is signed: this uint64 counts as int64"),
    ("begin { $a = (int64)pid; print($a < nsecs); }",
     "1:32-42", "compares signed with unsigned 64-bit integers, as signed ones"),
    ("begin { $a = (int64)pid; print($a + nsecs); }",
     "1:32-42", "mixes signed and unsigned 64-bit integers; the result is int64"),
    ("begin { $p = (int8 *)1; print(kptr($p) == uptr($p)); }",
     "1:31-51", "compares a pointer into kernel memory with one into user memory"),
    ("begin { print(\"ab\" + 5); }", "1:15-23", "skips 5 characters of a string that has 2"),
    # casts
    ("begin { $a = (int32)nsecs; print((int32)$a); }", "1:34-41", "the value already has type int32"),
    ("begin { $a = (uint8)1; print((uint8)$a); }", "1:30-37", "the value already has type uint8"),
    ("begin { print((uint64)nsecs); }", "1:15-23", "the value already has type uint64"),
    # calls
    ("begin { strlen(\"abc\"); }", "1:9-22", "the value of this is not used"),
    ("begin { nsecs; }", "1:9-14", "the value of this is not used"),
    ("fn f(): int64 { return 1; } begin { f(); }", "1:37-40", "the value of this is not used"),
]
# fmt: on

test_warned = warnings(WARNED)


@each_row(
    ("expression", "signed"),
    [
        ("nsecs / 2", False), ("(int32)pid / 2", True), ("nsecs % 2", False), ("nsecs >> 1", False), ("(int8)pid >> nsecs", True),
        ("nsecs < 5", False), ("nsecs < -5", True), ("(int8)pid < 5", True), ("nsecs == nsecs", False),
        ("(uint64)pid < 18446744073709551615", False),
    ],
)  # fmt: skip
def test_signs(expression: str, signed: bool) -> None:
    program, node = last_value(f"begin {{ print({expression}); }}")
    assert program.fact(node, Signedness).signed is signed


# ---------------------------------------------------------------------------------------------------------------- casts

# ruff: noqa: E501 - one script a line




# fmt: off
# fmt: on



def test_no_warning_in_a_macro() -> None:
    checked = analyse("macro wide(n) { (uint64)(n) } begin { print((wide(nsecs), wide(1))); }")
    assert not checked.diagnostics.items


@pytest.mark.parametrize(
    ("operand", "space"),
    [
        ("curtask.bits", AddressSpace.KERNEL),
        ("(struct task_struct *)uptr(1)", AddressSpace.USER),
        ("@m", AddressSpace.BPF),
        ("(struct task_struct *)5", AddressSpace.NONE),
    ],
)
def test_pointers_stay_in_their_memory(operand: str, space: AddressSpace) -> None:
    program, node = last_value(f"begin {{ @m = (uint8[4])(uint32)1; print((int8 *){operand}); }}")
    type_ = program.types[node]
    assert isinstance(type_, Pointer)
    assert type_.space is space


@pytest.mark.parametrize("body", ["$a = 5; print((typeof($a))$a);", "@m = nsecs; print((uint64)@m);", "print((int8)5);"])
def test_casts_that_say_something(body: str) -> None:
    assert not analyse(f"begin {{ {body} }}").warnings


@pytest.mark.parametrize(
    "script",
    [
        "begin { print((int32)curtask.pid); }",
        "begin { print((struct task_struct *)curtask.real_parent); }",
        "begin { print((int32)curtask.real_parent.pid); }",
        "begin { print((int32)((struct task_struct *)5).pid); }",
        "tracepoint:sched:sched_switch { print((int32)args.next_pid); }",
    ],
)
def test_types_of_the_machine_may_be_cast(script: str) -> None:
    """Another kernel may have other types, which a portable script casts."""
    assert not analyse(script).diagnostics.items


def test_casts_of_known_types() -> None:
    checked = analyse("begin { print((struct task_struct *)curtask); }")
    assert [message for _, message in checked.warnings] == ["the value already has type struct task_struct *"]
    script = "struct own { int n; int a[2]; struct { int m; } in; }; begin { $p = (struct own *)5; "
    for member in ("n", "a[1]", "in.m"):
        checked = analyse(f"{script} print((int32)$p.{member}); }}")
        assert [message for _, message in checked.warnings] == ["the value already has type int32"]
    assert not analyse("macro wide(n) { (uint64)n } begin { print((wide(nsecs), wide(cpu))); }").warnings


# -------------------------------------------------------------------------------------------------------------- members

# ruff: noqa: E501 - one script a line




# fmt: off
# fmt: on

ITEM = Struct(
    "struct",
    "item",
    24,
    (Field("n", INT32, 0), Field("of", Array(Struct("struct", "part", 8, (), "app"), 1), 8)),
    "app",
)
LOST = RecordedKernel(
    parameters={
        ("/bin/app", "work"): (
            UserParameter("rate", Array(UINT8, 8), "", lost=("",)),
            UserParameter("item", ITEM, "", parts=(RegisterPart(0, 4, "ax"),), lost=("price", "of.price")),
        )
    }
)


@pytest.mark.parametrize("name", ["args.rate", "args.item.price", "args.item.of[0].price"])
def test_what_is_in_floating_point_registers(name: str) -> None:
    reason = f"{name.replace('[0]', '')} is in a floating-point register, which BPF programs cannot read"
    assert refused(f"uprobe:/bin/app:work {{ print({name}); }}", kernel=LOST)[1] == reason
    assert value("uprobe:/bin/app:work { print(args.item.n); }", LOST) == ("int32", None)
    assert refused("uprobe:/bin/app:work { print(args.item.x); }", kernel=LOST)[1] == "struct item has no member 'x'"




@pytest.mark.parametrize(
    ("script", "space", "trusted"),
    [
        ("begin { print(curtask.real_parent); }", AddressSpace.KERNEL, True),
        ("begin { print(curtask.user_buffer); }", AddressSpace.USER, False),
        ("begin { print(((struct task_struct *)uptr(1)).mm); }", AddressSpace.USER, False),
        ("tracepoint:syscalls:sys_enter_openat { print(args.filename); }", AddressSpace.USER, False),
        ("iter:task { print(ctx.task); }", AddressSpace.KERNEL, False),
    ],
)
def test_pointers_point_into_the_memory_of_their_holder(script: str, space: AddressSpace, trusted: bool) -> None:
    program, node = last_value(script)
    type_ = program.types[node]
    assert isinstance(type_, Pointer)
    assert (type_.space, type_.trusted) == (space, trusted)


@pytest.mark.parametrize(("index", "checked"), [("1", False), ("pid", True)])
def test_only_an_unknown_index_is_checked_when_the_script_runs(index: str, checked: bool) -> None:
    program, node = last_value(f"begin {{ print(curtask.bits[{index}]); }}")
    assert program.fact(node, BoundsCheck).needed is checked


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { print(curtask.pdi); }", "pid"),
        ("begin { print(pid.x); }", "cast it to a pointer to a struct first"),
        ("tracepoint:sched:sched_switch { print(args.what); }", "there are prev_comm, next_pid"),
    ],
)
def test_hints(script: str, hint: str) -> None:
    assert hint in analyse(script).diagnostics.errors[0].hints[0]


# fmt: off
REFUSED_type_queries = [
    ("struct s { int a; } begin { print(offsetof(struct s, b)); }", "1:35-56", "struct s has no member 'b'"),
    ("struct s { int a; } begin { print(offsetof(struct s, a.b)); }", "1:35-58", "int32 has no member 'b'"),
    ("begin { print(offsetof(struct task_struct, flag)); }",
     "1:15-49", "'flag' is a bitfield, which has no byte offset"),
    ("begin { print(offsetof(struct task_struct, pid[1])); }", "1:15-51", "int32 cannot be indexed by 1"),
    ("begin { print(offsetof(int64, x)); }", "1:15-33", "int64 has no member 'x'"),
    ("begin { print(offsetof(struct task_struct, pdi)); }", "1:15-48", "struct task_struct has no member 'pdi'"),
    ("begin { print(typeinfo(5)); }", "1:15-26", "typeinfo is unstable and disabled"),
]
VALUES_type_queries = [
    ("struct s { int a; char c[4]; }; begin { print(offsetof(struct s, c[3])); }", "int8", 7),
    ("begin { print(sizeof(struct task_struct)); }", "int8", 104),
    ("begin { print(sizeof(curtask.bits)); }", "int8", 32),
    ("begin { print(sizeof(nsecs)); }", "int8", 8),
    ("begin { print(sizeof(\"abc\")); }", "int8", 4),
    ("begin { print(offsetof(struct task_struct, tgid)); }", "int8", 4),
    ("begin { print(offsetof(struct task_struct, bits[2])); }", "int8", 72),
    ("begin { print(offsetof(curtask, comm)); }", "int8", 8),
    ("begin { print(offsetof(struct task_struct, bits[2])); }", "int8", 72),
    ("begin { print(offsetof(curtask, bits[0x3])); }", "int8", 80),
    ("begin { print(offsetof(struct task_struct, exit_word)); }", "int8", 40),
    ("struct a { int x; struct { char y[4]; } z[3]; }; begin { print(offsetof(struct a, z[2].y[1])); }", "int8", 13),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(curtask).full_type); }",
     "string[21]", b"struct task_struct *"),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(struct task_struct).btf_id); }", "int8", 7),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(5).btf_id); }", "int8", 0),
    ("config = { unstable_typeinfo = \"enable\" } begin { print(typeinfo(pid).base_type); }", "string[4]", b"int"),
]
# fmt: on

test_refused_type_queries = refusals(REFUSED_type_queries)
test_values_type_queries = values(VALUES_type_queries)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("sizeof(struct task_struct)", ("size", ("struct", "task_struct"))),
        ("offsetof(struct task_struct, tgid)", ("member", ("struct", "task_struct", "tgid", "int32"))),
        ("sizeof(int64)", None),
        ("offsetof(struct task_struct, bits[1])", None),
    ],
)
def test_files_compiled_ahead_ask_the_machine_that_runs_them(
    query: str, parts: tuple[str, tuple[str, ...]] | None
) -> None:
    program = analyse(f"begin {{ print({query}); }}", CompileOptions(ahead=True)).checked()
    (node,) = (item for item in walk(program.units[0].body) if isinstance(item, nodes.Sizeof | nodes.Offsetof))
    open_value = program.loaded.get(node)
    assert (open_value and (open_value.what, open_value.parts)) == parts
    assert (node in program.constants) is (parts is None)


_VECTOR = Struct("struct", "iovec", 16, (Field("iov_base", Pointer(VOID), 0), Field("iov_len", UINT64, 8)), origin="vmlinux")


_VECTORS = RecordedKernel(prototypes=(function("vfs_read", ("file", Pointer(FILE)), ("vec", Pointer(_VECTOR))),))


@pytest.mark.parametrize("verbose", [True, False])
def test_arguments_that_may_point_to_user_memory(verbose: bool) -> None:
    """Said once for each argument, however often it is used, but not of structs that only the kernel has."""
    script = "fentry:vfs_read { print(args.vec.iov_len); print(args.vec->iov_len); print(args.file.f_flags); }"
    found = analyse(script, CompileOptions(verbose=verbose), kernel=_VECTORS)
    assert not found.errors
    told = "args.vec may point to kernel or user memory: its members are read where its address is"
    assert [note.message for note in found.diagnostics.notes] == [told] * verbose
    marked = analyse(script.replace("args.vec", "uptr(args.vec)"), CompileOptions(verbose=verbose), kernel=_VECTORS)
    assert not marked.errors
    assert not marked.diagnostics.notes


# ---------------------------------------------------------------------------------------------------------------- calls

# fmt: off
# fmt: on



ANYWHERE = [row for row in BUILTINS if row.call and row.most is not None and row.probes is None]


@each_row("row", ANYWHERE, ids=lambda row: row.name)
def test_one_argument_too_many(row: Builtin) -> None:
    many = ", ".join("1" for _ in range((row.most or 0) + 1))
    place, message = refused(f"begin {{ @ = {row.name}({many}); }}")
    assert place.startswith("1:13-")
    assert message.startswith((f"{row.name}() takes", f"{row.name} takes"))


@pytest.mark.parametrize("name", ["system", "override", "write_user"])
def test_what_changes_the_system_asks_for_an_option(name: str) -> None:
    arguments = {"system": '"ls"', "override": "1", "write_user": "0, 0, 1"}[name]
    script = f"kprobe:vfs_read {{ {name}({arguments}); }}"
    (error,) = analyse(script).diagnostics.errors
    assert error.message == f"{name}() can change the system, so it needs --unsafe"
    assert error.hints == ("run with --unsafe",)
    assert not analyse(script, CompileOptions(unsafe=True)).errors


@pytest.mark.parametrize("body", ["delete(@m, 1);", "find(@m, 1, $v);", "_ = len(@m);"])
def test_results_that_need_no_use(body: str) -> None:
    result = analyse(f"begin {{ @m[1] = 1; {body} }}")
    assert not result.errors
    assert not result.warnings


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { prin(1); }", "did you mean 'print'"),
        ("fn twice($a: int8): int8 { return $a; } begin { print(twic(1)); }", "did you mean 'twice'"),
        ("begin { printf(); }", "printf("),
        ("begin { print(retval); }", "available in "),
    ],
)
def test_calls_hints(script: str, hint: str) -> None:
    assert hint in analyse(script).diagnostics.errors[0].hints[0]


ELF = b"\x7fELF\x02\x01" + bytes(12) + (247).to_bytes(2, "little") + bytes(60)
PAIR = Struct("struct", "pair", 8, (), origin="x")


def calls_function(name: str, *parameters: Type, result: Type = INT32, static: bool = False) -> ObjectFunction:
    named = tuple((f"p{at}", kind) for at, kind in enumerate(parameters))
    return ObjectFunction(FunctionPrototype(name, "x", named, result), static)


FUNCTIONS = [
    calls_function("plain", INT32, UINT64),
    calls_function("text", Pointer(INT8)),
    calls_function("anything", Pointer(VOID)),
    calls_function("task", Pointer(Struct("struct", "task_struct", 4, (), origin="x")), result=VOID),
    calls_function("same_task", result=Pointer(Struct("struct", "task_struct", 4, (), origin="x"))),
    calls_function("by_value", PAIR),
    calls_function("many", *[INT32] * 6),
    calls_function("hidden", static=True),
]


def check(body: str, folder: Path) -> tuple[CheckedProgram | None, list[str]]:
    file = folder / "x.bpf.o"
    file.write_bytes(ELF)
    kernel = RecordedKernel(objects={str(file): FUNCTIONS})
    diagnostics = Diagnostics()
    source = Source("t", f'import "{file}"; begin {{ {body} }}')
    try:
        found = front_end(Compilation(source, CompileOptions(), kernel, diagnostics)).checked
    except ScriptError:
        return None, [item.message for item in diagnostics.errors]
    return found, []


@pytest.mark.parametrize(
    "body",
    [
        "print(plain(5, 6));",
        "print(plain(pid, true));",
        '$s = "a"; print(text($s)); print(text("b")); print(text(comm)); print(text((int8 *)0));',
        'print(anything("a")); $x = 5; print(anything(&$x)); print(anything(curtask));',
        "task(curtask); task((void *)0);",
        "print(same_task().pid);",
    ],
)
def test_calls_that_fit(body: str, tmp_path: Path) -> None:
    found, errors = check(body, tmp_path)
    assert not errors
    assert found is not None
    assert found.objects == [ELF]
    assert any(isinstance(item, ImportedFunction) for item in found.calls.values())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("plain(5);", "plain() takes 2 arguments, not 1"),
        ('plain(5, "x");', "'p1' of plain() is uint64, this is string[2]"),
        ("text(5);", "'p0' of text() is int8 *, this is int8"),
        ("text(curtask);", "'p0' of text() is int8 *, this is struct task_struct *"),
        ("$x = 5; task(&$x);", "'p0' of task() is struct task_struct *"),
        ("by_value(5);", "cannot be called from a script"),
        ("many(1, 2, 3, 4, 5, 6);", "cannot be called from a script"),
        ("hidden();", "is static"),
        ("print(plian(1, 2));", "unknown function 'plian'"),
    ],
)
def test_calls_that_do_not_fit(body: str, message: str, tmp_path: Path) -> None:
    _, errors = check(body, tmp_path)
    assert message in " ".join(errors)


def test_structs_of_results_are_the_kernels(tmp_path: Path) -> None:
    found, _ = check("$t = same_task(); print($t.pid);", tmp_path)
    assert found is not None
    (result,) = {item.result for item in found.calls.values() if isinstance(item, ImportedFunction)}
    assert isinstance(result, Pointer)
    assert result.target == TASK
