// A server that keeps its store what its folders are: how far it is, and what it leaves for somebody to decide.

import { hideAlerts, showAlerts } from "./alerts.js";
import { following } from "./api.js";
import { storeChanged } from "./changes.js";
import { byId, h } from "./elements.js";
import { count, lasting, t } from "./language.js";
import { sayStock } from "./list-told.js";

const OFTEN = 2000; // ms between two questions while pictures are indexed
const SELDOM = 15000;
let known = null; // the store as the page knows it
let last = null; // what was told last
let found = null; // pictures that alerts had found when they were shown last
let timer = null;
document.addEventListener("visibilitychange", () => timer && !document.hidden && look());

/** Begins to ask about a store; null = none may be asked about. */
export function follow(store) {
  known = store;
  found = null;
  if (!store) {
    hideAlerts();
    return;
  }
  store.follows = Boolean(last);
  if (!timer) look();
  else if (last) show(); // in the language of now
}

async function look() {
  clearTimeout(timer);
  let now;
  try {
    now = await following();
  } catch (problem) {
    // A server that is away, or busy, comes back.
    if (known && ![401, 403].includes(problem.status)) return again(SELDOM);
  }
  if (!now?.follows || !known) {
    timer = null; // the next question of the page begins anew
    return;
  }
  last = now;
  known.follows = true;
  show();
  if (now.found !== found) showAlerts();
  found = now.found;
  again(now.done < now.total ? OFTEN : SELDOM);
  if (now.pictures === known.pictures) return;
  const first = !known.pictures;
  known.pictures = now.pictures;
  sayStock(now.pictures);
  // The first pictures come into a page that had nothing to show.
  if (first) storeChanged();
}

function again(wait) {
  timer = setTimeout(() => !document.hidden && look(), wait);
}

const show = () => byId("following").replaceChildren(...told(last));

function told(now) {
  const lines = [];
  if (now.done < now.total) {
    const pace = now.rate ? t("indexingPace", { rate: count(Math.round(now.rate)), left: lasting(now.seconds_left) }) : "";
    lines.push([t("indexing", { done: count(now.done), total: count(now.total) }), pace].filter(Boolean).join(", "));
  }
  if (now.away) lines.push([t("foldersAway", { n: now.away }), now.away_folders.join(", ")].filter(Boolean).join(" "));
  if (now.doubted) lines.push(t("picturesDoubted", { n: now.doubted }));
  if (now.trouble) lines.push(t("followTrouble"));
  const bar = now.done < now.total && h("progress", { max: now.total, value: now.done, "aria-label": t("indexingBar") });
  return [...lines.map((line) => h("span", {}, line)), bar].filter(Boolean);
}
