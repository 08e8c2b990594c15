
// SPDX-License-Identifier: MIT OR Apache-2.0
// The largest users, sums, facts about the page; and all of it put into the page.

// --- the largest ---

function card(label, value, name, table) {
  const top = T.rows.map((row) => [value(row), row]).filter(([v]) => v > 0).sort((a, b) => b[0] - a[0]).slice(0, 8);
  const unit = T.columns[at[name]].unit;
  const lines = top.map(([v, row]) => {
    const bar = el("i");
    bar.style.width = (v / top[0][0] * 100).toFixed(1) + "%";
    const who = el("span", { textContent: `${text(row, "comm")} ${text(row, "pid")}`, title: text(row, "args") || text(row, "comm") });
    return el("li", {}, bar, who, el("span", { textContent: amount(unit, v) }));
  });
  const all = el("button", { type: "button", className: "link", textContent: "all", "aria-label": "All processes by " + label });
  all.addEventListener("click", () => {
    table.order(at[name], -1);
    byId("tasks").scrollIntoView();
  });
  const missing = T.rows.filter((row) => cell(row, name) < -1).length;
  const note = missing ? [el("p", { className: "note", textContent: `not known of ${plural(missing, "process")}` })] : [];
  return el("div", { className: "card" }, el("div", { className: "bar" }, el("h3", { textContent: label }), all), el("ol", {}, ...lines), ...note);
}

// --- sums, facts ---

function sum(name) {
  const [v, lacking] = D.totals[name];
  if (lacking && lacking === D.totals.processes) return "?";
  return (lacking ? "\u2265 " : "") + (name === "time" ? clock(v) : /bytes|ss$|swap/.test(name) ? bytes(v) : count(v));
}

function tile(value, label, title) {
  return el("div", { className: "tile", title: title || "" }, el("b", { textContent: value, className: value.length > 9 ? "long" : "" }), el("span", { textContent: label }));
}

function tiles() {
  const t = D.totals;
  const of = D.mem_total ? ` of ${bytes(D.mem_total)}` : "";
  byId("tiles").append(
    tile(count(t.processes), `processes, ${count(t.kernel)} of the kernel`),
    tile(sum("nlwp"), "threads"),
    ...(D.memory === "pss" ? [tile(sum("pss"), "PSS" + of)] : []),
    tile(sum("rss"), `RSS${D.memory === "pss" ? "" : of}, shared pages counted again`),
    tile(sum("swap"), "swapped out"),
    tile(sum("time"), "CPU time"),
    tile(sum("fds"), "open descriptors"),
  );
}

function states() {
  const parts = D.states.map(([s, n]) => `${count(n)} ${s} (${STATES[s] || "not known"})`);
  byId("states").textContent = "States: " + parts.join(", ");
}

function facts() {
  const says = (v, f) => v === null ? (D.saved ? "? (a saved answer does not have it)" : "?") : f ? f(v) : v;
  const ms = (v) => v.toFixed(1) + " ms";
  const lines = [
    ["Host", says(D.host)], ["Kernel", says(D.kernel)], ["Time of the answer", date(D.time) + " UTC"], ["Time since boot", clock(D.up_s)],
    ["CPUs", says(D.cpus, count)], ["Memory", says(D.mem_total, bytes)],
    ["Cost of the answers", says(D.answer_ms, ms) + `; the first has ${bytes(D.answer_bytes)}`],
    ["Processes that ended meanwhile", count(D.vanished)], ["Made by", D.program], ...D.notes.map((n) => ["Note", n]),
  ];
  byId("facts").append(...lines.flatMap(([k, v]) => [el("dt", { textContent: k }), el("dd", { textContent: v })]));
  byId("served").append(...D.served.map((s) => el("p", {
    className: "note",
    textContent: `${s.what}: engine ${s.engine} gave ${s.groups}` + ("ms" in s ? ` in ${ms(s.ms)} with ${plural(s.syscalls, "system call")}` : "") + ` (${s.why})`,
  })));
}

function list(id, data, sort) {
  if (!data) return;
  const home = byId(id);
  const kinds = data.kinds.map(([kind, n]) => `${kind} ${count(n)}`).join(", ");
  const cut = data.rows.length < data.count ? `; the page has the first ${count(data.rows.length)}` : "";
  home.append(el("p", { className: "note", textContent: `${count(data.count)} in all${cut}${kinds ? ": " + kinds : ""}` }));
  new Table(home, data, sort);
}

// --- all of it ---

document.title = D.title;
byId("title").textContent = D.title;
byId("when").textContent = [D.host, D.kernel && "Linux " + D.kernel, date(D.time) + " UTC"].filter(Boolean).join(", ");
if (D.gaps.length) {
  byId("gaps").hidden = false;
  byId("gaps").querySelector("ul").append(...D.gaps.map((g) => el("li", { textContent: g })));
}
tiles();
states();
const table = new Table(byId("tasks"), T, [at[D.memory], -1]);
if (D.others.length) {
  const n = D.others.reduce((n, o) => n + o[3], 0);
  byId("tasks").append(el("p", { className: "note", textContent: `${plural(n, "smaller process")} have no row; they are in the sums and in the map.` }));
}
byId("cards").append(
  card("CPU time", (r) => known(r, "time"), "time", table),
  card(D.memory.toUpperCase(), (r) => known(r, D.memory), D.memory, table),
  card("Threads", (r) => known(r, "nlwp"), "nlwp", table),
  card("Descriptors", (r) => known(r, "fds"), "fds", table),
  card("Storage I/O", io, "read_bytes", table),
);
list("sockets", D.sockets, [3, 1]);
list("files", D.files, [5, -1]);
timeline(D.timeline);
facts();
byId("measures").append(...["pss", "rss"].filter((n) => n in at).map((n) => {
  const b = el("button", { type: "button", textContent: n.toUpperCase(), onclick: () => measure(n) });
  b.dataset.name = n;
  return b;
}));
measure(D.memory);
byId("boxes").addEventListener("keydown", moveInMap);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => drawMap(false), 100);
});
