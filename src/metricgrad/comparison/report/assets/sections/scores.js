section("scores", {
  compares: true,

  draw(place) {
    const parts = shown().map((name) => {
      const pair = html("div", { class: "pair" });
      return { name, pair, figure: html("figure", {}, html("figcaption", {}, name), pair) };
    });
    put("score-charts", ...parts.map((part) => part.figure));
    for (const { name, pair } of parts) {
      const curve = curveOf(name), total = pair.clientWidth;
      const beside = getComputedStyle(pair).gridTemplateColumns.includes(" "); // one below the other on a phone
      const part = (share) => (beside ? (total - 16) * share : total);
      pair.append(histogram(Math.max(160, Math.floor(part(0.59))), curve, slotOf(name)));
      if (curve.calibration.length) {
        pair.append(calibration(Math.max(110, Math.floor(part(0.405))), curve, slotOf(name)));
      }
    }
    const bins = (name) => curveOf(name).calibration
      .map(([score, share, rows]) => [name, decimals(score), decimals(share), whole(rows)]);
    asTable(place, ["Contender", "Score", "Observed share", "Rows"], shown().flatMap(bins));
  },
});

// Scores of the class (up) and of the rest (down), each with a height of its own: a rare class still shows its shape.
function histogram(width, curve, slot) {
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
      hover(bar, () => [`score ${brief(edges[i])} to ${brief(edges[i + 1])}`, `${whole(count)} rows of ${what}`]);
      plot.append(bar);
    });
  }
  plot.append(svg("line", { class: "axis", x1: x(edges[0]), x2: x(edges.at(-1)), y1: y(0), y2: y(0) }));
  const { threshold } = curve;
  if (threshold !== null && threshold >= edges[0] && threshold <= edges.at(-1)) {
    plot.append(svg("line", { class: "now", x1: x(threshold), x2: x(threshold), y1: y(1), y2: y(-1) }));
  }
  return chart.root;
}

// The observed share against the score; the area of a dot is its share of the rows.
function calibration(width, curve, slot) {
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
    hover(dot, () => [`score ${decimals(score)}`, `observed share ${decimals(share)}`, `${whole(rows)} rows`]);
    plot.append(dot);
  }
  return chart.root;
}
