"""The option table of the command line, and the parser of ``argv``.

Options may be anywhere before ``--``, and long ones may be abbreviated unambiguously, as with GNU ``getopt``; words
after ``--`` belong to the script.  ``argparse`` is not used: it cannot separate the two kinds of parameters, and its
import takes a tenth of a cached start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from pytrace.core.diagnostics import TraceError, similar
from pytrace.core.options import (
    ACTIONS,
    MOST_PID,
    SHORTEST_WATCHDOG,
    Address,
    Budget,
    Rate,
    TracingOptions,
    debug_folders,
    parse_memory,
    watchdog_seconds,
)

if TYPE_CHECKING:
    from pytrace.cli.script_options import ScriptWords
    from pytrace.core.source import Source


T = TypeVar("T")


class Option(msgspec.Struct, frozen=True):
    """One option: all that is known of it but what it does, so that a new one is a row, and its use.

    Attributes:
        key: the name of its value: also that of the option of a run or compilation, of the keyword of the Python
            interface, and of the member of the messages of a fleet, where there is one.
        short, long: its spellings; *long* without dashes.
        argument: the name of its argument; empty for a flag.
        help: a line of ``--help``.
        group: one of :data:`GROUPS`.
        second: the name of a second, required argument.
        alone: its value where no argument follows; one then follows in the same word, after ``=``.
        repeat: whether it may be given several times.
        hidden: whether it is accepted, and shown nowhere.
        parse: converts its argument (or both); raises :class:`TraceError`.
        joined: of a repeatable option, puts the values of all arguments together.
        choices: arguments that it takes; without *parse*, no others.
        names: what its argument names, for completion (``file``, ``process``, ``feature`` …).
        rare: whether only ``pytrace --help`` lists it, not the usage of each script.
        many_hosts: whether ``pytrace fleet`` has it.
        compiling: whether it has an effect on the compilation only, and so is refused with a compiled file.
        public: whether its value cannot name users, hosts, files or secrets, so that a debug bundle shows it.
    """

    key: str
    short: str
    long: str
    argument: str
    help: str
    group: str
    second: str = ""
    alone: str = ""
    repeat: bool = False
    hidden: bool = False
    parse: Callable[..., object] | None = None
    joined: Callable[..., object] = tuple
    choices: tuple[str, ...] = ()
    names: str = ""
    rare: bool = False
    many_hosts: bool = False
    compiling: bool = False
    public: bool = False

    @property
    def arguments(self) -> str:
        """The names of its arguments."""
        return f"{self.argument} {self.second}".rstrip()

    @property
    def spelling(self) -> str:
        """The option as messages name it: by its letter, if it has one."""
        return f"-{self.short}" if self.short else f"--{self.long}"

    def converted(self, *texts: str) -> object:
        """The value of its argument, or of both.

        Raises:
            TraceError: it does not accept them.
        """
        if self.parse is not None:
            return self.parse(*texts)
        if self.choices and texts[0] not in self.choices:
            raise TraceError(
                f"{self.spelling} does not accept {texts[0]!r}", hints=("it takes " + ", ".join(self.choices),)
            )
        return texts[0]


# ---------------------------------------------------------------------------------------------- values

MODES = ("codegen", "compiler-bench", "bench", "test", "format")


def _mode(text: str) -> str:
    if text and text not in MODES:
        raise TraceError(f"unknown mode {text!r}", hints=("modes are " + ", ".join(MODES),))
    return text


STAGES = {
    "all": ("ast", "types", "ir", "ir-opt", "asm", "libbpf", "verifier"),
    "ast": ("ast",),
    "parse": ("ast",),
    "types": ("types",),
    "ir": ("ir",),
    "codegen": ("ir",),
    "ir-opt": ("ir-opt",),
    "codegen-opt": ("ir-opt",),
    "asm": ("asm",),
    "dis": ("asm",),
    "libbpf": ("libbpf",),
    "verifier": ("verifier",),
}
"""Stages that ``-d`` accepts, including bpftrace's names, and the output that each selects."""


def _stages(text: str) -> frozenset[str]:
    stages: set[str] = set()
    for name in text.split(","):
        if name not in STAGES:
            raise TraceError(f"unknown debug stage {name!r}", hints=("stages are " + ", ".join(STAGES),))
        stages.update(STAGES[name])
    return frozenset(stages)


def _features(text: str) -> frozenset[str]:
    from pytrace.core.kernel_info import known_features  # with --no-feature

    return known_features({name.strip() for name in text.split(",") if name.strip()})


def pid(text: str, option: str) -> int:
    """The process id *text*, an argument of *option*.

    Raises:
        TraceError: it is not a process id.
    """
    if not text.isascii() or not text.isdigit():
        raise TraceError(f"{option} needs a process id, not {text!r}")
    value = int(text)
    if not 0 < value <= MOST_PID:
        raise TraceError(f"process id {value} is out of range (1 to {MOST_PID})")
    return value


def _pids(text: str) -> tuple[int, ...]:
    return tuple(pid(word.strip(), "-p") for word in text.split(","))


def seconds(text: str, option: str, least: float | None = None) -> float:
    """A time in seconds (``2.5``, ``500ms``), more than 0 or *least* and more, the argument *text* of *option*.

    Raises:
        TraceError: it is none.
    """
    value = _time(text)
    if not (value > 0 if least is None else value >= least):
        hints = (f"for example {option} 2.5, or with a unit: 500ms, 2m",)
        raise TraceError(f"{option} needs a number of seconds, not {text!r}", hints=hints)
    return value


def _time(text: str) -> float:
    """Seconds of a time with or without unit; -1 if *text* is none."""
    from pytrace.core.text import NANOSECONDS, parse_time  # few runs have such an option

    value = parse_time(text)
    return -1.0 if value is None else value / NANOSECONDS


_SHORTEST_SAVE = 0.1
"""Minimum seconds between two snapshots."""
_SAVE_EVERY = "for example --save-every 10 snapshots: a file in the directory snapshots every 10 seconds"


def _save_every(text: str, folder: str) -> tuple[float, str]:
    seconds = _time(text)
    if seconds < 0:
        raise TraceError(f"--save-every needs a number of seconds, not {text!r}", hints=(_SAVE_EVERY,))
    if seconds < _SHORTEST_SAVE:
        raise TraceError(f"--save-every needs {_SHORTEST_SAVE} seconds at least, not {text}", hints=(_SAVE_EVERY,))
    if not folder:
        raise TraceError("--save-every needs the name of a directory", hints=(_SAVE_EVERY,))
    return seconds, folder


def _budget(text: str) -> Budget:
    with suppress(ValueError):
        budget = Budget.chosen(text)
        if budget is not None:
            return budget
    hints = ("for example --budget 1%, of the time of one CPU, or --budget 1%machine, of all CPUs",)
    raise TraceError(f"--budget needs a percentage, not {text!r}", hints=hints)


_LEAST_RATE, _MOST_RATE = 0.001, 1e9
"""Hits per second; a limit is a whole number of nanoseconds."""


def _rate(text: str) -> Rate:
    """A limit of ``--max-rate``: ``N/s``, or ``PROBE=N/s``."""
    pattern, _, number = text.rpartition("=")
    try:
        hits = float(number.removesuffix("/s"))
    except ValueError:
        hits = 0.0
    if not _LEAST_RATE <= hits <= _MOST_RATE:
        hints = ("for example --max-rate 1000/s, or --max-rate 'uprobe:/bin/bash:*=50/s'",)
        raise TraceError(f"--max-rate needs a number of hits per second, not {text!r}", hints=hints)
    return Rate(hits, pattern)


def _memory(text: str) -> str:
    try:
        parse_memory(text, 1 << 40)
    except ValueError as error:
        hints = ("for example --max-memory 512M, 2G, or 10% of the machine's memory",)
        raise TraceError(f"--max-memory: {error}", hints=hints) from None
    return text


def _watchdog(text: str) -> float:
    try:
        return watchdog_seconds(_time(text))
    except ValueError:
        raise TraceError(
            f"--watchdog needs 0, or a number of seconds of {SHORTEST_WATCHDOG:g} at least, not {text!r}",
            hints=("0 switches it off",),
        ) from None


def _folders(text: str) -> tuple[str, ...]:
    return debug_folders(part for part in text.split(":") if part.removeprefix("+"))


def _all(several: Iterable[Iterable[object]]) -> tuple[object, ...]:
    """All values of several arguments, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(several)))


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


# ---------------------------------------------------------------------------------------------- rows

OPTIONS: tuple[Option, ...] = (
    Option("program", "e", "program", "PROGRAM", "program text", "script", names="program", many_hosts=True),
    Option("include_directories", "I", "include-dir", "DIR", "search DIR for C headers", "script", repeat=True,
           names="folder", many_hosts=True, compiling=True),
    Option("includes", "", "include", "FILE", "include FILE before the script's own includes", "script", repeat=True,
           names="file", many_hosts=True, compiling=True),
    Option("list", "l", "list", "", "list probes, or those of a script; -v shows arguments", "script"),
    Option("pid", "p", "pid", "PID[,PID]", "trace these processes, exit when they have exited", "process", repeat=True,
           parse=_pids, joined=_all, names="process", public=True),
    Option("command", "c", "cmd", "COMMAND", "run COMMAND (its process id is cpid), exit when it exits", "process",
           names="command"),
    Option("exit_status", "", "exit-status", "", "with -c: exit with the status of COMMAND", "process"),
    Option("follow", "", "follow", "", "with -p or -c: also trace child processes", "process"),
    Option("comm", "", "comm", "NAME", "trace threads with this name", "process", repeat=True, names="thread",
           many_hosts=True),
    Option("uid", "u", "uid", "USER", "trace processes of this user: name or number", "process", repeat=True,
           names="user", many_hosts=True),
    Option("cgroup", "", "cgroup", "PATH", "trace this cgroup (version 2) and those below it", "process", repeat=True,
           names="folder"),
    Option("container", "", "container", "ID", "trace this container: id, UID of a pod, or name", "process",
           repeat=True),
    Option("netns", "", "netns", "NAME", "trace this network namespace: name or path; COMMAND runs in it", "process",
           names="namespace"),
    Option("exec_wait", "", "exec-wait", "NAME",
           "wait until NAME is executed, trace it and its children, exit when it exits", "process", names="thread"),
    Option("with_self", "", "self", "", "tools: show what pytrace itself does, too", "process"),
    Option("without_self", "", "no-self", "", "scripts: leave out what pytrace itself does, as tools do", "process"),
    Option("duration", "", "duration", "SECONDS", "end the run after SECONDS (or --for SECONDS)", "process",
           parse=partial(seconds, option="--duration"), many_hosts=True, public=True),
    Option("dwarf_pids", "", "dwarf-pid", "PID", "read unwind tables of PID for dw_ustack", "process", repeat=True,
           parse=partial(pid, option="--dwarf-pid"), names="process", rare=True),
    Option("usdt_file_activation", "", "usdt-file-activation", "",
           "raise USDT semaphores in all processes that map the file", "process", rare=True),
    Option("format", "f", "format", "FORMAT", "output format: text, json, csv, folded, speedscope, pprof ...",
           "output", names="format", many_hosts=True, public=True),
    Option("output", "o", "output", "FILE", "write the output of the script to FILE", "output", names="file",
           many_hosts=True),
    Option("open", "", "open", "", "show the FILE of -o (html, svg) on the desktop when it is written", "output"),
    Option("save", "", "save", "FILE", "save a snapshot to FILE at the end of the run", "output", names="file",
           many_hosts=True),
    Option("save_every", "", "save-every", "SECONDS", "save a snapshot in DIR every SECONDS, and at the end", "output",
           second="DIR", parse=_save_every),
    Option("live", "", "live", "", "show maps and output live, in the whole terminal (? lists the keys)", "output",
           many_hosts=True),
    Option("metrics", "", "metrics", "HOST:PORT", "serve the maps to Prometheus while the script runs", "output",
           parse=Address.parsed, many_hosts=True),
    Option("buffering", "B", "buffering", "MODE", "flush output: none, line or full", "output",
           choices=("none", "line", "full"), rare=True, public=True),
    Option("raw", "", "raw", "", "print control characters of traced data on a terminal as they are", "output"),
    Option("plain", "", "plain", "", "draw histograms on a terminal as in a file: without blocks and colour", "output"),
    Option("heat", "", "heat", "", "print histograms as they change: lines of a heat map, each second or print()",
           "output"),
    Option("quiet", "q", "quiet", "", "suppress pytrace's own messages", "output", many_hosts=True),
    Option("verbose", "v", "verbose", "", "more messages", "output"),
    Option("no_warnings", "", "no-warnings", "", "suppress warnings and reports of failed helpers", "output",
           rare=True, many_hosts=True),
    Option("warnings", "k", "warnings", "", "also report failed memory reads and map look-ups", "output", repeat=True,
           rare=True, compiling=True, public=True),
    Option("mark_unreadable", "", "mark-unreadable", "",
           "print <unreadable> for strings that cannot be read, and count failed reads", "output", compiling=True),
    Option("unsafe", "", "unsafe", "", "allow functions that change the system", "behaviour", many_hosts=True),
    Option("budget", "", "budget", "N%", "let tracing take N% of a CPU (N%machine: of all CPUs) at most", "behaviour",
           parse=_budget, many_hosts=True),
    Option("over_budget", "", "over-budget", "ACTION", "what to do with a probe that costs too much: sample or detach",
           "behaviour", choices=ACTIONS, many_hosts=True),
    Option("max_rate", "", "max-rate", "[PROBE=]N/s", "handle at most N hits per second of each block", "behaviour",
           repeat=True, parse=_rate, many_hosts=True),
    Option("probe_filter", "", "probe-filter", "REGEX", "attach only probes whose name matches REGEX", "behaviour",
           many_hosts=True, compiling=True, public=True),
    Option("no_features", "", "no-feature", "LIST",
           "disable kernel features: uprobe_multi, kprobe_multi, kprobe_session, ...", "behaviour", repeat=True,
           parse=_features, joined=_union, names="feature", many_hosts=True, public=True),
    Option("traceable_functions", "", "traceable-functions", "FILE", "read traceable kernel functions from FILE",
           "behaviour", names="file"),
    Option("debuginfo", "", "debuginfo", "DIR[:DIR]", "search DIR for debug information", "behaviour", repeat=True,
           parse=_folders, joined=_all, names="folder", many_hosts=True),
    Option("max_memory", "", "max-memory", "SIZE",
           "end the run when maps and pytrace take more than SIZE: 512M, 2G, 10% (10%)", "behaviour", parse=_memory,
           many_hosts=True),
    Option("watchdog", "", "watchdog", "SECONDS",
           "probes do nothing when pytrace has not run for SECONDS (10; 0: never)", "behaviour", parse=_watchdog),
    Option("no_cache", "", "no-cache", "", "compile again, do not cache the result", "behaviour"),
    Option("keep_privileges", "", "keep-privileges", "",
           "keep capabilities, and access to all files, while the script runs", "behaviour"),
    Option("yes", "", "yes", "", "attach probes that are hit very often without asking at the terminal", "behaviour"),
    Option("dry_run", "", "dry-run", "", "stop after attaching", "behaviour"),
    Option("mode", "", "mode", "MODE", "run mode: codegen, compiler-bench, bench, test or format", "mode",
           parse=_mode, choices=MODES, public=True),
    Option("test", "", "test", "", "run the test: probes", "mode"),
    Option("bench", "", "bench", "", "run the bench: probes", "mode"),
    Option("fmt", "", "fmt", "", "format the script; with -o rewrite that file", "mode"),
    Option("suggest", "", "suggest", "",
           "with --fmt: write pairs of entry and return as call: probes", "mode"),
    Option("show_script", "", "show-script", "", "print the script, or that of a tool, and stop", "mode"),
    Option("tools", "", "tools", "", "list the tools, or those that answer a word or question", "mode"),
    Option("info", "", "info", "", "show what this user may do, what a script needs, what the kernel supports", "mode"),
    Option("examples", "", "examples", "", "list the example scripts", "mode"),
    Option("help", "h", "help", "", "show this help", "mode"),
    Option("version", "V", "version", "", "show the version", "mode"),
    Option("debug", "d", "debug", "STAGES", "show stages: all, ast, types, ir, ir-opt, asm, libbpf, verifier", "debug",
           repeat=True, parse=_stages, joined=_union, choices=tuple(STAGES), public=True),
    Option("emit_elf", "", "emit-elf", "FILE", "write the BPF object to FILE and stop", "debug", names="file",
           compiling=True),
    Option("emit_llvm", "", "emit-llvm", "FILE", "write FILE.original.ll and FILE.optimized.ll", "debug", names="file",
           compiling=True),
    Option("verify_llvm_ir", "", "verify-llvm-ir", "", "verify the LLVM IR", "debug"),
    Option("aot", "", "aot", "FILE", "compile the script into FILE, to run it later", "debug", names="file",
           compiling=True),
    Option("debug_bundle", "", "debug-bundle", "FILE",
           "write what a bug report needs to FILE (.tar.gz), without tracing", "debug", names="file"),
    Option("btf", "b", "btf", "", "accepted, no effect", "debug", hidden=True),
)  # fmt: skip


class Table:
    """Rows of options by what a command line names.

    Attributes:
        abbreviated: whether the start of a long name will do.
        hints: where the options are listed, for messages.
    """

    def __init__(self, rows: Sequence[Option], *, abbreviated: bool, hints: tuple[str, ...]) -> None:
        self.by_key = {row.key: row for row in rows}
        self.short = {row.short: row for row in rows if row.short}
        self.long = {row.long: row for row in rows if row.long}
        # People who have read of one in a command's help type it to all others.
        if "duration" in self.by_key:
            self.long |= dict.fromkeys(("for", "duration"), self.by_key["duration"])
        self.abbreviated, self.hints = abbreviated, hints


_RUN = Table(OPTIONS, abbreviated=True, hints=(
    "pytrace --help lists the options", "parameters of the script that start with - go after --",
))  # fmt: skip
"""The options of a run."""

SUBCOMMANDS = {"why": "tell where the time of threads went", "calls": "print system calls as strace does, functions",
               "merge": "merge snapshots", "diff": "compare two snapshots", "show": "print a snapshot",
               "agent": "run a script for a controller", "fleet": "run a script on many hosts",
               "help": "read the documents, by topic", "lsp": "serve an editor (language server)"}  # fmt: skip
"""Subcommands with their summaries; a script of such a name is run by its path, ``./merge``."""
SHORTCUTS = {
    "flame": "write a flame graph", "heatmap": "write histograms over time", "top": "show what the machine does, live",
}  # fmt: skip
"""Words that stand for the command line of a tool (``cli/shortcuts``), with their summaries."""

_USAGE = """\
usage: pytrace [options] TOOL [options of the tool and of pytrace]
       pytrace --tools [WORD]                 (TOOL -h shows the options of a tool)
       pytrace [options] FILE [parameters] [-- parameters]
       pytrace [options] -e 'PROGRAM' [parameters] [-- parameters]
       pytrace [options] -                    (program from standard input)
       pytrace -l [-v] [PATTERN | FILE | -e 'PROGRAM']
"""

GROUPS = {
    "script": "Script",
    "process": "Processes",
    "output": "Output",
    "behaviour": "Behaviour",
    "mode": "Modes",
    "debug": "Debugging",
}


class GivenLetter(msgspec.Struct, frozen=True):
    """A letter of :data:`LETTERS` on a command line: long names of both options, and its value."""

    letter: str
    own: str
    word: str
    value: str

    @property
    def hint(self) -> str:
        """The spelling of bcc's option."""
        return f"-{self.letter} is --{self.own} in every tool; bcc's -{self.letter} of this tool is --{self.word}"

    @property
    def explains_errors(self) -> bool:
        """Whether errors may come from it: not where ``-c`` has a command that can be started."""
        words = self.value.split()
        return not (self.letter == "c" and words and _is_program(words[0]))

    @property
    def works(self) -> bool:
        """Whether a value meant for bcc's option is also valid for pytrace's, so that no error is reported."""
        if self.letter == "c":
            return "/" not in self.value and _is_program(self.value)
        if self.letter == "p":
            return os.path.exists(f"/proc/{self.value}")
        return self.letter in "vq" or (self.letter == "o" and self.value.isdigit())


class CommandLine(msgspec.Struct):
    """The parsed ``argv``: option values by key (True for flags, lists for repeatable options), and operands."""

    table: Table = _RUN
    values: dict[str, str | bool | list[str]] = msgspec.field(default_factory=dict)
    operands: list[str] = msgspec.field(default_factory=list)
    """Operands before ``--``: the file, if any, and positional parameters."""
    after: list[str] = msgspec.field(default_factory=list)
    """Words after ``--``."""
    words: ScriptWords | None = None
    """Options and operands of the script, if it declares options."""
    usage: bool = False
    """Whether the usage of the script was requested: ``-h`` after its name."""
    script: tuple[Source, bytes | None] | None = None
    """The script, if it has been read already: its text, and the bytes of a file that ``--aot`` wrote."""
    tool: str = ""
    """Name of the tool whose script *script* is."""
    bcc_letters: list[GivenLetter] = msgspec.field(default_factory=list)
    """Letters on the command line that belong to another option in bcc's tool of this name."""
    repeated: dict[str, None] = msgspec.field(default_factory=dict)
    """Options that were repeated with a different argument, as written."""

    def text(self, key: str) -> str | None:
        """Value of an option with an argument; None if it was not given."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    @property
    def knows_script(self) -> bool:
        """Whether the script has been determined."""
        return self.words is not None or self.script is not None

    def flag(self, key: str) -> bool:
        """Whether a flag was given."""
        return bool(self.values.get(key))

    def explained(self, error: TraceError) -> TraceError:
        """*error* with hints about letters that have another meaning in bcc's tool of the same name."""
        error.hints += tuple(letter.hint for letter in self.bcc_letters if letter.explains_errors)
        return error

    def value(self, row: Option) -> object:
        """The value of an option that was given: True for a flag, its converted argument, or all of them together.

        Raises:
            TraceError: the option does not accept an argument.
        """
        written = self.values[row.key]
        if isinstance(written, bool) or not row.argument:
            return written
        if row.repeat:
            return row.joined(map(row.converted, written))
        return row.converted(*([written] if isinstance(written, str) else written))

    def options(self, kind: type[TracingOptions]) -> dict[str, object]:
        """The values of all options that were given and are members of *kind*, by the same names.

        Raises:
            TraceError: an option does not accept an argument.
        """
        members = kind.__struct_fields__
        return {key: self.value(self.table.by_key[key]) for key in self.values if key in members}

    def argument(self, key: str, type_: type[T]) -> T | None:
        """The converted argument of an option that counts once; None if it was not given.

        Raises:
            TraceError: the option does not accept it.
        """
        written = self.values.get(key)
        if written is None or isinstance(written, bool):
            return None
        value = self.value(self.table.by_key[key])
        assert isinstance(value, type_)
        return value

    def arguments(self, key: str, type_: type[T]) -> tuple[T, ...]:
        """The converted arguments of a repeatable option, in order.

        Raises:
            TraceError: the option does not accept one of them.
        """
        values = tuple(self.table.by_key[key].converted(text) for text in self.many(key))
        assert all(isinstance(value, type_) for value in values)
        return cast("tuple[T, ...]", values)

    def many(self, key: str) -> list[str]:
        """Texts of a repeatable option, in order."""
        value = self.values.get(key)
        return list(value) if isinstance(value, list) else []


Find = Callable[[CommandLine, Sequence[str]], Sequence[str]]
"""Called once the script may be known, with the words after its name: resolves the script and sets its members of the
command line (``words``, ``script``, ``tool``). Returns the words to continue with."""


def read(argv: Sequence[str], find: Find | None = None) -> CommandLine:
    """Parse *argv* (without the program name) by the option table, and by that of the script after its name.

    Raises:
        TraceError: an option is unknown, ambiguous, or lacks its argument.
    """
    line = CommandLine()
    try:
        _parse_words(line, argv, find)
    except TraceError as error:
        raise line.explained(error) from None
    return line


def _parse_words(line: CommandLine, argv: Sequence[str], find: Find | None) -> None:
    index = 0
    while index < len(argv):
        word = argv[index]
        index += 1
        if word == "--":
            line.after.extend(argv[index:])
            break
        had_program = "program" in line.values
        if word.startswith("-") and word != "-" and not (line.words and line.words.is_operand(word)):
            index = parse_option(line, argv, index)
        elif line.words is not None and line.words.takes_operands():
            line.words.operands.append(word)
        else:
            line.operands.append(word)
            if find is not None and len(line.operands) == 1 and not had_program:
                argv, index = find(line, argv[index:]), 0
        if find is not None and not had_program and "getopt" in (line.text("program") or "") and not line.words:
            argv, index = find(line, argv[index:]), 0
    for name, text in line.words.general(line.after) if line.words is not None else ():
        _parse_long(line, f"{name}={text}", (), 0)


def parse_option(line: CommandLine, argv: Sequence[str], index: int) -> int:
    """Parse the option that is the word of *argv* before *index*. Returns the index after its argument.

    Raises:
        TraceError: it is unknown, ambiguous, or lacks its argument.
    """
    word = argv[index - 1]
    if word.startswith("--"):
        return _parse_long(line, word[2:], argv, index)
    return _parse_short(line, word[1:], argv, index)


def _script_long(line: CommandLine, text: str, argv: Sequence[str], index: int) -> int | None:
    """Parse a long option of the script; None if the script has none of that name, or pytrace's matches exactly."""
    words = line.words
    name, equals, after = text.partition("=")
    option = words.word(name) if words is not None else None
    if option is None and name == "help" and line.knows_script:
        line.usage = True
        return index
    if words is None:
        return None
    if option is None and name not in line.table.long:
        option = words.abbreviated(name)
    if option is None:
        return None
    value = after if equals else None
    if value is None and option.argument:
        if index >= len(argv):
            raise TraceError(f"option --{name} needs an argument: {option.argument}")
        value, index = argv[index], index + 1
    if words.set(option, f"--{name}", value):
        line.repeated[f"--{name}"] = None
    return index


def _script_letter(line: CommandLine, letters: str, argv: Sequence[str], index: int) -> tuple[str, int] | None:
    """Parse the first of *letters* as an option of the script; None if the script has no such option."""
    words, letter, rest = line.words, letters[0], letters[1:]
    option = words.letter(letter) if words is not None else None
    if option is None and letter == "h" and line.knows_script:
        line.usage = True
        return rest, index
    if words is None or option is None:
        return None
    value = None
    if option.argument:
        if not rest and index >= len(argv):
            raise TraceError(f"option -{letter} needs an argument: {option.argument}")
        value, rest, index = (rest, "", index) if rest else (argv[index], "", index + 1)
    if letter in line.table.short:
        words.taken[f"-{letter}"] = line.table.short[letter].long
    if words.set(option, f"-{letter}", value):
        line.repeated[f"-{letter}"] = None
    return rest, index


def _parse_long(line: CommandLine, text: str, argv: Sequence[str], index: int) -> int:
    own = _script_long(line, text, argv, index)
    if own is not None:
        return own
    name, equals, value = text.partition("=")
    known = line.table.long
    row = known.get(name) or known.get(name.replace("_", "-"))
    if row is None:
        matches = [long for long in known if long.startswith(name)] if line.table.abbreviated else []
        if len(matches) > 1:
            hint = "could be " + ", ".join(f"--{match}" for match in matches)
            raise TraceError(f"option --{name} is ambiguous", hints=(hint,))
        if not matches:
            near = similar(name, (*known, *_script_names(line)))
            hints = ("did you mean " + " or ".join(f"--{m}" for m in near) + "?",) if near else ()
            raise TraceError(f"unknown option --{name}", hints=(*hints, *_where_listed(line)))
        row = known[matches[0]]
    if not row.argument:
        if equals:
            raise TraceError(f"option --{row.long} takes no argument")
        _set(line, row, "")
        return index
    if not equals and row.alone:
        value = row.alone
    elif not equals:
        if index >= len(argv):
            raise TraceError(f"option --{row.long} needs {_arguments(row)}")
        value = argv[index]
        index += 1
    if row.second:
        return _set_pair(line, row, value, argv, index)
    _set(line, row, value)
    return index


def _where_listed(line: CommandLine) -> tuple[str, ...]:
    """Hints for an unknown option."""
    if line.words is not None and line.words.options:
        return (f"pytrace {line.words.name} -h lists the options",)
    return line.table.hints


def _arguments(row: Option) -> str:
    return f"two arguments: {row.arguments}" if row.second else f"an argument: {row.argument}"


def _set_pair(line: CommandLine, row: Option, first: str, argv: Sequence[str], index: int) -> int:
    """Parse an option with two arguments, stored as a list of two values; the last occurrence counts."""
    # If the second argument was forgotten, the next option would be taken for it.
    if index >= len(argv) or argv[index].startswith("-"):
        raise TraceError(f"option --{row.long} needs {_arguments(row)}")
    if line.values.get(row.key, [first, argv[index]]) != [first, argv[index]]:
        line.repeated[f"--{row.long}"] = None
    line.values[row.key] = [first, argv[index]]
    return index + 1


def _parse_short(line: CommandLine, letters: str, argv: Sequence[str], index: int) -> int:
    while letters:
        own = _script_letter(line, letters, argv, index)
        if own is not None:
            letters, index = own
            continue
        letter, letters = letters[0], letters[1:]
        row = line.table.short.get(letter)
        if row is None:
            raise TraceError(f"unknown option -{letter}", hints=_where_listed(line))
        if line.words is not None and letter in line.words.bcc_letters:
            value = letters or "".join(argv[index : index + 1])
            line.bcc_letters.append(GivenLetter(letter, row.long, line.words.bcc_letters[letter], value))
        if not row.argument:
            _set(line, row, "")
            continue
        if not letters:
            if index >= len(argv):
                raise TraceError(f"option -{letter} needs an argument: {row.argument}")
            letters = argv[index]
            index += 1
        _set(line, row, letters)
        letters = ""
    return index


def _script_names(line: CommandLine) -> list[str]:
    return [word for option in line.words.options for word in option.words] if line.words is not None else []


def _set(line: CommandLine, row: Option, value: str) -> None:
    if row.repeat:
        values = line.values.setdefault(row.key, [])
        if isinstance(values, list):
            values.append(value)
        return
    # The last occurrence of an option counts, as in other commands: wrapper scripts rely on it.
    if row.argument and line.values.get(row.key, value) != value:
        line.repeated[row.spelling] = None
    line.values[row.key] = value if row.argument else True


def help_text() -> str:
    """The text of ``--help``."""
    parts = [_QUESTIONS, _USAGE, _others()]
    for group, title in GROUPS.items():
        parts.append(f"\n{title}:\n")
        parts.extend(row_help(row) for row in OPTIONS if row.group == group and not row.hidden)
    parts.append(_EXAMPLES)
    return "".join(parts)


def row_help(row: Option) -> str:
    """The lines of an option in ``--help``."""
    names = ", ".join(filter(None, (row.short and f"-{row.short}", row.long and f"--{row.long}")))
    left = f"{names}[={row.argument}]" if row.alone else f"{names} {row.arguments}".strip()
    gap = "\n" + " " * 32 if len(left) > 28 else " " * (30 - len(left))
    return f"  {left}{gap}{row.help}\n"


_QUESTIONS = """\
pytrace traces programs and the Linux kernel with BPF. People ask:

  why is it slow?                pytrace why -c './program'        (-p PID --for 10)
  which function is it?          pytrace flame -c './program'      (-p PID; --off-cpu: where it waits)
  what is busy now?              pytrace top
  what does it do?               pytrace calls -c './program'      (as strace, without stopping it)
  which tool for it?             pytrace --tools slow              (lock, leak, fails, who deletes my file)
  what changed?                  pytrace diff before.pts after.pts (snapshots of --save)
  and anything else              pytrace -e 'tracepoint:sched:* { @[probe, comm] = count(); }' -c ./program

"""


def _others() -> str:
    """The words that are no tools, each with its summary."""
    lines = [f"  {name:10} {summary}\n" for name, summary in (*SHORTCUTS.items(), *SUBCOMMANDS.items())]
    return f"\nCommands (each with -h):\n{''.join(lines)}"


def _is_program(name: str) -> bool:
    """Whether a command of this name can be started."""
    folders = ("",) if "/" in name else os.get_exec_path()
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)


_EXAMPLES = """
Examples:
  pytrace -e 'tracepoint:syscalls:sys_enter_openat { @[comm] = count(); }' -c 'ls /'
  pytrace -e 'k:do_sys_open < @[comm]=count(); >'
  pytrace -l 'tracepoint:sched:*'
  pytrace script.bt -- --interval=5
"""
