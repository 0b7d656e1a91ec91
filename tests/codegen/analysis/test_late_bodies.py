"""Bodies that may run when their system call returns, and those that keep their place."""

from __future__ import annotations

import pytest

from pytrace.codegen.emit.bodies import deciding_strings, late_body
from tests.support.front import analyse
from tests.support.recorded import TRACEPOINTS, Facts

_FIELDS = TRACEPOINTS["syscalls", "sys_enter_openat"]
_MORE = (("syscalls", "sys_enter_read"), ("syscalls", "sys_exit_openat"), ("raw_syscalls", "sys_enter"))
KERNEL = Facts()
KERNEL.events = {**TRACEPOINTS, **dict.fromkeys(_MORE, _FIELDS)}

OPENS = "t:syscalls:sys_enter_openat"
NAME = "str(args.filename)"
VALUES = " begin { @on = 1; @x[1] = 1; }"


def late(text: str) -> tuple[int, int] | None:
    """How many strings of the first probe postpone it, and how many are read before it."""
    checked = analyse(text, kernel=KERNEL).checked()
    found = late_body(checked, checked.units[0])
    return None if found is None else (len(found.reads), len(found.ahead))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (f"@[{NAME}] = count();", (1, 0)),
        (f"@[comm, {NAME}, pid] = sum(args.dfd);", (1, 0)),
        (f"@[{NAME}]++;", (1, 0)),
        (f"@[{NAME}] = nsecs; @old[{NAME}] = max(elapsed);", (1, 1)),
        (f"@[{NAME}] = nsecs(monotonic);", (1, 0)),
        (f"@y = {NAME};", (1, 0)),
        (f'if ({NAME} == "/etc/passwd") {{ @n = count(); }} else {{ @m = count(); }}', (1, 0)),
        (f'$f = {NAME}; if (strcontains($f, "x")) {{ printf("%s", $f); }}', (1, 0)),
        (f"@n = count(); @[{NAME}] = count();", (0, 1)),
        (f"@[{NAME}] = count(); @m[{NAME}] = count();", (1, 1)),
        # Events with strings wait by themselves.
        (f'printf("%s", {NAME});', None),
        (f'@n = count(); printf("%s", {NAME});', None),
        # Another address than an argument of the call is not known before.
        (f"@n = count(); $p = args.filename + 1; @[{NAME}, str($p)] = count();", (0, 1)),
        # What may be another value later.
        (f"@[{NAME}] = jiffies;", None),
        (f"@[{NAME}, cpu] = count();", None),
        (f"@[{NAME}, rand] = count();", None),
        (f"@[{NAME}, ustack] = count();", None),
        (f"@n += 1; @[{NAME}] = @n;", None),
        (f"if (@on) {{ @[{NAME}] = count(); }}", None),
        (f"$old = @x[1]++; @[{NAME}] = count();", None),
        (f"@[{NAME}] = count(); exit();", None),
        (f"@[{NAME}] = count(); delete(@x, tid);", None),
        (f"@[{NAME}] = count(); print(@);", None),
        (f"@[{NAME}] = count(); print(args);", None),
        (f"for ($i : 0..2) {{ @[{NAME}, $i] = count(); }}", None),
        ("@[args.dfd] = count();", None),
    ],
)
def test_bodies(body: str, wanted: tuple[int, int] | None) -> None:
    assert late(f"{OPENS} {{ {body} }}{VALUES if '@on' in body or '@x' in body else ''}") == wanted


@pytest.mark.parametrize(
    ("rest", "waits"),
    [
        ("t:syscalls:sys_exit_openat { print(@[tid]); delete(@, tid); }", True),
        ("interval:s:1 { print(@); clear(@); }", True),
        ("end { for ($kv : @) { print($kv); } }", True),
        ('t:syscalls:sys_enter_read { @[tid] = "x"; }', True),
        ("t:syscalls:sys_enter_read { print(@[tid]); }", False),
        ("interval:s:1 { for ($kv : @) { print($kv); } }", False),
    ],
)
def test_who_looks_for_what_it_writes(rest: str, waits: bool) -> None:
    assert (late(f"{OPENS} {{ @[tid] = {NAME}; }} {rest}") is not None) is waits


@pytest.mark.parametrize(
    ("probe", "waits"),
    [
        ("t:syscalls:sys_enter_openat", True),
        ("t:syscalls:sys_enter_execve", False),
        ("t:raw_syscalls:sys_enter", False),
        ("t:syscalls:sys_exit_openat", False),
    ],
)
def test_probes(probe: str, waits: bool) -> None:
    address = "args.filename" if "sys_enter_" in probe else "uptr(1)"
    assert (late(f"{probe} {{ @[str({address})] = count(); }}") is not None) is waits


@pytest.mark.parametrize(
    ("body", "strings"),
    [
        ("@[str(1), 2] = count(); print(str(2));", 1),
        ("$a = str(1); $b = str(2); @[$a] = $b;", 1),
        ("let $a = str(1); @x[comm, $a] = 1; @y[str(3)] = str(4);", 2),
        ("@[buf(1, 4)] = count(); print(buf(2, 4));", 1),
        ("@x = str(1);", 0),
        ('@x = str(1); @y = @x; if (@y == "a") { @n = count(); }', 1),
        ("@x[1] = str(1); @n[@x[1]] = count();", 1),
        ('if (str(1) == "x") { print(str(2)); }', 1),
        ('$hit = pid == 1 && str(1) != "x"; print($hit);', 1),
        ('print(strcontains(str(1), "x") ? "yes" : str(2));', 1),
        ('$a = str(1); $b = $a; if (!strncmp($b, "x", 1)) { print($b); }', 1),
        ("if (called(str(1))) { print(1); }", 1),
        ('delete(@x, str(1)); @x["a"] = 1;', 1),
        ('print((str(1), comm == "x")); $a = str(2); printf("%s", $a);', 0),
    ],
)
def test_strings_that_keys_and_conditions_use(body: str, strings: int) -> None:
    macro = 'macro called(s) { s == "x" } ' if "called(" in body else ""
    checked = analyse(f"{macro}begin {{ {body} }}").checked()
    assert len(deciding_strings(checked)) == strings


def test_strings_that_functions_use() -> None:
    same = 'fn same($p: int64): bool { $s = str($p); return $s == "x"; }'
    shown = "fn shown($p: int64): bool { print(str($p)); return true; }"
    checked = analyse(f"{same} {shown} begin {{ if (same(1) && shown(2)) {{ print(1); }} }}")
    assert len(deciding_strings(checked.checked())) == 1
