"""Programs that the zygote runs before it serves, so that no test is the first to use what most of them use.

An interpreter learns: it remembers where it found a method, and specializes functions that have run eight times. What
the zygote has learned no fork of it needs to learn again, nor to copy pages for. This spares programs 5 % of their CPU
time, and a test that crashes a third.

This file is loaded by path in an interpreter without the package, so it imports the standard library only.
"""

from __future__ import annotations

import linecache
import os
import sys
from typing import Any

REPETITIONS = 20
INPUT = b"5\n1 2 3 4 5\nb,a,c\nlast\n"
TYPICAL = """
import sys
from collections import Counter, defaultdict

def main():
    count = int(input())
    numbers = list(map(int, input().split()))
    words = sys.stdin.readline().strip().split(",")
    rest = [line.rstrip() for line in sys.stdin]
    best = {}
    for place, (word, number) in enumerate(zip(words, numbers)):
        best[word] = best.get(word, 0) + number
    for word in sorted(best, key=lambda word: (-best[word], word)):
        print(word, best[word])
    total = sum(number * number for number in numbers if number % 2 == 0)
    print(f"{total:.2f}", max(numbers), min(numbers), len(set(numbers)), sep=" ")
    print(" ".join(map(str, sorted(numbers)[::-1])), "abc".upper().replace("A", "b"), "x".join(words))
    seen = set()
    queue = [(0, 1)]
    while queue:
        depth, value = queue.pop()
        seen.add(value)
        if depth < 3:
            queue.append((depth + 1, value * 2))
    table = defaultdict(list)
    table[count].append(2)
    print(Counter(words).most_common(1), any(numbers), all(numbers), abs(-1), "a" in best, ord("a"), chr(98))
    print("yes" if "abc".startswith("a") and not "abc".isdigit() else "no", round(2.5), divmod(7, 2), "%d" % 3)

main()
"""
CRASHING = "1 / 0"


def rehearse(script: Any) -> None:
    """Run both programs several times in this process, with streams of their own, and leave nothing of them behind."""
    kept = [os.dup(descriptor) for descriptor in range(3)]
    main = sys.modules["__main__"]
    programs = [script.Script(compile(text, script.FILE_NAME, "exec"), text) for text in (TYPICAL, CRASHING)]
    for _ in range(REPETITIONS):
        for program in programs:
            reading, writing = os.pipe()
            os.write(writing, INPUT)
            os.close(writing)
            os.dup2(reading, 0)
            os.close(reading)
            os.dup2(kept[1], 2)
            script.prepare()
            program.stage("__main__")
            program.run()
    for descriptor, original in enumerate(kept):
        os.dup2(original, descriptor)
        os.close(original)
    sys.modules["__main__"] = main
    linecache.clearcache()
