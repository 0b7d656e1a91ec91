"""Classes of plain data behave as those of the standard library, as far as pytrace uses them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from functools import cached_property
from typing import Any, ClassVar

import pytest

from pytrace.base.fast_dataclass import asdict, dataclass, field, fields, is_dataclass, replace


@dataclass(frozen=True, slots=True)
class Point:
    """A value."""

    x: int
    y: int = 2
    tag: ClassVar[str] = "point"


@dataclass(frozen=True, slots=True)
class Deep(Point):
    z: int = 3
    tag: ClassVar[str] = "deep"


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(slots=True, eq=False)
class Bag:
    name: str
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Wide:
    points: tuple[Point, ...]
    more: dict[str, Point] = field(default_factory=dict)

    @cached_property
    def count(self) -> int:
        return len(self.points)


def test_constructors_take_positions_names_and_defaults() -> None:
    assert (Point(1).x, Point(1).y) == (1, 2)
    assert (Point(y=5, x=4).x, Deep(1, z=9).z, Deep(1, 2, 3).y) == (4, 9, 2)
    assert Nothing() == Nothing()


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        ((), {}, r"Point\.__init__\(\) missing 1 required positional argument: 'x'"),
        ((1, 2, 3), {}, r"Point\.__init__\(\) takes from 2 to 3 positional arguments but 4 were given"),
        ((1,), {"w": 2}, r"Point\.__init__\(\) got an unexpected keyword argument 'w'"),
    ],
)
def test_what_a_constructor_refuses(values: tuple[int, ...], names: dict[str, int], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Point(*values, **names)


def test_made_defaults_belong_to_one_instance() -> None:
    first, second = Bag("a"), Bag("b")
    first.items.append(1)
    assert (first.items, second.items, Bag("c", [3]).items) == ([1], [], [3])
    assert not hasattr(Wide, "more")


def test_values_compare_and_hash_by_content_and_class() -> None:
    assert Point(1, 2) == Point(1)
    assert Point(1) != Point(2)
    other: list[object] = [(1, 2), Deep(1, 2), 1]
    assert Point(1, 2) not in other
    assert hash(Point(1)) == hash(Point(1, 2))
    assert len({Point(1), Point(1, 2), Deep(1)}) == 2


def test_without_eq_instances_compare_by_identity() -> None:
    bag = Bag("a")
    assert bag != Bag("a")
    assert {bag: 1}[bag] == 1


def test_changeable_values_have_no_hash() -> None:
    @dataclass(slots=True)
    class Changeable:
        x: int = 0

    assert Changeable() == Changeable(0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Changeable())


def test_methods_of_the_class_itself_stay() -> None:
    @dataclass(frozen=True, slots=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert Own(1) == Own(2)
    assert (hash(Own(1)), repr(Own(1))) == (7, "own")


def test_slots_allow_no_other_attribute() -> None:
    point = Deep(1)
    assert not hasattr(point, "__dict__")
    assert vars(Deep)["__slots__"] == ("z",)
    with pytest.raises(AttributeError, match="'Deep' object has no attribute 'w'"):
        setattr(point, "w", 1)  # noqa: B010
    assert Wide((point,)).count == 1


def test_classes_keep_name_module_and_text() -> None:
    assert (Point.__name__, Point.__qualname__, Point.__module__, Point.__doc__) == (
        "Point",
        "Point",
        __name__,
        "A value.",
    )
    assert (Point.tag, Deep.tag) == ("point", "deep")


def test_repr_is_that_of_the_standard_library() -> None:
    @dataclasses.dataclass(frozen=True)
    class Expected:
        x: int
        name: str

    @dataclass(frozen=True)
    class Made:
        x: int
        name: str

    assert repr(Made(1, "a")) == repr(Expected(1, "a")).replace("Expected", "Made")
    assert repr(Nothing()) == "Nothing()"


def test_fields_in_order_with_their_annotations() -> None:
    assert [(item.name, item.type) for item in fields(Deep)] == [("x", "int"), ("y", "int"), ("z", "int")]
    assert [item.name for item in fields(Bag("a"))] == ["name", "items"]
    assert (is_dataclass(Point), is_dataclass(Point(1)), is_dataclass(1)) == (True, True, False)


def test_replace_makes_another_instance() -> None:
    old = Deep(1)
    assert replace(old, y=7) == Deep(1, 7, 3)
    assert old.y == 2
    with pytest.raises(TypeError, match="w"):
        replace(old, w=1)  # type: ignore[call-arg]


def test_asdict_goes_through_containers() -> None:
    assert asdict(Wide((Point(1),), {"a": Deep(2)})) == {
        "points": ({"x": 1, "y": 2},),
        "more": {"a": {"x": 2, "y": 2, "z": 3}},
    }


def test_patterns_match_by_position() -> None:
    match Point(1, 5):
        case Point(1, y):
            assert y == 5
        case _:
            pytest.fail("no match")


def test_instances_can_be_copied_and_pickled() -> None:
    assert copy.deepcopy(Deep(1)) == Deep(1)
    assert pickle.loads(pickle.dumps(Deep(1, 5))) == Deep(1, 5)


def test_a_field_without_default_behind_one_with() -> None:
    with pytest.raises(TypeError, match="Wrong: a field without a default follows one with a default"):

        @dataclass(frozen=True)
        class Wrong:
            x: int = 0
            y: int  # type: ignore[misc]


def test_the_first_instances_are_made_like_all_others() -> None:
    @dataclass(frozen=True, slots=True)
    class Many:
        a: int
        b: list[int] = field(default_factory=list)
        c: str = "c"

    def parts(one: Many) -> tuple[object, ...]:
        return one.a, one.b, one.c

    for number in range(100):
        assert parts(Many(number)) == (number, [], "c")
        assert parts(Many(b=[1], a=number)) == (number, [1], "c")
        assert parts(Many(number, [2], c="d")) == (number, [2], "d")
        wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
            ((), {}, "missing 1 required positional argument: 'a'"),
            ((1, [], "c", 4), {}, "positional arguments but 5 were given"),
            ((1,), {"a": 2}, "got multiple values for argument 'a'"),
            ((1,), {"d": 2}, "got an unexpected keyword argument 'd'"),
        ]
        values, names, message = wrong[number % len(wrong)]
        with pytest.raises(TypeError, match=message):
            Many(*values, **names)
    assert Many(1) == Many(1)


def test_a_class_without_fields_of_its_own_has_those_of_its_base() -> None:
    class Plain(Point):
        pass

    assert [Plain(number).x for number in range(100)] == list(range(100))
    assert (Plain(1), [item.name for item in fields(Plain)]) == (Plain(1), ["x", "y"])
    assert hash(Plain(1)) == hash(Plain(1))


@dataclass(frozen=True)
class Many:
    """More fields than constructors are prepared for."""

    a: int
    b: int
    c: int
    d: int = 4
    e: int = 5
    f: int = 6
    g: int = 7
    h: int = 8
    i: int = 9
    j: list[int] = field(default_factory=list)
    k: str = "k"


@dataclass(frozen=True)
class More(Many):
    l: int = 12


@pytest.mark.parametrize("kind", [Many, More])
def test_classes_with_many_fields(kind: type[Many]) -> None:
    # The first instances are made by a constructor that is not compiled, the others by a compiled one.
    for _ in range(50):
        made = kind(1, 2, c=3, k="other")
        assert (made.a, made.b, made.c, made.d, made.i, made.j, made.k) == (1, 2, 3, 4, 9, [], "other")
        assert made.j is not kind(1, 2, 3).j
        assert kind(*range(9), [5]).j == [5]
        assert made == kind(1, 2, 3, k="other") != kind(1, 2, 3)
        assert getattr(made, "l", 12) == 12


@pytest.mark.parametrize(
    ("values", "named"),
    [((1, 2), {}), ((1, 2, 3), {"a": 1}), ((1, 2, 3), {"none": 1}), (tuple(range(12)), {}), ((), {"b": 1})],
)
def test_mistakes_with_many_fields(values: tuple[int, ...], named: dict[str, int]) -> None:
    @dataclass()
    class Own(Many):
        pass

    for _ in range(2):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            Own(*values, **named)  # type: ignore[arg-type]
