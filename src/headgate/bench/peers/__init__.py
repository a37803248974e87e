"""Other stream engines on the same work, to compare Headgate with them.

    python -m headgate.bench.peers.data DATA --tuples 2000000      the streams, and what every result must be
    python -m headgate.bench.peers.structured W3r DATA WORK        one engine, one workload, one process; JSON

Results are compared, not only timed: each run reports the number and the checksum of every reader's results.
"""
