"""An ingress log in topics, in a process of its own, to be killed: `topic_worker.py FOLDER BROKERS`. Reads requests
`PRODUCER NUMBER` and writes `PRODUCER NUMBER` when they are acknowledged, `PRODUCER -` when they are not taken."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.ingress.sequence_numbers import Acknowledged, Producer
from headgate.ingress.topic_log import TopicLog
from headgate.ingress.topics import Brokers


def main(folder: Path, brokers: str) -> None:
    log = TopicLog(folder, Brokers(brokers), seconds=5)

    def answer(producer: str, number: int, future: Future[Acknowledged]) -> None:
        error = future.exception()
        if error is not None and not isinstance(error, HeadgateError):
            raise error
        print(producer, "-" if error is not None else number, error or "", flush=True)

    for line in sys.stdin:
        producer, text = line.split()
        number = int(text)
        table = pa.table({"who": [producer], "n": pa.array([number], pa.int64())})
        future = log.append(f"stream {number % 2}", table, Producer(producer, "U"), (number + 1) // 2)
        future.add_done_callback(lambda done, who=producer, what=number: answer(who, what, done))  # type: ignore[misc]
    log.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
