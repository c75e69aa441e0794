// Drives the page of a replay in a browser, in real time, and leaves what was seen in the element #report.
// Stands at the head of the page, so that no error escapes it.
"use strict";
(function () {
  const STILL_MS = 400, LIMIT_MS = 8000, STRETCH = 3;
  const report = { errors: [], loaded: [] };
  const element = (id) => document.getElementById(id);
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  const frame = () => Number.parseInt(element("step").textContent);

  const fault = (e) => e.message || `no ${e.target.outerHTML.slice(0, 99)}`;
  window.addEventListener("error", (e) => report.errors.push(fault(e)), true);
  window.addEventListener("unhandledrejection", (e) => report.errors.push(String(e.reason)));
  for (const kind of ["error", "warn"]) console[kind] = (...words) => report.errors.push(words.join(" "));

  const visible = (node) => node.checkVisibility();
  const shown = () => ({
    step: element("step").innerText,
    play: element("play").innerText,
    scrubber: element("scrubber").value,
    actions: [...element("actions").children].filter(visible).map((item) => item.innerText.split(/\s*\n\s*/)),
    picture: element("picture").toDataURL(),
  });

  function put(id, value, event) {
    element(id).value = String(value);
    element(id).dispatchEvent(new Event(event, { bubbles: true }));
  }

  function scrub(t) {
    put("scrubber", t, "input");
    return shown();
  }

  // The milliseconds until the page shows a frame, or none where it does not come to it.
  async function reached(t) {
    const begun = performance.now();
    while (frame() < t && performance.now() - begun < LIMIT_MS) await sleep(5);
    return frame() < t ? null : performance.now() - begun;
  }

  // What is shown as soon as the picture is another one.
  async function moved({ picture }) {
    const begun = performance.now();
    while (shown().picture === picture && performance.now() - begun < LIMIT_MS) await sleep(5);
    return shown();
  }

  // From the start of the episode over some steps.
  async function timed(speed) {
    scrub(0);
    put("speed", speed, "change");
    element("play").click();
    const ms = await reached(STRETCH);
    element("play").click();
    return ms;
  }

  async function drive() {
    report.loading = shown();
    await reached(1);
    report.started = shown();
    report.gliding = await moved(report.started);
    element("play").click();
    report.paused = shown();
    await sleep(STILL_MS);
    report.later = shown();
    element("play").click();
    await reached(frame() + 1);
    report.resumed = shown();
    const last = Number(element("scrubber").max), moments = Array.from({ length: last + 1 }, (_, t) => t);
    report.scrubbed = moments.map(scrub);
    await sleep(STILL_MS);
    report.rested = shown();
    report.again = moments.reverse().map(scrub).reverse();
    report.usual = await timed(1);
    report.quick = await timed(4);
  }

  // The browser writes the page out once it has loaded: a frame that is still open holds that back.
  document.addEventListener("DOMContentLoaded", async () => {
    const hold = document.createElement("iframe"), told = document.createElement("script");
    hold.hidden = true;
    document.body.append(hold);
    hold.contentDocument.open();
    await drive().catch((e) => report.errors.push(String(e)));
    report.loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
    Object.assign(told, { id: "report", type: "application/json" });
    told.textContent = JSON.stringify(report).replaceAll("<", "\\u003c");
    document.body.append(told);
    hold.contentDocument.close();
    hold.remove();
  });
})();
