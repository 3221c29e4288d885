"""The tool runner: the small program inside the jail that reads, writes, edits, globs and runs commands.

It runs under `python -I -S` from one archive and imports the standard library, `agent.ipc.framing` and
`agent.changes.textfile` / `textedit` alone. Whoever talks to it from outside takes it for hostile.
"""
