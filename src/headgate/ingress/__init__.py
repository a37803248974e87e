"""Reads sources and turns their rows into validated, labelled tuples."""
