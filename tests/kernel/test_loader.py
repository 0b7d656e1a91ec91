"""Loading on this kernel: sections, runs, refusals, and nothing left when it fails."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics, InternalError
from pytrace.core.manifest import CompiledScript, MapType
from pytrace.core.options import CompileOptions
from pytrace.core.probe_kinds import NoTarget, known_kind, program_type, type_name
from pytrace.core.source import Source
from pytrace.runtime.load import features, loader
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.load.map_reader import MapReader
from pytrace.runtime.machine import libbpf
from tests.support.loading import COUNTS, HITS, PERCPU, Loaded, program, script, target
from tests.support.machine import kernel_version

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_leaks")]
BEGIN = program("begin_0", "begin", target(NoTarget(), probe="begin"))


def test_run_and_section() -> None:
    with ExitStack() as stack:
        loaded = Loaded(stack, BEGIN)
        assert loaded.maps.slot(HITS)[0] is False
        assert loaded.loaded.run("begin_0") == 7
        assert loaded.maps.slot(HITS)[0] is True
        assert loaded.hits == 1
        loaded.maps.zero(HITS)
        assert loaded.maps.slot(HITS) == (True, bytes(64))
        loaded.maps.clear(HITS)
        assert loaded.maps.slot(HITS) == (False, bytes(64))


def test_refused_program_is_named_with_reason_and_place() -> None:
    with ExitStack() as stack, pytest.raises(loader.LoadError) as raised:
        Loaded(stack, BEGIN, program("bad", "kprobe", target(NoTarget(), probe="kprobe:bad")))
    message = raised.value.message
    assert "rejected kprobe:bad: it accesses memory that it may not, or that the verifier cannot follow (" in message
    assert re.search(r"\(\S*probes\.c:\d+:\d+\)$", message.splitlines()[0])
    assert message.endswith("the verifier says: R1 invalid mem access 'scalar'") or kernel_version() < (5, 12)
    assert "processed" in raised.value.log
    assert raised.value.program is not None


def test_verifier_log_of_what_loads(capfd: pytest.CaptureFixture[str]) -> None:
    logs: dict[str, str] = {}
    lines: list[str] = []
    options = loader.LoadOptions(verifier_log=logs.__setitem__, libbpf_log=lines.append)
    with ExitStack() as stack:
        loader.load(script(BEGIN), options=options, stack=stack)
    assert "processed" in logs["begin_0"]
    assert any("pytrace" in line for line in lines)
    assert capfd.readouterr() == ("", "")


def test_libbpf_stays_silent(capfd: pytest.CaptureFixture[str]) -> None:
    broken = type(script(BEGIN))(b"\x7fELF" + bytes(60), script(BEGIN).manifest)
    with ExitStack() as stack, pytest.raises(loader.LoadError, match="libbpf cannot read"):
        loader.load(broken, options=loader.LoadOptions(), stack=stack)
    assert capfd.readouterr() == ("", "")


def test_missing_programs() -> None:
    with ExitStack() as stack:
        loaded = Loaded(stack, BEGIN).loaded
        with pytest.raises(InternalError, match="no program 'end_0'"):
            loaded.run("end_0")
    with ExitStack() as stack, pytest.raises(InternalError, match="not in the ELF file: nowhere"):
        Loaded(stack, program("nowhere", "begin"))


def test_a_ring_that_the_kernel_does_not_make() -> None:
    """The configuration's limit is what the kernel can make with enough memory; beyond, the key is named."""
    with ExitStack() as stack, pytest.raises(loader.LoadError, match="for events cannot be created") as raised:
        Loaded(stack, BEGIN, perf_rb_pages=2**20)
    assert raised.value.hints == ("perf_rb_pages is 1048576; fewer pages take less memory",)


@pytest.mark.parametrize("spec", [COUNTS, PERCPU], ids=lambda spec: spec.kind)
def test_map_reader(spec: object) -> None:
    from pytrace.runtime.machine import bpf

    with ExitStack() as stack:
        loaded = Loaded(stack, BEGIN)
        maps: MapReader = loaded.maps
        descriptor, _, size, _ = maps._size(spec)  # type: ignore[arg-type]
        keys = [number.to_bytes(8, "little") for number in range(3000)]
        bpf.map_update_all(descriptor, keys, b"\1" * size)
        assert sorted(maps.items(spec)) == sorted((key, b"\1" * size) for key in keys)  # type: ignore[arg-type]
        assert maps.delete(spec, keys[0])  # type: ignore[arg-type]
        assert not maps.delete(spec, keys[0])  # type: ignore[arg-type]
        assert maps.lookup(spec, keys[0]) is None  # type: ignore[arg-type]
        maps.zero(spec)  # type: ignore[arg-type]
        assert {value for _, value in maps.items(spec)} == {bytes(size)}  # type: ignore[arg-type]
        assert sum(block[2] for block in maps.blocks(spec, clear=True)) == 2999  # type: ignore[arg-type]
        assert maps.items(spec) == []  # type: ignore[arg-type]


def test_walk_by_keys_gives_the_same_as_batches() -> None:
    import os

    from pytrace.runtime.load import map_reader
    from pytrace.runtime.machine import bpf

    descriptor = bpf.map_create(MapType.HASH, 8, 8, 500)
    try:
        bpf.map_update_all(descriptor, [number.to_bytes(8, "little") for number in range(500)], bytes(8))
        pairs = map_reader.paired(map_reader.read_blocks(descriptor, 8, 8, 500))
        assert sorted(map_reader._by_keys(descriptor, 8, 8, 500)) == sorted(pairs)
    finally:
        os.close(descriptor)


def test_every_feature_can_be_asked() -> None:
    features.forget()
    answers = {name: features.has(name) for name in features.FEATURES}
    assert answers["ringbuf"]
    assert answers["batch_ops"]


TYPED = "rawtracepoint:sched_switch { exit(); } tracepoint:syscalls:sys_enter_getppid { exit(); } iter:task { exit(); }"


@pytest.fixture(scope="module")
def typed() -> CompiledScript:
    return pipeline.compile_script(Source("typed", TYPED, None), CompileOptions(), LiveKernel(), Diagnostics())


@pytest.mark.each_kernel
def test_typed_programs_have_the_numbers_that_libbpf_finds(typed: CompiledScript) -> None:
    programs = [item for item in typed.manifest.programs if program_type(item.kind, item.multi) == "tracing"]
    assert {item.kind for item in programs} >= {"rawtracepoint", "iter"}
    for item in programs:
        name = type_name(item.targets[0].place)[1].encode()
        attach_type = loader.ATTACH_TYPES[item.multi or known_kind(item.kind).attach_type]
        assert item.type_id == libbpf.library().libbpf_find_vmlinux_btf_id(name, attach_type), item.symbol


@pytest.mark.each_kernel
def test_no_start_reads_the_types_of_the_kernel_again(typed: CompiledScript) -> None:
    """5 MB, and 16 ms of a processor."""

    def read() -> int:
        return int(Path("/proc/thread-self/io").read_text().split()[1])

    unknown = replace(typed.manifest, programs=tuple(replace(item, type_id=0) for item in typed.manifest.programs))
    for compiled, least, most in ((typed, 0, 1 << 20), (replace(typed, manifest=unknown), 1 << 20, 1 << 30)):
        with ExitStack() as stack:
            before = read()
            loader.load(compiled, options=loader.LoadOptions(), stack=stack)
            assert least <= read() - before < most
