"""Finds words that the glossary replaces, long sentences and long pages, in text for users: pages, messages and help.

    python tests/words.py [PATH...]     pages, or Python files (their messages); by default all that users read

Each finding is ``place: problem: text``. ``make lint-text`` holds all of it to zero findings.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from places import ROOT

MOST_WORDS = 40  # in a sentence; 25 is the aim
MOST_WORDS_OF_README = 700  # without code
MOST_LINES = 125  # of a page in docs/ that is written by hand
GENERATED = ("cli.md", "settings.md", "study.md")
PAGES = (
    *("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "benchmarks/*.md"),
    "securecoderl_edge/models/*/*.md",
)
CODE = ("securecoderl_edge", "commands", "export", "benchmarks")
# Problem statements and solutions are data, and `inside/` speaks to no user.
_NOT_TEXT = ("families", "inside")

# Pattern -> what to write instead.
WORDS = {
    r"\b(can|could|can ?not|could not|cannot|nowhere) (nowhere )?be (told|seen)\b": (
        "no significant difference; not observed"
    ),
    r"\bcan ?not tell\b|\btold (apart|from)\b": "no significant difference",
    r"\blearnt\b": "learned; trained on",
    r"\b(learn|learns|learned|learning) from\b": "train on",
    r"\b(measured?|measures|measuring) on\b(?! (an?|one|two) (CPU|GPU|machine|AMD|Intel|server|Xeon))": "evaluate on",
    r"\bbesides?\b": "next to; as well as; compared with",
    r"\b[MB] weights\b|\b(million|billion) weights\b": "parameters",
    r"\bprocessor time\b": "CPU time",
    r"\belapsed time\b": "wall time",
    r"\bnumber formats?\b": "dtype",
    r"\bhub ids?\b": "Hugging Face repo id",
    r"\bkeys and values\b": "KV cache",
    r"\bnot finite\b": "NaN or Inf",
    r"\bflat groups?\b": "zero-variance groups",
    r"\bstep size\b": "learning rate",
    r"\bknobs?\b": "setting",
    r"\bat hand\b": "available",
    r"\bhardly\b": "rarely; the number",
    r"\bshares? of\b": "fraction, rate",
    r"\bslices?\b": "split",
    r"(?<!-)\barms?\b(?!-none-eabi| Cortex)": "configuration, variant",
    r"\bfigures\b": "results, numbers",
    r"\bpictures?\b": "plot, diagram",
    r"\b(a|the|this|that|each|every) bench\b": "an evaluation",
    r"\bdraws?\b|\bdrawn\b|\bdrew\b": "sample, seed; plot",
    r"\b(pays?|paid|paying) (for|0)\b|\bis paid\b|\bare paid\b": "is rewarded",
    r"\b(goes|go|going|went|gone) on\b": "resumes, continues",
    r"\b(take|takes|taken|took) over\b": "reused",
    r"\btorn\b": "truncated",
    r"\bstands?\b(?!-)": "is, appears",
    r"\bsays\b|\bsaid\b": "reports, prints",
    r"\b(is|are|was|were) told\b": "is reported; is named",
    r"\bso (many|much)\b": "N; this much",
    r"\bof (ours|our own|its own|their own|your own)\b": "our, custom, separate",
    r"\b(is|are) gone\b": "is missing",
    r"\b(is|are) no\b(?! longer| more\b| (significant|correction|release)\b)": "is not a",
    r"\bthere (is|are|was|were) none\b": "is missing; there is no X",
    r"\bnames no\b": "does not name a",
    r"\bgiveaways?\b": "test leakage",
    r"\bsigns of gaming\b": "reward-hacking metrics",
    r"\bsample cop(y|ies)\b": "hard-coded example",
    r"\bhostile\b": "malicious",
    r"\bhonest programs?\b": "benign program",
    r"\bdeeds?\b": "attack",
    r"\bstage [0-4]\b": "level",
    r"\bnot distinguishable from\b": "no significant difference",
    r"\b(un)?(quantis|tokenis|optimis|normalis|generalis|recognis|serialis|minimis|maximis)\w*": "-ize",
    r"\b(un)?(randomis|penalis|initialis|organis)\w*": "-ize",
    r"\bcolours?\b|\bbehaviours?\b|\blicence\b|\bcentred?\b|\bfavour\w*|\bneighbours?\b": "US spelling",
    # "per", not "a".
    r"\b(tests?|tokens?|nats|bits|bytes|samples|programs|completions|seconds|updates?|rows?|sequences) an? "
    r"(problem|token|weight|update|completion|prompt|core|line|test|program|step|sample|parameter|second|model|file|"
    r"row|seed|batch|turn|family)\b": "per",
}
_PATTERNS = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in WORDS.items()]
_WHAT = re.compile(r"(^|[.!:;?]\s+)What\s+(?!is\b.*\?|does\b|are\b.*\?|happens\b.*\?)[a-z]")
# Abbreviations whose full stop ends no sentence.
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|Eq|vs|approx|cf|No|Fig|Syn|Sec)\.")


def findings_in(text: str) -> Iterator[str]:
    """What is wrong with one paragraph of prose, without code in it."""
    text = " ".join(text.split())
    for pattern, instead in _PATTERNS:
        for match in pattern.finditer(text):
            yield f"{match[0]!r} (write: {instead}): {text[max(0, match.start() - 40) : match.end() + 40]}"
    if _WHAT.search(text):
        yield f"a 'What ...' clause as a noun: {text[:90]}"
    for sentence in re.split(r"(?<=[.!?])\s+", _ABBREVIATION.sub(r"\1", text)):
        words = len(re.findall(r"[A-Za-z][\w'-]*", sentence))
        if words > MOST_WORDS:
            yield f"{words} words in a sentence: {sentence[:90]}"


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """``(line, prose)`` of each paragraph, list item, heading, table cell and picture's description of a page.

    Code, comments, addresses, quoted titles and bracketed intervals are left out.
    """
    page = re.sub(r"<!--.*?-->", lambda match: "\n" * match[0].count("\n"), page, flags=re.DOTALL)
    page = re.sub(r"^(```|~~~).*?^\1[^\n]*$", lambda match: "\n" * match[0].count("\n"), page, flags=re.DOTALL | re.M)
    held: list[str] = []
    begun = 1
    for number, line in enumerate([*page.splitlines(), ""], 1):
        stripped = line.strip()
        is_table = stripped.startswith("|")
        starts = is_table or not stripped or re.match(r"(#+|[-*>]|\d+\.|\[\^|!!!)\s", stripped)
        if held and starts:
            yield begun, _prose(" ".join(held))
            held = []
        if is_table:
            for cell in stripped.strip("|").split("|"):
                yield number, _prose(cell)
        elif stripped:
            begun = begun if held else number
            held.append(re.sub(r"^(#+|[-*>]|\d+\.)\s+", "", stripped))


def _prose(text: str) -> str:
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\[[+-]?[\d.]+, [+-]?[\d.]+\]", "", text)
    return re.sub(r"[*_]{1,2}|<[^>]+>|https?://\S+|\"[^\"]*\"", " ", text)


def findings_in_help(text: str) -> Iterator[str]:
    """What is wrong with the text that ``--help`` prints: paragraphs, and the description of each option."""
    text = text.partition("\n  Examples:\n")[0]
    begins = r"^  (?=-|[a-z][\w-]* {2,})"  # an option or a command
    for block in re.split(rf"\n\s*\n|(?m:{begins})", text):
        option = re.match(r"-[^\n]*?(\n| {2,})|[a-z][\w-]* {2,}", block)
        shown = re.sub(r"\[(default|x?[<>=\d]|[a-z0-9|-]+\])[^\]]*\]?", " ", block[option.end() if option else 0 :])
        if "$(" not in shown:
            yield from findings_in(shown)


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """``(line, text)`` of every text of a module that is not a docstring and has words in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            shown = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (docstrings | parts):
            shown = node.value
        else:
            continue
        is_code = re.search(r"\{[^{}]*:[^{}]*\}|\bimport \w+;", shown)  # CSS, Python
        if len(re.findall(r"[A-Za-z]{2,}", shown)) > 1 and not is_code:
            yield node.lineno, re.sub(r"`[^`]*`", "X", shown)


def check(path: Path) -> list[str]:
    """All findings of a page or of a Python file."""
    texts = messages(path) if path.suffix == ".py" else paragraphs(path.read_text(encoding="utf-8"))
    place = path.resolve().relative_to(ROOT)
    return [f"{place}:{line}: {finding}" for line, text in texts for finding in findings_in(text)]


def pages() -> list[Path]:
    """Every page that users read."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def modules() -> list[Path]:
    """Every module with messages to users."""
    found = (path for folder in CODE for path in (ROOT / folder).rglob("*.py"))
    return sorted({path.resolve() for path in found if not set(path.parts) & set(_NOT_TEXT)})


def long_pages() -> list[str]:
    """The README and the pages of docs/ that have grown too long."""
    readme = re.sub(r"^```.*?^```$|<!--.*?-->", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M | re.S)
    count = len(readme.split())
    found = [f"README.md: {count} words, at most {MOST_WORDS_OF_README}"] if count > MOST_WORDS_OF_README else []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        lines = len(page.read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES and page.name not in GENERATED:
            found.append(f"{page.relative_to(ROOT)}: {lines} lines, at most {MOST_LINES}")
    return found


def in_help() -> list[str]:
    """All findings in what ``--help`` of each command prints."""
    import docs_reference

    return [
        f"sce {' '.join(command)} --help: {finding}"
        for command in docs_reference.commands()
        for finding in findings_in_help(docs_reference.help_of(command))
    ]


def main() -> None:
    """Print the findings; exit with 1 if there are any."""
    paths = list(map(Path, sys.argv[1:]))
    found = [line for path in (paths or [*pages(), *modules()]) for line in check(path)]
    if not paths:
        found += [*in_help(), *long_pages()]
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.stdout.write(f"{len(found)} findings\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
