const FIRST_ON_A_PHONE = 3; // rows that are shown at first

section("leaderboard", {
  start(place) {
    const board = place.querySelector(".leaderboard"), body = board.tBodies[0], all = byId("all-rows");
    const top = Math.min(body.querySelectorAll("tr:not(.extra)").length, onPhone() ? FIRST_ON_A_PHONE : Infinity);
    const firstRows = () => {
      const rows = [...body.rows].filter((row) => !row.classList.contains("filtered"));
      rows.forEach((row, i) => row.classList.toggle("extra", i >= top));
      all.hidden = rows.length <= top;
      all.textContent = board.classList.contains("all") ? `Show the first ${top}` : `Show all ${rows.length}`;
    };
    sortable(board, firstRows);
    filters(place, body, firstRows);
    all.addEventListener("click", () => {
      all.setAttribute("aria-expanded", board.classList.toggle("all"));
      firstRows();
    });
    firstRows();
  },
});

function sortable(board, sorted) {
  const body = board.tBodies[0];
  for (const head of board.querySelectorAll("th[data-key]")) {
    const column = head.cellIndex;
    const key = (row) => row.cells[column].dataset.sort;
    const compare = (a, b) => (Number.isNaN(Number(a)) ? a.localeCompare(b) : a - b);
    head.replaceChildren(html("button", {
      type: "button",
      onclick: () => {
        const now = head.getAttribute("aria-sort");
        const next = now ? (now === "ascending" ? "descending" : "ascending") : head.dataset.first;
        board.querySelectorAll("[aria-sort]").forEach((old) => old.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        // What is not known comes last either way.
        const order = (a, b) => (a === "") - (b === "") || sign * compare(a, b);
        body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
        sorted();
      },
    }, head.textContent));
  }
  board.querySelector('th[data-key="value"]').setAttribute("aria-sort", "descending");
}

function filters(place, body, filtered) {
  const buttons = place.querySelectorAll("[data-filter]");
  buttons.forEach((button) => button.addEventListener("click", () => {
    buttons.forEach((other) => other.setAttribute("aria-pressed", other === button));
    const wanted = button.dataset.filter;
    [...body.rows].forEach((row) => row.classList.toggle("filtered", Boolean(wanted) && row.dataset.rule !== wanted));
    filtered();
  }));
}
