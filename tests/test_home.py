"""A home folder belongs to one server, or to commands, never to both."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headgate.errors import StoreError
from headgate.home import LOCK, SOCKET, alone, is_served, shared, socket_path


def test_commands_work_beside_each_other(tmp_path: Path) -> None:
    with shared(tmp_path) as first, shared(tmp_path) as second:
        assert (first, second) == (True, True)
    assert (tmp_path / LOCK).stat().st_mode & 0o777 == 0o600


def test_a_server_keeps_commands_and_other_servers_out(tmp_path: Path) -> None:
    with alone(tmp_path):
        assert is_served(tmp_path)
        with shared(tmp_path) as free:
            assert not free
        with pytest.raises(StoreError, match="another process works in it"), alone(tmp_path):
            pass
    assert not is_served(tmp_path)


def test_a_server_waits_for_commands_to_end(tmp_path: Path) -> None:
    begun, done = threading.Event(), threading.Event()

    def serve() -> None:
        begun.set()
        with alone(tmp_path):
            done.set()

    with shared(tmp_path):
        thread = threading.Thread(target=serve)
        thread.start()
        assert begun.wait(10) and not done.is_set()
        with pytest.raises(StoreError, match="another process works in it"), alone(tmp_path, 0):
            pass
    thread.join(30)
    assert done.is_set()


def test_a_folder_that_is_not_there_is_nobodys(tmp_path: Path) -> None:
    with shared(tmp_path / "none") as free:
        assert free
    with pytest.raises(StoreError, match="there is no Headgate in"), alone(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


def test_the_path_of_a_socket_is_short_however_deep_the_folder_is(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90) / ("y" * 90)
    deep.mkdir(parents=True)
    with socket_path(deep) as path:
        assert len(path) < 100
        Path(path).touch()
    assert (deep / SOCKET).exists()
