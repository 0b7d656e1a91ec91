"""Imports between packages: only those that the table in docs/develop/architecture.md allows."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pytrace"

ONLY_IN = {
    "ctypes": "runtime/machine",
    "llvmlite": "codegen/ir",
    "ply": "frontend/syntax",
    "clang": "frontend/expand",
    "ClusterShell": "remote",
    "kubernetes": "remote",
    "websocket": "remote",
    "urllib3": "remote",
    "yaml": "remote",
    "elftools": "runtime/binaries",
    "pyroute2": "runtime/machine",
    "pygls": "cli",
    "lsprotocol": "cli",
    "IPython": "interface",
    "textual": "live",
    "rich": "live",
    "zstandard": ("remote", "results", "runtime/binaries"),
}
"""Libraries that one package alone may import, or one for each library that it calls."""

WITH_CONTENT = {"pytrace"}
"""Packages whose ``__init__`` is not empty: each start imports them all."""

_ROW = re.compile(r"^\| `([\w/.]+)` \| (.+?) \| (.*?) \|$", re.MULTILINE)


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def table() -> Mapping[str, frozenset[str]]:
    """Each package of the table in docs/develop/architecture.md, and the packages that it may import."""
    text = (ROOT / "docs" / "develop" / "architecture.md").read_text()
    section = text.partition("## Packages\n")[2].partition("\n## ")[0]
    return {name: frozenset(re.findall(r"`([\w/.]+)`", allowed)) for name, _, allowed in _ROW.findall(section)}


def package(module: str) -> str:
    """The row that a module belongs to: its folder, or the module itself at the root."""
    path = modules()[module].relative_to(PACKAGE)
    return path.parent.as_posix() if path.parent != Path(".") else path.name


@cache
def read(path: Path) -> tuple[list[tuple[str, int]], list[str]]:
    """:func:`imports` and :func:`patches` of a file: reading it takes most of the time of these tests."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    return _imports(path, nodes), list(_patches(path, nodes))


def imports(path: Path) -> list[tuple[str, int]]:
    """Names of all modules that a file imports at run time, in functions too; not those for type checks only."""
    return read(path)[0]


def patches(path: Path) -> list[str]:
    """Places where a file assigns to an attribute of something that it imports, or changes ``sys.modules``."""
    return read(path)[1]


def _imports(path: Path, nodes: list[ast.AST]) -> list[tuple[str, int]]:
    for_types_only = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = []
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) in for_types_only:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def own_imports(module: str) -> Iterator[tuple[str, int]]:
    """What a module imports of pytrace: ``from a import b`` is ``a.b`` where that is a module, else ``a``."""
    for name, line in imports(modules()[module]):
        target = name if name in modules() else name.rpartition(".")[0]
        if target in modules() and target != "pytrace":
            yield target, line


def may_import(here: str, there: str) -> bool:
    # Of a package that it lies in itself, a package may import the modules but not the packages beside it.
    return here == there or any(
        there == name or (there.startswith(f"{name}/") and not here.startswith(f"{name}/")) for name in table()[here]
    )


def every_import() -> Iterator[tuple[str, str, str]]:
    """Package, place and imported name of each import in the package."""
    for module, path in modules().items():
        for target, line in imports(path):
            yield package(module), f"{path.relative_to(ROOT)}:{line}", target


def test_imports_go_one_way() -> None:
    wrong = [
        f"{modules()[module].relative_to(ROOT)}:{line}: {target}"
        for module in modules()
        if module != "pytrace"
        for target, line in own_imports(module)
        if not may_import(package(module), package(target))
    ]
    assert not wrong


def test_the_table_has_each_package_and_no_other() -> None:
    there = {package(name) for name, path in modules().items() if path.name != "__init__.py"}
    assert set(table()) == there


def test_the_table_allows_nothing_that_is_not_used() -> None:
    used: dict[str, set[str]] = {name: set() for name in table()}
    for module in modules():
        if module != "pytrace":
            used.setdefault(package(module), set()).update(package(target) for target, _ in own_imports(module))
    idle = {
        f"{name}: {allowed}"
        for name, targets in table().items()
        for allowed in targets
        if not any(target == allowed or target.startswith(f"{allowed}/") for target in used[name])
    }
    assert not idle


def test_packages_form_no_cycle() -> None:
    rows = table()
    assert_no_cycle(
        {
            name: {other for other in rows if other != name and may_import(name, other)}
            for name in rows
        }
    )


def test_outer_packages_form_no_cycle() -> None:
    """Packages with all that lies in them: ``render`` and ``results`` know nothing of the run."""
    graph: dict[str, set[str]] = {}
    for name in modules():
        if name != "pytrace":
            here = graph.setdefault(package(name).partition("/")[0], set())
            here.update(package(target).partition("/")[0] for target, _ in own_imports(name))
    assert_no_cycle({name: targets - {name} for name, targets in graph.items()})


def test_modules_form_no_cycle() -> None:
    """Imports inside functions count: a cycle that is held up by one is a cycle."""
    assert_no_cycle({name: {target for target, _ in own_imports(name)} - {name} for name in modules()})


def assert_no_cycle(graph: Mapping[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, chain: tuple[str, ...]) -> None:
        assert name not in chain, f"import cycle: {' -> '.join((*chain[chain.index(name) :], name))}"
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*chain, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_packages_cost_a_start_nothing() -> None:
    full = {name for name, path in modules().items() if path.name == "__init__.py" and path.read_text().strip()}
    assert full == WITH_CONTENT


def _folders(owner: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}/" for name in ((owner,) if isinstance(owner, str) else owner))


def test_each_library_has_one_package() -> None:
    wrong = [
        f"{place}: {target}"
        for here, place, target in every_import()
        if (owner := ONLY_IN.get(target.split(".")[0])) and not f"{here}/".startswith(_folders(owner))
    ]
    assert not wrong


def test_data_classes_are_structs_of_msgspec() -> None:
    """Creating 230 of them takes 7 ms; as ``dataclasses`` it would take 190."""
    assert not [place for _, place, target in every_import() if target.split(".")[0] == "dataclasses"]


_IR = re.compile(
    r"[%@!]\w{2,}"
    r"|\b(?:i1|i8|i16|i32|i64|ptr)\b"
    r"|\b(?:icmp|getelementptr|inttoptr|ptrtoint|zext|sext|trunc|alloca|atomicrmw|cmpxchg|declare|define)\b"
)
"""What only LLVM IR has: registers, globals, metadata, types, instructions."""

_PRINTF = {"codegen/emit/events.py"}
"""Modules whose ``%`` is a conversion of printf."""


def ir_text(path: Path) -> list[str]:
    """Pieces of LLVM IR in the texts of a file, without its documentation."""
    tree = ast.parse(path.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [
        f"line {node.lineno}: {node.value!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
        if _IR.search(node.value)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for part, following in pairwise(node.values):
                name = isinstance(part, ast.Constant) and str(part.value).endswith(("%", "@", "!"))
                if name and isinstance(following, ast.FormattedValue):
                    found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_llvm_ir_is_written_in_one_package() -> None:
    exempt = {modules()[name] for name in modules() if package(name) == "codegen/ir"} | {PACKAGE / at for at in _PRINTF}
    wrong = {
        str(path.relative_to(ROOT)): ir_text(path)
        for path in sorted((PACKAGE / "codegen").rglob("*.py"))
        if path not in exempt
    }
    assert not {path: texts for path, texts in wrong.items() if texts}


def test_pieces_of_llvm_ir_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""Documentation with ptr %x."""\n'
        'a = f"@{name}"\n'
        'b = "%ctx"\n'
        'c = f"call void inttoptr (i64 132 to ptr)(ptr {p}, i64 0)"\n'
        'd = f"{a} != {b}", "map", "@", "%", f"bpf_{name}", "label the map"\n'
        'e = "select i1 true"\n'
    )
    assert {item.partition(":")[0] for item in ir_text(path)} == {"line 2", "line 3", "line 4", "line 6"}


MAY_BE_SET = {"sys.stdin", "sys.stdout", "sys.stderr", "sys.unraisablehook"}
"""Attributes of modules that Python documents as replaceable."""


READS = {f"sys.modules.{name}" for name in ("get", "items", "keys", "values")}


def _patches(path: Path, nodes: list[ast.AST]) -> Iterator[str]:
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in nodes:
        changed, wrong = "", False
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed = ast.unparse(node.value)
            wrong = isinstance(node, ast.Attribute) or changed == "sys.modules"
        elif isinstance(node, ast.Call):
            # Most calls are told apart by one name: `ast.unparse` of all takes seconds.
            if not (
                node.func.id in ("setattr", "delattr") if isinstance(node.func, ast.Name)
                else isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Attribute)
                and node.func.value.attr == "modules"
            ):  # fmt: skip
                continue
            called = ast.unparse(node.func)
            changed = ast.unparse(node.args[0]) if called in ("setattr", "delattr") else ""
            wrong = bool(changed) or (called.startswith("sys.modules.") and called not in READS)
            changed = changed or called
        if wrong and changed.partition(".")[0] in imported and ast.unparse(node) not in MAY_BE_SET:
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_no_module_patches_another() -> None:
    assert not [place for path in modules().values() for place in patches(path)]


def test_patches_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        "import sys, json\nfrom enum import Enum\nsys.stdout = None\njson.loads = Enum.name = None\n"
        "sys.modules['x'] = json\nsys.modules.pop('y')\nsetattr(json, 'dumps', None)\njson.x()[0] = self.y = 1\n"
    )
    found = [place.partition(": ")[2] for place in patches(path)]
    assert sorted(found) == [
        "Enum.name", "json.loads", "setattr(json, 'dumps', None)", "sys.modules.pop('y')", "sys.modules['x']",
    ]  # fmt: skip


OWN_FILES = {
    "runtime/load/probe_links.py": {"MissReader._profile", "_open", "sweep", "_write"},  # tracefs
    "runtime/load/attachments.py": {"_attach_tracepoint_event"},  # tracefs
    # /sys/kernel/btf, $PYTRACE_VMLINUX
    "runtime/binaries/kernel_types.py": {"KernelTypes.module", "KernelTypes.vmlinux"},
    "runtime/binaries/btf_types.py": {"map_file"},
    "runtime/machine/bpf.py": {"_token_or_refusal"},  # a mounted bpf file system, by option
    "runtime/machine/confine.py": {"_add_rules"},  # O_PATH, of folders that the run may read
    "runtime/machine/fingerprints.py": {"tracepoints_fact", "tracepoint_fact"},  # tracefs
    "runtime/machine/foreign_files.py": {"_Sized.__init__", "_found", "_inside", "_last", "_waits"},
    "runtime/machine/host_names.py": {"open_network_namespace"},  # of --netns
    "runtime/machine/kernel_functions.py": {
        "Kallsyms.text", "Kallsyms._module_ranges", "KernelFunctions.__init__", "blacklist",
        "traceable_functions", "ModuleIndex._read",
    },  # tracefs, debugfs, /lib/modules
    "runtime/machine/kernel_headers.py": {"_unpacked", "_tree_digest", "_source_of"},
    "runtime/machine/perf.py": {"max_stack"},
    "runtime/machine/privileges.py": {"check"},
    "runtime/machine/selected_processes.py": {"_state", "container_processes"},  # state of Docker and Podman, root's
    "runtime/machine/tracefs.py": {"Tracepoints._events", "Tracepoints.format", "Tracepoints._definitions"},
    "runtime/output/handlers.py": {"PcapWriter.__init__", "read_file", "_family"},  # cat(): a limited process reads
    "runtime/output/streams.py": {"create"},
    "runtime/stacks/python_interpreters.py": {"_rows"},  # part of pytrace
    "runtime/stacks/image_places.py": {"_build_id_of_notes"},  # sysfs
}
"""Functions of ``pytrace/runtime`` that open what no traced program, container or other user names."""

_OPENING = {"open", "os.open", "io.open", "io.FileIO", "btf_file.map_file", "kernel_files.read_text", "read_text"}
_OPENING_NAMES = {"open", "FileIO", "map_file", "read_text", "read_bytes"}
_OF_THE_KERNEL = re.compile(r"f?'/(proc|sys)/(?!.*/root/)")


def _openings(node: ast.AST, within: tuple[str, ...] = ()) -> Iterator[str]:
    """The functions that open a file whose path does not begin with ``/proc/`` or ``/sys/`` as it is written."""
    for inner in ast.iter_child_nodes(node):
        named = isinstance(inner, ast.FunctionDef | ast.ClassDef)
        place = (*within, inner.name) if isinstance(inner, ast.FunctionDef | ast.ClassDef) and named else within
        function = inner.func if isinstance(inner, ast.Call) else None
        last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if isinstance(inner, ast.Call) and last in _OPENING_NAMES:
            called = ast.unparse(inner.func)
            path = ast.unparse(inner.args[0]) if inner.args else ""
            # Methods of pathlib.Path have the path before them.
            of_path = called.endswith((".read_bytes", ".read_text")) and called not in _OPENING
            if of_path or (called in _OPENING and not _OF_THE_KERNEL.match(path)):
                yield ".".join(place)
        yield from _openings(inner, place)


def test_files_that_others_name_are_opened_in_one_place() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted((PACKAGE / "runtime").rglob("*.py")):
        for place in _openings(ast.parse(path.read_text())):
            found.setdefault(path.relative_to(PACKAGE).as_posix(), set()).add(place)
    others = {path: places - OWN_FILES.get(path, set()) for path, places in found.items()}
    assert not {path: places for path, places in others.items() if places}, "use runtime/machine/foreign_files.py"
