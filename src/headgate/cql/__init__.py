"""Texts become statements here: syntax only, nothing is looked up or changed."""

from headgate.cql.parser import parse_script

__all__ = ["parse_script"]
