"""The DuckDB dialect."""

from __future__ import annotations

from collections.abc import Callable

from headgate.expressions.sql import forms
from headgate.expressions.sql.dialect import ESCAPE, FIELDS, Dialect, changed_letters
from headgate.expressions.sql.types import DUCKDB
from headgate.expressions.sql.writing import Name, SqlWriter
from headgate.plan.expressions import Expr, Type


def duckdb_sql(expr: Expr, name: Name) -> str:
    """Write an expression in DuckDB SQL. `name` returns the quoted reference to a column. The SQL is for connections
    with IEEE arithmetic, as `kernel_connection` makes them: x / 0 is not finite there, and so NULL."""
    return SqlWriter(Duck(), name).write(expr)


def duckdb_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Duck(Dialect):
    types = DUCKDB

    def bound(self, body: Callable[..., str], operands: tuple[str, ...]) -> str:
        if len(operands) == 1:
            return f"list_transform([{operands[0]}], lambda v: {body('v')})[1]"
        fields = ", ".join(f"'{field}': {operand}" for field, operand in zip(FIELDS, operands, strict=False))
        inside = body(*(f"v['{field}']" for field in FIELDS[: len(operands)]))
        return f"list_transform([{{{fields}}}], lambda v: {inside})[1]"

    def encoded(self, digits: str) -> str:
        return f"decode(unhex('{digits}'))"

    def binary(self, digits: str) -> str:
        return f"unhex('{digits}')"

    def finite(self, text: str) -> str:
        return self.let(lambda x: f"CASE WHEN isfinite({x}) THEN {x} END", text)

    def whole(self, operator: str, *operands: str) -> str:
        """HUGEINT holds every result, and takes the same time whether or not the result fits a BIGINT."""
        found = f" {operator} ".join(f"CAST({operand} AS HUGEINT)" for operand in operands)
        if len(operands) == 1:
            found = f"-{found}"
        return self.tried(f"TRY({found})" if operator == "%" else found, Type.BIGINT)

    def divided(self, operator: str, x: str, y: str) -> str:
        return f"({x} {operator} {y})"

    def absolute(self, text: str) -> str:
        return self.tried(f"abs(CAST({text} AS HUGEINT))", Type.BIGINT)

    def stepped(self, function: str, text: str) -> str:
        return self.tried(f"{function}({text})", Type.BIGINT)

    def truncated(self, text: str, type_: Type) -> str:
        return self.tried(f"trunc({text})", type_)

    def rounded(self, text: str) -> str:
        """The cast fails for numbers that are too large, but not for infinity and NaN."""
        return self.let(lambda x: f"CASE WHEN isfinite({x}) THEN {self.tried(x, Type.FLOAT)} END", text)

    def sum_or_more(self, x: str, y: str) -> str:
        return f"(CAST({x} AS HUGEINT) + {y})"

    def like(self, text: str, pattern: str) -> str:
        escape = f" ESCAPE '{ESCAPE}'" if ESCAPE in pattern else ""
        return f"({text} LIKE {self.text(pattern)}{escape})"

    def trimmed(self, text: str) -> str:
        return f"trim({text}, ' ')"

    def letters(self, function: str, text: str) -> str:
        """`translate` is slow, and ASCII texts do not need it."""
        before, after = changed_letters(function)
        return self.let(
            lambda x: (
                f"CASE WHEN strlen({x}) = length({x}) THEN {function}({x}) "
                f"ELSE translate({x}, '{before}', '{after}') END"
            ),
            text,
        )

    def joined(self, texts: list[str]) -> str:
        """Concatenate in halves, so that many texts do not nest deeper than DuckDB's parser allows."""
        if len(texts) == 1:
            return texts[0]
        half = len(texts) // 2
        return f"({self.joined(texts[:half])} || {self.joined(texts[half:])})"

    def formed(self, text: str, form: str) -> str:
        return f"regexp_extract({text}, '^({form})$')"

    def moment(self, text: str) -> str:
        with_offset = f"regexp_replace({text}, '^(.{{16}}[.:0-9]*)$', '\\1Z')"
        limits = f"{forms.FIRST_MICROSECOND} AND {forms.LAST_MICROSECOND}"
        return self.let(
            lambda x: f"CASE WHEN {x} BETWEEN {limits} THEN make_timestamp({x}) END",
            f"epoch_us(TRY_CAST({with_offset} AS TIMESTAMPTZ))",
        )
