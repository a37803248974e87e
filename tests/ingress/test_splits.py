"""Splits are dealt out to tasks: few tasks for small files, and as many for each core."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headgate.ingress.pushdown import Pushdown
from headgate.ingress.splits import TARGET, Split, balanced, splits_of
from headgate.ingress.text_formats import text_of
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type


@pytest.mark.parametrize(
    ("sizes", "cores", "tasks"),
    [
        ([], 2, [[]]),
        ([100], 2, [[100]]),
        ([100] * 3, 2, [[100, 100, 100]]),
        ([TARGET] * 3, 2, [[TARGET, TARGET], [TARGET]]),
        ([TARGET // 4] * 8, 4, [[TARGET // 4] * 4] * 2),
        ([TARGET, 3 * TARGET, TARGET, TARGET], 2, [[3 * TARGET], [TARGET] * 3]),
        ([TARGET // 2] * 10, 4, [[TARGET // 2] * 3] * 2 + [[TARGET // 2] * 2] * 2),
    ],
)
def test_tasks_have_equally_much_to_read_and_are_few_if_there_is_little(
    sizes: list[int], cores: int, tasks: list[list[int]]
) -> None:
    splits = [Split(x, (), 0, 1, size) for x, size in enumerate(sizes)]
    found = balanced(splits, cores)
    assert [[x.size for x in some] for some in found] == tasks
    assert sorted(x.number for some in found for x in some) == [x.number for x in splits]


def test_small_files_are_read_together_and_large_ones_by_themselves(tmp_path: Path) -> None:
    sizes = [10, 20, TARGET, 5, 3 * TARGET, 1]
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.parquet"
        with path.open("wb") as file:
            file.truncate(size)
        os.utime(path, (number, number))
    found = splits_of([f"file://{tmp_path}/{number}.parquet" for number in range(len(sizes))])
    assert found is not None
    assert [([Path(x).stem for x in split.paths], split.part, split.parts) for split in found] == [
        (["0", "1"], 0, 1),
        (["2"], 0, 1),
        (["3"], 0, 1),
        (["4"], 0, 3),
        (["4"], 1, 3),
        (["4"], 2, 3),
        (["5"], 0, 1),
    ]
    assert [split.number for split in found] == list(range(7))


COLUMNS = (("at", Type.TIMESTAMP), ("patient", Type.INT), ("policy", Type.STRING))
LINES = [
    '{"at": "2024-03-01 08:00:00", "patient": 1, "policy": "nurse"}',
    '{"at": "2024-03-01 08:00:01", "patient": 2, "policy": "doctor"}',
    '{"at": "2024-03-01 08:00:02", "patient": "many", "policy": "doctor"}',
    '{"at": "2024-03-01 08:00:03", "patient": 4, "policy": null}',
]


def json_split(folder: Path, lines: Sequence[str]) -> Split:
    descriptor = StreamDescriptor("Vitals", COLUMNS, "at", {"ROLES": "policy"})
    path = folder / "vitals.json"
    path.write_text("\n".join(lines))
    return Split(0, (str(path),), text=text_of(descriptor, "json", {}))


def pushdown(labels: Mapping[tuple[str | None, ...], int]) -> Pushdown:
    return Pushdown(CatalogSnapshot(), ("patient",), labels)


def test_a_task_reads_json_lines_and_tells_of_malformed_ones(tmp_path: Path) -> None:
    split = json_split(tmp_path, LINES[:3])
    assert split.text is not None
    found = split.decoded(split.text.descriptor, pushdown({("nurse",): 7, ("doctor",): 9}), 0, lambda _: None)
    assert found is not None
    assert found.arrivals.labels.tolist() == [7, 9]
    assert found.arrivals.columns["patient"].to_pylist() == [1, 2]
    assert (found.tuples, [len(x) for x in found.rejected]) == (2, [1])
    assert "many" in found.rejected[0].details[0]


def test_labels_that_have_no_number_are_registered_by_the_driver(tmp_path: Path) -> None:
    split = json_split(tmp_path, LINES)
    assert split.text is not None
    asked: list[object] = []
    assert split.decoded(split.text.descriptor, pushdown({("nurse",): 7}), 0, lambda x: asked.extend(x)) is None
    assert set(asked) == {("nurse",), ("doctor",), (None,)}
    assert set(split.label_texts(split.text.descriptor)) == {("nurse",), ("doctor",), (None,)}


def test_a_file_that_is_gone_is_for_the_driver(tmp_path: Path) -> None:
    split = json_split(tmp_path, LINES)
    (tmp_path / "vitals.json").unlink()
    assert split.text is not None
    assert split.decoded(split.text.descriptor, pushdown({}), 0, lambda _: None) is None
