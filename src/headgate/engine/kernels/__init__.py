"""Kernels: windows, joins and aggregates over whole columns, inside Spark's tasks or anywhere else. No Spark here."""
