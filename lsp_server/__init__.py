"""The language server: speaks LSP; knows nothing of tokens, GGUF or jails."""
