import unittest

from depot.parcel import Parcel, heaviest


class ParcelTest(unittest.TestCase):
    def test_stamps(self):
        self.assertEqual(Parcel(42, 2).stamps(), 10)

    def test_a_short_parcel_needs_one_stamp(self):
        self.assertEqual(Parcel(7, 1).stamps(), 1)

    def test_heaviest(self):
        small, large = Parcel(10, 1), Parcel(90, 2)
        self.assertIs(heaviest([small, large]), large)


if __name__ == "__main__":
    unittest.main()
