// A small stand-in for a browser: enough of the DOM for the player, and a canvas that writes down what is drawn.
// Reads {scripts, steps} as JSON from stdin, runs the player, then each step, and prints what each left behind.
"use strict";
const vm = require("vm");
const input = JSON.parse(require("fs").readFileSync(0, "utf8"));

class Pen {
  constructor() { this.drawn = []; this.path = []; }
  clearRect() { this.drawn = []; }
  setTransform() {}
  setLineDash(dash) { this.dash = dash; }
  beginPath() { this.path = []; }
  arc(x, y, r) { this.path.push(["arc", x, y, r]); }
  rect(x, y, w, h) { this.path.push(["rect", x, y, w, h]); }
  moveTo(x, y) { this.path.push(["to", x, y]); }
  lineTo(x, y) { this.path.push(["to", x, y]); }
  closePath() { this.path.push(["close"]); }
  fill() { this.drawn.push({ fill: this.fillStyle, alpha: this.globalAlpha, path: this.path }); }
  stroke() { this.drawn.push({ stroke: this.strokeStyle, width: this.lineWidth, alpha: this.globalAlpha, path: this.path }); }
  fillText(text, x, y) { this.drawn.push({ text, x, y, fill: this.fillStyle }); }
}

class Element {
  constructor(tag) {
    Object.assign(this, { tagName: tag.toUpperCase(), style: {}, children: [], listeners: {}, text: "", value: "" });
    this.clientWidth = 600;
    this.pen = new Pen();
  }
  get textContent() { return this.text + this.children.map((c) => c.textContent).join(" "); }
  set textContent(text) { this.text = text; this.children = []; }
  append(...children) { this.children.push(...children); }
  replaceChildren() { this.children = []; }
  setAttribute() {}
  getContext() { return this.pen; }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  send(name, event) { this.listeners[name]({ target: this, preventDefault() {}, ...event }); }
}

const PAINT_MS = 30; // between two paintings of the page
let clock = 0;
const elements = {}, timers = [], page = new Element("document");
const ids = ["title", "policy", "picture", "chart", "scrubber", "back", "play", "forward", "episode", "speed"];
for (const id of [...ids, "step", "reward", "total", "actions", "replay"]) elements[id] = new Element("div");
elements.replay.textContent = input.scripts.replay;
elements.speed.value = "1";
const theme = new Element("media");
theme.matches = false;
const window = Object.assign(new Element("window"), {
  devicePixelRatio: 2,
  matchMedia: () => theme,
  setTimeout: (run, ms) => timers.push({ run, ms }),
  clearTimeout: (id) => { if (id) timers[id - 1] = null; },
  requestAnimationFrame: (run) => timers.push({ run: () => run((clock += PAINT_MS)), ms: PAINT_MS }),
  cancelAnimationFrame: (id) => window.clearTimeout(id),
});
const document = Object.assign(page, {
  getElementById: (id) => { if (!elements[id]) throw new Error("no element " + id); return elements[id]; },
  createElement: (tag) => new Element(tag),
});

function tick() {
  const due = timers.findIndex((timer) => timer);
  if (due < 0) return "no timer";
  const { run, ms } = timers[due];
  timers[due] = null;
  run();
  return ms;
}

function left(result) {
  const text = (id) => elements[id].textContent;
  return {
    result, step: text("step"), reward: text("reward"), total: text("total"), play: text("play"),
    actions: elements.actions.children.map((item) => item.textContent.trim()),
    episode: elements.episode.value, scrubber: [elements.scrubber.value, elements.scrubber.max],
    size: [elements.picture.width, elements.picture.height], drawn: elements.picture.pen.drawn,
    waiting: timers.filter((timer) => timer).length,
  };
}

const world = vm.createContext({ window, document, console });
vm.runInContext(input.scripts.player, world);
const seen = [{ ...left(null), title: elements.title.textContent, options: elements.episode.children.map((o) => o.textContent) }];
for (const [what, ...rest] of input.steps) {
  let result = null;
  if (what === "tick") result = tick();
  else if (what === "key") document.send("keydown", { key: rest[0], target: { tagName: rest[1] || "BODY" } });
  else if (what === "dark") { theme.matches = true; theme.send("change"); }
  else if (what === "set") { elements[rest[0]].value = rest[1]; elements[rest[0]].send(rest[2]); }
  else elements[rest[0]].send(what, rest[1] || {});
  seen.push(left(result));
}
console.log(JSON.stringify(seen));
