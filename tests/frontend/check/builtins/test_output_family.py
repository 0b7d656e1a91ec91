"""Builtins that print: formats, orders, numbers of entries, and the events that they send."""

from __future__ import annotations

import pytest

from pytrace.core.event_layout import Exit, Formatted, Joined, PacketFile, PrintedMap, Quantiles, StaticPart
from pytrace.core.types import Buffer, String
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import SignalNumber
from tests.frontend.checking import UNSAFE, refusals, refused, warned, warnings
from tests.support.facts import RecordedKernel
from tests.support.front import analyse
from tests.support.recorded import Facts
from tests.support.rows import each_row

# fmt: off
REFUSED = [
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
]
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
]
# fmt: on

test_refused = refusals(REFUSED)
test_warned = warnings(WARNED)


SENT = [
    ('printf("%d\\n", pid);', "printf", Formatted("%d\n")),
    ("@m[1] = 1; print(@m);", "print_map", PrintedMap("@m", 0, 1, "", clear=False)),
    ('@m[1] = 1; print_clear(@m, 5, 2, "-value");', "print_map", PrintedMap("@m", 5, 2, "-value", clear=True)),
    ('@m[1] = stats(1); print(@m, 0, 1, "key");', "print_map", PrintedMap("@m", 0, 1, "key", clear=False)),
    ("@h = hist(1); quantiles(@h);", "quantiles", Quantiles("@h", [50.0, 90.0, 99.0, 99.9])),
    ('@h = hist(1); quantiles(@h, 10, "12.5");', "quantiles", Quantiles("@h", [10.0, 12.5])),
    ("join(0);", "join", Joined(" ")),
    ('join(0, ",");', "join", Joined(",")),
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


def test_each_stray_percent_sign_is_reported() -> None:
    result = analyse('begin { printf("100%\\n"); printf("%y %d%", 5); warnf("9%"); }')
    assert [place for place, _ in result.warnings] == ["1:9-25", "1:27-46", "1:27-46", "1:48-59"]


def test_room_in_events() -> None:
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
