"""Tests of the building blocks of compiled loops, each against a plain Python model."""
