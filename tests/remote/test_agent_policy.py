"""What an agent may do, and the names of hosts."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.pipeline import compile_script
from pytrace.remote import agent_policy, messages
from pytrace.remote.agent import Naming
from pytrace.remote.agent_policy import ALL, Policy, Rules
from pytrace.remote.channels import Inbox, Outbox, Signals
from pytrace.remote.messages import (
    LONGEST_TIME,
    Ask,
    Beat,
    Clock,
    Function,
    Hello,
    Limits,
    NamedPlace,
    NamedPlaces,
    NamePlaces,
    Options,
    Place,
    Refused,
    Relay,
    Request,
    Route,
    ToAgent,
)
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.output.streams import Channel
from pytrace.runtime.stacks.image_places import MetBinaries
from pytrace.runtime.stacks.images import Images
from tests.support import small_program
from tests.support.agents import agent, request
from tests.support.facts import RecordedKernel
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- policy
# What a host lets an agent do: its rules, by whom they bind, and what of them is refused.


REQUEST = request("begin { }", duration=30)


def applied(rules: Rules, **changes: object) -> Request:
    return Policy("alice", rules).applied(replace(REQUEST, **changes))


def limited(**changes: object) -> Limits:
    return Limits(duration=30, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "rules", "changes"),
    [
        ("unsafe", Rules(), {"options": Options(unsafe=True)}),
        ("scripts", Rules(scripts=("a" * 64,)), {}),
        ("compiled", Rules(), {"text": "", "compiled": b"x"}),
        ("max_duration", Rules(max_duration=29), {}),
        ("max_memory", Rules(), {"limits": limited(max_memory="11%")}),
        ("max_rate", Rules(max_rate=10), {"options": Options(max_rate={"k:*": 11})}),
        ("budget", Rules(budget="1%"), {"limits": limited(budget="2%")}),
        ("budget", Rules(budget="1%"), {"limits": limited(budget="1%machine")}),
    ],
)
def test_what_is_refused_names_its_rule(rule: str, rules: Rules, changes: dict[str, object]) -> None:
    of = rf"\(rule {rule} of /etc/pytrace/agent\.toml, or its default\)"
    with pytest.raises(TraceError, match=rf"this host does not let alice .* {of}"):
        applied(rules, **changes)
    assert applied(ALL, **changes) == replace(REQUEST, **changes)


def test_what_is_not_said_is_limited() -> None:
    rules = Rules(max_rate=10, budget="2%", max_duration=60)
    found = applied(rules, limits=Limits(duration=LONGEST_TIME), compiled=b"x", variants=True)
    assert (found.compiled, found.variants) == (b"", False)
    assert found.limits == Limits(duration=60, max_memory="10%", budget="2%")
    assert found.options.max_rate == {"": 10}
    rates = Options(max_rate={"k:a": 5, "k:b": 9})
    assert applied(rules, options=rates).options.max_rate == {"": 5}


def test_kinds_of_probes() -> None:
    options = CompileOptions()
    manifest = compile_script(
        Source("x", "kprobe:vfs_read { } end { }"), options, RecordedKernel(), Diagnostics()
    ).manifest
    Policy("alice", Rules(probes=("k",))).check(manifest)
    with pytest.raises(TraceError, match="does not let alice trace kprobe"):
        Policy("alice", Rules(probes=("tracepoint", "profile"))).check(manifest)


def test_scripts_are_known_by_their_digests() -> None:
    text, compiled = hashlib.sha256(b"begin { }").hexdigest(), hashlib.sha256(b"x").hexdigest()
    assert applied(Rules(scripts=(text,)), compiled=b"x").compiled == b""
    assert applied(Rules(scripts=(compiled,)), compiled=b"x").compiled == b"x"


def test_a_script_that_is_listed_vouches_for_no_other() -> None:
    """The text is compiled where the compiled form does not fit, and the controller may send another form."""
    text, compiled = (hashlib.sha256(data).hexdigest() for data in (b"begin { }", b"x"))
    for listed in (text, compiled):
        rules = Rules(scripts=(listed,), compiled=True)
        found = applied(rules, compiled=b"x", variants=True, matches="a" * 64)
        assert (found.text, found.compiled) == (("begin { }", b"") if listed == text else ("", b"x"))
        assert (found.variants, found.matches) == (False, "")
    for changes in ({"text": "begin { } "}, {"text": "begin { }\n"}, {"text": "\ufeffbegin { }"}, {"compiled": b"x\0"}):
        with pytest.raises(TraceError, match="rule scripts"):
            applied(Rules(scripts=(text if "text" in changes else compiled,)), **{"text": "", **changes})


def test_a_compiled_form_that_comes_later_is_not_asked_for() -> None:
    """A request without one, whose controller answers :class:`Misfit` with what the host would not have run."""
    assert not applied(Rules(), variants=True).variants
    assert applied(Rules(compiled=True), variants=True).variants
    with pytest.raises(TraceError, match="rule compiled"):
        applied(Rules(), text="", variants=True)


def test_a_compiled_form_does_not_bring_commands_along() -> None:
    text = 'begin { system("touch /x"); }'
    script = compile_script(Source("x", text), CompileOptions(unsafe=True), RecordedKernel(), Diagnostics())
    with pytest.raises(TraceError, match=r"does not let alice use system\(\) \(rule unsafe"):
        Policy("alice", Rules(compiled=True)).check(script.manifest)
    Policy("alice", Rules(unsafe=True)).check(script.manifest)


@pytest.mark.parametrize(
    ("text", "user", "rules"),
    [
        ("", "alice", Rules()), ("unsafe = true", "alice", Rules(unsafe=True)),
        ("max_rate = 5\n[users.alice]\nprobes = ['kprobe']", "alice", Rules(max_rate=5, probes=("kprobe",))),
        ("max_rate = 5\n[users.alice]\nmax_rate = 0", "bob", Rules(max_rate=5)),
        ("unsafe = false", "root", ALL), ("[users.root]\nmax_rate = 9", "root", Rules(max_rate=9)),
    ],
)  # fmt: skip
def test_the_file(tmp_path: Path, text: str, user: str, rules: Rules) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    assert agent_policy.read(str(path), user, bound=user != "root") == rules


@each_row(
    "text", ["unsfe = true", "unsafe = 1", "max_duration = nan", "max_rate = inf", "max_memory = 'x'", "budget = '5'",
             "probes = ['kprob']", "scripts = ['x']", "users = 5", "[users.a]\nx = 1", "=", "\xff"],
)  # fmt: skip
def test_a_damaged_file_allows_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(TraceError, match=r"the policy of this host, .*agent.toml, cannot be used"):
        agent_policy.read(str(path), "root", bound=False)


def test_the_file_of_somebody_else_allows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("unsafe = true")
    path.chmod(0o666)
    with pytest.raises(TraceError, match="the policy of this host is not root's alone"):
        agent_policy.read(str(path), "alice", bound=True)
    assert agent_policy.read(str(tmp_path / "none"), "alice", bound=True) == Rules()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@each_row("place", ["link of another", "folder of another", "folder for all", "dangling link", "folder", "no folder"])
def test_a_file_in_an_odd_place_allows_nothing(tmp_path: Path, place: str) -> None:
    path, folder = tmp_path / "etc" / "agent.toml", tmp_path / "etc"
    folder.mkdir()
    target = tmp_path / "target"
    target.write_text("unsafe = true")
    if place == "folder":
        path.mkdir()
    elif place == "no folder":
        folder.rmdir()
        folder.write_text("")
    elif place == "dangling link":
        path.symlink_to(tmp_path / "none")
    else:
        path.symlink_to(target)
    if place == "link of another":
        os.chown(path, 54321, 54321, follow_symlinks=False)
    elif place == "folder of another":
        os.chown(folder, 54321, 54321)
    elif place == "folder for all":
        folder.chmod(0o777)
    with pytest.raises(TraceError, match="the policy of this host"):
        agent_policy.read(str(path), "alice", bound=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("variables", "user"),
    [({}, "root"), ({"SUDO_UID": "0"}, "root"), ({"SUDO_UID": "54321"}, "54321"), ({"SUDO_UID": "x"}, "x"),
     ({"SUDO_UID": "0", "PKEXEC_UID": "54321"}, "54321"), ({"DOAS_USER": "bob"}, "bob")],
)  # fmt: skip
def test_who_started_it(variables: dict[str, str], user: str) -> None:
    assert agent_policy.caller(variables) == user


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_set_user_id_program_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_policy.os, "getuid", lambda: 54321)
    assert agent_policy.caller({}) == "54321"


def test_the_journal_says_who_what_and_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "journal")
    monkeypatch.setattr(agent_policy, "JOURNALS", (path, "/dev/log"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(path)
        made = Policy("al\nice", Rules(), agent_policy._journal())
        made.applied(replace(REQUEST, script="x\n\x1b.bt"))
        made.ended(3, "duration")
        made.refused("ERROR: no")
        lines = [journal.recv(1 << 16).decode() for _ in range(3)]
    digest = hashlib.sha256(b"begin { }").hexdigest()[:16]
    script = rf"x\x0a\x1b.bt (SHA-256 {digest})"
    assert {line.partition("\n")[2] for line in lines} == {
        "PRIORITY=5\nSYSLOG_IDENTIFIER=pytrace-agent\nPYTRACE_USER=al\\x0aice\n"
    }
    assert [line.split("\n")[0] for line in lines] == [
        rf"MESSAGE=al\x0aice asks for {script}", rf"MESSAGE=al\x0aice has run {script} for 3.0 s (duration)",
        rf"MESSAGE=al\x0aice was refused {script}: ERROR: no",
    ]  # fmt: skip


ROUTE = Relay(protocol=1, request=REQUEST, route=Route(gateway="g", hosts=("a",)), command="touch /", worker="exec",
              most_keys=5)  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("said", "error"),
    [
        (ROUTE, "does not let 54321 carry requests on"),
        (replace(REQUEST, options=Options(unsafe=True)), "does not let 54321 run unsafe"),
        (request('import "/etc/passwd.bt"; begin { }'), "import is not allowed here"),
        (request('#inc\\\nlude "/etc/shadow"\nbegin { }'), "C that may open files is not allowed here"),
        (request('#inc\\\rlude "/etc/shadow"\nbegin { }'), "C that may open files is not allowed here"),
        (request('#pragma GCC dependency "/etc/shadow"\nbegin { }'), "C that may open files is not allowed here"),
        (request('struct a {\n#inc\\\f\nlude "/etc/shadow"\nint b; };\nbegin { }'), "ERROR: "),
        (request('/**/#include "/etc/shadow"\nbegin { }'), "ERROR: "),
        (request('begin { cat("/etc/shadow"); }'), "does not let 54321 use cat()"),
        (request("", compiled=b"BPF"), "does not let 54321 run what was compiled elsewhere"),
    ],
)
def test_an_agent_that_sudo_started_is_bound(said: ToAgent, error: str) -> None:
    """``sudo -n pytrace agent``, allowed to a user who may do nothing else as root, is no way to become root."""
    with agent(variables={"SUDO_UID": "54321"}) as running:
        running.next(Hello)
        running.say(said)
        refused = running.next(Refused)
        assert error in refused.text
        assert "root:" not in refused.text
        assert running.wait() == 1


# ---------------------------------------------------------------------------------------------- naming
# The answers of an agent whose run is over: names of places in binaries that it has met, and of nothing else.


class Serving:
    """A controller's ends of the pipes to an agent whose run is over."""

    def __init__(self, met: MetBinaries, details: dict[str, int], limits: Limits) -> None:
        reading, self.input = os.pipe()
        self.output, writing = os.pipe()
        self.descriptors = [reading, self.output, writing]
        naming = Naming(met, details, Inbox(reading), Outbox(Channel(writing)), Signals())
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.serve, args=(naming, limits))
        self.thread.start()

    def serve(self, naming: Naming, limits: Limits) -> None:
        try:
            naming.serve(limits)
        except TraceError as error:
            self.error = error

    def say(self, *said: messages.ToAgent) -> None:
        os.write(self.input, b"".join(map(messages.encode, said)))

    def heard(self, count: int) -> list[messages.FromAgent]:
        data = b""
        while data.count(b"\n") < count:
            data += os.read(self.output, 1 << 16)
        return [messages.from_agent(line) for line in data.splitlines()]


@contextmanager
def serving(met: MetBinaries, limits: Limits, details: dict[str, int] | None = None) -> Iterator[Serving]:
    made = Serving(met, details or {}, limits)
    try:
        yield made
    finally:
        os.close(made.input)
        made.thread.join()
        for descriptor in made.descriptors:
            os.close(descriptor)


def test_functions_of_met_binaries_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long names are truncated; a file that the run has not met is not opened, whatever its build id."""
    monkeypatch.setattr(messages, "LONGEST_NAME", 5)
    whole, other = small_program.built(tmp_path), small_program.another_build(tmp_path)
    binary = Binary.open(str(whole))
    build_id, helper = binary.elf.build_id, small_program.addresses(whole)["helper"]
    met = MetBinaries(Images({}, lines=False))
    met.add(build_id, binary)
    known = Place(build_id, helper + 2)
    unknown = Place(Binary.open(str(other)).elf.build_id, helper), Place(build_id, 1)
    with serving(met, Limits(duration=1), {build_id: 4}) as agent:
        agent.say(NamePlaces((known, *unknown)), Beat(7))
        answers = agent.heard(2)
        assert any(isinstance(answer, Clock) and answer.sent == 7 for answer in answers)
        (named,) = (answer for answer in answers if isinstance(answer, NamedPlaces))
        assert named.places == (
            NamedPlace(known, 4, (Function("helpe", 2),)),
            NamedPlace(unknown[0], 0, ()),
            NamedPlace(unknown[1], 4, ()),
        )
        agent.say(NamePlaces((known,)))
        assert agent.heard(1) == [NamedPlaces((NamedPlace(known, 4, (Function("helpe", 2),)),))]


def test_it_ends_without_a_controller() -> None:
    met = MetBinaries(Images({}))
    with serving(met, Limits(duration=1, heartbeat=1)) as agent:
        agent.thread.join()
        assert agent.error is None
    with serving(met, Limits(duration=1)) as agent:
        agent.say(Ask(("a",)))
        agent.thread.join()
        assert isinstance(agent.error, TraceError)
