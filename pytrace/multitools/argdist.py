"""``argdist``: counts and histograms of arguments, results and latencies.

A specification is ``PLACE(SIGNATURE)[:TYPE[,TYPE…]:EXPRESSION[,EXPRESSION…][:FILTER]][#LABEL]``.
"""

from __future__ import annotations

import msgspec

from pytrace.core.builtins import argument_number
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.script_options import ScriptOption
from pytrace.multitools.expressions import (
    Call,
    Names,
    NoTypeError,
    SpecText,
    Token,
    Translator,
    is_text,
    script_type,
    split,
)
from pytrace.multitools.multitool import (
    DURATION,
    HEAD,
    MULTI_PURPOSE,
    PID,
    MultiTool,
    Options,
    Translation,
    fitting,
    literal,
    probe,
    script,
    timer,
    unless,
)
from pytrace.multitools.targets import FUNCTIONS, KERNEL, USER, ProbeText, Scope


class Distribution(msgspec.Struct, frozen=True):
    """A translated specification.

    Attributes:
        probe: the probe, with its signature.
        values: the script's expressions; empty to count hits.
        texts: names of the values in the output.
        predicate: the filter, empty without one.
        label: the title of the output.
        entries: arguments of the entry that the return needs: names and expressions.
        latency: whether the duration of the call is needed.
        scope: names that are available to expressions at the event.
    """

    probe: ProbeText
    values: tuple[str, ...]
    texts: tuple[str, ...]
    predicate: str
    label: str
    entries: tuple[tuple[str, str], ...]
    latency: bool
    scope: Scope


class _Remembered:
    """Names at the return of a function: ``$entry(NAME)`` and ``$latency`` are values that the entry stored."""

    def __init__(self, entry: Scope, scope: Scope) -> None:
        self.entry = entry
        self.scope = scope
        self.entries: dict[str, str] = {}
        self.latency = False

    def names(self) -> Names:
        """The names of expressions."""
        inner = self.scope.names()
        suggestions = (*inner.known, "$entry(NAME)", "$latency") if self.scope.returns else inner.known

        def resolve(name: str) -> str | None:
            if name == "$latency" and self.scope.returns:
                self.latency = True
                return "$latency"
            return inner.resolve(name)

        def calls(name: str) -> Call | None:
            return self._remember if name == "$entry" and self.scope.returns else inner.calls(name)

        return Names(resolve, suggestions, calls, FUNCTIONS)

    def _remember(self, translator: Translator, _token: Token) -> str:
        translator.expect("(")
        name = translator.take()
        translator.expect(")")
        value = self.entry.resolve(name.text) if name.group == "name" else None
        if value is None:
            hints = (f"known at the entry: {', '.join(self.entry.known)}",)
            raise translator.error(f"$entry takes a parameter of the function, not {name.text!r}", name, hints)
        self.entries[name.text] = value
        return f"$entry_{name.text}"


def parse(spec: SpecText, kernel: KernelInfo, pid: int | None, *, size: int, histogram: bool) -> Distribution:
    """Parse a specification.

    Raises:
        TraceError: it is invalid.
    """
    body, label = _label(spec)
    parsed, fields = _fields(body, kernel, pid)
    scope = parsed.scope(size)
    remembered = _Remembered(_entry_scope(parsed, size), scope)
    names = remembered.names()
    c_types = [field.text for field in split(fields[0], ",")] if fields else []
    expressions = list(split(fields[1], ",")) if len(fields) > 1 else []
    if len(fields) == 1 or len(c_types) != len(expressions):
        raise (fields[-1] if fields else spec).error(
            f"{len(c_types)} types and {len(expressions)} expressions: a type for each expression is expected",
            hints=("PLACE(SIGNATURE):TYPE:EXPRESSION, such as p::vfs_read(void *file, void *to, size_t n):size_t:n",))
    if histogram and len(expressions) > 1:
        raise fields[1].error("a histogram takes one expression", hints=("-C counts combinations of several",))
    values = tuple(
        _typed(c_type, fields[0], Translator(item, names).whole(), parsed, scope, kernel, histogram=histogram)
        for c_type, item in zip(c_types, expressions, strict=True)
    )
    texts = tuple(item.text for item in expressions)
    if not values and (parsed.target.returns or histogram):
        values, texts = _default(parsed, spec)
    predicate = Translator(fields[2], names).whole() if len(fields) > 2 else ""
    entries = tuple(remembered.entries.items())
    return Distribution(parsed, values, texts, predicate, label, entries, remembered.latency, scope)


def _default(parsed: ProbeText, spec: SpecText) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not parsed.target.returns:
        raise spec.error("a histogram needs a type and an expression", hints=("…:u32:size; -C counts calls without",))
    return ("(int64)retval",), ("$retval",)


def _label(spec: SpecText) -> tuple[SpecText, str]:
    parts = list(split(spec, "#"))
    if len(parts) > 2:
        raise parts[2].error("a specification has one #label", length=1)
    return parts[0], parts[1].text if len(parts) > 1 else parts[0].text


def _fields(body: SpecText, kernel: KernelInfo, pid: int | None) -> tuple[ProbeText, list[SpecText]]:
    """The probe with its signature, and types, expressions, filter."""
    parsed = ProbeText.parse(body, kernel, pid, stop="")
    if not parsed.rest.text:
        return parsed, []
    if not parsed.rest.text.startswith(":"):
        raise parsed.rest.error("':' is expected after the signature", length=1)
    fields = list(split(parsed.rest.part(1, len(parsed.rest.text)), ":", 2))
    for field in fields:
        if not field.text:
            raise body.error("a part between two ':' is empty: TYPE:EXPRESSION:FILTER is expected")
    return parsed, fields


def _entry_scope(parsed: ProbeText, size: int) -> Scope:
    family = parsed.target.family
    return Scope(parsed.attachment.arguments, family in (KERNEL, USER), False, False, parsed.parameters, size)


def _typed(
    c_type: str, spec: SpecText, value: str, parsed: ProbeText, scope: Scope, kernel: KernelInfo, *, histogram: bool
) -> str:
    """The value as its C type."""
    try:
        type_ = script_type(c_type)
    except NoTypeError:
        raise spec.error(f"{c_type!r} is not a C type", hints=("such as int, u32, size_t, char*",)) from None
    if is_text(c_type):
        if histogram:
            raise spec.error("a histogram needs a number, char* is text", hints=("-C counts texts",))
        return value if parsed.array_field(value, kernel) else scope.string(value)
    if type_ == _type_of(value, parsed, kernel):
        return value
    simple = value.replace("_", "").replace("$", "").isalnum()
    return f"({type_}){value}" if simple else f"({type_})({value})"


def _type_of(value: str, parsed: ProbeText, kernel: KernelInfo) -> str:
    """The type of a simple value in the script, empty if unknown: a cast to the same type would cause a warning."""
    if value == "$latency" or argument_number(value) is not None:
        return "uint64"
    for parameter in parsed.parameters:
        if value in (f"${parameter.name}", f"$entry_{parameter.name}"):
            return parameter.type
    if value != "retval" or parsed.target.family != USER or parsed.target.wild:
        return ""
    paths = kernel.binaries(parsed.target.container, None)
    result = kernel.user_result(paths[0], parsed.target.name) if len(paths) == 1 else None
    return str(result) if result is not None else "uint64"


# ---------------------------------------------------------------------------------------------- the script


def _argdist(options: Options, kernel: KernelInfo) -> Translation:
    """The script that counts values."""
    specs = [(True, text) for text in options.many("histogram")] + [(False, text) for text in options.many("count")]
    if not specs:
        hints = ("argdist -C 'p:c:malloc(size_t size):size_t:size'", "argdist -h has more examples")
        raise TraceError("argdist needs a specification: -H for a histogram, -C for counts", hints=hints)
    size, pid = options.number("string-size"), options.only_pid()
    probes: list[str] = []
    shows: list[str] = []
    for number, (histogram, text) in enumerate(specs, 1):
        parsed = parse(SpecText.of(text), kernel, pid, size=size, histogram=histogram)
        values = f"@values{number}" if len(specs) > 1 else "@values"
        probes += _probes(parsed, values, options, histogram=histogram)
        shows += _show(parsed, values, options, histogram=histogram)
    words = [*options.run_arguments()]
    for header in options.many("include"):
        words += ["--include", header]
    text = script(HEAD, *probes, _interval(shows, options))
    return Translation(text, tuple(words))


def _probes(parsed: Distribution, values: str, options: Options, *, histogram: bool) -> list[str]:
    tid = options.number("tid")
    only = [f"tid == {tid}"] if tid else []
    value = ", ".join(parsed.values)
    if histogram:
        store = f"{values} = hist({value});"
    else:
        store = f"{values}[{value}] = count();" if value else f"{values} = count();"
    lines = parsed.scope.variables(parsed.predicate, *parsed.values)
    if parsed.predicate:
        lines.append(unless(parsed.predicate))
    lines.append(store)
    if not (parsed.entries or parsed.latency):
        return [probe([parsed.probe.point], lines, only)]
    return [_call(parsed, lines, only)]


def _call(parsed: Distribution, lines: list[str], only: list[str]) -> str:
    """The probe of the whole call, where arguments are those of the entry."""
    attachment = parsed.probe.attachment
    used = [value for _, value in parsed.entries]
    entry = Scope(attachment.arguments, parameters=parsed.probe.parameters).variables(*used)
    entry += [f"$entry_{name} = {value};" for name, value in parsed.entries]
    if parsed.latency:
        entry.append("$latency = duration;")
    return probe([attachment.call], [*entry, *lines], only)


# ---------------------------------------------------------------------------------------------- output


def _show(parsed: Distribution, values: str, options: Options, *, histogram: bool) -> list[str]:
    top = options.number("top")
    limit = f", {top}" if top and not histogram and parsed.values else ""
    verb = "print" if options.flag("cumulative") else "print_clear"
    title = literal(parsed.label + "\n").replace("%", "%%")
    return [f"printf({title});", f"{verb}({values}{limit});"]


def _interval(shows: list[str], options: Options) -> str:
    interval = options.number("interval")
    each, most = timer(interval), options.number("number") or fitting(interval, options.number("duration"))
    lines = ['time("[%H:%M:%S]\\n");', *shows]
    if not most:
        return probe([each, "end"], lines)
    counted = [*lines, "@outputs++;", f"if (@outputs >= {most}) {{ exit(); }}"]
    # If the run ends before all outputs, the values since the last output are shown as well.
    return probe([each], counted) + "\n" + probe(["end"], lines, [f"@outputs < {most}"])


ARGDIST = MultiTool(
    "argdist",
    MULTI_PURPOSE,
    "counts and histograms of arguments, results and latencies",
    (
        PID,
        ScriptOption(("t", "tid"), 0, "only thread TID", "TID", type="pid"),
        ScriptOption(("z", "string-size"), 80, "bytes of texts", "SIZE", type="1.."),
        ScriptOption(("i", "interval"), 1, "print every SECONDS", "SECONDS", type="interval"),
        DURATION,
        ScriptOption(("n", "number"), 0, "how many outputs", "COUNT", type="0.."),
        ScriptOption(("cumulative",), False, "do not clear between outputs"),
        ScriptOption(("T", "top"), 0, "only the TOP largest counts", "TOP", type="0.."),
        ScriptOption(("H", "histogram"), "", "a histogram of the expression", "SPEC", repeat=True),
        ScriptOption(("C", "count"), "", "counts by the values of expressions", "SPEC", repeat=True),
        ScriptOption(("I", "include"), "", "C header with types", "HEADER", repeat=True),
    ),
    """\
pytrace argdist -H 'p::tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size):u32:size'  sizes of TCP sends
pytrace argdist -p 185 -C 'p:c:fopen(char *path):char*:path#opened files'   file names, with a title
pytrace argdist -C 'r:c:malloc(size_t size):size_t:$entry(size):$retval == 0'  sizes that failed
pytrace argdist -H 'r::vfs_read():u64:$latency/1000#us'                     latencies in microseconds
pytrace argdist -i 5 -n 2 -C 't:syscalls:sys_enter_openat():int:args->flags'  two outputs, five seconds each
pytrace argdist -C 'u:/usr/bin/python3:import__find__load__start():char*:arg1' -T 10  ten Python modules""",
    _argdist,
)  # fmt: skip
