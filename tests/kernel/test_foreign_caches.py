"""Root with the environment of another user: nothing is read, written or removed where that user's links lead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pytrace.base.private_files import SYSTEM_BASE
from tests.support.compile import compiled, tool
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]
OTHER = 12345

pytestmark = [
    pytest.mark.own_process,
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root is attacked this way"),
]

RULE = "user ALL=(ALL:ALL) NOPASSWD: ALL"

TEXT = f"""
#line 1 "a\\n{RULE}\\n"
__attribute__((noinline)) int work(int depth) {{ return depth + 1; }}
int main(int c, char **v) {{ return work(c) == 0; }}
"""

SCRIPT = "uprobe:{0}:work {{ @[ustack] = count(); }} uprobe:{0}:work {{ print(args.depth); }}"


class Attack:
    """The home of a user who has prepared a program, and links to directories of root."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.targets = folder / "targets"
        self.build_id = os.urandom(20).hex()
        self.program = compiled(folder, "program", TEXT, "-g", "-O1", f"-Wl,--build-id=0x{self.build_id}")
        tool("objcopy", "--only-keep-debug", self.program, folder / "debug")
        self.environment = {"HOME": str(self.home), "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": ""}

    def link(self, place: str, *, files: int = 0) -> Path:
        """Put a link to a directory of root, which is returned, at a place below the home directory."""
        target = self.targets / str(len(list(self.targets.glob("*"))))
        target.mkdir(parents=True)
        for number in range(files):
            (target / f"file{number}").write_text("precious")
        (self.home / place).parent.mkdir(parents=True, exist_ok=True)
        (self.home / place).symlink_to(target)
        return target

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Root traces the program with the user's environment."""
        subprocess.run(["chown", "-hR", f"{OTHER}:{OTHER}", self.home], check=True)
        words = [sys.executable, "-m", "pytrace", "-v", *options, "-e", SCRIPT.format(self.program), "-c", self.program]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=patience(60), stdin=subprocess.DEVNULL,
            cwd=self.home, env={**os.environ, **self.environment},
        )  # fmt: skip
        assert done.returncode == 0, done
        assert done.stdout.count(" work+") == 1, done
        return done


@pytest.fixture
def attack() -> Iterator[Attack]:
    with tempfile.TemporaryDirectory(prefix="pytrace-test-") as folder:
        os.chmod(folder, 0o755)
        made = Attack(Path(folder))
        yield made
        shutil.rmtree(f"{SYSTEM_BASE}/pytrace/debuginfod/{made.build_id}", ignore_errors=True)


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_links_in_the_cache_of_a_user(attack: Attack, variable: str) -> None:
    targets = [attack.link(f".cache/pytrace/{kind}", files=300) for kind in ("facts", "scripts", "unwind", "modules")]
    if variable == "XDG_CACHE_HOME":
        attack.environment.update(HOME="/root", XDG_CACHE_HOME=f"{attack.home}/.cache")
    done = attack.run()
    assert [len(os.listdir(target)) for target in targets] == [300] * 4
    assert f"cache directory {attack.home}/.cache is not used: {attack.home} belongs to user {OTHER}" in done.stderr


@pytest.mark.parametrize("place", [".cache", ".cache/pytrace"])
def test_links_above(attack: Attack, place: str) -> None:
    target = attack.link(place)
    attack.run()
    assert os.listdir(target) == []


def test_roots_own_cache_with_links_of_a_user(attack: Attack) -> None:
    """Where only the last levels are links, as a user who may write to the cache leaves them."""
    targets = [attack.link(f".cache/pytrace/{kind}") for kind in ("facts", "scripts", "unwind")]
    subprocess.run(["chown", "root:root", attack.home], check=True)
    attack.run()
    assert [os.listdir(target) for target in targets] == [[], [], []]


def test_nothing_is_made_in_the_home_of_a_user(attack: Attack) -> None:
    attack.run()
    assert os.listdir(attack.home) == []


def test_an_empty_home(attack: Attack) -> None:
    attack.environment["HOME"] = ""
    attack.run()
    assert not os.path.exists("/.cache")


@pytest.mark.parametrize("answer", ["debug file", "rule"])
def test_links_in_the_cache_of_debuginfod(attack: Attack, answer: str) -> None:
    data = (attack.home.parent / "debug").read_bytes() if answer == "debug file" else f"{RULE}\n".encode()
    tool("objcopy", "--strip-debug", attack.program)
    places = (".cache/debuginfod_client", ".debuginfod_client_cache")
    targets = [attack.link(f"{place}/{attack.build_id}") for place in places]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        attack.environment["DEBUGINFOD_URLS"] = f"http://127.0.0.1:{server.server_port}"
        script = f"uprobe:{attack.program}:work {{ print(args.depth); exit(); }}"
        words = [sys.executable, "-m", "pytrace", "-e", script, "-c", str(attack.program)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=patience(60), stdin=subprocess.DEVNULL,
            env={**os.environ, **attack.environment},
        )  # fmt: skip
        server.shutdown()
    assert (done.returncode == 0) == (answer == "debug file"), done
    assert [os.listdir(target) for target in targets] == [[], []]


def test_modules_in_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    """Root runs the installed command in a folder of somebody else, who has put files there that pytrace imports."""
    planted, elsewhere = tmp_path / "planted", tmp_path / "bin"
    planted.mkdir()
    elsewhere.mkdir()
    for name in ("msgspec", "llvmlite", "resource", "signal", "sitecustomize", "usercustomize", "json", "pytrace"):
        (planted / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (planted / "startup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    command = elsewhere / "pytrace"
    command.write_text("from pytrace.cli.entry import command\ncommand()\n")
    words = [sys.executable, str(command), "-q", "-e", 'begin { printf("ok\\n"); exit(); }']
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONSTARTUP": str(planted / "startup.py")}
    done = _run(words, planted, own)
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr
    # Its helpers begin with the same modules, and not with those of the folder either.
    helper = (
        "import sys, os; sys.path.remove(''); os.chdir(sys.argv[1])\n"
        "from pytrace.base.limited_process import Program\n"
        "from pytrace.remote.host_results import readable\n"
        "print(Program(readable, memory=1 << 30, seconds=20, longest=60).result(b'web\\0x'))"
    )
    words = [sys.executable, "-c", helper, str(planted)]
    done = _run(words, elsewhere, own)
    assert "is not a snapshot" in done.stdout, (done.stdout, done.stderr)
    assert not (tmp_path / "ran").exists()


def _run(words: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=patience(60), check=False
    )
