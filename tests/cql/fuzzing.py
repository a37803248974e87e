"""Texts to throw at the parser: sentences of SPEC.md's grammars about things that exist, and what damage makes of them.

Every text is a function of its seed alone, so that a failure can be repeated from the line that reports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from damage import Damage
from labels.ebnf import Choice, Node, Repeated, Symbol, Terminal

from headgate.plan.expressions import Type
from headgate.plan.queries import Stream
from headgate.testing.queries import random_query

from .grammar import LABELS, QUERIES, STATEMENTS

# What the texts are about. Everything belongs to root but the things whose names begin with j, which are joe's.
WORLD = """
    CREATE LEVEL C; CREATE LEVEL S ABOVE C; CREATE LEVEL T; CREATE COMPARTMENT NATO; CREATE COMPARTMENT EU;
    CREATE ROLE nurse; CREATE ROLE doctor MAX QUERIES 3 MAX STATE 70 MAX RESULTS NONE;
    CREATE ROLE clerk; CREATE ROLE auditor;
    GRANT ROLE nurse TO ROLE doctor;
    CREATE SEPARATION pay STATIC OF clerk, auditor; CREATE SEPARATION shift DYNAMIC OF doctor, clerk;
    CREATE USER joe PASSWORD 'correct horse'; CREATE USER al PASSWORD 'correct horse' CLEARANCE S{NATO};
    GRANT ROLE nurse TO USER joe; GRANT ROLE doctor, clerk TO USER al; GRANT ADD ON SYSTEM TO nurse;
    CREATE SCHEMA vitals (patient STRING, pulse INT); CREATE SCHEMA "ward 1" (bed INT LABEL 'nurse');
    CREATE STREAM in1 (patient STRING, pulse INT); CREATE STREAM in2 SCHEMA vitals LABEL 'nurse' SEMANTICS WEAK;
    GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO nurse; GRANT VIEW OBJECT ON SCHEMA vitals TO doctor;
    CREATE POLICY staff AS $$ plays(joe, clerk). plays(U, auditor) :- al says staff(U). $$;
    CREATE QUERY q1 READING in1 USING select OUTPUT out1;
    CREATE QUERY q2 READING in1, in2 USING join (streams = 2) OUTPUT out2; START QUERY q2;
    GRANT USE ON OPERATOR window TO clerk WITH (rows = 10, kinds = ('SLIDING'));
"""
JOES_WORLD = """
    CREATE SCHEMA jv (n INT); CREATE STREAM j1 (n INT); CREATE STREAM in1 (n INT);
    CREATE QUERY jq READING j1, root.in1 OUTPUT jout; START QUERY jq; GRANT VIEW OBJECT ON STREAM j1 TO doctor;
"""

STREAMS = (
    Stream("in1", (("patient", Type.STRING), ("pulse", Type.INT))),
    Stream("in2", (("patient", Type.STRING), ("pulse", Type.INT))),
)

KNOWN = {
    "user": ["root", "joe", "al"],
    "role": ["nurse", "doctor", "clerk", "auditor", "ADMIN", "PUBLIC"],
    "level": ["U", "C", "S", "T"],
    "compartment": ["NATO", "EU"],
    "separation": ["pay", "shift"],
    "policy": ["staff", "new1"],
    "schema": ["vitals", '"ward 1"', "jv"],
    "stream": ["in1", "in2", "out1", "j1", "root.in1", "joe.j1"],
    "query": ["q1", "q2", "jq"],
    "operator": ["select", "project", "union", "distinct", "join", "aggregate", "window"],
    "column": ["patient", "pulse", "bed", "n"],
    "parameter": [
        "session_minutes",
        "idle_minutes",
        "lockout_failures",
        "lockout_minutes",
        "max_sessions",
        "default_rights",
    ],
    "limit": ["rows", "seconds", "kinds", "functions", "groups", "streams"],
}
RULES = [
    'plays(joe, doctor). plays(al, auditor). cleared(joe, "S{NATO}").',
    'may_access(clerk, "VIEW OBJECT", "STREAM in1"). may_access("PUBLIC", "READ TUPLE", "STREAM joe.j1").',
    "plays(U, R) :- user(U), role(R), R != doctor. user(al). user(nobody). role(doctor). role(clerk).",
    "materialize(is, 60). cleared(U, L) :- joe says is(U, L).",
    "plays(X, Y) :- q(X).",
    "",
]
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
PUBLIC_KEY = _KEY.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
# The last key word before a name says what the name is of.
NAMED_AFTER = {
    word: kind
    for kind, words in {
        "user": "USER",
        "role": "ROLE OF FROM TO | &",
        "level": "LEVEL ABOVE CLEARANCE AT",
        "compartment": "COMPARTMENT",
        "separation": "SEPARATION",
        "policy": "POLICY",
        "schema": "SCHEMA",
        "stream": "STREAM READING",
        "query": "QUERY",
        "operator": "OPERATOR USING",
        "column": "COLUMN",
        "parameter": "SYSTEM",
        "limit": "WITH =",
    }.items()
    for word in words.split()
}
NEW = ["new1", "new2", '"new 3"', "Joe", '"a""b"', '"é"', '"日本"', "USER"]
STRANGE = [
    *"\"'`;,.(){}[]=<>*+/%-&|\\#$@!?~^:_0 ",
    *"\n\r\t\x00\x01\x1b\x7f\x85\u00a0\u00ad\u0301\u0378\u200b\u2028\u202e\ue000\ufeff\ud800\udfff\U0001f600",
    *"İıſK٣²",
    *("''", '""', "--", "/*", "*/"),
]
STRINGS = {
    "LABEL": ["nurse", "nurse & clerk AT C"],
    "PASSWORD": ["battery staple", "it's a secret", "short", "é" * 8, "half a \ud83d pair", "a \x00 b \x00 c"],
    "KEY": [PUBLIC_KEY, PUBLIC_KEY, "ssh-ed25519 AAAA", "-----BEGIN PUBLIC KEY-----", "", "\ud83d"],
    "": ["ROLE", "30", "AVG", "SLIDING", "it's", ""],
}
SOURCES = ("SOURCE publish", "SOURCE csv (path = '/in')", "SOURCE parquet (path = '/in', maxFilesPerTrigger = '2')")
"""Sources that a stream may have; most that are made at random are refused."""
DEADLINES = ["DEADLINE 2 SECONDS", "DEADLINE 1 HOUR QOS (SAMPLE 50 PERCENT, SAMPLE 12.5 PERCENT)"]
NUMBERS = ["0", "00", "1.0", "1e9", "-1", "2147483648", "999999999999999999", "9" * 19, "9" * 4000, "0.1.2", "0x10"]
_DAMAGE = Damage(
    pieces=re.compile(r"\s+|[A-Za-z0-9_]+|'[^']*'|\"[^\"]*\"|.", re.DOTALL),
    strange=STRANGE,
    spare=["'x'", '"y"', "7", ";", ",", "(", ")", "=", "USER", "ROLE", "ON", "TO", "nurse"],
    brackets=[("(", ")"), ("{", "}"), ("'", "'"), ('"', '"'), ("[", "]")],
    depths=[3, 63, 64, 65, 500],
    inside=["", "a", "nurse & clerk"],
)


@dataclass
class Author:
    """Writes sentences of a grammar, mostly about things that exist."""

    random: Random
    tokens: list[str] = field(default_factory=list)

    def write(self, node: Node, fuel: int = 6) -> None:
        match node:
            case Terminal():
                self.tokens.append(node.text)
            case Symbol():
                self._symbol(node.name, fuel)
            case Choice():
                self.write(self.random.choice(node.parts), fuel)
            case Repeated():
                more = self.random.random() < 0.4
                while fuel > 0 and more:
                    self.write(node.parts[0], fuel)
                    more = not node.at_most_once and self.random.random() < 0.3
            case _:
                for part in node.parts:
                    self.write(part, fuel)

    def _symbol(self, name: str, fuel: int) -> None:
        if name in ("name", "role", "source"):
            self.tokens.append(self._name())
        elif name == "number":
            self.tokens.append(self.random.choice(["1", "2", "5", "30", *NUMBERS[:7]]))
        elif name == "string":
            self.tokens.append("'" + self._string().replace("'", "''") + "'")
        elif name == "object":
            self.tokens.append(self._name())
        elif name == "rules":
            self.tokens.append(f"$${self.random.choice(RULES)}$$")
        elif name == "deadline" and self.random.random() < 0.7:
            self.tokens.append(self.random.choice(DEADLINES))
        elif name == "input" and self.random.random() < 0.7:
            self.tokens.append(self.random.choice(SOURCES))
        elif name == "roles" and fuel <= 0:
            self.tokens.append("nurse")
        elif name in ("query", "blocks"):
            roles = ("nurse", "doctor") if name == "query" else ()
            self.tokens.append(random_query(self.random, STREAMS, roles=roles, depth=1, levels=("U", "C", "S")))
        else:
            self.write(STATEMENTS.get(name) or LABELS.get(name) or QUERIES[name], fuel - 1)

    def _last_word(self) -> str:
        return next((token for token in reversed(self.tokens) if token in NAMED_AFTER), "")

    def _name(self) -> str:
        new = (len(self.tokens) == 2 and self.tokens[0] == "CREATE") or self.tokens[-1:] == ["OUTPUT"]
        if self.random.random() < (0.9 if new else 0.05):
            return self.random.choice(NEW)
        kind = NAMED_AFTER.get(self._last_word(), "role")
        if self.tokens[-2:] in (["OWNER", "TO"], ["REASSIGN", "TO"]):
            kind = "user"
        elif "(" in self.tokens and self.tokens[0] in ("CREATE", "ALTER") and self.tokens[1] in ("SCHEMA", "STREAM"):
            kind = "column"
        elif "{" in self.tokens and "}" not in self.tokens:
            kind = "compartment"
        elif "(" in self.tokens and kind == "operator" and self.tokens[-1] in ("(", ","):
            kind = "limit"
        return self.random.choice(KNOWN[kind])

    def _string(self) -> str:
        if self.tokens[-1] == "LABEL" and self.random.random() < 0.2:
            return label(self.random)
        return self.random.choice(STRINGS.get(self.tokens[-1], STRINGS[""]))


def label(random: Random) -> str:
    author = Author(random)
    author.write(LABELS["label"])
    return " ".join(author.tokens)


def statement(random: Random) -> str:
    author = Author(random)
    author.write(STATEMENTS["statement"])
    return " ".join(author.tokens)


def script(random: Random) -> str:
    return "; ".join(statement(random) for _ in range(random.choice([1, 1, 1, 2, 3])))


def noise(random: Random) -> str:
    """Characters of any kind, in no order."""
    pieces = [*STRANGE, *NUMBERS, "CREATE", "USER", "a", " "]
    pieces += [chr(random.randrange(0x110000)) for _ in range(10)]
    return "".join(random.choice(pieces) for _ in range(random.randrange(40)))


def _numbered(random: Random, text: str) -> str:
    changed = re.sub(r"\b\d+\b", lambda _: random.choice(NUMBERS), text)
    return changed if changed != text else f"{text} {random.choice(NUMBERS)}"


WAYS = [_DAMAGE.cut, _DAMAGE.put_in, _DAMAGE.put_in, _DAMAGE.nested, _DAMAGE.grown, _numbered]
WAYS += [_DAMAGE.tokens] * 3


def damaged(random: Random, text: str) -> str:
    for _ in range(random.choice([1, 1, 2, 3])):
        text = random.choice(WAYS)(random, text)
    return text
