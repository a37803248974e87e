"""Levels apart (paper 002, section 3.2): a processor of its own for each level, fed by the shepherd.

The shepherd, the lanes and the egress run in the server and are trusted. A processor is a program of its own: it knows
the queries, rights and tuples of its level, and hands its results to a lane, which decides about them again.
"""
