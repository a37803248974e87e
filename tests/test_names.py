"""Names of modules, classes and public functions are words that a database, streaming or security engineer knows.

The words below once had a meaning of their own here. They are refused as words of names, so that none comes back.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "headgate"

PRIVATE = frozenset(
    [
        "sight",
        "look",
        "parcel",
        "demand",
        "gate",
        "desk",
        "entrance",
        "wanted",
        "learn",
        "compact",
        "carrier",
        "cell",
        "deal",
        "dealt",
        "share",
        "chain",
        "maker",
        "feeder",
        "passing",
        "ladder",
        "remembering",
        "keeping",
        "yielding",
        "lives",
        "places",
        "meters",
        "quotas",
        "blind",
        "cut",
        "spoilt",
        "said",
        "told",
        "found",
        "fate",
        "course",
    ]
)

TERMS = {
    ("errors", "NotFound"): "what HTTP and file systems call it",
    ("operators.join", "_Chains"): "a hash table with chaining",
    ("realtime.lattice", "chain"): "a totally ordered subset, in order theory",
    ("realtime.lattice", "maximal_chains"): "a totally ordered subset, in order theory",
    ("sendlog.held", "said_by"): "SeNDlog's operator `says`",
    ("sendlog.network", "said"): "SeNDlog's operator `says`",
    ("sendlog.node", "said"): "SeNDlog's operator `says`",
    ("sendlog.policy", "Said"): "SeNDlog's operator `says`",
}

ROWS = ("ingress", "model", "visibility", "execution", "operators", "egress", "recovery")
"""The packages that rows go through. Rows are rejected; statements and requests are refused."""

APART = ("bench", "realtime", "sendlog")
"""Programs of their own, with a `Node`, a `Table` and an `Engine` of their own."""

SCHEMA = {"Answer", "Reasons", "Session"}
"""Models of server/app.py whose names are published in its OpenAPI schema."""


class Named(NamedTuple):
    module: str
    name: str
    is_class: bool = False

    @property
    def words(self) -> list[str]:
        return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", self.name)]


def named_in(module: str, body: list[ast.stmt]) -> Iterator[Named]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield Named(module, node.name, is_class=True)
            yield from named_in(module, node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield Named(module, node.name)


def every_name() -> Iterator[Named]:
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        yield Named(module, module.rpartition(".")[2])
        yield from named_in(module, ast.parse(path.read_text()).body)


NAMES = [*every_name()]


def is_private(word: str) -> bool:
    return word in PRIVATE or word.removesuffix("s") in PRIVATE


def test_no_name_has_a_word_of_a_private_language() -> None:
    assert len(NAMES) > 3000
    wrong = [x for x in NAMES if any(map(is_private, x.words)) and (x.module, x.name) not in TERMS]
    assert wrong == []


def test_every_exception_is_there() -> None:
    assert TERMS.keys() <= {(x.module, x.name) for x in NAMES}


def test_rows_are_rejected_not_refused() -> None:
    assert [x for x in NAMES if x.module.split(".")[0] in ROWS and "refused" in x.words] == []


def test_every_class_has_a_name_of_its_own() -> None:
    own = [x for x in NAMES if x.is_class and x.module.split(".")[0] not in APART]
    counts = Counter(x.name for x in own if x.module != "server.app" or x.name not in SCHEMA)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("name", ["look_at", "Cuts", "_BySight", "of_share", "HTTPCell", "maximal_chains"])
def test_a_private_word_is_noticed(name: str) -> None:
    assert any(map(is_private, Named("", name).words))


@pytest.mark.parametrize("name", ["lookup", "shared", "execute", "Marketplace", "foundation", "SharingClass"])
def test_another_word_is_not(name: str) -> None:
    assert not any(map(is_private, Named("", name).words))
