"""Attacks on the jail, as a program that runs inside and (the harmless ones) outside. Standard library only."""
