"""What damage makes of a text, for fuzzing: the same in all languages but for the pieces that their texts are made of.

Everything is drawn from the random numbers given, so that a failure can be repeated from its seed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Damage:
    """`pieces` finds the tokens of a text, and what is between them; `strange` and `spare` are put in as they are.
    Brackets are nested as deep as one of `depths`, around something `inside`."""

    pieces: re.Pattern[str]
    strange: Sequence[str]
    spare: Sequence[str]
    brackets: Sequence[tuple[str, str]]
    depths: Sequence[int]
    inside: Sequence[str]

    def cut(self, random: Random, text: str) -> str:
        place = random.randrange(len(text) + 1)
        return text[:place] if random.random() < 0.7 else text[place:]

    def put_in(self, random: Random, text: str) -> str:
        place, width = random.randrange(len(text) + 1), random.choice([0, 0, 1])
        new: str = random.choice([*self.strange, chr(random.randrange(0x110000))])
        return text[:place] + new + text[place + width :]

    def nested(self, random: Random, text: str) -> str:
        deep = random.choice(self.depths)
        place = random.randrange(len(text) + 1)
        opening, closing = random.choice(self.brackets)
        return text[:place] + opening * deep + random.choice(self.inside) + closing * deep + text[place:]

    def grown(self, random: Random, text: str) -> str:
        """A piece, many times."""
        pieces = self.pieces.findall(text) or [" "]
        place = random.randrange(len(pieces))
        pieces[place] *= random.choice([2, 130, 3000])
        return "".join(pieces)

    def tokens(self, random: Random, text: str) -> str:
        """Whole tokens taken out, doubled or exchanged."""
        pieces = self.pieces.findall(text) or [" "]
        for _ in range(random.randrange(1, 4)):
            a, b = random.randrange(len(pieces)), random.randrange(len(pieces))
            match random.randrange(4):
                case 0:
                    pieces[a] = ""
                case 1:
                    pieces.insert(a, f" {pieces[b]} ")
                case 2:
                    pieces[a], pieces[b] = pieces[b], pieces[a]
                case _:
                    pieces[a] = random.choice(self.spare)
        return "".join(pieces)
