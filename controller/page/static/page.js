// Follows changes by server-sent events, draws charts, and marks what has changed. Everything else is HTML.
"use strict";

// -- Changes: the server says that something has changed, and each region with `hx-get` asks for itself again.

const connection = document.getElementById("connection");
let version = document.body.dataset.version;
let stream = null;
const RETRY_MILLISECONDS = 3000;

function say(text, live) {
  if (connection.textContent !== text) connection.textContent = text;
  connection.classList.toggle("live", live);
}

function follow() {
  if (stream !== null || document.visibilityState === "hidden") return;
  stream = new EventSource(`/ui/changes?seen=${encodeURIComponent(version)}`);
  stream.addEventListener("open", () => say("Live", true));
  const opened = stream;
  opened.addEventListener("error", () => {
    say("Reconnecting", false);
    // Refused: a view that is asked for anew says why, or makes the server know its reader again.
    if (opened.readyState === EventSource.CLOSED && stream === opened) {
      stream = null;
      setTimeout(() => {
        refresh();
        follow();
      }, RETRY_MILLISECONDS);
    }
  });
  stream.addEventListener("change", (event) => {
    version = event.lastEventId;
    refresh();
  });
}

// A region is replaced by what it asked for: a change that comes meanwhile must wait for the new region.
let asking = 0;
let again = false;

function refresh() {
  again = asking > 0;
  if (!again) document.body.dispatchEvent(new Event("flags-changed"));
}

const isRefresh = (event) => event.detail.requestConfig?.triggeringEvent?.type === "flags-changed";

document.body.addEventListener("htmx:beforeSend", (event) => {
  if (isRefresh(event)) asking += 1;
});
document.body.addEventListener("htmx:afterRequest", (event) => {
  if (!isRefresh(event)) return;
  asking -= 1;
  if (again) setTimeout(refresh, 50);
});

// After a logout, a reload shows the reason, or the login of the proxy in front.
document.body.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) location.reload();
});

// A browser has few connections to one server: pages that nobody sees hold none.
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden" && stream !== null) {
    stream.close();
    stream = null;
  } else {
    follow();
  }
});
window.addEventListener("pagehide", () => stream?.close());
follow();

// -- What has changed is marked for a moment.

const FRESH_MILLISECONDS = 4000;
const marks = new Map();
const freshUntil = new Map();

document.body.addEventListener("htmx:beforeSwap", () => {
  marks.clear();
  for (const row of document.querySelectorAll("[data-row]")) marks.set(row.dataset.row, row.dataset.mark);
});
document.body.addEventListener("htmx:afterSwap", (event) => {
  if (!isRefresh(event)) return;
  const now = Date.now();
  for (const row of document.querySelectorAll("[data-row]")) {
    const key = row.dataset.row;
    if (marks.has(key) && marks.get(key) !== row.dataset.mark) freshUntil.set(key, now + FRESH_MILLISECONDS);
    row.classList.toggle("fresh", (freshUntil.get(key) ?? 0) > now);
  }
});

// -- Charts.

const style = getComputedStyle(document.documentElement);
const colour = (name) => style.getPropertyValue(name).trim();

function draw(figure) {
  const { times, series } = JSON.parse(figure.dataset.chart);
  const small = figure.classList.contains("small");
  const clock = (_, splits) => splits.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB"));
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = {
    width: figure.clientWidth || 120,
    height: small ? 26 : 160,
    cursor: { show: !small, drag: { x: false, y: false } },
    legend: { show: !small, live: false },
    axes: small ? [{ show: false }, { show: false }] : [{ ...axis, values: clock, space: 90 }, { ...axis, size: 46 }],
    scales: { y: { range: (_, __, most) => [0, Math.max(1, most)] } },
    padding: small ? [2, 0, 2, 0] : undefined,
    series: [
      {},
      ...series.map(([label, place]) => ({
        label,
        stroke: colour(`--series-${place % 6}`),
        width: small ? 1.5 : 2,
        points: { show: false },
      })),
    ],
  };
  figure.replaceChildren();
  new uPlot(options, [times, ...series.map(([, , rates]) => rates)], figure);
}

function drawAll(root) {
  for (const figure of root.querySelectorAll("[data-chart]")) draw(figure);
}

htmx.onLoad(drawAll);
let resized = 0;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => drawAll(document), 100);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document));

// -- Keys: `/` leads to the search; a flag set is shown as soon as it is chosen.

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("q");
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && search !== null && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.select();
  }
});
document.getElementById("set")?.addEventListener("change", (event) => event.target.form.submit());
