"""Tests of the security language: what is read, what is refused, and that SPEC.md says the same."""
