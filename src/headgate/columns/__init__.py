"""Vectorised helpers over columns: sorting, factorizing, narrow integer types."""
