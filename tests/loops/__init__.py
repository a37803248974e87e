"""Tests of the building blocks of compiled loops, against plain Python: fractions, sorted lists, counters."""
