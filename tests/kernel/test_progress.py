"""Lines of progress of whole runs at a terminal."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.compile import compiled, tool
from tests.support.patience import patience
from tests.support.programs import build
from tests.support.terminals import FAST, on_terminal

CLEAR = "\r\x1b[K"


def command(*words: str) -> str:
    return f"import sys; sys.argv = {['pytrace', *words]!r}\nfrom pytrace.cli.main import command\ncommand()\n"


EACH_SHOWN = """
line, end = terminal._LINE, terminal._LINE.end
def end_when_shown(step):
    while line._steps[-1:] == [step] and line.free and step.text.encode() not in line._shown:
        time.sleep(0.002)
    end(step)
line.end = end_when_shown
"""
"""No step ends before its line appears: on a busy machine the thread that draws may get no processor while it lasts."""


def test_steps_of_a_run(tmp_path: Path) -> None:
    program, saved, report = build() / "calls", tmp_path / "x.pts", tmp_path / "x.folded"
    script = ["-e", f'uprobe:{program}:main {{ @[ustack] = count(); printf("hit\\n"); }}', "-c", str(program)]
    text, status = on_terminal(EACH_SHOWN + command("--no-cache", "--save", str(saved), *script))
    assert status == 0, text
    steps = {re.sub(r"( \(|:).*", "", line.rpartition("\r")[2]) for line in text.split("\x1b[K")}
    ending = "resolving symbols and writing what was traced"
    assert {"compiling", "loading programs into the kernel", "attaching probes", ending} <= steps
    lines = [line.rpartition("\x1b[K")[2].rstrip("\r") for line in text.split("\n")]
    assert {"hit", "Attached 1 probe"} <= set(lines)
    assert not any("(0 s)" in line for line in lines), "no line stays"
    quiet, _ = on_terminal(command("-q", "--no-cache", *script))
    assert "(0 s)" not in quiet
    shown, status = on_terminal(command("show", str(saved), "-o", str(report)))
    assert (status, "main" in report.read_text()) == (0, True)
    assert shown == "" or shown.endswith(CLEAR)


FUNCTIONS = 2000


class SlowServer(BaseHTTPRequestHandler):
    """A debuginfod that sends half of a file, and the rest when the line of progress was seen."""

    data = b""
    seen = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        half = len(self.data) // 2
        self.wfile.write(self.data[:half])
        self.seen.wait(patience(60))
        self.wfile.write(self.data[half:])

    def log_message(self, *_: object) -> None:
        pass


def large_program(folder: Path) -> tuple[Path, bytes]:
    """A program that calls thousands of functions, and its debug information, which it has not itself."""
    numbers = range(FUNCTIONS)
    functions = "".join(f"int work_{number}(int depth) {{ return depth + {number}; }}\n" for number in numbers)
    calls = "".join(f"sum += work_{number}(c);" for number in numbers)
    text = f"{functions}int main(int c, char **v) {{ int sum = 0; {calls} return sum == 7; }}"
    path = compiled(folder, "program", text, "-g", "-O0", "-Wl,--build-id")
    tool("objcopy", "--only-keep-debug", path, folder / "full")
    tool("objcopy", "--strip-debug", path)
    return path, (folder / "full").read_bytes() + bytes(3 << 20)


def test_a_slow_server_and_thousands_of_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, SlowServer.data = large_program(tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.setenv("DEBUGINFOD_TIMEOUT", str(patience(60)))
    probes = f"uprobe:{path}:work_* {{ @ = count(); }} uprobe:{path}:work_7 {{ @depth[args.depth] = count(); }}"
    script = ["-e", f"config = {{ max_probes = 5000 }} {probes}", "-c", str(path)]
    words = command("--no-cache", "--yes", *script)

    def act(_child: int, _terminal: int, text: str) -> None:
        if re.search(r"downloading debug information from \S+: 1 of 3 MB", text):
            SlowServer.seen.set()

    try:
        text, status = on_terminal(words, act)
    finally:
        SlowServer.seen.set()
        server.shutdown()
        thread.join()
        server.server_close()
    assert status == 0, text
    assert SlowServer.seen.is_set()
    attaching = rf"attaching probes: [0-9,]+ of {FUNCTIONS + 1:,} "
    for step in ("reading debug information of /", attaching, "detaching probes"):
        assert re.search(step, text), step
    lines = [line.rpartition("\x1b[K")[2].rstrip("\r") for line in text.split("\n")]
    assert f"Attached {FUNCTIONS + 1} probes" in lines
    assert {f"@: {FUNCTIONS}", "@depth[1]: 1"} <= set(lines)
    assert not any(" s)" in line for line in lines), "no line stays"
    # The same in pipes, where nothing of this is written.
    piped = subprocess.run([sys.executable, "-c", FAST + words], capture_output=True, text=True, check=True)
    assert piped.stderr == f"Attached {FUNCTIONS + 1} probes\n"
    assert not re.search(r"[\r\x1b]| s\)", piped.stdout)
