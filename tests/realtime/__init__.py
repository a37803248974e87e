"""Tests of deadlines without covert channels: state machines, control, traces, attacks."""
