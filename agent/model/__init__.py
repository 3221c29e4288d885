"""Models: the worker with an embedded GGUF, endpoints, scripted turns, and what they have in common."""
