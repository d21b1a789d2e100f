const FIRST = 12; // columns that are in view at first
let all = false;

section("columns", {
  alone: true,

  start(place) {
    const button = byId("all-columns");
    button.addEventListener("click", () => {
      all = !all;
      button.setAttribute("aria-expanded", all);
      draw(place);
    });
  },

  draw,
});

function draw() {
  const found = payload.study.columns ?? [], total = payload.study.columns_all ?? found.length;
  if (!found.length) {
    return false;
  }
  const drifts = found[0].now !== undefined, button = byId("all-columns");
  button.hidden = found.length <= FIRST;
  button.textContent = all ? `Show the first ${FIRST}` : `Show all ${found.length}`;
  byId("columns-note").textContent = (drifts
    ? "Bars are the new data, outlines the training data: the share of the known cells. Columns that changed most come first."
    : "The share of the known cells in each bar; the half per cent at either end of numbers counts in the outermost bars.")
    + (found.length < total ? ` ${found.length} of ${total} columns are drawn.` : "")
    + (payload.study.base_rate ?? []).map((due) => ` Mind that ${due}.`).join("");
  const parts = found.map((each, i) => [each, html("figure", { hidden: !all && i >= FIRST },
    html("figcaption", {}, shorten(each.column, 60), " ", html("span", { class: "small" }, about(each))))]);
  put("column-charts", ...parts.map(([, figure]) => figure));
  for (const [each, figure] of parts) {
    if (each.names.length && !figure.hidden) {
      figure.append(columnFigure(Math.max(180, figure.clientWidth), each));
    }
    (each.suspicious ?? []).forEach((what) => figure.append(html("p", { class: "changed small" }, what)));
  }
  return true;
}

function about({ kind, missing, missing_now: now }) {
  const gaps = now === undefined ? (missing > 0 ? `, ${percent(missing)} missing` : "")
    : (missing > 0 || now > 0 ? `, missing ${percent(missing)} then, ${percent(now)} now` : "");
  return kind + gaps;
}

// The share of cells in each bar; with new data those are the bars, and the training data are outlines.
function columnFigure(width, { column, names, shares, now }) {
  const bars = now ?? shares, most = Math.max(...bars, ...shares, 1e-9);
  const chart = frame({
    width, height: 110, xs: [0, names.length], ys: [0, most * 1.05], yTicks: false, xTicks: false,
    room: { left: 2, right: 2, top: 6, bottom: 22 }, label: `Share of the cells of ${shorten(column, 60)} in ${names.length} bars`,
  });
  const { x, y, plot, box } = chart, wide = x(1) - x(0), gap = Math.min(2, wide * 0.15);
  names.forEach((name, i) => {
    const place = { x: x(i) + gap / 2, width: Math.max(0.6, wide - gap) };
    const lines = now ? [`then ${percent(shares[i])}`, `now ${percent(now[i])}`] : [percent(shares[i])];
    const group = svg("g", {},
      svg("rect", { class: now ? "fill s0" : "fill s1", ...place, y: y(bars[i]), height: box.base - y(bars[i]) }),
      now ? svg("rect", { class: "then", ...place, y: y(shares[i]), height: box.base - y(shares[i]) }) : null,
      svg("rect", { class: "cover", x: x(i), y: box.top, width: wide, height: box.height }));
    hover(group, () => [shorten(name, 80), ...lines]);
    plot.append(group);
  });
  const letters = Math.floor(width / 16);
  plot.append(svg("text", { x: box.left, y: box.base + 15 }, shorten(names[0], letters)));
  if (names.length > 1) {
    plot.append(svg("text", { x: box.left + box.width, y: box.base + 15, "text-anchor": "end" }, shorten(names.at(-1), letters)));
  }
  return chart.root;
}
