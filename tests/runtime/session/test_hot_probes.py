"""The question before probes that are hit very often: for which, and what an answer does."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Location
from pytrace.core.manifest import CompiledScript, Manifest, ProgramSpec, Target
from pytrace.core.options.run_options import RunOptions
from pytrace.core.probes.targets import NoTarget
from pytrace.runtime.session import hot_probes as module
from pytrace.runtime.session.hot_probes import Estimate
from tests.support.rows import each_row

HERE = Location("x.bt", 1, 1)


def program(*names: str, service: bool = False) -> ProgramSpec:
    targets = tuple(Target(name, number, NoTarget()) for number, name in enumerate(names))
    return ProgramSpec(f"p_{names[0]}", names[0].partition(":")[0], 0, targets, HERE, service=service)


@each_row(
    ("name", "subject"),
    [
        ("tracepoint:sched:sched_switch", "the scheduler"),
        ("rawtracepoint:sched_wakeup", "the scheduler"),
        ("kprobe:__schedule", "the scheduler"),
        ("fentry:vmlinux:try_to_wake_up", "the scheduler"),
        ("tracepoint:lock:contention_begin", "locks"),
        ("kprobe:_raw_spin_lock", "locks"),
        ("fexit:vmlinux:mutex_lock", "locks"),
        ("tracepoint:kmem:kmalloc", "memory allocation"),
        ("kretprobe:kfree", "memory allocation"),
        ("tracepoint:raw_syscalls:sys_enter", "all system calls"),
        ("rawtracepoint:sys_exit", "all system calls"),
        ("tracepoint:irq_vectors:local_timer_entry", "interrupts and timers"),
        ("tracepoint:timer:timer_start", "interrupts and timers"),
        ("tracepoint:syscalls:sys_enter_openat", ""),
        ("uprobe:/lib/libpthread.so:pthread_mutex_lock", ""),
        ("kprobe:do_sys_openat2", ""),
        ("profile:hz:99", ""),
        ("usdt:/bin/app:sched:switch", ""),
    ],
)
def test_what_is_known_to_be_hit_very_often(name: str, subject: str) -> None:
    assert module.subjects([program(name)]) == ([subject] if subject else [])


class Asked:
    """A terminal whose user gives *answer*, and a trial with a result."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, share: float = 0.5, answer: bool = True) -> None:
        self.trials: list[int] = []
        self.questions = 0

        def trial(_script: object, programs: list[ProgramSpec], _options: object) -> Estimate:
            self.trials.append(sum(len(item.targets) for item in programs))
            return Estimate(123_456.7, share)

        def agreed() -> bool:
            self.questions += 1
            return answer

        monkeypatch.setattr(module, "trial", trial)
        monkeypatch.setattr(module, "_agreed", agreed)

    def confirm(self, *programs: ProgramSpec) -> None:
        script = CompiledScript(b"", Manifest(programs, (), (), (), Config()))
        module.confirm(script, RunOptions())


def test_the_question_says_what_it_is_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(monkeypatch)
    asked.confirm(program("tracepoint:sched:sched_switch"), program("kprobe:mutex_lock", "kprobe:mutex_unlock"))
    assert asked.trials == [3]
    assert capsys.readouterr().err == (
        "3 probes (the scheduler, locks): 123,457 hits per second in a trial of 0.1 s, which cost about 50% of one "
        "processor.\nTrace them? [y/N] "
    )


def test_no_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match="nothing was traced") as found:
        Asked(monkeypatch, answer=False).confirm(program("tracepoint:sched:sched_switch"))
    assert "--yes" in found.value.hints[0]


def test_few_probes_of_other_names_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    asked.confirm(program(*(f"kprobe:f{number}" for number in range(module.MANY))))
    asked.confirm(program("tracepoint:sched:sched_process_fork", service=True))
    assert asked.trials == []
    asked.confirm(program(*(f"kprobe:f{number}" for number in range(module.MANY + 1))))
    assert asked.trials == [module.MANY + 1]


def test_what_costs_little_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, share=module.NOTABLE / 2)
    asked.confirm(program("tracepoint:sched:sched_switch"))
    assert asked.trials == [1]
    assert asked.questions == 0


@pytest.mark.parametrize(
    ("text", "agreed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False), ("yeah\n", False)]
)
def test_answers(text: str, agreed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def readline(self) -> str:
            return text

    monkeypatch.setattr(module.sys, "stdin", cast(Any, Terminal()))
    assert module._agreed() is agreed
