"""A standalone cluster: `headgate run` and `spark-submit` work there, though its workers are another user's processes
who cannot read the home of the driver."""

from __future__ import annotations

import datetime as dt
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import headgate.submit
from headgate.cli import main
from headgate.recovery.state import StateFolder
from headgate.storage import LocalStorage

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PASSWORD = "correct horse"
COMMAND = (sys.executable, "-c", "from headgate.cli import main; main()")
SCRIPT = """
CREATE STREAM s (n INT, name STRING) SOURCE orc (path = '{shared}/in');
CREATE QUERY q AS SELECT n, name WHERE n > 1 FROM s;
START QUERY q; SUBSCRIBE TO q;
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A folder that driver and workers share. Where root runs the tests, the workers' group owns it."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-cluster-"))
    if os.geteuid() == 0:
        os.chown(folder, -1, pwd.getpwnam("nobody").pw_gid)
    folder.chmod(0o2770)
    (folder / "in").mkdir()
    pa.orc.write_table(pa.table({"n": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", "c"]}), folder / "in/1.orc")
    for path in (folder / "in", folder / "in/1.orc"):
        path.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Path, str]]:
    """Its folder, and the address of its master."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-cluster-"))
    folder.chmod(0o755)
    script = str(ROOT / "scripts/cluster.sh")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # workers have no code of ours
    env |= {"PYTHON": sys.executable}
    env |= {"SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1"}  # tests kill executors
    started = subprocess.run(
        [script, "start", str(folder)], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert started.returncode == 0, started.stderr
    try:
        yield folder, started.stdout.strip().splitlines()[-1]
    finally:
        subprocess.run([script, "stop", str(folder)], env=env, timeout=120, check=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def master(cluster: tuple[Path, str]) -> str:
    return cluster[1]


def home_of(folder: Path, shared: Path) -> list[str]:
    """A home that only its owner can read; the words that a command begins with."""
    words = ["--home", str(folder / "home"), "--session", str(folder / "session")]
    env = {"HEADGATE_PASSWORD": PASSWORD}
    for command, text in (
        (("init", "--admin", "joe"), ""),
        (("login", "joe"), ""),
        (("run", "-", "--statements-only"), SCRIPT.format(shared=shared)),
    ):
        result = CliRunner().invoke(main, [*words, *command], input=text, env=env)
        assert result.exit_code == 0, result.output
    return words


def settings_of(folder: Path) -> Path:
    file = folder / "spark.conf"
    file.write_text(
        "# the driver is on loopback, and the workers' group may write\n"
        "spark.driver.host 127.0.0.1\nspark.driver.bindAddress=127.0.0.1\n"
        "spark.hadoop.fs.permissions.umask-mode 007\nspark.executor.memory 512m\n"
    )
    return file


def check_results(out: Path) -> None:
    files = list(out.glob("part-*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert sorted(row["value"].partition('"values": ')[2] for row in rows) == [
        '{"n": 2, "name": "b"}}',
        '{"n": 3, "name": "c"}}',
    ]
    if os.geteuid() == 0:
        assert {pwd.getpwuid(file.stat().st_uid).pw_name for file in files} == {"nobody"}  # a worker wrote them


def test_a_query_runs_on_a_cluster(master: str, shared: Path, tmp_path: Path) -> None:
    words = home_of(tmp_path, shared)
    out = shared / "out"
    run = ["run", "--everyone", "--to", "parquet", "--option", f"path={out}", "--master", master]
    run += ["--conf-from", str(settings_of(tmp_path)), "--conf", "spark.cores.max=3"]
    done = subprocess.run(
        [*COMMAND, *words, *run], capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "joe.q   2" in done.stdout.replace("joe         ", "")
    check_results(out)


def test_spark_submit_runs_a_query_on_a_cluster(master: str, shared: Path, tmp_path: Path) -> None:
    import pyspark

    words = home_of(tmp_path, shared)
    out = shared / "submitted"
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    command = [str(submit), "--master", master, "--properties-file", str(settings_of(tmp_path))]
    command += [headgate.submit.__file__, *words, "run", "--everyone", "--to", "parquet", "--option", f"path={out}"]
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=env, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    check_results(out)


def test_workers_are_asked_what_they_lack_and_an_archive_brings_it(master: str, tmp_path: Path) -> None:
    def check(*more: str, **env: str) -> subprocess.CompletedProcess[str]:
        words = ["cluster", "check", "--master", master, "--conf-from", str(settings_of(tmp_path)), *more]
        own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        own |= {"PYTHONPATH": str(ROOT / "src")} | env
        return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=240, env=own, check=False)

    bare = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    lacking = check("--conf", f"spark.pyspark.python={shutil.which(bare, path=os.defpath) or bare}")
    assert lacking.returncode == 1
    assert "its Python cannot import headgate (ModuleNotFoundError)" in lacking.stderr
    archive = tmp_path / "env.tar.gz"
    packed = CliRunner().invoke(main, ["cluster", "package", str(archive)])
    assert packed.exit_code == 0, packed.output
    settings = tmp_path / "env.conf"
    settings.write_text(settings.read_text() + settings_of(tmp_path).read_text())
    found = check("--conf-from", str(settings))
    assert (found.returncode, found.stdout) == (0, "3 slots of the cluster can run Headgate\n"), found.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings that bring our code to the workers."""
    folder = tmp_path_factory.mktemp("environment")
    packed = CliRunner().invoke(main, ["cluster", "package", str(folder / "env.tar.gz")])
    assert packed.exit_code == 0, packed.output
    settings = folder / "env.conf"
    settings.write_text(settings.read_text() + settings_of(folder).read_text())
    return settings


WINDOWS = """
CREATE STREAM w (k INT, v INT, at TIMESTAMP) EVENT TIME at LATENESS 1 SECONDS
  SOURCE parquet (path = '{given}', maxFilesPerTrigger = '1');
CREATE QUERY sums AS SELECT k, SUM(v) AS total, COUNT(*) AS n FROM w [UNBOUNDED] GROUP BY k;
START QUERY sums; SUBSCRIBE TO sums;
"""


def in_tasks(
    words: list[str], master: str, settings: Path, out: Path, *more: str, errors: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    run = ["run", "--everyone", "--out", str(out), "--execution", "tasks", "--partitions", "3", "--master", master]
    run += ["--conf-from", str(settings), *more]
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    said = errors if errors == subprocess.PIPE else subprocess.DEVNULL  # a pipe that nobody reads is full some time
    return subprocess.Popen(
        [*COMMAND, *words, *run], env=own | {"PYTHONPATH": str(ROOT / "src")}, stdin=subprocess.DEVNULL,
        stdout=said, stderr=errors, text=True, start_new_session=True,
    )  # fmt: skip


def with_windows(folder: Path, shared: Path, rows: int, files: int = 1) -> list[str]:
    """A home whose query has windows over Parquet files, of which a batch has one; keys 0 to 9, and the values 0, 1, 2
    and so on."""
    given = shared / f"parquet-{rows}-{files}"
    given.mkdir(exist_ok=True)
    begin, each = dt.datetime(2024, 3, 1, tzinfo=dt.UTC), rows // files
    for number in range(files):
        numbers = np.arange(number * each, (number + 1) * each, dtype=np.int32)
        times = pa.array([begin + dt.timedelta(milliseconds=int(n)) for n in numbers], pa.timestamp("us", "UTC"))
        table, file = pa.table({"k": numbers % 10, "v": numbers, "at": times}), given / f"{number:03}.parquet"
        pq.write_table(table, file, row_group_size=max(1, each // 6))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        file.chmod(0o755)
    given.chmod(0o755)
    words = home_of(folder, shared)
    result = CliRunner().invoke(main, [*words, "run", "-", "--statements-only"], input=WINDOWS.format(given=given))
    assert result.exit_code == 0, result.output
    return words


def totals(out: Path) -> dict[int, int]:
    """The last total of each key."""
    lines = (out / "joe" / "joe.sums.jsonl").read_text().splitlines()
    return {x["values"]["k"]: x["values"]["total"] for x in map(json.loads, lines) if "values" in x}


def test_windows_are_computed_by_workers_that_reach_the_state(
    master: str, shared: Path, environment: Path, tmp_path: Path
) -> None:
    rows = 6000
    words, out = with_windows(tmp_path, shared, rows), tmp_path / "out"
    state = shared / "state"
    process = in_tasks(words, master, environment, out, "--state", f"file://{state}")
    said, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert totals(out) == {k: sum(range(k, rows, 10)) for k in range(10)}
    written = list((state / "engine" / "state").glob("*.arrow"))
    assert written, said
    if os.geteuid() == 0:
        assert "nobody" in {pwd.getpwuid(file.stat().st_uid).pw_name for file in written}


def test_tasks_are_refused_with_one_line_where_workers_do_not_reach_the_state(
    master: str, shared: Path, environment: Path, tmp_path: Path
) -> None:
    words, out = with_windows(tmp_path, shared, 60), tmp_path / "out"
    process = in_tasks(words, master, environment, out)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "its workers do not reach the state in a home folder" in error and "Traceback" not in error
    if os.geteuid() != 0:
        return  # the workers are the same user
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    process = in_tasks(words, master, environment, tmp_path / "other", "--state", f"file://{private}/state")
    _, error = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "it cannot read and write the state at" in error and "Traceback" not in error


# Kills ----------------------------------------------------------------------------------------------------------------

KILLS = int(os.environ.get("HEADGATE_KILLS", "3"))
FILES = 2 * KILLS + 6
"""Each is a batch; after a kill the next batch must go well."""
ROWS = 2000 * FILES


def results(out: Path) -> list[tuple[int, int, int]]:
    """All results, in the order of their keys and counts; each comes once."""
    lines = (out / "joe" / "joe.sums.jsonl").read_text().splitlines()
    values = [x["values"] for x in map(json.loads, lines) if "values" in x]
    return sorted((x["k"], x["n"], x["total"]) for x in values)


def expected() -> list[tuple[int, int, int]]:
    """A sum for each tuple: of its key, up to this tuple."""
    return sorted((k, n + 1, sum(range(k, k + 10 * n + 1, 10))) for k in range(10) for n in range(ROWS // 10))


def processes_of(folder: Path) -> list[int]:
    """The executors of a cluster and their Python processes, but not the workers that start executors again."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_bytes()
            ours = os.readlink(process / "cwd").startswith(str(folder))
            if ours and (b"pyspark.daemon" in line or b"CoarseGrainedExecutorBackend" in line):
                found.append(int(process.name))
    return found


def no_orphans(state: Path) -> None:
    """Every segment is named by a version that is kept: the last start removed what attempts had left."""
    folder = state / "engine" / "state"
    segments = {name for name in LocalStorage(folder).names() if name.endswith(".arrow")}
    assert segments and segments <= set[str]().union(*StateFolder(folder)._files.values())


def test_workers_that_are_killed_in_mid_batch_lose_nothing_and_repeat_nothing(
    cluster: tuple[Path, str], shared: Path, environment: Path, tmp_path: Path
) -> None:
    folder, master = cluster
    words, out, state = with_windows(tmp_path, shared, ROWS, FILES), tmp_path / "out", shared / "killed-workers"
    log, place = tmp_path / "log", ("--state", f"file://{state}")
    rng, killed = Random(15), 0
    with log.open("w") as errors:
        process = in_tasks(["--log-level", "info", *words], master, environment, out, *place, errors=errors.fileno())
        seen = 0
        while process.poll() is None:
            done = log.read_text().count("batch done")
            mine = processes_of(folder)
            if killed < KILLS and done > seen and mine:  # in the batch after one that went well
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(mine), signal.SIGKILL)
                    killed, seen = killed + 1, done
            time.sleep(0.2)
    assert process.returncode == 0, log.read_text()[-3000:]
    assert killed == KILLS and results(out) == expected()


def test_a_driver_that_is_killed_goes_on_and_repeats_nothing(
    cluster: tuple[Path, str], shared: Path, environment: Path, tmp_path: Path
) -> None:
    words, out, state = with_windows(tmp_path, shared, ROWS, FILES), tmp_path / "out", shared / "killed-drivers"
    rng, master, place = Random(16), cluster[1], ("--state", f"file://{state}")
    for number in range(KILLS + 1):
        log = tmp_path / f"log-{number}"
        with log.open("w") as errors:
            process = in_tasks(
                ["--log-level", "info", *words], master, environment, out, *place, errors=errors.fileno()
            )
            after = rng.randrange(1, 3)
            while process.poll() is None:
                if number < KILLS and log.read_text().count("batch done") >= after:
                    time.sleep(rng.random())  # anywhere in the next batch
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                time.sleep(0.1)
        assert number < KILLS or process.returncode == 0, log.read_text()[-3000:]
    assert results(out) == expected()
    no_orphans(state)
