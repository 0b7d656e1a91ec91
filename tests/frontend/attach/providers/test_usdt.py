"""usdt: providers, arguments, semaphores."""

from __future__ import annotations

from pytrace.core.probe_kinds import StaticProbeTarget
from pytrace.frontend.syntax.typed_program import RegisterLocation
from tests.frontend.expanding import Expanded
from tests.support.facts import RecordedKernel


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
    assert Expanded("usdt:/bin/app:work { }").hints[0] == "functions are uprobe:/bin/app:work"
    assert "form" in Expanded("usdt:a:b:c:d { }").errors[0]
