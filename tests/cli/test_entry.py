"""pytrace.cli.entry: what signals do from the first statement on, and a start without memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WATCH = """
import signal
from pytrace.cli import main
main.command = lambda *_: print(signal.getsignal(signal.SIGINT).name, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    """Run Python code, and then the command line."""
    code = f"{text}\nfrom pytrace.cli.entry import command\ncommand()\n"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("before", "action"),
    [("", "SIG_DFL"), ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "SIG_IGN")],
    ids=["default", "ignored"],
)
def test_an_interrupt_ends_the_process_unless_it_was_ignored(before: str, action: str) -> None:
    done = run(f"{WATCH}\n{before}")
    assert done.stdout == f"{action} set()\n", done.stderr


def test_an_interrupt_that_the_launcher_held_back_is_let_through() -> None:
    done = run(f"{WATCH}\nsignal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))")
    assert done.stdout == "SIG_DFL set()\n", done.stderr


def test_an_interrupt_that_came_before_ends_it_without_a_traceback() -> None:
    done = run(
        f"{WATCH}\nimport os\nsignal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))\n"
        "os.kill(os.getpid(), signal.SIGINT)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (-2, "", "")


def test_no_memory_at_all() -> None:
    done = run("from pytrace.cli import main\ndef command(*_):\n    raise MemoryError\nmain.command = command")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "ERROR: out of memory\n")


WITHOUT_SITE = """
import sys
import tomllib
sys.path.insert(0, {root!r})
from pytrace.base import module_archive
sys.meta_path.append(module_archive.Site())
print("site" in sys.modules)
try:
    import pytrace_none
except ModuleNotFoundError as error:
    print(error)
import ply
print("site" in sys.modules, ply.__name__, sum(type(item) is module_archive.Site for item in sys.meta_path))
"""


def test_what_is_installed_is_found_without_site() -> None:
    text = WITHOUT_SITE.format(root=str(ROOT))
    done = subprocess.run([sys.executable, "-SP", "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\nNo module named 'pytrace_none'\nTrue ply 0\n"


def test_a_cached_start_does_without_site(tmp_path: Path) -> None:
    program = tmp_path / "start"
    program.write_text(
        f"import atexit, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "atexit.register(lambda: print('site' in sys.modules, file=sys.stderr))\n"
        "from pytrace.cli.entry import command\ncommand()\n"
    )
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-SP", str(program), "--version"], env={**kept, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    assert done.stderr == "False\n"


def test_the_command_of_an_installed_package_imports_no_more_than_the_entry() -> None:
    command = ROOT / "share" / "bin" / "pytrace"
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-scripts"] == {"share/bin/pytrace": "pytrace"}
    lines = command.read_text().splitlines()
    assert lines[0] == "#!python", "installers replace this line"
    assert [line for line in lines if "import" in line and line[0] != "#"] == [
        "from pytrace.cli.entry import command"
    ]
    done = subprocess.run(
        [sys.executable, str(command), "--version"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("pytrace ")
