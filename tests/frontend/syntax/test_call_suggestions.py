"""``--fmt --suggest``: which pairs of an entry and a return become a ``call:``, and why others stay."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import call_suggestions

# ruff: noqa: ISC004
ENTER, EXIT = "tracepoint:syscalls:sys_enter_read", "tracepoint:syscalls:sys_exit_read"


def suggested(text: str) -> tuple[str, list[str]]:
    """The script with runs of blanks as one, and the reasons why pairs stay, empty where they do not."""
    diagnostics = Diagnostics()
    result, pairs = call_suggestions.suggest(Source("script", text), diagnostics)
    assert not diagnostics.items
    return " ".join(result.split()), [pair.reason for pair in pairs]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (f"{ENTER} {{ @s[tid] = nsecs; }} {EXIT} /@s[tid]/ {{ @ = hist((nsecs - @s[tid]) / 1000); delete(@s[tid]); }}",
         "syscall:read { @ = hist(duration / 1000); }"),
        (f"let @s = hash(10); {ENTER} {{ @s[tid] = args.fd; }} "
         f"{EXIT} /@s[tid] && args.ret > 0/ {{ @[@s[tid]] = sum(args.ret); delete(@s, tid) }} end {{ clear(@s); }}",
         "syscall:read /args.fd && retval > 0/ { @[args.fd] = sum(retval); }"),
        ("uprobe:libc:malloc /comm == \"a\"/ { @n[tid] = arg0; @w[tid] = ustack(5); @t[tid] = str(arg0) } "
         "uretprobe:libc:malloc /comm == \"a\" && @n[tid] != 0 && (retval == 0 || pid == 1)/ "
         "{ print((@n[tid], @t[tid])); @[@w[tid]] = count(); _ = delete(@n, tid); delete(@w[tid]); delete(@t[tid]); } "
         "end { clear(@n); clear(@w); clear(@t); print(@); }",
         "call:libc:malloc /comm == \"a\" && arg0 && (retval == 0 || pid == 1)/ "
         "{ print((arg0, entry(str(arg0)))); @[entry_ustack(5)] = count(); } end { print(@); }"),
        ("k:vfs_read, kprobe:vfs_write { @s[tid] = nsecs; @f[tid] = func } "
         "kr:vfs_read, kretprobe:vfs_write /has_key(@s, tid)/ "
         "{ $d = nsecs - @s[tid]; @[@f[tid]] = max($d); delete(@s[tid]); delete(@f[tid]); }",
         "call:kernel:vfs_read, call:kernel:vfs_write { $d = duration; @[entry(func)] = max($d); }"),
        ("fentry:vfs_read { @s[tid] = nsecs } fexit:vfs_read /@s[tid] > 0/ "
         "{ @[args.count] = sum(nsecs - @s[tid]); delete(@s[tid]); }",
         "call:kernel:vfs_read { @[args.count] = sum(duration); }"),
        (f"macro took(ns) {{ @ = sum(ns); }} {ENTER} {{ @s[tid] = nsecs; }} {EXIT} /@s[tid]/ "
         "{ took(nsecs - @s[tid]); delete(@s[tid]); }",
         "macro took(ns) { @ = sum(ns); } syscall:read { took(duration); }"),
        # What binds less than && is in parentheses, once.
        *(
            (f"{ENTER} /{asked}/ {{ @s[tid] = nsecs; }} {EXIT} /@s[tid] && args.ret > 0/ "
             "{ @ = sum(nsecs - @s[tid]); delete(@s[tid]); }",
             f"syscall:read /{joined} && retval > 0/ {{ @ = sum(duration); }}")
            for asked, joined in (
                ("(pid == 1) || (pid == 2)", "((pid == 1) || (pid == 2))"),
                ('(comm == "(") || (comm == ")")', '((comm == "(") || (comm == ")"))'),
                ("(pid == 1 || pid == 2)", "(pid == 1 || pid == 2)"),
                ("pid == 1 || pid == 2", "(pid == 1 || pid == 2)"),
            )
        ),
        (f"{ENTER} {{ @s[tid] = (args.fd) + (pid); }} "
         f"{EXIT} /@s[tid] && ((args.ret) > (0) || (pid) == (1))/ {{ @ = sum(@s[tid]); delete(@s[tid]); }}",
         "syscall:read /entry((args.fd) + (pid)) && ((retval) > (0) || (pid) == (1))/ "
         "{ @ = sum(entry((args.fd) + (pid))); }"),
    ],
)  # fmt: skip
def test_pairs_that_are_certain(text: str, result: str) -> None:
    assert suggested(text) == (result, [""])


def pair(
    entry: str = "@s[tid] = nsecs", asks: str = "@s[tid]", body: str = "@ = sum(nsecs - @s[tid])", before: str = "",
    gone: str = "delete(@s[tid]);", rest: str = "",
) -> str:  # fmt: skip
    predicate = f" /{asks}/" if asks else ""
    return f"{ENTER}{before} {{ {entry}; }} {EXIT}{predicate} {{ {body}; {gone} }} {rest}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (pair(entry="@s[tid] = nsecs; @n = count()"), "the entry does more than to keep values by tid"),
        (pair(entry="if (args.fd) { @s[tid] = nsecs }"), "the entry does more than to keep values by tid"),
        (pair(entry="@s[tid] = nsecs; @s[tid] = 5"), "@s is stored twice"),
        (pair(entry="@s[tid] = nsecs; @d[tid] = @s[tid]"), "a value of the entry depends on maps or variables"),
        (pair(entry="@s[tid] = nsecs; @d[tid]++"), "the entry does more than to keep values by tid"),
        (pair(asks=""), "the return does not ask whether there was an entry"),
        (pair(asks="args.ret > 0"), "the return does not ask whether there was an entry"),
        (pair(gone=""), "the return does not delete @s as its last statement"),
        (pair(gone="delete(@s[tid]); print(1);"), "the return does not delete @s as its last statement"),
        (pair(body="if (args.ret < 0) { return; }"), "the return may end before it deletes what was kept"),
        (pair(body="@s[tid]++"), "the return stores into @s"),
        (pair(body="print(@s[tid])"), "@s is an argument of print()"),
        (pair(body="for ($k : @s) { print($k); }"), "@s is used as a whole"),
        (pair(body="print(@s[pid])"), "@s is an argument of print()"),
        (pair(body="print((@s[pid], 1))"), "@s is read with another key than tid"),
        (pair(body="print(args.__syscall_nr)"), "args.__syscall_nr of the return is another one in a call: probe"),
        (pair(body="print(probe)"), "probe is something else in a call: probe"),
        (pair(entry="@s[tid] = str(args.buf)"), "@s may be empty in a call that is to be seen"),
        (pair(before=" /@on/"), "the entry's predicate is not one of arguments and the thread alone"),
        (pair(before=" /cpu == 0/"), "the entry's predicate depends on cpu"),
        (pair(asks="@s[tid] && comm == \"a\""), "comm is compared at the return, by call: at the entry"),
        (pair(rest="interval:s:1 { print(@s); }"), "@s is also used in interval:s:1"),
        (pair(rest="interval:s:1 { @s[tid] = 0; }"), "@s is also used in interval:s:1"),
        (pair(rest="end { print(@s); clear(@s); }"), "@s is also used in end"),
        (pair(rest="fn f($x : int64) : int64 { clear(@s); return 1; }"), "@s is also used in a function or macro"),
        (f'import "a.bt"; {pair()}',
         "what is imported or chosen at compile time may use its maps"),
        (f"macro duration() {{ 1 }} {pair(body='print(duration())')}", "duration is a word of call: probes"),
        (f"macro m() {{ args.ret }} {pair(body='print(m())')}", "args is something else in a call: probe"),
        ("k:f { @s[tid] = nsecs } kr:f /@s[tid]/ { print(arg0); delete(@s[tid]); }",
         "arg0 of the return is that of the entry in a call: probe"),
    ],
)  # fmt: skip
def test_pairs_that_stay(text: str, reason: str) -> None:
    result, reasons = suggested(text)
    assert reasons == [reason]
    assert result == " ".join(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "begin { @ = 1; }",
        f"{ENTER} {{ @s[pid] = nsecs; }} {EXIT} /@s[pid]/ {{ delete(@s[pid]); }}",
        f"{ENTER} {{ @s[tid] = nsecs; }} tracepoint:syscalls:sys_exit_write /@s[tid]/ {{ delete(@s[tid]); }}",
        "k:f+4 { @s[tid] = nsecs } kr:f /@s[tid]/ { delete(@s[tid]); }",
        f"{ENTER} {{ @s[tid] = nsecs; }} {EXIT} {{ @other[tid] = 1; }}",
    ],
)
def test_what_is_no_pair(text: str) -> None:
    assert suggested(text) == (" ".join(text.split()), [])
