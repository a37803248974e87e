"""Spark reads the content of a table whole and in order, and separates bad rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.errors import SourceError
from headgate.ingress.sources import StreamSource, read_table
from headgate.ingress.validation import NO_FORM, NO_LABEL, Ingress
from headgate.labels import Label, Rules
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type

DESCRIPTOR = StreamDescriptor(
    "joe.wards", (("pat", Type.INT), ("ward", Type.STRING), ("who", Type.STRING)), None, {"ROLES": "who"}, table=True
)


def source(format_: str, path: Path, **options: str) -> StreamSource:
    return StreamSource(DESCRIPTOR, format_, {"path": str(path), **options})


def test_files_of_a_table_are_read_whole_oldest_first_and_bad_rows_are_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "b.csv").write_text("pat,ward,who\n1,east,nurse\n2,west,doctor\nx,north,nurse\n3,south,nurse &\n")
    (tmp_path / "a.csv").write_text("pat,ward,who\n4,closed,doctor\n")
    os.utime(tmp_path / "b.csv", (1_000, 1_000))
    whole = read_table(spark, source("csv", tmp_path, header="true"))
    labels: list[Label] = []

    def number(label: Label) -> int:
        labels.append(label)
        return len(labels) - 1

    arrivals, rejected = Ingress(DESCRIPTOR, Rules(), number).take(whole.table, 0)
    assert arrivals.columns["ward"].to_pylist() == ["east", "west", "closed"]
    assert [str(labels[x]) for x in arrivals.labels] == [f'{x} FROM "joe.wards"' for x in ("nurse", "doctor", "doctor")]
    assert [(x.reason, len(x.rows)) for x in (*whole.rejected, *rejected)] == [(NO_FORM, 1), (NO_LABEL, 1)]
    assert whole.rejected[0].details == ["pat: `x` is not INT"]


@pytest.mark.parametrize(
    ("format_", "content", "kind"),
    [("csv", None, "PATH_NOT_FOUND"), ("nonsense", "", None), ("parquet", "no", None)],
)
def test_a_table_that_cannot_be_read_is_reported_in_one_line(
    spark: SparkSession, tmp_path: Path, format_: str, content: str | None, kind: str | None
) -> None:
    """With the place, for whoever made the source; and nothing that is in files."""
    file = tmp_path / "that place"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SourceError) as caught:
        read_table(spark, source(format_, file))
    assert caught.value.message.startswith(f"cannot read table joe.wards as `{format_}`: {kind or ''}")
    assert "\n" not in str(caught.value)
    assert format_ == "nonsense" or f"`{file}`" in str(caught.value)
