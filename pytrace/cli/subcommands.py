"""``pytrace merge``, ``diff`` and ``show``: operations on snapshots; ``agent``, ``calls``, ``fleet`` and ``help``."""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from pytrace.base import extras, terminal, whole_files
from pytrace.base.control_characters import printable_lines
from pytrace.cli import messages
from pytrace.cli.options import SHORTCUTS, SUBCOMMANDS
from pytrace.cli.shortcuts import CommandParser
from pytrace.core.diagnostics import TraceError
from pytrace.results import file_form
from pytrace.results.difference import Difference, difference, scaled
from pytrace.results.formats import table, text_and_json
from pytrace.results.formats.format_row import Format, WriteOptions
from pytrace.results.merge import merge
from pytrace.results.snapshot import SnapshotData

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from pytrace.base.desktop import Viewer


def run(words: Sequence[str]) -> int:
    """Run the subcommand that is the first of *words*. Returns the exit status.

    Raises:
        TraceError: an option or a file is invalid.
    """
    if words[0] in _RUNS:
        return _RUNS[words[0]][1](words[1:])
    make, act = _COMMANDS[words[0]]
    parser = make()
    if len(words) == 1:
        sys.stderr.write(parser.format_help())
        return 1
    arguments = parser.parse_intermixed_args(list(words[1:]))
    if arguments.output not in (None, "-") or not os.isatty(1):
        terminal.show_on(2)
    viewer = _viewer(arguments) if getattr(arguments, "open", False) else None
    with terminal.step("reading snapshots and writing the result"):
        status = act(arguments)
    if viewer is not None:
        viewer.open()
    return status


def _viewer(arguments: Namespace) -> Viewer:
    path = _path(arguments.output)
    return messages.viewer(path, table.chosen(arguments.format, path)[0].name)


def help_text(name: str) -> str:
    """The usage of a subcommand."""
    make = _RUNS[name][0] if name in _RUNS else _COMMANDS[name][0]
    return make().format_help()


# ---------------------------------------------------------------------------------------------- merge


def _merge_parser() -> CommandParser:
    parser = CommandParser(
        "merge", "Merge snapshots of different runs to one, as if one run had seen everything.",
        "examples:\n  pytrace merge web1.pts web2.pts -o web.pts",
    )  # fmt: skip
    parser.add_argument("files", nargs="+", metavar="FILE", help="snapshots that --save wrote")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the snapshot to write; - for a pipe")
    _add_limit(parser)
    return parser


def _merge(arguments: Namespace) -> int:
    with ExitStack() as stack:
        snapshots = [stack.enter_context(file_form.opened(name, arguments.limit)) for name in arguments.files]
        data = file_form.to_bytes(merge(snapshots, arguments.files))
    with _output(arguments.output, binary=True) as file:
        file.write(data)
    return 0


# ---------------------------------------------------------------------------------------------- show


def _show_parser() -> CommandParser:
    parser = CommandParser(
        "show", "Print a snapshot as the run printed its maps, or write it in another format.",
        "examples:\n  pytrace show web.pts\n  pytrace show web.pts --map @opens -o opens.json\n"
        "  pytrace show saved/*.pts -o web.html",
    )  # fmt: skip
    parser.add_argument("files", nargs="+", metavar="FILE",
                        help="a snapshot; several (of --save-every) are a series in time, for -f html")  # fmt: skip
    _add_output(parser)
    parser.add_argument("--folder", metavar="DIR", help="of csv, arrow, parquet: a file in DIR for each table")
    parser.add_argument("-v", "--about", action="store_true",
                        help="begin with what is known of the runs: host, kernel, times, losses")  # fmt: skip
    return parser


def _show(arguments: Namespace) -> int:
    row, options = table.chosen(arguments.format, _path(arguments.output), about=arguments.about)
    if arguments.folder is not None:
        _write_folder(row, options, arguments)
        return 0
    if len(arguments.files) > 1:
        _write_series(row, options, arguments)
        return 0
    with file_form.opened(arguments.files[0], arguments.limit) as snapshot:
        write_snapshot(snapshot, row, options, arguments)
    return 0


def _write_folder(row: Format, options: WriteOptions, arguments: Namespace) -> None:
    """Write each map and each table of rows to a file of its own."""
    if not row.tables:
        able = ", ".join(other.name for other in table.FORMATS if other.tables)
        raise TraceError(f"--folder is for tables: -f {able}, and not {row.name}")
    if len(arguments.files) > 1 or arguments.output is not None:
        raise TraceError("--folder takes one snapshot and no -o: its files are named after the maps")
    writer = row.writer()
    snapshot = file_form.read(arguments.files[0], arguments.limit)
    chosen = table.select(snapshot, row, arguments.map or ())
    try:
        os.makedirs(arguments.folder, exist_ok=True)
    except OSError as error:
        raise TraceError(f"cannot write to {arguments.folder!r}: {error.strerror}") from error
    for stem, part in table.apart(chosen.snapshot):
        with _output(os.path.join(arguments.folder, f"{stem}{row.suffixes[0]}"), binary=row.binary) as file:
            writer(part, options, file)


def _write_series(row: Format, options: WriteOptions, arguments: Namespace) -> None:
    """Write several snapshots as a series in time."""
    if row.series is None:
        able = ", ".join(other.name for other in table.FORMATS if other.series is not None)
        hints = (f"formats that show several as a series in time: {able}", "pytrace merge makes one of different runs")
        raise TraceError(f"format {row.name} shows one snapshot, and {len(arguments.files)} are named", hints=hints)
    snapshots = [_narrowed(file_form.read(name, arguments.limit), arguments.map) for name in arguments.files]
    if arguments.map:
        _check_maps(arguments.map, *snapshots)
    data = row.series(snapshots, options)
    with _output(arguments.output, binary=row.binary) as file:
        file.write(data)


def write_snapshot(snapshot: SnapshotData, row: Format, options: WriteOptions, arguments: Namespace) -> None:
    """Write the parts of a snapshot that format *row* can show, and warn about the others."""
    chosen = table.select(snapshot, row, arguments.map or ())
    writer = row.writer()
    held = len(chosen.snapshot.maps) + len(chosen.snapshot.tables)
    if row.name == "csv" and held > 1 and arguments.output not in (None, "-"):
        sys.stderr.write(f"NOTE: the file holds {held} tables, one after another; --folder DIR writes a file each\n")
    sys.stderr.write("".join(f"WARNING: {sentence}\n" for sentence in chosen.left_out))
    with _output(arguments.output, binary=row.binary) as file:
        writer(chosen.snapshot, options, file)


# ---------------------------------------------------------------------------------------------- diff


def _diff_parser() -> CommandParser:
    parser = CommandParser(
        "diff", "Compare two snapshots key by key: two moments of one run, or two runs.",
        "examples:\n  pytrace diff before.pts after.pts\n  pytrace diff before.pts after.pts --map @stacks -f json",
    )  # fmt: skip
    parser.add_argument("before", metavar="BEFORE", help="the earlier snapshot")
    parser.add_argument("after", metavar="AFTER", help="the later one")
    help_ = "compare shares: multiply numbers by stack of BEFORE, so that both have the same total"
    parser.add_argument("--scale", action="store_true", help=help_)
    _add_output(parser)
    return parser


def _diff(arguments: Namespace) -> int:
    row, options = table.chosen(arguments.format, _path(arguments.output))
    with ExitStack() as stack:
        return _compare(row, options, arguments, stack)


def _compare(row: Format, options: WriteOptions, arguments: Namespace, stack: ExitStack) -> int:
    files = (arguments.before, arguments.after)
    if row.differential is not None:
        # Pictures look keys up, which takes the maps to memory.
        sides = [file_form.read(name, arguments.limit) for name in files]
    else:
        sides = [stack.enter_context(file_form.opened(name, arguments.limit)) for name in files]
    before, after = (_narrowed(side, arguments.map) for side in sides)
    if arguments.map:
        _check_maps(arguments.map, before, after)
    elif visible := {name for side in (before, after) for name, data in side.maps.items() if not data.hidden}:
        # Others are helpers of the script, unless it shows rows alone: then they hold what the rows were made of.
        before, after = (
            replace(side, maps={name: data for name, data in side.maps.items() if name in visible})
            for side in (before, after)
        )
    sentences: dict[str, str] = {}
    if arguments.scale:
        before, sentences = scaled(before, after)
        options = replace(options, notes=tuple(f"{name}: {sentence}" for name, sentence in sentences.items()))
        if row.differential is None and row.name != "text":
            sys.stderr.write("".join(f"NOTE: {note}\n" for note in options.notes))
    compared = difference(before, after, files, by_function=row.name in _FORMS)
    for name in sentences.keys() & compared.maps.keys():
        compared.maps[name] = replace(compared.maps[name], found=(sentences[name], *compared.maps[name].found))
    if row.differential is not None:
        data = row.differential(*_shown_parts(row, before, after), options)
        with _output(arguments.output, binary=row.binary) as file:
            file.write(data)
        return 0
    form = _FORMS.get(row.name)
    if form is None:
        # Formats without a form for differences show signed numbers.
        arguments.map = None
        write_snapshot(compared.signed(), row, options, arguments)
        return 0
    with _output(arguments.output, binary=False) as file:
        file.writelines(form(compared))
    return 0


def _shown_parts(row: Format, before: SnapshotData, after: SnapshotData) -> tuple[SnapshotData, SnapshotData]:
    """The maps of two snapshots that format *row* can show; the others are reported once."""
    chosen = [table.select(side, row) for side in (before, after)]
    sentences = dict.fromkeys(sentence for part in chosen for sentence in part.left_out)
    sys.stderr.write("".join(f"WARNING: {sentence}\n" for sentence in sentences))
    return chosen[0].snapshot, chosen[1].snapshot


def _narrowed(snapshot: SnapshotData, names: Sequence[str] | None) -> SnapshotData:
    """A snapshot with only the maps *names*, all for None."""
    if not names:
        return snapshot
    selected = {name if name.startswith("@") else f"@{name}" for name in names}
    maps = {name: data for name, data in snapshot.maps.items() if name in selected}
    return SnapshotData(snapshot.runs, maps, (), snapshot.losses, costs=snapshot.costs)


def _check_maps(names: Sequence[str], *snapshots: SnapshotData) -> None:
    for name in names:
        if not {name, f"@{name}"} & {known for snapshot in snapshots for known in snapshot.maps}:
            raise TraceError(f"there is no map {name!r} in any of the snapshots")


# ---------------------------------------------------------------------------------------------- agent


def _agent_parser() -> CommandParser:
    return CommandParser(
        "agent", "Run one script for a controller: a request on standard input, messages on standard output.",
        "Programs type this, people type pytrace fleet: pytrace help agent-protocol describes the messages.",
    )  # fmt: skip


def _agent(words: Sequence[str]) -> int:
    parser = _agent_parser()
    parser.parse_args(words)
    if os.isatty(0):
        sys.stderr.write(parser.format_help())
        return 1
    from pytrace.agent import agent  # with it the Python interface and the runtime

    return agent.run()


# ---------------------------------------------------------------------------------------------- fleet


def _fleet_parser() -> CommandParser:
    from pytrace.cli import fleet_command  # with it what a run of a script takes

    return fleet_command.parser()


def _fleet(words: Sequence[str]) -> int:
    from pytrace.cli import fleet_command  # as above

    return fleet_command.run(words, write_snapshot)


# ---------------------------------------------------------------------------------------------- why


def _why_parser() -> CommandParser:
    from pytrace.cli import why_command  # with it the Python interface

    return why_command.parser()


def _why(words: Sequence[str]) -> int:
    from pytrace.cli import why_command  # as above

    return why_command.run(words)


# ---------------------------------------------------------------------------------------------- calls


def _calls_parser() -> CommandParser:
    from pytrace.cli import calls_command  # one of many commands

    return calls_command.parser()


def _calls(words: Sequence[str]) -> int:
    from pytrace.cli import calls_command  # as above

    return calls_command.run(words)


# ---------------------------------------------------------------------------------------------- help


def _help_parser() -> CommandParser:
    parser = CommandParser(
        "help", "Print a page of the documents, or what they say of a tool, command or word; alone, the list of pages.",
        "examples:\n  pytrace help privileges\n  pytrace help biolatency\n  pytrace help ustack",
    )  # fmt: skip
    parser.add_argument("topic", nargs="*", metavar="TOPIC", help="as the list names it, or a word or an option")
    return parser


def _help(words: Sequence[str]) -> int:
    known, options = _help_parser().parse_known_args(list(words))
    topic = " ".join((*known.topic, *options))
    from pytrace.cli import documents  # for people who read

    if topic in SUBCOMMANDS:
        text = help_text(topic)
    elif topic in SHORTCUTS:
        from pytrace.cli import shortcuts

        with redirect_stdout(io.StringIO()) as usage, suppress(SystemExit):
            shortcuts.expand([topic, "--help"])
        text = usage.getvalue()
    else:
        text = documents.page(topic) if topic else documents.topics()
    if sys.stdout.isatty():
        import pydoc

        pydoc.pager(text)
    else:
        sys.stdout.write(text)
    return 0


# ---------------------------------------------------------------------------------------------- lsp


def _lsp_parser() -> CommandParser:
    return CommandParser(
        "lsp", "Serve an editor: the Language Server Protocol on standard input and output.",
        "Editors start it: pytrace help editors shows how. It needs no root.",
    )  # fmt: skip


def _lsp(words: Sequence[str]) -> int:
    parser = _lsp_parser()
    # Editors may add --stdio, as most servers want it.
    parser.parse_args([word for word in words if word != "--stdio"])
    if os.isatty(0):
        sys.stderr.write(parser.format_help())
        return 1
    try:
        from pytrace.editor import server  # with it pygls, which is an extra
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        raise TraceError("pytrace lsp needs the Python package pygls", hints=(extras.hint("lsp"),)) from None
    return server.run()


# ---------------------------------------------------------------------------------------------- output


def _add_output(parser: CommandParser) -> None:
    names = ", ".join(row.name for row in table.FORMATS)
    parser.add_argument("-f", "--format", metavar="FORMAT",
                        help=f"{names}; without it as the name of the output file says, else text")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE, whole or not at all")
    parser.add_argument("--open", action="store_true", help="show FILE (html, svg) on the desktop")
    parser.add_argument("-m", "--map", action="append", metavar="NAME", help="only this map (may be given again)")
    _add_limit(parser)


def _add_limit(parser: CommandParser) -> None:
    parser.add_argument("--limit", type=_size, metavar="SIZE",
                        help="read files that unpack to so many bytes (4G, for example); without it to a hundred times "
                        "their size, or 32M")  # fmt: skip


def _size(text: str) -> int:
    """Parse a number of bytes with an optional suffix K, M, G or T."""
    number, unit = (text[:-1], text[-1]) if text[-1:].upper() in _UNITS[1:] else (text, "")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise ArgumentTypeError(f"{text!r} is no size, as 500M is")
    return int(number) << (10 * _UNITS.index(unit.upper()))


_UNITS = ("", "K", "M", "G", "T")


def _path(output: str | None) -> str | None:
    return None if output == "-" else output


class _Terminal(io.BufferedWriter):
    """Writes control characters as escapes; each write has whole lines."""

    def write(self, data: ReadableBuffer, /) -> int:
        super().write(printable_lines(bytes(data)))
        return len(memoryview(data))


@contextmanager
def _output(path: str | None, *, binary: bool) -> Iterator[BinaryIO]:
    """Standard output, on a terminal with control characters as escapes; or a file that is replaced atomically.

    Raises:
        TraceError: it cannot be written, or is a terminal and the format is binary.
    """
    if path is None or path == "-":
        if binary and os.isatty(1):
            raise TraceError("this format is nothing for a terminal", hints=("-o FILE writes it to a file",))
        sys.stdout.flush()
        if os.isatty(1):
            with _Terminal(io.FileIO(1, "wb", closefd=False)) as terminal:
                yield terminal
        else:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    try:
        with whole_files.replacing(path) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TraceError(f"cannot write {path!r}: {error.strerror}") from error


_FORMS: dict[str, Callable[[Difference], Iterator[bytes]]] = {
    "text": text_and_json.difference_text,
    "json": text_and_json.difference_json,
}
"""Formats with a form for differences."""

_COMMANDS: dict[str, tuple[Callable[[], CommandParser], Callable[[Namespace], int]]] = {
    "merge": (_merge_parser, _merge),
    "diff": (_diff_parser, _diff),
    "show": (_show_parser, _show),
}
"""Operations on files, by name: the parser of their options, and what they do."""

_RUNS: dict[str, tuple[Callable[[], CommandParser], Callable[[Sequence[str]], int]]] = {
    "agent": (_agent_parser, _agent),
    "calls": (_calls_parser, _calls),
    "fleet": (_fleet_parser, _fleet),
    "help": (_help_parser, _help),
    "lsp": (_lsp_parser, _lsp),
    "why": (_why_parser, _why),
}
"""Commands that take no files: the parser of their options, and what they do with their words."""
