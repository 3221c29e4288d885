# ruff: noqa: SIM905 - long lists of words read better as text
"""Words that identifiers are made of, split by hash so that demonstrations never use a training word."""

import hashlib
import keyword
from random import Random
from typing import Literal

Split = Literal["train", "demo"]

NOUNS = """
account acorn actor album alley almond anchor ankle apple apron arrow artist atlas attic author autumn avenue badge
bagel baker balance balloon bamboo banana banner barrel basin basket battery beacon beaver bedroom bench berry
bishop blanket blossom boiler bonnet border bottle boulder bracket branch bread breeze bridge bronze bucket budget
buffalo bullet bundle butcher butter button cabbage cabin cable cactus camel camera candle canvas canyon captain
caravan carbon cargo carpet carrot castle cattle cellar cement center ceremony chain chamber channel chapel chapter
cherry chimney cinema circle circus citizen clinic clover cluster cobbler coconut coffee collar college comet
compass concert copper coral corner cottage cotton counter couple cousin cradle crater crayon credit cricket crystal
cupboard curtain cushion cyclist dagger dairy damage dancer deposit desert dessert diamond dinner dipper discount
dolphin donkey dragon drawer driver drummer eagle editor elbow elephant ember emerald engine eraser errand estate
factor falcon farmer fashion feather fence ferry festival fiddle finger flagon flannel flavor flight flower folder
forest fossil fountain freight friend fridge funnel furnace gadget gallery gallon garage garden garlic garment gauge
geyser ginger giraffe glacier glider goblet gondola gravel grocer guitar hammer hammock hamster harbor harness
harvest hazel heater hedge helmet herald hermit hockey holiday honey horizon hostel hotel hunter iceberg igloo
income infant insect invoice island ivory jacket jaguar jersey jewel jigsaw journal jungle kayak kennel kernel
kettle kitchen kitten ladder lagoon lantern laptop lemon lentil leopard lesson letter lever library lifter lighter
lily linen lizard lobster locker locket lodge lumber magnet mailbox mango mantle maple marble margin marina market
mattress meadow medal melody melon member merchant meteor mirror mitten monarch monkey monsoon mosaic motor mountain
muffin museum mustard napkin necklace needle nephew nickel noodle notebook nugget nursery oatmeal ocean octopus
office olive onion orange orbit orchard orchid origin otter oven oyster package packet paddle paddock painter palace
panda panel panther parade parcel parlor parrot parsley passport pasture patient patron pavilion peanut pebble
pelican pencil penguin pepper pewter pianist pickle picnic pigeon pillow pilot pirate pistol pitcher planet plaster
platter plaza plumber pocket podium poet pollen pony poplar portal potato pottery powder prairie prince printer
prize profit puddle puffin pumpkin puppet puzzle pyramid quarry quilt rabbit racket radish raisin rancher raven
recipe refund reptile rescue reward ribbon ridge rifle river robin rocket roller rooster rubber runner saddle sailor
salad salary salmon sandal satchel saucer scarf scholar scooter sculptor season seedling senator shadow shelter
sheriff shield shovel shrine signal silver singer siphon skater sketch slipper snorkel soldier sparrow spider
spinach spirit sponge squash squid stable stadium stamp station statue steam steward stingray stocking stomach stone
storm student studio subway suburb sugar summit surgeon swallow sweater symbol syrup tailor talent tavern teapot
temple tenant terrace theater thimble thistle thread thunder ticket tiger timber tomato tourist towel tower tractor
trailer treasure trolley trophy trumpet tulip tunnel turbine turkey turnip turtle tuxedo umbrella uncle valley
vanilla vapor velvet vendor vessel veteran village violet violin voucher voyage waffle wagon waiter wallet walnut
walrus warden warrior weasel weather whale wheat whistle widow willow windmill winter wizard wombat worker wrench
yogurt zebra zipper amount angle area average bonus capacity charge cost count delay delta depth distance duration
fare fee gain goal grade height interest layer length level load loss mass mileage mood pace pay pitch place point
power pressure price quantity quota radius rank rate ratio rent revenue role score seat share shift size slope space
speed stake stock strength supply surface tariff tax team tempo tension term toll tone trade trend trip turnover
unit usage value velocity volume wage weight width yield zone bill booking branch buyer cart client course crew
customer debt device donor entry event floor gift guest house item job journey lane lease loan machine meal member
message meter mission order owner page parcel partner part passenger payment pet phase photo plan plant player pool
product project pupil queue reader receipt region rental report room route rover sale sample school season sector
sensor server shelf ship shop speaker stage street target task taxi tenant ticket tile topic tour town track train
tree truck user vehicle vote walker wall ward week wheel window
""".split()

# Words that the text of an issue or the language itself uses: never identifiers on their own.
RESERVED = frozenset(keyword.kwlist) | frozenset(
    """value name line list number order result text string index format object filter module current count level unit
    self math json test tests item part point report message call place term total sum min max len
    mailbox pickle signal turtle queue
    """.split()
)

# Pieces that the tokenizer has but few words use: invented words bring them in, so that all can be copied.
_PIECES = """
ount val est ice ass assi assist assistan dis disco retur pyth unit unitte fi repla replacem nam imp impor sel cla
defin define wro wron wit sr mi miss thi erro att attri attribu missp misspel hel don ob obje fai sh shoul app appen
ad tool fun func functi function helper peo wh whet fin rule upd updat returne sho che mak stil com compu tot appl
cal stri strin nee need giv give cas renam rename chan doe wor asser assert rec inst instea foun brok mat ag may sw
swap tit cap capit capital capitali bas nex ano anot ex fir depre deprec deprecat deprecate ful rando iter heap stat
stati statist statistic resu resul col colle collec collecti collection calen calend oper operat dat datet dateti
tex text textw textwra yea fra frac fracti fraction js dec decim dig digit step op failu failure dire direct
director doc say num number tw belo gm calle shor kep wher sub sm small acce va vari varia asc asci medi median nsm
nsmal nsmalle nsmallest smaller ty redu larg larger twice dum dump dumps ceil timed timedel day forgo forgot forgott
spe spec specif matche tmp srv exa exact exactl exactly leap isleap inval invalid syn synta syntax
""".split()
_HEADS = "b c d f g h j k l m n p r s t v w z br cr dr fl gr kl pl pr sk sl st tr".split()
_VOWELS = "a e i o u ai ea ou".split()
_TAILS = ["", "", "n", "r", "l", "s", "m", "x", "k", "t"]
_DEMO_SHARE = 5  # one word in five is kept for demonstrations


def is_demo_word(word: str) -> bool:
    """Whether a word belongs to the demonstration side of the split."""
    return hashlib.sha256(word.encode()).digest()[0] % _DEMO_SHARE == 0


_CLEAN = [w for w in dict.fromkeys(NOUNS) if w not in RESERVED]
TRAIN_NOUNS = tuple(w for w in _CLEAN if not is_demo_word(w))
DEMO_NOUNS = tuple(w for w in _CLEAN if is_demo_word(w))
PREFIXES = ("new", "old", "max", "min", "base", "raw", "net", "full", "next", "last", "first", "best", "extra")


class Names:
    """Draws identifiers that no other identifier of the same project contains."""

    def __init__(self, random: Random, split: Split) -> None:
        """Draw from one side of the split."""
        self._random = random
        self._split = split
        self._used: set[str] = set()

    def word(self) -> str:
        """Draw one word: a noun, or in training often an invented one."""
        r = self._random
        if self._split == "demo":
            return r.choice(DEMO_NOUNS)
        if r.random() < 0.55:
            return r.choice(TRAIN_NOUNS)
        while True:
            syllables = r.choice((1, 2, 2, 2, 3))
            word = "".join(r.choice(_HEADS) + r.choice(_VOWELS) for _ in range(syllables)) + r.choice(_TAILS)
            if r.random() < 0.1:
                word = r.choice(
                    (r.choice(_PIECES) + word[:3], word[:3] + r.choice(_PIECES), r.choice(_PIECES) + word[-2:])
                )
            if len(word) >= 4 and not is_demo_word(word) and word not in RESERVED:
                return word

    def new(self, compound: float = 0.2) -> str:
        """Draw a fresh identifier; `compound` is the share of those made of two words."""
        r = self._random
        while True:
            name = self.word()
            if r.random() < compound:
                name = f"{r.choice(PREFIXES)}_{name}" if r.random() < 0.4 else f"{name}_{self.word()}"
            if self._accept(name):
                return name

    def _accept(self, name: str) -> bool:
        if any(name in other or other in name for other in self._used):
            return False
        self._used.add(name)
        return True


def misspell(random: Random, name: str) -> str:
    """A slip of the keyboard: a letter dropped, doubled, swapped or replaced; never the first one."""
    while True:
        i = random.randrange(1, len(name))
        kind = random.randrange(4)
        if name[i] == "_" or (i + 1 < len(name) and name[i + 1] == "_"):
            continue
        if kind == 0:
            slip = name[:i] + name[i + 1 :]
        elif kind == 1:
            slip = name[:i] + name[i + 1 : i + 2] + name[i] + name[i + 2 :]
        elif kind == 2:
            slip = name[:i] + name[i] + name[i:]
        else:
            slip = name[:i] + random.choice("aeiourstln") + name[i + 1 :]
        if slip != name and not keyword.iskeyword(slip) and slip not in RESERVED:
            return slip
