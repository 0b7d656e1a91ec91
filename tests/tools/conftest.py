"""Fixtures of the tests of tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.support import leaks
from tests.support.machine import need
from tests.support.server import Server
from tests.support.tools import ToolRun, run_tool
from tests.support.workloads.storage import Disk, FileSystem, file_system, loop_disk

if TYPE_CHECKING:
    from tests.support.network import End


class Tool(Protocol):
    """:func:`tests.support.tools.run_tool` without its first argument."""

    def __call__(self, name: str, *arguments: object, **options: Any) -> ToolRun: ...


@pytest.fixture
def tool(server: Server, request: pytest.FixtureRequest) -> Iterator[Tool]:
    """Runs a tool, and checks that the case left no BPF objects or processes behind.

    What its mark says of the ``kernel`` are features of :data:`tests.support.machine.FEATURES` that the case needs.
    """
    need(*(name for mark in request.node.iter_markers("tool") for name in mark.kwargs.get("kernel", "").split()))
    server.start()  # it starts before processes are counted

    def run(name: str, *arguments: object, **options: Any) -> ToolRun:
        return run_tool(server, name, *arguments, **options)

    with leaks.no_leaks():
        yield run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this session: on a real file system here, in memory in the test machine."""
    return tmp_path_factory.mktemp("tools")


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    """Two network namespaces with a link between them, of this test alone."""
    from tests.support import network  # imports pyroute2, which few tests need

    with network.link() as made:
        yield made


@pytest.fixture(scope="session")
def ext4() -> Iterator[FileSystem]:
    """An ext4 of this session, for cases that look at their own files."""
    with file_system("ext4") as made:
        yield made


@pytest.fixture(scope="session")
def xfs() -> Iterator[FileSystem]:
    """As ``ext4``."""
    with file_system("xfs") as made:
        yield made


@pytest.fixture(scope="session")
def btrfs() -> Iterator[FileSystem]:
    """As ``ext4``."""
    with file_system("btrfs") as made:
        yield made


@pytest.fixture(scope="session")
def disk() -> Iterator[Disk]:
    """An empty disk of this session."""
    with loop_disk() as made:
        yield made
