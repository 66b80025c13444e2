// Charts, by ECharts. Names are drawn as plain text only, never as a template or markup.

const TINTS = 10;
const STEPS = 5;
const DRAWN = 1500;

/** Make a box beside the pointer, with plain text. */
const addTip = (host, chart, describe) => {
  const tip = make("div", { className: "tip", hidden: true, role: "presentation" });
  host.append(tip);
  chart.on("mouseover", (event) => {
    const text = describe(event);
    if (text) {
      tip.textContent = text;
      tip.hidden = false;
    }
  });
  chart.on("mouseout", () => (tip.hidden = true));
  chart.on("globalout", () => (tip.hidden = true));
  chart.getZr().on("mousemove", (event) => {
    const { offsetLeft, offsetTop, offsetWidth } = chart.getDom();
    const left = offsetLeft + Math.min(event.offsetX + 14, Math.max(0, offsetWidth - tip.offsetWidth - 4));
    tip.style.left = `${left}px`;
    tip.style.top = `${offsetTop + event.offsetY + 18}px`;
  });
};

const open = (element) => {
  const chart = echarts.init(element, null, { renderer: "canvas" });
  new ResizeObserver(() => chart.resize()).observe(element);
  return chart;
};

const font = () => getComputedStyle(document.body).fontFamily;

const swatch = (name, text) => {
  const mark = make("span", { className: "swatch", "aria-hidden": "true" });
  mark.style.background = colour(name);
  return make("li", {}, mark, text);
};

class Treemap {
  constructor(tree) {
    this.tree = tree;
    this.chart = open(tree.canvas);
    this.chart.on("click", (event) => {
      const node = this.drawn[event.data?.at];
      if (node && !node.isLeaf) tree.show(node);
    });
    addTip(tree.host, this.chart, (event) => {
      const node = this.drawn[event.data?.at];
      return node && this.describe(node);
    });
  }

  describe(node) {
    const { data, top } = this.tree;
    const lines = data.measures.map(([name], index) => `${summed(node.sums[index])} ${name}, ${percent(node.sums[index], top.sums[index])}`);
    const names = node.trail.slice(1).map((each) => each.name);
    if (!node.isLeaf) lines.push(`${count(node.tensors)} ${node.tensors === 1 ? "tensor" : "tensors"}`);
    if (node.ms !== null) lines.push(`${node.ms.toFixed(3)} ms`);
    return [names.join(" › "), ...lines].join("\n");
  }

  /** Return the parts below a node, passing over groups that hold one group only. */
  below(node) {
    const { measure } = this.tree;
    let [found, prefix] = [node, ""];
    while (found.kids.length === 1 && !found.kids[0].isLeaf) {
      found = found.kids[0];
      prefix += `${found.name}.`;
    }
    return found.parts(measure).filter((kid) => kid.sums[measure] > 0).map((kid) => [kid, `${prefix}${kid.name}`]);
  }

  draw() {
    const { tree } = this;
    this.legends = new Map();
    this.drawn = [];
    this.colours = new Map();
    const shown = this.below(tree.current);
    this.slowest = Math.max(...shown.flatMap(([kid]) => [kid, ...kid.kids]).map((kid) => kid.ms ?? 0));
    const items = shown.map(([kid, name], index) => {
      const item = this.item(kid, name, index);
      const hasRoom = item.value > 0.01 * tree.current.sums[tree.measure]; // for a header and something below it
      if (!kid.isLeaf && hasRoom) item.children = this.within(kid, index, Math.floor(DRAWN / shown.length));
      return item;
    });
    this.chart.clear(); // else the old shapes fly across the chart
    if (!items.length) {
      const [name] = tree.data.measures[tree.measure];
      tree.legend.replaceChildren(make("li", { textContent: `Nothing here has any ${name}; the table has what there is.` }));
      return;
    }
    this.chart.setOption({ animation: false, textStyle: { fontFamily: font() }, series: [this.series(items)] });
    tree.legend.replaceChildren(...[...this.legends].sort().map(([, [name, text]]) => swatch(name, text)));
  }

  /** Return the second level, with no more parts than readers can tell apart. */
  within(node, index, room) {
    const { measure } = this.tree;
    const parts = this.below(node);
    const most = Math.max(4, room);
    const items = parts.slice(0, most).map(([each, name]) => this.item(each, name, index));
    const left = parts.slice(most);
    if (left.length) {
      const value = left.reduce((sum, [each]) => sum + each.sums[measure], 0);
      items.push({ ...this.item(node, `[${count(left.length)} smaller]`, index), value });
    }
    return items;
  }

  item(node, name, index) {
    const [tint, key, text] = this.tint(node, index);
    if (text) this.legends.set(key, [tint, text]);
    const at = this.drawn.push(node) - 1; // ECharts copies its data, and a node would bring its parents along
    return { name, value: node.sums[this.tree.measure], at, itemStyle: { color: this.colours.get(tint) ?? this.fetch(tint) } };
  }

  fetch(tint) {
    this.colours.set(tint, colour(tint));
    return this.colours.get(tint);
  }

  tint(node, index) {
    const { tints, tint, data } = this.tree;
    const by = tints[tint];
    if (by === "group") return [`c${index % TINTS}`];
    if (by === "time") return this.timed(node);
    const column = data.colours.find(([name]) => name === by)[1];
    const found = this.only(node, column);
    if (found === null) return ["none", "~", "several"];
    this.values ??= new Map();
    if (!this.values.has(`${by} ${found}`)) this.values.set(`${by} ${found}`, this.values.size);
    return [`c${this.values.get(`${by} ${found}`) % TINTS}`, found, found];
  }

  /** Return the value that all rows of a group have in a column; null if they differ. */
  only(node, column) {
    if (node.isLeaf) return String(this.tree.grid.rows[node.row][column]);
    node.only ??= new Map();
    if (!node.only.has(column)) {
      const found = new Set(node.kids.map((kid) => this.only(kid, column)));
      node.only.set(column, found.size === 1 ? [...found][0] : null);
    }
    return node.only.get(column);
  }

  timed(node) {
    let found = node;
    while (found && found.ms === null) found = found.parent;
    if (!found || !this.slowest || found === this.tree.top) return ["none", "~", "no time of its own"];
    const step = Math.min(STEPS - 1, Math.floor((STEPS * found.ms) / this.slowest));
    const [low, high] = [step, step + 1].map((each) => ((each * this.slowest) / STEPS).toFixed(3));
    return [`t${step}`, String(step), `${low}–${high} ms`];
  }

  series(items) {
    const [ink, panel] = [colour("ink"), colour("panel")];
    const whole = this.tree.top.sums[this.tree.measure];
    const formatter = ({ name, value }) => `${name}\n${percent(value, whole)}`;
    const label = { show: true, formatter, color: ink, fontSize: 12, lineHeight: 16, overflow: "truncate", ellipsis: "…", padding: [3, 4], position: "insideTopLeft" };
    return {
      type: "treemap",
      animation: false,
      left: 0, right: 0, top: 0, bottom: 0,
      roam: false,
      sort: false, // sorted already, equal ones by name
      nodeClick: false,
      breadcrumb: { show: false },
      visibleMin: 20,
      childrenVisibleMin: 1500,
      label,
      upperLabel: { ...label, show: true, height: 22, fontWeight: 600, position: "insideLeft", formatter: ({ name, value }) => `${name}  ${percent(value, whole)}` },
      emphasis: { itemStyle: { borderColor: colour("chosen") }, upperLabel: { show: true, color: ink } },
      itemStyle: { borderColor: panel, borderWidth: 0, gapWidth: 1 },
      levels: [
        { itemStyle: { borderColor: panel, gapWidth: 3 }, upperLabel: { show: false } },
        { itemStyle: { borderColor: colour("hover"), borderWidth: 2, gapWidth: 1 } },
        { itemStyle: { borderColor: panel, borderWidth: 0, gapWidth: 1 } },
      ],
      data: items,
    };
  }
}

const axis = () => ({
  axisLabel: { color: colour("soft") },
  axisLine: { lineStyle: { color: colour("strong") } },
  splitLine: { lineStyle: { color: colour("line") } },
  nameTextStyle: { color: colour("soft") },
});

const bar = (name) => ({ color: colour(name), borderColor: colour("strong"), borderWidth: 1 });

/** Make a chart with a switch of its measure; `options` returns the drawing of the chosen one. */
const addChart = (host, measures, options, describe, tall) => {
  let chosen = 0;
  const state = make("p", { className: "state" });
  const canvas = make("div", { className: "canvas", role: "img", "aria-label": host.querySelector("figcaption").textContent });
  if (tall) canvas.style.height = `${tall}px`;
  if (measures.length > 1) {
    const buttons = choice("Measure", measures, 0, (index) => {
      chosen = index;
      draw();
    });
    host.append(make("div", { className: "controls" }, buttons));
  }
  host.append(canvas, state);
  const chart = open(canvas);
  const draw = () => {
    const { note, ...made } = options(chosen);
    chart.setOption({ animation: false, textStyle: { fontFamily: font() }, ...made }, true);
    state.textContent = note ?? "";
  };
  addTip(host, chart, (event) => describe(event, chosen));
  redraws.push(draw);
  draw();
};

const addWaterfall = (host, data) => {
  const walk = ([, steps, end]) => {
    let level = data.start;
    const bars = [[data.from, 0, data.start, count(data.start), "ends"]];
    for (const [line, delta] of steps) {
      const text = `${delta > 0 ? "+" : ""}${count(delta)}`;
      bars.push([line, level, level + delta, text, delta > 0 ? "up" : "down"]);
      level += delta;
    }
    return [...bars, [data.to, 0, end, count(end), "ends"]];
  };
  const options = (chosen) => {
    const bars = walk(data.measures[chosen]);
    const levels = bars.map(([, , to]) => to);
    const room = Math.min(90, Math.max(30, host.clientWidth / (bars.length + 1) - 8)); // so that labels fit beside each other
    const [low, high] = [Math.min(...levels), Math.max(...levels)];
    const from = high - low < 0.2 * high && high > low ? Math.max(0, low - (high - low)) : 0;
    return {
      note: low === high ? "No line changes this count." : from ? `The axis begins at ${summed(Math.round(from))}, so that the steps can be seen.` : "",
      grid: { left: 8, right: 12, top: 34, bottom: 8, containLabel: true },
      xAxis: { type: "category", data: bars.map(([name]) => name), ...axis(), axisLabel: { color: colour("ink"), interval: 0, width: room, lineHeight: 15, overflow: "break", formatter: (name) => name.replaceAll("-", "-\n") }, splitLine: { show: false } },
      yAxis: { type: "value", min: from, max: from ? Math.ceil(high + 0.2 * (high - from)) : undefined, ...axis(), axisLabel: { color: colour("soft"), showMaxLabel: !from } },
      series: [
        { type: "bar", stack: "all", silent: true, itemStyle: { color: "transparent" }, data: bars.map(([, a, b]) => Math.min(a, b)) },
        {
          type: "bar", stack: "all", barMaxWidth: 90, barMinHeight: 2,
          label: { show: true, position: "top", color: colour("ink"), formatter: (event) => bars[event.dataIndex][3] },
          data: bars.map(([, a, b, , tint]) => ({ value: Math.abs(b - a), itemStyle: bar(tint) })),
        },
      ],
    };
  };
  const describe = (event, chosen) => {
    const [name, , to, text, tint] = walk(data.measures[chosen])[event.dataIndex];
    return tint === "ends" ? `${name}\n${text} ${data.measures[chosen][0]}` : `${name}\n${text}, which makes ${summed(to)}`;
  };
  addChart(host, data.measures.map(([name]) => name), options, describe);
};

const addBars = (host, data, grid) => {
  const largest = (sides) => {
    const value = (row) => Math.max(...sides.map(([, column]) => Math.abs(numeric(row[column]))));
    return grid.rows.filter((row) => value(row) > 0).sort((a, b) => value(b) - value(a)).slice(0, data.most);
  };
  const options = (chosen) => {
    const [, sides] = data.measures[chosen];
    const rows = largest(sides);
    const left = grid.rows.length - rows.length;
    return {
      note: [sides.length > 1 ? `In each pair ${sides[0][0]} stands above ${sides[1][0]}.` : "", left ? `Smaller or empty rows in the table alone: ${count(left)}.` : ""].filter(Boolean).join(" "),
      grid: { left: 8, right: 90, top: 8, bottom: 8, containLabel: true },
      xAxis: { type: "value", ...axis(), splitNumber: 3, axisLabel: { color: colour("soft"), hideOverlap: true } },
      yAxis: { type: "category", inverse: true, data: rows.map((row) => row[data.name]), ...axis(), axisLabel: { color: colour("ink"), width: 150, overflow: "truncate" } },
      series: sides.map(([name, column], side) => ({
        type: "bar", name, barMaxWidth: 22, barGap: "10%", itemStyle: bar(side ? "c1" : "c0"),
        label: { show: true, position: "right", color: colour("ink"), formatter: (event) => `${sides.length > 1 ? `${name} ` : ""}${count(rows[event.dataIndex][column])}` },
        data: rows.map((row) => {
          const value = numeric(row[column]); // a change may be above or below zero
          return value < 0 ? { value, itemStyle: bar("c2"), label: { position: "insideLeft" } } : value;
        }),
      })),
    };
  };
  const describe = (event, chosen) => {
    const [name, sides] = data.measures[chosen];
    const row = largest(sides)[event.dataIndex];
    return [row[data.name], ...sides.map(([side, column]) => `${sides.length > 1 ? `${side}: ` : ""}${count(row[column])} ${name}`)].join("\n");
  };
  const most = Math.max(...data.measures.map(([, sides]) => largest(sides).length * sides.length));
  addChart(host, data.measures.map(([name]) => name), options, describe, 60 + 26 * most);
};

const addLines = (host, data, grid) => {
  const last = data.values.length;
  const rows = [...grid.rows].sort((a, b) => numeric(b[last]) - numeric(a[last])).slice(0, data.most);
  const marks = ["circle", "rect", "triangle", "diamond", "pin"];
  const options = () => ({
    note: rows.length < grid.rows.length ? `The ${count(rows.length)} slowest; the table has all.` : "",
    grid: { left: 8, right: 130, top: 30, bottom: 24, containLabel: true },
    xAxis: { type: "value", name: data.axis, nameLocation: "middle", nameGap: 28, min: "dataMin", max: "dataMax", ...axis() },
    yAxis: { type: "value", name: "ms", ...axis() },
    series: rows.map((row, index) => ({
      type: "line", symbol: marks[index % marks.length], symbolSize: 8,
      lineStyle: { color: colour(`s${index % 6}`), type: ["solid", "dashed", "dotted"][Math.floor(index / 6) % 3] },
      itemStyle: { color: colour(`s${index % 6}`) },
      endLabel: { show: true, color: colour("ink"), width: 120, overflow: "truncate", formatter: () => row[data.name] },
      labelLayout: { moveOverlap: "shiftY" },
      data: data.values.map((value, point) => [value, numeric(row[point + 1])]),
    })),
  });
  const describe = (event) => {
    const row = rows[event.seriesIndex];
    return `${row[data.name]}\n${data.axis} ${count(data.values[event.dataIndex])}: ${row[event.dataIndex + 1]} ms`;
  };
  addChart(host, ["ms"], options, describe);
};

/** Draw signal to error along the modules: higher is nearer to the other side; rounding has a line of its own. */
const addErrors = (host, data) => {
  const { points, first } = data;
  const known = points.flatMap(([, , error, noise]) => [error, noise]).filter((value) => value !== null);
  const top = Math.ceil((Math.max(20, ...known) + 10) / 30) * 30;
  const low = Math.floor(Math.min(0, ...known) / 30) * 30;
  const gap = Math.ceil(points.length / Math.max(4, host.clientWidth / 80)); // so that labels fit beside each other
  const tail = (name) => { // the last parts of a path tell modules apart
    let rest = name;
    while (rest.length > 24 && rest.includes(".")) rest = rest.slice(rest.indexOf(".") + 1);
    return rest.length > 24 ? `…${rest.slice(-23)}` : rest === name ? name : `…${rest}`;
  };
  const isWrong = ([, , , , verdict]) => verdict === "differs";
  const marks = (wanted, height) => points.flatMap((point, index) => (wanted(point) ? [[index, height(point)]] : []));
  const names = ["signal to error", "what rounding leaves", "no error to measure", "differs"];
  const options = () => {
    const [ink, soft, right, wrong, noisy, panel] = ["ink", "soft", "s0", "bad", "s1", "panel"].map(colour);
    const label = { show: true, color: wrong, fontWeight: 600, position: "end", distance: 5, align: first > points.length / 2 ? "right" : "left", formatter: () => `first that differs: ${points[first][0]}`, width: host.clientWidth / 2, overflow: "truncate" };
    const isOpen = ([, , error, noise, verdict]) => error === null && verdict === "same";
    const series = [
      { type: "line", name: names[0], z: 3, symbol: "circle", symbolSize: 6, color: right, lineStyle: { width: 2 }, data: points.map((point) => (isWrong(point) ? point[2] ?? low : point[2])) },
      { type: "line", name: names[1], z: 2, symbol: "none", connectNulls: true, color: noisy, lineStyle: { type: "dashed", width: 1.5 }, data: points.map(([, , , noise]) => noise) },
      { type: "scatter", name: names[2], z: 4, symbol: "circle", symbolSize: 7, itemStyle: { color: panel, borderColor: right, borderWidth: 1.5 }, data: marks(isOpen, ([, , , noise]) => noise ?? top) },
      { type: "scatter", name: names[3], z: 5, symbol: "diamond", symbolSize: 13, color: wrong, data: marks(isWrong, ([, , error]) => error ?? low) },
    ].filter(({ data }) => data.some((value) => value !== null));
    if (first !== null) series[0].markLine = { silent: true, symbol: "none", lineStyle: { color: wrong, type: "solid", width: 1.5 }, label, data: [{ xAxis: first }] };
    const icons = { [names[0]]: "roundRect", [names[1]]: "roundRect", [names[2]]: "circle", [names[3]]: "diamond" };
    return {
      note: first === null ? "No module differs by more than rounding." : "",
      grid: { left: points.length > 6 ? 56 : 8, right: 16, top: host.clientWidth < 560 ? 82 : 60, bottom: 8, containLabel: true },
      legend: { left: 8, top: 0, itemWidth: 18, itemHeight: 9, itemGap: 18, textStyle: { color: ink }, selectedMode: false, data: series.map(({ name }) => ({ name, icon: icons[name] })) },
      xAxis: { type: "category", data: points.map(([name]) => tail(name)), ...axis(), axisTick: { show: false }, axisLabel: { color: ink, rotate: points.length > 6 ? 38 : 0, interval: gap - 1 }, splitLine: { show: false } },
      yAxis: { type: "value", min: low, max: top, interval: 30, ...axis(), axisLabel: { color: soft, formatter: "{value} dB" } },
      series,
    };
  };
  const describe = (event) => {
    if (event.componentType !== "series") return null;
    const index = Array.isArray(event.value) ? event.value[0] : event.dataIndex;
    const [name, value, error, noise, verdict] = points[index];
    const said = { same: "no further apart than rounding", differs: "differs", "not-compared": "not compared" }[verdict];
    const numbers = [error === null ? null : `${error.toFixed(0)} dB signal to error`, noise === null ? null : `${noise.toFixed(0)} dB by rounding alone`];
    return [name, value, said, ...numbers].filter(Boolean).join("\n");
  };
  addChart(host, ["dB"], options, describe);
};

const addSteps = (host, data) => {
  const tint = (group) => colour(`s${group % 6}`);
  const most = data.bars.reduce((best, [, bytes], place) => (bytes > data.bars[best][1] ? place : best), 0);
  const options = () => ({
    note: `The most, ${count(data.bars[most][1])} bytes, is there after ${data.bars[most][0]}.`,
    grid: { left: 8, right: 12, top: 34, bottom: 8, containLabel: true },
    xAxis: { type: "category", data: data.bars.map((_, place) => place + 1), ...axis(), axisLabel: { color: colour("soft"), hideOverlap: true }, splitLine: { show: false } },
    yAxis: { type: "value", ...axis(), axisLabel: { color: colour("soft") } },
    series: [
      {
        type: "bar", barCategoryGap: 0, barGap: 0,
        data: data.bars.map(([, bytes, group]) => ({ value: bytes, itemStyle: { color: tint(group) } })),
        markPoint: { symbol: "triangle", symbolSize: 12, symbolOffset: [0, -9], symbolRotate: 180, itemStyle: { color: colour("ink") }, label: { show: false }, data: [{ coord: [most, data.bars[most][1]] }] },
      },
    ],
  });
  const describe = (event) => {
    const [name, bytes, group] = data.bars[event.componentType === "markPoint" ? most : event.dataIndex];
    return `${data.groups[group]}\n${name}\n${count(bytes)} bytes`;
  };
  addChart(host, ["bytes"], options, describe);
};
