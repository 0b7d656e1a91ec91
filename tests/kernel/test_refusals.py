"""Each class of refusals, provoked by a program made for it: place, sentence and hint of the message."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pytrace.runtime.load import loader
from tests.support import refused
from tests.support.machine import kernel_version
from tests.support.refused import FILE, PROGRAMS, Refused

pytestmark = pytest.mark.usefixtures("no_leaks")


def refusal(program: Refused, log_size: int = 1_000_000) -> loader.LoadError:
    """The error of loading a program."""
    with ExitStack() as stack, pytest.raises(loader.LoadError) as raised:
        loader.load(refused.script(program, log_size), options=loader.LoadOptions(), stack=stack)
    return raised.value


def named(name: str) -> Refused:
    return next(program for program in PROGRAMS if program.name == name)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_refused_program(program: Refused) -> None:
    if not program.since <= kernel_version() < program.until:
        with ExitStack() as stack:
            loader.load(refused.script(program), options=loader.LoadOptions(), stack=stack)
        return
    error = refusal(program)
    head, *excerpt = error.message.splitlines()
    assert head.startswith("the kernel's verifier rejected ")
    assert program.says in head, error.log[-2000:]
    assert program.hint in error.hints[0]
    assert error.hints[-1] == "-v shows the full verifier log"
    line = program.line or (error.location.line if error.location is not None else 0)
    column = 1 if line == 1 else 3
    assert head.endswith(f"({FILE}:{line}:{column})"), error.log[-2000:]
    text = refused.source(program).text.split("\n")[line - 1]
    assert excerpt[0] == text
    assert excerpt[1].startswith(f"{' ' * (column - 1)}~")
    assert excerpt[2].startswith("the verifier says: ")
    assert "processed " in error.log


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize("name", ["instructions", "branches"])
def test_a_log_that_does_not_fit(name: str, size: int) -> None:
    """Kernels before 6.4 keep what comes first: the reason comes from a second try without instructions."""
    program = named(name)
    error = refusal(program, log_size=size)
    assert program.says in error.message
    assert f"({FILE}:" in error.message
    assert "processed " in error.log
    assert not error.cut
