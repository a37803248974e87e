"""The limits of USE grants: which parameters of an operator a grant does not cover (paper 000, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.access.definitions import Parameters
from headgate.cql.names import Limit


def exceeded(limits: Parameters, parameters: Mapping[str, Limit]) -> list[str]:
    """The limits of a grant that these parameters break, in words. A limited parameter must be given; of several
    limited numbers at least one (a window has rows or seconds)."""
    faults, missing, sized = [], [], False
    for key, limit in limits:
        given = parameters.get(key)
        if isinstance(limit, tuple):
            if not isinstance(given, tuple) or not set(given) <= set(limit):
                faults.append(f"{key} only {', '.join(limit)}")
        elif not isinstance(given, int | float):
            missing.append(f"{key} of at most {limit}")
        else:
            sized = True
            if given > limit:
                faults.append(f"{key} of at most {limit}")
    return faults if sized else faults + missing
