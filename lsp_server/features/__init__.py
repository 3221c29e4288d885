"""One file per family of LSP methods: each has `register(server, application)`."""
