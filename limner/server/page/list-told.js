// What the page tells about a list: how many results there are, and what can be done with it.

import { isFiltered, keptPicture, lists } from "./address.js";
import { offerAlert } from "./alerts.js";
import { byId } from "./elements.js";
import { follow } from "./following.js";
import { t } from "./language.js";
import { LAST_OFFSET, PART } from "./list.js";
import { setQuestion } from "./results.js";

export const sayStock = (number) => (byId("stock").textContent = t("pictures", { n: number }));

/** The store that is searched in; null = none. */
export function sayStore(store) {
  if (store) sayStock(store.pictures);
  else byId("stock").textContent = "";
  const model = store?.model;
  byId("model").textContent = [model?.system, model?.fingerprint?.slice(0, 8)].filter(Boolean).join(" · ");
  byId("refine").hidden = !store?.pictures;
  setQuestion(store?.question);
  follow(store);
}

/** How many results there are: said each time that there are more. */
export function sayList({ hits, matching, total, complete }, asked, body, store) {
  const number = hits.length;
  const left = Object.keys(body.marks ?? {}).length;
  const key = lists(asked) ? "newestPassing" : isFiltered(asked) ? "bestPassing" : "bestOf";
  const best = t(key, { n: matching, best: number, total });
  // Only where a reranker has ordered this answer, or would have: not for marks and pictures.
  const alone = asked.text && !asked.like && !keptPicture(asked.picture) && !left;
  const plain = alone && asked.plain && store.reranks;
  const each = hits.some((hit) => hit.probability != null) && t(store.question === "fits" ? "eachFits" : "eachDescribed");
  const told = [best, left && t("byMarks", { n: left }), plain && t("notReranked"), each].filter(Boolean).join(", ");
  byId("status").textContent = number ? told : t("noResults");
  byId("embedding-order").hidden = !plain && !hits.some((hit) => hit.confidence != null);
  byId("more").hidden = complete || !number;
  // Not for groups, either: those have no rank of before.
  byId("ranks").hidden = !hits.some((hit) => hit.rank_before != null);
  byId("list-end").hidden = !complete || number <= PART;
  offerAlert(asked, hits);
  byId("list-end").textContent = t(number > LAST_OFFSET ? "listMost" : "listEnd", { n: number });
}

export function hideList() {
  byId("status").textContent = "";
  offerAlert(null);
  byId("terms").replaceChildren();
  for (const id of ["more", "list-end", "ranks", "embedding-order"]) byId(id).hidden = true;
}

/** How the list is shown: by the filters alone, with the ranks of before re-ranking, in the order of the embeddings. */
export function sayChoices(state) {
  const { ranks, plain } = state;
  document.body.toggleAttribute("data-listed", lists(state));
  byId("ranks").setAttribute("aria-pressed", ranks);
  byId("embedding-order").setAttribute("aria-pressed", plain);
}

/** Whether the next part of the list is awaited. */
export function sayAwaited(awaited) {
  for (const [id, name] of [
    ["results", "aria-busy"],
    ["more", "aria-disabled"],
  ])
    if (awaited) byId(id).setAttribute(name, "true");
    else byId(id).removeAttribute(name);
}
