"""Draw the learning curve of the card out of `curve.csv`; needs matplotlib, which the product does not."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent


def points() -> list[tuple[float, float]]:
    """Minutes and shares."""
    lines = (FOLDER / "curve.csv").read_text("utf-8").splitlines()
    pairs = [line.split(",") for line in lines if not line.startswith("#")]
    return [(float(minutes), float(share)) for minutes, share in pairs]


def main() -> None:
    """Write `curve.png`."""
    minutes, shares = zip(*points(), strict=True)
    figure, axes = plt.subplots(figsize=(6, 3.2), dpi=100)
    axes.plot(minutes, shares, marker="o", color="#2b7a4b")
    axes.axhline(0.9, color="#999999", linestyle="--", linewidth=1)
    axes.set(xlabel="minutes of training on two shared cores", ylabel="whole conversations right", ylim=(0, 1))
    axes.set_title("Tadpole: held-out words, the second training", fontsize=10)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(FOLDER / "curve.png", metadata={"Software": ""})


if __name__ == "__main__":
    main()
