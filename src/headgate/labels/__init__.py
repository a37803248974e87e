"""Labels: the security algebra of roles, levels and sources, and the decision whether a label permits a clearance."""

from headgate.labels.conjunction import Conjunction
from headgate.labels.label import FOR_NOBODY, PUBLIC, Clearance, Label, Rules, Semantics
from headgate.labels.levels import LEAST, Level, LevelOrder
from headgate.labels.roles import FALSE, TRUE, RoleExpression
from headgate.labels.sources import source_shown
from headgate.labels.text import parse_label, parse_level, parse_roles

__all__ = [
    "FALSE",
    "FOR_NOBODY",
    "LEAST",
    "PUBLIC",
    "TRUE",
    "Clearance",
    "Conjunction",
    "Label",
    "Level",
    "LevelOrder",
    "RoleExpression",
    "Rules",
    "Semantics",
    "parse_label",
    "parse_level",
    "parse_roles",
    "source_shown",
]
