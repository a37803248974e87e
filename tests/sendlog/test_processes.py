"""Principals as processes on loopback addresses: loss, delay, restarts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headgate.sendlog.cluster import Cluster
from headgate.sendlog.network import Network
from headgate.sendlog.programs import text
from headgate.sendlog.settings import Settings
from sendlog.graphs import topology
from sendlog.hosts import GATEWAY, hosts


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


@pytest.mark.long
def test_principals_on_hosts_of_their_own_agree_with_the_embedded_network(tmp_path: Path) -> None:
    names, facts = topology(5, 3, seed=7)
    expected = Network(text("best_path"), names, Settings("none"))
    expected.insert(facts)
    expected.run()
    try:
        with (
            hosts(names) as places,
            Cluster(tmp_path, text("best_path"), names, places=places, authority_host=GATEWAY, loss=0.1) as cluster,
        ):
            for name in names:
                cluster.ask(name, insert=facts[name])
            cluster.settle()
            assert {name: cluster.rows(name, "best") for name in names} == {n: expected.rows(n, "best") for n in names}
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine does not allow network namespaces: {error}")
