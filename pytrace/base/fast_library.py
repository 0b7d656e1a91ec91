"""What a cached start needs of ``functools``, ``contextlib`` and ``collections``.

With ``operator`` and ``reprlib``, which they import, these modules take a tenth of such a start. Type
checkers see the originals. For :class:`ExitStack` and :func:`suppress` the standard library's documentation holds.
"""

from __future__ import annotations

from pytrace.base.fast_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque
    from contextlib import ExitStack, contextmanager, suppress
    from functools import cache, cached_property, lru_cache, partial
else:
    from _collections import deque
    from _functools import partial

    try:
        from _functools import _lru_cache_wrapper
    except ImportError:
        from functools import cache, lru_cache
    else:

        def lru_cache(maxsize=128, typed=False):
            """Results of the latest *maxsize* calls are kept."""
            return lambda function: _named(_lru_cache_wrapper(function, maxsize, typed, _statistics), function)

        def cache(function):
            """All results are kept."""
            return lru_cache(None)(function)

    def _statistics(*values):
        return values

    def _named(wrapper, function):
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(wrapper, name, getattr(function, name))
        wrapper.__wrapped__ = function
        return wrapper

    class cached_property:  # noqa: N801  (as in functools)
        """A method whose result becomes an attribute of the instance."""

        def __init__(self, method):
            self.method = method
            self.__doc__ = method.__doc__

        def __set_name__(self, _owner, name):
            self.name = name

        def __get__(self, instance, _owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.method(instance)
            return value

    class suppress:  # noqa: N801  (as in contextlib)
        """A context that exceptions of some classes end without being raised."""

        def __init__(self, *classes):
            self.classes = classes

        def __enter__(self):
            return None

        def __exit__(self, kind, _error, _trace):
            return kind is not None and issubclass(kind, self.classes)

    def contextmanager(function):
        """A function that gives contexts, from a generator function with one ``yield``."""

        def context(*values, **named):
            return _Generated(function(*values, **named))

        return _named(context, function)

    class _Generated:
        def __init__(self, generator):
            self._generator = generator

        def __enter__(self):
            return next(self._generator)

        def __exit__(self, kind, error, trace):
            if kind is None:
                for _ in self._generator:
                    raise RuntimeError("the generator of a context did not stop")
                return False
            try:
                self._generator.throw(error)
            except StopIteration as end:
                # One that the block raised itself is not the generator's.
                return end is not error
            except RuntimeError as problem:
                if problem is not error and not (isinstance(error, StopIteration) and problem.__cause__ is error):
                    raise
                error.__traceback__ = trace
                return False
            except BaseException as problem:
                if problem is not error:
                    raise
                error.__traceback__ = trace
                return False
            raise RuntimeError("the generator of a context did not stop")

    _NOTHING = (None, None, None)

    class ExitStack:
        """Contexts and callbacks that are left in the reverse order."""

        def __init__(self):
            self._exits = []

        def __enter__(self):
            return self

        def enter_context(self, context):
            """Enter a context, and return what it gives."""
            leave = type(context).__exit__
            result = type(context).__enter__(context)
            self._exits.append(partial(leave, context))
            return result

        def push(self, leave):
            """Add a context that is entered already, or a function with the parameters of ``__exit__``."""
            method = getattr(type(leave), "__exit__", None)
            self._exits.append(leave if method is None else partial(method, leave))
            return leave

        def callback(self, function, /, *values, **named):
            """Add a function to call."""

            def leave(_kind, _error, _trace):
                function(*values, **named)

            self._exits.append(leave)
            return function

        def pop_all(self):
            """A stack with what this one had."""
            other = type(self)()
            other._exits, self._exits = self._exits, []
            return other

        def close(self):
            """Leave everything now."""
            self.__exit__(None, None, None)

        def __exit__(self, _kind, error, _trace):
            current, raised = error, False
            while self._exits:
                leave = self._exits.pop()
                try:
                    if leave(*((type(current), current, current.__traceback__) if current is not None else _NOTHING)):
                        current, raised = None, False
                except BaseException as problem:  # noqa: BLE001  (it is raised when everything is left)
                    _follow(problem, current, error)
                    current, raised = problem, True
            if raised:
                context = current.__context__
                try:
                    raise current
                finally:
                    current.__context__ = context
            return error is not None and current is None

    def _follow(problem, earlier, handled):
        """Make *earlier* the context of *problem*, in place of what was *handled* when the stack was left."""
        last = problem
        while last.__context__ is not None and last.__context__ is not handled:
            if last.__context__ is earlier:
                return
            last = last.__context__
        if last is not earlier:
            last.__context__ = earlier


__all__ = ["ExitStack", "cache", "cached_property", "contextmanager", "deque", "lru_cache", "partial", "suppress"]
