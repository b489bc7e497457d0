// The page of sce serve: two panes, a task and a chat, that share the model and the settings.
import {
  byId, checkedParts, element, fromTemplate, isEnd, newCard, offerCopy, partsOf, setState, showParts, showProgram,
  stateOf, writtenProgram,
} from "/show.js";

const settings = ["temperature", "max_tokens", "seed"];

function headers() {
  const key = byId("key").value;
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
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

async function faultOf(response) {
  const record = await response.json().catch(() => null);
  return record && record.error ? record.error.message : `the server answered with status ${response.status}`;
}

// The button of a whole card; blocks in it have their own.
const buttonOf = (card) => card.querySelector(":scope > .copy");

// A pane asks for one answer at a time, and shows its choices as cards. ``data-state`` is what its status says: idle,
// generating, checking, done, stopped, error, or changed, if the verdicts are not those of what stands in the form.
class Pane {
  constructor(id) {
    this.root = byId(id);
    this.form = this.root.querySelector("form");
    this.prompt = byId(`${id}-prompt`);
    this.results = this.root.querySelector(".results");
    this.stopButton = this.root.querySelector(".stop");
    this.running = null;
    this.cards = new Map();
    this.texts = new Map();
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.generate(); });
    this.stopButton.addEventListener("click", () => this.stop());
    this.show("idle", "");
    this.setRunning(null);
  }

  // Say what the state is; screen readers would repeat what was said before.
  show(state, words) {
    this.root.dataset.state = state;
    const status = this.root.querySelector(".status");
    if (status.textContent !== words) status.textContent = words;
  }

  // Buttons that cannot be used keep the focus, which disabled ones would lose.
  setRunning(running) {
    this.running = running;
    this.root.querySelector(".generate").ariaDisabled = String(running !== null);
    this.stopButton.ariaDisabled = String(running === null);
  }

  stop() {
    if (this.running) this.running.abort();
  }

  async generate() {
    if (this.running || !byId("settings").reportValidity()) return;
    this.setRunning(new AbortController());
    this.cards.clear();
    this.texts.clear();
    const body = { ...this.begin(), stream: true, stream_options: { include_usage: true } };
    for (const name of settings) {
      if (byId(name).value !== "") body[name] = Number(byId(name).value);
    }
    const started = performance.now();
    const clock = this.root.querySelector(".clock");
    const seconds = () => (performance.now() - started) / 1000;
    const ticking = setInterval(() => { clock.textContent = `${seconds().toFixed(0)} s`; }, 1000);
    this.show("generating", "generating");
    try {
      const response = await fetch("/v1/chat/completions",
        { method: "POST", headers: headers(), body: JSON.stringify(body), signal: this.running.signal });
      if (!response.ok) throw new Error(await faultOf(response));
      let tokens = 0;
      for await (const record of records(response)) {
        if (record.error) throw new Error(record.error.message);
        for (const choice of record.choices) this.take(choice);
        if (record.usage) tokens = record.usage.completion_tokens;
      }
      this.show("done", `${this.finish(body)}; ${tokens} tokens in ${seconds().toFixed(1)} s, checks included`);
    } catch (error) {
      const state = error.name === "AbortError" ? "stopped" : "error";
      for (const [number, card] of this.cards) {
        if (!isEnd(card.dataset.state)) this.leave(card, this.texts.get(number), state);
      }
      this.fail(body);
      this.show(state, state === "stopped" ? "stopped" : error.message);
    } finally {
      clearInterval(ticking);
      clock.textContent = "";
      this.setRunning(null);
      this.ended();
    }
  }

  // A part of the answer: text, that a choice is written, or its verdict.
  take(choice) {
    const number = choice.index + 1;
    if (!this.cards.has(number)) {
      this.cards.set(number, newCard(this.titleOf(number)));
      this.results.append(this.cards.get(number));
    }
    const card = this.cards.get(number);
    const text = (this.texts.get(number) || "") + (choice.delta.content || "");
    this.texts.set(number, text);
    if (choice.sce && choice.sce.state) {
      setState(card, "checking");
      if (![...this.cards.values()].some((each) => each.dataset.state === "generating")) this.show("checking", "checking");
    } else if (choice.sce) {
      const cut = choice.finish_reason === "length" ? ", cut off at the maximum of tokens" : "";
      setState(card, stateOf(choice.sce), choice.sce.verdict + cut);
      this.showVerdict(card, choice.sce, text);
    } else if (!isEnd(card.dataset.state)) this.showText(card, text);
  }

  // A card whose verdict will not come.
  leave(card, text, state) {
    setState(card, state);
    this.showUnchecked(card, text);
  }

  ended() {}
}

class Task extends Pane {
  constructor() {
    super("task");
    byId("add-test").addEventListener("click", () => this.addTest().querySelector(".input").focus());
    for (const choice of document.querySelectorAll("input[name=kind]")) {
      choice.addEventListener("change", () => {
        for (const kind of ["tests", "assertions"]) this.form.querySelector(`.of-${kind}`).hidden = kind !== this.kind;
      });
    }
    // Behind the handlers of the buttons, which are called first.
    for (const name of ["input", "click"]) this.form.addEventListener(name, () => this.ended());
    this.addTest("1 2 3\n", "6\n");
  }

  get kind() {
    return document.querySelector("input[name=kind]:checked").value;
  }

  addTest(input = "", output = "") {
    const row = fromTemplate("test");
    row.querySelector(".input").value = input;
    row.querySelector(".output").value = output;
    row.querySelector(".remove").addEventListener("click", () => { row.remove(); byId("add-test").focus(); });
    this.form.querySelector("ol").append(row);
    return row;
  }

  // What verdicts depend on.
  asked() {
    const body = { messages: [{ role: "user", content: this.prompt.value }], task: "program" };
    if (this.kind === "assertions") {
      body.assertions = byId("assertions").value.split("\n").filter((line) => line.trim());
      return body;
    }
    body.tests = [...this.form.querySelectorAll(".test")].map((row) =>
      ({ input: row.querySelector(".input").value, output: row.querySelector(".output").value }))
      .filter(({ input, output }) => input !== "" || output !== "");
    return body;
  }

  begin() {
    this.results.replaceChildren();
    const body = this.asked();
    this.verdictsOf = JSON.stringify(body);
    return { ...body, n: Number(byId("n").value) };
  }

  // After an answer or a change of the form: whether the verdicts shown are those of what stands there.
  ended() {
    if (this.running || !this.cards.size) return;
    const isChanged = JSON.stringify(this.asked()) !== this.verdictsOf;
    if (isChanged && this.root.dataset.state !== "changed") {
      this.before = [this.root.dataset.state, this.root.querySelector(".status").textContent];
      this.show("changed", "The task has changed: these verdicts are of the one before.");
    } else if (!isChanged && this.root.dataset.state === "changed") this.show(...this.before);
  }

  titleOf(number) {
    return `Program ${number}`;
  }

  showText(card, text) {
    showProgram(card, writtenProgram(text));
  }

  showVerdict(card, sce) {
    showProgram(card, sce.program, sce.findings, sce.tests);
    offerCopy(buttonOf(card), sce.program, "Copy");
  }

  showUnchecked(card, text) {
    offerCopy(buttonOf(card), writtenProgram(text), "Copy, not checked");
  }

  finish() {
    const states = [...this.cards.values()].map((card) => card.dataset.state);
    const count = (state) => states.filter((each) => each === state).length;
    const untested = count("untested") ? `${count("untested")} not tested, without findings; ` : "";
    return `${untested}${count("passed")} of ${states.length} passed`;
  }

  fail() {}
}

class Chat extends Pane {
  constructor() {
    super("chat");
    this.conversation = [];
    byId("new-chat").addEventListener("click", () => this.forget());
  }

  forget() {
    if (!this.running) {
      this.conversation = [];
      this.results.replaceChildren();
      this.show("idle", "");
    }
    this.prompt.focus();
  }

  begin() {
    this.message = element("p", "message", this.prompt.value);
    this.results.append(this.message);
    this.scroll();
    const messages = [...this.conversation, { role: "user", content: this.prompt.value }];
    this.prompt.value = "";
    return { messages };
  }

  titleOf() {
    return "Answer";
  }

  // Show the end of the conversation.
  scroll() {
    this.results.scrollTop = this.results.scrollHeight;
  }

  // Draw, and show the end if it was in view before.
  follow(draw) {
    const { scrollTop, scrollHeight, clientHeight } = this.results;
    draw();
    if (scrollHeight - clientHeight - scrollTop < 40) this.scroll();
  }

  showText(card, text) {
    this.follow(() => showParts(card, partsOf(text)));
  }

  // A model without a chat template gets each message as a task: the answer is one program.
  showVerdict(card, sce, text) {
    const program = [{ code: sce.program, check: { ...sce, language: "program" } }];
    this.follow(() => {
      showParts(card, sce.blocks ? checkedParts(text, sce.blocks) : program, true);
      offerCopy(buttonOf(card), text, "Copy the answer");
    });
  }

  showUnchecked(card, text) {
    this.follow(() => showParts(card, partsOf(text), true));
  }

  finish({ messages }) {
    this.conversation = [...messages, { role: "assistant", content: this.texts.get(1) }];
    const [state, verdict] = [".state", ".verdict"].map((each) => this.cards.get(1).querySelector(each).textContent);
    return verdict.startsWith(state) ? verdict : `${state}: ${verdict}`;
  }

  // What was written so far is part of the conversation; a message without an answer is not, and can be sent again.
  fail({ messages }) {
    const text = this.texts.get(1);
    if (text) {
      this.conversation = [...messages, { role: "assistant", content: text }];
      return;
    }
    this.message.remove();
    for (const card of this.cards.values()) card.remove();
    if (!this.prompt.value) this.prompt.value = this.message.textContent;
  }
}

async function showModel() {
  const response = await fetch("/v1/models", { headers: headers() });
  const record = await response.json();
  byId("model").textContent = response.ok ? record.data[0].id : "this server needs a key";
}

const panes = [new Task(), new Chat()];
const paneWithFocus = () => panes.find(({ root }) => root.contains(document.activeElement));

// Focus the next or the previous card of the pane with the focus, or of the first one that has any.
function move(step) {
  const pane = paneWithFocus() || panes.find(({ results }) => results.querySelector(".card"));
  const cards = pane ? [...pane.results.querySelectorAll(".card")] : [];
  const place = cards.indexOf(document.activeElement.closest(".card"));
  const next = cards[place < 0 ? 0 : Math.min(Math.max(place + step, 0), cards.length - 1)];
  if (next) next.focus();
}

byId("settings").addEventListener("submit", (event) => event.preventDefault());
byId("key").addEventListener("change", showModel);
document.addEventListener("keydown", (event) => {
  const pane = paneWithFocus();
  const running = pane && pane.running ? pane : panes.find((each) => each.running);
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) (pane || panes[0]).form.requestSubmit();
  else if (event.key === "Escape" && running) running.stop();
  else if (event.altKey && (event.key === "ArrowDown" || event.key === "ArrowUp")) move(event.key === "ArrowDown" ? 1 : -1);
  else return;
  event.preventDefault();
});
showModel();
