"""Files of snapshots, and how their parts are stored."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Field, Type
from pytrace.core.value_tables import key_columns
from pytrace.remote.answer import labelled
from pytrace.render.value_kind import MismatchError, ValueKind
from pytrace.render.values import KINDS, joined_types
from pytrace.results import file_form, stored_document
from pytrace.results.columns import Numbers, TablesReader, TablesWriter, raw, text
from pytrace.results.file_form import StoredEntries, StoredRows, StoredTimes, stored_prints, type_from, type_to
from pytrace.results.merge import described, merge
from pytrace.results.snapshot import Print, SnapshotData
from pytrace.results.stored_document import Block, Blocks, BlocksWriter
from tests.support.examples import examples
from tests.support.portable import KEYS, VALUES, maps, snapshots
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, table

# ---------------------------------------------------------------------------------------------- file form
# .


ROOT = Path(__file__).resolve().parents[2]


def again(found: SnapshotData) -> SnapshotData:
    return file_form.from_bytes(file_form.to_bytes(found), "x.pts")


def comparable(found: SnapshotData) -> SnapshotData:
    """What a pointer points to is not kept."""
    for data in found.maps.values():
        data.key = data.key and types.settled(data.key)
        data.value = types.settled(data.value)
    return found


# ---------------------------------------------------------------------------------------------- there and back


@examples(60)
@given(snapshots(2))
def test_what_is_written_is_read(found: list[SnapshotData]) -> None:
    for item in (*found, merge(found)):
        read = again(item)
        assert read == comparable(item)
        assert repr(read) == repr(item)


def test_costs_of_runs_and_marks_of_maps_are_read_back() -> None:
    found = merge([snapshot(of=run("1")), snapshot(of=run("2"))])
    probes = (ProbeCost("uprobe:/tmp/\udcff:f", 1, 2, 3, 8, detached=True), ProbeCost("profile:hz:99", 4, 5, 6))
    found.costs = {"2": RunCost(10, 2, probes, 7, 8, 9)}
    found.maps = {"@": map_data("@", None, COUNT, {None: 1})}
    found.maps["@"].mark = "estimate"
    assert again(found).costs == found.costs
    assert again(found).maps["@"].mark == "estimate"


def test_what_is_known_of_runs_is_read_back() -> None:
    whole = SnapshotData((replace(run(), text="begin { }\n\udcff"), run("run-2")))
    assert file_form.from_bytes(file_form.to_bytes(whole), "x") == whole
    found = snapshot(of=replace(run("1"), gaps=((5, 7), (1 << 60, 3)), clock=(-5, 9)))
    assert again(found).runs == found.runs


@pytest.mark.parametrize("name", VALUES)
@examples(15)
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
    contents = parts(found)[1]
    assert [block[0] for block in contents["frames"]] == [100 + 50]
    assert again(found) == found


def test_what_runs_have_in_common_is_written_once() -> None:
    same = merge([snapshot(of=replace(run(f"run-{at}"), host=f"host-{at % 2}")) for at in range(10)])
    contents = parts(same)[1]
    assert sorted(origin["host"] for origin in contents["origins"]) == [b"host-0", b"host-1"]
    assert again(same) == same


def test_blocks_are_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_form, "BLOCK_ROWS", 100)
    monkeypatch.setattr(stored_document, "BLOCK_BYTES", 1000)
    entries = {f"{'x' * (at % 90)}-{at}": at for at in range(500)}
    found = snapshot(map_data("@", types.String(128), COUNT, {**entries, "x" * 5000: 1}))
    blocks = parts(found)[1]["maps"][0]["blocks"]
    assert sum(rows for rows, _ in blocks) == 501
    assert all(size <= 1000 or rows == 1 for rows, size in blocks)
    assert again(found) == found


def test_members_that_this_version_does_not_know_are_ignored() -> None:
    blocks, contents = parts(example())
    contents["invented later"] = [1, 2]
    contents["maps"][0]["also"] = 1
    assert file_form.from_bytes(sealed(blocks, contents), "x.pts") == example()


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
    with pytest.raises(TraceError, match="is a folder"):
        file_form.read(str(tmp_path))
    with pytest.raises(TraceError, match="'/dev/zero' is not a snapshot") as found:
        file_form.read("/dev/zero")
    assert "--save" in found.value.hints[0]
    (tmp_path / "x.bt").write_text("begin { }")
    with pytest.raises(TraceError, match="is not a snapshot"):
        file_form.read(str(tmp_path / "x.bt"))


def test_files_of_other_versions() -> None:
    data = bytearray(file_form.to_bytes(example()))
    data[8] = 7
    with pytest.raises(TraceError, match=r"'x.pts' has version 7 of the snapshot form; this pytrace reads version 2"):
        file_form.from_bytes(bytes(data), "x.pts")
    old = file_form.MARK + bytes((1, 0)) + bytes(100)
    with pytest.raises(TraceError, match=r"'x.pts' was saved by an earlier version of pytrace") as found:
        file_form.from_bytes(old, "x.pts")
    assert "save it again" in found.value.hints[0]


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


def parts(found: SnapshotData) -> tuple[bytes, dict[str, Any]]:
    """The blocks of a file, and its contents as plain data."""
    data = file_form.to_bytes(found)
    *_, size = file_form._HEADER.unpack(data[: file_form._HEADER.size])
    document = zstandard.ZstdDecompressor().decompressobj().decompress(data[file_form._HEADER.size :])
    contents: dict[str, Any] = msgspec.msgpack.decode(document[-size:])
    return document[:-size], contents


def sealed(blocks: bytes, contents: Any, size: int | None = None) -> bytes:
    """A file with a valid header around a document."""
    packed = contents if isinstance(contents, bytes) else msgspec.msgpack.encode(contents)
    document = blocks + packed
    data = zstandard.ZstdCompressor().compress(document)
    sizes = len(document) if size is None else size, len(packed)
    return file_form._HEADER.pack(file_form.MARK, file_form.VERSION, 0, hashlib.sha256(data).digest(), *sizes) + data


def refused(data: bytes) -> str:
    with pytest.raises(TraceError) as found:
        file_form.from_bytes(data, "x.pts")
    assert "'x.pts'" in found.value.message
    return found.value.message


def test_a_file_that_unpacks_to_very_much_is_refused_unless_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_document, "LEAST_LIMIT", 1 << 20)
    rows = [(1, "x" * 64)] * 20_000
    found = snapshot(tables=(table(["n", "text"], [types.INT32, types.String(65)], rows),))
    path = tmp_path / "x.pts"
    file_form.write(found, str(path))
    assert path.stat().st_size < 10_000
    with pytest.raises(TraceError, match=r"would unpack \d+ bytes to \d+; 1048576 are read") as refusal:
        file_form.read(str(path))
    assert "--limit" in refusal.value.hints[0]
    with file_form.opened(str(path), 1 << 30) as lazily:
        assert sum(1 for _ in lazily.tables[0].rows["run-1"]) == 20_000


def test_what_is_opened_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pts"
    file_form.write(example(), str(path))
    for most in (1, 1 << 20):
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


def test_a_pipe_that_does_not_end_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """That somebody else may have put in the place of a file."""
    monkeypatch.setattr(file_form, "MOST_PIPED", 1000)
    reader, writer = os.pipe()
    os.write(writer, file_form.MARK + bytes(2000))
    with pytest.raises(TraceError, match=r"/dev/fd/\d+' is no file, and has more than 0 MiB"):
        file_form.read(f"/dev/fd/{reader}")
    os.close(writer)
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
    blocks, contents = parts(example())
    end, packed = len(blocks), blocks + msgspec.msgpack.encode(contents)
    seed = random.Random(1)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(3000):
        changed = bytearray(packed)
        for _ in range(seed.choice((1, 1, 2, 5))):
            changed[seed.randrange(len(changed))] = seed.randrange(256)
        try:
            file_form.from_bytes(sealed(bytes(changed[:end]), bytes(changed[end:])), "x.pts")
        except TraceError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
    assert min(outcomes.values()) > 100, outcomes


def test_sizes_that_are_claimed_take_no_memory() -> None:
    for packed in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"):
        assert "damaged" in refused(sealed(b"", packed))
    assert "would unpack" in refused(sealed(b"", b"", 1 << 60))
    assert "not the 4194304 bytes" in refused(sealed(b"", b"x", 1 << 22))
    assert "damaged" in refused(sealed(b"", b"\x91" * 100_000))
    zeros = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    digest = hashlib.sha256(zeros).digest()
    header = file_form._HEADER.pack(file_form.MARK, file_form.VERSION, 0, digest, 10, 5)
    assert "not the 10 bytes" in refused(header + zeros)


@each_row(
    ("change", "message"),
    [
        (lambda contents: contents["maps"][0]["blocks"].pop(), "bytes where there are"),
        (lambda contents: contents["maps"][0]["blocks"][0].__setitem__(0, 1), "map @s, block 1: "),
        (lambda contents: contents["maps"][0].update(blocks=[[1 << 40, 70]]), "Expected `int` <= 16384"),
        (lambda contents: contents["maps"][0].update(blocks=[[-1, 70]]), "Expected `int` >= 1"),
        (lambda contents: contents["maps"][2]["blocks"][0].__setitem__(0, 2), "map @t has 2 values and no keys"),
        (lambda contents: contents["maps"][3].update(key=[b"tuple", []]), "map @r, block 1: Expected `bytes`"),
        (lambda contents: contents["maps"][3].update(key=[b"hist", 0]), "stands where none can be"),
        (lambda contents: contents["maps"][1].update(value=[b"lhist", 0, 1 << 60, 1]), "a histogram of"),
        (lambda contents: contents["maps"][1].update(value=[b"count"]), "map @h, block 1: Expected `str`, got `array`"),
        (lambda contents: contents["maps"][1].update(value=None), "a type is damaged: Expected `array`, got `null`"),
        (lambda contents: contents["maps"][0].update(timed=True), "map @s, block 1: Expected `array` of length 3"),
        (lambda contents: contents["tables"][0]["runs"][0].__setitem__(0, 4), "rows of a run 4"),
        (lambda contents: contents["runs"][0].__setitem__(1, 4), "an origin that there is not"),
        (lambda contents: contents["runs"][0].__setitem__(1, -1), "an origin that there is not"),
        (lambda contents: contents["runs"][0].__setitem__(2, "x"), "Expected `int`, got `str` - at `$.runs[0][2]`"),
        (lambda contents: contents["runs"].append(contents["runs"][0]), "two runs have one identity"),
        (lambda contents: contents.pop("runs"), "missing required field `runs`"),
    ],
)  # fmt: skip
def test_contents_that_do_not_fit_are_refused(change: Any, message: str) -> None:
    blocks, contents = parts(example())
    change(contents)
    assert message in refused(sealed(blocks, contents))


def test_a_block_that_claims_many_rows_in_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = file_form.to_bytes(snapshot(map_data("@", STRING, COUNT, {"a" * 90: 1, "b": 2})))
    monkeypatch.setattr(stored_document, "BLOCK_BYTES", 50)
    assert "bytes of 2 rows" in refused(data)


def test_every_value_takes_a_byte() -> None:
    """Else a small file could hold any number of values."""
    empty = types.Tuple(())
    for type_, value in ((empty, ()), (types.Array(empty, 3), ((), (), ())), (types.Array(types.INT64, 0), ())):
        found = snapshot(map_data("@", types.INT64, type_, dict.fromkeys(range(3), value)))
        assert again(found) == found
        blocks, contents = parts(found)
        contents["maps"][0]["blocks"][0][0] = 16384
        assert "where 16384" in refused(sealed(blocks, contents))


# ---------------------------------------------------------------------------------------------- random damage


def test_randomly_damaged_files_are_errors_of_the_command_line(tmp_path: Path) -> None:
    """Bits flipped, parts zeroed, cut, doubled; in the file as it is, and below a valid digest."""
    keys = {f"key-{at}": at for at in range(3000)}
    found = replace(example(), maps={**example().maps, **snapshot(map_data("@many", STRING, COUNT, keys)).maps})
    blocks, contents = parts(found)
    packed, seed = msgspec.msgpack.encode(contents), random.Random(5)
    whole = file_form.to_bytes(found)
    for at in range(60):
        (tmp_path / f"{at}.pts").write_bytes(damaged(seed, whole))
        (tmp_path / f"{at}-blocks.pts").write_bytes(sealed(damaged(seed, blocks), contents))
        (tmp_path / f"{at}-contents.pts").write_bytes(sealed(blocks, damaged(seed, packed)))
    code = (
        "import io, re, sys; from pathlib import Path; from pytrace.cli import main; statuses = []\n"
        "for path in sorted(Path(sys.argv[1]).iterdir()):\n"
        "    for words in (['show', path], ['show', '-f', 'json', path], ['merge', path, '-o', '/dev/null']):\n"
        "        sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO()), io.StringIO()\n"
        "        status, error = main.main([str(word) for word in words]), sys.stderr.getvalue()\n"
        "        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__\n"
        "        statuses.append(status)\n"
        "        assert status in (0, 1) and bool(error) == bool(status), (path, error)\n"
        "        assert not status or error.startswith('ERROR: ') and str(path) in error, (path, error)\n"
        "print(statuses.count(1), re.search('VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    refusals, most = map(int, done.stdout.split())
    assert refusals > 300
    assert most < 200 * 1024


def damaged(seed: random.Random, data: bytes) -> bytes:
    """*data* with one change."""
    start = seed.randrange(len(data))
    end = min(len(data), start + seed.choice((1, 4, 50, 500)))
    middle: bytes = seed.choice((
        bytes((data[start] ^ 1 << seed.randrange(8),)) + data[start + 1 : end], bytes(end - start), b"",
        data[start:end] * 2, seed.randbytes(end - start), b"\xff" * (end - start),
    ))  # fmt: skip
    return data[:start] if seed.random() < 0.1 else data[:start] + middle + data[end:]


def test_the_library_is_imported_when_a_file_is_read_and_not_before() -> None:
    code = (
        "import sys; from pytrace.results import file_form; "
        "assert 'zstandard' not in sys.modules; "
        "file_form.to_bytes(__import__('pytrace.results.snapshot', fromlist=['x']).SnapshotData(())); "
        "assert 'zstandard' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["reads", "@a\n# EOF", "@\udcff", "", "@a b"])
def test_names_that_no_map_has_are_refused(name: str) -> None:
    data = file_form.to_bytes(snapshot(map_data(name, None, types.Count(), {None: 1})))
    with pytest.raises(TraceError, match="is no name of a map"):
        file_form.from_bytes(data, "x")


def test_threads_may_read_snapshots_at_once() -> None:
    """In a new process, as msgspec looks at a class when it decodes it for the first time."""
    code = """
import sys, threading
from pytrace.results import file_form
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot
data = file_form.to_bytes(snapshot(map_data("@", STRING, COUNT, {f"x{n}": n for n in range(50)}), of=run("a")))
sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=file_form.from_bytes, args=(data, "x")) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------------------------------------- stored columns
# .


def blocks(*parts: tuple[int, Any], form: Any) -> Blocks:
    """A document of these blocks: number of rows, and columns."""
    packed = [(rows, msgspec.msgpack.encode(columns)) for rows, columns in parts]
    places = [Block(rows, len(data)) for rows, data in packed]
    return Blocks("x.pts", "map @", BytesIO(b"".join(data for _, data in packed)), 0, places, form)


def numbers(*columns: Sequence[int]) -> tuple[int, tuple[Numbers, ...]]:
    return len(columns[0]), tuple(map(Numbers.of, columns))


def test_entries_are_a_mapping_that_is_read_again_and_again() -> None:
    data = blocks(numbers([5, 6], [1, 2]), numbers([5], [3]), form=tuple[Numbers, Numbers])
    found = StoredEntries(data, TablesReader(), types.INT64, types.INT64)
    assert len(found) == 3
    assert list(found) == [5, 6, 5]
    for _ in range(2):
        assert list(found.items()) == [(5, 1), (6, 2), (5, 3)]
        assert list(found.values()) == [1, 2, 3]
    assert found[6] == 2
    assert found.get(7) is None


def test_a_map_without_keys_has_one_value() -> None:
    found = StoredEntries(blocks(numbers([7]), form=tuple[Numbers]), TablesReader(), None, types.INT64)
    assert dict(found.items()) == {None: 7}


def test_times_that_keys_lack() -> None:
    data = blocks(numbers([5, 6, 7], [0, 0, 0], [10, -1, 30]), form=tuple[Numbers, Numbers, Numbers])
    found = StoredTimes(data, TablesReader(), types.INT64, types.INT64)
    assert dict(found.items()) == {5: 10, 7: 30}
    assert list(found) == [5, 7]
    assert len(found) == 2


def test_rows_are_a_collection() -> None:
    found = StoredRows(
        blocks(numbers([1, 2]), form=tuple[Numbers]), TablesReader(), types.Record(("a",), (types.INT64,))
    )
    assert len(found) == 2
    assert list(found) == list(found) == [(1,), (2,)]
    assert (2,) in found
    assert (3,) not in found


def test_damage_that_is_found_late_is_reported_as_such() -> None:
    data = blocks(numbers([1]), (2, [["B", b"1"]]), form=tuple[Numbers])
    rows = iter(StoredRows(data, TablesReader(), types.Record(("a",), (types.INT64,))))
    assert next(rows) == (1,)
    with pytest.raises(TraceError, match="damaged or truncated: map @, block 2: 1 bytes of integers where 2"):
        next(rows)


# ---------------------------------------------------------------------------------------------- prints


def made() -> SnapshotData:
    found = snapshot(
        map_data("@h", STRING, types.Hist(0), {}), map_data("@n", None, types.Stats(), {None: (4, 2)}),
        map_data("@inner", None, COUNT, {}),
    )  # fmt: skip
    found.maps["@inner"].hidden = True
    found.prints = (
        Print("@h", 5, {"\udcff": {3: 1 << 63}, "b": {}}, cleared=True),
        Print("@n", 6, {None: (-4, 2)}, cleared=False, number=9),
        Print("@h", 7, {}, cleared=True, number=2),
    )
    return found


def test_prints_and_hidden_maps_are_read_back() -> None:
    found = made()
    again = file_form.from_bytes(file_form.to_bytes(found), "x")
    assert again.prints == found.prints
    assert [name for name, data in again.maps.items() if data.hidden] == ["@inner"]


@pytest.mark.parametrize(("change", "message"), [
    ({"map": 9}, "map 9, which there is not"), ({"map": -1}, "map -1"), ({"rows": 1 << 40}, "@h has 1099511627776 row"),
    ({"rows": -1}, "-1 rows"), ({"columns": msgspec.Raw(b"\x90")}, None), ({"map": 1}, None),
])  # fmt: skip
def test_damaged_ones_are_refused(change: dict[str, Any], message: str | None) -> None:
    found = made()
    stored = stored_prints(TablesWriter(), found)[0]
    with pytest.raises((ValueError, LookupError, msgspec.ValidationError), match=message):
        replace(stored, **change).read(TablesReader(), list(found.maps.values()))


def test_a_merge_has_none() -> None:
    other = made()
    merged = merge([made(), replace(other, runs=(run("run-2"),))])
    assert merged.prints == ()
    assert merged.maps["@inner"].hidden


# ---------------------------------------------------------------------------------------------- stored document
# .


def opened(document: bytes, size: int | None = None, *, digest: bytes | None = None, after: bytes = b"") -> bytes:
    data = zstandard.ZstdCompressor().compress(document) + after
    known = hashlib.sha256(data).digest() if digest is None else digest
    with ExitStack() as stack:
        found = stored_document.unpacked(BytesIO(data), len(document) if size is None else size, known, stack)
        found.seek(0)
        return found.read()


def test_documents_are_unpacked_to_memory_or_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_document, "IN_MEMORY", 1000)
    for size in (0, 1, 1000, 1001, 5_000_000):
        assert opened(bytes(size)) == bytes(size)


def test_wrong_sizes_and_digests_are_refused() -> None:
    with pytest.raises(ValueError, match="not the 10 bytes"):
        opened(b"x" * 9, 10)
    with pytest.raises(ValueError, match="not the 8 bytes"):
        opened(b"x" * 9, 8)
    with pytest.raises(ValueError, match="digest"):
        opened(b"x", digest=bytes(32))
    with pytest.raises(ValueError, match="zstd"):
        opened(b"x", after=b"and more")


def test_no_more_is_unpacked_than_is_claimed() -> None:
    with pytest.raises(ValueError, match="not the 10 bytes"):
        opened(bytes(1 << 28), 10)


def test_the_size_is_in_proportion_to_the_file_or_what_was_allowed() -> None:
    least, ratio = stored_document.LEAST_LIMIT, stored_document.RATIO
    for size, compressed, limit in ((least, 1, None), (ratio << 20, 1 << 20, None), (1 << 40, 1, 1 << 40)):
        stored_document.check_size(size, compressed, limit, "x.pts")
    for size, compressed, limit in ((least + 1, 1, None), ((ratio << 20) + 1, 1 << 20, None), (11, 10, 10)):
        with pytest.raises(TraceError, match=rf"'x.pts' would unpack {compressed} bytes to {size}") as found:
            stored_document.check_size(size, compressed, limit, "x.pts")
        assert "--limit" in found.value.hints[0]


def test_blocks_are_read_again_and_again() -> None:
    writer = BlocksWriter(3)
    blocks = [*writer.blocks(["a", "b"], list), *writer.blocks(["c"], list)]
    with ExitStack() as stack:
        data = writer.compressed()
        document = stored_document.unpacked(BytesIO(data), writer.size, hashlib.sha256(data).digest(), stack)
        found = Blocks("x.pts", "map @", document, 0, blocks, list[str])
        assert found.rows == 3
        for _ in range(2):
            assert list(found.read(lambda part, count: [f"{part}{count}"])) == [["['a', 'b']2"], ["['c']1"]]
        numbers = Blocks("x.pts", "map @", document, blocks[0].size, blocks[1:], list[int])
        message = r"'x.pts' is damaged or truncated: map @, block 1: Expected `int`, got `str` - at `\$\[0\]`"
        with pytest.raises(TraceError, match=message):
            list(numbers.read(lambda part, _count: part))
        with pytest.raises(TraceError, match="block 1: Input data was truncated"):
            list(Blocks("x.pts", "map @", document, writer.size, [Block(1, 9)], int).read(lambda part, _count: [part]))


def test_large_blocks_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_document, "BLOCK_BYTES", 20)
    writer = BlocksWriter(3)
    blocks = list(writer.blocks(["x"] * 40 + ["y" * 100], list))
    assert sum(block.rows for block in blocks) == 41
    assert all(block.size <= 20 or block.rows == 1 for block in blocks)
    assert sum(block.size for block in blocks) == writer.size


# ---------------------------------------------------------------------------------------------- stored tables
# Columns of integers, and the tables of strings, frames and stacks.


INTEGERS = st.integers(-(1 << 70), 1 << 70) | st.sampled_from([-129, -128, 127, 128, 255, 256, (1 << 64) - 1, 1 << 64])


@given(st.lists(INTEGERS, max_size=20))
def test_integers(values: list[int]) -> None:
    assert Numbers.of(values).values(len(values)) == values


def test_columns_are_as_narrow_as_their_numbers() -> None:
    for most, size in ((255, 1), (256, 2), (70_000, 4), (1 << 32, 8), (1 << 64, 16)):
        assert Numbers.of([0, most]).data == bytes(size) + most.to_bytes(size, "little")
    with pytest.raises(OverflowError, match="128 bits"):
        Numbers.of([1 << 128])


@given(st.binary())
def test_texts_keep_all_bytes(data: bytes) -> None:
    assert raw(text(data)) == data


def test_stacks_of_which_parts_are_missing_are_refused() -> None:
    writer = TablesWriter()
    writer.stack(stack("f", "main"))
    (frames, pack_frames), (stacks, pack_stacks), (strings, pack_strings) = writer.tables
    frame, one, names = pack_frames(list(frames)), pack_stacks(list(stacks)), pack_strings(list(strings))
    assert isinstance(one, tuple)
    assert isinstance(names, list)

    def read(strings: object, frames: object, stacks: object) -> object:
        reader = TablesReader()
        reader.add_strings(strings, len(strings))  # type: ignore[arg-type]
        reader.add_frames(frames, 2)  # type: ignore[arg-type]
        reader.add_stacks(stacks, 1)  # type: ignore[arg-type]
        return reader.stack(0)

    assert read(names, frame, one) == stack("f", "main")
    for changed in (
        (Numbers("B", b"\3"), *one[1:]),
        (Numbers("b", b"\xff"), *one[1:]),
        (one[0], Numbers("B", b"\0\7"), *one[2:]),
        (one[0], Numbers("b", b"\0\xff"), *one[2:]),
        (*one[:2], Numbers("B", b""), one[3]),
        (*one[:3], Numbers("B", b"\x63")),
    ):
        with pytest.raises((ValueError, LookupError, OverflowError)):
            read(names, frame, changed)
    with pytest.raises(LookupError):
        read([], frame, one)
    with pytest.raises(ValueError, match="a frame that there is not"):
        TablesReader().add_stacks(one, 1)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- stored types
# .


@each_row("type_", [kind for kinds, _ in VALUES.values() for kind in kinds], ids=str)
def test_types_of_scripts_are_read(type_: types.Type) -> None:
    again = type_from(type_to(type_))
    assert again is not None
    assert again == types.settled(type_)


def test_names_of_any_bytes() -> None:
    type_ = types.Record(("\udcff",), (types.INT64,))
    assert type_from(type_to(type_)) == type_


def test_a_map_without_keys_has_none() -> None:
    assert type_from(type_to(None), key=True) is None
    for wrong in (types.Hist(), types.Tuple((types.TSeries(),))):
        with pytest.raises(ValueError, match="none can be"):
            type_from(type_to(wrong), key=True)


def test_large_types_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = type_to(types.Enum("e", 4, False, tuple((f"member_{at}", at) for at in range(100))))
    assert type_from(stored)
    monkeypatch.setattr(file_form, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="a type of"):
        type_from(stored)


@each_row(
    "data",
    [
        None, 5, [], ["invented"], ["int"], ["int", "8", True], ["string", -1.5],
        ["array", ["int", 8, True], "2"], ["array", ["int", 8], 2], ["array", 5, 2],
        ["tuple", ["int"]], ["record", ["a"], []], ["record", [1], [["int", 8, True]]],
        ["enum", "e", 4, True, [["a", "b"]]], ["enum", "e", 4, True, [["a"]]],
        msgspec.to_builtins(types.Hist(100)), msgspec.to_builtins(types.Hist(-1)), msgspec.to_builtins(types.Hist(40)),
        msgspec.to_builtins(types.LHist(0, 1 << 60, 1)), msgspec.to_builtins(types.LHist(0, 10, 0)),
        msgspec.to_builtins(types.LHist(9, 0, 1)),
        msgspec.to_builtins(types.TSeries(1, 1 << 40)), msgspec.to_builtins(types.TSeries(0, 5)),
        msgspec.to_builtins(types.Fixed(1, 1 << 40)), msgspec.to_builtins(types.Fixed(0, 1)),
        ["array", ["int", 1, False], (1 << 16) + 1],
    ],
    ids=repr,
)  # fmt: skip
def test_what_no_script_has_is_refused(data: Any) -> None:
    with pytest.raises(ValueError):
        type_from(stored(data))


def stored(data: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(packed(data)))


def packed(data: Any) -> Any:
    """Data of a type with texts as bytes, as in files."""
    if isinstance(data, list | tuple):
        return list(map(packed, data))
    if isinstance(data, dict):
        return {name: packed(item) for name, item in data.items()}
    return data.encode() if isinstance(data, str) else data


# ---------------------------------------------------------------------------------------------- type union
# One type for what two snapshots call the same.


def struct(name: str, size: int, *fields: Field) -> types.Struct:
    return types.Struct("struct", name, size, fields, alignment=4)


NARROW = struct("x", 4, Field("n", types.INT32, 0))
MOVED = struct("x", 12, Field("n", types.INT64, 4))
WIDE = types.Record(("a",), (types.INT32,))
SIGNED = types.Enum("colour", 8, True, (("BLUE", 2),))
COLOUR = types.Enum("colour", 4, False, (("RED", 0),))


@each_row(
    ("first", "second", "both"),
    [
        (types.INT32, types.UINT64, types.INT64),
        (types.UINT8, types.UINT64, types.UINT64),
        (types.String(4), types.String(64), types.String(64)),
        (types.Buffer(4), types.Buffer(8), types.Buffer(8)),
        (types.Array(types.INT8, 3), types.Array(types.INT32, 3), types.Array(types.INT32, 3)),
        (types.Tuple((types.INT8, STRING)), types.Tuple((types.INT32, STRING)), types.Tuple((types.INT32, STRING))),
        (types.Record(("a",), (types.INT8,)), WIDE, WIDE),
        (COLOUR, SIGNED, types.Enum("colour", 8, True, (("RED", 0), ("BLUE", 2)))),
        (NARROW, MOVED, MOVED),
        (types.Stack(True, 3), types.Stack(True, 9), types.Stack(True, 9)),
        (types.Sum(False), types.Sum(True), types.Sum(True)),
        (types.Pointer(types.INT8), types.Pointer(types.INT64), types.Pointer(types.VOID)),
        (types.TSeries(10, 3, "sum"), types.TSeries(10, 5, "sum"), types.TSeries(10, 5, "sum")),
        (types.Mac(), types.Mac(), types.Mac()),
    ],
)  # fmt: skip
def test_the_larger_is_taken_in_any_order(first: Type, second: Type, both: Type) -> None:
    assert joined_types(first, second) == joined_types(second, first) == both
    assert joined_types(both, first) == both
    assert joined_types(first, first) is first


@each_row(
    ("first", "second"),
    [
        (types.INT64, STRING),
        (COUNT, types.Sum()),
        (COLOUR, types.Enum("flavour", 4, False, ())),
        (types.Array(types.INT8, 3), types.Array(types.INT8, 4)),
        (types.Tuple((types.INT8,)), types.Tuple((types.INT8, types.INT8))),
        (types.Tuple((types.INT8,)), types.Tuple((STRING,))),
        (types.Record(("a",), (types.INT8,)), types.Record(("b",), (types.INT8,))),
        (NARROW, struct("y", 4, Field("n", types.INT32, 0))),
        (NARROW, struct("x", 4, Field("m", types.INT32, 0))),
        (types.Stack(True), types.Stack(False)),
        (types.Hist(1), types.Hist(2)),
        (types.LHist(0, 9, 1), types.LHist(0, 9, 3)),
        (types.TSeries(10, 3, "sum"), types.TSeries(10, 3, "avg")),
    ],
)
def test_what_decides_the_meaning_must_agree(first: Type, second: Type) -> None:
    for one, other in ((first, second), (second, first)):
        with pytest.raises(MismatchError):
            joined_types(one, other)


def test_descriptions_name_what_decides() -> None:
    assert described(None) == "no key"
    assert described(types.Hist(3)) == "hist with 3 bits"
    assert described(types.LHist(0, 9, 3)) == "lhist from 0 to 9 by 3"
    assert described(types.TSeries(10, 3)) == "tseries of 10 ns, last value"
    assert described(types.Tuple((types.INT64, types.Stack(True)))) == "(int64, ustack(bpftrace))"
    assert described(types.Record(("a", "b"), (types.INT64, types.INT8))) == "(a=int64, b=int8)"
    assert described(NARROW) == "struct x with members n"


def test_every_type_with_parameters_has_a_row() -> None:
    parameters = {kind: set(kind.__struct_fields__) for kind in types.ALL if issubclass(kind, types.Data)}
    lacking = [kind.__name__ for kind, names in parameters.items() if names and KINDS[kind].union is ValueKind.union]
    assert not lacking, "union() of pytrace/render/values.py"


# ---------------------------------------------------------------------------------------------- snapshot
# Columns of maps in answers of many hosts.


NUMBER = types.Int(8, False)


def test_columns_after_a_label_are_those_of_one_host() -> None:
    record = types.Record(("host", "port"), (STRING, NUMBER))
    for key, names in (
        (None, ["host"]), (STRING, ["host", "key"]), (types.Tuple((STRING, NUMBER)), ["host", "key1", "key2"]),
        (record, ["host_", "host", "port"]),
    ):  # fmt: skip
        (data,) = labelled(snapshot(map_data("@", key, COUNT, {})), "host", "web1").maps.values()
        assert [column.name for column in data.key_columns] == names
        own = map_data("@", key, COUNT, {})
        assert own.key_columns == key_columns(key), "without a label as anywhere"


def test_a_label_of_keys_that_have_no_members_is_the_whole_key() -> None:
    data = replace(map_data("@", STRING, COUNT, {}), label="zone")
    assert [column.name for column in data.key_columns] == ["zone"]
