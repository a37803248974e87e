"""Compiled or not, the state machines are the same."""

from __future__ import annotations

import os
import subprocess
import sys

RUN = """
from hashlib import sha256
from headgate.realtime.experiments import lattice_named
from headgate.realtime.settings import STRICT
from headgate.realtime.simulator import Simulation
from headgate.realtime.workload import Load

simulation = Simulation(lattice_named("5 with a diamond"), STRICT, Load((40,) * 5, error=1.0, seconds=5.0), log=100_000)
samples = list(simulation.samples())
print(int(simulation.state.log_count[0]), sha256(simulation.state.log.tobytes()).hexdigest())
"""


def test_a_run_has_the_same_events_compiled_and_uncompiled() -> None:
    told = []
    for disabled in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
        done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
        told.append(done.stdout)
    assert told[0] == told[1]
    assert int(told[0].split()[0]) > 1000
