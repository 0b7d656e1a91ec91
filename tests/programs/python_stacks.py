# ruff: noqa: N802, PLC2401, PLC3002, PLW0108 - the shapes of frames, and names in any alphabet, are what it is for
"""Opens /dev/null from stacks of many shapes, and prints each stack as the interpreter itself sees it.

A line of output is JSON: the thread, then [function, line] of each frame, innermost first. Runs on CPython 3.9
and later.
"""

import asyncio
import contextlib
import functools
import json
import os
import random
import re
import sys
import threading

ROWS = []
QUALIFIED = sys.version_info >= (3, 11)


def note(frame):
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append([code.co_qualname if QUALIFIED else code.co_name, frame.f_lineno])
        frame = frame.f_back
    ROWS.append([threading.get_native_id(), stack])
    return "/dev/null"


def leaf():
    os.close(os.open(note(sys._getframe()), os.O_RDONLY))


class Made:
    def __init__(self, shapes):
        if shapes is not None:
            shapes.any()


class Shapes:
    def __init__(self, seed, depth):
        self.random = random.Random(seed)
        self.depth = depth

    def any(self):
        if self.depth <= 0:
            return leaf()
        self.depth -= 1
        try:
            shapes = [name for name in dir(self) if name.startswith("shape_")]
            return getattr(self, self.random.choice(shapes))()
        finally:
            self.depth += 1

    def shape_generator(self):
        def steps():
            self.any()
            yield 1
            yield from more()

        def more():
            self.any()
            yield 2

        for _ in steps():
            pass

    def shape_comprehension(self):
        return [
            self.any()
            for _ in range(1)
        ]

    def shape_lambda(self):
        (lambda: self.any())()

    def shape_sort(self):
        sorted([1, 2], key=lambda _value: bool(self.any()))

    def shape_regular_expression(self):
        re.sub("a", lambda _match: str(self.any()), "a")

    def shape_reduce(self):
        functools.reduce(lambda first, second: self.any(), [1, 2])

    @contextlib.contextmanager
    def context(self):
        self.any()
        yield

    def shape_context(self):
        with self.context():
            pass

    @property
    def würfel(self):
        return self.any()

    def shape_property(self):
        return self.würfel

    def shape_名前(self):
        return (
            self
            .any()
        )

    def shape_exec(self):
        lines = "\n" * self.random.randrange(5)
        text = lines + "def ausgeführt(shapes):\n    shapes.any()\nausgeführt(shapes)"
        exec(compile(text, "<𝔰>", "exec"), {"shapes": self})

    def shape_eval(self):
        return eval("self.any()")

    def shape_class_body(self):
        class Body:
            self.any()

    def shape_coroutine(self):
        async def inner():
            self.any()

        async def outer():
            await inner()

        coroutine = outer()
        try:
            coroutine.send(None)
        except StopIteration:
            pass

    def shape_asynchronous(self):
        shapes = self

        class Context:
            async def __aenter__(self):
                shapes.any()

            async def __aexit__(self, *_error):
                shapes.any()

        async def numbers():
            yield shapes.any()

        async def outer():
            async with Context():
                return [number async for number in numbers()]

        with contextlib.suppress(StopIteration):
            outer().send(None)

    def shape_thrown(self):
        def waits():
            try:
                yield
            except ValueError:
                self.any()

        steps = waits()
        next(steps)
        with contextlib.suppress(StopIteration):
            steps.throw(ValueError)

    def shape_exception(self):
        try:
            raise ValueError
        except ValueError:
            self.any()
        finally:
            self.any()

    def shape_special(self):
        shapes = self

        class Special:
            def __getattr__(self, name):
                return shapes.any() or 1

            def __add__(self, other):
                shapes.any()
                return 1

            def __del__(self):
                shapes.any()

        special = Special()
        special.missing
        special + 1
        del special

    def shape_instance(self):
        # From 3.12 on a call that was made some times goes by a frame of the interpreter's own.
        for shapes in (*(None,) * 30, self):
            Made(shapes)

    def shape_recursion(self):
        def down(n):
            return down(n - 1) if n else self.any()

        down(self.random.randrange(10))


async def task(shapes):
    shapes.any()
    await asyncio.sleep(0)
    shapes.any()


async def tasks(seed):
    await asyncio.gather(*(task(Shapes(seed + number, 2)) for number in range(3)))


def run(seed, rounds):
    for number in range(rounds):
        Shapes(seed * 1000 + number, 4).any()
    asyncio.run(tasks(seed))


def main():
    rounds = int(sys.argv[1])
    threads = [threading.Thread(target=run, args=(seed, rounds)) for seed in range(3)]
    for thread in threads:
        thread.start()
    run(9, rounds)
    for thread in threads:
        thread.join()
    for row in ROWS:
        print(json.dumps(row))


main()
