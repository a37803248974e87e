"""Attacks on the files of results and state: names that leave their folder, links, and readers on the same machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from worlds.attacked import bench, small
from worlds.harness import Bench

from headgate.egress.sinks import file_name
from headgate.errors import StoreError

NAMES = [
    "..",
    ".",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\x00b",
    "~root",
    ".hidden",
    "é" * 128,
    "x" * 128,
    "%2E%2E",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leaves_its_folder(name: str, tmp_path: Path) -> None:
    path = file_name((name, name))
    assert len(path.split("/")) == 2 and not path.startswith((".", "/")) and "\x00" not in path
    assert all(part not in ("", ".", "..") and len(part) <= 255 for part in path.split("/"))
    assert len({file_name((other, other)) for other in NAMES}) == len(NAMES)
    file = tmp_path / path
    file.parent.mkdir()
    file.touch()
    assert file.resolve().is_relative_to(tmp_path.resolve())


def linked(found: Bench, link: Callable[[Path, Path], None]) -> None:
    found.subscribed(eve=("q", ""))
    (found.home / "out").mkdir(parents=True)
    (found.home / "elsewhere").mkdir()
    (found.home / "elsewhere/q.jsonl").touch()
    link(found.home / "out/eve", found.home / "elsewhere")
    found.begin(found.files())
    found.take("s", *small(1))


def folder_link(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere)


def file_link(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    (place / "q.jsonl").symlink_to(elsewhere / "q.jsonl")


def second_name(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    os.link(elsewhere / "q.jsonl", place / "q.jsonl")


def pipe(place: Path, _: Path) -> None:
    place.mkdir()
    os.mkfifo(place / "q.jsonl")


@pytest.mark.parametrize("link", [folder_link, file_link, second_name, pipe])
def test_results_do_not_follow_links(link: Callable[[Path, Path], None], tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT a FROM s")
    with pytest.raises(StoreError):
        linked(found, link)
    assert (tmp_path / "elsewhere/q.jsonl").read_bytes() == b""


def test_neither_state_nor_results_can_be_read_by_others(tmp_path: Path) -> None:
    found = bench(tmp_path / "home", q="SELECT COUNT(*) AS n FROM s [ROWS 9]")
    found.subscribed(eve=("q", ""))
    (tmp_path / "home/out/eve").mkdir(parents=True)
    (tmp_path / "home/out/eve/q.jsonl").touch(0o644)
    found.begin(found.files())
    found.take("s", *small(3))
    found.end()
    assert oct((tmp_path / "home/out/eve/q.jsonl").stat().st_mode)[-3:] == "600"
    assert oct((tmp_path / "home/state").stat().st_mode)[-3:] == "700"
