"""Calls functions of many shapes, and prints at the end what each thread called: [thread, [[mark, function, value], …]]

Marks are ``>`` for entries (the value is the argument ``x``) and ``<`` for ends (the value is the result; empty after
an exception). Functions note their calls themselves; what an exception leaves, is noted by who catches it.
The second argument has a tool trace the program meanwhile: ``calls``, ``lines``, or ``monitoring``.
"""
# ruff: noqa: N802, PLC2401

import asyncio
import json
import random
import sys
import threading

calls = {}


class Text(str):
    pass


class Number(int):
    pass


class BrokenError(Exception):
    pass


def text(value):
    if value is None or isinstance(value, (bool, int)):
        fits = isinstance(value, int) and abs(value) < 1 << 64
        return str(value) if value is None or fits else f"<{type(value).__name__}>"
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    return value.decode("latin-1") if isinstance(value, bytes) else f"<{type(value).__name__}>"


def note(mark, name, value=None, left=False):
    calls.setdefault(threading.get_native_id(), []).append([mark, name, "" if left else text(value)])


def entered(name, x):
    note(">", name, x)


def ends(name, value):
    note("<", name, value)
    return value


def left(name):
    note("<", name, left=True)


VALUES = [
    0, 1, -1, 255, 2**30 - 1, 2**30, -(2**30), 2**31, 2**60 - 1, 2**60, -(2**60), 2**63 - 1, -(2**63), 2**64 - 1,
    2**64, -(2**70), 10**19, True, False, None, "", "text", "naïve", "größer", "日本語", "mixed 日 ü", "😀 emoji",
    "x" * 40, b"bytes", b"", 1.5, [1], (), Text("sub"), Text("süb"), Number(77), Number(-5), object,
]  # fmt: skip


# ---- shapes: each is called with a value


def shape_plain(x):
    entered("shape_plain", x)
    return ends("shape_plain", x)


def shape_recursive(x, depth=5):
    entered("shape_recursive", x)
    if depth:
        shape_recursive(x, depth - 1)
    return ends("shape_recursive", depth)


def shape_constant(x):
    entered("shape_constant", x)
    note("<", "shape_constant", "a constant")
    return "a constant"


def shape_nothing(x):
    entered("shape_nothing", x)
    note("<", "shape_nothing", None)


def shape_keywords(*rest, x, **others):
    entered("shape_keywords", x)
    return ends("shape_keywords", len(rest) + len(others))


def shape_cells(x):
    entered("shape_cells", x)

    def inner():
        note(">", "shape_cells.<locals>.inner", left=True)
        return ends("shape_cells.<locals>.inner", x)

    return ends("shape_cells", inner())


def shape_größe(x):
    entered("shape_größe", x)
    return ends("shape_größe", x)


def shape_数(x):
    entered("shape_数", x)
    return ends("shape_数", x)


def shape_generator(x):
    entered("shape_generator", x)
    yield 1
    yield from shape_inner_generator(x)
    note("<", "shape_generator", x)
    return x


def shape_inner_generator(x):
    entered("shape_inner_generator", x)
    try:
        yield 2
        yield 3
    finally:
        note("<", "shape_inner_generator", None)


async def shape_coroutine(x):
    entered("shape_coroutine", x)
    await asyncio.sleep(0)
    result = await shape_awaited(x)
    return ends("shape_coroutine", result)


async def shape_awaited(x):
    entered("shape_awaited", x)
    await asyncio.sleep(0)
    return ends("shape_awaited", x)


def shape_raises(x):
    entered("shape_raises", x)
    left("shape_raises")
    raise BrokenError


def shape_passes(x):
    entered("shape_passes", x)
    shape_raises(x)


def shape_finally(x):
    entered("shape_finally", x)
    try:
        shape_passes(x)
    except KeyError:
        pass
    finally:
        left("shape_passes")
        left("shape_finally")


def shape_catches(x):
    entered("shape_catches", x)
    try:
        shape_raises(x)
    except BrokenError:
        return ends("shape_catches", x)


def shape_from_c(x):
    entered("shape_from_c", x)
    left("shape_from_c")
    raise BrokenError


class Shape:
    note(">", "Shape", left=True)

    def __init__(self, x):
        entered("Shape.__init__", x)
        self.x = x
        note("<", "Shape.__init__", None)

    def method(self, x):
        entered("Shape.method", x)
        return ends("Shape.method", x)

    @classmethod
    def class_method(cls, x):
        entered("Shape.class_method", x)
        return ends("Shape.class_method", x)

    @property
    def member(self):
        note(">", "Shape.member", left=True)
        return ends("Shape.member", self.x)

    def __lt__(self, x):
        entered("Shape.__lt__", x)
        return ends("Shape.__lt__", True)

    note("<", "Shape", None)


def decorated(function):
    def shape_wrapper(x):
        entered("decorated.<locals>.shape_wrapper", x)
        return ends("decorated.<locals>.shape_wrapper", function(x))

    return shape_wrapper


@decorated
def shape_decorated(x):
    entered("shape_decorated", x)
    return ends("shape_decorated", x)


source = "def shape_many(x):\n    entered('shape_many', x)\n    values = [" + ", ".join(f"{n}.5" for n in range(700))
source += "]\n    note('<', 'shape_many', 'the last constant')\n    return 'the last constant'\n"
exec(compile(source, __file__, "exec"))
late = """
def shape_late(x):
    entered('shape_late', x)
    return ends('shape_late', x)
shape_late(value)
"""


# ---- what calls them


def run_generator(x):
    for _ in shape_generator(x):
        pass


def run_dropped(x):
    """Generators that never run, and one that is closed in the middle."""
    shape_generator(x)
    some = shape_inner_generator(x)
    next(some)
    try:
        some.throw(BrokenError)
    except BrokenError:
        calls[threading.get_native_id()][-1][2] = ""


def run_finally(x):
    try:
        shape_finally(x)
    except BrokenError:
        pass


def run_from_c(x):
    try:
        list(map(shape_from_c, [x]))
    except BrokenError:
        pass
    sorted([1, 2], key=lambda _: len(str(shape_plain(x))))


def shape_deep(x, depth, depths):
    depths[depth] = 1
    shape_deep(x, depth + 1, depths)


def run_deep(x):
    """Too deep: the last call is refused before it begins."""
    depths = [0] * 2000
    try:
        shape_deep(x, 0, depths)
    except RecursionError:
        pass
    for _ in range(sum(depths)):
        entered("shape_deep", x)
    for _ in range(sum(depths)):
        left("shape_deep")


def run_object(x):
    one = Shape(x)
    one.method(x)
    Shape.class_method(x)
    _ = one.member


def run_executed(x):
    exec(compile(late, __file__, "exec"), {"value": x, "entered": entered, "ends": ends})


RUN = [
    shape_plain, shape_recursive, shape_constant, shape_nothing, lambda x: shape_keywords(1, 2, x=x, y=3), shape_cells,
    shape_größe, shape_数, run_generator, lambda x: asyncio.run(shape_coroutine(x)), run_dropped, run_finally,
    shape_catches, run_from_c, run_object, shape_decorated, globals()["shape_many"], run_executed,
]  # fmt: skip


def work(seed, rounds):
    choice = random.Random(seed)
    for _ in range(rounds):
        choice.choice(RUN)(choice.choice(VALUES))


def trace(*_):
    return trace if sys.argv[2] == "lines" else None


def monitor():
    tool, monitoring = 1, sys.monitoring
    events = monitoring.events.PY_START | monitoring.events.PY_RETURN
    monitoring.use_tool_id(tool, "test")
    for event in (monitoring.events.PY_START, monitoring.events.PY_RETURN):
        monitoring.register_callback(tool, event, lambda *_: None)
    monitoring.set_events(tool, events)


def main():
    rounds = int(sys.argv[1])
    if sys.argv[2:] == ["monitoring"]:
        monitor()
    elif sys.argv[2:]:
        sys.settrace(trace)
        threading.settrace(trace)
    sys.setswitchinterval(0.0005)
    # How values are read does not depend on a tool, with which each call has hits by the line.
    values = VALUES[::6] if sys.argv[2:] else VALUES
    for function in RUN:
        for value in values:
            function(value)
    threads = [threading.Thread(target=work, args=(seed, rounds)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not sys.argv[2:]:
        run_deep(1)  # a trace function fails first
    print(json.dumps([[thread, listed] for thread, listed in calls.items()]))


main()
