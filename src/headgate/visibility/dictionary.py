"""The label dictionary: it numbers the labels of tuples, so that batches and state carry numbers.

INVARIANT: a number is never given twice. Labels that no tuple holds are removed, so a sender whose labels never repeat
costs no more memory than its tuples do. On disk the dictionary is a list of files: each state version adds a file with
its new labels; once most labels in the files have been removed, the rest are rewritten as one file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from headgate.labels import Label

MOST_UNUSED = 1000
"""The dictionary may hold this many labels before it is searched for unused ones."""


class LabelFiles(Protocol):
    """The storage of the dictionary: named files of labels."""

    def save_labels(self, file: str, labels: Mapping[int, Label]) -> None: ...

    def labels(self, file: str) -> dict[int, Label]: ...


class Dictionary:
    """`labels` holds the known labels by number; `epoch` counts how often labels were removed."""

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
        """Replaces each label by its strengthened form under the same number; returns whether any changed."""
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
        """Removes all labels but the held ones."""
        kept = set(held)
        self._keep({number: label for number, label in self.labels.items() if number in kept})
        self._unsaved = [number for number in self._unsaved if number in kept]
        self._due = MOST_UNUSED + 2 * len(self.labels)
        self.epoch += 1

    def _keep(self, labels: dict[int, Label]) -> None:
        self.labels = labels
        self._numbers = {label: number for number, label in labels.items()}

    # Checkpoint and restore -------------------------------------------------------------------------------------------

    def save(self, files: LabelFiles, version: int) -> dict[str, Any]:
        """Writes the new labels for the next state version; returns what that version must record."""
        if sum(self._files.values()) > MOST_UNUSED + 2 * len(self.labels):
            self._unsaved, self._files = list(self.labels), {}
        if self._unsaved:
            file = f"{version}"
            files.save_labels(file, {number: self.labels[number] for number in self._unsaved})
            self._files[file] = len(self._unsaved)
            self._unsaved = []
        return {"files": dict(self._files), "next": self._next}

    def restore(self, files: LabelFiles, plain: Any) -> None:
        """Restores a version. Labels that were removed before it was written return until the next removal."""
        found: dict[int, Label] = {}
        for file in plain["files"]:
            found |= files.labels(file)
        self._keep(found)
        self._next, self._files, self._unsaved = plain["next"], dict(plain["files"]), []

    def new_since(self, number: int) -> Iterable[int]:
        """The numbers, from this one on, whose labels are known."""
        return (x for x in range(number, self._next) if x in self.labels)

    @property
    def next(self) -> int:
        return self._next
