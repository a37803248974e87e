"""Simulated runs: no trace of higher levels, conservation of work, and the workload itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headgate.errors import Conflict
from headgate.realtime.arrays import Records
from headgate.realtime.lattice import SECOND, Lattice
from headgate.realtime.settings import APPROACHES, COVERT_AC, OPEN, OPEN_AC, STAR, STRICT, Approach, Model, Settings
from headgate.realtime.simulator import Simulation
from headgate.realtime.workload import Load, generate, item_levels

from .lattices import DIAMOND, FIVE, TWO

ROOM = 3_000_000


def run(lattice: Lattice, approach: Approach, load: Load, log: int = ROOM) -> tuple[Simulation, Records, list[Any]]:
    simulation = Simulation(lattice, approach, load, log=log)
    samples = list(simulation.samples())
    count = int(simulation.state.log_count[0])
    assert count <= log or not log
    return simulation, simulation.state.log[:count], samples


@pytest.mark.parametrize(("lattice", "shares"), [(TWO, (120, 80)), (DIAMOND, (30, 40, 60, 70)), (FIVE, (40,) * 5)])
def test_the_strict_trace_of_a_level_is_the_same_with_and_without_load_above(
    lattice: Lattice, shares: tuple[float, ...]
) -> None:
    load = Load(shares, error=1.0, seconds=20.0, seed=3)
    _, everything, samples = run(lattice, STRICT, load)
    for k in range(len(lattice.levels) - 1):
        below = lattice.dominates[k]
        alone = Load(tuple(s if below[j] else 0.0 for j, s in enumerate(shares)), error=1.0, seconds=20.0, seed=3)
        _, trace, low_samples = run(lattice, STRICT, alone)
        assert np.array_equal(everything[below[everything["level"]]], trace)
        assert len(trace) > 3_000
        for with_load, without in zip(samples, low_samples, strict=True):
            assert [with_load.quality[j] for j in np.flatnonzero(below)] == [
                without.quality[j] for j in np.flatnonzero(below)
            ]
            assert [with_load.limit[j] for j in np.flatnonzero(below)] == [
                without.limit[j] for j in np.flatnonzero(below)
            ]


@pytest.mark.parametrize("approach", [OPEN_AC, COVERT_AC, STAR])
def test_the_low_trace_of_the_other_approaches_depends_on_high_load(approach: Approach) -> None:
    """The same comparison finds the channels where they are open."""
    _, everything, _ = run(TWO, approach, Load((60, 140), seconds=20.0))
    _, alone, _ = run(TWO, approach, Load((60, 0), seconds=20.0))
    assert not np.array_equal(everything[everything["level"] == 0], alone)


def test_without_admission_the_scheduler_and_the_locks_hide_the_high_level() -> None:
    _, everything, _ = run(TWO, OPEN, Load((60, 140), seconds=20.0))
    _, alone, _ = run(TWO, OPEN, Load((60, 0), seconds=20.0))
    assert np.array_equal(everything[everything["level"] == 0], alone)


@pytest.mark.parametrize("approach", APPROACHES)
def test_work_is_conserved(approach: Approach) -> None:
    simulation, log, samples = run(TWO, approach, Load((60, 140), error=0.5, seconds=20.0))
    levels = simulation.state.levels
    inside = simulation.state.queue_count.sum()
    assert (levels["admitted"] == levels["timely"] + levels["tardy"]).sum() >= 2 - inside
    assert levels["admitted"].sum() == levels["timely"].sum() + levels["tardy"].sum() + inside
    assert levels["busy"].sum() <= 20 * SECOND
    assert all(sum(sample.utilisation) <= 100 for sample in samples)
    assert (np.diff(log["time"]) >= 0).all()
    # What committed in time cannot have taken more than there is: the bound that the paper's own pair exceeds.
    done = log[log["event"] == 6]
    assert len(done) == levels["timely"].sum()


def test_under_light_load_everything_is_on_time_and_utilisation_is_the_load() -> None:
    simulation, _, _ = run(TWO, OPEN, Load((10, 40), seconds=200.0), log=0)
    levels = simulation.state.levels
    assert levels["tardy"].sum() == 0
    assert 100 * levels["busy"].sum() / (200 * SECOND) == pytest.approx(50, abs=1.5)


def test_the_same_seed_gives_the_same_run_and_another_one_does_not() -> None:
    traces = [run(TWO, STAR, Load((40, 160), seconds=10.0, seed=seed))[1] for seed in (1, 1, 2)]
    assert np.array_equal(traces[0], traces[1])
    assert not np.array_equal(traces[0], traces[2])


def test_the_workload_is_as_the_paper_describes_it() -> None:
    model, load = Model(), Load((40, 160), error=1.0, seconds=300.0)
    script = generate(TWO, load, model)
    estimate, slack = script.estimate / 1e6, (script.deadline - script.time) / script.estimate / 2
    assert estimate.min() >= 5 and estimate.max() <= 20
    assert slack.min() > 9.99 and slack.max() < 20.01
    for level, share in ((0, 40), (1, 160)):
        mine = script.level == level
        assert 100 * script.work[mine].sum() / (300 * SECOND) == pytest.approx(share, rel=0.05)
    assert 100 * (script.level == 0).mean() == pytest.approx(20, abs=1)  # HCR
    accesses = np.diff(script.first)
    assert accesses.min() >= 1
    assert accesses.mean() == pytest.approx(12.5, abs=0.5)
    assert script.mode.mean() == pytest.approx(model.write_share, abs=0.01)


def test_the_workload_respects_the_access_rules() -> None:
    levels = item_levels(DIAMOND, 1000, Model())
    assert np.bincount(levels).tolist() == [500, 167, 167, 166]
    script = generate(DIAMOND, Load((10, 10, 10, 10), seconds=50.0), Model())
    who = np.repeat(script.level, np.diff(script.first))
    what = levels[script.item]
    reads = script.mode == 0
    assert DIAMOND.dominates[who[reads], what[reads]].all()
    assert DIAMOND.dominates[what[~reads], who[~reads]].all()
    assert (what[~reads] != who[~reads]).any()


def test_a_level_sends_the_same_whatever_the_others_send() -> None:
    both, alone = (generate(TWO, Load((40, high), seconds=20.0), Model()) for high in (160, 0))
    mine = both.level == 0
    assert np.array_equal(both.time[mine], alone.time)
    assert np.array_equal(both.item[np.repeat(mine, np.diff(both.first))], alone.item)


def test_bad_loads_and_settings_are_refused() -> None:
    with pytest.raises(
        Conflict, match="cannot apply this load: each level needs 0 or more, and one of them more than 0"
    ):
        Load((0, 0))
    with pytest.raises(Conflict, match="cannot apply an estimation error of `-1`: it must be more than -1"):
        Load((1, 1), error=-1)
    with pytest.raises(Conflict, match="cannot apply this load: it needs an item for each level and some time"):
        Load((1, 1), items=1)
    with pytest.raises(Conflict, match="cannot apply 3 loads to 2 levels: give one for each"):
        Simulation(TWO, STAR, Load((1, 1, 1)))
    with pytest.raises(Conflict, match=r"cannot change setting `control\.nothing`: there is no such setting"):
        Settings().but("control.nothing", 1)
