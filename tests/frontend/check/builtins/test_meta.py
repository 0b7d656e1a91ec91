"""Builtins that are evaluated at compile time."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from tests.frontend.checking import refused, value
from tests.support.recorded import Facts

# fmt: off
REFUSED = [
    ("begin { static_assert(1 == 2, \"no\"); }", "1:9-36", "no"),
    ("begin { output_format(\"csv\"); output_format(\"csv\"); output_format(\"json\"); }",
     "1:53-74", "another output_format() says 'csv'"),
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
    ("begin { fail(\"%d\", pid); }", "1:20-23", "the values of fail() must be literals"),
    ("begin { static_assert(1, comm); }", "1:26-30", "the message of static_assert() must be a string literal"),
    ("begin { print(getopt(pid)); }", "1:22-25", "the name of a parameter must be a string literal"),
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
    ("begin { print(is_literal(-pid)); }", "bool", False),
    ("begin { print(default_str_length()); }", "uint64", 1024),
    ("begin { print(config(\"max_strlen\")); }", "int16", 1024),
    ("begin { print(config(\"license\")); }", "string[4]", b"GPL"),
    ("begin { print(config(\"cpp_demangle\")); }", "bool", True),
    ("begin { print(config()); }",
     "(cache_user_symbols=string[5],cpp_demangle=bool,lazy_symbolication=bool,license=string[4],log_size=int32,max_bpf_progs=int16,max_cat_bytes=int16,max_map_keys=int16,max_metric_series=int16,max_probes=int16,max_strlen=int16,missing_probes=string[6],on_stack_limit=int8,perf_rb_pages=int8,print_maps_on_exit=bool,show_debug_info=bool,use_blazesym=bool,stack_mode=string[9],str_trunc_trailer=string[3],unstable_tseries=string[5],unstable_dw_ustack=string[5],unstable_typeinfo=string[6],unstable_import_statement=string[6])", None),
    ("begin { print(kfunc_exist(\"vfs_read\")); }", "bool", True),
    ("begin { print(kfunc_exist(\"nothing\")); }", "bool", False),
    ("begin { print(kfunc_allowed(\"vfs_read\")); }", "bool", True),
    ("begin { print(kfunc_allowed(\"nothing\")); }", "bool", False),
    ("config = { max_strlen = 99 } begin { print(default_str_length()); }", "uint64", 99),
]
# fmt: on


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(("script", "type_", "constant"), VALUES)
def test_values(script: str, type_: str, constant: object) -> None:
    assert value(script) == (type_, constant)


def test_calls_of_kernel_functions_are_a_matter_of_the_program_type() -> None:
    kernel = Facts(missing=frozenset({"kfunc_kprobe"}))
    assert value('kprobe:vfs_read { print(kfunc_allowed("vfs_read")); }', kernel) == ("bool", False)
    assert value('kprobe:vfs_read { print(kfunc_exist("vfs_read")); }', kernel) == ("bool", True)
