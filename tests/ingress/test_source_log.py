"""Spark's log of the files that were read is trimmed where files are removed after they were read."""

from __future__ import annotations

import json
from pathlib import Path

from headgate.ingress import source_log
from headgate.ingress.source_log import is_cleaned, is_due, trim


def checkpoint(folder: Path, entries: list[tuple[Path, int]], committed: int) -> Path:
    """A checkpoint as Spark writes it, with these files by batch."""
    log, commits = folder / "sources" / "0", folder / "commits"
    for place in (log, commits):
        place.mkdir(parents=True)
    lines = [json.dumps({"path": path.as_uri(), "timestamp": 1, "batchId": batch}) for path, batch in entries]
    (log / "9.compact").write_text("v1\n" + lines[0])
    (log / "19.compact").write_text("\n".join(["v1", *lines]))
    (log / ".19.compact.crc").write_bytes(b"of what stood there")
    (commits / str(committed)).write_text("v1\n{}")
    return folder


def kept(folder: Path) -> list[str]:
    _, *lines = (folder / "sources" / "0" / "19.compact").read_text().splitlines()
    return [Path(json.loads(line)["path"]).name for line in lines]


def test_entries_of_files_that_are_gone_are_taken_out(tmp_path: Path) -> None:
    there = tmp_path / "still here é.parquet"
    there.touch()
    names = [(tmp_path / "gone", 3), (there, 4), (tmp_path / "in the last batch", 19), (tmp_path / "later", 20)]
    place = checkpoint(tmp_path / "c", names, committed=19)
    trim(place)
    assert kept(place) == [Path(there.as_uri()).name, Path(names[2][0].as_uri()).name, "later"]
    assert not (place / "sources" / "0" / ".19.compact.crc").exists()
    trim(place)
    assert len(kept(place)) == 3


def test_a_log_that_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, [(tmp_path / "gone", 3)], committed=19)
    log = place / "sources" / "0" / "19.compact"
    for text in ("v2\nwhatever", "v1\n{}", "v1\n[]", "v1\nnull"):
        log.write_text(text)
        trim(place)
        assert log.read_text() == text
    trim(tmp_path / "nothing here")


def test_a_log_is_due_when_it_is_large_and_its_files_are_removed(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, [(tmp_path / "gone", 3)], committed=19)
    assert not is_due(place) and not is_due(tmp_path / "nothing here")
    (place / "sources" / "0" / "19.compact").write_bytes(b"x" * (source_log.MOST + 1))
    assert is_due(place)
    assert is_cleaned({"cleansource": "Delete"}) and is_cleaned({"cleanSource": "archive"})
    assert not is_cleaned({"cleanSource": "off"}) and not is_cleaned({})
