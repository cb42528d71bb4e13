// The list of one search, part by part: all parts are of one state of the store, so that none is there twice or missing.

import { items, search } from "./api.js";

export const PART = 20; // pictures that are asked for at once
export const LAST_OFFSET = 10_000; // beyond it the server has no parts
const MOST_AT_FIRST = 1000; // of what an address asks for
const MOST_LISTED = 500; // that the server lists at once
const TRIES = 3; // beside somebody who changes the store all the while

/** The first `wanted` hits of a search: an answer, `complete` if there are no further hits. `store`: as /v1/info has it. */
export async function firstHits(body, wanted, store, signal) {
  const k = Math.min(wanted, store.max_k);
  const first = await ask({ ...body, k }, store, signal);
  return goOn({ ...first, complete: isLast(first, k) }, body, Math.min(wanted, MOST_AT_FIRST), store, signal);
}

/** Filters alone list the pictures that pass them, the newest first. */
async function ask(body, store, signal) {
  if (body.text || body.image || body.like) return search(body, signal);
  const { where, after, before, k, offset = 0 } = body;
  const limits = [after && `taken>=${after}`, before && `taken<${before}`].filter(Boolean);
  const { items: hits, total, absent } = await items(offset, Math.min(k, MOST_LISTED), [...where, ...limits], signal, true);
  const left_out = Math.min(k, Math.max(0, total - offset)) - hits.length;
  // This route says no state of the store: how many pictures pass has to do.
  return { hits, matching: total, total: store.pictures, absent, left_out, snapshot: total };
}

/**
 * The same answer with `wanted` hits. Where the store has changed since, all parts are asked for again; the answer is
 * `renewed` then. With an offset, 0 too, the server ranks exactly, so that the parts of a large store fit together.
 */
export async function goOn(answer, body, wanted, store, signal) {
  let found = { ...answer, renewed: false };
  let tries = TRIES;
  while (found.hits.length < wanted && !found.complete) {
    const offset = found.hits.length;
    const k = Math.min(store.max_k, wanted - offset);
    const part = await ask({ ...body, k, offset }, store, signal);
    const known = new Set(found.hits.map((hit) => hit.id));
    const fresh = part.hits.filter((hit) => !known.has(hit.id));
    if ((part.snapshot !== found.snapshot || fresh.length < part.hits.length) && tries > 0) {
      tries -= 1;
      const again = Math.min(wanted, store.max_k);
      const first = await ask({ ...body, k: again, offset: 0 }, store, signal);
      found = { ...first, complete: isLast(first, again), renewed: true };
    } else {
      found = { ...found, hits: [...found.hits, ...fresh], complete: isLast(part, k, offset) || offset + k > LAST_OFFSET };
    }
  }
  return found;
}

/** The server ends a part early whose texts are long: then the next one begins where it ends. */
const isLast = (part, k, offset = 0) =>
  part.hits.length + (part.left_out ?? 0) < k || offset + part.hits.length >= part.matching;
