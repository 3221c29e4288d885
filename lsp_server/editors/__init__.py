"""Snippets for editors: `frog-lsp setup EDITOR` prints one."""
