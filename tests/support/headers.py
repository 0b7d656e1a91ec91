"""Kernel headers for tests: Debian's packages, unpacked by scripts/setup.sh, and small trees written on the spot."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from pytrace.core.kernel_info import KernelHeaders
from pytrace.runtime.machine import kernel_headers

ROOT = Path(__file__).resolve().parents[2]


@cache
def _installed(series: str) -> tuple[str, str]:
    command = f'root=$PWD; . scripts/setup.sh; ensure_headers {series} && printf %s "$headers"'
    done = subprocess.run(["sh", "-c", command, "test"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def debian_build(series: str = "6.1") -> str:
    """The build tree of a Debian kernel; the tree of its source lies beside it. Skips the test where apt has none.

    The test machine has another home directory and no network: scripts/vm tells where the headers of its kernel are.
    """
    told = os.environ.get("PYTRACE_TEST_KERNEL_HEADERS", "")
    path, problem = (told, "") if told else _installed(series)
    if not path:
        pytest.skip(f"no kernel headers: {problem.strip()}")
    return path


def debian_headers(series: str = "6.1") -> KernelHeaders:
    """The headers of a Debian kernel for x86-64."""
    return kernel_headers.find("", "x86_64", {"PYTRACE_KERNEL_BUILD": debian_build(series)})


def write(folder: Path, **files: str) -> Path:
    """Write *files*, in whose names ``__`` stands for ``/`` and ``_h`` at the end for ``.h``."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/').removesuffix('_h')}{'.h' if name.endswith('_h') else ''}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def source_tree(folder: Path, **headers: str) -> Path:
    """A source tree with *headers* under ``include``, named as in :func:`write`."""
    write(folder, include__linux__kconfig_h="#include <generated/autoconf.h>\n", arch__x86__include__asm__page_h="")
    write(folder, **{f"include__{name}": text for name, text in headers.items()})
    return folder


def build_tree(folder: Path, source: Path | None = None) -> Path:
    """What a build makes; with the Makefile of a build in a directory of its own when *source* is given."""
    write(folder, include__generated__autoconf_h="#define CONFIG_BUILT 1\n")
    write(folder, arch__x86__include__generated__asm__made_h="")
    if source is not None:
        write(folder, Makefile=f"include {source}/Makefile\n")
    return folder
