"""The golden label cases through ingress: its text reader, and its compiled column reader."""

from __future__ import annotations

from dataclasses import replace

import pytest
from labels.golden import DECISIONS, FAULTS, ORDER, Decision, Fault, named
from worlds.decided import MANY, Taken, Way, beside, ingested

from headgate.ingress.validation import NO_LABEL
from headgate.labels import Label, Rules, parse_label

RULES = Rules(ORDER)
WITHOUT_SOURCES = [case for case in DECISIONS if not parse_label(case.text).sources]
WITH_SOURCES = [case for case in DECISIONS if parse_label(case.text).sources]
ROLES_ONLY = [case for case in WITHOUT_SOURCES if " AT " not in case.canonical and " at " not in case.text.lower()]


def _alone_and_beside_others(text: str, kind: str = "LABEL") -> list[Taken]:
    return [ingested([text], RULES, kind=kind), ingested(beside(text), RULES, kind=kind)]


def _of_stream(label: Label) -> Label:
    return replace(label, sources=frozenset({"s"}))


@pytest.mark.parametrize("case", named(WITHOUT_SOURCES))
def test_ingress_reads_a_label_as_the_table_says_with_either_reader(case: Decision) -> None:
    for taken in _alone_and_beside_others(case.text):
        assert not taken.rejected
        assert str(replace(taken.labels[-1], sources=frozenset())) == case.canonical
        assert case.rules.permits(taken.labels[-1], Way(case.text, case.clearance, case.rules).reader) is case.permitted


@pytest.mark.parametrize("case", named(ROLES_ONLY))
def test_a_column_of_roles_reads_the_same_labels(case: Decision) -> None:
    for taken in _alone_and_beside_others(case.text, "ROLES"):
        assert taken.labels[-1] == _of_stream(parse_label(case.canonical))


@pytest.mark.parametrize("case", named(WITH_SOURCES))
def test_a_tuple_that_names_its_sources_is_rejected_by_either_reader(case: Decision) -> None:
    for taken in _alone_and_beside_others(case.text):
        assert [(len(x), x.reason) for x in taken.rejected] == [(1, NO_LABEL)]


@pytest.mark.parametrize("case", named(WITH_SOURCES))
def test_sources_of_the_stream_and_its_policy_make_the_label_of_the_table(case: Decision) -> None:
    (label,) = Way(case.text, case.clearance, case.rules).taken.labels
    assert str(label) == case.canonical
    assert case.rules.permits(label, case.clearance, aggregated=case.aggregated) is case.permitted


@pytest.mark.parametrize("kind", ["LABEL", "ROLES"])
@pytest.mark.parametrize("case", named(FAULTS))
def test_a_text_that_is_no_label_is_rejected_and_kept_for_the_owner(case: Fault, kind: str) -> None:
    alone, among = _alone_and_beside_others(case.text, kind)
    for taken, others in ((alone, 0), (among, MANY)):
        ((row,),) = (part.rows for part in taken.rejected)
        assert [part.reason for part in taken.rejected] == [NO_LABEL]
        assert row["policy"] == case.text
        assert len(taken.batch.times) == others


def test_both_spellings_of_a_label_have_one_number() -> None:
    texts = [text for case in WITHOUT_SOURCES for text in (case.text, case.canonical)]
    taken = ingested(texts, RULES)
    first, second = taken.batch.labels[::2], taken.batch.labels[1::2]
    assert first.tolist() == second.tolist()
    assert len(taken.dictionary.labels) == len({case.canonical for case in WITHOUT_SOURCES})
