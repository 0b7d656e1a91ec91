"""Stacks of programs of Rust, compared with what ``std::backtrace`` says in them: generics, async tasks, a panic.

They run where there is a compiler of Rust 1.65 or later.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.server import Server

SOURCE = Path(__file__).parent.parent / "programs" / "calls.rs"
LIMIT = 100
STACKS = "t:syscalls:sys_enter_getsid /pid == cpid/ { print((args.pid - 1000000, ustack)); }"
LAST = "std::rt::lang_start_internal"
"""The outermost function whose name is that of Rust."""


def _version() -> tuple[int, ...]:
    if shutil.which("rustc") is None:
        return ()
    text = subprocess.run(["rustc", "--version"], check=False, capture_output=True, text=True, timeout=LIMIT).stdout
    found = re.match(r"rustc (\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="unwind tables are for x86-64"),
    pytest.mark.skipif(_version() < (1, 65), reason="no compiler of Rust that has std::backtrace"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The program, by the way in which names are mangled."""
    need("uprobe")
    folder = tmp_path_factory.mktemp("rust")
    for way in ("legacy", "v0"):
        # RUSTC_BOOTSTRAP: compilers whose default is v0 have the older mangling as an unstable option only.
        command = ["rustc", "--edition", "2021", "-O", "-g", "-Z", "unstable-options"]
        command += ["-C", f"symbol-mangling-version={way}", "-o", str(folder / way), str(SOURCE)]
        subprocess.run(command, check=True, env={**os.environ, "RUSTC_BOOTSTRAP": "1"}, timeout=LIMIT)
    return {way: str(folder / way) for way in ("legacy", "v0")}


def said(program: str) -> list[list[str]]:
    """The functions of each stack, as the program prints them."""
    environment = {**os.environ, "SAY": "1"}
    text = subprocess.run(
        [program], check=True, capture_output=True, text=True, timeout=LIMIT, env=environment
    ).stdout  # fmt: skip
    return [
        _inner(re.findall(r"^ +\d+: (.*)$", part, re.MULTILINE)) for part in text.split("backtrace ")[1:]
    ]  # fmt: skip


def _inner(names: list[str]) -> list[str]:
    return names[: names.index(LAST) + 1]


def shown(server: Server, config: str, program: str) -> list[list[str]]:
    """The functions of each stack, as they are traced, without that of the system call."""
    script = f"config = {{ stack_unwinding = auto; {config} }} {STACKS}"
    result = server.run(("-f", "json", "-e", script, "-c", program), timeout=60)
    assert result.status == 0, result
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    stacks = [row["data"][1].strip().split("\n")[1:] for row in rows if row["type"] == "value"]
    names = r"^\s*(?:\[inlined\] )?(.*?)(?:\+\d+)?(?:@[^@]*:\d+)?$"
    return [_inner([re.sub(names, r"\1", frame) for frame in stack]) for stack in stacks]


BODIES = {
    "v0": [
        [
            "calls::fetch::<u32>::{async_fn#0}",
            "calls::handle::{async_fn#0}",
            "calls::run::<calls::handle::{async_fn#0}>",
        ],
        [
            "calls::fetch::<u8>::{async_fn#0}",
            "calls::handle::{async_fn#0}::{async_block#0}",
            "calls::handle::{async_fn#0}",
            "calls::run::<calls::handle::{async_fn#0}>",
        ],
        [
            "<calls::Square<u16>>::ask::{async_fn#0}::{closure#0}",
            "<calls::Square<u16>>::ask::{async_fn#0}",
            "calls::run::<<calls::Square<u16>>::ask::{async_fn#0}>",
        ],
    ],
    "legacy": [
        ["calls::fetch::{async_fn#0}", "calls::handle::{async_fn#0}", "calls::run"],
        [
            "calls::fetch::{async_fn#0}",
            "calls::handle::{async_fn#0}::{async_block#0}",
            "calls::handle::{async_fn#0}",
            "calls::run",
        ],
        ["calls::Square<T>::ask::{async_fn#0}::{{closure}}", "calls::Square<T>::ask::{async_fn#0}", "calls::run"],
    ],
}
"""The tasks that wait for each other, as debug information names them: to symbols they are closures."""


@pytest.mark.parametrize("way", ["legacy", "v0"])
def test_stacks_are_those_of_backtrace(server: Server, programs: dict[str, str], way: str) -> None:
    wanted = said(programs[way])
    assert len(wanted) == 7
    assert any("panic" in name for name in wanted[-1])
    stacks = shown(server, "show_debug_info = true", programs[way])
    assert [stack[1 : 1 + len(row)] for stack, row in zip(stacks[3:6], BODIES[way], strict=True)] == BODIES[way]
    closure = r"{closure\1}" if way == "v0" else "{{closure}}"
    assert [[re.sub(r"\{async_[a-z]+(#\d+)\}", closure, name) for name in stack] for stack in stacks] == wanted


def test_short_generics(server: Server, programs: dict[str, str]) -> None:
    stacks = shown(server, "short_generics = true", programs["v0"])
    assert stacks[0][:3] == ["calls::leaf", "<calls::Square<…> as calls::Shape>::area", "calls::main::{closure#0}"]
    assert "<calls::Table<…>>::each::<…>" in stacks[2]
    assert stacks[3][1:4] == ["calls::fetch::<…>::{async_fn#0}", "calls::handle::{async_fn#0}", "calls::run::<…>"]
