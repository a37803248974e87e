"""Names of sources in labels, and as people see them."""

from __future__ import annotations

import re

_AGAIN = re.compile(r"~[0-9]+\Z")  # no name ends so: a name is plain or in quotes


def source_shown(name: str) -> str:
    """The name of a source as users know it. A source that was dropped and created again is `joe.in1~2` in labels,
    since tuples of the earlier one may still exist, and `joe.in1` for its readers."""
    return _AGAIN.sub("", name)
