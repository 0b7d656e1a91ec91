"""Bundles for reports of bugs, what is left out of them, and what runs need."""

from __future__ import annotations

import io
import json
import os
import pwd
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from pytrace.cli import debugging, info, request
from pytrace.cli.debugging import Bundle, BundleRequest, Redactor, archive, collect, listing
from pytrace.cli.options import read
from pytrace.cli.request import Script
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, ProcessFilters, RunOptions
from pytrace.core.source import Source
from pytrace.runtime.load.loaded_script import LoadError
from pytrace.runtime.machine import privileges
from pytrace.runtime.session import confinement
from tests.codegen.running import compiled
from tests.support.facts import RecordedKernel

# ---------------------------------------------------------------------------------------------- debug bundle
# pytrace.cli.debugging: archives for bug reports. tests/cases/modes.case makes some on a kernel.


class Kernel:
    """Loads whatever comes, or fails in one way."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.runs: list[RunOptions] = []

    def run(self, script: CompiledScript, options: RunOptions) -> int:
        self.runs.append(options)
        if self.error is not None:
            raise self.error
        return 0

    def load(self, script: CompiledScript, *, options: Any, stack: Any) -> None:
        options.libbpf_log("libbpf: loading\n")
        for program in script.manifest.programs:
            options.verifier_log(program.symbol, "processed 7 insns\n")
        if isinstance(self.error, LoadError):
            raise self.error


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(debugging.opening, "run", made.run)
    monkeypatch.setattr(debugging, "load", made.load)
    monkeypatch.setattr(request, "live_kernel", lambda *_, **__: RecordedKernel())
    monkeypatch.setattr(request, "check_machine", lambda _: None)
    monkeypatch.setattr(request, "prepared", lambda _, script, __: script)
    monkeypatch.setattr(info, "json_report", lambda _: "{}\n")
    return made


def bundle(
    text: str, *, compiled_file: bytes | None = None, source: Source | None = None,
    options: RunOptions | None = None, compile_options: CompileOptions | None = None, **shown: str,
) -> Bundle:  # fmt: skip
    script = Script(source or Source("script.bt", text, None), (), (), False, compiled_file)
    return collect(BundleRequest(script, compile_options or CompileOptions(), options or RunOptions(), shown))


def names(found: Bundle) -> set[str]:
    return set(found.files)


def content(found: Bundle, name: str) -> str:
    return found.files[name][0].decode()


SCRIPT = 'kprobe:vfs_read { printf("%d\\n", pid); }'
ALWAYS = {"README.txt", "info.json", "script.bt", "summary.json"}
COMPILED = {"ir.original.ll", "ir.optimized.ll", "program.s", "program.elf", "manifest.json"}


def test_a_script_that_works(kernel: Kernel) -> None:
    found = bundle(SCRIPT)
    assert names(found) == ALWAYS | COMPILED | {"libbpf.log", "verifier/kprobe_vfs_read_0.log"}
    assert not found.failed
    assert content(found, "script.bt") == SCRIPT
    assert "define" in content(found, "ir.original.ll")
    assert "exit" in content(found, "program.s")
    assert json.loads(content(found, "manifest.json"))
    summary = json.loads(content(found, "summary.json"))
    assert {"pass parse", "pass generate", "compile", "load and attach"} <= set(summary["milliseconds"])
    assert all(name in content(found, "README.txt") for name in names(found) - {"README.txt"})
    assert debugging.LEFT_OUT in content(found, "README.txt")


def test_the_script_is_not_run(kernel: Kernel) -> None:
    given = RunOptions(command="secret --password x", duration=5.0, save="/tmp/x", output="/tmp/y", follow=True)
    bundle(SCRIPT, options=given)
    (options,) = kernel.runs
    assert options.dry_run
    assert (options.command, options.duration, options.save, options.output) == (None, None, None, None)


@pytest.mark.parametrize("text", ["begin { nosuch(); }", "begin { ", 'begin { print("\\x1b[31m" 1); }', "\0\ud800"])
def test_a_script_with_errors(kernel: Kernel, text: str) -> None:
    found = bundle(text)
    assert names(found) == ALWAYS | {"messages.txt"}
    assert "ERROR" in content(found, "messages.txt")
    assert found.errors == {"compile": "the script has errors, see messages.txt"}
    assert not kernel.runs


def test_a_program_that_the_kernel_refuses(kernel: Kernel) -> None:
    kernel.error = LoadError("the kernel refused it", log="R1 is no pointer", hints=("a hint",))
    found = bundle(SCRIPT)
    assert names(found) >= COMPILED
    assert content(found, "refused.log") == "R1 is no pointer"
    assert found.errors == {"load and attach": "the kernel refused it\nHINT: a hint"}
    assert "processed 7 insns" in content(found, "verifier/kprobe_vfs_read_0.log")


def test_a_probe_that_cannot_be_attached(kernel: Kernel) -> None:
    kernel.error = TraceError("no such function")
    found = bundle(SCRIPT)
    assert found.errors == {"load and attach": "no such function"}
    assert names(found) >= COMPILED


def test_a_user_who_may_not_trace(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_options: RunOptions) -> None:
        raise TraceError("tracing needs root")

    monkeypatch.setattr(request, "check_machine", refuse)
    assert bundle(SCRIPT).errors == {"check": "tracing needs root"}


def test_a_defect_of_pytrace_has_its_traceback(kernel: Kernel) -> None:
    kernel.error = InternalError("unexpected")
    found = bundle(SCRIPT)
    assert found.errors == {"load and attach": "BUG: InternalError: unexpected"}
    assert "test_debugging.py" in content(found, "traceback.txt")


def test_a_compiled_file(kernel: Kernel) -> None:
    data = compiled(SCRIPT, RecordedKernel()).to_bytes()
    found = bundle("", compiled_file=data)
    assert {"manifest.json", "program.elf", "verifier/kprobe_vfs_read_0.log"} <= names(found)
    damaged = bundle("", compiled_file=data[:-1])
    assert damaged.errors == {"read": "the compiled script is damaged: its digest does not fit its content\n"
                              "HINT: compile it again with --aot"}  # fmt: skip


def test_imports_have_harmless_names(kernel: Kernel, tmp_path: Path) -> None:
    hostile = "..\x1b[2Jé'$(x)" + "a" * 100 + ".bt"
    (tmp_path / hostile).write_text("macro one() { 1 }\n")
    script = tmp_path / "main.bt"
    text = f'import "{hostile}"; kprobe:vfs_read {{ print(one()); }}'
    script.write_text(text)
    found = bundle(text, source=Source(str(script), text, str(script)))
    imported = [name for name in names(found) if name.startswith("imports/")]
    assert [len(name) for name in imported] == [len("imports/01-") + 60]
    assert imported[0].removeprefix("imports/").replace("-", "").replace(".", "").replace("_", "").isalnum()
    assert imported[0].isascii()
    assert "\x1b" not in listing(found)


def test_names_are_left_out_everywhere(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor(("/srv/alice",), ("alice",), ("build7",))
    monkeypatch.setattr(Redactor, "of_machine", classmethod(lambda _cls: redactor))
    text = 'kprobe:vfs_read { print("build7 /srv/alice/x /home/bob/y"); }'
    source = Source("/srv/alice/script.bt", text, "/srv/alice/script.bt")
    options = CompileOptions(environment={"PYTRACE_BTF": "/srv/alice/btf"})
    found = bundle("", source=source, compile_options=options, script="/srv/alice/a")
    for name, (data, _) in found.files.items():
        for word in (b"/srv/alice", b"build7", b"/home/bob"):
            assert word not in data, name


def test_of_options_only_harmless_values_are_shown() -> None:
    line = read(["-c", "mysql -psecret", "--unsafe", "-f", "json", "-u", "alice", "--debug-bundle", "x", "-e", "{ }"])
    assert debugging.shown_options(line) == {
        "command": "(given)", "format": "json", "uid": "(given)", "unsafe": True
    }  # fmt: skip


def test_logs_are_bounded(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debugging, "MOST_LOG", 10)
    found = bundle(SCRIPT)
    assert content(found, "verifier/kprobe_vfs_read_0.log") == "(its end)\nprocessed 7 insns\n"


def test_the_archive_has_no_times_and_owners() -> None:
    made = Bundle(Redactor())
    made.text("b" * 120, "two", "")
    made.text("a", "one", "")
    data = archive(made)
    assert data == archive(made)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        entries = tar.getmembers()
    assert [item.name for item in entries] == ["pytrace-debug/a", f"pytrace-debug/{'b' * 120}"]
    assert {(item.mtime, item.uid, item.gid, item.uname, item.mode) for item in entries} == {(0, 0, 0, "", 0o644)}


# ---------------------------------------------------------------------------------------------- redaction
# pytrace.cli.debugging: names of hosts, users and home directories.


ALICE = Redactor(("/srv/people/alice",), ("alice",), ("build7.example.org", "build7"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("uprobe:/srv/people/alice/app:main { }", "uprobe:HOME/app:main { }"),
        ("/srv/people/alice2/x", "/srv/people/alice2/x"),
        ("import \"/home/bob/lib.bt\"; '/home/carol'", "import \"HOME/lib.bt\"; 'HOME'"),
        ("on build7 as alice: malice, alice_x, build77", "on HOST as USER: malice, alice_x, build77"),
        ("at build7.example.org.", "at HOST."),
        (r'c"\22build7 alice\00"', r'c"\22HOST USER\00"'),
        (r'"\nalice\u001bbuild7"', r'"\nUSER\u001bHOST"'),
        ("nothing /root/x root localhost", "nothing /root/x root localhost"),
    ],
)
def test_names_in_texts(text: str, wanted: str) -> None:
    assert ALICE.text(text) == wanted


def test_binary_files_keep_their_length() -> None:
    data = b"\x7fELF\0/srv/people/alice/a.bt\0build7\0/home/bob/b.bt\0alice_probe\0"
    found = ALICE.binary(data)
    assert len(found) == len(data)
    assert found == b"\x7fELF\0" + b"x" * 17 + b"/a.bt\0xxxxxx\0" + b"x" * 9 + b"/b.bt\0alice_probe\0"


def test_names_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user behind sudo is one of them; root and what is too short to be told apart are not."""
    entries = [
        pwd.struct_passwd(("root", "x", 0, 0, "", "/root", "/bin/sh")),
        pwd.struct_passwd(("alice", "x", 1000, 1000, "", "/srv/people/alice", "/bin/sh")),
        pwd.struct_passwd(("bob", "x", 1001, 1001, "", "/srv/people/bob", "/bin/sh")),
    ]
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        os, "uname", lambda: os.uname_result(("Linux", "build7.example.org", "6.1", "#1", "x86_64"))
    )
    found = Redactor.of_machine({"USER": "root", "SUDO_USER": "alice", "HOME": "/root", "LOGNAME": "x"})
    assert found == Redactor(("/srv/people/alice",), ("alice",), ("build7.example.org", "build7"))


# ---------------------------------------------------------------------------------------------- run needs
# The privileges that a script needs, for ``--info`` with a script.


KERNEL = replace(RecordedKernel(), features=RecordedKernel().features | {"fentry"})


def needs(script: str, options: RunOptions | None = None) -> dict[str, tuple[str, ...]]:
    return info.needs(compiled(script, KERNEL).manifest, options or RunOptions())


@pytest.mark.parametrize(
    ("script", "reasons"),
    [
        ("kprobe:vfs_read { @ = count(); }", set()),
        ("kprobe:vfs_read { @[kstack] = count(); }", {confinement.KERNEL_SYMBOLS}),
        ("kprobe:vfs_read { @[ustack] = count(); }", {confinement.USER_SYMBOLS}),
        ("fentry:vfs_read { @ = count(); }", set()),
        ("fentry:mod_a:helper { @ = count(); }", {info.FOREIGN}),
        ('kprobe:vfs_read { cat("/proc/uptime"); }', {confinement.CAT}),
    ],
)
def test_a_script_needs_what_its_probes_and_output_need(script: str, reasons: set[str]) -> None:
    found = needs(script)
    assert found.pop(info.ATTACHES) == privileges.NEEDED
    assert set(found) == reasons


def test_processes_of_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    options = replaced(RunOptions(), filters=ProcessFilters((1,)))
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    assert needs("kprobe:vfs_read { }", options)[info.PROCESSES] == ("CAP_SYS_PTRACE",)
    nowhere = replaced(RunOptions(), filters=ProcessFilters((2**22 + 1,)))
    assert info.PROCESSES not in needs("kprobe:vfs_read { }", nowhere)


def test_rows_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: frozenset(privileges.NEEDED))
    manifest = compiled("kprobe:vfs_read { @[kstack] = count(); }", KERNEL).manifest
    assert list(info.rows(manifest, RunOptions())) == [
        (f"{info.ATTACHES} (CAP_BPF, CAP_PERFMON, CAP_DAC_READ_SEARCH)", True),
        (f"{confinement.KERNEL_SYMBOLS} (CAP_SYSLOG)", "no (lacks CAP_SYSLOG)"),
    ]


def test_a_script_that_this_user_cannot_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "effective_capabilities", frozenset)
    attaches, rest = info.rows_without(TraceError("this user may not read tracefs", hints=("use sudo",)))
    assert attaches[1] == "no (lacks CAP_BPF, CAP_DAC_READ_SEARCH, CAP_PERFMON)"
    assert rest[1] == "no (this user may not read tracefs; use sudo)"
