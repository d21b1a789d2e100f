let chosen = 0; // the column that the reader chose

section("segments", {
  alone: true,

  start(place) {
    const found = payload.study.segments ?? [], select = byId("segment-column");
    select.append(...found.map((each, i) => html("option", { value: i }, shorten(each.column, 60))));
    select.addEventListener("change", () => {
      chosen = select.selectedIndex;
      draw(place);
    });
  },

  draw,
});

function draw(place) {
  const found = payload.study.segments ?? [];
  if (!found.length) {
    return false;
  }
  const { column, segments } = found[chosen];
  put("segment-chart", segmentFigure(widthOf("segment-chart"), column, segments));
  asTable(place, ["Segment", title(), "95 % interval", "Rows"], segments.map((one) =>
    [one.name, one.value === null ? "too few rows" : decimals(one.value),
      one.low === null ? "" : `${decimals(one.low)} to ${decimals(one.high)}`, whole(one.rows)]));
  return true;
}

// The metric of the run, which need not be one that the page can compute.
const title = () => metricNamed(payload.metric.name)?.title ?? payload.metric.name;

// A dot with its interval for each segment; the dashed line is the value of all rows.
function segmentFigure(width, column, segments) {
  const known = segments.filter((one) => one.value !== null);
  const left = Math.min(220, width * 0.38), step = 26, all = payload.study.segments_all;
  const ends = known.flatMap((one) => [one.value, one.low ?? one.value, one.high ?? one.value]).concat(all ?? []);
  const low = Math.min(...ends, 1), high = Math.max(...ends, low), pad = (high - low) * 0.06 || 0.05;
  const chart = frame({
    width, height: Math.max(1, known.length) * step + 50, xs: [low - pad, high + pad], ys: [Math.max(1, known.length), 0],
    yTicks: false, xTitle: title(), room: { left, top: 4, right: 16 },
    label: `${title()} of the test rows by ${shorten(column, 60)}, the worst first`
      + (known.length ? `: ${decimals(known[0].value)} of ${shorten(known[0].name, 60)}` : "") + "; table below",
  });
  const { x, y, plot, box } = chart;
  for (const v of ticks(low - pad, high + pad, width < 480 ? 2 : 5)) {
    plot.append(svg("line", { class: "grid", x1: x(v), x2: x(v), y1: box.top, y2: box.base }));
  }
  if (all !== null && all !== undefined) {
    plot.append(svg("line", { class: "axis dash-1", x1: x(all), x2: x(all), y1: box.top, y2: box.base }));
  }
  known.forEach((one, i) => {
    const middle = y(i + 0.5), lines = [`${title()} ${decimals(one.value)}`];
    if (one.low !== null) {
      lines.push(`95 % interval ${decimals(one.low)} to ${decimals(one.high)}`);
    }
    const group = svg("g", {},
      svg("text", { class: "strong", x: left - 8, y: middle + 4, "text-anchor": "end" },
        shorten(one.name, Math.floor(left / 8.2))),
      one.low === null ? null : svg("line", { class: "now", x1: x(one.low), x2: x(one.high), y1: middle, y2: middle }),
      svg("circle", { class: "fill s0", cx: x(one.value), cy: middle, r: 5 }),
      svg("rect", { class: "cover", x: 0, y: middle - step / 2, width, height: step }));
    hover(group, () => [shorten(one.name, 80), ...lines, `${whole(one.rows)} rows`]);
    plot.append(group);
  });
  return chart.root;
}
