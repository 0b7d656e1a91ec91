"""Fields that programs of raw tracepoints read from the arguments."""

from __future__ import annotations

import struct
from typing import Any

from tests.codegen.running import machine
from tests.frontend.attach.test_raw_tracepoints import KERNEL


def printed(body: str) -> list[Any]:
    found = machine(f"t:sched:sched_waking {{ {body} }}", KERNEL)
    (spec,) = found.script.manifest.programs
    assert spec.multi == "raw_tracepoint"
    task = found.region(struct.pack("<ii16si", 1234, 120, b"short\0garbage", -1).ljust(64, b"\0"))
    found.run(spec.symbol, struct.pack("<Q", task))
    return found.printed()


def test_members_and_text() -> None:
    assert printed("print(args.pid); print(args.target_cpu); print(args.comm);") == [1234, -1, b"short"]


def test_the_name_of_the_probe_is_that_of_the_tracepoint() -> None:
    assert printed("print(probe);") == [b"tracepoint:sched:sched_waking"]
