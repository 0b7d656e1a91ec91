"""Tools on kernels that no test machine has: they compile, to other probes."""

from __future__ import annotations

import pytest

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics, ScriptError
from pytrace.core.kernel_info import FunctionPrototype
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Source
from pytrace.core.types import BOOL, UINT64, VOID
from tests.support import tools
from tests.support.other_kernel import OtherKernel

KPROBES = frozenset({"kprobe"})
NO_FENTRY = frozenset({"fentry", "kprobe_multi", "kprobe_session"})
NO_PROBES = frozenset({"kprobe", "fentry", "kprobe_multi", "kprobe_session"})


def compiled(name: str, kernel: OtherKernel) -> tuple[set[str], bytes]:
    """The probes of a tool on that kernel, and its programs."""
    path = tools.script(name)
    assert path is not None
    found = Diagnostics()
    script = pipeline.compile_script(Source(path.name, path.read_text(), str(path)), CompileOptions(), kernel, found)
    assert not found.items, [item.message for item in found.items]
    return {target.probe for program in script.manifest.programs for target in program.targets}, script.elf


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
    for function in ("swap_read_folio", "swap_readpage"):
        probes, _ = compiled("swapin", OtherKernel(KPROBES, NO_FENTRY, (function,)))
        assert f"kprobe:{function}" in probes
    probes, _ = compiled("swapin", OtherKernel(lacking=NO_PROBES))
    assert any("block_bio_queue" in probe for probe in probes)


@pytest.mark.kernel
def test_slabratetop_before_the_tracepoint_had_the_cache() -> None:
    without = frozenset({"trace_event_raw_kmem_cache_alloc", "trace_event_raw_kmem_alloc"})
    functions = ("kmem_cache_alloc", "kmem_cache_alloc_node")
    probes, _ = compiled("slabratetop", OtherKernel(KPROBES, NO_FENTRY, functions, without))
    assert {f"kprobe:{name}" for name in functions} <= probes
    path = tools.script("slabratetop")
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
