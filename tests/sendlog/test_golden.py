"""Every golden case on the embedded engine, with signatures and without."""

from __future__ import annotations

import pytest

from headgate.errors import HeadgateError
from headgate.sendlog.check import load
from headgate.sendlog.network import Network
from headgate.sendlog.settings import Settings
from sendlog.golden import Case, cases, line

GOOD, REFUSED = cases(errors=False), cases(errors=True)


def found(network: Network, case: Case) -> list[str]:
    rows = []
    for principal in case.principals:
        for table in case.tables:
            said = table.startswith("says ")
            held = network.said(principal, table.removeprefix("says ")) if said else network.rows(principal, table)
            rows += [line(principal, table, row) for row in held]
    return sorted(rows)


def test_there_are_enough_cases() -> None:
    assert len(GOOD) >= 60 and len(REFUSED) >= 25


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
@pytest.mark.parametrize("scheme", ["none", "ed25519"])
def test_a_program_derives_the_expected_tables(case: Case, scheme: str) -> None:
    network = Network(case.text, case.principals, Settings(scheme))
    network.run()
    assert found(network, case) == sorted(case.expected)
    assert network.rejected() == {}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_program_is_refused_with_its_position(case: Case) -> None:
    with pytest.raises(HeadgateError) as refused:
        load(case.text)
    assert str(refused.value) == case.error
