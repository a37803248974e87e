"""The operators of the algebra over columns: windows, joins, aggregates, stateless selections."""
