"""The options of CSV and JSON lines sources."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.cql.source_options import LISTING, TEXT, check_options
from headgate.errors import SourceError
from headgate.ingress.records import Form
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type

FORMATS = frozenset(TEXT)


@dataclass(frozen=True)
class Text:
    """How the text files of a source are read."""

    descriptor: StreamDescriptor
    json: bool
    form: Form
    header: bool = False
    encoding: str = "utf-8"

    @property
    def columns(self) -> Sequence[tuple[str, Type]]:
        return self.descriptor.columns


def text_of(descriptor: StreamDescriptor, format_: str, options: Mapping[str, str]) -> Text:
    """Reads the options of a source."""
    check_options(format_, options)
    given = {name.lower(): value for name, value in options.items() if name.lower() not in LISTING}
    for name, value in given.items():
        least = 0 if name == "quote" else 1
        if name in ("sep", "delimiter", "quote") and not (least <= len(value) <= 1 and value.isascii()):
            raise SourceError(f"the option `{name}` has to be one character of ASCII")
    encoding = given.get("encoding", "utf-8")
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise SourceError(f"there is no encoding `{encoding}`") from None
    if format_ == "json":
        return Text(descriptor, True, Form(), encoding=encoding)
    form = Form(
        given.get("sep", given.get("delimiter", ",")) or ",", given.get("quote", '"'), given.get("nullvalue", "")
    )
    return Text(descriptor, False, form, given.get("header", "false").lower() == "true", encoding)
