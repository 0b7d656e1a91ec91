"""Rows of the table of formats (:mod:`pytrace.results.formats.table`), and the kinds of content that they support."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import BinaryIO, TypeAlias

import msgspec

from pytrace.base import extras
from pytrace.core import types
from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.render.value_kind import Held
from pytrace.render.values import value_kind_of
from pytrace.results.snapshot import MapData, SnapshotData


class Content(Enum):
    """The content of a map or table, as far as formats differ in it; the value is the text for users."""

    STACKS = "numbers by stack"
    """The key is or holds a stack, the value is a number, or a total and a count."""
    NUMBERS = "numbers"
    """Any other key, or none, and such a value."""
    HISTOGRAMS = "histograms"
    SERIES = "time series"
    VALUES = "other values"
    """Strings, tuples, stacks as values …"""
    ROWS = "rows"
    """Tables that ``row()`` filled."""


class FormatOption(msgspec.Struct, frozen=True):
    """A setting of one format, written after its name: ``-f folded:process``, ``-f pprof:period=97``."""

    name: str
    help: str
    argument: str = ""
    """The name of its argument in help texts; empty for a flag."""


class WriteOptions(msgspec.Struct, frozen=True):
    """Options for writing a snapshot."""

    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Values of the format's own options; empty text for a flag."""
    about: bool = False
    """Begin with a description of the runs: host, kernel, times, losses. For formats that people read."""
    notes: tuple[str, ...] = ()
    """Sentences on what was done to the numbers before, which pictures show."""

    def flag(self, name: str) -> bool:
        """True if an option of the format is set."""
        return name in self.settings


Writer: TypeAlias = Callable[[SnapshotData, WriteOptions, BinaryIO], None]
"""Writes a snapshot, which holds only what the format can show, to a file opened for bytes.

It raises :class:`pytrace.core.diagnostics.TraceError` for content that the format lacks, before anything is written.
"""


Differential: TypeAlias = Callable[[SnapshotData, SnapshotData, WriteOptions], bytes]


Series: TypeAlias = Callable[[Sequence[SnapshotData], WriteOptions], bytes]
"""Writes several snapshots, of what the format can show, as a series in time."""


class Format(msgspec.Struct, frozen=True):
    """A format of results."""

    name: str
    title: str
    """Content and readers, in half a line."""
    suffixes: tuple[str, ...]
    """Ends of file names that stand for it, dots included, in lower case."""
    shows: frozenset[Content]
    write: Writer
    differential: Differential | None = None
    """Compares two snapshots (before, after) in the format; without it the signed changes are written."""
    series: Series | None = None
    """Writes several snapshots as a series in time."""
    binary: bool = False
    """It is not written to terminals."""
    adds: bool = False
    """Readers add up the numbers of all maps, whatever they count."""
    tables: bool = False
    """Readers expect one table in a file: ``--folder`` writes a file for each."""
    options: tuple[FormatOption, ...] = ()
    library: str = ""
    """A module that the format needs and pytrace does not depend on."""
    prepare: Callable[[], object] | None = None
    """Raises :class:`TraceError` if the format cannot be written here; called before anything is traced, when other
    programs may still be run."""
    extra: str = ""
    """The extra of the package (``pytrace-bpf[EXTRA]``) that installs it."""

    def writer(self) -> Writer:
        """The function that writes this format, after a check for what it needs.

        Raises:
            TraceError: the library is not installed, or :attr:`prepare` raised it.
        """
        if self.prepare is not None:
            self.prepare()
        if not self.library:
            return self.write
        try:
            importlib.import_module(self.library)
        except ModuleNotFoundError as error:
            message = f"format {self.name} needs the Python package {error.name}"
            raise TraceError(message, hints=(extras.hint(self.extra),)) from None
        return self.write

    def settings(self, text: str) -> dict[str, str]:
        """The settings in *text* (``process,period=97``).

        Raises:
            TraceError: the format has no such option, or its argument is missing or superfluous.
        """
        known = {option.name: option for option in self.options}
        options: dict[str, str] = {}
        for part in filter(None, text.split(",")):
            name, equals, value = part.partition("=")
            option = known.get(name)
            if option is None:
                raise TraceError(f"format {self.name} has no option {name!r}", hints=self._option_hints(name))
            if bool(option.argument) != bool(equals):
                form = f"{name}={option.argument}" if option.argument else name
                raise TraceError(f"option {part!r} of format {self.name} should be written {form}")
            options[name] = value
        return options

    def _option_hints(self, name: str) -> tuple[str, ...]:
        if not self.options:
            return ("it has none",)
        names = [option.name for option in self.options]
        return did_you_mean(name, names) or ("its options are " + ", ".join(names),)


# ---------------------------------------------------------------------------------------------- content of maps


def content(data: MapData) -> Content:
    """The content of a map."""
    kind = value_kind_of(data.value)
    if kind.held is Held.COUNTS:
        return Content.HISTOGRAMS
    if kind.held is Held.SERIES:
        return Content.SERIES
    if not kind.number:
        return Content.VALUES
    return Content.STACKS if data.key is not None and has_stack(data.key) else Content.NUMBERS


def has_stack(type_: types.Type) -> bool:
    """True if values of a type are stacks or have stacks among their parts."""
    return any(isinstance(part, types.Stack) for part in types.parts((type_,)))
