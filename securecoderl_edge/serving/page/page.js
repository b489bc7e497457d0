// The page of sce serve. Everything that a model or a program wrote is set as textContent, never as HTML.
"use strict";

const byId = (id) => document.getElementById(id);
const settings = ["n", "temperature", "max_tokens", "seed"];
let running = null;

// Python, as far as colors go: strings, comments, numbers, words.
const TOKEN = /("""|''')[\s\S]*?(?:\1|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|#[^\n]*|\b\d[\w.]*|[A-Za-z_]\w*/g;
const KEYWORDS = new Set(("False None True and as assert async await break class continue def del elif else except finally " +
  "for from global if import in is lambda nonlocal not or pass raise return try while with yield match case").split(" "));
const BUILTINS = new Set(("abs all any bool chr dict enumerate eval exec filter float input int isinstance iter len list map " +
  "max min next open ord pow print range repr reversed round set sorted str sum tuple type zip").split(" "));

function kindOf(token) {
  if (token[0] === "#") return "comment";
  if (token[0] === '"' || token[0] === "'") return "string";
  if (/\d/.test(token[0])) return "number";
  return KEYWORDS.has(token) ? "keyword" : BUILTINS.has(token) ? "builtin" : "";
}

function element(name, kind, text) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
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

function showProgram(code, text, findings) {
  code.replaceChildren();
  coloredLines(text).forEach((line, place) => {
    const own = findings.filter((finding) => finding.line === place + 1);
    if (own.length) line.classList.add("found");
    code.append(line);
    for (const { test_id, severity, cwe } of own) {
      const words = `▲ ${severity.toLowerCase()} security finding: Bandit ${test_id}` + (cwe ? ` (CWE-${cwe})` : "");
      code.append(element("span", `finding ${severity}`, words));
    }
  });
}

// The parts of a text: words, and blocks of code without their fences; the last block may be open.
function partsOf(text) {
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
function writtenProgram(text) {
  const block = partsOf(text).find(({ code }) => code !== undefined);
  return block ? block.code : text;
}

function kindOfCheck({ accepted }) {
  return accepted === null ? "" : accepted ? "accepted" : "failed";
}

function end(card, kind, title, text) {
  if (kind) card.classList.add(kind);
  card.dataset.state = "checked";
  card.querySelector("h2").textContent = title;
  const copy = card.querySelector(".copy");
  copy.hidden = !navigator.clipboard;  // browsers have it for HTTPS and localhost only
  copy.addEventListener("click", () => navigator.clipboard.writeText(text));
}

function cutOf(choice) {
  return choice.finish_reason === "length" ? ", cut off at the maximum of tokens" : "";
}

function showVerdict(card, number, choice) {
  const { verdict, tests, findings, program } = choice.sce;
  const kind = kindOfCheck(choice.sce);
  card.querySelector(".verdicts").replaceChildren(
    ...tests.map((word, place) => element("li", word === "pass" ? "pass" : "", `test ${place + 1}: ${word}`)));
  showProgram(card.querySelector("code"), program, findings);
  end(card, kind, `${number}: ${kind || "not checked"}: ${verdict}${cutOf(choice)}`, program);
}

// An answer of a chat; blocks are the checked ones of the server, once they are there.
function showAnswer(card, text, blocks = []) {
  const shown = [];
  let place = 0;
  for (const { words, code } of partsOf(text)) {
    if (code === undefined) {
      shown.push(element("p", "", words.trim()));
      continue;
    }
    const block = blocks[place++];
    const pre = element("pre");
    pre.append(element("code"));
    showProgram(pre.firstChild, code, block ? block.findings : []);
    shown.push(pre);
    if (block) shown.push(element("p", `check ${kindOfCheck(block)}`, `${block.language || "code"}: ${block.verdict}`));
  }
  card.querySelector(".text").replaceChildren(...shown);
}

function endAnswer(card, choice, text) {
  showAnswer(card, text, choice.sce.blocks);
  const kind = kindOfCheck(choice.sce);
  end(card, kind, (kind ? `${kind}: ${choice.sce.verdict}` : "answer") + cutOf(choice), text);
}

function newCard(template, title) {
  const card = byId(template).content.firstElementChild.cloneNode(true);
  card.querySelector("h2").textContent = title;
  byId("programs").append(card);
  return card;
}

const isChat = () => document.body.dataset.mode === "chat";
let conversation = [];

function setMode(mode) {
  document.body.dataset.mode = mode;
  byId("prompt-label").textContent = mode === "chat" ? "Message" : "Describe the program to write";
  forget();
}

function forget() {
  conversation = [];
  byId("programs").replaceChildren();
  say("");
}

function addTest(input = "", output = "") {
  const row = byId("test").content.firstElementChild.cloneNode(true);
  row.querySelector(".input").value = input;
  row.querySelector(".output").value = output;
  row.querySelector(".remove").addEventListener("click", () => { row.remove(); byId("add-test").focus(); });
  byId("tests").append(row);
  return row;
}

function requestBody() {
  const message = { role: "user", content: byId("prompt").value };
  const body = { messages: isChat() ? [...conversation, message] : [message], stream: true, stream_options: { include_usage: true } };
  for (const name of settings) {
    if (byId(name).value !== "" && !(isChat() && name === "n")) body[name] = Number(byId(name).value);
  }
  if (isChat()) return body;
  body.task = "program";
  const assertions = byId("assertions").value.split("\n").filter((line) => line.trim());
  const tests = [...document.querySelectorAll(".test")].map((row) =>
    ({ input: row.querySelector(".input").value, output: row.querySelector(".output").value }));
  const given = tests.filter(({ input, output }) => input !== "" || output !== "");
  if (assertions.length) body.assertions = assertions;
  else if (given.length) body.tests = given;
  return body;
}

function headers() {
  const key = byId("key").value;
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

function say(words, isBad = false) {
  if (byId("status").textContent === words) return;  // screen readers would repeat it
  byId("status").textContent = words;
  byId("status").className = isBad ? "bad" : "";
}

// The records of a stream of server-sent events, until [DONE].
async function* records(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the server closed the connection");
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part === "data: [DONE]") return;
      yield JSON.parse(part.slice("data: ".length));
    }
  }
}

async function generate() {
  if (running) return;
  running = new AbortController();
  byId("generate").disabled = true;
  byId("stop").disabled = false;
  const chats = isChat();
  const body = requestBody();
  if (chats) {
    byId("programs").append(element("p", "message", byId("prompt").value));
    byId("prompt").value = "";
  } else byId("programs").replaceChildren();
  const started = performance.now();
  const cards = new Map();
  const texts = new Map();
  let accepted = 0;
  say("waiting for the model");
  try {
    const response = await fetch("/v1/chat/completions",
      { method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const record of records(response)) {
      if (record.error) throw new Error(record.error.message);
      for (const choice of record.choices) {
        const number = choice.index + 1;
        const name = chats ? "answer" : `${number}`;
        if (!cards.has(number)) cards.set(number, newCard(chats ? "answer" : "program", `${name}: being written`));
        const card = cards.get(number);
        texts.set(number, (texts.get(number) || "") + (choice.delta.content || ""));
        const text = texts.get(number);
        if (choice.sce && choice.sce.state) {
          card.dataset.state = choice.sce.state;
          card.querySelector("h2").textContent = `${name}: being checked`;
        } else if (choice.sce) {
          if (chats && choice.sce.blocks) endAnswer(card, choice, text);
          else if (chats) endAnswer(card, { ...choice, sce: { ...choice.sce, blocks: [] } }, text);
          else showVerdict(card, number, choice);
          accepted += choice.sce.accepted === true;
        } else if (chats) showAnswer(card, text);
        else showProgram(card.querySelector("code"), writtenProgram(text), []);
      }
      const seconds = (performance.now() - started) / 1000;
      if (record.usage) {
        const tokens = record.usage.completion_tokens;
        const checked = chats ? "" : `${accepted} of ${cards.size} accepted; `;
        say(`${checked}${tokens} tokens in ${seconds.toFixed(1)} s${chats ? "" : ", tests included"}: ` +
          `${(tokens / seconds).toFixed(0)} tokens per second`);
      } else if (!accepted) {
        say(`writing, ${seconds.toFixed(0)} s`);
      }
    }
    if (chats) conversation = [...body.messages, { role: "assistant", content: texts.get(1) || "" }];
  } catch (error) {
    const isStopped = error.name === "AbortError";
    say(isStopped ? "stopped" : error.message, !isStopped);
    for (const card of cards.values()) {
      if (card.dataset.state !== "checked") card.querySelector("h2").textContent += ", unfinished and not checked";
    }
  } finally {
    running = null;
    byId("generate").disabled = false;
    byId("stop").disabled = true;
    document.body.dataset.state = "done";
  }
}

// Focus the next or the previous program.
function move(step) {
  const cards = [...document.querySelectorAll(".program")];
  const place = cards.indexOf(document.activeElement.closest(".program"));
  const next = cards[place < 0 ? 0 : Math.min(Math.max(place + step, 0), cards.length - 1)];
  if (next) next.focus();
}

async function showModel() {
  const response = await fetch("/v1/models", { headers: headers() });
  const record = await response.json();
  byId("model").textContent = response.ok ? record.data[0].id : "this server needs a key";
}

byId("request").addEventListener("submit", (event) => { event.preventDefault(); generate(); });
byId("stop").addEventListener("click", () => running && running.abort());
byId("add-test").addEventListener("click", () => addTest().querySelector(".input").focus());
byId("key").addEventListener("change", showModel);
byId("forget").addEventListener("click", () => { if (!running) forget(); byId("prompt").focus(); });
for (const choice of document.querySelectorAll("input[name=mode]")) {
  choice.addEventListener("change", () => { if (running) running.abort(); setMode(choice.value); });
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("request").requestSubmit();
  else if (event.key === "Escape" && running) running.abort();
  else if (event.altKey && (event.key === "ArrowDown" || event.key === "ArrowUp")) move(event.key === "ArrowDown" ? 1 : -1);
  else return;
  event.preventDefault();
});
addTest("1 2 3\n", "6\n");
setMode("task");
showModel();
