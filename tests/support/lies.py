"""Agents that lie: for each kind of lie what one of them sends, made from a seed.

:func:`attempt` asks honest hosts and liars in some order and mixture, and is its own oracle: the answer of the honest
ones is as it is without liars, each liar is named, and nothing but files of the controller's folder was touched.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import zstandard
from msgspec.structs import replace

from pytrace import pipeline
from pytrace.core import types
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.remote import host_results, messages
from pytrace.remote.answer import Answer, labelled
from pytrace.remote.controller import MEASUREMENTS, Controller, Tree
from pytrace.remote.hosts import Hosts, State
from pytrace.remote.messages import (
    Attached,
    Beat,
    Clock,
    End,
    Hello,
    HostReport,
    Limits,
    Misfit,
    NamedPlace,
    NamedPlaces,
    Need,
    Place,
    Refused,
    Relay,
    Reports,
    Request,
    Route,
    Send,
    Snapshot,
    Stated,
    Warned,
)
from pytrace.render.values import joined_types
from pytrace.results import file_form, stored_document
from pytrace.results.formats import table
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.merge import merge
from pytrace.results.snapshot import Frame, MapData, Run, SnapshotData, StackTrace, Table
from tests.support.facts import RecordedKernel

TEXT = "begin { @[comm] = count(); @h = hist(nsecs); @k[ustack] = sum(pid); @last[pid] = comm; row((a=pid, b=comm)); }"
HOSTILE = ("\x1b[2J", "a\nb", "<script>alert(1)</script>", "\udcff", "\u202etxt", "=1+1", "\0", "x" * 300, "é" * 90, "")
NUMBERS = (0, 1, -1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63))
ROWS = 1 << 14
"""Rows of bombs: half of that, and twice as many."""


@contextmanager
def low_bounds() -> Iterator[None]:
    """The controller's bounds are reached by less, so that an attempt takes no longer than a tenth of a second."""
    with (
        patch.object(stored_document, "LEAST_ROWS", ROWS), patch.object(host_results, "MOST_FRAMES", ROWS),
        patch.object(host_results, "AT_ONCE", 4 * ROWS),
    ):  # fmt: skip
        yield


Lie = Callable[[Random], bytes]
"""What a liar sends after the script was attached."""


@cache
def request() -> Request:
    """A script with maps and rows of several kinds, compiled ahead of time."""
    options = CompileOptions(ahead=True)
    made = pipeline.compile_script(Source("x.bt", TEXT), options, RecordedKernel(), Diagnostics())
    return Request(protocol=messages.PROTOCOL, script="x.bt", text=TEXT, compiled=made.to_bytes(),
                   limits=Limits(duration=5, bytes=64 << 20))  # fmt: skip


@cache
def _types() -> tuple[dict[str, tuple[types.Type | None, types.Type]], types.Record]:
    script = host_results.Script.of(request())
    assert script.maps is not None
    return dict(script.maps), script.tables[1]


def honest(number: int) -> SnapshotData:
    """The results of a host that does what it is asked for."""
    maps, row = _types()
    frames = Frame("main", 4, "/bin/x", "ab" * 20, address=20), Frame("", 8, "/bin/x", "ab" * 20, address=9)
    trace = StackTrace(frames)
    entries: dict[str, dict[Any, Any]] = {
        "@": {"sh": number, f"own{number}": 1}, "@h": {None: {3: number, 9: 1}}, "@k": {trace: number},
        "@last": {number: "sh"},
    }  # fmt: skip
    times = 10**18, 10**18 + number, 0, 9
    run = Run(f"run-{number}", f"web{number}", "6.1", "x86_64", "x.bt", "ab" * 32, (), *times, "1")
    data = {name: MapData(name, *maps[name], entries[name]) for name in maps}
    return SnapshotData((run,), data, (Table(row, {run.identity: [(number, "sh")]}),), {"lost": {"k:f": number}})


def _sent(snapshot: SnapshotData) -> bytes:
    return messages.encode(Snapshot(number=1, data=file_form.to_bytes(snapshot)))


END = messages.encode(End(reason="duration", status=0))


# ---------------------------------------------------------------------------------------------- results


def _type(random: Random, depth: int = 0) -> types.Type:
    """Any type that a file may have, with what a script could not have as well."""
    plain: list[Callable[[], types.Type]] = [
        lambda: types.Int(random.choice((1, 2, 4, 8)), random.random() < 0.5), types.Count, lambda: types.Sum(True),
        lambda: types.String(random.choice((1, 16, 1 << 40))), lambda: types.Buffer(8), lambda: types.Stack(True),
        lambda: types.Enum("e", 4, False, (("sh", 1), ("\x1b", 2))), lambda: types.Hist(random.choice((0, 2, 63))),
        lambda: types.LHist(0, 100, random.choice((1, 10))), types.Bool, lambda: types.Tuple(()),
        lambda: types.Record((), ()), lambda: types.Array(types.Bool(), random.choice((0, 3, 1 << 40))),
        lambda: types.Avg(False), lambda: types.Max(True), lambda: types.TSeries(1, 5, "avg", True),
    ]  # fmt: skip
    if depth < 3 and random.random() < 0.3:
        members = tuple(_type(random, depth + 1) for _ in range(random.randrange(3)))
        names = tuple(random.choice(("a", "b", *HOSTILE)) for _ in members)
        return random.choice((types.Tuple(members), types.Record(names, members)))
    return random.choice(plain)()


def _value(random: Random, type_: types.Type | None) -> Any:
    match type_:
        case None:
            return None
        case types.Bool():
            return True
        case types.String():
            return random.choice(HOSTILE)
        case types.Buffer():
            return random.randbytes(4)
        case types.Stack():
            names = [random.choice(HOSTILE) for _ in range(random.randrange(4))]
            return StackTrace(tuple(Frame(name, random.choice((0, 8)), name, name) for name in names))
        case types.Tuple() | types.Record():
            return tuple(_value(random, member) for member in type_.members)
        case types.Array():
            return tuple(_value(random, type_.element) for _ in range(min(type_.count, 5)))
        case types.Hist() | types.LHist():
            return {random.randrange(60): random.choice(NUMBERS) for _ in range(3)}
        case types.TSeries():
            return {random.choice(NUMBERS): (random.choice(NUMBERS), random.choice(NUMBERS))}
        case types.Avg() | types.Stats():
            return random.choice(NUMBERS), random.choice(NUMBERS)
    return random.choice(NUMBERS)


def _other_type(random: Random) -> SnapshotData:
    made = honest(90)
    name, changes = random.choice([*made.maps]), {}
    data = made.maps[name]
    key = random.choice((data.key, None, _type(random)))
    value = random.choice((data.value, _type(random)))
    entries = {}
    with suppress(TypeError):  # that of a histogram
        entries[_value(random, key)] = _value(random, value)
    changes[name] = replace(data, key=key, value=value, entries=entries)
    return replace(made, maps={**made.maps, **changes})


def _other_values(random: Random) -> SnapshotData:
    """Values of the right types that no run has."""
    made = honest(91)
    maps = {
        name: replace(data, entries={_value(random, data.key): _value(random, data.value) for _ in range(5)})
        for name, data in made.maps.items()
    }
    rows = [tuple(_value(random, member) for member in made.tables[0].type.members) for _ in range(3)]
    return replace(made, maps=maps, tables=(replace(made.tables[0], rows={"run-91": rows}),))


def _other_maps(random: Random) -> SnapshotData:
    made = honest(92)
    maps = dict(made.maps)
    if random.random() < 0.5:
        del maps[random.choice([*maps])]
    else:
        name = random.choice(("@x", "@" + "y" * 5000))
        maps[name] = MapData(name, None, types.Count(), {None: 1})
    return replace(made, maps=maps)


def _other_tables(random: Random) -> SnapshotData:
    made, type_ = honest(93), types.Record(("a",), (_type(random),))
    tables = [Table(type_, {"run-93": [(_value(random, type_.members[0]),)] * 3}, number=random.choice((1, 2, 7)))]
    if random.random() < 0.5:
        tables.append(made.tables[0])
    if random.random() < 0.5:
        tables.append(Table(types.Record((), ()), {"run-93": [()]}))
    return replace(made, tables=tuple(tables))


def _other_words(random: Random) -> SnapshotData:
    """Help, marks, labels, losses and runs that are not for a host to decide."""
    made, word = honest(94), random.choice(HOSTILE)
    mark = "zz" + word.encode("utf-8", "replace").decode()
    data = made.maps["@"]
    changes: list[Callable[[], SnapshotData]] = [
        lambda: replace(made, maps={**made.maps, "@": replace(data, help="\x7f" * 100_000)}),
        lambda: replace(made, maps={**made.maps, "@": replace(data, mark=mark)}),
        lambda: replace(made, maps={**made.maps, "@": replace(data, label="host", estimated=("web1",))}),
        lambda: replace(made, losses={word: {f"{word}{number}": 1 << 62 for number in range(3000)}}),
        lambda: replace(made, losses={"lost": {"k:f": -5}}),
        lambda: replace(made, runs=(), tables=()),
        lambda: replace(made, runs=(*made.runs, *honest(95).runs)),
        lambda: replace(made, runs=(replace(made.runs[0], identity="run-90"),), tables=()),
        lambda: replace(made, runs=(replace(made.runs[0], start=random.choice(NUMBERS[:4]), end=(1 << 63) - 1),)),
        lambda: replace(made, runs=(replace(made.runs[0], text="evil" * 9, script=word, host=word, kernel=word),)),
        lambda: replace(made, runs=(replace(made.runs[0], host="h" * 100_000),)),
        lambda: replace(made, runs=(replace(made.runs[0], gaps=((5, -1),) * 20_000),)),
    ]  # fmt: skip
    return random.choice(changes)()


def document_of(whole: bytes) -> bytes:
    """The document of a file."""
    packed, size = whole[file_form._HEADER.size :], file_form.size_of(whole)
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)


def _document(random: Random) -> bytes:
    """A file whose document is changed, with a digest that fits."""
    whole = file_form.to_bytes(honest(96))
    mark, version, zero, _, _, length = file_form._HEADER.unpack(whole[: file_form._HEADER.size])
    document = bytearray(document_of(whole))
    for _ in range(random.randrange(1, 6)):
        at = random.randrange(len(document))
        document[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
    return file(bytes(document), random.choice((length, length, 0, len(document))), (mark, version, zero))


def file(
    document: bytes, length: int, first: tuple[bytes, int, int] = (file_form.MARK, file_form.VERSION, 0)
) -> bytes:
    """A file of a document, with a digest that fits; *length*: of the contents at its end."""
    packed = zstandard.ZstdCompressor(level=3).compress(document)
    return file_form._HEADER.pack(*first, hashlib.sha256(packed).digest(), len(document), length) + packed


def _bomb(random: Random) -> SnapshotData:
    """A little that unpacks to much."""
    made, number = honest(97), random.choice((ROWS // 2, ROWS * 2))
    data, trace = made.maps["@last"], StackTrace((Frame("f", 1, "/x"),) * 300)
    kinds: list[Callable[[], SnapshotData]] = [
        lambda: replace(made, tables=(replace(made.tables[0], rows={"run-97": [(1, "")] * number}),)),
        lambda: replace(made, maps={**made.maps, "@last": replace(data, entries=dict.fromkeys(range(number), "x"))}),
        lambda: replace(made, maps={**made.maps, "@k": replace(made.maps["@k"], entries={trace: 1})}),
        lambda: replace(made, tables=(Table(types.Record(("s",), (types.Stack(True),)),
                                            {"run-97": [(trace,)] * (ROWS // 128)}),)),
        lambda: replace(made, tables=(Table(types.Record(("s",), (types.Array(types.Bool(), number),)),
                                            {"run-97": [((True,) * number,)]}),)),
    ]  # fmt: skip
    return random.choice(kinds)()


def _bytes(random: Random) -> bytes:
    whole = file_form.to_bytes(honest(98))
    kinds: list[Callable[[], bytes]] = [
        lambda: b"", lambda: random.randbytes(200), lambda: whole[: random.randrange(len(whole))],
        lambda: whole[:20] + random.randbytes(30) + whole[50:], lambda: _document(random), lambda: _document(random),
        lambda: file(bytes(1 << 27), 5), lambda: file(b"\x91" * 50_000, 50_000),
        lambda: file(b"\xdd\xff\xff\xff\xff", 5),
    ]  # fmt: skip
    return random.choice(kinds)()


# ---------------------------------------------------------------------------------------------- messages


def _json(random: Random) -> bytes:
    """A message with another value somewhere."""
    said = json.loads(random.choice((END, _sent(honest(99)), messages.encode(Attached(probes=1, compiled_here=False)))))
    odd = ("NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"', "[" * 5000, "{}", "null", "9" * 5000, "true", "-1",
           '"' + "z" * 2_000_000 + '"', "1.5", '{"a":{"b":-1}}')  # fmt: skip
    said[random.choice([*said, "more"])] = "@@"
    return json.dumps(said).replace('"@@"', random.choice(odd)).encode() + b"\n"


def _message(random: Random) -> bytes:
    """Messages that nobody asked for, too many of them, or too large."""
    report = HostReport(name="web1", state="lost", text="x" * 9999, unheard=1e9 / 4)
    place = NamedPlace(Place("ab" * 20, 9), 2, ())
    kinds: list[Callable[[], bytes]] = [
        lambda: messages.encode(Warned("\x1b" * 900_000)) * 20, lambda: messages.encode(Warned("w")) * 500,
        lambda: messages.encode(Reports((report,))), lambda: messages.encode(NamedPlaces((place,))),
        lambda: messages.encode(Stated(facts="a" * 64, data=b"x")), lambda: messages.encode(Send(start=1 << 60)),
        lambda: messages.encode(Need(python="3.11", machine="x86_64")), lambda: messages.encode(Misfit(cpus=8192)) * 30,
        lambda: messages.encode(Clock(1, -(1 << 63), (1 << 63) - 1)), lambda: messages.encode(Beat(1)),
        lambda: messages.encode(Refused(text=random.choice(HOSTILE) * 5000, status=random.choice(NUMBERS))),
        lambda: messages.encode(Misfit(facts="a" * 64)) * random.choice((1, 500)), lambda: END * 1000,
        lambda: messages.encode(Attached(probes=random.choice(NUMBERS), compiled_here=True)) * 1000,
        lambda: messages.encode(_hello(7)), lambda: random.randbytes(3000) + b"\n", lambda: b"x" * (33 << 20),
        lambda: b"[" + b"[]," * 2_000_000 + b"[]]\n", lambda: b'{"type":"end","status":' + b"1" * 5000 + b"}\n",
        lambda: messages.encode(replace(messages.from_agent(END), error="\x1b" * 900_000, reason="error")),
    ]  # fmt: skip
    return random.choice(kinds)()


def _hello(protocol: int = messages.PROTOCOL) -> Hello:
    return Hello(protocol=protocol, version="1", host="\x1b", kernel="\x1b6", machine="x", wall=0, monotonic=0)


def _twin(random: Random) -> SnapshotData:
    """Results that claim to be those of another host's run, honest or not: its identity, its name, or both."""
    number = random.choice((1, 2, 3, 60))
    made, other = honest(random.choice((number, 60))), honest(number).runs[0]
    run = replace(made.runs[0], identity=other.identity, host=random.choice((other.host, "liar0", made.runs[0].host)))
    rows = [(random.choice((number, 7)), random.choice(("sh", "\x1b")))] * random.choice((1, 40))
    return replace(made, runs=(run,), tables=(replace(made.tables[0], rows={other.identity: rows}),))


def _late(random: Random) -> bytes:
    """Truth first, and then something else: in the middle of a run, after its end, in any order."""
    true = honest(61)
    said = [
        messages.encode(Snapshot(number=number, data=file_form.to_bytes(true)))
        for number in random.choice(((1, 2), (2, 1), (1, 1 << 62), (1, 1), (-1, 5)))
    ]
    name = random.choice([*KINDS])
    said.insert(random.randrange(1, 3), KINDS[name](random) if name != "late" else messages.encode(_hello(7)))
    if random.random() < 0.5:
        again = Attached(probes=random.choice(NUMBERS), compiled_here=True)
        said.insert(random.randrange(len(said)), messages.encode(again))
    said.append(END * random.choice((0, 1, 2, 500)))
    return b"".join(said)


KINDS: dict[str, Lie] = {
    "types": lambda random: _sent(_other_type(random)) + END,
    "values": lambda random: _sent(_other_values(random)) + END,
    "maps": lambda random: _sent(_other_maps(random)) + END,
    "tables": lambda random: _sent(_other_tables(random)) + END,
    "words": lambda random: _sent(_other_words(random)) + END,
    "bombs": lambda random: _sent(_bomb(random)) + END,
    "bytes": lambda random: messages.encode(Snapshot(number=1, data=_bytes(random))) + END,
    "json": lambda random: _json(random) + _sent(honest(99)) + END,
    "messages": lambda random: _message(random) + _sent(honest(99)) + END,
    "twins": lambda random: _sent(_twin(random)) + END,
    "late": _late,
}


# ---------------------------------------------------------------------------------------------- the oracle


class HarmError(AssertionError):
    """Something was run, written or read that is not the controller's."""


_FORBIDDEN = ("os.exec", "os.posix_spawn", "os.spawn", "os.system", "socket.connect", "socket.bind", "os.symlink")
_watched: dict[int, str] = {}
"""The folder of the controller by the thread that follows it."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    folder = _watched.get(threading.get_ident())
    if folder is None:
        return
    if event in _FORBIDDEN or (event == "subprocess.Popen" and arguments[0] != sys.executable):
        raise HarmError(f"{event} {arguments!r}")
    if event == "open" and isinstance(arguments[0], str) and arguments[2] & 3 and not arguments[0].startswith(
        (folder, tempfile.gettempdir(), "/dev/null")
    ) and "/__pycache__/" not in arguments[0]:  # fmt: skip
        raise HarmError(f"opens {arguments!r} to write")


@contextmanager
def _watch(folder: str) -> Iterator[None]:
    if not _watched:
        sys.addaudithook(_audit)
        _watched[0] = ""
    _watched[threading.get_ident()] = folder
    try:
        yield
    finally:
        del _watched[threading.get_ident()]


def of_gateway() -> SnapshotData:
    """What a gateway has of two hosts, with labels."""
    return merge([labelled(honest(number), "host", f"web{number}") for number in (1, 2)])


def begin(controller: Controller, name: str) -> None:
    """Let a host say hello, and that the script was attached."""
    controller.connecting(name, 0)
    answer = controller.output(name, messages.encode(replace(_hello(), host=name)), 1)
    for _ in range(MEASUREMENTS):
        assert answer is not None
        beat = messages.to_agent(answer)
        assert isinstance(beat, Beat)
        answer = controller.output(name, messages.encode(Clock(beat.sent, beat.sent, beat.sent)), 1)
    controller.output(name, messages.encode(Attached(probes=1, compiled_here=False)), 1)


def _reports(*names: str, state: str = "answered") -> tuple[HostReport, ...]:
    return tuple(HostReport(name=name, state=state) for name in names)  # type: ignore[arg-type]


def _gateway_lie(random: Random, *, by_host: bool) -> bytes:
    """What a gateway of one host (``victim``) sends that lies: of hosts of others, of its own, or any other lie."""
    named = random.choice(("web1", "far1", "liar0", "gw", "bad", "", *HOSTILE))
    data = file_form.to_bytes(merge([labelled(honest(77), "host", named)]))
    odd = HostReport(
        name=random.choice(("victim", named)), state=random.choice(("lost", "answered", "waiting", "not asked")),
        text="\x1b" * 3000, status=random.choice((0, -1, 1 << 30)), warnings=("\x1b" * 3000,) * 25,
        clock=(random.choice(NUMBERS[:4]), random.choice((0, (1 << 63) - 1))), watched=random.choice((None, 0.0, 1e7)),
        lost=random.choice((0, (1 << 63) - 1)), unheard=1e7, hello=_hello(random.choice((1, 7, -5))),
    )  # fmt: skip
    kinds: list[Callable[[], bytes]] = [
        lambda: messages.encode(Reports(_reports("web1", "far1", "victim", state="lost"))),
        lambda: messages.encode(Reports((odd,) * random.choice((1, 9)))),
        lambda: messages.encode(Snapshot(number=1, data=data, reports=_reports("victim", named))),
        lambda: messages.encode(Snapshot(number=1, data=file_form.to_bytes(of_gateway()), reports=(odd,))),
        lambda: messages.encode(Misfit(lacks=("btf",), cpus=random.randrange(9))) * random.choice((1, 2, 99)),
        lambda: messages.encode(Need(python="3.11", machine="x86_64")) * random.choice((1, 99)),
        lambda: messages.encode(NamedPlaces((NamedPlace(Place("ab" * 20, 9), 4, ()),) * 99)) * 5,
        lambda: KINDS[random.choice([*KINDS])](random),
    ]  # fmt: skip
    said = [random.choice(kinds)() for _ in range(random.randrange(1, 4))]
    if random.random() < 0.5:
        own = labelled(honest(78), "host", "victim") if by_host else honest(78)
        said.append(messages.encode(Snapshot(number=2, data=file_form.to_bytes(own), reports=_reports("victim"))))
    return b"".join((*said, END * random.choice((0, 1, 2))))


def _tree() -> Tree:
    """A gateway that is honest, of two hosts, and one that lies, of one."""
    routes = Route(gateway="gw", hosts=("far1", "far2")), Route(gateway="bad", hosts=("victim",))
    relay = Relay(protocol=messages.PROTOCOL, request=request(), route=routes[0], command="x", most_keys=99)
    return Tree(routes, relay)


def attempt(seed: int, kind: str = "", data: bytes = b"") -> str:
    """Ask three honest hosts and one to three liars, some behind gateways. Returns the kinds of lies.

    *data*: what one of the liars sends beside its lie.

    Raises:
        AssertionError: the lies changed something.
    """
    random = Random(seed)
    liars = {f"liar{number}": kind or random.choice([*KINDS]) for number in range(random.randrange(1, 4))}
    truth = {f"web{number}": honest(number) for number in (1, 2, 3)}
    said = {name: _sent(snapshot) + END for name, snapshot in truth.items()}
    said |= {name: KINDS[lie](random) for name, lie in liars.items()}
    said["liar0"] = data + said["liar0"]
    by_host = random.random() < 0.5
    order, tree = [*said], None
    if random.random() < 0.5:
        tree, far = _tree(), {f"far{number}": honest(3 + number) for number in (1, 2)}
        merged = merge([labelled(one, "host", name) if by_host else one for name, one in far.items()])
        results = Snapshot(number=1, data=file_form.to_bytes(merged), reports=_reports(*far))
        said |= {"gateway gw": messages.encode(results) + END, "gateway bad": _gateway_lie(random, by_host=by_host)}
        truth |= far
        order += [*far, "victim"]
    random.shuffle(order)
    with tempfile.TemporaryDirectory(prefix="pytrace-lies-") as folder, _watch(folder):
        controller = Controller(order, request(), Answer(str if by_host else None), folder, tree=tree)
        peers = controller.asking(order)
        for name in peers:
            begin(controller, name)
        streams = {name: io.BytesIO(said[name]) for name in peers}
        while streams:
            name = random.choice([*streams])
            part = streams[name].read(random.choice((100, 1000, 1 << 20, 1 << 25)))
            if not part or controller.output(name, part, 2) is None:
                controller.closed(name, 0)
                del streams[name]
        if random.random() < 0.3:
            controller.current()
        controller.settle(wait=True)
        controller.finish(3)
        result = controller.result()
        _shown(random, controller, result)
    for name in truth:
        assert controller.hosts[name].state is State.ANSWERED, f"{name}: {controller.hosts[name]}"
    lost = {name for name in liars if controller.hosts[name].state is not State.ANSWERED}
    for name in lost:
        assert controller.hosts[name].text, f"{name}: {controller.hosts[name]}"
    # One that lies after it has said something true has said what counts until then.
    believed = {name for name, lie in liars.items() if name not in lost or lie == "late"}
    if tree is not None:
        believed.add("victim")
    _compare(result, truth, believed, by_host=by_host)
    return ", ".join(sorted({*liars.values()}))


def _compare(result: SnapshotData, truth: dict[str, SnapshotData], believed: set[str], *, by_host: bool) -> None:
    """The answer has the honest results, as the script types them; liars that are believed can only add to counts."""
    answer = Answer(str if by_host else None)
    for name, snapshot in truth.items():
        answer.add(name, snapshot)
    whole = answer.result()
    assert result.maps.keys() == whole.maps.keys()
    for name, data in whole.maps.items():
        found = result.maps[name]
        for expected, held in ((data.key, found.key), (data.value, found.value)):
            # Width and sign of integers may become larger.
            assert expected is None or held is None or joined_types(expected, held) == held, name
        assert (found.help, found.label) == (data.help, data.label), name
        assert by_host or believed or found.entries == data.entries, name
        assert found.entries.keys() >= data.entries.keys(), name
        if by_host:
            assert {key: found.entries[key] for key in data.entries} == data.entries, name
    rows = {run: rows for table in result.tables for run, rows in table.rows.items()}
    for expected_table in whole.tables:
        for expected_rows in expected_table.rows.values():
            assert expected_rows in list(rows.values())
    texts = {run.text for run in result.runs} | {run.script for run in result.runs}
    assert texts <= {"", "x.bt", TEXT}


def _shown(random: Random, controller: Controller, result: SnapshotData) -> None:
    """All that is printed of it can be, and no line of the report is long or has what a terminal obeys."""
    file_form.from_bytes(file_form.to_bytes(result), "answer")
    for format_ in random.sample(table.FORMATS, 3):
        with suppress(TraceError):
            format_.writer()(table.select(result, format_).snapshot, WriteOptions(), io.BytesIO())
    every = Hosts(controller.hosts.values(), ",".join)
    lines = [*every.complaints(), *every.warnings(), *every.clocks()]
    for line in (*lines, every.summary(9.0)):
        assert line.isprintable(), repr(line)
        assert len(line) < 8 * messages.LONGEST_TEXT, len(line)
    assert sum(map(len, lines)) < 1 << 20
    assert msgspec.json.encode(lines)
