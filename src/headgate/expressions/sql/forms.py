"""The text forms that CAST accepts (SPEC.md, 4.1), as regular expressions that RE2 and Java read alike.

Every engine accepts more than these, each something else (`1_000`, `NaN`, `24:00`, `now`), so a text is matched against
its form first. The forms contain neither quotes nor backslashes, so they can be written into SQL as they are.
"""

from __future__ import annotations

_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"  # every year but 0000
WHOLE = "[+-]?[0-9]+"
NUMBER = "[+-]?([0-9]+([.][0-9]+)?|[.][0-9]+)([eE][+-]?[0-9]+)?"
TRUTH = "(?i:true|t|yes|y|1|false|f|no|n|0)"
DATE = f"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}"
TIME = (
    f"{DATE}[ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{{1,6}})?)?"
    "(Z|[+-]((0[0-9]|1[0-7]):[0-5][0-9]|18:00))?"
)
FIRST_MICROSECOND = -62_135_596_800_000_000
"""0001-01-01 in microseconds since 1970. An offset can move a time before it, which then does not fit."""
LAST_MICROSECOND = 253_402_300_799_999_999
"""The last microsecond of 9999-12-31."""
