const near = () => (onPhone() ? 2 : 3); // mistakes that are in view

section("mistakes", {
  draw(place, { errors }) {
    if (!errors.length) {
      return false;
    }
    const rest = errors.slice(near());
    put("mistake-table", list(errors.slice(0, near())),
      rest.length ? html("details", {}, html("summary", {}, `${rest.length} more`), list(rest)) : "");
    return true;
  },
});

const list = (some) => table("plain mistakes", ["Row", "True", "Predicted", "Score", "What the row says"],
  some.map((e) => [whole(e.row), shorten(e.truth, 60), shorten(e.decided, 60), decimals(e.score), cells(e.cells)]));

function cells(pairs) {
  // Numbers of many digits are shown with five.
  const long = /^-?\d+\.\d{6,}(e[-+]?\d+)?$/;
  const text = (value) => (long.test(value) ? String(Number(Number(value).toPrecision(5))) : shorten(value, 160));
  return html("div", { class: "cells" }, html("dl", {}, pairs.map(([column, value]) => html("div", {},
    html("dt", {}, shorten(column, 40)), html("dd", { class: "clamp" }, text(value))))));
}
