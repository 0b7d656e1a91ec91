"""``trace``: a line for each event, with a filter and a format."""

from __future__ import annotations

import pwd
import re
from collections.abc import Callable

import msgspec

from pytrace.core.diagnostics import TraceError, counted
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.script_options import ScriptOption
from pytrace.multitools.expressions import SpecText, Translator, check_escapes, split, text_end
from pytrace.multitools.multitool import (
    MULTI_PURPOSE,
    PID,
    MultiTool,
    Options,
    Translation,
    config,
    literal,
    probe,
    script,
    unless,
)
from pytrace.multitools.targets import ProbeText, Scope

_CONVERSION = re.compile(r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<length>hh|h|ll|l|z|j|)(?P<name>[a-zA-Z%]|)")
_NAMES = frozenset("diuoxXcpsKU")


def _trace(options: Options, kernel: KernelInfo) -> Translation:
    """The script that prints events."""
    if options.text("msg-filter"):
        hints = (
            "pytrace trace … | grep TEXT",
            "a predicate filters in the kernel: 'p::f (arg1 == 3) \"…\"'",
        )
        raise TraceError("--msg-filter looks at finished lines, which exist in user space only", hints=hints)
    if sum(options.flag(name) for name in ("timestamp", "unix-timestamp", "time")) > 1:
        raise TraceError("-t, -u and -T cannot be used together", hints=("each of them says what TIME is",))
    probes = [_probe(SpecText.of(text), options, kernel) for text in options.many("probe")]
    head = config(own_output=bool(options.number("max-events")), user_stacks=options.flag("user-stack"))
    text = script(head, *probes)
    words = [*options.run_arguments()]
    if options.text("cgroup-path"):
        words += ["--cgroup", options.text("cgroup-path")]
    for header in options.many("include"):
        words += ["--include", header]
    return Translation(text, tuple(words), _notes(options))


def _notes(options: Options) -> tuple[str, ...]:
    notes: list[str] = []
    if options.flag("include-self"):
        notes.append("-S has no effect here: events of pytrace itself are always included")
    if options.flag("bin_cmp"):
        notes.append("-B has no effect here: STRCMP compares texts; memcmp() in a script compares bytes")
    if options.text("sym_file_list"):
        notes.append("-s has no effect here: symbols of all files are found")
    return tuple(notes)


# ---------------------------------------------------------------------------------------------- one probe


def unknown_at_return(error: TraceError) -> TraceError:
    """The same error, with a hint about names at the return of a function."""
    hint = "at the return of a function only retval is known; argdist's $entry(NAME) remembers an argument"
    return TraceError(error.message, hints=(*error.hints, hint))


def _probe(spec: SpecText, options: Options, kernel: KernelInfo) -> str:
    parsed = ProbeText.parse(spec, kernel, options.only_pid(), stop=" \t\n\"")
    scope = parsed.scope(options.number("string-size"))
    try:
        predicate, rest = _predicate(parsed.rest, scope)
        format_, values = _message(rest, parsed, scope, kernel)
    except TraceError as error:
        raise unknown_at_return(error) if parsed.target.returns and "unknown name" in error.message else error from None
    lines = scope.variables(predicate, *values)
    if predicate:
        lines.append(unless(predicate))
    lines += _aggregate(parsed, format_, values) if options.flag("aggregate") else _print(
        parsed, format_, values, options)  # fmt: skip
    return probe([parsed.point], lines, _conditions(options))


def _conditions(options: Options) -> list[str]:
    tid, user, name = options.number("tid"), options.text("uid"), options.text("name")
    return [
        f"tid == {tid}" if tid else "",
        f"uid == {_user(user)}" if user else "",
        f"strcontains(comm, {literal(name)})" if name else "",
    ]


def _user(text: str) -> int:
    """The number of a user.

    Raises:
        TraceError: there is no user of that name.
    """
    if text.isdigit():
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        raise TraceError(f"there is no user {text!r}", hints=("a number is taken as it is",)) from None


def _predicate(spec: SpecText, scope: Scope) -> tuple[str, SpecText]:
    """The predicate in parentheses, and the text after it."""
    if not spec.text.startswith("("):
        return "", spec
    depth = end = 0
    while end < len(spec.text):
        character = spec.text[end]
        if character in "\"'":
            end = text_end(spec.text, end)
            continue
        depth += (character == "(") - (character == ")")
        if not depth:
            break
        end += 1
    else:
        raise spec.error("the predicate has no end: ) is missing", length=1)
    inner = spec.part(1, end)
    if not inner.text:
        raise spec.error("the predicate is empty", length=end + 1)
    return Translator(inner, scope.names()).whole(), spec.part(end + 1, len(spec.text))


def _message(spec: SpecText, parsed: ProbeText, scope: Scope, kernel: KernelInfo) -> tuple[str, list[str]]:
    """The format for the script, and its values."""
    if not spec.text:
        return "", []
    if not spec.text.startswith('"'):
        hints = ('a format in quotes follows, with its values: "%d", arg1', "a predicate stands in parentheses")
        raise spec.error("a format is expected", hints=hints)
    parts = list(split(spec, ",", 1))
    format_ = parts[0]
    if len(format_.text) < 2 or text_end(format_.text, 0) != len(format_.text):
        raise format_.error("a comma is expected after the format, or the format has no end")
    check_escapes(format_, 0, len(format_.text))
    found = conversions(format_)
    expressions: list[str] = []
    if len(parts) > 1:
        if not parts[1].text:
            raise spec.error("values are expected after the comma", at=len(spec.text) - 1)
        expressions = Translator(parts[1], scope.names()).every()

    def string(expression: str) -> str:
        return expression if parsed.array_field(expression, kernel) else scope.string(expression)

    return _script_format(format_), values(format_, found, expressions, string)


# ---------------------------------------------------------------------------------------------- output


def _print(parsed: ProbeText, format_: str, values: list[str], options: Options) -> list[str]:
    message = f'sprintf("{format_}"{"".join(f", {value}" for value in values)})' if format_ else 'sprintf("")'
    cpu = "cpu=cpu, " if options.flag("print_cpu") else ""
    name = f'sprintf("%s", {parsed.event_name()})'
    line = f'row((time={_time(options)}, {cpu}pid=pid, tid=tid, comm=comm, func={name}, "-"={message}));'
    mode = "(perf)" if options.flag("address") else ""
    user = ("python", "pystack") if options.flag("python") else ("user-stack", "ustack")
    stacks = [f"print({name}{mode});" for flag, name in (("kernel-stack", "kstack"), user) if options.flag(flag)]
    most = options.number("max-events")
    if not most:
        return [line, *stacks]
    before = ["$number = @events++;", f"if ($number >= {most}) {{ return; }}"]
    return [*before, line, *stacks, f"if ($number == {most - 1}) {{ exit(); }}"]


def _time(options: Options) -> str:
    if options.flag("timestamp"):
        return "fixed(elapsed, 1000000000, 6)"
    return f'strftime("{"%s.%f" if options.flag("unix-timestamp") else "%H:%M:%S"}", nsecs)'


def _aggregate(parsed: ProbeText, format_: str, values: list[str]) -> list[str]:
    message = f', sprintf("{format_}"{"".join(f", {value}" for value in values)})' if format_ else ""
    return [f"@lines[comm, {parsed.event_name()}{message}] = count();"]


# ----------------------------------------------------------------------------------------- formats


class Conversion(msgspec.Struct, frozen=True):
    """A conversion of a format: its name, and its form in a script's format."""

    name: str
    text: str
    at: int


def conversions(spec: SpecText) -> list[Conversion]:
    """The conversions of a format (its text with quotes, as written by the user).

    Raises:
        TraceError: one is unknown.
    """
    result: list[Conversion] = []
    for match in _CONVERSION.finditer(spec.text):
        name = match["name"]
        if name == "%":
            continue
        if name not in _NAMES:
            hints = ("d i u o x X c p s, with l or ll for 64 bits; K and U are symbols of the kernel and of programs",)
            raise spec.error(f"unknown conversion {match[0]!r}", at=match.start(), length=len(match[0]), hints=hints)
        text = f"%{match['flags']}{match['width']}s" if name in "KU" else match[0]
        result.append(Conversion(name, text, match.start()))
    return result


def _script_format(spec: SpecText) -> str:
    """The format for the script, without quotes."""
    return _CONVERSION.sub(
        lambda match: f"%{match['flags']}{match['width']}s" if match["name"] in ("K", "U") else match[0],
        spec.text[1:-1],
    )


def values(
    spec: SpecText, format_conversions: list[Conversion], expressions: list[str], string: Callable[[str], str]
) -> list[str]:
    """The script's values for the conversions of a format; *string* translates an address to the text there.

    Raises:
        TraceError: there are more or fewer values than conversions.
    """
    if len(format_conversions) != len(expressions):
        message = f"the format takes {counted(len(format_conversions), 'value')}, {len(expressions)} given"
        raise spec.error(message)
    result: list[str] = []
    for conversion, expression in zip(format_conversions, expressions, strict=True):
        if conversion.name == "s":
            result.append(string(expression))
        elif conversion.name in "KU":
            result.append(f"{'ksym' if conversion.name == 'K' else 'usym'}({expression})")
        else:
            result.append(expression)
    return result


TRACE = MultiTool(
    "trace",
    MULTI_PURPOSE,
    "a line for each event, with a filter and a format",
    (
        PID,
        ScriptOption(("L", "tid"), 0, "only thread TID", "TID", type="pid"),
        ScriptOption(("uid",), "", "only this user: a number or a name", "USER"),
        ScriptOption(("Z", "string-size"), 80, "bytes of texts", "SIZE", type="1.."),
        ScriptOption(("S", "include-self"), False, "accepted; events of pytrace itself are always included"),
        ScriptOption(("M", "max-events"), 0, "stop after EVENTS", "EVENTS", type="0.."),
        ScriptOption(("t", "timestamp"), False, "seconds since the start as TIME"),
        ScriptOption(("u", "unix-timestamp"), False, "seconds since 1970 as TIME"),
        ScriptOption(("T", "time"), False, "the time of day as TIME (the default)"),
        ScriptOption(("C", "print_cpu"), False, "also the CPU"),
        ScriptOption(("cgroup-path",), "", "only processes of this cgroup", "PATH"),
        ScriptOption(("n", "name"), "", "only commands whose name contains NAME", "NAME"),
        ScriptOption(("msg-filter",), "", "refused; pipe the output to grep", "TEXT"),
        ScriptOption(("B", "bin_cmp"), False, "accepted; STRCMP compares texts"),
        ScriptOption(("s", "sym_file_list"), "", "accepted; symbols of all files are found", "FILES"),
        ScriptOption(("K", "kernel-stack"), False, "the kernel stack after each line"),
        ScriptOption(("U", "user-stack"), False, "the user stack after each line"),
        ScriptOption(("python",), False, "Python's functions after each line (pystack), in place of -U"),
        ScriptOption(("a", "address"), False, "stacks with addresses"),
        ScriptOption(("I", "include"), "", "C header with types", "HEADER", repeat=True),
        ScriptOption(("A", "aggregate"), False, "count equal lines instead of printing them"),
        ScriptOption(("d", "duration"), 0, "stop after SECONDS", "SECONDS", type="interval"),
        ScriptOption(("probe",), "", "PLACE[(SIGNATURE)] [(PREDICATE)] [\"FORMAT\", VALUE, …]", "PROBE",
                     operand=True, required=True, repeat=True),
    ),
    """\
pytrace trace do_sys_openat2                                   each call of a kernel function
pytrace trace 'p::do_sys_openat2 "%s", arg2@user'              with its second argument as text
pytrace trace 'c:open (arg2 == 42) "%s %d", arg1, arg2'        open() of libc, only some calls
pytrace trace 'r:c:malloc (retval == 0) "failed"'              returns of malloc with no memory
pytrace trace 't:syscalls:sys_enter_openat "%s", args->filename'     a tracepoint
pytrace trace 'u:/usr/bin/python3:import__find__load__start "%s", arg1'
pytrace trace 'p::tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size) (size > 1000) "%d", size'""",
    _trace,
)  # fmt: skip
