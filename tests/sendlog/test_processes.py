"""Principals as processes on loopback addresses: loss, delay, restarts."""

from __future__ import annotations

from pathlib import Path

from headgate.sendlog.cluster import Cluster
from headgate.sendlog.network import Network
from headgate.sendlog.programs import text
from headgate.sendlog.settings import Settings
from sendlog.graphs import topology


def test_processes_agree_with_the_embedded_network_despite_loss_delay_and_a_restart(tmp_path: Path) -> None:
    names, facts = topology(4, 3, seed=2)
    expected = Network(text("best_path"), names, Settings("none"))
    expected.insert(facts)
    expected.run()
    with Cluster(tmp_path, text("best_path"), names, loss=0.15, delay=0.01) as cluster:
        for name in names:
            cluster.ask(name, insert=facts[name])
        cluster.settle()
        assert {name: cluster.rows(name, "best") for name in names} == {n: expected.rows(n, "best") for n in names}
        cluster.stop(names[1])
        cluster.start(names[1])
        cluster.ask(names[1], insert=facts[names[1]])
        cluster.settle()
        assert {name: cluster.rows(name, "best") for name in names} == {n: expected.rows(n, "best") for n in names}
