"""The chapters of the guide, typed from nothing; Spark is started once for all of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import ROOT, Worker, console_steps, type_document

CHAPTERS = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "docs/guide").glob("*.md")
    if path.name not in ("README.md", "python.md")  # tests/server/test_python_guide.py runs its examples
)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker(tmp_path_factory.mktemp("guide"), tmp_path_factory.mktemp("spark")) as found:
        yield found


@pytest.fixture
def folder(worker: Worker) -> Path:
    """The same for all chapters, and empty for each."""
    for path in worker.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return worker.folder


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_shows_what_happens(chapter: str, folder: Path, worker: Worker) -> None:
    assert len(console_steps((ROOT / chapter).read_text())) > 10
    assert type_document(chapter, folder, worker) == []
