const mostBars = () => (onPhone() ? 8 : 12); // the table has the others

section("importance", {
  draw(place) {
    const found = payload.importance ?? [], dependence = payload.study.dependence ?? [];
    if (!found.length) {
      return false;
    }
    byId("importance-caption").textContent = `${metric.title} that ${shorten(payload.verdict.ship, 60)} loses under its rule `
      + "when a column is shuffled among the test rows: mean over the splits, and its interval. Columns that say the "
      + "same share their importance.";
    put("importance-chart", importanceFigure(widthOf("importance-chart"), found.slice(0, mostBars())));
    asTable(place, ["Column", "Lost", "95 % interval"], found.map(({ column, drop, low, high }) =>
      [shorten(column, 60), signed(drop), low === null ? "" : `${signed(low)} to ${signed(high)}`]));
    byId("dependence").hidden = !dependence.length;
    if (dependence.length) {
      const name = shorten(curveOf(state.contender).name, 60);
      byId("dependence-note").textContent = `If a column had the same value in all rows, and all else stayed as it is: `
        + `the line is the mean score of ${name}, dots are the share of rows predicted as ${name} by the rule. `
        + "Of the shipped model, on rows that it was not trained on.";
      const parts = dependence.map((each) => [each, html("figure", {}, html("figcaption", {}, shorten(each.column, 60)))]);
      put("dependence-charts", ...parts.map(([, figure]) => figure));
      for (const [each, figure] of parts) {
        figure.append(dependenceFigure(Math.max(200, figure.clientWidth), each));
      }
    }
    return true;
  },
});

const signed = (x) => (x > 0 ? "+" : "") + decimals(x);

// A bar for each column, with its interval; the axis holds all of both.
function importanceFigure(width, found) {
  const left = Math.min(220, width * 0.38), step = 24;
  const high = Math.max(...found.map((one) => Math.max(one.drop, one.high ?? one.drop)), 1e-6);
  const low = Math.min(...found.map((one) => Math.min(one.drop, one.low ?? one.drop)), 0);
  const chart = frame({
    width, height: found.length * step + 50, xs: [low, high], ys: [found.length, 0], yTicks: false,
    xTitle: `lost ${metric.title}`, room: { left, top: 4, right: 16 },
    label: `Importance of ${found.length} columns with intervals, the largest ${signed(found[0].drop)} of `
      + `${shorten(found[0].column, 60)}; table below`,
  });
  const { x, y, plot, box } = chart;
  found.forEach((one, i) => {
    const middle = y(i + 0.5), ends = [x(0), x(one.drop)].sort((a, b) => a - b);
    const group = svg("g", {},
      svg("text", { class: "strong", x: left - 8, y: middle + 4, "text-anchor": "end" },
        shorten(one.column, Math.floor(left / 8.2))),
      svg("rect", { class: "fill s0", x: ends[0], y: middle - 6, width: Math.max(0.5, ends[1] - ends[0]), height: 12 }),
      one.low === null ? null : svg("line", { class: "now", x1: x(one.low), x2: x(one.high), y1: middle, y2: middle }),
      svg("rect", { class: "cover", x: 0, y: middle - step / 2, width, height: step }));
    hover(group, () => [shorten(one.column, 80), `lost ${signed(one.drop)}`,
      ...(one.low === null ? [] : [`95 % interval ${signed(one.low)} to ${signed(one.high)}`])]);
    plot.append(group);
  });
  plot.append(svg("line", { class: "axis", x1: x(0), x2: x(0), y1: box.top, y2: box.base }));
  return chart.root;
}

// The mean score (line) and the share predicted as the class (dots) against the values of a column.
function dependenceFigure(width, { column, names, numbers, scores, shares }) {
  const score = scores[state.class] ?? scores[0], share = shares[state.class] ?? shares[0];
  const all = [...score, ...share], ordered = numbers.length > 0;
  const at = ordered ? numbers : names.map((_, i) => i);
  const room = ordered ? { left: 44 } : { left: 44, bottom: 62 };
  const pad = ordered ? 0 : 0.5;
  const chart = frame({
    width, height: 190, xs: [at[0] - pad, at.at(-1) + pad], ys: [Math.min(0, ...all), Math.max(...all) * 1.08 || 1],
    room, xTicks: ordered, label: `Mean score and share predicted by ${shorten(column, 60)}`,
  });
  const { plot, x, y, box } = chart;
  if (ordered) {
    plot.append(polyline(chart, at.map((v, i) => [v, score[i]]), "thick s0 stroke"));
  } else {
    at.forEach((v, i) => {
      const wide = Math.max(2, Math.min(26, box.width / at.length - 4));
      plot.append(
        svg("rect", { class: "fill s0 pale", x: x(v) - wide / 2, y: y(Math.max(score[i], 0)), width: wide, height: Math.abs(y(score[i]) - y(0)) }),
        svg("text", { class: "tilted", transform: `translate(${x(v) + 4} ${box.base + 10}) rotate(-38)`, "text-anchor": "end" },
          shorten(names[i], 9)));
    });
  }
  at.forEach((v, i) => plot.append(svg("circle", { class: "handle-dot", cx: x(v), cy: y(share[i]), r: 3.2 })));
  hover(chart.root, (event) => {
    const [px] = pointerIn(chart.root, event), i = nearest(at.map(x), px);
    return [shorten(names[i], 80), `mean score ${decimals(score[i])}`, `predicted in ${percent(share[i])} of rows`];
  });
  return chart.root;
}
