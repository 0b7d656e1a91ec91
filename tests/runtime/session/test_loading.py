"""Loading of a run's programs: what is printed of a refused one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import pytest

from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.load.verifier import LOG_HINT, LoadError
from pytrace.runtime.session import loading


@pytest.mark.parametrize(("verbose", "cut"), [(True, False), (True, True), (False, False)])
def test_the_log_of_a_refused_program(
    verbose: bool, cut: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``-v`` shows it, and needs no hint that says so; without it there is the hint."""

    def load(*_: object, **__: object) -> None:
        raise LoadError("no", log="0: (95) exit\n", cut=cut, hints=["split it", LOG_HINT])

    monkeypatch.setattr(loading, "load", load)
    with pytest.raises(LoadError) as raised, ExitStack() as stack:
        loading.programs(cast(Any, None), RunOptions(verbose=verbose), loading.NothingUnwound(), None, stack)
    shown = capsys.readouterr().err
    assert ("0: (95) exit" in shown) == verbose
    assert ("a part of it is shown" in shown) == cut
    assert raised.value.hints == (("split it",) if verbose else ("split it", LOG_HINT))
