"""Five tuples, two roles, windows of one tuple: the example of "Secure Shared Continuous Query Processing", 5.2.1.

Heart rates and blood pressures of one patient are joined. The exact approach joins what one role sees, the cumulative
one whatever is there, protected by both sides.
"""

from __future__ import annotations

from headgate.cql.queries import parse_query
from headgate.labels import Clearance, parse_label
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.testing.oracle import Tuple, cumulative, exact

from .given import SECOND, labelled

STREAMS = {
    "HeartRate": Stream("HeartRate", (("patient", Type.INT), ("h", Type.STRING))),
    "BloodPressure": Stream("BloodPressure", (("patient", Type.INT), ("b", Type.STRING))),
}
QUERY = bind_query(
    parse_query("SELECT h, b FROM HeartRate [ROWS 1] H, BloodPressure [ROWS 1] B WHERE H.patient = B.patient"),
    lambda target: STREAMS[target.name],
)
TEN = 10 * 60 * 60 * SECOND


def heart(name: str, role: str, seconds: int) -> Tuple:
    return Tuple("HeartRate", TEN + seconds * SECOND, {"patient": 1, "h": name}, parse_label(role))


def blood(name: str, role: str, seconds: int) -> Tuple:
    return Tuple("BloodPressure", TEN + seconds * SECOND, {"patient": 1, "b": name}, parse_label(role))


TUPLES = (
    heart("h1", "R1", 0),
    blood("b1", "R2", 0),
    blood("b2", "R1", 30),
    heart("h2", "R2", 30),
    blood("b3", "R2", 60),
)
PEOPLE = {
    "R1": Clearance(roles={"R1"}),
    "R2": Clearance(roles={"R2"}),
    "R1 and R2": Clearance(roles={"R1", "R2"}),
}


def test_exact_answers_join_what_one_subscriber_sees() -> None:
    received = exact(QUERY, TUPLES, PEOPLE)
    assert {name: labelled(results) for name, results in received.items()} == {
        "R1": [(TEN + 30 * SECOND, ("h1", "b2"), "R1")],
        "R2": [(TEN + 30 * SECOND, ("h2", "b1"), "R2"), (TEN + 60 * SECOND, ("h2", "b3"), "R2")],
        "R1 and R2": [
            (TEN, ("h1", "b1"), "R1 & R2"),
            (TEN + 30 * SECOND, ("h1", "b2"), "R1"),
            (TEN + 30 * SECOND, ("h2", "b2"), "R1 & R2"),
            (TEN + 60 * SECOND, ("h2", "b3"), "R2"),
        ],
    }


def test_cumulative_answers_join_all_tuples_for_holders_of_both_roles() -> None:
    received = cumulative(QUERY, TUPLES, PEOPLE)
    assert {name: labelled(results) for name, results in received.items()} == {
        "R1": [(TEN + 30 * SECOND, ("h1", "b2"), "R1")],
        "R2": [(TEN + 60 * SECOND, ("h2", "b3"), "R2")],
        "R1 and R2": [
            (TEN, ("h1", "b1"), "R1 & R2"),
            (TEN + 30 * SECOND, ("h1", "b2"), "R1"),
            (TEN + 30 * SECOND, ("h2", "b2"), "R1 & R2"),
            (TEN + 60 * SECOND, ("h2", "b3"), "R2"),
        ],
    }


def test_at_first_the_exact_approach_makes_one_result_and_the_cumulative_two() -> None:
    """Of the heart rate h1 and the blood pressures b1 and b2, in the order in which the paper takes them."""
    first = [x for x in TUPLES if x.values.get("h") != "h2" and x.values.get("b") != "b3"]
    assert [x.values for x in exact(QUERY, first, PEOPLE)["R1"]] == [("h1", "b2")]
    assert labelled(cumulative(QUERY, first, PEOPLE)["R1 and R2"]) == [
        (TEN, ("h1", "b1"), "R1 & R2"),
        (TEN + 30 * SECOND, ("h1", "b2"), "R1"),
    ]
