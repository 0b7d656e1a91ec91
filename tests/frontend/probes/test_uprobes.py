"""Probes in binaries: uprobe, usdt and functions of Python."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from pytrace.core.kernel_info import IndirectFunction, UserSymbol
from pytrace.core.options import ProcessFilters
from pytrace.core.probe_kinds import PythonTarget, StaticProbeTarget, UserTarget, Way
from pytrace.core.types import INT32, INT64
from pytrace.frontend.probes.uprobes import LONGEST_PATTERN, PYTHON_OBJECT, python_files
from pytrace.frontend.probes.usdt import BadArgumentError, argument_locations
from pytrace.frontend.syntax.typed_program import PythonValue, RegisterLocation
from pytrace.frontend.syntax.typed_program import RegisterLocation as At
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel
from tests.support.rows import each_row

MULTI = RecordedKernel(features=FEATURES | {"uprobe_multi"})

CPP = RecordedKernel(
    cpp={
        "/bin/app": (
            (UserSymbol("_ZN1a3runEi", 0x401000, 0x1000, 8), "a::run(int)"),
            (UserSymbol("_ZN1a3runEd", 0x401010, 0x1010, 8), "a::run(double)"),
        )
    }
)


@pytest.mark.parametrize(
    ("text", "probe", "offset", "symbol"),
    [
        ("uprobe:/bin/app:work", "uprobe:/bin/app:work", 0x1040, "work"),
        ("uprobe:app:work", "uprobe:/bin/app:work", 0x1040, "work"),
        ("uprobe:/bin/app:work+4", "uprobe:/bin/app:work+4", 0x1044, "work"),
        ("uprobe:/bin/app:0x401047", "uprobe:/bin/app:4198471", 0x1047, ""),
        ("uretprobe:/bin/app:work", "uretprobe:/bin/app:work", 0x1040, "work"),
    ],
)
def test_places(text: str, probe: str, offset: int, symbol: str) -> None:
    (target,) = Expanded(f"{text} {{ }}").unit.targets
    assert target.probe == probe
    assert target.place == UserTarget("/bin/app", offset, symbol=symbol, inside="+" in probe)


def test_wildcards_and_multi_links() -> None:
    assert Expanded("uprobe:/bin/app:work* { }", MULTI).unit.multi == "uprobe_multi"
    assert Expanded("uprobe:/bin/app:work* { }").unit.multi == ""
    assert Expanded("uprobe:/bin/app:work* { }", MULTI, no_features=frozenset({"uprobe_multi"})).unit.multi == ""


ALIASES = RecordedKernel(
    symbols={
        "/bin/app": (
            UserSymbol("__open", 0x401000, 0x1000, 64),
            UserSymbol("open64", 0x401000, 0x1000, 64),
            UserSymbol("open", 0x401000, 0x1000, 64),
            UserSymbol("opendir", 0x401040, 0x1040, 32),
        )
    }
)


def test_a_pattern_takes_one_name_of_each_function() -> None:
    assert Expanded("uprobe:/bin/app:*open* { }", ALIASES).names == ["uprobe:/bin/app:open", "uprobe:/bin/app:opendir"]
    assert Expanded("uprobe:/bin/app:__* { }", ALIASES).names == ["uprobe:/bin/app:__open"]
    assert Expanded("uprobe:/bin/app:open64 { }", ALIASES).names == ["uprobe:/bin/app:open64"]
    found = Expanded("uprobe:/bin/app:* { }", ALIASES, probe_filter=":open64$")
    assert found.names == ["uprobe:/bin/app:open64"]


def test_cpp_names() -> None:
    found = Expanded("uprobe:/bin/app:cpp:a::run { }", CPP)
    assert found.hints == ['write uprobe:/bin/app:cpp:"a::run"']  # a colon ends a part
    assert Expanded("uprobe:/bin/app:a::run(int) { }", CPP).hints == ['write uprobe:/bin/app:cpp:"a::run(int)"']
    found = Expanded('uprobe:/bin/app:cpp:"a::run" { }', CPP)
    assert found.names == ['uprobe:/bin/app:cpp:"a::run(int)"', 'uprobe:/bin/app:cpp:"a::run(double)"']
    found = Expanded('uprobe:/bin/app:cpp:"a::run(double)" { }', CPP)
    assert found.unit.targets[0].of(UserTarget).symbol == "_ZN1a3runEd"
    assert 'cpp:"a::run"' in Expanded('uprobe:/bin/app:cpp:"a::runn" { }', CPP).hints[0]
    kernel = RecordedKernel(cpp={"/bin/app": ((UserSymbol("_Z3runi", 0x401000, 0x1000, 8), "run(int)"),)})
    assert "cpp:run" in Expanded("uprobe:/bin/app:run { }", kernel).hints[0]


def test_source_lines() -> None:
    kernel = RecordedKernel(lines={("app.c", 12): [UserSymbol("work", 0x401048, 0x1048, 0)]})
    (target,) = Expanded("uprobe:/bin/app@app.c:12 { }", kernel).unit.targets
    assert (target.probe, target.of(UserTarget).offset) == ("uprobe:/bin/app@app.c:12", 0x1048)
    assert Expanded("uprobe:/bin/app@app.c:12:3 { }", kernel).names == ["uprobe:/bin/app@app.c:12:3"]
    assert "app.c:13" in Expanded("uprobe:/bin/app@app.c:13 { }", kernel).errors[0]
    assert "pattern" in Expanded("uprobe:/bin/*@app.c:12 { }", kernel).errors[0]
    assert "source line" in Expanded("uretprobe:/bin/app@app.c:12 { }", kernel).errors[0]
    assert "number" in Expanded("uprobe:/bin/app@app.c:x { }", kernel).errors[0]


@each_row(
    ("text", "part"),
    [
        ("uprobe:/bin/app:wrok", "no function 'wrok'"),
        ("uprobe:/bin/none:main", "no file '/bin/none'"),
        ("uprobe:none:main", "PATH"),
        ("uprobe:/bin/app:work+400", "32 bytes"),
        ("uprobe:/bin/app:work+z", "number"),
        ("uprobe:/bin/app:0x999", "nothing at address 0x999"),
        ("uretprobe:/bin/app:work+4", "no offset"),
        ("uretprobe:/bin/app:0x401000", "needs a function"),
        ("uprobe:/bin/app:c:work", "form"),
        ("uprobe:/bin/app:", "form"),
    ],
)
def test_mistakes(text: str, part: str) -> None:
    assert part in Expanded(f"{text} {{ }}").errors[0]


def test_suggestions() -> None:
    assert "uprobe:/bin/app:work" in Expanded("uprobe:/bin/app:worj { }").hints[0]
    assert "uprobe:/bin/app:work_more" in Expanded("uprobe:/bin/app:work_mroe { }").hints[0]


@pytest.mark.parametrize("name", ["stop", "sto*"])
def test_usdt_probes_of_the_name_are_named(name: str) -> None:
    hints = [f"USDT probes are usdt:/bin/app:{provider}:{name}" for provider in ("one", "two")]
    assert Expanded(f"u:/bin/app:{name} {{ }}").hints[:2] == hints


def test_the_nearest_lines_with_code() -> None:
    code = [UserSymbol("work", 0x401040, 0x1040, 32)]
    kernel = RecordedKernel(lines={("app.c", number): code for number in (3, 12, 15)})
    assert Expanded("uprobe:/bin/app@app.c:13 { }", kernel).hints == ["the nearest lines with code: 12, 15"]
    assert Expanded("uprobe:/bin/app@app.c:25 { }", kernel).hints == ["the nearest line with code: 15"]
    assert "gcc -g" in Expanded("uprobe:/bin/app@app.c:400 { }", kernel).hints[0]


def test_functions_of_the_c_library_are_not_in_programs() -> None:
    functions = (UserSymbol("malloc", 0x1000, 0x1000, 8), UserSymbol("free", 0x1008, 0x1008, 8))
    files = {path: [path] for path in ("/bin/stripped", "/lib/libc.so.6")}
    kernel = RecordedKernel(
        files={**files, "libc": ["/lib/libc.so.6"]}, symbols={"/lib/libc.so.6": functions, "/bin/stripped": ()}
    )
    found = Expanded("uretprobe:/bin/stripped:malloc { }", kernel)
    assert found.hints[0] == "the C library has it: uretprobe:libc:malloc"
    assert "no symbols" in found.hints[1]
    assert not any("C library" in hint for hint in Expanded("uprobe:/bin/stripped:mine { }", kernel).hints)
    assert not any("C library" in hint for hint in Expanded("uprobe:/lib/libc.so.6:mallok { }", kernel).hints)


def test_unsafe_skips_the_checks() -> None:
    assert Expanded("uprobe:/bin/app:work+400 { }", unsafe=True).unit.targets[0].of(UserTarget).offset == 0x1040 + 400
    assert Expanded("uprobe:/bin/app:0x999 { }", unsafe=True).unit.targets[0].of(UserTarget).offset == 0x999


def test_offsets_must_be_at_an_instruction() -> None:
    assert Expanded("uprobe:/bin/app:work+7 { }").names == ["uprobe:/bin/app:work+7"]
    found = Expanded("uprobe:/bin/app:work+8 { }")
    assert "no instruction starts" in found.errors[0]
    assert "work+7 and work+10" in found.hints[0]
    assert Expanded("uprobe:/bin/app:work+8 { }", unsafe=True).names
    assert "no instruction" in Expanded("uprobe:/bin/app:0x401048 { }").errors[0]
    assert "cannot be checked" in Expanded("uprobe:/bin/app:work+8 { }", RecordedKernel(code=b"\x06")).errors[0]


def test_arguments_from_dwarf() -> None:
    context = Expanded("uprobe:/bin/app:work { print(args.m) }").unit.context
    assert [(item.name, item.type, item.place) for item in context.arguments] == [
        ("n", INT32, RegisterLocation("di", size=4, signed=True)),
        ("m", INT64, RegisterLocation("sp", 8, True, 8, True)),
    ]
    assert Expanded("uprobe:/bin/app:main { print(args.m) }").unit.context.args_type is None
    assert Expanded("uprobe:/bin/app:work+4 { print(args.m) }").unit.context.args_type is None


GO = (
    UserSymbol("main.work", 0x401000, 0x1000, 10, go=True),
    UserSymbol("main.stop", 0x401100, 0x1100, 2, go=True),
    UserSymbol("plain", 0x401200, 0x1200, 8),
)
RETURNS = {0x1000: bytes.fromhex("90c348c7c0c3909090c3"), 0x1100: bytes.fromhex("0f0b")}
"""nop; ret; a move of a number that has the byte of a ret in it; ret. And ud2."""


@pytest.mark.parametrize("name", ["main.work", "main.*"])
def test_functions_of_go_are_traced_at_their_return_instructions(name: str) -> None:
    kernel = RecordedKernel(symbols={"/bin/app": GO}, code_at=RETURNS)
    unit = Expanded(f"uretprobe:/bin/app:{name} {{ }}", kernel).unit
    places = [target.of(UserTarget) for target in unit.targets]
    assert [(place.offset, place.leaving) for place in places] == [(0x1001, 1), (0x1009, 9)]
    assert {target.probe for target in unit.targets} == {"uretprobe:/bin/app:main.work"}


MARKED = (("f30f1efa55", 4), ("f30f1efa4155", 4), ("f30f1efa4889e5", 0), ("f30f1efa4190", 0), ("55909090c3", 0))


@each_row("row", MARKED)
def test_a_push_after_a_mark_is_probed_in_place_of_it(row: tuple[str, int]) -> None:
    code, moved = row
    kernel = RecordedKernel(symbols={"/bin/app": GO}, code_at={0x1200: bytes.fromhex(code)})
    place = Expanded("uprobe:/bin/app:plain { }", kernel).unit.targets[0].of(UserTarget)
    assert (place.offset, place.checked) == (0x1200 + moved, moved)
    exact = Expanded("uprobe:/bin/app:plain+4 { }", kernel).unit.targets[0].of(UserTarget)
    assert (exact.offset, exact.checked) == (0x1204, 0)


def test_functions_of_c_in_a_go_program_have_programs_of_their_own() -> None:
    kernel = RecordedKernel(symbols={"/bin/app": GO}, code_at={**RETURNS, 0x1200: b"\x90\xc3"})
    units = Expanded("uretprobe:/bin/app:* { }", kernel).units
    places = [[target.of(UserTarget) for target in unit.targets] for unit in units]
    assert [[(place.leaving, place.go) for place in group] for group in places] == [
        [(1, True), (9, True)],
        [(1, False)],
    ]
    assert Expanded("uprobe:/bin/app:main.work { }", kernel).unit.targets[0].of(UserTarget).leaving is None
    unsafe = Expanded("uretprobe:/bin/app:main.work { }", kernel, unsafe=True).unit
    assert unsafe.targets[0].of(UserTarget).leaving is None


EXITS = (
    UserSymbol("plain", 0x401000, 0x1000, 3),
    UserSymbol("tail", 0x401010, 0x1010, 5),
    UserSymbol("_Z4tailv", 0x401020, 0x1020, 6),
    UserSymbol("odd", 0x401030, 0x1030, 1),
    UserSymbol("never", 0x401040, 0x1040, 2),
)
EXIT_CODE = {
    0x1000: bytes.fromhex("90c3c3"), 0x1010: bytes.fromhex("e900ffffff"), 0x1020: bytes.fromhex("7401c3ffe0c3"),
    0x1030: b"\x06", 0x1040: bytes.fromhex("0f0b"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "exits", "warning"),
    [
        ("plain", [(1, Way.RETURN), (2, Way.RETURN)], ""),
        ("tail", [(None, Way.RETURN)], "the return address of tail is replaced, as it jumps to"),
        ("odd", [(None, Way.RETURN)], "the return address of odd is replaced, as 0x06 is not an instruction"),
        ("_Z4tailv", [(2, Way.RETURN), (5, Way.RETURN), (3, Way.JUMP)], "retval is not known there"),
    ],
)
def test_returns_are_the_instructions_that_leave_a_function(
    name: str, exits: list[tuple[int | None, Way]], warning: str
) -> None:
    kernel = RecordedKernel(symbols={"/bin/app": EXITS}, code_at=EXIT_CODE)
    found = Expanded(f"uretprobe:/bin/app:{name} {{ }}", kernel)
    places = [target.of(UserTarget) for target in found.unit.targets]
    assert [(place.leaving, place.way) for place in places] == exits
    start = next(item.offset for item in EXITS if item.name == name)
    assert [place.offset for place in places] == [start + (at or 0) for at, _ in exits]
    assert [warning in text for text in found.warnings] == ([True] if warning else [])
    listed = Expanded(f"uretprobe:/bin/app:{name} {{ }}", kernel, mode="list").unit
    assert [target.of(UserTarget).leaving for target in listed.targets] == [None]


def test_no_exception_passes_through_the_c_library_of_a_process() -> None:
    class Rooted(RecordedKernel):
        def binaries(self, target: str, pid: int | None, command: str = "") -> list[str]:
            return ["/lib/libc.so.6" if pid is None else f"/proc/{pid}/root/lib/libc.so.6"]

    kernel = Rooted(symbols={"/proc/7/root/lib/libc.so.6": EXITS}, code_at=EXIT_CODE)
    filters = ProcessFilters(pids=(7,))
    assert not Expanded("uretprobe:libc:tail { }", kernel, filters=filters).warnings
    assert "is replaced" in Expanded("uretprobe:libc:tail { }", kernel, filters=filters, verbose=True).warnings[0]


def test_functions_without_returns_are_not_probed() -> None:
    kernel = RecordedKernel(symbols={"/bin/app": EXITS}, code_at=EXIT_CODE)
    assert "never does not return" in Expanded("uretprobe:/bin/app:never { }", kernel).errors[0]
    wild = Expanded("uretprobe:/bin/app:* { }", kernel)
    assert not wild.errors
    assert "tail, odd" in wild.warnings[0]
    assert not any("never" in name for name in wild.names)


def test_exits_without_cookies_have_a_program_each() -> None:
    kernel = RecordedKernel(
        symbols={"/bin/app": EXITS}, code_at=EXIT_CODE, features=FEATURES - {"get_attach_cookie"}
    )
    assert len(Expanded("uretprobe:/bin/app:plain { }", kernel).units) == 2


def test_functions_of_go_that_do_not_return() -> None:
    kernel = RecordedKernel(symbols={"/bin/app": GO}, code_at=RETURNS)
    (error,) = Expanded("uretprobe:/bin/app:main.stop { }", kernel).diagnostics.errors
    assert error.message == "main.stop does not return: it has no return instruction"
    odd = RecordedKernel(symbols={"/bin/app": GO}, code_at={0x1000: b"\x06"})
    (error,) = Expanded("uretprobe:/bin/app:main.work { }", odd).diagnostics.errors
    assert "its code cannot be followed" in error.message


CHOSEN = (
    UserSymbol("copy", 0x401000, 0x1000, 8, indirect=True),
    UserSymbol("copy_ifunc", 0x401000, 0x1000, 8),
    UserSymbol("clock", 0x401010, 0x1010, 8, indirect=True),
    UserSymbol("copy_fast", 0x401020, 0x1020, 8),
)
FAST = UserSymbol("copy", 0x401020, 0x1020, 8)


def test_symbols_that_stand_for_other_functions() -> None:
    kernel = RecordedKernel(
        symbols={"/bin/app": CHOSEN}, implementations={"copy": IndirectFunction((FAST,), also=("move",))}
    )
    found = Expanded("uprobe:/bin/app:copy { }", kernel)
    (target,) = found.unit.targets
    assert (target.probe, target.of(UserTarget).offset) == ("uprobe:/bin/app:copy", 0x1020)
    assert found.warnings == ["copy also counts move: they are one function here"]
    (error,) = Expanded("uprobe:/bin/app:clock { }", kernel).errors
    assert error == "clock is chosen among several functions when programs start (IFUNC): nothing says it"
    wild = Expanded("uprobe:/bin/app:c* { }", kernel)
    assert [target.of(UserTarget).offset for target in wild.unit.targets] == [0x1020]
    assert "left out clock" in wild.warnings[0]
    assert len(Expanded("uprobe:/bin/app:c* { }", kernel, mode="list").unit.targets) == 4
    assert "ahead-of-time" in Expanded("uprobe:/bin/app:copy { }", kernel, ahead=True).errors[0]


# ------------------------------------------------------------------------------------------------------------- binaries

def test_binary_of_a_process() -> None:
    kernel = RecordedKernel(files={"/proc/9/exe": ["/bin/app"]})
    assert Expanded("uprobe:work { }", kernel, filters=ProcessFilters(pids=(9,))).names == ["uprobe:/bin/app:work"]
    assert Expanded("uprobe::work { }", kernel, filters=ProcessFilters(pids=(9,))).names == ["uprobe:/bin/app:work"]
    assert Expanded("usdt:start { }", kernel, filters=ProcessFilters(pids=(9,))).names == ["usdt:/bin/app:one:start"]
    assert "binary" in Expanded("uprobe:work { }", kernel).errors[0]


def test_several_binaries_of_one_name() -> None:
    symbols = {path: (UserSymbol("work", 0x1000, 0x1000, 8),) for path in ("/bin/app", "/opt/app", "/x/app")}
    kernel = RecordedKernel(files={"app": list(symbols)}, symbols=symbols)
    found = Expanded("uprobe:app:work { }", kernel)
    assert found.names == ["uprobe:/bin/app:work"]
    assert found.warnings == ["'app' matches several files; /bin/app is used, not /opt/app, /x/app"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("uprobe:/no/such:main", {}, "there is no file '/no/such'"),
        ("uprobe:nothing:main", {}, "there is no program 'nothing' on PATH and no such library"),
        ("uprobe:/no/*:main", {}, "no file matches '/no/*'"),
        ("uprobe:*:main", {}, "no process maps a file that matches '*'"),
        ("uprobe::main", {}, "the program of the probe is missing"),
        ("uprobe::main", {"filters": ProcessFilters((9,))}, "the program of process 9 cannot be found"),
    ],
)
def test_targets_that_mean_nothing(text: str, options: dict[str, Any], message: str) -> None:
    assert message in Expanded(f"{text} {{ }}", **options).errors


@pytest.mark.parametrize(("command", "program"), [("/bin/x 'a b'", "/bin/x"), ("", ""), ("'open", "")])
def test_the_program_of_a_command_does_not_run_yet(command: str, program: str) -> None:
    asked: list[str] = []

    class Asked(RecordedKernel):
        def binaries(self, target: str, pid: int | None, command: str = "") -> list[str]:
            asked.append(command)
            return []

    assert Expanded("uprobe:*:main { }", Asked(), child_command=command).errors
    assert asked == [program]


def test_glob_takes_all_that_fit() -> None:
    symbols = {path: (UserSymbol("work", 0x1000, 0x1000, 8),) for path in ("/a/app", "/b/app")}
    kernel = RecordedKernel(files={"/*/app": ["/a/app", "/b/app", "/c/app", "/d.txt"]}, symbols=symbols)
    found = Expanded("uprobe:/*/app:work { }", kernel)
    assert found.names == ["uprobe:/a/app:work", "uprobe:/b/app:work"]
    assert all(target.of(UserTarget).by_pattern for target in found.unit.targets)
    assert "none of the binaries" in Expanded("uprobe:/*/app:nope { }", kernel).errors[0]


def test_files_that_are_no_programs() -> None:
    kernel = RecordedKernel(files={"/a.txt": ["/a.txt"]}, symbols={"/a.txt": (UserSymbol("main", 1, 1, 1),)})
    assert "ELF" in Expanded("uprobe:/a.txt:main { }", kernel).errors[0]
    assert Expanded("uprobe:/a.txt:main { }", kernel, unsafe=True).names == ["uprobe:/a.txt:main"]


# ----------------------------------------------------------------------------------------------------- python functions

KERNEL = replace(RecordedKernel(), arch="x86_64", features=frozenset({"bpf_loop"}))


def expanded(text: str, kernel: RecordedKernel = KERNEL, **options: Any) -> Expanded:
    return Expanded(text, kernel, **{"child": True, **options})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/srv/app.py", ("/srv/app.py",)),
        ("*/app.py", ("*/app.py",)),
        ("*", ("*",)),
        ("<string>", ("<string>",)),
        ("app.py", ("app.py", "*/app.py")),
        ("shop.cart", ("shop/cart.py", "*/shop/cart.py", "shop/cart/__init__.py", "*/shop/cart/__init__.py",
                       "<frozen shop.cart>")),
        ("my-script", ("my-script", "*/my-script")),
    ],
)  # fmt: skip
def test_what_a_file_or_module_stands_for(text: str, expected: tuple[str, ...]) -> None:
    assert python_files(text) == expected


def test_targets_of_python_probes() -> None:
    (target,) = expanded("pythonret:/srv/app.py:C.* { }").unit.targets
    assert (target.probe, target.place) == ("pythonret:/srv/app.py:C.*", PythonTarget(("/srv/app.py",), "C.*"))
    assert len(expanded("py:a.py:f, py:b.py:f { }").units) == 2


def test_any_name_is_an_argument() -> None:
    context = expanded("pyr:a.py:f { print((args.b, args.a, retval)); }").unit.context
    assert [(item.name, item.type, item.place) for item in context.arguments] == [
        ("a", PYTHON_OBJECT, PythonValue(0)), ("b", PYTHON_OBJECT, PythonValue(1)),
    ]  # fmt: skip
    assert context.result is not None
    assert context.result.place == PythonValue(2)
    assert expanded("py:a.py:f { }").unit.context.result is None


@pytest.mark.parametrize(
    ("text", "message", "options"),
    [
        ("python:f { }", "python probes have the form python:FILE:FUNCTION or python:MODULE:FUNCTION", {}),
        ("python:a:b:c { }", "python probes have the form python:FILE:FUNCTION or python:MODULE:FUNCTION", {}),
        ("python:a@b { }", "python probes have the form python:FILE:FUNCTION or python:MODULE:FUNCTION", {}),
        ("python:a.py:f { }", "python probes need a process", {"child": False}),
        ("python:a.py:f { }", "python probes need a process", {"ahead": True}),
        (
            f"python:a.py:{'f' * (LONGEST_PATTERN + 1)} {{ }}",
            f"the pattern has more than {LONGEST_PATTERN} characters",
            {},
        ),
    ],
)
def test_python_functions_mistakes(text: str, message: str, options: dict[str, Any]) -> None:
    assert expanded(text, **options).errors == [message]


def test_machines_that_cannot() -> None:
    assert expanded("python:a:f { }", replace(KERNEL, arch="aarch64")).errors == [
        "python probes are for x86-64, not aarch64"
    ]
    assert expanded("python:a:f { }", replace(KERNEL, features=frozenset())).errors == [
        "python probes need a kernel with bpf_loop (Linux 5.17)"
    ]



# ----------------------------------------------------------------------------------------------------------------- usdt

def test_usdt_details() -> None:
    (target,) = Expanded("usdt:/bin/app:one:stop { }").unit.targets
    assert target.probe == "usdt:/bin/app:one:stop"
    assert target.place == StaticProbeTarget("/bin/app", 0x1020, provider="one", name="stop", semaphore_offset=0x3000)


def test_usdt_provider_may_be_left_out_when_unique() -> None:
    assert Expanded("usdt:/bin/app:start { }").names == ["usdt:/bin/app:one:start"]
    found = Expanded("usdt:/bin/app:stop { }")
    assert "one, two" in found.errors[0]
    assert "usdt:/bin/app:two:stop" in found.hints[0]
    assert len(Expanded("usdt:/bin/app:*:stop { }").names) == 2
    assert len(Expanded("usdt:/bin/app:* { }").names) == 3


def test_arguments_of_usdt_probes() -> None:
    context = Expanded("usdt:/bin/app:one:start { print(arg1) }").unit.context
    assert context.positional == (
        RegisterLocation("di", size=4, signed=True),
        RegisterLocation("bp", -24, True, 8),
    )
    assert len(Expanded("usdt:/bin/app:one:* { print(arg0) }").units) == 2
    assert len(Expanded("usdt:/bin/app:one:* { print(1) }").units) == 1


def test_usdt_mistakes() -> None:
    found = Expanded("usdt:/bin/app:one:strat { }")
    assert "one:strat" in found.errors[0]
    assert "usdt:/bin/app:one:start" in found.hints[0]
    assert "no USDT probes at all" in Expanded("usdt:/bin/app:x { }", RecordedKernel(usdt=())).hints[0]
    assert Expanded("usdt:/bin/app:work { }").hints[0] == "functions are uprobe:/bin/app:work"
    assert "form" in Expanded("usdt:a:b:c:d { }").errors[0]


# ------------------------------------------------------------------------------------------------------- usdt arguments

def symbol(name: str) -> int | None:
    return {"counter": 0x4000}.get(name)


@each_row(
    ("text", "place"),
    [
        ("-4@%edi", At("di", size=4, signed=True)),
        ("8@%r12", At("r12")),
        ("1@%al", At("ax", size=1)),
        ("2@%r9w", At("r9", size=2)),
        ("1@%sil", At("si", size=1)),
        ("8@-24(%rbp)", At("bp", -24, True)),
        ("-4@0x10(%rsp)", At("sp", 16, True, 4, True)),
        ("8@(%rax)", At("ax", 0, True)),
        ("4@$5", At("", 5, size=4)),
        ("-8@$-1", At("", -1, signed=True)),
        ("8@(%rax,%rbx,8)", At("ax", 0, True, index="bx", scale=8)),
        ("4@-4(%rdi,%rcx)", At("di", -4, True, 4, index="cx", scale=1)),
        ("4@8(,%rcx,4)", At("", 8, True, 4, index="cx", scale=4)),
        ("-4@4+counter(%rip)", At("ip", 0x4004 - 0x1000, True, 4, True)),
        ("-4@counter(%rip)", At("ip", 0x3000, True, 4, True)),
        ("-4@counter+8(%rip)", At("ip", 0x3008, True, 4, True)),
        ("8@16(%rip)", At("ip", 16, True)),
        ("%rdi", At("di")),
        ("-8f@%rdx", At("dx", signed=True, fraction=True)),
    ],
)
def test_x86(text: str, place: At) -> None:
    assert argument_locations(text, "x86_64", symbol, 0x1000) == (place,)


@each_row(
    ("text", "place"),
    [
        ("4@x0", At("r0", size=4)),
        ("-4@w3", At("r3", size=4, signed=True)),
        ("8@sp", At("sp")),
        ("8@[sp]", At("sp", 0, True)),
        ("8@[sp, 16]", At("sp", 16, True)),
        ("-4@[x29, #-20]", At("r29", -20, True, 4, True)),
        ("8@[x1, x2]", At("r1", 0, True, index="r2")),
        ("4@[x1, x2, lsl 2]", At("r1", 0, True, 4, index="r2", scale=4)),
        ("4@5", At("", 5, size=4)),
        ("8@xzr", At("", 0)),
    ],
)
def test_arm64(text: str, place: At) -> None:
    assert argument_locations(text, "aarch64", symbol) == (place,)


def test_several() -> None:
    assert argument_locations("-4@%edi 8@8(%rsp) 4@$1", "x86_64", symbol) == (
        At("di", size=4, signed=True),
        At("sp", 8, True),
        At("", 1, size=4),
    )
    assert len(argument_locations("4@[sp, 12] 8@x1", "aarch64", symbol)) == 2
    assert argument_locations("", "x86_64", symbol) == ()


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("4@%xmm0", "x86_64"),
        ("4@wat", "x86_64"),
        ("3@%edi", "x86_64"),
        ("x@%edi", "x86_64"),
        ("4@nothing(%rip)", "x86_64"),
        ("4@[q1]", "aarch64"),
        ("4@x99", "aarch64"),
        ("4@r0", "vax"),
    ],
)
def test_not_understood(text: str, machine: str) -> None:
    with pytest.raises(BadArgumentError):
        argument_locations(text, machine, symbol)


def test_only_wanted_arguments_must_be_understood() -> None:
    text = "4@%edi 8f@%xmm0 8@%rsi"
    found = argument_locations(text, "x86_64", symbol, wanted=(0, 2))
    assert [item.register for item in found] == ["di", "", "si"]
    with pytest.raises(BadArgumentError, match="xmm0"):
        argument_locations(text, "x86_64", symbol, wanted=(1,))


LONG = ("4" * 40 + "$", f"8@{'1' * 5000}x", f"8@{'a' * 20000}%", "(" * 3000, "[" * 3000, f"8@{'+1' * 3000}?")


@each_row("text", LONG)
@each_row("machine", ["x86_64", "aarch64"])
def test_whatever_a_note_says_is_read_at_once(text: str, machine: str) -> None:
    began = time.process_time()
    with suppress(BadArgumentError):
        argument_locations(text, machine, symbol)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("text", ["8@$08", "8@$" + "9" * 5000, "8@$18446744073709551616", "8@099(%rsp)"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(BadArgumentError):
        argument_locations(text, "x86_64", symbol)


def test_octal_numbers_and_shifts() -> None:
    assert argument_locations("8@$010 8@-010(%rbp)", "x86_64", symbol) == (At("", 8), At("bp", -8, True))
    with pytest.raises(BadArgumentError, match="shifts by more"):
        argument_locations("8@[x0, x1, lsl 99999]", "aarch64", symbol)


def test_what_the_compiler_made_of_a_function_is_named() -> None:
    names = ("foo.constprop.0", "foo.cold", "food")
    symbols = tuple(UserSymbol(name, 0x401000 + at * 64, 0x1000 + at * 64, 64) for at, name in enumerate(names))
    found = Expanded("uprobe:/bin/app:foo { }", RecordedKernel(symbols={"/bin/app": symbols}))
    assert found.hints == [
        "the compiler made foo.constprop.0 of it, with other arguments: uprobe:/bin/app:foo.constprop.0"
    ]


def test_what_the_compiler_made_beside_a_function_is_told() -> None:
    """Of a program of Go the runtime's ``main`` is none of ``main.main``."""
    for names, told in (
        (("foo", "foo.constprop.0", "foo.part.0.isra.1", "foo.constprop.0.cold", "foo.c"), True),
        (("foo", "foo.cold", "foo.main", "food"), False),
    ):
        symbols = tuple(UserSymbol(name, 0x401000 + at * 64, 0x1000 + at * 64, 64) for at, name in enumerate(names))
        found = Expanded("uprobe:/bin/app:foo { }", RecordedKernel(symbols={"/bin/app": symbols}))
        others = "foo.constprop.0 and foo.part.0.isra.1"
        text = f"foo is traced, not {others}, which the compiler made of it for some callers"
        assert (found.warnings, found.hints) == (([text], ["uprobe:/bin/app:foo.* traces these"]) if told else ([], []))
