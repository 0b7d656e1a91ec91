"""Which instructions the kernel's uprobes misread: most were tried on Linux 6.1 and 6.18."""

from __future__ import annotations

from pytrace.core.probes.instructions import is_misread
from tests.support.rows import each_row


@each_row(
    "code",
    [
        "c5f970c01b",  # vpshufd
        "c5f974c1",  # vpcmpeqb
        "c5f97ec0",  # vmovd to a register
        "c5f877",  # vzeroupper
        "c5f8c2c101",  # vcmpltps
        "c5f9e8c1",  # vpsubsb
        "c5f9e9c1",  # vpsubsw
        "c5f9eac1",  # vpminsw: older kernels, newer ones refuse it
        "c5f9ebc1",  # vpor
        "c5f8900de23e0000",  # kmovw
        "c4e2719ac0",  # vfmsub132ps: older kernels
        "c4e2719dc0",  # vfnmadd132ss
        "c4e27978c0",  # vpbroadcastb
        "65c5f97f00",  # vmovdqa to gs:
        "62e1fd08ebc1",  # vporq
        "62f27d487ac7",  # vpbroadcastb of a register
        "62f27d08900400",  # vpgatherdd
        "8fe978e1c1",  # XOP: vpmacs…
        "4990",  # xchg rax, r8
        "4190",  # xchg eax, r8d
    ],
)
def test_misread(code: str) -> None:
    assert is_misread(bytes.fromhex(code))
    assert is_misread(bytes.fromhex(code) + b"\x90" * 8)


@each_row(
    "code",
    [
        "",
        "c5",
        "c5f9",
        "62f27d48",
        "55",  # push
        "90",  # nop
        "4890",  # nop with REX.W
        "6690",  # nop of two bytes
        "f390",  # pause
        "7a05",  # jp
        "e800000000",  # call
        "0f1f440000",  # nop of five bytes
        "f30f1efa",  # endbr64
        "660f70c01b",  # pshufd
        "660febc1",  # por
        "8f00",  # pop to memory
        "4157",  # push r15
        "c3",
        "c5f858c1",  # vaddps
        "c5f854c1",  # vandps
        "c5f850c0",  # vmovmskps
        "c4e27998c0",  # vfmadd132ps
        "c4e27958c1",  # vpbroadcastd
        "c4e3790fc103",  # vpalignr
        "62e17c405805773e0000",  # vaddps, EVEX
    ],
)
def test_others(code: str) -> None:
    assert not is_misread(bytes.fromhex(code))
