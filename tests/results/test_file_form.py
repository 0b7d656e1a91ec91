from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.results import file_form, stored_document
from pytrace.results.merge import merge
from pytrace.results.snapshot import SnapshotData
from tests.support.portable import KEYS, VALUES, maps, snapshots
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, table

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


@settings(max_examples=60, deadline=None)
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


def test_the_text_of_the_script_is_read_back() -> None:
    whole = SnapshotData((replace(run(), text="begin { }\n\udcff"), run("run-2")))
    assert file_form.from_bytes(file_form.to_bytes(whole), "x") == whole


def test_gaps_and_clocks_of_runs_are_read_back() -> None:
    found = snapshot(of=replace(run("1"), gaps=((5, 7), (1 << 60, 3)), clock=(-5, 9)))
    assert again(found).runs == found.runs


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
    with pytest.raises(TraceError, match=r"'x.pts' has version 7 of the snapshot form; this pytrace reads version 2"):
        file_form.from_bytes(bytes(data), "x.pts")


def test_a_file_of_an_earlier_version_says_what_to_do() -> None:
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
