"""EXPLAIN: the plan of a query, what it shares with which queries, what labels its results carry.

The answer is computed from the queries that the caller may see and from nothing else. INVARIANT: it reveals nothing of
other queries: not their names, not their number, not what is computed from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from headgate.access import rows as r
from headgate.access.authorizer import shown, shown_source, source_name
from headgate.access.derived import DerivedStreams
from headgate.access.permissions import Kind, Permission
from headgate.access.queries import stored_query
from headgate.access.request import Handler, Request, Result, Unfinished
from headgate.access.running import Planned
from headgate.access.statements.analyze import Analysis, analysis
from headgate.access.statements.queries import bind_for
from headgate.access.views import views
from headgate.cql import continuous as c
from headgate.cql.deadlines import Deadline
from headgate.cql.statements import Statement
from headgate.errors import AccessDenied, Conflict
from headgate.labels import source_shown
from headgate.lexing import quote
from headgate.plain import counted
from headgate.plan import nodes as n
from headgate.plan.explain import shared_with, tree, trees
from headgate.plan.lowering import lower
from headgate.plan.merged import MergedPlan
from headgate.plan.picture import Beside, picture
from headgate.plan.queries import Query
from headgate.plan.secure import Mode, SharingClass
from headgate.plan.steps import different

THIS = "this query"
MOST_EXPLAINED = 10


def _explain(q: Request, x: c.ExplainQuery) -> Result:
    """Plans are made anew for every answer, which is slow, so a script may ask for a few only. The inputs of the answer
    are collected here; it is written after the lock is released."""
    q.explained += 1
    if q.explained > MOST_EXPLAINED:
        raise Conflict(f"a script must not explain more than {MOST_EXPLAINED} times")
    if x.query is not None:
        bound = bind_for(q, x.query)
        q.about("a query")
        return _explained(q, THIS, bound.query, bound.inputs, Mode.EXACT, str(q.principal.level))
    if x.target is None:
        q.about("queries")
        return _all(q)
    thing = q.find(x.target)
    definition = thing.query
    if not definition.text:
        raise Conflict(
            f"cannot explain {shown(thing)}: it was declared as boxes", hint="only queries in CQL have a plan"
        )
    inputs = [q.state.objects.get(number) for number in definition.sources]
    found = stored_query(thing, q.state.objects.get)
    if found is None:
        raise Conflict(f"cannot explain {shown(thing)}: an input was dropped", hint="drop it and create it anew")
    visible = [stream for stream in inputs if stream is not None]
    if not _shows(q, definition.inputs):
        raise AccessDenied(f"cannot explain {shown(thing)}: it reads streams that you may not see")
    mode = Mode.CUMULATIVE if definition.cumulative else Mode.EXACT
    allowed = analysis(q, thing) if x.analyzes else None
    return _explained(q, _name(thing), found, visible, mode, thing.level, allowed, definition.deadline)


def _name(thing: r.Object) -> str:
    return f"{quote(thing.owner)}.{quote(thing.name)}"


def _seen(q: Request) -> Iterable[Planned]:
    """The running queries that the caller may see and whose streams it may see too: a plan shows what it reads."""
    found = (q.plans().query(thing.id) for thing in q.catalog.visible(q.principal, Kind.QUERY))
    return (planned for planned in found if planned is not None and _shows(q, planned.inputs))


def _shows(q: Request, streams: Iterable[int]) -> bool:
    found = (q.state.objects.get(number) for number in streams)
    return all(stream is not None and q.may(Permission.VIEW_OBJECT, stream) for stream in found)


def _explained(
    q: Request,
    name: str,
    query: Query,
    inputs: list[r.Object],
    mode: Mode,
    level: str,
    allowed: Analysis | None = None,
    deadline: Deadline | None = None,
) -> Result:
    """Explains a query beside the running queries that the caller may see and that may share with it."""
    root = lower(query)
    bases = _bases(q, inputs)
    sharing = SharingClass.of(root, mode, q.authorizer.level(level))
    seen = [planned for planned in _seen(q) if _sharing(q, planned) == sharing]
    running = {_name(planned.query): planned.root for planned in seen}
    drawn = _beside(q, [(_title(sharing), planned) for planned in seen], inputs)
    return Unfinished(
        "", write=partial(_written, name, query, root, running, inputs, bases, sharing, drawn, allowed, deadline)
    )


def _beside(q: Request, seen: Sequence[tuple[str, Planned]], inputs: Iterable[r.Object] = ()) -> Beside:
    """What the picture shows beside operators, for queries in frames of these titles."""
    made = {(title, _name(x.query)): q.state.objects.get(x.query.query.output) for title, x in seen}
    outputs = {key: source_name(stream) for key, stream in made.items() if stream is not None}
    found = views(q, [x for _, x in seen])
    read = [*inputs, *(q.state.objects.get(number) for _, x in seen for number in x.inputs)]
    levels = {source_name(stream): stream.level for stream in read if stream is not None}
    return Beside(outputs, {(title, _name(x.query)): found[x.query.id] for title, x in seen}, levels)


def _written(
    name: str,
    query: Query,
    root: n.Node,
    running: Mapping[str, n.Node],
    inputs: list[r.Object],
    bases: Mapping[int, list[r.Object]],
    sharing: SharingClass,
    drawn: Beside,
    allowed: Analysis | None,
    deadline: Deadline | None,
) -> Result:
    plan = MergedPlan()
    for other, found_root in running.items():
        if other != name:
            plan.add(other, found_root)
    plan.add(name, root)
    others = {other: other for other in plan.queries if other != name}
    found = shared_with(plan, name, others)
    for other in set(others) - {share.query for share in found}:
        plan.remove(other)
    due = f", deadline {deadline}" if deadline is not None else ""
    lines = [f"{name}: {sharing.mode}, level {sharing.level}{due}", ""]
    if allowed is not None:
        lines[1:] = allowed.lines(tree(plan, name, others))
        return Result("\n".join(lines), draw=lambda: picture({_title(sharing): plan}, drawn))
    lines += [f"  {line.text}" for line in tree(plan, name, others)]
    lines += ["", "shared with" if found else "shared with no running query that you may see"]
    lines += [f"  {share.query}: {share.kind}: {', '.join(share.operators)}" for share in found]
    lines += ["", "each result carries"]
    lines += [f"  {line}" for line in _labels(query, inputs, bases, str(sharing.level))]
    return Result("\n".join(lines), draw=lambda: picture({_title(sharing): plan}, drawn))


def _bases(q: Request, inputs: Iterable[r.Object]) -> dict[int, list[r.Object]]:
    """By input that is the output of a query: the streams that it is computed from, if the caller may see them all."""
    derived = DerivedStreams(q.state, q.authorizer, q.plans())
    found = {x.id: derived.read_by(x.stream.made_of) for x in inputs if x.stream.made_of is not None}
    return {
        number: [x for x in read if x.stream.made_of is None]
        for number, read in found.items()
        if all(q.may(Permission.VIEW_OBJECT, x) for x in read)
    }


def _labels(query: Query, inputs: list[r.Object], bases: Mapping[int, list[r.Object]], level: str) -> Iterable[str]:
    """The labels that protect the results: each stream's policy, the labels that tuples bring, those of columns
    read."""
    read: dict[str, set[str]] = {}
    for block in query.blocks:
        exprs = (block.before, block.after, block.having, *(expr for _, expr in block.items), *block.groups)
        partitions = [column for reading in block.readings if reading.window for column in reading.window.partition]
        for column in {column for expr in (*exprs, *partitions) for column in expr.columns}:
            read.setdefault(block.readings[column.input].stream.name, set()).add(column.name)
    for stream in dict.fromkeys(inputs):
        definition = stream.stream
        parts = [f"the policy `{definition.label}`"] if definition.label != "TRUE" else []
        parts += [f"the {kind.lower()} in column {quote(name)}" for kind, name in definition.labels]
        labelled = [column for column in definition.columns if column.label]
        used = read.get(source_name(stream), set())
        parts += [f"`{x.label}` for column {quote(x.name)}" for x in labelled if x.name in used]
        for base in bases.get(stream.id, ()):
            own = base.stream
            parts += [f"the policy `{own.label}` of {shown_source(base)}"] if own.label != "TRUE" else []
            parts += [f"the {kind.lower()} in column {quote(x)} of {shown_source(base)}" for kind, x in own.labels]
        yield f"of {shown_source(stream)}: {', '.join(parts) or 'what its tuples bring'}"
    yield f"level {level}, the level of the query"


def _all(q: Request) -> Result:
    """The merged plans of all running queries that the caller may see. A name is unique within one plan only: an owner
    may have a query of the same name at another level."""
    seen = [(_sharing(q, planned), planned) for planned in _seen(q)]
    titled = [(_title(sharing), planned) for sharing, planned in seen]
    return Unfinished("", write=partial(_all_written, seen, _beside(q, titled)))


def _all_written(seen: list[tuple[SharingClass, Planned]], drawn: Beside) -> Result:
    plans: dict[SharingClass, MergedPlan] = {}
    for sharing, planned in seen:
        plans.setdefault(sharing, MergedPlan()).add(_name(planned.query), planned.root)
    shared = sum(len(different(plan.queries.values())) for plan in plans.values())
    alone = sum(len(different([root])) for plan in plans.values() for root in plan.queries.values())
    number = sum(len(plan.queries) for plan in plans.values())
    lines = [f"{counted(number, 'running query', 'running queries')}, {counted(shared, 'operator')} instead of {alone}"]
    for sharing, plan in plans.items():
        for name, told in trees(plan):
            lines += ["", f"{name}: {sharing.mode}, level {sharing.level}"]
            lines += [f"  {line.text}" for line in told]
    titles = {_title(sharing): plan for sharing, plan in plans.items()}
    return Result("\n".join(lines), draw=lambda: picture(titles, drawn))


def _sharing(q: Request, planned: Planned) -> SharingClass:
    return SharingClass.of(planned.root, planned.mode, q.authorizer.level(planned.query.level))


def _title(sharing: SharingClass) -> str:
    over = ", ".join(sorted(map(source_shown, sharing.streams)))
    return f"{sharing.mode}, level {sharing.level}, over {over}"


HANDLERS: dict[type[Statement], Handler] = {c.ExplainQuery: _explain}
