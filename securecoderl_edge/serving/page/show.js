// Texts of a model as elements. Everything that a model or a program wrote is set as textContent, never as HTML.

// Python, as far as colors go: strings, comments, numbers, words.
const TOKEN = /("""|''')[\s\S]*?(?:\1|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|#[^\n]*|\b\d[\w.]*|[A-Za-z_]\w*/g;
const KEYWORDS = new Set(("False None True and as assert async await break class continue def del elif else except finally " +
  "for from global if import in is lambda nonlocal not or pass raise return try while with yield match case").split(" "));
const BUILTINS = new Set(("abs all any bool chr dict enumerate eval exec filter float input int isinstance iter len list map " +
  "max min next open ord pow print range repr reversed round set sorted str sum tuple type zip").split(" "));

// The states of a program or an answer, in words. The last five are ends.
const STATES = {
  generating: "generating", checking: "checking", passed: "passed", failed: "failed", untested: "not tested",
  unchecked: "nothing to check", stopped: "stopped, not checked", error: "error, not checked",
};

export const byId = (id) => document.getElementById(id);

export function element(name, kind, text) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function fromTemplate(id) {
  return byId(id).content.firstElementChild.cloneNode(true);
}

function kindOf(token) {
  if (token[0] === "#") return "comment";
  if (token[0] === '"' || token[0] === "'") return "string";
  if (/\d/.test(token[0])) return "number";
  return KEYWORDS.has(token) ? "keyword" : BUILTINS.has(token) ? "builtin" : "";
}

// The text as lines of colored spans; a token may go over several lines.
function coloredLines(text) {
  const lines = [element("span", "line")];
  const add = (kind, part) => part.split("\n").forEach((piece, place) => {
    if (place) lines.push(element("span", "line"));
    if (piece) lines[lines.length - 1].append(kind ? element("span", kind, piece) : document.createTextNode(piece));
  });
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    add("", text.slice(end, match.index));
    add(kindOf(match[0]), match[0]);
    end = match.index + match[0].length;
  }
  add("", text.slice(end));
  if (text.endsWith("\n")) lines.pop();
  return lines;
}

// A program with its findings below their lines.
function codeOf(text, findings) {
  const pre = element("pre");
  const code = element("code");
  coloredLines(text).forEach((line, place) => {
    const own = findings.filter((finding) => finding.line === place + 1);
    if (own.length) line.classList.add("found");
    code.append(line);
    for (const { test_id, severity, cwe } of own) {
      const words = `▲ ${severity.toLowerCase()} security finding: ${test_id}` + (cwe ? ` (CWE-${cwe})` : "");
      code.append(element("span", `finding ${severity}`, words));
    }
  });
  pre.append(code);
  return pre;
}

// The parts of a text: words, and blocks of code without their fences; the last block may be open.
export function partsOf(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(/^[ \t]*```[^\n`]*\n([\s\S]*?)(?:^[ \t]*```[ \t]*$|$(?![\s\S]))/gm)) {
    parts.push({ words: text.slice(end, match.index) }, { code: match[1] });
    end = match.index + match[0].length;
  }
  // The beginning of a fence that is being written.
  parts.push({ words: text.slice(end).replace(/(?:^|\n)[ \t]*`{1,3}[^\n`]*$/, "") });
  return parts.filter(({ words, code }) => code !== undefined || words.trim());
}

// A program while it is written: the first block if there is one.
export function writtenProgram(text) {
  const block = partsOf(text).find(({ code }) => code !== undefined);
  return block ? block.code : text;
}

export function stateOf({ accepted, verdict }) {
  if (accepted === null) return "unchecked";
  return !accepted ? "failed" : verdict.startsWith("not tested") ? "untested" : "passed";
}

export const isEnd = (state) => state !== "generating" && state !== "checking";

export function newCard(title) {
  const card = fromTemplate("card");
  card.querySelector(".title").textContent = title;
  setState(card, "generating");
  return card;
}

export function setState(card, state, verdict = "") {
  card.dataset.state = state;
  card.querySelector(".state").textContent = STATES[state];
  card.querySelector(".verdict").textContent = verdict;
}

// Make a button copy a text; browsers have a clipboard for HTTPS and localhost only.
export function offerCopy(button, text, words) {
  button.hidden = !navigator.clipboard;
  button.textContent = words;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  });
  return button;
}

export function showProgram(card, text, findings = [], tests = []) {
  card.querySelector(".text").replaceChildren(codeOf(text, findings));
  card.querySelector(".verdicts").replaceChildren(
    ...tests.map((word, place) => element("li", word === "pass" ? "pass" : "", `test ${place + 1}: ${word}`)));
}

// The parts of an answer with the blocks that the server found in it; their places count characters, not UTF-16 units.
export function checkedParts(text, blocks) {
  const characters = [...text];
  const words = (start, end) => ({ words: characters.slice(start, end).join("") });
  const parts = [];
  let end = 0;
  for (const block of blocks) {
    parts.push(words(end, block.start), { code: block.program, check: block });
    end = block.end;
  }
  parts.push(words(end));
  return parts.filter(({ words, code }) => code !== undefined || words.trim());
}

// The parts of an answer; ``isOver``: no verdict will come for those that have none.
export function showParts(card, parts, isOver = false) {
  card.querySelector(".text").replaceChildren(...parts.map(({ words, code, check }) => {
    if (code === undefined) return element("p", "words", words.trim());
    const shown = element("div", "block");
    shown.append(codeOf(code, check ? check.findings : []));
    if (check || isOver) {
      const state = check ? stateOf(check) : "unchecked";
      shown.dataset.state = state;
      const words = state === "unchecked" ? "not checked" : state === "failed" ? `failed: ${check.verdict}` : check.verdict;
      shown.append(
        element("p", "check", `${(check && check.language) || "code"}: ${words}`),
        offerCopy(element("button", "copy"), code, state === "unchecked" ? "Copy, not checked" : "Copy"));
    }
    return shown;
  }));
}
