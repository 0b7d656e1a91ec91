"""Which binaries a target means."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.core.kernel_info import UserSymbol
from pytrace.core.options import ProcessFilters
from pytrace.core.probe_kinds import UserTarget
from tests.frontend.expanding import Expanded
from tests.support.facts import RecordedKernel


def test_binary_of_a_process() -> None:
    kernel = RecordedKernel(files={"/proc/9/exe": ["/bin/app"]})
    assert Expanded("uprobe:work { }", kernel, filters=ProcessFilters(pids=(9,))).names == ["uprobe:/bin/app:work"]
    assert Expanded("uprobe::work { }", kernel, filters=ProcessFilters(pids=(9,))).names == ["uprobe:/bin/app:work"]
    assert Expanded("usdt:start { }", kernel, filters=ProcessFilters(pids=(9,))).names == ["usdt:/bin/app:one:start"]
    assert "binary" in Expanded("uprobe:work { }", kernel).errors[0]


def test_several_binaries_of_one_name() -> None:
    symbols = {path: (UserSymbol("work", 0x1000, 0x1000, 8),) for path in ("/bin/app", "/opt/app", "/x/app")}
    kernel = RecordedKernel(files={"app": list(symbols)}, symbols=symbols)
    found = Expanded("uprobe:app:work { }", kernel)
    assert found.names == ["uprobe:/bin/app:work"]
    assert found.warnings == ["'app' matches several files; /bin/app is used, not /opt/app, /x/app"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("uprobe:/no/such:main", {}, "there is no file '/no/such'"),
        ("uprobe:nothing:main", {}, "there is no program 'nothing' on PATH and no such library"),
        ("uprobe:/no/*:main", {}, "no file matches '/no/*'"),
        ("uprobe:*:main", {}, "no process maps a file that matches '*'"),
        ("uprobe::main", {}, "the program of the probe is missing"),
        ("uprobe::main", {"filters": ProcessFilters((9,))}, "the program of process 9 cannot be found"),
    ],
)
def test_targets_that_mean_nothing(text: str, options: dict[str, Any], message: str) -> None:
    assert message in Expanded(f"{text} {{ }}", **options).errors


@pytest.mark.parametrize(("command", "program"), [("/bin/x 'a b'", "/bin/x"), ("", ""), ("'open", "")])
def test_the_program_of_a_command_does_not_run_yet(command: str, program: str) -> None:
    asked: list[str] = []

    class Asked(RecordedKernel):
        def binaries(self, target: str, pid: int | None, command: str = "") -> list[str]:
            asked.append(command)
            return []

    assert Expanded("uprobe:*:main { }", Asked(), child_command=command).errors
    assert asked == [program]


def test_glob_takes_all_that_fit() -> None:
    symbols = {path: (UserSymbol("work", 0x1000, 0x1000, 8),) for path in ("/a/app", "/b/app")}
    kernel = RecordedKernel(files={"/*/app": ["/a/app", "/b/app", "/c/app", "/d.txt"]}, symbols=symbols)
    found = Expanded("uprobe:/*/app:work { }", kernel)
    assert found.names == ["uprobe:/a/app:work", "uprobe:/b/app:work"]
    assert all(target.of(UserTarget).by_pattern for target in found.unit.targets)
    assert "none of the binaries" in Expanded("uprobe:/*/app:nope { }", kernel).errors[0]


def test_files_that_are_no_programs() -> None:
    kernel = RecordedKernel(files={"/a.txt": ["/a.txt"]}, symbols={"/a.txt": (UserSymbol("main", 1, 1, 1),)})
    assert "ELF" in Expanded("uprobe:/a.txt:main { }", kernel).errors[0]
    assert Expanded("uprobe:/a.txt:main { }", kernel, unsafe=True).names == ["uprobe:/a.txt:main"]
