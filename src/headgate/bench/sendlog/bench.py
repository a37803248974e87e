"""What SeNDlog's signatures and provenance cost, beside paper 003, and what a policy decision costs, beside Cedar.

The experiments of section 7 at 16 to 128 nodes. Overheads in bytes are held against the paper's, which counts packets
on the wire (with their headers, around tuples of its own encoding); the seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.bench.harness import Goal, Plot, Progress, Report, Row, environment
from headgate.bench.sendlog import networks, policies
from headgate.bench.sendlog.networks import Measured
from headgate.sendlog.settings import Settings


@dataclass(frozen=True)
class Sizes:
    """`rsa`: up to which size RSA is measured, for it takes long."""

    best_path: tuple[int, ...] = ()
    chord: tuple[int, ...] = ()
    pier: tuple[int, ...] = ()
    tracing: tuple[int, ...] = ()
    rsa: int = 0
    people: int = 0


QUICK = Sizes(best_path=(16, 32), rsa=16, people=5000)
FULL = Sizes(best_path=(16, 32, 64, 128), rsa=128, people=5000)
_EACH = ("each tuple signed", Settings("none", batch=1), Settings("ed25519", batch=1))
_RSA = ("each tuple signed, RSA", Settings("none", batch=1), Settings("rsa", batch=1))
_BATCH = ("batches", Settings("none"), Settings("ed25519"))
_TRACED = Settings("none", batch=1, provenance="statements")
_TRACED_SIGNED = Settings("ed25519", batch=1, provenance="statements")
PAPER = {"best path": 30, "chord": 47, "pier": 8, "tracing, provenance": 12, "tracing, signed provenance": 10}


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, progress)


def measure(sizes: Sizes, progress: Progress) -> Report:
    rows: list[Row] = []
    for name, run_one, counts in (
        ("best path", networks.best_path, sizes.best_path),
        ("chord", networks.chord, sizes.chord),
        ("pier", networks.pier, sizes.pier),
    ):
        rows += _experiment(name, run_one, counts, sizes.rsa, progress)
    rows += _tracing(sizes.tracing, progress)
    goals: list[Goal] = []
    if sizes.best_path:
        goals.append(_batch_goal(rows))
    if sizes.people:
        decided = policies.measure(sizes.people, sizes.people, 500)
        rows += _decisions(decided)
        name = f"a decision with {decided.facts:,} facts and {decided.rules} rules"
        goals.append(Goal(name, decided.decide, 1000, "µs"))
        goals.append(Goal(f"{name}, in the platform", decided.platform, 1000, "µs"))
    return Report(
        title="SeNDlog: bytes and messages per node, seconds of processor time",
        rows=rows,
        goals=goals,
        notes=_NOTES,
        environment=environment("cryptography", "cedarpy"),
        plots=_plots(rows),
    )


def _experiment(
    name: str, run_one: Callable[[int, Settings], Measured], counts: tuple[int, ...], rsa: int, progress: Progress
) -> list[Row]:
    ways = (_EACH, _BATCH, _RSA)
    progress.expect(len(counts) * len(ways))
    rows: list[Row] = []
    for count in counts:
        for way, open_settings, signed in ways:
            if way == _RSA[0] and count > rsa:
                continue
            progress.step(f"{name}, {count}, {way}")
            bare, safe = run_one(count, open_settings), run_one(count, signed)
            if bare.answer != safe.answer:
                raise RuntimeError(f"{name} has another answer with signatures")
            rows.append(_row(name, count, way, bare, safe, PAPER[name]))
    return rows


def _row(name: str, count: int, way: str, bare: Measured, safe: Measured, paper: float) -> Row:
    row: dict[str, str | int | float | None] = {
        "experiment": name,
        "size": count,
        "way": way,
        "messages": bare.messages,
        "KB": bare.bytes / 1000,
        "KB with": safe.bytes / 1000,
        "% more bytes": 100 * (safe.bytes / bare.bytes - 1),
        "paper %": paper,
        "s": bare.seconds,
        "s with": safe.seconds,
    }
    if bare.latency:
        row |= {"latency ms": 1000 * bare.latency, "latency with": 1000 * safe.latency}
    return row


def _tracing(counts: tuple[int, ...], progress: Progress) -> list[Row]:
    progress.expect(len(counts))
    rows = []
    for count in counts:
        progress.step(f"tracing, {count}")
        bare, traced, signed = (
            networks.tracing(count, s) for s in (Settings("none", batch=1), _TRACED, _TRACED_SIGNED)
        )
        rows.append(_row("tracing", count, "provenance", bare, traced, PAPER["tracing, provenance"]))
        rows.append(_row("tracing", count, "signed provenance", traced, signed, PAPER["tracing, signed provenance"]))
    return rows


def _decisions(decided: policies.Decisions) -> list[Row]:
    ways = {
        "lookup": decided.decide,
        "a grant": decided.grant,
        "a revocation": decided.revoke,
        "in the platform": decided.platform,
        "in the platform, after a statement": decided.statement,
        "cedarpy": decided.cedar,
    }
    return [
        {"experiment": "policy decision", "size": decided.facts, "way": way, "µs": taken}
        for way, taken in ways.items()
        if taken is not None
    ]


def _batch_goal(rows: list[Row]) -> Goal:
    batched = [row for row in rows if (row["experiment"], row["way"]) == ("best path", "batches")]
    last = max(batched, key=lambda row: int(str(row["size"])))
    return Goal(
        f"bytes with batch signatures, best path, {last['size']} nodes", float(str(last["% more bytes"])), 5, "% more"
    )


def _series(rows: list[Row], experiment: str, column: str) -> dict[str, list[tuple[float, float]]]:
    """The points of each way of signing, RSA left out: beside its signatures the others would look alike."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["experiment"] == experiment and row.get(column) is not None and "RSA" not in str(row["way"]):
            found.setdefault(str(row["way"]), []).append((float(str(row["size"])), float(str(row[column]))))
    return found


def _plots(rows: list[Row]) -> list[Plot]:
    plots = []
    for name, x in (("best path", "nodes"), ("chord", "nodes"), ("pier", "tuples in each table"), ("tracing", "nodes")):
        points = _series(rows, name, "% more bytes")
        levels = {f"paper, {value} %": float(value) for known, value in PAPER.items() if known.startswith(name)}
        if points:
            plots.append(Plot(f"{name}: bytes more with authentication", x, "%", points, levels, log_x=True))
    without, with_ = (_series(rows, "best path", column) for column in ("s", "s with"))
    both = {f"{way}, none": p for way, p in without.items()} | {f"{way}, Ed25519": p for way, p in with_.items()}
    if both:
        plots.append(Plot("best path: processor time of all nodes", "nodes", "s", both, log_x=True, log_y=True))
    return plots


_NOTES = (
    "Best paths: outdegree 3, a ring and random links, as in the paper.",
    "Each tuple signed: one message and one signature for every tuple.",
    "Batches: what is ready for one neighbour goes under one signature (a Merkle root).",
    "Chord: four rounds of maintenance of a stabilised ring; latency is simulated, 10 to 100 ms for each message.",
    "Chord's certificates are forwarded with the authority's signature, which the paper's Chord does not do.",
    "PIER: 640 bytes of padding in each tuple, selectivity 1/16, 16 nodes; Chord's steps are signed as well as tuples.",
    "Tracing: 200 packets of 800 bytes; signed provenance is held against unsigned provenance, as in the paper.",
    "Answers with and without signatures were compared, and decisions with Cedar's.",
    "A decision looks up what the engine keeps derived; a grant or a revocation changes that. cedarpy evaluates anew.",
)
