"""Applying a proposal through the editor: read again, merge, one edit, and then look what is really there.

What a client answers is not evidence. VS Code says true for a partly ticked preview, Neovim for a stale edit that
it skipped; some never answer (all measured). The text that the client then has, or the disk, is.
"""
