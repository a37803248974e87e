"""The tables of `headgate bench star`: what paper 004 states in its section 4 beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headgate.bench.harness import Row
from headgate.realtime.experiments import lattice_named
from headgate.realtime.settings import COVERT_AC, OPEN, OPEN_AC, STAR, STRICT, Approach
from headgate.realtime.summaries import Mean, Summary
from headgate.realtime.tuning import Profile

_PERIOD = 5.0
_SETTLED = 5.05
_LARGEST = "set 4, 100,000 items"


def row(part: str, case: str, what: str, paper: str, ours: str) -> Row:
    return {"part": part, "case": case, "what": what, "paper": paper, "ours": ours}


class Summaries:
    """Summaries by set, x and approach."""

    def __init__(self, summaries: Sequence[Summary]) -> None:
        self._all = {(s.case.part, s.case.x, s.case.approach.name): s for s in summaries}

    def one(self, part: str, x: float, approach: Approach) -> Summary:
        return self._all[part, x, approach.name]

    def many(self, part: str, approach: Approach) -> list[Summary]:
        return [s for (its, _, name), s in self._all.items() if its == part and name == approach.name]


def between(means: Sequence[Mean]) -> str:
    """The range of some means."""
    low, high = min(m.value for m in means), max(m.value for m in means)
    return f"{low:.2f} to {high:.2f}"


def reproduction_rows(summaries: Sequence[Summary]) -> Iterator[Row]:
    """Every number in the text of section 4; where the text gives a bound for all x, the range over all x."""
    found = Summaries(summaries)
    yield from _set_1(found)
    yield from _set_2(found)
    yield from _sets_3_and_4(found)


def _set_1(found: Summaries) -> Iterator[Row]:
    part = "reproduction, set 1"
    low = [s.misses[0] for a in (OPEN, OPEN_AC, COVERT_AC, STAR) for s in found.many("set 1", a)]
    yield row(part, "all approaches, all AppLoads", "MR0 %", "near zero", between(low))
    full = {a: found.one("set 1", 200.0, a) for a in (OPEN, OPEN_AC, COVERT_AC, STAR)}
    yield row(part, "Open, AppLoad 200 %", "MR1 %", "about 80", str(full[OPEN].misses[1]))
    yield row(part, "Open-AC, AppLoad 200 %", "MR1 %", "8.59 ± 1.79", str(full[OPEN_AC].misses[1]))
    covert = [s.misses[1] for s in found.many("set 1", COVERT_AC)]
    yield row(part, "Covert-AC, all AppLoads", "MR1 %", "near zero", between(covert))
    star = found.many("set 1", STAR)
    yield row(part, "STAR, all AppLoads", "MR1 %", "below 5", between([s.misses[1] for s in star]))
    yield row(part, "STAR, all AppLoads", "utilisation %", "70 to 90", between([s.utilisation for s in star]))
    for a in (OPEN, OPEN_AC, COVERT_AC):
        yield row(part, f"{a.name}, AppLoad 200 %", "utilisation %", "100", str(full[a].utilisation))
    yield row(part, "Open, AppLoad 200 %", "throughput %", "below 40", str(full[OPEN].throughput))
    for a in (OPEN_AC, COVERT_AC):
        yield row(part, f"{a.name}, AppLoad 200 %", "throughput %", "Open + about 10", str(full[a].throughput))
    yield row(part, "STAR, AppLoad 200 %", "throughput %", "66.67 ± 3.67", str(full[STAR].throughput))
    yield row(part, "STAR, AppLoad 200 %", "QoS %", "63.17 ± 7.03", str(full[STAR].quality))
    yield row(part, "STAR, AppLoad 70 %", "QoS %", "100", str(found.one("set 1", 70.0, STAR).quality))
    yield row(part, "STAR, AppLoad 200 %", "highest transient MR1 %", "7.43 at 395 s", _peak(full[STAR]))


def _set_2(found: Summaries) -> Iterator[Row]:
    part = "reproduction, set 2"
    full = {a: found.one("set 2", 1.0, a) for a in (OPEN_AC, COVERT_AC, STAR)}
    yield row(part, "Covert-AC, EstErr 1", "MR0 %", "over 30", str(full[COVERT_AC].misses[0]))
    yield row(part, "Covert-AC, EstErr 1", "MR1 %", "over 30", str(full[COVERT_AC].misses[1]))
    yield row(part, "Open-AC, EstErr 1", "MR0 %", "near zero", str(full[OPEN_AC].misses[0]))
    yield row(part, "Open-AC, EstErr 1", "MR1 %", "over 60", str(full[OPEN_AC].misses[1]))
    yield row(part, "STAR, EstErr 1", "MR0 %", "near zero", str(full[STAR].misses[0]))
    yield row(part, "STAR, EstErr 1", "MR1 %", "1.72 ± 0.49", str(full[STAR].misses[1]))
    star = found.many("set 2", STAR)
    yield row(part, "STAR, all EstErr", "MR1 %", "below 5", between([s.misses[1] for s in star]))
    yield row(part, "STAR, all EstErr", "QoS %", "50 to 60", between([s.quality for s in star]))
    yield row(part, "STAR, all EstErr", "utilisation %", "about 90", between([s.utilisation for s in star]))
    yield row(part, "STAR, all EstErr", "throughput %", "60 to 70", between([s.throughput for s in star]))
    for a in (OPEN_AC, COVERT_AC):
        yield row(part, f"{a.name}, EstErr 1", "utilisation %", "saturated", str(full[a].utilisation))
    yield row(part, "STAR, EstErr 1", "highest transient MR1 %", "5.6 at 160 s", _peak(full[STAR]))


def _sets_3_and_4(found: Summaries) -> Iterator[Row]:
    stated = {
        "set 3": ("below 1", "below 3", "87 to 93", "50 to 65", "7.39 at 130 s"),
        _LARGEST: ("above zero", "below 3", "88 to 92", "50 to 60", "7.15 at 250 s"),
    }
    for its, (mr0, mr1, used, quality, peak) in stated.items():
        part, star = f"reproduction, {its}", found.many(its, STAR)
        with_high = [s for s in star if s.case.x < 100]
        yield row(part, "STAR, HCR 100 %", "MR0 %", mr0, str(found.one(its, 100.0, STAR).misses[0]))
        yield row(part, "STAR, HCR 20 to 80 %", "MR0 %", "near zero", between([s.misses[0] for s in with_high]))
        yield row(part, "STAR, HCR 80 %", "MR1 %", mr1, str(found.one(its, 80.0, STAR).misses[1]))
        yield row(part, "STAR, HCR 20 to 80 %", "MR1 %", mr1, between([s.misses[1] for s in with_high]))
        yield row(part, "STAR, all HCR", "utilisation %", used, between([s.utilisation for s in star]))
        yield row(part, "STAR, all HCR", "QoS %", quality, between([s.quality for s in star]))
        yield row(part, "STAR, all HCR", "throughput %", "60 to 70", between([s.throughput for s in star]))
        yield row(part, "STAR, HCR 80 %", "highest transient MR1 %", peak, _peak(found.one(its, 80.0, STAR)))
        for a in (OPEN_AC, COVERT_AC):
            highest = [max(s.misses, key=lambda m: m.value) for s in found.many(its, a)]
            yield row(part, f"{a.name}, all HCR", "the worse of MR0, MR1 %", "violated", between(highest))


def _peak(summary: Summary) -> str:
    """Of the mean trace; single samples of one run hold too few transactions."""
    trace = summary.traces[1]
    return f"{max(trace):.2f} at {(trace.index(max(trace)) + 1) * _PERIOD:.0f} s (mean trace)"


def specification_rows(summaries: Sequence[Summary]) -> Iterator[Row]:
    """Strict STAR against Perf-Spec, setting by setting."""
    for summary in summaries:
        if summary.case.approach == STRICT:
            yield from _against(summary, f"{summary.case.part}, x = {summary.case.x:g}")


def lattice_rows(summaries: Sequence[Summary]) -> Iterator[Row]:
    for summary in summaries:
        yield from _against(summary, f"{summary.case.levels}, {summary.case.shares[0] / 2:.0f} % of the load at `U`")


def _against(summary: Summary, case: str) -> Iterator[Row]:
    names = [str(level) for level in lattice_named(summary.case.levels).levels]
    loaded = [k for k, share in enumerate(summary.case.shares) if share > 0]
    misses = ", ".join(f"{names[k]} {summary.misses[k]}" for k in loaded)
    peaks = max(summary.peak(k) for k in loaded)
    part = "strict STAR on lattices" if summary.case.part == "lattices" else "strict STAR"
    numbers = f"{misses}; peak {peaks:.1f}; utilisation {summary.utilisation}; QoS {summary.quality.value:.0f}"
    yield row(part, case, "MR %, peak of mean trace, utilisation, QoS", "MR < 5, peak ≤ 6, ≥ 80", numbers)


def worst(strict: Sequence[Summary]) -> tuple[float, float, float, float]:
    """Of all settings: the highest miss ratio with its interval, the highest mean trace, the longest settling, and the
    lowest utilisation among settings with at least the whole processor as load."""
    misses = max(m.value + m.half for s in strict for m in s.misses)
    peak = max(s.peak(k) for s in strict for k in range(len(s.misses)))
    settling = max(s.settling(k, _PERIOD, _SETTLED) for s in strict for k in range(len(s.misses)))
    used = min(s.utilisation.value for s in strict if sum(s.case.shares) >= 100)
    return misses, peak, settling, used


def profile_rows(profiles: Mapping[float, Sequence[Profile]]) -> Iterator[Row]:
    stated = ("1.295 from 120 to 130 %", "2.288 from 80 to 90 %")
    for hcr, levels in profiles.items():
        for measured in levels:
            gain, low, high = measured.steepest()
            if max(measured.misses) > 1:
                ours = f"{gain:.3f} from {low:.0f} to {high:.0f} %"
                yield row("profile", f"class {measured.level}, HCR {hcr:g} %", "gain", stated[measured.level], ours)


def sensitivity_rows(summaries: Sequence[Summary], paper: Sequence[Summary]) -> Iterator[Row]:
    """The cases that carry the reproduction, as they are and with one setting changed."""
    found = Summaries(paper)
    yield row(
        "sensitivity",
        "as reproduced",
        "see `what` below",
        "",
        "; ".join(
            _short(found.one(part, x, approach))
            for part, x, approach in (
                ("set 1", 200.0, OPEN_AC),
                ("set 1", 200.0, COVERT_AC),
                ("set 2", 1.0, OPEN_AC),
                ("set 2", 1.0, COVERT_AC),
                ("set 1", 200.0, STAR),
                ("set 2", 1.0, STAR),
                ("set 2", 1.0, STRICT),
                ("set 3", 80.0, STRICT),
            )
        ),
    )
    changes = dict.fromkeys(s.case.changed for s in summaries if s.case.changed)
    for change in changes:
        if change is not None:
            numbers = "; ".join(_short(s) for s in summaries if s.case.changed == change)
            yield row("sensitivity", f"{change[0]} = {change[1]}", "MR1 (utilisation, throughput, QoS) %", "", numbers)


def _short(summary: Summary) -> str:
    case = summary.case
    hcr = 100 * case.shares[0] / sum(case.shares)
    where = f"{case.approach.name} e{case.error:g}" + (f" HCR {hcr:.0f}" if hcr != 20 else "")
    return (
        f"{where}: {summary.misses[1].value:.1f} ({summary.utilisation.value:.0f}, {summary.throughput.value:.0f}, "
        f"{summary.quality.value:.0f})"
    )
