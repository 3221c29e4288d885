"""Sizes of files in words. Pure."""


def size_text(n_bytes: int) -> str:
    """Bytes as a person reads them: in GB, or in MB where there are few."""
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"
