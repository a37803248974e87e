"""The golden cases: a folder each, with a program, its facts, and the expected tables or the expected error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.sendlog.values import Row, shown, shown_fact

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    principals: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    error: str = ""


def cases(*, errors: bool) -> list[Case]:
    """Those that run, or those that are refused."""
    return [case for folder in sorted(CASES.iterdir()) if bool((case := _case(folder)).error) == errors]


def _case(folder: Path) -> Case:
    text = (folder / "program.snd").read_text()
    if (folder / "error.txt").exists():
        return Case(folder.name, text, error=(folder / "error.txt").read_text().rstrip("\n"))
    if (folder / "facts.snd").exists():
        text += (folder / "facts.snd").read_text()
    people, tables, *rows = (folder / "expected.txt").read_text().splitlines()
    principals = tuple(people.removeprefix("principals: ").split())
    return Case(folder.name, text, principals, tuple(tables.removeprefix("tables: ").split(", ")), tuple(rows))


def line(principal: str, table: str, row: Row) -> str:
    """One expected row, as it is written in a case."""
    if table.startswith("says "):
        return f"{principal}: {shown(row[0])} says {shown_fact(table.removeprefix('says '), row[1:])}"
    return f"{principal}: {shown_fact(table, row)}"
