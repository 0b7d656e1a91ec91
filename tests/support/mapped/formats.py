"""What printf makes of values: what C's does."""

from __future__ import annotations

from typing import Any

from tests.support.generated.choices import Choices
from tests.support.kinds import Bool, Buffer, Enum, Int, Kind, Pointer

# In C, L is for floating point numbers only.
LENGTHS = {"": 32, "hh": 8, "h": 16, "l": 64, "ll": 64, "j": 64, "z": 64, "t": 64, "L": 32}


def conversion(kind: Kind, value: Any, choices: Choices) -> tuple[str, bytes]:
    """A conversion for a value of that kind, and what it gives."""
    width = choices.pick(("", "", "1", "5", "12", "30"))
    if isinstance(kind, Buffer):
        left = choices.chance(20)
        form = choices.pick(("r", "rx", "rh"))
        return f"%{'-' * left}{width}{form}", _pad(_buffer(value, form), width, left)
    if isinstance(kind, Int | Bool | Enum | Pointer) and choices.chance(65):
        return _number(int(value), width, choices)
    left = choices.chance(30)
    precision = choices.pick(("", "", "", ".2", ".0"))
    text = kind.text(value)
    return f"%{'-' * left}{width}{precision}s", _pad(text[: int(precision[1:])] if precision else text, width, left)


def _number(value: int, width: str, choices: Choices) -> tuple[str, bytes]:
    what = choices.pick("ddiuuxxXocp")
    left, plus, blank, mark, zeros = (choices.chance(20) for _ in range(5))
    if what in "cp":
        plus = blank = mark = zeros = False
    length = "" if what in "cp" else choices.pick(tuple(LENGTHS))
    precision = choices.pick(("", "", "", "", ".3")) if what in "diuxXo" else ""
    flags = "-" * left + "+" * plus + " " * blank + "#" * mark + "0" * zeros
    layout = f"%{flags}{width}{precision}{length}{what}"
    if what == "c":
        return layout, _pad(bytes([value & 0xFF]), width, left)
    if what == "p":
        word = value & ((1 << 64) - 1)
        # As C++ streams have it: no base in front of zero.
        return layout, _pad(b"0x%x" % word if word else b"0", width, left)
    bits = LENGTHS[length]
    cut = Int(bits // 8, what in "di").wrap(value)
    digits = (
        {"o": "{:o}", "x": "{:x}", "X": "{:X}"}.get(what, "{}").format(abs(cut)).rjust(int(precision[1:] or 0), "0")
    )
    sign = "-" if cut < 0 else ""
    if what in "di" and cut >= 0:
        sign = "+" if plus else " " if blank else ""
    if mark and cut and what in "xX":
        sign = f"0{what}"
    if mark and what == "o" and digits[0] != "0":
        digits = f"0{digits}"
    if zeros and not left and not precision:
        digits = digits.rjust(int(width or 0) - len(sign), "0")
    return layout, _pad((sign + digits).encode(), width, left)


def _pad(text: bytes, width: str, left: bool) -> bytes:
    size = int(width or 0)
    return text.ljust(size) if left else text.rjust(size)


def _buffer(value: bytes, form: str) -> bytes:
    match form:
        case "r":
            return Buffer().text(value)
        case "rx":
            return b"".join(b"\\x%02x" % byte for byte in value)
    return b" ".join(b"%02x" % byte for byte in value)
