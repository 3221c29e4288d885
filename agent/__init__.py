"""The agent: fixes an issue in a workspace. Usable with no editor; speaks no LSP."""
