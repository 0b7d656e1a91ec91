"""Event handlers: one row for each kind of event of :mod:`pytrace.core.event_layout`.

A row creates the handler for one statement that sends such events; everything that does not depend on the individual
event is done when the handler is created.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytrace.base import whole_files
from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import (
    CurrentTime,
    EmptiedMap,
    EventSpec,
    Formatted,
    HelperFailure,
    Joined,
    PacketFile,
    PrintedMap,
    Quantiles,
    RuntimeFailure,
)
from pytrace.core.manifest import MapSpec
from pytrace.core.options import Config
from pytrace.core.types import Bool, Buffer, Enum, Fixed, Inet, Int, Mac, Pointer, String
from pytrace.core.value_tables import FlatLayout
from pytrace.render import events, json
from pytrace.render.events import Formatter, Piece, RunHandler, Tally, Texts, each, formatter, reader
from pytrace.render.text import strftime
from pytrace.runtime.output import messages

if TYPE_CHECKING:
    from pytrace.runtime.output.renderer import Renderer, RunState

Make = Callable[["Renderer", EventSpec], RunHandler]


def static_bytes(text: str) -> bytes:
    """A text of an event's static part as the script's bytes."""
    return text.encode("utf-8", "surrogateescape")


# ---------------------------------------------------------------------------------------------- text


def _parts(renderer: Renderer, spec: EventSpec, *, shown: bool = True) -> list[bytes | events.Piece]:
    """The parts of a format; *shown*: the text is printed, not used (as the path of a file)."""
    texts = renderer.forms.texts if shown else renderer.forms.raw_texts
    return events.compile_pieces(static_bytes(spec.static_part(Formatted).format), spec.args, texts)


def _print_run(renderer: Renderer, spec: EventSpec, parts: list[bytes | events.Piece]) -> RunHandler:
    quick = all(isinstance(type_, _QUICK) for type_ in spec.args)
    return Texts(Formatter(spec.layout, renderer.forms.decoders, parts), renderer.extend_text, quick=quick)


def _row(renderer: Renderer, spec: EventSpec) -> RunHandler:
    types = FlatLayout.of(spec.layout).args
    return renderer.rows.handler(spec, quick=all(isinstance(type_, _QUICK) for type_ in types))


def _print_rows(renderer: Renderer, spec: EventSpec) -> RunHandler:
    read: Callable[[bytes, int], tuple[int]] | None
    read = reader(spec.layout, renderer.forms.decoders) if spec.layout.args else None

    return each(lambda data, offset: renderer.rows.sorted.print(0 if read is None else read(data, offset)[0]))


def _clear_terminal(renderer: Renderer, _spec: EventSpec) -> RunHandler:
    output = renderer.output
    if output.json or output.csv or not output.terminal:
        return _nothing()

    def handle(_data: bytes, _offset: int) -> None:
        output.write(b"\x1b[H\x1b[2J")
        if rows := renderer.used_rows:
            rows.page.clear()

    return each(handle)


_QUICK = (Bool, Int, Enum, Fixed, Pointer, String, Buffer, Mac, Inet)
"""Types whose values are short and printed without look-ups of names."""


def _escaping(piece: Piece, escape: Callable[[bytes], bytes]) -> Piece:
    """*piece* with its result passed through *escape*, width included."""
    if not piece.textual:
        return piece
    render, layout = piece.render, piece.format
    if layout == b"%s":
        return replace(piece, render=escape if render is None else lambda value: escape(render(value)))
    if render is None:
        return replace(piece, format=b"%s", render=lambda value: escape(layout % value))
    return replace(piece, format=b"%s", render=lambda value: escape(layout % render(value)))


def _json_parts(kind: str, parts: list[bytes | events.Piece], mark: str) -> list[bytes | events.Piece]:
    inside: list[bytes | events.Piece] = [
        _escaping(part, json.escape) if isinstance(part, events.Piece) else json.escape(part) for part in parts
    ]
    return [b'{"type": "%s", "data": "' % kind.encode(), *inside, b'"%s\n' % json.ending(mark)]


def _printf(renderer: Renderer, spec: EventSpec) -> RunHandler:
    parts = _parts(renderer, spec)
    if renderer.output.json:
        parts = _json_parts("printf", parts, renderer.mark(spec))
    return _print_run(renderer, spec, parts)


def _heading(renderer: Renderer, spec: EventSpec) -> RunHandler:
    """Text among tables for people; programs that read JSON or CSV get rows only."""
    if renderer.output.json or renderer.output.csv:
        return _nothing()
    return _print_run(renderer, spec, _parts(renderer, spec))


def _print_value(renderer: Renderer, spec: EventSpec) -> RunHandler:
    if renderer.output.json:
        form = renderer.forms.jsons.form(spec.args[0])
        ending = b"%s\n" % json.ending(renderer.mark(spec))
        parts: list[bytes | events.Piece] = [b'{"type": "value", "data": ', events.Piece(b"%s", render=form), ending]
        return _print_run(renderer, spec, parts)
    return _print_run(renderer, spec, events.compile_pieces(b"%s\n", spec.args, renderer.forms.texts))


def _text_of(renderer: Renderer, spec: EventSpec) -> Callable[[bytes, int], bytes]:
    return formatter(spec.layout, renderer.forms.decoders, _parts(renderer, spec, shown=False))


def _message(severity: str, kind: str) -> Make:
    def make(renderer: Renderer, spec: EventSpec) -> RunHandler:
        static = spec.static_part(Formatted)
        parts = events.compile_pieces(static_bytes(static.format), spec.args, renderer.forms.message_texts)
        text, assertion = formatter(spec.layout, renderer.forms.decoders, parts), static.assertion

        def handle(data: bytes, offset: int) -> None:
            renderer.state.errors += severity == "ERROR"
            renderer.state.assertion_failed |= assertion
            renderer.located(severity, kind, text(data, offset), spec)

        if severity == "WARNING" and not renderer.options.warnings:
            return _nothing()
        return each(handle)

    return make


def _nothing() -> RunHandler:
    """A handler that does nothing."""
    return Tally(lambda _count: None)


def _emit(renderer: Renderer, kind: str, text: bytes, ending: bytes = b"") -> None:
    renderer.write_text(json.line(kind, json.quoted(text)) if renderer.output.json else text + ending)


def _time(renderer: Renderer, spec: EventSpec) -> RunHandler:
    layout = spec.static_part(CurrentTime).format
    return each(lambda _data, _offset: _emit(renderer, "time", strftime(layout, time.time_ns())))


def _join(renderer: Renderer, spec: EventSpec) -> RunHandler:
    read: Callable[[bytes, int], tuple[int, *tuple[bytes, ...]]] = reader(spec.layout, renderer.forms.decoders)
    separator = static_bytes(spec.static_part(Joined).separator)

    form = renderer.forms.texts.form(String(2))

    def handle(data: bytes, offset: int) -> None:
        count, *texts = read(data, offset)
        _emit(renderer, "join", separator.join([form(text) for text in texts[:count]]), b"\n")

    return each(handle)


def _cat(renderer: Renderer, spec: EventSpec) -> RunHandler:
    text = _text_of(renderer, spec)
    most = renderer.manifest.config.max_cat_bytes
    told = broken_off = False

    def handle(data: bytes, offset: int) -> None:
        nonlocal told, broken_off
        path = text(data, offset)
        try:
            content = read_file(path, most + 1, Wait(renderer.state, renderer.output.flush))
        except BrokenOffError:
            if not broken_off:
                renderer.warn(spec, f"cat: {os.fsdecode(path)!r} not read to its end because of the interrupt")
            broken_off = True
            return
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            renderer.warn(spec, f"cat: cannot read {os.fsdecode(path)!r}: {reason}")
            return
        _emit(renderer, "cat", renderer.printable(content[:most]))
        if len(content) > most and not told:
            told = True
            name = os.fsdecode(path)
            renderer.warn(spec, f"cat: {name!r} is longer than {most} bytes (max_cat_bytes); output truncated")

    return each(handle)


def _system(renderer: Renderer, spec: EventSpec) -> RunHandler:
    text = _text_of(renderer, spec)

    def handle(data: bytes, offset: int) -> None:
        if renderer.state.hurry:
            renderer.state.not_run += 1
            return
        # The command's standard error must appear after earlier output.
        renderer.output.flush()
        command = text(data, offset)
        try:
            printed, whole = run_command(command, renderer.state)
        except (OSError, ValueError) as error:
            # ValueError: a NUL, which a %c of traced data may be.
            reason = error.strerror if isinstance(error, OSError) else error
            renderer.warn(spec, f"system: cannot run {os.fsdecode(command)!r}: {reason}")
            return
        _emit(renderer, "syscall", printed, b"\n")
        if not whole:
            renderer.warn(spec, f"system: {os.fsdecode(command)!r} killed because of the interrupt")

    return each(handle)


# ---------------------------------------------------------------------------------------------- files, commands
# A run waits for files of cat() and commands of system() until the user asks for its end.

_LOOK_EVERY = 50
"""Milliseconds between two looks at whether the user has asked for the end."""


class BrokenOffError(Exception):
    """The user asked for the end of the run while something was waited for."""


class Wait:
    """A wait for one file or command; requests to end the run that come after its creation end it.

    Once the user has asked for the end, only files and commands of end probes are waited for. *prepare* is called
    before a wait.
    """

    def __init__(self, state: RunState, prepare: Callable[[], None] = lambda: None) -> None:
        self._state = state
        self._before = state.requests.count
        self._prepare = prepare

    def until_readable(self, descriptor: int) -> None:
        """Wait until *descriptor* has something to read, or its end.

        Raises:
            BrokenOffError: the user asked for the end before.
        """
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(0):
            return
        self._prepare()
        while not (self._state.hurry or self._state.requests.count != self._before):
            if poll.poll(_LOOK_EVERY):
                return
        if not poll.poll(0):
            raise BrokenOffError


def read_file(path: bytes, most: int, wait: Wait) -> bytes:
    """The first *most* bytes of a file, which may be a FIFO or terminal where they come when somebody writes.

    Raises:
        OSError: the file cannot be read.
        BrokenOffError: the user asked for the end before all of them came.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            # One that nobody writes to yet would read as empty.
            wait.until_readable(descriptor)
        data = b""
        while len(data) < most:
            try:
                piece = os.read(descriptor, most - len(data))
            except BlockingIOError:
                wait.until_readable(descriptor)
                continue
            if not piece:
                break
            data += piece
        return data
    finally:
        os.close(descriptor)


_PATIENCE = 2000
"""Milliseconds that a command gets to end after SIGTERM."""


def run_command(command: bytes, state: RunState) -> tuple[bytes, bool]:
    """Run *command* in a shell. Returns its standard output, and whether it ended by itself.

    When the user ends the run, the command and its descendants are ended.

    Raises:
        OSError: the shell cannot be started.
    """
    import subprocess  # few scripts run commands

    # A request that comes while the command is started ends it, too.
    wait = Wait(state)
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen([b"/bin/sh", b"-c", command], stdout=subprocess.PIPE)
        stack.callback(process.wait)
        assert process.stdout is not None
        stack.callback(process.stdout.close)
        ended = os.pidfd_open(process.pid)
        stack.callback(os.close, ended)
        parts: list[bytes] = []
        try:
            _read_all(process.stdout.fileno(), parts, wait)
            wait.until_readable(ended)
        except BrokenOffError:
            _end(process.pid, ended)
            return b"".join(parts), False
        except BaseException:
            _end(process.pid, ended)
            raise
        return b"".join(parts), True


def _read_all(descriptor: int, parts: list[bytes], wait: Wait) -> None:
    while True:
        wait.until_readable(descriptor)
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return
        parts.append(piece)


def _end(pid: int, ended: int) -> None:
    """End a command and its descendants: by SIGTERM, and by SIGKILL those that are still alive after it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in _family(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if select.select([ended], [], [], _PATIENCE / 1000)[0]:
            return


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    family = [pid]
    for process in family:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/task") as threads:
            for thread in threads:
                with open(f"{thread.path}/children", encoding="utf-8") as file:
                    family += map(int, file.read().split())
    return family


# ---------------------------------------------------------------------------------------------- maps


def _print_map(renderer: Renderer, spec: EventSpec) -> RunHandler:
    text = renderer.maps.printer(spec.static_part(PrintedMap))
    return each(lambda _data, _offset: renderer.output.write(text()))


def _quantiles(renderer: Renderer, spec: EventSpec) -> RunHandler:
    static = spec.static_part(Quantiles)
    percents = [f"{item:g}" for item in static.percents]
    text = renderer.maps.quantiles(static.map)
    return each(lambda _data, _offset: renderer.output.write(text(percents)))


def _clear(renderer: Renderer, spec: EventSpec) -> RunHandler:
    name, maps = spec.static_part(EmptiedMap).map, renderer.maps
    return each(lambda _data, _offset: maps.clear(name))


def _zero(renderer: Renderer, spec: EventSpec) -> RunHandler:
    name, maps = spec.static_part(EmptiedMap).map, renderer.maps
    return each(lambda _data, _offset: maps.zero(name))


# ---------------------------------------------------------------------------------------------- watchpoints, packets


def _unwatch(renderer: Renderer, spec: EventSpec) -> RunHandler:
    read: Callable[[bytes, int], tuple[int]] = reader(spec.layout, renderer.forms.decoders)
    return each(lambda data, offset: renderer.unwatch(read(data, offset)[0]))


_MAGIC_NANOSECONDS = 0xA1B23C4D
_LINKTYPE_RAW = 101
_SNAPLEN = 65535
_SECOND = 1_000_000_000


class PcapWriter:
    """One file of raw IP packets with times in nanoseconds (https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html).

    Raises:
        TraceError: the file cannot be created.
    """

    def __init__(self, path: str) -> None:
        try:
            self._file = os.fdopen(whole_files.create(path), "wb")
        except OSError as error:
            raise TraceError(f"cannot write packets to {path!r}: {error.strerror}") from error
        self._file.write(struct.pack("=IHHiIII", _MAGIC_NANOSECONDS, 2, 4, 0, 0, _SNAPLEN, _LINKTYPE_RAW))

    def packet(self, wall: int, length: int, data: bytes) -> None:
        """Add a packet of *length* bytes, of which *data* was captured at *wall* (nanoseconds since 1970)."""
        seconds, rest = divmod(wall, _SECOND)
        self._file.write(struct.pack("=IIII", seconds & 0xFFFFFFFF, rest, len(data), max(length, len(data))) + data)

    def close(self) -> None:
        """Write what waits and close the file."""
        self._file.close()


def _skboutput(renderer: Renderer, spec: EventSpec) -> RunHandler:
    read: Callable[[bytes, int], tuple[int, int, bytes]] = reader(spec.layout, renderer.forms.decoders)
    path = spec.static_part(PacketFile).path
    writer = renderer.writers.get(path)
    if writer is None:
        writer = renderer.writers[path] = PcapWriter(path)
    packet, wall = writer.packet, renderer.clock.wall

    def handle(data: bytes, offset: int) -> None:
        boot, length, content = read(data, offset)
        packet(wall(boot), length, content)

    return each(handle)


# ---------------------------------------------------------------------------------------------- errors


def _runtime_error(renderer: Renderer, spec: EventSpec) -> RunHandler:
    if not renderer.options.warnings:
        return _nothing()
    kind = spec.static_part(RuntimeFailure).kind
    text = messages.RUNTIME_ERRORS[kind].encode()
    counted = kind in _COUNTED_STACKS and not renderer.output.json
    if counted and renderer.options.tool:
        # Its place is in the tool's own macros.
        return _nothing()
    told = False

    def handle(_data: bytes, _offset: int) -> None:
        nonlocal told
        if not (counted and told):
            renderer.located("WARNING", "runtime_error", text, spec)
        told = True

    return each(handle)


_COUNTED_STACKS = ("kernel_stack", "user_stack")
"""Failures that are told once for each place in text: the end has their numbers."""


def helper_failure(helper: str, code: int, subject: MapSpec | None, config: Config) -> tuple[str, str]:
    """The message about a failed BPF helper, without helper and number, and a hint (may be empty)."""
    name = subject.name if subject is not None else "the map"
    text, hint = os.strerror(-code), ""
    if helper == "bpf_map_update_elem" and code == -errno.E2BIG:
        size = f" ({subject.max_entries} keys)" if subject is not None else ""
        text = f"{name} is full{size}: the update was dropped"
        kind = "percpuhash" if subject is not None and subject.value.aggregate else "hash"
        hint = f"increase max_map_keys in the config block, or declare the map: let {name} = {kind}(N);"
        if subject is not None and ":" in name:
            text = f"{subject.max_entries} calls of {name.removeprefix('@')} are under way: this one is lost"
            hint = "increase max_map_keys in the config block"
    elif helper == "bpf_map_delete_elem" and code == -errno.ENOENT:
        text = f"{name} has no such key to delete"
    elif helper == "bpf_loop" and code == -errno.E2BIG:
        text = "a loop runs at most 8388608 iterations: a longer for loop does not run at all, a while loop stops there"
    elif helper == "bpf_loop" and code == -errno.ELOOP:
        most = config.max_loop_iterations
        text = f"all loops together make at most {most} iterations each time a probe fires; the loops stop here"
        hint = "raise max_loop_iterations in the config block; the traced program waits while loops run"
    elif helper in ("bpf_map_lookup_elem", "bpf_map_lookup_percpu_elem"):
        text = f"{name} has no such key; the value read is 0"
    return text, hint


def _helper_error(renderer: Renderer, spec: EventSpec) -> RunHandler:
    if not renderer.options.warnings:
        return _nothing()
    read: Callable[[bytes, int], tuple[int]] = reader(spec.layout, renderer.forms.decoders)
    failure = spec.static_part(HelperFailure)
    helper, name = failure.helper, failure.map
    specs = (*renderer.manifest.maps, *renderer.manifest.call_maps)
    subject = next((item for item in specs if item.name == name), None)

    def handle(data: bytes, offset: int) -> None:
        (code,) = read(data, offset)
        if helper == "bpf_map_update_elem":
            # Each CPU reports its first one, possibly for several locations in the script.
            if (name, code) in renderer.refused:
                return
            renderer.refused.add((name, code))
        elif helper == "bpf_map_delete_elem":
            if spec.location in renderer.undeleted:
                return
            renderer.undeleted.add(spec.location)
        text, hint = helper_failure(helper, code, subject, renderer.manifest.config)
        if not renderer.output.json and code != -errno.ELOOP:
            text += f" ({helper} returned {code})"
        extra: list[tuple[str, bytes]] = [
            ("helper", json.quoted(helper.removeprefix("bpf_").encode())),
            ("retcode", json.number(code)),
        ]
        renderer.located("WARNING", "helper_error", text.encode(), spec, extra, hint)

    return each(handle)


HANDLERS: dict[str, Make] = {
    "printf": _printf,
    "heading": _heading,
    "errorf": _message("ERROR", "errorf"),
    "warnf": _message("WARNING", "warnf"),
    "cat": _cat,
    "system": _system,
    "time": _time,
    "join": _join,
    "print_value": _print_value,
    "row": _row,
    "print_rows": _print_rows,
    "clear_terminal": _clear_terminal,
    "print_map": _print_map,
    "quantiles": _quantiles,
    "clear": _clear,
    "zero": _zero,
    "skboutput": _skboutput,
    "unwatch": _unwatch,
    "runtime_error": _runtime_error,
    "helper_error": _helper_error,
}
"""Handlers by event kind, except for ``exit()``, which the renderer handles itself."""
