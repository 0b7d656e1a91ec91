"""iter: context, pins, and what it cannot share."""

from __future__ import annotations

import pytest

from pytrace.core.config import Config
from pytrace.core.probes.targets import ITERATORS_OF_ONE_OBJECT, IteratorTarget
from tests.frontend.expanding import Expanded


def test_iterator() -> None:
    unit = Expanded("iter:task { }").unit
    assert unit.targets[0].place == IteratorTarget("task")
    assert str(unit.context.ctx_type) == "struct bpf_iter__task *"


@pytest.mark.parametrize(("pin", "path"), [("list", "/sys/fs/bpf/list"), ("/sys/fs/bpf/x/y", "/sys/fs/bpf/x/y")])
def test_iterator_pins(pin: str, path: str) -> None:
    assert Expanded(f"iter:task:{pin} {{ }}").unit.targets[0].of(IteratorTarget).pin == path


def test_iterator_errors() -> None:
    assert "iter:task" in Expanded("iter:tsk { }").hints[0]
    assert "pattern" in Expanded("iter:* { }").errors[0]
    assert "cannot share its block" in Expanded("iter:task, begin { }").errors[0]
    assert "cannot share its block" in Expanded("iter:task, iter:task { }").errors[0]


@pytest.mark.parametrize("name", sorted(ITERATORS_OF_ONE_OBJECT))
def test_iterators_of_an_object_that_a_probe_cannot_name(name: str) -> None:
    message = f"iter:{name} iterates over one map or cgroup, which a probe cannot name"
    assert Expanded(f"iter:{name} {{ }}").errors == [message]
    skipped = Expanded(f"iter:{name} {{ }} begin {{ }}", config=Config(missing_probes="warn"))
    assert skipped.warnings == [f"{message}; probe skipped"]
