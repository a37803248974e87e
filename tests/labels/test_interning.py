"""Numbers of labels and sets of sources, across restarts; whole columns decided by them (SPEC.md, 2.5 to 2.7)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.labels import (
    FOR_NOBODY,
    UNREADABLE,
    AttributeLabels,
    Clearance,
    Label,
    LabelTable,
    Level,
    LevelOrder,
    Rules,
    Semantics,
    SourceNumbers,
    parse_label,
)
from headgate.labels.bulk import Decisions, numbers_of
from headgate.labels.journal import MemoryJournal
from headgate.labels.sources import BITS

from .strategies import clearances, labels, rules

ORDER = LevelOrder({"C": frozenset(), "S": frozenset({"C"}), "N": frozenset({"C"})})
RULES = Rules(ORDER)
EVERYTHING = Clearance({"a", "b"}, Level("S"), {"in1", "in2"}, {"in1", "in2"})

few = settings(deadline=None, max_examples=60)
stepwise = settings(deadline=None, max_examples=25, stateful_step_count=25)


def numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


# Labels


def test_labels_are_numbered_from_1_without_gaps() -> None:
    table = LabelTable(RULES, MemoryJournal())
    assert [table.number_of_text(text) for text in ("a", "b", "a & b")] == [1, 2, 3]
    assert len(table) == 4


def test_every_spelling_of_a_label_has_its_one_number() -> None:
    table = LabelTable(RULES, MemoryJournal())
    spellings = ["a & b AT S", '"b"&a at S', "b & a & (a | b) AT S, C", "a & b AT U, S -- x", "a & b & TRUE AT C, S, S"]
    assert {table.number_of_text(text) for text in spellings} == {1}
    assert table.number(Label(parse_label("a & b").roles, frozenset({Level("C"), Level("S"), Level("U")}))) == 1
    assert len(table) == 2


def test_numbers_and_labels_are_the_same_after_a_restart() -> None:
    journal = MemoryJournal()
    table = LabelTable(RULES, journal)
    texts = ["b", "a", 'a & "head nurse" AT S{X}, N FROM in2, in1', "FALSE", "TRUE", '"TRUE" FROM "from"', "a AT U{X}"]
    before = {text: table.number_of_text(text) for text in texts}
    again = LabelTable(RULES, journal)
    assert len(again) == len(table)
    for text in reversed(texts):
        assert again.number_of_text(text) == before[text]
        assert again.label(before[text]) == table.label(before[text])
    assert again.number_of_text("new") == len(texts) + 1


def test_a_label_whose_level_is_gone_after_a_restart_is_for_nobody() -> None:
    journal = MemoryJournal()
    number = LabelTable(RULES, journal).number_of_text("TRUE AT S")
    fewer = Rules(LevelOrder.total("U", "C"))
    table = LabelTable(fewer, journal)
    assert not fewer.permits(table.label(number), Clearance(level=Level("S")))
    assert not Decisions(fewer, Clearance(level=Level("S")), table).of_numbers(numbers(number)).any()


@few
@given(rules(*Semantics), st.lists(labels, max_size=8))
def test_equal_numbers_are_equal_labels_before_and_after_a_restart(rules: Rules, some: list[Label]) -> None:
    journal = MemoryJournal()
    table = LabelTable(rules, journal)
    given_out = [table.number(label) for label in some]
    again = LabelTable(rules, journal)
    for label, number in zip(some, given_out, strict=True):
        assert table.label(number) == again.label(number) == rules.normal(label)
        assert again.number(label) == number
    assert sorted(set(given_out)) == list(range(1, len({rules.normal(label) for label in some}) + 1))


@pytest.mark.parametrize(
    "text",
    [
        "&".join(f"(aaaaaaaaaa{i}|bbbbbbbbbb{i})" for i in range(7)),
        "(" + "|".join(f"r{i}" for i in range(128)) + ") & " + "&".join(f"a_long_role_name_{i}" for i in range(8)),
    ],
    ids=["multiplied out", "each alternative longer"],
)
def test_a_label_whose_canonical_text_is_long_survives_a_restart(text: str) -> None:
    journal = MemoryJournal()
    table = LabelTable(RULES, journal)
    number = table.number_of_text(text)
    assert LabelTable(RULES, journal).label(number) == table.label(number)


def test_a_label_of_two_hundred_sources_survives_a_restart() -> None:
    journal = MemoryJournal()
    table = LabelTable(RULES, journal)
    label = Label()
    for i in range(200):
        label = RULES.combine(
            label, parse_label(f"TRUE FROM temperature_of_the_patients_in_ward_number_{i}_of_hospital")
        )
    number = table.number(label)
    assert LabelTable(RULES, journal).label(number) == label


# What cannot be read


def test_what_is_no_label_is_number_0_is_counted_and_permits_nobody() -> None:
    table = LabelTable(RULES, MemoryJournal())
    bad = ["", "(", "a AT Z", "TRUE | (", "x" * 129, "x" * 10_001]
    assert [table.number_of_text(text) for text in bad] == [UNREADABLE] * len(bad)
    assert UNREADABLE == 0
    assert table.unreadable == len(bad)
    assert table.number_of_text("(") == UNREADABLE
    assert table.unreadable == len(bad) + 1
    assert not RULES.permits(table.label(UNREADABLE), EVERYTHING, aggregated=True)
    assert RULES.why_denied(table.label(UNREADABLE), EVERYTHING, aggregated=True)


def test_what_is_no_label_takes_no_number_from_the_journal() -> None:
    journal = MemoryJournal()
    table = LabelTable(RULES, journal)
    table.number_of_text("(")
    assert list(journal.read()) == []
    assert table.number_of_text("a") == 1


def test_the_label_for_nobody_can_be_read_and_is_not_the_unreadable_one() -> None:
    table = LabelTable(RULES, MemoryJournal())
    number = table.number_of_text("FALSE")
    assert number != UNREADABLE
    assert table.label(number) == FOR_NOBODY
    assert table.unreadable == 0


def test_a_readable_label_combined_with_the_unreadable_one_is_for_nobody() -> None:
    table = LabelTable(RULES, MemoryJournal())
    combined = RULES.combine(parse_label("TRUE"), table.label(UNREADABLE))
    assert not RULES.permits(combined, EVERYTHING, aggregated=True)


# Whole columns


@few
@given(rules(*Semantics), st.lists(labels, min_size=1, max_size=6), clearances, st.booleans())
def test_a_column_is_decided_as_each_of_its_labels_is(
    rules: Rules, some: list[Label], clearance: Clearance, aggregated: bool
) -> None:
    expected = [rules.permits(label, clearance, aggregated=aggregated) for label in some]
    table = LabelTable(rules, MemoryJournal())
    by_number = Decisions(rules, clearance, table, aggregated=aggregated)
    assert by_number.of_numbers(numbers(*(table.number(label) for label in some))).tolist() == expected
    by_text = Decisions(rules, clearance, LabelTable(rules, MemoryJournal()), aggregated=aggregated)
    texts = pa.array([str(label) for label in some])
    assert by_text.of_texts(texts).tolist() == expected
    assert by_text.of_texts(texts.dictionary_encode()).tolist() == expected


def test_decisions_learn_labels_that_come_later() -> None:
    table = LabelTable(RULES, MemoryJournal())
    decisions = Decisions(RULES, Clearance({"a"}), table)
    assert decisions.of_texts(pa.array(["a", "b"])).tolist() == [True, False]
    assert decisions.of_texts(pa.array(["b", "TRUE", "a | b", "(", "a"])).tolist() == [False, True, True, False, True]


def test_null_is_no_label_and_permits_nobody() -> None:
    decisions = Decisions(RULES, EVERYTHING, LabelTable(RULES, MemoryJournal()))
    assert decisions.of_texts(pa.array([None, "TRUE", None])).tolist() == [False, True, False]
    assert decisions.of_texts(pa.array([None, None], type=pa.string())).tolist() == [False, False]
    assert decisions.of_texts(pa.array([None, None], type=pa.null())).tolist() == [False, False]
    hidden_null = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([None, "TRUE"]))
    assert decisions.of_texts(hidden_null).tolist() == [False, True, False]


def test_an_empty_column_has_no_decisions() -> None:
    decisions = Decisions(RULES, EVERYTHING, LabelTable(RULES, MemoryJournal()))
    assert decisions.of_texts(pa.array([], type=pa.string())).tolist() == []
    assert decisions.of_numbers(numbers()).tolist() == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_a_slice_of_a_column_is_decided_as_the_column(kind: pa.DataType) -> None:
    decisions = Decisions(RULES, Clearance({"a"}), LabelTable(RULES, MemoryJournal()))
    column = pa.array(["b", None, "a", "b", "(", "a"], type=kind)
    assert decisions.of_texts(column.slice(2)).tolist() == [True, False, False, True]
    assert decisions.of_texts(column.slice(1, 3)).tolist() == [False, True, False]


def test_each_distinct_text_of_a_column_is_read_once() -> None:
    table = LabelTable(RULES, MemoryJournal())
    assert numbers_of(pa.array(["a", "b", "a", None, "(", "a"]), table).tolist() == [1, 2, 1, 0, 0, 1]


def test_a_number_nobody_gave_out_is_never_permitted() -> None:
    table = LabelTable(RULES, MemoryJournal())
    decisions = Decisions(RULES, EVERYTHING, table)
    table.number_of_text("TRUE")
    try:
        permitted = decisions.of_numbers(numbers(7)).tolist()
    except LookupError:
        permitted = [False]
    assert permitted == [False]


def test_a_negative_number_is_never_permitted() -> None:
    table = LabelTable(RULES, MemoryJournal())
    decisions = Decisions(RULES, EVERYTHING, table)
    decisions.of_numbers(numbers(table.number_of_text("TRUE")))
    try:
        permitted = decisions.of_numbers(numbers(-1)).tolist()
    except LookupError:
        permitted = [False]
    assert permitted == [False]


def test_a_full_dictionary_of_small_integers_may_have_nulls() -> None:
    texts = pa.array([f"r{i}" for i in range(128)])
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 127], type=pa.int8()), texts)
    decisions = Decisions(RULES, Clearance({"r127"}), LabelTable(RULES, MemoryJournal()))
    assert decisions.of_texts(column).tolist() == [False, False, True]


def test_a_text_that_is_not_utf8_is_unreadable_and_stops_nothing() -> None:
    offsets = pa.py_buffer(np.array([0, 2, 6], dtype=np.int32).tobytes())
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff\xfeTRUE")])
    decisions = Decisions(RULES, EVERYTHING, LabelTable(RULES, MemoryJournal()))
    assert decisions.of_texts(column).tolist() == [False, True]


# Sets of sources

SOURCES = [f"s{i:03}" for i in range(200)]


def _numbered(count: int) -> SourceNumbers:
    """The first `count` sources, known in this order."""
    numbers = SourceNumbers(MemoryJournal(), MemoryJournal())
    for source in SOURCES[:count]:
        numbers.number(frozenset({source}))
    return numbers


def test_the_empty_set_is_0() -> None:
    numbers = _numbered(0)
    assert numbers.number(frozenset()) == 0
    assert numbers.members(0) == frozenset()


def test_each_of_the_first_62_sources_has_a_bit() -> None:
    numbers = _numbered(BITS)
    assert BITS == 62
    assert [numbers.number(frozenset({s})) for s in SOURCES[:BITS]] == [1 << i for i in range(BITS)]
    everything = numbers.number(frozenset(SOURCES[:BITS]))
    assert everything == (1 << BITS) - 1
    assert np.int64(everything) == everything
    assert numbers.members(everything) == frozenset(SOURCES[:BITS])


def test_a_set_of_the_first_62_is_the_or_of_its_bits() -> None:
    numbers = _numbered(200)
    assert numbers.number(frozenset({"s000", "s002", "s061"})) == 1 | 1 << 2 | 1 << 61
    assert numbers.combine(1, 1 << 2) == 5


def test_any_other_set_gets_the_next_negative_number_when_it_first_occurs() -> None:
    numbers = _numbered(BITS)
    assert numbers.number(frozenset({"s150"})) == -1
    assert numbers.number(frozenset({"s000", "s150"})) == -2
    assert numbers.number(frozenset({"s150"})) == -1
    assert numbers.number(frozenset({"s001", "s151"})) == -3
    assert numbers.members(-2) == {"s000", "s150"}


def test_two_hundred_sources_combine_one_by_one_into_their_union() -> None:
    numbers = _numbered(200)
    combined = 0
    for i, source in enumerate(SOURCES):
        combined = numbers.combine(combined, numbers.number(frozenset({source})))
        assert (combined >= 0) == (i < BITS)
        assert numbers.members(combined) == frozenset(SOURCES[: i + 1])
    assert combined == numbers.number(frozenset(SOURCES))


any_sources = st.frozensets(st.sampled_from(SOURCES[50:75]), max_size=6)


@few
@given(any_sources, any_sources)
def test_the_combination_of_two_numbers_is_the_number_of_the_union(a: frozenset[str], b: frozenset[str]) -> None:
    numbers = _numbered(200)
    x, y = numbers.number(a), numbers.number(b)
    assert numbers.combine(x, y) == numbers.combine(y, x) == numbers.number(a | b)
    assert numbers.members(numbers.combine(x, y)) == a | b


def test_source_numbers_are_the_same_after_a_restart() -> None:
    sources, sets = MemoryJournal(), MemoryJournal()
    numbers = SourceNumbers(sources, sets)
    some = [frozenset(SOURCES[i : i + 3]) for i in range(0, 200, 2)]
    some += [frozenset({'say "ah", or', "a b", "TRUE", "--", "é"}), frozenset({"s000", "s199"}), frozenset()]
    before = [numbers.number(members) for members in some]
    again = SourceNumbers(sources, sets)
    assert [again.members(number) for number in before] == some
    assert [again.number(members) for members in reversed(some)] == before[::-1]
    assert again.number(frozenset({"s001", "s198"})) == min(before) - 1


def test_a_number_nobody_gave_out_has_no_members_to_tell() -> None:
    numbers = _numbered(3)
    for unknown in (-1, 1 << 3):
        with pytest.raises(LookupError):
            numbers.members(unknown)


@pytest.mark.parametrize("unknown", [1 << BITS, 1 | 1 << BITS])
def test_a_bit_nobody_has_is_not_passed_over(unknown: int) -> None:
    numbers = _numbered(3)
    with pytest.raises(LookupError):
        numbers.members(unknown)


# Both registries against a plain model, with restarts at any time


class SourceNumbersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sources, self.sets = MemoryJournal(), MemoryJournal()
        for source in SOURCES[:60]:
            self.sources.number(source)
        self.model: dict[frozenset[str], int] = {}
        self.restart()

    @rule()
    def restart(self) -> None:
        self.numbers = SourceNumbers(self.sources, self.sets)

    @rule(members=any_sources)
    def number(self, members: frozenset[str]) -> None:
        number = self.numbers.number(members)
        assert self.model.setdefault(members, number) == number

    @rule(data=st.data())
    def combine(self, data: st.DataObject) -> None:
        if self.model:
            a, b = (data.draw(st.sampled_from(list(self.model))) for _ in range(2))
            number = self.numbers.combine(self.model[a], self.model[b])
            assert self.model.setdefault(a | b, number) == number

    @invariant()
    def numbers_and_sets_are_one_to_one(self) -> None:
        assert len(set(self.model.values())) == len(self.model)
        assert all(self.numbers.members(number) == members for members, number in self.model.items())


class LabelTableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.journal = MemoryJournal()
        self.model: dict[str, int] = {}
        self.restart()

    @rule()
    def restart(self) -> None:
        self.table = LabelTable(RULES, self.journal)
        self.decisions = Decisions(RULES, EVERYTHING, self.table)
        self.unreadable = 0

    @rule(
        text=st.sampled_from(
            ["a", "b", "b | a", "a|b", "a AT S, C", "a AT S", "c", "TRUE", "FALSE FROM in3", "a FROM in1"]
        )
    )
    def number(self, text: str) -> None:
        number = self.table.number_of_text(text)
        assert number != UNREADABLE
        assert self.model.setdefault(str(parse_label(text, ORDER)), number) == number

    @rule(text=st.sampled_from(["", "(", "a AT Z", "a a"]))
    def refuse(self, text: str) -> None:
        assert self.table.number_of_text(text) == UNREADABLE
        self.unreadable += 1

    @invariant()
    def the_table_is_the_model(self) -> None:
        assert sorted(self.model.values()) == list(range(1, len(self.table)))
        assert all(str(self.table.label(number)) == text for text, number in self.model.items())
        assert self.table.unreadable == self.unreadable

    @invariant()
    def columns_are_decided_as_labels_are(self) -> None:
        known = [UNREADABLE, *self.model.values()]
        expected = [RULES.permits(self.table.label(number), EVERYTHING) for number in known]
        assert self.decisions.of_numbers(numbers(*known)).tolist() == expected


TestSourceNumbersAgainstAModel = SourceNumbersMachine.TestCase
TestSourceNumbersAgainstAModel.settings = stepwise
TestLabelTableAgainstAModel = LabelTableMachine.TestCase
TestLabelTableAgainstAModel.settings = stepwise


# Attribute labels

ROW = {"name": "Ada", "pulse": 61, "notes": "none", "ward": 3}
COLUMNS = AttributeLabels(
    {"name": parse_label("doctor | nurse"), "pulse": parse_label("TRUE AT S"), "notes": parse_label("doctor FROM in1")}
)


@pytest.mark.parametrize(
    ("clearance", "hidden"),
    [
        (Clearance(), {"name", "pulse", "notes"}),
        (Clearance({"nurse"}), {"pulse", "notes"}),
        (Clearance({"nurse"}, Level("S")), {"notes"}),
        (Clearance({"doctor"}, Level("N")), {"pulse", "notes"}),
        (Clearance({"doctor"}, Level("S"), {"in1"}), set()),
    ],
    ids=["nobody", "nurse", "nurse at S", "doctor at N", "doctor at S from in1"],
)
def test_a_column_reads_as_null_for_whom_its_label_does_not_permit(clearance: Clearance, hidden: set[str]) -> None:
    assert COLUMNS.hidden(RULES, clearance) == hidden
    expected = {column: None if column in hidden else value for column, value in ROW.items()}
    assert COLUMNS.mask(ROW, RULES, clearance) == expected


def test_a_masked_row_has_the_same_columns_in_the_same_order() -> None:
    assert list(COLUMNS.mask(ROW, RULES, Clearance())) == list(ROW)
    assert ROW["name"] == "Ada"


def test_a_column_without_a_label_is_never_masked() -> None:
    assert AttributeLabels({}).mask(ROW, RULES, Clearance()) == ROW


def test_a_label_on_a_column_the_row_has_not_adds_no_column() -> None:
    assert AttributeLabels({"ghost": FOR_NOBODY}).mask(ROW, RULES, Clearance()) == ROW


@few
@given(rules(*Semantics), st.dictionaries(st.sampled_from("pqr"), labels), clearances)
def test_masking_asks_each_label_once_and_twice_is_once(
    rules: Rules, columns: dict[str, Label], clearance: Clearance
) -> None:
    attribute_labels = AttributeLabels(columns)
    row = {"p": 1, "q": 2, "r": 3}
    masked = attribute_labels.mask(row, rules, clearance)
    for column, value in row.items():
        permitted = column not in columns or rules.permits(columns[column], clearance)
        assert masked[column] == (value if permitted else None)
    assert attribute_labels.mask(masked, rules, clearance) == masked
