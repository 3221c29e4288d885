"""What a run changed: bytes and lines, differences, merging, proposals. Speaks no LSP and runs nothing."""
