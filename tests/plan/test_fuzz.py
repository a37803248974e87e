"""Bad queries: whatever the text, it is answered by a plan or by an error with a place in it, and soon."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from headgate.cql.queries import MAX_QUERY, parse_query
from headgate.errors import HeadgateError, Position
from headgate.plan.lowering import lower
from headgate.plan.nodes import Node
from headgate.plan.queries import Stream, bind_query
from headgate.testing.queries import finder, random_streams

from . import fuzzing

SLOWEST = 1.0  # seconds of computing, for one text
# Words of the program and not of the language.
INTERNALS = re.compile(r"headgate\.|Syntax|Traceback|0x[0-9a-f]{4}|frozenset|dataclass|NoneType|Type\.|<class|\bself\b")


def timed(text: str, streams: tuple[Stream, ...]) -> tuple[Node | Exception, float]:
    begun = time.process_time()
    answer: Node | Exception
    try:
        answer = lower(bind_query(parse_query(text), finder(streams)))
        assert answer.key
    except Exception as error:
        answer = error
    return answer, time.process_time() - begun


@dataclass
class Fuzz:
    """What was wrong so far: one example of each kind."""

    faults: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")

    def fault(self, where: str, text: str, what: str) -> None:
        self.counts["faults"] += 1
        self.faults.setdefault(what[:60], f"{what}\n    at {where}\n    in {text[:300]!r}")

    def run(self, where: str, text: str, streams: tuple[Stream, ...]) -> bool:
        """Whether it is a query."""
        answer, taken = timed(text, streams)
        if taken > SLOWEST:  # unless something else on this machine was in the way
            answer, taken = timed(text, streams)
        self.slowest = max(self.slowest, (taken, where))
        if taken > SLOWEST:
            self.fault(where, text, f"slow: {taken:.1f} s")
        if isinstance(answer, HeadgateError):
            self.check_error(where, text, answer)
        elif isinstance(answer, Exception):
            self.fault(where, text, f"{type(answer).__name__}: {answer}")
        elif len(text) < 2_000 and timed(text, streams)[0] != answer:
            self.fault(where, text, "another plan the second time")
        return isinstance(answer, Node)

    def check_error(self, where: str, text: str, error: HeadgateError) -> None:
        said = f"{error.message} {error.hint}"
        if error.position is None:
            self.fault(where, text, f"no position: {type(error).__name__}: {error}")
        elif not 0 <= error.position.offset <= len(text) or error.position != Position.of(text, error.position.offset):
            self.fault(where, text, f"wrong position: {error}")
        elif not error.message or not said.isprintable():
            self.fault(where, text, f"not one printable line: {said!r}")
        elif INTERNALS.search(re.sub(r"`[^`]*`|did you mean .*|there is .*", "", said)):
            self.fault(where, text, f"speaks of the program: {said}")
        elif len(said) > 4000:
            self.fault(where, text, f"too long to read: {said[:200]}")

    def fire(self, name: str, texts: int) -> None:
        for number in range(texts):
            where = f"{name}/{number}"
            kind, text, streams = fuzzing.text(Random(where), f"{name}/{number // 20}")
            self.counts[kind] += 1
            self.counts[f"{kind} and read"] += self.run(where, text, streams)

    def judge(self) -> None:
        shown = "\n".join(self.faults.values())
        assert not self.faults, f"{self.counts['faults']} faults, of these kinds:\n{shown}"


def test_bad_queries_are_answered() -> None:
    fuzz = Fuzz()
    fuzz.fire("test", 5_000)
    fuzz.judge()
    assert fuzz.counts["good and read"] == fuzz.counts["good"]
    assert fuzz.counts["damaged and read"] > 0.02 * fuzz.counts["damaged"]


@pytest.mark.long
def test_very_many_bad_queries_are_answered() -> None:
    fuzz, begun = Fuzz(), time.monotonic()
    for part in range(20):
        fuzz.fire(f"long {part}", 10_000)
        print(f"{(part + 1) * 10_000} texts, {time.monotonic() - begun:.0f} s, {dict(fuzz.counts)}, {fuzz.slowest}")
    fuzz.judge()


@pytest.mark.parametrize("name", fuzzing.BOMBS)
def test_a_query_made_to_be_slow_is_answered_soon(name: str) -> None:
    stream = random_streams(Random(0))[0]
    text = fuzzing.BOMBS[name].replace("{stream}", '"' + stream.name.replace(".", '"."') + '"')
    fuzz = Fuzz()
    fuzz.run(name, text, (stream,))
    fuzz.run(name, text[: MAX_QUERY // 2].rpartition(" ")[0], (stream,))
    fuzz.judge()


@pytest.mark.parametrize("length", [MAX_QUERY, MAX_QUERY + 1, 1_000_000])
def test_a_long_text_is_refused_by_its_length(length: int) -> None:
    stream = random_streams(Random(0))[0]
    fuzz = Fuzz()
    for number in range(10):
        rng = Random(number)
        text = fuzzing.noise(rng) or "x"
        fuzz.run(f"long text {number}", (text * (length // len(text) + 1))[:length], (stream,))
    fuzz.judge()
