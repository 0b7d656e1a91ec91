"""When iterators run: before the notice that everything is attached, but after the command of -c has begun."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support import leaks
from tests.support.machine import need
from tests.support.server import Running, Server

NOTED = (
    "iter:task_file { if (ctx.task.tgid == %d) { @files++; } } "
    'tracepoint:syscalls:sys_enter_getppid /pid == %d/ { printf("noted %%d\\n", @files > 0); exit(); }'
)


def ask(_running: Running) -> None:
    os.getppid()


@pytest.fixture(autouse=True)
def _surroundings(server: Server) -> Iterator[None]:
    need("iter", "syscalls")
    server.run(("--version",))  # it starts before processes are counted
    with leaks.no_leaks():
        yield


def test_what_they_note_is_there_when_the_notice_comes(server: Server) -> None:
    me = os.getpid()
    for _ in range(5):
        result = server.run(("-e", NOTED % (me, me)), while_attached=ask)
        assert result.status == 0
        assert result.stdout.startswith("noted 1\n"), result


@pytest.mark.parametrize(
    ("begin", "each", "shown"), [("", "", 4), ("", "if (ctx.task.pid == 2) { exit(); }", 2), ("exit();", "", 0)]
)
def test_exit_leaves_out_the_iterators_that_follow(server: Server, begin: str, each: str, shown: int) -> None:
    iterators = [
        f'iter:task /ctx.task.pid == 2 || ctx.task.pid == {os.getpid()}/ {{ printf("{name}\\n"); {each} }} '
        for name in ("one", "other")
    ]
    script = f'begin {{ printf("begin\\n"); {begin} }} {"".join(iterators)}'
    result = server.run(("-e", script), when_attached=("signal INT",))
    assert result.status == 0
    first, *names = result.stdout.split()
    assert first == "begin"
    assert len(names) == shown, result
    assert names[:2] in ([], ["one"] * 2, ["other"] * 2), "each shows all its items"


def test_the_command_runs_before_them(server: Server) -> None:
    script = 'iter:task { if (ctx.task.tgid == cpid && ctx.task.comm == "sleep") { printf("%s\\n", ctx.task.comm); } }'
    result = server.run(("-e", script + " interval:ms:100 { exit(); }", "-c", "sleep 600"))
    assert result.status == 0
    assert result.stdout.split() == ["sleep"], result
