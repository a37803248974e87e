"""EXPLAIN: the plan of a query, what it shares with whom, what its results carry.

The answer is made from the queries that the caller may see and from nothing else, so it says nothing of the others: not
their names, not their number, not what is computed from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from headgate.access import rows as r
from headgate.access.authorizer import shown, source_name
from headgate.access.permissions import Permission
from headgate.access.queries import stored_query
from headgate.access.request import Handler, Request, Result
from headgate.access.running import Planned
from headgate.access.statements.queries import bind_for
from headgate.cql import continuous as c
from headgate.cql.statements import Statement
from headgate.errors import AccessDenied, Conflict
from headgate.lexing import quote
from headgate.plan import nodes as n
from headgate.plan.explain import shares, tree
from headgate.plan.lowering import lower
from headgate.plan.merged import MergedPlan
from headgate.plan.picture import picture
from headgate.plan.queries import Query
from headgate.plan.secure import Mode, SecurePlan

THIS = "this query"


def _explain(q: Request, x: c.ExplainQuery) -> Result:
    if x.query is not None:
        q.about("a query")
        bound = bind_for(q, x.query)
        return _explained(q, THIS, bound.query, bound.inputs, Mode.EXACT, str(q.principal.level))
    if x.target is None:
        q.about("queries")
        return _all(q)
    thing = q.find(x.target)
    definition = json.loads(thing.definition)
    if "text" not in definition:
        raise Conflict(f"{shown(thing)} was declared as boxes", hint="only queries in CQL have a plan")
    inputs = [q.state.objects.get(number) for number in definition["sources"]]
    found = stored_query(thing, q.state.objects.get)
    if found is None:
        raise Conflict(f"{shown(thing)} lost an input", hint="drop it and create it anew")
    visible = [stream for stream in inputs if stream is not None and q.may(Permission.VIEW_OBJECT, stream)]
    if len(visible) < len(inputs):
        raise AccessDenied(f"{shown(thing)} reads streams that you may not see")
    mode = Mode.CUMULATIVE if definition.get("cumulative") else Mode.EXACT
    return _explained(q, _name(thing), found, visible, mode, thing.level)


def _name(thing: r.Object) -> str:
    return f"{quote(thing.owner)}.{quote(thing.name)}"


def _seen(q: Request) -> Iterable[Planned]:
    return (planned for planned in q.running.queries() if q.may(Permission.VIEW_OBJECT, planned.query))


def _explained(q: Request, name: str, query: Query, inputs: list[r.Object], mode: Mode, level: str) -> Result:
    """Beside the running queries that the caller may see, of the same mode and level, that read some same stream."""
    root = lower(query)
    streams = _streams(root)
    plan = MergedPlan()
    for planned in _seen(q):
        other = _name(planned.query)
        fits = planned.mode == mode and planned.query.level == level and not streams.isdisjoint(_streams(planned.root))
        if fits and other != name:
            plan.add(other, planned.root)
    plan.add(name, root)
    others = {other: other for other in plan.queries if other != name}
    found = shares(plan, name, others)
    for other in set(others) - {share.query for share in found}:
        plan.remove(other)
    lines = [f"{name}: {mode}, level {level}", ""]
    lines += [f"  {line}" for line in tree(plan, name, others)]
    lines += ["", "shared with" if found else "shared with no running query that you may see"]
    lines += [f"  {share.query}: {share.kind}: {', '.join(share.operators)}" for share in found]
    lines += ["", "each result carries"]
    lines += [f"  {line}" for line in _labels(query, inputs, level)]
    return Result("\n".join(lines), picture=picture(plan))


def _streams(root: n.Node) -> frozenset[str]:
    return frozenset(node.stream for node in root.walk() if isinstance(node, n.Source))


def _labels(query: Query, inputs: list[r.Object], level: str) -> Iterable[str]:
    """What protects the results: of each stream its own policy, the labels that tuples bring, those of columns read."""
    read: dict[str, set[str]] = {}
    for block in query.blocks:
        exprs = (block.before, block.after, block.having, *(expr for _, expr in block.items), *block.groups)
        partitions = [column for reading in block.readings if reading.window for column in reading.window.partition]
        for column in {column for expr in (*exprs, *partitions) for column in expr.columns}:
            read.setdefault(block.readings[column.input].stream.name, set()).add(column.name)
    for stream in dict.fromkeys(inputs):
        definition = json.loads(stream.definition)
        parts = [f"the policy `{definition['label']}`"] if definition["label"] != "TRUE" else []
        parts += [f"the {kind.lower()} in column {quote(name)}" for kind, name in definition.get("labels", {}).items()]
        labelled = [column for column in definition["columns"] if "label" in column]
        used = read.get(source_name(stream), set())
        parts += [f"`{x['label']}` for column {quote(x['name'])}" for x in labelled if x["name"] in used]
        yield f"of {source_name(stream)}: {', '.join(parts) or 'what its tuples bring'}"
    yield f"level {level}, the level of the query"


def _all(q: Request) -> Result:
    """The merged plans of everything that runs and that the caller may see."""
    plan = SecurePlan(trusted=False)
    for planned in _seen(q):
        plan.add(_name(planned.query), planned.root, mode=planned.mode, level=q.authorizer.level(planned.query.level))
    shared = sum(len(part.nodes()) for part in plan.plans.values())
    alone = sum(len(list(root.walk())) for part in plan.plans.values() for root in part.queries.values())
    number = sum(len(part.queries) for part in plan.plans.values())
    lines = [f"{number} running queries, {shared} operators instead of {alone}"]
    for sharing, part in plan.plans.items():
        names = {name: name for name in part.queries}
        for name in sorted(names):
            lines += ["", f"{name}: {sharing.mode}, level {sharing.level}"]
            lines += [f"  {line}" for line in tree(part, name, names)]
    return Result("\n".join(lines), picture=picture(*plan.plans.values()))


HANDLERS: dict[type[Statement], Handler] = {c.ExplainQuery: _explain}
