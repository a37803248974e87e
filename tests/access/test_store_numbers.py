"""The store numbers labels and sources: the same number for the same thing, in every process, for good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from conftest import System

from headgate.labels import LabelTable, Rules, SourceNumbers, parse_label
from headgate.service import Headgate

TEXTS = ["nurse", "doctor & nurse", "(a & b) | c FROM in1", "TRUE FROM in1, in2", "a AT S", "TRUE", '"it s" | x']


def _labels(headgate: Headgate) -> LabelTable:
    return LabelTable(Rules(), headgate.journal("labels"))


def _sources(headgate: Headgate) -> SourceNumbers:
    return SourceNumbers(headgate.journal("sources"), headgate.journal("sets"))


def test_numbers_of_labels_are_the_same_after_opening_again(system: System) -> None:
    table = _labels(system.headgate)
    numbers = {text: table.number(parse_label(text)) for text in TEXTS}
    assert sorted(numbers.values()) == list(range(1, len(TEXTS) + 1))
    again = _labels(system.reopen())
    assert {text: again.number(parse_label(text)) for text in reversed(TEXTS)} == numbers
    assert all(again.label(number) == parse_label(text) for text, number in numbers.items())


def test_numbers_of_labels_are_the_same_in_two_processes(system: System) -> None:
    first, second = _labels(system.headgate), _labels(system.another())
    for number, text in enumerate(TEXTS):
        asked = (first, second) if number % 2 else (second, first)
        numbers = [table.number(parse_label(text)) for table in asked]
        assert numbers == [number + 1] * 2
        assert first.label(number + 1) == second.label(number + 1) == parse_label(text)


def test_a_label_that_another_process_numbered_can_be_read(system: System) -> None:
    first, second = _labels(system.headgate), _labels(system.another())
    number = first.number(parse_label("nurse AT S FROM in1"))
    assert second.label(number) == parse_label("nurse AT S FROM in1")


def test_a_long_label_does_not_keep_a_table_from_opening(system: System) -> None:
    """Its minimal form is longer than any text that may be written."""
    text = " & ".join(f"({'a' * 40}{i} | {'b' * 40}{i})" for i in range(7))
    number = _labels(system.headgate).number_of_text(text)
    assert number > 0
    assert _labels(system.reopen()).label(number) == parse_label(text)


def _sets() -> list[frozenset[str]]:
    """Small ones, the first 62 sources, and sets with later sources."""
    names = [f"joe.in{i}" for i in range(70)]
    sets = [frozenset({name}) for name in names] + [frozenset(names[:5]), frozenset(names[:62])]
    return [*sets, frozenset(names), frozenset(names[60:]), frozenset({"x y", "joe.in69"}), frozenset()]


def test_numbers_of_sources_are_the_same_after_opening_again(system: System) -> None:
    numbers = [_sources(system.headgate).number(members) for members in _sets()]
    assert len(set(numbers)) == len(numbers)
    again = _sources(system.reopen())
    assert [again.number(members) for members in _sets()] == numbers
    assert [again.members(number) for number in numbers] == _sets()


def test_numbers_of_sources_are_the_same_in_two_processes(system: System) -> None:
    first, second = _sources(system.headgate), _sources(system.another())
    for number, members in enumerate(_sets()):
        asked = (first, second) if number % 2 else (second, first)
        assert len({sources.number(members) for sources in asked}) == 1


def test_a_set_of_sources_that_another_process_numbered_can_be_read(system: System) -> None:
    first, second = _sources(system.headgate), _sources(system.another())
    for members in _sets():
        number = first.number(members)
        assert second.members(number) == members


def test_numbers_given_at_once_are_given_once(system: System) -> None:
    texts = [f"label {number % 40}" for number in range(160)]
    journals = [system.headgate.journal("race"), system.another().journal("race")]

    def ask(place: int) -> tuple[str, int]:
        return texts[place], journals[place % 2].number(texts[place])

    with ThreadPoolExecutor(4) as pool:
        given = set(pool.map(ask, range(len(texts))))
    assert len(given) == 40
    assert sorted(number for _, number in given) == list(range(1, 41))
    assert sorted(journals[0].read()) == sorted((number, text) for text, number in given)
