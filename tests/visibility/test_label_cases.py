"""The golden label cases through the visibility index: a view sees a tuple exactly if the table permits it."""

from __future__ import annotations

import pytest
from labels.golden import DECISIONS, FAULTS, ORDER, Decision, named
from worlds.decided import READER, Way, ingested

from headgate.labels import Rules
from headgate.model.view import View
from headgate.model.visibility import HIDDEN
from headgate.visibility.policy import VisibilityPolicy


def _way(case: Decision) -> Way:
    return Way(case.text, case.clearance, case.rules, case.aggregated)


@pytest.mark.parametrize("case", named(DECISIONS))
def test_a_view_sees_a_tuple_exactly_if_the_table_permits_it(case: Decision) -> None:
    assert _way(case).visible() is case.permitted


@pytest.mark.parametrize("case", named(DECISIONS))
def test_the_policy_of_a_view_decides_each_label_as_the_table_does(case: Decision) -> None:
    way = _way(case)
    view = View(way.query, {READER: way.reader}, (0,))
    (seen,) = VisibilityPolicy(case.rules).sees(view, way.taken.labels[0], way.stream)
    assert (seen != HIDDEN) is case.permitted


def test_a_text_that_is_no_label_never_reaches_a_view() -> None:
    taken = ingested([case.text for case in FAULTS], Rules(ORDER))
    assert not len(taken.batch.times)
    assert not taken.dictionary.labels
