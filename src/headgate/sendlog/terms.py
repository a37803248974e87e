"""Terms: what stands inside atoms and comparisons, and the names and tokens that all productions are made of."""

from __future__ import annotations

from headgate.lexing import Cursor, Token, fail
from headgate.sendlog.syntax import Call, Const, Term, Var
from headgate.sendlog.tokens import tokens
from headgate.sendlog.values import canonical

MAX_NESTING = 32
SAYS = {"says": None, "says_0": 0, "says_1": 1, "says_2": 2}
RESERVED = frozenset({"At", "not", "of", *SAYS})


class TermReader(Cursor):
    """Reads terms; the parser of programs builds on it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.index = 0
        self._fresh = 0
        self._depth = 0

    def principal(self) -> Term:
        found = self.primary()
        if isinstance(found, Var) or (isinstance(found, Const) and isinstance(found.value, str)):
            return found
        if isinstance(found, Call) and found.function == "::":
            return found
        raise fail(self.text, found.at, "a principal is a variable, a name or a location `Overlay::Key`")

    def term(self) -> Term:
        left = self._product()
        while self.token.kind == "symbol" and self.token.text in ("+", "-"):
            token = self.next()
            left = Call(token.text, (left, self._product()), token.offset)
        return left

    def _product(self) -> Term:
        left = self.primary()
        while self.token.kind == "symbol" and self.token.text in ("*", "/", "%"):
            token = self.next()
            left = Call(token.text, (left, self.primary()), token.offset)
        return left

    def primary(self) -> Term:
        token = self.token
        self._depth += 1
        try:
            if self._depth > MAX_NESTING:
                raise fail(self.text, token.offset, f"terms are nested at most {MAX_NESTING} deep")
            return self._unnested(token)
        finally:
            self._depth -= 1

    def _unnested(self, token: Token) -> Term:
        if token.kind == "number":
            self.next()
            return Const(canonical(float(token.text) if "." in token.text else int(token.text)), token.offset)
        if token.kind == "text":
            self.next()
            return Const(token.text, token.offset)
        if self.take_symbol("-"):
            number = self.expect_kind("number", "a number")
            return Const(canonical(-float(number.text) if "." in number.text else -int(number.text)), token.offset)
        if self.take_symbol("("):
            inner = self.term()
            self.expect_symbol(")")
            return inner
        if self.take_symbol("["):
            return self._list(token.offset)
        if token.kind == "name" and token.text not in RESERVED:
            return self._named(token)
        raise self.expected("a term")

    def _list(self, at: int) -> Term:
        items: list[Term] = []
        while not self.take_symbol("]"):
            if items:
                self.expect_symbol(",")
            items.append(self.term())
        if all(isinstance(item, Const) for item in items):
            return Const(tuple([item.value for item in items if isinstance(item, Const)]), at)
        return Call("[]", tuple(items), at)

    def _named(self, token: Token) -> Term:
        self.next()
        if self.take_symbol("::"):
            key = self.primary()
            if isinstance(key, Const):
                return Const(f"{token.text}::{key.value}", token.offset)
            return Call("::", (Const(token.text, token.offset), key), token.offset)
        if self.at_symbol("("):
            if not token.text.startswith("f_"):
                hint = "functions begin with `f_`; a predicate stands alone in a body"
                raise fail(self.text, token.offset, f"`{token.text}` is no function", hint=hint)
            self.next()
            args: list[Term] = []
            while not self.take_symbol(")"):
                if args:
                    self.expect_symbol(",")
                args.append(self.term())
            return Call(token.text, tuple(args), token.offset)
        if token.text == "_":
            return self.anonymous(token.offset)
        if token.text[0].isupper() or token.text[0] == "_":
            return Var(token.text, token.offset)
        return Const(token.text, token.offset)

    # Tokens

    def anonymous(self, at: int = 0) -> Var:
        self._fresh += 1
        return Var(f"_.{self._fresh}", at)  # no program can write this name

    def kind(self, places: int) -> str:
        place = self.index + places
        return self.tokens[place].kind if place < len(self.tokens) else "end"

    def ahead(self, places: int, symbol: str) -> bool:
        return self.kind(places) == "symbol" and self.tokens[self.index + places].text == symbol

    def is_name(self, places: int, word: str) -> bool:
        return self.kind(places) == "name" and self.tokens[self.index + places].text == word

    def at_name(self, word: str) -> bool:
        return self.is_name(0, word)

    def take_name(self, word: str) -> bool:
        if self.at_name(word):
            self.index += 1
            return True
        return False

    def name(self, what: str) -> str:
        token = self.token
        if token.kind != "name" or token.text in RESERVED or token.text.startswith("f_"):
            raise self.expected(what)
        return self.next().text

    def whole(self, what: str) -> int:
        token = self.token
        if token.kind != "number" or "." in token.text:
            raise self.expected(what)
        return int(self.next().text)
