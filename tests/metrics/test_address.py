"""The argument of --metrics."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import Address
from pytrace.metrics import address


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        (":9435", "", 9435, ":9435"),
        ("127.0.0.1:9435", "127.0.0.1", 9435, "127.0.0.1:9435"),
        ("localhost:0", "localhost", 0, "localhost:0"),
        ("[::1]:65535", "::1", 65535, "[::1]:65535"),
        ("[::]:1", "::", 1, "[::]:1"),
    ],
)
def test_addresses(text: str, host: str, port: int, shown: str) -> None:
    assert address.parse(text) == Address(host, port)
    assert address.shown(Address(host, port)) == shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9435", "needs an address and a port"),
        ("", "needs an address and a port"),
        ("::1:9435", "in brackets"),
        ("::1", "in brackets"),
        ("localhost:", "a port of 0 to 65535, not ''"),
        (":65536", "a port of 0 to 65535, not '65536'"),
        (":-1", "a port of 0 to 65535"),
        (":http", "a port of 0 to 65535, not 'http'"),
        (":٣", "a port of 0 to 65535"),
    ],
)
def test_what_is_no_address(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        address.parse(text)
    assert ":9435" in caught.value.hints[0]
