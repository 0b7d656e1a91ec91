"""What a case of a tool needs of the kernel or the machine, and where it may be missing.

Each function returns where the thing exists.  Where it does not, the case is skipped only for a reason that the
kernel's configuration or version gives, as in :mod:`tests.support.machine`; without one its absence fails the test.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from pytrace.core.types import Struct
from pytrace.runtime.binaries.kernel_types import SYSTEM_BTF, KernelTypes
from tests.support.machine import kernel_config, kernel_version, need
from tests.support.tools import cannot

TRACING = Path("/sys/kernel/tracing")
EVER = (1 << 16, 0)
"""A version that no kernel has."""

needs = need
"""Features of :data:`tests.support.machine.FEATURES`: ``needs("kprobe")``."""


@dataclass(frozen=True)
class Where:
    """Which kernels have something: built with *options*, since version *since* and before version *before*."""

    options: tuple[str, ...] = ()
    since: tuple[int, int] = (0, 0)
    before: tuple[int, int] = EVER

    def lack(self) -> str:
        """Why this kernel may lack it; empty where it has to have it."""
        release, config = os.uname().release, kernel_config()
        absent = [f"CONFIG_{name}" for name in self.options if config and config.get(name) not in ("y", "m")]
        if absent:
            return f"this kernel ({release}) was built without {', '.join(absent)}"
        if kernel_version() < self.since:
            return f"came with kernel {self.since[0]}.{self.since[1]}, this one is {release}"
        if kernel_version() >= self.before:
            return f"went with kernel {self.before[0]}.{self.before[1]}, this one is {release}"
        return ""


ALWAYS = Where()


def decide(present: bool, what: str, where: Where = ALWAYS) -> None:
    """Skip the test where *what* is missing for a reason, fail it where it is missing without one."""
    if present:
        return
    lack = where.lack()
    if lack:
        cannot(f"{what}: {lack}")
    pytest.fail(f"this kernel ({os.uname().release}) should have {what}: {where}")


def needs_tracepoint(name: str, where: Where = ALWAYS) -> None:
    """The tracepoint ``category:event`` exists."""
    needs("tracepoint")
    decide((TRACING / "events" / name.replace(":", "/")).is_dir(), f"tracepoint:{name}", where)


def needs_type(name: str, where: Where = ALWAYS) -> None:
    """BTF has that type: ``struct request``."""
    needs("btf")
    decide(_type(name) is not None, name, where)


def needs_member(name: str, member: str, where: Where = ALWAYS) -> None:
    """BTF has that type with that member: ``needs_member("struct request", "rq_disk", Where(before=(5, 17)))``."""
    needs("btf")
    decide(member in members(name), f"{name}.{member}", where)


def needs_program(name: str) -> None:
    """A program that scripts/test installs, on PATH or where Debian puts those of administrators."""
    if not program(name):
        cannot(f"there is no program {name}, which scripts/test installs")


def program(name: str) -> str:
    """Its path; empty when it is not installed."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


def members(name: str) -> tuple[str, ...]:
    """Names of the members of a struct or union; none when there is no such type."""
    found = _type(name)
    return tuple(field.name for field in found.fields) if isinstance(found, Struct) else ()


@cache
def _types() -> KernelTypes:
    return KernelTypes(SYSTEM_BTF)


def _type(name: str) -> object:
    kind, _, tag = name.partition(" ")
    return _types().value_type(kind, tag)
