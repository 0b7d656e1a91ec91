"""Imports, and the library that is imported by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.frontend.expand import c_definitions, imports
from pytrace.frontend.syntax import nodes, parser


class Tree:
    """Files in a directory, and a script among them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def resolve(self, text: str) -> tuple[nodes.Program, Diagnostics]:
        path = self.write("main.bt", text)
        diagnostics = Diagnostics()
        program = parser.parse(Source(str(path), text, str(path)), diagnostics)
        diagnostics.check()
        return imports.resolve(program, CompileOptions(), diagnostics), diagnostics


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def probes(program: nodes.Program) -> list[str]:
    return [probe.attach_points[0].text for probe in program.probes]


def test_no_imports_change_nothing(tree: Tree) -> None:
    program, diagnostics = tree.resolve("begin { }")
    assert probes(program) == ["begin"]
    assert not diagnostics.items


def test_scripts_are_merged_dependencies_first(tree: Tree) -> None:
    tree.write("lib/a.bt", 'import "b.bt";\nmacro a() { 1 }\ninterval:s:1 { }')
    tree.write("lib/b.bt", "let @m = hash(5);\ninterval:s:2 { }")
    program, diagnostics = tree.resolve('import "lib/a.bt";\nbegin { }')
    assert not diagnostics.items
    assert probes(program) == ["interval:s:2", "interval:s:1", "begin"]
    assert [type(item).__name__ for item in program.items] == ["MapDecl", "Probe", "Macro", "Probe", "Probe"]
    assert [os.path.basename(path) for path in c_definitions.files(program)] == ["main.bt", "b.bt", "a.bt"]


def test_a_byte_order_mark_is_skipped(tree: Tree) -> None:
    tree.write("a.bt", "\ufeffinterval:s:1 { }")
    program, diagnostics = tree.resolve('import "a.bt"; begin { }')
    assert probes(program) == ["interval:s:1", "begin"]
    assert not diagnostics.items


def test_each_file_once_also_in_a_circle(tree: Tree) -> None:
    tree.write("a.bt", 'import "b.bt";\nimport "main.bt";\ninterval:s:1 { }')
    tree.write("b.bt", 'import "a.bt";\ninterval:s:2 { }')
    program, diagnostics = tree.resolve('import "a.bt";\nimport "b.bt";\nimport "./a.bt";\nbegin { }')
    assert not diagnostics.items
    assert probes(program) == ["interval:s:2", "interval:s:1", "begin"]


def test_headers_and_c_parts_of_imports(tree: Tree) -> None:
    path = tree.write("types.h", "struct t { int x; };")
    program, _ = tree.resolve('import "types.h";\nbegin { }')
    assert [part.text for part in program.c_parts] == [f'#include "{path}"']
    tree.write("a.bt", "#define A 1\ninterval:s:1 { }")
    program, _ = tree.resolve('#define B 2\nimport "a.bt";\nbegin { }')
    assert [part.text.strip() for part in program.c_parts] == ["#define A 1", "#define B 2"]


def test_directories_in_name_order_and_not_below(tree: Tree) -> None:
    tree.write("lib/b.bt", "interval:s:2 { }")
    tree.write("lib/a.bt", "interval:s:1 { }")
    tree.write("lib/notes.txt", "not a script")
    tree.write("lib/deeper/c.bt", "interval:s:3 { }")
    program, diagnostics = tree.resolve('import "lib";\nbegin { }')
    assert not diagnostics.items
    assert probes(program) == ["interval:s:1", "interval:s:2", "begin"]


def test_missing_file_suggests(tree: Tree) -> None:
    tree.write("helper.bt", "interval:s:1 { }")
    _, diagnostics = tree.resolve('import "helpr.bt";\nbegin { }')
    (error,) = diagnostics.errors
    assert "helpr.bt" in error.message
    assert "helper.bt" in error.hints[0]


def test_unknown_suffix(tree: Tree) -> None:
    tree.write("a.py", "")
    _, diagnostics = tree.resolve('import "a.py";\nbegin { }')
    assert ".bt" in diagnostics.errors[0].hints[0]


def test_others_can_write_what_root_would_import(tree: Tree) -> None:
    tree.write("a.bt", "interval:s:1 { }", 0o666)
    program, diagnostics = tree.resolve('import "a.bt";\nbegin { }')
    assert "world-writable" in diagnostics.errors[0].message
    assert probes(program) == ["begin"]
    tree.write("lib/a.bt", "interval:s:1 { }")
    (tree.folder / "lib").chmod(0o777)
    _, diagnostics = tree.resolve('import "lib";\nbegin { }')
    assert "world-writable" in diagnostics.errors[0].message


def test_world_writable_file_in_a_directory_is_skipped(tree: Tree) -> None:
    tree.write("lib/a.bt", "interval:s:1 { }", 0o666)
    tree.write("lib/b.bt", "interval:s:2 { }")
    program, diagnostics = tree.resolve('import "lib";\nbegin { }')
    assert not diagnostics.failed
    assert "a.bt is not imported" in diagnostics.warnings[0].message
    assert probes(program) == ["interval:s:2", "begin"]


def fails(tree: Tree, name: str, text: str = "") -> str:
    """The message for an import that is refused."""
    _, diagnostics = tree.resolve(text or f'import "{name}";\nbegin {{ }}')
    return diagnostics.errors[0].message if diagnostics.failed else ""


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@needs_root
def test_root_imports_no_files_of_others(tree: Tree) -> None:
    path = tree.write("lib/a.bt", "interval:s:1 { }")
    os.chown(path, 12345, 12345)
    assert fails(tree, "lib/a.bt") == "refusing to import 'lib/a.bt': it belongs to user 12345"
    program, diagnostics = tree.resolve('import "lib";\nbegin { }')
    assert "a.bt is not imported: it belongs to user 12345" in diagnostics.warnings[0].message
    assert probes(program) == ["begin"]
    os.chown(path, 0, 0)
    os.chown(path.parent, 12345, 12345)
    assert fails(tree, "lib") == "refusing to import from 'lib': it belongs to user 12345"


@needs_root
def test_root_runs_a_script_of_a_user_with_that_users_files(tree: Tree) -> None:
    os.chown(tree.write("main.bt", ""), 12345, 12345)
    os.chown(tree.write("a.bt", "interval:s:1 { }"), 12345, 12345)
    assert not fails(tree, "a.bt")
    os.chown(tree.folder / "a.bt", 23456, 23456)
    assert "belongs to user 23456" in fails(tree, "a.bt")


@needs_root
def test_root_imports_nothing_that_everybody_can_replace(tree: Tree) -> None:
    path = tree.write("lib/a.bt", "interval:s:1 { }")
    path.parent.chmod(0o777)
    assert "everybody can replace it" in fails(tree, "lib/a.bt")
    path.parent.chmod(0o1777)
    assert not fails(tree, "lib/a.bt")


@needs_root
def test_names_relative_to_the_working_directory_of_somebody_else(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tree.write("a.bt", "interval:s:1 { }"), 12345, 12345)
    monkeypatch.chdir(tree.folder)
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", 'import "a.bt"; begin { }'), diagnostics)
    imports.resolve(program, CompileOptions(), diagnostics)
    assert "belongs to user 12345" in diagnostics.errors[0].message


def test_imported_scripts_have_no_config_and_show_their_mistakes(tree: Tree) -> None:
    tree.write("a.bt", "config = { max_strlen = 64 }\ninterval:s:1 { }")
    _, diagnostics = tree.resolve('import "a.bt";\nbegin { }')
    assert "config" in diagnostics.errors[0].message
    path = tree.write("a.bt", "interval:s:1 { 1 + }")
    _, diagnostics = tree.resolve('import "a.bt";\nbegin { }')
    assert diagnostics.errors[0].span.source.path == str(path)


def test_imports_inside_blocks_need_the_configuration(tree: Tree) -> None:
    tree.write("a.bt", "macro one() { 1 }")
    _, diagnostics = tree.resolve('begin { import "a.bt"; print(1) }')
    assert "unstable_import_statement" in diagnostics.errors[0].hints[0]
    program, diagnostics = tree.resolve(
        'config = { unstable_import_statement = enable }\nbegin { import "a.bt"; print(1) }'
    )
    assert not diagnostics.items
    assert any(isinstance(item, nodes.Macro) for item in program.items)
    _, diagnostics = tree.resolve('config = { unstable_import_statement = warn }\nbegin { import "a.bt"; print(1) }')
    assert not diagnostics.failed
    assert diagnostics.warnings


def test_relative_to_the_working_directory_without_a_file(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write("a.bt", "interval:s:1 { }")
    monkeypatch.chdir(tree.folder)
    diagnostics = Diagnostics()
    program = parser.parse(Source("stdin", 'import "a.bt";\nbegin { }'), diagnostics)
    assert probes(imports.resolve(program, CompileOptions(), diagnostics)) == ["interval:s:1", "begin"]


def test_objects_must_be_bpf(tree: Tree) -> None:
    tree.write("a.bpf.o", "not an object")
    _, diagnostics = tree.resolve('import "a.bpf.o";\nbegin { }')
    assert "BPF object" in diagnostics.errors[0].message


@pytest.mark.needs("clang")
def test_bpf_c_is_compiled(tree: Tree) -> None:
    tree.write("a.bpf.c", "int twice(int x) { return 2 * x; }\n")
    program, diagnostics = tree.resolve('import "a.bpf.c";\nbegin { }')
    assert not diagnostics.items
    (item,) = program.objects
    assert item.data.startswith(b"\x7fELF")
    tree.write("b.bpf.c", "int twice(int x) { return nothing; }\n")
    _, diagnostics = tree.resolve('import "b.bpf.c";\nbegin { }')
    assert "nothing" in diagnostics.errors[0].message


@pytest.mark.needs("clang")
def test_a_compilation_rests_on_the_headers_of_bpf_c_too(tree: Tree) -> None:
    header = tree.write("some part/a b.h", "#define VALUE 5\n")
    file = tree.write("a.bpf.c", '#include "some part/a b.h"\nint value(void) { return VALUE; }\n')
    program, _ = tree.resolve('import "a.bpf.c";\nbegin { }')
    assert c_definitions.files(program)[1:] == [str(file), str(header)]


def test_bpf_c_without_clang(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write("a.bpf.c", "int x;\n")
    monkeypatch.setenv("PATH", "/nowhere")
    _, diagnostics = tree.resolve('import "a.bpf.c";\nbegin { }')
    assert "clang" in diagnostics.errors[0].message


def test_paths_in_messages_have_no_dots(tree: Tree) -> None:
    library = tree.write("lib/a.bt", "begin { }")
    (tree.folder / "tools").mkdir()
    program, _ = tree.resolve('import "tools/../lib/a.bt";')
    assert [probe.span.source.path for probe in program.probes] == [str(library)]


def test_dots_after_a_symbolic_link_keep_their_meaning(tree: Tree) -> None:
    tree.write("deep/lib/a.bt", "begin { }")
    tree.write("deep/tools/b.bt", "")
    (tree.folder / "link").symlink_to("deep/tools")
    program, diagnostics = tree.resolve('import "link/../lib/a.bt";')
    assert not diagnostics.items
    assert len(program.probes) == 1


# -------------------------------------------------------------------------------------------------------------- library


def test_each_macro_is_in_the_table() -> None:
    """A macro that the table does not name would never be found."""
    files = [path.name for path in Path(imports.LIBRARY_FOLDER).glob("*.bt")]
    defined = {(macro.name, file) for file in files for macro in imports.load_library(file)}
    assert {name for name, file in defined if imports.LIBRARY_FILES.get(name) == file} == set(imports.LIBRARY_FILES)
    public = {(name, file) for name, file in defined if not name.startswith("_")}
    assert public <= set(imports.LIBRARY_FILES.items())


@pytest.mark.parametrize("name", imports.LIBRARY_FILES)
def test_macros_by_name(name: str) -> None:
    found = imports.library_macros(name)
    assert found
    assert {macro.name for macro in found} == {name}


def test_the_library_is_read_once() -> None:
    assert imports.library_macros("printf") == []
    assert imports.library_macros("assert")[0] is imports.library_macros("assert")[0]
