"""Programs that serve those of a script."""

from __future__ import annotations

from pytrace.core.options import CompileOptions, ProcessFilters
from tests.codegen.running import compiled
from tests.codegen.test_generator import FORKS


def test_a_service_comes_after_the_programs_of_the_script_and_has_no_block() -> None:
    options = CompileOptions(filters=ProcessFilters((7,)), follow=True)
    script = compiled("tracepoint:sched:sched_switch { @n++; }", FORKS, options)
    found = [(spec.service, spec.index) for spec in script.manifest.programs]
    assert found[0] == (False, 0)
    assert set(found[1:]) == {(True, -1)}
    assert len({spec.symbol for spec in script.manifest.programs}) == len(found)
