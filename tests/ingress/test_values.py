"""Texts of text files as values: few plain numbers are read by Arrow, all others by a query; both mean the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.ingress import values
from headgate.ingress.values import values_of
from headgate.plan.expressions import Type

NUMBERS = [Type.INT, Type.BIGINT, Type.DOUBLE]
DIGITS = st.text("0123456789", min_size=1, max_size=20)
TEXTS = st.one_of(
    st.none(),
    DIGITS,
    st.tuples(
        st.sampled_from(["-", "+", "", " ", "--"]), DIGITS, st.sampled_from([".", "", "e5", "\n", " "]), DIGITS
    ).map("".join),
    st.sampled_from(["-0", "0.1", "-0.0", "1.", ".5", "NaN", "", "007", "2147483648", "1e400", "٣", "0x1", "1_000"]),
    st.floats().map(repr),
    st.integers().map(str),
)


@pytest.mark.parametrize("type_", NUMBERS)
@settings(deadline=None, max_examples=300)
@given(texts=st.lists(TEXTS, max_size=5))
def test_what_arrow_reads_is_what_the_query_reads(type_: Type, texts: list[str | None]) -> None:
    given = {"x": pa.array(texts, pa.string())}
    few = values_of(given, [("x", type_)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_FEW", -1)
        many = values_of(given, [("x", type_)])
    assert repr(few.columns["x"].to_pylist()) == repr(many.columns["x"].to_pylist())  # -0.0 is not 0.0, NaN is NaN
    assert few.columns["x"].type == many.columns["x"].type
    assert {name: list(x) for name, x in few.wrong.items()} == {name: list(x) for name, x in many.wrong.items()}


def test_plain_numbers_need_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(*_: object) -> None:
        raise AssertionError("a query")

    monkeypatch.setattr(values, "evaluate", lambda exprs, *_: query() if exprs else [])
    texts = {
        "a": pa.array(["1", None, "-12"]),
        "b": pa.array(["1", "999999999999999999", None]),
        "c": pa.array(["1.5"]),
    }
    found = values_of(texts, [("a", Type.INT), ("b", Type.BIGINT), ("c", Type.DOUBLE)]).columns
    assert [found[x].to_pylist() for x in "abc"] == [[1, None, -12], [1, 999999999999999999, None], [1.5]]
