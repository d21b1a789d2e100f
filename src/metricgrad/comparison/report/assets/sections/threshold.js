let figure; // of what is drawn now

section("threshold", {
  start() {
    const curve = () => curveOf(state.contender), slider = byId("threshold-slider");
    slider.addEventListener("input", () => moveThreshold(nearest(curve().grid, Number(slider.value))));
    // Keys go from one threshold to the next, however close they are.
    slider.addEventListener("keydown", (event) => {
      const last = curve().grid.length - 1, page = Math.ceil(last / 10);
      const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page };
      if (Object.hasOwn(steps, event.key)) {
        event.preventDefault();
        moveThreshold(Math.min(Math.max(state.at + steps[event.key], 0), last));
      }
    });
    byId("go-tuned").addEventListener("click", () => moveThreshold(tunedAt(curve())));
    byId("go-half").addEventListener("click", () => moveThreshold(nearest(curve().grid, 0.5)));
    byId("go-best").addEventListener("click", () => {
      const at = bestAt(curve());
      if (at >= 0) {
        moveThreshold(at);
      }
    });
  },

  draw(place) {
    const curve = curveOf(state.contender), last = curve.grid.length - 1;
    const known = metricNamed(payload.metric.name) !== null;
    byId("threshold-note").textContent = "Drag the threshold to see what changes. Counts are of "
      + (payload.evaluation ? "the new rows." : "the test rows of all splits.")
      + (known ? "" : ` ${payload.metric.name} is not a function of these counts; F1 is shown instead.`);
    byId("threshold-caption").textContent = `${metric.title} of ${shorten(curve.name, 60)}, ${shorten(state.contender, 60)}`
      + (curve.plateau ? "; shaded: thresholds that were hardly worse where it was tuned" : "") + "; dashes: precision, dots: recall";
    figure = thresholdFigure(widthOf("threshold-chart"), curve);
    put("threshold-chart", figure.root);
    const slider = byId("threshold-slider"), thumb = 16;
    Object.assign(slider, { min: curve.grid[0], max: curve.grid[last] });
    // The thumb stands below its place in the chart.
    slider.style.marginLeft = `${figure.box.left - thumb / 2}px`;
    slider.style.width = `${figure.box.width + thumb}px`;
    byId("go-tuned").hidden = curve.threshold === null;
    byId("go-tuned").textContent = curve.ships ? "Shipped" : "Tuned";
    byId("go-best").disabled = bestAt(curve) < 0;
    byId("go-best").title = byId("go-best").disabled ? "No threshold meets the constraint on these rows" : "";
    const every = Math.ceil((last + 1) / 50);
    const rows = curve.grid.map((threshold, i) => [threshold, cellsAt(curve, i), i])
      .filter(([threshold, , i]) => i % every === 0 || i === last || threshold === curve.threshold || threshold === 0.5)
      .map(([threshold, c]) => [brief(threshold), ...[metric.of, precision.of, recall.of].map((of) => decimals(of(c))),
        ...["tp", "fp", "fn", "tn"].map((k) => whole(c[k]))]);
    asTable(place, ["Threshold", metric.title, "Precision", "Recall", "TP", "FP", "FN", "TN"], rows);
  },

  move(curve, at) {
    const c = cellsAt(curve, at), slider = byId("threshold-slider");
    const named = [[metric.title, metric.of(c)], ["precision", precision.of(c)], ["recall", recall.of(c)]];
    slider.value = curve.grid[at];
    const values = named.map(([name, v]) => `${name} ${decimals(v)}`).join(", ");
    const counts = `${whole(c.tp)} found, ${whole(c.fn)} missed, ${whole(c.fp)} false alarms, ${whole(c.tn)} left alone`;
    slider.setAttribute("aria-valuetext", `threshold ${brief(curve.grid[at])}: ${values}; ${counts}`);
    byId("threshold-value").textContent = brief(curve.grid[at]);
    put("matrix", matrixFigure(c, curve.name));
    const pair = ([name, v], k) => html("div", { class: k ? null : "main" },
      html("dt", {}, name), html("dd", {}, decimals(v)));
    put("values", ...named.map(pair));
    figure.move(at);
  },
});

// The place of the best threshold among those that meet the constraint on these rows, or -1.
function bestAt(curve) {
  const bounds = (payload.metric.constraints || []).filter(({ over }) => typeof over !== "number" || over === state.class);
  const met = (c) => bounds.every(({ metric: name, bound, sense }) => {
    const value = metricNamed(name)?.of(c) ?? NaN; // what these counts do not give is not known to be met
    return sense === ">=" ? value >= bound - 1e-9 : value <= bound + 1e-9;
  });
  let best = -1, most = -Infinity;
  curve.grid.forEach((_, i) => {
    const c = cellsAt(curve, i), value = metric.of(c);
    if (Number.isFinite(value) && value > most && met(c)) {
      [best, most] = [i, value];
    }
  });
  return best;
}

// The metric, precision and recall against the threshold, with the tuned one, its plateau and the one in use.
function thresholdFigure(width, curve) {
  const cells = curve.grid.map((_, i) => cellsAt(curve, i));
  const ends = [curve.grid[0], curve.grid.at(-1)];
  const values = cells.map(metric.of).filter(Number.isFinite);
  const now = tunedAt(curve);
  const chart = frame({
    width, height: Math.max(260, Math.min(380, width * 0.55)), xs: ends, ys: [Math.min(0, ...values), Math.max(1, ...values)],
    xTitle: "threshold (score at least)", room: { right: width < 480 ? 12 : 76, top: 16 },
    label: `${metric.title}, precision and recall against the threshold of ${shorten(curve.name, 60)}: ${metric.title} is `
      + `${decimals(metric.of(cells[now]))} at ${brief(curve.grid[now])}; table below`,
  });
  const series = [
    { name: "precision", of: precision.of, line: "dim dash-1" },
    { name: "recall", of: recall.of, line: "dim dash-2" },
    { name: metric.title, of: metric.of, line: "thick s0 stroke", kind: "of-accent" },
  ].filter((s) => s.kind || s.name !== metric.title);
  const lines = series.map((s) => polyline(chart, cells.map((c, i) => [curve.grid[i], s.of(c)]), s.line));
  const [plateau, tuned] = tunedMarks(chart, curve, ends);
  chart.plot.append(...plateau, ...lines);
  if (width >= 480) {
    endLabels(chart, series.map((s) => ({ name: s.name, kind: s.kind, y: chart.y(s.of(cells.at(-1))) })));
  }
  chart.plot.append(...tuned);
  const describe = (i) => [`threshold ${brief(curve.grid[i])}`,
    ...series.map((s) => `${s.name} ${decimals(s.of(cells[i]))}`).reverse(),
    `${whole(cells[i].tp)} found, ${whole(cells[i].fp)} false alarms`];
  return { root: chart.root, box: chart.box, move: handle(chart, curve.grid, (i) => metric.of(cells[i]), describe) };
}

// The shaded thresholds, and the line and the label of the tuned one, as far as they are known.
function tunedMarks({ x, box }, curve, ends) {
  const inside = (v) => x(Math.min(Math.max(v, ends[0]), ends[1]));
  const plateau = [], tuned = [];
  if (curve.plateau) {
    const [low, high] = curve.plateau.map(inside);
    const size = { width: Math.max(1, high - low), height: box.height };
    plateau.push(svg("rect", { class: "plateau", x: low, y: box.top, ...size }));
  }
  if (curve.threshold !== null) {
    const place = inside(curve.threshold), anchor = place > box.left + box.width - 50 ? "end" : "middle";
    tuned.push(svg("line", { class: "tuned", x1: place, x2: place, y1: box.top, y2: box.base }),
      svg("text", { class: "of-accent", x: place, y: box.top - 4, "text-anchor": anchor }, `${curve.ships ? "ships" : "tuned"} ${brief(curve.threshold)}`));
  }
  return [plateau, tuned];
}

// The line that a reader drags; returns the function that moves it.
function handle({ root, plot, x, y, box }, grid, valueAt, describe) {
  const line = svg("line", { class: "now", y1: box.top, y2: box.base });
  const knob = svg("circle", { class: "handle", r: 6 });
  const grab = svg("rect", { class: "grab", x: box.left, y: box.top, width: box.width, height: box.height });
  plot.append(line, knob, grab);
  const under = (event) => {
    const [px] = pointerIn(root, event);
    return nearest(grid, grid[0] + ((px - box.left) / box.width) * (grid.at(-1) - grid[0]));
  };
  hover(grab, (event) => {
    const i = under(event);
    if (event.buttons) {
      moveThreshold(i);
    }
    return describe(i);
  });
  grab.addEventListener("pointerdown", (event) => {
    grab.setPointerCapture(event.pointerId);
    moveThreshold(under(event));
  });
  return (i) => {
    const place = x(grid[i]);
    line.setAttribute("x1", place);
    line.setAttribute("x2", place);
    knob.setAttribute("cx", place);
    knob.setAttribute("cy", y(valueAt(i)));
  };
}

// The 2×2 table at a threshold.
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
  return html("table", { class: "matrix" }, html("caption", {}, "Test rows at this threshold"),
    html("thead", {},
      html("tr", {}, html("td", { class: "corner" }), head("col", `predicted ${yes}`), head("col", "predicted not"))),
    html("tbody", {},
      html("tr", {}, head("row", `truly ${yes}`),
        cell(c.tp, positives, "right", "found"), cell(c.fn, positives, "wrong", "missed")),
      html("tr", {}, head("row", "truly not"),
        cell(c.fp, negatives, "wrong", "false alarms"), cell(c.tn, negatives, "right", "left alone"))));
}
