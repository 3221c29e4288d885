"""What can be done with a run that is over: announce, review, apply, discard, show its log."""
