"""Tasks in Spark's Python workers. Jobs are RDDs of bytes: Spark moves them and converts nothing.

All tasks run in lanes (`lanes.py`): there is one worker process for each core, which reads splits, advances its
partitions and stages results, so that what takes seconds to load is loaded once for each core.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark import RDD, Broadcast, SparkContext
from pyspark.serializers import BatchedSerializer, CPickleSerializer, pack_long
from pyspark.sql import SparkSession

from headgate.execution.memory import keep_freed
from headgate.execution.partitions import PartitionName
from headgate.execution.tasks import worker
from headgate.execution.tasks.blobs import packed_table, unpacked_table
from headgate.execution.tasks.intake import Part, advance_parts, label_texts, read_split
from headgate.execution.tasks.lanes import Lanes
from headgate.execution.tasks.step import DerivedSplit, Intake, Outcome, ResultIntake, SplitStep, TaskPlan, TaskStep
from headgate.execution.warm import is_compiled, warm
from headgate.ingress.splits import Split, balanced
from headgate.logs import event
from headgate.operators import threads

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S", Split, Split | DerivedSplit)

MOST_SENT = 8
"""How many plans, and how many tables, workers are told of: there is one for each stage of queries."""
_LANE = "HEADGATE_LANE"
_LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""The environment of workers: memory comes in large pages where the system has them. Most of what a batch takes is
touched for the first time, and each page costs a fault."""
_PICKLED = CPickleSerializer()
TRIES = 4
"""How often a job is tried whose workers die. A step changes nothing before the driver takes what it returned."""


class _Sent(Generic[T]):
    """A value that is sent to workers once, and not with each batch: the last few, by name."""

    def __init__(self) -> None:
        self._sent: dict[str, Broadcast[T]] = {}

    def once(self, context: SparkContext, name: str, value: T) -> Broadcast[T]:
        if name not in self._sent:
            self._sent[name] = context.broadcast(value)
            for old in list(self._sent)[:-MOST_SENT]:
                self._sent.pop(old).unpersist()
        return self._sent[name]


class SparkTasks:
    """`spark` gives the session when the first job needs it."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark
        self._plan = _Sent[TaskPlan]()
        self._tables = _Sent[pa.Table | None]()
        self._lanes: dict[str, Lanes] = {}

    @property
    def context(self) -> SparkContext:
        return self._spark().sparkContext

    @property
    def on_this_machine(self) -> bool:
        return str(self.context.master).startswith("local")

    @property
    def at_once(self) -> int:
        return int(self.context.defaultParallelism)

    def run(self, plan: TaskPlan, step: TaskStep, parts: Mapping[PartitionName, pa.Table]) -> list[Outcome]:
        work = partial(_advance_each, self._plans(plan), self._table(plan, step), _without_tables(step))
        lanes = self._lanes_of(plan).assigned(plan.names, self.at_once)
        given = [[(name, packed_table(parts[name])) for name in names] for names in lanes]

        def job() -> RDD[Outcome]:
            return self._in_lanes([self.context.parallelize(own, 1).mapPartitions(work) for own in given])

        return self._advanced(plan, f"advance {len(plan.names)} partitions", job)

    def run_splits(
        self, plan: TaskPlan, step: SplitStep, intake: Intake | ResultIntake, splits: Sequence[Split | DerivedSplit]
    ) -> list[Outcome]:
        """One job of two stages: a task for each split, then one for each lane of partitions."""
        sent, lanes = self._plans(plan), self._lanes_of(plan).assigned(plan.names, self.at_once)
        taken = self.context.broadcast(intake)
        given = replace(step, step=replace(step.step, tables=(step.step.tables[0], None)))
        read = partial(_read_each, sent, taken, {name: lane for lane, names in enumerate(lanes) for name in names})
        tables, packed = self._table(plan, step.step), pickle.dumps(given)

        def job() -> RDD[Outcome]:
            parts = self._shuffled([some.mapPartitions(read) for some in self._balanced(splits)], len(lanes))
            work = [partial(_advance_parts, sent, tables, packed, names) for names in lanes]
            return self._in_lanes([self._only(parts, lane).mapPartitions(own) for lane, own in enumerate(work)])

        try:
            return self._advanced(plan, f"read {len(splits)} splits, advance {len(plan.names)} partitions", job)
        finally:
            taken.destroy()

    def _advanced(self, plan: TaskPlan, what: str, job: Callable[[], RDD[Outcome]]) -> list[Outcome]:
        found: list[Outcome] = self.collected(what, job)
        self._lanes_of(plan).note({x.name: x.seconds for x in found})
        order = {name: place for place, name in enumerate(plan.names)}
        return sorted(found, key=lambda x: order[x.name])

    def _lanes_of(self, plan: TaskPlan) -> Lanes:
        if plan.run not in self._lanes:
            self._lanes[plan.run] = Lanes()
            for old in list(self._lanes)[:-MOST_SENT]:
                del self._lanes[old]
        return self._lanes[plan.run]

    def _in_lanes(self, parts: Sequence[RDD[T]]) -> RDD[T]:
        """One task for each part, in the worker of its lane: PySpark keeps workers of different environments apart."""
        context = self.context
        usual = context.environment
        for lane, part in enumerate(parts):
            context.environment = {**usual, **_LARGE_PAGES, _LANE: str(lane)}
            try:
                _ = part._jrdd  # the environment is read when the function is sent
            finally:
                context.environment = usual
        return context.union(list(parts))

    def _shuffled(self, read: Sequence[RDD[bytes]], count: int) -> RDD[Any]:
        """What lanes have read, in so many partitions. It is `RDD.partitionBy` for RDDs of different environments:
        each has pairs of a partition's number and a pickled list, one after the other, which Java takes apart."""
        jvm: Any = self.context._jvm
        for rdd in read:
            rdd._bypass_serializer = True  # type: ignore[attr-defined]
        pairs = jvm.PairwiseRDD(self._in_lanes(read)._jrdd.rdd()).asJavaPairRDD()
        moved = pairs.partitionBy(jvm.PythonPartitioner(count, 0))
        return RDD(jvm.PythonRDD.valueOfPair(moved), self.context, BatchedSerializer(_PICKLED))  # type: ignore[no-untyped-call]

    def _only(self, rdd: RDD[T], partition: int) -> RDD[T]:
        """One partition of an RDD. In Scala, a set of numbers is a function that tells which numbers are in it."""
        jvm: Any = self.context._jvm
        chosen = jvm.java.util.HashSet()
        chosen.add(partition)
        contains = jvm.scala.jdk.javaapi.CollectionConverters.asScala(chosen)
        pruned = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(rdd._jrdd.rdd(), contains)
        return RDD(pruned.toJavaRDD(), self.context, rdd._jrdd_deserializer)

    def label_texts(self, intake: Intake, splits: Sequence[Split]) -> set[tuple[str | None, ...]]:
        work = partial(_label_texts, intake)
        return set(
            self.collected(
                f"look for labels in {len(splits)} splits",
                lambda: self._in_lanes([some.mapPartitions(work) for some in self._balanced(splits)]),
            )
        )

    def _balanced(self, splits: Sequence[S]) -> list[RDD[S]]:
        """One part for each lane."""
        return [self.context.parallelize(some, 1) for some in balanced(splits, self.at_once)]

    def each(self, what: str, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
        lanes = max(1, min(self.at_once, len(items)))
        parts, own = [items[lane::lanes] for lane in range(lanes)], partial(_each, work)
        found = self.collected(
            what, lambda: self._in_lanes([self.context.parallelize(some, 1).mapPartitions(own) for some in parts])
        )
        ends = list(accumulate(map(len, parts)))
        return [found[ends[place % lanes] - len(parts[place % lanes]) + place // lanes] for place in range(len(items))]

    def _plans(self, plan: TaskPlan) -> Broadcast[TaskPlan]:
        return self._plan.once(self.context, plan.run, plan)

    def _table(self, plan: TaskPlan, step: TaskStep) -> Broadcast[pa.Table | None]:
        """The tuples of tables, once for each snapshot of them."""
        number, table = step.tables
        return self._tables.once(self.context, f"{plan.run} {number}", table)

    def collected(self, what: str, job: Callable[[], Any]) -> list[Any]:
        """The results of a job, which is tried again if a worker dies."""
        for tried in range(1, TRIES + 1):
            self.context.setJobDescription(f"headgate: {what}")
            try:
                return list(job().collect())
            except Exception as error:
                if tried == TRIES or "Python worker exited unexpectedly" not in str(error):
                    raise
                event("tasks", "a worker died; its work is done again", tried=tried)
            finally:
                self.context.setJobDescription(None)  # type: ignore[arg-type]
        raise AssertionError("the last try raises")


def prepare_worker() -> None:
    """A task has one core, and so one thread; freed memory stays for the next one. The compiled loops are loaded, and
    what is there by then is left alone by the garbage collector: PySpark runs it after each task, which took 80 ms."""
    global _PREPARED
    if not _PREPARED:
        _PREPARED = True
        keep_freed()
        threads.WORTH_IT = 1 << 62
        pa.set_cpu_count(1)
        if is_compiled():  # or else only what is needed is compiled, when it is
            warm()
        gc.collect()
        gc.freeze()


_PREPARED = False


def _without_tables(step: TaskStep) -> bytes:
    return pickle.dumps(replace(step, tables=(step.tables[0], None)))


def _with_tables(step: TaskStep, tables: Broadcast[pa.Table | None]) -> TaskStep:
    return replace(step, tables=(step.tables[0], tables.value))


def _advance_each(
    plan: Broadcast[TaskPlan],
    tables: Broadcast[pa.Table | None],
    step: bytes,
    given: Iterable[tuple[PartitionName, bytes]],
) -> Iterator[Outcome]:
    prepare_worker()
    for name, blob in given:
        own = _with_tables(pickle.loads(step), tables)  # noqa: S301
        arriving = unpacked_table(blob)
        yield replace(worker.advance(plan.value, own, name, arriving), came=(arriving.num_rows, len(blob)))


def _read_each(
    plan: Broadcast[TaskPlan],
    intake: Broadcast[Intake | ResultIntake],
    lanes: Mapping[PartitionName, int],
    splits: Iterable[Split | DerivedSplit],
) -> Iterator[bytes]:
    """The parts of splits, each with its partition: for each lane its number, and then a list of them."""
    prepare_worker()
    for split in splits:
        found: dict[int, list[tuple[PartitionName, Part]]] = {}
        for name, part in read_split(plan.value, intake.value, split).items():
            found.setdefault(lanes[name], []).append((name, part))
        for lane, parts in found.items():
            yield pack_long(lane)  # type: ignore[no-untyped-call]
            yield _PICKLED.dumps(parts)  # type: ignore[no-untyped-call]


def _advance_parts(
    plan: Broadcast[TaskPlan],
    tables: Broadcast[pa.Table | None],
    step: bytes,
    names: Sequence[PartitionName],
    given: Iterable[tuple[PartitionName, Part]],
) -> Iterator[Outcome]:
    """The partitions of a lane, one after the other."""
    prepare_worker()
    parts: dict[PartitionName, list[Part]] = {name: [] for name in names}
    for name, part in given:
        parts[name].append(part)
    for name in names:
        own = pickle.loads(step)  # noqa: S301
        own = replace(own, step=_with_tables(own.step, tables))
        yield advance_parts(plan.value, own, name, parts.pop(name))


def _each(work: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    prepare_worker()
    for item in items:
        yield work(item)


def _label_texts(intake: Intake, splits: Iterable[Split]) -> Iterator[tuple[str | None, ...]]:
    prepare_worker()
    for split in splits:
        yield from label_texts(intake, split)
