// The figures: each takes a width and numbers, and returns an element.

// A metric, precision and recall against the cut, with the chosen one, its plateau and the one in hand.
function cutFigure(width, curve, metric, at, onMove) {
  const cells = curve.cuts.map((_, i) => cellsAt(curve, i));
  const values = cells.map(metric.of);
  const ends = [curve.cuts[0], curve.cuts.at(-1)];
  const chart = frame({
    width, height: Math.max(260, Math.min(380, width * 0.55)), xs: ends, ys: [Math.min(0, ...values), 1],
    xTitle: "cut (score at least)", room: { right: width < 480 ? 12 : 76, top: 16 },
    label: `${metric.title}, precision and recall against the cut of ${curve.name}; table below`,
  });
  const { plot, x, y, box } = chart;
  const inside = (v) => x(Math.min(Math.max(v, ends[0]), ends[1]));
  if (curve.plateau) {
    const [low, high] = curve.plateau.map(inside);
    const size = { width: Math.max(1, high - low), height: box.height };
    plot.append(svg("rect", { class: "plateau", x: low, y: box.top, ...size }));
  }
  const series = [
    { name: "precision", of: METRICS.precision, line: "dim dash-1" },
    { name: "recall", of: METRICS.recall, line: "dim dash-2" },
    { name: metric.title, of: metric.of, line: "thick s0 stroke", kind: "of-accent" },
  ].filter((s) => s.kind || s.name !== metric.title);
  for (const s of series) {
    plot.append(polyline(chart, cells.map((c, i) => [curve.cuts[i], s.of(c)]), s.line));
  }
  if (width >= 480) {
    endLabels(chart, series.map((s) => ({ name: s.name, kind: s.kind, y: y(s.of(cells.at(-1))) })));
  }
  if (curve.threshold !== null) {
    const place = inside(curve.threshold), anchor = place > box.left + box.width - 50 ? "end" : "middle";
    const text = `chosen ${cutText(curve.threshold)}`;
    plot.append(svg("line", { class: "chosen", x1: place, x2: place, y1: box.top, y2: box.base }),
      svg("text", { class: "of-accent", x: place, y: box.top - 4, "text-anchor": anchor }, text));
  }
  const line = svg("line", { class: "now", y1: box.top, y2: box.base });
  const handle = svg("circle", { class: "handle", r: 6 });
  const grab = svg("rect", { class: "grab", x: box.left, y: box.top, width: box.width, height: box.height });
  plot.append(line, handle, grab);
  const move = (i) => {
    const place = x(curve.cuts[i]);
    line.setAttribute("x1", place);
    line.setAttribute("x2", place);
    handle.setAttribute("cx", place);
    handle.setAttribute("cy", y(values[i]));
  };
  move(at);
  const under = (event) => {
    const [px] = pointerIn(chart.root, event);
    return nearest(curve.cuts, ends[0] + ((px - box.left) / box.width) * (ends[1] - ends[0]));
  };
  hover(grab, (event) => {
    const i = under(event), c = cells[i];
    if (event.buttons) {
      onMove(i);
    }
    return [`cut ${cutText(curve.cuts[i])}`, ...series.map((s) => `${s.name} ${decimals(s.of(c))}`).reverse(),
      `${whole(c.tp)} found, ${whole(c.fp)} false alarms`];
  });
  grab.addEventListener("pointerdown", (event) => {
    grab.setPointerCapture(event.pointerId);
    onMove(under(event));
  });
  return { root: chart.root, move };
}

// Colours repeat in their brightness; dashes tell the later ones apart without them.
const seriesClass = (slot) => {
  const kind = slot === 0 ? "thick" : slot > 3 ? `dash-${(slot % 3) + 1}` : "";
  return `stroke s${slot} ${kind}`;
};

// Precision against recall; series are {name, slot, curve, at}.
function curveFigure(width, series) {
  const chart = frame({
    width, height: Math.min(width * 0.85, 500), xs: [0, 1], ys: [0, 1], xTitle: "recall", yTitle: "precision",
    room: { top: 22 }, label: `Precision against recall of ${series.map((s) => s.name).join(", ")}; table beside`,
  });
  const { plot, x, y } = chart;
  const place = (c) => [x(METRICS.recall(c)), y(METRICS.precision(c))];
  const { positives = 0, negatives = 0 } = series[0]?.curve ?? {};
  const share = y(ratio(positives, positives + negatives)); // the precision of taking everybody
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
  series.forEach((s) => move(s.name, s.curve, s.at));
  hover(chart.root, (event) => {
    const [px, py] = pointerIn(chart.root, event);
    const far = (p) => Math.hypot(p.place[0] - px, p.place[1] - py);
    const best = points.reduce((a, b) => (far(b) < far(a) ? b : a), points[0]);
    return best && far(best) < 40 ? [shorten(best.s.name, 60), `cut ${cutText(best.cut)}`,
      `precision ${decimals(METRICS.precision(best.c))}`, `recall ${decimals(METRICS.recall(best.c))}`] : null;
  });
  return { root: chart.root, move };
}

// The 2×2 table at a cut.
function matrixFigure(c, name) {
  const yes = shorten(name, 24);
  const head = (scope, text) => html("th", { scope }, text);
  const cell = (count, total, kind, text) => {
    const share = ratio(count, total);
    const td = html("td", { class: kind },
      html("strong", {}, whole(count)), html("span", { class: "small" }, `${text}, ${percent(share)}`));
    td.style.setProperty("--share", share);
    return td;
  };
  const positives = c.tp + c.fn, negatives = c.fp + c.tn;
  return html("table", { class: "matrix" }, html("caption", {}, "Test rows at this cut"),
    html("thead", {},
      html("tr", {}, html("td", { class: "corner" }), head("col", `decided ${yes}`), head("col", "decided not"))),
    html("tbody", {},
      html("tr", {}, head("row", `truly ${yes}`),
        cell(c.tp, positives, "right", "found"), cell(c.fn, positives, "wrong", "missed")),
      html("tr", {}, head("row", "truly not"),
        cell(c.fp, negatives, "wrong", "false alarms"), cell(c.tn, negatives, "right", "left alone"))));
}

// Scores of the class (up) and of the rest (down), each with a height of its own: a rare class still shows its shape.
function scoreFigure(width, curve, slot, cut) {
  const { edges, positives, negatives } = curve.histogram;
  const chart = frame({
    width, height: 170, xs: [edges[0], edges.at(-1)], ys: [-1.05, 1.05], xTitle: "score", yTicks: false,
    room: { left: 8 },
    label: `Scores of ${whole(curve.positives)} rows in ${curve.name} and ${whole(curve.negatives)} others`,
  });
  const { x, y, plot } = chart;
  const sides = [[positives, true, `fill s${slot}`, "the class"], [negatives, false, "rest", "the rest"]];
  for (const [counts, up, kind, what] of sides) {
    const most = Math.max(...counts, 1);
    counts.forEach((count, i) => {
      const left = x(edges[i]), tall = Math.abs(y(count / most) - y(0));
      const wide = Math.max(0.8, x(edges[i + 1]) - left - 0.8);
      const bar = svg("rect", { class: kind, x: left, y: up ? y(0) - tall : y(0), width: wide, height: tall });
      hover(bar, () => [`score ${cutText(edges[i])} to ${cutText(edges[i + 1])}`, `${whole(count)} rows of ${what}`]);
      plot.append(bar);
    });
  }
  plot.append(svg("line", { class: "axis", x1: x(edges[0]), x2: x(edges.at(-1)), y1: y(0), y2: y(0) }));
  if (cut >= edges[0] && cut <= edges.at(-1)) {
    plot.append(svg("line", { class: "now", x1: x(cut), x2: x(cut), y1: y(1), y2: y(-1) }));
  }
  return chart.root;
}

// What was scored against what happened; the area of a dot is its share of the rows.
function calibrationFigure(width, curve, slot) {
  const chart = frame({
    width, height: 170, xs: [0, 1], ys: [0, 1], xTitle: "score", yTitle: "share", room: { left: 30, top: 20 },
    label: `Calibration of ${curve.name}; table below`,
  });
  const { x, y, plot } = chart;
  plot.append(svg("line", { class: "axis dash-2", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    polyline(chart, curve.calibration, `stroke s${slot}`));
  const most = Math.max(...curve.calibration.map(([, , rows]) => rows));
  for (const [score, share, rows] of curve.calibration) {
    const r = 2 + 3.5 * Math.sqrt(rows / most);
    const dot = svg("circle", { class: `fill s${slot}`, cx: x(score), cy: y(share), r });
    hover(dot, () => [`scored ${decimals(score)}`, `happened ${decimals(share)}`, `${whole(rows)} rows`]);
    plot.append(dot);
  }
  return chart.root;
}

// F1 of every class as a bar, precision and recall as marks, the other contender's F1 as a ring.
function classFigure(width, rows, other) {
  const left = Math.min(190, width * 0.34), step = 24;
  const chart = frame({
    width, height: rows.length * step + 50, xs: [0, 1], ys: [rows.length, 0], yTicks: false,
    room: { left, top: 4, right: 16 }, label: "Precision, recall and F1 of every class; table below",
  });
  const { x, y, plot, box } = chart;
  for (const v of ticks(0, 1, width < 480 ? 2 : 5)) {
    plot.append(svg("line", { class: "grid", x1: x(v), x2: x(v), y1: box.top, y2: box.base }));
  }
  const theirs = new Map((other || []).map((row) => [row.name, row.f1]));
  rows.forEach((row, i) => {
    const middle = y(i + 0.5), f1 = theirs.get(row.name);
    const name = shorten(row.name, Math.floor(left / 7.6));
    const group = svg("g", {},
      svg("text", { class: "strong", x: left - 8, y: middle + 4, "text-anchor": "end" }, name),
      svg("rect", { class: "fill s0", x: x(0), y: middle - 6, width: Math.max(0.5, x(row.f1) - x(0)), height: 12 }),
      svg("path", { class: "now", d: `M${x(row.precision)} ${middle - 9}v18` }),
      svg("path", { class: "now", d: `M${x(row.recall) - 4} ${middle - 4}l8 8m0 -8l-8 8` }),
      f1 === undefined ? null : svg("circle", { class: "ring s7", cx: x(f1), cy: middle, r: 4.5 }),
      svg("rect", { class: "cover", x: 0, y: middle - step / 2, width, height: step }));
    hover(group, () => [shorten(row.name, 80), `F1 ${decimals(row.f1)}`, `precision ${decimals(row.precision)}`,
      `recall ${decimals(row.recall)}`, `${whole(row.support)} rows`,
      ...(f1 === undefined ? [] : [`cross-entropy: F1 ${decimals(f1)}`])]);
    plot.append(group);
  });
  return chart.root;
}

// The d×d matrix as a shaded table.
function heatFigure(matrix, names) {
  const name = (i, length) => shorten(names[i] ?? String(i), length);
  const body = matrix.map((row, i) => {
    const total = row.reduce((a, b) => a + b, 0);
    return html("tr", {}, html("th", { scope: "row" }, name(i, 40)), row.map((count, j) => {
      const td = html("td", { class: i === j ? "right" : "wrong" }, whole(count));
      td.style.setProperty("--share", ratio(count, total));
      return td;
    }));
  });
  return html("table", { class: matrix.length > 6 ? "heat many" : "heat" },
    html("thead", {}, html("tr", {}, html("td"), matrix.map((_, j) => html("th", { scope: "col" }, name(j, 24))))),
    html("tbody", {}, body));
}

// The soft value (thin) and the hard one (thick) by epoch; the loss where there is neither.
function learningFigure(width, history, slot) {
  const of = (key) => history.filter((h) => h[key] !== null).map((h) => [h.epoch, h[key]]);
  const known = [
    { name: "soft", points: of("soft"), line: "dim dash-1" },
    { name: "hard", points: of("hard"), line: `thick stroke s${slot}`, kind: "strong" },
  ].filter(({ points }) => points.length);
  const lines = known.length ? known : [{ name: "loss", points: of("loss"), line: `stroke s${slot}` }];
  const values = lines.flatMap(({ points }) => points.map(([, v]) => v));
  const low = Math.min(...values), high = Math.max(...values), pad = (high - low) * 0.08 || 0.05;
  const chart = frame({
    width, height: 180, xs: [history[0].epoch, history.at(-1).epoch], ys: [low - pad, high + pad], xTitle: "epoch",
    room: { right: 40 }, label: `By epoch: ${lines.map(({ name }) => name).join(", ")}; table below`,
  });
  lines.forEach(({ points, line }) => chart.plot.append(polyline(chart, points, line)));
  endLabels(chart, lines.map(({ name, kind, points }) => ({ name, kind, y: chart.y(points.at(-1)[1]) })));
  hover(chart.root, (event) => {
    const [px] = pointerIn(chart.root, event);
    const h = history[nearest(history.map((e) => chart.x(e.epoch)), px)];
    const told = ["hard", "soft", "loss"].filter((key) => h[key] !== null).map((key) => `${key} ${decimals(h[key])}`);
    return [`epoch ${h.epoch}`, ...told];
  });
  return chart.root;
}
