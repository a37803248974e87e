"""Runs SQL on Flink in this process and measures it. Runs in the Python of `.peers/flink`, not in Headgate's.

Reads {"settings": {...}, "jobs": [{"statements": [...], "inserts": [...]}], "begun": FILE} from standard input. The
inserts of a job are run together, one job after the other; the modification time of FILE is when the last one began.
Writes one line of JSON about the last job: `seconds` is its own time by Flink's clock, from its creation until its last
task had ended and its files were committed; `wall` also includes planning and the start of the local cluster.
"""

import json
import sys
import time
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    task = json.load(sys.stdin)
    settings = Configuration()
    for key, value in task["settings"].items():
        settings.set_string(key, value)
    for job in task["jobs"]:
        Path(task["begun"]).touch()
        seconds, wall = run(settings, job)
    print(json.dumps({"seconds": seconds, "wall": wall}))


def run(settings: Configuration, job: dict[str, list[str]]) -> tuple[float, float]:
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    start = time.perf_counter()
    for statement in job["statements"]:
        tables.execute_sql(statement)
    inserts = tables.create_statement_set()
    for insert in job["inserts"]:
        inserts.add_insert_sql(insert)
    client = inserts.execute().get_job_client()
    result = client.get_job_execution_result().result()
    return result.get_net_runtime() / 1000, time.perf_counter() - start


main()
