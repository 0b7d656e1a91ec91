"""Declarations and assignments: what variables and maps may hold."""

from __future__ import annotations

from tests.frontend.checking import refusals, values
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("begin { let $x: hist_t; }", "1:9-23", "a variable cannot be hist_t"),
    ("begin { @ = count(); @ += 1; }", "1:22-28", "@ is count_t, which only its function updates"),
    ("begin { let $x: void; }", "1:9-21", "a variable cannot be void"),
    ("begin { let $x: string = 5; }", "1:9-27", "$x is a string, this is int8"),
    ("begin { @h = hist(1); let $x = @h; }", "1:32-34", "a value of hist_t cannot be read by the script"),
    ("begin { $x = stats(1); }", "1:14-22", "stats() must be assigned to a map directly"),
    ("begin { @s = stats(1); $x = @s; }", "1:29-31", "stats_t cannot be stored in a variable"),
    ("begin { @c = count(); @c = 5; }", "1:23-29", "the value of @c is count_t, this is int8"),
    ("begin { @c += count(); }", "1:9-22", "count_t can only be assigned with ="),
    ("begin { @a = @b; @b = hist(1); }", "1:14-16", "a value of hist_t cannot be read by the script"),
    ("begin { @s = stats(1); @t = @s; }", "1:24-31", "@s is stats_t, which cannot be copied"),
]
VALUES = [
    ("begin { let $s: string = \"a\"; $s = comm; print($s); }", "string[16]", None),
    ("begin { let $x: uint8 = 1; $x += 300; print($x); }", "uint8", None),
    ("begin { $x = 1; $x += nsecs; print($x); }", "uint64", None),
    ("begin { @a = count(); @b = (int64)@a; print(@b + 0); }", "int64", None),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)



def test_copies_of_aggregations_show_how() -> None:
    (error,) = analyse("begin { @a = count(); @b = @a; }").diagnostics.errors
    assert error.message == "@a is count_t, which cannot be copied"
    assert error.hints == ("store its present value: (int64)@a",)
