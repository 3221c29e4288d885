"""The weights: get them, check them, make them, know what they cost."""
