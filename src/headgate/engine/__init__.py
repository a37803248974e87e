"""The engine: secure shared continuous queries over batches of tuples, as the oracle defines them (begun)."""
