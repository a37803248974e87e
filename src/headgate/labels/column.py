"""Reads label texts a column at a time, for streams whose tuples bring labels that do not repeat.

The compiled reader (`labels/compiled.py`) reads each distinct text once; the grammar reads the texts that it leaves.
Labels stay numbers until one is requested.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import LabelError
from headgate.labels import compiled
from headgate.labels.compiled import NO_REST
from headgate.labels.conjunction import EVERYBODY, Conjunction
from headgate.labels.label import PUBLIC, Label
from headgate.labels.levels import LevelOrder
from headgate.labels.roles import RoleExpression, Term
from headgate.labels.text import parse_label, parse_roles

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

_SEED = np.uint64(secrets.randbits(64))
_NONE = -1


@dataclass(frozen=True)
class _Forms:
    """Role expressions in minimal form, as numbers.

    label_ends: for each label how many terms there are up to its end
    term_ends: for each term how many roles there are up to its end
    roles: the roles of all terms, as positions in `names`
    """

    label_ends: Ints
    term_ends: Ints
    roles: Numbers
    names: list[str]


class Labels(Sequence[Label]):
    """Distinct labels, each built when it is requested. For each label `firsts` is the number of its role form in
    `forms`, and `kinds` that of its levels and sources in `clauses`."""

    def __init__(self, forms: _Forms, firsts: Ints, kinds: Ints, clauses: Sequence[Label]) -> None:
        self._forms = forms
        self._firsts = firsts
        self._kinds = kinds
        self._clauses = clauses

    def __len__(self) -> int:
        return len(self._firsts)

    @overload
    def __getitem__(self, place: int) -> Label: ...

    @overload
    def __getitem__(self, place: slice) -> list[Label]: ...

    def __getitem__(self, place: int | slice) -> Label | list[Label]:
        if isinstance(place, slice):
            return [self[n] for n in range(*place.indices(len(self)))]
        firsts, kinds, label_ends, term_ends, roles = self._lists
        names, form = self._forms.names, firsts[place]
        term = label_ends[form - 1] if form else 0
        terms: list[Term] = []
        start = term_ends[term - 1] if term else 0
        for end in term_ends[term : label_ends[form]]:
            terms.append(frozenset([names[role] for role in roles[start:end]]))
            start = end
        expression = RoleExpression(frozenset(terms))
        clause = self._clauses[kinds[place]]
        return Label(Conjunction.of(expression), clause.levels, clause.sources)

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
        """The arrays as Python lists, whose elements are read faster."""
        forms = self._forms
        firsts, kinds, roles = self._firsts.tolist(), self._kinds.tolist(), forms.roles.tolist()
        return firsts, kinds, forms.label_ends.tolist(), forms.term_ends.tolist(), roles


@dataclass(frozen=True)
class LabelColumn:
    """The labels of a column of texts. `index`: for each row the position of its label in `labels`; -1: unreadable."""

    labels: Labels
    index: Ints

    @property
    def unreadable(self) -> Bools:
        """The rows that are NULL or whose text is not a label."""
        return self.index < 0


def read_labels(texts: pa.Array | pa.ChunkedArray, order: LevelOrder | None = None) -> LabelColumn:
    """Reads a column of labels; each text means what `parse_label` reads."""
    return _Reading(texts, lambda text: parse_label(text, order)).column()


def read_roles(texts: pa.Array | pa.ChunkedArray) -> LabelColumn:
    """Reads a column of role expressions; each text means what `parse_roles` reads."""
    return _Reading(texts, lambda text: Label(Conjunction.of(parse_roles(text)))).column()


def warm() -> None:
    """Compiles the reader and stores the result on disk for other processes."""
    list(read_labels(pa.array(["(a | b) & c AT U", "a &"])).labels)


class _Reading:
    """Reads one column. The grammar reads the texts that the compiled reader leaves, and the clauses after the roles
    (AT, FROM), once for each distinct text of clauses."""

    def __init__(self, texts: pa.Array | pa.ChunkedArray, grammar: Callable[[str], Label]) -> None:
        column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        self._grammar = grammar
        self._texts, self._indices = _coded(column)
        self._data, self._offsets = _bytes_of(self._texts)
        self._clauses: dict[Label, int] = {PUBLIC: 0}
        self._rests: dict[bytes, int] = {}

    def column(self) -> LabelColumn:
        rests, label_ends, term_ends, roles, places = compiled.read_texts(self._data, self._offsets, _SEED)
        text = self._data.tobytes().decode("latin-1")  # one character for each byte; names are ASCII
        names = [text[start : start + size] for start, size in places[:, :2].tolist()]
        kinds = np.where(rests == NO_REST, 0, _NONE)
        for n in np.flatnonzero(rests >= 0).tolist():
            kinds[n] = self._rest(self._data[rests[n] : self._offsets[n + 1]].tobytes())
        read = [(n, label) for n in np.flatnonzero(kinds < 0).tolist() if (label := self._by_grammar(n)) is not None]
        forms, kinds, placed = self._with(read, _Forms(label_ends, term_ends, roles, names), kinds)
        numbers, firsts = compiled.distinct(kinds, forms.label_ends, forms.term_ends, forms.roles, _SEED)
        labels = Labels(forms, firsts, kinds[firsts], list(self._clauses))
        return LabelColumn(labels, np.append(numbers[placed], _NONE)[self._indices])

    def _clause(self, label: Label) -> int:
        return self._clauses.setdefault(replace(label, roles=EVERYBODY), len(self._clauses))

    def _rest(self, rest: bytes) -> int:
        """The number of the clauses after the roles; below 0 if the grammar must read the whole text."""
        if rest not in self._rests:
            try:
                self._rests[rest] = self._clause(self._grammar(f"TRUE {rest.decode()}"))
            except (UnicodeDecodeError, LabelError):
                self._rests[rest] = _NONE
        return self._rests[rest]

    def _by_grammar(self, number: int) -> Label | None:
        text = self._texts[number].as_py()
        try:
            return None if text is None else self._grammar(text.decode())
        except (UnicodeDecodeError, LabelError):
            return None

    def _with(self, read: list[tuple[int, Label]], forms: _Forms, kinds: Ints) -> tuple[_Forms, Ints, Ints]:
        """Appends labels that the grammar read; returns the forms, their kinds, and for each text the position of its
        form."""
        placed = np.arange(len(kinds))
        if not read:
            return forms, kinds, placed
        known = {name: number for number, name in enumerate(forms.names)}
        label_ends, term_ends, roles = [], list[int](), list[int]()
        terms_before, roles_before = len(forms.term_ends), len(forms.roles)
        for _, label in read:
            numbered = (sorted(known.setdefault(name, len(known)) for name in term) for term in _terms(label))
            for term in sorted(numbered, key=lambda term: (len(term), term)):
                roles += term
                term_ends.append(roles_before + len(roles))
            label_ends.append(terms_before + len(term_ends))
        placed[[n for n, _ in read]] = len(kinds) + np.arange(len(read))
        more = np.array([self._clause(label) for _, label in read], np.int64)
        behind = _Forms(
            np.append(forms.label_ends, np.array(label_ends, np.int64)),
            np.append(forms.term_ends, np.array(term_ends, np.int64)),
            np.append(forms.roles, np.array(roles, np.int32)),
            list(known),
        )
        return behind, np.append(kinds, more), placed


def _terms(label: Label) -> Iterable[Term]:
    """The terms of a label that was read from a text, and so has one role expression."""
    (expression,) = label.roles.choices or (RoleExpression(frozenset({label.roles.required})),)
    return expression.terms


def _coded(column: pa.Array) -> tuple[pa.Array, Ints]:
    """The distinct texts of a column as bytes, and for each row the number of its text; NULL has the number after the
    last."""
    coded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    texts = coded.dictionary.cast(pa.large_binary())
    indices = pc.fill_null(coded.indices.cast(pa.int64()), len(texts)).to_numpy(zero_copy_only=False)
    used = np.bincount(indices, minlength=len(texts) + 1)[: len(texts)] > 0
    if used.all():
        return texts, indices
    return texts.filter(pa.array(used)), np.append(np.cumsum(used) - 1, used.sum())[indices]


def _bytes_of(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The bytes of all texts, and the offset at which each begins, followed by the end of the last."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return np.empty(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    found = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data or b"", np.uint8), found
