"""The measurements behind every number in the documents: `headgate bench NAME`.

A bench is a module with `run(quick: bool, progress: Progress) -> Report`. It is imported only when it is run, so that
no bench needs the dependencies of another.
"""

BENCHES: dict[str, tuple[str, str]] = {
    "labels": ("headgate.bench.labels", "What label decisions cost, beside accumulo-access (Java)."),
    "access": ("headgate.bench.access", "What one access check costs as users, roles and objects grow."),
    "plan": ("headgate.bench.plan", "What it costs to add a query to the shared plan as more queries run."),
    "users": ("headgate.bench.users", "What the next user costs, from one to a thousand, on one stream."),
    "windows": ("headgate.bench.windows", "How fast windows run as their size, keys, views and queries grow."),
    "state": ("headgate.bench.state", "What small batches, restarts and revocations cost while much is held."),
    "joins": ("headgate.bench.joins", "How fast joins run as their windows, keys, views and queries grow."),
    "secfilter": ("headgate.bench.secfilter", "What labelling and filtering add to queries of 4 to 64 operators."),
    "peers": ("headgate.bench.peers.bench", "Headgate beside Structured Streaming, bytewax and Flink."),
    "scale": ("headgate.bench.scale", "How tasks do as tuples, partitions and cores grow, and what the driver does."),
    "shared": ("headgate.bench.shared", "What it costs that people share a query (paper 001, Figure 9)."),
    "latency": ("headgate.bench.latency", "How long a tuple takes from its arrival to everyone who waits for it."),
    "publish": (
        "headgate.bench.publish",
        "How many tuples a server takes, and how fast they reach a subscriber.",
    ),
    "kafka": (
        "headgate.bench.kafka",
        "How fast tuples come from Kafka, beside bare Spark queries over the same topic.",
    ),
    "sharing": ("headgate.bench.sharing", "Which queries share operators in each architecture (paper 002, Table 2)."),
    "architectures": ("headgate.bench.architectures", "What it costs to keep levels apart (paper 002, section 3.2)."),
    "star": ("headgate.bench.star", "Deadlines without covert channels: the experiments of paper 004."),
    "deadlines": ("headgate.bench.deadlines", "Live queries with deadlines at three levels under twice the load."),
    "sendlog": ("headgate.bench.sendlog.bench", "What signed rules cost: best paths (paper 003), policy decisions."),
    "sendlog-overlays": ("headgate.bench.sendlog.overlays", "What signed overlays and provenance cost (paper 003)."),
    "sendlog-scale": ("headgate.bench.sendlog.scale", "Recursive rules over much data on Spark."),
}
"""Name of the bench -> (module, one line of help)."""
