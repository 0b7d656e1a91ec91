"""What tools say on a kernel that cannot serve them: what is missing, and what comes closest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytrace.cli import tools
from pytrace.cli.main import main
from pytrace.runtime.load import features

SCRIPTS = [name for _, name, _ in tools.rows() if tools.path(name)]

REFUSED = {
    "dcsnoop": "neither kprobes nor fentry",
    "dcstat": "neither kprobes nor fentry",
    "vfscount": "neither kprobes nor fentry",
    "vfsstat": "neither kprobes nor fentry",
}
"""Tools that cannot be without probes on functions of the kernel, on any kernel, and what they say is missing."""

NEEDS_ARGUMENTS = {"dbslower", "dbstat", "netqtop"}
"""Tools that ask for an operand or option first."""

CLOSEST = re.compile(r"what comes closest: |; \S.* (shows?|counts?)\b|(since|before|Linux) \d|: try ")


@pytest.mark.kernel
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in NEEDS_ARGUMENTS])
def test_without_probes_on_functions(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real = features.has
    monkeypatch.setattr(features, "has", lambda feature: feature not in ("kprobe", "fentry") and real(feature))
    status = main([name, "--no-cache", "--emit-elf", str(tmp_path / "compiled.o")])
    said = capsys.readouterr().err
    assert "/../" not in said
    if name in REFUSED:
        assert status == 1
        assert REFUSED[name] in said
        assert "what comes closest: pytrace " in said
    elif status:
        assert said.count("ERROR") == 1, "one reason, not what follows from it"
        assert CLOSEST.search(said) or "--" in said or "-O" in said, said
    else:
        assert "ERROR" not in said


FALLBACKS = {
    "capable": "AUDIT and INSETID are not known",
    "filelife": "what io_uring deletes is not seen",
    "fsdist": "system calls are measured instead",
    "fsslower": "system calls are measured instead",
    "klockstat": "no hold times",
    "oomkill": "PAGES is the limit",
    "swapin": "reads from swap devices are counted",
    "tcpaccept": "system calls are shown",
    "udpsnoop": "the sender of a datagram is not known (?)",
}
"""Tools that do less where functions of the kernel cannot be probed, and what their runs say of it."""


@pytest.mark.kernel
@pytest.mark.parametrize("name", FALLBACKS)
def test_runs_say_what_they_lack(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = features.has
    monkeypatch.setattr(features, "has", lambda feature: feature not in ("kprobe", "fentry") and real(feature))
    assert main([name, "--no-cache", "--duration", "0.1", "--keep-privileges"]) == 0
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "cannot probe" in line]
    assert line.startswith("WARNING: this kernel cannot probe ")
    assert FALLBACKS[name] in line
