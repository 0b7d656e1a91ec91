"""Enumerations, declared and used like those of the standard library's ``enum`` but created five times faster.

Importing ``enum`` takes 1 ms and each class 0.1 ms. What differs: members are the plain values in the body of the class
(no ``auto``, no flags, no methods with the names of members), and they are not read-only at run time.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytrace.base.fast_typing import TYPE_CHECKING, Any


class _Enumeration(type):
    """The metaclass of enumerations: members by name and by value, in order."""

    _members: dict[str, object]
    _values: dict[object, object]

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, object]) -> _Enumeration:
        given = {key: value for key, value in space.items() if key[0] != "_" and isinstance(value, int | str)}
        for key in given:
            del space[key]
        made = super().__new__(cls, name, bases, space)
        made._members, made._values = {}, {}
        for key, value in given.items():
            member = made._members[key] = made._values[value] if value in made._values else made._add(key, value)
            setattr(made, key, member)
        return made

    def _add(cls, name: str, value: int | str) -> object:
        member: Any = cls.__new__(cls, value) if issubclass(cls, int) else cls.__new__(cls)
        member.name, member.value = name, value
        cls._values[value] = member
        return member

    def __call__(cls, value: object) -> object:
        found = cls._values.get(value)
        if found is None:
            raise ValueError(f"{value!r} is not a valid {cls.__qualname__}")
        return found

    def __getitem__(cls, name: str) -> object:
        return cls._members[name]

    def __iter__(cls) -> Iterator[object]:
        return iter(cls._values.values())

    def __len__(cls) -> int:
        return len(cls._values)


class _Enum(metaclass=_Enumeration):
    name: str
    value: object

    def __reduce_ex__(self, _protocol: object) -> tuple[object, ...]:
        return self.__class__, (self.value,)

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__}.{self.name}: {self.value!r}>"

    def __str__(self) -> str:
        return f"{self.__class__.__name__}.{self.name}"


class _IntEnum(int, metaclass=_Enumeration):
    name: str
    value: int
    __str__ = int.__repr__

    def __reduce_ex__(self, _protocol: object) -> tuple[object, ...]:
        return self.__class__, (self.value,)

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__}.{self.name}: {int(self)}>"


if TYPE_CHECKING:
    # Type checkers know these names.
    from enum import Enum, IntEnum
else:
    Enum, IntEnum = _Enum, _IntEnum

__all__ = ["Enum", "IntEnum"]
