"""The stock exchange of paper 000, section 4.1 (Figures 8-10): its control part, played on a real store.

Joe administers, Ed provides prices, Al and Bob are customers. Al's query merges two feeds; Bob is later given its
output, but only one of the feeds, and so receives only what comes from that feed alone, until that is revoked too.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from headgate.errors import HeadgateError
from headgate.labels import Label
from headgate.plain import format_table
from headgate.service import Headgate

USERS = {"Joe": "ADMIN", "Ed": "INFO PROVIDER", "Al": "CUSTOMER1", "Bob": "CUSTOMER2"}

SETUP = """
CREATE ROLE "INFO PROVIDER";
CREATE ROLE CUSTOMER1;
CREATE ROLE CUSTOMER2;
CREATE USER Ed PASSWORD '{Ed}';
CREATE USER Al PASSWORD '{Al}';
CREATE USER Bob PASSWORD '{Bob}';
GRANT ROLE "INFO PROVIDER" TO USER Ed;
GRANT ROLE CUSTOMER1 TO USER Al;
GRANT ROLE CUSTOMER2 TO USER Bob;
SET SYSTEM default_rights = 'ROLE';
GRANT ADD ON SYSTEM TO PUBLIC;
"""

# Who does what, and why; a text without a statement is told only.
STORY: tuple[tuple[str, str, str], ...] = (
    ("Joe", "At the beginning only the system itself is there.", "SHOW PERMISSIONS"),
    (
        "Joe",
        "Joe adds a schema and two streams.",
        """CREATE SCHEMA s (time TIMESTAMP, symbol STRING, price DOUBLE);
CREATE STREAM in1 SCHEMA s;
CREATE STREAM in2 SCHEMA s;
SHOW PERMISSIONS""",
    ),
    (
        "Joe",
        "He grants them to the first customer and to the provider.",
        """GRANT VIEW OBJECT ON SCHEMA s TO CUSTOMER1, "INFO PROVIDER";
GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO CUSTOMER1;
GRANT VIEW OBJECT, READ TUPLE ON STREAM in2 TO CUSTOMER1;
GRANT VIEW OBJECT, PUBLISH ON STREAM in1 TO "INFO PROVIDER";
GRANT VIEW OBJECT, PUBLISH ON STREAM in2 TO "INFO PROVIDER";
SHOW PERMISSIONS""",
    ),
    ("Ed", "Ed looks at the catalog and sees what he may use. He begins to send prices.", "SHOW CATALOG"),
    ("Al", "Al looks as well.", "SHOW CATALOG"),
    (
        "Al",
        "Al inserts a query that unites both feeds and aggregates them.",
        """CREATE QUERY q1 READING in1, in2 USING union, window (rows = 10), aggregate OUTPUT out1;
START QUERY q1;
SHOW CATALOG""",
    ),
    ("Bob", "Bob logs in. For him there is nothing, and asking for a name does not help.", "SHOW CATALOG"),
    ("Bob", "", "SHOW GRANTS ON STREAM in1"),
    ("Bob", "", "SHOW GRANTS ON STREAM nosuch"),
    (
        "Joe",
        "Joe gives Bob's role the schema and the first feed.",
        """GRANT VIEW OBJECT ON SCHEMA s TO CUSTOMER2;
GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO CUSTOMER2""",
    ),
    (
        "Al",
        "Al, the owner of the output, shares it with Bob's role.",
        "GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM out1 TO CUSTOMER2",
    ),
    ("Joe", "The permissions now:", "SHOW PERMISSIONS"),
    ("Bob", "Bob looks again.", "SHOW CATALOG"),
)

REVOCATION = ("Joe", "Joe takes the first feed back.", "REVOKE READ TUPLE ON STREAM in1 FROM CUSTOMER2")


class Exchange:
    """A store in a temporary folder, and a session for each of the four."""

    def __init__(self, home: Path) -> None:
        secret = {name: secrets.token_urlsafe(12) for name in USERS}
        self.headgate = Headgate.at_home(home, create=True)
        self.headgate.initialise("Joe", secret["Joe"])
        self.sessions = {"Joe": self.headgate.login("Joe", secret["Joe"])}
        self.headgate.execute(self.sessions["Joe"], SETUP.format(**secret))
        self.sessions |= {name: self.headgate.login(name, secret[name]) for name in USERS if name != "Joe"}

    def say(self, who: str, script: str) -> Iterator[str]:
        for line in script.splitlines():
            yield f"{who}> {line}"
        try:
            for result in self.headgate.execute(self.sessions[who], script):
                yield format_table(result.columns, result.rows) if result.columns else result.text
        except HeadgateError as error:
            yield f"refused: {error}"
        yield ""

    def received(self) -> Iterator[str]:
        """Which results of q1 each customer may receive, by the sources they are made of."""
        headgate = self.headgate
        inputs = headgate.streams(self.sessions["Joe"], ["in1", "in2"])
        sets = [frozenset(s) for size in (1, 2) for s in combinations(inputs.sources, size)]
        rows = []
        for sources in sets:
            label = Label(sources=sources)
            row = [", ".join(sorted(sources))]
            for who in ("Al", "Bob"):
                clearance = headgate.clearance(self.sessions[who], inputs)
                row.append("receives" if inputs.rules.permits(label, clearance) else "-")
            rows.append(row)
        yield format_table(("made of", "Al", "Bob"), rows)
        yield ""


def tell() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        exchange = Exchange(Path(folder) / "headgate")
        for who, story, script in STORY:
            if story:
                yield f"# {story}"
            yield from exchange.say(who, script)
        yield "# Results carry their sources; the output filter compares them with each one's rights."
        yield from exchange.received()
        who, story, script = REVOCATION
        yield f"# {story}"
        yield from exchange.say(who, script)
        yield from exchange.received()
        faults = exchange.headgate.verify_audit()
        count = exchange.headgate.audit_head().count
        yield f"# The audit trail: {count} records, {'intact' if not faults else 'DAMAGED'}."
        exchange.headgate.close()
