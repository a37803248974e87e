"""A server in a process of its own, to be killed: `kill_worker.py HOME PORT ENGINE ARCHITECTURE
[BROKERS]`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conftest import KEY, cheap_passwords

from headgate.egress.delivery_log import DeliveryLog
from headgate.egress.level_logs import LevelLogs
from headgate.egress.owner_files import OwnerFiles
from headgate.server.apart import levels_apart
from headgate.server.app import Parts
from headgate.server.engine import SparkEngine
from headgate.server.home import secret
from headgate.server.ingress import open_log
from headgate.server.level_settings import LevelUse
from headgate.server.positions import Positions
from headgate.server.serve import Serving
from headgate.server.settings import Settings
from headgate.service import Headgate
from headgate.service.folders import Folders
from headgate.service.runs import LevelsApart
from server.engines import DirectEngine

SHARE = 50
"""Of S: with the usual one it gets a thousandth of a machine on which ten other sessions work."""


def main(home: Path, port: int, kind: str, architecture: str, brokers: str = "") -> None:
    settings = Settings(port=port, heartbeat_seconds=1, architecture=architecture, kafka_servers=brokers)
    headgate = Headgate(f"sqlite:///{home / 'headgate.db'}", KEY, passwords=cheap_passwords())
    log = DeliveryLog(home / "engine" / "delivery")
    place = home / "engine" / "owners"
    owners = OwnerFiles(place, Folders(headgate))
    ingress, source = open_log(home / "ingress", settings)
    logs = LevelLogs(lambda level: DeliveryLog(home / "engine" / "level-delivery" / level.encode().hex()))
    together = architecture == "trusted"

    def apart() -> LevelsApart:
        return levels_apart(headgate, home / "engine", place, logs, architecture, uses={"S": LevelUse(SHARE)})

    engine: DirectEngine | SparkEngine
    if kind == "direct":
        levels = None if together else apart()
        engine = DirectEngine(headgate, home / "engine", [owners, log], home / "ingress", levels)
    else:
        engine = SparkEngine(
            headgate,
            home / "engine",
            lambda: [owners, log],
            master="local[2]",
            ingress=source,
            levels=None if together else apart,
        )
    positions = Positions(secret(home / "positions.key"))
    parts = Parts(headgate, engine, log, ingress, positions, settings, place, level_logs=None if together else logs)
    Serving(parts, home, lambda address: print(address, flush=True)).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
