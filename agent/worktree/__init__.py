"""The private copy-on-write view of a workspace, and what is collected from it."""
