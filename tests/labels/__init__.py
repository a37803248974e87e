"""Tests of labels: golden cases, laws, text form, numbers."""
