"""pytrace is upgraded or removed while it runs: the run ends as if nothing had happened."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path

import pytest

from pytrace.runtime.session import services
from tests.support.machine import need
from tests.support.running import ROOT, Tracer
from tests.support.waiting import until

pytestmark = [pytest.mark.own_process, pytest.mark.usefixtures("no_leaks")]

SCRIPT = (
    "begin { @t[1] = tseries(3, 1s, 9); @l = lhist(7, 0, 9, 1); } "
    "uprobe:PROGRAM:add { @s[ustack(2)] = count(); @h[comm] = hist(arg0); @a[1, usym(reg(\"ip\"))] = count(); } "
    "profile:hz:50 { @k[kstack(3)] = count(); } "
    "end { printf(\"%s %s %r\\n\", strftime(\"%H\", nsecs), ksym(0), buf(\"ab\", 2)); }"
)
LIBRARIES = ("elftools", "zstandard", "rust_demangler")
ENDS = {
    "text_and_saved": ("--save", "out"), "json": ("-f", "json"), "csv": ("-f", "csv"),
    "pprof": ("-f", "pprof", "-o", "out"),
}  # fmt: skip


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of pytrace and of the libraries that it uses."""
    folder = tmp_path / "package"
    shutil.copytree(ROOT / "pytrace", folder / "pytrace")
    for name in LIBRARIES:
        found = next((Path(place) / name for place in sys.path if (Path(place) / name).is_dir()), None)
        if found is not None:
            shutil.copytree(found, folder / name)
    return folder


@pytest.mark.parametrize("end", list(ENDS))
def test_the_package_is_removed_while_it_runs(end: str, package: Path, programs: Path, tmp_path: Path) -> None:
    need("uprobe", "perf_events")
    script = SCRIPT.replace("PROGRAM", str(programs / "calls"))
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with Tracer("-e", script, *ENDS[end], package=package, cwd=tmp_path, environment=cache) as tracer:
        # Modules are imported one after another, at most some hundred.
        time.sleep(services.MODULES_AFTER)
        until(lambda: _settled(tracer.process.pid))
        shutil.rmtree(package)
        status, out, said = tracer.end()
    assert status == 0, said
    assert "missing" not in said
    assert "Traceback" not in said
    if ENDS[end][-1:] == ("out",):
        assert (tmp_path / "out").stat().st_size > 100
    else:
        assert "@h" in out or '"hist"' in out or "@l" in out, out


def _settled(pid: int) -> bool:
    """Whether a process uses no CPU for a while."""
    used = [_ticks(pid)]
    for _ in range(5):
        time.sleep(0.06)
        used.append(_ticks(pid))
    return used[-1] - used[0] <= 1


def _ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def test_removed_within_the_first_second(package: Path, tmp_path: Path) -> None:
    """Too early for the modules of the end: the message says what has happened, and nothing stays behind."""
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with Tracer("-e", "interval:s:9 { } end { printf(\"%d\", 1); }", package=package, environment=cache) as tracer:
        shutil.rmtree(package)
        status, _, said = tracer.end()
    if status:
        assert (status, "ERROR: a part of pytrace is missing" in said) == (1, True)
        assert "HINT: pytrace was upgraded or removed while it ran" in said


def test_a_cache_that_another_version_wrote(package: Path, tmp_path: Path) -> None:
    """Each version compiles for itself; two versions side by side do not disturb each other."""
    version = package / "pytrace" / "__init__.py"
    version.write_text(re.sub(r'__version__ = "[^"]+"', '__version__ = "0.0.7"', version.read_text()))
    messages = package / "pytrace" / "runtime" / "output" / "messages.py"
    messages.write_text(messages.read_text() + "\n")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for folder in (ROOT, package, ROOT, package):
        with Tracer("-e", "begin { @ = 4; } interval:s:9 { }", package=folder, environment=cache) as tracer:
            status, out, said = tracer.end()
        assert (status, out.split(), said) == (0, ["@:", "4"], "Attached 2 probes\n")
