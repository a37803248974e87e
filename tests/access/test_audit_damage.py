"""No damage to the audit trail goes unnoticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import PASSWORD, System
from sqlalchemy.exc import DBAPIError

from access.trails import COLUMNS, FIELDS, OTHER_SEAL, ROLLED_BACK, Record, trail
from headgate.access.audit import MAX_FIELD, START, Event, Seal
from headgate.errors import AuthenticationFailed, HeadgateError


def disarm(system: System) -> None:
    """What whoever owns the database can do: take the triggers away."""
    if system.url.startswith("sqlite"):
        found = system.sql("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'")
        system.sql(*[f"DROP TRIGGER {name}" for (name,) in found])
    else:
        found = system.sql("SELECT tgname FROM pg_trigger WHERE tgrelid = 'audit'::regclass AND NOT tgisinternal")
        system.sql(*[f"DROP TRIGGER {name} ON audit" for (name,) in found])


@pytest.fixture
def disarmed(system: System) -> System:
    """A trail of eight records or more, one of them denied, that can be written to in SQL."""
    joe = system.new_user("joe", "nurse")
    system.run("CREATE STREAM in1 (n INT); CREATE ROLE clerk")
    with pytest.raises(HeadgateError):
        system.run("CREATE ROLE x", joe)
    system.headgate.logout(joe)
    assert len(trail(system)) >= 8
    disarm(system)
    return system


def put(system: System, place: object, /, **values: object) -> None:
    changes = ", ".join(f'"{field}" = :{field}' for field in values)
    system.sql(f"UPDATE audit SET {changes} WHERE number = :place", place=place, **values)


def head(system: System) -> dict[str, object]:
    (row,) = system.sql("SELECT audit_count, audit_mac, audit_seal FROM head")
    return dict(zip(("audit_count", "audit_mac", "audit_seal"), row, strict=True))


def put_head(system: System, **values: object) -> None:
    system.sql(f"UPDATE head SET {', '.join(f'{name} = :{name}' for name in values)}", **values)


def other(value: object) -> list[object]:
    """Values that differ from this one, more or less."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1000]
        case float():
            return [value + 1e-6, value - 3600.0, 0.0]
        case _:
            text = str(value)
            return [text + "x", text + " ", text.swapcase() + "\u200b", "é", "" if text else "\u0430"]


def test_an_attack_without_the_key_can_write_but_verify_finds_it(disarmed: System) -> None:
    system = disarmed
    assert system.headgate.verify_audit() == []
    denied = next(record for record in trail(system) if not record["granted"])
    put(system, denied["number"], granted=True, reason="role ADMIN holds CHANGE SYSTEM (granted by the system)")
    assert all(record["granted"] for record in trail(system))
    assert system.headgate.verify_audit() == [
        f"record {denied['number']} was altered, or a record before it was removed or moved"
    ]


def test_every_alteration_of_every_field_of_every_record_is_found(disarmed: System) -> None:
    system = disarmed
    for record in trail(system):
        for field in FIELDS:
            value = bool(record[field]) if field == "granted" else record[field]
            for altered in other(value):
                put(system, record["number"], **{field: altered})
                found = system.headgate.verify_audit()
                put(system, altered if field == "number" else record["number"], **{field: value})
                assert found, f"{field} of record {record['number']} became {altered!r}"
    assert system.headgate.verify_audit() == []


def test_an_addition_beyond_the_longest_field_is_found(disarmed: System) -> None:
    """A field is cut when it is written; what stands in the store must not be cut before it is checked."""
    system = disarmed
    with pytest.raises(AuthenticationFailed):
        system.headgate.login("long" * MAX_FIELD, PASSWORD)
    with pytest.raises(AuthenticationFailed):
        system.headgate.login("bell \x07", PASSWORD)
    long, bell = trail(system)[-2:]
    for record, altered in ((long, str(long["user"]) + " and more"), (bell, "bell \t")):
        put(system, record["number"], user=altered)
        assert system.headgate.verify_audit(), f"user became {altered[-20:]!r}"
        put(system, record["number"], user=record["user"])
    assert system.headgate.verify_audit() == []


def test_a_field_of_another_type_is_found(disarmed: System) -> None:
    """SQLite keeps any type in any column. (Whatever counts as true reads as granted, and is no alteration.)"""
    system = disarmed
    if not system.url.startswith("sqlite"):
        with pytest.raises(DBAPIError):
            put(system, 2, time=b"\x00")
        return
    record = trail(system)[1]
    for field in set(FIELDS) - {"number", "granted"}:
        for altered in (b"\x00\xff", 17.5, "seventeen"):
            put(system, 2, **{field: altered})
            assert system.headgate.verify_audit(), f"{field} became {altered!r}"
            put(system, 2, **{field: record[field]})
    assert system.headgate.verify_audit() == []


def test_every_removal_of_a_record_is_found(disarmed: System) -> None:
    system = disarmed
    whole = trail(system)
    last = len(whole)
    choices = [{number} for number in range(1, last + 1)] + [
        {1, 2},
        {2, 3, 6},
        {last - 1, last},
        set(range(1, last + 1)),
    ]
    for gone in choices:
        removed = [record for record in whole if record["number"] in gone]
        system.sql(f"DELETE FROM audit WHERE number IN ({', '.join(map(str, sorted(gone)))})")
        found = system.headgate.verify_audit()
        insert(system, *removed)
        assert found, f"without {sorted(gone)}"
    assert system.headgate.verify_audit() == []


def insert(system: System, *records: Record) -> None:
    for record in records:
        values = record | {"granted": bool(record["granted"])}
        system.sql(f"INSERT INTO audit ({COLUMNS}) VALUES ({', '.join(f':{field}' for field in FIELDS)})", **values)


@pytest.mark.parametrize("gone", [1, 4, 8])
def test_a_removal_that_closes_the_gap_is_found(disarmed: System, gone: int) -> None:
    """The later records are given the numbers before theirs, and the head is made to fit."""
    system = disarmed
    whole = trail(system)
    system.sql("DELETE FROM audit")
    kept = [record for record in whole if record["number"] != gone]
    insert(system, *[record | {"number": number} for number, record in enumerate(kept, 1)])
    put_head(system, audit_count=len(kept), audit_mac=kept[-1]["mac"])
    assert system.headgate.verify_audit()


@pytest.mark.parametrize("with_mac", [True, False])
def test_exchanged_records_are_found(disarmed: System, with_mac: bool) -> None:
    system = disarmed
    whole = trail(system)
    for a, b in ((1, 2), (3, 6), (len(whole) - 1, len(whole))):
        kept = ["number"] if with_mac else ["number", "mac"]
        first, second = whole[a - 1], whole[b - 1]
        exchanged = [second | {k: first[k] for k in kept}, first | {k: second[k] for k in kept}]
        for records in (exchanged, [first, second]):
            system.sql(f"DELETE FROM audit WHERE number IN ({a}, {b})")
            insert(system, *records)
            assert bool(system.headgate.verify_audit()) == (records is exchanged), f"{a} and {b}"


def test_a_trail_in_reverse_is_found(disarmed: System) -> None:
    system = disarmed
    whole = trail(system)
    system.sql("DELETE FROM audit")
    insert(system, *[record | {"number": number} for number, record in enumerate(reversed(whole), 1)])
    put_head(system, audit_mac=whole[0]["mac"])
    assert system.headgate.verify_audit()


def forged(previous: object, number: int, record: Record) -> Record:
    """A record sealed with a key that is not ours."""
    event = Event(**{field: record[field] for field in FIELDS[2:-1]})  # type: ignore[arg-type]
    mac = OTHER_SEAL.record(str(previous), number, 1_000_000.0, event)
    return record | {"number": number, "time": 1_000_000.0, "mac": mac}


@pytest.mark.parametrize("place", ["before", "end", "end with head"])
def test_an_inserted_record_is_found(disarmed: System, place: str) -> None:
    system = disarmed
    whole = trail(system)
    number = 0 if place == "before" else len(whole) + 1
    new = forged(START if place == "before" else whole[-1]["mac"], number, whole[3])
    insert(system, new)
    if place == "end with head":
        put_head(system, audit_count=number, audit_mac=new["mac"])
    assert system.headgate.verify_audit()


def test_an_inserted_record_that_moves_the_others_on_is_found(disarmed: System) -> None:
    system = disarmed
    whole = trail(system)
    system.sql("DELETE FROM audit")
    records = [*whole[:3], forged(whole[2]["mac"], 4, whole[5]), *whole[3:]]
    insert(system, *[record | {"number": number} for number, record in enumerate(records, 1)])
    put_head(system, audit_count=len(records))
    assert system.headgate.verify_audit()


def test_a_record_repeated_at_the_end_is_found(disarmed: System) -> None:
    system = disarmed
    whole = trail(system)
    insert(system, whole[-1] | {"number": len(whole) + 1})
    put_head(system, audit_count=len(whole) + 1)
    assert system.headgate.verify_audit()


@pytest.mark.parametrize("cut", [1, 3, "all"])
def test_a_trail_cut_short_is_found_even_if_the_head_is_made_to_fit(disarmed: System, cut: int | str) -> None:
    system = disarmed
    whole = trail(system)
    left = [] if cut == "all" else whole[: -int(cut)]
    system.sql(f"DELETE FROM audit WHERE number > {len(left)}")
    assert system.headgate.verify_audit()
    fitting = {"audit_count": len(left), "audit_mac": left[-1]["mac"] if left else START}
    put_head(system, **fitting)
    assert "the head of the trail was altered" in system.headgate.verify_audit()
    put_head(system, **fitting, audit_seal=Seal(bytes(32)).head(len(left), str(fitting["audit_mac"])).seal)
    assert "the head of the trail was altered" in system.headgate.verify_audit()


def test_every_alteration_of_the_head_is_found(disarmed: System) -> None:
    system = disarmed
    right = head(system)
    for name, value in right.items():
        for altered in other(value):
            put_head(system, **{name: altered})
            assert system.headgate.verify_audit(), f"{name} became {altered!r}"
            put_head(system, **{name: value})
    assert system.headgate.verify_audit() == []


def test_a_trail_of_our_own_with_another_key_is_found(system: System) -> None:
    """The whole trail is replaced by one that is consistent in itself."""
    disarm(system)
    previous: object = START
    records = []
    for number, record in enumerate(trail(system), 1):
        records.append(forged(previous, number, record | {"user": "al"}))
        previous = records[-1]["mac"]
    system.sql("DELETE FROM audit")
    insert(system, *records)
    put_head(
        system, audit_mac=previous, audit_seal=Seal(b"another key".ljust(32)).head(len(records), str(previous)).seal
    )
    assert len(system.headgate.verify_audit()) == len(records) + 1


def test_damage_is_not_healed_by_going_on(disarmed: System) -> None:
    system = disarmed
    put(system, 3, reason="nothing happened")
    system.run("CREATE ROLE a; CREATE ROLE b")
    assert system.headgate.verify_audit() == ["record 3 was altered, or a record before it was removed or moved"]


# The database itself refuses


def refuses(system: System, statement: str) -> None:
    before = trail(system)
    with pytest.raises(DBAPIError, match="append-only"):
        system.sql(statement)
    assert trail(system) == before
    assert system.headgate.verify_audit() == []


def test_the_triggers_refuse_to_change_or_remove_a_record(system: System) -> None:
    refuses(system, "UPDATE audit SET reason = 'x'")
    refuses(system, "UPDATE audit SET reason = 'x' WHERE number = 1")
    refuses(system, "UPDATE audit SET number = number + 100")
    refuses(system, "DELETE FROM audit")
    refuses(system, "DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)")
    system.reopen()
    refuses(system, "DELETE FROM audit")


def test_the_triggers_refuse_what_only_one_database_has(system: System) -> None:
    if system.url.startswith("sqlite"):
        copy = COLUMNS.replace('"reason"', "'x'")
        refuses(system, f"INSERT OR REPLACE INTO audit ({COLUMNS}) SELECT {copy} FROM audit WHERE number = 1")
        refuses(system, f"REPLACE INTO audit ({COLUMNS}) SELECT {copy} FROM audit")
    else:
        refuses(system, "TRUNCATE audit")
        copy = f"INSERT INTO audit ({COLUMNS}) SELECT {COLUMNS} FROM audit WHERE number = 1"
        refuses(system, f"{copy} ON CONFLICT (number) DO UPDATE SET reason = 'x'")


# Rolling back the whole store


def test_a_store_rolled_back_is_found_by_a_head_noted_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "headgate.db"
    system = System(f"sqlite:///{file}")
    system.initialise()
    system.close()
    shutil.copy(file, tmp_path / "backup.db")
    system.another().execute(system.root, "CREATE USER joe")
    noted = str(system.headgate.audit_head())
    assert system.headgate.verify_audit(noted) == []
    system.close()
    shutil.copy(tmp_path / "backup.db", file)
    headgate = system.another()
    assert headgate.verify_audit() == [], "a store rolled back as a whole is consistent in itself"
    assert headgate.verify_audit(noted) == [ROLLED_BACK]
    system.close()


def test_a_trail_rolled_back_with_its_head_is_found_by_a_head_noted_elsewhere(system: System) -> None:
    disarm(system)
    old = head(system)
    system.run("CREATE USER joe")
    noted = str(system.headgate.audit_head())
    system.sql(f"DELETE FROM audit WHERE number > {old['audit_count']}")
    put_head(system, **old)
    assert system.headgate.verify_audit() == []
    assert system.headgate.verify_audit(noted) == [
        "the expected head is not in this trail: it was rolled back or replaced"
    ]
    system.run("CREATE USER joe2")
    assert system.headgate.verify_audit(noted), "as many records as before, but other ones"


def test_every_head_that_ever_was_is_expected_rightly(system: System) -> None:
    heads = [f"0:{START}"]
    for number in range(5):
        heads.append(str(system.headgate.audit_head()))
        system.run(f"CREATE ROLE r{number}")
    system.reopen()
    assert [system.headgate.verify_audit(expected) for expected in heads] == [[]] * len(heads)
    count, mac = heads[-1].split(":")
    for wrong in (f"{int(count) + 1}:{mac}", f"{count}:{START}", "nonsense"):
        assert len(system.headgate.verify_audit(wrong)) == 1
