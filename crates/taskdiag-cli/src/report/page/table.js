
// SPDX-License-Identifier: MIT OR Apache-2.0
// Tables that can be sorted and filtered.

class Table {
  constructor(home, data, sort) {
    this.columns = data.columns;
    this.rows = data.rows;
    this.sort = sort || [0, 1];
    this.limit = 50;
    this.words = [];
    this.input = el("input", { type: "search", placeholder: "filter: words, all of them", "aria-label": "Show rows with these words" });
    this.said = el("span", { role: "status" });
    this.body = el("tbody");
    // A text that no row has, such as the container on a machine without containers, needs no column.
    this.visible = [...this.columns.keys()].filter((i) => this.columns[i].kind !== "text" || this.rows.some((row) => row[i] !== -1));
    this.heads = this.visible.map((i) => {
      const c = this.columns[i];
      const button = el("button", { type: "button", title: c.help, onclick: () => this.order(i) }, c.head);
      return el("th", { scope: "col", className: c.kind === "number" ? "num" : "" }, button);
    });
    const more = (label, n) => el("button", { type: "button", onclick: () => { this.limit += n; this.draw(); } }, label);
    this.more = el("p", { className: "more" }, more("Show 500 more", 500), " ", more("Show all", Infinity));
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    const wrap = el("div", { className: "wrap", tabIndex: 0, role: "region", "aria-label": home.querySelector("h2").textContent }, table);
    home.append(el("div", { className: "tools" }, this.input, this.said), wrap, this.more);
    home.hidden = false;
    let timer;
    this.input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => { this.limit = 50; this.draw(); }, 120);
    });
    this.draw();
  }
  // The first click on a column puts the largest numbers first, the second one turns the order round.
  order(i, direction) {
    const first = this.columns[i].kind === "number" && !/^p?pid$/.test(this.columns[i].name) ? -1 : 1;
    this.sort = [i, direction || (this.sort[0] === i ? -this.sort[1] : first)];
    this.limit = 50;
    this.draw();
  }
  haystack(n) {
    if (!this.words[n]) {
      const row = this.rows[n];
      this.words[n] = this.columns.map((c, i) => c.kind === "text" || c.name.endsWith("pid") ? shown(c, row[i]) : "")
        .join("\n").toLowerCase();
    }
    return this.words[n];
  }
  selected() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let all = this.rows.map((_, n) => n);
    if (words.length) all = all.filter((n) => words.every((w) => this.haystack(n).includes(w)));
    const [i, direction] = this.sort;
    const isText = this.columns[i].kind === "text";
    const key = (n) => this.rows[n][i];
    return all.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      // What is not known or not there comes last.
      if (x < 0 || y < 0) return (x < 0) - (y < 0) || y - x || a - b;
      const [p, q] = isText ? [D.words[x], D.words[y]] : [x, y];
      return p === q ? a - b : (p < q ? -1 : 1) * direction;
    });
  }
  draw() {
    const all = this.selected();
    this.heads.forEach((th, n) => {
      const i = this.visible[n];
      const on = this.sort[0] === i;
      th.setAttribute("aria-sort", !on ? "none" : this.sort[1] > 0 ? "ascending" : "descending");
      th.firstChild.textContent = this.columns[i].head + (on ? this.sort[1] > 0 ? " \u25b2" : " \u25bc" : "");
    });
    const rows = all.slice(0, this.limit).map((n) => this.line(this.rows[n]));
    this.body.replaceChildren(...rows);
    this.said.textContent = `${count(rows.length)} of ${plural(all.length, "row")}` +
      (all.length < this.rows.length ? `, ${count(this.rows.length)} without the filter` : "");
    this.more.hidden = rows.length >= all.length;
  }
  line(row) {
    const cells = this.visible.map((i) => {
      const c = this.columns[i];
      const td = el("td", { textContent: shown(c, row[i]) });
      if (c.kind === "number") td.className = "num";
      if (row[i] < -1) {
        td.classList.add("unknown");
        td.title = why(row[i]);
      } else if (c.kind === "text" && td.textContent.length > 30) {
        td.title = td.textContent;
      }
      return td;
    });
    const tr = el("tr", {}, ...cells);
    tr.addEventListener("click", () => {
      if (!String(getSelection())) tr.classList.toggle("open");
    });
    return tr;
  }
}
