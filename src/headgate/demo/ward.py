"""A hospital ward: heart rates and blood pressures under the patients' own policies, read by a doctor, a nurse and an
administrator with queries that share their plans, and a right that is taken away in the middle.

Everybody is a client of a server that the play starts in a temporary folder.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from headgate.client import Client, connect
from headgate.client.local import wait_until_ended
from headgate.plain import format_table
from headgate.service import Headgate

BEGIN = dt.datetime(2024, 3, 1, 8, 0, tzinfo=dt.UTC)
MINUTES, PATIENTS = 10, 8
PAUSE = 0.3
"""Seconds between two looks at how much was processed."""
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
    """A home folder with a server of its own, a session for each person, and the sources as files that come minute by
    minute."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.home = folder, folder / "headgate"
        self._secrets = {name: secrets.token_urlsafe(12) for name in ("joe", *PEOPLE)}
        headgate = Headgate.at_home(self.home, create=True)
        headgate.initialise("joe", self._secrets["joe"])
        headgate.close()
        self._open = ExitStack()
        self.joe = self._session("joe")
        self._people: dict[str, Client] = {}
        self._positions: dict[tuple[str, str], str] = {}
        for stream in ("HR", "BP"):
            (folder / stream).mkdir()

    def _session(self, name: str) -> Client:
        return self._open.enter_context(connect(str(self.home), name, self._secrets[name]))

    def close(self) -> None:
        """Everybody leaves, and so the server ends."""
        self._open.close()
        wait_until_ended(self.home)

    def policy(self) -> str:
        users = "\n".join(
            f"CREATE USER {name} PASSWORD '{self._secrets[name]}';\nGRANT ROLE {roles} TO USER {name};"
            for name, roles in PEOPLE.items()
        )
        return SETUP.format(users=users, folder=self._folder)

    def subscribe(self) -> None:
        for name, streams in WANTED.items():
            self._people[name] = self._session(name)
            self._people[name].execute("; ".join(f"SUBSCRIBE TO joe.{stream}" for stream in streams))

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

    def wait_for(self, count: int, progress: Callable[[str], None]) -> None:
        """Until the server has processed so many tuples: then their results are out."""
        while (done := self.counted("headgate_tuples_total")) < count:
            progress(f"{done:,} tuples" if done else "starting Spark")
            time.sleep(PAUSE)

    def counted(self, name: str) -> int:
        """The sum of a metric."""
        lines = (line for line in self.joe.metrics().splitlines() if re.match(rf"{name}[ {{]", line))
        return sum(int(float(line.rpartition(" ")[2])) for line in lines)

    def received(self) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
        """What each person got of each query since the last time."""
        return {(who, stream): self._new(who, stream) for who, streams in WANTED.items() for stream in streams}

    def _new(self, who: str, stream: str) -> list[Mapping[str, Any]]:
        position = self._positions.get((who, stream), "")
        found = list(self._people[who].subscribe(f"joe.{stream}", after=position, follow=False))
        self._positions[who, stream] = next((x.position for x in reversed(found) if x.position), position)
        return [x.values for x in found if x.values is not None]


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
        progress("starting a server")
        ward = Ward(Path(folder))
        try:
            yield from _play(ward, picture, progress)
        finally:
            ward.close()
        headgate = Headgate.at_home(ward.home)
        faults = headgate.verify_audit()
        yield f"# The audit trail: {headgate.audit_head().count} records, {'intact' if not faults else 'DAMAGED'}."
        headgate.close()


def _play(ward: Ward, picture: Path, progress: Callable[[str], None]) -> Iterator[str]:
    ward.joe.execute(ward.policy())
    ward.joe.execute(QUERIES)
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
    half = MINUTES // 2
    count = ward.measure(range(half))
    ward.wait_for(count, progress)
    first = ward.received()
    yield f"# {half} minutes, {count:,} measurements. Then nurses lose the heart rates:"
    yield f"joe> {REVOCATION}"
    yield ward.joe.execute(REVOCATION)[0].text
    yield ""
    more = ward.measure(range(half, MINUTES))
    ward.wait_for(count + more, progress)
    second = ward.received()
    yield f"# Another {MINUTES - half} minutes, {more:,} measurements. What everyone received, before and after:"
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
        patients = sorted({int(values["patient"]) for values in first[who, "alarms"]})
        yield f"{who}: alarms of patients {', '.join(map(str, patients))}"
    yield ""
    text, drawn = ward.joe.explain("QUERIES", picture=True)
    picture.write_text(drawn, encoding="utf-8")
    yield f"# The shared plan: {text.splitlines()[0]}; drawn into {picture}"
    yield "\n".join(text.splitlines()[2:])
    yield ""
    batches, rejected = ward.counted("headgate_batches_total"), ward.counted("headgate_rejected_total")
    results = ward.counted("headgate_sent_total")
    yield f"# {count + more:,} tuples in {batches} batches, {rejected} rejected, {results:,} results sent"
