"""Words of a text, and how many of them a recogniser got wrong."""


def normal_words(text: str) -> list[str]:
    """Split into lower-case words of letters."""
    kept = "".join(c.lower() if c.isalpha() or c == "'" else " " for c in text)
    return kept.split()


def distance(expected: list[str], heard: list[str]) -> int:
    """Count the fewest changes that turn one into the other."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(expected, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]
