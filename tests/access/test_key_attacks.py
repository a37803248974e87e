"""Attacks with an API key: a thief tries to keep it, to do more with it, or to use it after it was revoked."""

from __future__ import annotations

import pytest
from conftest import PASSWORD, System

from headgate.errors import AccessDenied, AuthenticationFailed, Conflict, NotFound

WARD = f"""
CREATE LEVEL S ABOVE U; CREATE ROLE nurse; CREATE ROLE doctor;
CREATE USER ann PASSWORD '{PASSWORD}' CLEARANCE S; GRANT ROLE nurse, doctor TO USER ann;
CREATE USER svc; GRANT ROLE nurse TO USER svc;
CREATE STREAM s (a INT); GRANT VIEW OBJECT ON STREAM s TO doctor;
CREATE STREAM t (a INT); GRANT VIEW OBJECT ON STREAM t TO nurse
"""


@pytest.fixture
def ward(sqlite_system: System) -> System:
    sqlite_system.run(WARD)
    return sqlite_system


def key(system: System, text: str, token: str = "") -> str:
    return system.rows(f"CREATE API KEY {text}", token)[0][-1]


def ann(system: System, level: str = "U") -> str:
    return system.login("ann", level=level)


def test_a_key_works_until_its_end_without_being_used(ward: System) -> None:
    secret = key(ward, "ci ROLES nurse VALID 30 DAYS", ann(ward))
    ward.clock.advance(29 * 86_400)
    assert [row[0] for row in ward.rows("SHOW STREAMS", secret)] == ["t"]
    ward.clock.advance(86_400)
    with pytest.raises(AuthenticationFailed):
        ward.run("SHOW STREAMS", secret)


def test_the_store_and_the_audit_trail_do_not_hold_the_secret(system: System) -> None:
    ward = system
    ward.run(WARD)
    secret = key(ward, "ci VALID 1 DAY", ann(ward))
    assert secret.startswith("hgk_")
    assert secret not in str([ward.sql(f"SELECT * FROM {table}") for table in ("sessions", "audit", "users")])
    assert secret not in str(ward.rows("SHOW SESSIONS")) and secret not in str(ward.rows("SHOW AUDIT"))


@pytest.mark.parametrize(
    "attack",
    [
        "SET ROLE ALL",
        "SET ROLE doctor",
        "CREATE API KEY more VALID 300 DAYS",
        "DROP API KEY ci",
        f"ALTER USER ann PASSWORD '{PASSWORD} mine'",
        "ALTER USER ann ADD KEY 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPx0h1vLZr6u3JZQz0iXyJwq8Kk2Tt0m3iTq1v5b5Wqh'",
        "ALTER USER ann END SESSIONS",
    ],
)
def test_a_stolen_key_makes_no_more_of_itself(ward: System, attack: str) -> None:
    secret = key(ward, "ci ROLES nurse VALID 1 DAY", ann(ward))
    with pytest.raises(AccessDenied, match="an API key cannot"):
        ward.run(attack, secret)
    assert [row[0] for row in ward.rows("SHOW STREAMS", secret)] == ["t"]


def test_even_an_administrators_key_makes_no_keys(ward: System) -> None:
    secret = key(ward, "ops VALID 1 DAY")
    with pytest.raises(AccessDenied, match="an API key cannot make API keys"):
        ward.run("CREATE API KEY more FOR USER svc VALID 1 DAY", secret)


def test_a_key_does_not_log_itself_out(ward: System) -> None:
    secret = key(ward, "ci VALID 1 DAY", ann(ward))
    with pytest.raises(Conflict, match="this is an API key"):
        ward.headgate.logout(secret)
    assert ward.rows("SHOW SESSION", secret)[0][1] == "ann"


def test_no_session_comes_to_another_level_by_a_key(ward: System) -> None:
    with pytest.raises(AccessDenied, match="your own API keys have the level of your session"):
        key(ward, "up LEVEL S VALID 1 DAY", ann(ward))
    with pytest.raises(AccessDenied, match="your own API keys have the level of your session"):
        key(ward, "down LEVEL U VALID 1 DAY", ann(ward, "S"))
    high = key(ward, "up VALID 1 DAY", ann(ward, "S"))
    assert ward.rows("SHOW SESSION", high)[0][3] == "S"
    assert [row[-1] for row in ward.rows("SHOW SESSIONS", ann(ward))] == [""] * 2  # nothing of the key above


def test_nobody_makes_keys_for_others_or_with_roles_of_others(ward: System) -> None:
    with pytest.raises(AccessDenied, match="CHANGE SYSTEM"):
        key(ward, "x FOR USER svc VALID 1 DAY", ann(ward))
    with pytest.raises(AccessDenied, match="role ADMIN is not one of yours"):
        key(ward, "x ROLES ADMIN VALID 1 DAY", ann(ward))
    with pytest.raises(AccessDenied, match="cannot log in at level S"):
        key(ward, "x FOR USER svc LEVEL S VALID 1 DAY")
    with pytest.raises(Conflict, match="366 days"):
        key(ward, "x VALID 367 DAYS", ann(ward))


REVOCATIONS = {
    "dropped": "DROP API KEY ci FOR USER ann",
    "sessions ended": "ALTER USER ann END SESSIONS",
    "password changed": "ALTER USER ann PASSWORD 'another horse'",
    "locked": "ALTER USER ann LOCK",
    "user dropped": "DROP USER ann CASCADE",
}


@pytest.mark.parametrize("how", REVOCATIONS)
def test_a_revoked_key_works_nowhere(system: System, how: str) -> None:
    """On both stores, and in another process."""
    ward = system
    ward.run(WARD)
    secret = key(ward, "ci VALID 1 DAY", ann(ward))
    other = ward.another()
    other.execute(secret, "SHOW SESSION")
    ward.run(REVOCATIONS[how])
    for process in (ward.headgate, other):
        with pytest.raises(AuthenticationFailed):
            process.execute(secret, "SHOW SESSION")


def test_a_key_loses_a_role_as_soon_as_its_user_does(ward: System) -> None:
    secret = key(ward, "ci VALID 1 DAY", ann(ward))
    assert len(ward.rows("SHOW STREAMS", secret)) == 2
    ward.run("REVOKE ROLE doctor FROM USER ann")
    assert [row[0] for row in ward.rows("SHOW STREAMS", secret)] == ["t"]


def test_keys_take_no_places_of_sessions_and_their_number_is_limited(ward: System) -> None:
    ward.run("SET SYSTEM max_sessions = 2")
    mine = ann(ward)
    for number in range(100):
        key(ward, f"k{number} VALID 1 DAY", mine)
    ann(ward)
    with pytest.raises(Conflict, match="100 API keys"):
        key(ward, "one VALID 1 DAY", mine)
    with pytest.raises(Conflict, match="already an API key k7"):
        key(ward, "k7 VALID 1 DAY", mine)
    ward.run("DROP API KEY k7", mine)
    with pytest.raises(NotFound, match="there is no API key k7"):
        ward.run("DROP API KEY k7", mine)


def test_what_is_done_about_keys_is_on_the_audit_trail(ward: System) -> None:
    mine = ann(ward)
    key(ward, "ci VALID 1 DAY", mine)
    ward.run("DROP API KEY ci", mine)
    found = [(row[4], row[5]) for row in ward.rows("SHOW AUDIT", mine) if "KEY" in row[4]]
    assert found == [(f"{x} API KEY", "API key ci of user ann at level U") for x in ("CREATE", "DROP")]
