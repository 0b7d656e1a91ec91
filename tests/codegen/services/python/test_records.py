"""Sizes that programs and the session agree on; what is copied is shown in tests/kernel/test_python_stacks.py."""

from __future__ import annotations

from pytrace.codegen.walkers import python_threads
from pytrace.core.python_format import FILE, KEY, LONGEST, NAME, RECORD, ROW, SLOT, TABLE, UNIT
from pytrace.runtime.stacks import python_interpreters


def test_a_record_fits_an_element() -> None:
    assert RECORD.size == 64
    assert RECORD.size + NAME + FILE + TABLE <= LONGEST <= SLOT // 2
    assert LONGEST % UNIT == SLOT % UNIT == 0
    assert all(limit % 8 == 0 for limit in (NAME, FILE, TABLE))


def test_the_state_has_room_for_all_versions() -> None:
    for row in python_interpreters._rows()[0].values():
        assert row.code_size <= python_threads.HEAD_SIZE
        assert row.frame_size <= python_threads.BUFFER_SIZE
        assert row.frame_instruction + 8 <= row.frame_size
    assert python_threads.STATE_KEY % 8 == ROW % 8 == KEY % 8 == 0
