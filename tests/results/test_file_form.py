from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results import columns, file_form, message_pack, stored_document
from pytrace.results.merge import merge
from pytrace.results.message_pack import Cursor, Memory
from pytrace.results.snapshot import SnapshotData
from pytrace.results.stored_columns import integers
from tests.support.portable import KEYS, VALUES, maps, snapshots
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, table


def again(found: SnapshotData) -> SnapshotData:
    return file_form.from_bytes(file_form.to_bytes(found), "x.pts")


def comparable(found: SnapshotData) -> SnapshotData:
    """What a pointer points to is not kept."""
    for data in found.maps.values():
        data.key = data.key and types.from_data(types.to_data(data.key))
        data.value = types.from_data(types.to_data(data.value))
    return found


# ---------------------------------------------------------------------------------------------- there and back


@settings(max_examples=60, deadline=None)
@given(snapshots(2))
def test_what_is_written_is_read(found: list[SnapshotData]) -> None:
    for item in (*found, merge(found)):
        read = again(item)
        assert read == comparable(item)
        assert repr(read) == repr(item)


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_type_is_read_back(name: str, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(KEYS))
    (found,) = data.draw(maps("@", key, VALUES[name], 1))
    read = again(snapshot(found)).maps["@"]
    assert repr(read) == repr(comparable(snapshot(found)).maps["@"])


def test_frames_that_stacks_share_are_written_once() -> None:
    long = [f"function_{number}" for number in range(50)]
    entries = {stack(f"leaf_{number}", *long): 1 for number in range(100)}
    found = snapshot(map_data("@", types.Stack(True), COUNT, entries))
    writer = columns.Writer()
    writer.column(types.Stack(True), list(entries))
    frames = writer.tables()["frames"]
    assert isinstance(frames, list)
    assert integers(Cursor(Memory(message_pack.pack(frames[0])))).count == 100 + 50
    assert again(found) == found


def test_members_that_this_version_does_not_know_are_ignored() -> None:
    document = parts(example())
    document["invented later"] = [1, 2]
    document["maps"][0]["also"] = 1
    assert file_form.from_bytes(whole(document), "x.pts") == example()


# ---------------------------------------------------------------------------------------------- files


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pts"
    file_form.write(example(), str(path))
    before = path.read_bytes()
    assert file_form.read(str(path)) == example()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        file_form.write(snapshot(), str(path))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.pts"]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read '.*none\.pts': No such file"):
        file_form.read(str(tmp_path / "none.pts"))
    with pytest.raises(TraceError, match="Is a directory"):
        file_form.read(str(tmp_path))
    with pytest.raises(TraceError, match="'/dev/zero' is not a snapshot") as found:
        file_form.read("/dev/zero")
    assert "--save" in found.value.hints[0]
    (tmp_path / "x.bt").write_text("begin { }")
    with pytest.raises(TraceError, match="is not a snapshot"):
        file_form.read(str(tmp_path / "x.bt"))


def test_a_newer_form_is_named() -> None:
    data = bytearray(file_form.to_bytes(example()))
    data[8] = 7
    with pytest.raises(TraceError, match=r"'x.pts' has version 7 of the snapshot form; this pytrace reads version 1"):
        file_form.from_bytes(bytes(data), "x.pts")


# ---------------------------------------------------------------------------------------------- damage


def example() -> SnapshotData:
    key = types.Tuple((STRING, types.Stack(True)))
    return snapshot(
        map_data("@s", key, COUNT, {("a", stack("f", "main")): 3, ("b", stack("g", "main")): 300}),
        map_data("@h", types.INT64, types.Hist(), {1: {2: 3, 4: 5}, 2: {0: 1}}),
        map_data("@t", None, types.TSeries(10, 5, "avg"), {None: {1: (-2, 3)}}),
        map_data("@r", types.Inet(), types.Stats(), {"::1": (4, 2)}),
        tables=(table(["pid", "name"], [types.INT32, STRING], [(1, "x"), (2, "\udcff")]),),
    )


def parts(found: SnapshotData) -> dict[str, Any]:
    data = file_form.to_bytes(found)[file_form._HEADER.size :]
    document: dict[str, Any] = msgpack.unpackb(
        zstandard.ZstdDecompressor().decompress(data), unicode_errors="surrogateescape"
    )
    return document


def sealed(packed: bytes, size: int | None = None) -> bytes:
    """A file with a valid header around a document."""
    data = zstandard.ZstdCompressor().compress(packed)
    digest = hashlib.sha256(data).digest()
    header = (file_form.MARK, file_form.VERSION, 0, digest, len(packed) if size is None else size)
    return file_form._HEADER.pack(*header) + data


def whole(document: dict[str, Any]) -> bytes:
    return sealed(msgpack.packb(document, unicode_errors="surrogateescape"))


def refused(data: bytes) -> str:
    with pytest.raises(TraceError) as found:
        file_form.from_bytes(data, "x.pts")
    assert "'x.pts'" in found.value.message
    return found.value.message


def test_a_file_that_unpacks_to_very_much_is_refused_unless_that_is_allowed(tmp_path: Path) -> None:
    rows = [(1, "x" * 64)] * 600_000
    found = snapshot(tables=(table(["n", "text"], [types.INT32, types.String(65)], rows),))
    path = tmp_path / "x.pts"
    file_form.write(found, str(path))
    assert path.stat().st_size < 10_000
    with pytest.raises(TraceError, match=r"would unpack \d+ bytes to \d+; 33554432 are read") as refusal:
        file_form.read(str(path))
    assert "--limit" in refusal.value.hints[0]
    with file_form.opened(str(path), 1 << 30) as lazily:
        assert sum(1 for _ in lazily.tables[0].rows["run-1"]) == 600_000


def test_what_is_opened_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pts"
    file_form.write(example(), str(path))
    for most in (0, 1 << 20):
        monkeypatch.setattr(stored_document, "IN_MEMORY", most)
        with file_form.opened(str(path)) as found:
            for name, data in example().maps.items():
                assert dict(found.maps[name].entries) == data.entries
            assert {run: list(rows) for run, rows in found.tables[0].rows.items()} == example().tables[0].rows
        assert file_form.read(str(path)) == example()


def test_a_file_is_read_from_a_pipe() -> None:
    reader, writer = os.pipe()
    os.write(writer, file_form.to_bytes(example()))
    os.close(writer)
    assert file_form.read(f"/dev/fd/{reader}") == example()
    os.close(reader)


def test_runs_share_what_they_have_in_common() -> None:
    parameters = ("x" * 1000,)
    found = merge([snapshot(of=replace(run(f"run-{at}"), parameters=parameters)) for at in range(3)])
    first, *others = again(found).runs
    assert all(other.parameters[0] is first.parameters[0] for other in others)


def test_every_flipped_byte_is_found() -> None:
    data = file_form.to_bytes(example())
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        if 10 <= at < 12:
            continue  # reserved
        refused(bytes(changed))


def test_every_truncation_is_found() -> None:
    data = file_form.to_bytes(example())
    for size in range(len(data)):
        assert "damaged or truncated" in refused(data[:size])


def test_damage_below_a_valid_digest_gives_an_error_or_a_snapshot() -> None:
    packed = msgpack.packb(parts(example()), unicode_errors="surrogateescape")
    seed = random.Random(1)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(3000):
        changed = bytearray(packed)
        for _ in range(seed.choice((1, 1, 2, 5))):
            changed[seed.randrange(len(changed))] = seed.randrange(256)
        try:
            file_form.from_bytes(sealed(bytes(changed)), "x.pts")
        except TraceError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
    assert min(outcomes.values()) > 100, outcomes


def test_sizes_that_are_claimed_take_no_memory() -> None:
    for packed in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"):
        assert "damaged" in refused(sealed(packed))
    assert "would unpack" in refused(sealed(b"", 1 << 60))
    assert "not the 33554432 bytes" in refused(sealed(b"x", 1 << 25))
    assert "damaged" in refused(sealed(b"\x91" * 100_000))
    zeros = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    header = file_form._HEADER.pack(file_form.MARK, file_form.VERSION, 0, hashlib.sha256(zeros).digest(), 10)
    assert "not the 10 bytes" in refused(header + zeros)


def test_columns_that_do_not_fit_are_refused() -> None:
    for change in (
        lambda document: document["maps"][0].update(count=1),
        lambda document: document["maps"][1].update(values=[columns.pack_integers([1]), *[["B", b""]] * 2]),
        lambda document: document["stacks"].__setitem__(1, columns.pack_integers([9, 9, 9, 9])),
        lambda document: document["maps"][3].update(keys=[1]),
        lambda document: document["maps"][3].update(key=["tuple", []], keys=[1 << 50], count=1 << 50),
        lambda document: document["maps"][1].update(value=["lhist", 0, 1 << 60, 1]),
        lambda document: document["maps"][0].update(times=["B", b"1"]),
        lambda document: document["tables"][0].update(runs=[4]),
        lambda document: document.pop("runs"),
    ):  # fmt: skip
        document = parts(example())
        change(document)
        assert "damaged" in refused(whole(document))


def test_the_library_is_imported_when_a_file_is_read_and_not_before() -> None:
    code = (
        "import sys; from pytrace.results import file_form; "
        "assert 'zstandard' not in sys.modules; "
        "file_form.to_bytes(__import__('pytrace.results.snapshot', fromlist=['x']).SnapshotData(())); "
        "assert 'zstandard' in sys.modules; "
        "assert 'msgpack' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
