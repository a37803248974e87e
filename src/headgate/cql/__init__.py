"""Texts become statements here: syntax only, nothing is looked up or changed."""
