"""Figures 4 to 18 of paper 004, drawn from our runs; what its text states of a figure stands in it as single points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.bench.harness import Plot
from headgate.realtime.settings import COVERT_AC, OPEN, OPEN_AC, STAR, STRICT, Approach
from headgate.realtime.summaries import Mean, Summary

_LARGEST = "set 4, 100,000 items"
_PROMISE = {"promised: 5 %": 5.0}
_PERIOD = 5.0


def figures(summaries: Sequence[Summary]) -> list[Plot]:
    """The paper's figures in its order; strict STAR stands beside STAR."""
    by_set: dict[str, list[Summary]] = {}
    for summary in summaries:
        by_set.setdefault(summary.case.part, []).append(summary)
    one, two, three, four = (by_set[part] for part in ("set 1", "set 2", "set 3", _LARGEST))
    load, error, hcr = "AppLoad, %", "EstErr", "HCR, %"
    closed = (OPEN_AC, COVERT_AC, STAR, STRICT)
    return [
        _misses("Figure 4: miss ratio, Open", load, one, [OPEN], {"paper, MR1": [(200, 80)]}),
        _misses("Figure 5: miss ratio, Open-AC", load, one, [OPEN_AC], {"paper, MR1": [(200, 8.59)]}),
        _misses("Figure 6: miss ratio, Covert-AC", load, one, [COVERT_AC], {"paper, both": [(200, 0)]}),
        _misses("Figure 7: miss ratio, STAR", load, one, [STAR, STRICT], {}),
        _lines(
            "Figure 8: utilisation", load, one, (OPEN, *closed), "utilisation", {"paper, STAR": [(70, 70), (200, 90)]}
        ),
        _lines("Figure 9: throughput", load, one, (OPEN, *closed), "throughput", {"paper, STAR": [(200, 66.67)]}),
        _trace("Figure 10: AppLoad 200 %", one, 200.0, (395, 7.43)),
        _level("Figure 11: MR0", error, two, closed, 0, {"paper, Covert-AC: over": [(1, 30)]}),
        _level(
            "Figure 12: MR1", error, two, closed, 1, {"paper, Open-AC: over": [(1, 60)], "paper, STAR": [(1, 1.72)]}
        ),
        _lines("Figure 13: utilisation", error, two, closed, "utilisation", {"paper, STAR": [(1, 90)]}),
        _trace("Figure 14: EstErr 1", two, 1.0, (160, 5.6)),
        _misses("Figure 15: miss ratio, STAR", hcr, three, [STAR, STRICT], {"paper, MR1: below": [(80, 3)]}),
        _trace("Figure 16: HCR 80 %", three, 80.0, (130, 7.39)),
        _misses("Figure 17: miss ratio, 100,000 items", hcr, four, [STAR, STRICT], {"paper, MR1: below": [(80, 3)]}),
        _trace("Figure 18: HCR 80 %, 100,000 items", four, 80.0, (250, 7.15)),
    ]


Points = Mapping[str, Sequence[tuple[float, float]]]


def _plot(title: str, x: str, y: str, ours: Mapping[str, Sequence[tuple[float, Mean]]], paper: Points) -> Plot:
    series = {name: [(at, mean.value) for at, mean in points] for name, points in ours.items() if points}
    intervals = {name: [mean.half for _, mean in points] for name, points in ours.items() if points}
    levels = _PROMISE if y == "miss ratio, %" else {}
    return Plot(title, x, y, {**series, **paper}, levels, intervals=intervals, apart=list(paper))


def _of(summaries: Sequence[Summary], approach: Approach) -> list[Summary]:
    return [summary for summary in summaries if summary.case.approach == approach]


def _misses(title: str, x: str, summaries: Sequence[Summary], approaches: Sequence[Approach], paper: Points) -> Plot:
    """Both classes; a class without load has no miss ratio."""
    ours = {
        f"{approach.name}, MR{k}": [(s.case.x, s.misses[k]) for s in _of(summaries, approach) if s.case.shares[k]]
        for approach in approaches
        for k in (0, 1)
    }
    return _plot(title, x, "miss ratio, %", ours, paper)


def _level(
    title: str, x: str, summaries: Sequence[Summary], approaches: Sequence[Approach], level: int, paper: Points
) -> Plot:
    ours = {approach.name: [(s.case.x, s.misses[level]) for s in _of(summaries, approach)] for approach in approaches}
    return _plot(title, x, "miss ratio, %", ours, paper)


def _lines(
    title: str, x: str, summaries: Sequence[Summary], approaches: Sequence[Approach], what: str, paper: Points
) -> Plot:
    ours = {approach.name: [(s.case.x, getattr(s, what)) for s in _of(summaries, approach)] for approach in approaches}
    return _plot(title, x, f"{what}, %", ours, paper)


def _trace(title: str, summaries: Sequence[Summary], x: float, paper: tuple[float, float]) -> Plot:
    """The mean trace over the runs; the paper shows one run, whose highest value it states."""
    series: dict[str, Sequence[tuple[float, float]]] = {}
    for approach in (STAR, STRICT):
        summary = next(s for s in _of(summaries, approach) if s.case.x == x)
        for k in (0, 1):
            points = [((i + 1) * _PERIOD, value) for i, value in enumerate(summary.traces[k])]
            series[f"{approach.name}, MR{k}"] = points
    series["paper, highest MR1 of one run"] = [paper]
    return Plot(title, "time, s", "miss ratio, %", series, _PROMISE, apart=["paper, highest MR1 of one run"])
