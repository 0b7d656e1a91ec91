"""A module is unloaded and loaded again while its functions are traced: it is held, or what ended is reported."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.kernel_features import program
from tests.support.machine import need
from tests.support.running import Tracer

pytestmark = pytest.mark.usefixtures("no_leaks")

MODULE = "dummy"


def modprobe(*words: str) -> bool:
    done = subprocess.run([program("modprobe") or "false", "-q", *words, MODULE], check=False)
    return done.returncode == 0


@pytest.fixture
def module() -> Iterator[None]:
    """A module that can be loaded and unloaded here."""
    need("modules")
    if not modprobe() or not modprobe("-r") or not modprobe():
        pytest.skip(f"the module {MODULE} cannot be loaded and unloaded here")
    yield
    modprobe("-r")


def use() -> None:
    """Call a function of the module once."""
    for words in (("add", "faults0", "type", MODULE), ("del", "faults0")):
        subprocess.run([program("ip"), "link", *words], check=True)


@pytest.mark.each_kernel
def test_kprobes_end_with_the_module(module: None) -> None:
    """The kernel unloads it, or holds it for a multi link (since 6.2)."""
    need("kprobe")
    with Tracer("-e", "kprobe:dummy_validate { @ = count(); }") as tracer:
        use()
        if modprobe("-r"):
            tracer.said("WARNING: module dummy was unloaded: kprobes of dummy_validate ended with it")
            assert modprobe()
            tracer.said("WARNING: module dummy was loaded again, but its probes are not")
        status, out, _ = tracer.end()
    assert status == 0
    assert int(re.findall(r"@: (\d+)", out)[0]) > 0
    assert modprobe("-r"), "it is not held any more"


def test_fentry_holds_the_module(module: None) -> None:
    need("fentry", "module_btf")
    with Tracer("-e", "fentry:dummy:dummy_validate { @ = count(); }") as tracer:
        use()
        assert not modprobe("-r")
        use()
        status, out, said = tracer.end()
    assert (status, "unloaded" in said) == (0, False)
    assert int(re.findall(r"@: (\d+)", out)[0]) > 1
    assert modprobe("-r"), "it is not held any more"
