"""What a cluster needs to run our code: an archive of it with its requirements, and a check that workers can use it."""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from pyspark.sql import SparkSession

import headgate
from headgate.errors import HeadgateError
from headgate.stores import StateLocation

FOLDER = "headgate_environment"
"""The folder that Spark unpacks the archive into, in the working directory of each executor."""
_OF_SPARK = frozenset({"pyspark", "py4j"})
"""Spark's workers have these."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def package(file: Path) -> Path:
    """Writes the archive, and beside it a file of Spark settings that use it; returns the latter. Workers need the same
    version of Python on the same kind of machine: libraries are compiled for both."""
    if not file.name.endswith(".tar.gz"):
        raise HeadgateError(f"cannot write `{file}`: the archive is a .tar.gz")
    new = file.with_name(f".{file.name}.new")
    try:
        with tarfile.open(new, "w:gz", compresslevel=1) as archive:
            archive.add(Path(headgate.__file__).parent, "headgate", filter=_shipped)
            for found in _required("headgate", {}).values():
                for part in found.files or ():
                    if ".." not in part.parts and part.parts[0] != "headgate":
                        archive.add(str(found.locate_file(part)), str(part), recursive=False, filter=_shipped)
        os.replace(new, file)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise HeadgateError(f"cannot write `{file}`: {(error.strerror or str(error)).lower()}") from None
    settings = file.with_name(f"{file.name.removesuffix('.tar.gz')}.conf")
    version = ".".join(map(str, sys.version_info[:2]))
    settings.write_text(
        f"spark.archives {file.resolve()}#{FOLDER}\n"
        f"spark.executorEnv.PYTHONPATH ./{FOLDER}\n"
        f"spark.pyspark.python python{version}\n"
        f"spark.pyspark.driver.python {sys.executable}\n"
    )
    return settings


def _shipped(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Nothing that was compiled here, no tests of others, and nothing of who owns the files here."""
    if not {"__pycache__", "tests", "include"}.isdisjoint(entry.name.split("/")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o444
    return entry


def _required(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """A distribution and all that it requires, as they are installed here."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found or key in _OF_SPARK:
        return found
    try:
        found[key] = distribution(name)
    except PackageNotFoundError:
        return found  # an optional one, or one for other machines
    for requirement in found[key].requires or ():
        needed, _, marker = requirement.partition(";")
        if "extra" not in marker and (match := _NAME.match(needed.strip())):
            _required(match[0], found)
    return found


def check_workers(spark: SparkSession, place: StateLocation | None) -> None:
    """Refuses tasks on a cluster whose workers cannot run our code or do not reach the state: each task reads and
    writes it."""
    master = str(spark.sparkContext.master)
    if master.startswith("local"):
        return
    if place is None:
        raise HeadgateError(
            f"cannot compute in tasks on `{master}`: its workers do not reach the state in a home folder",
            hint="keep the state where they do, with --state URI, or use --execution driver",
        )
    found = problems(spark, place)
    if found:
        raise HeadgateError(f"cannot compute in tasks on `{master}`: {found[0]}", hint="use --execution driver")


def problems(spark: SparkSession, place: StateLocation | None = None) -> list[str]:
    """What workers lack: a line for each, and none if all can run our code, and read and write at this place. All slots
    of the cluster are asked at the same time, so that each executor answers."""
    wanted, version = headgate.__version__, tuple(sys.version_info[:2])
    probes = None if place is None else place.below("probes")
    given = None if probes is None else (probes.uri, dict(probes.options))
    location = StateLocation.__name__

    def asked(number: int) -> list[str]:  # inside, so that it travels whole: workers may not have this module
        import importlib
        import socket
        import sys

        where = f"worker {socket.gethostname()}"
        if tuple(sys.version_info[:2]) != version:
            return [
                f"{where}: its Python is {sys.version_info[0]}.{sys.version_info[1]}, not {version[0]}.{version[1]}"
            ]
        for name in ("headgate", "numpy", "pyarrow", "duckdb", "numba"):
            try:
                module = importlib.import_module(name)
            except Exception as error:
                return [f"{where}: its Python cannot import {name} ({type(error).__name__})"]
            if name == "headgate" and module.__version__ != wanted:
                return [f"{where}: its headgate is {module.__version__}, not {wanted}"]
        if given is None:
            return []
        try:
            storage = getattr(importlib.import_module("headgate.stores"), location)(*given).storage()
            storage.read("driver")
            storage.write(f"worker-{number}", b"worker")
        except Exception as error:
            why = str(getattr(error, "strerror", None) or type(error).__name__).lower()
            return [f"{where}: it cannot read and write the state at `{given[0].rpartition('/')[0]}` ({why})"]
        return []

    context = spark.sparkContext
    slots = max(1, context.defaultParallelism)

    def ask(numbers: Iterable[int]) -> Iterator[str]:
        for number in numbers:
            yield from asked(number)

    with _probing(probes, slots) as unread:
        try:
            found = context.parallelize(range(slots), slots).barrier().mapPartitions(ask).collect()
        except Exception as error:
            return [f"the workers cannot run Python ({type(error).__name__})"]
        return sorted(set(found)) or unread()


@contextmanager
def _probing(probes: StateLocation | None, slots: int) -> Iterator[Callable[[], list[str]]]:
    """A file for workers to read; gives what asks afterwards whether the driver can read theirs."""
    if probes is None:
        yield list
        return
    try:
        storage = probes.storage()
        storage.write("driver", b"driver")
    except OSError as error:
        raise HeadgateError(f"cannot write to `{probes}`: {str(error.strerror).lower()}") from None

    def unread() -> list[str]:
        try:
            for number in range(slots):
                storage.read(f"worker-{number}")
        except OSError as error:
            return [f"this machine cannot read what workers write to `{probes}` ({str(error.strerror).lower()})"]
        return []

    try:
        yield unread
    finally:
        with suppress(OSError):
            storage.delete(storage.names())
