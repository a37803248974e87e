"""Recovery: batches are processed exactly once (pipeline, state, tables, query graph)."""
