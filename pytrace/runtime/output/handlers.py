"""Event handlers: one row for each kind of event of :mod:`pytrace.core.event_layout`.

A row creates the handler for one statement that sends such events; everything that does not depend on the individual
event is done when the handler is created.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable

from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import (
    CurrentTime,
    EmptiedMap,
    EventSpec,
    FlatLayout,
    Formatted,
    HelperFailure,
    Joined,
    PacketFile,
    PrintedMap,
    Quantiles,
    RuntimeFailure,
)
from pytrace.core.types import Bool, Buffer, Enum, Fixed, Inet, Int, Mac, Pointer, String
from pytrace.render import json
from pytrace.render.events import printf
from pytrace.render.events.event_decoder import Formatter, RunHandler, Tally, Texts, each, formatter, reader
from pytrace.render.strftime import strftime
from pytrace.runtime.output import messages
from pytrace.runtime.output.context import Context

Make = Callable[[Context, EventSpec], RunHandler]


def static_bytes(text: str) -> bytes:
    """A text of an event's static part as the script's bytes."""
    return text.encode("utf-8", "surrogateescape")


# ---------------------------------------------------------------------------------------------- text


def _parts(context: Context, spec: EventSpec, *, shown: bool = True) -> list[bytes | printf.Piece]:
    """The parts of a format; *shown*: the text is printed, not used (as the path of a file)."""
    texts = context.texts if shown else context.raw_texts
    return printf.compile_pieces(static_bytes(spec.static_part(Formatted).format), spec.args, texts)


def _print_run(context: Context, spec: EventSpec, parts: list[bytes | printf.Piece]) -> RunHandler:
    quick = all(isinstance(type_, _QUICK) for type_ in spec.args)
    return Texts(Formatter(spec.layout, context.decoders, parts), context.extend_text, quick=quick)


def _row(context: Context, spec: EventSpec) -> RunHandler:
    types = FlatLayout.of(spec.layout).args
    return context.rows.handler(spec, quick=all(isinstance(type_, _QUICK) for type_ in types))


def _print_rows(context: Context, spec: EventSpec) -> RunHandler:
    read: Callable[[bytes, int], tuple[int]] | None
    read = reader(spec.layout, context.decoders) if spec.layout.args else None

    return each(lambda data, offset: context.rows.sorted.print(0 if read is None else read(data, offset)[0]))


def _clear_terminal(context: Context, _spec: EventSpec) -> RunHandler:
    output = context.output
    if output.json or output.csv or not output.terminal:
        return _nothing()

    def handle(_data: bytes, _offset: int) -> None:
        output.write(b"\x1b[H\x1b[2J")
        if rows := context.used_rows:
            rows.page.clear()

    return each(handle)


_QUICK = (Bool, Int, Enum, Fixed, Pointer, String, Buffer, Mac, Inet)
"""Types whose values are short and printed without look-ups of names."""


def _json_parts(kind: str, parts: list[bytes | printf.Piece], mark: str) -> list[bytes | printf.Piece]:
    inside: list[bytes | printf.Piece] = [
        printf.escaping(part, json.escape) if isinstance(part, printf.Piece) else json.escape(part) for part in parts
    ]
    return [b'{"type": "%s", "data": "' % kind.encode(), *inside, b'"%s\n' % json.ending(mark)]


def _printf(context: Context, spec: EventSpec) -> RunHandler:
    parts = _parts(context, spec)
    return _print_run(context, spec, _json_parts("printf", parts, context.mark(spec)) if context.output.json else parts)


def _heading(context: Context, spec: EventSpec) -> RunHandler:
    """Text among tables for people; programs that read JSON or CSV get rows only."""
    if context.output.json or context.output.csv:
        return _nothing()
    return _print_run(context, spec, _parts(context, spec))


def _print_value(context: Context, spec: EventSpec) -> RunHandler:
    if context.output.json:
        form = context.jsons.form(spec.args[0])
        ending = b"%s\n" % json.ending(context.mark(spec))
        parts: list[bytes | printf.Piece] = [b'{"type": "value", "data": ', printf.Piece(b"%s", render=form), ending]
        return _print_run(context, spec, parts)
    return _print_run(context, spec, printf.compile_pieces(b"%s\n", spec.args, context.texts))


def _text_of(context: Context, spec: EventSpec) -> Callable[[bytes, int], bytes]:
    return formatter(spec.layout, context.decoders, _parts(context, spec, shown=False))


def _message(severity: str, kind: str) -> Make:
    def make(context: Context, spec: EventSpec) -> RunHandler:
        static = spec.static_part(Formatted)
        parts = printf.compile_pieces(static_bytes(static.format), spec.args, context.message_texts)
        text, assertion = formatter(spec.layout, context.decoders, parts), static.assertion

        def handle(data: bytes, offset: int) -> None:
            context.state.errors += severity == "ERROR"
            context.state.assertion_failed |= assertion
            context.located(severity, kind, text(data, offset), spec)

        if severity == "WARNING" and not context.options.warnings:
            return _nothing()
        return each(handle)

    return make


def _nothing() -> RunHandler:
    """A handler that does nothing."""
    return Tally(lambda _count: None)


def _emit(context: Context, kind: str, text: bytes, ending: bytes = b"") -> None:
    context.write_text(json.line(kind, json.quoted(text)) if context.output.json else text + ending)


def _time(context: Context, spec: EventSpec) -> RunHandler:
    layout = spec.static_part(CurrentTime).format
    return each(lambda _data, _offset: _emit(context, "time", strftime(layout, time.time_ns())))


def _join(context: Context, spec: EventSpec) -> RunHandler:
    read: Callable[[bytes, int], tuple[int, *tuple[bytes, ...]]] = reader(spec.layout, context.decoders)
    separator = static_bytes(spec.static_part(Joined).separator)

    form = context.texts.form(String(2))

    def handle(data: bytes, offset: int) -> None:
        count, *texts = read(data, offset)
        _emit(context, "join", separator.join([form(text) for text in texts[:count]]), b"\n")

    return each(handle)


def _cat(context: Context, spec: EventSpec) -> RunHandler:
    from pytrace.runtime.output import blocking  # imports subprocess, which few scripts need

    text = _text_of(context, spec)
    most = context.config.max_cat_bytes
    told = broken_off = False

    def handle(data: bytes, offset: int) -> None:
        nonlocal told, broken_off
        path = text(data, offset)
        try:
            content = blocking.read_file(path, most + 1, blocking.Wait(context.state, context.output.flush))
        except blocking.BrokenOffError:
            if not broken_off:
                context.warn(spec, f"cat: {os.fsdecode(path)!r} not read to its end because of the interrupt")
            broken_off = True
            return
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            context.warn(spec, f"cat: cannot read {os.fsdecode(path)!r}: {reason}")
            return
        _emit(context, "cat", context.printable(content[:most]))
        if len(content) > most and not told:
            told = True
            name = os.fsdecode(path)
            context.warn(spec, f"cat: {name!r} is longer than {most} bytes (max_cat_bytes); output truncated")

    return each(handle)


def _system(context: Context, spec: EventSpec) -> RunHandler:
    from pytrace.runtime.output import blocking

    text = _text_of(context, spec)

    def handle(data: bytes, offset: int) -> None:
        if context.state.hurry:
            context.state.not_run += 1
            return
        # The command's standard error must appear after earlier output.
        context.output.flush()
        command = text(data, offset)
        try:
            printed, whole = blocking.run_command(command, context.state)
        except (OSError, ValueError) as error:
            # ValueError: a NUL, which a %c of traced data may be.
            reason = error.strerror if isinstance(error, OSError) else error
            context.warn(spec, f"system: cannot run {os.fsdecode(command)!r}: {reason}")
            return
        _emit(context, "syscall", printed, b"\n")
        if not whole:
            context.warn(spec, f"system: {os.fsdecode(command)!r} killed because of the interrupt")

    return each(handle)


# ---------------------------------------------------------------------------------------------- maps


def _print_map(context: Context, spec: EventSpec) -> RunHandler:
    text = context.maps.printer(spec.static_part(PrintedMap))
    return each(lambda _data, _offset: context.output.write(text()))


def _quantiles(context: Context, spec: EventSpec) -> RunHandler:
    static = spec.static_part(Quantiles)
    percents = [f"{item:g}" for item in static.percents]
    text = context.maps.quantiles(static.map)
    return each(lambda _data, _offset: context.output.write(text(percents)))


def _clear(context: Context, spec: EventSpec) -> RunHandler:
    name, maps = spec.static_part(EmptiedMap).map, context.maps
    return each(lambda _data, _offset: maps.clear(name))


def _zero(context: Context, spec: EventSpec) -> RunHandler:
    name, maps = spec.static_part(EmptiedMap).map, context.maps
    return each(lambda _data, _offset: maps.zero(name))


# ---------------------------------------------------------------------------------------------- watchpoints, packets


def _unwatch(context: Context, spec: EventSpec) -> RunHandler:
    read: Callable[[bytes, int], tuple[int]] = reader(spec.layout, context.decoders)
    return each(lambda data, offset: context.state.unwatched.append(read(data, offset)[0]))


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
            self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
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


def _skboutput(context: Context, spec: EventSpec) -> RunHandler:
    read: Callable[[bytes, int], tuple[int, int, bytes]] = reader(spec.layout, context.decoders)
    path = spec.static_part(PacketFile).path
    writer = context.writers.get(path)
    if writer is None:
        writer = context.writers[path] = PcapWriter(path)
    packet, wall = writer.packet, context.clock.wall

    def handle(data: bytes, offset: int) -> None:
        boot, length, content = read(data, offset)
        packet(wall(boot), length, content)

    return each(handle)


# ---------------------------------------------------------------------------------------------- errors


def _runtime_error(context: Context, spec: EventSpec) -> RunHandler:
    if not context.options.warnings:
        return _nothing()
    kind = spec.static_part(RuntimeFailure).kind
    text = messages.RUNTIME_ERRORS[kind].encode()
    counted = kind in _COUNTED_STACKS and not context.output.json
    if counted and context.options.tool:
        # Its place is in the tool's own macros.
        return _nothing()
    told = False

    def handle(_data: bytes, _offset: int) -> None:
        nonlocal told
        if not (counted and told):
            context.located("WARNING", "runtime_error", text, spec)
        told = True

    return each(handle)


_COUNTED_STACKS = ("kernel_stack", "user_stack")
"""Failures that are told once for each place in text: the end has their numbers."""


def _helper_error(context: Context, spec: EventSpec) -> RunHandler:
    if not context.options.warnings:
        return _nothing()
    read: Callable[[bytes, int], tuple[int]] = reader(spec.layout, context.decoders)
    failure = spec.static_part(HelperFailure)
    helper, name = failure.helper, failure.map
    subject = next((item for item in context.manifest.maps if item.name == name), None)

    def handle(data: bytes, offset: int) -> None:
        (code,) = read(data, offset)
        if helper == "bpf_map_update_elem":
            # Each CPU reports its first one, possibly for several locations in the script.
            if (name, code) in context.refused:
                return
            context.refused.add((name, code))
        elif helper == "bpf_map_delete_elem":
            if spec.location in context.undeleted:
                return
            context.undeleted.add(spec.location)
        text, hint = messages.helper_failure(helper, code, subject, context.manifest.config)
        if not context.output.json and code != -errno.ELOOP:
            text += f" ({helper} returned {code})"
        extra: list[tuple[str, bytes]] = [
            ("helper", json.quoted(helper.removeprefix("bpf_").encode())),
            ("retcode", json.number(code)),
        ]
        context.located("WARNING", "helper_error", text.encode(), spec, extra, hint)

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
