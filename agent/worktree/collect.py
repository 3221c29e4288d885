"""From a private view to what changed."""

from __future__ import annotations

from agent.types import PrivateView
from agent.worktree.baseline import Baseline
from agent.worktree.comparison import Collected, CollectLimits, Comparison
from agent.worktree.copied import compare_copy
from agent.worktree.overlay import compare_overlay

__all__ = ["CollectLimits", "Collected", "collect"]


def collect(view: PrivateView, baseline: Baseline, limits: CollectLimits | None = None) -> Collected:
    """Compare the private view with the snapshot. Touching a file is no change.

    `view.upper_fd` stays open. Call it with every jailed process dead. What cannot be read is named in the
    notes; nothing is raised for it.
    """
    comparison = Comparison(baseline=baseline, limits=limits or CollectLimits())
    if view.copied is None:
        compare_overlay(view.upper_fd, comparison)
    else:
        compare_copy(view.upper_fd, view.copied, comparison)
    comparison.compare_lost_buffers()
    return comparison.collected()
