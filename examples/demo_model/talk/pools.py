"""The words of the closed domain: pools that fill the slots of questions and answers.

One word in eleven is kept out of training, in every role that it plays: name, company, street,
item. Cities, hobbies and the like are all trained.
"""

NAMES = """James John Robert Michael William David Richard Joseph Thomas Charles Daniel Matthew
Anthony Mark Steven Paul Andrew Joshua Kenneth Kevin Brian George Edward Ronald Timothy Jason
Jeffrey Ryan Jacob Gary Nicholas Eric Jonathan Larry Justin Scott Brandon Benjamin Samuel Gregory
Frank Alexander Raymond Patrick Jack Dennis Jerry Tyler Aaron Henry Douglas Peter Adam Nathan
Zachary Walter Kyle Harold Carl Jeremy Keith Roger Arthur Terry Lawrence Sean Christian Albert
Joe Ethan Jesse Ralph Billy Bruce Bryan Eugene Louis Harry Wayne Howard Alan Dylan Randy Philip
Russell Vincent Bobby Johnny Logan Oliver Leo Oscar Felix Max Hugo Simon Victor Martin Leon Owen
Isaac Lucas Mason Liam Noah Miles Dean Glen Ross Neil Clark Mary Patricia Jennifer Linda
Elizabeth Barbara Susan Jessica Sarah Karen Lisa Nancy Betty Margaret Sandra Ashley Kimberly
Emily Donna Michelle Carol Amanda Melissa Deborah Stephanie Rebecca Sharon Laura Cynthia Kathleen
Amy Angela Shirley Anna Brenda Pamela Emma Nicole Helen Samantha Katherine Christine Rachel
Carolyn Janet Maria Heather Diane Ruth Julie Olivia Joyce Virginia Victoria Kelly Lauren
Christina Joan Evelyn Judith Megan Andrea Cheryl Hannah Jacqueline Martha Gloria Teresa Frances
Janice Jean Abigail Alice Julia Judy Sophia Grace Denise Amber Doris Marilyn Danielle Beverly
Isabella Diana Natalie Brittany Charlotte Marie Kayla Alexis Lucy Clara Rosa Stella Nora Ruby
Hazel Molly Chloe Ella Mia Zoe Eva Paula Sylvia Wendy Tina Rita Monica Carla Leah Naomi Vera Nina
Holly Penny Sally Peggy Connie Tracy Jill Beth Becky Cindy Tommy Jimmy Danny Freddy Teddy Ned
Todd Craig Chad Derek Travis Marcus Curtis Leonard Norman Stanley Gordon Warren Duncan Elliot
Gavin Ian Trevor""".split()

FIRSTS = """Blue Green Silver Golden Red White Black Sunny Happy Lucky Royal Grand Little Big
Quick Bright Fresh Clear Quiet Gentle Brave Smart Swift Noble Modern Classic Urban Central
Northern Southern Eastern Western Coastal Mountain River Lake Ocean Forest Garden Valley Harbor
Island Desert Prairie Canyon Summit Meadow Spring Summer Winter Autumn Morning Evening Midnight
Crystal Diamond Copper Iron Velvet Cotton Maple Cedar Oak Pine Willow Cherry Lemon Orange Peach
Olive Honey Pepper Ginger Rose Lily Tulip Clover Eagle Falcon Robin Heron Raven Tiger Lion Bear
Wolf Fox Rabbit Dolphin Turtle Dragon Phoenix Star Moon Sun Cloud Rainbow Thunder Magic Liberty
Union Pioneer Frontier Heritage Victory Century Titan Delta Metro Family City Village
Country""".split()

TRADES = {
    "Library": "library",
    "Pizza": "pizza place",
    "Bakery": "bakery",
    "Bank": "bank",
    "Hotel": "hotel",
    "Dental": "dental clinic",
    "Books": "book store",
    "Cafe": "coffee shop",
    "Gym": "fitness club",
    "Garage": "car repair shop",
    "Flowers": "flower shop",
    "Pharmacy": "pharmacy",
    "Travel": "travel agency",
    "Music": "music school",
    "Toys": "toy store",
    "Bikes": "bike shop",
    "Market": "grocery store",
    "Theater": "movie theater",
    "Museum": "museum",
    "Salon": "hair salon",
    "Kitchen": "restaurant",
    "Shoes": "shoe store",
    "Pets": "pet store",
    "Tools": "hardware store",
}

STREETS = """Maple Oak Pine Cedar Elm Main Park Lake Hill River Spring Church Mill Union Bridge
Center Forest Garden Highland Jackson Lincoln Madison Jefferson Franklin Adams Monroe Cherry
Walnut Chestnut Willow Sunset Valley Meadow Harbor Ocean Station School College Water High King
Queen Castle Liberty Victory""".split()

_TREATS = """sandwich coffee salad burger cake cookie muffin bagel pancake waffle omelet taco
burrito steak sausage lemonade milkshake pie""".split()
_GOODS = """ticket map poster guitar piano violin drum bicycle helmet lamp chair table sofa
carpet mirror pillow blanket towel candle basket bottle mug plate bowl knife hammer ladder bucket
brush shovel battery camera tablet printer keyboard monitor radio watch ring necklace wallet
backpack suitcase umbrella jacket sweater shirt skirt dress hat scarf boot sandal puzzle doll
kite balloon collar leash notebook pencil marker magazine calendar vase fountain""".split()
_SERVICES = """haircut massage manicure lesson class tour rental cleaning inspection room suite
locker membership bouquet""".split()
_TREAT_KINDS = "fresh hot large small special sweet spicy cold".split()
_GOODS_KINDS = "red blue green black white small large yellow brown modern".split()

ITEMS = (
    _TREATS
    + _GOODS
    + _SERVICES
    + [f"{_TREAT_KINDS[i % 8]} {noun}" for i, noun in enumerate(_TREATS)]
    + [f"{_GOODS_KINDS[i % 10]} {noun}" for i, noun in enumerate(_GOODS)]
)

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
CITIES = """London Paris Berlin Boston Chicago Denver Dallas Seattle Portland Austin Miami
Atlanta Houston Detroit Memphis Toronto Dublin Madrid Rome Tokyo Sydney Oslo Vienna Prague Cairo
Lisbon Montreal Orlando Tampa Barcelona Budapest Helsinki Stockholm Melbourne Brussels Nashville
Baltimore Cleveland Oakland Ottawa Vancouver Geneva Venice Athens Warsaw Munich Hamburg
Singapore""".split()
HOBBIES = """swimming painting cooking hiking dancing reading gardening fishing singing running
skiing sailing camping cycling baking knitting drawing surfing climbing writing photography chess
tennis soccer golf baseball basketball football yoga puzzles""".split()
COLORS = "red blue green yellow orange purple pink black white silver gold brown gray".split()
FOODS = """pizza pasta salad soup rice bread cheese chocolate apples cherries pancakes tacos
noodles burgers sushi curry popcorn honey strawberries cookies""".split()
ANIMALS = """dogs cats horses birds rabbits dolphins tigers elephants turtles penguins owls foxes
bears lions whales monkeys""".split()
PRICES = range(2, 100)
OPENING = range(6, 12)
CLOSING = range(3, 12)

_KEPT_IN_TRAINING = {
    word.lower()
    for pool in (TRADES, DAYS, CITIES, HOBBIES, COLORS, FOODS, ANIMALS)
    for word in pool
}
_PROPER = sorted({w.lower() for w in NAMES + FIRSTS + STREETS} - _KEPT_IN_TRAINING)
_NOUNS = sorted(set(_TREATS + _GOODS + _SERVICES) - _KEPT_IN_TRAINING)
HELD_WORDS = frozenset(_PROPER[5::11] + _NOUNS[5::11])


def is_held(value: str) -> bool:
    """Whether a value of a pool is kept out of training (its first or last word is)."""
    words = value.lower().split()
    return words[0] in HELD_WORDS or words[-1] in HELD_WORDS
