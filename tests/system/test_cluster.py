"""A standalone cluster: `headgate run` and `spark-submit` work there, though its workers are another user's processes
who cannot read the home of the driver."""

from __future__ import annotations

import datetime as dt
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import headgate.submit
from headgate.cli import main

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
def master() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="headgate-cluster-"))
    folder.chmod(0o755)
    script = str(ROOT / "scripts/cluster.sh")
    env = os.environ | {"PYTHON": sys.executable}
    started = subprocess.run(
        [script, "start", str(folder)], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert started.returncode == 0, started.stderr
    try:
        yield started.stdout.strip().splitlines()[-1]
    finally:
        subprocess.run([script, "stop", str(folder)], env=env, timeout=120, check=True)
        shutil.rmtree(folder)


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
  SOURCE parquet (path = '{shared}/parquet');
CREATE QUERY sums AS SELECT k, SUM(v) AS total, COUNT(*) AS n FROM w [UNBOUNDED] GROUP BY k;
START QUERY sums; SUBSCRIBE TO sums;
"""


def in_tasks(words: list[str], master: str, settings: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    run = ["run", "--everyone", "--out", str(out), "--execution", "tasks", "--partitions", "3", "--master", master]
    run += ["--conf-from", str(settings), *more]
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    return subprocess.Popen(
        [*COMMAND, *words, *run], env=own | {"PYTHONPATH": str(ROOT / "src")}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def with_windows(folder: Path, shared: Path, rows: int) -> list[str]:
    """A home whose query has windows over a Parquet file; keys 0 to 9, and the values 0, 1, 2 and so on."""
    (shared / "parquet").mkdir(exist_ok=True)
    file = shared / "parquet" / "1.parquet"
    begin = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
    times = pa.array([begin + dt.timedelta(milliseconds=n) for n in range(rows)], pa.timestamp("us", "UTC"))
    numbers = np.arange(rows, dtype=np.int32)
    pq.write_table(pa.table({"k": numbers % 10, "v": numbers, "at": times}), file, row_group_size=max(1, rows // 6))
    for path in (shared / "parquet", file):
        path.chmod(0o755)
    words = home_of(folder, shared)
    result = CliRunner().invoke(main, [*words, "run", "-", "--statements-only"], input=WINDOWS.format(shared=shared))
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
    process = in_tasks(words, master, environment, out, "--state", f"file://{private}/state")
    _, error = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "it cannot read and write the state at" in error and "Traceback" not in error
