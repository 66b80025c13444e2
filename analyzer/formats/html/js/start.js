// Helpers for elements, numbers and colours, which the other files use.

const root = document.documentElement;
const redraws = [];

const make = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};

const read = (key) => JSON.parse(document.getElementById(`${key}-data`).textContent);

/** Format a count with separators; a count too large for an exact number is a string of digits. */
const count = (value) => {
  if (typeof value === "number") return value.toLocaleString("en-US");
  return /^-?\d+$/.test(value) ? BigInt(value).toLocaleString("en-US") : value;
};

const summed = (value) => `${Number.isSafeInteger(value) ? "" : "≈ "}${value.toLocaleString("en-US")}`;

/** Format a share with one decimal, as in the tables. */
const percent = (part, whole) => {
  if (!whole) return "-";
  const share = (100 * part) / whole;
  if (share === 0 || share === 100) return `${share} %`;
  if (share < 0.05) return "<0.1 %";
  return share >= 99.95 ? ">99.9 %" : `${share.toFixed(1)} %`;
};

/** Return a name that may break after its separators. */
const breakable = (text) => text.split(/(?<=[._/:])(?=[^._/:])/).flatMap((part, at) => (at ? [make("wbr"), part] : [part]));

const numeric = (value) => {
  if (typeof value === "number") return value;
  const found = parseFloat(String(value).replaceAll(",", ""));
  return Number.isNaN(found) ? -Infinity : found;
};

const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

const isDark = () =>
  root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

const setTheme = (theme) => {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
  redraws.forEach((redraw) => redraw());
};

const THEME = "onnxledger-theme";

/** Return the theme chosen earlier, on this page or another report; null if the browser keeps nothing. */
const keptTheme = () => {
  try {
    const kept = localStorage.getItem(THEME);
    return ["light", "dark"].includes(kept) ? kept : null;
  } catch {
    return null;
  }
};

const keepTheme = () => {
  try {
    localStorage.setItem(THEME, root.dataset.theme);
  } catch {
    // A page in a frame, or a browser without storage, keeps nothing.
  }
};

/** Make buttons of which one is pressed. */
const choice = (label, names, chosen, choose) => {
  const buttons = names.map((name, index) =>
    make("button", { type: "button", textContent: name, "aria-pressed": String(index === chosen) }),
  );
  buttons.forEach((button, index) =>
    button.addEventListener("click", () => {
      buttons.forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
      choose(index);
    }),
  );
  return make("span", { className: "switch", role: "group", "aria-label": label }, ...buttons);
};

/** Make a list from which one of many names is chosen. */
const select = (label, names, choose) => {
  const options = names.map((name, index) => make("option", { value: String(index), textContent: name }));
  const element = make("select", {}, ...options);
  element.addEventListener("change", () => choose(Number(element.value)));
  return make("label", {}, label, element);
};
