"""The archive of Spark's classes: made once, used if it is there, never needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headgate.ingress import class_archive
from headgate.ingress.class_archive import ensure, java_options

STORING = "storing Spark's classes, so that it starts faster (half a minute)"


class Maker:
    """Writes an archive, as a run of Spark does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.runs = 0
        self._error = error
        self.said: list[str] = []

    def run(self, into: Path) -> None:
        self.runs += 1
        if self._error is not None:
            raise self._error
        into.write_text("classes")

    def ensure(self, place: Path) -> list[str]:
        self.said.clear()
        ensure(place, self.said.append, self.run)
        return self.said


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The version of Java, to be changed."""
    version = ["17.0.1"]
    monkeypatch.setattr(class_archive, "_java_and_spark", lambda: version[0])
    return version


@pytest.mark.usefixtures("java")
def test_the_archive_is_made_once_and_for_everybody_to_read(tmp_path: Path) -> None:
    place, maker = tmp_path / "share" / "classes.jsa", Maker()
    assert maker.ensure(place) == [STORING]
    assert place.read_text() == "classes" and place.stat().st_mode & 0o777 == 0o444
    assert maker.ensure(place) == []
    assert maker.runs == 1
    assert sorted(x.name for x in place.parent.iterdir()) == ["classes.jsa", "classes.txt"]


def test_another_java_makes_it_anew(tmp_path: Path, java: list[str]) -> None:
    place, maker = tmp_path / "classes.jsa", Maker()
    maker.ensure(place)
    java[0] = "21.0.1"
    assert maker.ensure(place) == [STORING]
    assert maker.runs == 2


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("error", [OSError(28, "disk full"), subprocess.TimeoutExpired("java", 600)])
def test_what_cannot_be_stored_is_said_and_harms_nothing(tmp_path: Path, error: Exception) -> None:
    place = tmp_path / "classes.jsa"
    said = Maker(error).ensure(place)
    slower = f"Spark's classes were not stored ({type(error).__name__}): Spark starts slower, and works"
    assert said == [STORING, slower]
    assert list(tmp_path.iterdir()) == []
    assert Maker().ensure(place) == [STORING]


def test_java_is_told_of_an_archive_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "classes.jsa"
    monkeypatch.setattr(class_archive, "archive", lambda: place)
    assert java_options() == ""
    place.write_text("classes")
    assert java_options() == f"-XX:SharedArchiveFile={place} -Xlog:cds=off -Xlog:cds+dynamic=off"


def test_a_place_that_spark_would_split_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "a folder.jsa"
    place.write_text("classes")
    monkeypatch.setattr(class_archive, "archive", lambda: place)
    assert java_options() == ""
