"""Tests of the oracle: golden cases computed by hand, and laws."""
