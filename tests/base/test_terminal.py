"""What is written to terminals, and progress on them."""

from __future__ import annotations

import contextlib
import os
import pty
import pwd
import re
import signal
import stat
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.base.control_characters import printable, printable_lines, printable_message, printable_text
from pytrace.base.terminal import _LINE, Step, colour, detail, unicode
from pytrace.cli import desktop
from pytrace.cli.desktop import Viewer
from tests.support.patience import patience
from tests.support.terminals import FAST, on_terminal

# ---------------------------------------------------------------------------------------------- terminal
# Tests of whether messages are coloured.


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal, and an environment that says nothing about colour."""
    for name in ("PYTRACE_COLOR", "BPFTRACE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    first, second = pty.openpty()
    yield second
    os.close(first)
    os.close(second)


def test_a_terminal_shows_colours(screen: int) -> None:
    assert colour(screen)
    read, write = os.pipe()
    assert not colour(write)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("NO_COLOR", "1", False),
        ("NO_COLOR", "", True),
        ("TERM", "dumb", False),
        ("PYTRACE_COLOR", "never", False),
        ("BPFTRACE_COLOR", "never", False),
        ("PYTRACE_COLOR", "auto", True),
    ],
)
def test_the_environment_decides(
    screen: int, monkeypatch: pytest.MonkeyPatch, name: str, value: str, wanted: bool
) -> None:
    monkeypatch.setenv(name, value)
    assert colour(screen) is wanted


def test_always_is_always(screen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_COLOR", "always")
    monkeypatch.setenv("NO_COLOR", "1")
    with open(os.devnull) as nothing:
        assert colour(nothing.fileno())


def _shown(program: str) -> bytes:
    """What a program whose streams are a terminal prints there."""
    first, second = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdout=second, stderr=second) as child:
        os.close(second)
        output = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while part := os.read(first, 4096):
                output += part
        os.close(first)
        assert child.wait() == 0
    return output.replace(b"\r\n", b"\n")


def test_both_streams_escape_control_characters_on_a_terminal() -> None:
    program = (
        "import sys; from pytrace.base.terminal import prepare_streams; prepare_streams()\n"
        "for stream in (sys.stdout, sys.stderr):\n"
        "    stream.write('a\\x1b[2J\\u202e\\udcff é\\n'); stream.flush()\n"
    )
    assert _shown(program) == b"a\\x1b[2J\\xe2\\x80\\xae\\xff \xc3\xa9\n" * 2


@pytest.mark.parametrize(("raw", "expected"), [(False, b"a\\x1b[2J\n"), (True, b"a\x1b[2J\n")])
def test_output_is_raw_where_that_is_asked_for(raw: bool, expected: bytes) -> None:
    assert _shown(f"from pytrace.cli import messages; messages.write_output(b'a\\x1b[2J\\n', raw={raw})") == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LANG": "en_US.UTF-8"}, True), ({"LANG": "C.utf8"}, True), ({"LC_CTYPE": "de_DE.UTF-8"}, True), ({}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, False), ({"LANG": "de_DE.ISO-8859-1"}, False),
        # Python replaces the C locale by this one in its own environment.
        ({"LC_CTYPE": "C.UTF-8"}, False), ({"LC_CTYPE": "C.UTF-8", "LANG": "en_US.UTF-8"}, True),
    ],
)  # fmt: skip
def test_only_locales_of_utf8_show_more_than_ascii(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: bool
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert unicode() is expected


# ---------------------------------------------------------------------------------------------- control characters
# .


DANGEROUS = b"\x1b]0;x\x07 \x7f \xc2\x9b2J \x9b2J \x00 \xc0\x9b \r"
SHOWN = b"\\x1b]0;x\\x07 \\x7f \\x9b2J \\x9b2J \\x00 \\xc0\\x9b \\x0d"


@pytest.mark.parametrize(
    ("data", "whole", "lines"),
    [
        (b"plain ~", b"plain ~", b"plain ~"),
        (b"", b"", b""),
        ("é ✓ \xa0".encode(), "é ✓ \xa0".encode(), "é ✓ \xa0".encode()),
        (b"latin \xe9\xff", b"latin \\xe9\\xff", b"latin \\xe9\\xff"),
        ("user\u202etxt.exe".encode(), b"user\\xe2\\x80\\xaetxt.exe", b"user\\xe2\\x80\\xaetxt.exe"),
        (DANGEROUS, SHOWN, SHOWN),
        (b"a\tb\nc\r\n", b"a\\x09b\\x0ac\\x0d\\x0a", b"a\tb\nc\r\n"),
        (b"a\rb", b"a\\x0db", b"a\\x0db"),
        (b"\\x1b", b"\\x1b", b"\\x1b"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(data: bytes, whole: bytes, lines: bytes) -> None:
    assert printable(data) == whole
    assert printable_lines(data) == lines


def test_no_byte_of_c0_or_c1_is_left() -> None:
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        for data in (bytes((code,)), chr(code).encode(), b"\xe9" + bytes((code,))):
            assert printable(data).removeprefix(b"\\xe9") == b"\\x%02x" % code


def test_what_is_not_seen_or_reorders_text_is_escaped() -> None:
    """All format characters of Unicode that are not seen themselves; digits and letters of any script stay."""
    visible = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    unseen = [
        code for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cf", "Zl", "Zp")
        and code not in visible and not 0x13430 <= code < 0x13460 and not 0x1BCA0 <= code < 0x1D180
    ]  # fmt: skip
    assert len(unseen) > 100
    for code in unseen:
        escaped = "".join(f"\\x{byte:02x}" for byte in chr(code).encode())
        assert printable_lines(f"a{chr(code)}b".encode()) == f"a{escaped}b".encode()
        assert printable_text(f"a{chr(code)}b") == printable_message(f"a{chr(code)}b") == f"a{escaped}b"
    for letter in "\u034f\u115f\u17b5\u180f\u3164\uffa0":  # of no width
        escaped = "".join(f"\\x{byte:02x}" for byte in letter.encode())
        assert printable_text(f"a{letter}") == printable_message(f"a{letter}") == f"a{escaped}"
    shown = "名前 имя नाम اسم 👍🏽 é"
    assert printable_text(shown) == shown


def test_colours_of_messages() -> None:
    text = "\x1b[31mx:1:2-3: ERROR: \x1b]0;x\x07\x1b[0m\n\x1b[2mnote\x1b[0m\n"
    assert printable_message(text) == "\x1b[31mx:1:2-3: ERROR: \\x1b]0;x\\x07\x1b[0m\n\x1b[2mnote\x1b[0m\n"
    assert printable_message("\x1b[2J\udc9b\x9b") == "\\x1b[2J\\x9b\\x9b"
    assert printable_message("WARNING: a\x1b[31mb\x1b[8mc\x1b[0m d\n") == "WARNING: a\\x1b[31mb\\x1b[8mc\\x1b[0m d\n"
    assert printable_message("\x1b[8mhidden\n") == "\\x1b[8mhidden\n"
    assert printable_text("a\ud800\udfff\udcff") == "a\\ud800\\udfff\\xff"


# ---------------------------------------------------------------------------------------------- progress
# Progress on a terminal: a line that appears late, goes away, and is never anywhere else.


CLEAR = "\r\x1b[K"


def test_texts() -> None:
    step = Step("attaching probes", 5000, "")
    step.done = 1234
    assert step.shown(79) == "attaching probes: 1,234 of 5,000 (0 s)"
    assert Step("compiling", 0, "").shown(79) == "compiling (0 s)"
    download = Step("downloading", 0, "MB")
    download.done = 5 << 20
    assert download.shown(79) == "downloading: 5 MB (0 s)"
    reading = Step("reading debug information of /usr/lib/\x1b[31m/a/long/path/libc.so", 100, "")
    assert reading.shown(50) == "reading debug ...long/path/libc.so: 0 of 100 (0 s)"
    assert {len(reading.shown(columns)) for columns in (50, 30)} == {50, 30}
    assert reading.shown(30).endswith(": 0 of 100 (0 s)")
    assert len(reading.shown(12)) == 12


def test_a_line_that_goes_away() -> None:
    text, status = on_terminal(
        "import time\nterminal.show_on(2)\n"
        "with terminal.step('counting', 3) as step:\n"
        "    step.done = 2; shown(b'2 of 3')\n"
        "    with terminal.detail('a\\n\\x1b[2Jpart of it ' + 'x' * 200): shown(b'part')\n"
        "    shown(b'2 of 3')\n"
    )  # fmt: skip
    assert status == 0
    lines = text.split("\x1b[K")
    assert any(re.fullmatch(r"\rcounting: 2 of 3 \(\d+ s\)", line) for line in lines)
    part = next(line for line in lines if "part of it" in line)
    assert part.startswith("\ra \\x1b[2Jpart"), "what it names is data"
    assert len(part) == 80, "it never wraps"
    assert text.endswith(CLEAR)


def test_messages_stand_on_lines_of_their_own() -> None:
    text, _ = on_terminal(
        "import sys, time\nfrom pytrace.base.terminal import prepare_streams\n"
        "prepare_streams(); terminal.show_on(2)\n"
        "with terminal.step('counting'):\n"
        "    shown(b'counting'); terminal.DELAY = 60.0; sys.stderr.write('a message\\n')\n"
        "terminal.DELAY = 0.0\n"
        "with terminal.step('counting'):\n"
        "    sys.stderr.write('half '); time.sleep(0.1); terminal.DELAY = 60.0; sys.stderr.write('a line\\n')\n"
    )  # fmt: skip
    assert f"{CLEAR}a message\r\n" in text
    assert "half a line\r\n" in text, "no line in the middle of another"


def test_steps_that_are_fast_show_nothing() -> None:
    text, _ = on_terminal("terminal.DELAY = 60.0\nterminal.show_on(2)\nwith terminal.step('counting'): pass\n")
    assert text == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(number: int) -> None:
    """The signal kills the process as it would without the line, also while it is in C."""
    sent: list[int] = []

    def interrupt(child: int, terminal: int, text: str) -> None:
        if "counting" in text and not sent:
            sent.append(number)
            if number == signal.SIGINT:
                os.write(terminal, b"\x03")
            else:
                os.kill(child, number)

    text, status = on_terminal(
        "import ctypes, signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nterminal.show_on(2)\n"
        "with terminal.step('counting'): ctypes.PyDLL(None).usleep(1); ctypes.CDLL(None).sleep(600)\n",
        interrupt,
    )
    assert os.WTERMSIG(status) == number
    assert text.endswith(CLEAR)


def test_signals_that_are_handled_stay_so() -> None:
    sent: list[int] = []

    def interrupt(_child: int, terminal: int, text: str) -> None:
        # On a busy machine it may be the second that is shown first.
        if text.endswith(" s)\x1b[K") and not sent:
            sent.append(os.write(terminal, b"\x03"))

    text, status = on_terminal(
        "import time\nterminal.show_on(2)\n"
        # Python runs its handler between two calls: a long one that had not quite begun would go on.
        "try:\n    with terminal.step('counting'):\n        while True: time.sleep(0.01)\n"
        "except KeyboardInterrupt: print('handled')\n",
        interrupt,
    )
    assert status == 0
    assert text.endswith(f"{CLEAR}handled\r\n")


def test_blocked_signals_are_as_before() -> None:
    text, _ = on_terminal(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nterminal.show_on(2)\n"
        "with terminal.step('counting'): pass\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.sigpending())\n"
    )
    # On a busy machine the step takes long enough to be shown, and is taken back.
    assert text.rpartition("\x1b[K")[2] == "set() set()\r\n"


def test_nothing_in_pipes_and_on_dumb_terminals() -> None:
    program = FAST + (
        "import os, time\nterminal.show_on(2)\nwith terminal.step('counting'): time.sleep(0.05)\n"
        "os.environ['TERM'] = 'dumb'; terminal.show_on(os.openpty()[1])\n"
        "with terminal.step('counting'): time.sleep(0.05)\n"
        "print(terminal._LINE.terminal)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("-1\n", "")


def test_a_part_of_nothing_is_nothing() -> None:
    with detail("reading"):
        assert not _LINE.busy


def test_a_step_ends_with_those_that_it_began() -> None:
    text, status = on_terminal(
        "import time\nterminal.show_on(2)\n"
        "with terminal.step('outer'):\n    left = terminal.step('inner'); left.__enter__(); time.sleep(0.05)\n"
        "print(terminal._LINE.busy)\nleft.__exit__(None, None, None)\n"
    )
    assert status == 0
    assert text.endswith(f"{CLEAR}False\r\n")


def test_without_threads() -> None:
    text, status = on_terminal(
        "import threading\nterminal.show_on(2)\n"
        "def start(self): raise RuntimeError('no more')\nthreading.Thread.start = start\n"
        "with terminal.step('counting'): print('done')\n"
    )
    assert (text, status) == ("done\r\n", 0)


# ---------------------------------------------------------------------------------------------- desktop
# The desktop's viewer: which program, as whom, with what environment, and that it waits for the file.


PROGRAM = """#!/bin/sh
PATH=/usr/bin:/bin
{ id -u; id -G; echo "$1"; env; } > "$1.part"
mv "$1.part" "$1.shown"
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a viewer that root has written, where everybody may look; below it one for files."""
    root = Path("/run") / f"pytrace-desktop-{os.getpid()}"
    if os.geteuid():
        pytest.skip("needs root, to be somebody else")
    root.mkdir(mode=0o755)
    (root / "files").mkdir()
    (root / "files").chmod(0o777)
    (root / "xdg-open").write_text(PROGRAM)
    (root / "xdg-open").chmod(0o755)
    monkeypatch.setattr(desktop, "FOLDERS", (str(root),))
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    try:
        yield root
    finally:
        for path in (*root.glob("files/*"), root / "xdg-open"):
            path.unlink()
        (root / "files").rmdir()
        root.rmdir()


def nothing() -> None:
    """Gives up nothing."""


def shown(path: Path) -> list[str]:
    """What the viewer wrote."""
    result, deadline = Path(f"{path}.shown"), time.monotonic() + patience(30)
    while not result.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return result.read_text().splitlines()


def test_the_user_who_called_sudo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwnam("nobody")
    monkeypatch.setenv("SUDO_UID", str(user.pw_uid))
    monkeypatch.setenv("SECRET", "of root")
    report = folder / "files" / "a 'report'; x.html"
    viewer = Viewer(str(report), nothing)
    assert not viewer.problem
    time.sleep(0.05)
    assert not Path(f"{report}.shown").exists(), "it is not written yet"
    viewer.open()
    viewer.open()
    uid, groups, path, *environment = shown(report)
    assert (int(uid), path) == (user.pw_uid, str(report))
    assert set(map(int, groups.split())) == set(os.getgrouplist(user.pw_name, user.pw_gid))
    assert {f"HOME={user.pw_dir}", "USER=nobody", "DISPLAY=:7"} <= set(environment)
    assert not any(line.startswith(("SECRET", "SUDO")) for line in environment)


@pytest.mark.parametrize("caller", ["", "0", "4294967294", "x"])
def test_root_itself_trusts_nothing_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caller: str
) -> None:
    if caller:
        monkeypatch.setenv("SUDO_UID", caller)
    others = folder / "files" / "xdg-open"
    others.write_text("#!/bin/sh\nexit 1\n")
    others.chmod(0o755)
    monkeypatch.setenv("PATH", str(others.parent))
    monkeypatch.setenv("BROWSER", str(others))
    report = folder / "files" / "r.html"
    Viewer(str(report), nothing).open()
    uid, _, path, *environment = shown(report)
    assert (int(uid), path) == (0, str(report))
    assert "BROWSER" not in "".join(environment)
    assert f"HOME={pwd.getpwuid(0).pw_dir}" in environment


def test_others_get_what_their_path_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwnam("nobody")
    monkeypatch.setattr(desktop, "FOLDERS", ())
    monkeypatch.setattr(desktop.os, "geteuid", lambda: user.pw_uid)
    monkeypatch.setenv("SUDO_UID", "0")
    monkeypatch.setenv("PATH", f".:/nowhere:{folder}:/usr/bin")
    monkeypatch.setenv("MINE", "yes")
    report = folder / "files" / "r.html"
    Viewer(str(report), lambda: os.setuid(user.pw_uid)).open()
    uid, _, path, *environment = shown(report)
    assert (int(uid), path) == (user.pw_uid, str(report)), "what it may not have is given up in the viewer's process"
    assert "MINE=yes" in environment
    monkeypatch.setenv("PATH", f"{folder}/files")
    assert Viewer(str(report), nothing).problem == "there is no xdg-open in PATH that nobody else could have written"


def test_a_run_that_failed_opens_nothing(folder: Path) -> None:
    viewer = Viewer(str(folder / "files" / "r.html"), nothing)
    assert viewer._process is not None
    assert viewer._process.stdin is not None
    viewer._process.stdin.close()
    assert viewer._process.wait(patience(30))
    assert not list(folder.glob("files/*"))


def test_a_program_that_others_can_write_is_not_run(folder: Path) -> None:
    program = folder / "xdg-open"
    program.chmod(program.stat().st_mode | stat.S_IWOTH)
    viewer = Viewer(str(folder / "files" / "r.html"), nothing)
    assert viewer.problem == f"there is no xdg-open in {folder} that nobody else could have written"
    viewer.open()


def test_no_desktop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY")
    assert "neither DISPLAY nor WAYLAND_DISPLAY" in Viewer(str(folder / "x.html"), nothing).problem


def test_the_session_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bus").touch()
    (tmp_path / "wayland-0").touch()
    user = pwd.getpwnam("nobody")
    real = os.path.isdir, os.path.exists
    place = f"/run/user/{user.pw_uid}"
    monkeypatch.setattr(desktop.os.path, "isdir", lambda path: real[0](path.replace(place, str(tmp_path))))
    monkeypatch.setattr(desktop.os.path, "exists", lambda path: real[1](path.replace(place, str(tmp_path))))
    environment = desktop._session(user, {"LANG": "C.UTF-8", "PATH": "/root/bin"})
    assert environment["DBUS_SESSION_BUS_ADDRESS"] == f"unix:path={place}/bus"
    assert environment["WAYLAND_DISPLAY"] == "wayland-0"
    assert "/root" not in environment["PATH"]
