"""What can be known of a source before it is read: the names of formats, and the options that text files have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from headgate.errors import SourceError

FILES = frozenset({"json", "csv", "parquet", "orc", "text"})
LISTING = frozenset(
    {"path", "pathglobfilter", "recursivefilelookup", "maxfilespertrigger", "maxbytespertrigger", "maxfileage"}
    | {"latestfirst", "filenameonly", "cleansource", "sourcearchivedir", "modifiedbefore", "modifiedafter"}
)
"""Options that select files, and say nothing about their contents."""
TEXT = {"csv": ("header", "sep", "delimiter", "quote", "nullValue", "encoding"), "json": ("encoding",)}
"""The further options of text files, by format."""
_KNOWN = (*sorted(FILES), "kafka", "rate", "rate-micro-batch", "socket", "publish")


def check_source(format_: str, options: Mapping[str, str]) -> None:
    """Refuses a source that cannot be meant: a slip in the name of a format, files without a path, and options that the
    readers of text files do not know. Any other format may be one that is installed."""
    if format_ not in _KNOWN and (near := get_close_matches(format_.lower(), _KNOWN, 1, 0.66)):
        raise SourceError(f"there is no format `{format_}`", hint=f"did you mean {near[0]}?")
    if format_ in FILES and not any(name.lower() == "path" for name in options):
        raise SourceError(f"`{format_}` needs a path", hint=f"SOURCE {format_} (path = 'FOLDER')")
    if format_ in TEXT:
        check_options(format_, options)


def check_options(format_: str, names: Collection[str]) -> None:
    """An unknown option is an error: its author expects an effect."""
    known = {name.lower() for name in TEXT[format_]} | LISTING
    for name in (name.lower() for name in names):
        if name not in known:
            hint = f"there are {', '.join(TEXT[format_])}, and those that say which files there are"
            raise SourceError(f"`{format_}` has no option `{name}` here", hint=hint)
