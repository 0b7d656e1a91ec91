"""A PostgreSQL of the test's own, in a temporary folder and on a unix socket only. Debian's has USDT probes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import patience
from tests.support.tools import cannot


@dataclass(frozen=True)
class Database:
    """A running server; *program* is the file with its probes."""

    pid: int
    program: str
    folder: str
    psql: str

    def query(self, *statements: str) -> list[str]:
        """Run statements in one session, each a query of its own; the lines of their results."""
        words = [self.psql, "-h", self.folder, "-U", "tester", "-d", "postgres", "-X", "-A", "-t", "-q"]
        words += [word for statement in statements for word in ("-c", statement)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=patience(60))
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[:-1]


def sleep(milliseconds: int) -> str:
    """A query that takes at least that long."""
    return f"select pg_sleep({milliseconds / 1000})"


@contextmanager
def postgres() -> Iterator[Database]:
    """Make a cluster, start it as an unprivileged user, end it and remove it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        cannot("PostgreSQL is not installed, which scripts/test does")
    programs = found[-1].parent
    folder = tempfile.mkdtemp(prefix="pytrace-pg-")
    try:
        os.chmod(folder, 0o755)
        shutil.chown(folder, "nobody")
        _as_nobody(
            programs / "initdb",
            "-D",
            f"{folder}/data",
            "-U",
            "tester",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
            "--no-instructions",
        )
        settings = ("listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "shared_buffers=8MB")
        options = " ".join(f"-c {setting}" for setting in settings)
        _as_nobody(
            programs / "pg_ctl",
            "-D",
            f"{folder}/data",
            "-w",
            "-t",
            "300",
            "-l",
            f"{folder}/log",
            "-o",
            options,
            "start",
        )
        try:
            pid = int(Path(folder, "data/postmaster.pid").read_text().split()[0])
            yield Database(pid, str(programs / "postgres"), folder, str(programs / "psql"))
        finally:
            _as_nobody(programs / "pg_ctl", "-D", f"{folder}/data", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _as_nobody(program: Path, *arguments: str) -> None:
    """PostgreSQL refuses to be started by root."""
    log = Path(tempfile.gettempdir()) / f"pytrace-pg-{os.getpid()}.log"
    with log.open("w") as out:  # no pipe: the server would keep it open
        done = subprocess.run(
            [program, *arguments], user="nobody", cwd="/", check=False, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, timeout=patience(60), env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    text = log.read_text()
    log.unlink()
    assert done.returncode == 0, text
