"""Frames between our own processes: JSON with Content-Length headers, correlated by id."""
