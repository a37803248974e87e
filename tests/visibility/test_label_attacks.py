"""Attacks on labels: hidden columns, policies that changed later, forged labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from worlds.attacked import COLUMNS, bench
from worlds.harness import NOW, RULES, Bench, stream

from headgate.ingress import validation
from headgate.ingress.validation import NO_LABEL, Ingress
from headgate.labels import Clearance, Label, Level, Rules, Semantics, parse_label
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.view import View
from headgate.plan.secure import Mode


def labelled(home: Path, mode: Mode) -> Bench:
    found = Bench(home, stream("s", COLUMNS, {"w": parse_label("doctor")}))
    found.query("q", "SELECT a, w FROM s", mode=mode)
    found.subscribed(eve=("q", "nurse"), dora=("q", "doctor"))
    found.take("s", ("TRUE", 1, "secret"))
    return found


def test_a_cumulative_query_does_not_show_hidden_columns(tmp_path: Path) -> None:
    """It reads all columns for everyone: their labels must be part of its results'."""
    found = labelled(tmp_path, Mode.CUMULATIVE)
    assert found.fetched("eve", "q") == []
    assert found.fetched("dora", "q") == [(1, "secret")]


def test_without_labels_of_columns_a_cumulative_query_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "column_labels", lambda *_: ())
    assert labelled(tmp_path, Mode.CUMULATIVE).fetched("eve", "q") == [(1, "secret")]


def test_a_lost_column_is_not_in_results_that_wait(tmp_path: Path) -> None:
    found = labelled(tmp_path, Mode.EXACT)
    assert found.fetched("eve", "q") == [(1, None)]
    found.subscribed(dora=("q", "nurse"))
    assert found.fetched("dora", "q") == []


def test_a_stricter_policy_of_the_owner_protects_earlier_tuples(tmp_path: Path) -> None:
    """In windows, and in results that wait."""
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]", p="SELECT a FROM s")
    found.subscribed(eve=("q", ""), amy=("p", ""), dora=("q", "doctor"))
    found.take("s", ("TRUE", 1, "x"))
    found.take("s", ("TRUE", 2, "x"))
    found.descriptors = {"s": replace(found.descriptors["s"], policy=parse_label("doctor"))}
    found.subscribed(eve=("q", ""), amy=("p", ""), dora=("q", "doctor"))
    found.take("s", ("TRUE", 3, "x"))
    found.end()
    assert found.fetched("eve", "q") == found.fetched("amy", "p") == []
    assert found.fetched("dora", "q") == [(1,), (2,), (3,)]


def test_with_the_policies_of_arrival_alone_earlier_tuples_would_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CatalogSnapshot, "protected", lambda _, label: label)
    with pytest.raises(AssertionError):
        test_a_stricter_policy_of_the_owner_protects_earlier_tuples(tmp_path)


FORGED = [
    "TRUE FROM s",
    'TRUE FROM "joe.open"',
    "TRUE AT NOWHERE",
    "doctor &",
    "",
    None,
    "TRUE) OR (TRUE",
    "x" * 99_999,
]


@pytest.mark.parametrize("text", FORGED, ids=lambda text: str(text)[:20])
def test_a_forged_label_opens_nothing(text: str | None, tmp_path: Path) -> None:
    """A source of weak semantics opens to whoever reads another source of the same result: a tuple that names one
    itself would open its stream to all who read that."""
    found = bench(tmp_path, q="SELECT a FROM s")
    found.subscribed(eve=("q", "nurse"))
    weak = Rules(RULES.order, {"s": Semantics.WEAK})
    clearance = Clearance(frozenset(), Level("TS"), frozenset({"joe.open"}))
    (eve,) = found.now.subscribers
    found.now = replace(found.now, rules=weak, subscribers=(replace(eve, clearance=clearance),))
    found.begin(found.files())
    found.take("s", (text, 1, "x"))
    assert found.fetched("eve", "q") == []
    assert NO_LABEL in (tmp_path / "out/owner/s.rejected.jsonl").read_text()


def test_a_forged_source_would_open_a_weak_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(validation.READERS, "LABEL", validation._labels)
    with pytest.raises((AssertionError, FileNotFoundError)):
        test_a_forged_label_opens_nothing('TRUE FROM "joe.open"', tmp_path)


def test_a_role_expression_in_the_level_column_is_no_level(tmp_path: Path) -> None:
    descriptor = replace(bench(tmp_path).descriptors["s"], labels={"LEVEL": "policy"})
    numbers: list[Label] = []
    taken = Ingress(descriptor, RULES, lambda label: numbers.append(label) or 0)  # type: ignore[func-returns-value]
    rows = bench(tmp_path).table("s", [("U, S", 1, "x"), ("doctor | TRUE", 1, "x"), ("U AT", 1, "x"), ("S", 1, "x")])
    arrivals, refused = taken.take(rows, int(NOW.timestamp() * 1000))
    assert len(arrivals.times) == 1 and [(x.reason, len(x.rows)) for x in refused] == [(NO_LABEL, 3)]
