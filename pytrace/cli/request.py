"""The checked request of a command line: the script, its compile options and its run options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pytrace.cli import messages, tools
from pytrace.cli.options import SHORTCUTS, SUBCOMMANDS, CommandLine, read
from pytrace.core import script_files
from pytrace.core.diagnostics import Diagnostics, TraceError, did_you_mean, similar
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import (
    COMM_SIZE,
    SAMPLE,
    STREAMED,
    Budget,
    CompileOptions,
    ProcessFilters,
    RunOptions,
    environment,
)
from pytrace.core.source import Source

if TYPE_CHECKING:
    from pytrace.runtime.load.live_kernel import LiveKernel

_MOST_PIDS = 65536
"""Maximum number of processes of ``-p``."""
COLOURS = ("auto", "always", "never")
"""Values of ``PYTRACE_COLOR`` (see :mod:`pytrace.base.terminal`)."""

# ``-c -p -f -o -q -v -e`` have the same meaning in all tools; the tool's own option has only a long name. Users who
# type such a letter as in bcc get a hint with the long name.
LETTERS: Mapping[str, Mapping[str, str]] = {
    "argdist": {"c": "cumulative"},
    "biolatency": {"e": "extension"},
    "capable": {"v": "unaudited"},
    "compactsnoop": {"e": "extended_fields"},
    "cpudist": {"e": "extension"},
    "execsnoop": {"q": "quote"},
    "funccount": {"c": "cpu"},
    "funcslower": {"f": "folded"},
    "hardirqs": {"c": "cpu"},
    "klockstat": {"c": "caller"},
    "llcstat": {"c": "sample_period"},
    "mallocs": {"f": "folded"},
    "memleak": {"o": "older"},
    "offcputime": {"f": "folded"},
    "offwaketime": {"f": "folded"},
    "opensnoop": {"e": "extended_fields", "f": "flag_filter"},
    "profile": {"c": "count", "f": "folded"},
    "softirqs": {"c": "cpu"},
    "sslsnoop": {"c": "comm", "o": "no-openssl"},
    "stackcount": {"c": "cpu", "f": "folded"},
    "syscount": {"c": "ppid", "e": "errno"},
    "tcpconnect": {"c": "count"},
    "tcpretrans": {"c": "count"},
    "tcprtt": {"e": "extension", "p": "lport"},
    "trace": {"c": "cgroup-path", "f": "msg-filter"},
    "wakeuptime": {"f": "folded"},
}
"""The long name of the tool's option, by tool and letter."""

ALONE: frozenset[str] = frozenset({"mallocs"})
"""Tools whose ``-c`` means the command without its children. ``--follow`` puts their probes into the C library of all
processes of the machine, whose every allocation then takes about ten microseconds; else the kernel binds them to one.
"""


class Script(msgspec.Struct, frozen=True):
    """The text of the script and its parameters; *compiled* holds the bytes of a file that ``--aot`` wrote."""

    source: Source
    positional: tuple[str, ...]
    named: tuple[tuple[str, str | None], ...]
    wants_help: bool
    compiled: bytes | None = None


def run_options(line: CommandLine) -> RunOptions:
    """Check and convert the options of a run.

    Raises:
        TraceError: an option does not accept its value, or two options exclude each other.
    """
    form = _format(line)
    command = line.text("command")
    filters = process_filters(line)
    if command is not None and not command.strip():
        raise TraceError("-c needs a command")
    _check_colour()
    if len(line.many("warnings")) > 1:
        raise TraceError("-kk is no longer supported", hints=("-k reports every failed helper",))
    if line.many("warnings") and line.flag("no_warnings"):
        raise TraceError("-k and --no-warnings cannot be used together")
    _check_run(line, form)
    values = line.options(RunOptions) | {
        "filters": filters,
        "follow": line.flag("follow") or bool(filters.exec_wait),
        "format": form,
        "output": None if line.text("output") == "-" else line.text("output"),
        "warnings": not line.flag("no_warnings"),
        "mode": mode(line),
        "budget": _budget(line),
        "measure": line.flag("verbose"),
    }
    return replace(RunOptions(), **values)


_BY_SUFFIX = {
    ".json": "json", ".jsonl": "json", ".csv": "csv", ".txt": "text", ".log": "text", ".out": "text", "": "text",
}  # fmt: skip
"""Formats by common file suffixes; the format table has the others."""


def _format(line: CommandLine) -> str:
    """The format of ``-f``, else the format implied by the name of the output file, else text."""
    name = line.text("format")
    name = "json" if name == "jsonl" else name  # others' name for lines of JSON
    running = mode(line) == "run"
    if name is None:
        path = line.text("output")
        return _format_of_file(path) if path is not None and running else "text"
    if name not in STREAMED:
        _check_format(name)
    if name not in ("text", "json") and mode(line) in ("test", "bench"):
        raise TraceError(f"-f {name} is for rows and maps", hints=("--test and --bench report as text or json",))
    return name


def _format_of_file(path: str) -> str:
    stem, suffix = os.path.splitext(path.lower())
    format_ = _BY_SUFFIX.get(suffix)
    # Other formats may have the same last suffix: .speedscope.json
    if format_ is not None and not os.path.splitext(stem)[1]:
        return format_
    from pytrace.results.formats import table  # few runs write such files

    row = table.by_suffix(path)
    return format_ or "text" if row is None else row.name


def _check_format(text: str) -> None:
    """Reject an unknown format, or an option that the format does not have."""
    from pytrace.results.formats import table  # few runs want another format

    name = text.partition(":")[0]
    names = list(dict.fromkeys((*STREAMED, *(row.name for row in table.FORMATS))))
    if name not in names:
        hints = (*did_you_mean(name, names), "it takes " + ", ".join(names))
        raise TraceError(f"-f does not accept {text!r}", hints=hints)
    if name in STREAMED:
        raise TraceError(f"format {name} has no option {text.partition(':')[2]!r}", hints=("it has none",))
    table.chosen(text, None)


def in_format(options: RunOptions, name: str) -> RunOptions:
    """*options* with the format that the script requests, unless the command line names another one.

    Raises:
        TraceError: there is no such format.
    """
    if not name or options.mode != "run" or options.format not in ("text", name.partition(":")[0]):
        return options
    if name not in STREAMED:
        _check_format(name)
    return replace(options, format=name)


def of_script(options: RunOptions, script: Script, line: CommandLine) -> RunOptions:
    """*options* with the name and parameters of the script, which snapshots and formats describe."""
    named = tuple(f"--{key}" if value is None else f"--{key}={value}" for key, value in script.named)
    name = script.source.name
    if script.source.path is None:
        name = line.tool or ("-" if line.text("program") is None else "-e")
    return replace(
        options, script=name, tool=bool(line.tool), text=script.source.text, parameters=script.positional + named
    )


def _check_run(line: CommandLine, form: str) -> None:
    """Reject options that need a run of the script, in another mode; and those that its output in *form* excludes."""
    mode_ = mode(line)
    if line.flag("heat") and (form != "text" or mode_ != "run"):
        of = f"-f {form.partition(':')[0]}" if form != "text" else f"{mode_} mode"
        raise TraceError(f"--heat prints text while a script runs, so it is not for {of}")
    if (path := line.text("save")) in ("", "-"):
        raise TraceError(f"--save needs the name of a file, not {path!r}", hints=("-o - and -f are for output",))
    if mode_ != "run" and (path is not None or line.many("save_every")):
        raise TraceError(f"--save and --save-every are for a run of the script, not for {mode_} mode")
    if mode_ != "run" and line.text("metrics") is not None:
        raise TraceError(f"--metrics is for a run of the script, not for {mode_} mode")
    if not line.flag("live"):
        return
    if mode_ != "run" or line.flag("dry_run"):
        what = "--dry-run" if line.flag("dry_run") else f"{mode_} mode"
        raise TraceError(f"--live is for a run of the script, not for {what}")
    if form in ("json", "csv") and line.text("output") in (None, "-"):
        raise TraceError(
            f"--live has the terminal, to which -f {form} would print",
            hints=(f"-o FILE writes {form} to a file while the view is shown",),
        )
    if line.text("aot") is None:
        from pytrace.live import terminal  # with --live

        terminal.check()
        terminal.check_application()


def _budget(line: CommandLine) -> Budget | None:
    """The budget of ``--budget`` and ``--over-budget``."""
    action, budget = line.argument("over_budget", str), line.argument("budget", Budget)
    if budget is None and action is not None:
        raise TraceError("--over-budget needs --budget", hints=("for example --budget 1% --over-budget detach",))
    return budget if budget is None or action is None else replace(budget, action=action)


def compile_options(line: CommandLine, run: RunOptions, script: Script | None) -> CompileOptions:
    """The options of the command line on which the compiled script depends; those of *run* count for both."""
    values = line.options(CompileOptions) | run.shared() | {
        "positional": script.positional if script else (),
        "named": script.named if script else (),
        "child": run.command is not None,
        "child_command": run.command or "",
        "checks": 0 if not run.warnings else 2 if line.many("warnings") else 1,
        "without_self": _without_self(line),
        "mode": run.mode if run.mode in ("test", "bench") else "run",
        "ahead": line.text("aot") is not None,
        "limited": bool(run.max_rate),
        "sampled": run.budget is not None and run.budget.action == SAMPLE,
        "environment": environment(mark_unreadable=line.flag("mark_unreadable")),
    }
    return replace(CompileOptions(), **values)


def _without_self(line: CommandLine) -> bool:
    """Whether programs leave out what pytrace itself does."""
    if line.flag("with_self") and line.flag("without_self"):
        raise TraceError("--self and --no-self cannot be used together")
    return not line.flag("with_self") and (bool(line.tool) or line.flag("without_self"))


def mode(line: CommandLine) -> str:
    """The run mode: ``run``, or one of :data:`pytrace.cli.options.MODES`."""
    named = line.argument("mode", str)
    modes = {named} if named else set()
    modes |= {name for key, name in (("test", "test"), ("bench", "bench"), ("fmt", "format")) if line.flag(key)}
    if line.flag("suggest") and modes != {"format"}:
        raise TraceError("--suggest is for --fmt", hints=("pytrace --fmt --suggest SCRIPT",))
    if len(modes) > 1:
        raise TraceError("only one mode can be given: " + ", ".join(sorted(modes)))
    return modes.pop() if modes else "run"


def script(line: CommandLine) -> Script:
    """Read the script: ``-e`` text, a file, or ``-`` for standard input; the other operands are its parameters.

    Raises:
        TraceError: there is no script, or it cannot be read.
    """
    words = list(line.operands)
    after = list(line.after)
    text = line.text("program")
    compiled = None
    if text is not None:
        if line.script is not None and line.words is not None:
            raise TraceError(f"give -e or the script {line.words.name}, not both")
        source = Source("stdin", text)
    else:
        name = words.pop(0) if words else after.pop(0) if after and not after[0].startswith("--") else None
        if name is None:
            raise TraceError("no script given", hints=("give a FILE, or -e 'PROGRAM'; --help lists the options",))
        source, compiled = line.script if line.script is not None else read_file(name)
    named: list[tuple[str, str | None]] = []
    wants_help = False
    for word in after:
        if word == "--help":
            wants_help = True
        elif word.startswith("--") and len(word) > 2:
            key, equals, value = word[2:].partition("=")
            named.append((key, value if equals else None))
        elif line.words is not None and line.words.takes_operands():
            line.words.operands.append(word)
        else:
            words.append(word)
    if line.words is not None and not wants_help:
        named = list(_named_values(line, named))
    return Script(source, tuple(words), tuple(named), wants_help, compiled)


def _check_colour() -> None:
    for variable in ("PYTRACE_COLOR", "BPFTRACE_COLOR"):
        value = os.environ.get(variable, "")
        if value and value.lower() not in COLOURS:
            raise TraceError(f"{variable} does not accept {value!r}", hints=("it takes " + ", ".join(COLOURS),))


# ---------------------------------------------------------------------------------------------- processes


_BY_NAME = ("comm", "uid", "cgroup", "container", "netns", "exec_wait")


def process_filters(line: CommandLine) -> ProcessFilters:
    """The process filters of the command line; names are resolved.

    Raises:
        TraceError: a value is invalid or names something that does not exist, or two options exclude each other.
    """
    pids = _pids(line)
    _check_together(line, bool(pids))
    if not any(key in line.values for key in _BY_NAME):
        return ProcessFilters(pids)
    from pytrace.runtime.machine import selected_processes as selected  # most runs select nothing by name

    awaited = line.text("exec_wait")
    netns = line.text("netns")
    return ProcessFilters(
        pids,
        selected.uids(line.many("uid")),
        selected.comms(line.many("comm")),
        selected.cgroups(line.many("cgroup"), line.many("container")),
        () if netns is None else (selected.namespace(netns),),
        "" if awaited is None else _program(awaited),
    )


def _pids(line: CommandLine) -> tuple[int, ...]:
    pids = tuple(dict.fromkeys(pid for several in line.arguments("pid", tuple) for pid in several))
    if len(pids) > _MOST_PIDS:
        raise TraceError(f"-p takes {_MOST_PIDS} processes at most, not {len(pids)}")
    return pids


def _check_together(line: CommandLine, pids: bool) -> None:
    command, awaited = line.text("command"), line.text("exec_wait")
    if command is not None and pids:
        raise TraceError("-c and -p cannot be used together", hints=("-p traces a running process, -c starts one",))
    if awaited is not None and pids:
        raise TraceError(
            "--exec-wait and -p cannot be used together",
            hints=("--exec-wait traces the next process that executes the program",),
        )
    if line.flag("follow") and command is None and not pids and awaited is None:
        raise TraceError("--follow needs -p or -c")
    if line.flag("exit_status") and command is None:
        raise TraceError("--exit-status needs -c", hints=("it hands on the status of the command",))


def _program(name: str) -> str:
    """The comm of a process after it executed the program *name*: at most 15 bytes of its base name."""
    last = name.rstrip("/").rpartition("/")[2]
    if not last:
        raise TraceError(f"--exec-wait needs the name of a program, not {name!r}")
    return last.encode("utf-8", "surrogateescape")[: COMM_SIZE - 1].decode("utf-8", "surrogateescape")


# ---------------------------------------------------------------------------------------------- the script


_WITHOUT_SCRIPT = ("help", "version", "examples", "tools")
"""Modes without a script."""


def find(line: CommandLine, rest: Sequence[str]) -> Sequence[str]:
    """Resolve the script that *line* names and the options it declares; *rest* are the words after its name.

    Returns:
        The words to continue with: *rest*, after those that a tool's name implies.

    Raises:
        TraceError: the script cannot be read.
        ScriptError: it has syntax errors, or invalid declarations; they have been printed.
    """
    if any(line.flag(key) for key in _WITHOUT_SCRIPT):
        return rest
    program = line.text("program")
    if program is not None:
        _set_declarations(line, Source("stdin", program), "-e 'PROGRAM'", rest)
        return rest
    name = line.operands[0]
    if name.isascii() and name.isalnum():
        implied = _select_tool(line, name, rest)
        if implied is not None:
            return [*implied, *rest]
    if os.path.isfile(name) or not (line.flag("list") or _needs_no_file(rest)):
        line.script = read_file(name)
        _set_declarations(line, line.script[0], name, rest)
    return rest


def _needs_no_file(rest: Sequence[str]) -> bool:
    """Whether a word of *rest* may make the first operand something other than the name of a script."""
    for word in rest:
        if word == "--":
            return False
        letters = word[1:] if word[:1] == "-" and word[:2] != "--" else ""
        if set(letters) & set("elV") or word.startswith(("--p", "--l", "--v", "--i", "--e", "--t")):
            return True
    return False


def _select_tool(line: CommandLine, name: str, rest: Sequence[str]) -> Sequence[str] | None:
    """Select the tool *name*. Returns the words that its name implies, or None if there is no such tool."""
    real, implied = tools.resolve(name)
    path = tools.path(real)
    if path:
        source = script_files.text(path, name)
        line.script, line.tool = (source, None), name
        _set_declarations(line, source, name, rest)
        if line.words is not None:
            line.words.bcc_letters = LETTERS.get(real, {})
        return implied
    if real not in tools.TRANSLATED:
        return None
    from pytrace.cli.script_options import ScriptWords  # scripts with options

    options = tools.translated()[real].options
    line.tool = name
    line.words = ScriptWords(name, options, positional=False, bcc_letters=LETTERS.get(real, {}))
    return implied


def _set_declarations(line: CommandLine, source: Source, name: str, rest: Sequence[str]) -> None:
    """Set up the options and operands of the script on the rest of the command line."""
    if "getopt" not in source.text and "import" not in source.text:
        return
    from pytrace.cli import script_options  # scripts with options

    diagnostics = Diagnostics()
    declarations = script_options.of(source, diagnostics)
    if diagnostics.failed and not line.flag("fmt") and "--fmt" not in rest:
        messages.check(diagnostics)
    if declarations.options:
        line.words = script_options.ScriptWords(name, declarations.options, declarations.positional)


def complete(line: CommandLine) -> None:
    """Add the script and options that a translated tool implies to a fully parsed command line.

    Raises:
        TraceError: the value of an option is invalid.
    """
    if not line.tool or line.usage:
        return
    _report_letters(line)
    if line.words is not None and line.words.given.pop("csv", []):
        line.values.setdefault("format", "csv")
    if line.words is not None and line.text("duration") is not None:
        line.words.fit_outputs(line.argument("duration", float) or 0)
    if line.script is None and line.words is not None:
        _named_values(line, ())
        tool = tools.translated()[tools.resolve(line.tool)[0]]
        translation = tool.translate(line.words.values(), live_kernel(RunOptions()))
        line.words = None  # its values are in the script now
        implied = read(translation.arguments)
        if translation.text:
            line.script = (Source(line.tool, translation.text, generated=True), None)
        else:
            line.operands[:] = implied.operands
        for key, value in implied.values.items():
            line.values.setdefault(key, value)
        if not line.flag("quiet"):
            sys.stderr.write("".join(f"NOTE: {note}\n" for note in translation.notes))
    if line.text("command") is not None and tools.resolve(line.tool)[0] not in ALONE:
        line.values["follow"] = True


def _named_values(
    line: CommandLine, after: Iterable[tuple[str, str | None]]
) -> tuple[tuple[str, str | None], ...]:
    """The checked values of the script's options, as :meth:`ScriptWords.named` returns them.

    Raises:
        TraceError: a value is invalid, or names something that this machine does not have.
    """
    assert line.words is not None
    values = line.words.named(after)
    if line.words.has_typed_values():
        line.words.check(other_network=line.text("netns") is not None)
    return values


def _report_letters(line: CommandLine) -> None:
    """Report letters that may be meant as in bcc, if no error will."""
    # -q silences the notes, but not the one about itself.
    quiet = line.flag("quiet")
    told = (letter for letter in line.bcc_letters if letter.works and (letter.letter == "q" or not quiet))
    sys.stderr.write("".join(f"NOTE: {letter.hint}\n" for letter in told))


def read_file(name: str) -> tuple[Source, bytes | None]:
    """The script in a file or on standard input (``-``), and the bytes of a file that ``--aot`` wrote.

    Raises:
        TraceError: it cannot be read, or it is no script.
    """
    try:
        if name == "-":
            return script_files.from_bytes("stdin", sys.stdin.buffer.read())
        return script_files.read(name)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and tools.is_name(name):
            raise TraceError(f"there is no tool and no file {name!r}", hints=_unknown_word_hints(name)) from error
        raise TraceError(f"cannot read script {name!r}: {error.strerror}", hints=_unreadable_hints(name)) from error


_PEERS = {
    "help": "pytrace --help, or pytrace TOOL -h",
    "version": "pytrace --version",
    "list": "pytrace -l 'PATTERN' lists probes, pytrace --tools the tools",
    "record": "pytrace profile -p PID (or -c COMMAND) samples stacks; pytrace flame draws them; --save keeps a run",
    "report": "pytrace show FILE prints what --save has kept; -o FILE.html makes a report of a run",
    "script": "pytrace -e 'PROGRAM' or pytrace FILE; pytrace show FILE prints what --save has kept",
    "stat": "pytrace funccount 'EVENT' counts events; pytrace -e 'hardware:cpu-cycles:1000000 { … }' counters",
    "strace": "pytrace trace and pytrace syscount look at system calls",
    "ltrace": "pytrace trace 'c:FUNCTION' prints calls of a library's function",
    "sched": "pytrace runqlat, cpudist and offcputime look at the scheduler",
    "mem": "pytrace memleak and pytrace mallocs look at allocations",
    "lock": "pytrace futexwait and pytrace klockstat look at locks",
}
"""What a word that is a command of perf or of other tools is called here."""


def _unreadable_hints(name: str) -> tuple[str, ...]:
    if any(c in name for c in "{<"):
        return ("a program on the command line goes after -e",)
    stem = name.removesuffix(".bt")
    if stem != name and tools.is_name(stem) and stem in tools.names():
        return (f"pytrace {stem} runs the tool; pytrace {stem} --show-script prints its script",)
    return ()


def _unknown_word_hints(name: str) -> tuple[str, ...]:
    """Hints for a word that names neither a tool nor a file."""
    if name in _PEERS:
        return (_PEERS[name],)
    if name in SHORTCUTS or name in SUBCOMMANDS:
        return (f"{name} is a command, which comes before options: pytrace {name} …",)
    near = similar(name, [*tools.names(), *SUBCOMMANDS, *SHORTCUTS])
    hint = f"did you mean {' or '.join(near)}?" if near else "pytrace --tools lists the tools, pytrace --help the rest"
    return (hint,)


# ---------------------------------------------------------------------------------------------- the machine


def live_kernel(options: RunOptions, *, ahead: bool = False, cpus: int = 0) -> LiveKernel:
    """Facts about this machine, some of which options override; *ahead* and *cpus* as for :class:`LiveKernel`."""
    from pytrace.runtime.load.live_kernel import LiveKernel  # facts that a compilation asks for

    return LiveKernel(
        disabled=options.no_features,
        traceable_functions=options.traceable_functions,
        debuginfo=options.debuginfo,
        ahead=ahead,
        cpus=cpus,
    )


def check_machine(options: RunOptions) -> None:
    """Raise an error if this process may not trace, and warn about missing features of the machine."""
    from pytrace.runtime.machine import privileges  # the runtime

    messages.warn(privileges.check(), options)
    privileges.clear_ambient_capabilities()


def prepared(script: Script, compiled: CompiledScript, options: RunOptions) -> CompiledScript:
    """A file that ``--aot`` wrote, prepared for loading here."""
    from pytrace.runtime.load import ahead_of_time  # a compiled file

    parameters = ahead_of_time.RunParameters(script.positional, script.named)
    prepared = ahead_of_time.prepare(compiled, parameters, options, live_kernel(options))
    messages.warn(prepared.warnings, options)
    return prepared.script
