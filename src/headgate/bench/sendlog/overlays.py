"""What signatures and provenance cost in overlays: Chord, PIER over Chord, and packets that are traced back."""

from __future__ import annotations

from headgate.bench.harness import Progress, Report
from headgate.bench.sendlog.bench import Sizes, measure

QUICK = Sizes(chord=(16,), pier=(50,), tracing=(16,))
FULL = Sizes(chord=(16, 32, 64, 128), pier=(100, 200, 400), tracing=(16, 32, 64, 128), rsa=400)


def run(quick: bool, progress: Progress) -> Report:
    return measure(QUICK if quick else FULL, progress)
