"""Where interpreters of CPython are: virtual environments, programs that embed one, other file systems and pids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.pythons import PYTHONS, Python
from tests.support.server import Server

SCRIPT = """config = { python_frames = true; show_debug_info = false }
t:syscalls:sys_enter_openat /str(args.filename) == "/dev/null"/ {
    print(pystack(folded)); print(ustack(folded)); exit();
}"""
SERVICE = """
import os, sys, time
def key(value):
    os.close(os.open("/dev/null", os.O_RDONLY))
def serve():
    while True:
        sorted([1], key=key)
        time.sleep(0.01)
os.write(1, b"serves\\n")
serve()
"""
EMBEDDED = """
#include <Python.h>
int main(int count, char **words) {
    Py_Initialize();
    FILE *file = fopen(words[1], "r");
    return count != 2 || file == NULL ? 1 : PyRun_SimpleFile(file, words[1]);
}
"""
_ASK = """
import json, sysconfig
names = ("INCLUDEPY", "LIBDIR", "LIBPL", "LDVERSION", "LIBS", "SYSLIBS", "prefix", "LINKFORSHARED")
print(json.dumps({name: sysconfig.get_config_var(name) for name in names}))
"""

pytestmark = pytest.mark.usefixtures("started", "no_leaks")


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.run(("--version",))


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A program that opens a file in a callback of C."""
    path = tmp_path / "service.py"
    path.write_text(SERVICE)
    return path


def check(server: Server, *command: str | Path, inside: bool = False, **variables: str) -> None:
    """Python's stack, and C functions between its frames in the mixed one; *inside*: of the command's child."""
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"serves\n"
            children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text()
            pid = children.split()[0] if inside else str(program.pid)
            result = server.run(("-q", "-p", pid, "-e", SCRIPT), timeout=60)
        finally:
            os.killpg(program.pid, signal.SIGKILL)
    assert "no Python stacks" not in result.stderr
    python, mixed = result.stdout.split()
    assert python == "<module>;serve;key"
    frames = mixed.split(";")
    assert [name for name in frames if name in {"<module>", "serve", "key"}] == ["<module>", "serve", "key"]
    assert frames.index("key") - frames.index("serve") > 1, "the sort is between them"
    assert frames.index("<module>") > 3, "the program is below them"


@pytest.mark.parametrize("python", PYTHONS[:1], ids=str)
def test_virtual_environment(server: Server, python: Python, service: Path) -> None:
    folder = service.parent / "venv"
    subprocess.run([*python.command, "-m", "venv", "--without-pip", str(folder)], check=True)
    check(server, folder / "bin" / "python", service)


def _embedding(python: Python, folder: Path, *, static: bool) -> tuple[str, str] | None:
    """A program that embeds an interpreter, and its prefix; None where what it needs is not installed."""
    answer = subprocess.run([*python.command, "-c", _ASK], check=True, capture_output=True, text=True).stdout
    known = json.loads(answer)
    library = f"libpython{known['LDVERSION']}"
    name = f"{known['LIBPL']}/{library}.a" if static else f"{known['LIBDIR']}/{library}.so"
    if not os.path.exists(f"{known['INCLUDEPY']}/Python.h") or not os.path.exists(name):
        return None
    (folder / "service.c").write_text(EMBEDDED)
    libraries = f"{known['LIBS']} {known['SYSLIBS']} {known['LINKFORSHARED'] if static else ''} -lm -lz -lexpat"
    words = [f"-I{known['INCLUDEPY']}", str(folder / "service.c"), name, f"-Wl,-rpath,{known['LIBDIR']}"]
    words += ["-no-pie", *libraries.split()] if static else []
    subprocess.run(["cc", "-w", "-o", str(folder / "embedding"), *words], check=True)
    return str(folder / "embedding"), known["prefix"]


@pytest.mark.parametrize("python", [item for item in PYTHONS if item.minor in {11, 13}], ids=str)
@pytest.mark.parametrize("static", [False, True], ids=["libpython", "static"])
def test_a_program_that_embeds_it(server: Server, python: Python, static: bool, service: Path) -> None:
    built = _embedding(python, service.parent, static=static)
    if built is None:
        pytest.skip("no development files of this interpreter")
    program, prefix = built
    check(server, program, service, PYTHONHOME=prefix)


NAMESPACES = """
mount -t tmpfs none "$1"
for folder in usr lib lib64 dev proc etc root; do
    if [ -e "/$folder" ]; then mkdir "$1/$folder" && mount --rbind "/$folder" "$1/$folder"; fi
done
mkdir -p "$1/srv/app"
cp "$2" "$1/srv/app/service.py"
cp "$3" "$1/srv/app/interpreter"
exec chroot "$1" /usr/bin/env PYTHONHOME="$4" /srv/app/interpreter /srv/app/service.py
"""


@pytest.mark.parametrize("python", PYTHONS[:1], ids=str)
def test_another_file_system_and_other_pids(server: Server, python: Python, service: Path) -> None:
    """The interpreter is a file that only the process sees, and the process has other numbers for itself."""
    ask = "import os, sys; print(os.path.realpath(sys.executable), sys.base_prefix)"
    answer = subprocess.run([*python.command, "-c", ask], check=True, capture_output=True, text=True).stdout
    interpreter, prefix = answer.split()
    root, script = service.parent / "root", service.parent / "enter.sh"
    root.mkdir()
    script.write_text(NAMESPACES)
    apart = ("unshare", "--mount", "--pid", "--fork", "/bin/sh", "-e")
    check(server, *apart, script, root, service, interpreter, prefix, inside=True)
