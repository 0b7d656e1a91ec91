"""``pytrace fleet`` as users type it, as far as no host is asked. tests/kernel/test_fleet.py asks some."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pytrace.cli import main
from pytrace.cli.commands import COMMANDS


@pytest.fixture
def typed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """``typed(words)`` gives the exit status, standard output and standard error."""
    monkeypatch.setattr(main, "_name_process", lambda: None)

    def command(*words: str) -> tuple[int, str, str]:
        status = main.main(["fleet", *words])
        sys.stdout.flush()
        sys.stderr.flush()
        return status, *capfd.readouterr()

    return command


def test_options_of_the_fleet_come_first() -> None:
    words = ["--hosts", "a[1-3]", "--by=host", "--ssh-options", "-Fx", "--compile-there", "-e", "x", "-q"]
    own, rest = COMMANDS["fleet"].read_first(words)
    assert own.values == {"hosts": "a[1-3]", "by": "host", "ssh_options": "-Fx", "compile_there": True}
    assert rest == ["-e", "x", "-q"]


def test_help(typed: Any, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["--hosts", "a", "-h"]):
        with pytest.raises(SystemExit) as end:
            typed(*words)
        assert end.value.code == 0
        sys.stdout.flush()
        out, _ = capfd.readouterr()
        assert out.startswith("usage: pytrace fleet --hosts NODESET|--kubernetes")
        assert all(f"--{row.long}" in out for row in COMMANDS["fleet"].options)


SCRIPT = ("-e", "begin { @ = 1; }")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (SCRIPT, "pytrace fleet asks either --hosts or the nodes of --kubernetes"),
        (("--hosts", "a", "--kubernetes", *SCRIPT), "pytrace fleet asks either --hosts or the nodes of --kubernetes"),
        (("--kubernetes", *SCRIPT), "--kubernetes needs an image of pytrace: --image"),
        (("--hosts", "a["), "no script given"),
        (("--hosts", "a[", *SCRIPT), "--hosts 'a['"),
        (("--hosts", "a", "--fanout", "0", *SCRIPT), "--fanout needs a number, 1 or more"),
        (("--hosts", "a", *SCRIPT, "-p", "1"), "--pid is not for pytrace fleet"),
        (("--hosts", "a", "why", "-p", "1", "--for", "1"), "--pid of why is not for pytrace fleet"),
        (("--hosts", "a", "why", "--for", "1"), "fleet why needs --comm, --cgroup, --container or --uid, and --for"),
        (("--hosts", "a", "--by", "rack", "why", "--comm", "x", "--for", "1"), "fleet why tells hosts apart"),
        (("--hosts", "a", *SCRIPT, "-f", "jsn"), "-f does not accept 'jsn'"),
        (("--hosts", "a", *SCRIPT, "--by", "host"), "--by is an option of pytrace fleet, which stands before"),
        (("biolatency", "--hosts", "a"), "--hosts is an option of pytrace fleet, which stands before the script"),
        (("web1", "biolatency"), "hosts are named with --hosts: pytrace fleet --hosts web1 SCRIPT"),
        (("--hosts", "a", "--map", "x", *SCRIPT), "the script has no map 'x'\nHINT: there are @\n"),
        (("--hosts", "-oProxyCommand=id", *SCRIPT), "'-oProxyCommand=id' is no name of a host"),
        (("--hosts", "a;id", *SCRIPT), "'a;id' is no name of a host"),
        (("--hosts", "a", "--by", "zone", *SCRIPT), "--by zone:"),
        (("--hosts", "a", "--stage", "10,1,all", *SCRIPT), "--stage takes rising numbers of hosts"),
        (("--hosts", "a", "--soak", "nan", *SCRIPT), "--soak needs a number of seconds"),
        (("--hosts", "a", "--max-losses", "-1", *SCRIPT), "--max-losses needs a number"),
        (("--kubernetes", "--image", "x", "--push", *SCRIPT), "push and become are for hosts"),
        (("--hosts", "a", "--every", "0", *SCRIPT), "every is 0.0, not 0.1 to"),
    ],
)
def test_errors_before_any_host_is_asked(typed: Any, words: tuple[str, ...], error: str) -> None:
    status, out, message = typed(*words)
    assert (status, out) == (1, "")
    assert error in message


def test_a_script_with_errors_is_not_sent(typed: Any) -> None:
    status, out, message = typed("--hosts", "a", "-e", "begin { @ = ; }")
    assert (status, out) == (1, "")
    assert "syntax: unexpected ';'" in message
    assert message.endswith("HINT: with --compile-there each host compiles the script for itself\n")
