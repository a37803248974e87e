"""`headgate shell`: statements one after the other, and live results, in one session.

What the shell completes and shows comes from the server's answers alone: it knows no more than its user may see.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from headgate.cli.context import Place, pass_place, reported, say, say_lines, show, with_forms
from headgate.cli.live import show_live
from headgate.client import Client
from headgate.errors import Conflict, HeadgateError

HELP = r"""Statements end with ; and may have several lines.
  \d         what you may see
  \d NAME    what a stream, a query or a schema is
  \w STREAM  its results as they come; Ctrl-C ends that
  \?         this help
  \q         end, as Ctrl-D does"""
WORDS = re.findall(
    r"\w+",
    """ACCEPT ADD ALTER AND AS AT AUDIT AVG BY CATALOG COUNT CREATE DESCRIBE DISTINCT DROP EXPLAIN FROM GRANT GROUP
    HAVING LABEL LATENESS LEVEL MAX MIN ON OPERATOR OWNER PASSWORD POLICY PUBLISH QUERIES QUERY RANGE READ REVOKE ROLE
    ROLES ROWS SCHEMA SELECT SESSION SET SHOW SLIDE SOURCE START STATEMENT STOP STREAM STREAMS SUBSCRIBE SUBSCRIPTIONS
    SUM SYSTEM TO TUPLE UNSUBSCRIBE USE USER USERS VIEW WHERE WITH""",
)
"""Words of the language that are completed."""
_WORD = re.compile(r"[\\\w.]+$")
_SECRET = re.compile(r"\bPASSWORD\b", re.IGNORECASE)


@click.command()
@with_forms
@pass_place
def shell(place: Place, form: str | None) -> None:
    """Type statements and watch results, with history and completion.

    Without --server, the home folder's own server is asked; if none runs, one is started, and ends after the shell.
    From a pipe, the shell reads statements until its end; commands with \\ are for the terminal.
    """
    with reported(), place.client() as client:
        if not sys.stdin.isatty():
            script = sys.stdin.read()
            if script.lstrip().startswith("\\"):
                raise Conflict("cannot read commands with \\ from a pipe", hint="write DESCRIBE or SHOW CATALOG")
            answer(client, script, form)
            return
        say(f"headgate at {client.url}, as {client.user}; \\? for help")
        session = ShellSession(client, form)
        for text in _typed(session, place.home if place.server is None else None):
            if not session.take(text):
                break


def answer(client: Client, script: str, form: str | None) -> None:
    for result in client.execute(script):
        show(result, form)


@dataclass
class ShellSession:
    """What the shell does with a text; the client is asked again for names when something may have changed them."""

    client: Client
    form: str | None = None
    watch: Callable[[Client, str], None] = show_live
    _names: Sequence[str] = field(default=())

    def take(self, text: str) -> bool:
        """Answers a statement or a command; false if the shell is to end. An error ends nothing."""
        word, _, rest = text.strip().partition(" ")
        name = rest.strip().rstrip(";")
        try:
            if word in ("\\q", "quit", "exit"):
                return False
            if word == "\\?":
                say_lines(HELP)
            elif word == "\\d":
                answer(self.client, f"DESCRIBE {name}" if name else "SHOW CATALOG", self.form)
            elif word == "\\w" and name:
                self.watch(self.client, name)
            elif word.startswith("\\"):
                say(f"there is no command {word}; \\? lists them", err=True)
            elif word:
                answer(self.client, text, self.form)
                self._names = ()
        except HeadgateError as error:
            where = f"{error.position.line}:{error.position.column}: " if error.position is not None else ""
            say(f"error: {where}{error.message}{f' ({error.hint})' if error.hint else ''}", err=True)
        except KeyboardInterrupt:
            say("")
        return True

    def names(self) -> Sequence[str]:
        """The names in the user's own view of the catalog."""
        if not self._names:
            try:
                (found,) = self.client.execute("SHOW CATALOG")
            except HeadgateError:
                return ()
            self._names = sorted({x for row in found.rows for x in (row[1], f"{row[2]}.{row[1]}")})
        return self._names

    def completions(self, before: str) -> Iterator[tuple[str, int]]:
        """What may stand where `before` ends, and how much of it is typed already."""
        found = _WORD.search(before)
        begun = found[0] if found else ""
        if not begun:
            return
        known: Iterable[str] = ("\\d", "\\w", "\\q", "\\?") if begun.startswith("\\") else (*self.names(), *WORDS)
        for word in known:
            if word.upper().startswith(begun.upper()) and word.upper() != begun.upper():
                yield word, -len(begun)


def is_complete(text: str) -> bool:
    """Whether Enter sends the text: a command of the shell, or statements up to a `;`."""
    stripped = text.strip()
    return not stripped or stripped.startswith("\\") or stripped.endswith(";") or stripped in ("quit", "exit")


def _typed(session: ShellSession, home: Path | None) -> Iterator[str]:
    """What a person types, until Ctrl-D; Ctrl-C forgets what is typed so far."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Names(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
            for word, start in session.completions(document.text_before_cursor):
                yield Completion(word, start_position=start)

    class Statements(FileHistory):
        """Passwords are not kept."""

        def store_string(self, string: str) -> None:
            if not _SECRET.search(string):
                super().store_string(string)

    file = _history_file(home)
    prompt: PromptSession[str] = PromptSession(
        history=Statements(file) if file is not None else InMemoryHistory(),
        completer=Names(),
        complete_while_typing=False,
        multiline=Condition(lambda: not is_complete(prompt.default_buffer.text)),
        prompt_continuation="      -> ",
    )
    while True:
        try:
            yield prompt.prompt("headgate> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _history_file(home: Path | None) -> Path | None:
    """In the home folder, or beside the client's profile of servers; readable by its owner only."""
    from headgate.client.profiles import Profiles

    folder = home if home is not None else Profiles().folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / "history"
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        return None
    return file
