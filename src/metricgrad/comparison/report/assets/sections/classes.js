section("classes", {
  draw(place, { per_class: rows, confusion }) {
    const matrix = payload.data.task === "multiclass" && confusion.length > 0;
    if (!matrix && rows.length <= 2) {
      return false;
    }
    const other = reference && reference !== state.contender ? payload.details[reference].per_class : null;
    byId("classes-note").textContent = `${state.contender}: bars are F1, vertical marks precision, crosses recall`
      + (other ? "; rings are the F1 of cross-entropy." : ".");
    if (rows.length) {
      put("class-chart", classFigure(widthOf("class-chart"), rows, other));
      asTable(place, ["Class", "Precision", "Recall", "F1", "Rows"], rows.map((row) =>
        [row.name, ...["precision", "recall", "f1"].map((k) => decimals(row[k])), whole(row.support)]));
    }
    byId("confusion").hidden = !matrix;
    if (matrix) {
      put("confusion-table", heatFigure(confusion, payload.data.classes));
    }
    return true;
  },
});

// F1 of every class as a bar, precision and recall as marks, the other contender's F1 as a ring.
function classFigure(width, rows, other) {
  const left = Math.min(190, width * 0.34), step = 24;
  const worst = rows.reduce((a, b) => (b.f1 < a.f1 ? b : a));
  const chart = frame({
    width, height: rows.length * step + 50, xs: [0, 1], ys: [rows.length, 0], yTicks: false,
    room: { left, top: 4, right: 16 },
    label: `Precision, recall and F1 of ${rows.length} classes, the lowest F1 ${decimals(worst.f1)} of `
      + `${shorten(worst.name, 60)}; table below`,
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
