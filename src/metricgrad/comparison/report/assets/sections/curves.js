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
      const { precision, recall } = inUse(name, curve);
      return [name, decimals(curve.average_precision), ...(hasThresholds ? [brief(curve.grid[tunedAt(curve)])] : []),
        decimals(precision), decimals(recall)];
    });
    put("curve-table", table("plain",
      ["Contender", "Average precision", ...(hasThresholds ? ["Threshold"] : []), "Precision", "Recall"], rows));
  },

  move(curve, at) {
    if (hasThresholds) {
      figure.move(state.contender, pointAt(curve, at));
    }
  },
});

const pointAt = (curve, at) => {
  const c = cellsAt(curve, at);
  return { precision: precision.of(c), recall: recall.of(c) };
};
// What the rule of a contender does for the chosen class: at its threshold, or by its largest score.
const inUse = (name, curve) =>
  (hasThresholds ? pointAt(curve, tunedAt(curve)) : payload.details[name].per_class[state.class]);

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
  const place = ({ precision, recall }) => [x(recall), y(precision)];
  const { positives = 0, negatives = 0 } = series[0]?.curve ?? {};
  const share = y(ratio(positives, positives + negatives)); // the precision of predicting the class for every row
  plot.append(svg("line", { class: "axis dash-2", x1: x(0), x2: x(1), y1: share, y2: share }));
  const points = [], rings = new Map();
  for (const s of [...series].reverse()) {
    const each = s.curve.grid.map((_, i) => pointAt(s.curve, i));
    each.forEach((point, i) => points.push({ s, point, threshold: s.curve.grid[i], place: place(point) }));
    const path = polyline(chart, each.map(({ precision, recall }) => [recall, precision]), seriesClass(s.slot));
    path.dataset.contender = s.name;
    plot.append(path);
    rings.set(s.name, svg("circle", { class: `ring s${s.slot}`, r: 5 }));
  }
  plot.append(...rings.values());
  const move = (name, point) => {
    const [cx, cy] = place(point);
    rings.get(name)?.setAttribute("cx", cx);
    rings.get(name)?.setAttribute("cy", cy);
  };
  series.forEach((s) => move(s.name, inUse(s.name, s.curve)));
  hover(chart.root, (event) => {
    const [px, py] = pointerIn(chart.root, event);
    const far = (p) => Math.hypot(p.place[0] - px, p.place[1] - py);
    const best = points.reduce((a, b) => (far(b) < far(a) ? b : a), points[0]);
    return best && far(best) < 40 ? [shorten(best.s.name, 60), `score at least ${brief(best.threshold)}`,
      `precision ${decimals(best.point.precision)}`, `recall ${decimals(best.point.recall)}`] : null;
  });
  return { root: chart.root, move };
}
