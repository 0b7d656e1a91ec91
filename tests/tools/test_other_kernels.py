"""Scripts of tools for kernels that no test machine has: they compile, or say what is missing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pytrace import pipeline
from pytrace.cli import tools
from pytrace.cli.main import main
from pytrace.codegen.ir import target
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import FunctionPrototype, KernelFunction
from pytrace.core.manifest import CompiledScript, Manifest
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import BOOL, INT32, UINT32, UINT64, VOID, Enum, Field, Int, Pointer, String, Struct, Type
from pytrace.results.snapshot import MapData
from pytrace.runtime.load import features
from tests.support.facts import TASK, RecordedKernel, function
from tests.support.other_kernel import OtherKernel
from tests.support.rows import each_row
from tests.support.tools import SCRIPTS as FOLDER
from tests.support.tools import script

KPROBES = frozenset({"kprobe"})
NO_FENTRY = frozenset({"fentry", "kprobe_multi", "kprobe_session"})
NO_PROBES = frozenset({"kprobe", "fentry", "kprobe_multi", "kprobe_session"})


def compiled(name: str, kernel: OtherKernel) -> tuple[set[str], bytes]:
    """The probes of a tool on that kernel, and its programs."""
    path = script(name)
    assert path is not None
    found = Diagnostics()
    made = pipeline.compile_script(Source(path.name, path.read_text(), str(path)), CompileOptions(), kernel, found)
    assert not found.items, [item.message for item in found.items]
    return {target.probe for program in made.manifest.programs for target in program.targets}, made.elf


@pytest.mark.kernel
def test_filelife_with_kprobes() -> None:
    functions = ("vfs_unlink",)
    new, newer_programs = compiled("filelife", OtherKernel(KPROBES, NO_FENTRY, functions))
    old, older_programs = compiled("filelife", OtherKernel(KPROBES, NO_FENTRY, functions, frozenset({"renamedata"})))
    assert {"kprobe:vfs_unlink", "kretprobe:vfs_unlink"} <= new == old
    # The file is another argument.
    assert newer_programs != older_programs
    typed, _ = compiled("filelife", OtherKernel(frozenset({"fentry"}), functions=functions))
    assert {"fentry:vmlinux:vfs_unlink", "fexit:vmlinux:vfs_unlink"} <= typed
    names, _ = compiled("filelife", OtherKernel(lacking=NO_PROBES))
    assert "tracepoint:syscalls:sys_exit_unlinkat" in names
    assert "kprobe:vfs_unlink" not in names


@pytest.mark.kernel
def test_swapin_with_each_function() -> None:
    for name in ("swap_read_folio", "swap_readpage"):
        probes, _ = compiled("swapin", OtherKernel(KPROBES, NO_FENTRY, (name,)))
        assert f"kprobe:{name}" in probes
    probes, _ = compiled("swapin", OtherKernel(lacking=NO_PROBES))
    assert any("block_bio_queue" in probe for probe in probes)


@pytest.mark.kernel
def test_slabratetop_before_the_tracepoint_had_the_cache() -> None:
    without = frozenset({"trace_event_raw_kmem_cache_alloc", "trace_event_raw_kmem_alloc"})
    functions = ("kmem_cache_alloc", "kmem_cache_alloc_node")
    probes, _ = compiled("slabratetop", OtherKernel(KPROBES, NO_FENTRY, functions, without))
    assert {f"kprobe:{name}" for name in functions} <= probes
    path = script("slabratetop")
    assert path is not None
    found = Diagnostics()
    with pytest.raises(ScriptError):
        pipeline.compile_script(
            Source(path.name, path.read_text(), str(path)),
            CompileOptions(),
            OtherKernel(lacking=NO_PROBES, without=without),
            found,
        )
    assert "what comes closest: slabtop" in found.items[0].message


@pytest.mark.kernel
def test_compactsnoop_before_its_event_had_the_zone() -> None:
    places = tuple((name, UINT64) for name in ("zone_start", "migrate_pfn", "free_pfn", "zone_end"))
    begin = FunctionPrototype("mm_compaction_begin", "vmlinux", (*places, ("sync", BOOL)), VOID)
    probes, _ = compiled("compactsnoop", OtherKernel(raw=(begin,)))
    assert any("mm_compaction_suitable" in probe for probe in probes)


# ---------------------------------------------------------------------------------------------- refusals
# What tools say on a kernel that cannot serve them: what is missing, and what comes closest.


REFUSED = {"dcsnoop", "dcstat", "vfscount", "vfsstat"}
"""Tools that cannot be without probes on functions of the kernel, on any kernel."""

NEEDS_ARGUMENTS = {"dbslower", "dbstat", "netqtop"}
"""Tools that ask for an operand or option first."""

CLOSEST = re.compile(r"what comes closest: |; \S.* (shows?|counts?)\b|(since|before|Linux) \d|: try ")

FALLBACKS = {
    "capable": "AUDIT and INSETID are not known",
    "filelife": "what io_uring deletes is not seen",
    "fsdist": "system calls are measured instead",
    "fsslower": "system calls are measured instead",
    "klockstat": "no hold times",
    "oomkill": "PAGES is the limit",
    "swapin": "reads from swap devices are counted",
    "tcpaccept": "system calls are shown",
    "udpsnoop": "the sender of a datagram is not known (?)",
}
"""Tools that do less where functions of the kernel cannot be probed, and what their runs say of it."""

Emit = Callable[..., tuple[int, str, bytes]]


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Emit:
    """Compiles a tool with *present* of fentry and kprobe: its status, what it says, its programs.

    *replaced* are texts in *file* of the tools, which are copied.
    """
    real = features.has

    def emit(
        words: str, *present: str, file: str = "", replaced: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[int, str, bytes]:
        monkeypatch.setattr(features, "has", lambda one: one in present if one in ("fentry", "kprobe") else real(one))
        tool, *options = words.split()
        if file:
            folder = Path(shutil.copytree(FOLDER, tmp_path / "tools", dirs_exist_ok=True))
            text = (folder / file).read_text()
            for old, new in replaced.items():
                assert old in text
                text = text.replace(old, new)
            (folder / file).write_text(text)
            tool = str(next(folder.glob(f"*/{tool}.bt")))
        made = tmp_path / "compiled.o"
        status = main([tool, *options, "--no-cache", "--emit-elf", str(made)])
        return status, capsys.readouterr().err, made.read_bytes() if made.exists() else b""

    return emit


OWN_MAPS = {("futexwait", "@buckets"), ("syscount", "@shown")}
"""Maps whose keys have no names, and that no output shows."""


def unnamed(name: str, manifest: Manifest) -> list[str]:
    """Maps of a tool with members of keys that outputs would call ``key2``."""
    maps = [
        MapData(spec.name, spec.key, spec.value, {}, key_names=spec.key_names)
        for spec in manifest.maps
        if spec.key is not None and (name, spec.name) not in OWN_MAPS
    ]
    numbered = re.compile(r"key[\d.]*")
    return [f"{data.name}: {data.key_titles}" for data in maps if any(map(numbered.fullmatch, data.key_titles))]


@pytest.mark.kernel
@pytest.mark.parametrize("name", sorted({name for _, name, _ in tools.rows() if tools.path(name)} - NEEDS_ARGUMENTS))
def test_without_probes_on_functions(emitted: Emit, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = []

    def compile_program(*words: Any) -> CompiledScript:
        text, manifest = generator.generate(*words)
        with target.parsed(text, verify=True):  # what LLVM makes of it is loaded by the tool's own tests
            manifests.append(manifest)
        return CompiledScript(b"", manifest)

    monkeypatch.setattr(generator, "compile_program", compile_program)
    status, said, _ = emitted(name)
    assert [found for manifest in manifests for found in unnamed(name, manifest)] == []
    assert manifests or status
    assert "/../" not in said
    if name in REFUSED:
        assert status == 1
        assert "neither kprobes nor fentry" in said
        assert "what comes closest: pytrace " in said
    elif status:
        assert said.count("ERROR") == 1, "one reason, not what follows from it"
        assert CLOSEST.search(said) or "--" in said or "-O" in said, said
    else:
        assert "ERROR" not in said


@pytest.mark.kernel
@pytest.mark.parametrize("name", FALLBACKS)
def test_runs_say_what_they_lack(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = features.has
    monkeypatch.setattr(features, "has", lambda feature: feature not in ("kprobe", "fentry") and real(feature))
    assert main([name, "--no-cache", "--duration", "0.1", "--keep-privileges"]) == 0
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "cannot probe" in line]
    assert line.startswith("WARNING: this kernel cannot probe ")
    assert FALLBACKS[name] in line


@pytest.mark.kernel
@pytest.mark.parametrize("present", [("fentry", "kprobe"), ("kprobe",), ()], ids=["fentry", "kprobe", "neither"])
@pytest.mark.parametrize(
    ("words", "everywhere"),
    [
        ("fsslower -t ext4 -m 1", True), ("fsslower 5", True), ("fsdist -T 1", True), ("btrfsdist -m", True),
        ("cachestat -T", True), ("cachetop 1", True),
        ("vfsstat 2 3", False), ("vfscount 5", False), ("dcstat", False), ("dcsnoop -a", False),
    ],
)  # fmt: skip
def test_variants_compile(emitted: Emit, words: str, everywhere: bool, present: tuple[str, ...]) -> None:
    status, said, programs = emitted(words, *present)
    if present or everywhere:
        assert (status, said) == (0, "")
        assert programs
    else:
        assert status == 1
        assert "neither kprobes nor fentry" in said


@pytest.mark.kernel
@pytest.mark.parametrize("name", ["cachestat", "cachetop"])
@pytest.mark.parametrize(
    ("present", "older"), [(("fentry", "kprobe"), False), (("kprobe",), False), (("kprobe",), True), ((), True)]
)
def test_page_cache_before_its_tracepoint(emitted: Emit, name: str, present: tuple[str, ...], older: bool) -> None:
    """As on kernels before 6.13, older ones as before 5.12: their probes by other names than those of this kernel."""
    replaced = {"mm_filemap_get_pages": "no_such_tracepoint"} | ({"filemap_read": "no_such_function"} if older else {})
    status, said, _ = emitted(name, *present, file="lib/page_cache.bt", replaced=replaced)
    assert status == (0 if present else 1), said
    assert ("what comes closest: pytrace fileslower" in said) == (not present)
    assert "WARNING" not in said


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("words", "tracepoint", "present", "expected"),
    [
        ("tcptop 5", "sock_send_length", ("fentry", "kprobe"), "fexit_vmlinux_tcp_recvmsg"),
        ("tcptop 5", "sock_send_length", ("kprobe",), "kretprobe_tcp_recvmsg"),
        ("tcptop 5", "sock_send_length", (), ""),
        ("tcprtt -b --extension", "tcp_probe", ("kprobe",), "kprobe_tcp_rcv_established"),
        ("tcprtt -b --extension", "tcp_probe", (), ""),
        ("udpsnoop -P 53", "", ("fentry", "kprobe"), "fentry_vmlinux_skb_consume_udp"),
        ("udpsnoop -P 53", "", ("kprobe",), "kprobe_skb_consume_udp"),
        ("udpsnoop -P 53", "", (), "rawtracepoint_vmlinux_sock_recv_length"),
        ("udpsnoop -P 53", "sock_send_length", (), ""),
    ],
)
def test_traffic_without_a_tracepoint(
    emitted: Emit, words: str, tracepoint: str, present: tuple[str, ...], expected: str
) -> None:
    """*expected* is one of the programs, if there are any."""
    replaced = {f"rawtracepoint:{tracepoint}": "rawtracepoint:no_such_event"} if tracepoint else {}
    file = f"network/{words.partition(' ')[0]}.bt"
    status, said, programs = emitted(f"{words} --unsafe", *present, file=file, replaced=replaced)
    if expected:
        assert (status, said) == (0, "")
        assert expected.encode() in programs
    else:
        assert status == 1
        assert "kprobes" in said or "kprobe:" in said


@pytest.mark.kernel
@pytest.mark.parametrize("words", ["skbdrop", "skbdrop -s 1"])
def test_drops_without_reasons(emitted: Emit, words: str) -> None:
    """As before Linux 5.17."""
    replaced = {"enum skb_drop_reason)": "enum no_such_reason)", "args, reason": "args, no"}
    status, said, _ = emitted(words, "fentry", "kprobe", file="network/skbdrop.bt", replaced=replaced)
    assert (status, said) == (0, "")


# ---------------------------------------------------------------------------------------------- block other kernels
# Tools of disks compiled for kernels that neither this machine nor the test machine has.


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


def compiled_on(name: str, facts: RecordedKernel) -> list[str]:
    """Programs of a tool."""
    path = str(FOLDER / "block" / f"{name}.bt")
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
    names = compiled_on(name, KERNELS[release])
    if name == "mdflush":
        assert any("block_bio_queue" in name for name in names)
    elif "cannot be probed" not in release:
        assert any("blk_account_io_start" in name for name in names)


def test_a_kernel_without_them_gets_a_message() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"since 5\.5"):
        compiled_on("biosnoop", kernel(OLD, {}))
