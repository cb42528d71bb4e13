// Adding and deleting pictures, where the server and the token allow it.

import { add, patiently, remove } from "./api.js";
import { byId, h } from "./elements.js";
import { base64 } from "./given-picture.js";
import { t } from "./language.js";

const MOST_NAMED = 5; // of the files that were refused
let doing = {};
let may = {}; // the store, as /v1/info and /v1/following have it
let asking = null;

/** `onChanged()` after the store has changed; `onProblem(problem)` says whether it saw to it. */
export function startChanges(handlers) {
  doing = handlers;
  byId("add-file").addEventListener("change", (event) => {
    const files = [...event.target.files];
    event.target.value = "";
    if (files.length) addAll(files);
  });
}

/** Shows the store anew, which something else has changed. */
export const storeChanged = () => doing.onChanged();

/** Offers what `store`, as /v1/info has it, lets this token do; null = nothing. */
export function offerChanges(store) {
  may = store ?? {};
  byId("add").hidden = !may.adds;
  if (store) return;
  asking?.abort();
  tell();
}

const tell = (...lines) => byId("changed").replaceChildren(...lines.map((line) => h("span", { dir: "auto" }, line)));

/** What became of files is said until the next search. */
export const endTold = () => asking || tell();

/** One after the other: the server changes its store in one thread. A file that is refused keeps no other one out. */
async function addAll(files) {
  asking?.abort();
  const { signal } = (asking = new AbortController());
  const refused = [];
  let added = 0;
  try {
    for (const [place, file] of files.entries()) {
      tell(t("adding", { place: place + 1, all: files.length }));
      try {
        const body = { name: file.name.slice(-200), image: await base64(file) };
        await patiently(() => add(body, signal), signal);
        added += 1;
      } catch (problem) {
        if (problem.name === "AbortError" || doing.onProblem(problem)) return tell();
        const why = String(problem.detail || problem.message).replace(`${file.name}: `, "");
        refused.push(t("notAdded", { name: file.name, why }));
        if (problem.status === 0) break; // it would be the same for all
      }
    }
  } finally {
    if (asking?.signal === signal) asking = null;
    if (added) doing.onChanged();
  }
  const more = refused.length - MOST_NAMED;
  tell(t("added", { n: added }), ...refused.slice(0, MOST_NAMED), ...(more > 0 ? [t("moreNotAdded", { n: more })] : []));
}

/** The button that deletes a picture, which asks once; nothing where the token may not. */
export function deletion(hit) {
  if (!may.changes) return [];
  const place = h("span", { class: "deletion" });
  const button = (key, onclick, kind = null) => h("button", { type: "button", class: kind, onclick }, t(key));
  const first = button("delete", () => {
    const keep = button("keep", () => {
      place.replaceChildren(first);
      first.focus();
    });
    place.replaceChildren(h("span", { class: "hint", role: "alert" }, t(may.follows ? "deleteAskedFollowed" : "deleteAsked")), button("delete", gone, "danger"), keep);
    keep.focus();
  });
  async function gone() {
    let back;
    try {
      back = await patiently(() => remove(hit.id));
    } catch (problem) {
      if (!doing.onProblem(problem)) place.replaceChildren(h("span", { class: "hint wrong", role: "alert" }, problem.detail || problem.message), first);
      return;
    }
    doing.onChanged();
    tell(t("deleted", { picture: hit.name }), ...(back.returning ? [t("comesBack")] : []));
  }
  place.append(first);
  return [place];
}
