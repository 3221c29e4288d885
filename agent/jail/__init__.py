"""The jail: nothing that the agent does reads secrets, reaches a network or changes the real workspace."""
