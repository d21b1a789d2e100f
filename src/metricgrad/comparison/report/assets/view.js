// What the page shows, and the sections that show it. Scripts of sections come after this one, report.js starts it all.
const payload = JSON.parse(byId("payload").textContent);
const metric = metricNamed(payload.metric.name) ?? metricNamed("f1");
const precision = metricNamed("precision"), recall = metricNamed("recall");
const SLOTS = 7; // colours beside the accent; the last one is for all that have none of their own

const places = new Map(); // contender -> its place in the leaderboard
payload.leaderboard.forEach((row) => places.has(row.contender) || places.set(row.contender, places.size));
const drawable = Object.keys(payload.details).filter((name) => payload.details[name].classes.length > 0);
const contenders = drawable.sort((a, b) => (places.get(a) ?? Infinity) - (places.get(b) ?? Infinity));
const ship = contenders.includes(payload.verdict.ship) ? payload.verdict.ship : contenders[0];
const reference = contenders.find((name) => name === "cross-entropy");

// `at` is the place of the threshold in use among those of the curve.
const state = { contender: ship, class: 0, at: 0, shown: new Set(), slots: new Map() };
// One of several classes is chosen by the largest score, with offsets or without: there are no thresholds.
const hasThresholds = payload.data.task !== "multiclass";
const curveOf = (name) => payload.details[name].classes[state.class];
const tunedAt = (curve) => nearest(curve.grid, curve.threshold ?? 0.5);

// Switch a contender on or off. The one to ship has the accent; others get a free colour, or the last.
function show(name, on) {
  if (!on) {
    state.shown.delete(name);
    state.slots.delete(name);
    return;
  }
  const taken = new Set(state.slots.values());
  const free = Array.from({ length: SLOTS - 1 }, (_, i) => i + 1).find((slot) => !taken.has(slot));
  state.shown.add(name);
  state.slots.set(name, name === ship ? 0 : free ?? SLOTS);
}
const slotOf = (name) => state.slots.get(name) ?? (name === ship ? 0 : SLOTS);
const shown = () => contenders.filter((name) => state.shown.has(name));

// The script of a section calls this once, with what the section needs of:
//   start(place)          called once, before anything is drawn
//   draw(place, details)  fills the section for the chosen contender, whose details are given, and class; returns false
//                         if there is nothing to show, and the section is hidden
//   compares: true        it draws all contenders that are shown(), so draw is called when one is switched on or off
//   alone: true           it draws payload.study, whichever contender is chosen, and also if there is none
//   move(curve, at)       the reader moved the threshold to curve.grid[at]; also called after draw
const sections = new Map();
function section(name, parts) {
  sections.set(name, { ...parts, place: byId(name) });
}

// Shows or hides a section, and its line of the contents.
function showPlace(place, shown) {
  place.hidden = !shown;
  document.querySelector(`#contents a[href="#${place.id}"]`)?.closest("li").toggleAttribute("hidden", !shown);
}

// What is wider or higher than its place can be scrolled with the keyboard as well.
function letKeysScroll() {
  for (const place of document.querySelectorAll(".scroll")) {
    const wide = place.scrollWidth > place.clientWidth || place.scrollHeight > place.clientHeight;
    const attributes = { tabindex: 0, role: "group", "aria-label": place.querySelector("caption")?.textContent ?? "Table" };
    for (const [name, value] of Object.entries(attributes)) {
      if (wide) {
        place.setAttribute(name, value);
      } else {
        place.removeAttribute(name);
      }
    }
  }
}

function redraw(wanted = () => true) {
  for (const part of sections.values()) {
    if (part.draw && (contenders.length || part.alone) && wanted(part)) {
      part.place.hidden = false; // what is hidden has no width
      showPlace(part.place, part.draw(part.place, payload.details[state.contender]) !== false);
    }
  }
  if (contenders.length) {
    moveThreshold(state.at);
  }
  letKeysScroll();
}
const redrawCompared = () => redraw((part) => part.compares);

function moveThreshold(at) {
  state.at = at;
  sections.forEach((part) => part.move?.(curveOf(state.contender), at));
}

// Fewer rows are in view at first on a phone.
const onPhone = () => matchMedia("(max-width: 30rem)").matches;
const put = (id, ...children) => byId(id).replaceChildren(...children);
const widthOf = (id) => Math.max(240, Math.floor(byId(id).clientWidth));
// Fills the folded table of a section.
const asTable = (place, heads, rows) => place.querySelector(".data .scroll").replaceChildren(table("plain", heads, rows));
