"""The words after ``pytrace`` that are no script: a row for each with its options and operands, and their parser.

Options are rows of the same class as those of a run, and read by the same parser (``cli/options``); what a run has,
too, is the row of the run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from pytrace.cli import messages
from pytrace.cli.options import OPTIONS, CommandLine, Option, Table, parse_option, row_help, seconds
from pytrace.core.diagnostics import TraceError
from pytrace.core.text import LONGEST_TIME, NANOSECONDS, parse_time


class Operand(msgspec.Struct, frozen=True):
    """An operand of a command, or with *many* all that follow."""

    name: str
    help: str
    needed: bool = True
    many: bool = False


class Command(msgspec.Struct, frozen=True):
    """A command: ``pytrace NAME`` with options and operands.

    Attributes:
        usage: the words after the name, in the first line of its help; empty: made of options and operands.
        about: a sentence about what it does.
        notes: what its help ends with: examples.
        needed: keys of options that must be given.
    """

    name: str
    about: str
    notes: str
    options: tuple[Option, ...] = ()
    operands: tuple[Operand, ...] = ()
    usage: str = ""
    needed: tuple[str, ...] = ()

    def read(self, words: Sequence[str]) -> CommandLine:
        """Parse all *words*: options may stand among the operands.

        Raises:
            TraceError: an option or operand is not known, or missing.
            SystemExit: after ``--help``.
        """
        line, rest = self._read(words)
        line.operands = rest
        count, many = len(self.operands), any(item.many for item in self.operands)
        if len(rest) > count and not many:
            raise self._error(f"unexpected word {rest[count]!r}")
        for index, operand in enumerate(self.operands):
            if operand.needed and index >= len(rest):
                raise self._error(f"{operand.name} is missing: {operand.help}")
        for key in self.needed:
            if key not in line.values:
                row = line.table.by_key[key]
                raise self._error(f"option {row.spelling} {row.arguments} is missing")
        return line

    def read_own(self, words: Sequence[str]) -> tuple[CommandLine, list[str]]:
        """Parse the options of the command alone, wherever they stand. Returns them, and the other words in order."""
        return self._read(words, others=True)

    def read_first(self, words: Sequence[str]) -> tuple[CommandLine, list[str]]:
        """Parse the options at the start of *words*. Returns them, and the words from the first other one on."""
        return self._read(words, others=True, first=True)

    def _read(
        self, words: Sequence[str], *, others: bool = False, first: bool = False
    ) -> tuple[CommandLine, list[str]]:
        table = Table(self.options, abbreviated=False, hints=(f"pytrace {self.name} --help describes it",))
        line, index = CommandLine(table=table), 0
        rest: list[str] = []
        while index < len(words):
            word = words[index]
            index += 1
            if word in ("-h", "--help"):
                messages.write_pages(self.help_text())
                raise SystemExit(0)
            if word == "--":
                return line, [*rest, *words[index - others :]]
            if not word.startswith("-") or word == "-" or (others and not self._has(table, word)):
                if first:
                    return line, list(words[index - 1 :])
                rest.append(word)
                continue
            try:
                index = parse_option(line, words, index)
            except TraceError as error:
                raise self._error(error.message, error.hints) from None
        return line, rest

    @staticmethod
    def _has(table: Table, word: str) -> bool:
        return word[2:].partition("=")[0] in table.long if word.startswith("--") else word[1:2] in table.short

    def _error(self, message: str, hints: tuple[str, ...] = ()) -> TraceError:
        hints = hints or (f"pytrace {self.name} --help describes it",)
        return TraceError(f"pytrace {self.name}: {message}", hints=hints)

    @property
    def shown(self) -> tuple[Option, ...]:
        """The options that its help lists."""
        return tuple(row for row in self.options if not row.hidden)

    @property
    def synopsis(self) -> str:
        """The words after the name."""
        if self.usage:
            return self.usage
        words = [f"{row.spelling} {row.arguments}" for row in self.options if row.key in self.needed]
        words += ["[options]"] if len(self.shown) > len(self.needed) else []
        for item in self.operands:
            name = f"{item.name} ..." if item.many else item.name
            words.append(name if item.needed else f"[{name}]")
        return " ".join(words)

    def help_text(self) -> str:
        """The text of ``--help``."""
        parts = [f"usage: pytrace {self.name} {self.synopsis}".rstrip() + "\n", f"\n{self.about}\n"]
        rows = [Option("", "", "", item.name, item.help, "") for item in self.operands]
        parts += ["\nOperands:\n", *map(_wrapped, rows)] if rows else []
        parts += ["\nOptions:\n", *map(_wrapped, self.shown)] if self.shown else []
        return "".join((*parts, f"\n{self.notes}\n"))


def _wrapped(row: Option) -> str:
    lines = textwrap.wrap(row.help, 48, break_on_hyphens=False)
    return row_help(replace(row, help=("\n" + " " * 32).join(lines)))


def _number(text: str, option: str, least: int = 0) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19) or int(text) < least:
        raise TraceError(f"{option} needs a number, {least} or more, not {text!r}")
    return int(text)


def _size(text: str) -> int:
    """Parse a number of bytes with an optional suffix K, M, G or T."""
    units = ("", "K", "M", "G", "T")
    number, unit = (text[:-1], text[-1]) if text[-1:].upper() in units[1:] else (text, "")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise TraceError(f"--limit needs a number of bytes, as 500M is, not {text!r}")
    return int(number) << (10 * units.index(unit.upper()))


def _time(text: str, option: str, most: int = LONGEST_TIME) -> int:
    """Nanoseconds."""
    value = parse_time(text)
    if value is None or value > most:
        raise TraceError(f"{option} takes a time such as 10ms, not {text!r}")
    return value


# ---------------------------------------------------------------------------------------------- rows

_RUN = {row.key: row for row in OPTIONS}
_OUTPUT = replace(_RUN["output"], help="write to FILE, whole or not at all")
_FORMAT = replace(_RUN["format"], help="text or json", choices=("text", "json"), names="")
_OPEN = replace(_RUN["open"], help="show FILE (html, svg) on the desktop")
_MAP = Option("map", "", "map", "NAME", "print only this map of the answer (may be given again)", "", repeat=True)
_LIMIT = Option("limit", "", "limit", "SIZE",
                "read files that unpack to so many bytes (4G, for example); without it to a hundred times their size, "
                "or 32M", "", parse=_size)  # fmt: skip
_SNAPSHOT = (
    replace(_RUN["format"],
            help="text, json, csv, folded, html ... (pytrace help formats); without it as the name of the output file "
            "says, else text"),
    _OUTPUT, _OPEN, replace(_MAP, short="m", help="only this map (may be given again)"), _LIMIT,
)  # fmt: skip

_FLEET = (
    Option("hosts", "", "hosts", "NODESET", "hosts, in ClusterShell's notation; @GROUP", ""),
    Option("kubernetes", "", "kubernetes", "", "ask the nodes of a Kubernetes cluster, from pods", ""),
    Option("nodes", "", "nodes", "LABELS", "nodes of the cluster with these labels (all)", ""),
    Option("image", "", "image", "IMAGE", "the image of the pods (share/kubernetes/Dockerfile)", ""),
    Option("context", "", "context", "NAME", "of your Kubernetes configuration (the current one)", ""),
    Option("namespace", "", "namespace", "NAME", "of the pods (that of the context)", ""),
    Option("by", "", "by", "LABEL", "keys begin with the host (--by host), or with its group in a source of groups of "
           "ClusterShell, or the value of a label of the node", ""),
    Option("become", "", "become", "sudo", "start agents through sudo, without a password", "", choices=("sudo",)),
    Option("worker", "", "worker", "WORKER", "ClusterShell's worker: ssh, rsh or exec", "",
           choices=("ssh", "rsh", "exec")),
    Option("ssh_options", "", "ssh-options", "OPTIONS", "for ssh, beside your own configuration", ""),
    Option("fanout", "", "fanout", "N", "hosts at a time (1000)", "",
           parse=partial(_number, option="--fanout", least=1)),
    Option("topology", "", "topology", "FILE", "gateways, in ClusterShell's form (topology.conf of its "
           "configuration); none: all hosts are reached directly", "", names="file"),
    Option("agent", "", "agent", "COMMAND", "the command on the hosts (pytrace agent)", ""),
    Option("stage", "", "stage", "1,10,all", "run on so many hosts first; stop when one refuses, is over its budget, "
           "loses more than --max-losses, or is lost", ""),
    Option("soak", "", "soak", "SECONDS", "watch a stage this long (10)", "",
           parse=partial(seconds, option="--soak", least=0)),
    Option("max_losses", "", "max-losses", "N", "losses of a host that do not stop a roll-out (0)", "",
           parse=partial(_number, option="--max-losses")),
    Option("push", "", "push", "once", "send what hosts without pytrace need, which they keep, or remove with "
           "--push=once; --agent is their Python (python3)", "", alone="keep", choices=("keep", "once")),
    Option("compile_there", "", "compile-there", "", "send the text only: each host compiles it", ""),
    Option("every", "", "every", "SECONDS", "between two snapshots of a host (5)", "",
           parse=partial(seconds, option="--every", least=0)),
    Option("max_bytes", "", "max-bytes", "N", "bytes that a host may send", "",
           parse=partial(_number, option="--max-bytes", least=1)),
    Option("max_keys", "", "max-keys", "N", "entries of a map of the answer; of more, the largest (1000000)", "",
           parse=partial(_number, option="--max-keys", least=1)),
    _MAP,
    Option("max_events", "", "max-events", "N", "what a script may print on a host, or send with row()", "",
           parse=partial(_number, option="--max-events", least=1)),
)  # fmt: skip

COMMANDS: dict[str, Command] = {row.name: row for row in (
    Command(
        "flame", "Write a flame graph of the whole machine, of a process or of a command.",
        "Without SECONDS it ends by Ctrl-C, or with the command. Options of the tool and of pytrace follow:\n"
        "-p PID, -c COMMAND, -U (only the process's stacks), -K (only the kernel's), --open (on the desktop),\n"
        "--python (functions of Python alone as the process's stack; not with --alloc and --faults).\n\n"
        "examples:\n  pytrace flame -p 1234 10\n  pytrace flame --off-cpu -c './program' -o waits.svg\n"
        "  pytrace flame -e t:block:block_rq_issue 5",
        (
            Option("frequency", "F", "frequency", "HZ", "samples a second on each processor (99)", ""),
            Option("offcputime", "", "off-cpu", "",
                   "time off the processor, by the stack that waited (pytrace offcputime)", ""),
            Option("offwaketime", "", "wakeup", "",
                   "the same, with the stack of who woke it (pytrace offwaketime)", ""),
            Option("mallocs", "", "alloc", "", "bytes asked of malloc (pytrace mallocs)", ""),
            Option("over_time", "", "over-time", "SECONDS",
                   "for so many seconds, with the time of samples: the report shows a chosen range", ""),
            Option("faults", "", "faults", "", "page faults", ""),
            Option("event", "e", "event", "EVENT", "a function or event (pytrace stackcount)", ""),
            replace(_OUTPUT, help="a file of any format: x.html, x.svg …"),
        ),
        usage="[options] [SECONDS]",
    ),
    Command(
        "heatmap", "Run a tool or script with histograms, and write them over time: heat maps of time and bucket.",
        "Each interval is a snapshot in a directory beside FILE, which pytrace show reads again.\n"
        "Options of the tool and of pytrace follow it; --open shows the report on the desktop.\n\n"
        "examples:\n  pytrace heatmap biolatency --duration 60\n"
        "  pytrace heatmap --every 0.5 -o reads.html fsdist -p 1234 30",
        (
            Option("every", "", "every", "SECONDS", "the interval (1)", ""),
            replace(_OUTPUT, help="a report FILE.html, or a picture FILE.svg"),
        ),
        usage="[--every SECONDS] [-o FILE] TOOL|SCRIPT|-e PROGRAM …",
    ),
    Command(
        "top", "Show what is busy now in a live view: processes, system calls, files, block I/O and TCP.",
        "Enter shows the process of a row: threads, files, sockets, system calls, a flame graph; ? lists the keys. At\n"
        "the end a summary stays: the first rows of each panel. Options of pytrace follow:\n"
        "-p PID, -c COMMAND, --comm NAME, --container ID, --duration SECONDS.\n\n"
        "examples:\n  pytrace top\n  pytrace top -p 1234",
        usage="[options of pytrace]",
    ),
    Command(
        "why", "Tell where the time of all threads went: on CPU, waiting for a CPU, blocked and by what.",
        "examples:\n  pytrace why -c './program --option'\n  pytrace why -p 1234 --for 10\n"
        "  pytrace why --cgroup /system.slice/app.service --for 10 -f json",
        (
            replace(_RUN["command"], help="run this, and account for it and all that it starts"),
            replace(_RUN["pid"], help="these processes (may be given again)"),
            replace(_RUN["comm"], help="threads of this name"),
            replace(_RUN["cgroup"], help="processes in this cgroup and below"),
            replace(_RUN["container"], help="processes of this container"),
            replace(_RUN["uid"], help="processes of this user"),
            replace(_RUN["follow"], help="with -p: what the process starts, too (always with -c)"),
            replace(_RUN["duration"], long="for", parse=partial(seconds, option="--for"),
                    help="end after so many seconds; without it with the command or process"),
            Option("request", "", "request", "TARGET",
                   "where the time between its entry and return goes, and what the slowest 1% do differently: "
                   "./server:handle, python:app.handle, usdt:./server:start,end", ""),
            Option("goroutines", "", "goroutines", "",
                   "of a program of Go: account for goroutines; three probes for each of their turns", ""),
            Option("least", "", "min", "TIME",
                   "the shortest waits of critical path, chains and timeline (1ms); all are accounted for", "",
                   parse=partial(_time, option="--min", most=999 * NANOSECONDS)),
            Option("all", "", "all", "", "all causes, and each thread that waits for work", ""),
            _FORMAT,
            _OUTPUT,
            Option("html", "", "html", "FILE", "write a page, too: causes with flame graphs, threads over time", "",
                   names="file"),
            replace(_RUN["save"], help="write a snapshot by stack, which pytrace diff compares"),
        ),
        usage="-c COMMAND|-p PID|--comm NAME|--cgroup PATH|--container ID [options]",
    ),
    Command(
        "calls", "Print calls of processes, with arguments, results and durations, without stopping them.",
        "A TARGET is a pattern of names: 'syscall:open*' (all system calls without one), functions of libraries and\n"
        "programs ('libc:*', './app:Shop::*'), of Python ('python:app:*'). Functions are shown as a tree.\n\n"
        "examples:\n  pytrace calls -p 1234\n  pytrace calls -c 'ls /'\n  pytrace calls -p 1234 'syscall:open*' "
        "--failed\n  pytrace calls -p 1234 --slow 10ms\n  pytrace calls -c 'make' --follow --summary\n"
        "  pytrace calls -c ./app './app:Shop::*' 'syscall:write'\n"
        "  pytrace calls -c 'ls /' 'libc:*' -f perfetto -o ls.pftrace",
        (
            _RUN["pid"],
            replace(_RUN["command"], help="run COMMAND and trace it, exit when it exits"),
            replace(_RUN["follow"], help="also trace child processes"),
            Option("failed", "", "failed", "", "only calls that failed", ""),
            Option("slow", "", "slow", "TIME", "only calls that took so long: 10ms, 250us, 1.5s", "",
                   parse=partial(_time, option="--slow")),
            Option("depth", "", "depth", "N", "show functions that are nested at most N deep", "",
                   parse=partial(_number, option="--depth", least=1)),
            Option("summary", "", "summary", "", "a table at the end: time, calls, errors, p99 by call", ""),
            replace(_RUN["live"], help="show calls that have not returned, and lines, in the whole terminal"),
            Option("string_size", "s", "string-size", "N", "show N bytes of strings and buffers (32)", "",
                   parse=partial(_number, option="-s")),
            Option("time", "t", "time", "", "begin lines with the time of the day", ""),
            Option("relative", "r", "relative", "", "begin lines with the seconds since the first one", ""),
            Option("no_names", "", "no-names", "", "file descriptors as numbers alone", ""),
            replace(_FORMAT, help="text, json, perfetto, firefox or html",
                    choices=("text", "json", "perfetto", "firefox", "html")),
            _OUTPUT,
            _RUN["duration"],
        ),
        (Operand("TARGET", "calls: 'syscall:open*', 'libc:*', './app:Shop::*'", needed=False, many=True),),
        usage="[options] -p PID | -c COMMAND [TARGET ...]",
    ),
    Command(
        "merge", "Merge snapshots of different runs to one, as if one run had seen everything.",
        "examples:\n  pytrace merge web1.pts web2.pts -o web.pts",
        (replace(_OUTPUT, help="the snapshot to write; - for a pipe"), _LIMIT),
        (Operand("FILE", "snapshots that --save wrote", many=True),),
        needed=("output",),
    ),
    Command(
        "diff", "Compare two snapshots key by key: two moments of one run, or two runs.",
        "examples:\n  pytrace diff before.pts after.pts\n  pytrace diff before.pts after.pts --map @stacks -f json",
        (
            Option("scale", "", "scale", "",
                   "compare shares: multiply numbers by stack of BEFORE, so that both have the same total", ""),
            *_SNAPSHOT,
        ),
        (Operand("BEFORE", "the earlier snapshot"), Operand("AFTER", "the later one")),
    ),
    Command(
        "show", "Print a snapshot as the run printed its maps, or write it in another format.",
        "examples:\n  pytrace show web.pts\n  pytrace show web.pts --map @opens -o opens.json\n"
        "  pytrace show saved/*.pts -o web.html",
        (
            *_SNAPSHOT,
            Option("folder", "", "folder", "DIR", "of csv, arrow, parquet: a file in DIR for each table", "",
                   names="folder"),
            Option("about", "v", "about", "", "begin with what is known of the runs: host, kernel, times, losses", ""),
        ),
        (Operand("FILE", "a snapshot; several (of --save-every) are a series in time, for -f html", many=True),),
    ),
    Command(
        "agent", "Run one script for a controller: a request on standard input, messages on standard output.",
        "Programs type this, people type pytrace fleet: pytrace help agent-protocol describes the messages.",
    ),
    Command(
        "fleet", "Run a script or a tool on many hosts, and merge what it counts to one answer.",
        "examples:\n  pytrace fleet --hosts 'web[001-400]' biolatency --duration 30\n"
        "  pytrace fleet --hosts @db --by host -e 't:syscalls:sys_enter_fsync { @ = count(); }' --duration 10 -f json\n"
        "  pytrace fleet --hosts 'web[001-400]' why --comm nginx --for 10\n"
        "The script's options, --duration, --budget, -f, -o, --save and others of a run come after those above.",
        _FLEET,
        usage="--hosts NODESET|--kubernetes [options] SCRIPT|TOOL|-e PROGRAM [options of the run]",
    ),
    Command(
        "help", "Print a page of the documents, or what they say of a tool, command or word; alone, the list of pages.",
        "examples:\n  pytrace help privileges\n  pytrace help biolatency\n  pytrace help ustack",
        (),
        (Operand("TOPIC", "as the list names it, or a word or an option", needed=False, many=True),),
    ),
    Command(
        "lsp", "Serve an editor: the Language Server Protocol on standard input and output.",
        "Editors start it: pytrace help editors shows how. It needs no root.",
        # Editors may add it, as most servers want it.
        (Option("stdio", "", "stdio", "", "accepted, no effect", "", hidden=True),),
    ),
)}  # fmt: skip
"""The commands, by name."""
