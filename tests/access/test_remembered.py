"""What a decision found is remembered with its principal; each test takes the right away behind the memory's back.

Without the comparison of versions in `Authorizer._found` the attacks through grants, limits and levels succeed; a
change of roles makes new principals besides, which remember nothing.
"""

from __future__ import annotations

import pytest
from conftest import System

from headgate.access.authorizer import MOST_FOUND
from headgate.access.permissions import Kind, Permission
from headgate.errors import AccessDenied, HeadgateError

ADD = "CREATE SCHEMA {name} (n INT)"


def may_add(system: System) -> str:
    """Al may add through `junior`, which `senior`, al's only role, inherits, and has just done so."""
    al = system.new_user("al", "senior")
    system.run("CREATE ROLE junior; GRANT ROLE junior TO ROLE senior; GRANT ADD ON SYSTEM TO junior")
    system.run(ADD.format(name="before"), al)
    return al


TAKEN = [
    "REVOKE ADD ON SYSTEM FROM junior",
    "REVOKE ROLE junior FROM ROLE senior",
    "REVOKE ROLE senior FROM USER al",
    "DROP ROLE junior",
    "DROP ROLE senior",
]


@pytest.mark.parametrize("statement", TAKEN)
def test_a_right_that_was_used_a_moment_ago_is_gone_when_it_is_taken(sqlite_system: System, statement: str) -> None:
    al = may_add(sqlite_system)
    sqlite_system.run(statement)
    with pytest.raises(AccessDenied, match="ADD on system is denied: not the owner, and no active role holds ADD"):
        sqlite_system.run(ADD.format(name="after"), al)


@pytest.mark.parametrize("statement", TAKEN[:2])
def test_a_right_that_another_process_takes_is_gone(system: System, statement: str) -> None:
    al = may_add(system)
    system.another().execute(system.root, statement)
    with pytest.raises(AccessDenied, match="ADD on system is denied"):
        system.run(ADD.format(name="after"), al)


def test_a_principal_that_is_kept_does_not_keep_its_rights(sqlite_system: System) -> None:
    """Whoever holds on to the principal itself, as a request does, is told of the rights of now."""
    system = sqlite_system
    may_add(system)
    headgate = system.headgate
    principal, thing = headgate.principal(system.root), headgate._catalog.system
    assert headgate._authorizer.judge(principal, Permission.ADD, thing)[0]
    system.run("REVOKE ADD ON SYSTEM FROM ADMIN")
    assert not headgate._authorizer.judge(principal, Permission.ADD, thing)[0]


def test_a_script_that_gives_up_its_own_right_no_longer_has_it(sqlite_system: System) -> None:
    """And what the script undid by failing is there again."""
    system = sqlite_system
    system.run("CREATE ROLE helper; GRANT CHANGE SYSTEM, CHANGE PERM ON SYSTEM TO helper")
    al = system.new_user("al", "helper")
    system.run("CREATE ROLE a", al)
    with pytest.raises(AccessDenied, match="CHANGE SYSTEM on system is denied"):
        system.run("REVOKE CHANGE SYSTEM ON SYSTEM FROM helper; CREATE ROLE b", al)
    system.run("CREATE ROLE b", al)


def test_what_a_failed_script_granted_is_not_remembered(sqlite_system: System) -> None:
    system = sqlite_system
    al = system.new_user("al", "helper")
    system.run("GRANT CHANGE PERM ON SYSTEM TO helper")
    with pytest.raises(HeadgateError):
        system.run("GRANT CHANGE SYSTEM ON SYSTEM TO helper; CREATE ROLE a; CREATE ROLE a", al)
    with pytest.raises(AccessDenied, match="CHANGE SYSTEM on system is denied"):
        system.run("CREATE ROLE a", al)


def test_a_grant_with_new_limits_counts_at_once(sqlite_system: System) -> None:
    system = sqlite_system
    al = system.new_user("al", "clerk")
    system.run("REVOKE USE ON OPERATOR window FROM PUBLIC; GRANT USE ON OPERATOR window TO clerk WITH (rows = 10)")
    system.run("GRANT ADD ON SYSTEM TO clerk; CREATE STREAM s (n INT)")
    system.run("GRANT VIEW OBJECT, READ TUPLE ON STREAM s TO clerk")
    system.run("CREATE QUERY a AS SELECT n FROM root.s [ROWS 10]", al)
    with pytest.raises(AccessDenied, match="allows rows of at most 10"):
        system.run("CREATE QUERY b AS SELECT n FROM root.s [ROWS 11]", al)
    system.run("GRANT USE ON OPERATOR window TO clerk WITH (rows = 5)")
    with pytest.raises(AccessDenied, match="allows rows of at most 5"):
        system.run("CREATE QUERY c AS SELECT n FROM root.s [ROWS 10]", al)


def test_a_level_that_rises_counts_at_once(sqlite_system: System) -> None:
    system = sqlite_system
    system.run("CREATE LEVEL B; CREATE LEVEL C; GRANT ADD ON SYSTEM TO PUBLIC")
    al, _ = system.new_user("al", "clerk", clearance="C"), system.new_user("bo", clearance="B")
    system.run("CREATE STREAM s (n INT); GRANT READ TUPLE ON STREAM s TO clerk", system.login("bo", level="B"))
    headgate = system.headgate
    (stream,) = headgate._state.objects.find("owner", "bo")
    principal = headgate.principal(al)
    assert headgate._authorizer.judge(principal, Permission.READ_TUPLE, stream) == (
        False,
        "level C does not dominate its level B",
    )
    system.run("ALTER LEVEL C ABOVE B")
    assert headgate._authorizer.judge(principal, Permission.READ_TUPLE, stream) == (
        True,
        "role clerk holds READ TUPLE (granted by bo)",
    )


def test_the_memory_of_a_principal_is_bounded_and_its_own(sqlite_system: System) -> None:
    system = sqlite_system
    al, bo = system.new_user("al", "clerk"), system.login("al")
    streams = [f"CREATE STREAM s{n} (n INT); GRANT VIEW OBJECT, READ TUPLE ON STREAM s{n} TO clerk" for n in range(150)]
    system.run("; ".join(streams))
    for n in range(150):
        assert system.headgate.check(al, Permission.READ_TUPLE, Kind.STREAM, f"s{n}")
    assert 0 < len(system.headgate.principal(al).found) <= MOST_FOUND
    assert system.headgate.principal(bo) == system.headgate.principal(al)
    assert not system.headgate.principal(bo).found
