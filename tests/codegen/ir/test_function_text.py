from __future__ import annotations

from pytrace.codegen.ir.builder import callees
from pytrace.codegen.ir.helpers import LOOP
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import CONTEXT, global_pointer


def test_callees_are_functions_that_are_called_or_handed_over() -> None:
    module = Module(None, "GPL")
    module.function("leaf", (), None).ret(0)
    module.function("round", ("index", "*frame"), None).ret(0)
    b = module.function("main", ("*ctx",), None, section="pytrace/main")
    b.helper(LOOP, 3, global_pointer("round"), CONTEXT, 0)
    b.load(global_pointer("events"))
    b.ret(b.call("leaf"))
    found = callees(module.text(0, 0), {"leaf", "round", "main"})
    assert found == {"leaf": set(), "round": set(), "main": {"leaf", "round"}}


def test_callees_of_other_functions_are_left_out() -> None:
    module = Module(None, "GPL")
    module.function("leaf", (), None).ret(0)
    b = module.function("main", ("*ctx",), None, section="pytrace/main")
    b.ret(b.call("leaf"))
    assert callees(module.text(0, 0), {"main"}) == {"main": set()}
