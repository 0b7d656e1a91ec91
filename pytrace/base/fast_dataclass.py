"""Classes of plain data, declared like those of the standard library's ``dataclasses`` and made much faster.

The standard library writes the source of each method and compiles it whenever a program starts, 0.3 ms for each class,
and importing it takes 8 ms: together half of what starting from the cache took. Here the constructor is compiled once
for each number of fields, and a class gets a copy of that code with the names of its own fields.

What differs: annotations have to be text (``from __future__ import annotations``); the options are those that pytrace
uses; and ``frozen`` is a promise that the type checker holds, at run time nothing guards an instance. That makes
instances three times cheaper, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

_FIELDS = "__pytrace_fields__"
_MISSING: object = object()


class Field:
    """A field of a class: its name, its annotation, and the value or what makes the value when none is given."""

    __slots__ = ("default", "factory", "name", "type")

    def __init__(self, name: str, kind: str, given: object) -> None:
        self.name = name
        self.type = kind
        self.factory = given.make if isinstance(given, _Factory) else None
        self.default = _MISSING if self.factory else given

    @property
    def required(self) -> bool:
        """Whether a constructor has to be given a value."""
        return self.default is _MISSING and self.factory is None


class _Factory:
    """What :func:`field` leaves in the body of a class."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def _field(*, default_factory: Callable[[], object]) -> object:
    """A field whose value is made anew for each instance that is not given one."""
    return _Factory(default_factory)


def _dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[type], type]:
    """Give a class a constructor, ``repr``, and unless told otherwise comparison by value (*frozen*: and hashing)."""

    def make(cls: type) -> type:
        own = cls.__dict__
        named = {name: kind for name, kind in own.get("__annotations__", {}).items() if not kind.startswith("ClassVar")}
        found: dict[str, Field] = {}
        for base in reversed(cls.__mro__[1:]):
            found.update((item.name, item) for item in base.__dict__.get(_FIELDS, ()))
        found.update((name, Field(name, kind, own.get(name, _MISSING))) for name, kind in named.items())
        made = _methods(cls, tuple(found.values()), frozen, eq)
        if slots:
            return _with_slots(cls, tuple(named), made)
        for name, value in made.items():
            setattr(cls, name, value)
        for name in named:
            if isinstance(own.get(name), _Factory):
                delattr(cls, name)
        return cls

    return make


def _with_slots(cls: type, names: tuple[str, ...], made: dict[str, object]) -> type:
    """The class again, with slots, which cannot be added to one that exists."""
    inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    dropped = {"__dict__", "__weakref__", *names}
    space = {name: value for name, value in cls.__dict__.items() if name not in dropped}
    space["__slots__"] = tuple(name for name in names if name not in inherited)
    space["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, {**space, **made})


# ---------------------------------------------------------------------------------------------- methods


def _methods(cls: type, found: tuple[Field, ...], frozen: bool, eq: bool) -> dict[str, object]:
    names = tuple(item.name for item in found)
    made: dict[str, object] = {_FIELDS: found, "__match_args__": names, "__init__": _constructor(cls, found)}
    own = cls.__dict__
    if "__repr__" not in own:
        made["__repr__"] = _repr
    if eq:
        equal, hashed = _by_value(names)
        if "__eq__" not in own:
            made["__eq__"] = equal
        # Python gives a class with an `__eq__` of its own a `__hash__` that is None.
        if own.get("__hash__") is None:
            made["__hash__"] = hashed if frozen else None
    return made


@cache
def _template(count: int) -> CodeType:
    """The code of a constructor that stores *count* arguments."""
    names = [f"_{number}" for number in range(count)]
    body = "".join(f"\n self.{name} = {name}" for name in names) or "\n pass"
    scope: dict[str, object] = {}
    exec(f"def __init__(self, {', '.join(names)}):{body}", scope)
    made = scope["__init__"]
    assert isinstance(made, FunctionType)
    return made.__code__


def _constructor(cls: type, found: tuple[Field, ...]) -> Callable[..., None]:
    names = tuple(item.name for item in found)
    optional = tuple(item for item in found if not item.required)
    if optional != found[len(found) - len(optional) :]:
        raise TypeError(f"{cls.__qualname__}: a field without a default follows one with a default")
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


def _by_value(names: tuple[str, ...]) -> tuple[Callable[[object, object], object], Callable[[object], int]]:
    values: Callable[[object], object] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> object:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __eq__, __hash__


def _repr(self: object) -> str:
    inside = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in _fields(self))
    return f"{self.__class__.__qualname__}({inside})"


# ---------------------------------------------------------------------------------------------- functions


def is_dataclass(value: object) -> bool:
    """Whether something is such a class or an instance of one."""
    return hasattr(value, _FIELDS)


def _fields(value: object) -> tuple[Field, ...]:
    """The fields of a class or of an instance, those of base classes first."""
    found: tuple[Field, ...] = getattr(value, _FIELDS)
    return found


def _replace(instance: object, /, **changes: object) -> object:
    """A copy with other values in some fields."""
    for item in _fields(instance):
        if item.name not in changes:
            changes[item.name] = getattr(instance, item.name)
    make: Callable[..., object] = instance.__class__
    return make(**changes)


def _asdict(instance: object) -> dict[str, object]:
    """Values by field name, instances in them as dictionaries, too; containers are copied."""
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
    # Type checkers know what these mean.
    from dataclasses import asdict, dataclass, field, fields, replace
else:
    asdict, dataclass, field, fields, replace = _asdict, _dataclass, _field, _fields, _replace

__all__ = ["asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]
