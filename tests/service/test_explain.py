"""EXPLAIN: the tree, the sharing, the labels; and that what one may not see does not show, in any way."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from conftest import System

from headgate.access.request import Result, Unfinished
from headgate.errors import AccessDenied, Conflict, HeadgateError

STREAMS = """
CREATE STREAM Vitals (sid INT, bp INT, pr INT LABEL 'doctor', who STRING) LABEL 'staff' ROLES FROM who;
CREATE STREAM Position (sid INT, lat STRING, lon STRING);
"""
Q4 = """SELECT AVG(pr) WHERE V.sid = P.sid AND bp > 120 AND lon = "4E" FROM Vitals [ROWS 10] V, Position [ROWS 10] P"""
Q5 = (
    """SELECT V.sid, pr WHERE V.sid = P.sid AND bp > 120 AND lon = "4E" FROM Vitals [ROWS 10] V, Position [ROWS 10] P"""
)


def explained(system: System, what: str, token: str = "") -> Result:
    return system.run(f"EXPLAIN {what}", token)[-1]


def both(answer: Result) -> tuple[str, str]:
    """All that somebody sees of an answer."""
    return answer.text, answer.picture


@pytest.fixture
def field(sqlite_system: System) -> System:
    sqlite_system.run(STREAMS)
    return sqlite_system


def test_explain_shows_what_a_query_shares_and_which_labels_results_carry(field: System) -> None:
    field.run(f"CREATE QUERY q5 AS {Q5}; START QUERY q5")
    shared = (
        "SELECT lon = '4E', WINDOW ROWS 10, SELECT bp > 120, WINDOW ROWS 10, JOIN root.Position.sid = root.Vitals.sid"
    )
    assert explained(field, Q4).text.splitlines() == [
        "this query: exact, level U",
        "",
        "  ISTREAM",
        "  └─ PROJECT AVG(root.Vitals.pr) AS avg_pr",
        "     └─ AGGREGATE AVG(root.Vitals.pr)",
        "        └─ JOIN root.Position.sid = root.Vitals.sid   -- shared with root.q5",
        "           ├─ WINDOW ROWS 10   -- shared with root.q5",
        "           │  └─ SELECT lon = '4E'   -- shared with root.q5",
        "           │     └─ SOURCE root.Position",
        "           └─ WINDOW ROWS 10   -- shared with root.q5",
        "              └─ SELECT bp > 120   -- shared with root.q5",
        "                 └─ SOURCE root.Vitals",
        "",
        "shared with",
        f"  root.q5: strict partial (Definition 7): {shared}",
        "",
        "each result carries",
        "  of root.Vitals: the policy `staff`, the roles in column who, `doctor` for column pr",
        "  of root.Position: what its tuples bring",
        "  level U, the level of the query",
    ]


@pytest.mark.parametrize("what", ["QUERIES", "QUERY q5", Q4])
def test_nobody_waits_while_an_answer_is_drawn(field: System, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Somebody else's request, made in the middle of it, is answered before it ends."""
    field.run(f"CREATE QUERY q5 AS {Q5}; START QUERY q5")
    answered = []

    def meanwhile(*_: object) -> str:
        other = threading.Thread(target=lambda: answered.append(field.run("SHOW ROLES")))
        other.start()
        other.join(timeout=10)
        return f"{len(answered)} answered"

    monkeypatch.setattr("headgate.access.statements.explain.picture", meanwhile)
    assert explained(field, what).picture == "1 answered"


@pytest.mark.parametrize("what", ["QUERIES", "QUERY q5", Q4])
def test_an_answer_is_of_the_moment_at_which_it_was_allowed(
    field: System, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """What changes while it is drawn is not in it: neither what came, which nobody has decided about, nor what went."""
    field.run(f"CREATE QUERY q5 AS {Q5}; START QUERY q5")
    before = both(explained(field, what))
    finished = Unfinished.finished

    def late(answer: Unfinished) -> Result:
        field.run(f"CREATE QUERY q6 AS {Q5}; START QUERY q6; STOP QUERY q5; DROP QUERY q5")
        return finished(answer)

    monkeypatch.setattr(Unfinished, "finished", late)
    assert both(explained(field, what)) == before


def test_a_stricter_selection_is_computed_from_a_weaker_one(field: System) -> None:
    field.run("CREATE QUERY weak AS SELECT sid FROM Vitals WHERE bp > 120; START QUERY weak")
    text = explained(field, "SELECT sid FROM Vitals WHERE bp > 130").text
    assert "SELECT bp > 130   -- computed from SELECT bp > 120 of root.weak" in text
    assert "root.weak: loose partial (Definition 8): SELECT bp > 120" in text


def test_an_equal_query_is_shared_completely(field: System) -> None:
    field.run("CREATE QUERY a AS SELECT sid FROM Vitals WHERE bp > 120 AND pr > 3; START QUERY a")
    assert (
        "root.a: complete (Definition 5)"
        in explained(field, "select SID from Vitals v where 3 < v.pr and v.bp > 120").text
    )


def test_stopped_queries_and_those_of_another_mode_share_nothing(field: System) -> None:
    field.run(
        "ALTER STREAM Vitals ALLOW CUMULATIVE; CREATE QUERY a CUMULATIVE AS SELECT sid FROM Vitals; START QUERY a"
    )
    field.run("CREATE QUERY b AS SELECT sid FROM Vitals")
    assert "shared with no running query that you may see" in explained(field, "SELECT sid FROM Vitals").text
    field.run("START QUERY b")
    assert "root.b: complete" in explained(field, "SELECT sid FROM Vitals").text
    both = explained(field, "QUERIES")
    assert both.text.startswith("2 running queries, 4 operators instead of 4")
    field.run("STOP QUERY b; DROP QUERY a")
    assert explained(field, "QUERIES").text == "0 running queries, 0 operators instead of 0"


def test_a_query_of_boxes_has_no_plan(field: System) -> None:
    field.run("CREATE QUERY boxes READING Vitals USING select OUTPUT out; START QUERY boxes")
    with pytest.raises(Conflict):
        explained(field, "QUERY boxes")
    assert explained(field, "QUERIES").text.startswith("0 running queries")


def test_the_picture_is_an_svg_that_names_and_marks(field: System) -> None:
    field.run(f"CREATE QUERY q4 AS {Q4}; CREATE QUERY q5 AS {Q5}; START QUERY q4; START QUERY q5")
    root = ElementTree.fromstring(explained(field, "QUERIES").picture)  # noqa: S314
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("shared by root.q4, root.q5") == 5
    assert {"root.q4", "root.q5", "JOIN", "SOURCE"} <= set(texts)


def texts_of(result: Result) -> str:
    root = ElementTree.fromstring(result.picture)  # noqa: S314
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    return " ".join(" ".join(texts).split())  # one space between words, wherever lines are broken


SUBSCRIBED = (
    "CREATE ROLE nurse; GRANT VIEW OBJECT, READ TUPLE ON STREAM Vitals TO doctor, nurse;"
    "CREATE QUERY high AS SELECT sid FROM Vitals WHERE bp > 120; START QUERY high;"
    "GRANT VIEW OBJECT ON QUERY high TO doctor, nurse;"
    "GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM high TO doctor, nurse"
)


def test_the_picture_shows_levels_and_which_subscribers_share_a_view(field: System) -> None:
    tokens = [field.new_user(name, "doctor") for name in ("ann", "ben")]
    field.run(SUBSCRIBED)
    tokens.append(field.new_user("cyd", "nurse"))
    for token in tokens:
        field.run("SUBSCRIBE TO root.high", token)
    drawn = texts_of(explained(field, "QUERIES"))
    assert "exact, level U" in drawn and "root.Vitals level U" in drawn
    assert "VIEW ann (doctor; level U), ben (doctor; level U)" in drawn and "VIEW cyd (nurse; level U)" in drawn
    field.run("REVOKE SUBSCRIBE ON STREAM high FROM nurse")
    assert "cyd" not in texts_of(explained(field, "QUERY high"))


def test_without_view_audit_the_picture_shows_only_one_s_own_subscription(field: System) -> None:
    ann, ben = (field.new_user(name, "doctor") for name in ("ann", "ben"))
    field.run(SUBSCRIBED)
    field.run("SUBSCRIBE TO root.high", ann)
    alone = [both(explained(field, what, ann)) for what in ("QUERIES", "QUERY root.high")]
    assert "VIEW ann (doctor; level U)" in texts_of(explained(field, "QUERIES", ann))
    field.run("SUBSCRIBE TO root.high", ben)
    assert [both(explained(field, what, ann)) for what in ("QUERIES", "QUERY root.high")] == alone


def test_a_picture_shows_few_of_very_many_subscribers(field: System, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [field.new_user(name, "doctor") for name in ("ann", "ben")]
    field.run(SUBSCRIBED)
    for token in tokens:
        field.run("SUBSCRIBE TO root.high", token)
    monkeypatch.setattr("headgate.access.views.MOST_SUBSCRIBERS", 1)
    drawn = texts_of(explained(field, "QUERIES"))
    assert "ann" in drawn and "ben" not in drawn and "and 1 more subscriber" in drawn


def test_a_picture_of_too_many_operators_is_refused(field: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.plan.picture.MOST_DRAWN", 3)
    answer = explained(field, "SELECT AVG(bp) FROM Vitals [ROWS 20]")
    with pytest.raises(Conflict, match="cannot draw 5 operators: a picture has at most 3"):
        _ = answer.picture


def test_names_cannot_break_out_of_a_picture(sqlite_system: System) -> None:
    name = '"<script>alert(1)</script>&"'
    sqlite_system.run(
        f"CREATE STREAM {name} (a STRING); CREATE QUERY q AS SELECT a FROM {name} WHERE a = '<b>'; START QUERY q"
    )
    picture = explained(sqlite_system, "QUERY q").picture
    ElementTree.fromstring(picture)  # noqa: S314
    assert "<script" not in picture and "<b>" not in picture


# What is hidden -------------------------------------------------------------------------------------------------------

HIDDEN = (
    "CREATE QUERY h1 AS SELECT sid FROM Vitals WHERE bp > 125; START QUERY h1",
    "CREATE QUERY h2 AS SELECT sid FROM Vitals WHERE bp > 130; START QUERY h2",
    "CREATE QUERY h3 AS SELECT AVG(bp) FROM Vitals [ROWS 50] WHERE bp > 120; START QUERY h3",
    "CREATE QUERY h4 AS SELECT sid, bp FROM Vitals; START QUERY h4",
)


@pytest.mark.parametrize("hidden", [h for size in (1, 2, 4) for h in combinations(HIDDEN, size)])
def test_queries_one_may_not_see_change_nothing_in_an_explanation(field: System, hidden: tuple[str, ...]) -> None:
    """`h1` is nearer to the asker's query than the visible `weak`: were the plan of all queries asked, the remark that
    `weak` serves it would be gone, and with it the secret that `h1` runs."""
    ann = field.new_user("ann", "doctor")
    field.run(
        "GRANT VIEW OBJECT, READ TUPLE ON STREAM Vitals TO doctor;"
        "CREATE QUERY weak AS SELECT sid FROM Vitals WHERE bp > 120; START QUERY weak;"
        "GRANT VIEW OBJECT ON QUERY weak TO doctor"
    )
    asked = ("SELECT sid FROM Vitals WHERE bp > 130", "SELECT AVG(bp) FROM Vitals [ROWS 20]", "QUERY weak", "QUERIES")
    before = [both(explained(field, what, ann)) for what in asked]
    assert "computed from SELECT bp > 120 of root.weak" in before[0][0]
    field.run("; ".join(hidden))
    assert [both(explained(field, what, ann)) for what in asked] == before


def test_queries_of_higher_levels_change_nothing_in_an_explanation(field: System) -> None:
    field.run("CREATE LEVEL S; GRANT VIEW OBJECT, READ TUPLE ON STREAM Vitals TO PUBLIC; GRANT ADD ON SYSTEM TO PUBLIC")
    field.new_user("spy", "agent", clearance="S")
    spy = field.login("spy", level="S")
    field.run("CREATE QUERY low AS SELECT sid FROM Vitals WHERE bp > 120; START QUERY low")
    asked = "SELECT sid FROM Vitals WHERE bp > 130", "QUERIES"
    before = [both(explained(field, what)) for what in asked]
    field.run(HIDDEN[0], spy)
    assert [both(explained(field, what)) for what in asked] == before
    high = explained(field, "SELECT bp FROM Vitals WHERE bp > 130", spy).text
    assert "spy.h1" in high and "root.low" not in high  # seen from above, but of another level, so not shared


def test_a_query_over_hidden_streams_is_not_explained(field: System) -> None:
    ann = field.new_user("ann", "doctor")
    field.run(f"CREATE QUERY q4 AS {Q4}; GRANT VIEW OBJECT ON QUERY q4 TO doctor")
    with pytest.raises(AccessDenied) as caught:
        explained(field, "QUERY q4", ann)
    assert "Vitals" not in str(caught.value) and "Position" not in str(caught.value)


def test_explaining_needs_the_same_rights_as_creating(field: System) -> None:
    ann = field.new_user("ann", "doctor")
    field.run("GRANT VIEW OBJECT ON STREAM Vitals TO doctor; GRANT ADD ON SYSTEM TO doctor")
    refusals = []
    for statement in ("EXPLAIN {}", "CREATE QUERY q AS {}"):
        with pytest.raises(HeadgateError) as caught:
            field.run(statement.format("SELECT bp FROM Vitals"), ann)
        refusals.append((type(caught.value), caught.value.message))
    assert refusals[0] == refusals[1]
