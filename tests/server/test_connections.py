"""Connections: what lies beneath an encrypted one is known, or nothing is served."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from headgate.errors import StoreError
from headgate.server.connections import Link


def test_an_encrypted_connection_of_an_unknown_kind_is_not_served() -> None:
    """As in a Python whose asyncio has another inside: bytes that wait could not be counted nor taken back."""
    transport = Mock(spec=["get_extra_info", "abort"])
    with pytest.raises(StoreError, match="this version of Python"):
        Link(transport)
    transport.abort.assert_called_once_with()
