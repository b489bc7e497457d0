"""The words in inputs of problems."""

WORDS = (
    *("apple", "river", "stone", "cloud", "tiger", "piano", "lemon", "ocean", "maple", "robot", "candle", "garden"),
    *("window", "silver", "orange", "planet", "bridge", "forest", "mirror", "pencil", "rocket", "castle", "basket"),
    *("ladder", "island", "music", "bread", "chair", "train", "cat", "dog", "sun", "moon", "map", "key", "tea"),
    *("ice", "fox", "owl", "bee", "egg", "hat", "net", "pot", "rug"),
)
