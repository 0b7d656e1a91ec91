"""``pytrace agent`` traces: what it sends, and each way in which its run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

import pytrace
from pytrace.core import kernel_info
from pytrace.remote.messages import (
    Attached,
    Beat,
    End,
    Inquiry,
    Misfit,
    NamedPlaces,
    NamePlaces,
    Place,
    Refused,
    Snapshot,
    Stated,
    Stop,
    Variant,
    Warned,
)
from pytrace.remote.variants import unpacked
from pytrace.runtime.load import remote_kernel
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support import small_program
from tests.support.agents import COUNTING, Agent, agent, call, request

pytestmark = pytest.mark.usefixtures("no_leaks")

ENDING = COUNTING + ' end { @over = count(); printf("over\\n"); }'


def attached(running: Agent, text: str, **limits: object) -> Attached:
    running.say(request(text, **limits))  # type: ignore[arg-type]
    return running.next(Attached)


def counted(running: Agent, name: str = "@") -> int:
    return int(pytrace.Snapshot(running.last()).maps[name].value or 0)


def test_a_run_to_its_time() -> None:
    with agent() as running:
        assert attached(running, ENDING, duration=1.2, every=0.3).compiled_here
        # What the rest of the run does not need is gone once it is attached.
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        assert "CapPrm:\t0000000000000000" in status
        assert "Seccomp:\t2" in status
        call(123)
        end, code = running.end()
        assert (end.reason, end.status, end.losses, end.cost, code) == ("duration", 0, {}, None, 0)
        snapshots = [message for message in running.heard if isinstance(message, Snapshot)]
        assert len(snapshots) >= 2
        assert [message.number for message in snapshots] == sorted(message.number for message in snapshots)
        (run,) = running.last().runs
        assert (run.script, run.text) == ("x.bt", ENDING)
        assert (counted(running), counted(running, "@over")) == (123, 1)


def test_the_controller_ends_it() -> None:
    with agent() as running:
        attached(running, ENDING)
        call(7)
        running.say(Beat(), Stop())
        end, status = running.end()
        assert (end.reason, status, counted(running), counted(running, "@over")) == ("stop", 0, 7, 1)


@pytest.mark.parametrize("reason", ["input", "signal", "heartbeat"])
def test_the_controller_is_gone_or_somebody_ends_it(reason: str) -> None:
    with agent() as running:
        attached(running, ENDING, heartbeat=1.0)
        call(7)
        if reason == "input":
            running.hang_up()
        elif reason == "signal":
            os.kill(running.process.pid, signal.SIGTERM)
        end, status = running.end()
        assert (end.reason, status, counted(running), counted(running, "@over")) == (reason, 0, 7, 1)


def test_it_ends_while_nobody_reads() -> None:
    """Twice as much as a pipe holds: neither the run nor its end waits for the reader."""
    script = COUNTING + " begin { for ($i : 0..20000) { @noise[$i] = rand; } }"
    with agent() as running:
        attached(running, script, duration=1, heartbeat=1.0, every=0.2)
        assert running.process.wait(60) == 0


@pytest.mark.parametrize(
    ("limits", "reason"), [({"events": 50}, "events"), ({"bytes": 4000}, "bytes")]
)  # fmt: skip
def test_a_limit_is_used_up(limits: dict[str, int], reason: str) -> None:
    script = 'interval:ms:2 { @[rand % 100000] = count(); printf("x\\n"); }'
    with agent() as running:
        attached(running, script, every=0.2, **limits)
        end, _ = running.end()
        assert end.reason == reason
        assert pytrace.Snapshot(running.last()).maps["@"]


def test_results_that_are_too_large_for_a_message() -> None:
    """The largest keys are sent, with what the others have at most."""
    command = (
        "from pytrace.remote import agent; from pytrace.remote import messages\n"
        "messages.LARGEST_SNAPSHOT = 3000; agent.run()"
    )
    script = "begin { for ($i : 0..4000) { @[$i, rand] = sum($i); } exit(); }"
    with agent(command) as running:
        running.say(request(script))
        end, _ = running.end()
        last = running.last()
    assert end.reason == "exit"
    kept = last.maps["@"].entries
    assert 0 < len(kept) == 4000 - last.losses["keys left out"]["@"]
    assert min(kept.values()) == last.losses["wrong by at most"]["@"] + 1  # type: ignore[type-var,operator]


def test_a_budget_that_detaches_everything_ends_it() -> None:
    with agent() as running:
        attached(running, COUNTING, budget="0.001%", over_budget="detach", every=0.5)
        over = threading.Event()
        load = threading.Thread(target=lambda: [call(1000) for _ in iter(over.is_set, True)])
        load.start()
        try:
            end, _ = running.end()
        finally:
            over.set()
            load.join()
        assert end.reason == "budget"


def test_an_ahead_of_time_file_and_one_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    pytrace.compile(ENDING).save(path)
    data = path.read_bytes()
    with agent() as running:
        running.say(request(ENDING, compiled=data, duration=60))
        assert not running.next(Attached).compiled_here
        call(5)
        running.say(Stop())
        running.end()
        assert counted(running) == 5
    # Its header has the version of the form, which a later pytrace changes.
    start = data.index(b"\n") + 1
    later = data[: start + 8] + bytes((data[start + 8] ^ 0x40,)) + data[start + 9 :]
    with agent() as running:
        running.say(request(ENDING, compiled=later))
        assert running.next(Attached).compiled_here
        assert any(isinstance(message, Warned) and "the script is compiled here" in message.text
                   for message in running.heard)  # fmt: skip
    with agent() as running:
        running.say(request("", compiled=later))
        assert "compiled by another version of pytrace" in running.next(Refused).text
        assert running.wait() == 1


def test_a_file_for_fewer_cpus_is_replaced_by_a_variant() -> None:
    """Also one that does not fit either, after which the host compiles for itself."""
    script = pytrace.compile(ENDING).ahead_of_time()
    assert script.manifest.ahead is not None
    manifest = replace(script.manifest, ahead=replace(script.manifest.ahead, copies=0))
    small = replace(script, manifest=manifest).to_bytes()
    for variant, here in ((script.to_bytes(), False), (b"", True)):
        with agent() as running:
            running.say(replace(request(ENDING, compiled=small), variants=True))
            assert running.next(Misfit) == Misfit(cpus=LiveKernel().possible_cpus)
            running.say(Beat(), Variant(small))
            running.next(Misfit)
            running.say(Variant(variant))
            assert running.next(Attached).compiled_here == here
            call(5)
            running.say(Stop())
            running.end()
            assert counted(running) == 5
    with agent() as running:
        running.say(replace(request(ENDING, compiled=small), variants=True))
        running.next(Misfit)
        running.say(Stop())
        assert running.next(Refused).text == "ERROR: the controller ended the run before it began\n"
        running.wait()


def test_a_file_for_another_kernel_is_replaced_by_one_for_the_facts_of_this() -> None:
    """They are stated once: what does not fit then is something else."""
    script = pytrace.compile("t:sched:sched_process_exec { @[args.pid] = count(); }").ahead_of_time()
    manifest = script.manifest
    assert manifest.ahead is not None
    rows = tuple((*row[:4], "999", *row[5:]) if row[0] == "tracepoint" else row for row in manifest.ahead.relies)
    facts = ((*manifest.facts[0][:4], "another build", ""), *manifest.facts[1:])
    other = replace(script, manifest=replace(manifest, facts=facts, ahead=replace(manifest.ahead, relies=rows)))
    with agent() as running:
        asked = request("begin { @ = 1; exit(); }", compiled=other.to_bytes())
        running.say(replace(asked, variants=True, questions=(("tracepoints", "sched", "sched_process_exec"),)))
        digest = running.next(Misfit).facts
        running.say(Inquiry(facts=digest, whole=True))
        stated = running.next(Stated)
        assert stated.facts == digest == kernel_info.facts_digest(unpacked(stated.data))
        question = ("kernel_symbol", "vfs_read")
        running.say(Beat(), Inquiry(facts=digest, questions=(question,)))
        assert running.next(Stated).facts not in ("", digest)
        running.say(Variant(other.to_bytes()))
        assert running.next(Attached).compiled_here
        running.end()
        assert counted(running) == 1
        assert not [message for message in running.heard[running.heard.index(stated) :] if isinstance(message, Misfit)]


def test_patterns_that_match_other_probes_here() -> None:
    """There may be a file for this host. Without one, that for the controller's kernel is used."""
    script = pytrace.compile(ENDING).ahead_of_time().to_bytes()
    questions = (("tracepoints", "syscalls", "sys_enter_getppi*"),)
    asked = replace(request(ENDING, compiled=script), variants=True, questions=questions, matches="0" * 64)
    for variant, warned in ((script, False), (b"", True)):
        with agent() as running:
            running.say(asked)
            assert running.next(Misfit).facts
            running.say(Variant(variant))
            assert not running.next(Attached).compiled_here
            warnings = [message.text for message in running.heard if isinstance(message, Warned)]
            assert any(text.startswith("patterns of the script match other probes here") for text in warnings) == warned
    with agent() as running:
        running.say(replace(asked, matches=remote_kernel.probe_digest(LiveKernel(), questions)))
        running.next(Attached)
        assert not any(isinstance(message, Misfit) for message in running.heard)


def test_errors_are_those_of_the_command() -> None:
    with agent() as running:
        running.say(request("kprobe:f { @ = ; }"))
        refused = running.next(Refused)
        assert refused.text.startswith("x.bt:1:16-17: ERROR: syntax: unexpected ';', expected an expression\n")
        assert refused.status == 1
        assert running.wait() == 1
    with agent() as running:
        attached(running, ENDING)
        running.say(request(ENDING))
        end, status = running.end()
        assert (end.reason, status) == ("error", 1)
        assert end.error == "ERROR: an agent runs one request, and another one came\n"
        assert isinstance(running.heard[-1], End)


def test_functions_are_named_after_the_run(tmp_path: Path) -> None:
    """User stacks are places; asked about these, the agent names them as a run does, and ends when its input does."""
    program = small_program.built(tmp_path, "caller", text=small_program.LAYERS)
    text = 't:syscalls:sys_enter_getppid /comm == "caller"/ { @[ustack] = count(); @k[kstack(1)] = count(); }'
    stacks = []
    for places in (False, True):
        with agent() as running:
            running.say(replace(request(text), places=places))
            running.next(Attached)
            subprocess.run([program], check=True)
            running.say(Stop())
            end = running.next(End)
            (stack,) = running.last().maps["@"].entries
            ((kernel,),) = (trace.frames for trace in running.last().maps["@k"].entries)
            assert kernel.function
            if places:
                libc = stack.frames[0].build_id
                assert end.details[libc] > 0
                assert all(not frame.function for frame in stack.frames if frame.build_id)
                running.say(NamePlaces(tuple(Place(frame.build_id, frame.offset) for frame in stack.frames
                                             if frame.build_id)))
                named = iter(running.next(NamedPlaces).places)
                frames = [
                    frame._replace(function=one.name, offset=one.offset + frame.address - frame.offset,
                                   file=one.file, line=one.line, inlined=one.inlined)
                    for frame in stack.frames if frame.build_id for one in next(named).functions
                ]
                running.hang_up()
            else:
                assert not end.details
                frames = [frame for frame in stack.frames if frame.build_id]
            assert running.wait() == 0
        stacks.append(frames)
    assert stacks[0] == stacks[1]
    assert "middle" in [frame.function for frame in stacks[0]]
