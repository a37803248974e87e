"""The dictionary of labels: each label that a tuple carries has a number for as long as anything holds it.

Numbers are never given twice. Labels that nothing holds any more are forgotten, so a sender whose labels never repeat
costs what its tuples cost and no more. On disk the dictionary is a list of files: a version adds one with the labels
that are new in it, and when most of what the files hold is forgotten they are written anew as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from headgate.labels import Label

MOST_UNUSED = 1000
"""So many labels may there be before anybody looks whether all are held."""


class LabelFiles(Protocol):
    """Where labels are written to, by names of files."""

    def save_labels(self, file: str, labels: Mapping[int, Label]) -> None: ...

    def labels(self, file: str) -> dict[int, Label]: ...

    def forget_labels(self, kept: Collection[str]) -> None: ...


class Dictionary:
    """`labels` are those that are known, by number; `epoch` counts how often some were forgotten."""

    def __init__(self) -> None:
        self.labels: dict[int, Label] = {}
        self.epoch = 0
        self._numbers: dict[Label, int] = {}
        self._next = 0
        self._due = MOST_UNUSED
        self._unsaved: list[int] = []
        self._files: dict[str, int] = {}

    def number(self, label: Label) -> int:
        known = self._numbers.get(label)
        if known is None:
            known = self._numbers[label] = self._next
            self.labels[known] = label
            self._unsaved.append(known)
            self._next += 1
        return known

    def protect(self, strengthened: Callable[[Label], Label]) -> bool:
        """What each label is from now on, in its place; whether any became another."""
        labels = {number: strengthened(label) for number, label in self.labels.items()}
        changed = labels != self.labels
        if changed:
            self._keep(labels)
            self._unsaved, self._files = list(labels), {}
        return changed

    @property
    def is_forgetting_due(self) -> bool:
        return len(self.labels) > self._due

    def forget(self, held: Collection[int]) -> None:
        """All labels but those that are held."""
        kept = set(held)
        self._keep({number: label for number, label in self.labels.items() if number in kept})
        self._unsaved = [number for number in self._unsaved if number in kept]
        self._due = MOST_UNUSED + 2 * len(self.labels)
        self.epoch += 1

    def _keep(self, labels: dict[int, Label]) -> None:
        self.labels = labels
        self._numbers = {label: number for number, label in labels.items()}

    # To go on later ---------------------------------------------------------------------------------------------------

    def save(self, files: LabelFiles, version: int) -> dict[str, Any]:
        """Writes what is new, for a version to come; returns what that has to know of it."""
        if sum(self._files.values()) > MOST_UNUSED + 2 * len(self.labels):
            self._unsaved, self._files = list(self.labels), {}
        if self._unsaved:
            file = f"{version}"
            files.save_labels(file, {number: self.labels[number] for number in self._unsaved})
            self._files[file] = len(self._unsaved)
            self._unsaved = []
        return {"files": dict(self._files), "next": self._next}

    def saved(self, files: LabelFiles) -> None:
        """The version counts: what it does not need is not needed."""
        files.forget_labels(self._files.keys())

    def restore(self, files: LabelFiles, plain: Any) -> None:
        """Labels that were forgotten before the version was written are known again until somebody looks."""
        found: dict[int, Label] = {}
        for file in plain["files"]:
            found |= files.labels(file)
        self._keep(found)
        self._next, self._files, self._unsaved = plain["next"], dict(plain["files"]), []

    def new_since(self, number: int) -> Iterable[int]:
        """The numbers given from this one on."""
        return (x for x in range(number, self._next) if x in self.labels)

    @property
    def next(self) -> int:
        return self._next
