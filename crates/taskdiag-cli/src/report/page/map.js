
// SPDX-License-Identifier: MIT OR Apache-2.0
// The map of memory: boxes in boxes, whose areas are amounts.

// Boxes that would be smaller than this part of the map are drawn as one.
const MAP = { measure: D.memory, path: [], boxes: [], least: 1 / 4000 };

// The tree: slices, their units, their processes.
function tree(measure) {
  const root = { name: "all", kind: "root", value: 0, count: 0, children: new Map(), unknown: 0 };
  const child = (node, name, kind) => {
    if (!node.children.has(name)) node.children.set(name, { name, kind, parent: node, value: 0, count: 0, children: new Map() });
    return node.children.get(name);
  };
  const add = (slice, unit, leaf) => {
    const s = child(root, slice, "slice"), u = child(s, unit, "unit");
    leaf.parent = u;
    u.children.set(u.children.size, leaf);
    for (const node of [root, s, u]) {
      node.value += leaf.value;
      node.count += leaf.count;
    }
  };
  const known = (word) => word !== "-" && word !== "?";
  // A container with a name is known by it, and not by the unit that has its id.
  const named = (slice, unit, container, name) => [
    known(slice) ? slice : "no slice",
    known(name) ? "container " + name : known(unit) ? unit : known(container) ? "container " + container : "no unit",
  ];
  for (const row of T.rows) {
    const v = cell(row, measure);
    if (v < 0) root.unknown++;
    if (!(v > 0)) continue;
    const [slice, unit] = named(text(row, "slice"), text(row, "unit"), text(row, "container"), text(row, "container_name"));
    add(slice, unit, { name: `${text(row, "comm")} ${text(row, "pid")}`, kind: "process", value: v, count: 1, row });
  }
  for (const [slice, unit, container, n, rss, pss] of D.others) {
    const v = measure === "pss" ? pss : rss;
    const [s, u] = named(D.words[slice], D.words[unit], D.words[container], "-");
    if (v > 0) add(s, u, { name: plural(n, "process") + " without a row", kind: "others", value: v, count: n });
  }
  const settle = (node) => {
    if (!node.children) return;
    node.children = [...node.children.values()].sort((a, b) => b.value - a.value);
    node.children.forEach(settle);
  };
  settle(root);
  const paint = (node, k) => {
    node.k = k;
    (node.children || []).forEach((c) => paint(c, k));
  };
  // Slices have different colours. Where there is only one, its units have, or the processes of its only unit.
  let top = root;
  while (top.children && top.children.length === 1) top = top.children[0];
  (top.children || [top]).forEach((node, n) => paint(node, n % 8));
  return root;
}

// The squarified layout of Bruls, Huizing and van Wijk: rows of boxes whose sides differ as little as they can.
function squarify(nodes, x, y, w, h, place) {
  const total = nodes.reduce((n, c) => n + c.value, 0);
  if (!(total > 0) || w <= 0 || h <= 0) return;
  const scale = w * h / total;
  let start = 0;
  while (start < nodes.length) {
    const side = Math.min(w, h);
    let sum = 0, end = start, worst = Infinity;
    while (end < nodes.length) {
      const next = sum + nodes[end].value * scale;
      const [most, least] = [nodes[start].value * scale, nodes[end].value * scale];
      const ratio = Math.max(side * side * most / (next * next), next * next / (side * side * least));
      if (ratio > worst) break;
      [worst, sum] = [ratio, next];
      end++;
    }
    const thick = sum / side;
    let along = 0;
    for (const node of nodes.slice(start, end)) {
      const long = node.value * scale / thick;
      if (w >= h) place(node, x, y + along, thick, long); else place(node, x + along, y, long, thick);
      along += long;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
    start = end;
  }
}

function box(node, x, y, w, h, inside) {
  const about = `${node.name}: ${bytes(node.value)}` + (node.kind === "process" ? "" : `, ${plural(node.count, "process")}`);
  const b = el("button", { type: "button", tabIndex: -1, title: about, "aria-label": `${node.kind} ${about}` });
  b.className = `box ${inside ? "group" : "leaf"} k${node.k || 0}`;
  b.dataset.kind = node.kind;
  for (const [name, v] of [["left", x], ["top", y], ["width", w], ["height", h]]) b.style[name] = v.toFixed(2) + "px";
  if (w > 30 && h > 14) {
    b.append(el("span", { textContent: inside ? `${node.name} ${bytes(node.value)}` : node.name }));
    if (!inside && h > 30) b.append(el("span", { textContent: bytes(node.value) }));
  }
  b.addEventListener("click", () => pick(node));
  b.addEventListener("focus", () => {
    MAP.boxes.forEach((other) => { other.tabIndex = -1; });
    b.tabIndex = 0;
  });
  MAP.boxes.push(b);
}

// The boxes in a group, of which the smallest are one.
function parts(group, w, h) {
  const least = group.value * MAP.area * MAP.least / (w * h);
  const rest = group.children.filter((c) => c.value < least);
  if (rest.length < 2) return group.children;
  const sum = (name) => rest.reduce((n, c) => n + c[name], 0);
  const word = rest.length === group.children.length ? rest[0].kind : "other";
  const others = { name: plural(rest.length, word), kind: "others", parent: group, value: sum("value"), count: sum("count"), children: rest, k: rest[0].k };
  return [...group.children.filter((c) => c.value >= least), others].sort((a, b) => b.value - a.value);
}

function lay(group, x, y, w, h) {
  squarify(parts(group, w, h), x, y, w, h, (node, x, y, w, h) => {
    const inside = !!node.children && node.kind !== "others" && w > 50 && h > 34;
    box(node, x, y, w, h, inside);
    if (inside) lay(node, x + 3, y + 17, w - 6, h - 20);
  });
}

function drawMap(focus) {
  const home = byId("boxes");
  const node = MAP.path[MAP.path.length - 1];
  MAP.boxes = [];
  MAP.area = home.clientWidth * home.clientHeight;
  lay(node, 0, 0, home.clientWidth, home.clientHeight);
  home.replaceChildren(...MAP.boxes);
  if (!MAP.boxes.length) home.append(el("p", { className: "note", textContent: `No process has ${MAP.measure.toUpperCase()} that is known.` }));
  if (MAP.boxes.length) MAP.boxes[0].tabIndex = 0;
  if (focus && MAP.boxes.length) MAP.boxes[0].focus();
  const step = (n, i) => i === MAP.path.length - 1
    ? el("b", { textContent: ` ${n.name} ${bytes(n.value)}, ${plural(n.count, "process")}` })
    : el("button", { type: "button", textContent: n.name, onclick: () => { MAP.path.length = i + 1; drawMap(true); } });
  byId("path").replaceChildren(...MAP.path.flatMap((n, i) => i ? [" \u203a ", step(n, i)] : [step(n, i)]));
}

function pick(node) {
  if (node.children && node !== MAP.path[MAP.path.length - 1]) {
    // A box inside of another one leads there through all that it is in.
    MAP.path = [];
    for (let n = node; n; n = n.parent) MAP.path.unshift(n);
    return drawMap(true);
  }
  const picked = byId("picked");
  picked.hidden = !node.row;
  if (node.row) details(picked, node.row);
}

function details(home, row) {
  home.replaceChildren(...T.columns.flatMap((c, i) => [
    el("dt", { textContent: c.help.replace(/; text in KiB/, "") }), el("dd", { textContent: shown(c, row[i]), title: why(row[i]) }),
  ]));
}

function moveInMap(event) {
  const all = MAP.boxes, now = all.indexOf(document.activeElement);
  const to = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to !== undefined && all[to]) {
    all[to].focus();
  } else if ((event.key === "Escape" || event.key === "Backspace") && MAP.path.length > 1) {
    MAP.path.pop();
    drawMap(true);
  } else if (to === undefined) {
    return;
  }
  event.preventDefault();
}

function measure(name) {
  MAP.measure = name;
  const root = tree(name);
  MAP.path = [root];
  for (const b of byId("measures").children) b.setAttribute("aria-pressed", b.dataset.name === name);
  const notes = [name === "pss"
    ? "PSS: pages that several processes have are shared out among them, so that sums are true."
    : "RSS counts a page in each process that has it, so sums are too large where memory is shared; --pss shares it out, at the cost of a walk over all pages."];
  if (root.unknown) notes.push(`${plural(root.unknown, "process")} not in the map, because the value is not known.`);
  notes.push("A click or Enter goes into a box, where smaller ones are drawn, too; Esc goes back, arrow keys move.");
  byId("mapnote").textContent = notes.join(" ");
  drawMap(false);
}
