"""What is known of binaries that were in stacks, and the names of their functions afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.symbols.images import Images
from pytrace.runtime.symbols.met_binaries import Detail, MetBinaries, detail
from tests.support import small_program
from tests.support.compile import tool


def test_details_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what is in a stripped binary to source lines; those of another one with the same build id count."""
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    whole = small_program.built(tmp_path)
    functions = tmp_path / "functions"
    tool("objcopy", "--strip-debug", whole, functions)
    stripped, debug = small_program.split(whole, tmp_path)
    assert detail(Binary.open(str(stripped), (str(tmp_path),))) is Detail.LINES
    debug.unlink()
    assert detail(Binary.open(str(whole))) is Detail.LINES
    assert detail(Binary.open(str(functions))) is Detail.SYMBOLS
    assert detail(Binary.open(str(stripped))) is Detail.BINARY
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    assert detail(Binary.open(str(stripped))) is Detail.SERVERS
    met = MetBinaries(Images({}, lines=True))
    build_id, address = Binary.open(str(whole)).elf.build_id, small_program.addresses(whole)["hidden"] + 1
    met.add(build_id, Binary.open(str(stripped)))
    assert met.details() == {build_id: Detail.SERVERS}
    assert met.functions(build_id, address) == []
    met = MetBinaries(Images({}, lines=True))
    for path in (stripped, functions, whole):
        met.add(build_id, Binary.open(str(path)))
    assert met.details() == {build_id: Detail.LINES}
    (frame,) = met.functions(build_id, address)
    assert (frame.name, frame.offset, bool(frame.line)) == ("hidden", 1, True)
    assert met.functions("ab" * 20, address) == met.functions(build_id, 1) == []
