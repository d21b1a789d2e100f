// Elements, scales and axes. Text from the data only ever becomes a text node.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const byId = (id) => document.getElementById(id);

const decimals = (x, digits = 3) => (Number.isFinite(x) ? x.toFixed(digits).replace("-", "−") : "–");
const whole = (x) => x.toLocaleString("en-US");
const percent = (x) => (100 * x).toFixed(x > 0 && x < 0.0995 ? 1 : 0) + "\u00a0%";
const brief = (x) => String(Number(x.toPrecision(4))).replace("-", "−");
// By characters, not halves of them: an emoji stays whole.
const shorten = (text, length) => {
  const letters = [...text];
  return letters.length > length ? letters.slice(0, length - 1).join("") + "…" : text;
};

function table(kind, heads, rows, caption) {
  return html("table", { class: kind },
    caption ? html("caption", {}, caption) : null,
    html("thead", {}, html("tr", {}, heads.map((head) => html("th", { scope: "col" }, head)))),
    html("tbody", {}, rows.map(([first, ...rest]) => html("tr", {},
      html("th", { scope: "row" }, first), rest.map((cell) => html("td", {}, cell))))));
}

// About `count` round numbers from low to high.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

// A picture with axes: {root, plot, x, y, box}, where x and y turn numbers into places.
function frame({ width, height, xs, ys, xTitle, yTitle, label, room = {}, xTicks = true, yTicks = true }) {
  const box = { left: 40, right: 12, top: 10, bottom: 40, ...room };
  const inner = { width: Math.max(40, width - box.left - box.right), height: height - box.top - box.bottom };
  const scale = ([low, high], from, length) => (v) => from + ((v - low) / (high - low || 1)) * length;
  const x = scale(xs, box.left, inner.width), y = scale(ys, box.top + inner.height, -inner.height);
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const v of yTicks ? ticks(...ys, height < 200 ? 4 : 5) : []) {
    root.append(svg("line", { class: "grid", x1: box.left, x2: box.left + inner.width, y1: y(v), y2: y(v) }),
      svg("text", { x: box.left - 7, y: y(v) + 4, "text-anchor": "end" }, brief(v)));
  }
  for (const v of xTicks ? ticks(...xs, Math.max(3, Math.round(inner.width / 90))) : []) {
    root.append(svg("text", { x: x(v), y: box.top + inner.height + 17, "text-anchor": "middle" }, brief(v)));
  }
  const base = box.top + inner.height;
  root.append(svg("line", { class: "axis", x1: box.left, x2: box.left + inner.width, y1: base, y2: base }));
  if (xTitle) {
    root.append(svg("text", { x: box.left + inner.width, y: base + 34, "text-anchor": "end" }, xTitle));
  }
  if (yTitle) {
    root.append(svg("text", { x: 0, y: 2, "dominant-baseline": "hanging" }, yTitle));
  }
  const plot = svg("g");
  root.append(plot);
  return { root, plot, x, y, box: { ...box, width: inner.width, height: inner.height, base } };
}

const polyline = (chart, points, kind) => {
  const known = points.filter(([, b]) => Number.isFinite(b)); // a metric may be undefined at some points
  const path = known.map(([a, b], i) => `${i ? "L" : "M"}${chart.x(a).toFixed(1)} ${chart.y(b).toFixed(1)}`).join("");
  return svg("path", { class: `line ${kind}`, d: path });
};

// Colours repeat in their brightness; dashes tell the later ones apart without them.
const seriesClass = (slot) => {
  const kind = slot === 0 ? "thick" : slot > 3 ? `dash-${(slot % 3) + 1}` : "";
  return `stroke s${slot} ${kind}`;
};

// The one tooltip: beside the pointer, a heading and lines of text; `describe` gives them, or null for none.
function hover(element, describe) {
  const tip = byId("tip");
  element.addEventListener("pointermove", (event) => {
    const [heading, ...lines] = describe(event) ?? [];
    tip.hidden = !heading;
    tip.replaceChildren(html("strong", {}, heading ?? ""), ...lines.map((line) => html("div", {}, line)));
    const { width, height } = tip.getBoundingClientRect();
    const right = document.documentElement.clientWidth - width - 4;
    const below = event.clientY + height + 24 < window.innerHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, right))}px`;
    tip.style.top = `${below ? event.clientY + 14 : event.clientY - height - 12}px`;
  });
  element.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
}

// Where the pointer is, in the picture's own units.
function pointerIn(root, event) {
  const place = root.getBoundingClientRect(), view = root.viewBox.baseVal;
  const across = (event.clientX - place.left) / place.width, down = (event.clientY - place.top) / place.height;
  return [across * view.width, down * view.height];
}

// Names at the right end of lines, moved apart where they would overlap.
function endLabels({ plot, box }, labels) {
  labels.sort((a, b) => a.y - b.y).forEach((label, i) => {
    label.y = Math.max(label.y, i ? labels[i - 1].y + 14 : box.top);
  });
  const over = labels.length ? Math.max(0, labels.at(-1).y - box.base) : 0;
  for (const { name, kind, y } of labels) {
    plot.append(svg("text", { class: kind, x: box.left + box.width + 6, y: y - over + 4 }, shorten(name, 12)));
  }
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, i) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) {
      best = i;
    }
  });
  return best;
}
