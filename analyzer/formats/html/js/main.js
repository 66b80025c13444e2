// Builds the tables and charts of the page. A chart that fails leaves its table.

root.classList.add("ready");
const grids = new Map();

for (const host of document.querySelectorAll("div.grid")) {
  const data = read(host.id);
  grids.set(host.id, data);
  new Grid(host, data);
}

const kinds = {
  tree: (host, data) => new Tree(host, data, grids.get(data.grid)),
  waterfall: addWaterfall,
  bars: (host, data) => addBars(host, data, grids.get(data.grid)),
  lines: (host, data) => addLines(host, data, grids.get(data.grid)),
  steps: addSteps,
  errors: addErrors,
};

for (const host of document.querySelectorAll("figure.chart")) {
  try {
    const data = read(host.id);
    kinds[data.kind](host, data);
  } catch (error) {
    host.append(make("p", { className: "remark", textContent: "The chart could not be drawn; the tables have its numbers." }));
    console.error(error);
  }
}

const button = document.getElementById("theme");
button.addEventListener("click", () => {
  setTheme(isDark() ? "light" : "dark");
  keepTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => root.dataset.theme || setTheme(null));
setTheme(keptTheme());

let before;
addEventListener("beforeprint", () => {
  before = root.dataset.theme ?? null;
  setTheme("light");
  tables.forEach((grid) => grid.print(true));
});
addEventListener("afterprint", () => {
  setTheme(before);
  tables.forEach((grid) => grid.print(false));
});
