"""Tests of what is told about modules that are not loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.runtime.host.kallsyms import Kallsyms
from pytrace.runtime.host.module_index import ModuleIndex, module_name
from pytrace.runtime.live_kernel import LiveKernel

DEP = """kernel/fs/ext4/ext4.ko: kernel/fs/mbcache.ko kernel/fs/jbd2/jbd2.ko
kernel/fs/mbcache.ko:
kernel/fs/jbd2/jbd2.ko.xz:
kernel/drivers/nvme/host/nvme-core.ko.zst:
kernel/drivers/nvme/host/nvme.ko: kernel/drivers/nvme/host/nvme-core.ko
kernel/drivers/nvme/host/nvme-fabrics.ko: kernel/drivers/nvme/host/nvme-core.ko
kernel/drivers/md/md-mod.ko:
kernel/net/sctp/sctp_diag.ko: kernel/net/sctp/sctp.ko
kernel/net/sctp/sctp.ko:
"""
SYMBOLS = """# Aliases for symbols, used by symbol_request().
alias symbol:md_flush_request md_mod
alias symbol:nvme_complete_rq nvme_core
alias symbol:shared one
alias symbol:shared two
"""


@pytest.fixture
def index(tmp_path: Path) -> ModuleIndex:
    folder = tmp_path / "6.1"
    folder.mkdir()
    (folder / "modules.dep").write_text(DEP)
    (folder / "modules.symbols").write_text(SYMBOLS)
    (folder / "modules.builtin").write_text("kernel/fs/fuse/fuse.ko\nkernel/lib/crc-t10dif.ko\n")
    return ModuleIndex("6.1", str(tmp_path))


@pytest.mark.parametrize(
    ("path", "name"),
    [("kernel/drivers/md/md-mod.ko.xz", "md_mod"), ("kernel/fs/ext4/ext4.ko", "ext4"), ("ext4.ko\n", "ext4")],
)
def test_names_of_modules(path: str, name: str) -> None:
    assert module_name(path) == name


def test_modules_that_export(index: ModuleIndex) -> None:
    assert index.exporting("md_flush_request") == ["md_mod"]
    assert index.exporting("shared") == ["one", "two"]
    assert index.exporting("nvme_*") == ["nvme_core"]
    assert index.exporting("ext4_file_open") == []


def test_modules_by_the_names_of_their_functions(index: ModuleIndex) -> None:
    assert index.named_like("ext4_file_open") == ["ext4"]
    assert index.named_like("__ext4_error") == ["ext4"]
    assert index.named_like("nvme_submit_io") == ["nvme", "nvme_core"]
    assert index.named_like("nvme_core_init") == ["nvme_core"]
    assert index.named_like("vfs_read") == []
    assert index.of_family("nvme_submit_io") == ["nvme_core", "nvme", "nvme_fabrics"]
    assert index.of_family("md_*") == ["md_mod"]
    assert index.of_family("*") == []


def test_a_machine_without_modules(tmp_path: Path) -> None:
    empty = ModuleIndex("6.1", str(tmp_path))
    assert (empty.installed, empty.built_in, empty.exporting("a"), empty.named_like("a_b"), empty.of_family("a_b")) == (
        {},
        frozenset(),
        [],
        [],
        [],
    )


def test_what_the_kernel_tells(index: ModuleIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "functions"
    listed.write_text("vfs_read\ntcp_connect\njbd2_log\t[jbd2]\n")
    kernel = LiveKernel(traceable_functions=str(listed))
    monkeypatch.setitem(kernel.__dict__, "_module_index", index)
    monkeypatch.setattr(LiveKernel, "modules", lambda self: ["jbd2", "sctp"])
    assert [kernel.module_state(name) for name in ("jbd2", "ext4", "fuse", "nosuch")] == [
        "loaded",
        "installed",
        "built in",
        "absent",
    ]
    assert kernel.unloaded_modules("md_flush_request") == (["md_mod"], True)
    assert kernel.unloaded_modules("ext4_*") == (["ext4"], False)
    assert kernel.unloaded_modules("jbd2_nosuch") == ([], False)
    assert kernel.unloaded_modules("md_nosuch") == (["md_mod"], False)
    # Of a family of which the kernel has functions, a name that it lacks is misspelt.
    assert kernel.unloaded_modules("tcp_conect") == ([], False)


def test_symbols_that_are_no_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = tmp_path / "kallsyms"
    symbols.write_text("ffffffff81000000 T vfs_read\nffffffff82000000 D jiffies\nffffffffc0000000 d nf_table\t[nf]\n")
    listed = tmp_path / "functions"
    listed.write_text("vfs_read\n")
    kernel = LiveKernel(traceable_functions=str(listed))
    monkeypatch.setitem(kernel.__dict__, "kallsyms", Kallsyms(str(symbols)))
    reasons = [kernel.untraceable_reason(name) for name in ("vfs_read", "jiffies", "nf_table", "no_such_symbol_at_all")]
    assert reasons == ["", "variable", "variable", "missing"]
