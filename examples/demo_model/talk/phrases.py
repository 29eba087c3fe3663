"""The sentences of the closed domain: phrasings of questions, sentences of answers, personas.

Alternatives are parted by `` | ``; slots stand in braces. ``*`` before a word of an answer marks
a word that depends on the persona although it is no slot (yes, no).
"""

QUESTIONS = {
    "hello": """Hello. | Hi. | Hi there. | Hello, is anyone there? | Good morning.
        | Good afternoon. | Hey there. | Hello, good day. | Hello there. | Hi, good morning.
        | Hello, can you hear me? | Hey. | Good evening. | Hi, is somebody there? | Hello, hello?
        | Yes, hello.""",
    "how": """How are you? | How are you doing today? | How are you today? | How is it going?
        | So how are you? | Are you doing well? | How have you been? | How are you doing?
        | How are things? | How do you do? | How is your day? | How are you feeling today?
        | How have you been doing? | How's it going today? | And how are you?
        | How is everything?""",
    "name": """What is your name? | Who am I speaking to? | What's your name?
        | May I ask your name? | Who is this? | Can you tell me your name please?
        | Sorry, what was your name? | Who am I talking to? | Could I have your name?
        | Tell me your name please. | And what is your name? | What are you called?
        | Who are you? | What should I call you? | Can I get your name?
        | Please tell me your name. | What was your name again? | Do you have a name?
        | What name do you go by? | Who am I talking with? | Would you tell me your name?
        | I didn't catch your name. | And who are you? | Your name please?""",
    "company": """What company is this? | Who do you work for? | Where did I call?
        | What is the name of your company? | Which company do you work for?
        | What place is this? | Can you tell me where you work? | What's the company name?
        | What business is this? | Which company is this? | What's this place called?
        | What is this company called? | Which business have I reached? | Is this a company?
        | What's the name of this place? | Where do you work? | Which place is this?
        | Who have I called? | What is your company called? | Tell me the name of your company.""",
    "open": """What time do you open? | When do you open? | At what time do you open?
        | When do you open in the morning? | What is your opening time? | How early do you open?
        | Can you tell me when you open? | When can I come in? | What time do you open up?
        | How early can I come? | When does your day start? | What time can I come in?
        | What time are you open from? | From when are you open? | When will you open?
        | Could you tell me when you open? | What hour do you open? | Tell me what time you open.
        | When do you start in the morning?""",
    "close": """What time do you close? | When do you close? | At what time do you close?
        | How late are you open? | When do you close in the evening? | What is your closing time?
        | Can you tell me when you close? | Until when are you open?
        | What time do you close today? | How late can I come? | When will you close?
        | What time do you shut? | Could you tell me when you close?
        | Until what time are you open? | When do you shut for the day? | What hour do you close?
        | Tell me what time you close. | How long are you open tonight? | Till when can I come?""",
    "hours": """What are your hours? | What are your opening hours? | When are you open?
        | Can you tell me your hours? | What hours are you open? | What are your business hours?
        | Tell me your opening hours. | Could you give me your opening hours please?
        | From when until when are you open? | Which hours are you open? | What are your times?
        | Can I have your opening hours? | Could you tell me your hours?
        | What hours do you have? | I need your opening hours. | And what are your hours?
        | From what time to what time are you open? | What are your working hours?""",
    "day": """Are you open on {day}? | Are you open {day}? | Can I come on {day}?
        | Is it open on {day}? | Do you work on {day}? | Are you there on {day}?
        | Can I drop by on {day}? | Can I visit you on {day}? | Will you be open on {day}?
        | Is {day} okay to come? | How about {day}, are you open? | Can I come by on {day}?
        | Could I come in on {day}? | Are you open this {day}? | Do you open on {day}?
        | And on {day}, are you open?""",
    "price": """How much is the {item}? | How much is a {item}? | What does the {item} cost?
        | What is the price of the {item}? | How much does a {item} cost?
        | Can you tell me the price of the {item}? | And how much is the {item}?
        | What do you charge for the {item}? | What's the price of a {item}?
        | How much for the {item}? | I want to know the price of the {item}.
        | What would a {item} cost me? | How much would the {item} be?
        | Tell me the price of the {item}. | What's the cost of the {item}?
        | What do you want for the {item}? | How expensive is the {item}?
        | How many dollars is the {item}? | What is a {item}? I mean the price.
        | Could you tell me what the {item} costs? | And what does the {item} cost?
        | Do you know how much the {item} is? | I would like the {item}, how much is it?
        | The {item}, how much is it? | What must I pay for the {item}?
        | Is the {item} expensive? | What price is the {item}?
        | How much do you want for a {item}?""",
    "where": """Where are you? | Where are you located? | What is your address?
        | Can you give me your address? | What's the address? | What street are you on?
        | Where is it? | How do I find you? | Tell me the address please. | Where can I find you?
        | What's your address? | Where exactly are you? | Could you tell me the address?
        | Which street are you on? | Where is your place? | How do I get to you?
        | I need your address. | Where do I have to go? | Where should I come to?
        | And where are you?""",
    "deliver": """Do you deliver? | Can you deliver it? | Is there delivery?
        | Do you offer delivery? | Do you do home delivery? | Can I have it delivered?
        | Could you deliver? | Will you deliver? | Do you bring it to my house?
        | Can you bring it to me? | Is delivery possible? | Would you deliver it?
        | Do you deliver to homes? | Can I get it delivered? | Is there home delivery?
        | And do you deliver?""",
    "park": """Is there parking? | Can I park there? | Do you have parking?
        | Is there a place to park? | Where can I park? | Is the parking free?
        | What about parking? | Do you have a parking lot? | Can I park my car there?
        | Can I leave my car there? | Where do I park? | Is parking possible?
        | Do you have a place to park? | Are there parking spaces? | And can I park there?
        | Do you have free parking?""",
    "live": """Where do you live? | Where are you from? | Which city do you live in?
        | What city are you from? | Where do you come from? | What city do you live in?
        | Where is your home? | What's your city? | In which city do you live?
        | Where are you living? | Which city are you from? | Tell me where you live.
        | What place do you live in? | And where do you live? | What's your home town?
        | So where are you from?""",
    "hobby": """What do you like to do? | What are your hobbies? | Do you have a hobby?
        | What do you do for fun? | What do you do in your free time? | What's your hobby?
        | What do you enjoy? | What are you into? | What is your hobby? | Tell me your hobby.
        | How do you spend your free time? | What do you like doing?
        | What do you do on weekends? | Any hobbies? | And what are your hobbies?
        | What do you love to do?""",
    "color": """What is your favorite color? | What color do you like?
        | Do you have a favorite color? | Which color do you like best?
        | What's your favorite color? | Tell me your favorite color.
        | Which color is your favorite? | What's the color you like most?
        | Do you like a color best? | What is the best color? | And your favorite color?
        | Which color do you prefer? | What color is your favorite? | What colors do you like?
        | So what's your favorite color? | What color do you love?""",
    "food": """What is your favorite food? | What do you like to eat? | What food do you like?
        | Do you have a favorite food? | What's your favorite food? | Tell me your favorite food.
        | Which food do you like best? | What would you like to eat? | What do you eat?
        | What's the best food? | And your favorite food? | Which food is your favorite?
        | What food do you love? | What do you enjoy eating? | So what's your favorite food?
        | What do you like eating most?""",
    "animal": """What is your favorite animal? | Do you like animals? | What animals do you like?
        | Which animal do you like best? | What's your favorite animal?
        | Tell me your favorite animal. | Which animals do you like?
        | Which animal is your favorite? | What's the best animal? | And your favorite animal?
        | What animal do you love? | Do you have a favorite animal?
        | Which animals are your favorite? | What animals do you love?
        | So what's your favorite animal? | What kind of animals do you like?""",
    "robot": """Are you a robot? | Are you a real person? | Are you human?
        | Am I talking to a machine? | Are you a computer? | Is this a recording?
        | Is this a robot? | Are you a machine? | Are you real? | Am I speaking to a person?
        | Are you an actual person? | Is this a computer?""",
    "joke": """Tell me a joke. | Can you tell me a joke? | Do you know a joke?
        | Say something funny. | Make me laugh.""",
    "thanks": """Thank you. | Thanks a lot. | Thank you very much. | Great, thanks.
        | Okay, thank you so much. | Perfect, thank you. | Thanks. | That's great, thank you.
        | Wonderful, thanks. | Many thanks. | Okay, thanks a lot. | That's very kind, thank you.""",
    "bye": """Goodbye. | Bye. | Okay, bye. | Bye bye. | Have a nice day, bye.
        | That's all, goodbye. | See you later. | That's all, thank you, bye. | Okay, goodbye.
        | See you. | Have a good day. | Alright, bye. | That's it, bye. | Talk to you later.""",
    "off": """What's the weather like today? | Who won the game last night?
        | Can you book me a flight to the moon? | What is the capital of France?
        | How tall is the tallest building? | Can you help me with my homework?
        | What is the meaning of life? | Can you sing a song? | What time is it?
        | Do you like football? | What's on television tonight? | Who is the president?
        | Can you write me a poem? | What's two plus two? | How do I bake bread?
        | Where is the next train station? | Can you call me a taxi?""",
    "bc": "Mhm. | Uh huh. | Mm. | Yeah. | Right. | I see.",
}
PHRASINGS = {kind: " ".join(text.split()).split(" | ") for kind, text in QUESTIONS.items()}

SENTENCES = {
    "name": "Hello, this is {name}. | Hi, I'm {name}. | My name is {name}. | This is {name}.",
    "company": """Thank you for calling {company}. | This is {company}.
        | You have reached {company}.""",
    "help": "How can I help you? | What can I do for you?",
    "nice": "It's nice to talk to you. | What would you like to talk about?",
    "hello": "Hello. | Hi there.",
    "how": "I'm doing great, thank you. | I'm very well, thanks for asking.",
    "open": "We open at {open}. | We open at {open} in the morning.",
    "close": "We close at {close}. | We are open until {close}.",
    "hours": "We are open from {open} to {close}. | Our hours are {open} to {close}.",
    "closed": "*No, *sorry, we are *closed on {day}.",
    "opened": "*Yes, we are *open on {day}.",
    "price": "The {item} is {price}. | The {item} costs {price}.",
    "cost": "That is {price}. | It costs {price}.",
    "where": "We are at {address}. | Our address is {address}.",
    "deliver": "*Yes, we *deliver. | *No, *sorry, we *don't deliver.",
    "park": "*Yes, parking is *free. | *No, *sorry, there is *no parking.",
    "live": "I live in {city}. | I'm from {city}.",
    "hobby": "I like {hobby}. | I really like {hobby}.",
    "color": "My favorite color is {color}. | I like {color}.",
    "food": "My favorite food is {food}. | I like {food} best.",
    "animal": "My favorite animals are {animal}. | I love {animal}.",
    "robot": "I'm a voice assistant, but I'm happy to help.",
    "joke": """Why did the chicken cross the road? | To get to the other side.
        | What do you call a bear with no teeth? | A gummy bear. | Why was the math book sad?
        | It had too many problems. | What has four wheels and flies? | A garbage truck.""",
    "off": "Sorry, I can't help with that. | I'm sorry, I don't know about that.",
    "unknown": "Sorry, I don't know that. | I'm sorry, I don't have that information.",
    "thanks": "You're welcome. | My pleasure.",
    "else": "Is there anything else?",
    "bye": "Goodbye, have a nice day. | Thank you for calling. | Goodbye. | Bye, take care.",
    "still": "Are you still there?",
}
FORMS = {kind: " ".join(text.split()).split(" | ") for kind, text in SENTENCES.items()}

REPLIES = {
    "greet.service": """name#0 company#0 help#0 | company#0 name#2 help#0 | name#0 help#0
        | company#1 name#2 help#1""",
    "greet.chat": "name#1 nice#0 | name#0 nice#1",
    "hello": "hello#0 help#0 | hello#1 help#1",
    "how": "how#0 | how#1",
    "name": "name#2 | name#3",
    "company": "company#1 | company#2",
    "open": "open#0 | open#1",
    "close": "close#0 | close#1",
    "hours": "hours#0 | hours#1",
    "closed": "closed#0",
    "opened": "opened#0",
    "price": "price#0 | price#1",
    "cost": "cost#0 | cost#1",
    "where": "where#0 | where#1",
    "deliver.yes": "deliver#0",
    "deliver.no": "deliver#1",
    "park.yes": "park#0",
    "park.no": "park#1",
    "live": "live#0 | live#1",
    "hobby": "hobby#0 | hobby#1",
    "color": "color#0 | color#1",
    "food": "food#0 | food#1",
    "animal": "animal#0 | animal#1",
    "robot": "robot#0",
    "joke": "joke#0 joke#1 | joke#2 joke#3 | joke#4 joke#5 | joke#6 joke#7",
    "off": "off#0 | off#1",
    "unknown": "unknown#0 | unknown#1",
    "thanks": "thanks#0 else#0 | thanks#0 | thanks#1",
    "bye": "bye#0 | bye#1 bye#2 | bye#3",
    "still": "still#0",
}
REPLY_FORMS = {
    k: [tuple(f.split()) for f in " ".join(text.split()).split(" | ")]
    for k, text in REPLIES.items()
}

BITS = {
    "hours": """Open from {open} to {close}. | We are open from {open} to {close}.
        | Opening hours are {open} to {close}. | Hours: {open} to {close}.""",
    "item": """The {item} is {price}. | The {item} costs {price}. | A {item} costs {price}.
        | {item}: {price}. | A {item} is {price}.""",
    "address": "The address is {address}. | We are at {address}. | Address: {address}.",
    "closed": "Closed on {day}. | We are closed on {day}.",
    "deliver.yes": "We deliver. | Delivery is possible.",
    "deliver.no": "No delivery. | We don't deliver.",
    "park.yes": "Parking is free. | Free parking.",
    "park.no": "No parking. | There is no parking.",
    "live": "You live in {city}.",
    "hobby": "You like {hobby}.",
    "color": "Your favorite color is {color}.",
    "food": "Your favorite food is {food}.",
    "animal": "Your favorite animals are {animal}.",
}
BIT_FORMS = {kind: " ".join(text.split()).split(" | ") for kind, text in BITS.items()}
PREFIXES = "Okay, | Great, | Um, | Alright, | Well, | So, | Oh, | Hi,".split(" | ")


def phrasings(kind: str, held: bool) -> list[int]:
    """Numbers of the phrasings of a kind of question: those of training, or those kept out.

    Every fourth is kept out. Backchannels are the same in both.
    """
    everything = range(len(PHRASINGS[kind]))
    if kind == "bc":
        return list(everything)
    return [i for i in everything if (i % 4 == 3) == held]
