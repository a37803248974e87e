"""The dictionary of labels: numbers stay, unused labels are forgotten, and a version writes only new labels."""

from __future__ import annotations

import json
from pathlib import Path

from worlds.harness import Bench, Row, stream

from headgate.labels import parse_label
from headgate.model.snapshot import CatalogSnapshot
from headgate.model.stream import StreamDescriptor
from headgate.recovery.state import StateFolder
from headgate.visibility.dictionary import MOST_UNUSED, Dictionary

LABEL = "r0 | (a{0} & b{0} & c{0}) | (d{0} & e{0} & f{0})"


def rows(begin: int, size: int) -> list[Row]:
    return [(LABEL.format(n), n) for n in range(begin, begin + size)]


def watched(home: Path, text: str) -> Bench:
    bench = Bench(home, stream("s", "v INT"), skew=None)
    bench.query("q", text)
    bench.subscribed(ann=("q", "r0"), eve=("q", "a1,b1,c1"))
    bench.begin()
    return bench


def size_of(bench: Bench) -> int:
    assert bench.pipeline is not None
    return len(bench.pipeline._shared.graph.dictionary.labels)


def test_labels_that_never_repeat_are_forgotten_with_their_tuples(tmp_path: Path) -> None:
    bench = watched(tmp_path, "SELECT v FROM s")
    sizes, written = [], []
    for batch in range(12):
        bench.take("s", *rows(500 * batch, 500))
        sizes.append(size_of(bench))
        kept = max((tmp_path / "state").glob("manifest-*")), *(tmp_path / "state").glob("labels-*")
        written.append(sum(x.stat().st_size for x in kept))
    assert max(sizes) <= MOST_UNUSED + 1000
    assert max(written[6:]) < 1.5 * max(written[:6])  # neither memory nor what is written grows
    assert bench.fetched("ann", "q") == [(n,) for n in range(6000)]
    assert bench.fetched("eve", "q") == [(1,)]


def test_labels_of_tuples_in_windows_are_kept_and_a_restart_knows_them(tmp_path: Path) -> None:
    bench = watched(tmp_path, "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [ROWS 3]")
    for batch in range(6):
        bench.take("s", *rows(500 * batch, 500))
    assert bench.pipeline is not None
    bench.pipeline.close()
    bench.begin()
    bench.take("s", *rows(3000, 2))
    bench.end()
    found = bench.fetched("ann", "q")
    assert found[-1] == (3, 2999 + 3000 + 3001)


def test_a_right_that_is_lost_takes_tuples_whose_labels_came_before_some_were_forgotten(tmp_path: Path) -> None:
    bench = watched(tmp_path, "SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    bench.take("s", ("vip", 0), *rows(0, 3))
    for batch in range(1, 6):
        bench.take("s", *((LABEL.format(f"x{batch}{n}").replace("r0", "other"), n) for n in range(500)))
    bench.subscribed(ann=("q", "r0,vip"), eve=("q", "a1,b1,c1"))
    bench.take("s", ("r0", 7))
    bench.subscribed(ann=("q", "vip"), eve=("q", "a1,b1,c1"))
    bench.take("s", ("vip", 8))
    bench.end()
    assert bench.fetched("ann", "q")[-1] == (1,)  # what needed r0 is gone; `vip` was gained after the first came


def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    dictionary, states = Dictionary(), StateFolder(tmp_path)
    first = [dictionary.number(parse_label(f"r{n}")) for n in range(5)]
    plain = dictionary.save(states, 1)
    dictionary.forget({first[0]})
    assert dictionary.number(parse_label("r4")) == 5
    plain = json.loads(json.dumps(dictionary.save(states, 2)))
    again = Dictionary()
    again.restore(states, plain)
    assert again.number(parse_label("r0")) == first[0]
    assert again.number(parse_label("new")) == 6


def test_protecting_labels_again_with_the_same_policies_changes_nothing() -> None:
    """An aggregate of a source with a policy is protected by aggregates of that policy's sources only."""
    policy = parse_label("nurse FROM lab")
    now = CatalogSnapshot(descriptors={"s": StreamDescriptor("s", (), policy=policy)})
    raw = now.rules.combine(policy, parse_label("TRUE FROM s"))
    for label in (raw, raw.as_aggregate()):
        assert now.protected(label) == label
    assert now.protected(parse_label("TRUE FROM s").as_aggregate()) == raw.as_aggregate()
