"""A hospital ward: heart rates and blood pressures under the patients' own policies, read by a doctor, a nurse and an
administrator with queries that share their plans, and a right that is taken away in the middle.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from headgate.egress.mailbox import Mailbox
from headgate.model.results import delivered_results
from headgate.model.snapshot import CatalogSnapshot
from headgate.plain import format_table
from headgate.service import Headgate
from headgate.service.runs import Processing

BEGIN = dt.datetime(2024, 3, 1, 8, 0, tzinfo=dt.UTC)
MINUTES, PATIENTS = 10, 8
# What each patient has decided about its own measurements, by number.
POLICIES = ("doctor | nurse", "doctor | nurse", "doctor", "doctor & cardiology", "doctor | nurse | administration")

PEOPLE = {"dora": "doctor", "carl": "doctor, cardiology", "nina": "nurse", "adam": "administration"}

SETUP = """
CREATE ROLE doctor;
CREATE ROLE cardiology;
CREATE ROLE nurse;
CREATE ROLE administration;
{users}
CREATE STREAM HR (at TIMESTAMP, patient INT, rate INT, policy STRING)
  EVENT TIME at LATENESS 5 SECONDS ROLES FROM policy SOURCE json (path = '{folder}/HR', maxFilesPerTrigger = '1');
CREATE STREAM BP (at TIMESTAMP, patient INT, pressure INT, policy STRING)
  EVENT TIME at LATENESS 5 SECONDS ROLES FROM policy SOURCE json (path = '{folder}/BP', maxFilesPerTrigger = '1');
GRANT VIEW OBJECT, READ TUPLE ON STREAM HR TO doctor, nurse, administration;
GRANT VIEW OBJECT, READ TUPLE ON STREAM BP TO doctor, nurse, administration;
"""

QUERIES = """
CREATE QUERY alarms AS
  SELECT patient, rate WHERE rate > 100 FROM HR;
CREATE QUERY racing AS
  SELECT patient, AVG(rate) AS mean, MAX(rate) AS top WHERE rate > 100 FROM HR [RANGE 1 MINUTE] GROUP BY patient;
CREATE QUERY strained AS
  SELECT HR.patient, rate, pressure WHERE rate > 110 FROM HR [RANGE 5 SECONDS], BP [RANGE 5 SECONDS]
  WHERE HR.patient = BP.patient AND pressure > 150;
CREATE QUERY load AS
  SELECT COUNT(*) AS measurements FROM HR [RANGE 1 MINUTE SLIDE 1 MINUTE];
START QUERY alarms;
START QUERY racing;
START QUERY strained;
START QUERY load;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM alarms TO doctor, nurse;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM racing TO doctor, nurse;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM strained TO doctor;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM load TO administration, nurse;
"""

WANTED = {
    "dora": ("alarms", "racing", "strained"),
    "carl": ("alarms", "racing", "strained"),
    "nina": ("alarms", "racing", "load"),
    "adam": ("load",),
}

REVOCATION = "REVOKE READ TUPLE ON STREAM HR FROM nurse"


class Ward:
    """A store in a folder, subscriptions of each person, and the sources as files that come minute by minute."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._secrets = {name: secrets.token_urlsafe(12) for name in ("joe", *PEOPLE)}
        self.headgate = Headgate.at_home(folder / "headgate", create=True)
        self.headgate.initialise("joe", self._secrets["joe"])
        self.joe = self.headgate.login("joe", self._secrets["joe"])
        self.mailbox = Mailbox()
        for stream in ("HR", "BP"):
            (folder / stream).mkdir()

    def policy(self) -> str:
        users = "\n".join(
            f"CREATE USER {name} PASSWORD '{self._secrets[name]}';\nGRANT ROLE {roles} TO USER {name};"
            for name, roles in PEOPLE.items()
        )
        return SETUP.format(users=users, folder=self._folder)

    def subscribe(self) -> None:
        for name, streams in WANTED.items():
            token = self.headgate.login(name, self._secrets[name])
            self.headgate.execute(token, "; ".join(f"SUBSCRIBE TO joe.{stream}" for stream in streams))

    def measure(self, minutes: range) -> int:
        """One file per stream and minute; returns how many tuples these are."""
        count = 0
        for minute in minutes:
            for stream, tuples in measurements(minute).items():
                file = self._folder / stream / f"{minute:02}.json"
                new = file.with_name(f".{file.name}")  # complete before it has its name, as for every file source
                new.write_text("".join(json.dumps(x) + "\n" for x in tuples))
                moment = (BEGIN + dt.timedelta(minutes=minute + 1)).timestamp()
                os.utime(new, (moment, moment))
                new.rename(file)
                count += len(tuples)
        return count

    def received(self) -> dict[tuple[str, str], list[tuple[object, ...]]]:
        """What each person got of each query since the last time."""
        with self.headgate.open() as now:
            return {key: self._fetched(now, *key) for key in ((who, q) for who in WANTED for q in WANTED[who])}

    def _fetched(self, now: CatalogSnapshot, who: str, stream: str) -> list[tuple[object, ...]]:
        pushdown = (who, f"joe.{stream}")
        mine = [x for x in now.subscribers if x.outgoing and (x.outgoing.user, x.outgoing.stream) == pushdown]
        fetched = (self.mailbox.fetch(x.name, x.query, now) for x in mine)
        return [x.values for result_batches in fetched for x in delivered_results(result_batches)]


def measurements(minute: int) -> dict[str, list[dict[str, object]]]:
    """A measurement of each patient every second; the same in every run. Some hearts race now and then."""
    rng = Random(minute)  # noqa: S311
    found: dict[str, list[dict[str, object]]] = {"HR": [], "BP": []}
    for second in range(60):
        at = (BEGIN + dt.timedelta(minutes=minute, seconds=second)).isoformat()
        for patient in range(PATIENTS):
            wave = math.sin((minute * 60 + second) / 40 + patient)
            known = {"at": at, "patient": patient, "policy": POLICIES[patient % len(POLICIES)]}
            found["HR"].append(known | {"rate": int(85 + 30 * wave + rng.gauss(0, 3))})
            found["BP"].append(known | {"pressure": int(125 + 28 * wave + rng.gauss(0, 4))})
    return found


def tell(picture: Path, progress: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        ward = Ward(Path(folder))
        headgate = ward.headgate
        headgate.execute(ward.joe, ward.policy())
        headgate.execute(ward.joe, QUERIES)
        ward.subscribe()
        yield "# Patients decide who may see their measurements; each tuple carries its patient's policy:"
        yield format_table(
            ("patients", "policy"),
            [
                [", ".join(str(p) for p in range(PATIENTS) if p % len(POLICIES) == number), policy]
                for number, policy in enumerate(POLICIES)
            ],
        )
        yield ""
        yield "# Four people with different roles subscribe to four queries that read the same two streams:"
        yield QUERIES.split("START")[0].strip()
        yield ""
        progress("starting Spark")
        work = Processing(headgate, Path(folder) / "engine", [ward.mailbox])
        half = MINUTES // 2
        count = ward.measure(range(half))
        work.replay(lambda: progress(f"{work.counts.tuples.total():,} tuples"), end=False)
        first = ward.received()
        yield f"# {half} minutes, {count:,} measurements. Then nurses lose the heart rates:"
        yield f"joe> {REVOCATION}"
        yield headgate.execute(ward.joe, REVOCATION)[0].text
        yield ""
        count = ward.measure(range(half, MINUTES))
        work.replay(lambda: progress(f"{work.counts.tuples.total():,} tuples"))
        second = ward.received()
        yield f"# Another {MINUTES - half} minutes, {count:,} measurements. What everyone received, before and after:"
        yield format_table(
            ("who", "roles", "query", "before", "after"),
            [
                [who, PEOPLE[who], query, f"{len(first[who, query]):,}", f"{len(second[who, query]):,}"]
                for who, query in first
            ],
        )
        yield ""
        yield "# The nurse and the doctor asked the same; before the revocation each saw the patients who allow it:"
        for who in ("dora", "nina"):
            patients = sorted({int(str(values[0])) for values in first[who, "alarms"]})
            yield f"{who}: alarms of patients {', '.join(map(str, patients))}"
        yield ""
        told = headgate.execute(ward.joe, "EXPLAIN QUERIES")[0]
        picture.write_text(told.picture, encoding="utf-8")
        yield f"# The shared plan: {told.text.splitlines()[0]}; drawn into {picture}"
        yield "\n".join(told.text.splitlines()[2:])
        yield ""
        tuples, rejected = work.counts.tuples, work.counts.refused.total()
        results = work.counts.received.total()
        yield f"# {tuples.total():,} tuples in {work.counts.batches} batches, {rejected} rejected, {results:,} results"
        work.close()
        faults = headgate.verify_audit()
        yield f"# The audit trail: {headgate.audit_head().count} records, {'intact' if not faults else 'DAMAGED'}."
        headgate.close()
