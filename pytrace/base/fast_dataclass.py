"""Classes of plain data, declared like those of the standard library's ``dataclasses`` but created much faster.

The standard library writes the source of each method and compiles it whenever a program starts, 0.3 ms for each class,
and importing it takes 8 ms: together half of what starting from the cache took. Here a class gets its methods when
they are first called, as most classes are never used in one run. A constructor is compiled only for a class with many
instances, and once for each number of fields: a class gets a copy of that code with the names of its own fields.

What differs: annotations must be strings (``from __future__ import annotations``); only the options that pytrace uses
exist; and ``frozen`` is enforced by the type checker only, not at run time, which makes creating instances three times
cheaper.
"""

from __future__ import annotations

from _operator import attrgetter
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, TypeVar

_OWN = "__pytrace_own__"
"""Attribute of a class: the fields that it declares itself, with annotation and default."""
_FIELDS = "__pytrace_fields__"
"""Attribute of a class: all its fields, cached on first use."""
_OPTIONAL = "__pytrace_optional__"
"""Attribute of a class: whether its last field has a default."""
_MISSING: object = object()


class Field:
    """A field of a class: its name, its annotation, and its default value or default factory."""

    __slots__ = ("default", "factory", "name", "type")

    def __init__(self, name: str, kind: str, given: object) -> None:
        self.name = name
        self.type = kind
        self.factory = given.make if isinstance(given, _Factory) else None
        self.default = _MISSING if self.factory else given

    @property
    def required(self) -> bool:
        """Whether the constructor requires a value."""
        return self.default is _MISSING and self.factory is None


class _Factory:
    """The placeholder that :func:`field` leaves in the body of a class."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def _field(*, default_factory: Callable[[], object]) -> object:
    """A field with a default factory."""
    return _Factory(default_factory)


def _dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[type], type]:
    """Add a constructor, ``repr``, and by default comparison by value (with *frozen*, hashing as well) to a class."""

    def make(cls: type) -> type:
        own = cls.__dict__
        named = {
            name: (kind, own.get(name, _MISSING))
            for name, kind in own.get("__annotations__", {}).items()
            if not kind.startswith("ClassVar")
        }
        made = _methods(cls, named, frozen, eq)
        if slots:
            return _with_slots(cls, tuple(named), made)
        for name, value in made.items():
            setattr(cls, name, value)
        for name, (_, given) in named.items():
            if isinstance(given, _Factory):
                delattr(cls, name)
        return cls

    return make


def _with_slots(cls: type, names: tuple[str, ...], made: dict[str, object]) -> type:
    """A copy of the class with slots, which cannot be added to an existing class."""
    inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    dropped = {"__dict__", "__weakref__", *names}
    space = {name: value for name, value in cls.__dict__.items() if name not in dropped}
    space["__slots__"] = tuple(name for name in names if name not in inherited)
    space["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, {**space, **made})


# ---------------------------------------------------------------------------------------------- methods


_Own = dict[str, tuple[str, object]]


def _methods(cls: type, named: _Own, frozen: bool, eq: bool) -> dict[str, object]:
    """The methods that are added to a class that declares the fields *named*."""
    before: tuple[str, ...] = getattr(cls, "__match_args__", ())
    made: dict[str, object] = {
        _OWN: named,
        _OPTIONAL: _order(cls, named, before),
        "__match_args__": (*before, *[name for name in named if name not in before]),
        "__init__": _first_init,
    }
    own = cls.__dict__
    if "__repr__" not in own:
        made["__repr__"] = _repr
    if eq:
        if "__eq__" not in own:
            made["__eq__"] = _first_eq
        # Python gives a class with an `__eq__` of its own a `__hash__` that is None.
        if own.get("__hash__") is None:
            made["__hash__"] = _first_hash if frozen else None
    return made


def _order(cls: type, named: _Own, before: tuple[str, ...]) -> bool:
    """Check the order of the fields. Returns whether the last one has a default.

    Raises:
        TypeError: a field without a default follows one with a default.
    """
    optional: bool = getattr(cls, _OPTIONAL, False)
    for name, (_, given) in named.items():
        if given is not _MISSING:
            optional = True
        elif optional and name not in before:
            raise TypeError(f"{cls.__qualname__}: a field without a default follows one with a default")
    return optional


_Method = TypeVar("_Method")


def _completed(cls: type, name: str, placeholder: object, method: Callable[[type], _Method]) -> _Method:
    """Replace the *placeholder* by the real *method*, in *cls* or the base class that has it, and return the method."""
    owner = _owner(cls, name, placeholder)
    made = method(owner)
    setattr(owner, name, made)
    return made


def _owner(cls: type, name: str, value: object) -> type:
    """The class in the MRO of *cls* that defines an attribute."""
    return next(base for base in cls.__mro__ if base.__dict__.get(name) is value)


def _first_init(self: object, *values: object, **named: object) -> None:
    """The constructor that a class has until its first instance."""
    _completed(self.__class__, "__init__", _first_init, _constructor)(self, *values, **named)


def _first_eq(self: object, other: object) -> object:
    return _completed(self.__class__, "__eq__", _first_eq, _equality)(self, other)


def _first_hash(self: object) -> int:
    result: int = _completed(self.__class__, "__hash__", _first_hash, _hashing)(self)
    return result


@cache
def _template(count: int) -> CodeType:
    """The code object of a constructor with *count* arguments."""
    if count < len(_BY_COUNT):
        return _BY_COUNT[count].__code__
    names = [f"_{number}" for number in range(count)]
    body = "".join(f"\n self.{name} = {name}" for name in names)
    scope: dict[str, object] = {}
    exec(f"def __init__(self, {', '.join(names)}):{body}", scope)
    made = scope["__init__"]
    assert isinstance(made, FunctionType)
    return made.__code__


def _constructor(cls: type) -> Callable[..., None]:
    found = _fields(cls)
    return _compiled(cls, found) if len(found) < len(_BY_COUNT) else _uncompiled(cls, found)


def _uncompiled(cls: type, found: tuple[Field, ...]) -> Callable[..., None]:
    """A constructor that takes any number of fields, replaced by a compiled one when there are some instances.

    Compiling one takes as long as making fifty instances by this one, and classes with many fields have one instance.
    """
    names = tuple(item.name for item in found)
    known = frozenset(names)
    left = [_FEW]

    def __init__(self: object, *values: object, **named: object) -> None:  # noqa: N807  (it becomes a method)
        left[0] -= 1
        if not left[0] or len(values) > len(names) or not known.issuperset(named) or any(
            name in named for name in names[: len(values)]
        ):
            # Enough instances, or a mistake, for which the interpreter has the message.
            made = _compiled(cls, found)
            setattr(cls, "__init__", made)  # noqa: B010  (mypy refuses the assignment)
            made(self, *values, **named)
            return
        for name, value in zip(names, values, strict=False):
            setattr(self, name, value)
        for item in found[len(values) :]:
            if item.name in named:
                setattr(self, item.name, named[item.name])
            elif item.required:
                raise TypeError(f"{cls.__qualname__}.__init__() missing the argument {item.name!r}")
            else:
                setattr(self, item.name, item.default if item.factory is None else item.factory())

    return __init__


_FEW = 40
"""More than there are kinds of probes, of which each start makes the table."""


def _compiled(cls: type, found: tuple[Field, ...]) -> Callable[..., None]:
    names = tuple(item.name for item in found)
    optional = tuple(item for item in found if not item.required)
    code = _template(len(names)).replace(
        co_varnames=("self", *names), co_names=names, co_qualname=f"{cls.__qualname__}.__init__"
    )
    made = FunctionType(code, {}, "__init__", tuple(item.default for item in optional))
    factories = tuple((item.name, item.factory) for item in found if item.factory is not None)
    return _filling(made, factories) if factories else made


def _filling(
    store: Callable[..., None], factories: tuple[tuple[str, Callable[[], object]], ...]
) -> Callable[..., None]:
    def __init__(self: object, *values: object, **named: object) -> None:  # noqa: N807  (it becomes a method)
        store(self, *values, **named)
        for name, factory in factories:
            if getattr(self, name) is _MISSING:
                setattr(self, name, factory())

    return __init__


def _values(cls: type) -> Callable[[object], object]:
    names = [item.name for item in _fields(cls)]
    return attrgetter(*names) if names else lambda _: ()


def _equality(cls: type) -> Callable[[object, object], object]:
    values = _values(cls)

    def __eq__(self: object, other: object) -> object:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hashing(cls: type) -> Callable[[object], int]:
    values = _values(cls)

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _repr(self: object) -> str:
    inside = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in _fields(self))
    return f"{self.__class__.__qualname__}({inside})"


# ---------------------------------------------------------------------------------------------- templates


if TYPE_CHECKING:
    _BY_COUNT: tuple[FunctionType, ...]
else:
    # Compiling such a function when a class needs it takes ten times as long as copying its code.
    def _0(self):
        pass

    def _1(self, a):
        self.a = a

    def _2(self, a, b):
        self.a = a
        self.b = b

    def _3(self, a, b, c):
        self.a = a
        self.b = b
        self.c = c

    def _4(self, a, b, c, d):
        self.a = a
        self.b = b
        self.c = c
        self.d = d

    def _5(self, a, b, c, d, e):
        self.a = a
        self.b = b
        self.c = c
        self.d = d
        self.e = e

    def _6(self, a, b, c, d, e, f):
        self.a = a
        self.b = b
        self.c = c
        self.d = d
        self.e = e
        self.f = f

    def _7(self, a, b, c, d, e, f, g):
        self.a = a
        self.b = b
        self.c = c
        self.d = d
        self.e = e
        self.f = f
        self.g = g

    def _8(self, a, b, c, d, e, f, g, h):
        self.a = a
        self.b = b
        self.c = c
        self.d = d
        self.e = e
        self.f = f
        self.g = g
        self.h = h

    def _9(self, a, b, c, d, e, f, g, h, i):
        self.a = a
        self.b = b
        self.c = c
        self.d = d
        self.e = e
        self.f = f
        self.g = g
        self.h = h
        self.i = i

    _BY_COUNT = (_0, _1, _2, _3, _4, _5, _6, _7, _8, _9)
    """Constructors of classes with few fields, by their number."""


# ---------------------------------------------------------------------------------------------- functions


def is_dataclass(value: object) -> bool:
    """Whether an object is a data class or an instance of one."""
    return hasattr(value, _OWN)


def _fields(value: object) -> tuple[Field, ...]:
    """The fields of a class or of an instance, those of base classes first."""
    cls: type = value if isinstance(value, type) else value.__class__
    known: tuple[Field, ...] | None = cls.__dict__.get(_FIELDS)
    if known is not None:
        return known
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        found.update((name, Field(name, *parts)) for name, parts in base.__dict__.get(_OWN, {}).items())
    made = tuple(found.values())
    setattr(cls, _FIELDS, made)
    return made


def _replace(instance: object, /, **changes: object) -> object:
    """A copy with other values in some fields."""
    cls = instance.__class__
    names = _names.get(cls)
    if names is None:
        names = _names[cls] = tuple(item.name for item in _fields(cls))
    values = [changes.pop(name) if name in changes else getattr(instance, name) for name in names]
    make: Callable[..., object] = cls
    return make(*values, **changes)  # the constructor complains about what is left


_names: dict[type, tuple[str, ...]] = {}
"""Names of the fields of a class, once :func:`replace` had an instance of it."""


def _asdict(instance: object) -> dict[str, object]:
    """Values by field name; nested instances become dictionaries, containers are copied."""
    return {item.name: _plain(getattr(instance, item.name)) for item in _fields(instance)}


def _plain(value: object) -> object:
    if is_dataclass(value):
        return _asdict(value)
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value


if TYPE_CHECKING:
    # Type checkers know these names.
    from dataclasses import asdict, dataclass, field, fields, replace
else:
    asdict, dataclass, field, fields, replace = _asdict, _dataclass, _field, _fields, _replace

__all__ = ["asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]
