"""Files that pytrace reads back: snapshots, ahead-of-time files, entries of caches."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from unittest import mock

import zstandard

from pytrace.base import private_files, typed_json
from pytrace.cache import load
from pytrace.cli import script_options
from pytrace.core import manifest, types
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.manifest import CompiledScript, Manifest
from pytrace.core.options import CompileOptions, RunOptions
from pytrace.core.script_options import ScriptOption
from pytrace.core.source import Source
from pytrace.interface import html
from pytrace.pipeline import compile_script
from pytrace.results import difference, file_form, merge
from pytrace.results.formats import report_page as page
from pytrace.results.formats import table, text_and_json
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.load import ahead_of_time
from pytrace.runtime.machine import fingerprints
from tests.fuzz.scratch import FOLDER, stored
from tests.fuzz.target import NOTHING, Target
from tests.support import snapshots
from tests.support.recorded import Facts
from tests.support.snapshots import map_data, snapshot, stack

_LATER = ("arrow", "parquet")
"""Formats whose writer is another library, which is imported only for them."""


def snapshot_file(data: bytes) -> None:
    """A whole file, header included."""
    file_form.from_bytes(data, "fuzz")


def snapshot_document(data: bytes) -> None:
    """The document in a snapshot, with the header that fits it: its blocks and contents can be anything.

    The first two bytes say where the contents begin. What was read can be written, read again, merged with itself,
    compared with itself and shown in each format.
    """
    length, document = int.from_bytes(data[:2], "little"), data[2:]
    packed = zstandard.ZstdCompressor(level=1).compress(document)
    head = file_form._HEADER.pack(
        file_form.MARK, file_form.VERSION, 0, hashlib.sha256(packed).digest(), len(document), length
    )
    found = file_form.from_bytes(head + packed, "fuzz")
    assert file_form.from_bytes(file_form.to_bytes(found), "again") == found
    used(found)


def used(found: SnapshotData) -> None:
    """All that can be made of a snapshot. What cannot be shown or added up is reported."""
    with without_viewer():
        for make in (_shown, _merged, _compared, html.snapshot):
            try:
                make(found)
            except TraceError:
                continue


def without_viewer() -> AbstractContextManager[object]:
    """Reports are made without the program that shows them, which a checkout would bundle first."""
    return mock.patch.object(page, "viewer", return_value=["", "", ""])


def _shown(found: SnapshotData) -> None:
    for row in table.FORMATS:
        if row.name not in _LATER:
            try:
                row.write(table.select(found, row).snapshot, WriteOptions(about=not row.binary), io.BytesIO())
            except TraceError:
                continue


def _merged(found: SnapshotData) -> None:
    merge.merge([found, found], ["first", "second"])


def _compared(found: SnapshotData) -> None:
    parts = difference.difference(found, found)
    text_and_json.difference_text(parts)
    for line in "".join(text_and_json.difference_json(parts)).splitlines():
        json.loads(line)


def some_snapshots() -> Iterator[SnapshotData]:
    """Maps of each kind of value, a table, stacks."""
    text = types.String(16)
    counts = map_data("@n", text, types.Count(), {"a": 1, "=b": 2})
    yield snapshot(map_data("@", None, types.Count(), {None: 5}), counts)
    yield snapshot(
        map_data("@h", types.INT32, types.LHist(low=0, high=10, step=5), {7: {0: 1, 2: 5}}),
        map_data("@s", types.Tuple((text, types.INT64)), types.Stats(signed=True), {("x", -1): (10, 3)}),
        tables=(snapshots.table(["pid", "comm"], [types.INT32, text], [(1, "init"), (2, "\x1b[2J")]),),
    )
    kinds = types.Stack(True, 16)
    yield snapshot(map_data("@k", kinds, types.Count(), {stack("main", "work"): 3, stack("<b>", "=1+1"): 4}))


def document_seeds() -> Iterator[bytes]:
    """Documents of small snapshots."""
    for found in some_snapshots():
        data = file_form.to_bytes(found)
        *_, _size, length = file_form._HEADER.unpack_from(data)
        document = zstandard.ZstdDecompressor().decompressobj().decompress(data[file_form._HEADER.size :])
        yield length.to_bytes(2, "little") + document


def file_seeds() -> Iterator[bytes]:
    """Small snapshots."""
    yield from map(file_form.to_bytes, some_snapshots())


# ---------------------------------------------------------------------------------------------- compiled scripts


class _Machine(Facts):
    """A machine that says which it is."""

    def dependencies(self) -> tuple[tuple[str, ...], ...]:
        return (("kernel", "/btf", self.arch, self.release, "build"),)


@cache
def compiled() -> CompiledScript:
    """A script with parameters, for ahead-of-time files."""
    text = 'begin { printf("%d %s", $1, str($2)); } t:sched:sched_switch { @[args.next_pid] = count(); }'
    options = CompileOptions(ahead=True)
    return compile_script(Source("fuzz", text), options, _Machine(), Diagnostics())


def compiled_file(data: bytes) -> None:
    """An ahead-of-time file as a whole."""
    _prepared(CompiledScript.from_bytes(data))


def compiled_manifest(data: bytes) -> None:
    """The manifest of an ahead-of-time file, with the digest that fits it. What was read can be written and read."""
    script = CompiledScript.from_bytes(manifest.file_form(data, compiled().elf))
    assert Manifest.decoded(script.manifest.encoded()).encoded() == script.manifest.encoded()
    _prepared(script)


def _prepared(script: CompiledScript) -> None:
    ahead_of_time.usage(script, "fuzz")
    ahead_of_time.prepare(script, ahead_of_time.RunParameters(("1", "two"), ()), RunOptions(), _Machine())


def manifest_seeds() -> Iterator[bytes]:
    """The manifest of a small script."""
    yield compiled().manifest.encoded()


def compiled_seeds() -> Iterator[bytes]:
    """A whole file."""
    yield compiled().to_bytes(executable=True)


def cache_entry(data: bytes) -> None:
    """Entries of the caches, with the digest that fits them: compiled scripts, declared options, lists of names."""
    place = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(FOLDER / "cache")
    try:
        for kind in ("scripts", "options", "facts"):
            name = f"cache/pytrace/{kind}/entry"
            stored(private_files._head(kind, "entry", data) + data, name)
        load("entry", CompileOptions(), fingerprints.still_true)
        script_options._load("entry")
        body = f"pytrace lists 2 {private_files.digest(repr(()).encode())}".encode() + b"\n\n" + data
        stored(private_files._head("facts", "entry", body) + body, "cache/pytrace/facts/entry")
        fingerprints.kept_lists("entry", (), dict)
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if place is not None:
            os.environ["XDG_CACHE_HOME"] = place


def entry_seeds() -> Iterator[bytes]:
    """A compiled script, declared options, lists."""
    yield b"\n" + compiled().to_bytes()
    entry = script_options._Entry((), script_options.Declared((ScriptOption(("number", "n"), 5, argument="N"),)))
    yield script_options._code_identity() + b"\n" + typed_json.encode(entry)
    yield b"\nvfs_read\nvfs_write\n\nmod\nhelper"


TARGETS = {
    "snapshot_file": Target("snapshots, header included", snapshot_file, seeds=file_seeds),
    "snapshot_document": Target(
        "snapshots with the right digest: read, written, merged, compared, shown in each format",
        snapshot_document, seeds=document_seeds,
    ),
    "compiled_file": Target(
        "ahead-of-time files, header included", compiled_file, seeds=compiled_seeds,
        length=16384,
    ),
    "compiled_manifest": Target(
        "ahead-of-time files with the right digest", compiled_manifest,
        seeds=manifest_seeds, length=16384,
    ),
    "cache_entry": Target(
        "entries of caches with the right digest", cache_entry, NOTHING, seeds=entry_seeds,
        length=16384,
    ),
}  # fmt: skip
