"""pytrace.runtime.symbols.vdso: code of the kernel in every process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytrace.runtime.host import procfs
from pytrace.runtime.symbols.vdso import vdso_image


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    vdso_image.cache_clear()
    yield
    vdso_image.cache_clear()


def test_functions_of_the_vdso() -> None:
    image = vdso_image()
    if image is None:
        pytest.skip("this kernel maps no vdso")
    names = [symbol.name for symbol in image.functions("*")]
    assert any(name.endswith("clock_gettime") for name in names)
    assert image.path == "[vdso]"
    assert image.debug is None
    assert vdso_image() is image


def test_a_machine_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "executable_mappings", lambda _text: [])
    assert vdso_image() is None
