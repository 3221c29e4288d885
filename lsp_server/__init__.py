"""The language server: speaks LSP; knows nothing of tokens, GGUF or jails."""

__version__ = "0.1.0"
