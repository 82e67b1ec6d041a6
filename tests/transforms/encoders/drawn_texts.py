"""Texts like captions, drawn; and odd ones."""

import random

WORDS = ["dog", "cat", "person", "street", "Café", "straße", "riding", "a", "on", "the"]
WORDS += ["with", "x2", "été", "狗", "red"]


def captions(number: int, seed: int = 0) -> list[str]:
    """So many texts of 0 to 14 words, some of which are far more frequent than others."""
    draw = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(WORDS) + 200)]
    words = [*WORDS, *(f"word{number}" for number in range(200))]
    texts = []
    for _ in range(number):
        chosen = draw.choices(words, weights, k=draw.randrange(15))
        texts.append(draw.choice((" ", "  ", ", ")).join(chosen) + draw.choice((".", "", "!\n")))
    return texts


ODD = (
    "",
    " \t\n",
    "the a on",
    "e\u0301te\u0301 caf\u00e9 cafe\u0301",
    "İstanbul ıI iI ǅ ẞ ΑΣ ςσ",
    "👍🏽 👩‍👩‍👧 emoji_2 ☕",
    "狗在跑 猫 日本語のテキスト ภาษาไทย हिन्दी",
    "nul\x00byte \x1f\x7f bell\x07ring",
    "well-known don't co-op's O'Neil 3.14 1,000 x__y _ __",
    "\u200bzero\u200dwidth \ufeffmark\u00adshy",
    "aa aa aa bb aa",
    "ＦＵＬＬ ｗｉｄｔｈ ﬁsh ²³ ½ ٣٤",
)
