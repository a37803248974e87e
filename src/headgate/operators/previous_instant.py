"""Remember what ROWS and PARTITIONED windows held at the previous instant of a sliding block.

Between two instants of a sliding block, tuples enter these windows and displace others, unseen. DSTREAM and DISTINCT
compare with the previous instant, so its rows are kept until the next instant, however many batches end in between.
They are kept apart from what the window holds: if rights to a tuple are lost, the tuple that it displaced does not
return. For all other windows, time alone tells what they held.
"""

from __future__ import annotations

from headgate.plan import nodes as n


def previous_rows(block: n.Node) -> tuple[n.Window, ...]:
    """The windows of a block (a ToStream node) whose rows at the previous instant must be kept beside what they
    hold."""
    if not isinstance(block, n.ToStream) or not (block.operator == "DSTREAM" or isinstance(block.input, n.Distinct)):
        return ()
    windows = [node for node in block.walk() if isinstance(node, n.Window)]
    if not any(window.slide for window in windows):
        return ()
    return tuple(window for window in windows if window.rows)


def name_of(block: n.Node, window: n.Window) -> str:
    """The name under which these rows are kept, beside what windows hold, whose names are the windows' keys."""
    return f"{window.key} {block.key}"
