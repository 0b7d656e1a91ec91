"""uprobe and uretprobe: functions, addresses, source lines."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import IndirectFunction, UserSymbol
from pytrace.core.probe_kinds import UserTarget, Way
from pytrace.core.types import INT32, INT64
from pytrace.frontend.syntax.typed_program import RegisterLocation
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
    assert Expanded("uprobe:/bin/app:work* { }", MULTI, disabled=frozenset({"uprobe_multi"})).unit.multi == ""


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


def test_names_that_are_filtered_out_stand_for_no_others() -> None:
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


def test_cpp_is_suggested() -> None:
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
