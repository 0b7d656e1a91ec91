"""Programs compiled with -gsplit-dwarf, traced: arguments by name, results, source lines, inlined functions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.compile import compiled, tool
from tests.support.server import Server

pytestmark = pytest.mark.usefixtures("started", "no_leaks")

SOURCE = """\
#include <string.h>
namespace app {
struct Item { long weight; char name[8]; const Item *next; };
__attribute__((noinline)) void touch() {
    __asm__ volatile("nop" : : "r"(__builtin_frame_address(0)) : "memory"); }
static inline __attribute__((always_inline)) long sum(const Item *item) { touch(); return item->weight + 30; }
__attribute__((noinline)) int handle(const Item &item, int depth, const char *label) {
    long total = sum(&item);
    return total + depth + strlen(label);
}
}
int main(int argc, char **argv) {
    app::Item last = {30, "last", 0}, first = {10, "first", &last};
    __asm__ volatile("" : : "r"(&first), "r"(&last) : "memory");
    return app::handle(first, argc, argv[0] + strlen(argv[0]) - 3) == 44 ? 0 : 1;
}
"""


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.run(("--version",))


def _program(folder: Path, options: str) -> Path:
    return compiled(folder, "app", SOURCE, *options.split(), language="c++")


@pytest.mark.parametrize("package", [False, pytest.param(True, marks=pytest.mark.needs("dwz"))])
@pytest.mark.parametrize("form", ["-gdwarf-5 -O0", "-gdwarf-5 -O2", "-gdwarf-4 -O0", "-gdwarf-4 -O2"])
def test_arguments(form: str, package: bool, server: Server, tmp_path: Path) -> None:
    path = _program(tmp_path, f"{form} -gsplit-dwarf")
    if package:
        tool("llvm-dwp", "-e", path, "-o", f"{path}.dwp")
        (tmp_path / "app.dwo").unlink()
    program = f"""
    uprobe:{path}:cpp:"app::handle" {{
        printf("%d %s %d ", args.item->weight, args.item->name, args.item->next->weight);
        printf("%d %s\\n", args.depth, str(args.label));
    }}
    uretprobe:{path}:cpp:"app::handle" {{ printf("%d\\n", retval); }}
    uprobe:{path}@app.cpp:9 {{ printf("%s\\n", func); }}
    """
    result = server.run(("-q", "-e", program, "-c", str(path)), timeout=30)
    assert (result.status, result.stderr) == (0, ""), result
    name = "app::handle(app::Item const&, int, char const*)"
    assert sorted(filter(None, result.stdout.split("\n"))) == ["10 first 30 1 app", "44", name]


def test_inlined_functions_in_stacks(server: Server, tmp_path: Path) -> None:
    path = _program(tmp_path, "-g -O2 -gsplit-dwarf -fno-omit-frame-pointer -fno-schedule-insns2")
    # Behind the prologue, where the frame pointer leads to the caller.
    program = f"config = {{ show_debug_info = true }} uprobe:{path}@app.cpp:5 {{ print(ustack(2)); }}"
    result = server.run(("-q", "-e", program, "-c", str(path)), timeout=30)
    assert (result.status, result.stderr) == (0, ""), result
    first, inlined, outer = result.stdout.split("\n")[1:4]
    assert first.strip().startswith("app::touch()+")
    assert inlined.strip().startswith("[inlined] app::sum@")
    assert inlined.endswith("app.cpp:6")
    assert outer.strip().startswith("app::handle(")
    assert outer.endswith("app.cpp:8"), "the place of the call"


def test_missing_file(server: Server, tmp_path: Path) -> None:
    path = _program(tmp_path, "-gdwarf-5 -O2 -gsplit-dwarf")
    shutil.move(tmp_path / "app.dwo", tmp_path / "elsewhere")
    result = server.run(("-q", "-e", f"uprobe:{path}:*handle* {{ print(args.depth); }}", "-c", str(path)))
    assert result.status == 1
    assert "app.dwo, which does not exist" in result.stderr
    result = server.run(("-lv", f"uprobe:{path}:*handle*"))
    assert result.status == 0
    assert "    " not in result.stdout
    assert result.stderr.count("app.dwo") == 1
    program = f'uretprobe:{path}:cpp:"app::handle" {{ printf("%d\\n", (int32)retval); }}'
    for _ in range(2):
        result = server.run(("-q", "-e", program, "-c", str(path)))
        assert (result.status, result.stdout.strip()) == (0, "44"), result
        assert "app.dwo" in result.stderr, "a kept script warns too"
    shutil.move(tmp_path / "elsewhere", tmp_path / "app.dwo")
    result = server.run(("-q", "-e", program, "-c", str(path)))
    assert (result.status, result.stdout.strip(), result.stderr) == (0, "44", ""), "it is found when it comes"
