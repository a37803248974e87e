"""Lanes: partitions stay where they are unless one lane has much more to do than the others."""

from __future__ import annotations

from headgate.execution.tasks.lanes import Lanes

NAMES = [("s.k", number) for number in range(8)]


def test_partitions_are_assigned_evenly_and_stay() -> None:
    lanes = Lanes()
    assigned = lanes.assigned(NAMES, 2)
    assert assigned == [NAMES[:4], NAMES[4:]]
    lanes.note(dict.fromkeys(NAMES, 1.0))
    assert lanes.assigned(NAMES, 2) == assigned
    assert [len(own) for own in lanes.assigned(NAMES, 3)] == [3, 3, 2]


def test_there_are_no_more_lanes_than_partitions() -> None:
    assert Lanes().assigned(NAMES[:1], 4) == [NAMES[:1]]


def test_partitions_move_from_a_busy_lane_to_an_idle_one() -> None:
    lanes = Lanes()
    lanes.assigned(NAMES, 2)
    lanes.note({NAMES[0]: 1.0, NAMES[1]: 1.0, NAMES[2]: 1.0, NAMES[3]: 1.0})
    one, other = lanes.assigned(NAMES, 2)
    assert len(set(one) & set(NAMES[:4])) == len(set(other) & set(NAMES[:4])) == 2
    assert sorted(one + other) == NAMES


def test_partitions_stay_if_a_lane_is_busy_for_a_moment_or_with_one_partition() -> None:
    lanes = Lanes()
    assigned = lanes.assigned(NAMES, 2)
    lanes.note({NAMES[0]: 0.2, NAMES[1]: 0.2})
    assert lanes.assigned(NAMES, 2) == assigned
    lanes.note({NAMES[0]: 9.0})
    assert lanes.assigned(NAMES, 2) == assigned
