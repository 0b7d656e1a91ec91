"""Results of one host: how much of them is read, and what of them the script decides."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.remote import host_results, messages
from pytrace.remote.answer import Answer
from pytrace.remote.controller import Controller
from pytrace.remote.host_results import Script
from pytrace.remote.hosts import State
from pytrace.remote.messages import Snapshot
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData, Table
from pytrace.results.stored_document import Block
from tests.support import lies
from tests.support.patience import patience
from tests.support.snapshots import map_data, run, snapshot
from tests.support.waiting import until

OF = types.Record(("a",), (types.Bool(),))


def bomb(blocks: int) -> bytes:
    """A file with 16,384 rows of one boolean for each block, that is a few bytes a block."""
    writer = file_form._Writer()
    made = writer.contents(snapshot(of=run("r"), tables=(Table(OF, {"r": [(True,)] * (1 << 14)}),)))
    (block,) = made.tables[0].runs[0][1]
    one = file_form.to_bytes(snapshot(of=run("r"), tables=(Table(OF, {"r": [(True,)] * (1 << 14)}),)))
    document = lies.document_of(one)
    table = replace(made.tables[0], runs=((0, (Block(block.rows, block.size),) * blocks),))
    contents = msgspec.msgpack.encode(replace(made, tables=(table,)))
    rest = document[block.size : len(document) - len(msgspec.msgpack.encode(made))]
    return lies.file(document[: block.size] * blocks + rest + contents, len(contents))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """31 million rows, which took 2 GB and two minutes: of a host, and of a file that show or merge reads."""
    data = bomb(1900)
    assert len(data) < 10_000
    (tmp_path / "x.pts").write_bytes(data)
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(TraceError, match=r"would unpack \d+ bytes to 31\d{6}; 8388608 are read"):
        host_results.read(data, "web1")
    with pytest.raises(TraceError, match="would unpack"):
        file_form.read(str(tmp_path / "x.pts"))
    with pytest.raises(TraceError, match=r"has 6553\d{3} rows in \d+ bytes; 1048576 are read"):
        host_results.read(bomb(400), "web1")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100 << 10
    assert time.process_time() - start < 5
    assert len(file_form.from_bytes(bomb(2), "x").tables[0].rows["r"]) == 1 << 15


def test_large_results_are_read_by_a_limited_process(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bomb(60)
    host_results.check(data, "web1")
    with pytest.raises(TraceError, match="the snapshot 'web1' is damaged"):
        host_results.check(data[:-1], "web1")
    with pytest.raises(TraceError, match="'web1' is not a snapshot"):
        host_results.check(b"x", "web1")
    with monkeypatch.context() as patch:
        patch.setattr(host_results, "MEMORY", 32 << 20)
        with pytest.raises(TraceError, match="take more than 32 MiB"):
            host_results.check(data, "web1")
    monkeypatch.setattr(host_results, "PATIENCE", 0.01)
    with pytest.raises(TraceError, match=r"60 seconds of processor time or 0\.01 seconds to read"):
        host_results.check(data, "web1")


def test_hosts_are_heard_while_results_are_read(tmp_path: Path) -> None:
    """Those of the others count, whatever becomes of the large ones."""
    controller = Controller(["web1", "web2"], replace(lies.request(), compiled=b""), Answer(None), str(tmp_path))
    for name, data in (("web1", bomb(100)), ("web2", file_form.to_bytes(lies.honest(2)))):
        lies.begin(controller, name)
        controller.output(name, messages.encode(Snapshot(number=1, data=data)), 2)
    began = time.monotonic()
    assert controller.output("web1", lies.END, 3) == b""
    assert controller.peers["web1"].reading
    assert time.monotonic() - began < patience(1)
    controller.output("web2", lies.END, 3)
    assert controller.silent(1e9) == []

    def read() -> bool:
        controller.settle()
        return not controller._reading

    until(read)
    assert controller.owed() == ["web1", "web2"]
    assert controller.due("web1", 4) is None
    controller.finish(5)
    states = {name: host.state for name, host in controller.hosts.items()}
    assert sorted(state.value for state in states.values()) == ["answered", "lost"]
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_of_a_running_host_ends_it(tmp_path: Path) -> None:
    """It would be read in vain for each answer so far; those of the others are shown."""
    controller = Controller(["web1", "web2"], lies.request(), Answer(None), str(tmp_path))
    for name, data in (("web1", bomb(400)), ("web2", file_form.to_bytes(lies.honest(2)))):
        lies.begin(controller, name)
        controller.output(name, messages.encode(Snapshot(number=1, data=data)), 2)
    assert controller.current().maps["@"].entries == {"sh": 2, "own2": 1}
    assert controller.silent(3) == ["web1"]
    assert controller.hosts["web1"].state is State.LOST
    assert "1048576 are read" in controller.hosts["web1"].text
    controller.output("web2", lies.END, 3)
    assert controller.result().maps["@"].entries == {"sh": 2, "own2": 1}


@pytest.mark.parametrize("first", ["liar", "web1"])
def test_the_script_decides_about_types(tmp_path: Path, first: str) -> None:
    """A map without a key, of whoever is first, is that host's fault."""
    other = lies.honest(9)
    other.maps["@"] = replace(other.maps["@"], key=None, entries={None: 10**6})
    sent = {"liar": other, "web1": lies.honest(1), "web2": lies.honest(2)}
    controller = Controller([*sent], lies.request(), Answer(None), str(tmp_path))
    for name in sorted(sent, key=lambda name: name != first):
        lies.begin(controller, name)
        said = messages.encode(Snapshot(number=1, data=file_form.to_bytes(sent[name])))
        controller.output(name, said + lies.END, 2)
    assert controller.result().maps["@"].entries == {"sh": 3, "own1": 1, "own2": 1}
    assert controller.hosts["liar"].state is State.LOST
    assert controller.hosts["liar"].text == (
        "its results do not fit: the keys of map @ are no key, those of the script string[16]"
    )


def gateway(change: Callable[[SnapshotData], SnapshotData]) -> SnapshotData:
    script, labels = Script.of(lies.request()), frozenset({"web1", "web2"})
    return script.fitted_of_gateway(change(lies.of_gateway()), 2, "host", labels)


def test_a_gateway_speaks_for_its_hosts_only() -> None:
    assert gateway(lambda made: made).maps["@"].entries[("web1", "sh")] == 1
    data = lies.of_gateway().maps["@"]
    foreign = replace(data, entries={("web3", "sh"): 1}), replace(data, estimated=("x",))
    for other in foreign:
        with pytest.raises(TraceError, match="map @ has keys of hosts that are not behind it"):
            gateway(lambda made, other=other: replace(made, maps={**made.maps, "@": other}))  # type: ignore[misc]
    with pytest.raises(TraceError, match="4 runs of 2 hosts"):
        gateway(lambda made: replace(made, runs=made.runs * 2))
    rows = {"run-1": [("web3", 1, "")]}
    with pytest.raises(TraceError, match="table 1 has rows of hosts that are not behind it"):
        gateway(lambda made: replace(made, tables=(replace(made.tables[0], rows=rows),)))


def test_texts_of_hosts_are_short_and_few(tmp_path: Path) -> None:
    controller = Controller(["web1"], lies.request(), Answer(None), str(tmp_path))
    lies.begin(controller, "web1")
    for number in range(30):
        controller.output("web1", messages.encode(messages.Warned(f"{number}" + "w" * 900_000)), 2)
    host = controller.hosts["web1"]
    assert [len(text) for text in host.told] == [messages.LONGEST_TEXT] * messages.MOST_WARNINGS + [16]
    assert host.told[-1] == "10 more warnings"
    error = messages.End(reason="error", status=1, error="ERROR: " + "e" * 900_000)
    controller.output("web1", messages.encode(error), 3)
    assert len(host.text) <= messages.LONGEST_TEXT


@pytest.mark.parametrize(
    ("key", "value"),
    [((1 << 32, "x"), 1), ((-1, "x"), 1), ((1, "x"), -1), ((1, "x"), 1 << 64), ((1, "x"), 1)],
)
def test_numbers_are_of_their_type(key: tuple[int, str], value: int) -> None:
    """Formats could not write the others, whosever answer they were in."""
    type_ = types.Tuple((types.Int(4, False), types.String(16)))
    data = file_form.to_bytes(snapshot(map_data("@", type_, types.Count(), {key: value})))
    if (key, value) == ((1, "x"), 1):
        assert host_results.read(data, "web1").maps["@"].entries == {key: value}
        return
    with pytest.raises(TraceError, match=r"it sends numbers that are no (uint32|count_t)"):
        host_results.read(data, "web1")
