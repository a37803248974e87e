"""The Spark SQL dialect. Its SQL means the same with and without ANSI mode, in every time zone of the session."""

from __future__ import annotations

from collections.abc import Callable

from headgate.expressions.sql import forms
from headgate.expressions.sql.dialect import ESCAPE, FIELDS, Dialect, changed_letters, plain_pattern
from headgate.expressions.sql.types import SPARK
from headgate.expressions.sql.writing import Name, SqlWriter
from headgate.plan.expressions import Expr, Type

SETTINGS = {"spark.sql.subexpressionElimination.enabled": "false"}
"""Spark would visit the first operands of CASE and COALESCE twice at every level, which takes practically forever 32
levels deep."""

_WHOLE = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "%": "try_mod"}
_DIVIDED = {"/": "try_divide", "%": "try_mod"}


def spark_sql(expr: Expr, name: Name) -> str:
    """Write an expression in Spark SQL. `name` returns the quoted reference to a column; columns of type TIMESTAMP are
    TIMESTAMP_NTZ (see `spark_utc`)."""
    return SqlWriter(Spark(), name).write(expr)


def spark_name(name: str) -> str:
    """A quoted column name. Spark replaces `${x}` even inside quotes, so a name with a `$` is written by its bytes."""
    quoted = "`" + name.replace("`", "``") + "`"
    return f"IDENTIFIER(CAST(X'{quoted.encode().hex()}' AS STRING))" if "$" in name else quoted


def spark_utc(instant: str) -> str:
    """Convert Spark's TIMESTAMP, which shows in the session's time zone, to a TIMESTAMP_NTZ in UTC."""
    return _since_1970(f"unix_micros({instant})")


def _since_1970(microseconds: str) -> str:
    return f"timestampadd(MICROSECOND, {microseconds}, CAST('1970-01-01' AS TIMESTAMP_NTZ))"


class Spark(Dialect):
    types = SPARK

    def cast(self, text: str, type_: Type) -> str:
        """Spark converts whole numbers directly to DOUBLE where they should become a FLOAT first, unless an operation
        stands between both casts."""
        found = super().cast(text, type_)
        return f"({found} + CAST(0 AS FLOAT))" if type_ == Type.FLOAT and text != "NULL" else found

    def bound(self, body: Callable[..., str], operands: tuple[str, ...]) -> str:
        if len(operands) == 1:
            return f"transform(array({operands[0]}), v -> {body('v')})[0]"
        fields = ", ".join(f"'{field}', {operand}" for field, operand in zip(FIELDS, operands, strict=False))
        inside = body(*(f"v.{field}" for field in FIELDS[: len(operands)]))
        return f"transform(array(named_struct({fields})), v -> {inside})[0]"

    def encoded(self, digits: str) -> str:
        return f"CAST(X'{digits}' AS STRING)"

    def binary(self, digits: str) -> str:
        return f"X'{digits}'"

    def finite(self, text: str) -> str:
        return self._finite(text, Type.DOUBLE)

    def _finite(self, text: str, type_: Type) -> str:
        """x % infinity is x for a finite x, and NaN otherwise."""
        infinity = f"CAST('Infinity' AS {self.types[type_]})"
        return f"nanvl({text} % {infinity}, {self.null(type_)})"

    def whole(self, operator: str, *operands: str) -> str:
        x, y = operands if len(operands) == 2 else ("0L", operands[0])
        return f"{_WHOLE[operator]}({x}, {y})"

    def divided(self, operator: str, x: str, y: str) -> str:
        return f"{_DIVIDED[operator]}({x}, {y})"

    def absolute(self, text: str) -> str:
        return self.let(lambda x: f"CASE WHEN {x} < 0 THEN try_subtract(0L, {x}) ELSE {x} END", text)

    def stepped(self, function: str, text: str) -> str:
        limit = self.cast("'9223372036854775808'", Type.DOUBLE)
        return self.let(lambda x: f"CASE WHEN {x} >= -{limit} AND {x} < {limit} THEN {function}({x}) END", text)

    def truncated(self, text: str, type_: Type) -> str:
        """Spark casts 2^63 to the largest BIGINT. No other DOUBLE becomes that number, so it is made NULL: adding 1 to
        it overflows."""
        found = self.tried(text, type_)
        return f"try_subtract(try_add({found}, 1L), 1L)" if type_ == Type.BIGINT else found

    def rounded(self, text: str) -> str:
        return self._finite(self.cast(text, Type.FLOAT), Type.FLOAT)

    def sum_or_more(self, x: str, y: str) -> str:
        return f"coalesce(try_add({x}, {y}), 9223372036854775807)"

    def like(self, text: str, pattern: str) -> str:
        """Spark makes a backtracking regular expression of a pattern, so plain texts are compared or searched as
        texts."""
        plain = plain_pattern(pattern)
        if plain is None:
            return f"({text} LIKE {self.text(pattern)} ESCAPE '{ESCAPE}')"
        before, pushdown, behind = plain
        if not before and not behind:
            return f"({text} = {self.text(pushdown)})"
        function = "contains" if before and behind else "endswith" if before else "startswith"
        return f"{function}({text}, {self.text(pushdown)})"

    def trimmed(self, text: str) -> str:
        return f"trim(BOTH ' ' FROM {text})"

    def letters(self, function: str, text: str) -> str:
        before, after = changed_letters(function)
        return f"translate({text}, '{before}', '{after}')"

    def joined(self, texts: list[str]) -> str:
        return f"concat({', '.join(texts)})"

    def formed(self, text: str, form: str) -> str:
        """Java's `$` would also match before a final line end."""
        return f"regexp_extract({text}, '(?s)^({form})(?!.)', 1)"

    def moment(self, text: str) -> str:
        with_seconds = f"regexp_replace({text}, '^(.{{16}})(?!:)', '$1:00')"
        with_offset = f"regexp_replace({with_seconds}, '^(.{{19}}[.0-9]*)(?!.)', '$1Z')"
        limits = f"{forms.FIRST_MICROSECOND} AND {forms.LAST_MICROSECOND}"
        return self.let(
            lambda x: f"CASE WHEN {x} BETWEEN {limits} THEN {_since_1970(x)} END",
            f"unix_micros(TRY_CAST({with_offset} AS TIMESTAMP))",
        )
