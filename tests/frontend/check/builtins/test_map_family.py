"""Builtins on maps: with and without keys, what they read, and what they tell at compile time."""


from __future__ import annotations

from pytrace.frontend.syntax.typed_program import MapAccess
from tests.frontend.checking import last_value, refusals, values

# fmt: off
REFUSED = [
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
]
VALUES = [
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
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)


def test_which_map_and_key_a_call_means() -> None:
    """``delete(@m[k])`` is the old form of ``delete(@m, k)``."""
    for call, keys in (("delete(@m, 1)", 1), ("delete(@m[1])", 1), ("has_key(@m, 1)", 1), ("len(@m)", 0)):
        program, node = last_value(f"begin {{ @m[1] = 1; print({call}); }}")
        access = program.fact(node, MapAccess)
        assert (access.map, len(access.keys)) == ("@m", keys), call
