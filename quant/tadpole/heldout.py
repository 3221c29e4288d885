"""Templates that training never has: the other two thirds of the test set."""

TEMPLATES = """
def $F($as, $b):
    \"\"\"The share of the $as that equal $b, in percent.\"\"\"
    $n = $as.count($b)
    $w = len($as)
    return 100 * $n // $w
---
$F([3, 4, 3, 5], 3)
====
def $F($a, $b):
    \"\"\"The greatest number that divides both, by trying from the top.\"\"\"
    for $k in range(min($a, $b), 0, -1):
        if $a % $k == 0 and $b % $k == 0:
            return $k
    return 1
---
$F(12, 18)
$F(7, 5)
====
def $F($n):
    \"\"\"The first $n numbers in which each is the sum of the two before.\"\"\"
    $r = [0, 1]
    for $i in range(2, $n):
        $r.append($r[$i - 1] + $r[$i - 2])
    return $r[:$n]
---
$F(7)
$F(1)
====
def $F($a):
    \"\"\"How many words of $a begin with a capital letter.\"\"\"
    $t = 0
    for $w in $a.split():
        if $w[0].isupper():
            $t += 1
    return $t
---
$F("Red green Blue")
====
def $F($as, $b):
    \"\"\"The $as from $b upwards, in falling order.\"\"\"
    $r = [$x for $x in $as if $x >= $b]
    $r.sort(reverse=True)
    return $r
---
$F([2, @1, 30, 1], @1)
====
def $F($ps):
    \"\"\"Turn pairs around: the second of each becomes the key.\"\"\"
    $d = {}
    for $k, $v in $ps:
        $d[$v] = $k
    return $d
---
$F([("$x", 3), ("$y", 8)])
====
def $F($a, $b):
    \"\"\"How many days of $b fit into $a hours, and the hours that are left.\"\"\"
    $f = $a // $b
    $l = $a - $f * $b
    return $f, $l
---
$F(50, 24)
====
def $F($as):
    \"\"\"Whether no $a is larger than the one after it.\"\"\"
    for $i in range(len($as) - 1):
        if $as[$i] > $as[$i + 1]:
            return False
    return True
---
$F([1, 4, 4, 9])
$F([1, 5, 4])
$F([1, 4, 9, 3])
====
def $F($a, $k):
    \"\"\"Put $a in the middle of $k stars on each side.\"\"\"
    $s = "*" * $k
    return $s + $a.strip() + $s
---
$F(" $x ", 2)
====
class $C:
    \"\"\"A counter that goes round.\"\"\"

    def __init__(self, $m):
        self.$m = $m
        self.$n = 0

    def $F(self):
        \"\"\"One step on; after the last comes zero.\"\"\"
        self.$n = (self.$n + 1) % self.$m
        return self.$n

    def $G(self):
        \"\"\"How many steps are left in this round.\"\"\"
        $l = self.$m - self.$n
        return $l
---
[$c.$F(), $c.$F(), $c.$F()] if ($c := $C(3)) else 0
[$c.$F(), $c.$G()] if ($c := $C(5)) else 0
====
class $C:
    \"\"\"Marks of one pupil.\"\"\"

    def __init__(self, $w, $ms):
        self.$w = $w
        self.$ms = $ms

    def $F(self):
        \"\"\"The mean of all marks but the worst.\"\"\"
        $s = sorted(self.$ms)
        $k = $s[1:]
        return sum($k) / len($k)

    def $G(self, $b):
        \"\"\"Whether every mark reaches $b.\"\"\"
        return min(self.$ms) >= $b
---
$C("$x", [3, 8, 10]).$F()
$C("$x", [3, 8, 10]).$G(3)
$C("$x", [3, 8, 10]).$G(4)
====
class $C:
    def __init__(self, $a, $b, $c):
        self.$a = $a
        self.$b = $b
        self.$c = $c

    def $F(self, $k):
        \"\"\"What $k days cost: the base once, the rest by the day.\"\"\"
        return self.$a + self.$b * $k

    def $G(self):
        \"\"\"One line for the list.\"\"\"
        $t = self.$F(7)
        return f"{self.$c} costs {$t}"
---
$C(20, 3, "$x").$F(4)
$C(20, 3, "$x").$G()
====
class $C:
    \"\"\"Readings of a gauge.\"\"\"

    def __init__(self, $l):
        self.$l = $l
        self.$rs = []

    def $F(self, $v):
        \"\"\"Keep a reading; say whether it is above the limit.\"\"\"
        self.$rs.append($v)
        return $v > self.$l

    def $G(self, $n):
        \"\"\"The mean of the last $n.\"\"\"
        $p = self.$rs[-$n:]
        return sum($p) / $n
---
[$c.$F(4), $c.$F(9), $c.$F(5)] if ($c := $C(5)) else 0
[$c.$F(4), $c.$F(9), $c.$F(5), $c.$G(2)] if ($c := $C(5)) else 0
====
import math

def $F($a):
    \"\"\"How many digits $a has.\"\"\"
    $d = math.floor(math.log10($a))
    return $d + 1
---
$F(471)
====
import textwrap

def $F($a):
    \"\"\"Indent every line of $a.\"\"\"
    return textwrap.indent($a, "    ")
---
$F("$x")
====
import statistics

def $F($as):
    \"\"\"The value that occurs most, and how far it is from the mean.\"\"\"
    $m = statistics.mode($as)
    return $m, abs($m - statistics.mean($as))
---
$F([2, 2, 5])
====
import json

def $F($a, $k):
    \"\"\"One entry of a JSON text.\"\"\"
    $d = json.loads($a)
    return $d[$k]
---
$F('{"$x": 4}', "$x")
====
from collections import defaultdict

def $F($ps):
    \"\"\"Add up pairs by their first part.\"\"\"
    $t = defaultdict(int)
    for $k, $v in $ps:
        $t[$k] += $v
    return sorted($t.items())
---
$F([("$x", 2), ("$y", 5), ("$x", 3)])
====
from itertools import chain

def $F($a, $b):
    \"\"\"Both lists in one, without repeats, sorted.\"\"\"
    return sorted(set(chain($a, $b)))
---
$F([4, 1], [1, 9])
====
from pathlib import Path

def $F($a):
    \"\"\"The ending of a file name, in lower case.\"\"\"
    $e = Path($a).suffix
    return $e.lower()
---
$F("$x.TXT")
"""
