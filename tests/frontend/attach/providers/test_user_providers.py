"""uprobe, uretprobe, usdt."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import UserSymbol
from pytrace.core.probes.targets import StaticProbeTarget, UserTarget
from pytrace.core.types import INT32, INT64
from pytrace.frontend.ast.typed_program import RegisterLocation
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel

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
    assert target.place == UserTarget("/bin/app", offset, symbol=symbol)


def test_binary_of_a_process() -> None:
    kernel = RecordedKernel(files={"/proc/9/exe": ["/bin/app"]})
    assert Expanded("uprobe:work { }", kernel, pid=9).names == ["uprobe:/bin/app:work"]
    assert Expanded("uprobe::work { }", kernel, pid=9).names == ["uprobe:/bin/app:work"]
    assert Expanded("usdt:start { }", kernel, pid=9).names == ["usdt:/bin/app:one:start"]
    assert "binary" in Expanded("uprobe:work { }", kernel).errors[0]


def test_several_binaries_of_one_name() -> None:
    kernel = RecordedKernel(files={"app": ["/bin/app", "/opt/app"]})
    found = Expanded("uprobe:app:work { }", kernel)
    assert found.names == ["uprobe:/bin/app:work"]
    assert "/opt/app" in found.warnings[0]


def test_glob_takes_all_that_fit() -> None:
    symbols = {path: (UserSymbol("work", 0x1000, 0x1000, 8),) for path in ("/a/app", "/b/app")}
    kernel = RecordedKernel(files={"/*/app": ["/a/app", "/b/app", "/c/app", "/d.txt"]}, symbols=symbols)
    found = Expanded("uprobe:/*/app:work { }", kernel)
    assert found.names == ["uprobe:/a/app:work", "uprobe:/b/app:work"]
    assert all(target.of(UserTarget).by_pattern for target in found.unit.targets)
    assert "none of the binaries" in Expanded("uprobe:/*/app:nope { }", kernel).errors[0]


def test_wildcards_and_multi_links() -> None:
    assert Expanded("uprobe:/bin/app:work* { }", MULTI).unit.multi == "uprobe_multi"
    assert Expanded("uprobe:/bin/app:work* { }").unit.multi == ""
    assert Expanded("uprobe:/bin/app:work* { }", MULTI, disabled=frozenset({"uprobe_multi"})).unit.multi == ""


def test_cpp_names() -> None:
    found = Expanded("uprobe:/bin/app:cpp:a::run { }", CPP)
    assert found.errors  # a colon ends a part
    found = Expanded('uprobe:/bin/app:cpp:"a::run" { }', CPP)
    assert found.names == ['uprobe:/bin/app:cpp:"a::run(int)"', 'uprobe:/bin/app:cpp:"a::run(double)"']
    found = Expanded('uprobe:/bin/app:cpp:"a::run(double)" { }', CPP)
    assert found.unit.targets[0].of(UserTarget).symbol == "_ZN1a3runEd"
    assert "a::run" in Expanded('uprobe:/bin/app:cpp:"a::runn" { }', CPP).hints[0]


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


@pytest.mark.parametrize(
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


def test_files_that_are_no_programs() -> None:
    kernel = RecordedKernel(files={"/a.txt": ["/a.txt"]}, symbols={"/a.txt": (UserSymbol("main", 1, 1, 1),)})
    assert "ELF" in Expanded("uprobe:/a.txt:main { }", kernel).errors[0]
    assert Expanded("uprobe:/a.txt:main { }", kernel, unsafe=True).names == ["uprobe:/a.txt:main"]


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


# ---- usdt


def test_usdt_details() -> None:
    (target,) = Expanded("usdt:/bin/app:one:stop { }").unit.targets
    assert target.probe == "usdt:/bin/app:one:stop"
    assert target.place == StaticProbeTarget(
        "/bin/app", 0x1020, provider="one", name="stop", semaphore_offset=0x3000
    )


def test_usdt_provider_may_be_left_out_when_unique() -> None:
    assert Expanded("usdt:/bin/app:start { }").names == ["usdt:/bin/app:one:start"]
    found = Expanded("usdt:/bin/app:stop { }")
    assert "one, two" in found.errors[0]
    assert "usdt:/bin/app:two:stop" in found.hints[0]
    assert len(Expanded("usdt:/bin/app:*:stop { }").names) == 2
    assert len(Expanded("usdt:/bin/app:* { }").names) == 3


def test_usdt_arguments() -> None:
    context = Expanded("usdt:/bin/app:one:start { print(arg1) }").unit.context
    assert context.positional == (
        RegisterLocation("di", size=4, signed=True),
        RegisterLocation("bp", -24, True, 8),
    )


def test_usdt_units_by_argument_places() -> None:
    assert len(Expanded("usdt:/bin/app:one:* { print(arg0) }").units) == 2
    assert len(Expanded("usdt:/bin/app:one:* { print(1) }").units) == 1


def test_usdt_mistakes() -> None:
    found = Expanded("usdt:/bin/app:one:strat { }")
    assert "one:strat" in found.errors[0]
    assert "usdt:/bin/app:one:start" in found.hints[0]
    assert "no USDT probes at all" in Expanded("usdt:/bin/app:x { }", RecordedKernel(usdt=())).hints[0]
    assert "form" in Expanded("usdt:a:b:c:d { }").errors[0]
