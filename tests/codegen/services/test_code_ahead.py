"""Where the return address is, by the instructions of functions as compilers at run time make them."""

from __future__ import annotations

import pytest

from tests.codegen.services.test_unwound_frame import PLAIN, STACK, TABLED, Process, stack

OUTER = 0x600
"""Where rbp of the caller points to, from the stack pointer."""

FIND = {
    # name: code, distance of the return address from the stack pointer
    "V8, at the first instruction": ("55 4889e5 56 57 50 4883ec18", 0),
    "V8, after push": ("4889e5 56 57 50", 8),
    "V8, before the check of deoptimization": ("488b59e0 f6433701 0f8512345600 55 4889e5", 0),
    "V8, last instruction": ("c21800", 0),
    "V8, number of arguments": ("4883f903 7f03 c21800", 0),
    "V8, as many arguments as there are": ("4883f902 7f03 c21800 415a 488d24cc 4152 c3", 0),
    "V8, more of them": ("415a 488d24cc 4152 c3", 0),
    "V8, interpreted": ("59 4803e3 51 c3", 0),
    "V8, arguments removed": ("c3", 0),
    "V8, before interpretation": (
        ("4c8b5717 4d8b6207 4d8b5424ff 6641817a0bf500 0f84b8020000 6641817a0b9f00 7505 4d8b642407 4d8b5424ff"
        "6641817a0bbf00 0f8562010000 488b5f27 488b5b07 488b4bff 6681790bf900 0f851c000000 0fb74b15 f6c13e"
        "0f8573010000 448a5314 4180e208 44885314 ff430b 55 4889e5"),
        0,
    ),
    "HotSpot, at the first instruction": ("89842400c0feff 55 488bec 4883ec20", 0),
    "HotSpot, the check of a class": ("448b5608 4d3bd0 0f8501020304 89842400c0feff 55 488bec", 0),
    "HotSpot, frame removed": ("5d 493ba738030000 0f8700010000 c3", 8),
    "HotSpot, a leaf without frame pointers": ("8bc6 4883c410 5d 493ba738030000 0f8700010000 c3", 0x18),
    ".NET, at the first instruction": ("55 4157 4156 53 4883ec18 488d6c2430", 0),
    ".NET, between": ("53 4883ec18 488d6c2430", 0x18),
    ".NET, many variables": ("4881ec00010000 488dac2400010000", 8),
    ".NET, a function without frame": ("8d46ff 85c0 7403 ffc8 0fafc6 c3", 0),
    ".NET, floating point": ("c5fb10442408 c5f877 f20f58c1 c3", 0),
    "rsp moved": ("488d642418 c3", 0x18),
    "rsp moved far": ("488da42418010000 4881c408000000 c3", 0x120),
    "a jump": ("eb02 ffff 6a00 68ffffffff 4883c410 f3c3", 0),
    "numbers of all widths": ("66b81234 48b80011223344556677 b901020304 f7c101020304 f7d8 b001 c3", 0),
    "no operands and all of them": ("488b05ffffffff 8b848801020304 8b0c2511223344 66c70102ff 4883780801 c3", 0),
}

STAY = {
    "a function with a frame": "4889ec 5d c3",
    "leave": "c9 c3",
    "a call": "e800000000 4889e5",
    "a call by register": "ffd0 c3",
    "a jump by register": "ffe0 c3",
    "V8, another register is pushed": "415a 488d24cc 4150 c3",
    "V8, no return address is pushed": "415a 488d24cc c3",
    "rsp from elsewhere": "488b6110 c3",
    "rsp from a register": "4889cc c3",
    "rsp aligned": "4883e4f0 c3",
    "rsp from rbp": "488d65e8 5b 5d c3",
    "rbp from elsewhere": "488b6c2408 c3",
    "rsp popped": "5c c3",
    "more pushes than pops": "53 c3",
    "V8, the return address is in a register": "488d24cc 4152 c3",
    "an unknown instruction": "62f1fe486f02 c3",
    "a frame that is not the caller's": "90 488d6c2450 c3",
    "a jump out of what was read": "e900010000",
    "a jump back": "ebfe",
    "no end": "90" * 40 + "c3",
    "much code": "48b8" + "00" * 8 + "48b80011223344556677" * 20 + "c3",
    "zeros": "00" * 192,
}


CALLER, LAST = PLAIN + 0x200, TABLED + 0x900


def process(code: str, place: int = 0, ip: int = PLAIN + 0x100, *, saved: bool = False) -> Process:
    """A return address at a place of the stack, below it the caller's rbp (in the register, too, unless *saved*).

    The frame of the caller, of code without a table, has the other return address.
    """
    words = {STACK + OUTER: 0, STACK + OUTER + 8: LAST, STACK + place - 8: STACK + OUTER, STACK + place: CALLER}
    return Process(ip, 7 if saved else STACK + OUTER, words, code=bytes.fromhex(code))


@pytest.mark.parametrize("name", FIND)
def test_code_that_says_it(name: str) -> None:
    assert stack(process(*FIND[name]).run()) == [PLAIN + 0x100, CALLER, LAST]


def test_the_callers_rbp_is_popped() -> None:
    for name in ("HotSpot, frame removed", "HotSpot, a leaf without frame pointers"):
        assert stack(process(*FIND[name], saved=True).run()) == [PLAIN + 0x100, CALLER, LAST]


@pytest.mark.parametrize("name", STAY)
def test_code_that_does_not_say_it(name: str) -> None:
    assert stack(process(STAY[name]).run()) == [PLAIN + 0x100, LAST]


def test_the_end_of_mapped_code() -> None:
    assert stack(process("4154 415c c3", ip=PLAIN + 0xFFB).run()) == [PLAIN + 0xFFB, CALLER, LAST]


def test_a_number_on_top_of_the_stack_is_no_return_address() -> None:
    one = process("c3")
    one.words[STACK] = 12345
    assert stack(one.run()) == [PLAIN + 0x100]


def test_only_the_innermost_frame() -> None:
    """The caller is in its function, where the frame pointer is its own."""
    one = process("4889ec 5d c3")
    one.words.update({STACK + OUTER: STACK + OUTER + 64, STACK + OUTER + 8: CALLER})
    one.words.update({STACK + OUTER + 64: 0, STACK + OUTER + 72: LAST})
    assert stack(one.run()) == [PLAIN + 0x100, CALLER, LAST]
