const NEAR = 8; // contenders whose switches are in view
let figure; // of what is drawn now

section("curves", {
  compares: true,

  start() {
    const near = contenders.filter((name, i) => i < NEAR || state.shown.has(name));
    const far = contenders.filter((name) => !near.includes(name));
    byId("chips").append(...near.map(chip));
    if (far.length) {
      const more = byId("more-chips");
      more.hidden = false;
      more.firstElementChild.textContent = `${far.length} more contender${far.length > 1 ? "s" : ""}`;
      more.lastElementChild.append(...far.map(chip));
    }
  },

  draw() {
    const series = shown().map((name) => ({ name, slot: slotOf(name), curve: curveOf(name) }));
    figure = curveFigure(widthOf("curve-chart"), series);
    put("curve-chart", figure.root);
    const rows = series.map(({ name, curve }) => {
      const at = tunedAt(curve), c = cellsAt(curve, at), values = [METRICS.precision(c), METRICS.recall(c)];
      return [name, decimals(curve.average_precision), brief(curve.cuts[at]), ...values.map((v) => decimals(v))];
    });
    put("curve-table", table("plain", ["Contender", "Average precision", "Threshold", "Precision", "Recall"], rows));
  },

  move(curve, at) {
    figure.move(state.contender, curve, at);
  },
});

// The switch of a contender.
function chip(name) {
  const sample = svg("svg", { width: 18, height: 10, "aria-hidden": "true" }, svg("path", { d: "M0 5h18" }));
  const button = html("button", { type: "button", title: name }, sample, shorten(name, 40));
  const paint = () => {
    button.setAttribute("aria-pressed", state.shown.has(name));
    sample.firstChild.setAttribute("class", `line thick ${seriesClass(slotOf(name))}`);
  };
  button.addEventListener("click", () => {
    show(name, !state.shown.has(name));
    paint();
    redrawCompared();
  });
  paint();
  return button;
}

// Precision against recall; series are {name, slot, curve}.
function curveFigure(width, series) {
  const chart = frame({
    width, height: Math.min(width * 0.85, 500), xs: [0, 1], ys: [0, 1], xTitle: "recall", yTitle: "precision",
    room: { top: 22 }, label: `Precision against recall of ${series.map((s) => s.name).join(", ")}; table beside`,
  });
  const { plot, x, y } = chart;
  const place = (c) => [x(METRICS.recall(c)), y(METRICS.precision(c))];
  const { positives = 0, negatives = 0 } = series[0]?.curve ?? {};
  const share = y(ratio(positives, positives + negatives)); // the precision of predicting the class for every row
  plot.append(svg("line", { class: "axis dash-2", x1: x(0), x2: x(1), y1: share, y2: share }));
  const points = [], rings = new Map();
  for (const s of [...series].reverse()) {
    const cells = s.curve.cuts.map((_, i) => cellsAt(s.curve, i));
    cells.forEach((c, i) => points.push({ s, c, cut: s.curve.cuts[i], place: place(c) }));
    const path = polyline(chart, cells.map((c) => [METRICS.recall(c), METRICS.precision(c)]), seriesClass(s.slot));
    path.dataset.contender = s.name;
    plot.append(path);
    rings.set(s.name, svg("circle", { class: `ring s${s.slot}`, r: 5 }));
  }
  plot.append(...rings.values());
  const move = (name, curve, i) => {
    const [cx, cy] = place(cellsAt(curve, i));
    rings.get(name)?.setAttribute("cx", cx);
    rings.get(name)?.setAttribute("cy", cy);
  };
  series.forEach((s) => move(s.name, s.curve, tunedAt(s.curve)));
  hover(chart.root, (event) => {
    const [px, py] = pointerIn(chart.root, event);
    const far = (p) => Math.hypot(p.place[0] - px, p.place[1] - py);
    const best = points.reduce((a, b) => (far(b) < far(a) ? b : a), points[0]);
    return best && far(best) < 40 ? [shorten(best.s.name, 60), `threshold ${brief(best.cut)}`,
      `precision ${decimals(METRICS.precision(best.c))}`, `recall ${decimals(METRICS.recall(best.c))}`] : null;
  });
  return { root: chart.root, move };
}
