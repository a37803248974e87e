"""Reports as Markdown, ready to be pasted into the documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.bench.harness import Report, written


def markdown(report: Report) -> str:
    """Rows, goals, notes, and where it was measured."""
    columns = report.columns()
    parts = [
        f"{report.title}:",
        "\n".join(
            _table(
                columns,
                [[written(row.get(column)) for column in columns] for row in report.rows],
                [report.numeric(column) for column in columns],
            )
        ),
    ]
    if report.goals:
        goals = [
            [
                goal.name,
                f"{written(goal.measured)} {goal.unit}",
                f"{goal.comparison} {written(goal.goal)} {goal.unit}",
                "holds" if goal.holds else "**does not hold**",
            ]
            for goal in report.goals
        ]
        parts.append("\n".join(_table(["goal", "measured", "wanted", ""], goals, [False] * 4)))
    if report.notes:
        parts.append("\n".join(f"- {note}" for note in report.notes))
    parts.append(f"Measured on: {', '.join(f'{name} {value}' for name, value in report.environment.items())}.")
    return "\n\n".join(parts)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    return "\n".join(_table(heads, rows, [False] * len(heads)))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> Iterator[str]:
    yield _line(heads)
    yield "|" + "|".join("---:" if x else "---" for x in numeric) + "|"
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
