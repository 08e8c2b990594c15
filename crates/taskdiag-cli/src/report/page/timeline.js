
// SPDX-License-Identifier: MIT OR Apache-2.0
// The timeline of a recording.

const SIZE = { w: 400, h: 110 };

function svg(tag, set) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(set)) e.setAttribute(name, value);
  return e;
}

function measured(unit, v) {
  if (v === null || v === undefined) return "?";
  return unit === "bytes" ? bytes(v) : unit === "percent" ? v.toFixed(1) + " %" : count(v);
}

// The path of a line, which is broken where a value is not known and where nothing was recorded.
function course(values, times, breaks, most) {
  const [first, last] = [times[0], times[times.length - 1]];
  let d = "", down = false;
  values.forEach((v, n) => {
    if (v === null || breaks.includes(n)) down = false;
    if (v === null) return;
    const x = last > first ? (times[n] - first) / (last - first) * SIZE.w : SIZE.w / 2;
    const y = SIZE.h - v / (most || 1) * (SIZE.h - 4) - 2;
    d += `${down ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    // A moment alone is a dot.
    if (!down) d += "h0.01";
    down = true;
  });
  return d;
}

function chart(c, t) {
  const most = Math.max(0, ...c.lines.flatMap((l) => l.values.filter((v) => v !== null)));
  const picture = svg("svg", { viewBox: `0 0 ${SIZE.w} ${SIZE.h}`, preserveAspectRatio: "none", role: "img", "aria-label": c.title });
  const mark = svg("line", { y1: 0, y2: SIZE.h, x1: -1, x2: -1, class: "mark" });
  picture.append(...c.lines.map((l, n) => svg("path", { d: course(l.values, t.times, t.breaks, most), class: `l${n % 8}` })), mark);
  const cells = c.lines.map(() => el("td", { className: "num" }));
  const rows = c.lines.map((l, n) => el("tr", {}, el("td", {}, el("i", { className: `k${n % 8}` }), " " + l.name), cells[n]));
  const said = el("p", { className: "note" });
  const at = (n) => {
    c.lines.forEach((l, k) => { cells[k].textContent = measured(c.unit, l.values[n]); });
    said.textContent = date(t.times[n]);
    const part = t.times.length > 1 ? (t.times[n] - t.times[0]) / (t.times[t.times.length - 1] - t.times[0]) : 0.5;
    ["x1", "x2"].forEach((x) => mark.setAttribute(x, part * SIZE.w));
  };
  const slider = el("input", { type: "range", min: 0, max: t.times.length - 1, value: t.times.length - 1, "aria-label": "Moment of " + c.title });
  slider.addEventListener("input", () => at(Number(slider.value)));
  at(t.times.length - 1);
  return el("div", { className: "card chart" }, el("h3", { textContent: c.title }),
    el("p", { className: "axis", textContent: measured(c.unit, most) }), picture,
    el("p", { className: "axis" }, el("span", { textContent: date(t.times[0]) }), el("span", { textContent: date(t.times[t.times.length - 1]) })),
    slider, said, el("table", {}, el("tbody", {}, ...rows)));
}

function timeline(t) {
  if (!t || !t.times.length) return;
  byId("time").hidden = false;
  const [first, last] = [t.times[0], t.times[t.times.length - 1]].map(date);
  const parts = [`${first} to ${last} UTC, ${plural(t.times.length, "moment")} of ${plural(t.answers, "answer")}.`];
  if (t.breaks.length) parts.push(`Lines are broken in ${plural(t.breaks.length, "place")} where nothing was recorded.`);
  byId("charts").before(el("p", { className: "note", textContent: parts.join(" ") }));
  byId("charts").append(...t.charts.filter((c) => c.lines.length).map((c) => chart(c, t)));
}
