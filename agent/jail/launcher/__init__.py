"""Runs as a process of its own (`python -I -S`): builds the namespaces and is PID 1 inside them.

Standard library only, and as few modules as possible: every import is paid at the start of each run.
"""
