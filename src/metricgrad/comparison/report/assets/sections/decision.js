section("decision", {
  draw(place, { decision }) {
    if (!decision) {
      return false;
    }
    const { ships, classes } = decision, tuned = classes.some(({ offset }) => offset !== null);
    const who = ships ? "The shipped model" : `${shorten(state.contender, 60)}, in each split,`;
    byId("decision-note").textContent = tuned
      ? `${who} multiplies the score of each class by its factor and predicts the class with the largest product. The `
        + `logarithm of the factor is the offset of the class${ships ? "" : ", here its median over the splits"}.`
      : `${who} predicts the class with the largest score; no class has an offset.`;
    const factor = ({ offset }) => (offset === null ? [] : [`× ${brief(Math.exp(offset))}`, signed(offset)]);
    put("decision-table", table("plain", ["Class", ...(tuned ? ["Factor", "Offset"] : []), "Rows", "Predicted"],
      classes.map((one) => [shorten(one.name, 60), ...factor(one), whole(one.rows), whole(one.predicted)])));
    return true;
  },
});

const signed = (x) => (x > 0 ? "+" : "") + decimals(x);
