"""Runs SQL on Flink in this process and tells how long it took. Python of `.peers/flink`, not Headgate's.

Reads {"settings": {...}, "statements": [...], "inserts": [...]} from standard input; the inserts are one job.
Writes one line of JSON: `seconds` is the job's own time by Flink's clock, from when it was created until its last task
had ended and its files were committed; `wall` also has planning and the start of the local cluster.
"""

import json
import sys
import time

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    task = json.load(sys.stdin)
    settings = Configuration()
    for key, value in task["settings"].items():
        settings.set_string(key, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    start = time.perf_counter()
    for statement in task["statements"]:
        tables.execute_sql(statement)
    job = tables.create_statement_set()
    for insert in task["inserts"]:
        job.add_insert_sql(insert)
    client = job.execute().get_job_client()
    result = client.get_job_execution_result().result()
    wall = time.perf_counter() - start
    print(json.dumps({"seconds": result.get_net_runtime() / 1000, "wall": wall}))


main()
