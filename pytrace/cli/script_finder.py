"""The script that a command line names: a file, standard input, the text of ``-e``, or a tool by its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from pytrace.cli import messages, selection
from pytrace.cli.options import SHORTCUTS, SUBCOMMANDS, CommandLine, read
from pytrace.cli.scripts import tools
from pytrace.cli.scripts.bcc_letters import LETTERS
from pytrace.core import script_files
from pytrace.core.diagnostics import Diagnostics, TraceError, similar
from pytrace.core.source import Source

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
        _declared(line, Source("stdin", program), "-e 'PROGRAM'", rest)
        return rest
    name = line.operands[0]
    if name.isascii() and name.isalnum():
        implied = _tool(line, name, rest)
        if implied is not None:
            return [*implied, *rest]
    if os.path.isfile(name) or not (line.flag("list") or _needs_no_file(rest)):
        line.script = read_file(name)
        _declared(line, line.script[0], name, rest)
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


def _tool(line: CommandLine, name: str, rest: Sequence[str]) -> Sequence[str] | None:
    """Select the tool *name*. Returns the words that its name implies, or None if there is no such tool."""
    real, implied = tools.resolve(name)
    path = tools.path(real)
    if path:
        source = script_files.text(path, name)
        line.script, line.tool = (source, None), name
        _declared(line, source, name, rest)
        if line.words is not None:
            line.words.bcc_letters = LETTERS.get(real, {})
        return implied
    if real not in tools.TRANSLATED:
        return None
    from pytrace.cli.scripts.words import ScriptWords
    from pytrace.multitools.table import TOOLS

    line.tool = name
    line.words = ScriptWords(name, TOOLS[real].options, positional=False, bcc_letters=LETTERS.get(real, {}))
    return implied


def _declared(line: CommandLine, source: Source, name: str, rest: Sequence[str]) -> None:
    """Set up the options and operands of the script on the rest of the command line."""
    if "getopt" not in source.text and "import" not in source.text:
        return
    from pytrace.cli.scripts import declared

    diagnostics = Diagnostics()
    declarations = declared.of(source, diagnostics)
    if diagnostics.failed and not line.flag("fmt") and "--fmt" not in rest:
        messages.check(diagnostics)
    if declarations.options:
        from pytrace.cli.scripts.words import ScriptWords

        line.words = ScriptWords(name, declarations.options, declarations.positional)


def complete(line: CommandLine) -> None:
    """Add the script and options that a translated tool implies to a fully parsed command line.

    Raises:
        TraceError: the value of an option is invalid.
    """
    if not line.tool or line.usage:
        return
    _tell_letters(line)
    if line.words is not None and line.words.given.pop("csv", []):
        line.values.setdefault("format", "csv")
    if line.words is not None and line.text("duration") is not None:
        line.words.fit_outputs(selection.duration(line) or 0)
    if line.script is None and line.words is not None:
        from pytrace.multitools.table import TOOLS

        named_values(line, ())
        from pytrace.runtime.live_kernel import LiveKernel

        translation = TOOLS[tools.resolve(line.tool)[0]].translate(line.words.values(), LiveKernel())
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
    if line.text("command") is not None:
        line.values["follow"] = True


def named_values(
    line: CommandLine, after: Iterable[tuple[str, str | None]]
) -> tuple[tuple[str, str | None], ...]:
    """The checked values of the script's options, as :meth:`ScriptWords.named` returns them.

    Raises:
        TraceError: a value is invalid, or names something that this machine does not have.
    """
    assert line.words is not None
    values = line.words.named(after)
    if line.words.has_typed_values():
        from pytrace.cli import option_subjects

        option_subjects.check(line.words, other_network=line.text("netns") is not None)
    return values


def _tell_letters(line: CommandLine) -> None:
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
            raise TraceError(f"there is no tool and no file {name!r}", hints=_meant(name)) from error
        raise TraceError(f"cannot read script {name!r}: {error.strerror}", hints=_hints(name)) from error


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


def _hints(name: str) -> tuple[str, ...]:
    if any(c in name for c in "{<"):
        return ("a program on the command line goes after -e",)
    stem = name.removesuffix(".bt")
    if stem != name and tools.is_name(stem) and stem in tools.names():
        return (f"pytrace {stem} runs the tool; pytrace {stem} --show-script prints its script",)
    return ()


def _meant(name: str) -> tuple[str, ...]:
    """Hints for a word that names neither a tool nor a file."""
    if name in _PEERS:
        return (_PEERS[name],)
    near = similar(name, [*tools.names(), *SUBCOMMANDS, *SHORTCUTS])
    hint = f"did you mean {' or '.join(near)}?" if near else "pytrace --tools lists the tools, pytrace --help the rest"
    return (hint,)
