"""Templates of functions and classes for training: `$a` is a name, `$F` a function, `$C` a class, `@1` a small number.

Above the line of dashes the code, below it the expressions that the tests evaluate. Imports stand on their own lines.
"""

TRAINING = """
def $F($a, $b):
    \"\"\"The sum of $a and $b, doubled.\"\"\"
    $c = $a + $b
    return $c * 2
---
$F(3, 9)
====
def $F($as):
    \"\"\"The last of the $as.\"\"\"
    return $as[len($as) - 1]
---
$F([4, 7, 9])
====
def $F($as):
    \"\"\"The first and the last of $as.\"\"\"
    $b = $as[0]
    $c = $as[-1]
    return $b, $c
---
$F([4, 7, 9, 2])
====
def $F($n):
    \"\"\"Add up the numbers from 1 to $n, $n included.\"\"\"
    $s = 0
    for $i in range(1, $n + 1):
        $s += $i
    return $s
---
$F(5)
====
def $F($n):
    \"\"\"The squares of all numbers below $n.\"\"\"
    $s = []
    for $i in range($n):
        $s.append($i * $i)
    return $s
---
$F(4)
====
def $F($as, $n):
    \"\"\"The first $n of the $as.\"\"\"
    return $as[:$n]
---
$F([5, 6, 7, 8], 2)
====
def $F($as, $n):
    \"\"\"All $as but the first $n.\"\"\"
    $r = $as[$n:]
    return $r
---
$F([5, 6, 7, 8], 2)
====
def $F($as):
    \"\"\"Number the $as, beginning at one.\"\"\"
    $r = []
    for $i, $a in enumerate($as, 1):
        $r.append(f"{$i}. {$a}")
    return $r
---
$F(["$x", "$y"])
====
def $F($as, $b):
    \"\"\"How many $as are at least $b.\"\"\"
    $n = 0
    for $a in $as:
        if $a >= $b:
            $n += 1
    return $n
---
$F([3, @1, 20], @1)
====
def $F($as, $b):
    \"\"\"Tell whether one of the $as is larger than $b.\"\"\"
    for $a in $as:
        if $a > $b:
            return True
    return False
---
$F([3, @1], @1)
$F([3, 12], @1)
====
def $F($a, $b, $c):
    \"\"\"Keep $a between $b and $c.\"\"\"
    if $a < $b:
        return $b
    if $a > $c:
        return $c
    return $a
---
$F(1, 4, 9)
$F(12, 4, 9)
$F(5, 4, 9)
====
def $F($as):
    \"\"\"The mean of the $as; zero where there are none.\"\"\"
    if not $as:
        return 0
    $t = sum($as)
    return $t / len($as)
---
$F([2, 4, 9])
====
def $F($as):
    \"\"\"Count how often each of the $as occurs.\"\"\"
    $d = {}
    for $a in $as:
        $d[$a] = $d.get($a, 0) + 1
    return $d
---
$F([2, 4, 2])
====
def $F($as):
    \"\"\"The differences of neighbours.\"\"\"
    $r = []
    for $i in range(1, len($as)):
        $r.append($as[$i] - $as[$i - 1])
    return $r
---
$F([2, 7, 19])
====
def $F($a, $b):
    \"\"\"What is left of $a after taking away $b, never below zero.\"\"\"
    $c = $a - $b
    return max($c, 0)
---
$F(9, 4)
====
def $F($a):
    \"\"\"Split $a at its commas and tidy the pieces.\"\"\"
    $p = $a.split(",")
    return [$x.strip() for $x in $p]
---
$F("$w, $y ,$z")
====
def $F($a, $b="-"):
    \"\"\"Join the words of $a with $b.\"\"\"
    $p = $a.lower().split()
    return $b.join($p)
---
$F("$w $y")
====
def $F($ds, $k):
    \"\"\"The entries of $ds whose value is below $k.\"\"\"
    $r = {}
    for $n, $v in $ds.items():
        if $v < $k:
            $r[$n] = $v
    return $r
---
$F({"$x": 3, "$y": @1, "$z": 20}, @1)
====
def $F($a):
    \"\"\"Minutes and seconds of $a seconds.\"\"\"
    $m = $a // 60
    $s = $a % 60
    return f"{$m}:{$s:02}"
---
$F(135)
====
def $F($a, $b):
    \"\"\"How many pages of size $b hold $a lines.\"\"\"
    return ($a + $b - 1) // $b
---
$F(21, 10)
$F(20, 10)
====
def $F($as):
    \"\"\"The largest of the $as, found one by one.\"\"\"
    $m = $as[0]
    for $a in $as[1:]:
        if $a > $m:
            $m = $a
    return $m
---
$F([3, 9, 4])
====
def $F($as):
    \"\"\"The $as without repeats, in their order.\"\"\"
    $s = set()
    $r = []
    for $a in $as:
        if $a not in $s:
            $s.add($a)
            $r.append($a)
    return $r
---
$F([3, 9, 3, 4])
====
def $F($a):
    \"\"\"Tell whether $a is even.\"\"\"
    return $a % 2 == 0
---
$F(8)
$F(7)
====
def $F($a, $b):
    \"\"\"Tell whether both $a and $b are positive.\"\"\"
    return $a > 0 and $b > 0
---
$F(1, 2)
$F(1, -2)
$F(0, 2)
====
def $F($a, $b):
    \"\"\"Tell whether $a or $b is missing.\"\"\"
    return $a is None or $b is None
---
$F(None, 2)
$F(1, 2)
====
def $F($a):
    \"\"\"Tell whether $a reads the same from both ends.\"\"\"
    $b = $a.lower()
    return $b == $b[::-1]
---
$F("Anna")
$F("$w")
====
def $F($as, $b):
    \"\"\"The place of $b in $as, or -1.\"\"\"
    for $i in range(len($as)):
        if $as[$i] == $b:
            return $i
    return -1
---
$F([4, 8, 6], 6)
$F([4, 8, 6], 5)
====
def $F($a, $b):
    \"\"\"The price of $a pieces at $b each, with a tenth off from ten pieces on.\"\"\"
    $t = $a * $b
    if $a >= 10:
        $t = $t - $t // 10
    return $t
---
$F(10, 20)
$F(3, 7)
====
def $F($as, $n):
    \"\"\"Cut $as into pieces of $n.\"\"\"
    $r = []
    for $i in range(0, len($as), $n):
        $r.append($as[$i:$i + $n])
    return $r
---
$F([1, 2, 3, 4, 5], 2)
====
def $F($as, $b):
    \"\"\"The $as that start with $b.\"\"\"
    $r = [$a for $a in $as if $a.startswith($b)]
    return sorted($r)
---
$F(["$x", "$y"], "$x")
====
def $F($a, $b):
    \"\"\"Add $b percent to $a.\"\"\"
    $c = $a * $b / 100
    return $a + $c
---
$F(200, 10)
====
def $F($as):
    \"\"\"Running totals of the $as.\"\"\"
    $t = 0
    $r = []
    for $a in $as:
        $t = $t + $a
        $r.append($t)
    return $r
---
$F([1, 5, 9])
====
def $F($a):
    \"\"\"The names of $a in upper case, longest first.\"\"\"
    $n = [$x.upper() for $x in $a]
    $n.sort(key=len, reverse=True)
    return $n
---
$F(["ab", "$x"])
====
class $C:
    \"\"\"Keeps $as, the newest last.\"\"\"

    def __init__(self, $m):
        self.$m = $m
        self.$as = []

    def $F(self, $a):
        \"\"\"Keep one more, and forget the oldest beyond the limit.\"\"\"
        self.$as.append($a)
        if len(self.$as) > self.$m:
            self.$as.pop(0)
        return self.$as

    def $G(self):
        \"\"\"The newest.\"\"\"
        return self.$as[-1]
---
[$c.$F(1), $c.$F(2), $c.$F(3)] if ($c := $C(2)) else 0
[$c.$F(7), $c.$F(8), $c.$G()] if ($c := $C(3)) else 0
====
class $C:
    def __init__(self, $a, $b):
        self.$a = $a
        self.$b = $b

    def $F(self):
        \"\"\"The product of both sides.\"\"\"
        return self.$a * self.$b

    def $G(self, $k):
        \"\"\"A copy that is $k times as large.\"\"\"
        $x = self.$a * $k
        $y = self.$b * $k
        return $C($x, $y)
---
$C(3, 7).$F()
$C(3, 7).$G(2).$F()
====
class $C:
    \"\"\"A purse with a limit.\"\"\"

    def __init__(self, $b=0):
        self.$b = $b
        self.$h = []

    def $F(self, $a):
        \"\"\"Put $a in.\"\"\"
        self.$b += $a
        self.$h.append($a)
        return self.$b

    def $G(self, $a):
        \"\"\"Take $a out where there is enough.\"\"\"
        if $a > self.$b:
            raise ValueError("not enough")
        self.$b -= $a
        return self.$b
---
$C(5).$F(4)
$C(9).$G(4)
$C(9).$G(9)
====
class $C:
    def __init__(self):
        self.$ds = {}

    def $F(self, $a, $n=1):
        \"\"\"Add $n of $a.\"\"\"
        $o = self.$ds.get($a, 0)
        self.$ds[$a] = $o + $n
        return self.$ds[$a]

    def $G(self):
        \"\"\"How many there are in all.\"\"\"
        return sum(self.$ds.values())
---
$C().$F("$x", 4)
[$c.$F("$x", 4), $c.$F("$x"), $c.$G()] if ($c := $C()) else 0
====
class $C:
    \"\"\"From a low to a high degree.\"\"\"

    def __init__(self, $l, $h):
        self.$l = $l
        self.$h = $h

    def $F(self, $a):
        \"\"\"Whether $a lies inside, both ends included.\"\"\"
        return self.$l <= $a <= self.$h

    def $G(self):
        $w = self.$h - self.$l
        return $w
---
$C(3, 8).$F(3)
$C(3, 8).$F(8)
$C(3, 8).$F(9)
$C(3, 8).$G()
====
class $C:
    \"\"\"One line of a bill.\"\"\"

    def __init__(self, $n, $p, $q):
        self.$n = $n
        self.$p = $p
        self.$q = $q

    def $F(self):
        \"\"\"The price of all pieces.\"\"\"
        return self.$p * self.$q

    def $G(self):
        \"\"\"How it is printed.\"\"\"
        $t = self.$F()
        return f"{self.$n}: {$t}"
---
$C("$x", 3, 7).$F()
$C("$x", 3, 7).$G()
====
import math

def $F($a, $b):
    \"\"\"The length of the way from zero to ($a, $b).\"\"\"
    return math.sqrt($a * $a + $b * $b)
---
$F(3, 4)
====
import math

def $F($a):
    \"\"\"The area of a circle, rounded.\"\"\"
    $r = math.pi * $a ** 2
    return round($r, 2)
---
$F(3)
====
import re

def $F($a):
    \"\"\"All numbers in $a.\"\"\"
    $f = re.findall("[0-9]+", $a)
    return [int($x) for $x in $f]
---
$F("$w 12 $y 7")
====
import json

def $F($a, $b):
    \"\"\"Write a record as JSON.\"\"\"
    $d = {"$x": $a, "$y": $b}
    return json.dumps($d, sort_keys=True)
---
$F(3, 7)
====
import string

def $F($a):
    \"\"\"Remove all punctuation of $a.\"\"\"
    return "".join($c for $c in $a if $c not in string.punctuation)
---
$F("$w, $y!")
====
import os

def $F($a):
    \"\"\"The name of a file without its ending.\"\"\"
    $b = os.path.basename($a)
    return os.path.splitext($b)[0]
---
$F("$w/$y.txt")
====
import itertools

def $F($as, $bs):
    \"\"\"All pairs of $as and $bs.\"\"\"
    return list(itertools.product($as, $bs))
---
$F([1, 2], [3])
====
import datetime

def $F($a, $n):
    \"\"\"The day $n days after $a.\"\"\"
    $d = datetime.date.fromisoformat($a)
    return str($d + datetime.timedelta(days=$n))
---
$F("2024-02-27", 3)
====
from collections import Counter

def $F($as, $n):
    \"\"\"The $n most frequent of the $as.\"\"\"
    $c = Counter($as)
    return [$x for $x, _ in $c.most_common($n)]
---
$F([3, 3, 5, 5, 5, 1], 2)
====
from collections import defaultdict

def $F($as):
    \"\"\"Group the $as by their first letter.\"\"\"
    $g = defaultdict(list)
    for $a in $as:
        $g[$a[0]].append($a)
    return dict($g)
---
$F(["$x", "$y", "$z"])
====
from collections import deque

def $F($as, $n):
    \"\"\"Turn the $as round by $n.\"\"\"
    $q = deque($as)
    $q.rotate($n)
    return list($q)
---
$F([1, 2, 3], 1)
====
from decimal import Decimal

def $F($a, $b):
    \"\"\"Add two amounts exactly.\"\"\"
    $t = Decimal($a) + Decimal($b)
    return str($t)
---
$F("1.10", "2.20")
====
from fractions import Fraction

def $F($a, $b):
    \"\"\"$a over $b in lowest terms.\"\"\"
    return str(Fraction($a, $b))
---
$F(6, 8)
====
from functools import reduce

def $F($as):
    \"\"\"Multiply all $as.\"\"\"
    return reduce(lambda $x, $y: $x * $y, $as, 1)
---
$F([2, 3, 4])
====
from pathlib import Path

def $F($a, $b):
    \"\"\"Where $b lies below $a.\"\"\"
    return Path($a) / $b
---
str($F("$x", "$y"))
====
from datetime import date

def $F($y, $m):
    \"\"\"The first day of a month, as text.\"\"\"
    $d = date($y, $m, 1)
    return $d.isoformat()
---
$F(2024, 5)
====
from dataclasses import dataclass

@dataclass
class $C:
    $a: int
    $b: int

    def $F(self):
        \"\"\"Both together.\"\"\"
        return self.$a + self.$b
---
$C(3, 8).$F()
====
from itertools import chain

def $F($as):
    \"\"\"Put the lists of $as into one.\"\"\"
    return list(chain.from_iterable($as))
---
$F([[1, 2], [3]])
====
def $F($a, $b):
    if $b == 0:
        return None
    $q = $a // $b
    $r = $a - $q * $b
    return $r
---
$F(17, 5)
====
def $F($as):
    $l = sorted($as)
    $m = len($l) // 2
    if len($l) % 2 == 1:
        return $l[$m]
    return ($l[$m - 1] + $l[$m]) / 2
---
$F([3, 9, 4])
$F([3, 9, 4, 8])
====
def $F($a, $b):
    $s = []
    while $a > 0:
        $s.append($a % $b)
        $a = $a // $b
    return $s[::-1]
---
$F(13, 2)
"""


def blocks(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The templates of a text: code, and the expressions of its tests."""
    out = []
    for block in text.strip().split("\n====\n"):
        if "\n---\n" in block:
            code, tests = block.split("\n---\n")
            out.append((code, tuple(tests.splitlines())))
    return tuple(out)
