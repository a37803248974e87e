"""Storage: files are there whole or not at all, and a manifest is committed once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.storage import LocalStorage, read_table, write_table


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "state")
    storage.write("a", b"one")
    storage.write("b", b"", durable=False)
    assert storage.read("a").to_pybytes() == b"one"
    assert storage.names() == ["a", "b"]
    assert storage.read("b").to_pybytes() == b""


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    storage, table = LocalStorage(tmp_path), pa.table({"x": [1, None], "y": ["a", "é"]})
    size = write_table(storage, "t", table)
    assert read_table(storage, "t").equals(table)
    assert size == (tmp_path / "t").stat().st_size


def test_a_manifest_is_committed_once(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    assert storage.commit("m", b"first")
    assert not storage.commit("m", b"second")
    assert storage.read("m").to_pybytes() == b"first"
    assert storage.names() == ["m"]


def test_missing_files_can_be_deleted_and_not_read(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.write("a", b"x")
    storage.delete(["a", "b"])
    assert storage.names() == []
    with pytest.raises(FileNotFoundError):
        storage.read("a")


def test_an_interrupted_write_leaves_no_file_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for name, act in (("fsync", storage.write), ("link", storage.commit)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, killed)
            with pytest.raises(KeyboardInterrupt):
                act("m", b"content")
        assert "m" not in storage.names()


def test_only_the_user_may_read_state(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "state")
    storage.write("a", b"x")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "a").stat().st_mode & 0o777 == 0o600


def test_what_waits_for_the_disk_together_is_there_before_the_commit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, flushed = LocalStorage(tmp_path, together=True), list[str]()
    monkeypatch.setattr(os, "fsync", lambda x: flushed.append(Path(os.readlink(f"/proc/self/fd/{x}")).name))
    link = os.link

    def linked(*given: Any) -> None:
        flushed.append("link")
        link(*given)

    monkeypatch.setattr(os, "link", linked)
    for name in ("a", "b", "gone"):
        storage.write(name, b"1")
    storage.write("later", b"1", durable=False)
    storage.delete(["gone"])
    assert flushed == []
    assert storage.commit("m1", b"2")
    manifest = flushed.pop(2)
    assert manifest.startswith("m1.") and flushed == ["a", "b", "link", tmp_path.name]
    flushed.clear()
    assert storage.commit("m2", b"3") and flushed[1:] == ["link", tmp_path.name]
