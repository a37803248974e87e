from __future__ import annotations

import pytest

from headgate.errors import Conflict, NotFound
from headgate.labels.levels import Level, LevelOrder
from headgate.realtime.access import readable, writable
from headgate.realtime.lattice import MILLISECOND, Lattice

from .lattices import DIAMOND, FORK, THREE, TWO, lattice


def test_dominated_levels_come_first() -> None:
    mixed = lattice(T="A B", B="U", A="U", U="")
    assert [str(level) for level in mixed.levels] == ["U", "A", "B", "T"]


def test_compartments_are_part_of_a_level() -> None:
    plain, special = Level("S"), Level("S", frozenset({"crypto"}))
    both = Lattice.of(LevelOrder.total("U", "S"), [special, plain])
    assert both.levels == (plain, special)
    assert both.dominates.tolist() == [[True, False], [True, True]]


def test_maximal_chains_cover_incomparable_levels() -> None:
    assert DIAMOND.maximal_chains() == [(0, 1, 3), (0, 2, 3)]
    assert DIAMOND.maximal_chains(1) == [(1, 3)]
    assert FORK.maximal_chains() == [(0, 1), (0, 2)]


def test_the_table_of_slots_leaves_each_upper_level_its_share() -> None:
    table = [(slot.chain, slot.duration / MILLISECOND) for slot in TWO.slots(0.15, 10 * MILLISECOND)]
    assert table == [((0, 1), 8.5), ((1,), 1.5)]
    table = [(slot.chain, slot.duration / MILLISECOND) for slot in DIAMOND.slots(0.1, 10 * MILLISECOND)]
    assert table == [((0, 1, 3), 3.5), ((0, 2, 3), 3.5), ((1, 3), 1.0), ((2, 3), 1.0), ((3,), 1.0)]
    assert [slot.chain for slot in THREE.slots(0.0, MILLISECOND)] == [(0, 1, 2)]


def test_more_than_the_whole_processor_cannot_be_reserved() -> None:
    with pytest.raises(Conflict) as error:
        DIAMOND.slots(0.4, MILLISECOND)
    assert str(error.value) == "cannot reserve `0.4` of the processor for each of 3 levels (reserve less than 0.333)"


def test_bad_levels_are_refused() -> None:
    order = LevelOrder.total("U", "S")
    with pytest.raises(NotFound, match="cannot schedule level `X`: the order of levels does not know it"):
        Lattice.of(order, [Level("X")])
    with pytest.raises(Conflict, match="cannot schedule a level twice: name each level once"):
        Lattice((Level("U"), Level("U")), order)
    with pytest.raises(Conflict, match="cannot schedule without levels: name at least one"):
        Lattice((), order)
    with pytest.raises(Conflict, match="cannot place level `S` before `U`: it dominates it"):
        Lattice((Level("S"), Level("U")), order)
    with pytest.raises(NotFound, match="cannot find level `S`: the database holds no such level"):
        Lattice((Level("U"),), order).number(Level("S"))


def test_bell_lapadula_reads_below_and_writes_above_or_equal() -> None:
    assert readable(TWO).tolist() == [[True, False], [True, True]]
    assert writable(TWO, "above").tolist() == [[True, True], [False, True]]
    assert writable(TWO, "equal").tolist() == [[True, False], [False, True]]
    assert not writable(DIAMOND, "above")[1, 2]
    assert not readable(DIAMOND)[1, 2]
