"""Random queries, well formed and well typed, over given streams: every construct of CQL, determined by the seed alone.

Property tests of plans and engines use them. `rewritten` gives another text of equal meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from headgate.cql.names import Target
from headgate.cql.queries import StreamOperator
from headgate.errors import NotFound
from headgate.lexing import quote
from headgate.plan.expressions import Type, written
from headgate.plan.queries import Stream
from headgate.plan.reserved import LEVEL
from headgate.testing.expressions import LEVELS, NUMERIC, TYPES, Author, quoted, random_literal, random_value
from headgate.testing.rewriting import rewritten
from headgate.testing.spelling import KEY_WORDS, respelled

__all__ = ["Features", "finder", "random_literal", "random_query", "random_streams", "random_value", "rewritten"]

WINDOWS = ("", "ROWS", "RANGE", "SLIDE", "NOW", "UNBOUNDED", "PARTITIONED")
OPERATORS: tuple[StreamOperator, ...] = ("ISTREAM", "DSTREAM", "RSTREAM")
Columns = tuple[tuple[str, Type], ...]


@dataclass(frozen=True)
class Features:
    """What queries may contain. `windows` are words of WINDOWS, where `""` is a source without a window; `depth` is how
    far expressions nest; `spelling` varies case, white space, comments and quoting; `aggregates` is how often."""

    blocks: int = 3
    sources: int = 3
    windows: tuple[str, ...] = WINDOWS
    operators: tuple[StreamOperator, ...] = OPERATORS
    distinct: bool = True
    aggregates: float = 0.4
    levels: tuple[str, ...] = LEVELS
    roles: tuple[str, ...] = ("doctor", "head nurse")
    depth: int = 2
    spelling: bool = True


def finder(streams: Sequence[Stream]) -> Callable[[Target], Stream]:
    """The lookup of streams that `bind_query` needs, over these streams."""
    known = {stream.name: stream for stream in streams}

    def find(target: Target) -> Stream:
        name = target.name if target.owner is None else f"{target.owner}.{target.name}"
        if name not in known:
            raise NotFound(f"there is no stream `{name}`", position=target.position)
        return known[name]

    return find


def random_streams(rng: Random) -> tuple[Stream, ...]:
    """Two or three streams, together with columns of every type; some share column names, some names need quoting."""
    names = rng.sample(("Vitals", "Position", "ward.beds", "s1", "select"), rng.randint(2, 3))
    types = [*TYPES, *rng.choices(TYPES, k=2)]
    rng.shuffle(types)
    parts = [types[number :: len(names)] for number in range(len(names))]
    shared = ["id", *rng.sample(("a", "b", "Pulse", "blood pressure", "from", "é"), 3)]
    streams = []
    for name, own in zip(names, parts, strict=True):
        columns: list[tuple[str, Type]] = [("id", Type.INT)]
        columns += [(f"{type_.lower()}{n}", type_) for n, type_ in enumerate(own)]
        columns += [(other, rng.choice(TYPES)) for other in shared[1:] if rng.random() < 0.5]
        streams.append(Stream(name, tuple(columns)))
    return tuple(streams)


def random_query(rng: Random, streams: Sequence[Stream], features: Features | None = None, **changes: object) -> str:
    """One query; `changes` are fields of Features."""
    chosen = replace(features or Features(), **changes)  # type: ignore[arg-type]
    count = rng.choice((1, 1, 1, rng.randint(1, chosen.blocks)))
    types = rng.choices(TYPES, k=rng.randint(1, 4))
    blocks = [_Block(rng, streams, chosen, types, count == 1).write() for _ in range(count)]
    roles = rng.sample(chosen.roles, rng.randint(1, len(chosen.roles))) if chosen.roles and rng.random() < 0.2 else ()
    prefix = f"AS {', '.join(map(quote, roles))} " if roles else ""
    text = prefix + " UNION ALL ".join(blocks)
    return respelled(rng, text) if chosen.spelling else text


@dataclass(frozen=True)
class _Source:
    """`name` is the source's name in the query."""

    stream: Stream
    name: str
    text: str
    partition: Columns

    @property
    def columns(self) -> Columns:
        return *self.stream.columns, (LEVEL, Type.STRING)


class _Block:
    """One block; with several blocks all have results of the same types."""

    def __init__(
        self, rng: Random, streams: Sequence[Stream], features: Features, types: Sequence[Type], alone: bool
    ) -> None:
        self.rng = rng
        self.features = features
        self.types = types
        self.alone = alone
        self.slide = f"{rng.randint(1, 4)} SECONDS"
        self.joined: list[tuple[str, set[int]]] = []
        self.read_after_join = False
        count = min(features.sources, rng.choice((1, 1, 2, rng.randint(1, features.sources))))
        self.sources = self._sources(rng.choices(streams, k=count))
        self.rows = Author(rng, self._leaf(range(len(self.sources))))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def write(self) -> str:
        sources = self._from()
        self.read_after_join = True
        if self.chance(self.features.aggregates):
            return self._aggregated(sources)
        operator = self.rng.choice(("", *self.features.operators))
        distinct = "DISTINCT" if self.features.distinct and self.chance(0.2) else ""
        return _spaced("SELECT", operator, distinct, self._items(self.rows), *sources)

    def _aggregated(self, sources: tuple[str, ...]) -> str:
        operator = self.rng.choice(("", *(o for o in self.features.operators if o != "DSTREAM")))
        grouped = [(n, column) for n, source in enumerate(self.sources) for column in source.partition]
        by = ""
        if not grouped or self.chance(0.5):
            every = [(n, column) for n, source in enumerate(self.sources) for column in source.columns]
            grouped = self.rng.sample(every, min(len(every), self.rng.choice((0, 1, 1, 2))))
            by = "GROUP BY " + ", ".join(self._reference(n, name) for n, (name, _) in grouped) if grouped else ""
        groups = Author(self.rng, self._group_leaf(grouped))
        having = f"HAVING {groups.condition(1)}" if self.chance(0.3) else ""
        items = self._items(groups, least=self._call(self.rng.choice((Type.BIGINT, Type.DOUBLE))))
        return _spaced("SELECT", operator, items, *sources, by, having)

    # Sources --------------------------------------------------------------------------------------------------------

    def _sources(self, streams: Sequence[Stream]) -> list[_Source]:
        found: list[_Source] = []
        for stream in streams:
            last = stream.name.rpartition(".")[2]
            taken = {source.name.casefold() for source in found}
            alias = self.rng.choice((f"x{len(found)}", f"my source {len(found)}", ""))
            if not alias and last.casefold() in taken:
                alias = f"y{len(found)}"
            written_alias = f"{self.rng.choice(('AS ', ''))}{self._name(alias)}" if alias else ""
            window, partition = self._window(stream)
            parts = [_plain(part) for part in stream.name.split(".", 1)]
            text = _spaced(".".join(parts), window, written_alias)
            found.append(_Source(stream, alias or last, text, partition))
        return found

    def _window(self, stream: Stream) -> tuple[str, Columns]:
        if stream.table:
            return "", ()
        columns: Columns = ()
        count = self.rng.randint(1, 4)
        match self.rng.choice(self.features.windows):
            case "":
                return "", ()
            case "ROWS":
                inside = f"ROWS {count}"
            case "RANGE":
                inside = f"RANGE {count} {self.rng.choice(('SECOND', 'SECONDS', 'MINUTES', 'HOUR', 'DAYS'))}"
            case "SLIDE":
                inside = f"RANGE {count * 1000} MILLISECONDS SLIDE {self.slide}"
            case "PARTITIONED":
                every = (*stream.columns, (LEVEL, Type.STRING))
                columns = tuple(self.rng.sample(every, min(len(every), self.rng.choice((1, 1, 2)))))
                by = ", ".join(self._name(name) for name, _ in columns)
                inside = f"PARTITIONED BY {by} ROWS {count}"
            case other:
                inside = other
        return f"[{inside}{self._level()}]", columns

    def _level(self) -> str:
        if not self.features.levels or self.chance(0.9):
            return ""
        return f" LEVEL = {quoted(self.rng, self.rng.choice(self.features.levels))}"

    def _from(self) -> tuple[str, ...]:
        before = self._conditions(self._entering) if self.chance(0.5) else ""
        after = self._conditions(lambda: self.rows.condition(1)) if self.chance(0.5) or len(self.sources) > 1 else ""
        return before, "FROM " + ", ".join(source.text for source in self.sources), after

    # Conditions -----------------------------------------------------------------------------------------------------

    def _conditions(self, one: Callable[[], str]) -> str:
        found = [one() for _ in range(self.rng.randint(1, 2))]
        if len(self.sources) > 1 and self.chance(0.8):
            found.append(self._join())
        if self.features.levels and self.chance(0.15):
            found.append(self._level_condition())
        if self.chance(0.05):
            found.append(self.rng.choice(("TRUE", "NOT FALSE", "1 = 1.0")))
        self.rng.shuffle(found)
        return "WHERE " + " AND ".join(found)

    def _entering(self) -> str:
        """A condition on one source."""
        return Author(self.rng, self._leaf([self.rng.randrange(len(self.sources))])).condition(1)

    def _join(self) -> str:
        """An equality of two sources' columns, where there are columns to compare."""
        left, right = self.rng.sample(range(len(self.sources)), 2)
        a, b, same = self.rng.choice(
            [
                (a, b, left_type == right_type)
                for a, left_type in self.sources[left].columns
                for b, right_type in self.sources[right].columns
                if left_type == right_type or (left_type.numeric and right_type.numeric)
            ]
        )
        if same and a == b:
            self.joined.append((a, {left, right}))
        return f"{self._reference(left, a)} = {self._reference(right, b)}"

    def _level_condition(self) -> str:
        level = self._reference(self.rng.randrange(len(self.sources)), LEVEL)
        levels = [quoted(self.rng, name) for name in self.rng.choices(self.features.levels, k=2)]
        return f"({level} = {' OR '.join(levels)})"

    # Results --------------------------------------------------------------------------------------------------------

    def _items(self, author: Author, least: str = "") -> str:
        """`least` is an item that a block without siblings must contain, besides any others."""
        if self.alone and not least and self.chance(0.15):
            number = self.rng.randrange(len(self.sources))
            return self.rng.choice(("*", f"{self._name(self.sources[number].name)}.*"))
        items: list[str] = []
        taken: set[str] = set()
        texts = [author.write(type_, self.features.depth) for type_ in self.types] + [least] * self.alone
        for number, text in enumerate(filter(None, texts)):
            made_up = text.split("(")[0].isupper() and not text.startswith(("CAST", "CASE", "(")) and text[-1] == ")"
            items.append(text if made_up and self.chance(0.5) else f"{text} AS {self._name(f'r{number}')}")
        if author is self.rows and self.alone and self.chance(0.5):
            for number, name, _ in self.rng.choices(self._columns(), k=2):
                if name.casefold() not in taken:
                    items.append(self._reference(number, name))
                    taken.add(name.casefold())
        if self.alone:
            self.rng.shuffle(items)
        return ", ".join(items)

    # Readable columns -------------------------------------------------------------------------------------------------

    def _columns(self) -> list[tuple[int, str, Type]]:
        return [(n, name, type_) for n, source in enumerate(self.sources) for name, type_ in source.columns]

    def _leaf(self, sources: Sequence[int]) -> Callable[[Type], str | None]:
        def leaf(type_: Type) -> str | None:
            fitting = [(n, name) for n, name, own in self._columns() if own == type_ and n in sources]
            return self._reference(*self.rng.choice(fitting)) if fitting else None

        return leaf

    def _group_leaf(self, grouped: Sequence[tuple[int, tuple[str, Type]]]) -> Callable[[Type], str | None]:
        def leaf(type_: Type) -> str | None:
            fitting = [(n, name) for n, (name, own) in grouped if own == type_]
            return self._reference(*self.rng.choice(fitting)) if fitting and self.chance(0.5) else self._call(type_)

        return leaf

    def _call(self, type_: Type) -> str:
        """An aggregate of this type."""
        distinct = "DISTINCT " if self.chance(0.25) else ""
        rows = self.rows
        calls = [f"{self.rng.choice(('MIN', 'MAX'))}({distinct}{rows.write(type_, 1)})"]
        if type_ == Type.BIGINT:
            calls += ["COUNT(*)", f"COUNT({distinct}{rows.any(1)})"]
            calls.append(f"SUM({distinct}{rows.any(1, (Type.INT, Type.BIGINT))})")
        if type_ == Type.DOUBLE:
            calls += [f"{name}({distinct}{rows.any(1, NUMERIC)})" for name in ("AVG", "STDDEV")]
            calls.append(f"SUM({distinct}{rows.any(1, (Type.FLOAT, Type.DOUBLE))})")
        return self.rng.choice(calls)

    def _reference(self, number: int, name: str) -> str:
        """A column, with its source where that is needed or by chance."""
        owners = {n for n, source in enumerate(self.sources) if name in dict(source.columns)}
        text = self._name(name)
        clear = len(owners) == 1 or (self.read_after_join and (name, owners) in self.joined)
        if clear and self.chance(0.5):
            return text
        return f"{self._name(self.sources[number].name)}.{text}"

    def _name(self, name: str) -> str:
        """In any case, in backticks where needed or by chance."""
        if self.features.spelling and name.isascii() and not name.startswith("r"):
            name = self.rng.choice((name, name, name.upper(), name.lower()))
        text = written(name)
        return f"`{name}`" if text == name and self.features.spelling and self.chance(0.1) else text


def _spaced(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _plain(name: str) -> str:
    return quote(name, KEY_WORDS)
