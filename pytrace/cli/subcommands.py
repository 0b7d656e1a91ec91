"""``pytrace merge``, ``diff`` and ``show``: operations on snapshots; ``agent``, ``calls``, ``fleet`` and ``help``."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from pytrace.base import extras, terminal, whole_files
from pytrace.base.control_characters import printable_lines
from pytrace.cli import desktop, documents, messages
from pytrace.cli.commands import COMMANDS
from pytrace.cli.options import CommandLine
from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results import file_form
from pytrace.results.difference import Difference, difference
from pytrace.results.formats import table, text_and_json
from pytrace.results.formats.format_row import Format, WriteOptions
from pytrace.results.merge import merge
from pytrace.results.snapshot import Portable, SnapshotData, Value
from pytrace.results.stack_samples import is_profile

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def run(words: Sequence[str]) -> int:
    """Run the subcommand that is the first of *words*. Returns the exit status.

    Raises:
        TraceError: an option or a file is invalid.
    """
    name, words = words[0], words[1:]
    if name in _RUNS:
        # Off since the start, which makes hardly any garbage; these may run for days, and no session of the command
        # turns it on. What the start made stays.
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return _RUNS[name](words)
    if name in _MODULES:
        run: Callable[[Sequence[str]], int] = import_module(f"pytrace.cli.{name}_command").run
        return run(words)
    command = COMMANDS[name]
    if not words:
        sys.stderr.write(command.help_text())
        return 1
    line = command.read(words)
    output = line.text("output")
    if output not in (None, "-") or not os.isatty(1):
        terminal.show_on(2)
    viewer = desktop.viewer(_path(output), table.chosen(line.text("format"), _path(output))[0].name) if line.flag(
        "open") else None  # fmt: skip
    with terminal.step("reading snapshots and writing the result"):
        status = _FILES[name](line)
    if viewer is not None:
        viewer.open()
    return status


# ---------------------------------------------------------------------------------------------- merge


def _merge(line: CommandLine) -> int:
    with ExitStack() as stack:
        snapshots = [stack.enter_context(file_form.opened(name, line.argument("limit", int))) for name in line.operands]
        data = file_form.to_bytes(merge(snapshots, line.operands))
    with _output(line.text("output"), binary=True) as file:
        file.write(data)
    return 0


# ---------------------------------------------------------------------------------------------- show


def _show(line: CommandLine) -> int:
    row, options = table.chosen(line.text("format"), _path(line.text("output")), about=line.flag("about"))
    if (folder := line.text("folder")) is not None:
        _write_folder(row, options, folder, line)
        return 0
    if len(line.operands) > 1:
        _write_series(row, options, line)
        return 0
    with file_form.opened(line.operands[0], line.argument("limit", int)) as snapshot:
        write_snapshot(_without_helpers(snapshot, line), row, options, line.many("map"), line.text("output"))
    return 0


def _without_helpers(snapshot: SnapshotData, line: CommandLine) -> SnapshotData:
    """What the run printed: maps that no statement of the script prints are there when they are named."""
    return snapshot if line.many("map") else replace(snapshot, maps=snapshot.shown)


def _write_folder(row: Format, options: WriteOptions, folder: str, line: CommandLine) -> None:
    """Write each map and each table of rows to a file of its own."""
    if not row.tables:
        able = ", ".join(other.name for other in table.FORMATS if other.tables)
        raise TraceError(f"--folder is for tables: -f {able}, and not {row.name}")
    if len(line.operands) > 1 or "output" in line.values:
        raise TraceError("--folder takes one snapshot and no -o: its files are named after the maps")
    writer = row.writer()
    snapshot = file_form.read(line.operands[0], line.argument("limit", int))
    chosen = table.select(_without_helpers(snapshot, line), row, line.many("map"))
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise TraceError(f"cannot write to {folder!r}: {error.strerror}") from error
    for stem, part in table.apart(chosen.snapshot):
        with _output(os.path.join(folder, f"{stem}{row.suffixes[0]}"), binary=row.binary) as file:
            writer(part, options, file)


def _write_series(row: Format, options: WriteOptions, line: CommandLine) -> None:
    """Write several snapshots as a series in time."""
    if row.series is None:
        able = ", ".join(other.name for other in table.FORMATS if other.series is not None)
        hints = (f"formats that show several as a series in time: {able}", "pytrace merge makes one of different runs")
        raise TraceError(f"format {row.name} shows one snapshot, and {len(line.operands)} are named", hints=hints)
    maps, limit = line.many("map"), line.argument("limit", int)
    snapshots = [_narrowed(file_form.read(name, limit), maps) for name in line.operands]
    _check_maps(maps, *snapshots)
    data = row.series(snapshots, options)
    with _output(line.text("output"), binary=row.binary) as file:
        file.write(data)


def write_snapshot(
    snapshot: SnapshotData, row: Format, options: WriteOptions, maps: Sequence[str], output: str | None
) -> None:
    """Write the parts of a snapshot (of *maps*; all: empty) that format *row* can show to the file *output*, and warn
    about the others.
    """
    chosen = table.select(snapshot, row, maps)
    writer = row.writer()
    held = len(chosen.snapshot.maps) + len(chosen.snapshot.tables)
    if row.name == "csv" and held > 1 and output not in (None, "-"):
        sys.stderr.write(f"NOTE: the file holds {held} tables, one after another; --folder DIR writes a file each\n")
    sys.stderr.write("".join(f"WARNING: {sentence}\n" for sentence in chosen.left_out))
    with _output(output, binary=row.binary) as file:
        writer(chosen.snapshot, options, file)


# ---------------------------------------------------------------------------------------------- diff


def _diff(line: CommandLine) -> int:
    row, options = table.chosen(line.text("format"), _path(line.text("output")))
    with ExitStack() as stack:
        return _compare(row, options, line, stack)


def scaled(before: SnapshotData, after: SnapshotData) -> tuple[SnapshotData, dict[str, str]]:
    """The earlier state with numbers by stack that have the total of the later one, so that shares are compared.

    And a sentence for each such map.
    """
    maps, sentences = dict(before.maps), {}
    for name, old in before.maps.items():
        new = after.maps.get(name)
        if new is None or not is_profile(old) or not all(isinstance(one.value, types.SUMS) for one in (old, new)):
            continue
        was, now = (sum(number for number in side.entries.values() if isinstance(number, int)) for side in (old, new))
        if was <= 0 or now <= 0:
            continue
        entries: dict[Portable, Value] = {}
        seen = 0
        for key, number in old.entries.items():
            assert isinstance(number, int)
            # Ends are rounded, not numbers: many small ones keep their sum.
            entries[key] = (seen + number) * now // was - seen * now // was
            seen += number
        maps[name] = replace(old, entries=entries)
        sentences[name] = f"numbers before are multiplied by {now / was:.4g}: both have the same total"
    return replace(before, maps=maps), sentences


def _compare(row: Format, options: WriteOptions, line: CommandLine, stack: ExitStack) -> int:
    files, maps, limit = (line.operands[0], line.operands[1]), line.many("map"), line.argument("limit", int)
    if row.differential is not None:
        # Pictures look keys up, which takes the maps to memory.
        sides = [file_form.read(name, limit) for name in files]
    else:
        sides = [stack.enter_context(file_form.opened(name, limit)) for name in files]
    before, after = (_narrowed(side, maps) for side in sides)
    if maps:
        _check_maps(maps, before, after)
    elif visible := {name for side in (before, after) for name, data in side.maps.items() if not data.hidden}:
        # Others are helpers of the script, unless it shows rows alone: then they hold what the rows were made of.
        before, after = (
            replace(side, maps={name: data for name, data in side.maps.items() if name in visible})
            for side in (before, after)
        )
    sentences: dict[str, str] = {}
    if line.flag("scale"):
        before, sentences = scaled(before, after)
        options = replace(options, notes=tuple(f"{name}: {sentence}" for name, sentence in sentences.items()))
        if row.differential is None and row.name != "text":
            sys.stderr.write("".join(f"NOTE: {note}\n" for note in options.notes))
    compared = difference(before, after, files, by_function=row.name in _FORMS)
    for name in sentences.keys() & compared.maps.keys():
        compared.maps[name] = replace(compared.maps[name], found=(sentences[name], *compared.maps[name].found))
    if row.differential is not None:
        data = row.differential(*_shown_parts(row, before, after), options)
        with _output(line.text("output"), binary=row.binary) as file:
            file.write(data)
        return 0
    form = _FORMS.get(row.name)
    if form is None:
        # Formats without a form for differences show signed numbers.
        write_snapshot(compared.signed(), row, options, (), line.text("output"))
        return 0
    with _output(line.text("output"), binary=False) as file:
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


def _agent(words: Sequence[str]) -> int:
    COMMANDS["agent"].read(words)
    if os.isatty(0):
        sys.stderr.write(COMMANDS["agent"].help_text())
        return 1
    from pytrace.remote import agent  # with it the Python interface and the runtime

    return agent.run()


# ---------------------------------------------------------------------------------------------- help


def _help(words: Sequence[str]) -> int:
    topic = " ".join(COMMANDS["help"].read_own(words)[1])
    if topic in COMMANDS:
        text = COMMANDS[topic].help_text()
    else:
        text = documents.page(topic) if topic else documents.topics()
    messages.write_pages(text)
    return 0


# ---------------------------------------------------------------------------------------------- lsp


def _lsp(words: Sequence[str]) -> int:
    COMMANDS["lsp"].read(words)
    if os.isatty(0):
        sys.stderr.write(COMMANDS["lsp"].help_text())
        return 1
    try:
        from pytrace.cli import language_server  # with it pygls, which is an extra
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        raise TraceError("pytrace lsp needs the Python package pygls", hints=(extras.hint("lsp"),)) from None
    return language_server.run()


# ---------------------------------------------------------------------------------------------- output


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

_FILES: dict[str, Callable[[CommandLine], int]] = {"merge": _merge, "diff": _diff, "show": _show}
"""Operations on files, by name."""

_RUNS: dict[str, Callable[[Sequence[str]], int]] = {"agent": _agent, "help": _help, "lsp": _lsp}
"""Commands that take no files: what they do with their words."""
_MODULES = frozenset(("calls", "fleet", "why"))
"""Commands with a module each, ``cli/NAME_command``, which needs the runtime."""
