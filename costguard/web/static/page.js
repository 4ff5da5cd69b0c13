// Progressive enhancement only: times in the reader's zone, live pages, charts. Every page works without it.
"use strict";
function showTimes(root) {
  for (const one of root.querySelectorAll("time[data-local]")) {
    const at = new Date(one.dateTime);
    if (isNaN(at)) continue;
    one.textContent = at.toLocaleString([], {year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit"});
    one.title = one.dateTime;
    one.removeAttribute("data-local");
  }
}
function showZone() {
  const zone = document.querySelector("[data-zone]");
  if (zone) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "your zone";
}
async function refresh() {
  const held = document.activeElement;
  if (document.hidden || (held && held.matches("input, select, textarea, button"))) return;
  const answer = await fetch(location.href, {credentials: "same-origin"});
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("[data-live]"), old = document.querySelector("[data-live]");
  if (!fresh || !old) return;
  old.replaceWith(fresh);
  window.htmx && htmx.process(fresh);
  showTimes(fresh);
}
function listen() {
  if (!document.querySelector("[data-live]") || !window.EventSource) return;
  const stream = new EventSource("/live");
  stream.addEventListener("run", refresh);
  addEventListener("pagehide", () => stream.close());
}
async function drawSamples() {
  const place = document.querySelector("[data-samples]");
  if (!place || !window.uPlot) return;
  const answer = await fetch(place.dataset.samples, {credentials: "same-origin"});
  if (!answer.ok) return;
  const {signals} = await answer.json(), style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--soft"), line = style.getPropertyValue("--rule"), mark = style.getPropertyValue("--mark");
  const drawn = Object.entries(signals).filter(([, one]) => one.at.length > 1).map(([name, {at, value}]) => {
    const box = document.createElement("figure"), title = document.createElement("figcaption");
    title.textContent = name;
    box.append(title);
    place.append(box);
    return [name, at, value, box];
  });
  for (const [name, at, value, box] of drawn) {
    const steps = at.slice(1).map((one, n) => one - at[n]).sort((a, b) => a - b), usual = steps[steps.length >> 1];
    const xs = [], ys = [];
    at.forEach((one, n) => {
      if (n && one - at[n - 1] > 3 * usual) { xs.push(at[n - 1] + usual); ys.push(null); }
      xs.push(one); ys.push(value[n]);
    });
    const axis = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}};
    new uPlot({width: box.clientWidth - 20, height: 150, legend: {show: false}, axes: [axis, {...axis, size: 60}],
      series: [{}, {label: name, stroke: mark, width: 1.5, spanGaps: false}]}, [xs, ys], box);
  }
}
addEventListener("DOMContentLoaded", () => {
  showTimes(document);
  showZone();
  listen();
  drawSamples();
  document.addEventListener("htmx:after:swap", () => showTimes(document));
});
