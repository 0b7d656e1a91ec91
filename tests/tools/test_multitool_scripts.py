"""Scripts of multi-purpose tools for kernel functions compile with this kernel's types, whatever it can attach."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.options import CompileOptions
from pytrace.core.script_options import Value
from pytrace.core.source import Source
from pytrace.multitools.table import TOOLS
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.kernel_features import needs

pytestmark = pytest.mark.kernel

FUNCTIONS = ("vfs_read", "vfs_write", "vfs_readv", "do_nanosleep", "tcp_sendmsg", "schedule")
READ = "vfs_read(struct file *file, char __user *to, size_t count)"
SEND = "tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)"
LINES: tuple[tuple[str, dict[str, Value]], ...] = (
    ("funccount", {"pattern": "vfs_r*", "interval": 1_000_000_000}),
    ("funccount", {"pattern": "vfs_read"}),
    ("functime", {"pattern": "vfs_*", "self": True}),
    ("functime", {"pattern": "vfs_read", "interval": 1_000_000_000}),
    ("funclatency", {"pattern": "do_nanosleep", "milliseconds": True}),
    ("funclatency", {"pattern": "vfs_*", "function": True, "interval": 1_000_000_000}),
    ("funcslower", {"function": "do_nanosleep\nvfs_read\nschedule", "arguments": 2, "kernel-stack": True}),
    ("trace", {"probe": f'p::{READ} (count > 0) "%d %s", count, file->f_path.dentry->d_name.name'}),
    ("trace", {"probe": 'r::vfs_read "%d", retval\nkprobe:vfs_read "%d %K", arg3, arg1'}),
    ("trace", {"probe": f'p::{SEND} (sk->__sk_common.skc_family == AF_INET) "%d", size'}),
    ("argdist", {"count": f"r::{READ}:u64,size_t,int:$latency,$entry(count),$retval:$retval > 0\np::{READ}"}),
    ("argdist", {"histogram": f"p::{SEND}:u32:size:size > 100"}),
    ("stackcount", {"pattern": "vfs_*", "perpid": True}),
)


class Kernel(LiveKernel):
    """This kernel with other features: the programs are compiled, and not loaded."""

    def __init__(self, functions: Path, present: frozenset[str]) -> None:
        super().__init__(traceable_functions=str(functions))
        self._present = present

    def feature(self, name: str) -> bool:
        if name in ("kprobe", "perf_kprobe", "kprobe_multi", "kprobe_session", "fentry"):
            return name in self._present
        return super().feature(name)


FEATURES = ("kprobe", "fentry", "kprobe fentry kprobe_multi", "kprobe kprobe_multi kprobe_session")


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize(("name", "values"), LINES)
def test_scripts_compile(name: str, values: dict[str, Value], features: str, tmp_path: Path) -> None:
    needs("btf")
    path = tmp_path / "functions"
    path.write_text("\n".join(FUNCTIONS))
    kernel = Kernel(path, frozenset(features.split()))
    if "kprobe:" in str(values) and "kprobe" not in features:
        pytest.skip("names a kprobe")
    tool = TOOLS[name]
    diagnostics = Diagnostics()
    pipeline.compile_script(Source(name, tool.translate(values, kernel).text), CompileOptions(), kernel, diagnostics)
    assert not diagnostics.items, render_all(diagnostics.items)
