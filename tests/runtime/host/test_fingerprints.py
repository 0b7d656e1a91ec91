"""pytrace.runtime.host.fingerprints: what a cached script depends on is noticed when it changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.runtime.host import fingerprints
from pytrace.runtime.host.tracefs import Tracepoints


def test_machine_facts_hold() -> None:
    assert fingerprints.still_true([fingerprints.kernel_fact(), fingerprints.boot_fact(), fingerprints.modules_fact()])


def test_facts_survive_json() -> None:
    assert fingerprints.still_true([tuple(json.loads(json.dumps(fingerprints.kernel_fact())))])


def test_another_kernel_is_noticed() -> None:
    fact = fingerprints.kernel_fact()
    assert not fingerprints.still_true([(*fact[:3], "9.9.9", *fact[4:])])


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text("one")
    fact = fingerprints.file_fact(str(path))
    assert fingerprints.still_true([fact])
    path.write_text("other")
    assert not fingerprints.still_true([fact])
    path.unlink()
    assert not fingerprints.still_true([fact])


def test_a_file_that_appears_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "later"
    fact = fingerprints.file_fact(str(path))
    assert fingerprints.still_true([fact])
    path.touch()
    assert not fingerprints.still_true([fact])


def test_events_of_other_tracers_are_no_tracepoints(tmp_path: Path) -> None:
    """They come and go with these: a pattern must not find them, and what was compiled stays good."""
    path = tmp_path / "available_events"
    path.write_text("sched:sched_switch\nftrace:print\n")
    fact = fingerprints.tracepoints_fact(str(tmp_path))
    assert fingerprints.still_true([fact])
    path.write_text("pytrace_4711:p4711_0\nsched:sched_switch\nftrace:print\n")
    assert fingerprints.still_true([fact])
    assert Tracepoints(str(tmp_path), lambda kind, name: None).match("*", "*") == [("sched", "sched_switch")]
    path.write_text("mine:one\nsched:sched_switch\nftrace:print\n")
    assert not fingerprints.still_true([fact])


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/a:/b")
    fact = fingerprints.environment_fact("PATH")
    assert fingerprints.still_true([fact])
    monkeypatch.setenv("PATH", "/b:/a")
    assert not fingerprints.still_true([fact])


def test_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fact = fingerprints.process_fact(child.pid)
    assert fingerprints.still_true([fact])
    child.communicate(b"\n")
    assert not fingerprints.still_true([fact])
    assert fingerprints.still_true([fingerprints.process_fact(os.getpid())])


def test_unknown_kinds_never_hold() -> None:
    assert not fingerprints.still_true([("never",)])
    assert not fingerprints.still_true([("from-another-version", "x")])


def test_checking_imports_nothing_heavy() -> None:
    code = (
        "import sys; import pytrace.runtime.host.fingerprints; "
        "print([m for m in ('ctypes', 'llvmlite', 'ply', 'elftools', 'pyroute2', 'struct') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_lists_are_kept_under_their_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[dict[str, list[str]]] = []

    def make() -> dict[str, list[str]]:
        made.append({"": ["a", "b"], "mod": ["c"], "empty": [], "last": ["\udcff"]})
        return made[-1]

    first = fingerprints.kept_lists("names", ("1",), make)
    assert fingerprints.kept_lists("names", ("1",), make) == first == made[0]
    assert len(made) == 1
    fingerprints.kept_lists("names", ("2",), make)
    assert len(made) == 2
    fingerprints.kept_lists("names", ("1",), make)
    assert len(made) == 3, "one file holds the lists of one stamp"
    (tmp_path / "pytrace" / "facts" / "names").write_bytes(b"")
    assert fingerprints.kept_lists("names", ("1",), make) == first


def test_lists_without_a_place_to_keep_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert fingerprints.kept_lists("names", ("1",), lambda: {"": ["a"]}) == {"": ["a"]}


@pytest.mark.parametrize("fact", [(), ("file",), ("process", "x"), ("process",), ("files", "/"), ("file", "a\0b")])
def test_facts_of_another_form_never_hold(fact: tuple[str, ...]) -> None:
    assert not fingerprints.still_true([fact])
