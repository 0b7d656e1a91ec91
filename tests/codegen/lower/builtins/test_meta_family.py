"""The configuration as a record."""

from __future__ import annotations

import pytest

from pytrace.core.config import Config
from tests.codegen.running import printed


def test_all_keys() -> None:
    values = Config().to_data()
    (found,) = printed("print(config());")
    assert found == tuple(item.encode() if isinstance(item, str) else item for item in values.values())


@pytest.mark.parametrize("key", ["license", "max_strlen"])
def test_one_key_of_the_record(key: str) -> None:
    wanted = Config().to_data()[key]
    assert printed(f"$c = config(); print($c.{key});") == [wanted.encode() if isinstance(wanted, str) else wanted]
