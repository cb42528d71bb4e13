// Alerts: searches that tell of new pictures, and the newest that each has found.

import { keptPicture } from "./address.js";
import { alerts, removeAlert, saveAlert, showPicture } from "./api.js";
import { byId, h } from "./elements.js";
import { decimal, t } from "./language.js";

const GLIMPSES = 6; // of the newest pictures of each
const LONGEST = 60; // letters of a name that the server takes
let mayChange = false;
let offered = ""; // the search that is offered to be saved

/** Shows the alerts of the store as they are now. */
export async function showAlerts() {
  let known;
  try {
    known = await alerts();
  } catch {
    return; // the next look at the folders asks again
  }
  mayChange = known.may_change;
  byId("alert-offer").hidden = !mayChange || !offered;
  const found = known.alerts.reduce((sum, one) => sum + one.found, 0);
  const told = [t("alerts", { n: known.alerts.length }), found > 0 && t("alertsFound", { n: found })].filter(Boolean);
  byId("alerts").hidden = !known.alerts.length;
  byId("alerts").querySelector("summary").textContent = told.join(", ");
  byId("alerts").querySelector("ul").replaceChildren(...known.alerts.map(row));
}

/** Nothing of the alerts stays on the page. */
export function hideAlerts() {
  mayChange = false;
  byId("alerts").hidden = true;
  byId("alerts").querySelector("ul").replaceChildren();
  offerAlert(null);
}

function row(one) {
  const asked = new URLSearchParams({ q: one.text });
  for (const condition of one.where) asked.append("where", condition);
  const level = t(one.by === "probability" ? "alertByProbability" : "alertByScore", { level: decimal(one.at_least, 2) });
  const gone = async () => {
    await removeAlert(one.name).catch(() => {});
    await showAlerts();
    byId("alerts").querySelector("summary").focus();
  };
  return h(
    "li",
    {},
    h("a", { href: `#${asked}`, dir: "auto" }, one.name),
    h("span", { class: "hint", dir: "auto" }, [one.text, ...one.where, level].join(" · ")),
    h("span", { class: "hint" }, t("alertsFound", { n: one.found })),
    h("span", { class: "first" }, one.hits.slice(0, GLIMPSES).map((hit) => glimpse(hit, asked))),
    mayChange && h("button", { type: "button", class: "quiet", "aria-label": t("alertRemove", { name: one.name }), onclick: gone }, t("delete")),
  );
}

function glimpse(hit, asked) {
  const image = h("img", { alt: hit.name });
  showPicture(image, "thumbnails", hit.id);
  const open = new URLSearchParams(asked);
  open.set("open", hit.id);
  return h("a", { href: `#${open}` }, image);
}

/** Offers to save a search by words, with these hits; null = nothing. */
export function offerAlert(asked, hits = []) {
  const plain = asked?.text && !asked.like && !keptPicture(asked.picture) && !asked.marked && !asked.literal;
  // What an alert does not know would be left out of it.
  const saves = plain && !asked.after && !asked.before;
  const now = saves ? JSON.stringify([asked.text, asked.where]) : "";
  if (now === offered) return;
  offered = now;
  byId("alert-offer").hidden = !mayChange || !saves;
  if (saves) byId("alert-offer").replaceChildren(button(asked, hits));
  else byId("alert-offer").replaceChildren();
}

const button = (asked, hits) =>
  h("button", { type: "button", class: "quiet", onclick: () => openForm(asked, hits) }, t("alertOffer"));

function openForm(asked, hits) {
  const [best] = hits;
  const byProbability = best?.probability != null;
  // What the fifth picture has: a cosine says little by itself.
  const level = byProbability ? 0.5 : Math.max(0, Math.floor(100 * (hits[Math.min(4, hits.length - 1)]?.score ?? 0)) / 100);
  const name = h("input", { type: "text", name: "name", required: true, maxlength: LONGEST, dir: "auto", value: nameOf(asked.text) });
  const least = h("input", { type: "number", name: "least", required: true, min: 0, max: 1, step: 0.01, value: level });
  const told = h("p", { class: "hint", role: "status", tabindex: -1 });
  const back = () => {
    byId("alert-offer").replaceChildren(button(asked, hits));
    byId("alert-offer").querySelector("button").focus();
  };
  const save = async (event) => {
    event.preventDefault();
    try {
      const saved = await saveAlert({ name: name.value.trim(), text: asked.text, where: asked.where, at_least: Number(least.value) });
      form.replaceChildren(told);
      told.classList.remove("wrong");
      told.textContent = t("alertSaved", { n: saved.fits });
      told.focus();
      showAlerts();
    } catch (problem) {
      told.textContent = problem.errors?.length ? problem.errors.map(({ msg }) => msg).join("; ") : problem.detail || problem.message;
      told.classList.add("wrong");
    }
  };
  const form = h(
    "form",
    { onsubmit: save, onkeydown: (event) => event.key === "Escape" && (event.stopPropagation(), back()) },
    h("label", {}, h("span", {}, t("name")), name),
    h("label", {}, h("span", {}, t(byProbability ? "alertLeastProbability" : "alertLeastScore")), least),
    h("button", { type: "submit" }, t("alertSave")),
    h("button", { type: "button", class: "quiet", onclick: back }, t("close")),
    told,
  );
  byId("alert-offer").replaceChildren(form);
  name.select();
}

/** What the server takes as a name of these words. */
const nameOf = (text) =>
  text
    .replace(/[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc} .-]+/gu, " ")
    .replace(/\s+/g, " ")
    .replace(/^[ ._-]+/, "")
    .slice(0, LONGEST)
    .trim();
