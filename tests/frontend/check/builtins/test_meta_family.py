"""Builtins that are evaluated at compile time."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

from tests.frontend.checking import UNSAFE, refusals, refused, value, values, warned
from tests.support.facts import RecordedKernel
from tests.support.front import analyse
from tests.support.recorded import Facts

# fmt: off
REFUSED = [
    ("begin { static_assert(1 == 2, \"no\"); }", "1:9-36", "no"),
    ("begin { output_format(\"csv\"); output_format(\"csv\"); output_format(\"json\"); }",
     "1:53-74", "another output_format() says 'csv'"),
    ("begin { stack_layout(\"names\"); stack_layout(\"tree\"); }", "1:32-52", "stack_layout() has no 'tree'"),
    ("begin { output_format(comm); }", "1:23-27", "the format of output_format() must be a string literal"),
    ("begin { fail(\"bad %d %s\", 5, \"x\"); }", "1:9-34", "bad 5 x"),
    ("begin { print(config(\"foo\")); }", "1:15-28", "there is no configuration key 'foo'"),
    ("begin { print(assert_str(5)); }", "1:26-27", "this must be a string, not int8"),
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
]
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
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)


def test_calls_of_kernel_functions_are_a_matter_of_the_program_type() -> None:
    kernel = Facts(missing=frozenset({"kfunc_kprobe"}))
    assert value('kprobe:vfs_read { print(kfunc_allowed("vfs_read")); }', kernel) == ("bool", False)
    assert value('kprobe:vfs_read { print(kfunc_exist("vfs_read")); }', kernel) == ("bool", True)


def test_a_probe_that_cannot_be_attached_does_not_exist() -> None:
    script = 'begin { print(probe_exist("kprobe:vfs_read")); }'
    assert value(script, Facts(missing=frozenset({"kprobe"}))) == ("bool", False)
    script = 'begin { print(probe_exist("fentry:vfs_read")); }'
    assert value(script) == ("bool", True)
    assert value(script, Facts(missing=frozenset({"fentry"}))) == ("bool", False)


def test_arguments_of_a_probe() -> None:
    script = "kprobe:vfs_read { if comptime (member_exist(args, %s)) { print(1); } else { print(args.no_such); } }"
    assert not analyse(script % "count", UNSAFE).errors
    assert "no_such" in refused(script % "no_such_either")[1]


def test_arguments_of_a_probe_whose_types_are_unknown_do_not_exist() -> None:
    script = "kprobe:vfs_read { if comptime (member_exist(args, count)) { print(args.count); } else { print(arg1); } }"
    assert not analyse(script, UNSAFE, RecordedKernel(prototypes=())).errors
    assert not analyse(script, UNSAFE, RecordedKernel()).errors


def test_entries_that_no_value_equals() -> None:
    place, message = warned('begin { print(one_of((uint8)pid, "1,300")); }')
    assert (place, message) == ("1:34-41", "300 in the list of one_of() never matches: the value is uint8")
