"""Starts and runs go on while caches are damaged, and pytrace is upgraded or removed."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pytrace.runtime.session import services
from tests.support.compile import compiled
from tests.support.file_damage import DAMAGE
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.running import Tracer
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).resolve().parents[2]

TEXT = """__attribute__((noinline)) int work(int depth) { return depth + 1; }
int main(int c, char **v) { return work(c) == 0; }
"""

SCRIPT = """config = {{ unstable_dw_ustack = enable }}
getopt("number", 3, "a number");
uprobe:{0}:work {{
    @[ustack(1)] = count();
    @unwound[dw_ustack(2)] = count();
    printf("%d %d %d\\n", getopt("number"), args.depth, curtask.tgid == pid);
}}
"""

KINDS = {"facts/btf-", "facts/functions", "facts/lines-", "facts/features", "options/", "scripts/", "unwind/"}
"""How the names of cached files start, one for each thing that is cached."""


def pytrace(folder: Path, *arguments: str | Path, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A run in a folder, with its cache in there or in another one."""
    environment = {"XDG_CACHE_HOME": str(cache or folder / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytrace", *map(str, arguments)], capture_output=True, text=True, check=False,
        timeout=patience(60), stdin=subprocess.DEVNULL, cwd=folder, env={**os.environ, **environment},
    )  # fmt: skip
    assert "BUG" not in done.stderr, done
    assert "Traceback" not in done.stderr, done
    return done


def traced(folder: Path, whole: Path) -> tuple[str, str]:
    """Output of what uses every kind of cached file, and the messages of the run."""
    done = pytrace(folder, "-v", whole / "script.bt", "-c", whole / "program")
    assert done.returncode == 0, done
    return done.stdout + pytrace(folder, "-l", "kprobe:vfs_re*").stdout, done.stderr


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script, the program that it traces, a full cache and the output."""
    folder = tmp_path_factory.mktemp("whole")
    program = compiled(folder, "program", TEXT, "-g", "-O1")
    (folder / "script.bt").write_text(SCRIPT.format(program))
    output, _ = traced(folder, folder)
    assert "3 1 1\n" in output
    (folder / "output").write_text(output)
    names = {str(path.relative_to(folder / "cache/pytrace")) for path in (folder / "cache").rglob("*")}
    assert not [kind for kind in KINDS if not any(name.startswith(kind) for name in names)], names
    return folder


@pytest.mark.parametrize("first", range(len(DAMAGE)))
def test_a_start_survives_damage_of_its_caches(first: int, prepared: Path, tmp_path: Path) -> None:
    """Over all tests each file has each kind of damage, beside files with others; every second time half are whole."""
    chance, kinds = random.Random(first), list(DAMAGE)
    shutil.copytree(prepared / "cache", tmp_path / "cache")
    damaged = 0
    for number, path in enumerate(sorted((tmp_path / "cache").rglob("*"))):
        if path.is_file() and (first % 2 or chance.random() < 0.5):
            data = path.read_bytes()
            changed = DAMAGE[kinds[(first + number) % len(kinds)]](data, chance)
            path.write_bytes(changed)
            damaged += changed != data
    assert damaged
    output, messages = traced(tmp_path, prepared)
    assert output == (prepared / "output").read_text(), messages
    if first % 2:
        assert "was removed: it is damaged" in messages
    again = pytrace(tmp_path, "-v", prepared / "script.bt", "-c", prepared / "program")
    assert "was removed" not in again.stderr, "what was damaged was made anew"


def test_what_is_no_file_is_replaced(prepared: Path, tmp_path: Path) -> None:
    shutil.copytree(prepared / "cache", tmp_path / "cache")
    for number, path in enumerate(sorted((tmp_path / "cache").rglob("*"))):
        if path.is_file():
            path.unlink()
            (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("/etc/passwd"))[number % 3]()  # noqa: B023
    output, messages = traced(tmp_path, prepared)
    assert output == (prepared / "output").read_text(), messages
    assert messages.count("was removed") > 5
    assert Path("/etc/passwd").stat().st_size > 0


def test_a_damaged_ahead_of_time_file_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    made = pytrace(tmp_path, "--aot", whole, "-e", 'begin { printf("%d\\n", pid > 0); exit(); }')
    assert made.returncode == 0, made
    assert pytrace(tmp_path, "-q", whole).stdout.strip() == "1"
    data = whole.read_bytes()
    changed = {(kind, seed): DAMAGE[kind](data, random.Random(f"{kind}{seed}")) for kind in DAMAGE for seed in range(3)}
    for damaged, kind in {damaged: kind for kind, damaged in changed.items() if damaged != data}.items():
        (tmp_path / "damaged").write_bytes(damaged)
        done = pytrace(tmp_path, tmp_path / "damaged")
        assert done.returncode == 1, (kind, done)
        assert "ERROR" in done.stderr, (kind, done)


# ---------------------------------------------------------------------------------------------- upgrades
# pytrace is upgraded or removed while it runs: the run ends as if nothing had happened.


SCRIPT_OF_THE_RUN = (
    "begin { @t[1] = tseries(3, 1s, 9); @l = lhist(7, 0, 9, 1); } "
    'uprobe:PROGRAM:add { @s[ustack(2)] = count(); @h[comm] = hist(arg0); @a[1, usym(reg("ip"))] = count(); } '
    "profile:hz:50 { @k[kstack(3)] = count(); } "
    'end { printf("%s %s %r\\n", strftime("%H", nsecs), ksym(0), buf("ab", 2)); }'
)
LIBRARIES = ("elftools", "zstandard")
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
    script = SCRIPT_OF_THE_RUN.replace("PROGRAM", str(programs / "calls"))
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with Tracer("-e", script, *ENDS[end], package=package, cwd=tmp_path, environment=cache) as tracer:
        # The time until modules are imported begins after the notice that all is attached: on a busy machine far later.
        until(lambda: _settled(tracer.process.pid))
        time.sleep(services.MODULES_AFTER)
        # One after another, at most some hundred.
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
    """Whether a process uses no CPU for a while, and not as others have them all."""
    used = [_ticks(pid)]
    for _ in range(5):
        time.sleep(0.06)
        if any(_state(thread) in ("R", "D") for thread in Path(f"/proc/{pid}/task").iterdir()):
            return False
        used.append(_ticks(pid))
    return used[-1] - used[0] <= 1


def _state(thread: Path) -> str:
    with suppress(OSError):  # it has ended
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def test_removed_within_the_first_second(package: Path, tmp_path: Path) -> None:
    """Too early for the modules of the end: the message says what has happened, and nothing stays behind."""
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with Tracer("-e", 'interval:s:9 { } end { printf("%d", 1); }', package=package, environment=cache) as tracer:
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


PROGRAM = """
struct own { char a[NUMBER]; } v;
int work(int x) { return x; }
int of_NUMBER(void) { return 0; }
int main(void) { return work(0) + of_NUMBER(); }
"""

RELATIVE = {
    "import": ("-e", 'import "lib.bt"; begin { print(NUMBER); exit(); }'),
    "imported by a script": ("script.bt",),
    "include": ("--include", "h.h", "-e", "begin { print(NUMBER); exit(); }"),
    "-I": ("-I", ".", "-e", '#include "h.h"\nbegin { print(NUMBER); exit(); }'),
    "a program": ("-e", "uprobe:./program:work { print(sizeof(struct own)); exit(); }", "-c", "./program"),
    "a pattern of functions": ("-e", "uprobe:./program:of_* { print(func); }", "-c", "./program"),
    "a target by parameter": ("-e", "uprobe:$1:of_* { print(func); }", "-c", "./program", "./program"),
    "a directory": ("-e", 'getopt("d=PATH:directory", ""); begin { print(getopt("d")); exit(); }', "-d", "."),
}
"""Command lines with names that start from the working directory."""


def test_each_directory_has_its_own_files(tmp_path: Path) -> None:
    """The same command line in two directories, each two times: the second runs come from the cache."""
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "lib.bt").write_text(f"macro NUMBER() {{ {number} }}")
        (folder / "h.h").write_text(f"#define NUMBER {number}\n")
        (folder / "script.bt").write_text('import "lib.bt"; begin { print(NUMBER); exit(); }')
        text = PROGRAM.replace("NUMBER", str(number))
        compiled(folder, "program", text, "-g", "-O0")
    for name, words in RELATIVE.items():
        for number in (1, 2, 1, 2):
            folder = tmp_path / str(number)
            done = pytrace(folder, "-q", *words, cache=tmp_path / "shared")
            expected = {"a directory": str(folder)}.get(name, f"of_{number}" if "of_" in str(words) else str(number))
            assert done.stdout.split() == [expected], (name, number, done)


def test_directories_share_scripts_that_name_nothing_relative(tmp_path: Path) -> None:
    for words in (("-e", "begin { exit(); }"), ("execsnoop", "-c", "true")):
        entries = []
        for number in (1, 2):
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            assert pytrace(folder, "-q", *words, cache=tmp_path / "shared").returncode == 0
            entries.append(sorted(path.name for path in (tmp_path / "shared/pytrace/scripts").iterdir()))
        assert entries[0] == entries[1]
