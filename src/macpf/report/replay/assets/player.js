"use strict";
(function () {
  const element = (id) => document.getElementById(id);
  const replay = JSON.parse(element("replay").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const HOLD_MS = 1100, LONGEST_MS = 40, FADE = 0.6, CHART_HEIGHT = 64, TALLEST = 62;
  const FONT = "system-ui, 'DejaVu Sans', sans-serif";
  // `share`: how much of the step to the frame has passed; 1 is at rest, which all is that does not move.
  const now = { episode: 0, frame: 0, share: 1, playing: false, timer: 0, glide: 0, time: 0 };
  const moving = replay.figures.length > 0;

  const frames = () => replay.episodes[now.episode].frames;
  const theme = () => replay.themes[dark.matches ? "dark" : "light"];
  const told = (x) => (x === null ? "–" : x.toFixed(2));
  const clamp = (x, most) => Math.max(0, Math.min(most, x));

  // A sprite comes as whole numbers: its figure, when it is gone, its first moment, how the others differ.
  function unpacked([number, until, ...numbers]) {
    const figure = replay.figures[number], { left, bottom } = replay.view;
    const wide = 2 + figure.filter((part) => part.kind === "bar").length, moments = [];
    const sums = numbers.slice(0, wide).map(() => 0);
    for (let k = 0; k < numbers.length; k += wide) {
      sums.forEach((_, c) => (sums[c] += numbers[k + c]));
      const [x, y, ...levels] = sums;
      const full = levels.map((level) => level / replay.full);
      moments.push([left + x * replay.grain, bottom + y * replay.grain, ...full]);
    }
    return { kind: "sprite", figure, until, moments };
  }

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

  // Where a sprite is by now, and how full its bars are.
  function moment({ moments }) {
    const last = moments.length - 1, k = clamp(Math.floor(now.share * last), Math.max(last - 1, 0));
    const after = moments[Math.min(k + 1, last)], part = now.share * last - k;
    return moments[k].map((value, c) => value + part * (after[c] - value));
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
    polygon(pen, s, at, scale) {
      trace(pen, s, at);
      pen.closePath();
      finish(pen, s, scale);
    },
    line(pen, s, at, scale) {
      trace(pen, s, at);
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
    sprite(pen, s, at, scale) {
      if (s.until !== null && now.share >= s.until) return;
      const [left, bottom, ...levels] = moment(s);
      for (const part of s.figure) {
        const shape = part.kind === "bar" ? { ...part, kind: "rect", w: part.w * levels.shift() } : part;
        paint(pen, shape, (x, y) => at(left + x, bottom + y), scale, 1);
      }
    },
  };

  function paint(pen, shape, at, scale, strength) {
    if (strength <= 0) return;
    pen.globalAlpha = strength * (shape.alpha === undefined ? 1 : shape.alpha);
    painters[shape.kind](pen, shape, at, scale);
  }

  // How bright a shape is at an age, in steps: a flash fades, but at rest all that flashed can be seen.
  function strength(shape, age) {
    if (shape.since === undefined || now.share === 1) return 1;
    return age < 0 ? 0 : 1 - age / FADE;
  }

  function trace(pen, s, at) {
    pen.beginPath();
    s.points.forEach(([x, y], k) => (k ? pen.lineTo(...at(x, y)) : pen.moveTo(...at(x, y))));
  }

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
    for (const shape of replay.backdrop.concat(frames()[now.frame].shapes))
      paint(pen, shape, at, scale, strength(shape, now.share - shape.since));
    const before = now.share < 1 ? frames()[now.frame - 1].shapes : [];
    for (const shape of before.filter((s) => s.since !== undefined))
      paint(pen, shape, at, scale, strength(shape, 1 + now.share - shape.since));
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
    replay.agents.forEach(({ name, colour }, i) => {
      const item = document.createElement("li"), dot = document.createElement("i");
      const who = document.createElement("span"), what = document.createElement("b");
      dot.style.background = theme()[colour];
      who.textContent = name;
      what.textContent = names[i] || "–";
      item.append(dot, who, what);
      list.append(item);
    });
  }

  function show() {
    const frame = frames()[now.frame], last = frames().length - 1;
    element("scrubber").max = String(last);
    element("scrubber").value = String(now.frame);
    element("episode").value = String(now.episode);
    const { outcome } = replay.episodes[now.episode];
    element("step").textContent = `${now.frame} of ${last}${now.frame === last && outcome ? ` · ${outcome}` : ""}`;
    element("reward").textContent = now.frame ? told(frame.reward) : "–";
    element("total").textContent = told(frame.total);
    listActions(frame.actions);
    drawPicture();
    drawChart();
  }

  function go(episode, frame, share = 1) {
    now.episode = (episode + replay.episodes.length) % replay.episodes.length;
    now.frame = clamp(frame, frames().length - 1);
    now.share = share;
    show();
  }

  // One step on; behind the last of an episode comes the next one, and behind that the first.
  function advance() {
    const atEnd = now.frame >= frames().length - 1;
    if (atEnd) go(now.episode + 1, 0);
    else go(now.episode, now.frame + 1, moving ? 0 : 1);
    schedule();
  }

  const speed = () => Number(element("speed").value);

  // A little further on the way to a frame, and from there towards the next.
  function glide(time) {
    const share = now.share + (Math.min(time - now.time, LONGEST_MS) * speed()) / replay.step_ms;
    now.time = time;
    if (share < 1) {
      now.share = share;
      drawPicture();
    } else if (now.frame < frames().length - 1) go(now.episode, now.frame + 1, share - 1);
    else go(now.episode, now.frame);
    schedule();
  }

  function schedule() {
    window.clearTimeout(now.timer);
    window.cancelAnimationFrame(now.glide);
    if (!now.playing) return;
    const last = frames().length - 1, pace = last > 1 ? replay.step_ms : HOLD_MS / 3;
    const wait = now.frame >= last ? HOLD_MS : pace;
    if (now.share < 1) now.glide = window.requestAnimationFrame(glide);
    else now.timer = window.setTimeout(advance, wait / speed());
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

  for (const frame of replay.episodes.flatMap((episode) => episode.frames))
    frame.shapes = frame.shapes.map((shape) => (Array.isArray(shape) ? unpacked(shape) : shape));
  element("picture").style.width = `min(100%, ${(TALLEST * replay.view.width) / replay.view.height}vh)`;
  element("title").textContent = replay.title;
  element("policy").textContent = replay.policy;
  replay.episodes.forEach((episode, k) => {
    const option = document.createElement("option");
    option.value = String(k);
    const total = episode.frames[episode.frames.length - 1].total;
    option.textContent = `${k + 1} (return ${told(total)}${episode.outcome && `, ${episode.outcome}`})`;
    element("episode").append(option);
  });
  listen();
  show();
  play(true);
})();
