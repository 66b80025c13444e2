// Tables of any length: sorted and searched over all rows, and shown page by page.

const PAGE = 50;
const PRINTED = 5000; // largest number of rows of a table on paper
const tables = [];
const FEW = 12;
const SHORT = 28; // largest number of characters of a name that is not broken
const collator = new Intl.Collator("en", { numeric: true });

const compareCells = (kind) =>
  kind === "number" ? (a, b) => numeric(a) - numeric(b) : (a, b) => collator.compare(String(a), String(b));

class Grid {
  constructor(host, data) {
    this.data = data;
    this.columns = data.columns.map(([title, kind, hidden, signed], index) => ({ title, kind, hidden, signed, index }));
    this.said = new Map(data.said.map(([row, column, text]) => [`${row} ${column}`, text]));
    this.shown = this.columns.filter((column) => !column.hidden);
    this.all = data.rows.map((_, index) => index);
    this.order = this.all;
    this.found = this.all;
    this.page = 0;
    this.size = PAGE;
    this.sorted = null;
    this.texts = null;
    this.build(host);
    this.refresh();
    tables.push(this);
  }

  build(host) {
    this.state = make("p", { className: "state", "aria-live": "polite" });
    this.search = make("input", { type: "search", spellcheck: false, autocomplete: "off" });
    this.search.addEventListener("input", () => this.find(this.search.value));
    this.previous = this.turner("Previous", -1);
    this.next = this.turner("Next", 1);
    this.controls = make("div", { className: "controls" });
    if (this.all.length > FEW) this.controls.append(make("label", {}, "Search", this.search), this.state);
    if (this.all.length > PAGE) this.controls.append(this.previous, this.next);
    this.head = make("tr", {}, ...this.shown.map((column) => this.heading(column)));
    this.body = make("tbody");
    this.foot = make("tfoot");
    this.region = make(
      "div",
      { className: "scroll", tabIndex: 0, role: "region", "aria-label": this.data.title },
      make("table", {}, make("caption", { textContent: this.data.title }), make("thead", {}, this.head), this.body, this.foot),
    );
    host.append(this.controls, this.region);
  }

  /** Put all rows on one page for paper, where no button turns pages. */
  print(isPrinted) {
    [this.size, this.page, this.before] = isPrinted ? [PRINTED, 0, this.page] : [PAGE, this.before ?? this.page, undefined];
    this.refresh();
  }

  turner(text, by) {
    const button = make("button", { type: "button", textContent: text, "aria-label": `${text} rows of ${this.data.title}` });
    button.addEventListener("click", () => {
      this.page += by;
      this.refresh();
    });
    return button;
  }

  heading(column) {
    const button = make("button", { type: "button", textContent: column.title });
    button.addEventListener("click", () => this.sort(column));
    column.head = make("th", { scope: "col", className: column.kind === "number" ? "number" : "" }, button);
    return column.head;
  }

  sort(column) {
    const again = this.sorted && this.sorted.column === column;
    const isUp = again ? !this.sorted.isUp : column.kind !== "number";
    this.sorted = { column, isUp };
    const compare = compareCells(column.kind);
    const sign = isUp ? 1 : -1;
    const { rows } = this.data;
    this.order = [...this.all].sort((a, b) => sign * compare(rows[a][column.index], rows[b][column.index]) || a - b);
    for (const each of this.shown) {
      if (each === column) each.head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      else each.head.removeAttribute("aria-sort");
    }
    this.find(this.search.value);
  }

  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const bare = words.map((word) => word.replace(/(?<=\d),(?=\d)/g, "")); // counts have no separators in the data
    this.texts ??= this.data.rows.map((row) => this.shown.map(({ index }) => row[index]).join("\n").toLowerCase());
    const has = (row) => words.every((word, at) => this.texts[row].includes(word) || this.texts[row].includes(bare[at]));
    this.found = words.length ? this.order.filter(has) : this.order;
    this.page = 0;
    this.refresh();
  }

  refresh() {
    const first = this.page * this.size;
    const rows = this.found.slice(first, first + this.size);
    this.body.replaceChildren(...rows.map((row) => make("tr", {}, ...this.cells(this.data.rows[row], row))));
    this.foot.replaceChildren(...this.totals());
    const whole = this.found.length === this.all.length;
    const of = whole ? count(this.all.length) : `${count(this.found.length)} found, of ${count(this.all.length)}`;
    this.state.textContent = rows.length ? `rows ${count(first + 1)}–${count(first + rows.length)} of ${of}` : `nothing found, of ${count(this.all.length)}`;
    this.previous.disabled = this.page === 0;
    this.next.disabled = first + this.size >= this.found.length;
  }

  cells(row, at = -1) {
    return this.shown.map(({ kind, index, signed }) => {
      const sign = signed && numeric(row[index]) > 0 ? "+" : "";
      const known = kind === "number" ? `${sign}${count(row[index])}`.replace("++", "+") : String(row[index]);
      const text = this.said.get(`${at} ${index}`) ?? known;
      const look = kind === "code" && text.length <= SHORT ? "code short" : kind;
      return make("td", { className: look }, ...(kind === "code" && text.length > SHORT ? breakable(text) : [text]));
    });
  }

  /** Return the last row: the totals of all rows, or the sums of the rows that were found. */
  totals() {
    const { total, rows } = this.data;
    if (!total.length || !this.found.length) return [];
    if (this.found.length === this.all.length) return [make("tr", {}, ...this.cells(total))];
    const sums = total.map((cell, index) => {
      if (typeof cell !== "number") return "";
      return summed(this.found.reduce((sum, row) => sum + Math.max(0, numeric(rows[row][index])), 0));
    });
    sums[0] = "found";
    return [make("tr", {}, ...this.cells(sums))];
  }
}
