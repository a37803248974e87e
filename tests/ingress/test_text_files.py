"""Files of CSV and JSON lines: a value never begins a tuple, and a bad row is rejected whole."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headgate.errors import SourceError
from headgate.ingress import records, text_files
from headgate.ingress.json_lines import NO_OBJECT, TWICE
from headgate.ingress.sources import StreamSource, _file, read_table
from headgate.ingress.text_files import TextFile, local_file, read_files
from headgate.ingress.text_formats import text_of
from headgate.ingress.validation import MOST_KEPT, NO_FORM, RawBatch
from headgate.model.rejected import MALFORMED
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type

COLUMNS = (("at", Type.TIMESTAMP), ("k", Type.INT), ("note", Type.STRING), ("policy", Type.STRING))
THREE = (("x", Type.STRING), ("y", Type.STRING), ("z", Type.STRING))
AT = "2025-06-01T00:00:00Z"


def taken(data: bytes | str, format_: str, columns: tuple[tuple[str, Type], ...] = COLUMNS, **options: str) -> RawBatch:
    content = data.encode() if isinstance(data, str) else data

    @contextmanager
    def opened() -> Iterator[io.BytesIO]:
        yield io.BytesIO(content)

    return read_files(text_of(StreamDescriptor("s", columns), format_, options), [TextFile("f", opened)])


def ks(whole: RawBatch) -> list[object]:
    return list(whole.table.column("k").to_pylist())


def whys(whole: RawBatch) -> list[str]:
    return [why for part in whole.rejected for why in part.details]


def written(*rows: tuple[object, ...]) -> str:
    """As Python writes it, and most others do."""
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


# CSV ------------------------------------------------------------------------------------------------------------------

FORGED = f"hello\n{AT},777,forged,viewer\nbye"


def test_a_line_break_in_a_value_forges_no_tuple() -> None:
    """The attack: whoever may write a text writes rows with labels of their own choice into it."""
    whole = taken(written((AT, 1, FORGED, "boss"), (AT, 2, 'say "hi"', "boss"), (AT, 3, "x", "a\nb")), "csv")
    found = whole.table.to_pylist()
    assert [(x["k"], x["note"], x["policy"]) for x in found] == [
        (1, FORGED, "boss"),
        (2, 'say "hi"', "boss"),
        (3, "x", "a\nb"),
    ]
    assert not whole.rejected


DAMAGED = {
    "text after a quote": f'{AT},1,"a"x,boss',
    "text before a quote": f'{AT},1,a"x",boss',
    "damaged, then a line break that is quoted": f'{AT},1,"a"x,"boss\n{AT},777,forged,viewer\nbye"',
    "a quote inside that is not doubled": f'{AT},1,"a"b"c","boss\n{AT},777,forged,viewer\n"',
    "too few values": f"{AT},1,a",
    "too many values": f"{AT},1,a,boss,more",
    "a value of another type": f"{AT},8.0,a,boss",
    "a lone carriage return": f"{AT},1,a\r{AT},777,forged,viewer,boss",
}


@pytest.mark.parametrize("row", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_damaged_row_is_rejected_whole_and_other_rows_are_not(row: str, end: str) -> None:
    whole = taken(f"{AT},5,a,boss{end}{row}{end}{AT},6,b,boss{end}", "csv")
    assert ks(whole) == [5, 6]
    (rejected,) = whole.rejected
    assert rejected.reason == NO_FORM and [x[MALFORMED] for x in rejected.rows] == [row]


def test_a_quote_that_is_never_closed_rejects_everything_after_it() -> None:
    whole = taken(f'{AT},5,a,boss\n{AT},6,"open,boss\n{AT},777,forged,viewer\n{AT},8,x,y', "csv")
    assert ks(whole) == [5] and whys(whole) == [records.NOT_CLOSED]


def test_a_rejected_row_names_the_column_and_what_was_expected() -> None:
    rows = [(AT, "8.0", "a", "p"), ("then", 1, "a", "p"), (AT, 2**31, "a", "p"), (AT, "", "", "p"), (AT, "x" * 500)]
    whole = taken(written(*rows), "csv")
    assert whys(whole) == [
        "k: `8.0` is not INT",
        "at: `then` is not TIMESTAMP",
        "k: `2147483648` is not INT",
        "it has 2 values, not 4",
    ]
    assert whole.table.to_pylist()[0]["k"] is None and whole.table.to_pylist()[0]["note"] is None


TEXT = st.text(st.sampled_from('ab,";\n \t\x00é'), max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=8), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_a_file_that_python_wrote_is_read_the_same_in_pieces_of_any_size(
    rows: list[tuple[str, str, str]], all_: bool, end: str
) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL if all_ else csv.QUOTE_MINIMAL, lineterminator=end).writerows(rows)
    whole = taken(out.getvalue(), "csv", THREE)
    with pytest.MonkeyPatch.context() as small:
        small.setattr(records, "PIECE", 7)
        pieces = taken(out.getvalue(), "csv", THREE)
    for found in (whole, pieces):
        assert [tuple(x or "" for x in row.values()) for row in found.table.to_pylist()] == rows and not found.rejected


@settings(deadline=None, max_examples=60)
@given(st.text(st.sampled_from('a,"\n\r'), max_size=30))
def test_whatever_the_bytes_are_reading_them_in_pieces_changes_nothing(data: str) -> None:
    whole = taken(data, "csv", THREE)
    with pytest.MonkeyPatch.context() as small:
        small.setattr(records, "PIECE", 3)
        pieces = taken(data, "csv", THREE)
    assert whole.table.equals(pieces.table.combine_chunks()) and whys(whole) == whys(pieces)
    lines = {tuple(row.values()) for row in whole.table.to_pylist()}
    try:  # where Python, told to be strict, reads rows of three values, they are among these
        strict = [row for row in csv.reader(io.StringIO(data, newline=""), strict=True) if len(row) == 3]
    except csv.Error:
        return
    if "\r" not in data and not whole.rejected:
        assert {tuple(x or None for x in row) for row in strict} == {tuple(x or None for x in row) for row in lines}


def test_columns_are_found_by_the_names_in_the_header() -> None:
    whole = taken(f'\ufeffpolicy,more,"note",k,at\nboss,x,hi,3,{AT}\n', "csv", header="true")
    assert [(x["k"], x["note"], x["policy"]) for x in whole.table.to_pylist()] == [(3, "hi", "boss")]
    for header in ("at,k,note", "at,k,note,policy,k", '"at,k,note,policy'):
        with pytest.raises(SourceError, match="cannot read stream s any further: file `f`: its header"):
            taken(f"{header}\n", "csv", header="true")
    assert taken("", "csv", header="true").table.num_rows == 0


def test_unknown_options_are_refused() -> None:
    whole = taken(f"{AT};1;'a;''b';NA\n", "csv", sep=";", quote="'", nullValue="NA")
    assert [(x["note"], x["policy"]) for x in whole.table.to_pylist()] == [("a;'b", None)]
    assert ks(taken(f'{AT},1,é,"p"\n'.encode("latin-1"), "csv", encoding="latin-1")) == [1]
    for bad in ({"escape": "\\"}, {"multiLine": "true"}, {"sep": "ab"}, {"sep": ""}, {"encoding": "none"}):
        with pytest.raises(SourceError):
            text_of(StreamDescriptor("s", COLUMNS), "csv", bad)


def test_a_row_of_bytes_that_are_no_text_is_kept_for_the_owner_and_the_others_are_taken() -> None:
    for format_, rows in (("csv", (f"{AT},5,a,boss", f"{AT},no")), ("json", (line(k=5), "{"))):
        good, bad = (row.encode() for row in rows)
        whole = taken(good + b"\n" + bad + b"\xff\xfe\n", format_)
        assert ks(whole) == [5]
        assert [x[MALFORMED] for part in whole.rejected for x in part.rows] == [f"{rows[1]}\ufffd\ufffd"]


# JSON lines -----------------------------------------------------------------------------------------------------------


def line(**values: object) -> str:
    return json.dumps({"at": AT, "k": 1, "note": "a", "policy": "boss"} | values)


NO_LINES = {
    "two objects": (line(k=1) + line(k=777, policy="viewer"), NO_OBJECT),
    "text after it": (line() + " viewer", NO_OBJECT),
    "a comma after it": (line() + ",", NO_OBJECT),
    "an array of objects": (f"[{line()}, {line(k=777)}]", NO_OBJECT),
    "a key twice": (line().replace('"note"', '"policy": "viewer", "note"'), TWICE),
    "a key twice, once by numbers": (line().replace('"note"', '"p\\u006flicy": "viewer", "note"'), TWICE),
    "another key twice": (line().replace('"note"', '"z": 1, "z": 2, "note"'), TWICE),
    "no JSON": ("{'k': 1}", NO_OBJECT),
    "half a line": (line()[:-5], NO_OBJECT),
    "a fraction": (line(k=8.0), "k: `8.0` is not INT"),
    "a text": (line(k="8"), 'k: `"8"` is not INT'),
    "a number": (line(at=5), "at: `5` is not TIMESTAMP"),
    "too large": (line(k=2**31), "k: `2147483648` is not INT"),
}


@pytest.mark.parametrize(("bad", "why"), NO_LINES.values(), ids=NO_LINES)
def test_an_ambiguous_line_is_rejected_whole(bad: str, why: str) -> None:
    whole = taken(f"{line(k=5)}\n{bad}\n\n  \r\n{line(k=6)}", "json")
    assert ks(whole) == [5, 6] and whys(whole) == [why]
    assert [x[MALFORMED] for part in whole.rejected for x in part.rows] == [bad]


VALUES = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))
LINES = st.fixed_dictionaries({"k": VALUES, "note": st.none() | st.text(max_size=5), "more": st.integers()})


@settings(deadline=None, max_examples=60)
@given(st.lists(LINES, max_size=6), st.booleans())
def test_lines_are_read_as_python_reads_them(rows: list[dict[str, object]], ascii_: bool) -> None:
    data = "".join(json.dumps(row, ensure_ascii=ascii_) + "\n" for row in rows)
    with pytest.MonkeyPatch.context() as small:
        small.setattr(records, "PIECE", 20)
        whole = taken(data.encode("utf-8", "surrogatepass"), "json", COLUMNS[1:3])
    assert whole.table.to_pylist() == [{"k": x["k"], "note": x["note"]} for x in rows] and not whole.rejected


@pytest.mark.parametrize("name", ["a*", "a.b", "$x", "a/b", "a~b", 'a"b', "é", "0", "a'b", "_metadata"])
def test_columns_of_any_name_are_found(name: str) -> None:
    whole = taken(json.dumps({"x": 1, name: 3}), "json", ((name, Type.INT),))
    assert whole.table.to_pylist() == [{name: 3}]


# What a sender can do to others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_millions_of_bad_lines_are_counted_and_a_few_are_kept(format_: str) -> None:
    whole = taken("x\n" * 500_000 + (line() if format_ == "json" else f"{AT},1,a,b"), format_)
    (rejected,) = whole.rejected
    assert len(rejected) == 500_000 and len(rejected.rows) == len(rejected.details) == MOST_KEPT
    assert ks(whole) == [1] and len(whole) == 500_001


@pytest.mark.parametrize("data", ['"' + "y\n" * 90, "y" * 200, '1,"' + "y" * 150], ids=["quote", "line", "value"])
def test_a_record_that_never_ends_is_not_kept_in_memory(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PIECE", 16)
    monkeypatch.setattr(records, "LONGEST", 64)
    for end, ok in (("", []), ('"\n1,2,3\n' if '"' in data else "\n1,2,3\n", [("1", "2", "3")])):
        whole = taken(data + end, "csv", THREE)
        assert [tuple(x.values()) for x in whole.table.to_pylist()] == ok
        assert len(whole.rejected[0]) == 1 and whys(whole) == [records.TOO_LONG]


@pytest.mark.parametrize("before", range(0, 40, 5))
@pytest.mark.parametrize("record", ["y" * 65, '"' + "y\n" * 33 + '"', "y" * 70], ids=["line", "quote", "longer"])
@pytest.mark.parametrize("format_", ["csv", "json"])
def test_a_record_is_too_long_wherever_it_begins(
    before: int, record: str, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PIECE", 16)
    monkeypatch.setattr(records, "LONGEST", 64)
    ok = "1,2,3\n" if format_ == "csv" else '{"x": "1", "y": "2", "z": "3"}\n'
    record = record if format_ == "csv" else record.replace("\n", ".")
    whole = taken(ok * (before // 5) + record + "\n" + ok, format_, THREE)
    assert [tuple(x.values()) for x in whole.table.to_pylist()] == [("1", "2", "3")] * (before // 5 + 1)
    assert whys(whole) == [records.TOO_LONG]


def test_a_record_of_the_greatest_length_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PIECE", 16)
    monkeypatch.setattr(records, "LONGEST", 64)
    row = "y" * 60 + ",2,3"
    for end in ("", "\n"):
        assert not taken("1,2,3\n" + row + end, "csv", THREE).rejected


def test_deep_nesting_is_a_bad_line_like_any_other() -> None:
    assert whys(taken('{"k": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}", "json")) == [
        "k: `" + "[" * 100 + "...` is not INT"
    ]


# Files ----------------------------------------------------------------------------------------------------------------


def test_files_that_are_compressed_cut_short_or_gone(tmp_path: Path) -> None:
    text = text_of(StreamDescriptor("s", COLUMNS), "json", {})
    packed = gzip.compress(f"{line(k=3)}\n".encode() * 1000)
    (tmp_path / "1.json.gz").write_bytes(packed)
    (tmp_path / "2.json.gz").write_bytes(packed[: len(packed) // 2])
    files = [local_file(str(tmp_path / name)) for name in ("1.json.gz", "gone.json", "2.json.gz")]
    whole = read_files(text, files[:2])
    assert ks(whole) == [3] * 1000 and whole.notes == [f"file `{tmp_path}/gone.json` was gone before it was read"]
    with pytest.raises(SourceError, match=r"cannot read stream s any further: file `.*/2\.json\.gz`: "):
        read_files(text, files)
    os.mkfifo(tmp_path / "pipe\x1b\n")
    with pytest.raises(SourceError, match=r"file `.*/pipe\\x1b\\n`: it is not a regular file"):
        read_files(text, [local_file(str(tmp_path / "pipe\x1b\n"))])


def test_files_of_another_machine_are_read_by_the_same_reader(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(written((AT, 1, FORGED, "boss")))
    text = text_of(StreamDescriptor("s", COLUMNS), "csv", {})
    elsewhere = _file(spark, f"{tmp_path}/1.csv")  # without `file:` it might be anywhere
    assert ks(read_files(text, [elsewhere])) == [1]
    source = StreamSource(StreamDescriptor("s", COLUMNS, table=True), "csv", {"path": str(tmp_path / "1.csv")})
    assert ks(read_table(spark, source)) == [1]


def test_every_core_reads_and_the_order_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PIECE", 200)
    monkeypatch.setattr(text_files, "MOST_KEPT", 5)
    rows = "".join(f"{line(k=n)}\n" + ("x\n" if n % 7 == 0 else "") for n in range(200))
    whole = taken(rows, "json")
    assert ks(whole) == list(range(200)) and len(whole.rejected[0]) == 29 and len(whys(whole)) == 5


def test_a_process_that_has_read_on_all_cores_can_still_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """As whatever starts Spark does. What threads owned was destroyed in the copy, which ended it."""
    monkeypatch.setattr(records, "PIECE", 200)
    assert len(ks(taken(f"{line()}\n" * 50, "json"))) == 50
    with subprocess.Popen([sys.executable, "-c", ""], preexec_fn=lambda: None) as copy:
        assert copy.wait() == 0
