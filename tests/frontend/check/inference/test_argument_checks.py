"""What the checks of several builtins share."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.types import BOOL, INT8, INT32, UINT8, Array, Pointer, String, Type
from pytrace.frontend.check.conversions import is_text, is_text_pointer, size_of_text
from tests.frontend.checking import refusals, warnings
from tests.support.front import analyse
from tests.support.rows import each_row

# fmt: off
REFUSED = [
    ("begin { @ = hist(1, true); }", "1:13-26", "the number of bits of hist() must be an integer literal"),
    ("begin { print(kstack(true)); }", "1:15-27", "the number of frames of kstack() must be an integer literal"),
    ("fn f(): int64 { print(args.x); return 1; } begin { print(f()); }", "1:23-27", "a function has no args"),
    ("kretprobe:vfs_read { print(args.x); }", "1:28-32", "kretprobe probes have no args here"),
    ("begin { print(strlen(int8)); }", "1:22-26", "a type cannot be an argument here"),
    ("begin { @ = lhist(1, \"a\", 2, 3); }", "1:13-32", "the minimum of lhist() must be an integer literal"),
    ("config = { unstable_typeinfo = \"error\" } begin { print(typeinfo(1)); }",
     "1:56-67", "typeinfo is unstable and disabled"),
]
WARNED = [
    ("config = { unstable_typeinfo = \"warn\" } begin { print(typeinfo(1)); }",
     "1:55-66", "typeinfo is unstable: its behaviour may change"),
]
# fmt: on

test_refused = refusals(REFUSED)
test_warned = warnings(WARNED)


@pytest.mark.parametrize(
    ("type_", "text", "pointer"),
    [
        (String(3), True, False), (Array(INT8, 4), True, False), (Array(UINT8, 4), True, False),
        (Array(INT32, 4), False, False), (Pointer(INT8), False, True), (Pointer(INT32), False, False), (BOOL, False, False),
    ],
)  # fmt: skip
def test_what_counts_as_text(type_: Type, text: bool, pointer: bool) -> None:
    assert (is_text(type_), is_text_pointer(type_)) == (text, pointer)


def test_sizes_of_texts() -> None:
    assert (size_of_text(String(3)), size_of_text(Array(INT8, 4))) == (3, 4)


@pytest.mark.parametrize(("setting", "errors", "warnings"), [("enable", 0, 0), ("warn", 0, 1), ("error", 1, 0)])
def test_unstable_features(setting: str, errors: int, warnings: int) -> None:
    result = analyse(f'config = {{ unstable_tseries = "{setting}" }} begin {{ @ = tseries(1, 1s, 3); }}')
    assert (len(result.errors), len(result.warnings)) == (errors, warnings)


def test_probes_without_args_say_what_there_is() -> None:
    (error,) = analyse("kprobe:vfs_read+4 { print(args.count); }").diagnostics.errors
    assert error.hints == ("use arg0, arg1 …",)


# fmt: off
REFUSED_formats = [
    ("begin { printf(\"%d\", comm); }", "1:9-27", "printf(): %d takes an integer, not string[16]"),
    ("begin { printf(\"%gr\", true); }", "1:9-28", "printf(): %gr takes an integer of GFP flags, not bool"),
    ("begin { printf(\"%r\", comm); }", "1:9-27", "printf(): %r takes a buffer, not string[16]"),
    ("begin { printf(\"%d\"); }", "1:9-21", "not enough values for printf(): the format takes 1, 0 given"),
    ("begin { printf(\"x\", 1); }", "1:9-23", "too many values for printf(): the format takes 0, 1 given"),
    ("begin { printf(\"%a\", 1); }", "1:9-24", "printf(): conversion '%a' is not supported"),
    ("begin { printf(\"%d\", 1.5); }", "1:9-26", "printf(): %d takes an integer, not double"),
    ("begin { printf(\"100% sure %d\", 1); }",
     "1:9-34", "not enough values for printf(): the format takes 2, 1 given"),
    ("begin { @h = hist(1); printf(\"%s\", @h); }", "1:36-38", "a value of hist_t cannot be read by the script"),
]
WARNED_formats = [
    ("begin { printf(\"%y\"); }", "1:9-21", "printf(): '%y' is not a conversion: the % is printed as it is"),
]
# fmt: on

test_refused_formats = refusals(REFUSED_formats)
test_warned_formats = warnings(WARNED_formats)


@each_row(
    ("conversion", "value"),
    [(c, v) for c in ("d", "i", "u", "o", "x", "X", "c", "p") for v in ("1", "true", "curtask", "pid")]
    + [("gr", "pid"), ("s", "pid"), ("s", "comm"), ("s", "(1, 2)"), ("r", 'buf("a")'), ("rx", 'buf("a")'), ("rh", 'buf("a")')],
)
def test_what_conversions_take(conversion: str, value: str) -> None:
    assert not analyse(f'begin {{ printf("%{conversion}", {value}); }}').errors


def test_a_space_is_a_flag() -> None:
    (error,) = analyse('begin { printf("100% done"); }').diagnostics.errors
    assert error.hints == ("'% d' is a conversion; write %% for a % sign",)
