"""What owners are told is kept up to a size: the older half of a file goes, the newer one stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.egress import owner_files
from headgate.egress.owner_files import OwnerFiles, last_lines
from headgate.egress.sinks import Address
from headgate.model.rejected import RejectedRows


class Joe:
    def of(self, subscriber: str, query: str) -> Address:
        raise AssertionError((subscriber, query))

    def of_rejected(self, stream: str) -> tuple[str, ...]:
        return ("joe", f"{stream}.rejected")


def deliver(sink: OwnerFiles, version: int) -> dict[str, object]:
    rejected = [RejectedRows("s", "no", [{"n": version, "text": "x" * 50}], 0)]
    sink.stage(version, (), rejected)
    state = sink.state((), rejected)
    sink.prepare((), rejected, as_staged=False)
    sink.publish(lambda: None)
    sink.complete()
    return state


def numbers(folder: Path) -> list[int]:
    return [line["values"]["n"] for line in last_lines(folder, ("joe", "s.rejected"), 10_000)]


def test_the_newest_rejected_rows_stay_and_the_file_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_files, "MOST", 2000)
    sink = OwnerFiles(tmp_path, Joe())
    for version in range(60):
        state = deliver(sink, version)
        (file,) = tmp_path.glob("joe/*")
        assert file.stat().st_size < 2200
        found = numbers(tmp_path)
        assert found == list(range(found[0], version + 1))
    assert len(found) >= 8
    again = OwnerFiles(tmp_path, Joe())
    again.restore(state, out=False)  # the last delivery is not recorded: it comes again, once
    deliver(again, 59)
    assert numbers(tmp_path) == found and again.warnings() == []
