// Progressive enhancement only: times in the reader's zone, live pages. Every page works without it.
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
addEventListener("DOMContentLoaded", () => {
  showTimes(document);
  showZone();
  listen();
  document.addEventListener("htmx:after:swap", () => showTimes(document));
});
