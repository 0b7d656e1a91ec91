"""The examples of the builtin table compile against this kernel's types."""

from __future__ import annotations

import os

import pytest

from pytrace.core.builtins import BUILTINS, Builtin
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Source
from pytrace.pipeline import compile_script
from pytrace.runtime.load.live_kernel import LiveKernel


class WholeKernel(LiveKernel):
    """This kernel as if it had been built with everything: what is compiled here is not loaded."""

    def feature(self, name: str) -> bool:
        return True

    def kernel_symbol(self, name: str) -> int | None:
        return super().kernel_symbol(name) or 0xFFFFFFFF81000000

    def cgroup_id(self, path: str) -> int | None:
        return 1


@pytest.fixture(scope="module")
def kernel() -> LiveKernel:
    return WholeKernel()


@pytest.mark.skipif(not os.path.exists("/sys/kernel/btf/vmlinux"), reason="the kernel shows no BTF")
@pytest.mark.parametrize("row", [row for row in BUILTINS if row.example], ids=lambda row: row.name)
def test_example(row: Builtin, kernel: LiveKernel) -> None:
    diagnostics = Diagnostics()
    options = CompileOptions(unsafe=True, child=True, child_command="/bin/true")
    script = compile_script(Source("example", row.example), options, kernel, diagnostics)
    assert not diagnostics.errors
    assert script.manifest.programs
