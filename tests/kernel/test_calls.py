"""``pytrace calls``: the calls of a program, with what they read and wrote."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import Server

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("no_leaks")]

PROGRAM = r"""
import os, signal, socket, sys
os.write(1, b"hello\x1b[31m\n")
made = os.open("a\nfile", os.O_CREAT | os.O_RDWR, 0o640)
os.writev(made, [b"ab", b"cde"])
os.lseek(made, 0, os.SEEK_SET)
os.readv(made, [bytearray(2), bytearray(9)])
copy = os.dup(made)
os.close(made)
server = socket.socket(socket.AF_UNIX)
server.bind("listens")
server.listen()
client = socket.socket(socket.AF_UNIX)
client.connect("listens")
client.sendmsg([b"one", b"two"])
other, _ = server.accept()
other.recvmsg(20)
try:
    os.stat("/nonexistent/file")
except OSError:
    pass
os.kill(os.getpid(), signal.SIGWINCH)
child = os.fork()
if not child:
    os._exit(3)
os.waitpid(child, 0)
"""


def calls(server: Server, folder: Path, *options: str) -> list[str]:
    (folder / "program.py").write_text(PROGRAM)
    command = f"{sys.executable} -I -S {folder}/program.py"
    result = server.run(("calls", "-c", command, "-o", f"{folder}/calls", *options), cwd=folder, timeout=60)
    assert result.status == 0, result
    assert "WARNING" not in result.stderr, result.stderr
    return (folder / "calls").read_text().splitlines()


EXPECTED = (
    r'execve\("/\S+", \["\S+", "-I", "-S", "\S+program.py"\], 0x\w+ /\* \d+ vars \*/\) = 0 <0\.\d{6}>',
    r'write\(1<\S+>, "hello\\33\[31m\\n", 11\) += 11 <.*>',
    r'openat\(AT_FDCWD<DIR>, "a\\nfile", O_RDWR\|O_CREAT\|O_CLOEXEC, 0640\) = 3<DIR/a\\x0afile> <.*>',
    r'writev\(3<DIR/a\\x0afile>, \[\{iov_base="ab", iov_len=2\}, \{iov_base="cde", iov_len=3\}\], 2\) = 5 <.*>',
    r"lseek\(3<DIR/a\\x0afile>, 0, SEEK_SET\) += 0 <.*>",
    r'readv\(3<DIR/a\\x0afile>, \[\{iov_base="ab", iov_len=2\}, \{iov_base="cde", iov_len=9\}\], 2\) = 5 <.*>',
    r"fcntl\(3<DIR/a\\x0afile>, F_DUPFD_CLOEXEC, 0\) = 4<DIR/a\\x0afile> <.*>",
    r"close\(3<DIR/a\\x0afile>\) += 0 <.*>",
    r'bind\(3<socket:UNIX>, \{sa_family=AF_UNIX, sun_path="listens"\}, 10\) = 0 <.*>',
    r'connect\(5<socket:UNIX>, \{sa_family=AF_UNIX, sun_path="listens"\}, 10\) = 0 <.*>',
    r'sendmsg\(5<socket:listens>, \{.* msg_iov=\[\{iov_base="one", iov_len=3\}, \{iov_base="two", .* 0\) = 6 <.*>',
    r'recvmsg\(6<\S+>, \{msg_name=NULL, msg_namelen=0, msg_iov=\[\{iov_base="onetwo", iov_len=20\}\], .*\) = 6 <.*>',
    r'newfstatat\(AT_FDCWD<DIR>, "/nonexistent/file", 0x\w+, 0\) = -1 ENOENT \(No such file or directory\) <.*>',
    r"kill\(\d+, SIGWINCH\) += 0 <.*>",
    r"wait4\(\d+, \[\{WIFEXITED\(s\) && WEXITSTATUS\(s\) == 3\}\], 0, NULL\) = \d+ <.*>",
    r"exit_group\(0\) += \?",
    r"\+\+\+ exited with 0 \+\+\+",
)


def test_each_call_has_its_arguments_and_result(server: Server, tmp_path: Path) -> None:
    lines = calls(server, tmp_path)
    position = 0
    for pattern in EXPECTED:
        wanted = re.compile(pattern.replace("DIR", re.escape(str(tmp_path))))
        found = next((index for index in range(position, len(lines)) if wanted.fullmatch(lines[index])), None)
        assert found is not None, (pattern, lines[position:])
        position = found


def test_filters_summary_and_json(server: Server, tmp_path: Path) -> None:
    (tmp_path / "listens").unlink(missing_ok=True)
    failed = calls(server, tmp_path, "--failed", "--follow", "syscall:*stat*", "-f", "json")
    rows = [json.loads(line) for line in failed]
    assert {row["call"] for row in rows} <= {"newfstatat", "readlink", "statx"}
    assert any(row["args"][1] == '"/nonexistent/file"' and row["result"] == -2 for row in rows)
    (tmp_path / "listens").unlink()
    table = calls(server, tmp_path, "--summary", "--follow", "syscall:exit*", "syscall:kill", "syscall:wait4")
    assert table[0].split() == ["%TIME", "TOTAL(ms)", "CALLS", "ERRORS", "AVG(us)", "P99(us)", "CALL"]
    counts = {line.split()[-1]: int(line.split()[2]) for line in table[1:]}
    assert counts["kill"] == counts["wait4"] == 1


@pytest.mark.needs("strace")
def test_a_program_makes_the_calls_that_strace_shows(server: Server, tmp_path: Path) -> None:
    program = "env -i /usr/bin/ls -n /etc/passwd /nonexistent"
    # A run of the server writes to files, too.
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        subprocess.run(["strace", "-o", "theirs", *program.split()], cwd=tmp_path, stdout=out, stderr=err)
    result = server.run(("calls", "--no-names", "-o", "ours", "-c", program), cwd=tmp_path, timeout=60)
    assert result.status == 0, result

    def comparable(name: str) -> list[str]:
        lines = (tmp_path / name).read_text().splitlines()
        lines = [re.sub(r" <[0-9.]+>$", "", line) for line in lines if not line.startswith(("+++", "---"))]
        lines = [re.sub(r"0x[0-9a-f]{6,}|/\* \d+ vars \*/|set_tid_address.*|getrandom.*", "", line) for line in lines]
        start = max(index for index, line in enumerate(lines) if line.startswith("execve(") and line.endswith("= 0"))
        return [re.sub(r"\s+= ", " = ", line) for line in lines[start:]]

    ours, theirs = comparable("ours"), comparable("theirs")
    assert len(ours) == len(theirs) > 20, (ours, theirs)
    # The standard output of both is another file.
    different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    assert all(mine.startswith(("newfstatat(1", "newfstatat(2")) for mine, _ in different), different
