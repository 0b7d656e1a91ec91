from __future__ import annotations

import os
import threading

import pytest

from pytrace.cli import option_subjects
from pytrace.cli.option_subjects import offered
from pytrace.cli.scripts.words import ScriptWords
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.option_values import TYPES
from pytrace.core.options.script_options import ScriptOption, Value
from tests.support.rows import each_row

WITHOUT_NUMBER = ("disk", "interface", "syscall")


def check(type_: str, text: str, *, listed: bool = False, other_network: bool = False) -> None:
    default: Value = "" if listed or type_ in WITHOUT_NUMBER else 0
    option = ScriptOption(("x",), default, argument="X", type=type_, listed=listed)
    words = ScriptWords("tool", (option,), positional=False)
    words.set(option, "-x", text)
    words.named(())
    option_subjects.check(words, other_network=other_network)


def refused(type_: str, text: str, *, listed: bool = False) -> TraceError:
    with pytest.raises(TraceError) as found:
        check(type_, text, listed=listed)
    return found.value


def test_what_is_there() -> None:
    check("pid", str(os.getpid()))
    check("pid", str(threading.get_native_id()))
    check("cpu", "0")
    check("interface", "lo")
    check("syscall", "read,write", listed=True)
    check("port", "80,443", listed=True)


def test_what_is_not_there_is_named() -> None:
    assert refused("pid", "4194304").message == "option -x: there is no process or thread 4194304"
    cpu = refused("cpu", "9999")
    assert cpu.message == "option -x: there is no CPU 9999"
    assert cpu.hints[0].startswith("CPUs of this machine are 0")
    assert refused("disk", "nodisk").message == "option -x: there is no disk nodisk"
    assert refused("interface", "lo,nolink", listed=True).message == "option -x: there is no network interface nolink"
    call = refused("syscall", "raed")
    assert call.message == "option -x: there is no system call raed"
    assert "'read'" in call.hints[0]


def test_partitions_lead_to_their_disk(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = os.fspath(tmp_path)
    os.makedirs(f"{root}/devices/sda/sda1")
    with open(f"{root}/devices/sda/sda1/partition", "w", encoding="ascii"):
        pass
    os.mkdir(f"{root}/block")
    os.symlink(f"{root}/devices/sda", f"{root}/block/sda")
    os.symlink(f"{root}/devices/sda/sda1", f"{root}/block/sda1")
    monkeypatch.setattr(option_subjects, "BLOCK", f"{root}/block")
    check("disk", "/dev/sda")
    assert refused("disk", "sda1").hints == ("sda1 is a partition: its I/O is counted for the disk sda",)
    assert refused("disk", "sdaa").hints == ("did you mean 'sda'?",)
    assert refused("disk", "nvme0n1").hints == ("disks of this machine are sda",)


def test_interfaces_of_another_namespace_are_not_looked_for() -> None:
    check("interface", "nolink", other_network=True)


def test_things_of_this_machine() -> None:
    assert {str(cpu) for cpu in os.sched_getaffinity(0)} <= set(offered("cpu"))
    assert "lo" in offered("interface")
    assert {"ENOENT", "EPERM"} <= set(offered("errno"))
    assert {"SIGTERM", "TERM"} <= set(offered("signal"))


def test_partitions_are_no_disks() -> None:
    assert not [name for name in offered("disk") if os.path.exists(f"/sys/class/block/{name}/partition")]


@each_row("kind", TYPES)
def test_each_type_has_an_answer(kind: str) -> None:
    assert len(set(offered(kind))) == len(offered(kind))
