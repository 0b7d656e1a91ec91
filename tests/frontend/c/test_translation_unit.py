"""The C part as one text: headers, types from BTF in place of missing headers, and positions of errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.frontend.c.reading import good, read
from tests.support.facts import RecordedKernel


def test_missing_kernel_header_is_no_error_with_btf() -> None:
    found = good("#include <linux/sched/mm.h>\n#include <net/sock.h>\nstruct x { struct list_head l; };")
    struct = found.struct("struct", "x")
    assert struct is not None
    assert struct.size == 16


def test_missing_kernel_header_without_btf_is_an_error() -> None:
    _, diagnostics = read("#include <net/nothing.h>", RecordedKernel(has_btf=False))
    (error,) = diagnostics.errors
    assert "net/nothing.h" in error.message
    assert "-I" in error.hints[0]


def test_a_misspelt_kernel_header_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#include <linux/scehd.h>\n#include <linux/fs.h>\n")
    _, diagnostics = read(
        "#include <linux/sched.h>\n  #include <linux/nofile.h>\n"
        f'#include "{tmp_path}/own.h"\n#include <uapi/linux/ptrace.h>\n'
    )
    assert not diagnostics.errors
    assert [(item.message, item.span.first.line) for item in diagnostics.warnings] == [
        ("there is no header 'linux/nofile.h'", 2),
        ("there is no header 'linux/scehd.h'", 1),
    ]


def test_missing_own_header() -> None:
    _, diagnostics = read('#include "mine.h"')
    (error,) = diagnostics.errors
    assert error.span.first.line == 1


def test_headers_are_found_and_noted(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("struct mine { short s; };\n#define MINE 7\n")
    kernel = RecordedKernel()
    found = good('#include "mine.h"', kernel, include_directories=(str(tmp_path),))
    struct = found.struct("struct", "mine")
    assert struct is not None
    assert struct.size == 2
    assert found.macro("MINE") is not None
    assert str(tmp_path / "mine.h") in kernel.read_files


def test_include_option_comes_first(tmp_path: Path) -> None:
    header = tmp_path / "first.h"
    header.write_text("typedef long first_t;\n")
    found = good("struct s { first_t x; };", includes=(str(header),))
    struct = found.struct("struct", "s")
    assert struct is not None
    assert struct.size == 8
    assert good("", includes=(str(header),)).typedef("first_t") is not None


def test_have_btf_macro() -> None:
    text = "#ifdef BPFTRACE_HAVE_BTF\nstruct with { int x; };\n#else\nstruct without { int x; };\n#endif"
    assert good(text).struct("struct", "with") is not None
    assert good(text, RecordedKernel(has_btf=False)).struct("struct", "without") is not None


def test_compiler_headers() -> None:
    found = good(
        "#include <stdint.h>\n#include <stdbool.h>\n#include <stddef.h>\nstruct s { uint64_t a; bool b; size_t c; };"
    )
    struct = found.struct("struct", "s")
    assert struct is not None
    assert struct.size == 24


def test_unknown_type_points_at_it() -> None:
    _, diagnostics = read("struct a { int x; };\nstruct bad {\n  nosuch_t y;\n};")
    (error,) = diagnostics.errors
    assert error.span.text == "nosuch_t"
    assert error.span.first.line == 3


def test_struct_defined_twice() -> None:
    _, diagnostics = read("struct a { int x; };\nstruct a { int y; };")
    assert diagnostics.errors[0].span.first.line == 2


def test_error_directive() -> None:
    _, diagnostics = read("#error not here")
    assert "not here" in diagnostics.errors[0].message


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def refused(text: str, **options: tuple[str, ...]) -> str:
    """The message about a header that is refused."""
    _, diagnostics = read(text, **options)
    return next((item.message for item in diagnostics.errors if item.message.startswith("refusing")), "")


@needs_root
@pytest.mark.parametrize("named", [True, False])
def test_root_includes_no_headers_that_others_can_write(tmp_path: Path, named: bool) -> None:
    folder = tmp_path / "include"
    folder.mkdir()
    header, link = folder / "mine.h", tmp_path / "link.h"
    header.write_text("struct mine { short s; };\n")
    link.symlink_to(header)
    options = {"include_directories": (str(folder),)} if named else {}
    for path in (header, link):
        assert not refused(f'#include "{path}"', **options)
    for mode, word in ((0o777, "world"), (0o775, "group")):
        os.chown(folder, 0, 12345)
        folder.chmod(mode)
        for path in (header, link):
            assert f"{folder} is {word}-writable" in refused(f'#include "{path}"', **options)
    folder.chmod(0o755)
    header.chmod(0o666)
    assert "it is world-writable" in refused(f'#include "{header}"', **options)


@needs_root
def test_root_names_whose_headers_it_includes(tmp_path: Path) -> None:
    header = tmp_path / "mine.h"
    header.write_text("struct mine { short s; };\n")
    os.chown(header, 12345, 12345)
    text = f'#include "{header}"'
    assert "it belongs to user 12345" in refused(text)
    assert "it belongs to user 12345" in refused(text, include_directories=(str(tmp_path),))
    assert not refused(text, includes=(str(header),))
    os.chown(tmp_path, 12345, 12345)
    assert not refused(text, include_directories=(str(tmp_path),))
    assert "it belongs to user 12345" in refused(text) or "user 12345 can replace it" in refused(text)
