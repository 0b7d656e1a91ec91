"""What the functions of a program share: scratch memory, the stack, failures."""

from __future__ import annotations

import pytest

from pytrace.codegen.emit.storage import COPIES
from tests.codegen.running import compiled, machine, ran
from tests.support.bpf_machine import Machine
from tests.support.facts import RecordedKernel


class Watched(Machine):
    """Notes the words in which bits are set."""

    def _atomic(self, place: int, size: int, r: list[int], src: int, imm: int) -> None:
        if imm & 0xF0 == 0x40:
            self.words.add(place)
        super()._atomic(place, size, r, src, imm)


def test_programs_of_user_probes_claim_a_copy_of_the_scratch_area() -> None:
    """With all of them in use the program ends, and counts as a missed hit."""
    found = Watched(compiled("uprobe:/bin/app:work { @s[str(uptr(1))] = 1; @n++; }", RecordedKernel()))
    found.words = set()
    found.run()
    (word,) = found.words
    assert found.load(word, 8) == 0, "the copy is given back"
    for used in range(COPIES):
        found.write(word, ((1 << used) - 1).to_bytes(8, "little"))
        found.run()
        assert (found.slot("@n"), found.load(word, 8)) == (2 + used, (1 << used) - 1)
    found.write(word, ((1 << COPIES) - 1).to_bytes(8, "little"))
    found.run()
    assert (found.slot("@n"), found.counts()["missed"]) == (1 + COPIES, 1)


def test_a_program_alone_on_its_cpu_claims_nothing() -> None:
    script = compiled("kprobe:vfs_read { @s = str(kptr(1)); }")
    assert script.manifest.counters is None or "missed" not in {kind for kind, _ in script.manifest.counters.names}


def test_variables_start_as_zero_in_each_run() -> None:
    found = machine("begin { let $x: int64; for ($i : 0..2) { $x += 5; } @ = $x; }")
    for _ in range(3):
        found.run()
        assert found.slot("@") == 10


@pytest.mark.parametrize("limit", [0, 32, 500])
def test_values_are_the_same_wherever_they_live(limit: int) -> None:
    script = f"""config = {{ on_stack_limit = {limit} }} begin {{
      $s = "some text"; $t = ($s, 5, (1, 2)); @m[$t] = $s; print(($t.2.1, @m[$t], comm)); }}"""
    assert ran(script).printed() == [(2, b"some text", b"task")]


def test_results_of_programs() -> None:
    """A tracepoint program's 0 would keep the event from others; trampolines must return 0."""
    for script, result in (
        ("begin { return 7; }", 7), ("begin { }", 0), ("tracepoint:sched:sched_switch { }", 1),
        ("tracepoint:sched:sched_switch { return 5; }", 1), ("kprobe:vfs_read { return 5; }", 0),
    ):  # fmt: skip
        assert machine(script).run() == result, script


def test_elapsed_time_is_that_of_the_session() -> None:
    script = compiled("begin { print(elapsed); }")
    assert script.manifest.session is not None
    assert compiled("begin { print(pid); }").manifest.session is None
