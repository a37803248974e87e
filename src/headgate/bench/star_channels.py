"""What an observer at `U` learns of a sender at `S` under each design: the attacks of `headgate bench star`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.bench.harness import Row
from headgate.bench.star_tables import row
from headgate.realtime.covert import OBSERVABLES, Attack, leaks, low_trace
from headgate.realtime.experiments import lattice_named
from headgate.realtime.lattice import Lattice
from headgate.realtime.settings import COVERT_AC, OPEN_AC, STAR, STRICT, Approach, Settings

CHANNELS: tuple[tuple[str, Approach], ...] = (
    ("Covert-AC", COVERT_AC),
    ("Open-AC: shared sum, no signal", OPEN_AC),
    ("STAR: shared sum, shared signal", STAR),
    ("shared sum, strict signal", Approach("sum", feedback="dominated", counted="shared")),
    ("strict sum, shared signal", Approach("signal", feedback="shared", counted="own")),
    ("strict STAR", STRICT),
)
SYMBOLS = (0.1, 0.25, 0.5, 1.0, 5.0, 10.0)


def channel_rows(seconds: float) -> Iterator[Row]:
    """What comes through surely, in bits per second, by the best symbol length."""
    both = lattice_named("2 levels")
    kinds = {
        "estimates count until the end": Settings(),
        "estimates count until the deadline": Settings()
        .but("control.released", "deadline")
        .but("control.limit", 100.0),
    }
    for kind, settings in kinds.items():
        for name, approach in CHANNELS:
            told = f"{_learned(both, approach, settings, seconds)}; {_compared(both, approach, settings, seconds)}"
            yield row("covert channels", f"{name}; {kind}", "bits per second; low trace", "", told)


def _learned(both: Lattice, approach: Approach, settings: Settings, seconds: float) -> str:
    best = dict.fromkeys(OBSERVABLES, (0.0, 0.0))
    for symbol in SYMBOLS:
        for leak in leaks(both, approach, Attack(symbol_s=symbol, seconds=seconds), settings):
            best[leak.observable] = max(best[leak.observable], (leak.bits_per_second, symbol))
    return ", ".join(
        f"{observable} {bits:.2f} ({symbol:g} s)" if bits >= 0.005 else f"{observable} 0"
        for observable, (bits, symbol) in best.items()
    )


def _compared(both: Lattice, approach: Approach, settings: Settings, seconds: float) -> str:
    """The whole trace of the low level under a sender that never sends and one that always does."""
    attack = Attack(symbol_s=1.0, seconds=min(seconds, 300.0))
    symbols = int(attack.seconds)
    silent, noisy = (low_trace(both, approach, attack, np.full(symbols, bit), settings) for bit in (False, True))
    return "identical" if np.array_equal(silent, noisy) else "different"
