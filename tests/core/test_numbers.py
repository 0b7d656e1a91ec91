"""Numbers, bytes and settings as text."""

from __future__ import annotations

import errno
import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins

from pytrace.base import cgroups
from pytrace.cli import main
from pytrace.core import diagnostics
from pytrace.core.diagnostics import TraceError
from pytrace.core.options import Config
from pytrace.core.text import escaped_utf8, parse_integer, printable_utf8
from pytrace.frontend.expand.settings import parse_boolean
from tests.support.encode import unescaped_utf8
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- numbers
# .


@each_row(
    ("text", "value"),
    [
        ("0", 0),
        ("42", 42),
        ("-42", -42),
        ("+7", 7),
        ("1_000_000", 1_000_000),
        ("0x1F", 31),
        ("0xdead_beef", 0xDEADBEEF),
        ("0b101", 5),
        ("017", 15),
        ("3e6", 3_000_000),
        ("5u", 5),
        ("5ULL", 5),
        ("10ms", 10_000_000),
        ("2s", 2 * 10**9),
        ("1d", 86_400 * 10**9),
    ],
)
def test_integers(text: str, value: int) -> None:
    assert parse_integer(text) == value


@each_row("text", ["", "x", "1_", "_1", "08", "0x", "12e3", "1.5", "5 ", "5q", "0x1u", "--1"])
def test_no_integers(text: str) -> None:
    assert parse_integer(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("ON", True), ("yes", True), ("1", True), ("off", False), ("No", False), ("2", None)],
)
def test_booleans(text: str, value: bool | None) -> None:
    assert parse_boolean(text) is value


# ---------------------------------------------------------------------------------------------- byte escapes
# .


@pytest.mark.parametrize(
    ("text", "utf8", "shown"),
    [
        (b"plain\ttext\r\n", "plain\ttext\r\n", b"plain\ttext\r\n"),
        ("grün →".encode(), "grün →", "grün →".encode()),
        (b"a\xffb\xc3", "a\\xffb\\xc3", b"a\\xffb\\xc3"),
        (b"\x1b[1m\x00\x7f", "\x1b[1m\x00\x7f", b"\\x1b[1m\\x00\\x7f"),
        ("\x9b".encode(), "\x9b", b"\\xc2\\x9b"),
        (rb"C:\x \xff \\x1b", r"C:\x \x5cxff \\x5cx1b", rb"C:\x \x5cxff \\x5cx1b"),
    ],
)
def test_escapes(text: bytes, utf8: str, shown: bytes) -> None:
    assert escaped_utf8(text) == utf8
    assert printable_utf8(text) == shown


@given(st.binary(max_size=12) | st.text("\\x5c0f\x1b\x9bé", max_size=12).map(str.encode))
def test_nothing_is_lost(text: bytes) -> None:
    assert unescaped_utf8(escaped_utf8(text).encode()) == text
    assert unescaped_utf8(printable_utf8(text)) == text


# ---------------------------------------------------------------------------------------------- config
# The configuration: keys that a manifest of another version has or lacks.


def test_what_is_written_is_read_again() -> None:
    config = Config(max_strlen=99, missing_probes="warn", cpp_demangle=False)
    assert convert(to_builtins(config), Config) == config
    assert set(to_builtins(config)) == set(Config.__struct_fields__)


def test_missing_keys_have_their_default_and_unknown_ones_are_ignored() -> None:
    assert convert({"max_strlen": 5, "from_the_future": 1}, Config) == Config(max_strlen=5)


# ---------------------------------------------------------------------------------------------- limits
# Resource limits are reported as such, wherever they are hit.


def caused(error: Exception, by: Exception, *, on_purpose: bool) -> Exception:
    try:
        try:
            raise by
        except Exception as inner:
            if on_purpose:
                raise error from inner
            raise error  # noqa: B904
    except Exception as raised:  # noqa: BLE001
        return raised


MEMORY = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ImportError("libx.so: failed to map segment from shared object"),
    OSError("libx.so: cannot map zero-fill pages: Cannot allocate memory"),
    caused(ValueError("other"), MemoryError(), on_purpose=True),
    caused(OSError("Could not find/load shared object file"), OSError("failed to map segment from shared object"),
           on_purpose=False),
]  # fmt: skip


@pytest.mark.parametrize("error", MEMORY, ids=repr)
def test_memory(error: Exception) -> None:
    found = diagnostics.resource_limit(error)
    assert found is not None
    assert found.message == "out of memory"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(errno.EMFILE, "x"), "ulimit -n"),
        (OSError(errno.ENFILE, "x"), "/proc/sys/fs/file-max"),
        (ImportError("libx.so: cannot open shared object file: Too many open files"), "ulimit -n"),
    ],
    ids=repr,
)
def test_files(error: Exception, hint: str) -> None:
    found = diagnostics.resource_limit(error)
    assert found is not None
    assert found.message.startswith("too many open files: Too many open files")
    assert hint in found.hints[0]


def test_threads_and_output() -> None:
    found = diagnostics.resource_limit(RuntimeError("can't start new thread"))
    assert found is not None
    assert found.message == "cannot start another thread"
    found = diagnostics.resource_limit(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
    assert found is not None
    assert found.message == "cannot start another process"
    assert found.hints == ("see ulimit -u and pids.max of the cgroup",)
    found = diagnostics.resource_limit(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert found is not None
    assert found.message == "cannot write output: No space left on device"


@pytest.mark.parametrize(
    "error",
    [
        KeyError(1), RuntimeError("odd"), ImportError("no module"), OSError(errno.EINVAL, "x"),
        OSError(errno.ENOSPC, "x", "file"), OSError("odd"),
    ],
    ids=repr,
)  # fmt: skip
def test_everything_else_is_none(error: Exception) -> None:
    assert diagnostics.resource_limit(error) is None


@pytest.mark.parametrize(
    ("limit", "option"), [(resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")], ids=["as", "data"]
)
def test_a_limit_of_memory_is_named(limit: int, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (resource.RLIM_INFINITY,) * 2
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (300 << 20, 300 << 20) if asked == limit else endless)
    (hint,) = diagnostics.no_memory().hints
    assert "300 MiB" in hint
    assert f"ulimit {option}" in hint


def test_without_a_limit_the_hint_says_what_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert "max_map_keys" in diagnostics.no_memory().hints[0]


def test_the_command_line_tells_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(main, "run", fail)
    assert main.main(["-e", "begin { }"]) == TraceError("").status == 1
    assert capsys.readouterr().err.startswith("ERROR: out of memory\nHINT: ")


WITHOUT = ["error return without exception set", "<method> returned NULL without setting an exception"]


@pytest.mark.parametrize("text", WITHOUT)
def test_a_failed_allocation_that_says_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "memory_is_limited", lambda: True)
    found = diagnostics.resource_limit(SystemError(text))
    assert found is not None
    assert found.message == "out of memory"
    assert diagnostics.resource_limit(SystemError("bad argument to internal function")) is None
    monkeypatch.setattr(diagnostics, "memory_is_limited", lambda: False)
    assert diagnostics.resource_limit(SystemError(text)) is None


def test_the_limit_of_the_memory_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "memory_limit", lambda: cgroups.MemoryLimit(100 << 20, "/a"))
    assert diagnostics.memory_cgroup_hints() == ["the memory of cgroup /a is limited to 100 MiB, maps included"]
    monkeypatch.setattr(cgroups, "memory_limit", lambda: None)
    assert diagnostics.memory_cgroup_hints() == []
