"""Tools of disks compiled for kernels that neither this machine nor the test machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import FunctionPrototype, KernelFunction
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import BOOL, INT32, UINT32, UINT64, Enum, Field, Int, Pointer, String, Struct, Type
from tests.support.facts import TASK, RecordedKernel, function
from tests.support.rows import each_row
from tests.support.tools import SCRIPTS

TOOLS = ("biolatency", "biosnoop", "biotop", "biopattern", "bitesize", "biostacks", "mdflush")
DISK = Struct(
    "struct", "gendisk", 64,
    (Field("major", INT32, 0), Field("first_minor", INT32, 8), Field("disk_name", String(32), 16)),
    origin="vmlinux", alignment=8,
)  # fmt: skip
BIO_OLD = Struct(
    "struct", "bio", 16, (Field("bi_disk", Pointer(DISK), 0), Field("bi_opf", UINT32, 8)), origin="vmlinux"
)  # fmt: skip
QUEUE_OLD = Struct("struct", "request_queue", 8, (Field("nr_requests", UINT64, 0),), origin="vmlinux", alignment=8)
QUEUE_NEW = Struct("struct", "request_queue", 8, (Field("disk", Pointer(DISK), 0),), origin="vmlinux", alignment=8)
ENUMS = {
    "req_flag_bits": Enum("req_flag_bits", 4, False, tuple(
        (f"__REQ_{name}", bit) for bit, name in enumerate(
            ("SYNC", "META", "PRIO", "NOMERGE", "IDLE", "INTEGRITY", "FUA", "PREFLUSH", "RAHEAD", "BACKGROUND"), 11
        )
    )),
}  # fmt: skip


def request(*last: Field) -> Struct:
    members = (
        Field("q", Pointer(QUEUE_NEW if not last else QUEUE_OLD), 0), Field("cmd_flags", UINT32, 8),
        Field("__data_len", UINT32, 12), Field("__sector", UINT64, 16), *last,
    )  # fmt: skip
    return Struct("struct", "request", 32, members, origin="vmlinux", alignment=8)


OLD, NEW = request(Field("rq_disk", Pointer(DISK), 24)), request()


def kernel(
    own: Struct, raw: dict[str, FunctionPrototype], *functions: str, parameters: tuple[tuple[str, Type], ...] = ()
) -> RecordedKernel:
    structs = (TASK, DISK, BIO_OLD, QUEUE_OLD if own is OLD else QUEUE_NEW, own)
    return RecordedKernel(
        raw=raw, structs={(item.kind, item.name): item for item in structs}, enums=ENUMS,
        traceable=tuple(map(KernelFunction, functions)),
        prototypes=tuple(function(name, *parameters) for name in functions if parameters),
    )  # fmt: skip


def typed(own: Struct, *queue: tuple[str, Pointer]) -> dict[str, FunctionPrototype]:
    rq = ("rq", Pointer(own))
    return {
        "block_rq_insert": function("block_rq_insert", *queue, rq),
        "block_rq_issue": function("block_rq_issue", *queue, rq),
        "block_rq_complete": function("block_rq_complete", rq, ("error", Int(1, False)), ("nr_bytes", UINT32)),
        "block_bio_queue": function("block_bio_queue", *queue, ("bio", Pointer(BIO_OLD))),
    }


WITH_QUEUE = typed(OLD, ("q", Pointer(QUEUE_OLD)))
UNNAMED = {
    name: function(name, *((f"arg{number}", type_) for number, (_, type_) in enumerate(found.parameters)))
    for name, found in WITH_QUEUE.items()
}
KERNELS = {
    "5.5: no names of arguments": kernel(OLD, UNNAMED, "blk_account_io_start"),
    "5.7: merged I/O is told to the same function": kernel(
        OLD, WITH_QUEUE, "blk_account_io_start", parameters=(("rq", Pointer(OLD)), ("new_io", BOOL))
    ),
    "5.10: with the queue as first argument": kernel(OLD, WITH_QUEUE, "blk_account_io_start"),
    "5.10: functions cannot be probed": kernel(OLD, WITH_QUEUE),
    "5.15: with the request alone": kernel(NEW, typed(NEW), "__blk_account_io_start"),
}


def compiled(name: str, facts: RecordedKernel) -> list[str]:
    """Programs of a tool."""
    path = str(SCRIPTS / "block" / f"{name}.bt")
    diagnostics = Diagnostics()
    source = Source(path, Path(path).read_text(), path)
    try:
        script = pipeline.compile_script(source, CompileOptions(), facts, diagnostics)
    except ScriptError:
        pytest.fail("\n".join(item.message for item in diagnostics.errors))
    return [program.symbol for program in script.manifest.programs]


@each_row("release", KERNELS)
@each_row("name", TOOLS)
def test_tools_compile(name: str, release: str) -> None:
    names = compiled(name, KERNELS[release])
    if name == "mdflush":
        assert any("block_bio_queue" in name for name in names)
    elif "cannot be probed" not in release:
        assert any("blk_account_io_start" in name for name in names)


def test_a_kernel_without_them_gets_a_message() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"since 5\.5"):
        compiled("biosnoop", kernel(OLD, {}))
