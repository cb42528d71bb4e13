// Where one is in the list: the card at the top of the window, kept in the address and found again from there.

import { byId } from "./elements.js";

const AHEAD = 700; // pixels below the window from which the next part is asked for
const AUTOMATIC = 4; // parts that scrolling brings before the button is asked for: what is below stays reachable
const GAP = 12; // pixels above a card that a link leads to
const REST = 250; // ms without scrolling after which the place is kept

const grid = byId("grid");
let doing = {};
let parts = 0;
let height = 0; // how far the window was scrolled
let resting = null;
let found = null; // the place that was gone back to, until somebody moves: the layout may still change

/** `onEnd()` when the end of the list comes near by scrolling, `onRest()` when the scrolling has stopped. */
export function startPlace(handlers) {
  doing = handlers;
  history.scrollRestoration = "manual"; // the browser would go there before the list is
  window.addEventListener("scroll", scrolled, { passive: true });
  for (const name of ["wheel", "touchmove", "keydown", "pointerdown"])
    window.addEventListener(name, () => (found = null), { capture: true, passive: true });
}

/** A list begins: scrolling brings its next parts by itself. */
export const beginParts = () => (parts = 0);

function scrolled() {
  clearTimeout(resting);
  resting = setTimeout(doing.onRest, REST);
  if (found && Math.abs(topOf(found.at) - found.y) > 4) found = null; // by a scroll bar
  const onwards = scrollY > height;
  height = scrollY;
  const more = byId("more");
  // Somebody at the button or below it must not see it run away.
  const below = document.activeElement === more || document.activeElement?.closest("footer");
  if (!onwards || more.hidden || below || parts >= AUTOMATIC) return;
  if (more.getBoundingClientRect().top > innerHeight + AHEAD) return;
  if (doing.onEnd()) parts += 1;
}

const topOf = (id) => cards().find((card) => card.dataset.id === id)?.getBoundingClientRect().top ?? NaN;
const cards = () => [...grid.querySelectorAll("li[data-id]")];

/** The first card that is in the window, as {at, y, focus}; nothing where the list begins below the window's top. */
export function placeNow() {
  if (found) return found;
  const held = document.activeElement?.closest("#grid li[data-id]")?.dataset.id ?? "";
  if (grid.getBoundingClientRect().top >= 0) return { at: "", y: 0, focus: held };
  const first = cards().find((card) => card.getBoundingClientRect().bottom > 0);
  return { at: first?.dataset.id ?? "", y: first ? Math.round(first.getBoundingClientRect().top) : 0, focus: held };
}

/** Goes back to a place, and stays there while the layout changes. */
export function findPlace({ at, y, focus = "" }) {
  found = showPlace({ at, y }) ? { at, y: y ?? GAP, focus } : null;
  return found !== null;
}

/** Scrolls so that this card is there again, `y` pixels below the window's top. */
function showPlace({ at, y = GAP }) {
  const card = at && cards().find((one) => one.dataset.id === at);
  if (card) window.scrollBy({ top: card.getBoundingClientRect().top - y, behavior: "instant" });
  return Boolean(card);
}

/** To the first results, if one is below them. */
export function showStart() {
  if (byId("results").getBoundingClientRect().top < 0) window.scrollTo({ top: 0, behavior: "instant" });
}

/** Changes the layout without moving what is seen. */
export function inPlace(change) {
  const { at, y } = placeNow();
  change();
  if (at) showPlace({ at, y });
}
