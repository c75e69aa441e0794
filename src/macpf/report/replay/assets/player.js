"use strict";
(function () {
  const element = (id) => document.getElementById(id);
  const replay = JSON.parse(element("replay").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const FRAME_MS = 140, HOLD_MS = 1100, CHART_HEIGHT = 64, FONT = "system-ui, 'DejaVu Sans', sans-serif";
  const now = { episode: 0, frame: 0, playing: false, timer: 0 };

  const frames = () => replay.episodes[now.episode].frames;
  const theme = () => replay.themes[dark.matches ? "dark" : "light"];
  const told = (x) => (x === null ? "–" : x.toFixed(2));
  const clamp = (x, most) => Math.max(0, Math.min(most, x));
  const agentColour = (i) => {
    const colours = Object.keys(theme()).filter((name) => name.startsWith("agent_"));
    return theme()[colours[i % colours.length]];
  };

  // The canvas in device pixels, its context in CSS pixels.
  function sized(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 600;
    const high = height || (width * replay.view.height) / replay.view.width;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(high * ratio);
    canvas.style.height = high + "px";
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, high);
    return { pen, width, high };
  }

  const painters = {
    circle(pen, s, at, scale) {
      pen.beginPath();
      pen.arc(...at(s.x, s.y), s.r * scale, 0, 2 * Math.PI);
      finish(pen, s, scale);
    },
    rect(pen, s, at, scale) {
      pen.beginPath();
      pen.rect(...at(s.x, s.y + s.h), s.w * scale, s.h * scale);
      finish(pen, s, scale);
    },
    line(pen, s, at, scale) {
      pen.beginPath();
      s.points.forEach(([x, y], k) => (k ? pen.lineTo(...at(x, y)) : pen.moveTo(...at(x, y))));
      pen.setLineDash(s.dash ? [s.dash * scale, s.dash * scale] : []);
      finish(pen, s, scale);
      pen.setLineDash([]);
    },
    text(pen, s, at, scale) {
      pen.font = `${s.bold ? "bold " : ""}${s.size * scale}px ${FONT}`;
      pen.textAlign = { start: "left", middle: "center", end: "right" }[s.align || "middle"];
      pen.textBaseline = "middle";
      pen.fillStyle = theme()[s.fill || "ink"];
      pen.fillText(s.text, ...at(s.x, s.y));
    },
  };

  function finish(pen, s, scale) {
    if (s.fill) {
      pen.fillStyle = theme()[s.fill];
      pen.fill();
    }
    if (s.stroke) {
      pen.strokeStyle = theme()[s.stroke];
      pen.lineWidth = Math.max(s.width * scale, 0.75);
      pen.lineCap = pen.lineJoin = "round";
      pen.stroke();
    }
  }

  function drawPicture() {
    const { pen, width, high } = sized(element("picture"));
    const view = replay.view, scale = width / view.width;
    const at = (x, y) => [(x - view.left) * scale, high - (y - view.bottom) * scale];
    for (const shape of replay.backdrop.concat(frames()[now.frame].shapes)) {
      pen.globalAlpha = shape.alpha === undefined ? 1 : shape.alpha;
      painters[shape.kind](pen, shape, at, scale);
    }
    pen.globalAlpha = 1;
  }

  // The return so far over the steps, with a mark at the present one.
  function drawChart() {
    const { pen, width, high } = sized(element("chart"), CHART_HEIGHT);
    const totals = frames().map((frame) => frame.total || 0), last = Math.max(totals.length - 1, 1);
    const low = Math.min(0, ...totals), span = Math.max(0, ...totals) - low || 1;
    const at = (k) => [6 + (k / last) * (width - 12), high - 6 - ((totals[k] - low) / span) * (high - 12)];
    const line = (upTo, colour, thick) => {
      pen.beginPath();
      for (let k = 0; k <= upTo; k++) k ? pen.lineTo(...at(k)) : pen.moveTo(...at(k));
      pen.strokeStyle = colour;
      pen.lineWidth = thick;
      pen.stroke();
    };
    line(totals.length - 1, theme().grid, 2);
    line(now.frame, theme().agent_1, 2);
    pen.beginPath();
    pen.arc(...at(now.frame), 4, 0, 2 * Math.PI);
    pen.fillStyle = theme().agent_1;
    pen.fill();
  }

  function listActions(names) {
    const list = element("actions");
    list.replaceChildren();
    const agents = names.length || frames()[frames().length - 1].actions.length;
    for (let i = 0; i < agents; i++) {
      const item = document.createElement("li"), dot = document.createElement("i");
      const who = document.createElement("span"), what = document.createElement("b");
      dot.style.background = agentColour(i);
      who.textContent = `agent ${i + 1}`;
      what.textContent = names[i] || "–";
      item.append(dot, who, what);
      list.append(item);
    }
  }

  function show() {
    const frame = frames()[now.frame], last = frames().length - 1;
    element("scrubber").max = String(last);
    element("scrubber").value = String(now.frame);
    element("episode").value = String(now.episode);
    const won = now.frame === last && replay.episodes[now.episode].won ? " · won" : "";
    element("step").textContent = `${now.frame} of ${last}${won}`;
    element("reward").textContent = now.frame ? told(frame.reward) : "–";
    element("total").textContent = told(frame.total);
    listActions(frame.actions);
    drawPicture();
    drawChart();
  }

  function go(episode, frame) {
    now.episode = (episode + replay.episodes.length) % replay.episodes.length;
    now.frame = clamp(frame, frames().length - 1);
    show();
  }

  // One step on; behind the last of an episode comes the next one, and behind that the first.
  function advance() {
    const atEnd = now.frame >= frames().length - 1;
    if (atEnd) go(now.episode + 1, 0);
    else go(now.episode, now.frame + 1);
    schedule();
  }

  function schedule() {
    window.clearTimeout(now.timer);
    if (!now.playing) return;
    const last = frames().length - 1, pace = last > 1 ? FRAME_MS : HOLD_MS / 3;
    const wait = now.frame >= last ? HOLD_MS : pace;
    now.timer = window.setTimeout(advance, wait / Number(element("speed").value));
  }

  function play(playing) {
    now.playing = playing;
    element("play").textContent = playing ? "❚❚" : "▶";
    element("play").setAttribute("aria-label", playing ? "Pause" : "Play");
    schedule();
  }

  function jump(episode, frame) {
    play(false);
    go(episode, frame);
  }

  const keys = {
    " ": () => play(!now.playing),
    ArrowLeft: () => jump(now.episode, now.frame - 1),
    ArrowRight: () => jump(now.episode, now.frame + 1),
    ArrowUp: () => jump(now.episode - 1, 0),
    ArrowDown: () => jump(now.episode + 1, 0),
    Home: () => jump(now.episode, 0),
    End: () => jump(now.episode, frames().length - 1),
  };

  function listen() {
    element("play").addEventListener("click", () => play(!now.playing));
    element("back").addEventListener("click", keys.ArrowLeft);
    element("forward").addEventListener("click", keys.ArrowRight);
    element("scrubber").addEventListener("input", (e) => jump(now.episode, Number(e.target.value)));
    element("episode").addEventListener("change", (e) => go(Number(e.target.value), 0));
    element("speed").addEventListener("change", schedule);
    element("chart").addEventListener("click", (e) => {
      const last = frames().length - 1, share = (e.offsetX - 6) / (element("chart").clientWidth - 12);
      jump(now.episode, Math.round(share * last));
    });
    document.addEventListener("keydown", (e) => {
      const tag = e.target && e.target.tagName;
      const own = tag === "SELECT" || (tag === "BUTTON" && e.key === " "); // what has the focus takes it itself
      if (!keys[e.key] || own || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      keys[e.key]();
    });
    window.addEventListener("resize", show);
    dark.addEventListener("change", show);
  }

  element("title").textContent = replay.title;
  element("policy").textContent = replay.policy;
  replay.episodes.forEach((episode, k) => {
    const option = document.createElement("option");
    option.value = String(k);
    const total = episode.frames[episode.frames.length - 1].total;
    option.textContent = `${k + 1} (return ${told(total)}${episode.won ? ", won" : ""})`;
    element("episode").append(option);
  });
  listen();
  show();
  play(true);
})();
