"""Tests of scripts/setup.sh: what it installs and caches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support import parts

ROOT = Path(__file__).parent.parent
SETUP = ROOT / "scripts" / "setup.sh"


def logs_after(folder: Path, commands: str) -> list[str]:
    """Source the set-up in an empty checkout, go on as scripts/run does, and say which files are in TMPDIR then."""
    (folder / "tmp").mkdir()
    script = f"root='{folder}'; . {SETUP}; {commands} || exit 1; exec true"
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTRACE_VENV": str(folder / "venv")}
    subprocess.run(["sh", "-c", script], check=True, env=environment, timeout=60)
    return os.listdir(folder / "tmp")


def test_installing_system_packages_leaves_no_log(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "apt-get"
    tool.write_text("#!/bin/sh\necho noise\n")
    tool.chmod(0o755)
    assert logs_after(tmp_path, "PATH=$root/bin:$PATH; install_packages none") == []


FAKES = "pip_command() { :; }; run_pip() { echo noise; }; level=run; stamp=$venv/stamp; wanted=all"


def environment_of(folder: Path) -> Path:
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "python").symlink_to(sys.executable)
    return folder / "venv"


def test_making_the_environment_leaves_no_log(tmp_path: Path) -> None:
    made = environment_of(tmp_path)
    assert logs_after(tmp_path, f"{FAKES}; make_venv") == []
    assert (made / "stamp").read_text() == "all\n"


@pytest.mark.parametrize("way", ["own", "base"])
def test_pip_is_run_wherever_the_checkout_is(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "with spaces"
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$TMPDIR/arguments"\n')
    python.chmod(0o755)
    commands = f'base_python=$venv/bin/python; pip={way}; install_with_pip -e "$root"'
    assert logs_after(folder, commands) == ["arguments"]
    given = (folder / "tmp" / "arguments").read_text().splitlines()
    assert given[:2] == ["-m", "pip"]
    assert given[-2:] == ["-e", str(folder)]


def lock_and_wait(folder: Path, seconds: str) -> subprocess.CompletedProcess[str]:
    """Wait for the one test machine that may run, as scripts/vm does."""
    asked = f"wait_for_others {seconds} && echo mine; cat \"$cache/vm.lock\"; rm -f \"$log_file\""
    script = f"root='{folder}'; . {SETUP}; {asked}"
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "TMPDIR": str(folder)}
    return subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )


def test_waiting_for_another_test_machine_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "pytrace").mkdir()
    first = lock_and_wait(tmp_path, "")
    assert first.stdout.startswith("mine\n")
    assert first.stderr == ""
    lock = tmp_path / "pytrace" / "vm.lock"
    with subprocess.Popen(["flock", str(lock), "cat"], stdin=subprocess.PIPE) as holder:
        while subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode == 0:
            assert holder.poll() is None
        lock.write_text(f"{holder.pid}\n")
        late = lock_and_wait(tmp_path, "1")
        assert "mine" not in late.stdout
        said = f"another test machine is running (process {holder.pid}): waiting for its end, 1 seconds at most"
        assert said in late.stderr
        assert "it still runs after 1 seconds" in late.stderr
        holder.communicate()
    again = lock_and_wait(tmp_path, "60")
    assert again.stdout.startswith("mine\n")
    assert str(holder.pid) not in again.stdout.split()


def test_the_command_line_of_the_test_machine_has_a_limit_for_waiting() -> None:
    text = (SETUP.parent / "run").read_text()
    assert 'scripts/vm" --wait "${PYTRACE_VM_WAIT:-300}"' in text


APT = """#!/bin/sh
names='9-amd64 10-amd64 11-rt-amd64 12-cloud-amd64 10-common'
case $1 in pkgnames) for name in $names; do echo "linux-headers-6.1.0-$name"; done; exit ;; esac
for word; do case $word in linux-*) echo "$word" >>"$LOG"; : >"$word.deb" ;; esac; done
"""
DPKG = "#!/bin/sh\nmkdir -p usr/src/linux-headers-6.1.0-10-amd64\n"


def test_kernel_headers_are_fetched_once(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in (("apt-get", APT), ("apt-cache", APT), ("dpkg", DPKG)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {
        **os.environ, "XDG_CACHE_HOME": str(tmp_path), "LOG": str(tmp_path / "log"),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    script = f"root='{tmp_path}'; . {SETUP}; ensure_headers 6.1 && printf %s \"$headers\""
    for _ in range(2):
        done = subprocess.run(
            ["sh", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        tree = f"{tmp_path}/pytrace/kernel-headers/6.1.0-10-amd64/usr/src/linux-headers-6.1.0-10-amd64"
        assert done.stdout == tree
        assert os.path.isdir(tree)
    assert (tmp_path / "log").read_text().split() == ["linux-headers-6.1.0-10-amd64", "linux-headers-6.1.0-10-common"]


def test_kernel_headers_come_from_any_suite_of_debian(tmp_path: Path) -> None:
    """Debian 13 has no headers of 6.1: those of Debian 12 serve its tests."""
    (tmp_path / "bin").mkdir()
    suites = tmp_path / "pytrace/suites"
    has = f"case $* in *Dir::State::Lists={suites}/lists*) suites=1 ;; *) suites= ;; esac\n"
    archives = f"[ $1 = indextargets ] && echo '{ARCHIVES.strip()}' && exit\n"
    apt = APT.replace("#!/bin/sh\n", f"#!/bin/sh\n{has}{archives}")
    apt = apt.replace("case $1 in pkgnames)", "case $* in *pkgnames*) [ $suites ] || exit 0;")
    for name, text in (("apt-get", apt), ("apt-cache", apt), ("dpkg", DPKG)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {
        **os.environ, "XDG_CACHE_HOME": str(tmp_path), "LOG": str(tmp_path / "log"),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    script = f"root='{tmp_path}'; . {SETUP}; ensure_headers 6.1 && printf %s \"$headers\""
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("/usr/src/linux-headers-6.1.0-10-amd64"), done.stderr
    assert "bookworm main" in (suites / "sources.list").read_text()


PEER_TOOLS = {
    "id": "echo 0",
    "apt-get": "if [ $1 = indextargets ]; then cat $FOLDER/archives; fi",
    "apt-config": "",
    "dpkg-query": "echo install ok installed",
    "unshare": 'shift; exec "$@"',
    "debootstrap": 'echo "$@" >>$FOLDER/log; [ -e $FOLDER/network ] && mkdir -p $3/lib64 $3/usr/lib/x-linux-gnu && '
    "cp $FOLDER/ld.so $3/lib64/ld-linux-x.so.2",
    "chroot": 'case $* in *dpkg-query*) echo "$VERSION" ;; esac',
}
OTHER_ARCHIVES = "Debian Debian-Security http://security.invalid/debian\nUbuntu Ubuntu http://ubuntu.invalid/\n"
ARCHIVES = f"{OTHER_ARCHIVES}Debian Debian http://debian.invalid/debian/\n"


def run_peer(folder: Path, version: str = "0.27.1-1") -> subprocess.CompletedProcess[str]:
    """scripts/peer among programs that only record what they are called with."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in PEER_TOOLS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "ld.so").write_text('#!/bin/sh\necho "$0" "$@"\n')
    (folder / "ld.so").chmod(0o755)
    environment = {
        **os.environ, "XDG_CACHE_HOME": str(folder), "FOLDER": str(folder), "TMPDIR": str(folder), "VERSION": version,
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    command = [ROOT / "scripts" / "peer", "-e", "two words"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_peer_is_installed_once_from_the_archive_of_apt(tmp_path: Path) -> None:
    (tmp_path / "archives").write_text(ARCHIVES)
    (tmp_path / "network").touch()
    peer = tmp_path / "pytrace" / "peer" / "sid"
    libraries = f"--library-path {peer}/usr/lib/x-linux-gnu"
    command = f"{peer}/loader/bpftrace {libraries} --argv0 bpftrace {peer}/usr/bin/bpftrace"
    first = run_peer(tmp_path)
    assert first.stdout == f"{command} -e two words\n"
    assert "installing bpftrace" in first.stderr
    assert "outputs are recorded from" not in first.stderr
    again = run_peer(tmp_path)
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert (tmp_path / "log").read_text() == f"--variant=minbase sid {peer} http://debian.invalid/debian/\n"


def test_another_version_of_the_peer_is_named(tmp_path: Path) -> None:
    (tmp_path / "archives").write_text(ARCHIVES)
    (tmp_path / "network").touch()
    done = run_peer(tmp_path, "0.28.0-1")
    assert "that suite has bpftrace 0.28.0-1: outputs are recorded from 0.27.1" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("archives", "message"),
    [(ARCHIVES, "is the network reachable?"), (OTHER_ARCHIVES, "apt on this machine has no Debian archive")],
)
def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path, archives: str, message: str) -> None:
    (tmp_path / "archives").write_text(archives)
    done = run_peer(tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert not done.stdout


EMULATOR_TOOLS = {
    "qemu-system-x86_64": 'echo "QEMU emulator version $VERSION (Debian)"',
    "apt-get": """if [ $1 = indextargets ]; then echo "Debian Debian http://debian.invalid/debian/"; exit; fi
echo fetch >>$FOLDER/log
[ -e $FOLDER/network ] || exit 1
for word; do case $word in Dir::Cache=*) touch ${word#*=}/archives/qemu.deb ;; esac; done""",
    "dpkg": "mkdir -p $3/usr/lib/x86_64-linux-gnu && cp $FOLDER/ld.so $3/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
}


def test_a_newer_emulator_is_fetched_once_and_the_own_one_stays_where_that_fails(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in EMULATOR_TOOLS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "ld.so").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "ld.so").chmod(0o755)
    log, newer = tmp_path / "log", tmp_path / "pytrace" / "qemu"

    def emulator(version: str) -> str:
        environment = {
            **os.environ, "XDG_CACHE_HOME": str(tmp_path), "FOLDER": str(tmp_path), "TMPDIR": str(tmp_path),
            "VERSION": version, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        }  # fmt: skip
        words = ["sh", "-c", f"root='{tmp_path}'; . {SETUP}; ensure_emulator && printf %s \"$newer_qemu\""]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    assert emulator("11.1.3") == ""
    assert not log.exists()
    for _ in range(2):
        assert emulator("7.2.22") == "", "without a network"
    assert log.read_text() == "fetch\n", "asked again a day later"
    (newer / "failed").unlink()
    (tmp_path / "network").touch()
    for _ in range(2):
        assert emulator("7.2.22") == f"{newer}/bin"
    assert log.read_text() == "fetch\n" * 3, "lists and packages"
    words = [newer / "bin" / "qemu-system-x86_64", "-m", "3G"]
    started = subprocess.run(words, capture_output=True, text=True, check=True)
    assert started.stdout.endswith(f"-L {newer}/usr/lib/ipxe/qemu -m 3G\n")


def test_each_script_in_python_is_type_checked() -> None:
    files = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    python = [path for path in scripts if path.suffix == ".py" or path.read_text().startswith("#!/usr/bin/env python3")]
    assert python
    packages = {path.parent for path in (ROOT / "scripts").glob("*/__init__.py")}
    found = {str(path.relative_to(ROOT)) for path in [*python, *packages]}
    assert found == {name for name in files if name.startswith("scripts/")}


def test_ci_tests_everything() -> None:
    """As long as scripts/test alone runs less, and scripts/check what the part unit leaves out."""
    run = (ROOT / ".ci" / "run").read_text()
    assert "scripts/test all || status=1" in run
    assert "scripts/check >" in run
    left_out = re.findall(r"--ignore (tests/\w+\.py)", (ROOT / "scripts" / "test").read_text())
    assert left_out == ["tests/test_layering.py", "tests/test_typed_programs.py"]
    assert re.search(rf"(?m)^check .*pytest .*{' '.join(left_out)}$", (ROOT / "scripts" / "check").read_text())
    text = (ROOT / "scripts" / "test").read_text()
    assert "all) parts+=(unit kernel vm); shift ;;" in text
    assert "parts=(unit kernel core)" in text


def test_each_part_that_a_test_needs_is_known() -> None:
    named = set().union(*(parts.needed(part) for part in ("unit", "kernel", "vm")))
    named |= {parts.ALWAYS}
    assert named | {parts.PARTS[name].beside for name in named} - {""} == set(parts.PARTS)


def test_what_is_installed_is_what_the_chosen_tests_need() -> None:
    assert parts.wanted(["unit"]) == {"compilers"}
    assert parts.wanted(["quick"]) == {"compilers"}
    assert parts.wanted(["kernel", "tests/kernel/test_reports.py::test_x"]) == {"compilers", "chromium"}
    assert parts.wanted(["vm", "tests/kernel/test_attach.py"]) == {"compilers", "machine"}
    assert {"machine", "chromium", "ruby", "zsh"} <= parts.wanted(["unit", "kernel", "core"])
    assert "ruby" not in parts.wanted(["core"])


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_what_is_missing_is_a_skip_and_in_ci_a_failure(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.delenv("PYTRACE_TEST_VM", raising=False)
    monkeypatch.setitem(parts.PARTS, "none", parts.Part(("no-such-program",)))
    with pytest.raises(outcome, match="no-such-program"):
        parts.need("none")


def test_a_node_of_another_origin_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Debian's npm conflicts with the Node of other archives, which has its own."""
    monkeypatch.setattr(parts, "wanted", lambda _words: {"readers"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    parts.main([])
    assert capsys.readouterr().out == "packages nodejs npm\nfetch ensure_readers\n"
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    parts.main([])
    assert capsys.readouterr().out == "packages\nfetch ensure_readers\n"


APT_OF_PARTS = """#!/bin/sh
echo "$@" >>"$LOG"
case $* in
    *policy*none*) echo '  Candidate: (none)' ;;
    *policy*) echo '  Candidate: 1.0' ;;
    *--assume-no*) echo 'Need to get 12.5 MB/13 MB of archives.' ;;
    *install*npm*) exit 100 ;;
esac
"""


def _installed(tmp_path: Path, packages: str) -> tuple[str, list[str]]:
    """What need_together says, and the calls of apt-get that install."""
    (tmp_path / "bin").mkdir()
    for name, text in (("apt-get", APT_OF_PARTS), ("apt-cache", APT_OF_PARTS), ("id", "#!/bin/sh\necho 0\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {
        **os.environ, "XDG_CACHE_HOME": str(tmp_path), "LOG": str(tmp_path / "log"), "TMPDIR": str(tmp_path),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    script = f"root='{tmp_path}'; . {SETUP}; need_together {packages}"
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60)
    log = (tmp_path / "log").read_text().splitlines()
    return done.stderr, [line for line in log if " -y " in f" {line} "]


def test_parts_are_installed_in_one_call_that_says_how_much(tmp_path: Path) -> None:
    said, calls = _installed(tmp_path, "zsh none fish")
    assert "apt has no package none: the tests that need it are skipped" in said
    assert "installing zsh fish (12.5 MB to fetch, once)" in said
    assert len(calls) == 1
    assert calls[0].endswith(" zsh fish")


def test_a_part_that_does_not_fit_keeps_no_other_away(tmp_path: Path) -> None:
    said, calls = _installed(tmp_path, "zsh npm fish")
    assert "apt-get could not install npm: tests that need it are skipped" in said
    assert "could not install zsh" not in said
    assert [call.rpartition(" ")[2] for call in calls[-3:]] == ["zsh", "npm", "fish"]
