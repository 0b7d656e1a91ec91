"""Maps of scripts as mappings."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView

from pytrace.core.types import Type
from pytrace.render.forms import as_python
from pytrace.render.python_values import Result
from pytrace.results.snapshot import MapData


class ResultMap(Mapping[Result, Result]):
    """A map of a script: keys are plain values (tuples where a script has several), see ``pytrace.results.values``.

    The value of a map without keys is :attr:`value`, and also that of the key None.
    """

    def __init__(self, name: str, read: Callable[[], MapData]) -> None:
        self.name = name
        self._read = read

    @property
    def data(self) -> MapData:
        """The current contents of the map, as plain data."""
        return self._read()

    @property
    def key_type(self) -> Type | None:
        """Type of the keys; None without keys."""
        return self.data.key

    @property
    def value_type(self) -> Type:
        """Type of the values."""
        return self.data.value

    @property
    def mark(self) -> str:
        """``estimate`` if hits were left out and others counted for them, ``sample`` if values are of some hits only.

        Empty if the values are exact. Hits are left out with ``budget=``.
        """
        return self.data.mark

    @property
    def help(self) -> str:
        """The comment above the first use of the map in the script."""
        return self.data.help

    @property
    def value(self) -> Result:
        """The value of a map without keys; None if nothing has been stored.

        Raises:
            TypeError: the map has keys.
        """
        data = self.data
        if data.key is not None:
            raise TypeError(f"{self.name} has keys: use {self.name}[key], or items()")
        return as_python(data.value)(data.entries[None]) if data.entries else None

    def __getitem__(self, key: Result) -> Result:
        data = self.data
        return as_python(data.value)(data.entries[key])

    def __iter__(self) -> Iterator[Result]:
        return iter(list(self.data.entries))

    def __len__(self) -> int:
        return len(self.data.entries)

    def items(self) -> ItemsView[Result, Result]:
        """Keys and values, from a single read."""
        return self.to_dict().items()

    def values(self) -> ValuesView[Result]:
        """The values, from a single read."""
        return self.to_dict().values()

    def to_dict(self) -> dict[Result, Result]:
        """Keys and values as a new dictionary."""
        data = self.data
        form = as_python(data.value)
        return {key: form(value) for key, value in data.entries.items()}

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from pytrace.interface import html

        return html.result_map(self.data)

    def __repr__(self) -> str:
        # Without its size, which would have to be read from the kernel: a closed trace cannot do that.
        return f"<map {self.name}>"


class Maps(Mapping[str, ResultMap]):
    """The maps of a script by name (``@`` may be left out)."""

    def __init__(self, maps: Mapping[str, ResultMap]) -> None:
        self._maps = dict(maps)

    def __getitem__(self, name: str) -> ResultMap:
        return self._maps[name if name in self._maps else f"@{name}"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __repr__(self) -> str:
        return f"<maps {', '.join(self._maps) or 'none'}>"
