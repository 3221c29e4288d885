"""Parcels, and what it takes to send them."""

import math


class Parcel:
    """One parcel with its length and its grade."""

    def __init__(self, length, grade):
        self.length = length
        self.grade = grade

    def stamps(self):
        """One stamp for every ten centimetres, times the grade."""
        return math.ceil(self.lenght / 10) * self.grade


def heaviest(parcels):
    """The parcel that needs the most stamps."""
    return max(parcels, key=Parcel.stamps)
