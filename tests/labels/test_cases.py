"""The golden cases of `cases.json` through the readers and rules of labels (SPEC.md, section 2.5).

`tests/engine/test_cases_*.py` sends them through ingress, visibility, egress and the sinks.
A new way to ask for a decision is one more function in `DECIDING`; every case then runs through it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from headgate.errors import LabelError
from headgate.labels import Rules, parse_label
from headgate.labels.column import read_labels

from .golden import COMBINATIONS, DECISIONS, FAULTS, ORDER, Combination, Decision, Fault, named


def _by_label(case: Decision) -> bool:
    label = parse_label(case.text, case.rules.order)
    return case.rules.permits(label, case.clearance, aggregated=case.aggregated)


def _by_label_read_without_an_order(case: Decision) -> bool:
    return case.rules.permits(parse_label(case.text), case.clearance, aggregated=case.aggregated)


def _by_canonical_text(case: Decision) -> bool:
    label = parse_label(str(parse_label(case.text, case.rules.order)), case.rules.order)
    return case.rules.permits(label, case.clearance, aggregated=case.aggregated)


def _by_absence_of_reasons(case: Decision) -> bool:
    label = parse_label(case.text, case.rules.order)
    return not case.rules.why_denied(label, case.clearance, aggregated=case.aggregated)


def _by_labels_of_a_column(case: Decision) -> bool:
    column = read_labels(pa.array([None, case.text, "(", case.text]), case.rules.order)
    assert column.labels[:] == [parse_label(case.text, case.rules.order)]
    assert column.index.tolist() == [-1, 0, -1, 0]
    return case.rules.permits(column.labels[0], case.clearance, aggregated=case.aggregated)


DECIDING: list[Callable[[Decision], bool]] = [
    _by_label,
    _by_label_read_without_an_order,
    _by_canonical_text,
    _by_absence_of_reasons,
    _by_labels_of_a_column,
]


def test_the_table_is_large_and_every_name_in_it_is_used_once() -> None:
    everything: list[Decision | Fault | Combination] = [*DECISIONS, *FAULTS, *COMBINATIONS]
    names = [case.name for case in everything]
    assert len(names) >= 170
    assert len(COMBINATIONS) >= 20
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("decide", DECIDING, ids=lambda decide: decide.__name__.strip("_"))
@pytest.mark.parametrize("case", named(DECISIONS))
def test_every_entry_point_gives_the_outcome_of_the_table(case: Decision, decide: Callable[[Decision], bool]) -> None:
    assert decide(case) is case.permitted


@pytest.mark.parametrize("case", named(DECISIONS))
def test_a_label_is_written_as_the_table_says_and_reads_back_as_itself(case: Decision) -> None:
    label = parse_label(case.text, ORDER)
    assert str(label) == case.canonical
    assert parse_label(case.canonical, ORDER) == label


@pytest.mark.parametrize("case", named(FAULTS))
def test_a_text_that_is_no_label_is_refused_with_exact_message_hint_and_offset(case: Fault) -> None:
    with pytest.raises(LabelError) as caught:
        parse_label(case.text, ORDER)
    error = caught.value
    assert error.position is not None
    assert (error.message, error.hint, error.position.offset) == (case.message, case.hint, case.offset)


@pytest.mark.parametrize("case", named(FAULTS))
def test_the_line_and_column_of_a_fault_agree_with_its_offset(case: Fault) -> None:
    with pytest.raises(LabelError) as caught:
        parse_label(case.text, ORDER)
    place = caught.value.position
    assert place is not None
    before = case.text[: place.offset].split("\n")
    assert (place.line, place.column) == (len(before), len(before[-1]) + 1)


@pytest.mark.parametrize("case", named(FAULTS))
def test_a_text_that_is_no_label_is_none_in_a_column(case: Fault) -> None:
    assert read_labels(pa.array([case.text, "TRUE"]), ORDER).index.tolist() == [-1, 0]


@pytest.mark.parametrize("case", named(COMBINATIONS))
def test_what_is_made_of_two_tuples_carries_the_combination_of_the_table(case: Combination) -> None:
    rules = Rules(ORDER)
    left, right = parse_label(case.left, ORDER), parse_label(case.right, ORDER)
    assert str(rules.combine(left, right)) == case.combined
    assert rules.combine(left, right) == rules.combine(right, left)
    assert str(parse_label(case.combined, ORDER)) == case.combined


@pytest.mark.parametrize("case", named(COMBINATIONS))
def test_a_combination_absorbs_its_own_parts(case: Combination) -> None:
    rules = Rules(ORDER)
    left, right = parse_label(case.left, ORDER), parse_label(case.right, ORDER)
    both = rules.combine(left, right)
    assert rules.combine(both, left) == rules.combine(both, right) == rules.combine(both, both) == both
