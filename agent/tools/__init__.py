"""The five tools: what the model is told of them, and who runs them where."""
