// Rows of a table within their groups: a treemap, and a table with the same contents and functions.

const MOST = 150;

class Node {
  constructor(name, parent, row = -1) {
    this.name = name;
    this.parent = parent;
    this.row = row;
    this.isLeaf = row >= 0;
    this.kids = [];
    this.index = new Map();
    this.sums = [];
    this.tensors = 0;
    this.ms = null;
    this.isOpen = false;
    this.kept = new Map();
  }

  add(name) {
    let kid = this.index.get(name);
    if (!kid) {
      kid = new Node(name, this);
      this.index.set(name, kid);
      this.kids.push(kid);
    }
    return kid;
  }

  get trail() {
    return this.parent ? [...this.parent.trail, this] : [this];
  }

  /** Return the parts, largest first; of very many, those after the first are grouped by rank. */
  parts(measure) {
    if (!this.kept.has(measure)) {
      const kids = [...this.kids].sort((a, b) => b.sums[measure] - a.sums[measure] || collator.compare(a.name, b.name));
      this.kept.set(measure, kids.length > MOST ? [...kids.slice(0, MOST), ...this.ranks(kids.slice(MOST))] : kids);
    }
    return this.kept.get(measure);
  }

  ranks(kids) {
    const size = Math.max(MOST, Math.ceil(kids.length / MOST));
    return Array.from({ length: Math.ceil(kids.length / size) }, (_, index) => {
      const first = index * size;
      const held = kids.slice(first, first + size);
      const range = `${count(MOST + first + 1)} to ${count(MOST + first + held.length)}`;
      const rank = new Node(`[${range} of ${count(MOST + kids.length)} by size]`, this);
      rank.kids = held;
      rank.sums = this.sums.map((_sum, at) => held.reduce((sum, kid) => sum + kid.sums[at], 0));
      rank.tensors = held.reduce((sum, kid) => sum + kid.tensors, 0);
      return rank;
    });
  }
}

const growTree = (grid, data, arrangement) => {
  const [, columns, separator] = arrangement;
  const top = new Node("all", null);
  const measures = data.measures.map(([, column]) => column);
  top.sums = measures.map(() => 0);
  grid.rows.forEach((row, index) => {
    const whole = String(row[data.name]);
    const path = columns.flatMap((column) => (separator ? String(row[column]).split(separator) : [String(row[column]) || "[none]"]));
    const isOwn = columns[0] === data.name;
    const prefix = `${path.join(separator)}${separator}`;
    const name = isOwn && path.length ? path.pop() : separator && whole.startsWith(prefix) ? whole.slice(prefix.length) : whole;
    let node = top;
    const values = measures.map((column) => Math.max(0, numeric(row[column])));
    const chain = [top, ...path.map((part) => (node = node.add(part)))];
    const leaf = new Node(name || whole, node, index);
    node.kids.push(leaf);
    for (const each of [...chain, leaf]) {
      each.sums = values.map((value, measure) => (each.sums[measure] ?? 0) + value);
      each.tensors += 1;
    }
  });
  return top;
};

/** Add milliseconds to the groups that a timing names; groups above have the sum of these, the top that of all groups. */
const addTimes = (top, times, separator) => {
  const known = new Map(times);
  const visit = (node, path) => {
    let sum = null;
    for (const kid of node.kids) {
      if (kid.isLeaf) continue;
      const below = visit(kid, path ? `${path}${separator || "."}${kid.name}` : kid.name);
      if (below !== null) sum = (sum ?? 0) + below;
    }
    node.ms = known.get(path) ?? sum;
    return node.ms;
  };
  if (visit(top, "") !== null) top.ms = times.reduce((sum, [, ms]) => sum + ms, 0);
};

class Tree {
  constructor(host, data, grid) {
    this.host = host;
    this.data = data;
    this.grid = grid;
    const filled = data.measures.findIndex(([, column]) => grid.rows.some((row) => numeric(row[column]) > 0));
    this.measure = Math.max(0, filled);
    this.tint = 0;
    this.tints = ["group", ...data.colours.map(([name]) => name), ...(data.times.length ? ["time"] : [])];
    this.crumbs = make("ol", { className: "crumbs", "aria-label": "Where the chart stands" });
    this.canvas = make("div", { className: "canvas", role: "img", "aria-label": host.querySelector("figcaption").textContent });
    this.legend = make("ul", { className: "legend" });
    this.body = make("tbody");
    host.append(this.controls(), this.crumbs, this.canvas, this.legend);
    const twin = this.twin();
    if (data.arrangements.some(([, columns]) => columns.length)) host.append(twin);
    this.arrange(0);
    this.picture = new Treemap(this);
    redraws.push(() => this.picture.draw());
    this.picture.draw();
  }

  controls() {
    const { measures, arrangements } = this.data;
    const bar = make("div", { className: "controls" });
    if (measures.length > 1) {
      bar.append(choice("Size by", measures.map(([name]) => name), this.measure, (index) => {
        this.measure = index;
        this.show(this.current);
      }));
    }
    if (arrangements.length > 1) bar.append(select("Group by", arrangements.map(([name]) => name), (index) => this.arrange(index)));
    if (this.tints.length > 1) {
      bar.append(select("Colour by", this.tints, (index) => {
        this.tint = index;
        this.picture.draw();
      }));
    }
    return bar;
  }

  arrange(index) {
    const arrangement = this.data.arrangements[index];
    this.top = growTree(this.grid, this.data, arrangement);
    addTimes(this.top, this.data.times, arrangement[2]);
    this.top.isOpen = true;
    this.show(this.top);
  }

  /** Show a group in the chart, and its row in the table. */
  show(node) {
    this.current = node.isLeaf ? node.parent : node;
    for (let each = this.current; each; each = each.parent) each.isOpen = true;
    this.crumbs.replaceChildren(...this.current.trail.map((each) => this.crumb(each)));
    this.list();
    this.reveal();
    this.picture?.draw();
  }

  crumb(node) {
    const button = make("button", { type: "button", textContent: node.name });
    if (node === this.current) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => {
      this.show(node);
      this.crumbs.lastElementChild.firstElementChild.focus();
    });
    return make("li", {}, button);
  }

  twin() {
    const titles = ["group", ...this.data.measures.map(([name]) => name), "share", this.data.counted ?? "tensors", ...(this.data.times.length ? ["ms"] : [])];
    this.share = make("th", { scope: "col", className: "number" });
    const heads = titles.map((title, index) => {
      if (title === "share") return this.share;
      return make("th", { scope: "col", className: index ? "number" : "", textContent: title });
    });
    const caption = make("caption", { textContent: "The same as a table: open a group, or choose it for the chart" });
    const table = make("table", {}, caption, make("thead", {}, make("tr", {}, ...heads)), this.body);
    this.region = make("div", { className: "scroll tree", tabIndex: 0, role: "region", "aria-label": "Groups of the chart" }, table);
    const summary = make("summary", { textContent: "The same as a table, group by group" });
    return make("details", { className: "twin" }, summary, this.region);
  }

  list() {
    this.share.textContent = `share of ${this.data.measures[this.measure][0]}`;
    const rows = [];
    const visit = (node, level) => {
      rows.push(this.row(node, level));
      if (node.isOpen) node.parts(this.measure).forEach((kid) => visit(kid, level + 1));
    };
    visit(this.top, 0);
    this.body.replaceChildren(...rows);
  }

  /** Scroll the table, not the page, to the row of the group in the chart. */
  reveal() {
    const row = this.body.querySelector("tr[aria-current]");
    if (row) this.region.scrollTop = Math.max(0, row.offsetTop - 2 * row.offsetHeight);
  }

  row(node, level) {
    const first = make("td", { className: `level-${Math.min(level, 7)}` }, this.folder(node), this.pointer(node));
    const numbers = node.sums.map((sum) => summed(sum));
    numbers.push(percent(node.sums[this.measure], this.top.sums[this.measure]), count(node.tensors));
    if (this.data.times.length) numbers.push(node.ms === null ? "" : node.ms.toFixed(3));
    const row = make("tr", {}, first, ...numbers.map((text) => make("td", { className: "number", textContent: text })));
    if (node === this.current) row.setAttribute("aria-current", "true");
    return row;
  }

  folder(node) {
    if (node.isLeaf) return make("span", { className: "fold" });
    const button = make("button", {
      type: "button",
      className: "fold",
      textContent: node.isOpen ? "▾" : "▸",
      "aria-expanded": String(node.isOpen),
      "aria-label": `Parts of ${node.name}`,
    });
    button.addEventListener("click", () => {
      node.isOpen = !node.isOpen;
      const at = [...this.body.rows].indexOf(button.closest("tr"));
      this.list();
      this.body.rows[at].querySelector("button.fold").focus();
    });
    return button;
  }

  pointer(node) {
    if (node.isLeaf) return make("span", { className: "code", textContent: node.name });
    const button = make("button", { type: "button", textContent: node.name, title: "Show in the chart" });
    button.addEventListener("click", () => {
      this.show(node);
      this.body.querySelector("tr[aria-current] button:not(.fold)")?.focus({ preventScroll: true });
    });
    return button;
  }
}
